"""What comes before TLS and before AMQP when a container is dialed: a proxy, and WebSocket.

Each function converses over whatever ``Line`` it is given: a socket, TLS on a socket, a stream.
"""

from collections.abc import Awaitable, Callable

import attrs

from router.net.proxy import Proxy, ProxyConversation, ProxyError, authority
from router.net.upgrade import ClientUpgrade, UpgradeError

_DEFAULT_PORTS = {False: 80, True: 443}


@attrs.frozen
class Line:
    """Octets in both directions.

    Attributes:
        send: sends all of them.
        receive: waits for some; none: the peer has ended the stream.
    """

    send: Callable[[bytes], Awaitable[None]]
    receive: Callable[[], Awaitable[bytes]]


async def connect_through(proxy: Proxy, host: str, port: int, line: Line) -> None:
    """Has a proxy connect to a host; its octets follow on the same line.

    Raises:
        ProxyError: the proxy does not.
    """
    conversation = ProxyConversation(proxy, host, port)
    await line.send(conversation.request)
    try:
        while not conversation.receive(await line.receive()):
            pass
    except ProxyError as error:
        raise ProxyError(f"{proxy}: {error}") from None


async def become_websocket(host: str, port: int, path: str, line: Line, *, is_tls: bool) -> bytes:
    """Has a peer upgrade to WebSocket; returns the frames that came with its answer.

    Raises:
        UpgradeError: the peer does not.
    """
    named = f"[{host}]" if ":" in host else host
    if port != _DEFAULT_PORTS[is_tls]:
        named = authority(host, port)
    upgrade = ClientUpgrade(named, path)
    await line.send(upgrade.request)
    while True:
        octets = await line.receive()
        if not octets:
            raise UpgradeError("the peer left before it answered for a WebSocket")
        frames = upgrade.receive(octets)
        if frames is not None:
            return frames
