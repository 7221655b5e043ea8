"""Exactly once over cuts, reloads, and crashes of the worker, one soon after the other.

The peers are those of ``test_exactly_once``. The core writes a journal; what it has handed in is
there after a crash, whether it had been called durable or not.
"""

import attrs
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from router.core.settings import CoreSettings
from tests.core.test_exactly_once import ExactlyOnce, ExactlyOnceBridge
from tests.support.journaled import Journaled
from tests.support.play import Play, table


class Crashes(ExactlyOnce):
    def make_play(self, limits: CoreSettings) -> Play:
        self.stage = Journaled(self.route, settings=limits)
        return self.stage

    @rule()
    def pass_on(self) -> None:
        self.stage.flush()

    @rule(seconds=st.sampled_from([60.0, 70.0]))
    def reload(self, seconds: float) -> None:
        self.stage.routes = (attrs.evolve(self.route, stall_seconds=seconds),)
        self.stage.carry_out(self.stage.core.configure(table(*self.stage.routes), self.stage.now))

    @rule(times=st.integers(1, 2), seconds=st.sampled_from([0.0, 5.0, 400.0]))
    def crash(self, times: int, seconds: float) -> None:
        for _ in range(times):
            self.play = self.stage = self.stage.crash()
        for client in self.clients():
            client.play, client.peer, client.is_cut = self.stage, None, True
        self.stage.wait(seconds)


class CrashesOfABridge(Crashes, ExactlyOnceBridge):
    pass


class CrashesInSmallFrames(Crashes):
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
TestCrashesOfABridge = CrashesOfABridge.TestCase
TestCrashesOfABridge.settings = LIMITS
TestCrashesInSmallFrames = CrashesInSmallFrames.TestCase
TestCrashesInSmallFrames.settings = LIMITS
