"""Sockets and HTTP of the admin endpoint: hypercorn, one task per connection, with limits.

Hypercorn's own ``serve`` limits neither connections nor the time that a peer may take to read an
answer, and shields its sending from cancellation, so one peer that does not read could keep the
process from ending. Here its protocol runs over streams that have these limits, and that are closed
under it when the endpoint ends or when another connection needs the place (``crowd``).
"""

import contextlib
import math
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
from starlette.types import ASGIApp, Receive, Scope, Send

from router.model.place import BindAddress, UnixAddress
from router.net.reception import source_of
from router.net.sockets import close_listening, describe, open_listening
from router.service.admin.crowd import VISIT, Crowd, Visit

CROWD: Final = Crowd(most=64, most_of_source=32)
"""Most connections at a time; a further one replaces another."""

SEND_SECONDS: Final = 10.0
"""Time in which a peer has to read enough for the next piece of an answer."""

IDLE_SECONDS: Final = 15
"""How long a connection may be silent between requests."""

HEADER_SECONDS: Final = 5.0
"""Time for the head of a request from its first octet; for the first request, from the beginning of
the connection, TLS included."""

_SOCKET_MODE: Final = 0o660


@attrs.define(eq=False)
class Server:
    """Listens and serves an application.

    Attributes:
        tls: returns the context for a new connection; None: plain HTTP.
        crowd: the limits of connections.
    """

    app: ASGIApp
    tls: Callable[[], ssl.SSLContext] | None = None
    crowd: Crowd = CROWD
    _sockets: list[socket.socket] = attrs.field(factory=list, init=False)
    _streams: "set[_Stream]" = attrs.field(factory=set, init=False)
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    async def open(self, bind: BindAddress, inherited: Sequence[socket.socket] = ()) -> None:
        """Begins to listen.

        Args:
            bind: the address.
            inherited: sockets that already listen there; none: they are opened.

        Raises:
            OSError: the address cannot be bound.
        """
        self._sockets = list(inherited) or await open_listening(bind)
        if isinstance(bind, UnixAddress):
            os.chmod(bind.path, _SOCKET_MODE)

    @property
    def sockets(self) -> Sequence[socket.socket]:
        """The listening sockets; none: another process has them now."""
        return tuple(self._sockets)

    def leave(self) -> None:
        """Stops accepting, because another process has the same sockets; open connections stay."""
        while self._sockets:
            close_listening(self._sockets.pop(), is_shared=True)

    @property
    def addresses(self) -> list[str]:
        """Its addresses, with the port that the system chose for port 0."""
        return [describe(each.getsockname()) for each in self._sockets]

    async def run(self) -> None:
        """Serves until cancelled."""
        async with trio.open_nursery() as nursery:
            try:
                for each in self._sockets:
                    nursery.start_soon(self._accept, each, nursery)
                await trio.sleep_forever()
            finally:  # before waiting for tasks whose sending is shielded from cancellation
                for each in self._sockets:
                    close_listening(each)
                for stream in tuple(self._streams):
                    stream.cut()

    async def _accept(self, listening: socket.socket, nursery: trio.Nursery) -> None:
        while listening.fileno() >= 0:  # otherwise closed while we paused
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
            visit = self._let_in(accepted)
            if visit is None:
                accepted.close()
                continue
            accepted.setblocking(False)
            stream = _Stream.over(accepted, None if self.tls is None else self.tls(), visit)
            self._streams.add(stream)
            nursery.start_soon(self._serve, stream)

    def _let_in(self, accepted: socket.socket) -> Visit | None:
        """Admits a new connection, perhaps in place of another; None: there is no place."""
        try:
            source = source_of(accepted)
        except OSError:
            return None  # the peer has already disconnected
        now = trio.current_time()
        visits = {stream.visit: stream for stream in self._streams}
        if not self.crowd.is_free(visits, source):
            victim = self.crowd.find_victim(visits, source, now)
            self._log.warning(
                "admin.crowded",
                address=source,
                connections=len(visits),
                closed=None if victim is None else victim.source or "unix",
            )
            if victim is None:
                return None
            left = visits[victim]
            self._streams.discard(left)
            left.cut()
        return Visit(source, now)

    async def _serve(self, stream: "_Stream") -> None:
        config, context = _config(), WorkerContext(None)
        app = wrap_app(_as_framework(stream.watch(self.app)), 0, "asgi")
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
    config.errorlog = None  # our own log has what matters
    config.keep_alive_timeout = IDLE_SECONDS
    config.ssl_handshake_timeout = HEADER_SECONDS
    config.h2_max_concurrent_streams = 8
    config.include_server_header = False
    return config


@attrs.define(eq=False)
class _Stream:
    """A connection on which every operation has a deadline, and that other tasks can cut.

    Attributes:
        visit: its record for the limits of connections.
    """

    transport: trio.SocketStream
    stream: "trio.SocketStream | trio.SSLStream[trio.SocketStream]"
    visit: Visit
    _deadline: float = attrs.field(init=False)
    _is_asking: bool = attrs.field(default=True, init=False)
    _receiving: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def __attrs_post_init__(self) -> None:
        self._deadline = self.visit.since + HEADER_SECONDS

    @classmethod
    def over(
        cls, accepted: socket.socket, context: ssl.SSLContext | None, visit: Visit
    ) -> "_Stream":
        """Takes over an accepted socket."""
        transport = trio.SocketStream(trio.socket.from_stdlib_socket(accepted))
        if context is None:
            return cls(transport, transport, visit)
        secured = trio.SSLStream(transport, context, server_side=True, https_compatible=True)
        return cls(transport, secured, visit)

    def watch(self, app: ASGIApp) -> ASGIApp:
        """Wraps the application so that requests of this connection are counted."""

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                with self.visit.asking(trio.current_time()) as request:
                    self._wait_until(math.inf)
                    await app({**scope, VISIT: request}, receive, send)
            finally:
                if not self.visit.requests:
                    self._is_asking = False
                    self.visit.since = trio.current_time()
                    self._wait_until(self.visit.since + IDLE_SECONDS)

        return watched

    def _wait_until(self, deadline: float) -> None:
        self._deadline = self._receiving.deadline = deadline

    async def send_all(self, octets: bytes) -> None:
        """Sends, unless the peer takes too long.

        Raises:
            BrokenResourceError: the peer took too long, or is gone.
        """
        try:
            with trio.fail_after(SEND_SECONDS):
                await self.stream.send_all(octets)
        except trio.TooSlowError:
            self.cut()
            raise trio.BrokenResourceError("the peer does not read") from None

    async def receive_some(self, most: int | None = None) -> bytes | bytearray:
        """Receives octets; none if the peer takes too long to send a request."""
        octets: bytes | bytearray = b""
        self._receiving = trio.CancelScope(deadline=self._deadline)
        with self._receiving:
            octets = await self.stream.receive_some(most)
        if self._receiving.cancelled_caught:
            self.cut()
        elif octets and not self._is_asking and not self.visit.requests:
            self._is_asking = True
            self._deadline = trio.current_time() + HEADER_SECONDS
        return octets

    async def aclose(self) -> None:
        """Closes the connection, in an orderly way if that is quick."""
        with trio.move_on_after(1):
            await self.stream.aclose()
        self.cut()

    def cut(self) -> None:
        """Closes at once; tasks that send or receive on the stream fail."""
        with contextlib.suppress(OSError):
            self.transport.socket.close()

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the inner stream; hypercorn detects TLS by one."""
        return getattr(self.stream, name)
