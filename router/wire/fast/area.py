"""What restartable transfers leave behind (RFC 006 §3.3.2.2, §3.5.13-14).

"The server or client receiving large messages is expected to hold these in a temporary area until
completely received": this is the area. A message is known by its head, every field of it, and here
by its owner and content hash as well: without a hash nobody could tell that two parts make the
whole, so parts without one are not kept. The oldest parts make room for new ones; a restarted
process, or another worker, knows none and says so (READY with 0), which costs time and loses
nothing.

The area also knows which client-names are active, since "the server MUST restrict a specific
client identifier to being active in at most one connection at a time" (§3.2.6).
"""

import hashlib
from typing import Final, Protocol
from weakref import WeakValueDictionary

import attrs

AREA_OCTETS: Final = 64 << 20
"""What one process keeps of messages that have come in part."""


@attrs.frozen
class Owner:
    """Who may go on with what it began: identity, client-name, and virtual host."""

    user: str | None
    client_name: str
    vhost: str


class Active(Protocol):
    """A connection that holds a client-name."""

    @property
    def finished(self) -> bool:
        """Whether it is over."""


@attrs.frozen
class PartKey:
    """Names a message that has come in part: every field of its head, and its content's hash."""

    owner: Owner
    head: bytes
    content_hash: str


class Area:
    """Keeps parts of messages, by their heads.

    Attributes:
        octets: how much is kept.
        limit: how much may be.
    """

    def __init__(self, limit: int = AREA_OCTETS) -> None:
        self.limit = limit
        self.octets = 0
        self._parts: dict[PartKey, bytes] = {}
        self._active: WeakValueDictionary[Owner, Active] = WeakValueDictionary()

    def enter(self, owner: Owner, connection: Active) -> bool:
        """Makes a client-name a connection's; tells whether it could."""
        other = self._active.get(owner)
        if other is not None and other is not connection and not other.finished:
            return False
        self._active[owner] = connection
        return True

    def keep(self, key: PartKey, body: bytes) -> None:
        """Keeps the beginning of a body; nothing, if it is nothing or too much."""
        self.take(key)
        size = len(body) + len(key.head)
        if not body or size > self.limit:
            return
        while self.octets + size > self.limit:
            self.take(next(iter(self._parts)))
        self._parts[key] = body
        self.octets += size

    def take(self, key: PartKey) -> bytes:
        """Takes out what is kept of a message; empty if that is nothing."""
        body = self._parts.pop(key, b"")
        if body:
            self.octets -= len(body) + len(key.head)
        return body


def content_hash(body: bytes) -> str:
    """Makes a message's content-hash (§3.5.13).

    The document names SHA-1 and neither what it is taken of nor how it is written: *inferred*, the
    body, in hexadecimal, as a short string asks for text.
    """
    return hashlib.sha1(body, usedforsecurity=False).hexdigest()
