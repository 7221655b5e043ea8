"""TLS without a network: two sessions that shake hands in memory, and a stream with its peer."""

import contextlib
import ctypes
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

from router.model.compiled import compiled
from router.net.tls import TlsSession
from router.net.tls_stream import MemoryStream, TlsStream, open_stream, why_slower
from tests.support.plain import stream_pair
from tests.support.planes import Papers, papers

KINDS = ("openssl", "python") if why_slower() is None else ("python",)
"""The streams that can be had here."""


def compiled_streams() -> ModuleType | None:
    """Returns the module of compiled streams, ready for use; None: it cannot be had here."""
    return compiled("router.net._tls") if "openssl" in KINDS else None


@attrs.define(eq=False)
class Contexts:
    """What both ends are made with."""

    signed: Papers
    server: ssl.SSLContext
    client: ssl.SSLContext


def make_contexts(folder: Path) -> Contexts:
    """Makes contexts of a new authority; the client has a certificate, too."""
    signed = papers(folder)
    return Contexts(signed, signed.server_files().server_context(), signed.client_context())


def shake_hands(one: TlsSession, other: TlsSession) -> None:
    """Takes both through their handshake."""
    is_done = False
    while not is_done:
        is_done = True
        for end, to in ((one, other), (other, one)):
            try:
                end.tls.do_handshake()
            except ssl.SSLWantReadError:
                is_done = False
            to.receive(end.outgoing.read())


def make_stream(kind: str, session: TlsSession, sock: socket.socket) -> TlsStream:
    """Makes a stream of one kind."""
    stream = MemoryStream(session, sock) if kind == "python" else open_stream(session, sock)
    assert isinstance(stream, MemoryStream) == (kind == "python")
    return stream


@attrs.define(eq=False)
class Ends:
    """A stream on a socket, and its peer at the other end.

    Attributes:
        ours: the socket of the stream.
        peer: its session.
        line: the peer's socket.
    """

    stream: TlsStream
    ours: socket.socket
    peer: TlsSession
    line: socket.socket
    buffer: memoryview = attrs.field(factory=lambda: memoryview(bytearray(256 * 1024)))

    def tell(self, octets: bytes) -> bytes:
        """Has the peer encrypt; returns the ciphertext."""
        self.peer.tls.write(octets) if octets else None
        return self.peer.outgoing.read()

    def hear(self) -> bytes:
        """Returns what the peer can decrypt of what has arrived."""
        with contextlib.suppress(BlockingIOError):
            while arrived := self.line.recv(1 << 20):
                self.peer.receive(arrived)
        heard = b""
        with contextlib.suppress(ssl.SSLWantReadError):
            while octets := self.peer.tls.read(1 << 16):
                heard += octets
        return heard

    def receive(self, most: int = 128 * 1024) -> bytes:
        """Receives once through the stream."""
        return bytes(self.buffer[: self.stream.receive_into(self.buffer, most)])


@attrs.define(eq=False)
class Unusual:
    """Has a session do what Python's ``ssl`` module has no function for."""

    session: TlsSession
    library: Any = attrs.field(init=False)
    pointer: ctypes.c_void_p = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.library = ctypes.CDLL(ssl._ssl.__file__)  # type: ignore[attr-defined]
        inner = id(self.session.tls._sslobj)  # type: ignore[attr-defined]
        member = inner + object.__basicsize__ + ctypes.sizeof(ctypes.c_void_p)
        self.pointer = ctypes.c_void_p.from_address(member)

    def update_keys(self) -> bytes:
        """Returns a record that has the peer change its keys, too (RFC 8446 §4.6.3)."""
        assert self.library.SSL_key_update(self.pointer, 1) == 1
        assert self.library.SSL_do_handshake(self.pointer) == 1
        return self.session.outgoing.read()

    def renegotiate(self) -> bytes:
        """Returns the record that begins another handshake (RFC 5246 §7.4.1)."""
        assert self.library.SSL_renegotiate(self.pointer) == 1
        with contextlib.suppress(ssl.SSLWantReadError):
            self.session.tls.do_handshake()
        return self.session.outgoing.read()


def is_unusual_possible() -> bool:
    """Returns whether ``Unusual`` finds OpenSSL's functions."""
    try:
        return hasattr(ctypes.CDLL(ssl._ssl.__file__), "SSL_key_update")  # type: ignore[attr-defined]
    except (AttributeError, OSError):
        return False


@contextlib.contextmanager
def ends(
    kind: str, contexts: Contexts, *, buffer_octets: int | None = None, early: bytes = b""
) -> Iterator[Ends]:
    """Makes a stream at a server's end; ``early`` comes with the end of the handshake."""
    server, client = TlsSession(contexts.server), TlsSession(contexts.client, "localhost")
    shake_hands(client, server)
    if early:
        client.tls.write(early)
        server.receive(client.outgoing.read())
    ours, line = stream_pair(buffer_octets)
    with ours, line:
        yield Ends(make_stream(kind, server, ours), ours, client, line)
