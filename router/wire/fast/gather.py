"""Reassembly of incoming messages from fragments (RFC 006 §3.4.2-3, §3.5.13-14).

Theory of operation. The fragments of a message follow each other on its channel; those of another
may not come between (§3.4.2). A restartable transfer begins with HANDLE PREPARE, which carries the
head and perhaps some of the body; the answer, HANDLE READY, says how much of the body is here, and
the rest follows with the ``recovery`` bit. Both sides of a connection reassemble alike::

    state       input                              becomes
    NOTHING     fragment, partial                  GATHERING
    NOTHING     fragment, last                     NOTHING     a whole message
    NOTHING     prepare                            PREPARED    ready
    PREPARED    fragment of recovery, partial      GATHERING
    PREPARED    fragment of recovery, last         NOTHING     a whole message
    PREPARED    other fragment                     as NOTHING; the prepared message is kept
    PREPARED    prepare                            PREPARED    the earlier prepared one is kept
    GATHERING   fragment of the same handle        GATHERING, NOTHING
    GATHERING   prepare, fragment of another       a fault of the channel
    any         the end                            kept for later if it has a content-hash

Kept parts are in an ``Area``, beyond the connection's end. While nothing of a prepared message is
here and other workers are asked for it, READY waits (``sending``). A complete message whose body
does not have the size in its head, or the announced hash, is invalid (542).
"""

from typing import Final

import attrs

from router.wire.fast.area import Area, Owner, PartKey, content_hash
from router.wire.fast.message import body_octets, head_octets
from router.wire.fast.reply import Level, PeerError, Reply

MESSAGE_LIMIT_OCTETS: Final = 64 << 20
"""The largest accepted message; it has to be complete before it can be handed on. It also limits
the incomplete messages of all channels of a connection together."""


@attrs.define(eq=False)
class Budget:
    """Counts octets of incomplete messages of all channels of a connection.

    Attributes:
        octets: their current size.
    """

    octets: int = 0

    def add(self, octets: int) -> None:
        """Counts octets.

        Raises:
            PeerError: there are too many.
        """
        self.octets += octets
        if self.octets > MESSAGE_LIMIT_OCTETS:
            text = "the messages under way are too large together"
            raise PeerError(Reply.INSUFFICIENT_RESOURCES, text, Level.CONNECTION)


@attrs.define(eq=False)
class Incomplete:
    """An incomplete message.

    Attributes:
        handle: the handle that it is received by.
        parts: received parts of head and body.
        octets: size of the parts.
        head: of a prepared message; empty otherwise.
        content_hash: as announced; empty: none.
        is_prepared: announced, and not begun.
        was_kept: parts of it were in the area.
    """

    handle: int
    parts: list[bytes]
    octets: int
    head: bytes = b""
    content_hash: str = ""
    is_prepared: bool = False
    was_kept: bool = False


class Gatherer:
    """Reassembles the messages of one channel.

    Attributes:
        is_restartable: the channel was opened restartable.
    """

    def __init__(
        self, budget: Budget, area: Area, owner: Owner | None, *, is_restartable: bool
    ) -> None:
        self.is_restartable = is_restartable
        self._budget = budget
        self._area = area
        self._owner = owner
        self._incomplete: Incomplete | None = None

    @property
    def lacks(self) -> PartKey | None:
        """The key of the prepared message, if it is incomplete and nothing of it was kept here."""
        incomplete = self._incomplete
        if incomplete is None or not incomplete.is_prepared or incomplete.was_kept:
            return None
        whole = len(incomplete.head) + body_octets(incomplete.head, 0)
        return self._key(incomplete) if incomplete.octets < whole else None

    @property
    def handle(self) -> int | None:
        """The handle of the incomplete message; None if there is none."""
        return None if self._incomplete is None else self._incomplete.handle

    def prepare(self, handle: int, fragment: bytes, announced: str) -> int:
        """Handles HANDLE PREPARE; returns how many octets of the body are here.

        Raises:
            PeerError: it is not allowed now, is invalid, or announces too much.
        """
        if not self.is_restartable:
            text = "the channel is not restartable"
            raise PeerError(Reply.NOT_VALID_NOW, f"HANDLE PREPARE: {text}", Level.CHANNEL)
        if self._incomplete is not None and not self._incomplete.is_prepared:
            text = "HANDLE PREPARE between the fragments of a message"
            raise PeerError(Reply.NOT_VALID_NOW, text, Level.CHANNEL)
        self.keep()
        size = head_octets(fragment, 0, len(fragment))
        if size is None:
            raise PeerError(Reply.SYNTAX_ERROR, "HANDLE PREPARE does not hold a whole head")
        self._check_size(fragment, Level.CHANNEL)
        head, body = fragment[:size], fragment[size:]
        incomplete = Incomplete(handle, [head], 0, head, announced, True)
        key = self._key(incomplete)
        kept = b"" if key is None else self._area.fetch(key)
        if len(kept) > len(body):
            body = kept
        if len(body) > body_octets(head, 0):
            raise PeerError(Reply.CONTENTS_INVALID, "more body than body-size says")
        incomplete.was_kept = bool(kept)
        incomplete.parts.append(body)
        self._incomplete = incomplete
        self._count(incomplete, size + len(body))
        return len(body)

    def refill(self) -> int:
        """Fetches parts of the prepared body that were found meanwhile; returns how much is here.

        Raises:
            PeerError: it is too much.
        """
        incomplete = self._incomplete
        assert incomplete is not None
        head, body = incomplete.parts
        key = self._key(incomplete)
        kept = b"" if key is None else self._area.fetch(key)
        if len(body) < len(kept) <= body_octets(head, 0):
            incomplete.parts = [head, kept]
            self._count(incomplete, len(kept) - len(body))
        return len(incomplete.parts[1])

    def take(self, handle: int, fragment: bytes, *, partial: bool, recovery: bool) -> bytes | None:
        """Handles a fragment; returns the complete message, head and body, or None.

        Raises:
            PeerError: it is not allowed now, or the message is too large or invalid.
        """
        incomplete = self._incomplete
        if incomplete is not None and not incomplete.is_prepared and incomplete.handle != handle:
            text = "fragments of two messages are mixed on a channel"
            raise PeerError(Reply.NOT_VALID_NOW, text, Level.CHANNEL)
        if recovery and (incomplete is None or incomplete.handle != handle):
            raise PeerError(Reply.NOT_VALID_NOW, "recovery of what was not prepared")
        if incomplete is not None and incomplete.is_prepared and not recovery:
            self.keep()
            incomplete = None
        if incomplete is None:
            self._check_size(fragment, Level.HANDLE)
            if not partial:
                return fragment
            incomplete = self._incomplete = Incomplete(handle, [], 0)
        incomplete.is_prepared = False
        incomplete.parts.append(fragment)
        self._count(incomplete, len(fragment))
        if partial:
            return None
        self.forget()
        return self._whole(incomplete)

    @staticmethod
    def _check_size(fragment: bytes, level: Level) -> None:
        size = body_octets(fragment, 0)
        if size > MESSAGE_LIMIT_OCTETS:
            text = f"a body of {size} octets; at most {MESSAGE_LIMIT_OCTETS} are accepted"
            raise PeerError(Reply.MESSAGE_TOO_LARGE, text, level)

    def _count(self, incomplete: Incomplete, octets: int) -> None:
        incomplete.octets += octets
        self._budget.add(octets)
        if incomplete.octets > MESSAGE_LIMIT_OCTETS:
            raise PeerError(Reply.MESSAGE_TOO_LARGE, "more octets than body-size says")

    @staticmethod
    def _whole(incomplete: Incomplete) -> bytes:
        message = b"".join(incomplete.parts)
        if incomplete.content_hash:
            found = content_hash(message[len(incomplete.head) :])
            if found != incomplete.content_hash.lower():
                raise PeerError(Reply.CONTENTS_INVALID, "the body has not the content-hash")
        return message

    def _key(self, incomplete: Incomplete) -> PartKey | None:
        if self._owner is None or not incomplete.content_hash:
            return None
        return PartKey(self._owner, incomplete.head, incomplete.content_hash)

    def keep(self) -> None:
        """Discards the incomplete message, keeping the part that may be continued."""
        incomplete = self._incomplete
        if incomplete is None:
            return
        self.forget()
        key = self._key(incomplete)
        if key is not None:
            self._area.keep(key, b"".join(incomplete.parts)[len(incomplete.head) :])

    def forget(self) -> None:
        """Discards the incomplete message."""
        if self._incomplete is not None:
            self._budget.octets -= self._incomplete.octets
            self._incomplete = None
