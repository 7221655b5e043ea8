"""Where the messages of a segment stand: what is kept of an index whose room others need.

Addresses are read at their own pace: one with few messages is soon far ahead of one with many, and
all segments between them are needed again. Columns (``index``) of so many would take much memory,
and to make them anew costs as much as to forward the messages. An outline says of each queue which
messages stand side by side: 8 octets for each *stretch* of them, some hundred times less if an
address was stored in runs. It answers whoever refers to runs or cuts them out (``run``); anybody
else has the index made anew.

A segment with anything unusual has no outline, and of the messages' ages it knows the greatest.
"""

from array import array
from bisect import bisect_right
from typing import NamedTuple

from router.journal.bulk import shortcuts
from router.journal.record import ROW
from router.journal.store.place import Place, place_of, position_of
from router.journal.store.queues import QueueKey


class Stretches(NamedTuple):
    """The messages of one queue.

    Attributes:
        firsts: position of the first message of each stretch.
        ends: how many messages there are up to the end of each.
    """

    firsts: "array[int]"
    ends: "array[int]"

    def behind(self, position: int) -> tuple[int, int]:
        """Returns the stretch of the first message behind a position, and its number in all."""
        at = bisect_right(self.firsts, position) - 1
        if at < 0:
            return 0, 0
        before = self.ends[at - 1] if at else 0
        number = before + (position - self.firsts[at]) // ROW.size + 1
        return (at, number) if number < self.ends[at] else (at + 1, self.ends[at])


def stretches_of(numbers: "array[int]", positions: "array[int]") -> Stretches:
    """Returns how some of a segment's messages, which ascend, stand side by side."""
    if shortcuts is not None:
        firsts, ends = shortcuts.stretches_of(numbers, positions)
        return Stretches(array("I", firsts), array("I", ends))
    found = Stretches(array("I"), array("I"))
    last = -1
    for count, number in enumerate(numbers, 1):
        if not found.firsts or positions[number] != last + ROW.size:
            found.firsts.append(positions[number])
            found.ends.append(count)
        last, found.ends[-1] = positions[number], count
    return found


class Outline:
    """Where the messages of one segment stand.

    Attributes:
        segment: its number.
        checked: as in an index.
        octets: of memory, about.
    """

    next_block = None
    """It has all blocks."""

    def __init__(
        self,
        segment: int,
        checked: int,
        heaps: dict[int, int],
        queues: dict[QueueKey, Stretches],
        oldest_ns: int,
    ) -> None:
        """Made by ``SegmentIndex.outline``.

        Args:
            segment: its number.
            checked: as in an index.
            heaps: offsets of blocks with messages, ascending, and those of their heaps.
            queues: the messages.
            oldest_ns: when the oldest of them came.
        """
        self.segment = segment
        self.checked = checked
        self._blocks = array("I", heaps)
        self._heaps = array("I", heaps.values())
        self._queues = queues
        self._oldest_ns = oldest_ns
        stretches = sum([len(each.firsts) for each in queues.values()])
        self.octets = 8 * (len(self._blocks) + stretches) + 256 * (len(queues) + 2)

    def heap_of(self, block: int) -> int:
        """Returns the offset of the heap of a block with messages."""
        return self._heaps[bisect_right(self._blocks, block) - 1]

    def run(
        self, after: Place, queue: QueueKey, count: int
    ) -> tuple[list[tuple[int, bytes]], int] | None:
        """Returns messages of a queue behind a place; see ``SegmentIndex.run``."""
        mine = self._queues.get(queue)
        if mine is None or after >= place_of(self.segment + 1, 0):
            return None
        position = position_of(after) if after >= place_of(self.segment, 0) else 0
        at, number = mine.behind(position)
        pieces: list[tuple[int, bytes]] = []
        while count and at < len(mine.firsts):
            before = mine.ends[at - 1] if at else 0
            first = mine.firsts[at] + (number - before) * ROW.size
            messages = min(count, mine.ends[at] - number)
            block = self._blocks[bisect_right(self._blocks, first) - 1]
            positions = array("I", range(first, first + messages * ROW.size, ROW.size)).tobytes()
            if pieces and pieces[-1][0] == block:
                pieces[-1] = block, pieces[-1][1] + positions
            else:
                pieces.append((block, positions))
            count -= messages
            number += messages
            at += 1
        return (pieces, self._oldest_ns) if pieces else None
