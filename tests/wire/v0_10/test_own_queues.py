"""Queues of a session's own: reached by their name without a route, and nobody else's."""

import pytest

from router.model.events import DeliveriesReceived
from router.routes.route import Guarantee, Route
from router.wire.v0_10 import optional as o
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import decode_struct
from router.wire.v0_10.queues import KEPT_OCTETS
from router.wire.v0_10.reply import ErrorCode
from tests.support.peer_0_10 import Peer, Transfer
from tests.support.worker_0_10 import Client, Worker

OWN = r.QueueDeclare(queue="own", exclusive=True, auto_delete=True)
ROUTES = [(), (Route(address="#"),)]
"""No route takes the queue's name, or one does that takes any."""


def declared(*routes: Route) -> Client:
    client = Worker(*routes).connect()
    client.command(OWN)
    client.read()
    return client


def subscription(destination: str, *, exclusive: bool = False) -> r.MessageSubscribe:
    return r.MessageSubscribe(
        queue="own", destination=destination, accept_mode=0, acquire_mode=0, exclusive=exclusive
    )


def waiting(client: Peer) -> int | None:
    client.command(r.QueueQuery("own"))
    (found,) = client.said(r.ExecutionResult)
    told: r.QueueQueryResult = decode_struct(found.value or b"", 0, len(found.value or b""))
    return told.message_count


def exception(client: Peer) -> int | None:
    (found,) = client.said(r.ExecutionException)
    return found.error_code


@pytest.mark.parametrize("routes", ROUTES)
@pytest.mark.parametrize("mode", [0, 1, None])
def test_a_transfer_to_it_is_complete_before_anybody_subscribes(
    routes: tuple[Route, ...], mode: int | None
) -> None:
    client = declared(*routes)
    client.publish("own", b"one", mode=mode)
    said = [each for _, each in client.read()]
    accepted = [each.transfers for each in said if isinstance(each, r.MessageAccept)]
    assert accepted == ([((1, 1),)] if mode == 0 else [])
    assert said[-1] == r.SessionCompleted(((0, 1),))
    client.subscribe("own")
    assert client.got() == [(b"one", False)]
    client.command(r.MessageAccept(((1, 1),)) if mode == 0 else r.MessageAccept(((0, 0),)))
    assert waiting(client) == 0


def test_messages_keep_their_order_and_those_before_a_subscription_come_first() -> None:
    client = declared()
    client.publish("own", b"1", b"2", mode=1)
    client.subscribe("own", messages=3)
    client.publish("own", b"3", b"4", mode=1)
    assert [body for body, _ in client.got()] == [b"1", b"2", b"3"]
    assert waiting(client) == 1


def test_what_is_released_stands_at_the_head_of_the_line_again_in_order() -> None:
    client = declared()
    client.publish("own", b"1", b"2", b"3", mode=1)
    client.subscribe("own", messages=2)
    assert client.got() == [(b"1", False), (b"2", False)]
    client.command(r.MessageRelease(((0, 1),), set_redelivered=True))
    client.command(r.MessageFlow("own", 0, 3))
    assert client.got() == [(b"1", True), (b"2", True), (b"3", False)]


@pytest.mark.parametrize("outcome", [r.MessageAccept(((0, 0),)), r.MessageReject(((0, 0),))])
def test_what_is_accepted_or_rejected_is_gone(outcome: r.Command) -> None:
    client = declared()
    client.publish("own", b"1", mode=1)
    client.subscribe("own", messages=1)
    client.got()
    client.command(outcome)
    assert waiting(client) == 0
    (session,) = client.engine.sessions.values()
    assert session.queues["own"].kept_octets == 0  # type: ignore[attr-defined]


def test_what_was_shown_and_never_acquired_stays_when_its_subscription_goes() -> None:
    client = declared()
    client.publish("own", b"1", b"2", mode=1)
    client.subscribe("own", acquire_mode=1)
    assert [body for body, _ in client.got()] == [b"1", b"2"]
    client.command(r.MessageCancel("own"))
    assert waiting(client) == 2
    client.subscribe("own")
    assert [body for body, _ in client.got()] == [b"1", b"2"]


def test_a_transfer_of_a_transaction_comes_with_its_commit() -> None:
    client = declared()
    client.subscribe("own")
    client.command(r.TxSelect())
    client.publish("own", b"1")
    assert client.got() == []
    client.command(r.TxRollback())
    client.publish("own", b"2")
    client.command(r.TxCommit())
    assert [body for body, _ in client.got()] == [b"2"]


def test_it_takes_packets_and_files_too() -> None:
    client = declared()
    client.packet(o.StreamPublish(routing_key="own"), b"one")
    client.subscribe("own")
    assert [body for body, _ in client.got()] == [b"one"]


def test_another_session_of_the_connection_reaches_it() -> None:
    client = declared()
    client.attach(b"other", channel=2)
    told = r.DeliveryProperties(routing_key="own")
    client.transfer(b"1", told, channel=2)
    assert [each.transfers for each in client.said(r.MessageAccept)] == [((0, 0),)]
    client.subscribe("own")
    assert [body for body, _ in client.got()] == [b"1"]


def test_when_it_is_gone_its_name_is_unroutable_again() -> None:
    client = declared()
    client.publish("own", b"1")
    assert client.said(r.MessageReject) == []
    client.command(r.QueueDelete("own"))
    client.publish("own", b"2")
    assert [each.code for each in client.said(r.MessageReject)] == [1]


def test_a_session_that_comes_back_has_what_its_queue_kept() -> None:
    client = Worker().connect()
    client.attach(b"kept", channel=2, timeout=60)
    client.command(OWN, channel=2)
    client.transfer(b"1", r.DeliveryProperties(routing_key="own"), channel=2)
    client.control(r.SessionDetach(b"kept"), 2)
    client.read()
    client.attach(b"kept", channel=2, point=None)
    client.control(r.SessionCommandPoint(2, 0), 2)
    client.command(
        r.MessageSubscribe(queue="own", destination="own", accept_mode=0, acquire_mode=0),
        r.MessageFlow("own", 1, None),
        r.MessageFlow("own", 0, 5),
        channel=2,
    )
    client.control(r.SessionExpected(((0, 0),)), 2)
    assert [body for body, _ in client.got()] == [b"1"]


def test_what_no_other_may_lose_of_a_route_that_promises_exactly_once_goes_through_the_core() -> (
    None
):
    client = declared(Route(address="own", guarantee=Guarantee.EXACTLY_ONCE))
    client.publish("own", b"1")
    assert client.said(r.MessageAccept) == []


def test_it_keeps_no_more_than_is_bounded() -> None:
    client = declared()
    bodies = [bytes(1 << 20)] * (KEPT_OCTETS >> 20)
    client.publish("own", *bodies[:-1], mode=1)
    assert client.said(r.ExecutionException) == []
    client.publish("own", *bodies[:2], mode=1)
    assert exception(client) == ErrorCode.RESOURCE_LIMIT_EXCEEDED


# --- ttl ------------------------------------------------------------------------------------------


def test_a_message_whose_ttl_has_ended_is_not_delivered() -> None:
    client = declared()
    for body, ttl in ((b"1", 1000), (b"2", None), (b"3", 5000)):
        client.transfer(body, r.DeliveryProperties(routing_key="own", ttl=ttl))
    client.now += 0.9
    assert waiting(client) == 3
    client.now += 0.2
    assert waiting(client) == 2
    client.subscribe("own")
    assert [body for body, _ in client.got()] == [b"2", b"3"]


def test_an_ended_message_behind_one_that_lives_is_not_counted() -> None:
    client = declared()
    for body, ttl in ((b"1", None), (b"2", 1000)):
        client.transfer(body, r.DeliveryProperties(routing_key="own", ttl=ttl))
    client.now += 1.1
    assert waiting(client) == 1
    client.now -= 1.1
    client.command(r.QueuePurge("own"), r.QueueDelete("own", if_empty=True))
    assert client.said(r.ExecutionException) == []


def test_room_that_ended_messages_take_is_free_again() -> None:
    client = declared()
    count = (KEPT_OCTETS >> 20) - 1
    for ttl in (None, *[1000] * (count - 1)):
        client.transfer(bytes(1 << 20), r.DeliveryProperties(routing_key="own", ttl=ttl))
    client.now += 1.1
    for _ in range(count - 1):
        client.transfer(bytes(1 << 20), r.DeliveryProperties(routing_key="own"))
    assert client.said(r.ExecutionException) == []


def test_so_is_one_that_came_by_a_binding() -> None:
    worker = Worker(Route(address="amq.direct/k"))
    client, publisher = worker.connect(), worker.connect()
    client.command(OWN, r.ExchangeBind(queue="own", exchange="amq.direct", binding_key="k"))
    told = r.DeliveryProperties(routing_key="k", ttl=1000)
    publisher.transfer(b"1", told, command=r.MessageTransfer("amq.direct", 0, 0))
    assert waiting(client) == 1
    client.now += 1.1
    client.subscribe("own")
    assert client.got() == []
    assert [each.set_redelivered for each in publisher.said(r.MessageRelease)] == [True]


def test_released_messages_do_not_live_longer_than_their_ttl() -> None:
    client = declared()
    client.transfer(b"1", r.DeliveryProperties(routing_key="own", ttl=1000))
    client.subscribe("own", messages=1)
    assert len(client.got()) == 1
    client.now += 2
    client.command(r.MessageRelease(((0, 0),)))
    client.command(r.MessageFlow("own", 0, 1))
    assert client.got() == []


# --- shared by name -------------------------------------------------------------------------------


def test_a_queue_that_others_may_receive_from_keeps_nothing_from_them_before_it_is_used() -> None:
    worker = Worker(Route(address="orders"))
    maker, other = worker.connect(), worker.connect()
    maker.command(r.QueueDeclare(queue="orders", auto_delete=True))
    maker.publish("orders", b"1", b"2")
    other.subscribe("orders")
    assert [body for body, _ in other.got()] == [b"1", b"2"]


def test_when_it_is_used_it_takes_its_turn() -> None:
    worker = Worker(Route(address="orders"))
    maker, other = worker.connect(), worker.connect()
    maker.command(r.QueueDeclare(queue="orders", auto_delete=True))
    maker.subscribe("orders")
    other.publish("orders", b"1")
    assert [body for body, _ in maker.got()] == [b"1"]


# --- one session's alone --------------------------------------------------------------------------


@pytest.mark.parametrize("first", [True, False])
def test_an_exclusive_subscription_has_no_other_beside_it_in_either_order(first: bool) -> None:
    client = declared()

    def subscribe(destination: str, *, exclusive: bool) -> None:
        client.command(subscription(destination, exclusive=exclusive))

    subscribe("a", exclusive=first)
    assert client.said(r.ExecutionException) == []
    subscribe("b", exclusive=not first)
    assert exception(client) == ErrorCode.RESOURCE_LOCKED


def test_when_an_exclusive_subscription_is_cancelled_others_may_come() -> None:
    client = declared()
    client.command(subscription("a", exclusive=True), r.MessageCancel("a"))
    client.command(subscription("b"))
    assert client.said(r.ExecutionException) == []


@pytest.mark.parametrize(
    "command",
    [
        r.QueueDeclare(queue="own", exclusive=True),
        r.QueueDeclare(queue="own"),
        r.QueueDeclare(queue="own", passive=True),
        subscription("d"),
        r.ExchangeBind(queue="own", exchange="amq.direct", binding_key="k"),
        r.QueueDelete("own"),
        r.QueuePurge("own"),
    ],
)
def test_an_exclusive_queue_is_locked_for_other_sessions_of_the_connection(
    command: r.Command,
) -> None:
    client = declared(Route(address="#"))
    client.attach(b"other", channel=2)
    client.command(command, channel=2)
    assert exception(client) == ErrorCode.RESOURCE_LOCKED


def test_an_empty_body_arrives_with_its_segment() -> None:
    client = declared()
    client.subscribe("own")
    client.read()
    client.publish("own", b"", mode=1)
    octets = bytes(client.engine.data_to_send())
    body = bytes.fromhex("0703 000c 0001 0001 00000000")  # last segment, whole, of type body
    assert body in octets
    assert [each.body for each in client.said(Transfer)] == [b""]


def test_nothing_of_it_goes_through_the_core() -> None:
    client = declared()
    seen = client.publish("own", b"1", mode=1)
    assert not [each for each in seen if isinstance(each, DeliveriesReceived)]
