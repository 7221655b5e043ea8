"""What routers tell each other of deliveries that wait, and of recalling them, with a flow."""

from typing import Any

import pytest

from router.model.commands import RecallDeliveries, ReportWaiting
from router.model.events import CreditGranted, DeliveriesRecalled, WaitingReported
from router.model.terminus import Role
from router.model.ways import CREDIT_MOST
from router.wire.v1_0.connection import TRACE
from router.wire.v1_0.flowing import RECALLED, WAITING
from router.wire.v1_0.performatives import Flow
from router.wire.v1_0.types import Symbol, Uint, Ulong
from tests.support.peer import Peer

NO_NUMBERS: list[Any] = [True, -1, CREDIT_MOST + 1, 1.5, "3", b"", [Uint(3)], None]


def router(role: Role, *, is_router: bool = True) -> Peer:
    """Returns a peer that has attached a link, and perhaps says that it is a router."""
    peer = Peer(is_router=True)
    peer.greet(offered_capabilities=(Symbol(TRACE),) if is_router else ())
    peer.begin()
    peer.attach(role)
    peer.answer()
    peer.take_events()
    return peer


def told(peer: Peer, kind: type, properties: dict[Any, Any], **fields: Any) -> list[Any]:
    peer.flow(handle=0, delivery_count=0, properties=properties, **fields)
    return [each for each in peer.take_events() if isinstance(each, kind)]


def test_a_receiver_tells_how_many_wait_there_next_to_its_credit() -> None:
    peer = router(Role.RECEIVER)
    peer.flow(handle=0, delivery_count=0, link_credit=5, properties={WAITING: Uint(3)})
    granted, waiting = peer.take_events()
    assert isinstance(granted, CreditGranted)
    assert waiting == WaitingReported(granted.link, 3)


def test_a_sender_recalls_them() -> None:
    (recalled,) = told(router(Role.SENDER), DeliveriesRecalled, {RECALLED: Ulong(7)})
    assert recalled.count == 7


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_what_is_no_number_is_as_if_not_told(value: object) -> None:
    assert not told(router(Role.RECEIVER), WaitingReported, {WAITING: value}, link_credit=5)
    assert not told(router(Role.SENDER), DeliveriesRecalled, {RECALLED: value})


def test_who_is_no_router_neither_tells_nor_recalls() -> None:
    receiver, sender = (router(role, is_router=False) for role in (Role.RECEIVER, Role.SENDER))
    assert not told(receiver, WaitingReported, {WAITING: Uint(3)}, link_credit=5)
    assert not told(sender, DeliveriesRecalled, {RECALLED: Uint(3)})


def test_each_end_says_it_on_its_own_links_alone() -> None:
    assert not told(router(Role.RECEIVER), DeliveriesRecalled, {RECALLED: Uint(3)}, link_credit=5)
    assert not told(router(Role.SENDER), WaitingReported, {WAITING: Uint(3)})


@pytest.mark.parametrize(
    ("role", "command", "name"),
    [(Role.SENDER, ReportWaiting, WAITING), (Role.RECEIVER, RecallDeliveries, RECALLED)],
)
def test_both_are_properties_of_a_flow(role: Role, command: type, name: Symbol) -> None:
    peer = Peer(is_router=True)
    peer.greet(offered_capabilities=(Symbol(TRACE),))
    peer.begin()
    peer.attach(role)
    link = peer.answer()
    peer.take_frames()
    peer.engine.execute(command(link, 4))
    assert peer.expect_one(Flow).properties == {name: 4}
