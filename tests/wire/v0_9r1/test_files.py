"""Class file: contents that are staged, and go on where they broke off."""

import hashlib
from typing import Any

import pytest

from router.model.capabilities import Protocol
from router.model.commands import DetachLink, GrantCredit, SendDeliveries
from router.model.commands import UpdateDeliveries as Update
from router.model.condition import NOT_FOUND, Condition
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.events import CreditGranted, DeliveriesReceived, DeliveriesUpdated
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, REJECTED, RELEASED, Rejected
from router.wire.staging import FILE_OCTETS, FileKey, Shelf, Upload
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.content import Properties, encode_content_header, encode_properties
from router.wire.v0_9_1.types import Seconds
from router.wire.v0_9r1 import optional as o
from router.wire.v0_9r1.framing import FRAMING, FrameType
from router.wire.v0_9r1.translate import to_sections
from router.wire.v1_0.sections import AnnotatedMessage, encode_message
from tests.support.basic_messages import content
from tests.support.basic_peer import Content
from tests.support.draft_peer import DraftClientPeer, hexed

_NAMED = "0200 05'f.txt'"
"""Flags and properties: a filename."""


def header(octets: int, properties: str = _NAMED) -> bytes:
    return hexed(f"0007 0000 {octets:016x} {properties}")


def stage(body: bytes, frame: int = 1000) -> bytes:
    """The frames of ``file.stage`` and its content."""
    pieces = [body[at : at + frame] for at in range(0, len(body), frame)]
    return b"".join(
        (
            FRAMING.frame(FrameType.METHOD, 1, hexed("0007 0007")),
            FRAMING.frame(FrameType.HEADER, 1, header(len(body))),
            *(FRAMING.frame(FrameType.BODY, 1, piece) for piece in pieces),
        )
    )


def client(memory: dict[str, object] | None = None) -> DraftClientPeer:
    return DraftClientPeer(memory={} if memory is None else memory).open(1)


def opened(peer: DraftClientPeer, size: int, name: str = "one") -> int:
    """Opens a file; tells how much of it the server says it has."""
    peer.send(1, o.FileOpen(name, size))
    [answer] = peer.methods()
    assert isinstance(answer, o.FileOpenOk)
    return answer.staged_size


def received(peer: DraftClientPeer) -> list[ReceivedDelivery]:
    events = [each for each in peer.take_events() if isinstance(each, DeliveriesReceived)]
    return [each for event in events for each in event.deliveries]


def reply_of(peer: DraftClientPeer) -> tuple[type, int, int, int]:
    [close] = peer.methods()
    assert isinstance(close, (m.ConnectionClose, m.ChannelClose))
    return type(close), close.reply_code, close.class_id, close.method_id


# --- from the client ------------------------------------------------------------------------------


def test_a_file_is_staged_and_published() -> None:
    peer = client()
    assert opened(peer, 2500) == 0
    peer.feed(stage(bytes(2500)))
    peer.send(1, o.FilePublish(routing_key="q", identifier="one"))
    peer.do(GrantCredit(peer.accept(), 10))
    [delivery] = received(peer)
    assert delivery.settled
    message = to_sections(delivery.payload)
    assert message.data == [bytes(2500)]
    assert dict(message.application_properties or {})["$filename"] == "f.txt"
    assert peer.methods() == []


def test_an_empty_file_is_a_file() -> None:
    peer = client()
    assert opened(peer, 0) == 0
    peer.feed(stage(b""))
    peer.send(1, o.FilePublish(routing_key="q", identifier="one"))
    peer.do(GrantCredit(peer.accept(), 10))
    assert len(received(peer)) == 1


def test_an_upload_that_was_cut_off_goes_on_where_it_was() -> None:
    memory: dict[str, object] = {}
    body = bytes(range(250)) * 10
    peer = client(memory)
    opened(peer, 2500)
    peer.feed(stage(body)[:-300])  # two body frames are whole
    peer.engine.receive_eof(0.0)
    again = client(memory)
    assert opened(again, 2500) == 2000
    again.feed(stage(body[2000:]))
    again.send(1, o.FilePublish(routing_key="q", identifier="one"))
    again.do(GrantCredit(again.accept(), 10))
    [delivery] = received(again)
    assert to_sections(delivery.payload).data == [body]


def test_a_file_that_was_staged_and_not_published_is_here_when_its_client_comes_back() -> None:
    memory: dict[str, object] = {}
    peer = client(memory)
    opened(peer, 3)
    peer.feed(stage(b"abc"))
    peer.send(0, m.ConnectionClose(reply_code=200))
    again = client(memory)
    assert opened(again, 3) == 3
    again.feed(stage(b""))
    again.send(1, o.FilePublish(routing_key="q", identifier="one"))
    again.do(GrantCredit(again.accept(), 10))
    assert [to_sections(each.payload).data for each in received(again)] == [[b"abc"]]


def test_a_file_of_another_size_is_another_file() -> None:
    memory: dict[str, object] = {}
    peer = client(memory)
    opened(peer, 2500)
    peer.feed(stage(bytes(2500))[:-900])
    peer.engine.receive_eof(0.0)
    assert opened(client(memory), 2501) == 0


def test_what_was_published_is_here_no_more() -> None:
    peer = client()
    opened(peer, 3)
    peer.feed(stage(b"abc"))
    peer.send(1, o.FilePublish(routing_key="q", identifier="one"))
    peer.accept()
    assert opened(peer, 3) == 0
    assert peer.engine.files_octets == 3


def test_a_publish_of_what_was_not_staged_closes_the_channel() -> None:
    peer = client()
    opened(peer, 3)
    peer.send(1, o.FilePublish(routing_key="q", identifier="one"))
    assert reply_of(peer) == (m.ChannelClose, 404, 7, 8)


def test_nothing_is_staged_that_was_not_opened() -> None:
    peer = client()
    peer.feed(stage(b"abc"))
    assert reply_of(peer) == (m.ConnectionClose, 503, 7, 7)


@pytest.mark.parametrize("octets", [2, 4])
def test_what_is_staged_must_be_what_is_missing(octets: int) -> None:
    peer = client()
    opened(peer, 3)
    peer.feed(stage(bytes(octets)))
    assert reply_of(peer) == (m.ConnectionClose, 502, 7, 7)


def test_broken_properties_of_a_file_are_a_syntax_error() -> None:
    peer = client()
    opened(peer, 0)
    peer.feed(
        FRAMING.frame(FrameType.METHOD, 1, hexed("0007 0007"))
        + FRAMING.frame(FrameType.HEADER, 1, header(0, "0080"))
    )
    assert reply_of(peer) == (m.ConnectionClose, 502, 7, 7)


def test_a_file_that_is_too_large_is_refused_before_it_is_sent() -> None:
    peer = client()
    peer.send(1, o.FileOpen("one", FILE_OCTETS + 1))
    assert reply_of(peer) == (m.ChannelClose, 311, 7, 5)


def test_files_that_are_too_large_together_end_the_connection() -> None:
    peer = DraftClientPeer(memory={}).open(1, 2)
    opened(peer, FILE_OCTETS)
    peer.send(2, o.FileOpen("two", 1))
    assert reply_of(peer) == (m.ConnectionClose, 506, 7, 5)


def test_another_open_takes_the_place_of_one_that_was_not_staged() -> None:
    peer = client()
    opened(peer, FILE_OCTETS)
    assert opened(peer, FILE_OCTETS, "two") == 0
    assert peer.engine.files_octets == FILE_OCTETS


def test_a_file_of_a_transaction_waits_for_its_commit() -> None:
    peer = client()
    peer.send(1, m.TxSelect())
    peer.methods()
    opened(peer, 3)
    peer.feed(stage(b"abc"))
    peer.send(1, o.FilePublish(routing_key="q", identifier="one"))
    link = peer.accept()
    peer.do(GrantCredit(link, 10))
    assert received(peer) == []
    peer.send(1, m.TxCommit())
    [delivery] = received(peer)
    peer.do(Update(link, [delivery.number], ACCEPTED, True))
    assert peer.methods() == [m.TxCommitOk()]


def test_a_mandatory_file_without_a_route_comes_back_by_its_class() -> None:
    peer = client()
    opened(peer, 3)
    peer.feed(stage(b"abc"))
    peer.send(1, o.FilePublish(routing_key="q", identifier="one", mandatory=True))
    link = peer.accept()
    peer.do(GrantCredit(link, 10))
    [delivery] = received(peer)
    peer.do(Update(link, [delivery.number], Rejected(Condition(NOT_FOUND, "no")), True))
    [returned] = peer.methods()
    assert isinstance(returned, Content)
    assert isinstance(returned.method, o.FileReturn)
    assert returned.method.reply_code == 404
    assert returned.properties == Properties(headers={"$filename": "f.txt"})
    assert returned.body == b"abc"


def test_the_shelf_lets_the_oldest_go() -> None:
    shelf = Shelf(limit=10)
    keys = [FileKey(None, "/", str(number)) for number in range(3)]
    for key in keys:
        shelf.keep(Upload(key, 9, bytes(4)))
    assert shelf.octets == 8
    assert shelf.take(keys[0]) is None
    assert shelf.take(keys[2]) is not None
    shelf.keep(Upload(keys[0], 20, bytes(11)))  # more than fits
    shelf.keep(Upload(keys[2], 20))  # nothing
    assert shelf.octets == 4
    other = FileKey("somebody", "/", "1")
    assert shelf.take(other) is None


# --- to the client --------------------------------------------------------------------------------

BODY = bytes(range(256)) * 20
PROPERTIES = Properties(headers={"$filename": "f.txt"}, message_id="m", timestamp=Seconds(7))
IDENTIFIER = hashlib.sha1(
    encode_content_header(len(BODY), encode_properties(PROPERTIES)) + BODY
).hexdigest()


def file(number: int, body: bytes = BODY, *, settled: bool = False) -> OutgoingDelivery:
    return OutgoingDelivery(
        DeliveryNumber(number),
        DeliveryTag(b"%d" % number),
        content(PROPERTIES, body, exchange=b"e", routing_key=b"k"),
        Protocol.AMQP_0_9R1,
        settled=settled,
    )


def consumer(**options: Any) -> tuple[DraftClientPeer, LinkId]:
    peer = client()
    peer.send(1, o.FileConsume(queue="q", **options))
    link = peer.accept()
    assert peer.methods() == [o.FileConsumeOk(1)]
    return peer, link


def told(peer: DraftClientPeer) -> list[tuple[list[int], Any]]:
    return [
        (list(each.numbers), each.state)
        for each in peer.take_events()
        if isinstance(each, DeliveriesUpdated)
    ]


def test_a_file_is_opened_staged_and_delivered() -> None:
    peer, link = consumer()
    peer.do(SendDeliveries(link, [file(1)]))
    assert peer.methods() == [o.FileOpen(IDENTIFIER, len(BODY))]
    peer.send(1, o.FileOpenOk(0))
    staged, delivered = peer.methods()
    assert isinstance(staged, Content)
    assert staged.method == o.FileStage()
    assert staged.properties == PROPERTIES
    assert staged.body == BODY
    assert delivered == o.FileDeliver(
        consumer_tag=1, delivery_tag=1, exchange="e", routing_key="k", identifier=IDENTIFIER
    )
    assert told(peer) == []
    peer.send(1, o.FileAck(1))
    assert told(peer) == [([1], ACCEPTED)]


def test_a_message_of_1_0_is_delivered_as_a_file() -> None:
    peer, link = consumer()
    message = AnnotatedMessage(application_properties={"$filename": "f.txt"}, data=[b"abc"])
    delivery = file(1)
    delivery.payload, delivery.protocol = encode_message(message), Protocol.AMQP_1_0
    peer.do(SendDeliveries(link, [delivery]))
    peer.send(1, o.FileOpenOk(0))
    staged = peer.methods()[1]
    assert isinstance(staged, Content)
    assert dict(staged.properties.headers or {}) == {"$filename": "f.txt"}
    assert staged.body == b"abc"


@pytest.mark.parametrize("has", [1, 1000, len(BODY)])
def test_what_the_client_has_is_not_sent_again(has: int) -> None:
    peer, link = consumer()
    peer.do(SendDeliveries(link, [file(1)]))
    peer.methods()
    peer.send(1, o.FileOpenOk(has))
    staged, delivered = peer.methods()
    assert isinstance(staged, Content)
    assert staged.body == BODY[has:]
    assert isinstance(delivered, o.FileDeliver)


def test_a_client_cannot_have_more_than_there_is() -> None:
    peer, link = consumer()
    peer.do(SendDeliveries(link, [file(1)]))
    peer.methods()
    peer.send(1, o.FileOpenOk(len(BODY) + 1))
    assert reply_of(peer) == (m.ConnectionClose, 502, 7, 6)


def test_one_file_is_opened_at_a_time() -> None:
    peer, link = consumer()
    peer.do(SendDeliveries(link, [file(1), file(2, b"b"), file(3, b"c")]))
    assert len(peer.methods()) == 1
    peer.send(1, o.FileOpenOk(0))
    second = peer.methods()[-1]
    assert isinstance(second, o.FileOpen)
    assert second.content_size == 1
    peer.send(1, o.FileOpenOk(1))
    assert [type(each) for each in peer.methods()][1:] == [o.FileDeliver, o.FileOpen]


@pytest.mark.parametrize(
    ("method", "state"),
    [
        (o.FileAck(1), ACCEPTED),
        (o.FileReject(1, False), REJECTED),
        (o.FileReject(1, True), MODIFIED_FAILED),
        (m.ChannelClose(), MODIFIED_FAILED),
    ],
)
def test_outcomes_of_files_are_those_of_basic(method: Any, state: Any) -> None:
    peer, link = consumer()
    peer.do(SendDeliveries(link, [file(1)]))
    peer.send(1, o.FileOpenOk(0))
    peer.send(1, method)
    assert told(peer) == [([1], state)]


def test_a_file_without_acknowledgement_is_accepted_when_it_is_delivered() -> None:
    peer, link = consumer(auto_ack=True)
    peer.do(SendDeliveries(link, [file(1), file(2, settled=True)]))
    assert told(peer) == []
    peer.send(1, o.FileOpenOk(0))
    assert told(peer) == [([1], ACCEPTED)]
    peer.send(1, o.FileOpenOk(0))
    assert told(peer) == []


@pytest.mark.parametrize(("prefetch", "credit"), [(0, 4), (2, 2), (100, 4)])
def test_few_files_are_under_way_to_a_consumer(prefetch: int, credit: int) -> None:
    peer, link = consumer(prefetch_count=prefetch)
    assert [each.credit for each in peer.take_events() if isinstance(each, CreditGranted)] == [
        credit
    ]
    peer.do(SendDeliveries(link, [file(number) for number in range(credit)]))
    for number in range(credit):
        peer.send(1, o.FileOpenOk(0))
        peer.send(1, o.FileAck(number + 1))
    assert sum(isinstance(each, o.FileDeliver) for each in peer.methods()) == credit
    assert any(isinstance(each, CreditGranted) for each in peer.take_events())


def test_a_consumer_that_leaves_gives_back_what_it_has_not_got() -> None:
    peer, link = consumer()
    peer.do(SendDeliveries(link, [file(1), file(2)]))
    peer.methods()
    peer.send(1, o.FileCancel(1))
    assert peer.methods() == [o.FileCancelOk()]
    assert told(peer) == [([2, 1], RELEASED)]
    peer.send(1, o.FileOpenOk(0))  # an open wants it staged, whatever has become of it
    [staged] = peer.methods()
    assert isinstance(staged, Content)


@pytest.mark.parametrize("is_opened", [True, False])
def test_a_channel_that_closes_gives_back_what_it_has_not_got(is_opened: bool) -> None:
    peer, link = consumer()
    peer.do(SendDeliveries(link, [file(1), file(2)]))
    if is_opened:
        peer.send(1, o.FileOpenOk(0))
    peer.take_events()
    peer.send(1, m.ChannelClose())
    assert sorted(number for numbers, state in told(peer) for number in numbers) == [1, 2]


def test_a_lost_connection_says_nothing_of_files() -> None:
    peer, link = consumer()
    peer.do(SendDeliveries(link, [file(1), file(2)]))
    peer.take_events()
    peer.events += peer.engine.receive_eof(0.0)
    assert told(peer) == []


def test_a_link_that_is_gone_takes_its_files_along() -> None:
    peer, link = consumer()
    peer.do(SendDeliveries(link, [file(1), file(2)]))
    peer.methods()
    peer.take_events()
    peer.do(DetachLink(link, True, Condition(NOT_FOUND, "no")))
    assert told(peer) == []
    assert reply_of(peer)[:2] == (m.ChannelClose, 404)


def test_flow_holds_files_back() -> None:
    peer, link = consumer()
    peer.do(SendDeliveries(link, [file(1), file(2)]))
    peer.send(1, m.ChannelFlow(active=False))
    peer.send(1, o.FileOpenOk(0))
    assert [type(each) for each in peer.methods() if not isinstance(each, Content)] == [
        o.FileOpen,
        o.FileDeliver,
    ]
    peer.send(1, m.ChannelFlow(active=True))
    assert [type(each) for each in peer.methods()] == [o.FileOpen]


def test_what_cannot_be_told_of_a_prefetch_is_not_implemented() -> None:
    peer = client()
    peer.send(1, o.FileConsume(queue="q", prefetch_size=1))
    assert reply_of(peer) == (m.ConnectionClose, 540, 7, 1)
