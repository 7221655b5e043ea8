"""Containers that are dialed through WebSocket and through HTTP proxies."""

import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from router.model.events import DeliveriesReceived
from router.model.identity import ConnectionId
from router.net.connector import Connector, Endpoint
from router.net.proxy import HEAD_OCTETS, Proxy, ProxyConversation, ProxyError
from router.net.tls_files import TlsContext, TlsFiles
from router.net.transport import transport_of
from router.net.upgrade import ClientUpgrade, UpgradeError, read_request
from router.wire.detect import TlsOffer, WebSocketOffer
from tests.support.plain import PlainEngine
from tests.support.planes import (
    HEADER,
    House,
    Papers,
    house,
    listener_settings,
    papers,
    receive_rest,
)
from tests.support.websockets import (
    PING,
    PONG,
    close_frame,
    frame,
    receive_frame,
    receive_head,
)

Talk = Callable[[trio.SocketStream], Awaitable[None]]


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return papers(tmp_path_factory.mktemp("papers"))


def silent(connection: ConnectionId, octets: bytes) -> list[tuple[ConnectionId, bytes]]:
    return []


def greeting() -> PlainEngine:
    return PlainEngine(output=bytearray(HEADER))


def endpoint(port: int, **more: Any) -> Endpoint:
    usual = Endpoint(host="127.0.0.1", port=port, make_engine=greeting, path="/amqp")
    return attrs.evolve(usual, **more)


@contextlib.asynccontextmanager
async def peer(talk: Talk) -> AsyncIterator[int]:
    """Serves a script on a port of loopback."""

    async def serve(stream: trio.SocketStream) -> None:
        with contextlib.suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            async with stream:
                await talk(stream)

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def connecting(at: House, *endpoints: Endpoint) -> AsyncIterator[Connector]:
    connector = Connector(container="east", endpoints=endpoints, plane=at.plane, retry_seconds=0.01)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connector.run)
        with trio.fail_after(20):
            yield connector
        connector.stop()


async def until(is_true: Callable[[], object]) -> None:
    while not is_true():
        await trio.sleep(0.005)


def seen(at: House, octets: bytes) -> bool:
    """Returns whether octets have come in, as a delivery."""
    return any(
        isinstance(event, DeliveriesReceived) and event.deliveries[0].payload == octets
        for _, event in at.core.events
    )


def transports(at: House) -> set[str]:
    return {transport_of(each) for each in at.plane.switchboard.connections.values()}


async def refusal(talk: Talk, **more: Any) -> str:
    """Returns why a peer is not connected to."""
    async with house(silent) as at, peer(talk) as port:
        with capture_logs() as log:
            async with connecting(at, endpoint(port, **more)) as connector:
                await until(lambda: connector.last_error)
                assert not connector.is_connected
        assert any(each["event"] == "connector.failed" for each in log)
        return connector.last_error or ""


async def test_a_router_dials_another_through_websocket() -> None:
    async with house(silent) as at:
        settings = listener_settings()
        door = attrs.evolve(settings.door, websocket=WebSocketOffer.REQUIRED)
        address = await at.listen(attrs.evolve(settings, door=door))
        port = int(address.rpartition(":")[2])
        async with connecting(at, endpoint(port)):
            await until(lambda: seen(at, HEADER))
            assert transports(at) == {"ws"}


async def test_a_router_dials_another_through_wss_and_a_proxy(signed: Papers) -> None:
    proxy = Proxy(host="127.0.0.1", port=1, user="u", password="p:w")
    await dial_wss_through(relaying(), proxy, signed)


async def dial_wss_through(talk: Talk, proxy: Proxy, signed: Papers) -> None:
    """Has a router dial itself over WebSocket and TLS through a proxy with that talk."""
    server = TlsContext(signed.server_files(), TlsFiles.server_context)
    async with house(silent) as at, peer(talk) as proxy_port:
        settings = listener_settings(tls=server, offer=TlsOffer.REQUIRED)
        door = attrs.evolve(settings.door, websocket=WebSocketOffer.REQUIRED)
        address = await at.listen(attrs.evolve(settings, door=door))
        wanted = endpoint(
            int(address.rpartition(":")[2]),
            tls=signed.client_context,
            server_name="localhost",
            proxy=attrs.evolve(proxy, port=proxy_port),
        )
        async with connecting(at, wanted):
            await until(lambda: seen(at, HEADER))
            assert transports(at) == {"wss"}


async def test_a_server_that_wants_a_protocol_of_http_agreed_is_dialed(signed: Papers) -> None:
    server = signed.server_files().server_context()
    server.set_alpn_protocols(["h2", "http/1.1"])
    files = TlsFiles(option="containers.east.tls", authorities=signed.authorities)
    agreed = []
    for has_websocket in (True, False):
        client = attrs.evolve(files, has_websocket=has_websocket).client_context()
        near, far = trio.testing.memory_stream_pair()
        ends = (
            trio.SSLStream(near, client, server_hostname="localhost"),
            trio.SSLStream(far, server, server_side=True),
        )
        async with trio.open_nursery() as nursery:
            for end in ends:
                nursery.start_soon(end.do_handshake)
        agreed.append(ends[1].selected_alpn_protocol())
    assert agreed == ["http/1.1", None]


def relaying(status: str = "200 OK") -> Talk:
    """A proxy that wants the user ``u`` with the password ``p:w``."""

    async def talk(stream: trio.SocketStream) -> None:
        head = await receive_head(stream)
        line, *headers = head.splitlines()
        method, target, version = line.split()
        assert (method, version) == ("CONNECT", "HTTP/1.1")
        assert f"Host: {target}" in headers
        wanted = base64.b64encode(b"u:p:w").decode()
        if f"Proxy-Authorization: Basic {wanted}" not in headers:
            await stream.send_all(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")
            return
        host, _, port = target.rpartition(":")
        other = await trio.open_tcp_stream(host, int(port))
        await stream.send_all(f"HTTP/1.1 {status}\r\n\r\n".encode())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(copy, stream, other)
            await copy(other, stream)
            nursery.cancel_scope.cancel()

    return talk


async def copy(source: trio.SocketStream, target: trio.SocketStream) -> None:
    async for octets in source:
        await target.send_all(octets)


async def test_a_proxy_is_used_without_websocket_as_well() -> None:
    async with house(silent) as at, peer(relaying()) as proxy_port:
        address = await at.listen(listener_settings())
        proxy = Proxy(host="127.0.0.1", port=proxy_port, user="u", password="p:w")
        port = int(address.rpartition(":")[2])
        async with connecting(at, endpoint(port, path=None, proxy=proxy)):
            await until(lambda: seen(at, HEADER))
            assert transports(at) == {"tcp"}


async def test_a_proxy_that_refuses_is_named_without_the_password() -> None:
    reason = await refusal_of_proxy(relaying(), user="u", password="wrong")
    assert "it answers 407 Who are you" in reason
    assert "proxy 127.0.0.1:" in reason
    assert "wrong" not in reason


async def refusal_of_proxy(talk: Talk, **more: str) -> str:
    async with house(silent) as at, peer(talk) as port:
        proxy = Proxy(host="127.0.0.1", port=port, **more)
        async with connecting(at, endpoint(1, proxy=proxy)) as connector:
            await until(lambda: connector.last_error)
        return connector.last_error or ""


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "it left without an answer"),
        (b"SSH-2.0\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 4000, "no HTTP"),
        (b"HTTP/1.1 503 Down \x1b[2J\r\n\r\n", r"503 Down \\x1b"),
        (b"HTTP/1.1 302 Elsewhere\r\nLocation: x\r\n\r\n", "302 Elsewhere"),
        (b"HTTP/1.1 200 OK\r\n\r\nearly", "octets before"),
    ],
)
def test_what_a_proxy_answers_wrong_ends_the_attempt(answer: bytes, reason: str) -> None:
    asked = ProxyConversation(Proxy(host="p", port=1), "h", 2)
    with pytest.raises(ProxyError, match=reason):
        asked.receive(answer)


def test_a_proxy_may_answer_octet_by_octet_with_news_before() -> None:
    asked = ProxyConversation(Proxy(host="p", port=1), "::1", 2)
    assert asked.request.startswith(b"CONNECT [::1]:2 HTTP/1.1\r\n")
    assert b"Authorization" not in asked.request
    answer = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
    done = [asked.receive(bytes([octet])) for octet in answer]
    assert done == [*[False] * (len(answer) - 1), True]


def test_a_head_of_a_proxy_has_a_limit() -> None:
    asked = ProxyConversation(Proxy(host="p", port=1), "h", 2)
    with pytest.raises(ProxyError):
        asked.receive(b"HTTP/1.1 200 OK\r\nx: " + b"y" * HEAD_OCTETS)


# What servers of WebSocket do


def answer_to(request: bytes, **changes: str | None) -> bytes:
    """Writes a server's right answer, but for the changes."""
    upgraded = read_request(request, frozenset())
    assert upgraded is not None
    lines = upgraded.answer.decode().split("\r\n")[1:-2]
    headers = {line.split(": ")[0].lower(): line.split(": ")[1] for line in lines}
    line = changes.pop("line", None) or "HTTP/1.1 101 Switching Protocols"
    headers |= {key.replace("_", "-"): value or "" for key, value in changes.items()}
    kept = [f"{key}: {value}" for key, value in headers.items() if value]
    return "\r\n".join([line, *kept, "", ""]).encode()


WRONG: dict[str, tuple[dict[str, str | None], str]] = {
    "no subprotocol": ({"sec_websocket_protocol": None}, "not its subprotocol"),
    "another subprotocol": ({"sec_websocket_protocol": "mqtt"}, "unrecognized subprotocol"),
    "an extension that nobody offered": (
        {"sec_websocket_extensions": "permessage-deflate"},
        "handshake",
    ),
    "another key": ({"sec_websocket_accept": "x"}, "Bad accept token"),
    "no upgrade": ({"upgrade": None}, "Upgrade"),
    "an upgrade that leaves the choice": ({"upgrade": "h2c, websocket"}, "Upgrade"),
    "no connection header": ({"connection": None}, "Upgrade"),
    "a redirect": ({"line": "HTTP/1.1 302 Found"}, "refused: HTTP/1.1 302 Found"),
    "a login": ({"line": "HTTP/1.1 401 Unauthorized"}, "401 Unauthorized"),
    "no HTTP": ({"line": "AMQP"}, "no WebSocket, nor HTTP"),
}


@pytest.mark.parametrize("what", WRONG)
async def test_a_wrong_answer_for_a_websocket_is_refused(what: str) -> None:
    changes, reason = WRONG[what]

    async def talk(stream: trio.SocketStream) -> None:
        request = (await receive_head(stream)).encode()
        await stream.send_all(answer_to(request, **changes))
        await receive_rest(stream)

    assert reason in await refusal(talk)


def test_an_answer_may_have_several_lines_of_one_name_and_come_octet_by_octet() -> None:
    upgrade = ClientUpgrade("h", "/")
    lines = "keep-alive\r\nConnection: Upgrade\r\nconnection: x"
    answer = answer_to(upgrade.request, connection=lines)
    got = [upgrade.receive(bytes([octet])) for octet in answer]
    assert got == [*[None] * (len(answer) - 1), b""]


async def test_a_peer_that_ends_before_it_answers_is_refused() -> None:
    async def talk(stream: trio.SocketStream) -> None:
        await receive_head(stream)

    assert "left before it answered" in await refusal(talk)


def test_an_answer_has_a_limit() -> None:
    upgrade = ClientUpgrade("h", "/")
    with pytest.raises(UpgradeError, match="more than"):
        upgrade.receive(b"HTTP/1.1 101 x\r\na: " + b"b" * 20_000)


def test_the_request_names_host_path_and_subprotocols() -> None:
    request = ClientUpgrade("bus.example", "/$servicebus/websocket").request.decode()
    assert request.startswith("GET /$servicebus/websocket HTTP/1.1\r\nHost: bus.example\r\n")
    assert "Sec-WebSocket-Protocol: amqp, AMQPWSB10\r\n" in request
    assert "Extensions" not in request


@pytest.mark.parametrize("chosen", ["amqp", "AMQPWSB10"])
async def test_frames_that_come_with_the_answer_are_read(chosen: str) -> None:
    got: list[bytes] = []

    async def talk(stream: trio.SocketStream) -> None:
        request = (await receive_head(stream)).encode()
        answer = answer_to(request, sec_websocket_protocol=chosen)
        await stream.send_all(answer + frame(b"still there?", PING, masked=False))
        for _ in range(2):
            received = await receive_frame(stream, masked=True)
            got.append(received.payload)
            if received.opcode == PONG:
                await stream.send_all(frame(b"hello", masked=False))
        await stream.send_all(frame((1001).to_bytes(2), 8, masked=False))
        assert (await receive_frame(stream, masked=True)).code == 1001

    async with house(silent) as at, peer(talk) as port, connecting(at, endpoint(port)):
        await until(lambda: seen(at, b"hello"))
    assert sorted(got) == [HEADER, b"still there?"]


async def test_a_masked_frame_of_a_server_ends_the_connection() -> None:
    codes: list[int] = []

    async def talk(stream: trio.SocketStream) -> None:
        await stream.send_all(answer_to((await receive_head(stream)).encode()))
        await stream.send_all(close_frame(1000))
        received = await receive_frame(stream, masked=True)
        while received.opcode != 8:
            received = await receive_frame(stream, masked=True)
        codes.append(received.code)

    async with house(silent) as at, peer(talk) as port, connecting(at, endpoint(port)):
        await until(lambda: codes)
    assert codes[0] == 1002
