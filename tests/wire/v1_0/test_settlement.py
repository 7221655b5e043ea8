import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.model.commands import GrantCredit, SendDeliveries, UpdateDeliveries
from router.model.condition import Condition
from router.model.events import DeliveriesReceived, DeliveriesUpdated
from router.model.identity import DeliveryNumber, LinkId
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    RELEASED,
    Accepted,
    DeliveryState,
    Modified,
    Received,
    Rejected,
    UnknownState,
)
from router.model.terminus import ReceiverSettleMode, Role
from router.wire.v1_0.faults import Fault, Rule
from router.wire.v1_0.performatives import Disposition
from router.wire.v1_0.settlement import unsettled_in
from router.wire.v1_0.settling import KINDS, ranges
from tests.support.linked import Linked, deliveries
from tests.support.peer import Peer, attached

WRAP = 1 << 32
near_the_wrap = st.integers(-300, 300).map(lambda offset: offset % WRAP)


def numbers(*each: int) -> list[DeliveryNumber]:
    return [DeliveryNumber(number) for number in each]


@given(st.integers(0, WRAP - 1), st.sets(st.integers(0, 200), min_size=1).map(list))
def test_ranges_name_exactly_the_ids_in_serial_order(base: int, offsets: list[int]) -> None:
    ids = [(base + offset) % WRAP for offset in offsets]
    expected = [(base + offset) % WRAP for offset in sorted(offsets)]
    spelled = []
    found = ranges(ids)
    for first, last in found:
        size = (last - first) % WRAP + 1
        spelled += [(first + step) % WRAP for step in range(size)]
    assert spelled == expected
    for (_, last), (first, _) in itertools.pairwise(found):
        assert (last + 1) % WRAP != first  # neighbours were joined


@given(st.sets(near_the_wrap), near_the_wrap, near_the_wrap)
def test_a_peers_range_is_cut_to_what_is_unsettled(ids: set[int], first: int, last: int) -> None:
    unsettled = dict.fromkeys(ids)
    span = (last - first) % WRAP
    if span >= WRAP // 2:
        with pytest.raises(Fault) as caught:
            unsettled_in(unsettled, first, last)
        assert caught.value.rule is Rule.DISPOSITION_RANGE
        return
    expected = [each for step in range(span + 1) if (each := (first + step) % WRAP) in ids]
    assert list(unsettled_in(unsettled, first, last)) == expected


def test_the_widest_range_costs_no_more_than_what_is_unsettled() -> None:
    peer = attached()
    peer.transfer(0)
    peer.take_events()
    for _ in range(1000):
        peer.send(Disposition(Role.SENDER, 0, (1 << 31) - 1, settled=False, state=RELEASED))
    (event,) = peer.take_events()[:1]
    assert event == DeliveriesUpdated(LinkId(1), numbers(0), RELEASED, False)


# --- two engines ----------------------------------------------------------------------------------


@pytest.mark.parametrize("initial_id", [0, 250, WRAP - 5])
@pytest.mark.parametrize(
    "state",
    [
        ACCEPTED,
        RELEASED,
        MODIFIED_FAILED,
        Modified(True, True, {"why": "x"}),
        Rejected(),
        Rejected(Condition("amqp:not-found", "gone", {"a": 1})),
        Received(1, 2),
        UnknownState(b"\x00\x80\x00\x00\x00\x01\x00\x00\x00\x02\x45"),
        None,
    ],
)
def test_states_reach_the_sender_as_they_were_told(
    state: DeliveryState | None, initial_id: int
) -> None:
    linked = Linked(initial_id=initial_id)
    linked.send(*range(10))
    (received,) = linked.take_heard()
    assert isinstance(received, DeliveriesReceived)
    theirs = [each.number for each in received.deliveries]
    linked.answer(UpdateDeliveries(linked.incoming, theirs, state, True))
    assert linked.take_told() == [
        DeliveriesUpdated(linked.outgoing, numbers(*range(10)), state, True)
    ]
    linked.answer(UpdateDeliveries(linked.incoming, theirs, state, True))  # settled: forgotten
    assert linked.take_told() == []


def test_updates_of_one_turn_become_ranges_whatever_command_they_came_from() -> None:
    peer = attached()
    for delivery_id in range(8):
        peer.transfer(delivery_id)
    for each in (5, 1, 0, 2, 7, 4):
        peer.engine.execute(UpdateDeliveries(LinkId(1), numbers(each), ACCEPTED, True))
    peer.engine.execute(UpdateDeliveries(LinkId(1), numbers(6, 3), RELEASED, True))
    assert [_spell(each) for each in peer.expect(*[Disposition] * 5)] == [
        (0, 2, ACCEPTED),
        (4, 5, ACCEPTED),
        (7, 7, ACCEPTED),
        (3, 3, RELEASED),
        (6, 6, RELEASED),
    ]


def _spell(each: Disposition) -> tuple[int, int, DeliveryState | None]:
    assert each.role is Role.RECEIVER
    assert each.settled
    return each.first, each.first if each.last is None else each.last, each.state


def test_neighbours_of_several_links_share_a_disposition() -> None:
    peer = attached()
    peer.attach(name="second", handle=1)
    peer.answer(100)
    peer.transfer(0)
    peer.transfer(1, handle=1)
    peer.transfer(2)
    peer.engine.execute(UpdateDeliveries(LinkId(1), numbers(0, 2), ACCEPTED, True))
    peer.engine.execute(UpdateDeliveries(LinkId(2), numbers(1), ACCEPTED, True))
    disposition = peer.expect_one(Disposition)
    assert (disposition.first, disposition.last) == (0, 2)


def test_a_link_cannot_settle_what_another_link_received() -> None:
    peer = attached()
    peer.attach(name="second", handle=1)
    peer.answer(100)
    peer.transfer(0)
    peer.engine.execute(UpdateDeliveries(LinkId(2), numbers(0), ACCEPTED, True))
    peer.expect_nothing()


def test_two_updates_of_a_delivery_keep_their_order() -> None:
    peer = attached(receiver_settle_mode=ReceiverSettleMode.SECOND)
    peer.transfer(0)
    peer.transfer(1)
    peer.engine.execute(UpdateDeliveries(LinkId(1), numbers(1), ACCEPTED, True))
    peer.engine.execute(UpdateDeliveries(LinkId(1), numbers(0), Received(0, 1), False))
    peer.engine.execute(UpdateDeliveries(LinkId(1), numbers(0), ACCEPTED, False))
    peer.engine.execute(UpdateDeliveries(LinkId(1), numbers(0), ACCEPTED, True))
    seen = peer.expect(*[Disposition] * 4)
    assert [(each.first, each.state, each.settled) for each in seen] == [
        (1, ACCEPTED, True),
        (0, Received(0, 1), False),
        (0, ACCEPTED, False),
        (0, ACCEPTED, True),
    ]


def test_many_different_states_do_not_pile_up() -> None:
    peer = attached()
    for delivery_id in range(KINDS + 1):
        peer.transfer(delivery_id)
    for delivery_id in range(KINDS + 1):
        reason = Rejected(Condition("x", str(delivery_id)))
        peer.engine.execute(UpdateDeliveries(LinkId(1), numbers(delivery_id), reason, True))
    seen = peer.expect(*[Disposition] * (KINDS + 1))
    assert [each.state.error.description for each in seen] == [str(i) for i in range(KINDS + 1)]


def test_three_way_settlement() -> None:
    second = ReceiverSettleMode.SECOND
    linked = Linked(request={"receiver_settle_mode": second})
    linked.send(1)
    (received,) = linked.take_heard()
    assert isinstance(received, DeliveriesReceived)
    assert received.deliveries[0].settles_second
    theirs = [each.number for each in received.deliveries]
    linked.answer(UpdateDeliveries(linked.incoming, theirs, ACCEPTED, False))
    assert linked.take_told() == [DeliveriesUpdated(linked.outgoing, numbers(1), ACCEPTED, False)]
    linked.order(UpdateDeliveries(linked.outgoing, numbers(1), ACCEPTED, True))
    assert linked.take_heard() == [DeliveriesUpdated(linked.incoming, theirs, ACCEPTED, True)]
    linked.answer(UpdateDeliveries(linked.incoming, theirs, ACCEPTED, True))
    assert linked.take_told() == []  # the sender has settled: nobody needs to hear


def test_a_sender_settles_of_its_own_accord() -> None:
    linked = Linked()
    linked.send(1, 2, 3)
    (received,) = linked.take_heard()
    assert isinstance(received, DeliveriesReceived)
    linked.order(UpdateDeliveries(linked.outgoing, numbers(1, 2, 3), None, True))
    theirs = [each.number for each in received.deliveries]
    assert linked.take_heard() == [DeliveriesUpdated(linked.incoming, theirs, None, True)]


def test_an_update_of_a_delivery_that_waits_goes_with_its_transfer() -> None:
    linked = Linked(credit=0)
    linked.order(SendDeliveries(linked.outgoing, deliveries(1, 2)))
    linked.order(UpdateDeliveries(linked.outgoing, numbers(2), Modified(True), True))
    assert linked.take_heard() == []
    linked.answer(GrantCredit(linked.incoming, 5))
    (received,) = linked.take_heard()
    assert isinstance(received, DeliveriesReceived)
    first, second = received.deliveries
    assert (first.settled, first.state) == (False, None)
    assert (second.settled, second.state) == (True, Modified(True))


def test_pre_settled_deliveries_are_forgotten_at_once() -> None:
    linked = Linked()
    linked.send(*range(300), settled=True)
    received = [each for each in linked.take_heard() if isinstance(each, DeliveriesReceived)]
    both = [each for event in received for each in event.deliveries]
    assert len(both) == 300
    assert all(each.settled for each in both)
    linked.answer(UpdateDeliveries(linked.incoming, [each.number for each in both], ACCEPTED, True))
    linked.order(UpdateDeliveries(linked.outgoing, numbers(*range(300)), ACCEPTED, True))
    assert linked.take_told() == []
    assert linked.take_heard() == []


def test_a_disposition_about_what_nobody_sent_is_passed_over() -> None:
    peer = attached()
    peer.send(Disposition(Role.RECEIVER, 5, 10, True, Accepted()))
    peer.send(Disposition(Role.SENDER, 5, None, True, None))
    assert peer.take_events() == []
    peer.expect_nothing()


def test_a_long_reason_is_cut_to_the_peers_frame() -> None:
    small = Peer()
    small.greet(max_frame_size=512)
    small.begin()
    small.attach()
    small.answer(100)
    small.transfer(0)
    small.transfer(1)
    reason = Rejected(Condition("x:why", "because " * 200, {"a": "b" * 600}))
    change = Modified(True, False, {"key": "v" * 600})
    small.engine.execute(UpdateDeliveries(LinkId(1), numbers(0), reason, True))
    small.engine.execute(UpdateDeliveries(LinkId(1), numbers(1), change, True))
    rejected, modified = small.expect(Disposition, Disposition)
    assert rejected.state.error.name == "x:why"
    assert rejected.state.error.description.startswith("because ")
    assert modified.state == Modified(True, False)
