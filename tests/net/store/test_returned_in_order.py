"""What a target returns of an exactly-once route goes before all that it was not sent yet.

The same parties as in ``test_exactly_once_in_order``, with a target that returns what it likes,
late, too, when others have been stored meanwhile:

Fifo: the target looks at the messages of one sender and priority for the first time in the order
      of their sending.
Kept: a message that the target has returned is sent again before anything that it had not been
      sent by then, whoever has sent that and whatever its priority. What it returned together
      comes back in its order.
"""

from collections.abc import Callable, Iterator

import attrs
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from router.journal.store.queues import Bounds
from router.model.commands import SendDeliveries
from router.model.identity import DeliveryTag
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, RELEASED, Outcome, may_go_on
from router.routes.route import Storing
from router.routes.table import RoutingTable
from tests.core.test_exactly_once import Map, Receiver, Sender
from tests.net.store.test_exactly_once import LIMITS, ROUTE
from tests.net.store.test_exactly_once_in_order import InOrder, number_of

pytestmark = pytest.mark.thorough

SILENT_SECONDS = 16
"""After so long others are stored, though the target is there."""


@attrs.define(eq=False)
class Owed:
    """A message that the target has returned, and was not sent since.

    Attributes:
        sent: what it had been sent by then, and had not looked at.
        with_it: what it returned together with this one, and was sent before that; and has not been
            sent since: what the target looks at again it may return again.
    """

    sent: set[bytes]
    with_it: set[bytes]


class Returning(InOrder):
    """The target returns messages."""

    @initialize()
    def begin(self) -> None:
        super().begin()
        self.looked: set[bytes] = set()
        self.owed: dict[bytes, Owed] = {}
        self.were_sent: set[bytes] = set()
        self.told: set[tuple[str, DeliveryTag]] = set()
        self.bodies: dict[tuple[str, DeliveryTag], bytes] = {}

    @rule(says=st.sampled_from([ACCEPTED, RELEASED, MODIFIED_FAILED]))
    def target_decides(self, says: Outcome) -> None:
        self.target.says = says

    # The target answers

    @rule()
    def target_comes(self) -> None:
        """It shows maps of what it has not settled, so what it had returned it returns now."""
        for name, link in self.target.links.items():
            if link.is_cut:
                self.owe(name, link, dict(link.unsettled))
        super().target_comes()

    @rule()
    def target_answers(self) -> None:
        for name, link in tuple(self.target.live()):
            assert link.end is not None
            told = {
                tag: link.unsettled.get(tag)
                for number, tag in link.tags.items()
                if number in link.end.unsettled and number not in link.heard
            }
            self.owe(name, link, told)
            link.answer()

    def owe(self, name: str, link: Receiver, told: Map) -> None:
        """Records what a target returns now."""
        self.were_sent |= (unread := {*self.unread()})
        before: set[bytes] = set()
        for tag, state in told.items():
            if (name, tag) not in self.told and may_go_on(state) and not is_dead(name):
                self.told.add((name, tag))
                body = self.bodies[name, tag]
                mine = self.of_sender(body)
                fellows = {each for each in before & mine if priority_of(each) == priority_of(body)}
                sent = unread | (self.were_sent - mine)
                self.owed[body] = Owed(sent, fellows)
                before.add(body)

    def of_sender(self, body: bytes) -> set[bytes]:
        """Returns all messages of the sender of one."""
        return next(sender.sent for sender in self.senders if body in sender.sent)

    @rule()
    def target_goes(self) -> None:
        self.never_reads()
        super().target_goes()

    def kill_worker(self, lost: int) -> None:
        self.never_reads()
        super().kill_worker(lost)

    def never_reads(self) -> None:
        """What the target has not looked at is lost: it does not go before others any more."""
        self.were_sent |= (unread := {*self.unread()})
        for body, owed in self.owed.items():
            if body not in unread:
                owed.sent -= self.of_sender(body)

    def unread(self) -> Iterator[bytes]:
        """Yields what the target was sent, or is as soon as it is recorded, and did not look at."""
        for _, _, connection, command in self.play.core._turn.gate._held:
            is_there = self.target.peer is not None and connection == self.target.peer.id
            if is_there and isinstance(command, SendDeliveries):
                yield from (each.payload for each in command.deliveries)
        for name, link in self.target.live():
            assert link.end is not None
            if not is_dead(name):
                yield from (each.payload for each in link.end.received[link.looked_at :])

    # It looks at what it is sent

    def take(self, link: Receiver) -> None:
        assert link.end is not None
        (name,) = (name for name, each in self.target.links.items() if each is link)
        delivery = link.end.received[link.looked_at]
        is_known = link.unsettled.get(delivery.tag) is not None
        link.look()
        if not is_known and delivery.tag in link.unsettled:
            self.bodies[name, delivery.tag] = delivery.payload
            self.told.discard((name, delivery.tag))
            self.looks_at(delivery.payload, is_dead=is_dead(name))

    def looks_at(self, body: bytes, *, is_dead: bool) -> None:
        for back in self.given_back():
            self.owed.pop(back, None)
        first = self.owed.pop(body, None)
        if is_dead:
            return
        if body not in self.looked:
            self.looked.add(body)
            self.order.append(number_of(body))
            early = [each for each, owed in self.owed.items() if body not in owed.sent]
            assert not early, f"{body!r} overtakes {early} that the target has returned"
        if first is not None:
            assert not first.with_it & self.owed.keys(), "it overtakes what was returned with it"
            for owed in self.owed.values():
                owed.with_it.discard(body)

    def given_back(self) -> set[bytes]:
        """Returns what senders have been told to be returned, and may send again."""
        found: set[bytes] = set()
        for sender in self.senders:
            if sender.end is not None:
                for number, tag in sender.tags.items():
                    last = sender.end.told.get(number)
                    if last and may_go_on(last[-1][0]):
                        found.add(sender.bodies[tag])
            found.update(sender.given_back)
            found.update(
                sender.bodies[tag] for tag, each in sender.unsettled.items() if may_go_on(each)
            )
        return found

    @rule(count=st.integers(1, 4))
    def target_looks(self, count: int) -> None:
        for _ in range(count):
            self.look_at_next()


class ReturningWhatPassed(Returning):
    """The store has only what the target cannot take; it begins with messages that pass it by."""

    route = attrs.evolve(ROUTE, store=Storing())

    @initialize()
    def begin(self) -> None:
        super().begin()
        for _ in range(8):
            self.work()
            self.time_passes(1.0)


class ReturningLate(ReturningWhatPassed):
    """It begins as the target has not answered for long, and others are stored."""

    @initialize()
    def begin(self) -> None:
        super().begin()
        self.send(which=0, count=3)
        self.send(which=1, count=1)
        self.journal_is_durable()
        for _ in range(SILENT_SECONDS):
            self.time_passes(1.0)
            self.journal_is_durable()
            self.store_works()
        self.send(which=0, count=3)
        self.send(which=1, count=2)
        self.journal_is_durable()
        self.store_works()


class RankedSender(Sender):
    """Its messages have two priorities in turn."""

    @staticmethod
    def message(number: int) -> bytes:
        head = b"\x00\x53\x70\xc0\x04\x02\x40\x50" + bytes([9 * (number % 2)])
        return head + Sender.message(number)


class ReturningRanked(ReturningLate):
    """Senders send messages of two priorities."""

    make_sender = RankedSender

    @invariant()
    def nothing_overtakes(self) -> None:
        if not hasattr(self, "senders"):
            return
        for sender in self.senders:
            for priority in (0, 9):
                sent = {number_of(each) for each in sender.sent if priority_of(each) == priority}
                mine = [number for number in self.order if number in sent]
                assert mine == sorted(mine)


class ReturningWhileFull(ReturningLate):
    """The store takes few messages, and what its target returns all the same."""

    bounds = Bounds(messages=6)


class ReturningAndReloaded(ReturningLate):
    """The route stores no more, or all, after a reload, or has another name, once."""

    @rule(
        storing=st.sampled_from([Storing(), Storing(always=True), None]),
        name=st.sampled_from(["orders", "renamed"]),
    )
    def reload(self, storing: Storing | None, name: str = "orders") -> None:
        if self.route.name == "renamed":  # messages of several names have no order
            name = self.route.name
        dead_letter = None if storing is None else ROUTE.dead_letter
        self.route = attrs.evolve(ROUTE, name=name, store=storing, dead_letter=dead_letter)
        self.play.routes = (self.route,)
        self.play.carry_out(self.play.core.configure(RoutingTable([self.route]), self.play.now))
        if self.store is not None:
            self.store.follow(self.route)

    def teardown(self) -> None:
        if hasattr(self, "target"):
            self.reload(Storing(), self.route.name)
        super().teardown()


def priority_of(body: bytes) -> int:
    """Returns the priority of a message."""
    return body[8] if body[2:3] == b"\x70" else 4


def is_dead(name: str) -> bool:
    """Returns whether a link is for dead letters."""
    return "!>" in name


_SETTINGS = settings(
    max_examples=25,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestReturning = Returning.TestCase
TestReturning.settings = _SETTINGS
TestReturningWhatPassed = ReturningWhatPassed.TestCase
TestReturningWhatPassed.settings = _SETTINGS
TestReturningLate = ReturningLate.TestCase
TestReturningLate.settings = _SETTINGS
TestReturningRanked = ReturningRanked.TestCase
TestReturningRanked.settings = _SETTINGS
TestReturningWhileFull = ReturningWhileFull.TestCase
TestReturningWhileFull.settings = _SETTINGS
TestReturningAndReloaded = ReturningAndReloaded.TestCase
TestReturningAndReloaded.settings = _SETTINGS


def passing() -> ReturningWhatPassed:
    """Returns a route that passes through to its target, after its store has said it is empty."""
    state = ReturningWhatPassed()
    state.begin()
    return state


def lost_with_a_return() -> ReturningWhatPassed:
    """Returns one whose target was lost with three messages: it returns one, and never had two."""
    state = passing()
    state.send(which=0, count=3)
    state.journal_is_durable()
    state.target_decides(RELEASED)
    state.target_looks(count=1)
    state.target_goes_unsent(count=2)
    return state


def late() -> ReturningLate:
    """Returns one whose target is silent, and whose store waits for it to answer."""
    state = ReturningLate()
    state.begin()
    state.target_comes()  # and answers the attach of the link for what is stored
    state.time_passes(1.0)
    return state


@pytest.mark.parametrize("says", [RELEASED, MODIFIED_FAILED], ids=["released", "modified"])
@pytest.mark.parametrize("returns", [1, 2, 4])
def test_nothing_stored_is_sent_before_what_a_silent_target_returns_is_stored(
    says: Outcome, returns: int
) -> None:
    """The store hears of that when it is in the journal; others could be sent until then."""
    state = late()
    state.target_looks(count=4 - returns)
    state.target_answers()
    state.target_decides(says)
    state.target_looks(count=returns)
    state.target_answers()
    state.target_listens()
    for _ in range(3):
        state.store_works()
    state.teardown()


@pytest.mark.parametrize("is_written", [False, True])
def test_nothing_stored_is_sent_before_what_was_on_its_way_to_a_store_that_was_killed(
    is_written: bool,
) -> None:
    state = late()
    state.target_decides(RELEASED)
    state.target_looks(count=4)
    state.target_answers()
    state.journal_is_durable()
    if is_written:
        state.store_is_written()
    state.store_is_killed(seed=1)
    state.target_listens()
    state.store_comes()
    for _ in range(3):
        state.store_works()
        state.target_comes()
    state.teardown()


def test_nothing_stored_is_sent_before_what_was_returned_while_the_store_was_away() -> None:
    state = late()
    state.store_is_killed(seed=1)
    state.target_decides(RELEASED)
    state.target_looks(count=4)
    state.target_answers()
    state.target_listens()
    state.time_passes(6.0)
    state.store_comes()
    for _ in range(3):
        state.store_works()
        state.target_comes()
    state.teardown()


def test_what_returns_after_a_reload_has_all_stored_goes_before_what_is_stored() -> None:
    state = ReturningAndReloaded()
    state.begin()
    for _ in range(3):
        state.everybody_works()
    state.journal_is_durable()
    assert {*map(number_of, state.unread())} == {4}, "and others are stored"
    state.reload(storing=Storing(always=True))
    state.target_decides(says=RELEASED)
    state.everybody_works()
    state.teardown()


def test_what_the_map_of_a_target_returns_goes_before_what_waits_for_that_target() -> None:
    state = lost_with_a_return()
    state.target_comes()
    state.teardown()


def test_what_the_map_of_a_target_returns_goes_before_what_was_taken_back_and_stored() -> None:
    state = lost_with_a_return()
    for _ in range(2):
        state.time_passes(6.0)
        state.journal_is_durable()
        state.store_works()
    state.target_comes()
    state.teardown()


@pytest.mark.parametrize("is_killed", [False, True], ids=["cut-off", "worker-killed"])
def test_what_never_arrived_goes_behind_what_was_returned_and_before_what_was_not_sent(
    is_killed: bool,
) -> None:
    """All others than the one that never arrived are in the store by the time that is known."""
    state = passing()
    state.send(which=0, count=4)
    state.journal_is_durable()
    state.target_decides(RELEASED)
    state.target_looks(count=1)
    state.target_answers()
    state.target_goes_unsent(count=2)
    for _ in range(2):
        state.time_passes(6.0)
        state.journal_is_durable()
        state.store_works()
    if is_killed:
        state.worker_is_killed(arrives=True, lost=0)
        state.store_comes()
        state.sender_comes_back(which=0)
    state.target_comes()
    state.teardown()
    assert state.order == sorted(state.order)


def test_what_the_store_sent_before_and_was_taken_back_goes_behind_what_was_returned() -> None:
    state = late()
    state.time_passes(6.0)  # so long the store waits for answers
    state.store_works()
    state.target_decides(RELEASED)
    state.target_looks(count=1)
    state.target_answers()
    state.target_goes_unsent(count=4)
    state.journal_is_durable()
    state.store_works()
    state.target_comes()
    state.teardown()


def test_store_returned_counts_what_the_target_has_returned_and_nothing_else() -> None:
    state = late()
    state.time_passes(6.0)
    state.store_works()
    state.target_decides(RELEASED)
    state.target_looks(count=2)
    state.target_answers()  # what the store sent meanwhile goes back there for this
    for _ in range(3):
        state.journal_is_durable()
        state.store_works()
    told = [each for each in state.play.noticed if each.event == "store.returned"]
    assert sum(int(str(each.fields["count"])) for each in told) == 2
    state.teardown()


def test_a_sender_that_knows_what_became_of_a_stored_message_is_told_the_same() -> None:
    """Also while the outcome that the target has given of the same message is not durable."""
    state = passing()
    state.target_goes()
    state.send(which=0, count=1)
    for _ in range(8):
        state.time_passes(1.0)
        state.journal_is_durable()
        state.store_works()
    state.sender_looks(which=0)
    sender = state.senders[0]
    ((tag, known),) = sender.unsettled.items()
    assert known == ACCEPTED
    for _ in range(3):
        state.target_comes()
        state.journal_is_durable()
        state.store_works()
    state.target_looks(count=1)
    state.target_answers()
    sender.lose()
    sender.attach()
    assert sender.end is not None
    assert sender.end.attach is not None
    assert sender.end.attach.unsettled == {tag: ACCEPTED}
    state.teardown()


def test_a_full_store_that_was_cut_off_takes_what_goes_before_all_that_it_has() -> None:
    state = ReturningWhileFull()
    state.begin()
    state.target_goes_unsent(count=3)
    state.journal_is_durable()
    state.store_is_written()
    state.store_is_cut_off(arrives=False)
    state.teardown()


@pytest.mark.parametrize("accepted", [0, 1], ids=["behind-one-of-them", "of-the-other-link"])
def test_what_a_killed_store_had_not_written_goes_before_newcomers_of_all_senders(
    accepted: int,
) -> None:
    """The target has returned it, and came back, so it is sent past the store once more."""
    state = passing()
    for _ in range(accepted):  # so that the newcomer is the first delivery of its link
        state.send(which=0, count=1)
        state.journal_is_durable()
        state.target_looks(count=1)
        state.target_answers()
        state.journal_is_durable()
        state.target_listens()
    state.send(which=0, count=1)
    state.send(which=1, count=1 - accepted)
    state.journal_is_durable()
    state.target_decides(RELEASED)
    state.target_looks(count=2)
    state.target_answers()
    state.send(which=accepted, count=2)
    state.journal_is_durable()
    state.target_goes()
    state.target_comes()
    state.store_is_killed(seed=0)
    state.teardown()


@pytest.mark.parametrize(
    "loses",
    [
        lambda state: state.worker_is_killed(arrives=True, lost=0),
        lambda state: state.machine_stops(seed=1, lost=0),
        lambda state: (state.store_is_killed(seed=1), state.target_goes()),
        lambda state: (state.store_is_cut_off(arrives=True), state.target_goes()),
        lambda state: state.target_goes(),
    ],
    ids=["worker-killed", "machine-stopped", "store-killed", "store-cut-off", "target-lost"],
)
def test_a_stored_message_that_was_returned_goes_before_what_was_under_way_and_never_arrived(
    loses: Callable[[Returning], object],
) -> None:
    """More than the credit of the store was under way, so it has none left to read what waits."""
    state = Returning()
    state.begin()
    state.store_comes()
    state.journal_is_durable()
    for which in (0, 1, 0, 1):
        state.send(which=which, count=3)
        for _ in range(4):
            state.target_comes()
            state.journal_is_durable()
            state.store_works()
            state.sender_looks(which=which)
            state.sender_settles(which=which)
    for says in (ACCEPTED, ACCEPTED, RELEASED):
        state.target_decides(says)
        state.target_looks(count=1)
        state.target_answers()
        for _ in range(2):
            state.target_listens()
            state.journal_is_durable()
            state.store_works()
    assert len(state.owed) == 1
    assert len([*state.unread()]) > LIMITS.link_credit
    loses(state)
    state.teardown()
    assert state.order == sorted(state.order)


def test_what_the_store_has_read_is_not_sent_before_what_is_about_to_be_stored() -> None:
    """The store was asked for more before that was returned, and its answer comes after."""
    state = ReturningLate()
    state.begin()
    state.everybody_works()
    state.time_passes(6.0)
    state.everybody_works()
    state.target_decides(RELEASED)
    state.everybody_works()
    state.time_passes(6.0)
    state.store_is_written()
    state.store_answers()
    state.teardown()


def test_the_store_sends_nothing_before_it_has_heard_what_goes_back_after_a_restart() -> None:
    """The outcomes of that are not durable yet as the store is told of all that was under way."""
    state = ReturningRanked()
    state.begin()
    for _ in range(2):
        state.everybody_works()
    state.machine_stops(lost=0, seed=0)
    for _ in range(3):
        state.everybody_works()
    state.machine_stops(lost=0, seed=0)
    state.store_comes()
    state.target_comes()
    state.store_works()
    state.teardown()
    state.nothing_overtakes()


def test_what_was_returned_together_may_be_returned_again_one_by_one() -> None:
    state = passing()
    state.send(which=0, count=3)
    state.journal_is_durable()
    state.target_decides(RELEASED)
    state.target_looks(count=3)
    state.target_goes()
    state.target_comes()
    for _ in range(6):
        state.everybody_works()
        state.time_passes(6.0)
    state.teardown()


@pytest.mark.parametrize("works", range(5, 10))
def test_a_target_hears_after_a_restart_that_all_is_settled_though_nothing_is_sent(
    works: int,
) -> None:
    """It had taken the last stored message, and was lost before that was settled with it."""
    state = ReturningRanked()
    state.begin()
    for _ in range(6):
        state.everybody_works()
    state.target_goes_unsent(count=1)
    for _ in range(works):
        state.everybody_works()
    state.target_goes()
    state.everybody_works()
    state.worker_is_killed(arrives=False, lost=0)
    state.teardown()


@pytest.mark.parametrize("was_always", [False, True])
@pytest.mark.parametrize("is_always", [False, True])
def test_what_a_restored_target_returns_after_a_reload_goes_before_what_is_stored(
    was_always: bool, is_always: bool
) -> None:
    """The route may lead past the target's link before the restart, after it, or both."""
    state = ReturningAndReloaded()
    state.begin()
    state.everybody_works()
    state.target_decides(says=MODIFIED_FAILED)
    state.everybody_works()
    state.reload(storing=Storing(always=was_always))
    state.worker_is_killed(arrives=True, lost=10)
    state.reload(storing=Storing(always=is_always))
    state.everybody_works()
    state.store_is_cut_off(arrives=True)
    for _ in range(2):
        state.everybody_works()
    state.teardown()
