"""Rules of class connection, and of frames, on octets of 0-10."""

import attrs
import pytest

from router.model.events import ConnectionClosed, ConnectionOpened
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import encode_control
from router.wire.v0_10.framing import (
    COMMAND,
    CONTROL,
    FRAME,
    MIN_FRAME_MAX,
    PROTOCOL_HEADER,
    WHOLE,
    assembly,
)
from router.wire.v0_10.reply import CloseCode
from router.wire.v0_10.server import ServerEngine
from tests.support.peer_0_10 import Peer, Transfer, server, settings
from tests.support.worker_0_10 import Worker


def started() -> tuple[Peer, r.ConnectionStart]:
    peer = Peer(ServerEngine(settings(is_server=True)))
    peer.feed(PROTOCOL_HEADER)
    (start,) = peer.said(r.ConnectionStart)
    return peer, start


def test_start_offers_en_us_and_tells_product_and_version() -> None:
    told = attrs.evolve(settings(is_server=True), properties={"version": "1"})
    peer = Peer(ServerEngine(told))
    peer.feed(PROTOCOL_HEADER)
    (start,) = peer.said(r.ConnectionStart)
    assert start.locales == ["en_US"]
    assert (start.server_properties or {}).keys() == {"product", "container", "version"}


def test_the_first_header_that_is_no_header_of_0_10_ends_the_connection() -> None:
    engine = ServerEngine(settings(is_server=True))
    (closed,) = engine.receive_data(b"HTTP/1.1", 0.0)
    assert isinstance(closed, ConnectionClosed)
    assert engine.finished
    assert not bytes(engine.data_to_send())[8:]


def test_a_frame_of_4096_octets_is_taken_before_a_size_is_agreed() -> None:
    peer, _ = started()
    bare = r.ConnectionStartOk(client_properties={"x": b""}, mechanism="ANONYMOUS")
    missing = MIN_FRAME_MAX - 12 - len(encode_control(bare))
    told = attrs.evolve(bare, client_properties={"x": bytes(missing)})
    octets = assembly(CONTROL, 0, encode_control(told), MIN_FRAME_MAX)
    assert len(octets) == MIN_FRAME_MAX
    peer.feed(octets)
    assert len(peer.said(r.ConnectionTune)) == 1


def test_what_is_offered_in_tune_keeps_its_own_limits() -> None:
    peer, _ = started()
    peer.control(r.ConnectionStartOk(mechanism="ANONYMOUS"), 0)
    (tune,) = peer.said(r.ConnectionTune)
    assert tune.max_frame_size is not None
    assert tune.max_frame_size >= MIN_FRAME_MAX
    assert tune.heartbeat_min is not None
    assert tune.heartbeat_max is not None
    assert tune.heartbeat_max >= tune.heartbeat_min


def test_no_frame_is_larger_than_what_was_agreed() -> None:
    client = Worker().connect()
    assert isinstance(client.engine, ServerEngine)
    client.engine.frame_max = 4096
    client.command(r.QueueDeclare(queue="own", exclusive=True))
    client.subscribe("own")
    client.read()
    for start in range(0, 20_000, 5_000):
        client.publish("own", bytes(start + 4080), mode=1)
    octets, sizes = bytes(client.engine.data_to_send()), []
    at = 0
    while at < len(octets):
        sizes.append(int.from_bytes(octets[at + 2 : at + 4], "big"))
        at += sizes[-1]
    assert max(sizes) == 4096
    assert [len(each.body) for each in client.said(Transfer)] == [4080, 9080, 14080, 19080]


@pytest.mark.parametrize("insist", [True, False])
def test_nobody_is_redirected(insist: bool) -> None:
    peer, _ = started()
    peer.control(r.ConnectionStartOk(mechanism="ANONYMOUS"), 0)
    peer.control(r.ConnectionTuneOk(10), 0)
    peer.read()
    peer.control(r.ConnectionOpen("/", ["anything"], insist), 0)
    assert [type(each) for _, each in peer.read()] == [r.ConnectionOpenOk]
    assert peer.of(ConnectionOpened)


def test_close_is_answered_by_close_ok_and_nothing_behind_it() -> None:
    peer = server()
    peer.control(r.ConnectionClose(200, "bye"), 0)
    assert [each for _, each in peer.read()] == [r.ConnectionCloseOk()]
    assert peer.engine.finished
    (closed,) = peer.of(ConnectionClosed)
    assert closed.condition is None


def test_a_stream_that_ends_without_close_ok_is_told_as_an_error() -> None:
    peer = server()
    peer.take(peer.engine.receive_eof(peer.now))
    (closed,) = peer.of(ConnectionClosed)
    assert closed.condition is not None


@pytest.mark.parametrize(("kind", "track"), [(CONTROL, 1), (COMMAND, 0)])
def test_controls_come_on_track_0_and_commands_on_track_1_alone(kind: int, track: int) -> None:
    peer = server()
    peer.attach()
    octets = encode_control(r.SessionFlush()) if kind == CONTROL else bytes.fromhex("03010100")
    peer.feed(FRAME.pack(WHOLE, kind, 12 + len(octets), 0, track, 1) + octets)
    (close,) = peer.said(r.ConnectionClose)
    assert close.reply_code == CloseCode.FRAMING_ERROR


def test_what_the_router_says_is_on_the_track_of_its_kind() -> None:
    peer = server()
    peer.attach()
    peer.command(r.ExchangeQuery("amq.direct"))
    octets, seen = bytes(peer.engine.data_to_send()), set()
    while octets:
        _, kind, size, _, track, _ = FRAME.unpack_from(octets)
        seen.add((kind, track))
        octets = octets[size:]
    assert seen == {(0, 0), (1, 1)}
