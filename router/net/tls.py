"""TLS sessions until their handshake is done, and what can go wrong with TLS.

Theory of operation. ``TlsSession`` is an ``ssl.SSLObject`` between two memory buffers. Until the
handshake is done it belongs to the task that accepted or dialed the socket, which copies octets
in both directions (``shake_hands``). Then a ``TlsStream`` owns it (``tls_stream``).
"""

import contextlib
import ssl
import time
from collections.abc import Callable
from typing import Any, Final

import attrs
import trio

from router.errors import RouterError
from router.net.sockets import receive_some, send_all

RECEIVE_OCTETS: Final = 64 * 1024
"""Read from a socket at once during a handshake."""

HEADER_OCTETS: Final = 5
"""Before each record (RFC 8446 §5.1)."""

IDLE_RECORDS: Final = 64
"""Records without plaintext that a peer may send, beside those made up for by plaintext."""

FORGIVING_OCTETS: Final = 64 * 1024
"""Plaintext that makes up for one of them. Key updates are needed once in many gigabytes."""

_CERTIFICATE_FIELDS: Final = {
    "common-name": "commonName",
    "san-dns": "DNS",
    "san-uri": "URI",
    "san-email": "email",
}
_NO_TLS: Final = frozenset(("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "UNKNOWN_PROTOCOL"))
"""What OpenSSL makes of octets that are no TLS."""


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


@attrs.define(eq=False)
class Idleness:
    """Counts records without plaintext; see ``tls_stream``.

    Attributes:
        records: received, less those that plaintext has come of and those that are forgiven.
    """

    records: int = 0
    _header: bytes = b""
    _rest: int = 0
    _forgiving: int = 0

    @property
    def is_over(self) -> bool:
        """Whether there are too many; one may be incomplete."""
        return self.records > IDLE_RECORDS + 1

    def receive(self, octets: memoryview) -> None:
        """Counts the records that begin in ciphertext (RFC 8446 §5.1)."""
        at = 0
        while True:
            passed = min(self._rest, len(octets) - at)
            at += passed
            self._rest -= passed
            if at == len(octets):
                return
            more = HEADER_OCTETS - len(self._header)
            self._header += octets[at : at + more]
            at += more
            if len(self._header) < HEADER_OCTETS:
                return
            self._rest = int.from_bytes(self._header[3:])
            self._header = b""
            self.records += 1

    def make_up(self, octets: int) -> None:
        """Records that plaintext has come."""
        self._forgiving += octets
        forgives = self._forgiving >= FORGIVING_OCTETS
        if forgives:
            self._forgiving = 0
        self.records = max(0, self.records - 1 - forgives)


Judge = Callable[[bytes], str | None]
"""Returns why a peer's certificate (DER; empty: it showed none) is refused; None: it is not."""


@attrs.define(eq=False, init=False)
class TlsSession:
    """One TLS session, before and after its handshake."""

    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO
    tls: ssl.SSLObject
    idleness: Idleness
    _judge: Judge | None

    def __init__(
        self,
        context: ssl.SSLContext,
        server_name: str | None = None,
        former: ssl.SSLSession | None = None,
        judge: Judge | None = None,
    ) -> None:
        """Begins a session.

        Args:
            context: what it is made with.
            server_name: of the server, for a client; None: this is the server.
            former: of the same context and server; resumed if the server agrees.
            judge: asked about the peer's certificate, beside what the context verifies.
        """
        self._judge = judge
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.idleness = Idleness()
        self.tls = context.wrap_bio(
            self.incoming,
            self.outgoing,
            server_side=server_name is None,
            server_hostname=server_name,
            session=former,
        )

    def receive(self, octets: bytes | memoryview) -> None:
        """Takes ciphertext that has arrived."""
        self.idleness.receive(memoryview(octets))
        self.incoming.write(octets)

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
        self.receive(octets)
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
                self._check_peer()
                return
            arrived = await receive_some(sock, RECEIVE_OCTETS)
            if not arrived:
                raise TlsError("the peer left during the handshake")
            self.receive(arrived)

    def _check_peer(self) -> None:
        if self.tls.session_reused:
            self._check_validity()
        if self._judge is not None:
            refusal = self._judge(self.tls.getpeercert(binary_form=True) or b"")
            if refusal is not None:
                raise TlsError(f"the peer's certificate {refusal}")

    def _check_validity(self) -> None:
        """Refuses a certificate that has expired since the session that is resumed began.

        OpenSSL verifies nothing in a handshake that resumes a session.
        """
        certificate: Any = self.tls.getpeercert()
        if not certificate:  # it showed none, or is not verified
            return
        now = time.time()
        if now < ssl.cert_time_to_seconds(certificate["notBefore"]):
            raise TlsError("the peer's certificate is refused: certificate is not yet valid")
        if now > ssl.cert_time_to_seconds(certificate["notAfter"]):
            raise TlsError("the peer's certificate is refused: certificate has expired")

    async def receive_some(self, sock: Any) -> bytes:
        """Waits for plain octets after the handshake; empty at the end of the stream."""
        while True:
            try:
                return self.tls.read(RECEIVE_OCTETS)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                return b""
            arrived = await receive_some(sock, RECEIVE_OCTETS)
            if not arrived:
                return b""
            self.receive(arrived)

    async def send_all(self, sock: Any, octets: bytes) -> None:
        """Encrypts and sends plain octets after the handshake."""
        self.tls.write(octets)
        await send_all(sock, self.outgoing.read())

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


def resumable(tls: ssl.SSLObject) -> ssl.SSLSession | None:
    """Returns what a later session can resume (RFC 8446 §2.2, RFC 5077); None: nothing.

    Of several tickets it is the last. Servers of TLS 1.3 send theirs after the handshake, so it is
    asked for when the connection is over.
    """
    try:
        session = tls.session
    except ValueError:  # OpenSSL cannot copy it
        return None
    return session if session is not None and (session.has_ticket or session.id) else None


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
