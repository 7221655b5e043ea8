"""Messages that are gone, as the log says it: row by row, or by columns.

A FORWARDED row names one message. A FORWARDED_RUN row names messages of one queue that stand in one
segment, as those of a run do (``runs``). Its body::

    of each message the octet of the segment where its row begins, u32
    of each message what its records take in the store, u32

All numbers are little-endian. A row that is not as long as it says names nothing: what it may have
named is read again.
"""

import struct
import sys
from array import array
from typing import Final, NamedTuple

from router.journal.block import Block, BlockFlag
from router.journal.bulk import shortcuts
from router.journal.record import RecordKind, Row
from router.journal.store.place import Place, place_of, places_of, position_of, segment_of
from router.journal.store.queues import Claim, QueueKey

_FORWARDED: Final = int(RecordKind.FORWARDED)
_FORWARDED_RUN: Final = int(RecordKind.FORWARDED_RUN)
_OWN: Final = int(BlockFlag.OWN)
_NUMBER_OCTETS: Final = 4
_IS_LITTLE: Final = sys.byteorder == "little"


class GoneRun(NamedTuple):
    """Messages of one segment and one queue that are gone.

    Attributes:
        segment: its number.
        queue: key of the queue.
        positions: of the messages, u32.
        octets: of their records, u64.
        rows: of the block that say so.
    """

    segment: int
    queue: QueueKey
    positions: "array[int]"
    octets: "array[int]"
    rows: int

    @property
    def places(self) -> list[Place]:
        """Where they stand."""
        return places_of(self.segment, self.positions)


class GoneColumns(NamedTuple):
    """The same as a FORWARDED_RUN row says it.

    Attributes:
        segment: its number.
        queue: key of the queue.
        body: of the row.
    """

    segment: int
    queue: QueueKey
    body: bytes

    @property
    def messages(self) -> int:
        """How many they are."""
        return len(self.body) // (2 * _NUMBER_OCTETS)

    @property
    def claims(self) -> list[Claim]:
        """Names them."""
        numbers = struct.unpack(f"<{2 * self.messages}I", self.body)
        pairs = zip(numbers[: self.messages], numbers[self.messages :], strict=True)
        return [Claim(place_of(self.segment, at), self.queue, octets) for at, octets in pairs]


def columns_of_row(row: Row, heap: memoryview) -> GoneColumns | None:
    """Reads a FORWARDED_RUN row; None: it names nothing."""
    place, queue, count, start, octets = Place(row[8]), row[9], row[10], row[15], row[16]
    if not count or octets != 2 * _NUMBER_OCTETS * count or start + octets > len(heap):
        return None
    return GoneColumns(segment_of(place), QueueKey(queue), bytes(heap[start : start + octets]))


def claims_in(block: Block) -> list[GoneRun]:
    """Returns the messages that a block says to be gone."""
    if block.flags & _OWN:
        return []
    if shortcuts is not None:
        return [
            GoneRun(
                segment,
                QueueKey(queue),
                array("I", bytes(positions)),
                array("Q", bytes(octets)),
                rows,
            )
            for segment, queue, positions, octets, rows in shortcuts.gone_columns(
                block.rows, block.heap
            )
        ]
    runs: list[GoneRun] = []
    is_open = False  # the last of them may get another message
    for row in block.unpacked_rows():
        if row[0] == _FORWARDED_RUN:
            columns = columns_of_row(row, block.heap)
            if columns is not None:
                runs.append(_run_of(columns))
                is_open = False
        elif row[0] == _FORWARDED:
            place = Place(row[8])
            segment, queue = segment_of(place), QueueKey(row[9])
            if not is_open or (runs[-1].segment, runs[-1].queue) != (segment, queue):
                runs.append(GoneRun(segment, queue, array("I"), array("Q"), 0))
                is_open = True
            last = runs[-1]
            last.positions.append(position_of(place))
            last.octets.append(row[10])
            runs[-1] = last._replace(rows=last.rows + 1)
    return runs


def _run_of(columns: GoneColumns) -> GoneRun:
    half = len(columns.body) // 2
    numbers = array("I", columns.body[:half]), array("I", columns.body[half:])
    if not _IS_LITTLE:
        for each in numbers:
            each.byteswap()
    return GoneRun(columns.segment, columns.queue, numbers[0], array("Q", numbers[1]), 1)
