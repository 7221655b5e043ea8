"""Keeps a connection to one configured container.

Theory of operation. A connector dials for ever. One *round* tries the container's endpoints in
order, without pause, until a connection opens (the peer's ``open`` has come, not merely TCP);
then it waits for that connection's end. After a round in which none opened, and after each end,
it pauses: jittered, and doubling from round to round up to a limit. A connection that stayed open
for ``STABLE_SECONDS`` resets the pauses. The next round begins with the first endpoint again:
the order is a preference.

A peer may name other places of the same container in its open. Those that policy allows
(``diversion``) are dialed after the configured ones, which always stay in the round; the list of
the newest open counts, and an open without a list leaves the former. While there is such a list, a
round begins behind the place whose connection was lost. A peer may also end the connection with a
redirect: then the place that it names is dialed at once, as part of the same turn of the round.

Engine and core see each connection as a new one; they resume links by themselves. TLS resumes its
last session with the same endpoint if the context is still the same (its files are), which saves
both sides most of the handshake. A ticket is used once (RFC 8446 §C.4).
"""

import contextlib
import random
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import attrs
import structlog
import trio

from router.core.stored import HERE
from router.links.backoff import pause_seconds
from router.links.trail import RefusedDiversionError, Trail
from router.model.events import ConnectionOpened
from router.model.place import Alternative
from router.net.connection import Connection
from router.net.dataplane import DataPlane
from router.net.dialing import (
    Line,
    Wait,
    become_websocket,
    connect_through,
    open_tcp,
    system_reason,
)
from router.net.diversion import read_redirect
from router.net.proxy import Proxy, ProxyError
from router.net.sockets import choose_congestion_control, prepare, receive_some, send_all
from router.net.tls import Judge, TlsError, TlsSession
from router.net.tls_stream import TlsStream, open_stream
from router.net.upgrade import UpgradeError
from router.net.websocket import Frames, WebSocketEngine
from router.wire.alternatives import read_list
from router.wire.engine import Engine

_RECEIVE_OCTETS: Final = 4096

_Place = tuple[str, int, str | None]
"""Where TLS sessions may be resumed: host, port and server name."""

CONNECT_SECONDS: Final = 15.0
"""The default of ``connect_seconds``."""

STABLE_SECONDS: Final = 60.0
"""A connection that was open this long was no failure: it resets the pauses."""


@attrs.frozen(kw_only=True)
class Endpoint:
    """One place where a container may be found.

    Attributes:
        host, port: where to dial.
        make_engine: makes the client's engine.
        tls: gives the context; None: no TLS.
        judge: refuses certificates of servers beyond what ``tls`` verifies.
        server_name: sent as SNI and verified; the host, unless configured otherwise.
        path: where AMQP is served over WebSocket; None: no WebSocket.
        proxy: the HTTP proxy that is dialed instead, and asked to connect; None: none.
        divert: returns the endpoint of another place that the peer names, with the same settings;
            raises ``RefusedDiversionError``. None: other places are not dialed.
        make_other_engine: makes the engine of the other end, which is this worker, too; None: the
            host is dialed.
    """

    host: str
    port: int
    make_engine: Callable[[], Engine]
    tls: Callable[[], ssl.SSLContext] | None = None
    judge: Judge | None = None
    server_name: str | None = None
    path: str | None = None
    proxy: Proxy | None = None
    divert: "Callable[[Alternative], Endpoint] | None" = None
    make_other_engine: Callable[[], Engine] | None = None

    def __str__(self) -> str:
        if self.make_other_engine is not None:
            return self.host
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
        redirected_from: the address that redirected to ``address``; None: none did.
        others: places that the peer has named and that are dialed when the connection is lost.
    """

    is_connected: bool
    seconds: float
    address: str | None
    opened: int
    failed: int
    error: str | None
    redirected_from: str | None = None
    others: tuple[str, ...] = ()


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
        is_served: returns whether the container is connected in another way, so that it is not
            dialed at present.
        last_error: why there is no connection; None: there is one, or nothing was tried yet.
    """

    container: str
    endpoints: Sequence[Endpoint]
    plane: DataPlane
    connect_seconds: float = CONNECT_SECONDS
    retry_seconds: float = 0.5
    retry_limit_seconds: float = 30.0
    random: Callable[[], float] = random.random
    is_served: Callable[[], bool] = lambda: False
    last_error: str | None = None
    _failures: int = attrs.field(default=0, init=False)
    _opened: int = attrs.field(default=0, init=False)
    _failed: int = attrs.field(default=0, init=False)
    _away_since: float = attrs.field(init=False)
    _connection: Connection | None = attrs.field(default=None, init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _former: dict[_Place, tuple[ssl.SSLContext, ssl.SSLSession]] = attrs.field(
        factory=dict, init=False
    )
    _listed: tuple[Alternative, ...] = attrs.field(default=(), init=False)
    _lister: int = attrs.field(default=0, init=False)
    _place: Endpoint | None = attrs.field(default=None, init=False)
    _lost: str | None = attrs.field(default=None, init=False)
    _redirected_from: str | None = attrs.field(default=None, init=False)
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
            redirected_from=None if connection is None else self._redirected_from,
            others=tuple(map(str, self._others())),
        )

    @property
    def place(self) -> Endpoint | None:
        """Where it is connected; None: it is not."""
        return self._place if self.is_connected else None

    @property
    def is_connected(self) -> bool:
        """Whether the container's open has come and the connection stands."""
        return self._connection is not None and self._connection.opened_at is not None

    async def run(self) -> None:
        """Dials until ``stop`` is called; a connection that stands by then is closed orderly."""
        with self._closing():
            while True:
                while self.is_served():
                    await trio.sleep(self.retry_seconds)
                for endpoint in self._round():
                    if await self._follow(endpoint, Trail((str(endpoint),))):
                        break
                await self._pause()

    async def run_once(self) -> None:
        """Dials the first endpoint once, and serves the connection to its end, or to ``stop``."""
        with self._closing():
            await self._follow(self.endpoints[0], Trail((str(self.endpoints[0]),)))

    @contextlib.contextmanager
    def _closing(self) -> Iterator[None]:
        try:
            with self._scope:
                yield
        finally:
            if self._connection is not None:
                self.plane.close(self._connection)

    def stop(self) -> None:
        """Makes ``run`` and ``run_once`` return soon."""
        self._scope.cancel()

    def _round(self) -> list[Endpoint]:
        """Returns where to dial, in order."""
        others = self._others()
        places = [*self.endpoints, *others]
        addresses = [str(each) for each in places]
        if others and self._lost in addresses:
            begin = addresses.index(self._lost) + 1
            return places[begin:] + places[:begin]
        return places

    def _others(self) -> list[Endpoint]:
        """Returns the places that the peer has named and that are not configured."""
        divert = self.endpoints[min(self._lister, len(self.endpoints) - 1)].divert
        if divert is None:
            return []
        known = {str(each) for each in self.endpoints}
        found: dict[str, Endpoint] = {}
        for each in self._listed:
            with contextlib.suppress(RefusedDiversionError):  # it was told when it was listed
                endpoint = divert(each)
                found[str(endpoint)] = endpoint
        return [each for address, each in found.items() if address not in known]

    def _note_open(self, endpoint: Endpoint, opened: ConnectionOpened) -> None:
        """Keeps the places that the newest open names, and tells which are not dialed."""
        if opened.alternatives is None:
            return
        if endpoint in self.endpoints:
            self._lister = self.endpoints.index(endpoint)
        listed = read_list(opened.alternatives)
        is_news = listed.alternatives != self._listed or listed.refused
        self._listed = listed.alternatives
        refused = [*listed.refused, *_refusals(endpoint.divert, listed.alternatives)]
        if is_news:
            self._log.info(
                "container.failover_listed",
                container=self.container,
                address=str(endpoint),
                places=[str(each) for each in self._others()],
            )
        for reason in refused if is_news else ():
            self._log.warning(
                "container.failover_refused",
                container=self.container,
                address=str(endpoint),
                reason=reason,
            )

    async def _follow(self, endpoint: Endpoint, trail: Trail) -> bool:
        """Dials a place, and where it redirects to; returns whether a connection had opened.

        A connection that ends with a redirect does not count: the next place has its turn.
        """
        self._redirected_from = trail.visited[-2] if len(trail.visited) > 1 else None
        connection = await self._connect_and_wait(endpoint)
        listed = None if connection is None else read_redirect(connection.condition)
        if connection is None or listed is None or not connection.by_peer:
            return connection is not None and connection.opened_at is not None
        if self._stood(connection):
            trail = Trail(trail.visited[-1:])
        for reason in listed.refused:
            self._refuse_redirect(endpoint, "nowhere", reason)
        for other in listed.alternatives:
            try:
                if endpoint.divert is None:
                    raise RefusedDiversionError("other places are not dialed")
                following = endpoint.divert(other)
                onward = trail.onward(str(following))
            except RefusedDiversionError as error:
                self._refuse_redirect(endpoint, str(other), str(error))
                continue
            self._log.info(
                "container.redirected",
                container=self.container,
                address=str(endpoint),
                to=str(following),
                hops=len(onward.visited) - 1,
                reason=str(connection.condition),
            )
            if await self._follow(following, onward):
                return True
        return False

    def _refuse_redirect(self, endpoint: Endpoint, to: str, reason: str) -> None:
        self.last_error = f"redirected to {to}, which is not dialed: {reason}"
        self._failed += 1
        self._log.warning(
            "container.redirect_refused",
            container=self.container,
            address=str(endpoint),
            to=to,
            reason=reason,
        )

    def _stood(self, connection: Connection) -> bool:
        """Returns whether a connection was open long enough to be no failure."""
        opened_at = connection.opened_at
        return opened_at is not None and self.plane.clock() - opened_at >= STABLE_SECONDS

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

    async def _connect_and_wait(self, endpoint: Endpoint) -> Connection | None:
        """Dials once, and stays until the connection's end; returns it, if there was one."""
        wait = Wait(self.connect_seconds)
        try:
            with trio.fail_after(self.connect_seconds):
                sock, stream, octets = await self._dial(endpoint, wait)
        except trio.TooSlowError:
            self._fail(endpoint, str(wait))
            return None
        except (OSError, TlsError, ProxyError, UpgradeError) as error:
            self._fail(endpoint, system_reason(error))
            return None
        ended = trio.Event()
        self._place = endpoint
        try:
            self._connection = connection = self.plane.add(
                sock,
                _make_engine(endpoint),
                address=str(endpoint),
                octets=octets,
                stream=stream,
                container=self.container,
                on_end=lambda _: ended.set(),
                on_open=partial(self._note_open, endpoint),
            )
        except OSError as error:
            sock.close()
            self._fail(endpoint, error.strerror or str(error))
            return None
        await ended.wait()
        self._keep_session(endpoint, stream)
        self._connection = None
        self.last_error = connection.failure or str(connection.condition or "closed by the peer")
        if connection.opened_at is None:
            if read_redirect(connection.condition) is None:  # a wrong password, for example
                self._fail(endpoint, self.last_error)
            return connection
        self._opened += 1
        self._lost = str(endpoint)
        self._away_since = self.plane.clock()
        if self._stood(connection):
            self._failures = 0
        return connection

    async def _dial(
        self, endpoint: Endpoint, wait: Wait
    ) -> tuple[socket.socket, TlsStream | None, bytes | None]:
        """Returns the socket, TLS on it, and octets that have been read for the engine, if any."""
        if endpoint.make_other_engine is not None:
            return self._dial_here(endpoint, endpoint.make_other_engine()), None, None
        wait.begin(endpoint.proxy)
        stream = await open_tcp(endpoint.host, endpoint.port, endpoint.proxy)
        sock = socket.socket(fileno=stream.socket.detach())
        try:
            prepare(sock)
            choose_congestion_control(sock)
            if endpoint.proxy is not None:
                wait.ask(endpoint.proxy)
                line = _line(sock, None)
                await connect_through(endpoint.proxy, endpoint.host, endpoint.port, line)
            session: TlsSession | None = None
            octets: bytes | None = None
            if endpoint.tls is not None:
                wait.secure()
                session = self._begin_tls(endpoint, endpoint.tls())
                await session.shake_hands(sock, b"", self._tls_turns)
            if endpoint.path is not None:
                wait.upgrade()
                line = _line(sock, session)
                octets = await become_websocket(
                    endpoint.host, endpoint.port, endpoint.path, line, is_tls=session is not None
                )
        except BaseException:
            sock.close()
            raise
        return sock, None if session is None else open_stream(session, sock), octets

    def _dial_here(self, endpoint: Endpoint, other: Engine) -> socket.socket:
        """Returns a socket whose other end is served by this worker."""
        ours, theirs = socket.socketpair()
        try:
            prepare(ours)
            prepare(theirs)
            self.plane.add(theirs, other, address=str(endpoint), container=HERE)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        return ours

    def _begin_tls(self, endpoint: Endpoint, context: ssl.SSLContext) -> TlsSession:
        former_context, former = self._former.pop(_place(endpoint), (None, None))
        if former_context is not context:
            former = None
        name = endpoint.server_name or endpoint.host
        return TlsSession(context, name, former, endpoint.judge)

    def _keep_session(self, endpoint: Endpoint, stream: TlsStream | None) -> None:
        former = None if stream is None else stream.resumable
        if stream is not None and former is not None:
            self._former[_place(endpoint)] = stream.context, former

    def _fail(self, endpoint: Endpoint, reason: str) -> None:
        self.last_error = reason
        self._failed += 1
        self._log.warning(
            "connector.failed", container=self.container, address=str(endpoint), reason=reason
        )


def _refusals(
    divert: Callable[[Alternative], Endpoint] | None, others: Sequence[Alternative]
) -> Iterator[str]:
    """Says which places are not dialed, and why."""
    if divert is None:
        return
    for each in others:
        try:
            divert(each)
        except RefusedDiversionError as error:
            yield f"{each}: {error}"


def _place(endpoint: Endpoint) -> _Place:
    return endpoint.host, endpoint.port, endpoint.server_name


def _make_engine(endpoint: Endpoint) -> Engine:
    """Makes the engine, within a WebSocket if that was dialed."""
    engine = endpoint.make_engine()
    return engine if endpoint.path is None else WebSocketEngine(engine, Frames(is_client=True))


def _line(sock: socket.socket, session: TlsSession | None) -> Line:
    if session is None:
        return Line(partial(send_all, sock), partial(receive_some, sock, _RECEIVE_OCTETS))
    return Line(partial(session.send_all, sock), partial(session.receive_some, sock))
