"""Cuts records into blocks, and writes the rows of runs.

A ``BlockWriter`` keeps the open block: its rows in one buffer, their strings in another, the
heap. It counts its worker's sequence. ``RecordWriter`` defines the records.

The rows of a run are copies of one row in which the differing columns are filled, each by one
copy with a stride, so that a record costs a tenth of a single one; a shortcut
(``bulk``) is faster still.
"""

import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from struct import Struct
from typing import Final

import attrs

from router.journal.block import BlockFlag, seal_block
from router.journal.bulk import shortcuts
from router.journal.keys import LinkKey
from router.journal.record import NO_KEY, NO_TTL, ROW
from router.model.identity import DeliveryKey

BLOCK_ROWS: Final = 1024
"""Rows of a full block: 80 KiB, a few milliseconds of a busy worker."""

BLOCK_HEAP_OCTETS: Final = 512 << 10
"""A block with more than this in its heap is closed."""

ROW_OCTETS: Final = ROW.size
ROWS_OCTETS: Final = BLOCK_ROWS * ROW.size
ROW_HEAD: Final = Struct("<BBBBHHQ")  # of a row, to its key
_TAIL: Final = Struct("<QQQIIIIII")  # of a row, behind its key
_ROW_QUADS: Final = ROW.size // 8
_ROW_WORDS: Final = ROW.size // 4
_KEY_QUAD: Final = 2  # the columns of a row, counted in units of 8 octets ...
_MESSAGE_QUAD: Final = 6
_TAG_WORD: Final = 17  # ... and of 4
_OFFSET_WORD: Final = 18
_HEAP_WORD: Final = 19
_IS_LITTLE: Final = sys.byteorder == "little"


@attrs.frozen
class SealedBlock:
    """A finished block.

    Attributes:
        octets: as they are sent and stored.
        last_sequence: number of its last record.
    """

    octets: bytes
    last_sequence: int


class BlockWriter:
    """Keeps the block under way of one (worker, incarnation).

    Attributes:
        next_sequence: number that the next record will get.
    """

    def __init__(
        self, *, worker: int, incarnation: int, first_sequence: int = 1, is_own: bool = False
    ) -> None:
        """Begins with an empty block; ``is_own`` marks the blocks as the journal's."""
        self.worker = worker
        self.incarnation = incarnation
        self.next_sequence = first_sequence
        self._rows = bytearray(ROWS_OCTETS)
        self._rows_octets = 0
        self._heap = bytearray()
        self._flags = int(BlockFlag.OWN) if is_own else 0
        self._is_defining = False
        self._sealed: list[SealedBlock] = []

    @property
    def open_octets(self) -> int:
        """Octets of the records that are in no finished block yet."""
        return self._rows_octets + len(self._heap)

    def take_blocks(self) -> list[SealedBlock]:
        """Closes the block under way and hands over all that are finished, oldest first."""
        if self._rows_octets:
            self._close_block()
        sealed, self._sealed = self._sealed, []
        return sealed

    def rename(self, incarnation: int) -> bool:
        """Counts as another life of the worker, if no block is finished yet; returns whether so."""
        if not self._sealed:
            self.incarnation = incarnation
        return not self._sealed

    def append_rows(self, rows: bytes | memoryview, heap: bytes | memoryview = b"") -> int:
        """Appends a run of rows that are packed already, as a kernel makes them.

        The run becomes a block of its own: heap offsets count from the start of ``heap``.

        Raises:
            BlockError: the run is longer than a block may be.
        """
        if self._rows_octets:
            self._close_block()
        block = seal_block(
            rows,
            heap,
            first_sequence=self.next_sequence,
            worker=self.worker,
            incarnation=self.incarnation,
            flags=self._flags,
        )
        self.next_sequence += len(rows) // ROW_OCTETS
        self._sealed.append(SealedBlock(block, self.next_sequence - 1))
        return self.next_sequence - 1

    def _bare_rows(
        self,
        head: bytes,
        incoming: LinkKey,
        outgoing: LinkKey,
        keys: Sequence[DeliveryKey],
        state: bytes,
    ) -> int:
        """Appends rows that differ in their keys alone; all share one string."""
        first, count = 0, len(keys)
        while first < count:
            at = self._rows_octets
            end = min(count, first + (ROWS_OCTETS - at) // ROW_OCTETS)
            heap = self._heap
            tail = _TAIL.pack(
                incoming, outgoing, 0, 0, 0, NO_TTL, 0, len(heap), len(state)
            )  # fmt: skip
            if state:
                heap += state
            after = at + (end - first) * ROW_OCTETS
            part = keys if count == end - first else keys[first:end]
            if (
                shortcuts is None
                or not isinstance(part, list)
                or not shortcuts.bare_rows(self._rows, at, head + NO_KEY + tail, part)
            ):
                self._rows[at:after] = b"".join((head, (tail + head).join(part), tail))
            self._appended(after, end - first)
            first = end
        return self.next_sequence - 1

    def _string_rows(  # noqa: PLR0917  the columns of a row
        self,
        head: bytes,
        incoming: LinkKey,
        outgoing: LinkKey,
        keys: Sequence[DeliveryKey],
        tags: Sequence[bytes],
        payloads: Sequence[bytes] = (),
        *,
        is_held: bool = False,
    ) -> None:
        """Appends rows of one block, each with a tag and perhaps a payload in the heap."""
        heap, at, count = self._heap, self._rows_octets, len(keys)
        if shortcuts is not None and isinstance(keys, list) and isinstance(tags, list):
            row = head + NO_KEY + _TAIL.pack(incoming, outgoing, 0, 0, 0, NO_TTL, 0, 0, 0)
            if shortcuts.string_rows(
                self._rows, at, heap, row, keys, tags, _list_or_none(payloads), is_held
            ):
                self._appended(at + count * ROW_OCTETS, count)
                return
        tag_octets = list(map(len, tags))
        heap_octets = tag_octets
        if is_held:
            heap_octets = [len(tag) + len(each) for tag, each in zip(tags, payloads, strict=True)]
            strings = [b""] * (2 * count)
            strings[::2], strings[1::2] = tags, payloads
        tail = _TAIL.pack(incoming, outgoing, 0, 0, 0, NO_TTL, tag_octets[0], 0, heap_octets[0])
        rows = memoryview(bytearray((head + keys[0] + tail) * count))
        named = memoryview(b"".join(keys)).cast("Q")
        quads, words = rows.cast("Q"), rows.cast("I")
        quads[_KEY_QUAD::_ROW_QUADS] = named[::2]
        quads[_KEY_QUAD + 1 :: _ROW_QUADS] = named[1::2]
        words[_OFFSET_WORD::_ROW_WORDS] = _words(accumulate(heap_octets[:-1], initial=len(heap)))
        if payloads:
            quads[_MESSAGE_QUAD::_ROW_QUADS] = _quads(map(len, payloads))
        if heap_octets.count(heap_octets[0]) != count:
            words[_HEAP_WORD::_ROW_WORDS] = _words(heap_octets)
        if tag_octets.count(tag_octets[0]) != count:
            words[_TAG_WORD::_ROW_WORDS] = _words(tag_octets)
        after = at + count * ROW_OCTETS
        self._rows[at:after] = rows
        heap += b"".join(strings if is_held else tags)
        self._appended(after, count)

    def _appended(self, rows_octets: int, count: int) -> None:
        self._rows_octets = rows_octets
        self.next_sequence += count
        if rows_octets == ROWS_OCTETS or len(self._heap) > BLOCK_HEAP_OCTETS:
            self._close_block()

    def _close_block(self) -> None:
        flags = self._flags | (BlockFlag.DEFINES if self._is_defining else 0)
        block = seal_block(
            memoryview(self._rows)[: self._rows_octets],
            self._heap,
            first_sequence=self.next_sequence - self._rows_octets // ROW_OCTETS,
            worker=self.worker,
            incarnation=self.incarnation,
            flags=flags,
        )
        self._sealed.append(SealedBlock(block, self.next_sequence - 1))
        self._rows_octets = 0
        self._heap = bytearray()
        self._is_defining = False


def _list_or_none(payloads: Sequence[bytes]) -> list[bytes] | None:
    return list(payloads) if payloads else None


def _words(numbers: Iterable[int]) -> memoryview:
    """Returns numbers as 32-bit words of a row, which are little-endian."""
    words = array("I", numbers)
    if not _IS_LITTLE:
        words.byteswap()
    return memoryview(words)


def _quads(numbers: Iterable[int]) -> memoryview:
    """Returns numbers as 64-bit words of a row."""
    quads = array("Q", numbers)
    if not _IS_LITTLE:
        quads.byteswap()
    return memoryview(quads)
