"""Rules of classes file, stream and dtx, on octets of 0-10."""

from typing import Any

import pytest

from router.model.events import DeliveriesUpdated
from router.model.outcome import MODIFIED_UNDELIVERABLE
from router.routes.route import Route
from router.wire.v0_10 import optional as o
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import encode_command, encode_struct
from router.wire.v0_10.framing import COMMAND, assembly
from router.wire.v0_10.reply import ErrorCode
from router.wire.v0_10.types import with_size
from tests.support.peer_0_10 import Peer, Transfer
from tests.support.worker_0_10 import Client, Worker

OWN = r.QueueDeclare(queue="own", exclusive=True)
CONSUME: dict[str, o.FileConsume | o.StreamConsume] = {
    "file": o.FileConsume(queue="own", consumer_tag="c"),
    "stream": o.StreamConsume(queue="own", consumer_tag="c"),
}


def own(*routes: Route) -> Client:
    client = Worker(*routes).connect()
    client.command(OWN)
    client.read()
    return client


def consume(kind: str, tag: str, *, exclusive: bool = False) -> o.FileConsume | o.StreamConsume:
    if kind == "file":
        return o.FileConsume(queue="own", consumer_tag=tag, exclusive=exclusive)
    return o.StreamConsume(queue="own", consumer_tag=tag, exclusive=exclusive)


def error(peer: Peer) -> int | None:
    (found,) = peer.said(r.ExecutionException)
    return found.error_code


def stage(client: Client, identifier: str, body: bytes) -> None:
    client.command(o.FileOpen(identifier, len(body)))
    header = with_size(encode_struct(o.FileProperties()), 4)
    octets = assembly(COMMAND, 1, encode_command(o.FileStage()), 65535, (header, body))
    client.feed(octets)


def publish(client: Client, *bodies: bytes, key: str = "own") -> None:
    for body in bodies:
        stage(client, body.decode(), body)
        client.command(o.FilePublish(routing_key=key, identifier=body.decode()))


def delivered(client: Client, count: int) -> list[Any]:
    """Lets files be staged that the router opens; gives their deliveries."""
    found: list[Any] = []
    for _ in range(count):
        said = [each for _, each in client.read()]
        found += [each for each in said if isinstance(each, o.FileDeliver)]
        if any(isinstance(each, o.FileOpen) for each in said):
            client.command(o.FileOpenOk(0))
    found += client.said(o.FileDeliver)
    return found


# --- both classes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_a_queue_takes_more_than_sixteen_consumers(kind: str) -> None:
    client = own()
    for number in range(20):
        client.command(consume(kind, str(number)))
    assert client.said(r.ExecutionException) == []


@pytest.mark.parametrize(
    "command",
    [
        o.FileConsume(consumer_tag="c"),
        o.StreamConsume(consumer_tag="c"),
        o.FileConsume(queue="own"),
        o.StreamConsume(queue="own"),
    ],
)
def test_a_consumer_needs_a_queue_and_a_tag(command: Any) -> None:
    client = own()
    client.command(command)
    assert error(client) == ErrorCode.NOT_ALLOWED


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_a_tag_names_one_consumer(kind: str) -> None:
    client = own()
    client.command(CONSUME[kind])
    client.command(CONSUME[kind])
    assert error(client) == ErrorCode.NOT_ALLOWED


@pytest.mark.parametrize("kind", ["file", "stream"])
@pytest.mark.parametrize("first", [True, False])
def test_an_exclusive_consumer_has_no_other_beside_it(kind: str, first: bool) -> None:
    client = own()
    client.command(consume(kind, "a", exclusive=first))
    assert client.said(r.ExecutionException) == []
    client.command(consume(kind, "b", exclusive=not first))
    assert error(client) == ErrorCode.RESOURCE_LOCKED


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_immediate_is_refused(kind: str) -> None:
    client = own()
    if kind == "file":
        stage(client, "f", b"1")
        client.command(o.FilePublish(routing_key="own", identifier="f", immediate=True))
    else:
        client.packet(o.StreamPublish(routing_key="own", immediate=True), b"1")
    assert error(client) == ErrorCode.NOT_IMPLEMENTED


@pytest.mark.parametrize("kind", ["file", "stream"])
@pytest.mark.parametrize("mandatory", [True, False])
def test_an_exchange_that_is_not_there_is_not_found_and_a_blank_one_is_the_default(
    kind: str, mandatory: bool
) -> None:
    client = own()
    for exchange in ("", "shop"):
        if kind == "file":
            stage(client, "f", b"1")
            client.command(
                o.FilePublish(
                    exchange=exchange, routing_key="own", identifier="f", mandatory=mandatory
                )
            )
        else:
            command = o.StreamPublish(exchange=exchange, routing_key="own", mandatory=mandatory)
            client.packet(command, b"1")
        if not exchange:
            assert client.said(r.ExecutionException) == []
    assert error(client) == ErrorCode.NOT_FOUND


# --- files ----------------------------------------------------------------------------------------


def test_files_of_any_priority_keep_their_order() -> None:
    client = own()
    publish(client, b"1", b"2")
    client.command(CONSUME["file"])
    assert [each.delivery_tag for each in delivered(client, 4)] == [1, 2]


def test_a_prefetch_is_never_exceeded() -> None:
    client = own()
    publish(client, *[b"%d" % number for number in range(6)])
    client.command(o.FileQos(prefetch_count=2), CONSUME["file"])
    assert len(delivered(client, 8)) == 2
    client.command(o.FileAck(delivery_tag=1))
    assert len(delivered(client, 8)) == 1


def test_an_ack_of_what_was_not_delivered_is_refused() -> None:
    client = own()
    client.command(CONSUME["file"], o.FileAck(delivery_tag=7))
    assert error(client) == ErrorCode.ILLEGAL_ARGUMENT


def test_a_file_that_is_to_be_requeued_does_not_come_to_the_same_client_again() -> None:
    worker = Worker(Route(address="files"))
    publisher, consumer = worker.connect(), worker.connect()
    consumer.command(o.FileConsume(queue="files", consumer_tag="c"))
    publish(publisher, b"1", key="files")
    (found,) = delivered(consumer, 3)
    seen = consumer.command(o.FileReject(delivery_tag=found.delivery_tag, requeue=True))
    assert [each.state for each in seen if isinstance(each, DeliveriesUpdated)] == [
        MODIFIED_UNDELIVERABLE
    ]
    assert delivered(consumer, 3) == []


def test_so_is_one_of_a_sessions_own_queue_which_nobody_else_reaches() -> None:
    client = own()
    client.command(CONSUME["file"])
    publish(client, b"1")
    (found,) = delivered(client, 3)
    client.command(o.FileReject(delivery_tag=found.delivery_tag, requeue=True))
    assert delivered(client, 3) == []
    (session,) = client.engine.sessions.values()
    assert session.queues["own"].kept_octets == 0  # type: ignore[attr-defined]


def test_a_file_must_have_been_staged() -> None:
    client = own()
    client.command(o.FilePublish(routing_key="own", identifier="none"))
    assert error(client) == ErrorCode.NOT_FOUND


def test_a_file_of_another_size_than_was_opened_is_refused() -> None:
    client = own()
    client.command(o.FileOpen("f", 2))
    header = with_size(encode_struct(o.FileProperties()), 4)
    head = encode_command(o.FileStage())
    client.feed(assembly(COMMAND, 1, head, 65535, (header, b"123")))
    assert error(client) == ErrorCode.ILLEGAL_ARGUMENT


def test_a_file_without_octets_is_one() -> None:
    client = own()
    client.command(o.FileOpen("f", 0))
    header = with_size(encode_struct(o.FileProperties()), 4)
    head = encode_command(o.FileStage())
    client.feed(assembly(COMMAND, 1, head, 65535, (header, b"")))
    client.command(o.FilePublish(routing_key="own", identifier="f"), CONSUME["file"])
    assert len(delivered(client, 3)) == 1


# --- streams --------------------------------------------------------------------------------------


def test_a_packet_is_out_of_its_queue_as_soon_as_it_was_sent() -> None:
    client = own()
    client.packet(o.StreamPublish(routing_key="own"), b"1")
    client.command(CONSUME["stream"])
    (transfer,) = client.said(Transfer)
    assert transfer.body == b"1"
    (session,) = client.engine.sessions.values()
    assert not session.unaccepted  # type: ignore[attr-defined]
    assert session.queues["own"].kept_octets == 0  # type: ignore[attr-defined]


def test_a_packet_of_a_shared_queue_counts_as_accepted_when_it_was_sent() -> None:
    worker = Worker(Route(address="news"))
    publisher, consumer = worker.connect(), worker.connect()
    consumer.command(o.StreamConsume(queue="news", consumer_tag="c"))
    publisher.packet(o.StreamPublish(routing_key="news"), b"1")
    assert [each.body for each in consumer.said(Transfer)] == [b"1"]
    assert worker.octets == 0


def test_packets_of_any_priority_keep_their_order() -> None:
    client = own()
    for priority in (0, 9):
        told = o.StreamProperties(priority=priority)
        client.packet(o.StreamPublish(routing_key="own"), b"%d" % priority, told)
    client.command(CONSUME["stream"])
    assert [each.body for each in client.said(Transfer)] == [b"0", b"9"]


def test_a_mandatory_packet_without_a_route_comes_back_and_another_is_dropped() -> None:
    client = own()
    client.packet(o.StreamPublish(routing_key="none", mandatory=True), b"1")
    client.packet(o.StreamPublish(routing_key="none"), b"2")
    (back,) = client.said(Transfer)
    assert (back.command.reply_code, back.body) == (o.NO_ROUTE, b"1")


def test_a_mandatory_file_without_a_route_comes_back_and_another_is_dropped() -> None:
    client = own()
    stage(client, "f", b"1")
    client.command(o.FilePublish(routing_key="none", identifier="f", mandatory=True))
    stage(client, "f", b"2")
    client.command(o.FilePublish(routing_key="none", identifier="f"))
    (back,) = client.said(Transfer)
    assert (back.command.reply_code, back.body) == (o.NO_ROUTE, b"1")


def test_a_stream_qos_is_answered_and_spaces_nothing_out() -> None:
    client = own()
    client.command(o.StreamQos(prefetch_count=1, consume_rate=1), CONSUME["stream"])
    assert len(client.said(o.StreamQosOk)) == 1
    for _ in range(3):
        client.packet(o.StreamPublish(routing_key="own"), b"1")
    assert len(client.said(Transfer)) == 3


# --- dtx ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", range(1, 11))
def test_every_command_of_dtx_is_refused_as_not_implemented(code: int) -> None:
    client = own()
    head = bytes((6, code)) + bytes.fromhex("0100 0000")
    client.feed(assembly(COMMAND, 1, head, 65535))
    (told,) = client.said(r.ExecutionException)
    assert (told.error_code, told.class_code, told.command_code) == (
        ErrorCode.NOT_IMPLEMENTED,
        6,
        code,
    )
