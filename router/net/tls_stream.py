"""TLS connections in the data plane: plaintext is received and sent as through a plain socket.

Theory of operation. A ``TlsStream`` owns a socket's octets once the handshake is done. It receives
ciphertext once for each call and decrypts all complete records of it straight into the caller's
buffer. What is sent is encrypted in records that are as large as possible, all of one call in one
system call. So an engine does not know of TLS, nor does whatever slices its input.

Encrypted output cannot be withdrawn. What the socket has not accepted yet waits here, and nothing
more is encrypted until it is gone; so at most ``ENCRYPTED_OCTETS`` (and one record) wait.

Ciphertext is never left over: a call decrypts all that it received, or else epoll would not report
it again. The caller's buffer must therefore be larger than what is received by ``MARGIN_OCTETS``,
which covers an incomplete record of earlier calls.

A record may carry no plaintext: key updates, tickets, nothing. A key update costs some 20 us, so a
flood of them would hold everything else up. ``IDLE_RECORDS`` are accepted, and one more for each
``FORGIVING_OCTETS`` of plaintext; beyond that TLS is over. This bounds the answers to them, too,
which a peer need not read. Renegotiation is off (``tls_files``).

There are two of them. ``_tls``, which was compiled, calls the OpenSSL that Python's ``ssl`` module
itself has loaded, on the session that this module has made; the carrier of the express lane uses it
without a step of Python. ``MemoryStream`` does the same through the ``ssl`` module, slower.
"""

import contextlib
import functools
import hashlib
import hmac
import os
import socket
import ssl
from types import ModuleType
from typing import Any, Final
from typing import Protocol as Interface

import attrs

from router.errors import MisuseError
from router.model.compiled import compiled
from router.model.condition import CONNECTION_FORCED, Condition
from router.model.events import ConnectionClosed, Event
from router.net.ciphers import choose_order, has_aes
from router.net.tls import RECEIVE_OCTETS, TlsSession, describe_error, is_alert, resumable

VARIABLE: Final = "ROUTER_TLS"
"""Environment variable: ``openssl`` requires the compiled streams, ``python`` disables them; unset
or empty: they are used where they can be."""

RECORD_OCTETS: Final = 16 * 1024
"""Plaintext of one record (RFC 8446 §5.1)."""

MARGIN_OCTETS: Final = 40 * 1024
"""A record that was decrypted but not read, and one that is incomplete, with their overhead."""

EARLY_OCTETS: Final = 2 * RECEIVE_OCTETS
"""Ciphertext that can arrive with the end of a handshake, at most."""

ENCRYPTED_OCTETS: Final = 256 * 1024
"""Plaintext that is encrypted ahead of what the socket accepts, at most."""

TOO_IDLE: Final = "too many TLS records without content"

_MODULE: Final = "router.net._tls"

_ciphertext = memoryview(bytearray(256 * 1024))
"""Where every ``MemoryStream`` of this process receives to: it is decrypted before they return."""


class TlsStream(Interface):
    """A TLS connection on its socket; nothing waits here."""

    @property
    def context(self) -> ssl.SSLContext:
        """What the session was made with."""

    @property
    def pipe(self) -> object:
        """For a carrier, see ``wire.carrier``; None: it cannot use this stream."""

    @property
    def resumable(self) -> ssl.SSLSession | None:
        """What a later session with the same peer can resume; None: nothing."""

    @property
    def alert(self) -> str | None:
        """Why TLS is over, if the peer is to blame: its alert, or what it has sent; else None."""

    @property
    def is_over(self) -> bool:
        """Whether no more plaintext comes.

        The peer's close_notify, its end of the stream or a failure has been received.
        """

    @property
    def saw_end(self) -> bool:
        """Whether the end of the TCP stream has been received."""

    @property
    def waiting_octets(self) -> int:
        """Ciphertext that the socket has not accepted yet."""

    @property
    def octets_in(self) -> int:
        """Octets received through the socket."""

    @property
    def octets_out(self) -> int:
        """Octets sent through the socket."""

    def receive_into(self, buffer: memoryview, most: int) -> int:
        """Receives once and decrypts what is complete; 0: no more plaintext comes.

        The first call decrypts what arrived with the handshake, and does not receive.

        Args:
            buffer: larger than ``EARLY_OCTETS`` and ``MARGIN_OCTETS`` together.
            most: octets to receive from the socket.

        Raises:
            BlockingIOError: no plaintext has arrived.
            OSError: the socket is broken.
        """

    def send(self, octets: bytes | memoryview) -> int:
        """Encrypts and sends; returns how much of the plaintext was taken.

        After a failure of TLS everything is taken and nothing is sent.

        Raises:
            BlockingIOError: earlier ciphertext still waits; nothing was taken.
            OSError: the socket is broken.
        """

    def flush(self) -> bool:
        """Sends waiting ciphertext; False: some still waits.

        Raises:
            OSError: the socket is broken.
        """

    def finish(self) -> None:
        """Sends close_notify, behind everything else, once."""

    def close(self) -> None:
        """Lets go of the socket, which is about to be closed."""


@attrs.define(eq=False)
class MemoryStream:
    """A stream through Python's ``ssl`` module."""

    session: TlsSession
    _socket: socket.socket
    alert: str | None = attrs.field(default=None, init=False)
    is_over: bool = attrs.field(default=False, init=False)
    saw_end: bool = attrs.field(default=False, init=False)
    octets_in: int = attrs.field(default=0, init=False)
    octets_out: int = attrs.field(default=0, init=False)
    _waiting: memoryview = attrs.field(default=memoryview(b""), init=False)
    _has_received: bool = attrs.field(default=False, init=False)
    _is_broken: bool = attrs.field(default=False, init=False)
    _is_finished: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.session.idleness.records = 0  # those of the handshake have their purpose

    @property
    def context(self) -> ssl.SSLContext:
        """What the session was made with."""
        return self.session.tls.context

    @property
    def resumable(self) -> ssl.SSLSession | None:
        """What a later session with the same peer can resume; None: nothing."""
        return resumable(self.session.tls)

    @property
    def pipe(self) -> None:
        """None: a carrier does not call Python."""

    @property
    def waiting_octets(self) -> int:
        """Ciphertext that the socket has not accepted yet."""
        return len(self._waiting) + self.session.outgoing.pending

    def receive_into(self, buffer: memoryview, most: int) -> int:
        """Receives once and decrypts what is complete; see ``TlsStream``."""
        if self.is_over:
            return 0
        if self._has_received:
            room = min(most, len(buffer) - MARGIN_OCTETS)
            count = self._socket.recv_into(_ciphertext[:room])
            if not count:
                self.is_over = self.saw_end = True
                return 0
            self.octets_in += count
            filled = self._decrypt_pieces(_ciphertext[:count], buffer)
        else:
            filled = self._decrypt(buffer)
        self._has_received = True
        if self.session.outgoing.pending:
            self._try_flush()
        if not filled and not self.is_over:
            raise BlockingIOError
        return filled

    def send(self, octets: bytes | memoryview) -> int:
        """Encrypts and sends; see ``TlsStream``."""
        if not self.flush():
            raise BlockingIOError
        if self._is_broken:
            return len(octets)
        rest = memoryview(octets)
        outgoing = self.session.outgoing
        try:
            while rest and outgoing.pending < ENCRYPTED_OCTETS:
                rest = rest[self.session.tls.write(rest) :]
        except ssl.SSLError:
            self.is_over = self._is_broken = True
            rest = rest[:0]
        self.flush()
        return len(octets) - len(rest)

    def flush(self) -> bool:
        """Sends waiting ciphertext; False: some still waits."""
        outgoing = self.session.outgoing
        while self._waiting or outgoing.pending:
            if not self._waiting:
                self._waiting = memoryview(outgoing.read())
            try:
                count = self._socket.send(self._waiting)
            except (BlockingIOError, InterruptedError):
                return False
            self.octets_out += count
            self._waiting = self._waiting[count:]
        return True

    def finish(self) -> None:
        """Sends close_notify, behind everything else, once."""
        if not (self._is_finished or self._is_broken):
            self._is_finished = True
            with contextlib.suppress(ssl.SSLError):  # wants a close_notify that nobody waits for
                self.session.tls.unwrap()

    def close(self) -> None:
        """Nothing is held but the socket itself."""

    def _decrypt_pieces(self, ciphertext: memoryview, buffer: memoryview) -> int:
        """Decrypts piece by piece: a flood is noticed before all of it has cost its time."""
        filled = 0
        for begin in range(0, len(ciphertext), RECORD_OCTETS):
            if self.is_over:
                break
            self.session.receive(ciphertext[begin : begin + RECORD_OCTETS])
            filled += self._decrypt(buffer[filled:])
        return filled

    def _decrypt(self, buffer: memoryview) -> int:
        read = self.session.tls.read
        filled = 0
        try:
            while True:
                count: Any = read(RECORD_OCTETS, buffer[filled:])
                if not count:
                    self.is_over = True  # close_notify
                    return filled
                filled += count
                self.session.idleness.make_up(count)
        except ssl.SSLWantReadError:
            if self.session.idleness.is_over:
                self.is_over = self._is_broken = True
                self.alert = TOO_IDLE
            return filled
        except ssl.SSLError as error:
            self.is_over = self._is_broken = True
            self.alert = describe_error(error) if is_alert(error) else None
            return filled

    def _try_flush(self) -> None:
        """Sends what receiving has made: answers to key updates, alerts."""
        with contextlib.suppress(OSError):  # sending will meet it again
            self.flush()


def explained(events: list[Event], alert: str) -> list[Event]:
    """Puts the reason of the peer's alert, such as a missing certificate, into the end."""
    return [
        attrs.evolve(event, condition=Condition(CONNECTION_FORCED, alert))
        if isinstance(event, ConnectionClosed) and event.by_peer
        else event
        for event in events
    ]


def open_stream(session: TlsSession, sock: socket.socket) -> TlsStream:
    """Makes the stream of a session whose handshake is done; the session is the stream's."""
    module = _module()
    if module is None:
        return MemoryStream(session, sock)
    early, unsent = session.incoming.read(), session.outgoing.read()
    stream: TlsStream = module.OpenSslStream(session.tls, sock.fileno(), early, unsent)
    return stream


def make_ready(context: ssl.SSLContext) -> None:
    """Orders the cipher suites of a new context as this processor has them fast."""
    aes = has_aes()
    choose_order(context, aes=aes, compiled=None if aes else _module())


def share_tickets(context: ssl.SSLContext, secret: bytes) -> None:
    """Has a server's context resume sessions of all contexts with the same secret (RFC 8446 §2.2).

    Without compiled streams each context resumes its own sessions only.
    """
    module = _module()
    if module is not None:
        module.set_ticket_keys(context, lambda octets: _expand(secret, octets))


def judge_tickets(context: ssl.SSLContext) -> None:
    """Has a server's context resume no session of a client whose certificate is not valid any more.

    Without compiled streams such a session is ended after its handshake (``TlsSession``).
    """
    module = _module()
    if module is not None:
        module.judge_tickets(context)


def _expand(secret: bytes, octets: int) -> bytes:
    """Derives so many octets from a secret (RFC 5869 §2.3)."""
    made, block = b"", b""
    while len(made) < octets:
        number = len(made) // hashlib.sha512().digest_size + 1
        block = hmac.digest(secret, block + b"tickets" + bytes((number,)), "sha512")
        made += block
    return made[:octets]


@functools.cache
def why_slower() -> str | None:
    """Returns why TLS passes through Python's ``ssl`` module; None: it does not.

    Raises:
        MisuseError: ``ROUTER_TLS`` requires what cannot be had, or is unknown.
    """
    asked = os.environ.get(VARIABLE, "")
    if asked not in {"", "openssl", "python"}:
        raise MisuseError(f"{VARIABLE}={asked}: must be openssl or python")
    if asked == "python":
        return f"{VARIABLE}=python"
    reason = _try_module()
    if reason is not None and asked == "openssl":
        raise MisuseError(f"{VARIABLE}=openssl: {reason}")
    return reason


def _try_module() -> str | None:
    module = compiled(_MODULE)
    if module is None:
        return "it was not built; build with a C compiler to have it"
    try:
        module.load()
        module.try_session(TlsSession(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "probe").tls)
    except module.Unsupported as error:
        return str(error)
    return None


def _module() -> ModuleType | None:
    return compiled(_MODULE) if why_slower() is None else None
