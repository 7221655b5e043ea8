"""Dynamic nodes that go (§3.5.10), and those who have sent to them."""

import pytest

from router.model.condition import NOT_FOUND, RESOURCE_DELETED
from router.model.identity import DeliveryNumber
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, RELEASED, DeliveryState, Rejected
from router.model.terminus import Target
from router.routes.route import Guarantee, Route, Unroutable
from tests.support.fleet import Fleet
from tests.support.play import Map, Play, ReceiverEnd, SenderEnd, table

EXACT = Route(address="exact", guarantee=Guarantee.EXACTLY_ONCE)

FAR = [(1, 1), (1, 2), (2, 1)]
"""Workers of the clients, and of the service that answers them."""


def inbox(play: Play, credit: int = 5) -> ReceiverEnd:
    """A client with a reply address of its own."""
    return play.connect("client").attach_receiver(None, dynamic=True, credit=credit)


def address_of(end: ReceiverEnd) -> str:
    assert end.attach is not None
    assert end.attach.source is not None
    assert end.attach.source.address is not None
    return end.attach.source.address


def message(address: str, body: bytes) -> bytes:
    """A message whose properties say where it goes (§3.2.4), as engines between workers want it."""
    to = address.encode()
    fields = b"\x03\x40\x40\xa1" + bytes([len(to)]) + to
    data = b"\x00\x53\x75\xa0" + bytes([len(body)]) + body
    return b"\x00\x53\x73\xc0" + bytes([len(fields)]) + fields + data


def error_of(outcome: tuple[DeliveryState | None, bool] | None) -> str:
    assert outcome is not None
    assert isinstance(outcome[0], Rejected)
    assert outcome[0].error is not None
    return outcome[0].error.name


@pytest.mark.parametrize("routes", [(), (EXACT,)])  # the second: the service's link has a home
@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize(("there", "here"), [*FAR, (2, 2)])
def test_a_service_goes_on_answering_when_one_of_its_clients_has_left(
    there: int, here: int, is_lost: bool, routes: tuple[Route, ...]
) -> None:
    fleet = Fleet(2, *routes)
    first, second = inbox(fleet[there]), inbox(fleet[there])
    fleet.settle()
    service = fleet[here].connect("service").attach_sender(None)
    fleet.settle()

    def reply(to: ReceiverEnd, body: bytes) -> DeliveryNumber:
        (number,) = service.send(message(address_of(to), body), address=address_of(to))
        fleet.settle()
        return number

    for each in (first, second):
        reply(each, b"reply")
    first.accept()
    if is_lost:
        first.peer.lose()
    else:
        first.detach()
    fleet.settle()
    assert not service.is_detached()
    late, in_time = reply(first, b"too late"), reply(second, b"in time")
    assert [payload.endswith(b"reply") for payload in first.payloads] == [True]
    assert [payload[-5:] for payload in second.payloads] == [b"reply", b" time"]
    second.accept()
    fleet.settle()
    assert error_of(service.outcome(late)) == NOT_FOUND
    assert service.outcome(in_time) == (ACCEPTED, True)


@pytest.mark.parametrize(("there", "here"), FAR)
def test_what_is_under_way_to_the_node_that_goes_has_failed_or_is_released(
    there: int, here: int
) -> None:
    fleet = Fleet(2)
    gone, stays = inbox(fleet[there], credit=1), inbox(fleet[there])
    fleet.settle()
    service = fleet[here].connect("service").attach_sender(None)
    (sent,) = service.send("sent", address=address_of(gone))
    fleet.settle()
    (waits,) = service.send("waits", address=address_of(gone))
    (other,) = service.send("other", address=address_of(stays))
    fleet.settle()
    gone.detach()
    fleet.settle()
    assert service.outcome(sent) == (MODIFIED_FAILED, True)
    assert service.outcome(waits) == (RELEASED, True)
    assert service.outcome(other) is None
    stays.accept()
    fleet.settle()
    assert service.outcome(other) == (ACCEPTED, True)
    assert not service.is_detached()
    assert service.credit > 0


@pytest.mark.parametrize(("there", "here"), FAR)
def test_a_delivery_in_parts_to_a_node_that_goes_does_not_take_the_link_along(
    there: int, here: int
) -> None:
    fleet = Fleet(2)
    gone, stays = inbox(fleet[there]), inbox(fleet[there])
    fleet.settle()
    service = fleet[here].connect("service").attach_sender(None)
    (number,) = service.send(b"begun", address=address_of(gone), more=True)
    fleet.settle()
    gone.detach()
    fleet.settle()
    service.go_on(b"and ended", more=False)
    fleet.settle()
    outcome = service.outcome(number)
    assert outcome is not None
    assert outcome[0] in {MODIFIED_FAILED, RELEASED}
    service.send("other", address=address_of(stays))
    fleet.settle()
    assert stays.payloads == [b"other"]


@pytest.mark.parametrize(("there", "here"), FAR)
def test_senders_to_the_node_itself_hear_that_it_is_gone(there: int, here: int) -> None:
    fleet = Fleet(2)
    gone = inbox(fleet[there])
    fleet.settle()
    sender = fleet[here].connect("service").attach_sender(address_of(gone))
    fleet.settle()
    (sent,) = sender.send("reply")
    fleet.settle()
    gone.detach()
    fleet.settle()
    assert sender.outcome(sent) == (MODIFIED_FAILED, True)
    assert sender.detached is not None
    assert sender.detached.condition is not None
    assert sender.detached.condition.name == RESOURCE_DELETED


def test_a_sender_that_is_away_comes_back_to_what_its_other_addresses_owe_it() -> None:
    play = Play("orders")
    gone = inbox(play)
    orders = play.connect("r").attach_receiver("orders", credit=5)
    service = away_sender(play, {})
    service.send("reply", address=address_of(gone))
    (order,) = service.send("order", address="orders")
    tag = service.unsettled[order]
    service.peer.lose()
    orders.accept()
    gone.detach()
    assert "link.detached" in play.events()
    back = away_sender(play, {tag: None})
    assert back.attach is not None
    assert back.attach.unsettled == {tag: ACCEPTED}


def away_sender(play: Play, unsettled: Map) -> SenderEnd:
    return play.connect("service").attach_sender(
        None, name="replies", unsettled=unsettled, seconds=300
    )


def test_the_node_of_a_sender_that_goes_takes_receivers_along_and_no_other_sender() -> None:
    play = Play("orders")
    owner = play.connect("owner").attach_sender(None, dynamic=True)
    assert owner.attach is not None
    assert owner.attach.target is not None
    assert isinstance(owner.attach.target, Target)
    address = owner.attach.target.address
    receiver = play.connect("r").attach_receiver(address, credit=5)
    other = play.connect("other").attach_sender(None)
    (number,) = other.send("x", address=address)
    owner.detach()
    assert receiver.detached is not None
    assert other.outcome(number) == (MODIFIED_FAILED, True)
    assert not other.is_detached()


@pytest.mark.parametrize("unroutable", [Unroutable.REJECT, Unroutable.RELEASE])
def test_a_route_that_ends_is_forgotten_by_senders_to_the_anonymous_terminus(
    unroutable: Unroutable,
) -> None:
    """The brother: a reload takes the node away, and later gives the address another."""
    play = Play(Route(address="orders", unroutable=unroutable), "other")
    receiver = play.connect("r").attach_receiver("orders", credit=5)
    service = play.connect("s").attach_sender(None)
    service.send("before", address="orders")
    receiver.accept()
    reload(play, "other")
    assert receiver.detached is not None
    assert not service.is_detached()
    (number,) = service.send("meanwhile", address="orders")
    assert error_of(service.outcome(number)) == NOT_FOUND
    reload(play, "orders", "other")
    receiver = play.connect("r").attach_receiver("orders", credit=5)
    service.send("after", address="orders")
    assert receiver.payloads == [b"after"]


def reload(play: Play, *routes: str) -> None:
    play.carry_out(play.core.configure(table(*routes), play.now))
