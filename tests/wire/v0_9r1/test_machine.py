"""Frames, phases and content, state by input, as server; what is no frame at all."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.model import condition as conditions
from router.model.capabilities import Protocol
from router.model.events import ConnectionClosed, ConnectionOpened
from router.wire.engine import EngineSettings
from router.wire.machine import MachinePhase
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.channel import Expect
from router.wire.v0_9_1.codec import Sender
from router.wire.v0_9_1.machine import Opening
from router.wire.v0_9_1.reply import Reply
from router.wire.v0_9_1.server_handshake import ServerHandshake
from router.wire.v0_9r1 import methods as d
from router.wire.v0_9r1 import optional as o
from router.wire.v0_9r1.content import MAX_DEPTH, frames
from router.wire.v0_9r1.engine import make_engine
from router.wire.v0_9r1.framing import FRAMING, OUT_OF_BAND, PROTOCOL_HEADER, FrameType
from router.wire.v0_9r1.server_channel import DraftServerChannel
from tests.support.basic_peer import Peer
from tests.support.draft_peer import DraftBrokerPeer, DraftClientPeer, hexed
from tests.wire.v0_9r1.test_content import made


def closed(peer: Peer) -> ConnectionClosed:
    [event] = [event for event in peer.events if isinstance(event, ConnectionClosed)]
    return event


def close_of(peer: Peer) -> m.ConnectionClose:
    [close] = [one for one in peer.methods() if isinstance(one, m.ConnectionClose)]
    return close


# --- frames ---------------------------------------------------------------------------------------


def test_a_frame_is_drawn_as_the_document_has_it() -> None:
    assert FRAMING.frame(FrameType.METHOD, 1, b"abc") == hexed("01 00 0001 00000003 616263 ce")
    assert FRAMING.heartbeat == hexed("08 00 0000 00000000 ce")


def test_the_cycle_is_never_looked_at() -> None:
    peer = DraftClientPeer().open()
    for cycle in (0, 1, 255, 7):
        peer.feed(bytes((FrameType.HEARTBEAT, cycle)) + FRAMING.heartbeat[2:])
    assert not peer.take_events()


def test_the_agreed_size_bounds_payloads_when_they_come_and_frames_when_they_go() -> None:
    peer = DraftClientPeer(max_frame_octets=4096).open(1)
    peer.feed(FRAMING.frame(FrameType.TRACE, 0, bytes(4096)))
    assert not peer.take_events()
    peer.feed(FRAMING.frame(FrameType.TRACE, 0, bytes(4097)))
    assert close_of(peer).reply_code == Reply.FRAME_ERROR


def test_trace_frames_are_dropped_without_a_word() -> None:
    peer = DraftClientPeer().open(1)
    peer.feed(FRAMING.frame(FrameType.TRACE, 0, b"anything"))
    assert not peer.take_events()
    assert not peer.octets()


@pytest.mark.parametrize("kind", [FrameType.TRACE, FrameType.HEARTBEAT])
def test_what_belongs_to_the_connection_may_not_come_on_a_channel(kind: FrameType) -> None:
    peer = DraftClientPeer().open(1)
    peer.feed(FRAMING.frame(kind, 1, b""))
    assert close_of(peer).reply_code == Reply.FRAME_ERROR


@pytest.mark.parametrize("kind", sorted(OUT_OF_BAND))
@pytest.mark.parametrize("number", [0, 1])
def test_out_of_band_frames_are_not_implemented(kind: FrameType, number: int) -> None:
    peer = DraftClientPeer().open(1)
    peer.feed(FRAMING.frame(kind, number, b""))
    assert close_of(peer).reply_code == Reply.NOT_IMPLEMENTED
    assert closed(peer).condition is not None


def test_a_channel_with_an_out_of_band_transport_is_not_implemented() -> None:
    peer = DraftClientPeer().open()
    peer.send(1, m.ChannelOpen("shared-memory"))
    close = close_of(peer)
    assert (close.reply_code, close.class_id, close.method_id) == (540, 2, 1)


@pytest.mark.parametrize(
    "octets",
    [
        "01 00 0001 00000000 cd",  # "If the frame-end is not valid … without sending any further"
        "00 00 0000 00000000 ce",  # a type that is none of the defined ones, likewise
        "09 00 0000 00000000 ce",
        "ff 00 0001 00000000 ce",
    ],
)
def test_octets_that_are_no_frames_end_the_connection_without_a_word(octets: str) -> None:
    peer = DraftClientPeer().open(1)
    peer.feed(hexed(octets))
    assert peer.octets() == b""
    assert peer.engine.finished
    condition = closed(peer).condition
    assert condition is not None
    assert condition.name == conditions.FRAMING_ERROR


def test_another_header_is_answered_with_ours() -> None:
    for header in (b"AMQP\x02\x00\x01\x01", b"HTTP/1.1", b"AMQP\x00\x00\x09\x01"):
        peer = DraftClientPeer()
        peer.feed(header)
        assert peer.octets() == PROTOCOL_HEADER
        assert peer.engine.finished


# --- phases × methods -----------------------------------------------------------------------------

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


def at_phase(phase: MachinePhase | Opening) -> DraftClientPeer:
    peer = DraftClientPeer()
    peer.feed(PROTOCOL_HEADER)
    for method in _REACH[phase]:
        peer.send(0, method)
    assert peer.engine.phase is phase
    peer.received()
    peer.take_events()
    return peer


@pytest.mark.parametrize(
    ("phase", "record"),
    list(itertools.product(_REACH, [spec.record for spec in d.SPECS])),
    ids=lambda value: getattr(value, "__name__", getattr(value, "value", None)),
)
def test_each_method_on_channel_0_is_taken_in_its_phase_and_refused_in_others(
    phase: MachinePhase | Opening, record: type
) -> None:
    peer = at_phase(phase)
    peer.send(0, record())
    if record is m.ConnectionClose:
        assert peer.engine.finished
        assert [type(one) for one in peer.methods()] == [m.ConnectionCloseOk]
        return
    spec = d.CODEC.spec_of(record)
    if (phase, record) not in ServerHandshake.steps or not spec.sender & Sender.CLIENT:
        assert close_of(peer).reply_code == Reply.COMMAND_INVALID
        assert peer.engine.phase is MachinePhase.CLOSING


_OUT_OF_PLACE = {
    m.ChannelOpen: [Reply.CHANNEL_ERROR],  # it is open
    o.FileOpenOk: [Reply.COMMAND_INVALID],  # nothing was opened
    o.TestInteger: [Reply.SYNTAX_ERROR],  # operation 0
    o.TestString: [Reply.SYNTAX_ERROR],
    o.TestTable: [Reply.SYNTAX_ERROR],
}


@pytest.mark.parametrize("spec", d.SPECS, ids=lambda spec: spec.record.__name__)
def test_each_method_on_an_open_channel_is_taken_or_refused(spec: Any) -> None:
    peer = DraftClientPeer().open(1)
    peer.send(1, spec.record())
    served = spec.record in DraftServerChannel.handlers
    served = served or spec.record in DraftServerChannel.content_handlers
    due = [] if served else [Reply.COMMAND_INVALID]
    due = _OUT_OF_PLACE.get(spec.record, due)
    codes = [one.reply_code for one in peer.methods() if isinstance(one, m.ConnectionClose)]
    assert codes == due


@pytest.mark.parametrize(
    "index",
    [(7, 13), (8, 8), (10, 1), (10, 2), (10, 3), (10, 4), (11, 9), (6, 13), (12, 1), (60, 40)],
)
def test_classes_that_are_not_served_are_not_implemented(index: tuple[int, int]) -> None:
    peer = DraftClientPeer().open(1)
    payload = b"".join(one.to_bytes(2, "big") for one in index)
    peer.feed(FRAMING.frame(FrameType.METHOD, 1, payload))
    close = close_of(peer)
    assert close.reply_code == Reply.NOT_IMPLEMENTED
    if index[0] < 60:  # else it is a number of 0-9-1's, as shared rooms name methods
        assert (close.class_id, close.method_id) == index


# --- what is due × frame types --------------------------------------------------------------------

_PUBLISH = d.CODEC.encode(m.BasicPublish(routing_key="q"))
_HEADER = made(b"ab").header
_PARENT = made(b"ab", made(b"cd")).header

_TO_REACH: dict[str, tuple[Expect, list[tuple[int, bytes]]]] = {
    "nothing": (Expect.METHOD, []),
    "publish": (Expect.HEADER, [(FrameType.METHOD, _PUBLISH)]),
    "header": (Expect.BODY, [(FrameType.METHOD, _PUBLISH), (FrameType.HEADER, _HEADER)]),
    "half a body": (
        Expect.BODY,
        [
            (FrameType.METHOD, _PUBLISH),
            (FrameType.HEADER, _HEADER),
            (FrameType.BODY, b"a"),
        ],
    ),
    "parent": (Expect.HEADER, [(FrameType.METHOD, _PUBLISH), (FrameType.HEADER, _PARENT)]),
    "child": (
        Expect.BODY,
        [
            (FrameType.METHOD, _PUBLISH),
            (FrameType.HEADER, _PARENT),
            (FrameType.HEADER, made(b"cd").header),
        ],
    ),
    "child, whole": (
        Expect.BODY,
        [
            (FrameType.METHOD, _PUBLISH),
            (FrameType.HEADER, _PARENT),
            (FrameType.HEADER, made(b"cd").header),
            (FrameType.BODY, b"cd"),
        ],
    ),
}
_DUE = {
    Expect.METHOD: (FrameType.METHOD, d.CODEC.encode(m.TxSelect())),
    Expect.HEADER: (FrameType.HEADER, _HEADER),
    Expect.BODY: (FrameType.BODY, b"x"),
}


@pytest.mark.parametrize("reached", _TO_REACH)
@pytest.mark.parametrize("kind", [FrameType.METHOD, FrameType.HEADER, FrameType.BODY])
def test_what_is_due_is_taken_and_anything_else_is_incomplete_content(
    reached: str, kind: FrameType
) -> None:
    due, before = _TO_REACH[reached]
    peer = DraftClientPeer().open(1)
    for each in before:
        peer.feed(FRAMING.frame(each[0], 1, each[1]))
    assert peer.engine.channels[1].expect is due
    payload = {
        FrameType.METHOD: d.CODEC.encode(m.TxSelect()),
        FrameType.HEADER: _HEADER,
        FrameType.BODY: b"x",
    }[kind]
    peer.feed(FRAMING.frame(kind, 1, payload))
    codes = [one.reply_code for one in peer.methods() if isinstance(one, m.ConnectionClose)]
    assert codes == ([] if kind is _DUE[due][0] else [Reply.FRAME_ERROR])


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        (["0007 0000 0000000000000000 0000"], 501),  # class-id MUST match the method's
        (["003c 0000 0000000000000000 0000"], 501),
        (["0006 0001 0000000000000000 0000", "0007 0000 0000000000000000 0000"], 501),
        (["0006 0000 00000000"], 502),
        (["0006 0000 ffffffffffffffff 0000"], 311),
        (["0006 0000 0000000000000001 0000", None], 501),  # more body than was told
    ],
)
def test_headers_that_do_not_fit_are_refused(headers: list[str | None], code: int) -> None:
    peer = DraftClientPeer().open(1)
    peer.feed(FRAMING.frame(FrameType.METHOD, 1, _PUBLISH))
    for header in headers:
        if header is None:
            peer.feed(FRAMING.frame(FrameType.BODY, 1, b"xx"))
        else:
            peer.feed(FRAMING.frame(FrameType.HEADER, 1, hexed(header)))
    [close] = [one for one in peer.methods() if isinstance(one, m.ConnectionClose | m.ChannelClose)]
    assert close.reply_code == code


def test_contents_nested_too_deep_are_not_implemented() -> None:
    content = made(b"")
    for _ in range(MAX_DEPTH + 1):
        content = made(b"", content)
    peer = DraftClientPeer().open(1)
    peer.feed(FRAMING.frame(FrameType.METHOD, 1, _PUBLISH) + frames(1, content, 4096))
    assert close_of(peer).reply_code == Reply.NOT_IMPLEMENTED


def test_content_on_channel_0_is_a_channel_error() -> None:
    peer = DraftClientPeer().open(1)
    peer.feed(FRAMING.frame(FrameType.HEADER, 0, _HEADER))
    assert close_of(peer).reply_code == Reply.CHANNEL_ERROR


# --- opening --------------------------------------------------------------------------------------


def test_both_sides_open_with_the_versions_of_the_draft() -> None:
    peer = DraftClientPeer()
    peer.feed(PROTOCOL_HEADER)
    [start] = peer.methods()
    assert isinstance(start, m.ConnectionStart)
    assert (start.version_major, start.version_minor) == (9, 1)
    assert "capabilities" not in start.server_properties
    broker = DraftBrokerPeer().open()
    assert not broker.engine.finished
    other = DraftBrokerPeer()
    other.send(0, m.ConnectionStart(version_major=8, version_minor=0, mechanisms=b"PLAIN"))
    assert closed(other).condition is not None


def test_the_core_hears_which_protocol_is_spoken() -> None:
    peer = DraftClientPeer()
    peer.feed(PROTOCOL_HEADER)
    for method in _REACH[MachinePhase.OPENED]:
        peer.send(0, method)
    [opened] = peer.events
    assert isinstance(opened, ConnectionOpened)
    assert opened.capabilities.protocol is Protocol.AMQP_0_9R1


# --- random octets --------------------------------------------------------------------------------


def _noise(is_server: bool, octets: bytes, size: int) -> None:
    engine = make_engine(EngineSettings(is_server=is_server, container="x"))
    peer: Peer = (DraftClientPeer if is_server else DraftBrokerPeer)()
    if is_server:
        assert isinstance(peer, DraftClientPeer)
        peer.open(1, 2)
    else:
        assert isinstance(peer, DraftBrokerPeer)
        peer.open()
    assert type(peer.engine) is type(engine)
    for at in range(0, len(octets), size):
        peer.feed(octets[at : at + size])
        if peer.engine.finished:
            break
    peer.engine.receive_eof(1.0)
    assert peer.engine.finished


_almost = st.one_of(
    st.binary(max_size=60),
    st.builds(
        FRAMING.frame,
        st.sampled_from([*FrameType, 0, 9]),
        st.integers(0, 3),
        st.one_of(
            st.binary(max_size=30),
            st.builds(
                lambda class_id, method_id, rest: bytes((0, class_id, 0, method_id)) + rest,
                st.integers(0, 12),
                st.integers(0, 13),
                st.binary(max_size=24),
            ),
            st.sampled_from([_PUBLISH, _HEADER, _PARENT, b"ab"]),
        ),
    ),
)


@given(st.booleans(), st.lists(_almost, max_size=12).map(b"".join), st.sampled_from([1, 9, 4096]))
def test_nearly_sensible_octets_end_in_one_word_and_no_exception(
    is_server: bool, octets: bytes, size: int
) -> None:
    _noise(is_server, octets, size)
