"""Which messages of a store the readers have: a bit for each, and what was taken by queue.

A message is known by its place, and given back to its queue. When a reader is lost all that it has
comes back, so what was taken is noted by queue, too; what has left since stays in these notes until
they are twice as long as they need be.
"""

from array import array
from collections.abc import Collection
from typing import Final

import attrs

from router.journal.bulk import shortcuts
from router.journal.record import ROW
from router.journal.store.place import Place, places_of, position_of, segment_of
from router.journal.store.queues import QueueKey

_SLACK: Final = 4096  # positions that notes may have too many


@attrs.define(eq=False)
class _Segment:
    """What is taken of one segment.

    Attributes:
        marks: a bit for each octet at which a row may begin, in units of rows.
        count: how many are set.
        notes: positions of what was taken, by queue; some have left.
        noted: how many positions these are.
    """

    marks: bytearray = attrs.field(factory=bytearray)
    count: int = 0
    notes: "dict[QueueKey, list[array[int]]]" = attrs.field(factory=dict)
    noted: int = 0

    def has(self, position: int) -> bool:
        """Returns whether the message at a position is taken."""
        octet, bit = divmod(position // ROW.size, 8)
        return octet < len(self.marks) and bool(self.marks[octet] >> bit & 1)

    def shorten(self) -> None:
        """Forgets what has left, of the notes."""
        self.noted = 0
        for queue in list(self.notes):
            known = self.taken_of(queue)
            self.noted += len(known)
            if known:
                self.notes[queue] = [known]
            else:
                del self.notes[queue]

    def taken_of(self, queue: QueueKey) -> "array[int]":
        """Returns the positions of what is taken of a queue."""
        noted = array("I")
        for run in self.notes[queue]:
            noted += run
        return marked(self.marks, noted)


class Taken:
    """Messages that readers have, or of which they have said that they are gone."""

    def __init__(self) -> None:
        """Begins with none."""
        self._segments: dict[int, _Segment] = {}

    def __len__(self) -> int:
        return sum(segment.count for segment in self._segments.values())

    def __contains__(self, place: Place) -> bool:
        known = self._segments.get(segment_of(place))
        return known is not None and known.has(position_of(place))

    def has_any(self, segment: int, positions: bytes) -> bool:
        """Returns whether one of some messages of a segment is taken; positions are u32 each."""
        known = self._segments.get(segment)
        if known is None:
            return False
        if shortcuts is not None:
            return shortcuts.is_any_marked(known.marks, positions)
        return any(known.has(each) for each in memoryview(positions).cast("I"))

    def add(self, place: Place, queue: QueueKey) -> None:
        """Records that a message is taken."""
        self.add_run(segment_of(place), queue, array("I", [position_of(place)]))

    def add_run(self, segment: int, queue: QueueKey, positions: "array[int]") -> None:
        """Records that messages of one queue in one segment are taken."""
        known = self._segments.get(segment)
        if known is None:
            known = self._segments[segment] = _Segment()
        news = set_marks(known.marks, positions, is_set=True)
        if not news:
            return
        known.count += news
        known.notes.setdefault(queue, []).append(positions)
        known.noted += len(positions)
        if known.noted > 2 * known.count + _SLACK:
            known.shorten()

    def remove(self, place: Place) -> bool:
        """Records that a message is not taken; returns whether it was."""
        return bool(self.remove_run(segment_of(place), array("I", [position_of(place)])))

    def remove_run(self, segment: int, positions: "array[int]") -> int:
        """Records that messages of a segment are not taken; returns how many were."""
        known = self._segments.get(segment)
        if known is None:
            return 0
        count = set_marks(known.marks, positions, is_set=False)
        known.count -= count
        if not known.count:
            del self._segments[segment]
        return count

    def of(self, queues: Collection[QueueKey]) -> list[tuple[Place, QueueKey]]:
        """Returns what is taken of some queues."""
        return [
            (place, queue)
            for number, segment in self._segments.items()
            for queue in segment.notes
            if queue in queues
            for place in places_of(number, segment.taken_of(queue))
        ]


def marked(marks: bytearray, positions: "array[int]") -> "array[int]":
    """Returns those of some positions whose messages are marked, each once."""
    if shortcuts is not None:
        return array("I", shortcuts.marked_positions(marks, positions))
    known = _Segment(marks)
    return array("I", dict.fromkeys(each for each in positions if known.has(each)))


def set_marks(marks: bytearray, positions: "array[int]", *, is_set: bool) -> int:
    """Sets or clears the marks of messages, and returns how many were not so before.

    Args:
        marks: a bit for each octet at which a row may begin, in units of rows; they grow.
        positions: of the messages.
        is_set: they are set.
    """
    if shortcuts is not None:
        return shortcuts.set_marks(marks, positions, is_set)
    needed = max(positions, default=0) // ROW.size // 8 + 1 - len(marks)
    if needed > 0 and positions:
        marks.extend(bytes(needed))
    changed = 0
    for each in positions:
        octet, bit = divmod(each // ROW.size, 8)
        if bool(marks[octet] >> bit & 1) != is_set:
            marks[octet] ^= 1 << bit
            changed += 1
    return changed
