"""Sockets and HTTP of the admin endpoint: hypercorn, one task a connection, on a short leash.

Hypercorn's own ``serve`` bounds neither connections nor the time that a peer may take to read an
answer, and shields its sending from cancellation, so that one peer that reads nothing could keep
the process from ending. Here its protocol runs over streams that do have these bounds, and that
are closed under it when the endpoint ends.
"""

import contextlib
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
import structlog
import trio
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework, ConnectionState
from hypercorn.utils import wrap_app
from starlette.types import ASGIApp

from router.model.place import BindAddress, UnixAddress
from router.net.sockets import close_listening, describe, open_listening

CONNECTIONS_MOST: Final = 64
"""Connections at a time; one more is closed at once."""

SEND_SECONDS: Final = 10.0
"""The longest that a peer may take to make room for a piece of an answer."""

IDLE_SECONDS: Final = 15
"""How long a connection may be silent between requests, or before the first is complete."""

_SOCKET_MODE: Final = 0o660


@attrs.define(eq=False)
class Server:
    """Listens, and serves an application.

    Attributes:
        tls: gives the context for a new connection; None: plain HTTP.
    """

    app: ASGIApp
    tls: Callable[[], ssl.SSLContext] | None = None
    _sockets: list[socket.socket] = attrs.field(factory=list, init=False)
    _streams: "set[_Stream]" = attrs.field(factory=set, init=False)
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    async def open(self, bind: BindAddress, inherited: Sequence[socket.socket] = ()) -> None:
        """Begins to listen.

        Args:
            bind: where.
            inherited: sockets that listen there already; none: they are opened.

        Raises:
            OSError: the address cannot be had.
        """
        self._sockets = list(inherited) or await open_listening(bind)
        if isinstance(bind, UnixAddress):
            os.chmod(bind.path, _SOCKET_MODE)

    @property
    def sockets(self) -> Sequence[socket.socket]:
        """Those that listen; none: another process has them now."""
        return tuple(self._sockets)

    def leave(self) -> None:
        """Accepts no more, since another process has the same sockets; who is here is served."""
        while self._sockets:
            close_listening(self._sockets.pop(), is_shared=True)

    @property
    def addresses(self) -> list[str]:
        """Where it listens, with the port that was given out for port 0."""
        return [describe(each.getsockname()) for each in self._sockets]

    async def run(self) -> None:
        """Serves until cancelled."""
        async with trio.open_nursery() as nursery:
            try:
                for each in self._sockets:
                    nursery.start_soon(self._accept, each, nursery)
                await trio.sleep_forever()
            finally:  # before tasks are waited for that may be shielded in the middle of sending
                for each in self._sockets:
                    close_listening(each)
                for stream in tuple(self._streams):
                    stream.cut()

    async def _accept(self, listening: socket.socket, nursery: trio.Nursery) -> None:
        while listening.fileno() >= 0:  # closed while we paused
            try:
                await trio.lowlevel.wait_readable(listening)
                accepted, _ = listening.accept()
            except trio.ClosedResourceError:
                return
            except (BlockingIOError, InterruptedError):
                continue
            except OSError as error:
                if listening.fileno() < 0:
                    return
                self._log.warning("admin.paused", reason=error.strerror or str(error))
                await trio.sleep(1)
                continue
            if len(self._streams) >= CONNECTIONS_MOST:
                accepted.close()
                continue
            accepted.setblocking(False)
            stream = _Stream.over(accepted, None if self.tls is None else self.tls())
            self._streams.add(stream)
            nursery.start_soon(self._serve, stream)

    async def _serve(self, stream: "_Stream") -> None:
        config, context = _config(), WorkerContext(None)
        app = wrap_app(_as_framework(self.app), 0, "asgi")
        served: Any = stream  # it behaves as the streams that hypercorn expects
        try:
            await TCPServer(app, config, context, ConnectionState({}), served)
        except Exception:  # noqa: BLE001  a defect met by one connection ends that connection
            self._log.exception("admin.failed")
        finally:
            self._streams.discard(stream)
            stream.cut()


def _as_framework(app: ASGIApp) -> ASGIFramework:
    framework: Any = app
    answer: ASGIFramework = framework
    return answer


def _config() -> Config:
    config = Config()
    config.errorlog = None  # what matters is logged by us
    config.keep_alive_timeout = IDLE_SECONDS
    config.ssl_handshake_timeout = IDLE_SECONDS
    config.h2_max_concurrent_streams = 8
    config.include_server_header = False
    return config


@attrs.define(eq=False)
class _Stream:
    """A connection whose sending has a deadline, and that can be cut by anybody."""

    transport: trio.SocketStream
    stream: "trio.SocketStream | trio.SSLStream[trio.SocketStream]"

    @classmethod
    def over(cls, accepted: socket.socket, context: ssl.SSLContext | None) -> "_Stream":
        """Takes over an accepted socket."""
        transport = trio.SocketStream(trio.socket.from_stdlib_socket(accepted))
        if context is None:
            return cls(transport, transport)
        secured = trio.SSLStream(transport, context, server_side=True, https_compatible=True)
        return cls(transport, secured)

    async def send_all(self, octets: bytes) -> None:
        """Sends, unless the peer takes too long.

        Raises:
            BrokenResourceError: it did, or it is gone.
        """
        try:
            with trio.fail_after(SEND_SECONDS):
                await self.stream.send_all(octets)
        except trio.TooSlowError:
            self.cut()
            raise trio.BrokenResourceError("the peer does not read") from None

    async def receive_some(self, most: int | None = None) -> bytes | bytearray:
        """Receives."""
        return await self.stream.receive_some(most)

    async def aclose(self) -> None:
        """Closes, in an orderly way if that is quick."""
        with trio.move_on_after(1):
            await self.stream.aclose()
        self.cut()

    def cut(self) -> None:
        """Closes at once; whoever sends or receives on it hears so."""
        with contextlib.suppress(OSError):
            self.transport.socket.close()

    def __getattr__(self, name: str) -> Any:
        """Gives what only the stream beneath has; hypercorn tells TLS from plain by that."""
        return getattr(self.stream, name)
