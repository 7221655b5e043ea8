"""The order of a stored route whose senders are connected to another worker than its store.

The same parties as in ``test_returned_in_order``, but for the senders, whose links lead through the
second worker to the first one. The engines between the two stand back to back, and what one of them
says arrives when chance says so. The second worker is killed as well; then its senders come back
to it, and resume.
"""

import attrs
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from router.core.stored import STORE
from router.net.store.unfinished import NOTHING
from router.routes.route import Storing
from tests.net.store.test_exactly_once import LIMITS, ROUTE, Target
from tests.net.store.test_returned_in_order import SILENT_SECONDS, Returning
from tests.support.fleet import Fleet
from tests.support.journal import FakeDisk
from tests.support.journaled import Journaled

pytestmark = pytest.mark.thorough


class Elsewhere(Returning):
    """Two workers: the first one has the store and the target, the second one the senders."""

    route = attrs.evolve(ROUTE, store=Storing())

    @initialize()
    def begin(self) -> None:
        super().begin()
        self.fleet = Fleet(
            2, self.route, owned=[["target", STORE]], settings=LIMITS, make=Journaled
        )
        self.play, self.far = map(_journaled, self.fleet.plays.values())
        self.play.settle_all = self.far.settle_all = self.settle_workers
        self.play.keep_store(self.play.now)
        self.disk, self.target = FakeDisk(), Target(self.play)
        self.senders = [self.make_sender(self.far, name, False) for name in ("a", "b")]
        for sender in self.senders:
            sender.attach()
        for _ in range(8):
            self.work()
            self.time_passes(1.0)

    def settle_workers(self) -> None:
        """Both workers and their journals do all that they can."""
        for _ in range(4):
            self.fleet.settle()
            self.play.flush()
            self.far.flush()

    @rule()
    def workers_talk(self) -> None:
        self.fleet.settle()

    @rule(from_first=st.booleans())
    def one_worker_talks(self, from_first: bool) -> None:
        self.fleet.carry(*((1, 2) if from_first else (2, 1)))

    @rule(seconds=st.sampled_from([0.1, 1.0, 6.0]))
    def time_passes(self, seconds: float) -> None:
        self.far.wait(seconds)
        super().time_passes(seconds)

    @rule()
    def journal_is_durable(self) -> None:
        super().journal_is_durable()
        self.far.flush()

    @rule()
    def other_worker_is_killed(self) -> None:
        following = self.live_on(2, self.far.crash())
        self.far = following
        for sender in self.senders:
            sender.play, sender.peer, sender.is_cut = following, None, True

    def kill_worker(self, lost: int) -> None:
        """The senders' connections are at the other worker, and live on."""
        self.never_reads()
        self.store, self.unfinished = None, NOTHING
        self.play.hand_in()
        last = self.play.writer.next_sequence - 1
        following = self.play.crash(keeps=max(self.play.durable, last - lost))
        self.play = self.live_on(1, following)
        self.target.play = self.play
        self.target.forget_connection()
        for sender in self.senders:  # the router ends them, as their links' home is gone
            sender.cut()

    def live_on(self, number: int, following: Journaled) -> Journaled:
        """The next process of a worker joins the other one."""
        ends = self.fleet.joints.pop((1, 2))
        self.fleet.plays[number] = following
        (other,) = (joint for joint in ends if joint.play is not self.old(number))
        other.lose()
        self.fleet.join(1, 2)
        return following

    def old(self, number: int) -> Journaled:
        """Returns the process of a worker that has just been killed."""
        return self.play if number == 1 else self.far

    def work(self) -> None:
        self.settle_workers()
        super().work()
        self.settle_workers()


class LateElsewhere(Elsewhere):
    """It begins as the target has not answered for long, and others are stored."""

    @initialize()
    def begin(self) -> None:
        super().begin()
        for stored in (False, True):
            self.send(which=0, count=3)
            self.send(which=1, count=1 + stored)
            self.settle_workers()
            for _ in range(0 if stored else SILENT_SECONDS):
                self.time_passes(1.0)
                self.settle_workers()
                self.store_works()
        self.store_works()


def _journaled(play: object) -> Journaled:
    assert isinstance(play, Journaled)
    return play


_SETTINGS = settings(
    max_examples=15,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestElsewhere = Elsewhere.TestCase
TestElsewhere.settings = _SETTINGS
TestLateElsewhere = LateElsewhere.TestCase
TestLateElsewhere.settings = _SETTINGS


@pytest.mark.parametrize("arrives", [False, True])
def test_a_target_hears_of_a_settlement_that_the_store_had_when_its_connection_was_lost(
    arrives: bool,
) -> None:
    """The store has nothing left then that would have a link for it begin again."""
    state = LateElsewhere()
    state.begin()
    for _ in range(3):
        state.everybody_works()
    state.machine_stops(lost=0, seed=0)
    for _ in range(8):
        state.everybody_works()
    assert any(each.unsettled for each in state.target.links.values())
    state.store_is_cut_off(arrives=arrives)
    state.teardown()
