"""Keeps a connection to one configured container.

Theory of operation. A connector dials for ever. One *round* tries the container's endpoints in
order, without pause, until a connection opens (the peer's ``open`` has come, not merely TCP);
then it waits for that connection's end. After a round in which none opened, and after each end,
it pauses: jittered, and doubling from round to round up to a limit. A connection that stayed open
for ``STABLE_SECONDS`` resets the pauses. The next round begins with the first endpoint again:
the order is a preference.

Engine and core see each connection as a new one; they resume links by themselves. TLS resumes its
last session with the same endpoint if the context is still the same (its files are), which saves
both sides most of the handshake. A ticket is used once (RFC 8446 §C.4).
"""

import os
import random
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import attrs
import structlog
import trio

from router.links.backoff import pause_seconds
from router.net.connection import Connection
from router.net.dataplane import DataPlane
from router.net.dialing import Line, become_websocket, connect_through
from router.net.proxy import Proxy, ProxyError
from router.net.sockets import choose_congestion_control, prepare, receive_some, send_all
from router.net.tls import TlsError, TlsSession
from router.net.tls_stream import TlsStream, open_stream
from router.net.upgrade import UpgradeError
from router.net.websocket import Frames, WebSocketEngine
from router.wire.engine import Engine

_RECEIVE_OCTETS: Final = 4096

STABLE_SECONDS: Final = 60.0
"""A connection that was open this long was no failure: it resets the pauses."""


@attrs.frozen(kw_only=True)
class Endpoint:
    """One place where a container may be found.

    Attributes:
        host, port: where to dial.
        make_engine: makes the client's engine.
        tls: gives the context; None: no TLS.
        server_name: sent as SNI and verified; the host, unless configured otherwise.
        path: where AMQP is served over WebSocket; None: no WebSocket.
        proxy: the HTTP proxy that is dialed instead, and asked to connect; None: none.
    """

    host: str
    port: int
    make_engine: Callable[[], Engine]
    tls: Callable[[], ssl.SSLContext] | None = None
    server_name: str | None = None
    path: str | None = None
    proxy: Proxy | None = None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@attrs.frozen(kw_only=True)
class ConnectorStatus:
    """The state of a connector, for people and metrics.

    Attributes:
        seconds: since it was connected, or since it is not.
        address: of the endpoint; None: not connected.
        opened: how often a connection has opened.
        failed: how often dialing, or opening a dialed connection, has failed.
        error: why it is not connected, or why it last was not; None: that never was.
    """

    is_connected: bool
    seconds: float
    address: str | None
    opened: int
    failed: int
    error: str | None


@attrs.define(eq=False, kw_only=True)
class Connector:
    """Dials one container, for ever.

    Attributes:
        container: its name in the configuration.
        endpoints: in order of preference, at least one.
        plane: where connections live.
        connect_seconds: for TCP, proxy, TLS and WebSocket together; the engine has its own limit
            for the open.
        retry_seconds: the first pause, before jitter.
        retry_limit_seconds: the longest.
        random: gives numbers from 0 up to 1, for the jitter.
        last_error: why there is no connection; None: there is one, or nothing was tried yet.
    """

    container: str
    endpoints: Sequence[Endpoint]
    plane: DataPlane
    connect_seconds: float = 15.0
    retry_seconds: float = 0.5
    retry_limit_seconds: float = 30.0
    random: Callable[[], float] = random.random
    last_error: str | None = None
    _failures: int = attrs.field(default=0, init=False)
    _opened: int = attrs.field(default=0, init=False)
    _failed: int = attrs.field(default=0, init=False)
    _away_since: float = attrs.field(init=False)
    _connection: Connection | None = attrs.field(default=None, init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _former: dict[Endpoint, tuple[ssl.SSLContext, ssl.SSLSession]] = attrs.field(
        factory=dict, init=False
    )
    _tls_turns: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    def __attrs_post_init__(self) -> None:
        self._away_since = self.plane.clock()

    @property
    def status(self) -> ConnectorStatus:
        """Its present state."""
        connection = self._connection if self.is_connected else None
        opened_at = None if connection is None else connection.opened_at
        since = self._away_since if opened_at is None else opened_at
        return ConnectorStatus(
            is_connected=connection is not None,
            seconds=self.plane.clock() - since,
            address=None if connection is None else connection.address,
            opened=self._opened + (connection is not None),
            failed=self._failed,
            error=self.last_error,
        )

    @property
    def is_connected(self) -> bool:
        """Whether the container's open has come and the connection stands."""
        return self._connection is not None and self._connection.opened_at is not None

    async def run(self) -> None:
        """Dials until ``stop`` is called; a connection that stands by then is closed orderly."""
        try:
            with self._scope:
                while True:
                    for endpoint in self.endpoints:
                        if await self._connect_and_wait(endpoint):
                            break
                    await self._pause()
        finally:
            if self._connection is not None:
                self.plane.close(self._connection)

    def stop(self) -> None:
        """Makes ``run`` return soon."""
        self._scope.cancel()

    async def _pause(self) -> None:
        self._failures += 1
        seconds = pause_seconds(
            self._failures, self.retry_seconds, self.retry_limit_seconds, self.random
        )
        self._log.info(
            "connector.paused",
            container=self.container,
            reason=self.last_error,
            seconds=round(seconds, 3),
        )
        await trio.sleep(seconds)

    async def _connect_and_wait(self, endpoint: Endpoint) -> bool:
        """Dials once, and stays until the connection's end; returns whether it had opened."""
        try:
            with trio.fail_after(self.connect_seconds):
                sock, stream, octets = await self._dial(endpoint)
        except (OSError, TlsError, ProxyError, UpgradeError, trio.TooSlowError) as error:
            self._fail(endpoint, _explain(error, self.connect_seconds))
            return False
        ended = trio.Event()
        try:
            self._connection = connection = self.plane.add(
                sock,
                _make_engine(endpoint),
                address=str(endpoint),
                octets=octets,
                stream=stream,
                container=self.container,
                on_end=lambda _: ended.set(),
            )
        except OSError as error:
            sock.close()
            self._fail(endpoint, error.strerror or str(error))
            return False
        await ended.wait()
        self._keep_session(endpoint, stream)
        self._connection = None
        self.last_error = connection.failure or str(connection.condition or "closed by the peer")
        if connection.opened_at is None:  # a wrong password, for example
            self._fail(endpoint, self.last_error)
            return False
        self._opened += 1
        self._away_since = self.plane.clock()
        if self.plane.clock() - connection.opened_at >= STABLE_SECONDS:
            self._failures = 0
        return True

    async def _dial(
        self, endpoint: Endpoint
    ) -> tuple[socket.socket, TlsStream | None, bytes | None]:
        """Returns the socket, TLS on it, and octets that have been read for the engine, if any."""
        place = endpoint.proxy or endpoint
        stream = await trio.open_tcp_stream(place.host, place.port)
        sock = socket.socket(fileno=stream.socket.detach())
        try:
            prepare(sock)
            choose_congestion_control(sock)
            if endpoint.proxy is not None:
                line = _line(sock, None)
                await connect_through(endpoint.proxy, endpoint.host, endpoint.port, line)
            session: TlsSession | None = None
            octets: bytes | None = None
            if endpoint.tls is not None:
                session = self._begin_tls(endpoint, endpoint.tls())
                await session.shake_hands(sock, b"", self._tls_turns)
            if endpoint.path is not None:
                line = _line(sock, session)
                octets = await become_websocket(
                    endpoint.host, endpoint.port, endpoint.path, line, is_tls=session is not None
                )
        except BaseException:
            sock.close()
            raise
        return sock, None if session is None else open_stream(session, sock), octets

    def _begin_tls(self, endpoint: Endpoint, context: ssl.SSLContext) -> TlsSession:
        former_context, former = self._former.pop(endpoint, (None, None))
        if former_context is not context:
            former = None
        return TlsSession(context, endpoint.server_name or endpoint.host, former)

    def _keep_session(self, endpoint: Endpoint, stream: TlsStream | None) -> None:
        former = None if stream is None else stream.resumable
        if stream is not None and former is not None:
            self._former[endpoint] = stream.context, former

    def _fail(self, endpoint: Endpoint, reason: str) -> None:
        self.last_error = reason
        self._failed += 1
        self._log.warning(
            "connector.failed", container=self.container, address=str(endpoint), reason=reason
        )


def _make_engine(endpoint: Endpoint) -> Engine:
    """Makes the engine, within a WebSocket if that was dialed."""
    engine = endpoint.make_engine()
    return engine if endpoint.path is None else WebSocketEngine(engine, Frames(is_client=True))


def _line(sock: socket.socket, session: TlsSession | None) -> Line:
    if session is None:
        return Line(partial(send_all, sock), partial(receive_some, sock, _RECEIVE_OCTETS))
    return Line(partial(session.send_all, sock), partial(session.receive_some, sock))


def _explain(error: Exception, seconds: float) -> str:
    match error:
        case trio.TooSlowError():
            return f"no connection within {seconds:g} s"
        case OSError(__cause__=ExceptionGroup(exceptions=[*_, last])):
            return _explain(last, seconds)  # one for each address that the host's name has
        case OSError(errno=int(number)) if number > 0:
            return os.strerror(number)
        case OSError(strerror=str(reason)):
            return reason  # of a name that was not found
        case _:
            return str(error)
