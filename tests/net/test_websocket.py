"""AMQP over WebSocket at a listener: upgrade, frames, and peers that break the rules."""

import itertools
import re

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from router.model.condition import CONNECTION_FORCED, FRAMING_ERROR
from router.net.reception import UNWRAPPED_OCTETS, ListenerSettings
from router.net.tls_files import TlsContext, TlsFiles
from router.net.transport import transport_of
from router.net.upgrade import HEAD_OCTETS
from router.net.websocket import MESSAGE_OCTETS, Frames, WebSocketEngine
from router.wire.detect import TlsOffer, WebSocketOffer
from tests.support.plain import PlainEngine
from tests.support.planes import (
    HEADER,
    SASL_HEADER,
    TLS_HEADER,
    House,
    Papers,
    house,
    listener_settings,
    papers,
    receive_exactly,
    receive_rest,
    set_clock,
)
from tests.support.websockets import (
    ACCEPT,
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    Received,
    close_frame,
    frame,
    receive_frame,
    receive_head,
    request,
    upgraded,
)

PAGE = "https://app.example"


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return papers(tmp_path_factory.mktemp("papers"))


def websocket_settings(
    offer: WebSocketOffer = WebSocketOffer.OFFERED,
    tls: TlsContext | None = None,
    tls_offer: TlsOffer = TlsOffer.REQUIRED,
) -> ListenerSettings:
    usual = listener_settings(tls=tls, offer=tls_offer)
    door = attrs.evolve(usual.door, websocket=offer)
    return attrs.evolve(usual, door=door, origins=frozenset({PAGE}))


def transports(at: House) -> list[str]:
    return [transport_of(each) for each in at.plane.switchboard.connections.values()]


async def answer_to(at: House, octets: bytes) -> str:
    peer = await at.dial()
    await peer.send_all(octets)
    return (await receive_rest(peer)).decode()


# The upgrade


async def test_amqp_goes_through_a_websocket_beside_amqp_on_the_same_port() -> None:
    async with house() as at:
        await at.listen(websocket_settings())
        peer = await at.dial()
        await peer.send_all(request())
        head = await receive_head(peer)
        assert head.startswith("HTTP/1.1 101 ")
        assert f"Sec-WebSocket-Accept: {ACCEPT}\r\n" in head
        await peer.send_all(frame(HEADER))
        assert (await receive_frame(peer)).payload == HEADER
        other = await at.dial()
        await other.send_all(HEADER)
        assert await receive_exactly(other, 8) == HEADER
        assert transports(at) == ["ws", "tcp"]


async def test_frames_may_follow_the_request_at_once_and_come_octet_by_octet() -> None:
    async with house() as at:
        await at.listen(websocket_settings())
        peer = await at.dial()
        for octet in request() + frame(HEADER):
            await peer.send_all(bytes([octet]))
        await receive_head(peer)
        assert (await receive_frame(peer)).payload == HEADER


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ("amqp", "amqp"),
        ("AMQPWSB10", "AMQPWSB10"),
        ("AMQPWSB10, amqp", "amqp"),
        ("mqtt, amqp", "amqp"),
    ],
)
async def test_the_subprotocol_is_amqp_if_it_is_offered(offered: str, chosen: str) -> None:
    async with house() as at:
        await at.listen(websocket_settings())
        peer = await at.dial()
        await peer.send_all(request(sec_websocket_protocol=offered))
        assert f"Protocol: {chosen}\r\n" in await receive_head(peer)


LISTED = {
    "h2c, before": ("Upgrade: websocket", "Upgrade: h2c, websocket"),
    "h2c, behind": ("Upgrade: websocket", "Upgrade: WebSocket ,h2c"),
    "a line each": ("Upgrade: websocket", "Upgrade: h2c\r\nupgrade: websocket"),
    "empty members": ("Upgrade: websocket", "Upgrade: , websocket,,"),
    "keep-alive, before": ("Connection: Upgrade", "Connection: keep-alive, Upgrade"),
    "a line each, before": ("Connection: Upgrade", "Connection: upgrade\r\nConnection: keep-alive"),
    "a line each, behind": ("Connection: Upgrade", "Connection: keep-alive\r\nCONNECTION: UPGRADE"),
    "tabs around it": ("Connection: Upgrade", "Connection:\tupgrade\t"),
}


@pytest.mark.parametrize("what", LISTED)
async def test_a_websocket_may_be_one_of_several_wishes(what: str) -> None:
    """RFC 9110 §5.3: lines of one name are one list; §7.8: the server chooses a protocol of it."""
    old, new = (each.encode() for each in LISTED[what])
    octets = request(upgrade="websocket", connection="Upgrade")
    title = re.compile(re.escape(old), re.IGNORECASE)
    assert len(title.findall(octets)) == 1
    async with house() as at:
        await at.listen(websocket_settings())
        peer = await at.dial()
        await peer.send_all(title.sub(new, octets))
        head = await receive_head(peer)
        assert head.startswith("HTTP/1.1 101 ")
        assert re.search(r"(?im)^upgrade: websocket\r$", head)


async def test_no_extension_is_accepted_so_nothing_is_compressed() -> None:
    async with house() as at:
        await at.listen(websocket_settings())
        peer = await at.dial()
        await peer.send_all(request(sec_websocket_extensions="permessage-deflate"))
        assert "extensions" not in (await receive_head(peer)).lower()


WRONG = {
    "no subprotocol": (request(sec_websocket_protocol=None), 400),
    "a wrong subprotocol": (request(sec_websocket_protocol="mqtt"), 400),
    "a subprotocol in other letters": (request(sec_websocket_protocol="AMQP"), 400),
    "no key": (request(sec_websocket_key=None), 400),
    "a short key": (request(sec_websocket_key="c2hvcnQ="), 400),
    "a key that is no base64": (request(sec_websocket_key="#" * 24), 400),
    "no version": (request(sec_websocket_version=None), 400),
    "another version": (request(sec_websocket_version="8"), 426),
    "no upgrade": (request(upgrade=None), 400),
    "an upgrade to something else": (request(upgrade="h2c"), 400),
    "upgrades to something else": (request(upgrade="h2c, websocket2"), 400),
    "no connection header": (request(connection=None), 400),
    "no host": (request(host=None), 400),
    "a host that is no name": (request(host="b\xfccher..x"), 400),
    "a body": (request(content_length="5"), 400),
    "a chunked body": (request(transfer_encoding="chunked"), 400),
    "HTTP/1.0": (request("GET / HTTP/1.0"), 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "another method": (request("POST / HTTP/1.1"), 405),
    "a line that is none": (b"GETGETGET\r\n\r\n", 400),
    "a header that is none": (b"GET / HTTP/1.1\r\nHost\r\n\r\n", 400),
    "octets that are no ASCII": (request(connection="\xff\xfe"), 400),
    "a huge header": (request(cookie="x" * 2 * HEAD_OCTETS), 431),
    "headers without end": (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 4000, 431),
    "a foreign origin": (request(origin="https://evil.example"), 403),
    "an origin without name": (request(origin="null"), 403),
    "an origin that only begins alike": (request(origin=PAGE + ".evil.example"), 403),
}


@pytest.mark.parametrize("what", WRONG)
async def test_a_wrong_request_gets_its_status_and_the_listener_goes_on(what: str) -> None:
    octets, status = WRONG[what]
    async with house() as at:
        await at.listen(websocket_settings())
        with capture_logs() as log:
            answer = await answer_to(at, octets)
        assert answer.startswith(f"HTTP/1.1 {status} ")
        assert "Connection: close\r\n" in answer
        assert [each["event"] for each in log].count("connection.refused") == 1
        assert at.reception.handshake_count == 0
        assert at.plane.connection_count == 0
        await upgraded(await at.dial())


async def test_a_version_that_is_not_spoken_is_told_the_one_that_is() -> None:
    async with house() as at:
        await at.listen(websocket_settings())
        answer = await answer_to(at, request(sec_websocket_version="8"))
        assert "Sec-WebSocket-Version: 13\r\n" in answer
        assert "Sec-WebSocket-Version has to be 13" in answer


@pytest.mark.parametrize("origin", [PAGE, PAGE.upper()])
async def test_a_page_of_an_allowed_origin_connects(origin: str) -> None:
    async with house() as at:
        await at.listen(websocket_settings())
        await upgraded(await at.dial(), origin=origin)


async def test_any_page_connects_if_the_file_says_so() -> None:
    async with house() as at:
        await at.listen(attrs.evolve(websocket_settings(), origins=frozenset("*")))
        await upgraded(await at.dial(), origin="https://any.example")


async def test_a_listener_for_websockets_alone_serves_nothing_else() -> None:
    async with house() as at:
        await at.listen(websocket_settings(WebSocketOffer.REQUIRED))
        for octets in (HEADER, SASL_HEADER, TLS_HEADER, b"\x80\x01", b"SSH-2.0"):
            assert await answer_to(at, octets) == ""
        await upgraded(await at.dial())


async def test_http_is_refused_where_no_websocket_is_served() -> None:
    async with house() as at:
        await at.listen(listener_settings())
        peer = await at.dial()
        await peer.send_all(request())
        assert await receive_rest(peer) == HEADER


async def test_what_begins_no_amqp_inside_is_answered_inside_and_closed() -> None:
    async with house() as at:
        await at.listen(websocket_settings())
        peer = await upgraded(await at.dial())
        await peer.send_all(frame(b"SSH-2.0"))
        assert (await receive_frame(peer)).payload == HEADER
        assert (await receive_frame(peer)).opcode == CLOSE
        assert await receive_rest(peer) == b""


async def test_tls_is_not_begun_inside_of_a_websocket(signed: Papers) -> None:
    context = TlsContext(signed.server_files(), TlsFiles.server_context)
    async with house() as at:
        await at.listen(websocket_settings(tls=context, tls_offer=TlsOffer.OFFERED))
        peer = await upgraded(await at.dial())
        await peer.send_all(frame(TLS_HEADER))
        assert (await receive_frame(peer)).payload == HEADER
        assert (await receive_frame(peer)).opcode == CLOSE


async def test_wss_is_tls_with_the_same_inside(signed: Papers) -> None:
    context = TlsContext(signed.server_files(), TlsFiles.server_context)
    async with house() as at:
        await at.listen(websocket_settings(tls=context))
        assert await answer_to(at, request()) == ""
        peer = trio.SSLStream(
            await at.dial(),
            signed.client_context(),
            server_hostname="localhost",
            https_compatible=True,
        )
        await upgraded(peer)
        await peer.send_all(frame(HEADER + b"x" * 100_000))
        echoed = b""
        while len(echoed) < 100_008:
            echoed += (await receive_frame(peer)).payload
        assert echoed == HEADER + b"x" * 100_000
        assert transports(at) == ["wss"]
        await peer.send_all(close_frame(1000))
        assert (await receive_frame(peer)).code == 1000
        assert await receive_rest(peer) == b""


@pytest.mark.parametrize("websocket", [True, False])
async def test_early_octets_over_tls_are_read_to_their_end_however_long_that_takes(
    signed: Papers, websocket: bool
) -> None:
    context = TlsContext(signed.server_files(), TlsFiles.server_context)
    ticks = itertools.count()
    async with house() as at:
        set_clock(at.plane, lambda: next(ticks) * 0.005)  # each look at the clock is a share
        await at.listen(websocket_settings(tls=context))
        peer = trio.SSLStream(
            await at.dial(),
            signed.client_context(),
            server_hostname="localhost",
            https_compatible=True,
        )
        octets = HEADER + b"x" * 60_000
        await peer.send_all(request() + frame(octets) if websocket else octets)
        with trio.fail_after(10):
            if websocket:
                await receive_head(peer)
                echoed = b""
                while len(echoed) < len(octets):
                    echoed += (await receive_frame(peer)).payload
            else:
                echoed = await receive_exactly(peer, len(octets))
        assert echoed == octets


async def test_a_wrong_request_over_tls_is_answered_over_tls(signed: Papers) -> None:
    context = TlsContext(signed.server_files(), TlsFiles.server_context)
    async with house() as at:
        await at.listen(websocket_settings(tls=context))
        raw = await at.dial()
        peer = trio.SSLStream(
            raw, signed.client_context(), server_hostname="localhost", https_compatible=True
        )
        await peer.send_all(request(sec_websocket_protocol="mqtt"))
        assert (await receive_head(peer)).startswith("HTTP/1.1 400 ")


async def test_silence_in_the_request_ends_in_time(mock_clock: MockClock) -> None:
    async with house() as at:
        set_clock(at.plane, trio.current_time)
        await at.listen(attrs.evolve(websocket_settings(), handshake_seconds=15.0))
        peer = await at.dial()
        await peer.send_all(request()[:-2])
        await wait_all_tasks_blocked(0.01)
        assert at.reception.handshake_count == 1
        mock_clock.jump(15.0)
        assert (await receive_rest(peer)).startswith(b"HTTP/1.1 408 ")


async def test_a_request_that_comes_ever_more_slowly_ends_in_time(mock_clock: MockClock) -> None:
    async with house() as at:
        set_clock(at.plane, trio.current_time)
        await at.listen(attrs.evolve(websocket_settings(), handshake_seconds=15.0))
        peer = await at.dial()
        for octet in request()[:15]:
            await peer.send_all(bytes([octet]))
            await wait_all_tasks_blocked(0.001)
            mock_clock.jump(1.0)
        assert (await receive_rest(peer)).startswith(b"HTTP/1.1 408 ")


async def test_silence_after_half_a_frame_ends_in_time(mock_clock: MockClock) -> None:
    async with house() as at:
        set_clock(at.plane, trio.current_time)
        await at.listen(attrs.evolve(websocket_settings(), handshake_seconds=15.0))
        peer = await upgraded(await at.dial())
        await peer.send_all(frame(HEADER)[:9])
        await wait_all_tasks_blocked(0.01)
        mock_clock.jump(15.0)
        assert (await receive_frame(peer)).payload == HEADER
        assert (await receive_frame(peer)).opcode == CLOSE


async def test_pings_are_answered_before_the_protocol_inside_is_known() -> None:
    async with house() as at:
        await at.listen(websocket_settings())
        peer = await upgraded(await at.dial())
        for payload in (b"one", b"two"):
            await peer.send_all(frame(payload, PING))
            assert await receive_frame(peer) == Received(PONG, payload)
        await peer.send_all(frame(HEADER[:3], fin=False) + frame(b"three", PING))
        assert await receive_frame(peer) == Received(PONG, b"three")
        await peer.send_all(frame(HEADER[3:], CONTINUATION) + frame(b"four", PING))
        answers = [await receive_frame(peer) for _ in range(2)]
        assert [each.payload for each in answers] == [HEADER, b"four"], "each is answered once"
        await peer.send_all(frame(b"after"))
        assert (await receive_frame(peer)).payload == b"after"


@pytest.mark.parametrize("pings", [False, True])
async def test_a_websocket_without_a_header_ends_in_time_whatever_it_pings(
    mock_clock: MockClock, pings: bool
) -> None:
    async with house() as at:
        set_clock(at.plane, trio.current_time)
        await at.listen(attrs.evolve(websocket_settings(), handshake_seconds=15.0))
        peer = await upgraded(await at.dial())
        for _ in range(3):
            await wait_all_tasks_blocked(0.01)
            mock_clock.jump(4.0)
            if pings:
                await peer.send_all(frame(b"still here", PING))
                assert (await receive_frame(peer)).opcode == PONG
        await wait_all_tasks_blocked(0.01)
        mock_clock.jump(3.5)
        assert (await receive_frame(peer)).payload == HEADER
        assert (await receive_frame(peer)).opcode == CLOSE


# Frames


@pytest.fixture
def engine() -> WebSocketEngine:
    return WebSocketEngine(PlainEngine(is_open=True), Frames(is_client=False))


def inner(engine: WebSocketEngine) -> PlainEngine:
    assert isinstance(engine.inner, PlainEngine)
    return engine.inner


def test_the_engine_inside_is_told_that_its_peer_has_left(engine: WebSocketEngine) -> None:
    engine.peer_left()
    assert inner(engine).has_left


def sent(engine: WebSocketEngine) -> list[tuple[int, bytes]]:
    """Takes what the engine shows, as frames."""
    octets = b""
    while part := bytes(engine.data_to_send()):
        octets += part
        engine.bytes_sent(len(part))
    frames = []
    while octets:
        length, at = octets[1], 2
        if length == 126:
            length, at = int.from_bytes(octets[2:4]), 4
        frames.append((octets[0], octets[at : at + length]))
        octets = octets[at + length :]
    return frames


def test_fragments_and_pings_between_them_are_one_stream(engine: WebSocketEngine) -> None:
    engine.receive_data(frame(b"ab", fin=False) + frame(b"1", PING), 0.0)
    engine.receive_data(frame(b"cd", CONTINUATION, fin=False) + frame(b"2", PING), 0.0)
    engine.receive_data(frame(b"ef", CONTINUATION), 0.0)
    assert inner(engine).received == b"abcdef"
    assert sent(engine) == [(0x80 | PONG, b"2")]  # the latest is enough (§5.5.3)


def test_a_frame_is_passed_on_as_far_as_it_has_come(engine: WebSocketEngine) -> None:
    octets = frame(b"x" * 70_000)
    engine.receive_data(octets[:30_014], 0.0)
    assert len(inner(engine).received) == 30_000
    engine.receive_data(octets[30_014:], 0.0)
    assert len(inner(engine).received) == 70_000


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=300), max_size=8), st.integers(1, 40))
def test_any_cut_of_any_frames_is_the_same_stream(payloads: list[bytes], step: int) -> None:
    engine = WebSocketEngine(PlainEngine(is_open=True), Frames(is_client=False))
    octets = b"".join(frame(each) for each in payloads)
    clean = b"".join(payloads)
    if b"!" in clean or b"?" in clean:
        return
    for at in range(0, len(octets), step):
        engine.receive_data(octets[at : at + step], 0.0)
    assert inner(engine).received == clean


def test_output_leaves_in_messages_that_every_broker_takes(engine: WebSocketEngine) -> None:
    inner(engine).output += b"x" * (MESSAGE_OCTETS + 10)
    assert [len(payload) for _, payload in sent(engine)] == [MESSAGE_OCTETS, 10]
    assert not engine.output_octets


def test_a_client_masks_what_it_sends() -> None:
    client = WebSocketEngine(PlainEngine(is_open=True), Frames(is_client=True))
    inner(client).output += b"hello"
    octets = bytes(client.data_to_send())
    assert octets[1] == 0x80 | 5
    server = Frames(is_client=False)
    assert server.receive(octets) == b"hello"


def test_a_slow_reader_gets_the_pong_of_its_last_ping(engine: WebSocketEngine) -> None:
    for number in range(10_000):
        engine.receive_data(frame(str(number).encode(), PING), 0.0)
    assert engine.output_octets == 1
    assert sent(engine) == [(0x80 | PONG, b"9999")]


BROKEN = {
    "text": (frame(b"hello", TEXT), 1003),
    "text that is no UTF-8": (frame(b"\xff\xff", TEXT), 1007),
    "an unmasked frame": (frame(b"x", masked=False), 1002),
    "a reserved bit": (frame(b"x", reserved=4), 1002),
    "the last reserved bit": (frame(b"x", reserved=1), 1002),
    "an opcode that is none": (frame(b"x", 3), 1002),
    "a control opcode that is none": (frame(b"x", 11), 1002),
    "an oversize ping": (frame(b"x" * 126, PING), 1002),
    "a ping in fragments": (frame(b"x", PING, fin=False), 1002),
    "a continuation of nothing": (frame(b"x", CONTINUATION), 1002),
    "a message inside of a message": (frame(b"x", fin=False) + frame(b"y"), 1002),
    "a length of 2^63": (b"\x82\xff" + b"\xff" * 8 + b"mask", 1002),
    "a length in more octets than it needs": (b"\x82\xfe\x00\x05mask", 1002),
    "a close frame of one octet": (frame(b"x", CLOSE), 1002),
    "a close code that is none": (close_frame(999), 1002),
    "a close code that is never sent": (close_frame(1006), 1002),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_frame_ends_the_connection_with_its_code(
    engine: WebSocketEngine, what: str
) -> None:
    octets, code = BROKEN[what]
    engine.receive_data(frame(b"good") + octets, 0.0)
    assert bytes(inner(engine).received).startswith(b"good")
    assert inner(engine).saw_eof
    assert engine.finished
    [payload] = [each for opcode, each in sent(engine) if opcode & 0x0F == CLOSE]
    assert int.from_bytes(payload[:2]) == code
    engine.receive_data(frame(b"more"), 0.0)
    engine.receive_eof(0.0)
    assert sent(engine) == []


@pytest.mark.parametrize("what", BROKEN)
async def test_a_listener_survives_broken_frames(what: str) -> None:
    octets, code = BROKEN[what]
    async with house() as at:
        await at.listen(websocket_settings())
        early = await upgraded(await at.dial())
        await early.send_all(octets)
        assert (await receive_frame(early)).code == code
        assert await receive_rest(early) == b""
        late = await upgraded(await at.dial())
        await late.send_all(frame(HEADER))
        assert (await receive_frame(late)).payload == HEADER
        await late.send_all(octets)
        answer = await receive_frame(late)
        while answer.opcode != CLOSE:
            answer = await receive_frame(late)
        assert answer.code == code
        await late.aclose()
        await early.aclose()
        with trio.fail_after(5):
            await at.plane.wait_empty()
        await upgraded(await at.dial())


@pytest.mark.parametrize(("code", "answer"), [(1000, 1000), (1001, 1001), (1011, 1000)])
def test_a_close_frame_is_answered_and_nothing_follows(
    engine: WebSocketEngine, code: int, answer: int
) -> None:
    inner(engine).output += b"on its way"
    engine.receive_data(close_frame(code) + frame(b"late"), 0.0)
    assert inner(engine).saw_eof
    assert not inner(engine).received
    assert sent(engine) == [(0x80 | CLOSE, answer.to_bytes(2))]


def test_our_close_frame_comes_behind_the_last_output(engine: WebSocketEngine) -> None:
    inner(engine).farewell = b"bye"
    engine.receive_data(frame(b"!"), 0.0)
    assert engine.finished
    engine.receive_eof(0.0)
    assert sent(engine) == [(0x80 | BINARY, b"bye"), (0x80 | CLOSE, (1000).to_bytes(2))]


def test_the_end_of_a_websocket_says_why() -> None:
    broken = Frames(is_client=False)
    broken.receive(frame(b"x", TEXT))
    assert broken.ending is not None
    assert broken.ending.condition is not None
    assert broken.ending.condition.name == FRAMING_ERROR
    ended = Frames(is_client=False)
    ended.receive(frame((1013).to_bytes(2) + b"too \x1b many", CLOSE))
    assert ended.ending is not None
    assert ended.ending.condition is not None
    assert ended.ending.condition.name == CONNECTION_FORCED
    assert ended.ending.condition.description is not None
    assert "1013: too \\x1b many" in ended.ending.condition.description
    orderly = Frames(is_client=False)
    orderly.receive(close_frame(1000))
    assert orderly.ending is not None
    assert orderly.ending.condition is None


async def test_thousands_of_tiny_frames_neither_stop_nor_break_the_listener() -> None:
    async with house() as at:
        await at.listen(websocket_settings())
        peer = await upgraded(await at.dial())
        await peer.send_all(frame(HEADER))
        await receive_frame(peer)
        flood = b"".join(frame(b"") + frame(b"", PONG) for _ in range(10_000))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.send_all, flood)
            other = await upgraded(await at.dial())
            await other.send_all(frame(HEADER))
            assert (await receive_frame(other)).payload == HEADER
        await peer.send_all(frame(b"after all"))
        assert (await receive_frame(peer)).payload == b"after all"


async def test_frames_without_amqp_are_not_read_for_ever() -> None:
    async with house() as at:
        await at.listen(websocket_settings())
        peer = await upgraded(await at.dial())
        with capture_logs() as log:
            await peer.send_all(frame(b"", PING) * (UNWRAPPED_OCTETS // 6 + 100))
            while (answer := await receive_frame(peer)).opcode == PONG:
                pass
        assert answer.opcode == CLOSE
        [refused] = [each for each in log if each["event"] == "connection.refused"]
        assert "frames" in refused["reason"]


async def test_a_peer_that_vanishes_inside_a_frame_leaves_nothing() -> None:
    async with house() as at:
        await at.listen(websocket_settings())
        for cut in (1, 7, 20):
            peer = await upgraded(await at.dial())
            await peer.send_all(frame(HEADER) + frame(b"x" * 30)[:cut])
            await receive_frame(peer)
            await peer.aclose()
        with trio.fail_after(5):
            await at.plane.wait_empty()
        assert at.reception.admitted_count == 0
