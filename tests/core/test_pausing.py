"""Pausing a route, and letting it go on."""

import pytest

from router.routes.route import Endpoint, Route
from tests.support.play import Play


def pause(play: Play, route: str = "orders") -> None:
    play.carry_out(play.core.pause(route, play.now))


def resume(play: Play, route: str = "orders") -> None:
    play.carry_out(play.core.resume(route, play.now))


def test_a_paused_route_takes_its_senders_credit_back() -> None:
    play = Play("orders")
    play.connect("in").attach_receiver("orders", credit=10)
    sender = play.connect("out").attach_sender("orders")
    assert sender.credit == 10
    pause(play)
    assert sender.credit == 0
    assert sender.was_drained()


def test_what_comes_all_the_same_waits_and_goes_on_in_order_later() -> None:
    play = Play("orders")
    receiver = play.connect("in").attach_receiver("orders", credit=10)
    sender = play.connect("out").attach_sender("orders")
    pause(play)
    sender.send(b"1", b"2")  # sent before the drain reached it
    assert receiver.payloads == []
    resume(play)
    assert receiver.payloads == [b"1", b"2"]
    assert sender.credit > 0


def test_what_has_gone_out_is_answered_while_the_route_is_paused() -> None:
    play = Play("orders")
    receiver = play.connect("in").attach_receiver("orders", credit=10)
    sender = play.connect("out").attach_sender("orders")
    (number,) = sender.send(b"1")
    pause(play)
    receiver.accept()
    assert sender.told[number][-1][1]


def test_a_delivery_in_parts_goes_on_to_its_end() -> None:
    play = Play("orders")
    receiver = play.connect("in").attach_receiver("orders", credit=10)
    sender = play.connect("out").attach_sender("orders")
    sender.send(b"one ", more=True)
    pause(play)
    sender.go_on(b"two", more=False)
    assert receiver.payloads == [b"one two"]


def test_credit_that_a_receiver_gives_meanwhile_moves_nothing_until_the_route_goes_on() -> None:
    play = Play("orders")
    receiver = play.connect("in").attach_receiver("orders")
    sender = play.connect("out").attach_sender("orders")
    pause(play)
    receiver.grant(10)
    assert sender.credit == 0
    resume(play)
    assert sender.credit == 10


def test_whoever_attaches_to_a_paused_route_waits_too() -> None:
    play = Play("orders.*")
    pause(play, "orders.*")
    receiver = play.connect("in").attach_receiver("orders.new", credit=10)
    sender = play.connect("out").attach_sender("orders.new")
    assert sender.attach is not None
    assert sender.credit == 0
    resume(play, "orders.*")
    sender.send(b"1")
    assert receiver.payloads == [b"1"]


def test_other_routes_go_on() -> None:
    play = Play("orders", "prices")
    receiver = play.connect("in").attach_receiver("prices", credit=10)
    sender = play.connect("out").attach_sender("prices")
    pause(play)
    sender.send(b"1")
    assert receiver.payloads == [b"1"]


def test_a_paused_bridge_pulls_nothing() -> None:
    route = Route(address="orders", from_=Endpoint("east"), to=(Endpoint("west"),))
    play = Play(route)
    east, west = play.dial("east"), play.dial("west")
    receiver = west.answer_receiver(credit=10)
    sender = east.answer_sender()
    pause(play)
    assert sender.credit == 0
    resume(play)
    sender.send(b"1")
    assert receiver.payloads == [b"1"]


@pytest.mark.parametrize("times", [1, 2])
def test_pausing_twice_is_like_pausing_once(times: int) -> None:
    play = Play("orders")
    play.connect("in").attach_receiver("orders", credit=10)
    sender = play.connect("out").attach_sender("orders")
    for _ in range(times):
        pause(play)
    assert play.core.surveyor.survey(play.now).routes[0].is_paused
    resume(play)
    assert not play.core.surveyor.survey(play.now).routes[0].is_paused
    assert sender.credit == 10


def test_a_route_that_does_not_exist_cannot_be_paused() -> None:
    play = Play("orders")
    with pytest.raises(KeyError):
        pause(play, "prices")
    with pytest.raises(KeyError):
        resume(play, "prices")
