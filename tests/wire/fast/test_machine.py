"""The connection: phases × commands, frames, faults, signs of life, ends (RFC 006 §3.2)."""

from typing import Any

import pytest

from router.errors import MisuseError
from router.model.commands import CloseConnection, SendDeliveries
from router.model.condition import (
    CONNECTION_FORCED,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    INVALID_FIELD,
    RESOURCE_LIMIT_EXCEEDED,
    Condition,
)
from router.model.events import ConnectionClosed, OutputPending
from router.model.terminus import Role
from router.wire.engine import EngineSettings, PeerTerms
from router.wire.fast import commands as c
from router.wire.fast.client import ClientEngine
from router.wire.fast.commands import SPECS, Spec
from router.wire.fast.engine import make_engine
from router.wire.fast.framing import START, frame
from router.wire.fast.machine import Opening
from router.wire.fast.server import ServerEngine
from router.wire.machine import HELD_STOP_OCTETS, MachinePhase
from tests.support.fast_peer import Client, Peer, Server, message, outgoing

_SAMPLES: dict[type, c.Command] = {
    c.ConnectionChallenge: c.ConnectionChallenge(1, "ANONYMOUS"),
    c.ConnectionResponse: c.ConnectionResponse("ANONYMOUS"),
    c.ConnectionTune: c.ConnectionTune(4096, 5, 5, 0),
    c.ConnectionOpen: c.ConnectionOpen(1, "/"),
    c.ConnectionPing: c.ConnectionPing(True),
    c.ConnectionReply: c.ConnectionReply(1, 200),
    c.ConnectionClose: c.ConnectionClose(200),
    c.ChannelOpen: c.ChannelOpen(7),
    c.ChannelAck: c.ChannelAck(1, 0, 1),
    c.ChannelCommit: c.ChannelCommit(1),
    c.ChannelRollback: c.ChannelRollback(1),
    c.ChannelReply: c.ChannelReply(1, 1, 200),
    c.ChannelClose: c.ChannelClose(1, 200),
    c.HandleOpen: c.HandleOpen(1, 7, 1),
    c.HandleSend: c.HandleSend(1, 0, 0),
    c.HandleConsume: c.HandleConsume(1, dest_name="orders"),
    c.HandleCancel: c.HandleCancel(1),
    c.HandleFlow: c.HandleFlow(1, 0, True),
    c.HandleUnget: c.HandleUnget(1, 0, 1),
    c.HandleQuery: c.HandleQuery(1),
    c.HandleBrowse: c.HandleBrowse(1, 0, 1),
    c.HandleCreated: c.HandleCreated(1, "made"),
    c.HandleNotify: c.HandleNotify(1, 1, 0),
    c.HandleIndex: c.HandleIndex(1, 0, b""),
    c.HandlePrepare: c.HandlePrepare(1, 0),
    c.HandleReady: c.HandleReady(1, 0),
    c.HandleReply: c.HandleReply(1, 9, 200),
    c.HandleClose: c.HandleClose(1, 200),
}

SERVER_PHASES = (
    Opening.RESPONSE,
    Opening.TUNE,
    Opening.OPEN,
    MachinePhase.OPENED,
    MachinePhase.CLOSING,
)
CLIENT_PHASES = (
    Opening.CHALLENGE,
    Opening.NEGOTIATING,
    Opening.REPLY,
    MachinePhase.OPENED,
    MachinePhase.CLOSING,
)


def server_in(phase: MachinePhase | Opening) -> Client:
    """A server engine in a phase; with channel 1 and handle 1 where it can have them."""
    client = Client()
    client.feed(START)
    steps: list[tuple[MachinePhase | Opening, c.Command]] = [
        (Opening.RESPONSE, c.ConnectionResponse("ANONYMOUS")),
        (Opening.TUNE, c.ConnectionTune(4096, 10, 10, 0)),
        (Opening.OPEN, c.ConnectionOpen(0, "/")),
    ]
    for at, step in steps:
        if phase is at:
            break
        client.send(step)
    if phase in (MachinePhase.OPENED, MachinePhase.CLOSING):
        client.channel().handle()
    if phase is MachinePhase.CLOSING:
        client.do(CloseConnection(None))
    client.read()
    client.take_events()
    assert client.engine.phase is phase
    return client


def client_in(phase: MachinePhase | Opening) -> Server:
    """A client engine in a phase; with one link where it can have it."""
    server = Server()
    server.octets()
    steps: list[tuple[MachinePhase | Opening, c.Command]] = [
        (Opening.CHALLENGE, c.ConnectionChallenge(1, "ANONYMOUS")),
        (Opening.NEGOTIATING, c.ConnectionTune(4096, 10, 10, 0)),
        (Opening.REPLY, c.ConnectionReply(1, 200)),
    ]
    for at, step in steps:
        if phase is at:
            break
        server.send(step)
    if phase in (MachinePhase.OPENED, MachinePhase.CLOSING):
        server.attached(Role.RECEIVER)
    if phase is MachinePhase.CLOSING:
        server.do(CloseConnection(None))
    server.read()
    server.take_events()
    assert server.engine.phase is phase
    return server


# --- phases × commands ----------------------------------------------------------------------------

_ANY = {c.ConnectionPing, c.ConnectionClose}

_EXPECTED_BY_SERVER: dict[MachinePhase | Opening, set[type]] = {
    Opening.RESPONSE: {c.ConnectionResponse},
    Opening.TUNE: {c.ConnectionTune},
    Opening.OPEN: {c.ConnectionOpen},
    MachinePhase.OPENED: {
        c.ChannelOpen,
        c.ChannelAck,
        c.ChannelCommit,
        c.ChannelRollback,
        c.ChannelClose,
        c.HandleOpen,
        c.HandleSend,
        c.HandleConsume,
        c.HandleCancel,
        c.HandleFlow,
        c.HandleUnget,
        c.HandleQuery,
        c.HandleBrowse,
        c.HandlePrepare,
        c.HandleReady,
        c.HandleClose,
    },
}
"""What §3.2.10, §3.3.9 and §3.5.17 let a server expect."""

_EXPECTED_BY_CLIENT: dict[MachinePhase | Opening, set[type]] = {
    Opening.CHALLENGE: {c.ConnectionChallenge},
    Opening.NEGOTIATING: {c.ConnectionChallenge, c.ConnectionTune},
    Opening.REPLY: {c.ConnectionReply},
    MachinePhase.OPENED: {
        c.ChannelReply,
        c.ChannelClose,
        c.HandleCreated,
        c.HandleNotify,
        c.HandleIndex,
        c.HandlePrepare,
        c.HandleReady,
        c.HandleReply,
        c.HandleClose,
    },
}
"""The same of a client."""


def _check(peer: Peer, phase: MachinePhase | Opening, spec: Spec, expected: set[type]) -> None:
    command = _SAMPLES[spec.record]
    events = peer.send(command)
    sent = peer.read()
    closes = [each for each in sent if isinstance(each, c.ConnectionClose)]
    if phase is MachinePhase.CLOSING:
        assert sent == []
        assert peer.engine.finished is (spec.record is c.ConnectionClose)
    elif spec.record is c.ConnectionClose:
        assert peer.engine.finished
        assert [each.reply_code for each in closes] == [200]
    elif spec.record is c.ConnectionPing:
        assert sent == [c.ConnectionPing(False)]
    elif spec.record in expected:
        assert 503 not in [each.reply_code for each in closes]
        assert not closes
    else:
        assert [each.reply_code for each in closes] == [503]
        (closed,) = [event for event in events if isinstance(event, ConnectionClosed)]
        assert closed.condition is not None
        assert closed.condition.name == ILLEGAL_STATE
        assert peer.engine.finished is (phase is not MachinePhase.OPENED)  # §3.2.12


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
@pytest.mark.parametrize("phase", SERVER_PHASES)
def test_a_server_takes_what_the_summaries_let_it_expect(
    phase: MachinePhase | Opening, spec: Spec
) -> None:
    _check(server_in(phase), phase, spec, _EXPECTED_BY_SERVER.get(phase, set()))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
@pytest.mark.parametrize("phase", CLIENT_PHASES)
def test_a_client_takes_what_the_summaries_let_it_expect(
    phase: MachinePhase | Opening, spec: Spec
) -> None:
    _check(client_in(phase), phase, spec, _EXPECTED_BY_CLIENT.get(phase, set()))


# --- the start ------------------------------------------------------------------------------------


def test_two_octets_are_answered_by_a_challenge() -> None:
    """§3.2.2: nothing more is sent before the server speaks."""
    client = Client()
    client.feed(START[:1])
    assert client.read() == []
    client.feed(START[1:])
    assert client.read() == [c.ConnectionChallenge(1, "ANONYMOUS NONE")]


def test_a_later_version_is_offered_ours() -> None:
    """§3.2.2: the server answers with the highest version it can, up to the client's."""
    client = Client()
    client.feed(b"\x80\x05")
    assert client.read() == [c.ConnectionChallenge(1, "ANONYMOUS NONE")]


@pytest.mark.parametrize("octets", [b"\x80\x00", b"\x81\x01", b"GET / HTTP/1.1\r\n", b"\x00"])
def test_an_invalid_start_ends_the_connection_without_a_word(octets: bytes) -> None:
    client = Client()
    client.feed(octets)
    assert client.octets() == b""
    assert client.engine.finished


# --- frames ---------------------------------------------------------------------------------------


def test_both_forms_of_a_size_are_read() -> None:
    """§2.2.4: all clients and servers must handle the escape."""
    client = server_in(MachinePhase.OPENED)
    client.feed(b"\xff\xff\x00\x00\x00\x03\x0e\x01\xce")
    assert client.read() == [c.ConnectionPing(False)]


@pytest.mark.parametrize(
    "octets",
    [
        bytes.fromhex("0003 0e01 cd"),  # ends otherwise
        bytes.fromhex("0000"),
        bytes.fromhex("0001 ce"),
        bytes.fromhex("ffff 00100000"),  # larger than frame-max
        bytes.fromhex("ffff ffffffff"),
    ],
)
def test_a_broken_frame_ends_the_connection(octets: bytes) -> None:
    client = server_in(MachinePhase.OPENED)
    (closed,) = client.feed(octets)
    assert isinstance(closed, ConnectionClosed)
    assert closed.condition is not None
    assert closed.condition.name == FRAMING_ERROR
    (close,) = client.read()
    assert isinstance(close, c.ConnectionClose)
    assert close.reply_code == 501


@pytest.mark.parametrize(
    ("octets", "words"),
    [
        (bytes.fromhex("0002 63 ce"), "there is no command 99"),
        (bytes.fromhex("0005 14 0001 ce 00"), "CHANNEL OPEN"),
    ],
)
def test_what_cannot_be_read_ends_the_connection_and_names_the_field(
    octets: bytes, words: str
) -> None:
    client = server_in(MachinePhase.OPENED)
    broken = octets if octets.endswith(b"\xce") else bytes.fromhex("0004 14 0001 ce")
    (closed,) = client.feed(broken)
    assert isinstance(closed, ConnectionClosed)
    assert closed.condition is not None
    assert closed.condition.name == INVALID_FIELD
    (close,) = client.read()
    assert isinstance(close, c.ConnectionClose)
    assert close.reply_code == 502
    assert words in close.reply_text


def test_a_fragment_larger_than_frame_max_ends_the_connection() -> None:
    client = server_in(MachinePhase.OPENED)
    client.feed(frame(c.HandleSend(1, 0, 1 << 20)))
    (close,) = client.read()
    assert isinstance(close, c.ConnectionClose)
    assert close.reply_code == 501


def test_commands_before_the_broken_one_count() -> None:
    client = server_in(MachinePhase.OPENED)
    client.feed(frame(c.ConnectionPing(True)) + b"\x00\x00")
    ping, close = client.read()
    assert ping == c.ConnectionPing(False)
    assert isinstance(close, c.ConnectionClose)


def test_message_octets_may_come_one_by_one() -> None:
    client = Client().open().channel().handle(1, "orders")
    octets = frame(c.HandleSend(1, 0, len(message(b"body")))) + message(b"body")
    for octet in octets:
        client.feed(bytes((octet,)))
    assert [type(event).__name__ for event in client.events] == ["LinkAttached"]
    client.say_yes()
    assert [type(event).__name__ for event in client.events] == ["DeliveriesReceived"]


# --- ends -----------------------------------------------------------------------------------------


def test_commands_behind_our_close_are_discarded_until_the_answer() -> None:
    """§3.2.9, read so that an answer of ours is never taken for a second close."""
    client = server_in(MachinePhase.OPENED)
    client.do(CloseConnection(Condition(CONNECTION_FORCED, "going home")))
    assert client.read() == [c.ConnectionClose(507, "going home")]
    octets = message(b"x" * 40)
    client.send((c.HandleSend(1, 1, len(octets)), octets), c.ChannelOpen(2), c.ConnectionOpen())
    assert (client.read(), client.engine.finished) == ([], False)
    client.send(c.ConnectionClose(200))
    assert (client.read(), client.engine.finished) == ([], True)


def test_an_answer_that_does_not_come_is_not_awaited_for_ever() -> None:
    client = server_in(MachinePhase.OPENED)
    client.do(CloseConnection(None))
    ends = []
    for seconds in (4.9, 0.2):
        client.wait(seconds)
        ends.append(client.engine.finished)
    assert ends == [False, True]


@pytest.mark.parametrize("code", [200, 403])
def test_a_peers_close_is_answered_and_told(code: int) -> None:
    client = server_in(MachinePhase.OPENED)
    (closed,) = client.send(c.ConnectionClose(code, "so"))
    assert isinstance(closed, ConnectionClosed)
    assert closed.by_peer
    assert (closed.condition is None) is (code == 200)
    assert client.read() == [c.ConnectionClose(200)]


# --- time -----------------------------------------------------------------------------------------


def test_a_silent_peer_is_asked_first_and_then_given_up() -> None:
    """§3.2.7: "may send a CONNECTION PING with respond set to 1, and continue or close"."""
    client = server_in(MachinePhase.OPENED)
    client.wait(59.0)
    assert client.read() == []
    client.wait(2.0)
    assert client.read() == [c.ConnectionPing(True)]
    client.send(c.ConnectionPing(False))
    client.wait(61.0)
    assert client.read() == [c.ConnectionPing(True)]
    (closed,) = client.wait(60.0)
    assert isinstance(closed, ConnectionClosed)
    assert closed.condition is not None
    assert closed.condition.name == RESOURCE_LIMIT_EXCEEDED


def test_a_peer_gets_the_signs_of_life_that_it_asked_for() -> None:
    """§3.2.5, heartbeat: "each party tells the other what kind of heartbeat it needs"."""
    client = Client()
    client.feed(START)
    client.send(c.ConnectionResponse("ANONYMOUS"))
    client.send(c.ConnectionTune(4096, 10, 10, 10), c.ConnectionOpen())
    client.read()
    pings = []
    for _ in range(6):
        client.wait(5.0)
        pings += [each for each in client.read() if each == c.ConnectionPing(False)]
    assert len(pings) >= 5


def test_a_server_that_stops_reading_does_not_mind_silence() -> None:
    client = Client(credit=0).open().channel().handle(1, "orders")
    body = bytes(32000)
    for _ in range(HELD_STOP_OCTETS // len(body) + 1):
        client.post(body)
    assert client.engine.input_waits
    client.wait(1000.0)
    assert not client.engine.finished


# --- output ---------------------------------------------------------------------------------------


def test_output_that_piles_up_is_told_and_its_end_too() -> None:
    settings = EngineSettings(
        is_server=True, container="r", output_high_octets=1000, output_low_octets=100
    )
    client = Client(server=settings).open().channel().handle(1, "orders")
    client.send(c.HandleConsume(1, prefetch=100))
    (asked,) = client.say_yes()
    client.read()
    client.take_events()
    client.do(SendDeliveries(asked.link, [outgoing(each, bytes(300)) for each in range(4)]))
    assert OutputPending(True) in client.take_events()
    client.octets()
    client.settle()
    assert OutputPending(False) in client.take_events()


def test_what_is_no_command_is_misuse() -> None:
    engines: list[Any] = [
        server_in(MachinePhase.OPENED).engine,
        client_in(MachinePhase.OPENED).engine,
    ]
    for engine in engines:
        with pytest.raises((MisuseError, AssertionError)):
            engine.execute(object())


def test_either_side_is_made_by_who_dialed() -> None:
    server = make_engine(EngineSettings(is_server=True, container="r"))
    client = make_engine(EngineSettings(is_server=False, container="r"))
    assert isinstance(server, ServerEngine)
    assert isinstance(client, ClientEngine)


@pytest.mark.parametrize("path", ["nowhere", "/nowhere"])
def test_a_virtual_host_that_nobody_knows_is_refused(path: str) -> None:
    settings = EngineSettings(
        is_server=True,
        container="router",
        terms=lambda user, vhost: PeerTerms(knows_vhost=vhost != "nowhere"),
    )
    client = Client(server=settings)
    client.feed(START)
    client.send(c.ConnectionResponse("ANONYMOUS"))
    client.send(c.ConnectionTune(65536, 10, 100, 0), c.ConnectionOpen(1, path, "name"))
    close = client.read()[-1]
    assert isinstance(close, c.ConnectionClose)
    assert close.reply_code == 402
