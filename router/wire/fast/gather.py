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
class Coming:
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
        self._coming: Coming | None = None

    @property
    def lacks(self) -> PartKey | None:
        """The key of the prepared message, if it is incomplete and nothing of it was kept here."""
        coming = self._coming
        if coming is None or not coming.is_prepared or coming.was_kept:
            return None
        whole = len(coming.head) + body_octets(coming.head, 0)
        return self._key(coming) if coming.octets < whole else None

    @property
    def handle(self) -> int | None:
        """The handle of the incomplete message; None if there is none."""
        return None if self._coming is None else self._coming.handle

    def prepare(self, handle: int, fragment: bytes, announced: str) -> int:
        """Handles HANDLE PREPARE; returns how many octets of the body are here.

        Raises:
            PeerError: it is not allowed now, is invalid, or announces too much.
        """
        if not self.is_restartable:
            text = "the channel is not restartable"
            raise PeerError(Reply.NOT_VALID_NOW, f"HANDLE PREPARE: {text}", Level.CHANNEL)
        if self._coming is not None and not self._coming.is_prepared:
            text = "HANDLE PREPARE between the fragments of a message"
            raise PeerError(Reply.NOT_VALID_NOW, text, Level.CHANNEL)
        self.keep()
        size = head_octets(fragment, 0, len(fragment))
        if size is None:
            raise PeerError(Reply.SYNTAX_ERROR, "HANDLE PREPARE does not hold a whole head")
        self._check_size(fragment, Level.CHANNEL)
        head, body = fragment[:size], fragment[size:]
        coming = Coming(handle, [head], 0, head, announced, True)
        key = self._key(coming)
        kept = b"" if key is None else self._area.fetch(key)
        if len(kept) > len(body):
            body = kept
        if len(body) > body_octets(head, 0):
            raise PeerError(Reply.CONTENTS_INVALID, "more body than body-size says")
        coming.was_kept = bool(kept)
        coming.parts.append(body)
        self._coming = coming
        self._count(coming, size + len(body))
        return len(body)

    def refill(self) -> int:
        """Fetches parts of the prepared body that were found meanwhile; returns how much is here.

        Raises:
            PeerError: it is too much.
        """
        coming = self._coming
        assert coming is not None
        head, body = coming.parts
        key = self._key(coming)
        kept = b"" if key is None else self._area.fetch(key)
        if len(body) < len(kept) <= body_octets(head, 0):
            coming.parts = [head, kept]
            self._count(coming, len(kept) - len(body))
        return len(coming.parts[1])

    def take(self, handle: int, fragment: bytes, *, partial: bool, recovery: bool) -> bytes | None:
        """Handles a fragment; returns the complete message, head and body, or None.

        Raises:
            PeerError: it is not allowed now, or the message is too large or invalid.
        """
        coming = self._coming
        if coming is not None and not coming.is_prepared and coming.handle != handle:
            text = "fragments of two messages are mixed on a channel"
            raise PeerError(Reply.NOT_VALID_NOW, text, Level.CHANNEL)
        if recovery and (coming is None or coming.handle != handle):
            raise PeerError(Reply.NOT_VALID_NOW, "recovery of what was not prepared")
        if coming is not None and coming.is_prepared and not recovery:
            self.keep()
            coming = None
        if coming is None:
            self._check_size(fragment, Level.HANDLE)
            if not partial:
                return fragment
            coming = self._coming = Coming(handle, [], 0)
        coming.is_prepared = False
        coming.parts.append(fragment)
        self._count(coming, len(fragment))
        if partial:
            return None
        self.forget()
        return self._whole(coming)

    @staticmethod
    def _check_size(fragment: bytes, level: Level) -> None:
        size = body_octets(fragment, 0)
        if size > MESSAGE_LIMIT_OCTETS:
            text = f"a body of {size} octets; {MESSAGE_LIMIT_OCTETS} are taken"
            raise PeerError(Reply.MESSAGE_TOO_LARGE, text, level)

    def _count(self, coming: Coming, octets: int) -> None:
        coming.octets += octets
        self._budget.add(octets)
        if coming.octets > MESSAGE_LIMIT_OCTETS:
            raise PeerError(Reply.MESSAGE_TOO_LARGE, "more octets than body-size says")

    @staticmethod
    def _whole(coming: Coming) -> bytes:
        message = b"".join(coming.parts)
        if coming.content_hash:
            found = content_hash(message[len(coming.head) :])
            if found != coming.content_hash.lower():
                raise PeerError(Reply.CONTENTS_INVALID, "the body has not the content-hash")
        return message

    def _key(self, coming: Coming) -> PartKey | None:
        if self._owner is None or not coming.content_hash:
            return None
        return PartKey(self._owner, coming.head, coming.content_hash)

    def keep(self) -> None:
        """Discards the incomplete message, keeping the part that may be continued."""
        coming = self._coming
        if coming is None:
            return
        self.forget()
        key = self._key(coming)
        if key is not None:
            self._area.keep(key, b"".join(coming.parts)[len(coming.head) :])

    def forget(self) -> None:
        """Discards the incomplete message."""
        if self._coming is not None:
            self._budget.octets -= self._coming.octets
            self._coming = None
