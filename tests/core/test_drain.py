"""Stopping without losing or rejecting anything."""

from router.core.drain import REVIEW_SECONDS
from router.model.outcome import ACCEPTED
from router.routes.route import Endpoint, Route
from tests.support.play import Play


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
