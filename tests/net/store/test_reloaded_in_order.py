"""The order of what is stored after a reload or a restart has changed its route.

The parties of ``test_returned_in_order``. Four messages have been sent to the target past the
store, and it has read none of them; five that came later are stored. Then the route stores no more,
or has another name, and something is lost.
"""

from collections.abc import Callable

import attrs
import pytest

from router.journal.store.queues import UNBOUNDED
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, RELEASED, Outcome
from router.routes.route import Guarantee, Route, Storing
from tests.net.store.test_exactly_once import LIMITS, ROUTE
from tests.net.store.test_exactly_once_in_order import number_of
from tests.net.store.test_returned_in_order import ReturningAndReloaded
from tests.support.journal import START_NS, FakeDisk
from tests.support.journaled import Journaled
from tests.support.play import Peer
from tests.support.store_peer import StoreHost, StorePeer

pytestmark = pytest.mark.thorough

State = ReturningAndReloaded
CHANGES = pytest.mark.parametrize(
    ("storing", "name"),
    [
        (None, "orders"),
        (Storing(), "renamed"),
        (Storing(always=True), "renamed"),
        (None, "renamed"),
    ],
    ids=["stores-no-more", "renamed", "renamed-and-always", "renamed-and-stores-no-more"],
)
LOSSES = pytest.mark.parametrize(
    "loses",
    [
        lambda state: state.worker_is_killed(arrives=True, lost=0),
        lambda state: state.machine_stops(seed=1, lost=0),
        lambda state: state.store_is_killed(seed=1),
        lambda state: state.store_is_cut_off(arrives=True),
        lambda state: state.target_goes(),
        lambda state: state.target_goes_unsent(count=2),
    ],
    ids=[
        "worker-killed",
        "machine-stopped",
        "store-killed",
        "store-cut-off",
        "target-lost",
        "target-lost-unsent",
    ],
)
Loses = Callable[[State], object]


def late() -> State:
    state = State()
    state.begin()
    state.target_comes()
    return state


def goes_well(state: State) -> None:
    """All arrives, and each sender's messages in their order."""
    state.target_decides(ACCEPTED)
    state.teardown()


@CHANGES
@LOSSES
def test_newcomers_wait_for_what_is_stored_though_the_store_is_not_connected(
    loses: Loses, storing: Storing | None, name: str
) -> None:
    state = late()
    state.target_looks(count=4)
    state.target_answers()
    state.journal_is_durable()
    state.target_listens()
    state.journal_is_durable()
    state.reload(storing, name)
    loses(state)
    state.target_comes()
    for which in (0, 1):
        state.sender_comes_back(which=which)
        state.journal_is_durable()
        state.send(which=which, count=2)
    for _ in range(3):
        state.time_passes(6.0)
        state.journal_is_durable()
        state.target_comes()
        state.target_looks(count=4)
    state.nothing_overtakes()
    goes_well(state)


@CHANGES
@LOSSES
@pytest.mark.parametrize("is_back", [False, True], ids=["changed", "changed-back"])
@pytest.mark.parametrize("says", [RELEASED, MODIFIED_FAILED], ids=["released", "modified"])
def test_what_was_sent_past_the_store_goes_before_what_is_stored(
    loses: Loses, storing: Storing | None, name: str, is_back: bool, says: Outcome
) -> None:
    """The target returns one, perhaps after the loss, and has not read the others."""
    for looks in (0, 1, 3):
        state = late()
        state.target_decides(says)
        state.target_looks(count=looks)
        state.reload(storing, name)
        loses(state)
        state.everybody_works()
        if is_back:
            state.reload(Storing(), name)
        state.everybody_works()
        goes_well(state)


@CHANGES
def test_what_was_not_sent_after_a_restart_goes_behind_what_had_been_sent_before(
    storing: Storing | None, name: str
) -> None:
    state = late()
    state.target_goes_unsent(count=2)
    state.reload(storing, name)
    state.worker_is_killed(arrives=True, lost=0)
    state.everybody_works()
    state.target_goes_unsent(count=1)
    state.reload(Storing(), name)
    for _ in range(5):
        state.everybody_works()
    goes_well(state)


@CHANGES
def test_what_was_returned_and_stored_goes_before_what_was_not_sent_then(
    storing: Storing | None, name: str
) -> None:
    """Both go before all that is stored, and the store has the first of them."""
    state = late()
    state.target_decides(RELEASED)
    state.target_looks(count=1)
    state.target_answers()
    for _ in range(2):
        state.journal_is_durable()
        state.store_works()
    state.target_decides(ACCEPTED)
    state.reload(storing, name)
    state.target_goes_unsent(count=2)
    state.target_comes()
    state.store_works()
    goes_well(state)


@CHANGES
def test_what_goes_back_to_a_store_that_is_lost_before_it_has_that_waits_for_the_store(
    storing: Storing | None, name: str
) -> None:
    state = State()
    state.begin()
    state.reload(storing, name)
    state.everybody_works()
    state.target_decides(RELEASED)
    state.store_is_cut_off(arrives=True)
    for _ in range(2):
        state.everybody_works()
    state.store_is_cut_off(arrives=False)
    state.target_looks(count=1)
    goes_well(state)


@CHANGES
def test_what_was_going_back_to_the_store_goes_on_after_a_restart(
    storing: Storing | None, name: str
) -> None:
    """Also where the route stores no more, so that its senders' node has no link to the store."""
    state = State()
    state.begin()
    state.target_goes_unsent(count=1)
    state.everybody_works()
    state.reload(storing, name)
    state.store_is_cut_off(arrives=False)
    state.everybody_works()
    state.worker_is_killed(arrives=False, lost=0)
    for _ in range(2):
        state.everybody_works()
    goes_well(state)


# ------------------------------------------------------------------ routes that promise less


class Stage:
    """A worker with a store; its route promises at-least-once, so its journal has nothing of it."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self.host = StoreHost.begun(FakeDisk(), START_NS, START_NS)
        self.lives = 0
        self.begin(route)

    def begin(self, route: Route) -> None:
        """A worker begins, perhaps the next one."""
        self.play = Journaled(route, settings=attrs.evolve(LIMITS, failover_seconds=60.0))
        self.play.keep_store(self.play.now)
        self.route = route

    def connect(self) -> None:
        """It connects to the store."""
        self.lives += 1
        life = START_NS + self.lives
        self.store = StorePeer.connected(self.play, self.host, life, self.route, bounds=UNBOUNDED)
        self.store.settle()

    def reach(self) -> Peer:
        """It reaches the target."""
        peer = self.play.dial("target")
        self.grant(peer)
        return peer

    @staticmethod
    def grant(peer: Peer) -> None:
        while peer.asked:
            peer.answer_receiver(credit=10)


AT_LEAST_ONCE = attrs.evolve(ROUTE, guarantee=Guarantee.AT_LEAST_ONCE)
NO_MORE = attrs.evolve(AT_LEAST_ONCE, store=None, dead_letter=None)


def got(peer: Peer) -> list[int]:
    """Returns the numbers of what a target was sent."""
    return [number_of(body) for end in peer.receives.values() for body in end.payloads]


def message(number: int) -> bytes:
    return b"\x00\x53\x75\xa0\x01%d" % number


def stored_before(later: Route) -> Stage:
    """Returns a worker that comes after one whose route has stored three messages."""
    stage = Stage(AT_LEAST_ONCE)
    stage.connect()
    sender = stage.play.connect("client").attach_sender("orders")
    stage.play.wait(2.0)  # the target does not come
    stage.store.settle()
    sender.send(*map(message, (1, 2, 3)))
    stage.store.settle()
    assert sum(each.messages for each in stage.host.log.store.holdings.queues.values()) == 3
    stage.store.leave()
    stage.begin(later)
    return stage


def test_newcomers_wait_for_the_store_after_a_restart_at_least_once_too() -> None:
    stage = stored_before(NO_MORE)
    sender = stage.play.connect("client").attach_sender("orders")
    target = stage.reach()
    sender.send(*map(message, (4, 5)))
    assert got(target) == []
    stage.connect()
    order: list[int] = []
    for _ in range(4):
        stage.grant(target)
        for end in target.receives.values():
            order += map(number_of, (end.bodies[number] for number in end.unsettled))
            end.accept(*list(end.unsettled))
        stage.store.settle()
    assert order == [1, 2, 3, 4, 5]


def test_a_store_that_does_not_come_holds_up_a_route_that_stores_no_more_for_a_while_only() -> None:
    stage = stored_before(NO_MORE)
    sender = stage.play.connect("client").attach_sender("orders")
    target = stage.reach()
    sender.send(message(4))
    stage.play.wait(59.0)
    assert got(target) == []
    stage.play.wait(1.0)
    assert got(target) == [4]


def test_an_empty_store_holds_up_nothing_when_it_is_connected() -> None:
    stage = Stage(NO_MORE)
    stage.connect()
    sender = stage.play.connect("client").attach_sender("orders")
    target = stage.reach()
    sender.send(message(1))
    assert got(target) == [1]
