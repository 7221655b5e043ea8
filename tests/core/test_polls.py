"""Receivers that grant credit and drain it at once: senders get their chance first (§2.6.7)."""

import attrs
import pytest

from router.core.polls import CONTAINERS_SECONDS, SENDERS_SECONDS
from router.model.commands import DetachLink
from router.model.outcome import ACCEPTED
from router.routes.route import Distribution, Endpoint, Guarantee, Route
from router.wire.v1_0.performatives import Flow, decode
from tests.support.fleet import Fleet
from tests.support.kernel import MODES
from tests.support.lane_meeting import Meeting
from tests.support.play import AMQP, Play, ReceiverEnd

BROKER = Route(address="orders", to=(Endpoint("east"),))


def poll(receiver: ReceiverEnd, credit: int = 1) -> int:
    """Grants credit and drains it; returns how many drains had been answered before."""
    before = receiver.drains_answered
    receiver.grant(credit, drain=True)
    return before


def is_answered(receiver: ReceiverEnd, before: int) -> bool:
    assert receiver.drains_answered - before in {0, 1}
    return receiver.drains_answered > before and receiver.credit == 0


# Senders


def test_a_sender_that_answers_is_heard_before_the_receiver() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver()
    sender = play.connect("s").attach_sender()
    assert sender.credit == 0
    before = poll(receiver)
    assert not is_answered(receiver, before)
    assert sender.credit == 1
    assert sender.was_drained()
    (number,) = sender.send("x")
    assert receiver.payloads == [b"x"]
    assert is_answered(receiver, before)  # its credit is used up
    receiver.accept()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_a_receiver_is_answered_at_once_when_all_senders_have_nothing() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver()
    first, second = (play.connect("s").attach_sender() for _ in range(2))
    before = poll(receiver)
    first.give_back_credit()
    assert not is_answered(receiver, before)
    second.give_back_credit()
    assert is_answered(receiver, before)
    assert second.credit == 0
    before = poll(receiver)
    assert not is_answered(receiver, before)
    assert second.credit == 1


def test_senders_that_do_not_answer_are_waited_for_no_longer_than_the_bound() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver()
    sender = play.connect("s").attach_sender()
    before = poll(receiver)
    play.wait(SENDERS_SECONDS * 0.9)
    assert not is_answered(receiver, before)
    play.wait(SENDERS_SECONDS * 0.2)
    assert is_answered(receiver, before)
    before = poll(receiver)
    assert is_answered(receiver, before)  # it has credit still: it has nothing
    (number,) = sender.send("late")
    assert receiver.payloads == []
    before = poll(receiver)
    assert receiver.payloads == [b"late"]
    assert is_answered(receiver, before)
    receiver.accept()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_a_receiver_without_senders_is_answered_at_once() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver()
    before = poll(receiver)
    assert is_answered(receiver, before)
    play.connect("s").attach_sender(None)  # it has credit whatever happens
    assert is_answered(receiver, poll(receiver))


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_sender_that_leaves_is_not_waited_for(is_lost: bool) -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver()
    sender = play.connect("s").attach_sender()
    before = poll(receiver)
    if is_lost:
        sender.peer.lose()
    else:
        sender.detach()
    assert is_answered(receiver, before)


def test_a_sender_that_comes_meanwhile_is_asked_too() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver()
    first = play.connect("s").attach_sender()
    before = poll(receiver, 5)
    second = play.connect("s").attach_sender()
    assert second.was_drained()
    first.give_back_credit()
    assert not is_answered(receiver, before)
    second.send("x", "y")
    second.give_back_credit()
    assert receiver.payloads == [b"x", b"y"]
    assert is_answered(receiver, before)


def test_many_that_poll_share_a_round_and_the_late_ones_the_next() -> None:
    play = Play("orders")
    client = play.connect("r")
    receivers = [client.attach_receiver() for _ in range(50)]
    sender = play.connect("s").attach_sender()
    early = [(each, poll(each)) for each in receivers[:25]]
    play.wait(SENDERS_SECONDS / 2)
    late = [(each, poll(each)) for each in receivers[25:]]
    granted = [order for _, order in play.orders if type(order).__name__ == "GrantCredit"]
    assert len(granted) <= 2  # the sender is asked once, not once for each
    play.wait(SENDERS_SECONDS * 0.6)
    assert all(is_answered(*each) for each in early)
    play.wait(SENDERS_SECONDS)
    assert all(is_answered(*each) for each in late)
    sender.send("x")
    for each in receivers:
        poll(each)
    assert sum(len(each.payloads) for each in receivers) == 1


def test_another_receiver_with_credit_of_its_own_goes_on_meanwhile() -> None:
    play = Play("orders")
    steady = play.connect("steady").attach_receiver(credit=10)
    sender = play.connect("s").attach_sender()
    polling = play.connect("polls").attach_receiver()
    assert sender.credit == 10
    assert is_answered(polling, poll(polling))  # the sender has had its chance all the time
    sender.send(*"abcd")
    assert len(steady.payloads) == 4


def test_a_drain_without_credit_is_answered_at_once() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver()
    play.connect("s").attach_sender()
    assert is_answered(receiver, poll(receiver, 0))


def test_a_paused_route_and_a_draining_router_give_nobody_a_chance() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver()
    sender = play.connect("s").attach_sender()
    play.carry_out(play.core.pause("orders", play.now))
    assert is_answered(receiver, poll(receiver))
    assert sender.credit == 0
    play.carry_out(play.core.resume("orders", play.now))
    play.carry_out(play.core.drain(play.now))
    if not receiver.is_detached():
        assert is_answered(receiver, poll(receiver))


def test_an_address_of_many_receivers_waits_for_all_of_them() -> None:
    play = Play(Route(address="orders", distribution=Distribution.MULTICAST))
    polling, other = (play.connect("r").attach_receiver() for _ in range(2))
    sender = play.connect("s").attach_sender()
    assert is_answered(polling, poll(polling))  # the other takes nothing now
    assert sender.credit == 0
    other.grant(5)
    before = poll(polling)
    sender.send("x")
    assert polling.payloads == other.payloads == [b"x"]
    assert is_answered(polling, before)


# Containers


def test_a_container_is_granted_credit_before_the_receiver_is_answered() -> None:
    play = Play(BROKER)
    east = play.dial("east")
    receiver = play.connect("r").attach_receiver()
    source = east.answer_sender()
    before = poll(receiver, 3)
    assert (source.credit, source.was_drained()) == (3, True)
    play.wait(SENDERS_SECONDS * 2)
    assert not is_answered(receiver, before)
    source.send("x")
    source.give_back_credit()
    assert receiver.payloads == [b"x"]
    assert is_answered(receiver, before)


def test_a_container_that_is_being_attached_to_is_asked_when_it_answers() -> None:
    play = Play(BROKER)
    east = play.dial("east")
    receiver = play.connect("r").attach_receiver()
    before = poll(receiver)
    assert not is_answered(receiver, before)
    source = east.answer_sender()
    assert source.was_drained()
    source.send("x")
    assert receiver.payloads == [b"x"]
    assert is_answered(receiver, before)


@pytest.mark.parametrize("is_attached", [False, True])
def test_a_container_that_says_nothing_is_waited_for_no_longer_than_the_bound(
    is_attached: bool,
) -> None:
    play = Play(BROKER)
    east = play.dial("east")
    receiver = play.connect("r").attach_receiver()
    if is_attached:
        east.answer_sender()
    before = poll(receiver)
    play.wait(CONTAINERS_SECONDS * 0.9)
    assert not is_answered(receiver, before)
    play.wait(CONTAINERS_SECONDS * 0.2)
    assert is_answered(receiver, before)


def test_a_container_that_is_away_is_not_waited_for() -> None:
    play = Play(BROKER)
    receiver = play.connect("r").attach_receiver()
    assert is_answered(receiver, poll(receiver))
    play.dial("east").refuse()
    play.wait(60)
    assert receiver.drains_answered == 1


def test_a_container_that_cannot_drain_is_granted_credit_all_the_same() -> None:
    play = Play(BROKER)
    east = play.dial("east", capabilities=attrs.evolve(AMQP, drains=False))
    receiver = play.connect("r").attach_receiver()
    source = east.answer_sender()
    before = poll(receiver)
    assert (source.credit, source.was_drained()) == (1, False)
    source.send("x")
    assert receiver.payloads == [b"x"]
    receiver.accept()
    before = poll(receiver)
    play.wait(SENDERS_SECONDS)
    assert is_answered(receiver, before)


# On the wire, and beside the lane


@pytest.mark.parametrize("mode", MODES)
def test_a_drain_ends_in_a_flow_without_credit_whose_delivery_count_has_advanced(mode: str) -> None:
    meeting = Meeting(mode)
    meeting.promote() if mode != "off" else meeting.send()
    meeting.receiver.client.engine.execute(DetachLink(meeting.receiver.link, True))
    polling = meeting.attach_receiver(0)
    before = len(polling.client.heard)
    for polls in (1, 2):
        polling.grant(3, drain=True)
        meeting.settle_down()  # the sender says that it has nothing
        told = flows(bytes(polling.client.heard[before:]))
        assert [(flow.link_credit, flow.drain) for flow in told] == [(0, True)] * polls
        assert [flow.delivery_count for flow in told] == [3, 6][:polls]


def flows(octets: bytes) -> list[Flow]:
    """The flows of a link among frames."""
    found, at = [], 0
    while at < len(octets):
        end = at + int.from_bytes(octets[at : at + 4], "big")
        performative, _ = decode(octets, at + 8, end)
        if isinstance(performative, Flow) and performative.handle is not None:
            found.append(performative)
        at = end
    return found


# Other workers


@pytest.mark.parametrize(
    "route", ["orders", Route(address="orders", guarantee=Guarantee.EXACTLY_ONCE)]
)
@pytest.mark.parametrize(("there", "here"), [(1, 2), (2, 1), (2, 3)])
@pytest.mark.parametrize("is_first", [False, True])
def test_senders_at_other_workers_get_their_chance(
    route: str | Route, there: int, here: int, is_first: bool
) -> None:
    fleet = Fleet(3, route)
    sender = fleet[there].connect("s").attach_sender()
    fleet.settle()
    receiver = fleet[here].connect("r").attach_receiver()
    if not is_first:
        fleet.settle()
        fleet.wait(1)
    before = poll(receiver)
    fleet.settle()
    assert sender.credit == 1
    assert not is_answered(receiver, before)
    sender.send("x")
    fleet.settle()
    assert receiver.payloads == [b"x"]
    assert is_answered(receiver, before)


@pytest.mark.parametrize("answers", [False, True])
def test_a_receiver_hears_that_senders_at_other_workers_have_nothing(answers: bool) -> None:
    fleet = Fleet(2, "orders")
    sender = fleet[1].connect("s").attach_sender()
    receiver = fleet[2].connect("r").attach_receiver()
    fleet.settle()
    fleet.wait(1)
    for is_first in (True, False):
        before = poll(receiver)
        fleet.settle()
        if sender.credit and answers:
            sender.give_back_credit()
            fleet.settle()
        if is_first:  # others might be about to attach
            assert not is_answered(receiver, before)
            fleet.wait(SENDERS_SECONDS * 1.1)
        assert is_answered(receiver, before)


def test_a_container_of_another_worker_is_asked_by_that() -> None:
    fleet = Fleet(2, BROKER, owned=[["east"]])
    east = fleet[1].dial("east")
    fleet.settle()
    receiver = fleet[2].connect("r").attach_receiver()
    before = poll(receiver)
    fleet.settle()
    source = east.answer_sender()
    fleet.settle()
    assert source.credit == 1
    assert not is_answered(receiver, before)
    source.send("x")
    fleet.settle()
    assert receiver.payloads == [b"x"]
    assert is_answered(receiver, before)
