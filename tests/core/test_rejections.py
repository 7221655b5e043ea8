"""Rejections: counted by route, told to people, and not told too often."""

from typing import Any

import pytest

from router.core.rejections import PAUSE_SECONDS
from router.core.snapshot import ANONYMOUS, Rejection
from router.model.condition import NOT_FOUND, RESOURCE_LIMIT_EXCEEDED, Condition
from router.model.outcome import MODIFIED_FAILED, RELEASED, Rejected
from router.routes.route import Distribution, Endpoint, Guarantee, Route, Unroutable
from router.service.merge import merge_cores
from tests.support.fleet import Fleet
from tests.support.play import Play

NO_QUEUE = Rejected(Condition(NOT_FOUND, "no such queue"))


def rejection(play: Play, name: str) -> Rejection | None:
    routes = play.core.surveyor.survey(play.now).routes
    return next(route.rejection for route in routes if route.name == name)


def told(play: Play) -> list[dict[str, Any]]:
    found = [notice for notice in play.noticed if notice.event == "delivery.rejected"]
    assert all(notice.is_warning for notice in found)
    return [notice.fields for notice in found]


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE])
@pytest.mark.parametrize("settled", [False, True])
def test_what_a_receiver_rejects_is_counted_once(guarantee: Guarantee, settled: bool) -> None:
    play = Play(Route(address="orders", guarantee=guarantee))
    receiver = play.connect("sink").attach_receiver("orders", credit=10)
    play.connect("source").attach_sender("orders").send(b"1", b"2", b"3", settled=settled)
    one, two, three = (each.number for each in receiver.received)
    receiver.update(one, two, state=NO_QUEUE)
    receiver.update(three)
    play.wait(3)
    assert rejection(play, "orders") == Rejection(
        count=2,
        seconds=3.0,
        reason="amqp:not-found: no such queue",
        peer="sink",
        address="orders",
        by_router=False,
        untold=2 if settled else 0,
    )


def test_the_peer_is_called_as_the_file_calls_it() -> None:
    play = Play(Route(address="orders", to=(Endpoint("west"),)))
    play.connect("source").attach_sender("orders")
    west = play.dial("west")
    receiver = west.answer_receiver(credit=10)
    play.connect("other").attach_sender("orders").send(b"1")
    receiver.update(receiver.last.number, state=Rejected())
    found = rejection(play, "orders")
    assert found is not None
    assert (found.count, found.peer, found.reason) == (1, "west", "")


def test_other_outcomes_are_no_rejections() -> None:
    play = Play("orders")
    receiver = play.connect("sink").attach_receiver("orders", credit=10)
    play.connect("source").attach_sender("orders").send(b"1", b"2")
    one, two = (each.number for each in receiver.received)
    receiver.update(one, state=RELEASED)
    receiver.update(two, state=MODIFIED_FAILED)
    assert rejection(play, "orders") is None
    assert told(play) == []


def test_what_the_router_rejects_because_nobody_receives_is_counted() -> None:
    play = Play(Route(address="orders", unroutable=Unroutable.REJECT))
    sink = play.connect("sink").attach_receiver("orders", credit=10)
    sender = play.connect("source").attach_sender("orders")
    sink.detach()
    sender.send(b"1")
    found = rejection(play, "orders")
    assert found is not None
    assert (found.count, found.peer, found.by_router) == (1, "source", True)
    assert "nobody receives" in found.reason


@pytest.mark.parametrize("settled", [False, True])
def test_what_no_route_takes_is_counted_for_the_anonymous_terminus(settled: bool) -> None:
    play = Play("orders")
    sender = play.connect("source").attach_sender(None)
    sender.send(b"1", address="nowhere", settled=settled)
    found = rejection(play, ANONYMOUS)
    assert found is not None
    assert (found.count, found.address, found.by_router) == (1, "nowhere", True)


def test_each_receiver_of_a_multicast_that_rejects_counts() -> None:
    play = Play(Route(address="orders", distribution=Distribution.MULTICAST))
    receivers = [play.connect(f"sink{n}").attach_receiver("orders", credit=10) for n in range(3)]
    play.connect("source").attach_sender("orders").send(b"1")
    for receiver in receivers[:2]:
        receiver.update(receiver.last.number, state=NO_QUEUE)
    receivers[2].update(receivers[2].last.number)
    found = rejection(play, "orders")
    assert found is not None
    assert found.count == 2


def test_the_log_is_told_at_once_and_then_at_most_once_in_ten_seconds() -> None:
    play = Play("orders")
    receiver = play.connect("sink").attach_receiver("orders", credit=100)
    sender = play.connect("source").attach_sender("orders")
    for _ in range(20):
        sender.send(b"x")
        receiver.update(receiver.last.number, state=NO_QUEUE)
    (first,) = told(play)
    assert (first["route"], first["container"], first["count"]) == ("orders", "sink", 1)
    assert (first["condition"], first["by"]) == ("amqp:not-found: no such queue", "peer")
    play.wait(PAUSE_SECONDS)
    assert [each["count"] for each in told(play)] == [1, 19]
    play.wait(5 * PAUSE_SECONDS)
    assert len(told(play)) == 2, "nothing is said of nothing"
    sender.send(b"x")
    receiver.update(receiver.last.number, state=NO_QUEUE)
    assert [each["count"] for each in told(play)] == [1, 19, 1]


def test_the_reason_is_the_last_one() -> None:
    play = Play("orders")
    receiver = play.connect("sink").attach_receiver("orders", credit=10)
    play.connect("source").attach_sender("orders").send(b"1", b"2")
    one, two = (each.number for each in receiver.received)
    receiver.update(one, state=NO_QUEUE)
    play.wait(100)
    receiver.update(two, state=Rejected(Condition(RESOURCE_LIMIT_EXCEEDED, "full")))
    found = rejection(play, "orders")
    assert found is not None
    assert (found.count, found.seconds) == (2, 0.0)
    assert found.reason == "amqp:resource-limit-exceeded: full"


def test_a_rejection_is_counted_by_the_worker_of_the_receiver_alone() -> None:
    fleet = Fleet(2, "#")
    receiver = fleet[2].connect("sink").attach_receiver("orders", credit=10)
    sender = fleet[1].connect("source").attach_sender("orders")
    fleet.settle()
    (number,) = sender.send(b"1")
    fleet.settle()
    receiver.update(receiver.last.number, state=NO_QUEUE)
    fleet.settle()
    assert sender.outcome(number) == (NO_QUEUE, True)
    whole = merge_cores([play.core.surveyor.survey(play.now) for play in (fleet[1], fleet[2])])
    (route,) = (route for route in whole.routes if route.name == "#")
    assert route.rejection is not None
    assert (route.rejection.count, route.rejection.peer) == (1, "sink")
