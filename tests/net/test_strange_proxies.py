"""Strange proxies, and servers of WebSocket: they refuse, dribble and fall silent."""

import socket
import struct
from typing import Any

import pytest
import trio

from router.net.connector import Connector, Endpoint
from router.net.proxy import Proxy
from tests.net.test_dialing import (
    Talk,
    answer_to,
    copy,
    dial_wss_through,
    endpoint,
    peer,
    refusal_of_proxy,
    silent,
    until,
)
from tests.support.planes import (
    Papers,
    house,
    nobody,
    papers,
    receive_rest,
)
from tests.support.websockets import receive_head

SHORT_SECONDS = 0.5
PAGE = b"<html>" + b"x" * 5000 + b"</html>"


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return papers(tmp_path_factory.mktemp("papers"))


async def dribble(stream: trio.SocketStream, octets: bytes) -> None:
    """Sends octet by octet, each in a segment of its own."""
    stream.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY, 1)
    for octet in octets:
        await stream.send_all(bytes([octet]))
        await trio.sleep(0)


def saying(answer: bytes) -> Talk:
    """A proxy that answers so, octet by octet, and leaves the connection open."""

    async def talk(stream: trio.SocketStream) -> None:
        await receive_head(stream)
        await dribble(stream, answer)
        await receive_rest(stream)

    return talk


REFUSALS = {
    "wants a login": (
        b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: NTLM\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(PAGE), PAGE),
        "it answers 407 Proxy Authentication Required",
    ),
    "forbids the port": (b"HTTP/1.1 403 Forbidden\r\n\r\n" + PAGE, "it answers 403 Forbidden"),
    "reaches nobody": (b"HTTP/1.0 502 Bad Gateway\r\n\r\n", "it answers 502 Bad Gateway"),
    "has no reason": (b"HTTP/1.1 504\r\n\r\n", "it answers 504"),
    "has a head without end": (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 17_000, "no HTTP"),
    "is SSH": (b"SSH-2.0\r\n\r\n", "it answers with no HTTP: illegal status line: 'SSH-2.0'"),
    "upgrades": (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n", "no HTTP"),
}


@pytest.mark.parametrize("what", REFUSALS)
async def test_a_proxy_that_refuses_octet_by_octet_is_named_with_its_answer(what: str) -> None:
    answer, reason = REFUSALS[what]
    said = await refusal_of_proxy(saying(answer), user="u", password="secret")
    assert reason in said
    assert "proxy 127.0.0.1:" in said
    assert "secret" not in said


def dribbling(answer: bytes) -> Talk:
    """A proxy that connects, says so octet by octet, and passes on in both directions."""

    async def talk(stream: trio.SocketStream) -> None:
        target = (await receive_head(stream)).split()[1]
        host, _, port = target.rpartition(":")
        other = await trio.open_tcp_stream(host, int(port))
        await dribble(stream, answer)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(copy, stream, other)
            await copy(other, stream)
            nursery.cancel_scope.cancel()

    return talk


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 Connection established\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nProxy-Agent: strange\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
    ],
)
async def test_tls_and_websocket_go_through_a_tunnel_that_opens_slowly(
    signed: Papers, answer: bytes
) -> None:
    """RFC 9110 §9.3.6: any 2xx switches; length and encoding mean nothing in its answer."""
    await dial_wss_through(dribbling(answer), Proxy(host="127.0.0.1", port=1), signed)


async def patience_with(talk: Talk, *, is_proxy: bool = False, **more: Any) -> str:
    """Returns why a connector that waits for a moment only has given a peer up."""
    async with peer(talk) as port:
        proxy = Proxy(host="127.0.0.1", port=port) if is_proxy else None
        return await patience(endpoint(port, proxy=proxy, **more))


async def patience(place: Endpoint) -> str:
    """Returns why a connector that waits for a moment only has given a place up."""
    async with house(silent) as at:
        connector = Connector(
            container="east",
            endpoints=(place,),
            plane=at.plane,
            connect_seconds=SHORT_SECONDS,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connector.run)
            with trio.fail_after(20):
                await until(lambda: connector.last_error)
            connector.stop()
        return connector.last_error or ""


async def for_ever(stream: trio.SocketStream) -> None:
    """Dribbles a head without end, slowly enough to stay below every limit of octets."""
    await receive_head(stream)
    await stream.send_all(b"HTTP/1.1 200 OK\r\nx: ")
    while True:
        await stream.send_all(b"y")
        await trio.sleep(0.02)


@pytest.mark.parametrize("is_proxy", [True, False])
async def test_who_dribbles_for_ever_is_given_up_in_time(is_proxy: bool) -> None:
    assert f"{SHORT_SECONDS:g} s" in await patience_with(for_ever, is_proxy=is_proxy)


async def silence(stream: trio.SocketStream) -> None:
    """Accepts, and says nothing."""
    await receive_rest(stream)


async def tunnel_to_nobody(stream: trio.SocketStream) -> None:
    """Connects, as it says; nothing is at the other end."""
    await receive_head(stream)
    await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n")
    await receive_rest(stream)


async def test_a_proxy_that_accepts_and_stays_silent_is_named() -> None:
    said = await patience_with(silence, is_proxy=True)
    assert said.startswith("proxy 127.0.0.1:")
    assert said.endswith(f": it does not connect within {SHORT_SECONDS:g} s")


async def test_the_step_that_is_waited_for_in_vain_is_named(signed: Papers) -> None:
    assert await patience_with(silence) == f"no WebSocket within {SHORT_SECONDS:g} s"
    more = {"tls": signed.client_context, "server_name": "localhost"}
    for talk, is_proxy in ((silence, False), (tunnel_to_nobody, True)):
        said = await patience_with(talk, is_proxy=is_proxy, **more)
        assert said == f"no TLS handshake within {SHORT_SECONDS:g} s"


async def test_a_proxy_that_is_not_there_or_breaks_off_is_named() -> None:
    async def reset(stream: trio.SocketStream) -> None:
        await receive_head(stream)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    assert "Connection reset by peer" in (said := await refusal_of_proxy(reset))
    assert said.startswith("proxy 127.0.0.1:")
    with nobody() as port:
        said = await patience(endpoint(1, proxy=Proxy(host="127.0.0.1", port=port)))
        assert said == f"proxy 127.0.0.1:{port}: Connection refused"


async def half(stream: trio.SocketStream) -> None:
    """Upgrades by half, and says no more."""
    answer = answer_to((await receive_head(stream)).encode())
    await dribble(stream, answer[: len(answer) // 2])
    await receive_rest(stream)


async def half_and_gone(stream: trio.SocketStream) -> None:
    """Upgrades by half, and leaves."""
    answer = answer_to((await receive_head(stream)).encode())
    await dribble(stream, answer[: len(answer) // 2])


async def test_half_an_upgrade_is_none() -> None:
    assert f"{SHORT_SECONDS:g} s" in await patience_with(half, is_proxy=False)
    assert "left before it answered" in await patience_with(half_and_gone, is_proxy=False)
