"""The rules of the draft's document, by frames that are made by hand, octet by octet."""

import struct
import time

import pytest

from router.wire.v0_9_1 import methods as m
from router.wire.v0_9r1 import methods as d
from tests.rules.v0_9r1.conftest import Dial, DraftSocket
from tests.support.basic_peer import Content

HEADER = b"AMQP\x01\x01\x09\x01"


def frame(kind: int, channel: int, payload: bytes, cycle: int = 0) -> bytes:
    return struct.pack(">BBHI", kind, cycle, channel, len(payload)) + payload + b"\xce"


def short(text: bytes) -> bytes:
    return bytes((len(text),)) + text


def publish(queue: bytes, bits: int = 0) -> bytes:
    """basic.publish: ticket, exchange, routing-key, mandatory and immediate."""
    return frame(1, 1, b"\x00\x06\x00\x05" + b"\x00\x00" + b"\x00" + short(queue) + bytes((bits,)))


def header(size: int, weight: int = 0, class_id: int = 6, channel: int = 1) -> bytes:
    return frame(2, channel, struct.pack(">HHQH", class_id, weight, size, 0))


def body(octets: bytes, channel: int = 1) -> bytes:
    return frame(3, channel, octets)


DECLARED = m.QueueDeclare(queue="q.alive")
"""A method that is answered at once: the connection lives."""


def is_alive(client: DraftSocket, number: int = 1) -> bool:
    return isinstance(client.ask(DECLARED, number), m.QueueDeclareOk)


# --- protocol header ------------------------------------------------------------------------------


def test_the_header_of_the_draft_is_answered_with_start(dial: Dial) -> None:
    client = dial(0).write(HEADER)
    octets = client.socket.recv(12, 0x100)  # MSG_WAITALL
    assert octets[:1] == b"\x01"
    assert octets[2:4] == b"\x00\x00"
    assert octets[8:12] == b"\x00\x01\x00\x01"  # connection.start


@pytest.mark.parametrize("octets", [b"AMQP\x02\x00\x01\x01", b"HTTP/1.1", b"AMQP\x01\x01\x09\x02"])
def test_another_header_is_answered_with_one_that_is_served(dial: Dial, octets: bytes) -> None:
    answer = dial(0).write(octets).raw()
    assert len(answer) == 8
    assert answer[:4] == b"AMQP"


# --- frames ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("octets", [frame(0, 0, b""), frame(9, 0, b""), frame(255, 1, b"x")])
def test_an_unknown_type_of_frame_ends_the_connection_without_a_word(
    dial: Dial, octets: bytes
) -> None:
    assert dial(1).write(octets).end() == []


def test_a_frame_without_its_end_ends_the_connection_without_a_word(dial: Dial) -> None:
    assert dial(1).write(frame(8, 0, b"")[:-1] + b"\xcd").end() == []


def test_an_oversized_frame_is_501(dial: Dial) -> None:
    client = dial(1, frame_max=4096)
    client.write(publish(b"nobody.1") + header(4096) + body(bytes(4096)))
    assert is_alive(client)
    client.write(frame(7, 0, bytes(4097)))
    assert client.take().reply_code == 501


def test_what_is_sent_keeps_to_the_agreed_size(dial: Dial) -> None:
    client = dial(1, frame_max=4096)
    client.ask(d.BasicConsume(queue="q.large", auto_ack=True))
    client.write(publish(b"q.large") + header(10_000))
    client.write(body(bytes(4000)) + body(bytes(4000)) + body(bytes(2000)))
    client.socket.settimeout(5)
    octets = b""
    while len(octets) < 10_000:
        octets += client.socket.recv(65536)
    at = 0
    while at < len(octets):
        size = 9 + int.from_bytes(octets[at + 4 : at + 8], "big")
        assert size <= 4096
        assert octets[at + size - 1] == 0xCE
        at += size


def test_the_cycle_of_a_frame_decides_nothing(dial: Dial) -> None:
    client = dial(1)
    payload = d.CODEC.encode(DECLARED)
    for cycle in (0, 1, 7, 255):
        client.write(frame(1, 1, payload, cycle))
        assert isinstance(client.take(), m.QueueDeclareOk)


@pytest.mark.parametrize(
    ("number", "method"),
    [
        (0, DECLARED),
        (0, m.ChannelOpen()),
        (1, m.ConnectionClose(reply_code=200)),
        (1, m.ConnectionOpen("/")),
    ],
)
def test_a_method_on_a_channel_where_it_does_not_belong_is_503(
    dial: Dial, number: int, method: m.Method
) -> None:
    """Channel 0 is the connection's."""
    client = dial(1).send(number, method)
    assert client.take().reply_code == 503


def test_the_numbers_of_0_9_1_are_no_methods_of_the_draft(dial: Dial) -> None:
    client = dial(1).write(frame(1, 1, b"\x00\x32\x00\x0a"))
    assert client.take().reply_code == 540


# --- fields ---------------------------------------------------------------------------------------

DECLARE = b"\x00\x05\x00\x01\x00\x00" + short(b"own") + b"\x04"
"""queue.declare: ticket, name, and exclusive among its bits."""


def declare(table: bytes) -> bytes:
    return frame(1, 1, DECLARE + len(table).to_bytes(4, "big") + table)


def test_bits_are_packed_low_bit_first(dial: Dial) -> None:
    client = dial(1).write(declare(b""))
    assert client.take().queue == "own"
    assert client.code(m.QueueDeclare(queue="own", auto_delete=True)) == 406


@pytest.mark.parametrize("name", [b"1st", b"_x", b"with space", b"x" * 129, b""])
def test_a_field_name_that_breaks_the_rule_is_a_syntax_error(dial: Dial, name: bytes) -> None:
    field = short(name) + b"I\x00\x00\x00\x01"
    assert dial(1).write(declare(field)).take().reply_code == 502


@pytest.mark.parametrize("name", [b"x", b"$a", b"#1", b"x_9$#", b"x" * 128])
def test_a_field_name_that_keeps_to_the_rule_is_taken(dial: Dial, name: bytes) -> None:
    field = short(name) + b"I\x00\x00\x00\x01"
    assert dial(1).write(declare(field)).take().queue == "own"


def test_a_zero_octet_in_a_short_string_is_a_syntax_error(dial: Dial) -> None:
    payload = b"\x00\x05\x00\x01\x00\x00" + short(b"o\x00n") + b"\x04\x00\x00\x00\x00"
    assert dial(1).write(frame(1, 1, payload)).take().reply_code == 502


# --- contents -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("octets", "code"),
    [
        (frame(1, 1, d.CODEC.encode(DECLARED)), 501),
        (header(2) + frame(1, 1, d.CODEC.encode(DECLARED)), 501),
        (header(2) + header(2), 501),
        (header(1) + body(b"xy"), 501),
        (body(b"x"), 501),
        (header(1, class_id=5), 501),
        (header(1, channel=0), 504),
        (header(0, weight=1) + body(b"x"), 501),
        (header(1, weight=1) + header(0) + header(0), 501),
    ],
)
def test_a_content_that_does_not_fit_ends_the_connection(
    dial: Dial, octets: bytes, code: int
) -> None:
    assert dial(1).write(publish(b"nobody.1") + octets).take().reply_code == code


def test_contents_of_two_channels_may_be_mixed(dial: Dial) -> None:
    client = dial(1, 2)
    client.write(publish(b"nobody.1") + header(4) + body(b"ab"))
    assert is_alive(client, 2)
    client.write(body(b"cd"))
    assert is_alive(client)


def test_a_body_in_many_frames_is_one(dial: Dial) -> None:
    client = dial(1)
    client.ask(d.BasicConsume(queue="q.pieces", auto_ack=True))
    client.write(publish(b"q.pieces") + header(5))
    client.write(b"".join(body(bytes((each,))) for each in b"whole"))
    assert client.bodies(1) == [b"whole"]


def test_a_structured_content_is_taken_and_arrives(dial: Dial) -> None:
    client = dial(1)
    client.ask(d.BasicConsume(queue="q.tree", auto_ack=True))
    client.write(publish(b"q.tree"))
    client.write(header(4, weight=1) + header(5) + body(b"child") + body(b"tree"))
    client.socket.settimeout(5)
    octets = b""
    while not octets.endswith(b"tree\xce"):
        octets += client.socket.recv(65536)
    assert octets.index(b"child") < octets.rindex(b"tree\xce")


@pytest.mark.parametrize("depth", [18, 100])
def test_a_content_nested_too_deep_is_540(dial: Dial, depth: int) -> None:
    client = dial(1).write(publish(b"nobody.1"))
    client.write(b"".join(header(1, weight=1) for _ in range(depth)))
    assert client.take().reply_code == 540


# --- other frames ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [4, 5, 6])
def test_out_of_band_frames_are_540(dial: Dial, kind: int) -> None:
    assert dial(1).write(frame(kind, 1, b"")).take().reply_code == 540


def test_a_channel_that_names_an_out_of_band_transport_is_540(dial: Dial) -> None:
    client = dial(1)
    client.write(frame(1, 2, b"\x00\x02\x00\x01" + short(b"shared memory")))
    assert client.take().reply_code == 540


def test_a_trace_frame_is_discarded_and_one_on_a_channel_is_501(dial: Dial) -> None:
    client = dial(1).write(frame(7, 0, b"anything"))
    assert is_alive(client)
    assert client.write(frame(7, 1, b"")).take().reply_code == 501


def test_a_heartbeat_is_discarded_and_one_on_a_channel_is_501(dial: Dial) -> None:
    client = dial(1).write(frame(8, 0, b""))
    assert is_alive(client)
    assert client.write(frame(8, 1, b"")).take().reply_code == 501


def test_a_heartbeat_with_a_payload_is_501(dial: Dial) -> None:
    assert dial(1).write(frame(8, 0, b"x")).take().reply_code == 501


def test_heartbeats_are_sent_as_agreed(dial: Dial) -> None:
    client = dial(1, heartbeat=1)
    began = time.monotonic()
    assert client.take(3) is None
    assert client.end(6) is not None
    assert 1.5 < time.monotonic() - began < 5


# --- channels and errors --------------------------------------------------------------------------


def test_a_busy_channel_does_not_starve_another(dial: Dial) -> None:
    client = dial(1, 2)
    flood = publish(b"nobody.1") + header(1) + body(b"x")
    client.write(flood * 1000).send(2, DECLARED).write(flood * 1000)
    assert isinstance(client.take(), m.QueueDeclareOk)


def test_a_soft_error_ends_its_channel_and_a_hard_one_the_connection(dial: Dial) -> None:
    client = dial(1, 2)
    assert client.code(m.QueueDelete(queue="nowhere")) == 404
    assert is_alive(client, 2)
    answer = client.ask(m.ChannelOpen(), 2)
    assert isinstance(answer, m.ConnectionClose)
    assert answer.reply_code == 504


def test_a_message_between_two_workers_arrives_and_is_acknowledged(dial: Dial) -> None:
    consumer, publisher = dial(1), dial(1)
    consumer.ask(d.BasicConsume(queue="q.far", prefetch_count=1))
    for text in (b"1", b"2"):
        publisher.write(publish(b"q.far", 1) + header(1) + body(text))
    first = consumer.take()
    assert isinstance(first, Content)
    assert first.body == b"1"
    assert consumer.rest() == []
    consumer.send(1, m.BasicAck(1))
    assert consumer.take().body == b"2"


def test_a_mandatory_message_that_no_route_takes_comes_back(dial: Dial) -> None:
    client = dial(1)
    client.write(publish(b"nobody.1", 1) + header(1) + body(b"x"))
    returned = client.take()
    assert isinstance(returned, Content)
    assert isinstance(returned.method, m.BasicReturn)
    assert (returned.method.reply_code, returned.body) == (404, b"x")
