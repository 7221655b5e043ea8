"""Stopping without losing or rejecting anything."""

import pytest

from router.core.drain import ANSWER_SECONDS, REVIEW_SECONDS, SHUTTING_DOWN
from router.model.capabilities import Capabilities, Protocol
from router.model.commands import CloseConnection
from router.model.outcome import ACCEPTED
from router.model.terminus import ExpiryPolicy
from router.routes.route import Endpoint, Guarantee, Route, Unroutable
from tests.support.fleet import Fleet
from tests.support.play import Play, ReceiverEnd, SenderEnd

EXACT = Route(address="orders", guarantee=Guarantee.EXACTLY_ONCE)


def drain(play: Play) -> None:
    play.carry_out(play.core.drain(play.now))


def is_drained(play: Play) -> bool:
    play.wait(REVIEW_SECONDS)
    return play.core.is_drained


def test_core_without_links_is_drained_at_once() -> None:
    play = Play("orders")
    assert not is_drained(play)
    drain(play)
    assert is_drained(play)


def test_credit_is_asked_back_and_what_is_here_runs_to_its_end() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=10)
    sender = play.connect("s").attach_sender()
    (before,) = sender.send("before")
    drain(play)
    assert sender.credit == 0
    assert sender.was_drained()
    (late,) = sender.send("late")
    sender.give_back_credit()
    assert receiver.payloads == [b"before", b"late"]
    assert not sender.is_detached()
    assert not is_drained(play)
    receiver.accept()
    assert [sender.outcome(n) for n in (before, late)] == [(ACCEPTED, True)] * 2
    assert is_drained(play)
    assert sender.detached is not None
    assert not sender.detached.closed
    assert sender.detached.condition is None
    assert receiver.detached is not None
    assert not receiver.detached.closed


def test_what_does_not_end_in_time_stays_unsettled() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=10)
    sender = play.connect("s").attach_sender()
    (number,) = sender.send("x")
    drain(play)
    sender.give_back_credit()
    play.wait(3600)
    assert not is_drained(play)
    assert sender.outcome(number) is None
    assert receiver.last.number not in receiver.told


def test_a_sender_that_does_not_give_its_credit_back_is_waited_for_while_something_comes() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=10)
    sender = play.connect("s").attach_sender()
    drain(play)
    play.wait(ANSWER_SECONDS - 3 * REVIEW_SECONDS)
    assert not is_drained(play)
    (late,) = sender.send("late")
    receiver.accept()
    play.wait(ANSWER_SECONDS - 3 * REVIEW_SECONDS)
    assert not is_drained(play)
    play.wait(4 * REVIEW_SECONDS)
    assert is_drained(play)
    assert sender.outcome(late) == (ACCEPTED, True)
    assert sender.detached is not None
    assert not sender.detached.closed


BASIC = Capabilities(
    protocol=Protocol.AMQP_0_9_1, names_itself=False, sends_ahead=True, has_links=False
)


def test_a_connection_without_links_is_closed_when_its_publishes_have_their_outcomes() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=10)
    client = play.connect("s", capabilities=BASIC)
    sender = client.attach_sender()
    (number,) = sender.send("x")
    drain(play)
    sender.give_back_credit()
    assert not is_drained(play)
    before = client.closed
    assert before is None
    receiver.accept()
    play.wait(REVIEW_SECONDS)
    assert sender.outcome(number) == (ACCEPTED, True)
    assert sender.detached is None
    assert client.closed == CloseConnection(SHUTTING_DOWN)
    client.lose()
    assert is_drained(play)
    assert receiver.detached is not None


def test_connections_without_links_that_feed_each_other_do_not_wait_for_each_other() -> None:
    play = Play("orders", "prices")
    one, other = (play.connect(name, capabilities=BASIC) for name in ("one", "other"))
    senders = one.attach_sender("orders"), other.attach_sender("prices")
    one.attach_receiver("prices", credit=10)
    other.attach_receiver("orders", credit=10)
    drain(play)
    for sender in senders:
        sender.give_back_credit()
    play.wait(2 * REVIEW_SECONDS)
    for client in (one, other):
        assert client.closed == CloseConnection(SHUTTING_DOWN)


def test_what_is_unsettled_is_waited_for_though_the_sender_does_not_answer() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=10)
    sender = play.connect("s").attach_sender()
    (number,) = sender.send("x")
    drain(play)
    play.wait(10 * ANSWER_SECONDS)
    assert not is_drained(play)
    receiver.accept()
    assert is_drained(play)
    assert sender.outcome(number) == (ACCEPTED, True)


def test_links_to_containers_are_not_attached_again() -> None:
    play = Play(Route(address="orders", from_=Endpoint("east"), to=(Endpoint("west"),)))
    east, west = play.dial("east"), play.dial("west")
    target = west.answer_receiver(credit=10)
    source = east.answer_sender()
    source.send("x")
    drain(play)
    source.give_back_credit()
    assert not is_drained(play)
    target.accept()
    assert is_drained(play)
    assert source.detached is not None
    assert not source.detached.closed
    play.wait(100)
    assert not east.asked
    assert not west.asked
    play.dial("east")
    assert is_drained(play)


def test_second_drain_changes_nothing() -> None:
    play = Play("orders")
    play.connect("r").attach_receiver(credit=10)
    play.connect("s").attach_sender()
    drain(play)
    before = len(play.orders)
    drain(play)
    assert len(play.orders) == before


def test_mode_second_is_carried_to_its_end() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=10, second=True)
    sender = play.connect("s").attach_sender(second=True)
    (number,) = sender.send("x")
    drain(play)
    sender.give_back_credit()
    receiver.update(receiver.last.number, settled=False)
    assert not is_drained(play)
    sender.settle(number)
    assert is_drained(play)


def keeping_sender(play: Play) -> SenderEnd:
    return play.connect("s").attach_sender(
        name="out", unsettled={}, second=True, seconds=300, policy=ExpiryPolicy.CONNECTION_CLOSE
    )


def keeping_receiver(play: Play) -> ReceiverEnd:
    return play.connect("r").attach_receiver(
        name="in",
        unsettled={},
        second=True,
        seconds=300,
        policy=ExpiryPolicy.CONNECTION_CLOSE,
        credit=10,
    )


def test_a_delivery_whose_receiver_is_away_is_not_waited_for() -> None:
    play = Play(EXACT)
    receiver, sender = keeping_receiver(play), keeping_sender(play)
    (number,) = sender.send("x")
    receiver.peer.lose()
    drain(play)
    assert not is_drained(play)  # it may be sending
    sender.give_back_credit()
    assert is_drained(play)
    assert sender.detached is not None
    assert not sender.detached.closed
    assert sender.outcome(number) is None


def test_a_delivery_that_waits_where_nobody_receives_is_not_waited_for() -> None:
    play = Play(Route(address="orders", unroutable=Unroutable.HOLD))
    receiver = play.connect("r").attach_receiver(credit=1)
    sender = play.connect("s").attach_sender()
    first, second = sender.send("first", "second")
    receiver.accept()
    receiver.detach()
    drain(play)
    sender.give_back_credit()
    assert is_drained(play)
    assert sender.outcome(first) == (ACCEPTED, True)
    assert sender.outcome(second) is None


@pytest.mark.parametrize(
    "policy", [Unroutable.RELEASE, Unroutable.REJECT, Unroutable.DROP, Unroutable.DEAD_LETTER]
)
def test_what_nobody_receives_because_the_router_stops_stays_unsettled(policy: Unroutable) -> None:
    dead = Endpoint("east", "dead") if policy is Unroutable.DEAD_LETTER else None
    play = Play(Route(address="orders", unroutable=policy, dead_letter=dead))
    receiver = play.connect("r").attach_receiver(credit=1)
    sender = play.connect("s").attach_sender()
    first, second = sender.send("first", "second")
    drain(play)
    sender.give_back_credit()
    receiver.accept()
    receiver.detach()
    assert is_drained(play)
    assert sender.outcome(first) == (ACCEPTED, True)
    assert sender.outcome(second) is None


def test_what_waits_for_the_receivers_of_a_worker_that_has_stopped_stays_unsettled() -> None:
    fleet = Fleet(2, "orders")
    receiver = fleet[1].connect("r").attach_receiver(credit=1)
    fleet.settle()
    sender = fleet[2].connect("s").attach_sender()
    fleet.settle()
    first, second = sender.send("first", "second")
    fleet.settle()
    for play in (fleet[2], fleet[1]):
        drain(play)
    fleet.settle()
    sender.give_back_credit()
    receiver.accept()
    receiver.detach()
    fleet.settle()
    for _ in range(3):
        fleet.wait(REVIEW_SECONDS)
        fleet.settle()
    assert sender.outcome(first) == (ACCEPTED, True)
    assert sender.outcome(second) is None
    assert all(play.core.is_drained for play in (fleet[1], fleet[2]))


def test_a_receiver_whose_senders_are_away_is_not_waited_for() -> None:
    play = Play(EXACT)
    receiver, sender = keeping_receiver(play), keeping_sender(play)
    sender.send("told", "untold")
    told, untold = receiver.unsettled
    receiver.update(told, settled=False)
    sender.peer.lose()
    drain(play)
    assert not is_drained(play)  # its word on the second is awaited
    receiver.update(untold, settled=False)
    assert is_drained(play)
    assert receiver.detached is not None
    assert not receiver.detached.closed
    assert receiver.told_last(untold) is None  # the sender is to settle first


def test_what_a_container_is_about_to_take_is_waited_for() -> None:
    play = Play(Route(address="orders", to=(Endpoint("west"),)))
    west = play.dial("west")
    sender = play.connect("s").attach_sender()
    target = west.answer_receiver(credit=10)
    (first,) = sender.send("first")
    target.accept()
    west.lose()
    west = play.dial("west")
    (second,) = sender.send("second")
    drain(play)
    sender.give_back_credit()
    assert not is_drained(play)
    target = west.answer_receiver(credit=10)
    assert target.payloads == [b"second"]
    target.accept()
    assert [sender.outcome(n) for n in (first, second)] == [(ACCEPTED, True)] * 2
    assert is_drained(play)


def test_a_link_that_leads_through_to_another_worker_is_ended_by_that() -> None:
    fleet = Fleet(2, EXACT)
    receiver = keeping_receiver(fleet[1])
    sender = keeping_sender(fleet[2])
    fleet.settle()
    (number,) = sender.send("x")
    fleet.settle()
    for play in (fleet[2], fleet[1]):
        drain(play)
    fleet.settle()
    assert sender.was_drained()
    assert not fleet[2].core.is_drained
    receiver.update(*receiver.unsettled, settled=False)
    fleet.settle()
    sender.settle(number)
    sender.give_back_credit()
    fleet.settle()
    fleet.wait(REVIEW_SECONDS)
    assert sender.detached is not None
    assert not sender.detached.closed
    assert all(play.core.is_drained for play in (fleet[1], fleet[2]))
