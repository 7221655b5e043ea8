"""How connections open and end: every phase with every control (0-10 class connection)."""

from typing import Any

import attrs
import pytest

from router.model.capabilities import Protocol
from router.model.commands import CloseConnection
from router.model.condition import (
    CONNECTION_REDIRECT,
    FRAMING_ERROR,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    UNAUTHORIZED_ACCESS,
    Condition,
)
from router.model.delivery import OutgoingDelivery
from router.model.events import ConnectionClosed, ConnectionOpened
from router.model.identity import DeliveryNumber, DeliveryTag
from router.wire.engine import PeerTerms
from router.wire.machine import MachinePhase
from router.wire.mechanisms import Mechanism, MechanismClient, MechanismServer
from router.wire.v0_10 import records as r
from router.wire.v0_10.client import ClientEngine
from router.wire.v0_10.codec import CONTROLS, Sender
from router.wire.v0_10.framing import CONTROL, PROTOCOL_HEADER, assembly
from router.wire.v0_10.machine import Opening
from router.wire.v0_10.message import make_content, read_header, write_header
from router.wire.v0_10.reply import CloseCode
from router.wire.v0_10.server import ServerEngine
from tests.support.peer_0_10 import Peer, broker, server, settings

TUNE = r.ConnectionTune(channel_max=10, max_frame_size=65535, heartbeat_min=0, heartbeat_max=0)

SERVER_WAY: list[tuple[MachinePhase | Opening, r.Control]] = [
    (Opening.START_OK, r.ConnectionStartOk(mechanism="ANONYMOUS")),
    (Opening.TUNE_OK, r.ConnectionTuneOk(10, 65535)),
    (Opening.OPEN, r.ConnectionOpen("/")),
    (MachinePhase.OPENED, r.ConnectionHeartbeat()),
]
CLIENT_WAY: list[tuple[MachinePhase | Opening, r.Control]] = [
    (Opening.START, r.ConnectionStart(None, ["ANONYMOUS"], ["en_US"])),
    (Opening.NEGOTIATING, TUNE),
    (Opening.OPEN_OK, r.ConnectionOpenOk()),
    (MachinePhase.OPENED, r.ConnectionHeartbeat()),
]


def at(phase: MachinePhase | Opening, *, is_server: bool) -> Peer:
    """A peer of an engine that has come to a phase."""
    engine = (ServerEngine if is_server else ClientEngine)(settings(is_server=is_server))
    peer = Peer(engine)
    peer.feed(PROTOCOL_HEADER)
    for here, control in SERVER_WAY if is_server else CLIENT_WAY:
        if here is phase:
            break
        peer.control(control, 0)
    assert engine.phase is phase
    peer.read()
    return peer


FILL: dict[type, r.Control] = {
    r.ConnectionStartOk: SERVER_WAY[0][1],
    r.ConnectionTuneOk: SERVER_WAY[1][1],
    r.ConnectionOpen: SERVER_WAY[2][1],
    r.ConnectionStart: CLIENT_WAY[0][1],
    r.ConnectionTune: TUNE,
    r.SessionAttach: r.SessionAttach(b"s"),
    r.SessionDetach: r.SessionDetach(b"s"),
    r.SessionCommandPoint: r.SessionCommandPoint(0, 0),
}
SERVER_PHASES = [Opening.START_OK, Opening.TUNE_OK, Opening.OPEN, MachinePhase.OPENED]
CLIENT_PHASES = [Opening.START, Opening.NEGOTIATING, Opening.OPEN_OK, MachinePhase.OPENED]
ANYWHERE = (r.ConnectionClose, r.ConnectionHeartbeat)


@pytest.mark.parametrize("spec", CONTROLS, ids=lambda spec: spec.record.__name__)
@pytest.mark.parametrize(
    ("phase", "is_server"),
    [(each, True) for each in SERVER_PHASES] + [(each, False) for each in CLIENT_PHASES],
)
def test_a_control_is_taken_where_the_table_has_it_and_nowhere_else(
    phase: MachinePhase | Opening, is_server: bool, spec: Any
) -> None:
    peer = at(phase, is_server=is_server)
    steps = ServerEngine.steps if is_server else ClientEngine.steps
    peer.control(FILL.get(spec.record) or spec.record(), 0)
    sender = Sender.CLIENT if is_server else Sender.SERVER
    allowed = (phase, spec.record) in steps or spec.record in ANYWHERE
    if spec.class_code == 2 and phase is MachinePhase.OPENED:
        allowed = bool(spec.sender & sender)
    faults = [
        event.condition
        for event in peer.of(ConnectionClosed)
        if event.condition is not None and event.condition.name == FRAMING_ERROR
    ]
    assert bool(faults) is not allowed


def test_a_framing_error_is_told_and_the_connection_waits_for_close_ok() -> None:
    peer = server()
    peer.feed(b"\xff" * 12)
    (close,) = peer.said(r.ConnectionClose)
    assert close.reply_code == CloseCode.FRAMING_ERROR
    was_finished = peer.engine.finished
    assert not was_finished
    peer.control(r.SessionAttach(b"s"))
    peer.control(r.ConnectionCloseOk(), 0)
    assert peer.engine.finished
    assert len(peer.of(ConnectionClosed)) == 1


@pytest.mark.parametrize(
    "frame",
    [
        "0f000010 00000000 00000000 01080000",  # a size of less than the header, after this
        "cf00000c 00000000 00000000",
        "0f04000c 00000000 00000000",
        "0f00000c 00020000 00000000",
    ],
)
def test_frames_that_break_their_format_end_the_connection(frame: str) -> None:
    octets = bytes.fromhex(frame.replace(" ", ""))
    if octets[3] == 0x10:
        octets = octets[:3] + b"\x0b" + octets[4:]
    peer = server()
    peer.feed(octets)
    (closed,) = peer.of(ConnectionClosed)
    assert closed.condition is not None
    assert closed.condition.name == FRAMING_ERROR


def test_a_frame_larger_than_was_offered_is_refused_by_its_size_alone() -> None:
    engine = ServerEngine(attrs.evolve(settings(is_server=True), max_frame_octets=4096))
    peer = Peer(engine)
    peer.open()
    peer.feed(bytes.fromhex("0f01 1001 0001 0001 00000000"))
    assert peer.of(ConnectionClosed)


def test_a_channel_beyond_channel_max_is_refused() -> None:
    peer = server()
    peer.control(r.SessionAttach(b"s"), 9)
    assert peer.said(r.SessionAttached)
    peer.control(r.SessionAttach(b"s"), 10)  # ten channels: 0 to 9
    (closed,) = peer.of(ConnectionClosed)
    assert closed.condition is not None
    assert "channel-max" in str(closed.condition)


def test_terms_of_the_peer_lower_channel_max() -> None:
    told = attrs.evolve(settings(is_server=True), terms=lambda user, vhost: PeerTerms(sessions=2))
    peer = Peer(ServerEngine(told))
    peer.open()
    peer.control(r.SessionAttach(b"a"), 1)
    assert not peer.of(ConnectionClosed)
    peer.control(r.SessionAttach(b"b"), 2)
    assert peer.of(ConnectionClosed)


def test_a_virtual_host_that_nobody_knows_is_refused() -> None:
    """Code 402, invalid-path."""
    terms = PeerTerms(knows_vhost=False)
    peer = Peer(ServerEngine(attrs.evolve(settings(is_server=True), terms=lambda *_: terms)))
    peer.feed(PROTOCOL_HEADER)
    peer.control(r.ConnectionStartOk(mechanism="ANONYMOUS"), 0)
    peer.control(r.ConnectionTuneOk(10), 0)
    peer.control(r.ConnectionOpen("nowhere"), 0)
    (close,) = peer.said(r.ConnectionClose)
    assert close.reply_code == 402
    assert not peer.of(ConnectionOpened)


def test_plain_is_checked() -> None:
    class Users:
        def verify_plain(self, user: str, password: str) -> bool:
            return (user, password) == ("app", "secret")

    told = attrs.evolve(
        settings(is_server=True),
        sasl_required=True,
        sasl_server=lambda: MechanismServer(offer=[Mechanism.PLAIN], verifier=Users()),
    )
    for password, is_good in ((b"secret", True), (b"wrong", False)):
        peer = Peer(ServerEngine(told))
        peer.feed(PROTOCOL_HEADER)
        (start,) = peer.said(r.ConnectionStart)
        assert start.mechanisms == ["PLAIN"]
        peer.control(r.ConnectionStartOk(mechanism="PLAIN"), 0)
        assert peer.said(r.ConnectionSecure) == [r.ConnectionSecure(b"")]
        peer.control(r.ConnectionSecureOk(b"\0app\0" + password), 0)
        if is_good:
            assert len(peer.said(r.ConnectionTune)) == 1
            peer.control(r.ConnectionTuneOk(10, 65535), 0)
            peer.control(r.ConnectionOpen("v"), 0)
            (opened,) = peer.of(ConnectionOpened)
            assert (opened.user, opened.hostname) == ("app", "v")
        else:
            (close,) = peer.said(r.ConnectionClose)
            assert close.reply_code == CloseCode.CONNECTION_FORCED
            (closed,) = peer.of(ConnectionClosed)
            assert closed.condition is not None
            assert closed.condition.name == UNAUTHORIZED_ACCESS


def test_external_takes_the_identity_of_the_layers_below() -> None:
    told = attrs.evolve(
        settings(is_server=True),
        sasl_required=True,
        sasl_server=lambda: MechanismServer(offer=[Mechanism.EXTERNAL], external_user="cn=app"),
    )
    peer = Peer(ServerEngine(told))
    peer.feed(PROTOCOL_HEADER)
    peer.control(r.ConnectionStartOk(mechanism="EXTERNAL", response=b""), 0)
    assert peer.engine.user == "cn=app"  # type: ignore[union-attr]


def test_a_mechanism_that_was_not_offered_is_refused() -> None:
    peer = Peer(ServerEngine(settings(is_server=True)))
    peer.feed(PROTOCOL_HEADER)
    peer.control(r.ConnectionStartOk(mechanism="CRAM-MD5"), 0)
    (closed,) = peer.of(ConnectionClosed)
    assert closed.condition is not None
    assert closed.condition.name == UNAUTHORIZED_ACCESS
    assert peer.engine.finished
    assert [type(each) for _, each in peer.read()] == [r.ConnectionStart]  # no close


@pytest.mark.parametrize(
    "told",
    [
        r.ConnectionTuneOk(channel_max=257),
        r.ConnectionTuneOk(max_frame_size=5000),
        r.ConnectionTuneOk(max_frame_size=4095),
        r.ConnectionTuneOk(heartbeat=61),
    ],
)
def test_a_client_that_asks_for_more_than_was_offered_is_closed_without_a_word(
    told: r.ConnectionTuneOk,
) -> None:
    peer = Peer(ServerEngine(attrs.evolve(settings(is_server=True), max_frame_octets=4999)))
    peer.feed(PROTOCOL_HEADER)
    peer.control(r.ConnectionStartOk(mechanism="ANONYMOUS"), 0)
    (offered,) = peer.said(r.ConnectionTune)
    assert (offered.channel_max, offered.max_frame_size, offered.heartbeat_max) == (256, 4999, 60)
    peer.control(told, 0)
    assert peer.engine.finished
    assert peer.read() == []
    assert peer.of(ConnectionClosed)


def test_what_was_offered_may_be_taken_whole() -> None:
    peer = Peer(ServerEngine(settings(is_server=True)))
    peer.feed(PROTOCOL_HEADER)
    peer.control(r.ConnectionStartOk(mechanism="ANONYMOUS"), 0)
    peer.control(r.ConnectionTuneOk(256, 65535, 60), 0)
    peer.control(r.ConnectionOpen("/"), 0)
    assert peer.said(r.ConnectionOpenOk)
    peer.control(r.SessionAttach(b"s"), 255)
    assert peer.said(r.SessionAttached)


@pytest.mark.parametrize("is_server", [True, False])
def test_a_frame_above_the_agreed_size_ends_the_connection(is_server: bool) -> None:
    if is_server:
        peer = Peer(ServerEngine(settings(is_server=True)))
        peer.feed(PROTOCOL_HEADER)
        peer.control(r.ConnectionStartOk(mechanism="ANONYMOUS"), 0)
        peer.control(r.ConnectionTuneOk(10, 5000), 0)
        peer.control(r.ConnectionOpen("/"), 0)
    else:
        peer = at(Opening.NEGOTIATING, is_server=False)
        peer.control(attrs.evolve(TUNE, max_frame_size=5000), 0)
        peer.control(r.ConnectionOpenOk(), 0)
    peer.read()
    heartbeat = bytes.fromhex("010a0000")
    peer.feed(assembly(CONTROL, 0, heartbeat, 5000))
    assert not peer.of(ConnectionClosed)
    peer.feed(bytes.fromhex("0f00 1389 0000 0000 00000000"))  # 5001 octets
    (close,) = peer.said(r.ConnectionClose)
    assert close.reply_code == CloseCode.FRAMING_ERROR


def test_our_client_logs_in_by_plain() -> None:
    told = attrs.evolve(
        settings(is_server=False),
        sasl_client=lambda: MechanismClient(user="app", password="secret"),
    )
    peer = Peer(ClientEngine(told))
    peer.feed(PROTOCOL_HEADER)
    peer.control(r.ConnectionStart(None, ["PLAIN", "ANONYMOUS"], ["en_US"]), 0)
    (answer,) = peer.said(r.ConnectionStartOk)
    assert (answer.mechanism, answer.response) == ("PLAIN", b"\0app\0secret")
    peer.control(r.ConnectionClose(320, "no"), 0)
    (closed,) = peer.of(ConnectionClosed)
    assert closed.condition is not None
    assert closed.condition.name == UNAUTHORIZED_ACCESS


def test_a_broker_that_knows_us_by_no_name_is_sent_no_user_id() -> None:
    """It would end the session (message-properties.user-id); a header keeps it."""
    engine = broker().engine
    header = write_header(None, r.MessageProperties(user_id=b"app"))
    delivery = OutgoingDelivery(
        DeliveryNumber(1), DeliveryTag(b"1"), make_content(b"", header, b""), Protocol.AMQP_0_10
    )
    _, told, _ = read_header(engine.outgoing.ready(delivery).header)
    assert told.user_id is None
    assert told.application_headers == {"x-amqp-user-id": b"app"}


def test_a_redirect_says_where_to_dial() -> None:
    peer = at(Opening.OPEN_OK, is_server=False)
    peer.control(r.ConnectionRedirect("other.example:5673", None), 0)
    (closed,) = peer.of(ConnectionClosed)
    assert closed.condition is not None
    assert closed.condition.name == CONNECTION_REDIRECT
    assert closed.condition.info == {"network-host": "other.example", "port": 5673}


@pytest.mark.parametrize("is_redirectable", [True, False])
def test_a_broker_may_redirect_where_the_file_obeys_it(is_redirectable: bool) -> None:
    told = attrs.evolve(settings(is_server=False), is_redirectable=is_redirectable)
    peer = Peer(ClientEngine(told))
    peer.feed(PROTOCOL_HEADER)
    peer.control(r.ConnectionStart(None, ["ANONYMOUS"], ["en_US"]), 0)
    peer.control(TUNE, 0)
    (asked,) = peer.said(r.ConnectionOpen)
    assert asked.insist is not is_redirectable


def test_a_broker_of_another_version_is_told_from_one_that_fails() -> None:
    peer = Peer(ClientEngine(settings(is_server=False)))
    peer.feed(b"AMQP\x00\x00\x09\x01")
    (closed,) = peer.of(ConnectionClosed)
    assert closed.condition is not None
    assert closed.condition.name == NOT_IMPLEMENTED


@pytest.mark.parametrize(
    ("least", "most", "chosen"), [(0, 20, 20), (90, 120, 90), (0, None, 60), (None, None, 0)]
)
def test_the_heartbeat_is_what_both_permit(
    least: int | None, most: int | None, chosen: int
) -> None:
    peer = at(Opening.NEGOTIATING, is_server=False)
    peer.control(attrs.evolve(TUNE, heartbeat_min=least, heartbeat_max=most), 0)
    (answer,) = peer.said(r.ConnectionTuneOk)
    assert answer.heartbeat == chosen


def test_heartbeats_are_sent_when_nothing_else_is_and_silence_ends_the_connection() -> None:
    peer = at(Opening.TUNE_OK, is_server=True)
    peer.control(r.ConnectionTuneOk(10, 65535, 10), 0)
    peer.control(r.ConnectionOpen("/"), 0)
    peer.read()
    peer.now = 5.0
    peer.take(peer.engine.handle_deadline(5.0))
    peer.now = 10.0
    peer.take(peer.engine.handle_deadline(10.0))
    assert peer.said(r.ConnectionHeartbeat) == [r.ConnectionHeartbeat()]
    peer.now = 20.0
    peer.take(peer.engine.handle_deadline(20.0))
    assert peer.of(ConnectionClosed)


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        (None, CloseCode.NORMAL),
        (Condition(NOT_FOUND, "x"), CloseCode.INVALID_PATH),
        (Condition(UNAUTHORIZED_ACCESS, "x"), CloseCode.CONNECTION_FORCED),
    ],
)
def test_a_close_of_the_cores_has_the_nearest_code(
    condition: Condition | None, code: CloseCode
) -> None:
    for peer in (server(), broker()):
        peer.engine.execute(CloseConnection(condition))
        (close,) = peer.said(r.ConnectionClose)
        assert close.reply_code == code
