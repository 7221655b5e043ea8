"""The payload of a delivery that comes in parts (§2.6.14)."""

from typing import TYPE_CHECKING

import attrs

from router.model.outcome import DeliveryState

if TYPE_CHECKING:
    from router.links.pairing import Pairing


@attrs.define(eq=False)
class Parts:
    """The parts received so far, as far as they are kept.

    Once more than ``keep_octets`` is kept, parts that every receiver has been sent are dropped;
    from then on the delivery cannot be sent again from its start.

    Attributes:
        keep_octets: how much is kept for a second attempt after it was sent.
        pieces: parts ``first`` and following.
        kept_octets: of ``pieces``.
        octets: of all parts so far.
        is_complete: the last part has come.
        sinks: attempts under way: the pairing itself, or branches of it.
        verdict: the outcome, if it was known before the last part; later parts are thrown away.
        has_verdict: whether there is one; it may be "settled without a state".
        is_stalled: its sender paused and other deliveries overtook it; it waits for the next part.
    """

    keep_octets: int
    pieces: list[bytes] = attrs.field(factory=list, init=False)
    first: int = attrs.field(default=0, init=False)
    kept_octets: int = attrs.field(default=0, init=False)
    octets: int = attrs.field(default=0, init=False)
    is_complete: bool = attrs.field(default=False, init=False)
    sinks: "list[Pairing]" = attrs.field(factory=list, init=False)
    verdict: DeliveryState | None = attrs.field(default=None, init=False)
    has_verdict: bool = attrs.field(default=False, init=False)
    is_stalled: bool = attrs.field(default=False, init=False)

    @property
    def count(self) -> int:
        """How many parts were received."""
        return self.first + len(self.pieces)

    @property
    def is_whole(self) -> bool:
        """Whether all parts received are still kept."""
        return self.first == 0

    def add(self, payload: bytes, more: bool) -> None:
        """Handles a part."""
        self.pieces.append(payload)
        self.octets += len(payload)
        self.kept_octets += len(payload)
        self.is_complete = not more
        self.is_stalled = False

    def joined(self) -> bytes:
        """Returns all parts received as one payload; only while ``is_whole``."""
        return b"".join(self.pieces)

    def since(self, sent: int) -> list[bytes]:
        """Returns the parts from number ``sent`` on."""
        return self.pieces[sent - self.first :]

    def backlog_octets(self) -> int:
        """Returns how many octets the slowest receiver is yet to be sent; all without one."""
        if not self.sinks:
            return self.kept_octets
        return sum(map(len, self.since(min(sink.parts_sent for sink in self.sinks))))

    def forget_sent(self) -> int:
        """Drops parts that all receivers have been sent, if too much is kept.

        Returns:
            How many octets were freed.
        """
        sent = min((sink.parts_sent for sink in self.sinks), default=self.count)
        if self.is_whole and self.kept_octets <= self.keep_octets:
            return 0
        gone = self.pieces[: sent - self.first]
        del self.pieces[: sent - self.first]
        self.first = sent
        freed = sum(map(len, gone))
        self.kept_octets -= freed
        return freed

    @classmethod
    def lost(cls) -> "Parts":
        """Returns the parts of a delivery that will never be complete, nor be sent (again)."""
        parts = cls(0)
        parts.add(b"", True)
        parts.drop()
        return parts

    def drop(self) -> None:
        """Drops all parts: the delivery will not be sent."""
        self.first = self.count
        self.pieces.clear()
        self.kept_octets = 0
        self.sinks.clear()
