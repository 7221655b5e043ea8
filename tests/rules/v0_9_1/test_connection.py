"""Protocol header, frames, tuning, channels and errors (0-9-1 §2.2, §4.2-4.9, class connection)."""

import platform
import time

import pytest

from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.codec import CODEC
from router.wire.v0_9_1.content import Properties, encode_content_header, encode_properties
from router.wire.v0_9_1.framing import BODY, HEADER, HEARTBEAT, METHOD, PROTOCOL_HEADER, frame
from router.wire.v0_9_1.types import Seconds
from tests.rules.v0_9_1.conftest import Dial
from tests.support.basic_peer import Content

PUBLISH = m.BasicPublish(routing_key="nobody.1")


def method(number: int, one: m.Method) -> bytes:
    return frame(METHOD, number, CODEC.encode(one))


def header(octets: int, class_id: int = 60, weight: int = 0) -> bytes:
    """A content header without properties."""
    made = encode_content_header(octets, encode_properties(Properties()))
    return class_id.to_bytes(2, "big") + weight.to_bytes(2, "big") + made[4:]


# --- protocol header (§4.2.2, connection.start) ---------------------------------------------------


@pytest.mark.parametrize(
    "octets", [b"AMQP\x00\x09\x09\x09", b"AMQP\x02\x00\x00\x00", b"HELO\x00\x00\x09\x01"]
)
def test_a_header_that_is_not_served_is_answered_with_one_that_is(
    dial: Dial, octets: bytes
) -> None:
    answer = dial(0).write(octets).raw()
    assert len(answer) == 8
    assert answer[:4] == b"AMQP"


def test_the_header_of_0_9_1_is_answered_with_start_of_version_0_9(dial: Dial) -> None:
    client = dial(0).write(PROTOCOL_HEADER)
    start = client.take()
    assert isinstance(start, m.ConnectionStart)
    assert (start.version_major, start.version_minor) == (0, 9)
    assert b"PLAIN" in start.mechanisms.split()
    assert b"en_US" in start.locales.split()


def test_the_servers_properties_tell_what_it_is_but_not_where(dial: Dial) -> None:
    told = dial().start.server_properties
    assert told["product"] == "router"
    assert told["version"]
    assert told["platform"] == platform.system()
    assert told["information"]
    assert "host" not in told


def test_an_unknown_mechanism_ends_the_stream_without_a_word(dial: Dial) -> None:
    client = dial(0).write(PROTOCOL_HEADER)
    client.take()
    client.send(0, m.ConnectionStartOk(mechanism="NONSENSE"))
    assert client.end() == []


# --- tuning ---------------------------------------------------------------------------------------


def test_a_frame_of_4096_octets_is_taken_before_tuning(dial: Dial) -> None:
    client = dial(0).write(PROTOCOL_HEADER)
    client.take()
    bare = m.ConnectionStartOk(client_properties={"x": ""}, response=b"\0a\0b")
    filler = "x" * (4096 - len(method(0, bare)))
    large = m.ConnectionStartOk(client_properties={"x": filler}, response=b"\0a\0b")
    assert len(method(0, large)) == 4096
    assert isinstance(client.ask(large, 0), m.ConnectionTune)


@pytest.mark.parametrize("tune", [(2048, 4096), (100, 65537), (100, 4095)])
def test_more_than_was_offered_ends_the_connection_without_waiting_for_an_answer(
    dial: Dial, tune: tuple[int, int]
) -> None:
    client = dial(0).write(PROTOCOL_HEADER)
    client.take()
    client.login()
    client.take()
    began = time.monotonic()
    client.send(0, m.ConnectionTuneOk(*tune, 0))
    [report] = client.end()
    assert isinstance(report, m.ConnectionClose)
    assert report.reply_code == 530
    assert time.monotonic() - began < 3


def test_an_unknown_virtual_host_is_refused(dial: Dial) -> None:
    client = dial(0).write(PROTOCOL_HEADER)
    client.take()
    client.login()
    client.take()
    client.send(0, m.ConnectionTuneOk(100, 4096, 0))
    assert client.code(m.ConnectionOpen("nowhere"), 0) == 402


def test_virtual_hosts_share_no_queues(dial: Dial) -> None:
    here, there = dial(1), dial(1, vhost="other")
    there.ask(m.BasicConsume(queue="q.shared", consumer_tag="c", no_ack=True))
    here.ask(m.BasicConsume(queue="q.shared", consumer_tag="c", no_ack=True))
    here.publish(b"here", "q.shared")
    there.publish(b"there", "q.shared")
    assert here.bodies(1) == [b"here"]
    assert there.bodies(1) == [b"there"]
    assert there.code(m.QueueDeclare(queue="nobody.1", passive=True)) == 404


# --- closing --------------------------------------------------------------------------------------


def test_behind_a_close_of_the_servers_only_close_and_close_ok_count(dial: Dial) -> None:
    client = dial(1)
    client.write(method(1, m.ChannelOpen()))
    assert isinstance(client.take(), m.ConnectionClose)
    client.write(method(1, m.QueueDeclare()) + method(0, m.ConnectionClose()))
    assert client.rest() == [m.ConnectionCloseOk()]
    client.send(0, m.ConnectionCloseOk())
    assert client.end() == []


def test_a_close_is_answered_with_close_ok(dial: Dial) -> None:
    client = dial(1)
    assert client.ask(m.ChannelClose(reply_code=200)) == m.ChannelCloseOk()
    assert client.ask(m.ConnectionClose(reply_code=200), 0) == m.ConnectionCloseOk()
    assert client.end() == []


def test_behind_a_close_of_a_channel_only_close_and_close_ok_count(dial: Dial) -> None:
    client = dial(1, 2)
    close = client.ask(m.QueueDelete(queue="nothing"))
    assert isinstance(close, m.ChannelClose)
    client.send(1, m.QueueDeclare(), m.BasicQos(), m.ChannelClose(reply_code=200))
    assert client.rest() == [m.ChannelCloseOk()]
    client.send(1, m.ChannelCloseOk())
    assert client.ask(m.ChannelOpen()) == m.ChannelOpenOk()
    assert client.ask(m.BasicQos(), 2) == m.BasicQosOk()  # the other one was not concerned


def test_a_fault_of_one_channel_leaves_the_others_open(dial: Dial) -> None:
    client = dial(1, 2)
    assert client.code(m.QueueDeclare(queue="nowhere", passive=True)) == 404
    assert client.ask(m.QueueDeclare(exclusive=True), 2).queue


# --- frames (§4.2.3) ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [0, 4, 5, 6, 7, 9, 255])
def test_a_frame_of_another_type_ends_the_connection_without_a_word(dial: Dial, kind: int) -> None:
    assert dial(1).write(frame(kind, 0, b"x")).end() == []


@pytest.mark.parametrize("octet", [b"\x00", b"\xcd", b"\xff"])
def test_a_frame_that_does_not_end_in_ce_ends_the_connection_without_a_word(
    dial: Dial, octet: bytes
) -> None:
    assert dial(1).write(method(1, m.QueueDeclare())[:-1] + octet).end() == []


def test_a_frame_above_the_agreed_size_is_501_and_one_that_fills_it_is_taken(dial: Dial) -> None:
    client = dial(1, frame_max=5000)
    client.send(1, m.ConfirmSelect())
    client.take()
    room = 5000 - 8
    client.write(method(1, PUBLISH) + frame(HEADER, 1, header(room)) + frame(BODY, 1, bytes(room)))
    assert isinstance(client.take(), m.BasicAck)
    client.write(frame(BODY, 1, bytes(room + 1)))
    assert client.take().reply_code == 501


def test_what_is_sent_keeps_to_the_agreed_size(dial: Dial) -> None:
    consumer, publisher = dial(1, frame_max=4096), dial(1, frame_max=65536)
    consumer.ask(m.BasicConsume(queue="q.sizes", consumer_tag="c", no_ack=True))
    publisher.publish(bytes(20_000), "q.sizes")
    octets, largest = b"", 0
    consumer.socket.settimeout(5)
    while len(octets) < 20_000:
        octets += consumer.socket.recv(65536)
    at = 0
    while at < len(octets):
        size = 8 + int.from_bytes(octets[at + 3 : at + 7], "big")
        assert octets[at + size - 1] == 0xCE
        largest, at = max(largest, size), at + size
    assert largest == 4096


@pytest.mark.parametrize("one", [m.ConnectionClose(), m.ConnectionOpen(), m.ConnectionTuneOk()])
def test_methods_of_the_connection_belong_on_channel_0(dial: Dial, one: m.Method) -> None:
    assert dial(1).code(one, 1) == 503


@pytest.mark.parametrize("one", [m.ChannelOpen(), m.QueueDeclare(), m.BasicQos()])
def test_other_methods_do_not(dial: Dial, one: m.Method) -> None:
    assert dial(1).code(one, 0) == 503


def test_a_heartbeat_on_a_channel_is_501(dial: Dial) -> None:
    assert dial(1).write(frame(HEARTBEAT, 1, b"")).take().reply_code == 501


def test_a_heartbeat_with_a_payload_is_501(dial: Dial) -> None:
    assert dial(1).write(frame(HEARTBEAT, 0, b"x")).take().reply_code == 501


def test_a_method_that_does_not_exist_is_540(dial: Dial) -> None:
    assert dial(1).write(frame(METHOD, 1, b"\x00\x32\x00\x63")).take().reply_code == 540


def test_a_channel_that_is_not_open_is_504(dial: Dial) -> None:
    assert dial(1).code(m.BasicQos(), 7) == 504


def test_arguments_that_are_cut_or_too_long_are_502(dial: Dial) -> None:
    payload = CODEC.encode(m.QueueDeclare(queue="q.1"))
    for wrong in (payload[:-1], payload + b"\x00"):
        assert dial(1).write(frame(METHOD, 1, wrong)).take().reply_code == 502


# --- data fields (§4.2.5) -------------------------------------------------------------------------


def test_bits_are_packed_low_bit_first(dial: Dial) -> None:
    client = dial(1)
    declare = b"\x00\x32\x00\x0a\x00\x00\x04mine%c\x00\x00\x00\x00"
    client.write(frame(METHOD, 1, declare % 0b00100))  # passive durable exclusive auto-delete
    assert client.take().queue == "mine"
    client.write(frame(METHOD, 1, declare % 0b01000))
    assert client.take().reply_code == 406  # auto-delete: not what it was declared as


@pytest.mark.parametrize("name", [b"\xff", b"x\xc3"])
def test_a_name_that_is_no_utf_8_is_502(dial: Dial, name: bytes) -> None:
    declare = b"\x00\x32\x00\x0a\x00\x00" + bytes((len(name),)) + name + b"\x04\x00\x00\x00\x00"
    assert dial(1).write(frame(METHOD, 1, declare)).take().reply_code == 502


def test_field_names_of_any_form_are_taken(dial: Dial) -> None:
    client = dial(1)
    names = {"1st": 1, "no letter": 2, "x" * 200: 3}
    assert client.ask(m.QueueDeclare(queue="own", exclusive=True, arguments=names)).queue == "own"


def test_a_table_whose_fields_cannot_be_read_is_502(dial: Dial) -> None:
    payload = CODEC.encode(m.QueueDeclare(queue="own", exclusive=True))[:-4]
    for table in (b"\x00\x00\x00\x03\x01a?", b"\x00\x00\x00\x04\x01aS\x00", b"\x00\x00\x00\x09"):
        assert dial(1).write(frame(METHOD, 1, payload + table)).take().reply_code == 502


# --- content (§4.2.6) -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("octets", "code"),
    [
        (frame(HEADER, 1, header(1, class_id=50)), 501),
        (frame(HEADER, 1, header(1, weight=1)), 501),
        (frame(BODY, 1, b"x"), 505),
        (frame(HEADER, 1, header(2)) + frame(HEADER, 1, header(2)), 505),
        (frame(HEADER, 1, header(2)) + method(1, m.BasicQos()), 505),
        (frame(HEADER, 1, header(2)) + frame(BODY, 1, b"xyz"), 505),
        (method(1, m.BasicQos()), 505),
        (frame(HEADER, 0, header(1)), 504),
        (frame(BODY, 0, b"x"), 504),
    ],
)
def test_content_that_is_incomplete_or_badly_formed_ends_the_connection(
    dial: Dial, octets: bytes, code: int
) -> None:
    assert dial(1).write(method(1, PUBLISH) + octets).take().reply_code == code


def test_content_of_a_channel_may_be_mixed_with_frames_of_others(dial: Dial) -> None:
    client = dial(1, 2)
    client.ask(m.BasicConsume(queue="q.mixed", consumer_tag="c", no_ack=True), 2)
    client.write(method(1, m.BasicPublish(routing_key="q.mixed")))
    assert client.ask(m.BasicQos(), 2) == m.BasicQosOk()
    client.write(frame(HEADER, 1, header(4)) + frame(BODY, 1, b"wh"))
    client.write(frame(HEARTBEAT, 0, b""))
    assert client.ask(m.BasicQos(), 2) == m.BasicQosOk()
    client.write(frame(BODY, 1, b"") + frame(BODY, 1, b"ol"))
    assert client.bodies(1) == [b"whol"]


def test_a_body_in_any_number_of_frames_is_one_body_and_none_is_empty(dial: Dial) -> None:
    client = dial(1, 2)
    client.ask(m.BasicConsume(queue="q.pieces", consumer_tag="c", no_ack=True), 2)
    publish = method(1, m.BasicPublish(routing_key="q.pieces"))
    pieces = b"".join(frame(BODY, 1, bytes((each,))) for each in b"many frames")
    client.write(publish + frame(HEADER, 1, header(11)) + pieces)
    client.write(publish + frame(HEADER, 1, header(0)))
    assert client.bodies(2) == [b"many frames", b""]


def test_properties_and_body_arrive_as_they_were(dial: Dial) -> None:
    consumer, publisher = dial(1), dial(1)
    consumer.ask(m.BasicConsume(queue="q.same", consumer_tag="c", no_ack=True))
    said = Properties(
        content_type="text/plain",
        headers={"a": 1, "b": [True, "x"], "x-own": {"c": None}},
        delivery_mode=2,
        priority=9,
        correlation_id="7",
        expiration="60000",
        message_id="id",
        timestamp=Seconds(1_700_000_000),
        type="t",
        app_id="app",
    )
    publisher.publish(b"\x00\xff body", "q.same", properties=said)
    got = consumer.take()
    assert isinstance(got, Content)
    assert got.body == b"\x00\xff body"
    got.properties.expiration = said.expiration  # what is left of it
    assert got.properties == said


# --- channels (§4.3) and heartbeats (§4.2.7) ------------------------------------------------------


def test_a_busy_channel_does_not_starve_another(dial: Dial) -> None:
    client = dial(1, 2)
    for number in range(2000):
        client.publish(b"x" * 100, "nobody.busy")
        if number == 1000:
            client.send(2, m.BasicQos())
    assert client.take() == m.BasicQosOk()


def test_heartbeats_are_sent_when_nothing_else_is(dial: Dial) -> None:
    client = dial(1, heartbeat=1)
    began = time.monotonic()
    assert client.take(3) is None
    client.write(frame(HEARTBEAT, 0, b""))
    assert client.take(3) is None
    assert time.monotonic() - began < 2.5


def test_without_a_heartbeat_agreed_one_that_comes_is_dropped(dial: Dial) -> None:
    client = dial(1, heartbeat=0)
    client.write(frame(HEARTBEAT, 0, b"") * 3)
    assert client.ask(m.BasicQos()) == m.BasicQosOk()


def test_a_client_that_is_silent_for_two_intervals_is_given_up(dial: Dial) -> None:
    client = dial(1, heartbeat=1)
    began = time.monotonic()
    assert set(client.end(6)) == {None}
    assert 1.5 < time.monotonic() - began < 5


def test_any_octets_stand_for_a_heartbeat(dial: Dial) -> None:
    client = dial(1, heartbeat=1)
    for _ in range(6):
        time.sleep(0.5)
        client.send(1, m.BasicQos())
    assert m.BasicQosOk() in client.rest()
    assert not client.is_over


def test_a_paused_channel_answers_flow_and_gets_nothing_until_it_goes_on(dial: Dial) -> None:
    consumer, publisher = dial(1), dial(1)
    consumer.ask(m.BasicConsume(queue="q.flow", consumer_tag="c", no_ack=True))
    assert consumer.ask(m.ChannelFlow(False)) == m.ChannelFlowOk(False)
    publisher.publish(b"later", "q.flow")
    assert consumer.rest() == []
    assert consumer.ask(m.ChannelFlow(True)) == m.ChannelFlowOk(True)
    assert consumer.bodies(1) == [b"later"]
