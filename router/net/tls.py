"""TLS as an engine around an engine, so that a TLS connection lives in the data plane like any.

Theory of operation. ``TlsSession`` is an ``ssl.SSLObject`` between two memory buffers. Until the
handshake is done it belongs to the task that accepted or dialed the socket, which copies octets
in both directions (``shake_hands``). Then ``TlsEngine`` owns it: octets from the socket are
decrypted and passed to the inner engine; the inner engine's output is encrypted when the data plane
asks for it, all output of one turn in as few records as possible.

Shown output has been encrypted and cannot be withdrawn, so the inner engine forgets it at once;
the octets that the socket has not accepted yet wait here.
"""

import contextlib
import ssl
from typing import Any, Final

import attrs
import trio

from router.errors import RouterError
from router.model.commands import Command
from router.model.condition import CONNECTION_FORCED, Condition
from router.model.events import ConnectionClosed, Event
from router.net.sockets import receive_some, send_all
from router.wire.engine import Engine

SHOWN_OCTETS: Final = 256 * 1024
"""Ciphertext made ahead of what the socket takes, at most (and one record)."""

_RECORD_OCTETS: Final = 16 * 1024
_RECEIVE_OCTETS: Final = 64 * 1024
_CERTIFICATE_FIELDS: Final = {
    "common-name": "commonName",
    "san-dns": "DNS",
    "san-uri": "URI",
    "san-email": "email",
}
_NO_TLS: Final = frozenset(("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "UNKNOWN_PROTOCOL"))
"""What OpenSSL makes of octets that are no TLS."""

_NOTHING: Final = memoryview(b"")
_cleartext = memoryview(bytearray(256 * 1024))
"""Where every TLS connection of this process decrypts to: engines read it before they return."""


@attrs.frozen
class TlsError(RouterError):
    """TLS cannot be had.

    Attributes:
        reason: why, in one line.
        option: dotted path of the option that names the file at fault; None: no file is.
    """

    reason: str
    option: str | None = None

    def __str__(self) -> str:
        return self.reason


@attrs.define(eq=False, init=False)
class TlsSession:
    """One TLS session, before and after its handshake."""

    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO
    tls: ssl.SSLObject

    def __init__(self, context: ssl.SSLContext, server_name: str | None = None) -> None:
        """Begins a session: as a client if ``server_name`` is given, else as the server."""
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self.incoming,
            self.outgoing,
            server_side=server_name is None,
            server_hostname=server_name,
        )

    async def shake_hands(self, sock: Any, octets: bytes, turns: trio.Lock) -> None:
        """Goes through the handshake.

        Args:
            sock: the non-blocking socket.
            octets: octets already read from it.
            turns: held during each step; steps cost milliseconds, and all handshakes of a worker
                that take turns leave the data plane its share.

        Raises:
            TlsError: the peer and we do not agree, or the peer left.
            OSError: the socket failed.
        """
        self.incoming.write(octets)
        while True:
            is_done = True
            async with turns:
                try:
                    self.tls.do_handshake()
                except ssl.SSLWantReadError:
                    is_done = False
                except ssl.SSLError as error:
                    await self._send_alert(sock)
                    raise TlsError(describe_error(error)) from error
            if self.outgoing.pending:
                await send_all(sock, self.outgoing.read())
            if is_done:
                return
            arrived = await receive_some(sock, _RECEIVE_OCTETS)
            if not arrived:
                raise TlsError("the peer left during the handshake")
            self.incoming.write(arrived)

    async def receive_some(self, sock: Any) -> bytes:
        """Waits for plain octets after the handshake; empty at the end of the stream."""
        while True:
            try:
                return self.tls.read(_RECEIVE_OCTETS)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                return b""
            arrived = await receive_some(sock, _RECEIVE_OCTETS)
            if not arrived:
                return b""
            self.incoming.write(arrived)

    def seal(self, octets: bytes) -> bytes:
        """Encrypts last words, close_notify included."""
        if octets:
            self.tls.write(octets)
        with contextlib.suppress(ssl.SSLError):  # wants a close_notify that nobody waits for
            self.tls.unwrap()
        return self.outgoing.read()

    def identity(self, field: str) -> str | None:
        """Names the peer by a field of its verified certificate; None if it showed none.

        Args:
            field: ``common-name``, ``subject`` (RFC 4514, most specific last), ``san-dns``,
                ``san-uri`` or ``san-email``; the first, where a certificate has several.
        """
        certificate: Any = self.tls.getpeercert()
        if not certificate:
            return None
        subject = [pair for relative in certificate.get("subject", ()) for pair in relative]
        if field == "subject":
            return ",".join(f"{key}={value}" for key, value in subject) or None
        alternatives = certificate.get("subjectAltName", ())
        named = subject if field == "common-name" else alternatives
        wanted = _CERTIFICATE_FIELDS[field]
        return next((str(value) for kind, value in named if kind == wanted), None)

    async def _send_alert(self, sock: Any) -> None:
        try:
            await send_all(sock, self.outgoing.read())
        except OSError:
            return


@attrs.define(eq=False)
class TlsEngine:
    """Has the interface of an engine; speaks TLS outside, and ``inner`` speaks its protocol.

    Attributes:
        session: its handshake is done.
        inner: the protocol's engine.
        read_ahead: plain octets that were read before; the first ``receive_data`` hands them on,
            with whatever else is decrypted by then.
    """

    session: TlsSession
    inner: Engine
    read_ahead: bytes = b""
    _waiting: memoryview = attrs.field(default=_NOTHING, init=False)
    _is_broken: bool = attrs.field(default=False, init=False)
    _said_goodbye: bool = attrs.field(default=False, init=False)
    _alert: str | None = attrs.field(default=None, init=False)

    @property
    def deadline(self) -> float | None:
        """The inner engine's."""
        return self.inner.deadline

    @property
    def finished(self) -> bool:
        """Whether the inner engine is finished, or TLS can carry nothing more."""
        return self.inner.finished or self._is_broken

    @property
    def output_octets(self) -> int:
        """What waits on both sides of the encryption."""
        return len(self._waiting) + self.session.outgoing.pending + self.inner.output_octets

    @property
    def waiting_octets(self) -> int:
        """The inner engine's."""
        return self.inner.waiting_octets

    @property
    def input_waits(self) -> bool:
        """The inner engine's."""
        return self.inner.input_waits

    @property
    def carried(self) -> None:
        """Nothing: what the inner engine shows is not what goes over the socket."""

    def receive_data(self, octets: bytes | memoryview, now: float) -> list[Event]:
        """Decrypts whole records and passes them to the inner engine."""
        self.session.incoming.write(octets)
        if not self.read_ahead:
            return self._read(now)
        ahead, self.read_ahead = self.read_ahead, b""
        return self.inner.receive_data(ahead, now) + self._read(now)

    def receive_eof(self, now: float) -> list[Event]:
        """Ends the inner stream, with or without the peer's close_notify."""
        self.session.incoming.write_eof()
        events = self._read(now)
        if not self.finished:
            events += self._break(now)
        return events

    def execute(self, command: Command) -> None:
        """Hands the command in."""
        self.inner.execute(command)

    def data_to_send(self) -> memoryview:
        """Shows ciphertext, encrypting what the inner engine has to send."""
        if not self._waiting:
            outgoing = self.session.outgoing
            if not self._is_broken:
                while outgoing.pending < SHOWN_OCTETS and self._encrypt_some():
                    pass
            if outgoing.pending:
                self._waiting = memoryview(outgoing.read())
        return self._waiting

    def bytes_sent(self, count: int) -> None:
        """Forgets ciphertext."""
        self._waiting = self._waiting[count:] if count < len(self._waiting) else _NOTHING

    def handle_deadline(self, now: float) -> list[Event]:
        """Hands the time in."""
        return self.inner.handle_deadline(now)

    def _read(self, now: float) -> list[Event]:
        events: list[Event] = []
        read = self.session.tls.read
        while not self.finished:
            filled = 0
            is_over = False
            try:
                while filled <= len(_cleartext) - _RECORD_OCTETS:
                    count: Any = read(_RECORD_OCTETS, _cleartext[filled:])
                    if not count:
                        is_over = True  # close_notify
                        break
                    filled += count
            except ssl.SSLWantReadError:
                if not filled:
                    return events
            except ssl.SSLError as error:
                is_over = True
                self._alert = describe_error(error) if is_alert(error) else None
            if filled:
                events += self.inner.receive_data(_cleartext[:filled], now)
            if is_over and not self.finished:
                events += self._break(now)
        return events

    def _break(self, now: float) -> list[Event]:
        """Ends the input; pending output can still be sent, unless TLS itself failed."""
        events = self.inner.receive_eof(now)
        if not self.inner.finished:
            self._is_broken = True
        return [self._explained(event) for event in events]

    def _explained(self, event: Event) -> Event:
        """Puts the reason of the peer's alert, such as a missing certificate, into the end."""
        if self._alert is None or not isinstance(event, ConnectionClosed) or not event.by_peer:
            return event
        return attrs.evolve(event, condition=Condition(CONNECTION_FORCED, self._alert))

    def _encrypt_some(self) -> bool:
        """Encrypts what the inner engine shows; returns whether it showed anything."""
        tls = self.session.tls
        try:
            octets = self.inner.data_to_send()
            if octets:
                count = tls.write(octets)
                del octets
                self.inner.bytes_sent(count)
                return True
            if self.inner.finished and not self._said_goodbye:
                self._said_goodbye = True
                tls.unwrap()
        except ssl.SSLWantReadError:
            pass  # the peer's close_notify, which nobody waits for
        except ssl.SSLError:
            self._is_broken = True
        return False


def describe_error(error: ssl.SSLError) -> str:
    """Says in one line what went wrong."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is refused: {error.verify_message}"
    reason = error.reason or str(error)
    said = reason.replace("_", " ").lower()
    if reason in _NO_TLS:
        return f"the peer does not speak TLS ({said})"
    if is_alert(error):
        return f"TLS alert of the peer: {said.rpartition('alert ')[2]}"
    return said


def is_alert(error: ssl.SSLError) -> bool:
    """Returns whether the peer has ended TLS by an alert, which says why."""
    return "_ALERT_" in (error.reason or "")
