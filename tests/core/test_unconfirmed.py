"""What its sender has settled beforehand is the router's until a receiver has accepted it."""

import itertools

import pytest

from router.core.settings import CoreSettings
from router.links.link import Tally
from router.model.delivery import OutgoingDelivery
from router.model.events import DeliveriesReceived
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    MODIFIED_UNDELIVERABLE,
    REJECTED,
    RELEASED,
    DeliveryState,
    Modified,
)
from router.model.terminus import SenderSettleMode
from router.routes.route import Distribution, Endpoint, Guarantee, Route, Unroutable
from router.wire.v1_0.sections import decode_message
from tests.support.fleet import Fleet
from tests.support.play import Peer, Play, ReceiverEnd, SenderEnd, table

MULTICAST = Route(address="prices", distribution=Distribution.MULTICAST)
BURIED = Route(
    address="orders",
    unroutable=Unroutable.DEAD_LETTER,
    dead_letter=Endpoint("morgue", "dead"),
)
SETTLED = SenderSettleMode.SETTLED


def begin(play: Play, *payloads: str, credit: int = 10) -> tuple[SenderEnd, ReceiverEnd]:
    """Somebody sends, settled, and somebody has got it."""
    receiver = play.connect("r").attach_receiver(credit=credit)
    sender = play.connect("s").attach_sender()
    sender.send(*(payloads or ("x",)), settled=True)
    return sender, receiver


def kept_octets(play: Play) -> int:
    return play.core._registry.process.used


# Towards receivers


def test_it_leaves_unsettled_and_its_payload_is_kept_until_it_is_accepted() -> None:
    play = Play("orders")
    sender, receiver = begin(play, "one", "two")
    assert [each.settled for each in receiver.received] == [False, False]
    assert kept_octets(play) == 6
    receiver.accept()
    assert kept_octets(play) == 0
    assert not sender.told


def test_a_receiver_that_does_not_settle_is_settled_for() -> None:
    _, receiver = begin(Play("orders"))
    receiver.update(receiver.last.number, settled=False)
    assert receiver.told[receiver.last.number] == [(ACCEPTED, True)]
    assert not receiver.unsettled


def test_a_receiver_that_attached_for_settled_gets_it_settled() -> None:
    play = Play("orders")
    receiver = play.connect().attach_receiver(credit=5, mode=SETTLED)
    play.connect().attach_sender().send("x", settled=True)
    assert receiver.last.settled
    assert kept_octets(play) == 0


def test_at_most_once_stays_settled_on_send() -> None:
    play = Play(Route(address="orders", guarantee=Guarantee.AT_MOST_ONCE))
    _, receiver = begin(play)
    assert receiver.last.settled
    receiver.detach()
    assert kept_octets(play) == 0


def test_at_most_once_drops_what_nobody_can_take() -> None:
    play = Play(Route(address="orders", guarantee=Guarantee.AT_MOST_ONCE))
    receiver = play.connect().attach_receiver(credit=5)
    sender = play.connect().attach_sender()
    receiver.detach()
    sender.send("x", settled=True)
    assert "delivery.dropped" in play.events()


def test_settled_and_unsettled_of_one_sender_have_their_outcomes_apart() -> None:
    play = Play("orders")
    receiver = play.connect().attach_receiver(credit=9)
    sender = play.connect().attach_sender()
    deliveries = [sender.delivery("x", settled=at % 2 == 0) for at in range(6)]
    sender.peer.happens(sender.run(deliveries))
    receiver.accept()
    unsettled = [each.number for each in deliveries if not each.settled]
    assert [sender.outcome(number) for number in unsettled] == [(ACCEPTED, True)] * 3
    assert set(sender.told) == {1, 3, 5}
    assert kept_octets(play) == 0


def test_a_sender_that_settles_before_the_outcome_leaves_it_to_the_router() -> None:
    play = Play("orders")
    first = play.connect("a").attach_receiver(credit=5)
    sender = play.connect("s").attach_sender()
    (number,) = sender.send("x")
    sender.settle(number)
    assert first.unsettled
    second = play.connect("b").attach_receiver(credit=5)
    first.peer.lose()
    assert second.payloads == [b"x"]
    second.accept()
    assert kept_octets(play) == 0


# The next receiver


def test_what_a_receiver_leaves_behind_goes_to_another_marked_redelivered() -> None:
    play = Play("orders")
    _, first = begin(play, "one", "two", "three")
    second = play.connect("b").attach_receiver(credit=10)
    first.accept(first.received[0].number)
    first.peer.lose()
    assert second.payloads == [b"two", b"three"]
    assert [each.delivery_count for each in second.received] == [1, 1]
    second.accept()
    assert kept_octets(play) == 0


@pytest.mark.parametrize("state", [RELEASED, MODIFIED_FAILED, Modified(message_annotations={})])
def test_what_a_receiver_gives_back_goes_to_another(state: DeliveryState) -> None:
    play = Play("orders")
    _, first = begin(play)
    second = play.connect("b").attach_receiver(credit=10)
    first.update(first.last.number, state=state)
    assert second.payloads == [b"x"]
    assert len(first.received) == 1


def test_the_only_receiver_gets_again_what_it_gives_back() -> None:
    play = Play("orders")
    _, receiver = begin(play, credit=100)
    for count in range(1, 30):
        receiver.update(receiver.last.number, state=MODIFIED_FAILED)
        assert receiver.last.delivery_count == count
    receiver.update(receiver.last.number, state=RELEASED)
    receiver.accept()
    assert len(receiver.received) == 31
    assert kept_octets(play) == 0
    assert "delivery.dropped" not in play.events()


def test_all_receivers_are_tried_before_one_gets_it_again() -> None:
    play = Play("orders")
    _, first = begin(play)
    second = play.connect("b").attach_receiver(credit=10)
    first.update(first.last.number, state=RELEASED)
    second.update(second.last.number, state=RELEASED)
    assert len(first.received) + len(second.received) == 3


def test_a_receiver_that_may_not_have_it_does_not_get_it_again() -> None:
    play = Play("orders")
    _, first = begin(play)
    second = play.connect("b").attach_receiver(credit=10)
    first.update(first.last.number, state=MODIFIED_UNDELIVERABLE)
    for _ in range(3):
        second.update(second.last.number, state=MODIFIED_FAILED)
    assert len(first.received) == 1
    assert len(second.received) == 4


def test_what_is_for_nobody_ends_and_is_counted() -> None:
    play = Play("orders")
    sender, receiver = begin(play)
    receiver.update(receiver.last.number, state=MODIFIED_UNDELIVERABLE)
    assert len(receiver.received) == 1
    assert "delivery.dropped" in play.events()
    assert kept_octets(play) == 0
    assert _tally(sender).dropped == 1


def test_it_outlives_its_sender() -> None:
    play = Play("orders")
    sender, receiver = begin(play)
    sender.peer.lose()
    receiver.peer.lose()
    play.wait(100)
    late = play.connect("late").attach_receiver(credit=5)
    assert late.payloads == [b"x"]
    late.accept()
    assert kept_octets(play) == 0


def test_what_waits_keeps_its_order_among_what_comes_back() -> None:
    play = Play("orders")
    _, receiver = begin(play, "one", "two", "three", credit=2)
    receiver.peer.lose()
    late = play.connect("late").attach_receiver(credit=9)
    assert late.payloads == [b"one", b"two", b"three"]
    assert [each.delivery_count for each in late.received] == [1, 1, None]


# Without a receiver


@pytest.mark.parametrize("policy", [Unroutable.RELEASE, Unroutable.HOLD])
def test_it_waits_where_there_is_no_receiver_and_nobody_to_give_it_back_to(
    policy: Unroutable,
) -> None:
    play = Play(Route(address="orders", unroutable=policy))
    _, receiver = begin(play)
    receiver.detach()
    play.wait(1000)
    late = play.connect("late").attach_receiver(credit=5)
    assert late.payloads == [b"x"]
    assert late.last.delivery_count == 1


def test_a_route_that_rejects_drops_what_nobody_is_left_to_take_and_counts_it() -> None:
    play = Play(Route(address="orders", unroutable=Unroutable.REJECT))
    sender, receiver = begin(play)
    receiver.detach()
    assert kept_octets(play) == 0
    assert _tally(sender).dropped == 1
    assert play.connect("late").attach_receiver(credit=5).payloads == []


def test_a_route_with_dead_letters_gets_what_nobody_is_left_to_take() -> None:
    play = Play(BURIED)
    morgue = play.dial("morgue")
    _, receiver = begin(play)
    receiver.detach()
    assert _dead(morgue).payloads == [b"x"]


def test_its_time_to_live_ends_while_it_waits_to_be_sent_again() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=5)
    sender = play.connect("s").attach_sender()
    sender.send("x", settled=True, ttl_milliseconds=5000)
    play.wait(1)
    receiver.peer.lose()
    assert kept_octets(play) == 1
    play.wait(10)
    assert kept_octets(play) == 0
    assert _tally(sender).expired == 1


def test_credit_stops_at_the_octet_budget_until_it_is_accepted() -> None:
    settings = CoreSettings(router_id="dc1", connection_octets=10)
    play = Play("orders", settings=settings)
    sender, receiver = begin(play, "x" * 10)
    was_held = sender.held
    receiver.accept()
    assert (was_held, sender.held) == (True, False)
    assert sender.credit > 0


def test_what_publishers_leave_behind_is_bounded_by_twice_the_budget_and_counted() -> None:
    settings = CoreSettings(router_id="dc1", connection_octets=10, process_octets=20)
    play = Play("orders", settings=settings)
    for number in range(10):
        sender = play.connect(f"s{number}").attach_sender()
        run = [sender.delivery("x" * 8, settled=True)]
        sender.peer.happens(DeliveriesReceived(sender.link, run))
        sender.peer.lose()
    assert kept_octets(play) == 40
    assert play.events().count("delivery.dropped") == 5
    receiver = play.connect("r").attach_receiver(credit=10)
    assert receiver.payloads == [b"x" * 8] * 5


# Rejected


def test_what_is_rejected_ends_and_is_counted() -> None:
    play = Play("orders")
    sender, receiver = begin(play)
    other = play.connect("b").attach_receiver(credit=5)
    receiver.update(receiver.last.number, state=REJECTED)
    assert other.payloads == []
    assert "delivery.dropped" in play.events()
    assert _tally(sender).dropped == 1
    assert kept_octets(play) == 0


def test_what_is_rejected_goes_to_dead_letters() -> None:
    play = Play(BURIED)
    morgue = play.dial("morgue")
    sender, receiver = begin(play)
    receiver.update(receiver.last.number, state=REJECTED)
    dead = _dead(morgue)
    assert dead.payloads == [b"x"]
    assert not dead.last.settled
    dead.accept()
    assert kept_octets(play) == 0
    assert _tally(sender).dropped == 0


def test_what_has_failed_too_often_goes_to_dead_letters() -> None:
    play = Play(BURIED, settings=CoreSettings(router_id="dc1", attempts=3))
    morgue = play.dial("morgue")
    _, receiver = begin(play)
    for _ in range(3):
        receiver.update(receiver.last.number, state=MODIFIED_FAILED)
    assert len(receiver.received) == 3
    assert _dead(morgue).payloads == [b"x"]


def test_dead_letters_that_are_rejected_end() -> None:
    play = Play(BURIED)
    morgue = play.dial("morgue")
    sender, receiver = begin(play)
    receiver.update(receiver.last.number, state=REJECTED)
    dead = _dead(morgue)
    dead.update(dead.last.number, state=REJECTED)
    assert kept_octets(play) == 0
    assert _tally(sender).dropped == 1


def test_what_is_too_large_for_every_receiver_ends() -> None:
    play = Play("orders")
    sender = play.connect("s").attach_sender()
    play.connect("r").attach_receiver(credit=5, max_message_octets=2)
    sender.send("xxx", settled=True)
    assert _tally(sender).dropped == 1
    assert kept_octets(play) == 0


# Multicast


def test_every_receiver_of_a_multicast_answers_for_its_own() -> None:
    play = Play(MULTICAST)
    receivers = [play.connect(f"r{n}").attach_receiver("prices", credit=5) for n in range(3)]
    settled = play.connect("r").attach_receiver("prices", credit=5, mode=SETTLED)
    play.connect("s").attach_sender("prices").send("x", settled=True)
    assert [each.last.settled for each in (*receivers, settled)] == [False, False, False, True]
    receivers[0].accept()
    receivers[1].peer.lose()
    assert kept_octets(play) == 1
    receivers[2].accept()
    assert kept_octets(play) == 0


@pytest.mark.parametrize("state", [RELEASED, MODIFIED_FAILED])
def test_what_one_receiver_of_a_multicast_gives_back_it_gets_again(state: DeliveryState) -> None:
    play = Play(MULTICAST)
    first, second = (play.connect(f"r{n}").attach_receiver("prices", credit=2) for n in range(2))
    sender = play.connect("s").attach_sender("prices")
    sender.send("x", settled=True)
    first.update(first.last.number, state=state)
    assert first.payloads == [b"x", b"x"]
    assert first.last.delivery_count == (1 if state is MODIFIED_FAILED else None)
    second.accept()
    assert kept_octets(play) == 1
    first.accept()
    assert kept_octets(play) == 0
    first.grant(2)
    second.grant(2)
    sender.send("y", settled=True)
    assert first.payloads == [b"x", b"x", b"y"]
    assert second.payloads == [b"x", b"y"]


def test_what_one_receiver_of_a_multicast_gives_back_waits_for_its_credit_before_anything_new() -> (
    None
):
    play = Play(MULTICAST)
    receiver = play.connect("r").attach_receiver("prices", credit=1)
    sender = play.connect("s").attach_sender("prices")
    sender.send("x", settled=True)
    receiver.update(receiver.last.number, state=MODIFIED_FAILED)
    sender.send("y", settled=True)
    assert receiver.payloads == [b"x"]
    receiver.grant(5)
    assert receiver.payloads == [b"x", b"x", b"y"]


def test_what_one_receiver_of_a_multicast_rejects_is_counted() -> None:
    play = Play(MULTICAST)
    first, second = (play.connect(f"r{n}").attach_receiver("prices", credit=2) for n in range(2))
    sender = play.connect("s").attach_sender("prices")
    sender.send("x", settled=True)
    first.update(first.last.number, state=REJECTED)
    second.accept()
    assert kept_octets(play) == 0
    assert _tally(sender).dropped == 1


# In parts


def test_parts_are_kept_until_they_are_accepted() -> None:
    play = Play("orders")
    first = play.connect("a").attach_receiver(credit=5)
    sender = play.connect("s").attach_sender()
    sender.send("a", more=True, settled=True)
    assert not first.last.settled
    sender.go_on(b"b", more=False)
    second = play.connect("b").attach_receiver(credit=5)
    first.peer.lose()
    assert second.payloads == [b"ab"]
    second.accept()
    assert kept_octets(play) == 0


def test_more_parts_are_kept_of_what_only_the_router_has() -> None:
    settings = CoreSettings(router_id="dc1", keep_octets=2, gather_octets=100)
    play = Play("orders", settings=settings)
    first = play.connect("a").attach_receiver(credit=5)
    sender = play.connect("s").attach_sender()
    sender.send("aaaa", more=True, settled=True)
    sender.go_on(b"bbbb", more=False)
    second = play.connect("b").attach_receiver(credit=5)
    first.peer.lose()
    assert second.payloads == [b"aaaabbbb"]


def test_parts_that_are_too_many_to_keep_end_with_their_receiver_and_are_counted() -> None:
    settings = CoreSettings(router_id="dc1", keep_octets=2, gather_octets=4)
    play = Play("orders", settings=settings)
    first = play.connect("a").attach_receiver(credit=5)
    sender = play.connect("s").attach_sender()
    sender.send("aaaa", more=True, settled=True)
    sender.go_on(b"bbbb", more=False)
    second = play.connect("b").attach_receiver(credit=5)
    first.peer.lose()
    assert second.payloads == []
    assert _tally(sender).dropped == 1
    assert kept_octets(play) == 0


# Reloading and stopping


def test_it_is_there_when_its_route_comes_back() -> None:
    play = Play("orders")
    _, receiver = begin(play)
    receiver.peer.lose()
    play.carry_out(play.core.configure(table("other"), play.now))
    play.carry_out(play.core.configure(table("orders"), play.now))
    late = play.connect("late").attach_receiver(credit=5)
    assert late.payloads == [b"x"]


def test_a_drain_waits_for_what_receivers_have() -> None:
    play = Play("orders")
    sender, receiver = begin(play)
    play.carry_out(play.core.drain(play.now))
    sender.give_back_credit()
    play.wait(1)
    assert not play.core.is_drained
    receiver.accept()
    play.wait(1)
    assert play.core.is_drained


def _tally(sender: SenderEnd) -> Tally:
    return sender.peer.play.core._registry.connections[sender.peer.id].incoming[sender.link].tally


def _dead(morgue: Peer) -> ReceiverEnd:
    dead = morgue.answer("dead")
    assert isinstance(dead, ReceiverEnd)
    dead.grant(10)
    return dead


def test_what_is_lost_when_the_process_ends_is_reported() -> None:
    play = Play("orders", Route(address="lossy", guarantee=Guarantee.AT_MOST_ONCE))
    sender, receiver = begin(play, "one", "two")
    receiver.accept(receiver.received[0].number)
    play.carry_out(play.core.drain(play.now))
    sender.peer.lose()
    receiver.peer.lose()
    play.core.abandon()
    (notice,) = [each for each in play.core.notices.take() if each.event == "delivery.abandoned"]
    assert notice.fields == {"address": "orders", "count": 1, "octets": 3}


# Several workers

PLACES = list(itertools.product((1, 2, 3), repeat=3))
ONE, TWO = (b"\x00\x53\x75\xa0\x03%b" % body for body in (b"one", b"two"))
"""Between workers they are marked as sent again, so they are messages."""


def bodies(receiver: ReceiverEnd) -> list[bytes]:
    return [payload[-3:] for payload in receiver.payloads]


def counts(receiver: ReceiverEnd) -> list[int]:
    """How often what it got was sent before, as the payload says."""
    return [_count(delivery) for delivery in receiver.received]


def _count(delivery: OutgoingDelivery) -> int:
    if delivery.delivery_count is not None:
        return delivery.delivery_count
    header = decode_message(delivery.payload).header
    return 0 if header is None else header.delivery_count


@pytest.mark.parametrize(("at_sender", "at_first", "at_second"), PLACES)
@pytest.mark.parametrize("leaves", [True, False])
def test_a_lost_receivers_deliveries_go_to_the_next_on_any_worker(
    at_sender: int, at_first: int, at_second: int, leaves: bool
) -> None:
    fleet = Fleet(3, "orders")
    first = fleet[at_first].connect("first").attach_receiver(credit=10)
    fleet.settle()
    sender = fleet[at_sender].connect("s").attach_sender()
    fleet.settle()
    sender.send(ONE, TWO, settled=True)
    fleet.settle()
    assert bodies(first) == [b"one", b"two"]
    assert not any(each.settled for each in first.received)
    second = fleet[at_second].connect("second").attach_receiver(credit=10)
    fleet.settle()
    if leaves:
        sender.peer.lose()
        fleet.settle()
    first.peer.lose()
    fleet.settle()
    assert bodies(second) == [b"one", b"two"]
    assert counts(second) == [1, 1]
    second.accept()
    fleet.settle()
    assert [kept_octets(fleet[number]) for number in (1, 2, 3)] == [0, 0, 0]


@pytest.mark.parametrize(("at_sender", "at_first", "at_second"), PLACES)
@pytest.mark.parametrize("leaves", [True, False])
def test_what_waits_goes_to_whoever_comes_on_any_worker(
    at_sender: int, at_first: int, at_second: int, leaves: bool
) -> None:
    fleet = Fleet(3, "orders")
    first = fleet[at_first].connect("first").attach_receiver(credit=10)
    fleet.settle()
    sender = fleet[at_sender].connect("s").attach_sender()
    fleet.settle()
    sender.send(ONE, settled=True)
    fleet.settle()
    if leaves:
        sender.peer.lose()
        fleet.settle()
    first.peer.lose()
    fleet.settle()
    fleet.wait(100)
    second = fleet[at_second].connect("second").attach_receiver(credit=10)
    fleet.settle()
    assert bodies(second) == [b"one"]
    second.accept()
    fleet.settle()
    assert [kept_octets(fleet[number]) for number in (1, 2, 3)] == [0, 0, 0]


def test_what_a_worker_that_dies_was_sent_goes_to_receivers_elsewhere() -> None:
    fleet = Fleet(2, "orders")
    first = fleet[2].connect("first").attach_receiver(credit=10)
    fleet.settle()
    sender = fleet[1].connect("s").attach_sender()
    fleet.settle()
    sender.send(ONE, settled=True)
    fleet.settle()
    assert bodies(first) == [b"one"]
    fleet.cut(1, 2)
    second = fleet[1].connect("second").attach_receiver(credit=10)
    fleet.settle()
    assert bodies(second) == [b"one"]
    assert counts(second) == [1]
