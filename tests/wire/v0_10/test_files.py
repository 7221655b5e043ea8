"""Class file: contents staged both ways, kept when cut off, acknowledged (0-10 file)."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import DecodeError
from router.model.capabilities import Protocol
from router.model.commands import SendDeliveries, UpdateDeliveries
from router.model.condition import INTERNAL_ERROR, NOT_FOUND, Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import CreditGranted, DeliveriesReceived, DeliveriesUpdated, LinkAttached
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_UNDELIVERABLE,
    RELEASED,
    DeliveryState,
    Rejected,
)
from router.model.terminus import Role
from router.wire.staging import FILE_OCTETS
from router.wire.v0_10 import keeping, packets
from router.wire.v0_10 import message as messages
from router.wire.v0_10 import optional as o
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import encode_command, encode_struct
from router.wire.v0_10.files import FILES_AHEAD, LARGEST_OCTETS
from router.wire.v0_10.framing import COMMAND, assembly
from router.wire.v0_10.packing import pack, unpack
from router.wire.v0_10.reply import REJECTED, ErrorCode
from router.wire.v0_10.types import Seconds, with_size
from tests.support.peer_0_10 import Peer, Transfer, server

CONSUME = o.FileConsume(queue="orders", consumer_tag="c")
PUBLISH = o.FilePublish(routing_key="orders", identifier="f")
MANDATORY = o.FilePublish(exchange="shop", routing_key="eu", mandatory=True, identifier="f")
TOLD = o.FileProperties(
    content_type="audio/ogg",
    headers={"a": "b"},
    priority=7,
    reply_to="shop/back",
    message_id="id-1",
    filename="a.ogg",
    timestamp=Seconds(1_000_000_000),
)


def attached(*commands: r.Command | o.OptionalCommand) -> Peer:
    peer = server()
    peer.attach()
    peer.command(*commands)
    return peer


def header_of(told: o.FileProperties) -> bytes:
    return with_size(encode_struct(told), 4)


def stage_octets(body: bytes, told: o.FileProperties = TOLD) -> bytes:
    return assembly(COMMAND, 1, encode_command(o.FileStage()), 4096, (header_of(told), body))


def upload(peer: Peer, body: bytes, publish: o.FilePublish, size: int | None = None) -> int:
    """Uploads a file; returns how much of it was there already."""
    whole = len(body) if size is None else size
    peer.command(o.FileOpen(publish.identifier, whole))
    (answer,) = peer.said(o.FileOpenOk)
    staged = answer.staged_size or 0
    peer.feed(stage_octets(body[staged:]))
    peer.command(publish)
    return staged


def link_of(peer: Peer, role: Role) -> LinkId:
    return [event.link for event in peer.of(LinkAttached) if event.role is role][-1]


def send(peer: Peer, *bodies: bytes, first: int = 1, settled: bool = False) -> list[Any]:
    """Lets the core send messages; gives what the client is told."""
    header = messages.write_header(r.DeliveryProperties(exchange="shop", redelivered=True), None)
    deliveries = [
        OutgoingDelivery(
            DeliveryNumber(number),
            DeliveryTag(b"%d" % number),
            messages.make_content(b"", header, body),
            Protocol.AMQP_0_10,
            settled=settled,
        )
        for number, body in enumerate(bodies, first)
    ]
    peer.engine.execute(SendDeliveries(link_of(peer, Role.SENDER), deliveries))
    peer.take([])
    return commands(peer)


def commands(peer: Peer) -> list[Any]:
    kinds = (o.FileOpen, o.FileDeliver, Transfer, r.ExecutionException)
    return [each for _, each in peer.read() if isinstance(each, kinds)]


def answer(peer: Peer, staged: int = 0) -> list[Any]:
    peer.command(o.FileOpenOk(staged))
    return commands(peer)


def decide(peer: Peer, state: DeliveryState, *numbers: int) -> list[Any]:
    named = [DeliveryNumber(number) for number in numbers]
    peer.engine.execute(UpdateDeliveries(link_of(peer, Role.RECEIVER), named, state, True))
    return [each for _, each in peer.read()]


def outcomes(peer: Peer) -> list[tuple[Sequence[int], DeliveryState | None]]:
    return [(list(event.numbers), event.state) for event in peer.of(DeliveriesUpdated)]


def fault(peer: Peer) -> tuple[int | None, int | None, int | None]:
    (found,) = peer.said(r.ExecutionException)
    return found.error_code, found.class_code, found.command_code


def received(peer: Peer) -> list[messages.Message]:
    runs = peer.of(DeliveriesReceived)
    return [messages.read_content(each.payload) for run in runs for each in run.deliveries]


# --- properties -----------------------------------------------------------------------------------

TEXTS = st.none() | st.text(max_size=20)


@given(
    st.builds(
        o.FileProperties,
        content_type=TEXTS,
        content_encoding=TEXTS,
        headers=st.none() | st.dictionaries(st.text(max_size=9), st.text(max_size=9), min_size=1),
        priority=st.none() | st.integers(0, 255),
        reply_to=st.none() | st.from_regex(r"\A[a-z]{1,9}(/[a-z]{1,9})?\Z"),
        message_id=TEXTS,
        filename=TEXTS,
        timestamp=st.none() | st.integers(0, (1 << 64) - 1).map(Seconds),
    )
)
def test_properties_of_files_come_back_from_messages(told: o.FileProperties) -> None:
    header = header_of(told)
    message = packets.to_message(packets.read_properties(o.FILE_CLASS, header), "orders")
    assert packets.from_message(o.FILE_CLASS, message)[0] == header


def test_a_header_that_is_not_of_a_file_is_refused() -> None:
    other = messages.write_header(None, r.MessageProperties(user_id=b"somebody else"))
    with pytest.raises(DecodeError):
        packets.read_properties(o.FILE_CLASS, other)
    peer = attached(o.FileOpen("f", 1))
    peer.feed(assembly(COMMAND, 1, encode_command(o.FileStage()), 65535, (other, b"x")))
    assert fault(peer) == (ErrorCode.ILLEGAL_ARGUMENT, 9, 8)


# --- uploads --------------------------------------------------------------------------------------


def test_a_file_is_staged_and_published_and_complete_with_its_outcome() -> None:
    peer = attached()
    assert upload(peer, b"abc", MANDATORY) == 0
    (found,) = received(peer)
    assert (found.exchange, found.delivery.routing_key, found.body) == ("shop", "eu", b"abc")
    assert found.message == r.MessageProperties(
        content_type="audio/ogg",
        reply_to=r.ReplyTo("shop", "back"),
        application_headers={"a": "b", "x-amqp-message-id": "id-1", "$filename": "a.ogg"},
    )
    peer.read()
    assert decide(peer, ACCEPTED, 2) == [r.SessionCompleted(((0, 2),))]


def test_a_staged_file_can_be_published_once() -> None:
    peer = attached()
    upload(peer, b"abc", PUBLISH)
    peer.command(PUBLISH)
    assert fault(peer) == (ErrorCode.NOT_FOUND, 9, 9)


def test_what_was_given_back_is_offered_again() -> None:
    peer = attached()
    upload(peer, b"abc", PUBLISH)
    peer.read()
    assert decide(peer, RELEASED, 2) == []
    peer.feed(b"")
    assert [each.body for each in received(peer)] == [b"abc", b"abc"]


def test_a_mandatory_file_that_is_refused_comes_back() -> None:
    peer = attached()
    upload(peer, b"abc", MANDATORY)
    peer.read()
    back, done = decide(peer, Rejected(Condition(INTERNAL_ERROR, "no")), 2)
    assert isinstance(back.command, o.FileReturn)
    assert (back.command.reply_code, back.command.routing_key) == (313, "eu")
    assert (back.header, back.body) == (header_of(TOLD), b"abc")
    assert done == r.SessionCompleted(((0, 2),))


def test_a_refused_file_ends_the_session_unless_only_no_route_takes_it() -> None:
    peer = attached()
    upload(peer, b"abc", PUBLISH)
    upload(peer, b"def", PUBLISH)
    decide(peer, Rejected(Condition(NOT_FOUND, "no")), 2)
    peer.engine.execute(
        UpdateDeliveries(link_of(peer, Role.RECEIVER), [DeliveryNumber(5)], Rejected(), True)
    )
    assert fault(peer) == (ErrorCode.PRECONDITION_FAILED, 9, 9)


def test_a_file_of_a_transaction_waits_for_its_commit() -> None:
    peer = attached(r.TxSelect())
    upload(peer, b"abc", PUBLISH)
    peer.command(r.TxRollback())
    upload(peer, b"def", PUBLISH)
    assert not received(peer)
    peer.command(r.TxCommit())
    assert [each.body for each in received(peer)] == [b"def"]
    peer.read()
    assert r.SessionCompleted(((0, 8),)) in decide(peer, ACCEPTED, 7)


@pytest.mark.parametrize("staged", [False, True])
def test_what_has_come_of_a_file_is_kept_for_another_session(staged: bool) -> None:
    memory: dict[str, object] = {}
    peer = server(memory)
    peer.attach()
    body = bytes(range(256)) * 40
    peer.command(o.FileOpen("f", len(body)))
    octets = stage_octets(body)
    peer.feed(octets if staged else octets[:6000])
    peer.take(peer.engine.receive_eof(peer.now))
    again = server(memory)
    again.attach(b"another")
    there = upload(again, body, PUBLISH)
    assert there == len(body) if staged else 3000 < there < 6000
    assert [each.body for each in received(again)] == [body]


def test_a_session_that_comes_back_has_what_it_staged_whichever_worker_has_it() -> None:
    memory: dict[str, object] = {}
    peer = server(memory)
    peer.attach(timeout=60)
    peer.command(o.FileOpen("f", 3))
    peer.feed(stage_octets(b"abc"))
    session = peer.engine.sessions[1]
    peer.take(peer.engine.receive_eof(peer.now))
    _, moved = unpack(pack(session, 60.0))  # type: ignore[arg-type]
    assert moved.files.octets == 3
    again = server(memory)
    again.attach(timeout=60, point=2)
    again.command(PUBLISH)
    assert [each.body for each in received(again)] == [b"abc"]


def test_sessions_away_with_too_much_of_files_are_forgotten_the_first_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeping, "FILES_KEPT_OCTETS", 5)
    memory: dict[str, object] = {}
    for name in (b"idle", b"first", b"second"):
        peer = server(memory)
        peer.attach(name, timeout=60)
        if name == b"idle":
            peer.command(r.ExecutionSync())
        else:
            peer.command(o.FileOpen("f", 3))
            peer.feed(stage_octets(b"abc"))
        peer.take(peer.engine.receive_eof(peer.now))
    expected = []
    for name in (b"idle", b"first", b"second"):
        again = server(memory)
        again.attach(name, timeout=60, point=None)
        again.control(r.SessionFlush(expected=True))
        expected += again.said(r.SessionExpected)
    assert expected == [
        r.SessionExpected(((1, 1),)),
        r.SessionExpected(()),
        r.SessionExpected(((2, 2),)),
    ]


@pytest.mark.parametrize(
    ("first", "octets", "expected"),
    [
        (o.FileOpen("f", LARGEST_OCTETS + 1), b"", (ErrorCode.RESOURCE_LIMIT_EXCEEDED, 9, 6)),
        (o.FileOpen("f", 4), stage_octets(b"abc"), (ErrorCode.ILLEGAL_ARGUMENT, 9, 8)),
        (o.FileOpen("f", 2), stage_octets(b"abc"), (ErrorCode.ILLEGAL_ARGUMENT, 9, 8)),
        (o.FileQos(), stage_octets(b"abc"), (ErrorCode.ILLEGAL_STATE, 9, 8)),
        (o.FileOpenOk(0), b"", (ErrorCode.ILLEGAL_STATE, 9, 7)),
        (PUBLISH, b"", (ErrorCode.NOT_FOUND, 9, 9)),
        (o.FileQos(global_=True), b"", (ErrorCode.NOT_IMPLEMENTED, 9, 1)),
        (o.FileAck(1), b"", (ErrorCode.ILLEGAL_ARGUMENT, 9, 12)),
        (o.FileAck(0), b"", (ErrorCode.ILLEGAL_ARGUMENT, 9, 12)),
        (o.FileReject(1), b"", (ErrorCode.ILLEGAL_ARGUMENT, 9, 13)),
        (o.FileConsume(queue="q"), b"", (ErrorCode.NOT_ALLOWED, 9, 3)),
        (
            o.FileConsume(queue="q", consumer_tag="c", no_local=True),
            b"",
            (ErrorCode.NOT_IMPLEMENTED, 9, 3),
        ),
    ],
)
def test_what_cannot_be_is_refused(
    first: o.OptionalCommand, octets: bytes, expected: tuple[int, int, int]
) -> None:
    peer = attached(first)
    peer.feed(octets)
    assert fault(peer) == expected


def test_files_of_all_sessions_of_a_connection_are_bounded_together() -> None:
    peer = attached(o.FileOpen("f", LARGEST_OCTETS))
    peer.attach(b"t", channel=2)
    peer.command(o.FileOpen("g", FILE_OCTETS - LARGEST_OCTETS), channel=2)
    assert peer.said(o.FileOpenOk) == [o.FileOpenOk(0)]
    peer.command(o.FileOpen("g", FILE_OCTETS - LARGEST_OCTETS + 1), channel=2)
    assert fault(peer) == (ErrorCode.RESOURCE_LIMIT_EXCEEDED, 9, 6)


# --- consumers ------------------------------------------------------------------------------------


def test_files_are_staged_at_the_client_one_by_one_and_acknowledged() -> None:
    peer = attached(CONSUME)
    assert peer.said(o.FileConsumeOk) == [o.FileConsumeOk("c")]
    assert [event.credit for event in peer.of(CreditGranted)] == [FILES_AHEAD]
    (opened,) = send(peer, b"one", b"three")
    assert opened.content_size == 3
    staged, delivered, second = answer(peer)
    assert (staged.command, staged.body) == (o.FileStage(), b"one")
    assert delivered == o.FileDeliver(
        consumer_tag="c",
        delivery_tag=1,
        redelivered=True,
        exchange="shop",
        identifier=opened.identifier,
    )
    assert second.content_size == 5
    assert second.identifier != opened.identifier
    staged, delivered = answer(peer, 2)  # two octets are there of an earlier attempt
    assert (staged.body, delivered.delivery_tag) == (b"ree", 2)
    assert outcomes(peer) == []
    peer.command(o.FileAck(2))
    assert outcomes(peer) == [([2], ACCEPTED)]
    peer.command(o.FileReject(1))
    assert outcomes(peer)[1] == ([1], Rejected(Condition(REJECTED, "file.reject")))


def test_acks_of_several_and_rejects_that_requeue() -> None:
    peer = attached(CONSUME)
    send(peer, b"1", b"2", b"3", b"4")
    for _ in range(3):
        answer(peer)
    peer.command(o.FileAck(2, multiple=True), o.FileReject(3, requeue=True))
    found = [(number, state) for numbers, state in outcomes(peer) for number in numbers]
    assert found == [(1, ACCEPTED), (2, ACCEPTED), (3, MODIFIED_UNDELIVERABLE)]
    peer.command(o.FileAck(4))  # opened, but not delivered
    assert fault(peer) == (ErrorCode.ILLEGAL_ARGUMENT, 9, 12)


def test_acks_of_a_transaction_count_with_its_commit() -> None:
    peer = attached(r.TxSelect(), CONSUME)
    send(peer, b"1")
    answer(peer)
    peer.command(o.FileAck(1), r.TxRollback())
    assert outcomes(peer) == []
    peer.command(o.FileAck(0, multiple=True), r.TxCommit())
    assert outcomes(peer) == [([1], ACCEPTED)]


def test_without_acks_a_file_is_accepted_when_it_is_delivered() -> None:
    peer = attached(o.FileConsume(queue="orders", consumer_tag="c", no_ack=True))
    send(peer, b"1")
    assert outcomes(peer) == []
    answer(peer)
    assert outcomes(peer) == [([1], ACCEPTED)]
    send(peer, b"2", first=2, settled=True)
    (_, delivered) = answer(peer)
    assert delivered.delivery_tag == 2
    assert len(outcomes(peer)) == 1


def test_a_prefetch_bounds_what_is_not_acknowledged() -> None:
    peer = attached(o.FileQos(prefetch_count=1), CONSUME)
    assert peer.said(o.FileQosOk) == [o.FileQosOk()]
    assert [event.credit for event in peer.of(CreditGranted)] == [1]
    assert len(send(peer, b"1", b"2")) == 1
    assert len(answer(peer)) == 2  # staged and delivered; the second is not opened
    peer.command(o.FileAck(1))
    (opened,) = commands(peer)
    assert isinstance(opened, o.FileOpen)


def test_what_a_cancelled_consumer_was_not_delivered_goes_back() -> None:
    peer = attached(CONSUME)
    send(peer, b"1", b"2", b"3")
    answer(peer)
    peer.command(o.FileCancel("c"))
    assert sorted(number for numbers, _ in outcomes(peer) for number in numbers) == [2, 3]
    assert {state for _, state in outcomes(peer)} == {RELEASED}
    (staged,) = answer(peer)  # it was opened: it is staged, and not delivered
    assert staged.body == b"2"
    peer.command(o.FileAck(1))
    assert outcomes(peer)[-1] == ([1], ACCEPTED)


def test_the_end_of_a_session_gives_back_what_was_not_acknowledged_the_last_first() -> None:
    peer = attached(CONSUME)
    send(peer, b"1", b"2", b"3")
    answer(peer)
    peer.control(r.SessionDetach(b"s"))
    assert [number for numbers, _ in outcomes(peer) for number in numbers] == [3, 2, 1]


def test_a_session_that_comes_back_goes_on_with_its_files() -> None:
    memory: dict[str, object] = {}
    peer = server(memory)
    peer.attach(timeout=60)
    peer.command(CONSUME)
    first, *_ = send(peer, b"1", b"22")
    peer.take(peer.engine.receive_eof(peer.now))
    again = server(memory)
    again.attach(timeout=60, point=1)
    (back,) = [event for event in again.of(LinkAttached) if event.role is Role.SENDER]
    assert set(back.unsettled or ()) == {b"1", b"2"}
    again.control(r.SessionExpected(((1, 1),)))
    assert commands(again) == [first]  # the open, by its old number
    named = [
        OutgoingDelivery(
            DeliveryNumber(number),
            DeliveryTag(tag),
            b"",
            Protocol.AMQP_0_10,
            resume=True,
        )
        for number, tag in ((7, b"1"), (8, b"2"))
    ]
    again.engine.execute(SendDeliveries(back.link, named))
    staged, delivered, second = answer(again)
    assert (staged.body, delivered.delivery_tag, second.content_size) == (b"1", 1, 2)
    answer(again)
    again.command(o.FileAck(2, multiple=True))
    assert [number for numbers, _ in outcomes(again) for number in numbers] == [7, 8]
