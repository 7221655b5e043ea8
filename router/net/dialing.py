"""What comes before TLS and before AMQP when a container is dialed: a proxy, and WebSocket.

Each function converses over whatever ``Line`` it is given: a socket, TLS on a socket, a stream.
``Wait`` says which of these steps has not come when the time for them is over.
"""

import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator

import attrs
import trio

from router.errors import RouterError
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


@attrs.define(eq=False)
class Wait:
    """What is waited for while a place is dialed; ``str`` says that it has not come in time.

    Attributes:
        seconds: for all steps together.
        missing: the present step, as people read it.
    """

    seconds: float
    missing: str = "no connection"

    def __str__(self) -> str:
        return f"{self.missing} within {self.seconds:g} s"

    def begin(self, proxy: Proxy | None) -> None:
        """Waits for TCP, to the peer or to a proxy."""
        self.missing = "no connection" if proxy is None else f"{proxy}: no connection"

    def ask(self, proxy: Proxy) -> None:
        """Waits for the proxy's answer."""
        self.missing = f"{proxy}: it does not connect"

    def secure(self) -> None:
        """Waits for the end of TLS' handshake."""
        self.missing = "no TLS handshake"

    def upgrade(self) -> None:
        """Waits for WebSocket."""
        self.missing = "no WebSocket"

    def greet(self, protocol: str) -> None:
        """Waits for the open of a protocol."""
        self.missing = f"it does not answer to {protocol}"


async def open_tcp(host: str, port: int, proxy: Proxy | None) -> trio.SocketStream:
    """Connects to a host, or to the proxy that is to connect to it.

    Raises:
        ProxyError: there is no connection to the proxy.
        OSError: there is none to the host.
    """
    if proxy is None:
        return await trio.open_tcp_stream(host, port)
    with _naming(proxy):
        return await trio.open_tcp_stream(proxy.host, proxy.port)


async def connect_through(proxy: Proxy, host: str, port: int, line: Line) -> None:
    """Has a proxy connect to a host; its octets follow on the same line.

    Raises:
        ProxyError: the proxy does not.
    """
    conversation = ProxyConversation(proxy, host, port)
    with _naming(proxy):
        await line.send(conversation.request)
        while not conversation.receive(await line.receive()):
            pass


@contextlib.contextmanager
def _naming(proxy: Proxy) -> Iterator[None]:
    """Has errors say that it is the proxy of which they tell."""
    try:
        yield
    except (OSError, trio.BrokenResourceError, ProxyError) as error:
        raise ProxyError(f"{proxy}: {system_reason(error)}") from None


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


def system_reason(error: BaseException) -> str:
    """Returns why a stream is not had, or was lost, in the system's words; empty: it has none."""
    match error:
        case RouterError():
            return str(error)
        case OSError(__cause__=BaseExceptionGroup(exceptions=[*_, last])):
            return system_reason(last)  # one for each address that the host's name has
        case BaseException(__cause__=BaseException() as cause):
            return system_reason(cause)
        case OSError(errno=int(number)) if number > 0:
            return os.strerror(number)
        case OSError(strerror=str(reason)):
            return reason  # of a name that was not found
        case _:
            return str(error)
