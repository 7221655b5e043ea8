"""Session windows and link credit: what is granted, used, drained, held and renewed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.model.commands import (
    AbortDelivery,
    DetachLink,
    GrantCredit,
    HoldWindow,
    ReturnCredit,
    SendDeliveries,
)
from router.model.events import (
    ConnectionClosed,
    CreditGranted,
    CreditReturned,
    DeliveriesReceived,
    LinkDetached,
)
from router.model.identity import DeliveryNumber, LinkId
from router.model.outcome import RELEASED
from router.model.terminus import Role
from router.wire.v1_0 import windows
from router.wire.v1_0.performatives import Detach, Disposition, Flow, Transfer
from router.wire.v1_0.state import NARROW_FRAMES, ConnectionState, LinkState, SessionState
from router.wire.v1_0.windows import HELD_OCTETS, LARGE_OCTETS
from tests.support.linked import BODY, Linked, deliveries
from tests.support.peer import Peer, attached, begun

WRAP = 1 << 32
serials = st.one_of(st.integers(0, WRAP - 1), st.integers(-40, 40).map(lambda each: each % WRAP))


def session() -> SessionState:
    return SessionState(ConnectionState(), 100)


# --- the arithmetic -------------------------------------------------------------------------------


@given(serials, st.integers(0, 1000), st.integers(0, WRAP - 1))
def test_the_remote_window_is_what_the_peer_grants_less_what_is_under_way(
    sent: int, under_way: int, granted: int
) -> None:
    state = session()
    state.next_outgoing_id = sent
    seen = (sent - under_way) % WRAP
    windows.take_session_flow(state, Flow(seen, granted, 7, 9), 0)
    assert state.remote_incoming_window == max(0, granted - under_way)
    assert state.next_incoming_id == 7
    assert state.remote_outgoing_window == 9


@given(serials, st.integers(0, 1000), st.integers(0, 1000))
def test_a_flow_that_has_not_seen_our_begin_counts_from_our_first_transfer(
    first: int, sent: int, granted: int
) -> None:
    state = session()
    state.next_outgoing_id = (first + sent) % WRAP
    windows.take_session_flow(state, Flow(None, granted, 0, 0), first)
    assert state.remote_incoming_window == max(0, granted - sent)


@given(serials, st.integers(0, 1000), st.integers(0, 2000))
def test_the_senders_credit_is_the_receivers_less_what_is_under_way(
    counted: int, under_way: int, granted: int
) -> None:
    link = LinkState(LinkId(1), "link", Role.SENDER, session())
    link.delivery_count = (counted + under_way) % WRAP
    flow = Flow(0, 0, 0, 0, 0, counted, granted)
    assert windows.credit_of_sender(link, flow, 5) == max(0, granted - under_way)


def test_credit_without_a_count_begins_at_the_initial_one() -> None:
    link = LinkState(LinkId(1), "link", Role.SENDER, session())
    link.delivery_count = 3
    assert windows.credit_of_sender(link, Flow(0, 0, 0, 0, 0, None, 10), WRAP - 1) == 6
    assert windows.credit_of_sender(link, Flow(0, 0, 0, 0, 0, None, None), 0) == 0


@given(serials, st.integers(0, 100), st.integers(0, 100), st.integers(-50, 150))
def test_a_senders_count_gives_credit_back_but_never_more_than_it_had(
    count: int, credit: int, more: int, advance: int
) -> None:
    link = LinkState(LinkId(1), "link", Role.RECEIVER, session())
    link.delivery_count = count
    link.credit, link.allowance = credit, credit + more
    returned = windows.take_sender_count(link, (count + advance) % WRAP)
    assert returned == min(max(advance, 0), credit + more)
    assert link.delivery_count == (count + returned) % WRAP
    assert link.allowance == credit + more - returned
    assert link.credit == max(0, credit - returned)


# --- credit, seen by a receiver of ours -----------------------------------------------------------


def test_credit_is_granted_as_it_was_ordered() -> None:
    peer = begun()
    peer.attach(initial_delivery_count=WRAP - 2)
    link = peer.answer()
    peer.engine.execute(GrantCredit(link, 10))
    flow = peer.expect_one(Flow)
    assert (flow.handle, flow.delivery_count, flow.link_credit) == (0, WRAP - 2, 10)
    assert flow.drain is False
    for delivery_id in range(4):
        peer.transfer(delivery_id)
    peer.engine.execute(GrantCredit(link, 10))
    flow = peer.expect_one(Flow)
    assert (flow.delivery_count, flow.link_credit) == (2, 10)


def test_several_grants_of_a_turn_become_one_flow() -> None:
    peer = attached(credit=0)
    for credit in (5, 7, 9):
        peer.engine.execute(GrantCredit(LinkId(1), credit))
    assert peer.expect_one(Flow).link_credit == 9


def test_what_was_granted_once_may_still_come_after_the_credit_was_lowered() -> None:
    peer = attached(credit=5)
    peer.engine.execute(GrantCredit(LinkId(1), 1))
    assert peer.expect_one(Flow).link_credit == 1
    for delivery_id in range(5):
        peer.transfer(delivery_id)
    assert [type(each) for each in peer.take_events()] == [DeliveriesReceived] * 5


def test_a_drain_is_answered_by_the_senders_count() -> None:
    peer = attached(credit=10)
    peer.engine.execute(GrantCredit(LinkId(1), 10, drain=True))
    flow = peer.expect_one(Flow)
    assert (flow.link_credit, flow.drain) == (10, True)
    peer.transfer(0)
    peer.take_events()
    peer.flow(next_outgoing_id=1, handle=0, delivery_count=10, link_credit=0, drain=True)
    assert peer.take_event(CreditReturned) == CreditReturned(LinkId(1), 0)
    peer.engine.execute(GrantCredit(LinkId(1), 3))
    flow = peer.expect_one(Flow)
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (10, 3, False)


def test_a_drain_that_deliveries_used_up_needs_no_flow() -> None:
    peer = attached(credit=2)
    peer.engine.execute(GrantCredit(LinkId(1), 2, drain=True))
    peer.transfer(0)
    peer.transfer(1)
    assert peer.take_events()[-1] == CreditReturned(LinkId(1), 0)
    peer.flow(next_outgoing_id=2, handle=0, delivery_count=2, link_credit=0, drain=True)
    assert peer.take_events() == []


def test_a_router_answers_a_drain_behind_all_that_it_had_sent_before_it_heard() -> None:
    peer = attached(credit=3, peer_is_trusted_router=True)
    peer.engine.execute(GrantCredit(LinkId(1), 0, drain=True))
    peer.transfer(0)
    peer.transfer(1)
    assert [type(each) for each in peer.take_events()] == [DeliveriesReceived] * 2
    peer.flow(next_outgoing_id=2, handle=0, delivery_count=2, link_credit=0, drain=True)
    assert peer.take_event(CreditReturned).credit == 0


def test_a_drain_with_nothing_to_give_back_is_answered_all_the_same() -> None:
    peer = attached(credit=0)
    peer.engine.execute(GrantCredit(LinkId(1), 0, drain=True))
    peer.flow(handle=0, delivery_count=0, link_credit=0, drain=False)  # sent before it heard
    assert peer.take_events() == []
    peer.flow(handle=0, delivery_count=0, link_credit=0, drain=True)
    assert peer.take_event(CreditReturned).credit == 0


def test_a_late_answer_to_one_drain_is_not_taken_for_the_answer_to_the_next() -> None:
    peer = attached(credit=1)
    peer.engine.execute(GrantCredit(LinkId(1), 1, drain=True))
    peer.transfer(0)
    assert peer.take_events()[-1] == CreditReturned(LinkId(1), 0)
    peer.engine.execute(GrantCredit(LinkId(1), 5, drain=True))
    peer.flow(next_outgoing_id=1, handle=0, delivery_count=1, link_credit=0, drain=True)
    assert peer.take_events() == []
    peer.flow(next_outgoing_id=1, handle=0, delivery_count=6, link_credit=0, drain=True)
    assert peer.take_event(CreditReturned).credit == 0


def test_a_drain_is_over_when_the_credit_is_whatever_the_flag_says() -> None:
    peer = attached(credit=5)
    peer.engine.execute(GrantCredit(LinkId(1), 2, drain=True))
    peer.flow(handle=0, delivery_count=2, link_credit=0)
    assert peer.take_event(CreditReturned).credit == 0


@pytest.mark.parametrize(
    ("version", "drains"), [("3.10.8", False), ("4.0.1", True), ("30.1", True), (None, True)]
)
def test_a_broker_that_would_break_is_not_asked_to_drain(version: str | None, drains: bool) -> None:
    peer = Peer()
    peer.greet(properties={"product": "RabbitMQ", "version": version})
    peer.begin()
    peer.attach()
    link = peer.answer(10)
    peer.engine.execute(GrantCredit(link, 10, drain=True))
    peer.collect()
    flow = peer.expect_one(Flow)
    assert (flow.drain, flow.link_credit) == ((True, 10) if drains else (False, 0))
    assert peer.take_events() == ([] if drains else [CreditReturned(link, 0)])
    peer.transfer(0)  # was on its way
    assert len(peer.take_events()) == 1


@pytest.mark.parametrize(("version", "is_released"), [("3.10.8", True), ("4.0.1", False)])
def test_what_comes_behind_a_detach_is_released_where_it_would_stay_with_the_session(
    version: str, is_released: bool
) -> None:
    peer = Peer()
    peer.greet(properties={"product": "RabbitMQ", "version": version})
    peer.begin()
    peer.attach()
    link = peer.answer(10)
    peer.transfer(0)
    peer.take_events()
    peer.engine.execute(DetachLink(link, closed=True))
    peer.collect()
    for number in range(1, 4):  # were on their way
        peer.transfer(number, settled=number == 3)
    assert [type(each) for each in peer.take_events()] == [LinkDetached]
    found = [each.performative for each in peer.take_frames()]
    sent = [each for each in found if isinstance(each, Disposition)]
    released = [(each.first, each.last, each.state, each.settled) for each in sent]
    assert released == ([(1, 2, RELEASED, True)] if is_released else [])


def test_a_senders_count_that_lags_takes_nothing_back() -> None:
    peer = attached(credit=10)
    peer.transfer(0, more=True)
    peer.take_events()
    peer.flow(next_outgoing_id=1, handle=0, delivery_count=0, link_credit=10)
    assert peer.take_events() == []
    peer.engine.execute(GrantCredit(LinkId(1), 9))
    assert peer.expect_one(Flow).delivery_count == 1


# --- credit, seen by a sender of ours -------------------------------------------------------------


def test_credit_reaches_the_core_less_what_waits() -> None:
    peer = attached(Role.RECEIVER)
    peer.flow(handle=0, link_credit=10, incoming_window=2)
    assert peer.take_event(CreditGranted) == CreditGranted(LinkId(1), 10)
    peer.engine.execute(SendDeliveries(LinkId(1), deliveries(*range(5))))
    peer.expect(Transfer, Transfer)
    peer.flow(next_incoming_id=2, incoming_window=0, handle=0, delivery_count=2, link_credit=20)
    assert peer.take_event(CreditGranted) == CreditGranted(LinkId(1), 17)


def test_equal_credit_is_not_told_twice() -> None:
    peer = attached(Role.RECEIVER)
    peer.flow(handle=0, link_credit=10)
    peer.take_event(CreditGranted)
    peer.flow(handle=0, link_credit=10, delivery_count=0)
    assert peer.take_events() == []


def test_a_receivers_drain_gets_the_rest_of_the_credit_back() -> None:
    peer = attached(Role.RECEIVER)
    peer.flow(handle=0, link_credit=10, drain=True)
    assert peer.take_event(CreditGranted) == CreditGranted(LinkId(1), 10, drain=True)
    peer.engine.execute(SendDeliveries(LinkId(1), deliveries(1)))
    peer.engine.execute(ReturnCredit(LinkId(1)))
    transfer, flow = peer.expect(Transfer, Flow)
    assert transfer.delivery_tag == b"1"
    assert (flow.handle, flow.delivery_count, flow.link_credit) == (0, 10, 0)
    assert flow.drain is True
    assert flow.next_outgoing_id == 1


def test_a_drain_waits_for_what_the_window_holds_back() -> None:
    peer = attached(Role.RECEIVER)
    peer.flow(handle=0, link_credit=10, drain=True, incoming_window=1)
    peer.engine.execute(SendDeliveries(LinkId(1), deliveries(1, 2, 3)))
    peer.engine.execute(ReturnCredit(LinkId(1)))
    peer.expect(Transfer)
    peer.flow(next_incoming_id=1, incoming_window=10)
    flow = peer.expect(Transfer, Transfer, Flow)[-1]
    assert (flow.delivery_count, flow.link_credit) == (10, 0)


def test_a_drain_is_answered_when_an_abort_leaves_nothing_to_wait_for() -> None:
    peer = attached(Role.RECEIVER)
    peer.flow(handle=0, link_credit=10, drain=True, incoming_window=0)
    peer.engine.execute(SendDeliveries(LinkId(1), deliveries(1, more=True)))
    peer.engine.execute(ReturnCredit(LinkId(1)))
    peer.take_events()
    peer.expect_nothing()
    peer.engine.execute(AbortDelivery(LinkId(1), DeliveryNumber(1)))
    flow = peer.expect_one(Flow)
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (10, 0, True)
    peer.collect()
    assert peer.take_event(CreditGranted) == CreditGranted(LinkId(1), 0, drain=True)


def test_a_drain_without_credit_is_answered() -> None:
    peer = attached(Role.RECEIVER)
    peer.flow(handle=0, link_credit=0, drain=True)
    assert peer.take_event(CreditGranted) == CreditGranted(LinkId(1), 0, drain=True)
    peer.engine.execute(ReturnCredit(LinkId(1)))
    flow = peer.expect_one(Flow)
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (0, 0, True)


def test_credit_is_returned_only_when_asked_for() -> None:
    peer = attached(Role.RECEIVER)
    peer.flow(handle=0, link_credit=10)
    peer.engine.execute(ReturnCredit(LinkId(1)))
    peer.expect_nothing()


def test_a_drain_that_is_called_off_returns_nothing() -> None:
    peer = attached(Role.RECEIVER)
    peer.flow(handle=0, link_credit=10, drain=True, incoming_window=0)
    peer.engine.execute(SendDeliveries(LinkId(1), deliveries(1)))
    peer.engine.execute(ReturnCredit(LinkId(1)))
    peer.flow(handle=0, link_credit=10, drain=False, incoming_window=10)
    peer.expect(Transfer)


def test_echo_is_answered_with_the_state_that_was_asked_for() -> None:
    peer = attached(Role.RECEIVER)
    peer.flow(handle=0, link_credit=4, echo=True)
    flow = peer.expect_one(Flow)
    assert (flow.handle, flow.link_credit, flow.delivery_count, flow.echo) == (0, 4, 0, False)
    peer.flow(echo=True)
    flow = peer.expect_one(Flow)
    assert flow.handle is None
    assert flow.link_credit is None


def test_what_waits_is_told_as_available() -> None:
    peer = attached(Role.RECEIVER)
    peer.flow(handle=0, link_credit=10, incoming_window=0)
    peer.engine.execute(SendDeliveries(LinkId(1), deliveries(1, 2, 3)))
    peer.flow(incoming_window=0, handle=0, link_credit=10, echo=True)
    assert peer.expect_one(Flow).available == 3


# --- the session's window -------------------------------------------------------------------------


def windows_told(peer: Peer) -> list[int]:
    """Returns the windows of the flows that were sent since."""
    said = [each.performative for each in peer.take_frames()]
    return [each.incoming_window for each in said if isinstance(each, Flow)]


def test_the_window_is_renewed_when_half_of_it_is_used() -> None:
    peer = attached(session_window_frames=10)
    for delivery_id in range(4):
        peer.transfer(delivery_id)
    peer.expect_nothing()
    peer.transfer(4)
    flow = peer.expect_one(Flow)
    assert (flow.next_incoming_id, flow.incoming_window, flow.handle) == (5, 10, None)


def test_a_held_window_closes_and_opens_again() -> None:
    peer = attached(session_window_frames=10)
    peer.engine.execute(HoldWindow(LinkId(1), True))
    for delivery_id in range(10):
        peer.transfer(delivery_id)
    peer.expect_nothing()
    peer.engine.execute(GrantCredit(LinkId(1), 50))
    flow = peer.expect_one(Flow)  # a flow passes, and tells the truth about the window
    assert (flow.next_incoming_id, flow.incoming_window) == (10, 0)
    peer.engine.execute(HoldWindow(LinkId(1), False))
    flow = peer.expect_one(Flow)
    assert (flow.next_incoming_id, flow.incoming_window) == (10, 10)


def test_a_window_is_wide_behind_small_frames_and_narrow_behind_large_ones() -> None:
    peer = attached(session_window_frames=2000, credit=10_000)
    wide(peer)
    large = b"\x00\x53\x75\xb0" + (LARGE_OCTETS).to_bytes(4, "big") + bytes(LARGE_OCTETS)
    for delivery_id in range(256, 1255):
        peer.transfer(delivery_id)
    peer.expect_nothing()
    peer.transfer(1255, large)
    assert windows_told(peer) == [1000]  # what it was told before
    for delivery_id in range(1256, 1999):
        peer.transfer(delivery_id, large)
    peer.expect_nothing()
    peer.transfer(1999, large)
    assert windows_told(peer) == [NARROW_FRAMES]
    for delivery_id in range(2000, 2255):
        peer.transfer(delivery_id)
    peer.expect_nothing()
    peer.transfer(2255)
    assert windows_told(peer) == [2000]


def wide(peer: Peer) -> None:
    """Has a session get a wide window, of which nothing is used."""
    for delivery_id in range(NARROW_FRAMES // 2):
        peer.transfer(delivery_id)
    assert windows_told(peer) == [2000]


LARGE = b"\x00\x53\x75\xb0" + (59_995).to_bytes(4, "big") + bytes(59_995)
HELD_FRAMES = HELD_OCTETS // len(LARGE)


def test_a_wide_window_is_narrower_while_it_is_held_behind_large_frames() -> None:
    peer = attached(session_window_frames=2000, credit=1000)
    wide(peer)
    for delivery_id in range(256, 355):
        peer.transfer(delivery_id)
    peer.transfer(355, LARGE)
    peer.engine.execute(HoldWindow(LinkId(1), True))
    flow = peer.expect_one(Flow)
    told = HELD_FRAMES + 644  # and the credit that is left
    assert (flow.next_incoming_id, flow.incoming_window) == (356, told)
    for delivery_id in range(356, 556):
        peer.transfer(delivery_id)
    peer.engine.execute(GrantCredit(LinkId(1), 5000))
    assert peer.expect_one(Flow).incoming_window == told - 200
    for delivery_id in range(556, 1856):  # were on their way: they are within what it knew of
        peer.transfer(delivery_id)
    peer.engine.execute(GrantCredit(LinkId(1), 6000))
    assert peer.expect_one(Flow).incoming_window == 0
    peer.engine.execute(HoldWindow(LinkId(1), False))
    flow = peer.expect_one(Flow)
    assert (flow.next_incoming_id, flow.incoming_window) == (1856, 2000)


def test_a_wide_window_is_as_wide_while_it_is_held_behind_small_frames() -> None:
    """What is under way may be more than a narrow one, and unsigned numbers pass 0."""
    peer = attached(session_window_frames=2000, credit=10_000)
    wide(peer)
    for delivery_id in range(256, 356):
        peer.transfer(delivery_id)
    peer.engine.execute(HoldWindow(LinkId(1), True))
    peer.expect_nothing()
    peer.engine.execute(GrantCredit(LinkId(1), 5000))
    assert peer.expect_one(Flow).incoming_window == 1900
    peer.engine.execute(HoldWindow(LinkId(1), False))
    peer.expect_nothing()


@pytest.mark.parametrize("links", [1, 3])
def test_a_held_window_has_room_for_all_that_links_have_credit_for(links: int) -> None:
    peer = attached(session_window_frames=20_000, credit=1000)
    for handle in range(1, links):
        peer.take_events()
        peer.attach(name=f"link {handle}", handle=handle)
        peer.answer(1000)
    peer.take_frames()
    for delivery_id in range(NARROW_FRAMES // 2):
        peer.transfer(delivery_id)
    peer.take_frames()
    peer.transfer(256, LARGE)
    peer.engine.execute(HoldWindow(LinkId(1), True))
    assert windows_told(peer) == [HELD_FRAMES + 1000 * links - 257]


def test_a_link_that_goes_lets_go_of_a_window_that_is_narrow() -> None:
    peer = attached(session_window_frames=2000, credit=257)
    wide(peer)
    peer.take_events()
    peer.transfer(256, LARGE)
    peer.take_events()
    peer.attach(name="second", handle=1)
    peer.engine.execute(HoldWindow(peer.answer(50), True))
    assert windows_told(peer) == [HELD_FRAMES + 50]
    peer.send(Detach(1, True))
    assert windows_told(peer) == [1999]


def test_a_window_is_held_until_every_link_lets_go() -> None:
    peer = attached(session_window_frames=10)
    peer.attach(name="second", handle=1)
    second = peer.answer(50)
    peer.engine.execute(HoldWindow(LinkId(1), True))
    peer.engine.execute(HoldWindow(second, True))
    for delivery_id in range(9):
        peer.transfer(delivery_id)
    peer.engine.execute(HoldWindow(LinkId(1), False))
    peer.expect_nothing()
    peer.send(Detach(1, True))  # a link that goes lets go
    assert windows_told(peer) == [10]


def test_a_flow_passes_a_closed_window() -> None:
    peer = attached(Role.RECEIVER)
    peer.flow(handle=0, link_credit=10, incoming_window=0)
    peer.engine.execute(SendDeliveries(LinkId(1), deliveries(1)))
    peer.expect_nothing()
    peer.flow(incoming_window=0, echo=True)
    peer.expect_one(Flow)
    peer.send(Disposition(Role.RECEIVER, 0))
    assert not [each for each in peer.take_events() if isinstance(each, ConnectionClosed)]


def test_the_peers_window_is_kept_to() -> None:
    peer = attached(Role.RECEIVER)
    peer.flow(handle=0, link_credit=100, incoming_window=3)
    peer.engine.execute(SendDeliveries(LinkId(1), deliveries(*range(8))))
    peer.expect(Transfer, Transfer, Transfer)
    peer.flow(next_incoming_id=1, incoming_window=3)  # two are still under way: one more fits
    peer.expect(Transfer)
    peer.flow(next_incoming_id=4, incoming_window=100)
    assert [each.delivery_tag for each in peer.expect(*[Transfer] * 4)] == [b"4", b"5", b"6", b"7"]


@pytest.mark.parametrize("initial_id", [0, WRAP - 700])
def test_a_steady_sender_never_waits_and_never_breaks_the_window(initial_id: int) -> None:
    linked = Linked(
        initial_id=initial_id,
        credit=100_000,
        receiver={"session_window_frames": 16},
        sender={"session_window_frames": 16},
    )
    for start in range(0, 3000, 100):
        linked.order(SendDeliveries(linked.outgoing, deliveries(*range(start, start + 100))))
    received = [
        bytes(each.tag)
        for event in linked.take_heard()
        if isinstance(event, DeliveriesReceived)
        for each in event.deliveries
    ]
    assert received == [b"%d" % number for number in range(3000)]


def test_credit_keeps_count_over_the_wrap() -> None:
    linked = Linked(initial_id=WRAP - 3, credit=10)
    linked.send(*range(10))
    linked.answer(GrantCredit(linked.incoming, 10))
    assert linked.take_told() == [CreditGranted(linked.outgoing, 10)]
    linked.send(*range(10, 25))
    (first, second) = [each for each in linked.take_heard() if isinstance(each, DeliveriesReceived)]
    assert len(first.deliveries) + len(second.deliveries) == 20
    linked.answer(GrantCredit(linked.incoming, 5, drain=True))
    assert linked.take_told()[-1] == CreditGranted(linked.outgoing, 0, drain=True)
    assert [each.payload for each in second.deliveries] == [BODY] * 10


def test_commands_of_credit_for_a_link_of_the_other_role_do_nothing() -> None:
    peer: Peer = attached(Role.RECEIVER)
    peer.engine.execute(GrantCredit(LinkId(1), 5))
    peer.engine.execute(HoldWindow(LinkId(1), True))
    peer.expect_nothing()
    other = attached()
    other.engine.execute(ReturnCredit(LinkId(1)))
    other.engine.execute(SendDeliveries(LinkId(1), deliveries(1)))
    other.expect_nothing()
