"""The short time between accepting a socket and its life in the data plane.

Theory of operation. A peer whose first octets have arrived when its socket is admitted is served or
refused at once. Each other socket gets a task of its own that reads until the protocol is known
(``wire.detect``), does the TLS handshake and the upgrade to a WebSocket (``upgrade``) if the peer
begins them, makes the engine and hands everything over. One deadline covers all of it. A silent
peer costs one task and one socket, for ``handshake_seconds`` at most; and there are at most
``HANDSHAKES_MOST`` such tasks: a new one replaces the oldest. This work is paid from the data
plane's account for input that moves no payload (``allowance``), and while the account is empty no
connection is accepted.

A WebSocket's frames are read here until the protocol inside of them is known, and pings among them
answered; then the engine goes on with what reads them, and with the payload so far.
``UNWRAPPED_OCTETS`` bounds the frames, and the deadline holds however many pings come.

A refused peer is answered as the specification says (§2.2), and its socket is closed by
``farewell``. The same holds for a peer that does not send enough in time.
"""

import ipaddress
import itertools
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator, Set
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import attrs
import structlog
import trio

from router.model.capabilities import Protocol
from router.model.condition import RESOURCE_LIMIT_EXCEEDED, Condition
from router.net.attempts import Attempts
from router.net.connection import Connection
from router.net.dataplane import DataPlane
from router.net.farewell import Farewells
from router.net.sockets import describe_peer, prepare, receive_some, send_all
from router.net.tls import Judge, TlsError, TlsSession
from router.net.tls_stream import open_stream
from router.net.transcript import Transcript
from router.net.upgrade import NotUpgraded, read_request, refuse
from router.net.websocket import Frames, WebSocketEngine
from router.wire.detect import (
    Door,
    Refused,
    Speaks,
    StartsHttp,
    StartsTls,
    TlsOffer,
    Verdict,
    WebSocketOffer,
    detect,
)
from router.wire.engine import Engine
from router.wire.noted_login import NotingServer, WrapLogin

HANDSHAKES_MOST: Final = 1024
"""Sockets between accept and data plane: some 10 KiB each."""

TASK_SECONDS: Final = 150e-6
"""What a peer that has to be waited for costs beside its admission: a task and a deadline."""

_UNIX: Final = "unix"

_IPV6_NETWORK_BITS: Final = 64
"""Source of those who fail to log in by Unix sockets, all together."""

_RECEIVE_OCTETS: Final = 4096

UNWRAPPED_OCTETS: Final = 16 * 1024
"""Frames that may come before the protocol inside of them is known, empty ones for example."""


@attrs.frozen
class Transport:
    """What the layers below the engine have settled.

    Attributes:
        is_tls: the connection is encrypted.
        identity: the peer's, by its certificate; None if it showed none.
        login: put around its login; None: nothing is.
    """

    is_tls: bool
    identity: str | None
    login: WrapLogin | None = None


MakeEngine = Callable[[Protocol, Transport], Engine]

STAYING: Final = frozenset({Protocol.AMQP_0_10, Protocol.AMQP_FAST})
"""Protocols whose engines keep a state that clients come back to: it would be left behind."""


@attrs.frozen(kw_only=True)
class ListenerSettings:
    """How sockets of one listener are received.

    Attributes:
        listener: its name, for the log.
        door: the protocols and logins that are served.
        make_engine: makes engines for what is served.
        tls: gives the context for a new connection, if ``door`` offers TLS.
        origins: of the web pages that may connect, if ``door`` offers WebSocket; ``*``: of any.
        identity_field: of a peer's certificate, as ``TlsSession.identity`` takes it.
        judge: refuses certificates of peers beyond what ``tls`` verifies.
        handshake_seconds: from accept until the protocol is known, TLS and upgrade included.
    """

    listener: str
    door: Door
    make_engine: MakeEngine
    tls: Callable[[], ssl.SSLContext] | None = None
    origins: Set[str] = frozenset()
    identity_field: str = "common-name"
    judge: Judge | None = None
    handshake_seconds: float = 15.0


@attrs.frozen(kw_only=True)
class Admission:
    """How many connections may come in, by all listeners together.

    Attributes:
        connections: at a time.
        per_source: at a time from one IP address; None: no limit. Unix sockets have no source.
    """

    connections: int = 10_000
    per_source: int | None = None


@attrs.frozen
class Elsewhere:
    """What counts towards the limits of ``Admission`` and is at other workers.

    Attributes:
        connections: all of them.
        from_source: those of the same IP address.
    """

    connections: int = 0
    from_source: int = 0


ALONE: Final = Elsewhere()
"""There is no other worker."""


@attrs.define(eq=False)
class Reception:
    """Receives accepted sockets and hands them to the data plane.

    Attributes:
        admission: may be replaced; admitted connections stay.
        hands_on: connections may be handed to another worker, so what passes first is noted.
    """

    plane: DataPlane
    nursery: trio.Nursery
    admission: Admission = Admission()
    hands_on: bool = attrs.field(default=False, init=False)
    _received: int = attrs.field(default=0, init=False)
    _sources: Counter[str | None] = attrs.field(factory=Counter, init=False)
    _scopes: dict[int, trio.CancelScope] = attrs.field(factory=dict, init=False)
    _serials: Iterator[int] = attrs.field(factory=itertools.count, init=False)
    _tls_turns: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _attempts: Attempts = attrs.field(factory=Attempts, init=False)
    _farewells: Farewells = attrs.field(init=False)
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    @_farewells.default
    def _make_farewells(self) -> Farewells:
        return Farewells(self.nursery, self.plane.clock)

    @property
    def handshake_count(self) -> int:
        """How many sockets are on their way."""
        return len(self._scopes)

    @property
    def parting_count(self) -> int:
        """How many sockets of refused peers are to be closed."""
        return self._farewells.count

    @property
    def admitted_count(self) -> int:
        """How many sockets are on their way, or have come in and stand."""
        return len(self._scopes) + self._received

    def sources(self) -> dict[str, int]:
        """Returns how many connections stand from each IP address."""
        return {source: count for source, count in self._sources.items() if source is not None}

    def admit(
        self, sock: socket.socket, settings: ListenerSettings, elsewhere: Elsewhere = ALONE
    ) -> None:
        """Takes over an accepted socket.

        A peer that has already sent enough to be served or refused costs no task.
        """
        began = self.plane.clock()
        newcomer = _Newcomer(sock, settings, elsewhere, describe_peer(sock))
        cost = 0.0
        try:
            prepare(sock)
            refusal = self._login_refusal(sock)
            if refusal is not None:
                self._log_refusal(settings, newcomer.address, refusal)
                sock.close()
            elif not self._settle(newcomer, newcomer.first.look()):
                self._wait_for(newcomer)
                cost = TASK_SECONDS
        except Exception as error:  # noqa: BLE001  as in _receive
            self._failed(newcomer, error)
        self.plane.allowance.spend(self.plane.clock() - began + cost)

    def _wait_for(self, newcomer: "_Newcomer") -> None:
        """Begins to wait for what a peer says."""
        if len(self._scopes) >= HANDSHAKES_MOST:
            oldest = next(iter(self._scopes))
            self._scopes.pop(oldest).cancel()
        serial = next(self._serials)
        self._scopes[serial] = scope = trio.CancelScope()
        self.nursery.start_soon(self._receive, newcomer, serial, scope)

    async def _receive(self, newcomer: "_Newcomer", serial: int, scope: trio.CancelScope) -> None:
        is_settled = False
        try:
            with scope:
                is_settled = await self._shake_hands(newcomer)
            if scope.cancelled_caught:
                reason = f"{HANDSHAKES_MOST} others came after it"
                self._log_refusal(newcomer.settings, newcomer.address, reason)
        except Exception as error:  # noqa: BLE001  what one connection meets ends that connection
            self._failed(newcomer, error)
        finally:
            self._scopes.pop(serial, None)
            if not is_settled:
                newcomer.sock.close()

    async def _shake_hands(self, newcomer: "_Newcomer") -> bool:
        """Returns whether the socket is in other hands."""
        first, settings = newcomer.first, newcomer.settings
        with trio.move_on_after(settings.handshake_seconds) as patience:
            verdict = await first.detect()
            if isinstance(verdict, StartsTls):
                assert settings.tls is not None, "the door offers what the listener has"
                await first.start_tls(
                    verdict, TlsSession(settings.tls(), judge=settings.judge), self._tls_turns
                )
                verdict = await first.detect()
            if isinstance(verdict, StartsHttp):
                verdict = await first.upgrade(settings.origins)
        if patience.cancelled_caught:
            verdict = first.give_up(settings.handshake_seconds)
        return self._settle(newcomer, verdict)

    def _settle(self, newcomer: "_Newcomer", verdict: Verdict | None) -> bool:
        """Serves or refuses a peer, if it is known which; returns whether it was."""
        match verdict:
            case Speaks(protocol=protocol):
                self._hand_over(newcomer, protocol)
            case Refused(answer=answer, reason=reason):
                self._log_refusal(newcomer.settings, newcomer.address, reason)
                self._farewells.part(newcomer.sock, newcomer.first.seal(answer))
            case _:
                return False
        return True

    def _failed(self, newcomer: "_Newcomer", error: Exception) -> None:
        """Ends the connection of a peer whose socket has failed, or that has met a defect."""
        newcomer.sock.close()
        if isinstance(error, _PeerLeftError):
            return
        if isinstance(error, OSError | TlsError):
            self._log_refusal(newcomer.settings, newcomer.address, str(error))
        else:
            self._log.error(
                "connection.failed",
                listener=newcomer.settings.listener,
                address=newcomer.address,
                exc_info=error,
            )

    def _hand_over(self, newcomer: "_Newcomer", protocol: Protocol) -> None:
        first, settings = newcomer.first, newcomer.settings
        session, octets = first.session, first.octets
        identity = None if session is None else session.identity(settings.identity_field)
        transcript = None
        transport = Transport(session is not None, identity)
        may_move = protocol not in STAYING and session is None and first.frames is None
        if self.hands_on and may_move:
            transcript = Transcript(settings.listener, protocol)
            noting = partial(NotingServer, verdicts=transcript.verdicts)
            transport = attrs.evolve(transport, login=noting)
        engine = settings.make_engine(protocol, transport)
        if first.frames is not None:
            engine = WebSocketEngine(engine, first.frames, early=first.inside)
            octets = b""
        source = source_of(first.sock)
        refusal = self._refusal(source, newcomer.elsewhere)
        self._count(source)
        try:
            connection = self.plane.add(
                first.sock,
                engine,
                address=newcomer.address,
                octets=octets,
                stream=None if session is None else open_stream(session, first.sock),
                transcript=transcript,
                listener=settings.listener,
                on_end=lambda _: self._forget(source),
                on_failed_login=partial(self._login_failed, source),
            )
        except OSError:
            self._forget(source)
            raise
        if refusal is not None:
            self._log_refusal(settings, newcomer.address, refusal)
            self.plane.close(connection, Condition(RESOURCE_LIMIT_EXCEEDED, refusal))

    def _refusal(self, source: str | None, elsewhere: Elsewhere) -> str | None:
        """Returns which limit the next connection from a source would exceed, if any."""
        admission = self.admission
        if self._received + elsewhere.connections >= admission.connections:
            return f"limits.connections: {admission.connections} are open"
        most = admission.per_source
        if most is None or source is None:
            return None
        if self._sources[source] + elsewhere.from_source >= most:
            return f"limits.connections_per_source: {most} are open from {source}"
        return None

    def _login_refusal(self, sock: socket.socket) -> str | None:
        """Returns why a peer may not try to log in for now; None: it may."""
        source = source_of(sock)
        if source is None:
            return None
        return self._attempts.refusal(source, self.plane.clock())

    def failed_logins(self, most: int) -> tuple[int, list[tuple[str, int]]]:
        """Returns how many logins have failed, and how many lately by the worst sources."""
        return self._attempts.total, self._attempts.recent(most, self.plane.clock())

    def _login_failed(self, source: str | None, connection: Connection, now: float) -> float:
        """Counts a failed login; returns when the peer is to hear of it."""
        source = _UNIX if source is None else source
        answers_at = self._attempts.failed(source, now)
        self._log.warning(
            "login.failed",
            connection=connection.id,
            address=connection.address,
            listener=connection.listener,
            condition=str(connection.condition),
            count=self._attempts.count(source),
            seconds=round(answers_at - now, 3),
        )
        return answers_at

    def count(self, sock: socket.socket) -> Callable[[], None]:
        """Counts a connection that comes from another worker.

        Returns:
            What is to be called when it has ended.
        """
        source = source_of(sock)
        self._count(source)
        return partial(self._forget, source)

    def _count(self, source: str | None) -> None:
        self._received += 1
        self._sources[source] += 1

    def _forget(self, source: str | None) -> None:
        self._received -= 1
        self._sources[source] -= 1
        if not self._sources[source]:
            del self._sources[source]

    def _log_refusal(self, settings: ListenerSettings, address: str, reason: str) -> None:
        self._log.info(
            "connection.refused", listener=settings.listener, address=address, reason=reason
        )


def source_of(sock: socket.socket) -> str | None:
    """Returns where a peer comes from, as limits count it; None for a Unix socket."""
    if sock.family == socket.AF_UNIX:
        return None
    return source_of_address(str(sock.getpeername()[0]))


def source_of_address(text: str) -> str:
    """Returns an IPv4 address as it is, and of an IPv6 address its network of 64 bits.

    One host has a whole such network (RFC 4291 §2.5.4, RFC 7934), so it could come from another
    address each time. An IPv4 address inside of IPv6 counts as what it is.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    if address.version == 4:
        return text
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), _IPV6_NETWORK_BITS), strict=False))


class _PeerLeftError(Exception):
    """A peer connected and left, as port checks do."""


@attrs.define(eq=False)
class _FirstOctets:
    """What a peer says before its protocol is known.

    Attributes:
        octets: so far; plain ones once TLS is established.
        session: TLS, once it is established.
        frames: reads those of a WebSocket, once the connection has been upgraded.
        inside: payload of these frames so far.
    """

    sock: socket.socket
    door: Door
    octets: bytes = b""
    session: TlsSession | None = None
    frames: Frames | None = None
    inside: bytes = b""
    _speaks_cleartext: bool = attrs.field(default=True, init=False)
    _speaks_http: bool = attrs.field(default=False, init=False)

    def look(self) -> Verdict | None:
        """Reads the octets received so far; None: they are not enough.

        Raises:
            _PeerLeftError: it said nothing.
            OSError: the socket is broken.
        """
        try:
            self.octets = self.sock.recv(_RECEIVE_OCTETS)
        except (BlockingIOError, InterruptedError):
            return None
        if not self.octets:
            raise _PeerLeftError
        return detect(self.octets, self.door)

    async def detect(self) -> Verdict | None:
        """Reads until the protocol is known; None: the peer left before it was."""
        while True:
            verdict = detect(self.octets, self.door)
            if verdict is not None:
                return verdict
            arrived = await self._receive_some()
            if not arrived:
                return None
            self.octets += arrived

    async def upgrade(self, origins: Set[str]) -> Verdict | None:
        """Goes through the upgrade to a WebSocket, and reads until the protocol in it is known."""
        self._speaks_http = True
        while (answer := read_request(self.octets, origins)) is None:
            arrived = await self._receive_some()
            if not arrived:
                return None
            self.octets += arrived
        if isinstance(answer, NotUpgraded):
            return Refused(answer.answer, answer.reason)
        await self._send(answer.answer)
        self._speaks_http = False
        self.frames = Frames(is_client=False)
        self.door = attrs.evolve(self.door, tls=TlsOffer.NONE, websocket=WebSocketOffer.NONE)
        return await self._detect_inside(self.frames, self.octets[answer.consumed :])

    async def _detect_inside(self, frames: Frames, arrived: bytes) -> Verdict | None:
        """Reads frames until the protocol in them is known, and answers pings meanwhile."""
        unwrapped = 0
        while True:
            unwrapped += len(arrived)
            self.inside += frames.receive(arrived)
            verdict = detect(self.inside, self.door)
            if verdict is not None:
                return verdict
            if frames.ending is not None:
                return Refused(b"", str(frames.ending.condition or "the peer closed the WebSocket"))
            if unwrapped > UNWRAPPED_OCTETS:
                return Refused(b"", f"no protocol in {UNWRAPPED_OCTETS} octets of frames")
            if frames.has_answers:
                await self._send(frames.take_answers())
            arrived = await self._receive_some()
            if not arrived:
                return None

    async def _receive_some(self) -> bytes:
        """Waits for plain octets; empty at the end of the stream."""
        if self.session is not None:
            return await self.session.receive_some(self.sock)
        return await receive_some(self.sock, _RECEIVE_OCTETS)

    async def _send(self, octets: bytes) -> None:
        if self.session is not None:
            await self.session.send_all(self.sock, octets)
        else:
            await send_all(self.sock, octets)

    async def start_tls(self, start: StartsTls, session: TlsSession, turns: trio.Lock) -> None:
        """Goes through the TLS handshake; what follows is read through it."""
        self._speaks_cleartext = False
        await send_all(self.sock, start.answer)
        await session.shake_hands(self.sock, self.octets[start.consumed :], turns)
        self.session = session
        self._speaks_cleartext = True
        self.octets = b""
        self.door = attrs.evolve(self.door, tls=TlsOffer.NONE)

    def give_up(self, seconds: float) -> Refused:
        """Refuses a peer that said too little: it gets the header that garbage would get."""
        if not self._speaks_cleartext:
            return Refused(b"", f"no end of the TLS handshake within {seconds:g} s")
        if self._speaks_http:
            late = f"no end of the request within {seconds:g} s"
            refusal = refuse(HTTPStatus.REQUEST_TIMEOUT, late)
            return Refused(refusal.answer, refusal.reason)
        garbage = detect(b"\x00", self.door)
        assert isinstance(garbage, Refused)
        return Refused(garbage.answer, f"no protocol within {seconds:g} s")

    def seal(self, octets: bytes) -> bytes:
        """Makes last words fit for the socket."""
        if self.frames is not None:
            octets = self._frame(self.frames, octets)
        return octets if self.session is None else self.session.seal(octets)

    def _frame(self, frames: Frames, octets: bytes) -> bytes:
        """Puts last words into a message, and a close frame behind them."""
        if frames.ending is not None:
            return frames.take_answers()
        return bytes(frames.wrap(octets) if octets else b"") + frames.close()


@attrs.frozen(eq=False)
class _Newcomer:
    """A socket on its way from a listener to the data plane."""

    sock: socket.socket
    settings: ListenerSettings
    elsewhere: Elsewhere
    address: str
    first: _FirstOctets = attrs.field(init=False)

    @first.default
    def _make_first(self) -> _FirstOctets:
        return _FirstOctets(self.sock, self.settings.door)
