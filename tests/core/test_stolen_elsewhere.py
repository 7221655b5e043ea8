"""A link is named by its containers: attached at another worker, it leaves the first (§2.6.1)."""

import attrs
import pytest

from router.model.condition import STOLEN
from router.model.outcome import ACCEPTED
from router.model.terminus import ExpiryPolicy
from router.routes.route import Guarantee, Route
from tests.support.fleet import Fleet
from tests.support.play import AMQP, Peer, ReceiverEnd, SenderEnd

EXACT = Route(address="exact", guarantee=Guarantee.EXACTLY_ONCE)
ROLES = pytest.mark.parametrize("role", ["sender", "receiver"])


def attach(
    peer: Peer, role: str, name: str = "link", address: str = "q"
) -> SenderEnd | ReceiverEnd:
    if role == "sender":
        return peer.attach_sender(address, name=name)
    return peer.attach_receiver(address, name=name, credit=5)


def is_stolen(end: SenderEnd | ReceiverEnd) -> bool:
    condition = None if end.detached is None else end.detached.condition
    return condition is not None and condition.name == STOLEN


@ROLES
def test_a_link_that_is_attached_at_another_worker_is_stolen_from_the_first(role: str) -> None:
    fleet = Fleet(3, "q")
    first = attach(fleet[1].connect("shop"), role)
    fleet.settle()
    second = attach(fleet[2].connect("shop"), role)
    fleet.settle()
    assert is_stolen(first)
    assert not second.is_detached()
    back = attach(fleet[1].connect("shop"), role)
    fleet.settle()
    assert is_stolen(second)
    third = attach(fleet[3].connect("shop"), role)
    fleet.settle()
    assert is_stolen(back)
    assert not third.is_detached()


@ROLES
def test_links_that_differ_in_anything_stay(role: str) -> None:
    fleet = Fleet(2, "q", "other")
    first = attach(fleet[1].connect("shop"), role)
    fleet.settle()
    others = [
        attach(fleet[2].connect("shop"), "receiver" if role == "sender" else "sender"),
        attach(fleet[2].connect("shop"), role, name="link-2"),
        attach(fleet[2].connect("office"), role),
    ]
    fleet.settle()
    assert not any(each.is_detached() for each in (first, *others))


@ROLES
def test_of_two_that_are_attached_at_the_same_time_one_stays(role: str) -> None:
    fleet = Fleet(2, "q")
    ends = [attach(fleet[each].connect("shop"), role) for each in (1, 2)]
    fleet.settle()
    assert [is_stolen(end) for end in ends] == [True, False]


@ROLES
def test_a_link_that_is_gone_is_not_stolen_and_one_that_is_back_is(role: str) -> None:
    fleet = Fleet(2, "q")
    first = attach(fleet[1].connect("shop"), role)
    fleet.settle()
    first.detach()
    fleet.settle()
    second = attach(fleet[2].connect("shop"), role)
    fleet.settle()
    assert not first.is_detached()
    second.peer.lose()
    fleet.settle()
    back = attach(fleet[1].connect("shop"), role)
    fleet.settle()
    assert not back.is_detached()


def test_what_a_stolen_sender_had_under_way_runs_to_its_end() -> None:
    fleet = Fleet(2, "q")
    receiver = fleet[1].connect("r").attach_receiver("q", credit=5)
    first = fleet[1].connect("shop").attach_sender("q", name="link")
    fleet.settle()
    first.send("x")
    second = fleet[2].connect("shop").attach_sender("q", name="link")
    fleet.settle()
    assert is_stolen(first)
    assert receiver.payloads == [b"x"]
    receiver.accept()
    fleet.settle()
    (number,) = second.send("y")
    fleet.settle()
    receiver.accept()
    fleet.settle()
    assert second.outcome(number) == (ACCEPTED, True)


def test_a_stolen_link_is_kept_as_long_as_was_agreed() -> None:
    fleet = Fleet(2, "q")
    receiver = fleet[1].connect("r").attach_receiver("q", credit=5)
    kept = {"policy": ExpiryPolicy.LINK_DETACH, "seconds": 60}
    first = fleet[1].connect("shop").attach_sender("q", name="link", **kept)  # type: ignore[arg-type]
    fleet.settle()
    (number,) = first.send("x")
    tag = first.unsettled[number]
    fleet[2].connect("shop").attach_sender("q", name="link")
    fleet.settle()
    assert is_stolen(first)
    receiver.accept()
    fleet.settle()
    back = fleet[1].connect("shop").attach_sender("q", name="link", unsettled={tag: None})
    assert back.attach is not None
    assert back.attach.unsettled == {tag: ACCEPTED}


@ROLES
def test_links_of_exactly_once_routes_are_stolen_where_their_home_is(role: str) -> None:
    fleet = Fleet(2, EXACT)
    first = attach(fleet[1].connect("shop"), role, address="exact")
    fleet.settle()
    second = attach(fleet[2].connect("shop"), role, address="exact")
    fleet.settle()
    assert is_stolen(first)
    assert not second.is_detached()
    back = attach(fleet[1].connect("shop"), role, address="exact")
    fleet.settle()
    assert is_stolen(second)
    assert not back.is_detached()


def test_nothing_is_kept_of_links_that_are_gone() -> None:
    fleet = Fleet(2, "q")
    for each in range(50):
        fleet[1].connect(f"c{each}").attach_sender("q").detach()
    fleet.settle()
    network = fleet[1].core._network
    assert not network._links
    assert all(not joint.pending for joint in network._joints.values())


@ROLES
def test_links_that_an_engine_has_named_are_never_stolen_so(role: str) -> None:
    """Names that engines of other protocols give are counted by each worker for itself."""
    fleet = Fleet(2, "q")
    capabilities = attrs.evolve(AMQP, names_links=False)
    ends = [attach(fleet[each].connect("shop", capabilities=capabilities), role) for each in (1, 2)]
    fleet.settle()
    assert not any(map(is_stolen, ends))
