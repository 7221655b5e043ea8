"""The messages of one segment, by queue; made of its blocks, or block by block while it is written.

Columns instead of objects: an entry takes some 36 octets.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from router.journal.block import HEADER, Block, BlockFlag
from router.journal.bulk import shortcuts
from router.journal.keys import LinkKey
from router.journal.record import NO_TTL, GuaranteeCode, RecordFlag, RecordKind, Row
from router.journal.store.gone import columns_of_row
from router.journal.store.outline import Outline, stretches_of
from router.journal.store.place import (
    Place,
    place_of,
    position_of,
    row_position,
)
from router.journal.store.queues import Claim, QueueKey, RouteKey, queue_key, stored_octets
from router.model.identity import DeliveryKey

_STORED: Final = int(RecordKind.STORED)
_FORWARDED: Final = int(RecordKind.FORWARDED)
_FORWARDED_RUN: Final = int(RecordKind.FORWARDED_RUN)
_SETTLED: Final = int(RecordKind.SETTLED)
_EXACTLY_ONCE: Final = int(GuaranteeCode.EXACTLY_ONCE)
_MORE: Final = int(RecordFlag.MORE)
_OWN: Final = int(BlockFlag.OWN)

key_of_queue = lru_cache(maxsize=4096)(queue_key)


class Entry(NamedTuple):
    """A message of a segment.

    Attributes:
        place: of the message.
        queue: that it is in.
        octets: of its records.
        time_ns: when it arrived.
        block: offset of the block that its first record is in.
    """

    place: Place
    queue: QueueKey
    octets: int
    time_ns: int
    block: int


class Unsettled(NamedTuple):
    """Names a delivery that was stored and that its sender has not settled.

    Attributes:
        link: that it came over.
        key: of the delivery, and its tag on that link.
    """

    link: LinkKey
    key: DeliveryKey


class StoredRow(NamedTuple):
    """What a STORED row says about its queue, and its sender.

    Attributes:
        unsettled: what the sender is to settle; None: it was accepted and settled at once.
        is_unusual: the message is in parts, or has a time to live.
    """

    entry: Entry
    route: RouteKey
    address: bytes
    priority: int
    unsettled: Unsettled | None
    is_unusual: bool


def rows_of(segment: int, offset: int, block: Block) -> Iterator[StoredRow | Claim | Unsettled]:
    """Yields what the rows of a block mean for the store.

    Args:
        segment: number of the segment that the block is in.
        offset: of the block.
        block: any; one of the log itself has no such rows.

    Yields:
        Messages; claims of messages that are gone; deliveries that their senders have settled.
    """
    if block.flags & _OWN:
        return
    heap = block.heap
    for number, row in enumerate(block.unpacked_rows()):
        if row[0] == _STORED:
            start = row[15] + row[14]
            address = bytes(heap[start : start + row[5]])
            route = RouteKey(row[9])
            entry = Entry(
                place_of(segment, row_position(offset, number)),
                key_of_queue(route, address, row[1]),
                stored_octets(row),
                row[6],
                offset,
            )
            unsettled = _unsettled(row) if row[2] == _EXACTLY_ONCE else None
            is_unusual = bool(row[4] & _MORE) or row[13] != NO_TTL
            yield StoredRow(entry, route, address, row[1], unsettled, is_unusual)
        elif row[0] == _FORWARDED:
            yield Claim(Place(row[8]), QueueKey(row[9]), row[10])
        elif row[0] == _FORWARDED_RUN:
            columns = columns_of_row(row, heap)
            yield from () if columns is None else columns.claims
        elif row[0] == _SETTLED:
            yield _unsettled(row)


class QueueColumn(NamedTuple):
    """The messages of one queue in a block.

    Attributes:
        queue: key of the queue.
        route, address, priority: of the queue.
        numbers: u32 each; of its messages among all of the block.
        octets: of their records, in all.
        unusual: u32 each; of those that are in parts or have a time to live.
    """

    queue: QueueKey
    route: RouteKey
    address: bytes
    priority: int
    numbers: "array[int]"
    octets: int
    unusual: "array[int]"


class StoredColumns(NamedTuple):
    """The messages of a block, by columns.

    Attributes:
        block: offset of the block.
        positions: of the messages.
        octets: of their records.
        times: when they arrived.
        queues: that they are in.
    """

    block: int
    positions: "array[int]"
    octets: "array[int]"
    times: "array[int]"
    queues: list[QueueColumn]


def columns_of(offset: int, block: Block) -> StoredColumns | None:
    """Reads the messages of a block at once.

    Returns:
        None: there is no shortcut here, or a row says more than ``StoredColumns`` can; then
        ``rows_of`` has to be asked.
    """
    if shortcuts is None or block.flags & _OWN:
        return None
    found = shortcuts.stored_columns(block.rows, block.heap, offset + HEADER.size)
    if found is None:
        return None
    *columns, queues = found
    positions, octets, times = map(array, "IIQ", columns)
    return StoredColumns(
        offset,
        positions,
        octets,
        times,
        [
            QueueColumn(
                key_of_queue(RouteKey(route), address, priority),
                RouteKey(route),
                address,
                priority,
                array("I", bytes(numbers)),
                total,
                array("I", bytes(unusual)),
            )
            for route, address, priority, numbers, total, unusual in queues
        ],
    )


def _unsettled(row: Row) -> Unsettled:
    return Unsettled(LinkKey(row[8]), DeliveryKey(row[7]))


class SegmentIndex:
    """The messages of one segment in the order of their places.

    Attributes:
        segment: its number.
        next_block: offset of the first block whose messages are not here yet; None: all are.
        checked: all blocks before this offset were read since they were written, and are whole.
    """

    def __init__(self, segment: int, next_block: int | None = None) -> None:
        """Begins without messages."""
        self.segment = segment
        self.next_block = next_block
        self.checked = 0
        self._heaps: dict[int, int] = {}
        self._positions = array("I")
        self._queues = array("Q")
        self._octets = array("I")
        self._times = array("Q")
        self._blocks = array("I")
        self._by_queue: dict[QueueKey, array[int]] = {}
        self._unusual: dict[QueueKey, array[int]] = {}  # in parts, or with a time to live

    def __len__(self) -> int:
        return len(self._positions)

    def heap_of(self, block: int) -> int:
        """Returns the offset of the heap of a block with messages."""
        return self._heaps[block]

    def holds(self, offset: int, block: Block) -> None:
        """Records where the heap of a block stands."""
        self._heaps[offset] = offset + HEADER.size + len(block.rows)

    def add(self, entry: Entry, *, is_unusual: bool = False) -> None:
        """Adds a message, which stands behind all others."""
        if is_unusual:
            self._unusual.setdefault(entry.queue, array("I")).append(len(self._positions))
        mine = self._by_queue.get(entry.queue)
        if mine is None:
            mine = self._by_queue[entry.queue] = array("I")
        mine.append(len(self._positions))
        self._positions.append(position_of(entry.place))
        self._queues.append(entry.queue)
        self._octets.append(entry.octets)
        self._times.append(entry.time_ns)
        self._blocks.append(entry.block)

    def add_block(self, offset: int, block: Block) -> None:
        """Adds the messages of a block, which stand behind all others."""
        self.holds(offset, block)
        columns = columns_of(offset, block)
        if columns is not None:
            self.add_columns(columns)
            return
        for row in rows_of(self.segment, offset, block):
            if isinstance(row, StoredRow):
                self.add(row.entry, is_unusual=row.is_unusual)

    def count_behind(self, after: Place, queue: QueueKey) -> int:
        """Returns how many messages of a queue are known to stand behind a place."""
        mine = self._by_queue.get(queue, array("I"))
        return len(mine) - self._first(mine, self._position_behind(after))

    def add_columns(self, columns: StoredColumns) -> None:
        """Adds the messages of a block, which stand behind all others."""
        before, count = len(self._positions), len(columns.positions)
        self._positions += columns.positions
        self._octets += columns.octets
        self._times += columns.times
        self._blocks += array("I", (columns.block,)) * count
        queues = array("Q", bytes(8)) * count
        for each in columns.queues:
            if each.unusual:
                unusual = self._unusual.setdefault(each.queue, array("I"))
                unusual.extend([before + number for number in each.unusual])
            mine = self._by_queue.setdefault(each.queue, array("I"))
            if shortcuts is not None:
                mine.frombytes(shortcuts.number_queue(each.numbers, before, queues, each.queue))
                continue
            mine.extend([before + number for number in each.numbers])
            for number in each.numbers:
                queues[number] = each.queue
        self._queues += queues

    def outline(self) -> Outline | None:
        """Returns where its messages stand; None: something is unusual, or blocks are missing."""
        if self.next_block is not None or self._unusual or not self._times:
            return None
        queues = {
            queue: stretches_of(mine, self._positions) for queue, mine in self._by_queue.items()
        }
        return Outline(self.segment, self.checked, self._heaps, queues, min(self._times))

    def entries(self, after: Place, queue: QueueKey | None = None) -> Iterator[Entry]:
        """Yields the messages behind a place, those of one queue or all."""
        if after >= place_of(self.segment + 1, 0):
            return
        position = position_of(after) if after >= place_of(self.segment, 0) else 0
        numbers: range | array[int] = range(len(self._positions))
        if queue is not None:
            numbers = self._by_queue.get(queue, array("I"))
        for at in range(self._first(numbers, position), len(numbers)):
            yield self._entry(numbers[at])

    def run(
        self, after: Place, queue: QueueKey, count: int
    ) -> tuple[list[tuple[int, bytes]], int] | None:
        """Returns messages of a queue behind a place, up to the first that is unusual.

        Returns:
            None: there is none behind the place. Else the offsets of the blocks that they begin in,
            with their positions, u32 each, nothing if the first one is unusual; and when the oldest
            came.
        """
        mine = self._by_queue.get(queue)
        if mine is None or after >= place_of(self.segment + 1, 0):
            return None
        first = self._first(mine, self._position_behind(after))
        last = min(first + count, len(mine))
        if first == last:
            return None
        if queue in self._unusual:
            last = self._first_unusual(queue, mine, first, last)
            if first == last:
                return [], 0
        if shortcuts is not None:
            columns = self._positions, self._blocks, self._times
            return shortcuts.chosen_positions(mine, first, last, *columns)
        chosen = mine[first:last]
        pieces, at = [], 0
        while at < len(chosen):
            block = self._blocks[chosen[at]]
            end = bisect_right(chosen, block, at, key=self._blocks.__getitem__)
            positions = array("I", [self._positions[each] for each in chosen[at:end]])
            pieces.append((block, positions.tobytes()))
            at = end
        return pieces, min([self._times[each] for each in chosen])

    def _first_unusual(self, queue: QueueKey, mine: "array[int]", first: int, last: int) -> int:
        """Returns which of the messages from ``first`` on is the first unusual one, or ``last``."""
        unusual = self._unusual[queue]
        at = bisect_left(unusual, mine[first])
        return bisect_left(mine, unusual[at], first, last) if at < len(unusual) else last

    def at(self, place: Place) -> Entry | None:
        """Returns the message at a place; None: none begins there."""
        position = position_of(place)
        number = bisect_left(self._positions, position)
        if number == len(self._positions) or self._positions[number] != position:
            return None
        return self._entry(number)

    def _position_behind(self, after: Place) -> int:
        return position_of(after) if after >= place_of(self.segment, 0) else 0

    def _first(self, numbers: "range | array[int]", position: int) -> int:
        """Returns where among ``numbers`` the first message behind a position is."""
        return bisect_right(numbers, position, key=self._positions.__getitem__)

    def _entry(self, number: int) -> Entry:
        return Entry(
            place_of(self.segment, self._positions[number]),
            QueueKey(self._queues[number]),
            self._octets[number],
            self._times[number],
            self._blocks[number],
        )
