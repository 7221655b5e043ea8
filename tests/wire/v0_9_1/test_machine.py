"""Frames, phases, errors and signs of life, the same for both sides."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.model import condition as conditions
from router.model.commands import CloseConnection
from router.model.condition import Condition
from router.model.events import ConnectionClosed, ConnectionOpened
from router.wire.machine import CLOSE_SECONDS, MachinePhase
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.codec import CODEC, SPECS, Sender, Spec
from router.wire.v0_9_1.framing import (
    BODY,
    FRAME,
    FRAMING,
    HEADER,
    HEARTBEAT,
    METHOD,
    PROTOCOL_HEADER,
    PROTOCOL_HEADER_0_8,
    PROTOCOL_HEADER_0_9,
    content_frames,
    frame,
)
from router.wire.v0_9_1.machine import Opening
from router.wire.v0_9_1.reply import Reply
from router.wire.v0_9_1.server_handshake import ServerHandshake
from tests.support.basic_peer import BrokerPeer, ClientPeer, Peer
from tests.support.draft_peer import DraftClientPeer


def closed(peer: Peer) -> ConnectionClosed:
    """The one end that the core was told."""
    [event] = [event for event in peer.events if isinstance(event, ConnectionClosed)]
    return event


def is_over(peer: Peer) -> bool:
    return peer.engine.finished


def close_of(peer: Peer) -> m.ConnectionClose:
    [close] = [one for one in peer.methods() if isinstance(one, m.ConnectionClose)]
    return close


# --- frames ---------------------------------------------------------------------------------------


def test_a_frame_is_drawn_as_the_specification_has_it() -> None:
    assert frame(METHOD, 1, b"abc") == bytes.fromhex("01 0001 00000003 616263 ce")
    assert bytes.fromhex("08 0000 00000000 ce") == FRAMING.heartbeat


@given(st.integers(0, 40), st.integers(9, 30))
def test_bodies_are_split_so_that_whole_frames_fit_the_limit(size: int, frame_max: int) -> None:
    body = bytes(range(size))
    octets = content_frames(3, b"header", body, frame_max)
    at, kinds, joined = 0, [], b""
    while at < len(octets):
        kind, number, length = FRAME.unpack_from(octets, at)
        assert number == 3
        payload = octets[at + 7 : at + 7 + length]
        assert octets[at + 7 + length] == 0xCE
        if kind == BODY:
            assert length + 8 <= frame_max
            joined += payload
        kinds.append(kind)
        at += 8 + length
    assert kinds[0] == HEADER
    assert set(kinds[1:]) <= {BODY}
    assert joined == body


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 15, 100])
def test_octets_may_come_in_pieces_of_any_size(size: int) -> None:
    peer = ClientPeer()
    octets = PROTOCOL_HEADER + b"".join(
        frame(METHOD, 0, CODEC.encode(method))
        for method in (
            m.ConnectionStartOk(mechanism="PLAIN", response=b"\0a\0b"),
            m.ConnectionTuneOk(10, 4096, 0),
            m.ConnectionOpen("/v"),
        )
    )
    for start in range(0, len(octets), size):
        peer.feed(octets[start : start + size])
    [opened] = peer.events
    assert isinstance(opened, ConnectionOpened)
    assert opened.hostname == "/v"


@pytest.mark.parametrize(
    ("octets", "code"),
    [
        (FRAME.pack(METHOD, 1, 0xFFFFFFFF) + b"\x00", Reply.FRAME_ERROR),
        (FRAME.pack(METHOD, 1, 4096 - 7) + b"\x00", Reply.FRAME_ERROR),
        (frame(HEARTBEAT, 1, b""), Reply.FRAME_ERROR),
        (frame(HEADER, 0, bytes(14)), Reply.CHANNEL_ERROR),
        (frame(BODY, 0, b""), Reply.CHANNEL_ERROR),
        (frame(METHOD, 0, b"\x00"), Reply.SYNTAX_ERROR),
        (frame(METHOD, 0, b"\x00\x0a\x00\xff"), Reply.NOT_IMPLEMENTED),
        (frame(METHOD, 1, b"\x00\x46\x00\x0a"), Reply.NOT_IMPLEMENTED),
        (frame(METHOD, 1, CODEC.encode(m.BasicAck())[:-1]), Reply.SYNTAX_ERROR),
        (frame(METHOD, 2, CODEC.encode(m.BasicAck())), Reply.CHANNEL_ERROR),
        (frame(METHOD, 1, CODEC.encode(m.ChannelOpen())), Reply.CHANNEL_ERROR),
        (frame(METHOD, 1, CODEC.encode(m.BasicDeliver())), Reply.COMMAND_INVALID),
        (frame(METHOD, 256, CODEC.encode(m.ChannelOpen())), Reply.CHANNEL_ERROR),
        (frame(METHOD, 0, CODEC.encode(m.ConnectionOpen())), Reply.COMMAND_INVALID),
    ],
)
def test_broken_frames_close_the_connection_with_the_code_of_the_rule(
    octets: bytes, code: Reply
) -> None:
    peer = ClientPeer().open(1)
    peer.feed(octets)
    assert close_of(peer).reply_code == code
    assert closed(peer).by_peer is False
    assert closed(peer).condition is not None
    assert not is_over(peer)
    peer.send(0, m.ConnectionCloseOk())
    assert is_over(peer)


def test_frames_before_a_broken_one_still_count() -> None:
    peer = ClientPeer().open(1)
    peer.feed(frame(METHOD, 1, CODEC.encode(m.BasicQos())) + b"\xff" * 9)
    kinds = [type(one) for one in peer.methods()]
    assert kinds == [m.BasicQosOk, m.ConnectionClose]


@pytest.mark.parametrize("kind", [ClientPeer, BrokerPeer])
@pytest.mark.parametrize(
    "octets",
    [
        b"\x01\x00\x01\x00\x00\x00\x00\xcd",
        frame(METHOD, 0, CODEC.encode(m.ConnectionCloseOk()))[:-1] + b"\xcf",
        frame(4, 1, b""),
        frame(0, 0, b""),
        frame(9, 0, b"x"),
    ],
)
def test_octets_that_are_no_frames_end_the_connection_without_a_word(
    kind: type[ClientPeer | BrokerPeer], octets: bytes
) -> None:
    peer = kind().open()
    peer.feed(octets + frame(METHOD, 0, CODEC.encode(m.ConnectionClose())))
    assert is_over(peer)
    assert peer.octets() == b""
    told = closed(peer).condition
    assert told is not None
    assert str(told.description).startswith("501 a frame")


def test_a_close_names_the_method_at_fault() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.BasicRecover(requeue=False))
    close = close_of(peer)
    assert (close.reply_code, close.class_id, close.method_id) == (540, 60, 110)


# --- phases ---------------------------------------------------------------------------------------

_REACH: dict[MachinePhase | Opening, list[m.Method]] = {
    Opening.START_OK: [],
    Opening.TUNE_OK: [m.ConnectionStartOk(response=b"\0a\0b")],
    Opening.OPEN: [m.ConnectionStartOk(response=b"\0a\0b"), m.ConnectionTuneOk(10, 4096, 0)],
    MachinePhase.OPENED: [
        m.ConnectionStartOk(response=b"\0a\0b"),
        m.ConnectionTuneOk(10, 4096, 0),
        m.ConnectionOpen(),
    ],
}


def at_phase(phase: MachinePhase | Opening) -> ClientPeer:
    peer = ClientPeer()
    peer.feed(PROTOCOL_HEADER)
    for method in _REACH[phase]:
        peer.send(0, method)
    assert peer.engine.phase is phase
    peer.received()
    peer.take_events()
    return peer


@pytest.mark.parametrize(
    ("phase", "record"),
    list(itertools.product(_REACH, [spec.record for spec in SPECS])),
    ids=lambda value: getattr(value, "__name__", getattr(value, "value", None)),
)
def test_each_method_on_channel_0_is_taken_in_its_phase_and_refused_in_others(
    phase: MachinePhase | Opening, record: type
) -> None:
    peer = at_phase(phase)
    peer.send(0, record())
    if record is m.ConnectionClose:
        assert is_over(peer)
        assert [type(one) for one in peer.methods()] == [m.ConnectionCloseOk]
        return
    spec = CODEC.spec_of(record)
    allowed = (phase, record) in ServerHandshake.steps and bool(spec.sender & Sender.CLIENT)
    if not allowed:
        assert close_of(peer).reply_code == Reply.COMMAND_INVALID
        assert peer.engine.phase is MachinePhase.CLOSING


@pytest.mark.parametrize("phase", [Opening.START_OK, Opening.TUNE_OK, Opening.OPEN])
def test_channels_may_not_be_used_before_the_connection_is_open(
    phase: MachinePhase | Opening,
) -> None:
    peer = at_phase(phase)
    peer.send(1, m.ChannelOpen())
    assert close_of(peer).reply_code == Reply.CHANNEL_ERROR


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.record.__name__)
def test_while_closing_everything_but_close_and_close_ok_is_dropped(spec: Spec) -> None:
    record = spec.record
    peer = at_phase(MachinePhase.OPENED)
    peer.do(CloseConnection())
    peer.received()
    peer.send(0, record())
    peer.feed(frame(METHOD, 7, b"garbage"))
    if record is m.ConnectionCloseOk:
        assert is_over(peer)
    else:
        answer = [m.ConnectionCloseOk()] if record is m.ConnectionClose else []
        assert peer.methods() == answer
        assert not is_over(peer)


def test_our_close_is_told_once_and_ends_with_the_answer() -> None:
    peer = at_phase(MachinePhase.OPENED)
    why = Condition(conditions.CONNECTION_FORCED, "going away")
    peer.do(CloseConnection(why), CloseConnection())
    assert close_of(peer) == m.ConnectionClose(
        reply_code=320, reply_text="CONNECTION_FORCED - going away"
    )
    assert closed(peer) == ConnectionClosed(why, by_peer=False)
    peer.send(0, m.ConnectionCloseOk())
    assert is_over(peer)
    assert len(peer.events) == 1
    assert peer.engine.deadline is None


def test_an_orderly_close_says_success() -> None:
    peer = at_phase(MachinePhase.OPENED)
    peer.do(CloseConnection())
    assert close_of(peer).reply_code == 200
    assert closed(peer).condition is None


def test_an_answer_to_our_close_is_not_awaited_for_ever() -> None:
    peer = at_phase(MachinePhase.OPENED)
    peer.do(CloseConnection())
    peer.wait(CLOSE_SECONDS - 0.1)
    assert not is_over(peer)
    peer.wait(0.2)
    assert is_over(peer)


def test_heartbeats_go_on_while_an_answer_to_our_close_is_awaited() -> None:
    peer = ClientPeer().open(heartbeat=2)
    peer.do(CloseConnection())
    peer.wait(2.1)
    assert [type(one) for one in peer.methods()] == [m.ConnectionClose, type(None)]


def test_a_peers_close_is_answered_and_its_reason_told() -> None:
    peer = at_phase(MachinePhase.OPENED)
    peer.send(0, m.ConnectionClose(reply_code=320, reply_text="shutdown"))
    assert peer.methods() == [m.ConnectionCloseOk()]
    told = closed(peer)
    assert told.by_peer
    assert told.condition == Condition(conditions.CONNECTION_FORCED, "320 shutdown")


def test_the_end_of_the_stream_is_the_end_of_the_connection() -> None:
    peer = at_phase(MachinePhase.OPENED)
    peer.events += peer.engine.receive_eof(peer.now)
    assert is_over(peer)
    assert closed(peer).by_peer
    assert peer.engine.receive_eof(1.0) == []
    assert peer.engine.receive_data(b"more", 2.0) == []


def test_nothing_is_sent_for_a_close_before_the_protocol_header() -> None:
    peer = ClientPeer()
    peer.do(CloseConnection())
    assert is_over(peer)
    assert peer.octets() == b""


# --- protocol headers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "version"),
    [
        (PROTOCOL_HEADER, (0, 9)),
        (PROTOCOL_HEADER_0_9, (0, 9)),
        (PROTOCOL_HEADER_0_8, (8, 0)),
        (b"AMQP\x01\x01\x09\x01", (8, 0)),
    ],
)
def test_older_headers_are_served_in_their_version(header: bytes, version: tuple[int, int]) -> None:
    peer = ClientPeer()
    peer.feed(header)
    [start] = peer.methods()
    assert isinstance(start, m.ConnectionStart)
    assert (start.version_major, start.version_minor) == version
    assert ("capabilities" in start.server_properties) is (version == (0, 9))


@pytest.mark.parametrize("header", [b"AMQP\x00\x01\x00\x00", b"GET / HT", b"AMQX\x00\x00\x09\x01"])
def test_another_header_is_answered_with_ours(header: bytes) -> None:
    peer = ClientPeer()
    peer.feed(header)
    assert peer.octets() == PROTOCOL_HEADER
    assert is_over(peer)
    assert closed(peer).condition is not None


def test_a_broker_that_answers_with_a_header_speaks_another_version() -> None:
    peer = BrokerPeer()
    peer.feed(b"AMQP\x03\x01")
    assert not is_over(peer)
    peer.feed(b"\x00\x00")
    assert is_over(peer)
    told = closed(peer).condition
    assert told is not None
    assert told.name == conditions.NOT_IMPLEMENTED


# --- time -----------------------------------------------------------------------------------------


def test_a_handshake_may_not_take_for_ever() -> None:
    peer = ClientPeer(handshake_seconds=5.0)
    peer.feed(PROTOCOL_HEADER)
    peer.wait(4.9)
    assert not is_over(peer)
    peer.wait(0.2)
    assert is_over(peer)
    told = closed(peer).condition
    assert told is not None
    assert told.description == "no start-ok within 5 s"


def test_heartbeats_are_sent_at_half_of_the_agreed_time_when_nothing_else_is() -> None:
    peer = ClientPeer().open(1, heartbeat=10)
    peer.wait(5.1)
    peer.feed(FRAMING.heartbeat)
    peer.received()
    peer.wait(5.0)
    assert peer.received() == [(0, None)]
    peer.send(1, m.BasicQos())
    assert peer.methods() == [m.BasicQosOk()]
    peer.wait(4.95)
    assert peer.received() == []
    peer.wait(5)
    assert peer.received() == [(0, None)]


def test_a_peer_that_is_silent_for_two_heartbeats_is_given_up() -> None:
    peer = ClientPeer().open(1, heartbeat=10)
    peer.wait(19.9)
    peer.feed(b"\x08")  # any octet counts
    peer.wait(19.9)
    assert not is_over(peer)
    peer.wait(0.2)
    assert is_over(peer)
    told = closed(peer).condition
    assert told is not None
    assert "20 s" in str(told.description)


def test_no_heartbeat_means_none_in_either_direction() -> None:
    peer = ClientPeer().open(1, heartbeat=0)
    assert peer.engine.deadline is None
    peer.wait(10_000)
    assert peer.received() == []
    assert not is_over(peer)


# --- bodies that have come in part ----------------------------------------------------------------


def begin_body(peer: ClientPeer, number: int) -> None:
    """Publishes 1,001 octets, and sends 1,000 of them."""
    made = peer.content(number, m.BasicPublish(routing_key="q"), bytes(1001))
    whole = peer.framing.frame(BODY, number, bytes(1001))
    peer.feed(made.removesuffix(whole) + peer.framing.frame(BODY, number, bytes(1000)))


@pytest.mark.parametrize("kind", [ClientPeer, DraftClientPeer])
def test_bodies_of_all_channels_together_are_bounded(
    kind: type[ClientPeer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.wire.v0_9_1.machine.GATHER_LIMIT_OCTETS", 2500)
    peer = kind().open(1, 2, 3, 4)
    for _ in range(5):  # what is complete, or gone with its channel, counts no more
        begin_body(peer, 1)
        peer.feed(peer.framing.frame(BODY, 1, b"x"))
    begin_body(peer, 1)
    begin_body(peer, 2)
    assert peer.methods() == []
    begin_body(peer, 3)
    [close] = peer.methods()
    assert isinstance(close, m.ConnectionClose)
    assert close.reply_code == Reply.RESOURCE_ERROR
