"""The area of incomplete restartable transfers (RFC 006 §3.3.2.2, §3.5.13-14).

"The server or client receiving large messages is expected to hold these in a temporary area until
completely received": this is the area. A message is identified by all fields of its head, and here
by its owner and content hash as well: without a hash it could not be verified that two parts make
the message, so parts without one are not kept. The oldest parts are dropped first. If a client
connects to another worker its parts are moved there (``router.wire.memory``); a restarted process
has none and says so (READY with 0), which costs time and loses nothing.

The area also records which client-names are active, since "the server MUST restrict a specific
client identifier to being active in at most one connection at a time" (§3.2.6).
"""

import hashlib
from typing import Final, Protocol
from weakref import WeakValueDictionary

import attrs

from router.wire.memory import Moves, Refusal, Store
from router.wire.v1_0.types import decode_value, encode_value

AREA_OCTETS: Final = 64 << 20
"""Octets of incomplete messages that one worker keeps."""

STORE: Final = "amqp-fast parts"
"""The name of the area in a worker's memory."""


@attrs.frozen
class Owner:
    """Who may continue a transfer: identity, client-name, and virtual host."""

    user: str | None
    client_name: str
    vhost: str


class Active(Protocol):
    """A connection that has a client-name."""

    @property
    def finished(self) -> bool:
        """Whether the connection is over."""

    @property
    def has_left(self) -> bool:
        """Whether the client is gone, and what it sent is not all read yet."""


@attrs.frozen
class PartKey:
    """Identifies an incomplete message: all fields of its head, and its content's hash."""

    owner: Owner
    head: bytes
    content_hash: str

    def encode(self) -> bytes:
        """Encodes the key, for other workers."""
        owner = self.owner
        return encode_value(
            [owner.user, owner.client_name, owner.vhost, self.head, self.content_hash]
        )

    @classmethod
    def decode(cls, octets: bytes) -> "PartKey":
        """Decodes the result of ``encode``."""
        user, client_name, vhost, head, announced = decode_value(octets)[0]
        return cls(Owner(user, client_name, vhost), head, announced)


class Area(Store):
    """Keeps incomplete messages by their heads.

    Attributes:
        octets: size of the kept parts.
        limit: the limit of ``octets``.
        moves: knows the areas of other workers.
    """

    def __init__(self, limit: int = AREA_OCTETS, moves: Moves | None = None) -> None:
        self.moves = moves or Moves()
        self.limit = limit
        self.octets = 0
        self._parts: dict[PartKey, bytes] = {}
        self._active: WeakValueDictionary[Owner, Active] = WeakValueDictionary()

    @classmethod
    def of(cls, memory: dict[str, object]) -> "Area":
        """Returns the instance that belongs to a memory."""
        found = memory.get(STORE)
        if found is None:
            found = memory[STORE] = cls(moves=Moves.of(memory))
        assert isinstance(found, cls)
        return found

    def enter(self, owner: Owner, connection: Active) -> bool:
        """Assigns a client-name to a connection; returns whether it was free."""
        other = self._active.get(owner)
        if other is not None and other is not connection:
            if not (other.finished or other.has_left):
                return False
        self._active[owner] = connection
        return True

    def keep(self, key: PartKey, body: bytes) -> None:
        """Keeps the beginning of a body, unless it is empty or too large."""
        self.fetch(key)
        size = len(body) + len(key.head)
        if not body or size > self.limit:
            return
        while self.octets + size > self.limit:
            self.fetch(next(iter(self._parts)))
        self._parts[key] = body
        self.octets += size

    def fetch(self, key: PartKey) -> bytes:
        """Removes and returns the kept part of a message; empty if there is none."""
        body = self._parts.pop(key, b"")
        if body:
            self.octets -= len(body) + len(key.head)
        return body

    def give(self, key: bytes, *, force: bool, now: float) -> bytes | Refusal:
        """Gives parts away; see ``Store``."""
        return self.fetch(PartKey.decode(key)) or Refusal.NOTHING

    def take(self, key: bytes, kept: bytes, giver: str, now: float) -> None:
        """Keeps parts that another worker has given, unless it has more itself; see ``Store``."""
        part = PartKey.decode(key)
        if len(kept) > len(self._parts.get(part, b"")):
            self.keep(part, kept)


def content_hash(body: bytes) -> str:
    """Returns a message's content-hash (§3.5.13).

    The specification names SHA-1 but neither its input nor its notation: *inferred*, the body, in
    hexadecimal, since the field is a short string.
    """
    return hashlib.sha1(body, usedforsecurity=False).hexdigest()
