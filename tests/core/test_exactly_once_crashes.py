"""Exactly once over cuts, reloads, and crashes of the worker, one soon after the other.

The peers are those of ``test_exactly_once``. The core writes a journal; what it has handed in is
there after a crash, whether it had been called durable or not; when the machine stops, some of what
had not may be missing.
"""

import attrs
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from router.core.settings import CoreSettings
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, RELEASED, Outcome
from router.routes.route import Route
from tests.core.test_exactly_once import SMALL, ExactlyOnce, ExactlyOnceBridge
from tests.support.journaled import Journaled
from tests.support.play import Play, table

pytestmark = pytest.mark.thorough


class Crashes(ExactlyOnce):
    def make_play(self, limits: CoreSettings) -> Play:
        self.stage = Journaled(self.route, settings=limits, frame_octets=self.frame_octets)
        return self.stage

    @rule()
    def pass_on(self) -> None:
        self.stage.flush()

    @rule(seconds=st.sampled_from([60.0, 70.0]))
    def reload(self, seconds: float) -> None:
        self.configure(attrs.evolve(self.route, stall_seconds=seconds))

    @rule(times=st.integers(1, 2), seconds=st.sampled_from([0.0, 5.0, 400.0]))
    def crash(self, times: int, seconds: float) -> None:
        for _ in range(times):
            self.live_on(self.stage.crash())
        self.stage.wait(seconds)

    @rule(lost=st.sampled_from([1, 2, 3, 5, 1000]))
    def crash_of_the_machine(self, lost: int) -> None:
        """The last records are not on disk; what anybody has seen is."""
        self.stage.hand_in()
        last = self.stage.writer.next_sequence - 1
        self.live_on(self.stage.crash(keeps=max(self.stage.durable, last - lost)))

    @rule(crashes=st.booleans(), seconds=st.sampled_from([0.0, 5.0, 400.0]))
    def route_goes_and_comes(self, crashes: bool, seconds: float) -> None:
        """While something is under way."""
        if len(self.senders[0].bodies) < 30:
            self.send(0, 2)
        self.pass_on()
        for receiver in self.receivers:
            receiver.look()
        routes = self.stage.routes
        self.configure()
        if crashes:
            self.live_on(self.stage.crash())
        self.stage.wait(seconds)
        self.configure(*routes)

    def configure(self, *routes: Route | str) -> None:
        self.stage.routes = routes
        self.stage.carry_out(self.stage.core.configure(table(*routes), self.stage.now))

    def live_on(self, stage: Journaled) -> None:
        """Goes on with the next life."""
        self.play = self.stage = stage
        for client in self.clients():
            client.play, client.peer, client.is_cut = stage, None, True


class GivingBack(Crashes):
    """Receivers give back what they cannot take, and senders send it again as something new.

    What all receivers gave back is kept for others that may come, for a while.
    """

    def make_play(self, limits: CoreSettings) -> Play:
        return super().make_play(attrs.evolve(limits, failover_seconds=60.0))

    @rule()
    def pass_on(self) -> None:
        self.stage.wait(1.0)
        super().pass_on()

    @rule(says=st.sampled_from([ACCEPTED, RELEASED, MODIFIED_FAILED]))
    def receivers_decide(self, says: Outcome) -> None:
        for receiver in self.receivers:
            receiver.says = says

    @rule()
    def everybody_works(self) -> None:
        """Long enough for an outcome to come back from the last receiver."""
        for _ in range(3):
            self.pass_on()
            for receiver in self.receivers:
                receiver.look()
                receiver.answer()
                receiver.listen()
                receiver.renew()
        self.pass_on()
        for sender in self.senders:
            sender.look()

    @rule(which=st.integers(0, 1))
    def sender_sends_again(self, which: int) -> None:
        self.senders[which % len(self.senders)].send_again()


class GivingBackOfABridge(GivingBack, ExactlyOnceBridge):
    pass


class CrashesOfABridge(Crashes, ExactlyOnceBridge):
    pass


class CrashesInSmallFrames(Crashes):
    frame_octets = SMALL


class CrashesAmongSmallFrames(CrashesInSmallFrames):
    entries = 2


LIMITS = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)

TestCrashes = Crashes.TestCase
TestCrashes.settings = LIMITS
TestGivingBack = GivingBack.TestCase
TestGivingBack.settings = LIMITS
TestGivingBackOfABridge = GivingBackOfABridge.TestCase
TestGivingBackOfABridge.settings = LIMITS
TestCrashesOfABridge = CrashesOfABridge.TestCase
TestCrashesOfABridge.settings = LIMITS
TestCrashesInSmallFrames = CrashesInSmallFrames.TestCase
TestCrashesInSmallFrames.settings = LIMITS
TestCrashesAmongSmallFrames = CrashesAmongSmallFrames.TestCase
TestCrashesAmongSmallFrames.settings = LIMITS
