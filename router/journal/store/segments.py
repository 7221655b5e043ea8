"""What is known of one segment of a message store without reading it."""

from array import array
from collections.abc import Sequence

import attrs

from router.journal.bulk import shortcuts
from router.journal.record import ROW
from router.journal.store.queues import QueueKey

QUEUES_LIMIT = 256
"""A segment with messages of more queues does not list them: it must be read to know."""


@attrs.define(eq=False, kw_only=True)
class StoredSegment:
    """Counts of one segment, and which of its messages are gone.

    Attributes:
        number: of the segment.
        end: octets of it that were durable.
        stored: messages that it held.
        gone: how many of them are gone.
        first_ns: when the first of them arrived; 0: it holds none.
        last_ns: when the last one did.
        queues: whose messages it holds; None: too many to list.
        marks: a bit for each octet at which a row may begin, in units of rows: its message is gone.
    """

    number: int
    end: int = 0
    stored: int = 0
    gone: int = 0
    first_ns: int = 0
    last_ns: int = 0
    queues: set[QueueKey] | None = attrs.field(factory=set)
    marks: bytearray = attrs.field(factory=bytearray)

    @property
    def is_done(self) -> bool:
        """Whether all its messages are gone."""
        return self.gone >= self.stored

    def hold(self, queue: QueueKey, time_ns: int) -> None:
        """Records that it holds another message."""
        self.stored += 1
        self.first_ns = min(self.first_ns or time_ns, time_ns)
        self.last_ns = max(self.last_ns, time_ns)
        if self.queues is not None:
            self.queues.add(queue)
            if len(self.queues) > QUEUES_LIMIT:
                self.queues = None

    def hold_run(self, queues: Sequence[QueueKey], times: Sequence[int]) -> None:
        """Records that it holds more messages, at least one of each of some queues."""
        self.stored += len(times)
        self.first_ns = min(self.first_ns or times[0], *times)
        self.last_ns = max(self.last_ns, *times)
        if self.queues is not None:
            self.queues.update(queues)
            if len(self.queues) > QUEUES_LIMIT:
                self.queues = None

    def may_hold(self, queue: QueueKey) -> bool:
        """Returns whether it may have messages of a queue that are not gone."""
        return not self.is_done and (self.queues is None or queue in self.queues)

    def is_gone(self, position: int) -> bool:
        """Returns whether the message whose row begins at ``position`` is gone."""
        octet, bit = divmod(position // ROW.size, 8)
        return octet < len(self.marks) and bool(self.marks[octet] >> bit & 1)

    def is_any_gone(self, positions: bytes) -> bool:
        """Returns whether one of some messages is gone, whose rows begin at these octets, u32."""
        if shortcuts is not None:
            return shortcuts.is_any_marked(self.marks, positions)
        marks = self.marks
        units = [each // ROW.size for each in memoryview(positions).cast("I")]
        if not units or units[0] >= 8 * len(marks):
            return False
        known = 8 * len(marks)
        return any(marks[unit >> 3] >> (unit & 7) & 1 for unit in units if unit < known)

    def mark_gone(self, position: int) -> bool:
        """Records that a message is gone; returns whether that is news."""
        octet, bit = divmod(position // ROW.size, 8)
        marks = self.marks
        if octet >= len(marks):
            marks.extend(bytes(octet + 1 - len(marks)))
        elif marks[octet] >> bit & 1:
            return False
        marks[octet] |= 1 << bit
        self.gone += 1
        return True

    def mark_run(self, positions: "array[int]", octets: "array[int]") -> tuple[int, int]:
        """Records that messages are gone; returns how many are news, and their octets in all."""
        if shortcuts is None:
            news = [
                size
                for position, size in zip(positions, octets, strict=True)
                if self.mark_gone(position)
            ]
            return len(news), sum(news)
        count, total = shortcuts.mark_gone(self.marks, positions, octets)
        self.gone += count
        return count, total
