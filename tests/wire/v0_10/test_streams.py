"""Class stream: packets both ways, what comes back, and what is refused (0-10 stream)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import DecodeError
from router.model.capabilities import Protocol
from router.model.commands import (
    DetachLink,
    GrantCredit,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.condition import (
    INTERNAL_ERROR,
    MESSAGE_SIZE_EXCEEDED,
    NOT_FOUND,
    RESOURCE_DELETED,
    Condition,
)
from router.model.delivery import OutgoingDelivery
from router.model.events import (
    ConnectionClosed,
    CreditGranted,
    DeliveriesReceived,
    DeliveriesUpdated,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.model.outcome import ACCEPTED, RELEASED, DeliveryState, Rejected
from router.model.terminus import Role
from router.wire.v0_10 import message as messages
from router.wire.v0_10 import optional as o
from router.wire.v0_10 import packets
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import encode_command, encode_struct
from router.wire.v0_10.framing import COMMAND, assembly
from router.wire.v0_10.packing import pack, unpack
from router.wire.v0_10.reply import ErrorCode
from router.wire.v0_10.subscription import UNBOUNDED_CAPACITY
from router.wire.v0_10.types import Seconds, with_size
from tests.support.accepting import accepting
from tests.support.peer_0_10 import Peer, Transfer, server

CONSUME = o.StreamConsume(queue="orders", consumer_tag="c")
PUBLISH = o.StreamPublish(routing_key="orders")
MANDATORY = o.StreamPublish(exchange="shop", routing_key="eu", mandatory=True)
TOLD = o.StreamProperties(
    content_type="audio/ogg",
    content_encoding="gzip",
    headers={"a": "b"},
    priority=7,
    timestamp=Seconds(1_000_000_000),
)


def attached(*commands: r.Command | o.OptionalCommand, memory: Any = None) -> Peer:
    peer = server(memory)
    peer.attach()
    peer.command(*commands)
    return peer


def link_of(peer: Peer, role: Role) -> LinkId:
    return [event.link for event in peer.of(LinkAttached) if event.role is role][-1]


def delivery(
    number: int, body: bytes = b"x", header: bytes = b"", *, settled: bool = False
) -> OutgoingDelivery:
    return OutgoingDelivery(
        DeliveryNumber(number),
        DeliveryTag(b"%d" % number),
        messages.make_content(b"", header, body),
        Protocol.AMQP_0_10,
        settled=settled,
    )


def send(peer: Peer, *deliveries: OutgoingDelivery) -> list[Transfer]:
    peer.engine.execute(SendDeliveries(link_of(peer, Role.SENDER), list(deliveries)))
    peer.take([])
    return peer.said(Transfer)


def decide(peer: Peer, state: DeliveryState, *numbers: int) -> list[Any]:
    named = [DeliveryNumber(number) for number in numbers]
    peer.engine.execute(UpdateDeliveries(link_of(peer, Role.RECEIVER), named, state, True))
    return [each for _, each in peer.read()]


def outcomes(peer: Peer) -> list[tuple[list[int], DeliveryState | None]]:
    return [(list(event.numbers), event.state) for event in peer.of(DeliveriesUpdated)]


def fault(peer: Peer) -> tuple[int | None, int | None, int | None]:
    (found,) = peer.said(r.ExecutionException)
    return found.error_code, found.class_code, found.command_code


def header_of(told: o.StreamProperties) -> bytes:
    return with_size(encode_struct(told), 4)


# --- properties -----------------------------------------------------------------------------------

TEXTS = st.none() | st.text(max_size=20)


@given(
    st.builds(
        o.StreamProperties,
        content_type=TEXTS,
        content_encoding=TEXTS,
        headers=st.none() | st.dictionaries(st.text(max_size=9), st.text(max_size=9), min_size=1),
        priority=st.none() | st.integers(0, 255),
        timestamp=st.none() | st.integers(0, (1 << 64) - 1).map(Seconds),
    ),
    st.text(max_size=20),
)
def test_properties_of_packets_come_back_from_messages(told: o.StreamProperties, key: str) -> None:
    header = header_of(told)
    read = packets.read_properties(o.STREAM_CLASS, header)
    message = packets.to_message(read, key)
    assert packets.from_message(o.STREAM_CLASS, message)[0] == header
    assert messages.routing_of(message)[0] == key


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (messages.write_header(r.DeliveryProperties(routing_key="elsewhere"), None), 531),
        (messages.write_header(None, r.MessageProperties(user_id=b"somebody else")), 531),
        (header_of(TOLD) * 2, 531),
        (b"\0\0\0\x09", 503),
        (with_size(b"\x0a\x01\0\xff", 4), 503),
    ],
)
def test_a_packet_with_another_header_is_refused(header: bytes, code: int) -> None:
    with pytest.raises(DecodeError):
        packets.read_properties(o.STREAM_CLASS, header)
    peer = attached()
    peer.feed(assembly(COMMAND, 1, encode_command(PUBLISH), 65535, (header, b"x")))
    assert fault(peer) == (code, 10, 6)
    assert not peer.of(DeliveriesReceived)


# --- consumers ------------------------------------------------------------------------------------


def test_qos_is_answered() -> None:
    peer = attached(o.StreamQos(prefetch_count=10, consume_rate=1000))
    said = [each for _, each in peer.read()]
    assert o.StreamQosOk() in said
    assert said[-1] == r.SessionCompleted(((0, 0),))


def test_a_consumer_is_sent_packets_that_count_as_accepted() -> None:
    peer = attached(CONSUME)
    said = [each for _, each in peer.read()]
    assert said[1:] == [o.StreamConsumeOk("c"), r.SessionCompleted(((0, 0),))]
    (credit,) = peer.of(CreditGranted)
    assert credit.credit == UNBOUNDED_CAPACITY
    header = messages.write_header(
        r.DeliveryProperties(priority=7, timestamp=TOLD.timestamp, exchange="shop", ttl=9),
        r.MessageProperties(
            content_type="audio/ogg",
            content_encoding="gzip",
            application_headers={"a": "b"},
            app_id=b"camera",
        ),
    )
    first, second = send(peer, delivery(1, b"one", header), delivery(2, b"two", settled=True))
    assert first.command == o.StreamDeliver(
        consumer_tag="c", delivery_tag=1, exchange="shop", queue="orders"
    )
    assert (first.header, first.body) == (header_of(TOLD), b"one")
    assert second.command == o.StreamDeliver(consumer_tag="c", delivery_tag=2, queue="orders")
    assert (second.header, second.body) == (header_of(o.StreamProperties()), b"two")
    assert outcomes(peer) == [([1], ACCEPTED)]


def test_with_nowait_nothing_answers_but_completion() -> None:
    peer = attached(o.StreamConsume(queue="orders", consumer_tag="c", nowait=True))
    assert [each for _, each in peer.read()] == [r.SessionCompleted(((0, 0),))]


def test_a_message_with_broken_properties_costs_no_other() -> None:
    peer = attached(CONSUME)
    peer.read()
    broken = delivery(1, b"one", with_size(b"\x04\x03\xff\xff", 4))
    (packet,) = send(peer, broken, delivery(2, b"two"))
    assert packet.command.delivery_tag == 1
    assert packet.body == b"two"
    (refused, _), (taken, state) = sorted(
        ((numbers, state) for numbers, state in outcomes(peer)), key=lambda each: each[0]
    )
    assert (refused, taken, state) == ([1], [2], ACCEPTED)
    assert isinstance(outcomes(peer)[0][1], Rejected)


def test_streams_and_messages_have_names_of_their_own_and_may_share_a_queue() -> None:
    peer = attached(
        r.QueueDeclare(queue="q", exclusive=True),
        o.StreamConsume(queue="q", consumer_tag="q"),
    )
    peer.subscribe("q")
    peer.read()
    found = send(peer, delivery(1), delivery(2))
    assert {type(each.command) for each in found} == {o.StreamDeliver, r.MessageTransfer}
    peer.command(o.StreamCancel("q"), o.StreamCancel("q"))  # what is not there has ended
    assert not peer.said(r.ExecutionException)
    (message,) = send(peer, delivery(3))
    assert isinstance(message.command, r.MessageTransfer)
    peer.command(r.MessageCancel("q"))
    assert not peer.said(r.ExecutionException)


def test_what_waits_in_a_local_queue_goes_to_a_consumer_behind_its_answer() -> None:
    peer = attached(r.QueueDeclare(queue="q", exclusive=True))
    assert not send(peer, delivery(1))
    peer.command(o.StreamConsume(queue="q", consumer_tag="c"))
    said = [each for _, each in peer.read()]
    assert said[1] == o.StreamConsumeOk("c")
    assert isinstance(said[2], Transfer)


def test_a_cancelled_consumer_leaves_its_link() -> None:
    peer = attached(CONSUME, o.StreamCancel("c"))
    (gone,) = peer.of(LinkDetached)
    assert gone.link == link_of(peer, Role.SENDER)
    peer.command(CONSUME)
    assert o.StreamConsumeOk("c") in peer.said(o.StreamConsumeOk)


@pytest.mark.parametrize(
    ("commands", "code"),
    [
        ([o.StreamConsume(queue="orders")], ErrorCode.NOT_ALLOWED),
        ([o.StreamConsume(consumer_tag="c")], ErrorCode.NOT_ALLOWED),
        ([CONSUME, CONSUME], ErrorCode.NOT_ALLOWED),
        (
            [o.StreamConsume(queue="orders", consumer_tag="c", no_local=True)],
            ErrorCode.NOT_IMPLEMENTED,
        ),
        (
            [o.StreamConsume(queue="orders", consumer_tag="c", arguments={"a": 1})],
            ErrorCode.NOT_IMPLEMENTED,
        ),
        (
            [o.StreamConsume(queue="orders", consumer_tag="c", exclusive=True)],
            ErrorCode.RESOURCE_LOCKED,
        ),
        ([o.StreamConsume(queue="nowhere", consumer_tag="c")], ErrorCode.NOT_FOUND),
    ],
)
def test_consumers_that_cannot_be_are_refused(
    commands: list[o.OptionalCommand], code: ErrorCode
) -> None:
    peer = server()
    peer.refuses.add("nowhere")
    peer.attach()
    peer.command(*commands)
    assert fault(peer) == (code, 10, 3)


def test_a_destination_is_no_consumer_tag() -> None:
    peer = attached(CONSUME, r.MessageCancel("stream c"))
    assert fault(peer) == (ErrorCode.NOT_FOUND, 4, 8)


def test_a_consumer_whose_queue_goes_hears_of_it() -> None:
    peer = attached(CONSUME)
    peer.read()
    gone = Condition(RESOURCE_DELETED, "gone")
    peer.engine.execute(DetachLink(link_of(peer, Role.SENDER), True, gone))
    assert fault(peer) == (ErrorCode.RESOURCE_DELETED, 10, 3)


@pytest.mark.parametrize("command", [o.StreamQosOk(), o.StreamConsumeOk("c")])
def test_what_only_a_server_says_is_refused(command: o.OptionalCommand) -> None:
    peer = attached(command)
    assert fault(peer)[0] == ErrorCode.COMMAND_INVALID


# --- publishing -----------------------------------------------------------------------------------


def test_a_packet_is_a_delivery_complete_with_its_outcome() -> None:
    peer = attached()
    peer.packet(MANDATORY, b"one", TOLD)
    (run,) = peer.of(DeliveriesReceived)
    found = messages.read_content(run.deliveries[0].payload)
    assert (found.exchange, found.delivery.routing_key, found.body) == ("shop", "eu", b"one")
    assert (found.delivery.priority, found.delivery.timestamp) == (7, TOLD.timestamp)
    assert found.message == r.MessageProperties(
        content_type="audio/ogg", content_encoding="gzip", application_headers={"a": "b"}
    )
    assert peer.read() == []
    assert decide(peer, ACCEPTED, 0) == [r.SessionCompleted(((0, 0),))]


@pytest.mark.parametrize(
    ("state", "code", "text"),
    [
        (Rejected(Condition(NOT_FOUND, "no")), 312, "no route takes it"),
        (Rejected(Condition(MESSAGE_SIZE_EXCEEDED, "no")), 311, "amqp:link:message-size-exceeded"),
        (Rejected(Condition(INTERNAL_ERROR, "no")), 313, "amqp:internal-error: no"),
        (RELEASED, 313, "nobody has taken it"),
    ],
)
def test_a_mandatory_packet_that_nobody_takes_comes_back_before_it_is_complete(
    state: DeliveryState, code: int, text: str
) -> None:
    peer = attached()
    peer.packet(MANDATORY, b"one", TOLD)
    _, back, done = decide(peer, state, 0)
    assert isinstance(back.command, o.StreamReturn)
    assert back.command.reply_code == code
    assert (back.command.reply_text or "").startswith(text)
    assert (back.command.exchange, back.command.routing_key) == ("shop", "eu")
    assert (back.header, back.body) == (header_of(TOLD), b"one")
    assert done == r.SessionCompleted(((0, 0),))


def test_a_packet_to_nowhere_comes_back_if_it_is_mandatory_and_is_dropped_else() -> None:
    peer = server()
    peer.refuses.add("nowhere")
    peer.attach()
    peer.packet(o.StreamPublish(routing_key="nowhere", mandatory=True), b"one")
    peer.packet(o.StreamPublish(routing_key="nowhere"), b"two")
    (back,) = [each for each in peer.said(Transfer) if isinstance(each.command, o.StreamReturn)]
    assert (back.command.reply_code, back.body) == (312, b"one")
    peer.control(r.SessionFlush(completed=True))
    assert peer.said(r.SessionCompleted) == [r.SessionCompleted(((0, 1),))]


def test_packets_are_part_of_no_transaction() -> None:
    peer = attached(r.TxSelect(), CONSUME)
    peer.packet(MANDATORY, b"one")
    first = link_of(peer, Role.RECEIVER)
    peer.publish("orders", b"two")
    (run,) = peer.of(DeliveriesReceived)
    assert run.deliveries[0].payload.endswith(b"one")
    peer.command(r.TxCommit())
    peer.read()
    peer.engine.execute(UpdateDeliveries(first, [DeliveryNumber(2)], RELEASED, True))
    (back,) = peer.said(Transfer)  # although a commit is under way
    assert isinstance(back.command, o.StreamReturn)
    said = decide(peer, ACCEPTED, 3)
    assert said[-1] == r.SessionCompleted(((0, 4),))


def test_immediate_packets_are_refused() -> None:
    peer = attached()
    peer.packet(o.StreamPublish(routing_key="orders", immediate=True))
    assert fault(peer) == (ErrorCode.NOT_IMPLEMENTED, 10, 6)


def test_a_packet_that_is_too_large_for_its_link_is_refused_by_its_own_numbers() -> None:
    peer = server(credit=0)
    peer.attach()
    peer.packet(PUBLISH, b"much too long")
    (event,) = peer.of(LinkAttached)
    peer.engine.execute(
        accepting(
            event,
            max_message_octets=10,
        )
    )
    peer.engine.execute(GrantCredit(event.link, 1))
    assert fault(peer) == (ErrorCode.RESOURCE_LIMIT_EXCEEDED, 10, 6)


# --- sessions that come back ----------------------------------------------------------------------


@pytest.mark.parametrize("moves", [False, True])
def test_packets_that_were_not_completed_are_sent_again_by_their_numbers(moves: bool) -> None:
    memory: dict[str, object] = {}
    peer = server(memory)
    peer.attach(timeout=60)
    peer.command(CONSUME)
    peer.packet(MANDATORY, b"one", TOLD)
    sent = send(peer, delivery(1, b"a"), delivery(2, b"b"))
    session = peer.engine.sessions[1]
    peer.take(peer.engine.receive_eof(peer.now))
    assert peer.of(ConnectionClosed)
    if moves:
        _, moved = unpack(pack(session, 60.0))  # type: ignore[arg-type]
        assert moved.subscriptions["stream c"].kind == o.STREAM_CLASS
        assert list(moved.publishing.answering.returnable) == [1]
        return
    again = server(memory)
    again.attach(timeout=60, point=2)
    back = [event for event in again.of(LinkAttached) if event.role is Role.SENDER]
    assert [event.unsettled for event in back] == [{}]  # all that it was sent is accepted
    again.control(r.SessionExpected(((2, 2),)))
    (repeated,) = again.said(Transfer)
    assert (repeated.command, repeated.body) == (sent[1].command, b"b")
    (new,) = send(again, delivery(3, b"c"))
    assert new.command.delivery_tag == 3
    again.engine.execute(
        UpdateDeliveries(link_of(again, Role.RECEIVER), [DeliveryNumber(1)], RELEASED, True)
    )
    (returned,) = again.said(Transfer)
    assert isinstance(returned.command, o.StreamReturn)
    assert returned.body == b"one"
