"""What receivers give back while none of them has credit: it goes elsewhere, or its sender hears.

The receivers are at the sender's worker, at another one, or behind another router.
"""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    MODIFIED_UNDELIVERABLE,
    RELEASED,
    DeliveryState,
    Modified,
)
from router.model.terminus import ExpiryPolicy
from router.routes.route import Distribution, Endpoint, Guarantee, Route, Unroutable
from tests.support.fleet import Fleet
from tests.support.journaled import EXACT, Journaled
from tests.support.mesh import Mesh
from tests.support.play import AMQP, Play, ReceiverEnd

GIVEN_BACK = (RELEASED, MODIFIED_FAILED, MODIFIED_UNDELIVERABLE, Modified())
ORDERS = Route(address="orders")
HOLD = Route(address="orders", unroutable=Unroutable.HOLD)
ROUTES = (
    ORDERS,
    Route(address="orders", distribution=Distribution.CLOSEST),
    Route(address="orders", distribution=Distribution.MULTICAST),
    Route(address="orders", unroutable=Unroutable.REJECT),
    Route(address="orders", guarantee=Guarantee.EXACTLY_ONCE),
)


@attrs.define
class Scene:
    """A play for the sender, one for the receivers, and what carries octets between them."""

    near: Play
    far: Play
    settle: Callable[[], None]


def scene(kind: str, route: Route) -> Scene:
    if kind == "one worker":
        play = Play(route)
        return Scene(play, play, lambda: None)
    if kind == "two workers":
        fleet = Fleet(2, route)
        return Scene(fleet[1], fleet[2], fleet.settle)
    if route.distribution is Distribution.MULTICAST or kind == "routers that name each other":
        first, second = (attrs.evolve(route, to=(Endpoint(name),)) for name in ("dc2", "dc1"))
    else:
        first, second = attrs.evolve(route, to=(Endpoint("dc2"),)), route
    mesh = Mesh({"dc1": [first], "dc2": [second]}, workers=2)
    return Scene(mesh["dc1"][2], mesh["dc2"][2], mesh.settle)


ONE, TWO, THREE = (b"\x00Su\xa0\x01%d" % number for number in (1, 2, 3))
SCENES = ("one worker", "two workers", "two routers", "routers that name each other")


def receiver(scene: Scene, credit: int = 1) -> ReceiverEnd:
    found = scene.far.connect("first").attach_receiver("orders", credit=credit)
    scene.settle()
    return found


@pytest.mark.parametrize("state", GIVEN_BACK, ids=repr)
@pytest.mark.parametrize("route", ROUTES, ids=lambda each: f"{each.distribution} {each.guarantee}")
@pytest.mark.parametrize("kind", SCENES)
def test_the_sender_hears_what_the_only_receiver_gives_back_though_it_has_no_credit(
    kind: str, route: Route, state: DeliveryState
) -> None:
    stage = scene(kind, route)
    only = receiver(stage, credit=3)
    sender = stage.near.connect("sender").attach_sender("orders")
    stage.settle()
    numbers = sender.send(ONE, TWO, THREE)
    stage.settle()
    assert only.credit == 0
    only.update(*list(only.unsettled)[::2], state=state)
    stage.settle()
    told = [sender.outcome(number) for number in numbers]
    assert told == [(state, True), None, (state, True)]
    only.accept()
    stage.settle()
    assert sender.outcome(numbers[1]) == (ACCEPTED, True)


@pytest.mark.parametrize("route", [ROUTES[0], ROUTES[1], HOLD], ids=repr)
@pytest.mark.parametrize("kind", SCENES[:2] + SCENES[3:])
@pytest.mark.parametrize("settled", [True, False])
def test_what_the_receiver_elsewhere_gives_back_goes_to_one_here(
    kind: str, route: Route, settled: bool
) -> None:
    stage = scene(kind, route)
    first = receiver(stage)
    sender = stage.near.connect("sender").attach_sender("orders")
    stage.settle()
    sender.send(ONE, settled=settled)
    stage.settle()
    second = stage.near.connect("second").attach_receiver("orders", credit=5)
    stage.settle()
    first.update(*first.unsettled, state=RELEASED)
    stage.settle()
    assert (first.payloads, second.payloads) == ([ONE], [ONE])


def test_what_is_given_back_does_not_wait_behind_what_others_may_still_have() -> None:
    play = Play(ORDERS)
    first, second = (play.connect(name).attach_receiver(credit=1) for name in "ab")
    sender = play.connect("sender").attach_sender()
    numbers = sender.send("1", "2")
    first.detach()
    assert sender.outcome(numbers[0]) is None, "it waits for the second one's credit"
    second.update(*second.unsettled, state=RELEASED)
    assert sender.outcome(numbers[0]) is None
    assert sender.outcome(numbers[1]) == (RELEASED, True)


def test_what_was_given_back_is_released_when_the_last_one_goes_that_could_have_had_it() -> None:
    play = Play(ORDERS)
    first = play.connect("a").attach_receiver(credit=1)
    second = play.connect("b").attach_receiver(credit=0)
    sender = play.connect("sender").attach_sender()
    (number,) = sender.send("x")
    first.update(*first.unsettled, state=RELEASED)
    assert sender.outcome(number) is None
    second.detach()
    assert sender.outcome(number) == (RELEASED, True)


def test_what_was_given_back_is_released_when_a_container_stays_away_that_could_have_had_it() -> (
    None
):
    play = Play(Route(address="orders", to=(Endpoint("east"), Endpoint("west"))))
    sender = play.connect("sender").attach_sender()
    east, west = play.dial("east"), play.dial("west")
    first = east.answer_receiver(credit=1)
    west.answer_receiver(credit=0)
    (number,) = sender.send("x")
    west.lose()
    first.update(*first.unsettled, state=RELEASED)
    play.wait(59)
    assert sender.outcome(number) is None
    play.wait(2)
    assert sender.outcome(number) == (RELEASED, True)


def test_what_is_given_back_waits_for_a_link_to_another_worker_that_is_being_attached() -> None:
    fleet = Fleet(2, ORDERS)
    first = fleet[1].connect("a").attach_receiver("orders", credit=1)
    sender = fleet[1].connect("sender").attach_sender("orders")
    (number,) = sender.send("x")
    second = fleet[2].connect("b").attach_receiver("orders", credit=5)
    for _ in range(20):
        (node,) = fleet[1].core._registry.nodes.values()
        if node.pending:
            break
        fleet.carry(2, 1)
        fleet.carry(1, 2)
    else:
        pytest.fail("no link is being attached")
    first.update(*first.unsettled, state=RELEASED)
    fleet.settle()
    assert second.payloads == [b"x"]
    second.accept()
    fleet.settle()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_in_custody_it_waits_for_credit_and_goes_to_all_of_them_in_turn() -> None:
    play = Play(ORDERS)
    first, second = (play.connect(name).attach_receiver(credit=1) for name in "ab")
    sender = play.connect("sender").attach_sender()
    sender.send("x", settled=True)
    first.update(*first.unsettled, state=RELEASED)
    second.update(*second.unsettled, state=RELEASED)
    assert (len(first.payloads), len(second.payloads)) == (1, 1)
    second.grant(1)
    assert len(second.payloads) == 2


@pytest.mark.parametrize("is_away", [True, False])
def test_what_is_given_back_is_told_once_and_for_all_whoever_is_killed(is_away: bool) -> None:
    play = Journaled(EXACT)
    kept: dict[str, Any] = {"policy": ExpiryPolicy.CONNECTION_CLOSE, "seconds": 300}
    only = play.connect("east").attach_receiver(name="in", second=True, credit=1, **kept)
    sender = play.connect("west").attach_sender(name="out", second=True, **kept)
    (number,) = sender.send("x", tag=b"x")
    play.flush()
    if is_away:
        sender.peer.lose()
    only.update(*only.unsettled, state=RELEASED)
    play.flush()
    if not is_away:
        assert sender.outcome(number) == (RELEASED, False)
    after = play.crash()
    other = after.connect("other").attach_receiver(credit=5)
    back = after.connect("west").attach_sender(
        name="out", second=True, unsettled={sender.unsettled[number]: None}, **kept
    )
    after.flush()
    assert back.attach is not None
    assert back.attach.unsettled == {b"x": RELEASED}
    assert other.payloads == []


@pytest.mark.parametrize("state", GIVEN_BACK, ids=repr)
@pytest.mark.parametrize("comes", [True, False])
@pytest.mark.parametrize("kind", SCENES[:3])
def test_what_the_only_receiver_gives_back_is_held_for_the_next_one(
    kind: str, comes: bool, state: DeliveryState
) -> None:
    stage = scene(kind, HOLD)
    only = receiver(stage, credit=2)
    sender = stage.near.connect("sender").attach_sender("orders")
    stage.settle()
    numbers = sender.send(ONE, TWO)
    stage.settle()
    only.update(*only.unsettled, state=state)
    stage.settle()
    assert [sender.outcome(number) for number in numbers] == [None, None]
    if comes:
        only.detach()
        stage.settle()
        following = receiver(stage, credit=5)
        assert sorted(each[-len(ONE) :] for each in following.payloads) == [ONE, TWO]
        following.accept()
    else:
        only.grant(5)
    stage.settle()
    told = (ACCEPTED, True) if comes else (state, True)
    assert [sender.outcome(number) for number in numbers] == [told] * 2


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("route", [HOLD, attrs.evolve(HOLD, distribution=Distribution.CLOSEST)])
@pytest.mark.parametrize("kind", SCENES[1:])
def test_what_is_held_where_everybody_has_left_goes_to_a_receiver_elsewhere(
    kind: str, route: Route, settled: bool
) -> None:
    stage = scene(kind, route)
    first, second = receiver(stage), receiver(stage)
    sender = stage.near.connect("sender").attach_sender("orders")
    here = stage.near.connect("here").attach_receiver("orders", credit=0)
    stage.settle()
    numbers = sender.send(ONE, TWO, settled=settled)
    stage.settle()
    for each in (first, second):
        each.detach()
        stage.settle()
    here.grant(5)
    stage.settle()
    assert sorted(each[-len(ONE) :] for each in here.payloads) == [ONE, TWO]
    here.accept()
    stage.settle()
    if not settled:
        assert [sender.outcome(number) for number in numbers] == [(ACCEPTED, True)] * 2


@pytest.mark.parametrize("kind", SCENES)
def test_what_is_held_waits_for_whoever_comes_when_everybody_has_left(kind: str) -> None:
    stage = scene(kind, HOLD)
    first, second = receiver(stage), receiver(stage)
    sender = stage.near.connect("sender").attach_sender("orders")
    stage.settle()
    numbers = sender.send(ONE, TWO)
    stage.settle()
    for each in (first, second):
        each.detach()
        stage.settle()
    assert [sender.outcome(number) for number in numbers] == [None, None]
    third = receiver(stage, credit=5)
    assert sorted(each[-len(ONE) :] for each in third.payloads) == [ONE, TWO]
    third.accept()
    stage.settle()
    assert [sender.outcome(number) for number in numbers] == [(ACCEPTED, True)] * 2


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE])
def test_a_router_that_dials_in_is_given_back_what_is_held_where_everybody_has_left(
    guarantee: Guarantee,
) -> None:
    """By a container's URL, not by the mesh; it may have receivers of its own, or holds it."""
    play = Journaled(attrs.evolve(HOLD, guarantee=guarantee))
    only = play.connect("a").attach_receiver(name="in", credit=1)
    router = attrs.evolve(AMQP, is_router=True, is_neighbor=True)
    sender = play.connect("near", capabilities=router).attach_sender(name="out", second=True)
    numbers = sender.send(ONE, TWO)
    play.flush()
    only.peer.lose()
    play.flush()
    assert sender.outcome(numbers[1]) == (RELEASED, False)


@pytest.mark.parametrize("policy", [Unroutable.REJECT, Unroutable.RELEASE])
def test_what_waits_where_everybody_has_left_is_not_rejected_while_others_receive(
    policy: Unroutable,
) -> None:
    fleet = Fleet(2, Route(address="orders", unroutable=policy))
    far = fleet[2].connect("far").attach_receiver("orders", credit=1)
    fleet.settle()
    sender = fleet[1].connect("sender").attach_sender("orders")
    fleet.settle()
    near = fleet[1].connect("near").attach_receiver("orders", credit=0)
    fleet.settle()
    (number,) = sender.send(ONE)
    far.detach()  # before the delivery is there
    fleet.settle()
    near.grant(1)
    fleet.settle()
    assert near.payloads == [ONE]
    near.accept()
    fleet.settle()
    assert sender.outcome(number) == (ACCEPTED, True)
