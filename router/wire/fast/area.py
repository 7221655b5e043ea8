"""What restartable transfers leave behind (RFC 006 §3.3.2.2, §3.5.13-14).

"The server or client receiving large messages is expected to hold these in a temporary area until
completely received": this is the area. A message is known by its head, every field of it, and here
by its owner and content hash as well: without a hash nobody could tell that two parts make the
whole, so parts without one are not kept. The oldest parts make room for new ones. A client that
comes to another worker has its parts moved there (``router.wire.memory``); a restarted process
knows none and says so (READY with 0), which costs time and loses nothing.

The area also knows which client-names are active, since "the server MUST restrict a specific
client identifier to being active in at most one connection at a time" (§3.2.6).
"""

import hashlib
from typing import Final, Protocol
from weakref import WeakValueDictionary

import attrs

from router.wire.memory import Moves, Refusal, Store
from router.wire.v1_0.types import decode_value, encode_value

AREA_OCTETS: Final = 64 << 20
"""What one worker keeps of messages that have come in part."""

STORE: Final = "amqp-fast parts"
"""Names the area among all that a worker keeps."""


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

    def encode(self) -> bytes:
        """Writes the key, for other workers."""
        owner = self.owner
        return encode_value(
            [owner.user, owner.client_name, owner.vhost, self.head, self.content_hash]
        )

    @classmethod
    def decode(cls, octets: bytes) -> "PartKey":
        """Reads what ``encode`` wrote."""
        user, client_name, vhost, head, announced = decode_value(octets)[0]
        return cls(Owner(user, client_name, vhost), head, announced)


class Area(Store):
    """Keeps parts of messages, by their heads.

    Attributes:
        octets: how much is kept.
        limit: how much may be.
        moves: tells what there is beyond this worker.
    """

    def __init__(self, limit: int = AREA_OCTETS, moves: Moves | None = None) -> None:
        self.moves = moves or Moves()
        self.limit = limit
        self.octets = 0
        self._parts: dict[PartKey, bytes] = {}
        self._active: WeakValueDictionary[Owner, Active] = WeakValueDictionary()

    @classmethod
    def of(cls, memory: dict[str, object]) -> "Area":
        """Returns the one that all engines with the same memory share."""
        found = memory.get(STORE)
        if found is None:
            found = memory[STORE] = cls(moves=Moves.of(memory))
        assert isinstance(found, cls)
        return found

    def enter(self, owner: Owner, connection: Active) -> bool:
        """Makes a client-name a connection's; returns whether it could."""
        other = self._active.get(owner)
        if other is not None and other is not connection and not other.finished:
            return False
        self._active[owner] = connection
        return True

    def keep(self, key: PartKey, body: bytes) -> None:
        """Keeps the beginning of a body; nothing, if it is nothing or too much."""
        self.fetch(key)
        size = len(body) + len(key.head)
        if not body or size > self.limit:
            return
        while self.octets + size > self.limit:
            self.fetch(next(iter(self._parts)))
        self._parts[key] = body
        self.octets += size

    def fetch(self, key: PartKey) -> bytes:
        """Takes out what is kept of a message; empty if that is nothing."""
        body = self._parts.pop(key, b"")
        if body:
            self.octets -= len(body) + len(key.head)
        return body

    def give(self, key: bytes, *, force: bool, now: float) -> bytes | Refusal:
        """Gives parts away; see ``Store``."""
        return self.fetch(PartKey.decode(key)) or Refusal.NOTHING

    def take(self, key: bytes, kept: bytes, giver: str, now: float) -> None:
        """Keeps parts that another worker has given, unless more is here; see ``Store``."""
        part = PartKey.decode(key)
        if len(kept) > len(self._parts.get(part, b"")):
            self.keep(part, kept)


def content_hash(body: bytes) -> str:
    """Makes a message's content-hash (§3.5.13).

    The document names SHA-1 and neither what it is taken of nor how it is written: *inferred*, the
    body, in hexadecimal, as a short string asks for text.
    """
    return hashlib.sha1(body, usedforsecurity=False).hexdigest()
