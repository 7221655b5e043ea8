"""Exactly-once deliveries keep their order through the message store, whatever goes wrong when.

The same parties as in ``test_exactly_once``, with a target that returns nothing:

Fifo: the target processes the messages of one sender in the order of their sending, whether they
      were stored or passed the store by.
"""

import attrs
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from router.model.events import DeliveriesUpdated
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, RELEASED, Outcome
from router.routes.route import Storing
from tests.core.test_exactly_once import Receiver
from tests.net.store.test_exactly_once import ROUTE, Stored

pytestmark = pytest.mark.thorough


class InOrder(Stored):
    """The target takes deliveries in the order of their coming, over all of its links."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[int] = []

    @rule(count=st.integers(1, 4))
    def target_goes_unsent(self, count: int) -> None:
        """The connection is lost with deliveries that have not left our engine."""
        for _, link in tuple(self.target.live()):
            end = link.end
            assert end is not None
            fresh = [each for each in end.received[link.looked_at :] if not each.resume]
            unread = {each.number for each in fresh[-count:]}
            numbers = [number for number in end.unsettled if number in unread]
            end.received[:] = [each for each in end.received if each.number not in numbers]
            for number in numbers:
                del end.unsettled[number]
            if numbers:
                end.peer.happens(DeliveriesUpdated(end.link, numbers, RELEASED, True, True))
        self.target_goes()

    @rule(count=st.integers(1, 4))
    def target_looks(self, count: int) -> None:
        for _ in range(count):
            self.look_at_next()

    def lose_target(self, unsent: int) -> None:
        """Loses it with so many deliveries that have not left our engine."""
        if unsent:
            self.target_goes_unsent(count=unsent)
        else:
            self.target_goes()

    def look_at_next(self) -> None:
        """Takes one delivery, of those that passed the store by first: so they came."""
        live = sorted(self.target.live(), key=lambda each: "$>" in each[0])
        for _, link in live:
            if link.end is not None and link.looked_at < len(link.end.received):
                self.take(link)
                return

    def take(self, link: Receiver) -> None:
        known = len(link.processed)
        link.look()
        if len(link.processed) > known:
            self.order.append(number_of(next(reversed(link.processed))))

    @invariant()
    def nothing_overtakes(self) -> None:
        if not hasattr(self, "senders"):
            return
        for sender in self.senders:
            sent = {number_of(body) for body in sender.sent}
            mine = [number for number in self.order if number in sent]
            assert mine == sorted(mine)

    def teardown(self) -> None:
        super().teardown()
        self.nothing_overtakes()


class PassingInOrder(InOrder):
    """The store has only what the target cannot take."""

    route = attrs.evolve(ROUTE, store=Storing())


def number_of(body: bytes) -> int:
    """Returns the number of a message, which tells when it was sent."""
    return int(body[body.index(b"\x53\x75\xa0") + 4 :])


_SETTINGS = settings(
    max_examples=25,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestStoredInOrder = InOrder.TestCase
TestStoredInOrder.settings = _SETTINGS
TestPassingInOrder = PassingInOrder.TestCase
TestPassingInOrder.settings = _SETTINGS


def passing() -> PassingInOrder:
    """Returns a route that passes through to its target, after its store has said it is empty."""
    state = PassingInOrder()
    state.begin()
    for _ in range(8):
        state.work()
        state.time_passes(1.0)
    return state


@attrs.frozen
class Case:
    """What becomes of deliveries that a lost target never had.

    Attributes:
        is_sent: they were handed to our engine.
        unsent: how many have not left that.
        returns: the target comes back, and lacks them.
    """

    is_sent: bool = True
    unsent: int = 0
    returns: bool = False


@pytest.mark.parametrize("lost", range(12))
@pytest.mark.parametrize("seconds", [0.1, 6.0])
@pytest.mark.parametrize("stored", [0, 2], ids=["none-stored", "some-stored"])
@pytest.mark.parametrize(
    "case",
    [
        Case(is_sent=False),
        Case(),
        Case(returns=True),
        Case(unsent=2),
        Case(unsent=2, returns=True),
    ],
    ids=["not-sent", "sent", "sent-again", "in-the-engine", "in-the-engine-then-again"],
)
def test_whatever_a_killed_worker_leaves_of_its_last_turn_is_behind_nothing_younger(
    case: Case, stored: int, seconds: float, lost: int
) -> None:
    """Three deliveries that the target never had, and others stored when they waited for long."""
    state = passing()
    state.send(which=0, count=3)
    if case.is_sent:
        state.journal_is_durable()
    if not stored:
        state.lose_target(case.unsent)
    for _ in range(2):
        state.time_passes(seconds)
        state.store_works()
    if stored:
        state.send(which=0, count=stored)
        state.journal_is_durable()
        state.store_works()
        state.lose_target(case.unsent)
    if case.returns:
        state.target_comes()
        state.target_listens()
    state.worker_is_killed(arrives=True, lost=lost)
    state.store_comes()
    state.sender_comes_back(which=0)
    for _ in range(8):
        state.time_passes(1.0)  # the target stays away, so all that waits is stored
        state.journal_is_durable()
        state.store_works()
    state.teardown()
    assert len(state.order) == 3 + stored
    state.nothing_overtakes()


@pytest.mark.parametrize("is_killed", [False, True], ids=["cut-off", "worker-killed"])
def test_what_a_lost_target_never_had_goes_before_what_was_stored_after_it(is_killed: bool) -> None:
    state = passing()
    state.send(which=0, count=3)
    state.journal_is_durable()
    state.target_looks(count=1)
    state.target_goes()
    if is_killed:
        state.worker_is_killed(arrives=True, lost=0)
        state.store_comes()
        state.sender_comes_back(which=0)
    for _ in range(8):
        state.time_passes(1.0)
        state.journal_is_durable()
        state.store_works()
        state.sender_looks(which=0)
    state.send(which=0, count=3)
    state.journal_is_durable()
    state.store_works()
    state.teardown()
    assert len(state.order) == 6
    state.nothing_overtakes()


@pytest.mark.parametrize("passes", [False, True], ids=["not-stored", "stored"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["alive", "worker-killed"])
def test_what_a_target_returns_goes_before_what_was_stored_since(
    is_killed: bool, passes: bool
) -> None:
    state = passing()
    state.send(which=0, count=4)
    state.journal_is_durable()
    for _ in range(16):  # the target has taken what it can, and answers nothing
        state.time_passes(1.0)
        state.journal_is_durable()
        state.store_works()
    state.send(which=0, count=3)
    state.journal_is_durable()
    state.store_works()
    assert state.host is not None
    assert sum(each.messages for each in state.host.log.store.holdings.queues.values()) == 3
    state.target.says = RELEASED
    state.target_looks(count=4)
    state.target_answers()
    state.journal_is_durable()
    state.target_listens()
    state.journal_is_durable()
    if is_killed:
        if passes:
            state.store_is_written()
        state.worker_is_killed(arrives=False, lost=0)
        state.store_comes()
        state.sender_comes_back(which=0)
        state.journal_is_durable()
        state.store_works()
    state.target.says = ACCEPTED
    state.order.clear()
    state.teardown()
    assert len(state.order) == 7
    state.nothing_overtakes()


def test_what_waited_for_the_store_when_the_worker_was_killed_is_behind_what_is_stored() -> None:
    state = InOrder()
    state.begin()
    for _ in range(4):
        state.work()
        state.time_passes(1.0)
    state.target_goes()
    state.send(which=0, count=3)
    state.journal_is_durable()
    state.store_works()
    state.send(which=0, count=2)
    state.journal_is_durable()
    state.worker_is_killed(arrives=False, lost=0)
    state.store_comes()
    state.sender_comes_back(which=0)
    state.teardown()
    assert len(state.order) == 5
    state.nothing_overtakes()


@pytest.mark.parametrize("seconds", [0.1, 8.0])
@pytest.mark.parametrize("is_killed", [False, True], ids=["cut-off", "worker-killed"])
def test_what_never_arrived_is_behind_what_the_target_returned_before_it_was_lost(
    is_killed: bool, seconds: float
) -> None:
    state = passing()
    state.send(which=0, count=4)
    state.journal_is_durable()
    state.target.says = RELEASED
    state.target_looks(count=2)
    state.target_goes()
    state.journal_is_durable()
    if is_killed:
        state.worker_is_killed(arrives=True, lost=0)
        state.store_comes()
        state.sender_comes_back(which=0)
    state.time_passes(seconds)
    state.store_works()
    state.send(which=0, count=2)
    state.journal_is_durable()
    state.store_works()
    state.target.says = ACCEPTED
    state.order.clear()
    for link in state.target.links.values():
        link.processed.clear()
    state.teardown()
    told = [each for each in state.play.noticed if each.event == "store.returned"]
    assert [each.fields["count"] for each in told] == [2]
    assert state.order == sorted(state.order)
    assert state.order[:4] == [1, 2, 3, 4]


@pytest.mark.parametrize("returns", [1, 4], ids=["one", "all"])
@pytest.mark.parametrize("says", [RELEASED, MODIFIED_FAILED], ids=["released", "modified"])
@pytest.mark.parametrize("machine", [InOrder, PassingInOrder])
def test_nothing_is_sent_before_what_goes_back_to_the_store_and_is_not_there_yet(
    machine: type[InOrder], says: Outcome, returns: int
) -> None:
    """The store hears that something was returned when that is in the journal."""
    state = machine()
    state.begin()
    for _ in range(4):
        state.work()
        state.time_passes(1.0)
    state.target_goes()
    for _ in range(8):
        state.send(which=0, count=3)
        state.journal_is_durable()
        state.store_works()
        state.time_passes(8.0)
        state.sender_looks(which=0)
        state.journal_is_durable()
        state.sender_settles(which=0)
    for _ in range(4):
        state.target_comes()
        state.journal_is_durable()
        state.store_works()
    (link,) = (link for name, link in state.target.live() if "$>" in name)
    assert link.end is not None
    assert len(link.end.received) == 4
    state.target_looks(count=4 - returns)
    state.target_answers()
    state.target.says = says
    state.target_looks(count=returns)
    state.target_answers()
    state.target_listens()  # and grants credit
    for _ in range(3):
        state.store_works()
    state.target.says = ACCEPTED
    for _ in range(40):
        state.journal_is_durable()
        state.store_works()
        state.time_passes(1.0)
        state.target_listens()
        state.target_looks(count=4)
        state.target_answers()
    again = [number_of(each.payload) for each in link.end.received[4:]]
    assert again == sorted(again)
    state.teardown()
