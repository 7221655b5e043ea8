"""The indexes of the segments that are read or written just now.

They are made block by block, as far as they are needed, and of the oldest an outline is kept
(``outline``), of which the oldest are forgotten. A block that
is damaged, or a file that is gone, is found here: then the index has what can still be read, and
``lacks`` hears of it. What the disk does not give now is noted in ``unreadable``.
"""

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final

from router.journal.block import BlockError
from router.journal.disk import Disk
from router.journal.segment import SEGMENT_HEADER_OCTETS
from router.journal.store.index import SegmentIndex
from router.journal.store.outline import Outline
from router.journal.store.queues import StoredQueue
from router.journal.store.reading import MISSING, SegmentReader
from router.journal.store.segments import StoredSegment
from router.journal.store.unreadable import Unreadable

INDEXES_KEPT: Final = 8
_MORE_INDEXES_KEPT: Final = 64
_ENTRIES_KEPT: Final = 400_000  # in these: some 14 MB
_OUTLINE_OCTETS_KEPT: Final = 16 << 20
"""A queue with few messages is read far ahead of one with many, so several segments are read at
once; it costs as much to read one again as to forward its messages."""


class Indexes:
    """The indexes that are kept, and what reads their segments.

    Attributes:
        reader: of the segments.
        unreadable: segments that the disk does not give now.
        open: of the segment that is written; None: none was yet.
        is_referring: the messages themselves are not read here, so blocks are only looked through.
    """

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        lacks: Callable[[StoredSegment, SegmentIndex], None],
    ) -> None:
        """Begins with none.

        Args:
            disk: the operating system's, or a test's.
            directory: of the segments.
            lacks: hears of a segment in which messages are not found any more, and its index.
        """
        self.reader = SegmentReader(disk, directory)
        self.unreadable = Unreadable(disk, directory)
        self.open: SegmentIndex | None = None
        self.is_referring = False
        self._scanner = SegmentReader(disk, directory, stretches=1)
        self._lacks = lacks
        self._kept: OrderedDict[int, SegmentIndex] = OrderedDict()
        self._outlines: OrderedDict[int, Outline] = OrderedDict()
        self._outline_octets = 0

    def __len__(self) -> int:
        return len(self._kept)

    def known(self, number: int) -> SegmentIndex | None:
        """Returns the index of a segment, if there is one."""
        return self._kept.get(number)

    def forget(self, number: int) -> None:
        """Records that a segment was removed."""
        self.unreadable.forget(number)
        self._kept.pop(number, None)
        self._forget_outline(number)

    def of(self, segment: StoredSegment) -> SegmentIndex | None:
        """Returns the index of a segment; None: the disk does not give it now."""
        index = self.begun(segment)
        while index is not None and index.next_block is not None:
            index = self._read_on(segment, index)
        return index

    def ahead_of(
        self, segment: StoredSegment, queue: StoredQueue, count: int
    ) -> SegmentIndex | Outline | None:
        """Returns the index of a segment, as far as the next messages of a queue need it.

        An outline will do, for those who want runs. None: the disk does not give it now.
        """
        outline = self._outlines.get(segment.number)
        if outline is not None and segment.number not in self.unreadable:
            self._outlines.move_to_end(segment.number)
            return outline
        index = self.begun(segment)
        while (
            index is not None
            and index.next_block is not None
            and index.count_behind(queue.read, queue.key) < count
        ):
            index = self._read_on(segment, index)
        return index

    def at_hand(self, segment: StoredSegment) -> SegmentIndex | Outline | None:
        """Returns what ``ahead_of`` has returned last of a segment."""
        return self._outlines.get(segment.number) or self._kept.get(segment.number)

    def begun(self, segment: StoredSegment) -> SegmentIndex | None:
        """Returns the index of a segment as far as it was made; None: as above."""
        if segment.number in self.unreadable:
            return None
        index = self._kept.get(segment.number)
        if index is None and self.unreadable.is_disk:
            return None
        if index is None:
            index = SegmentIndex(segment.number, SEGMENT_HEADER_OCTETS)
            self.keep(index)
        self._kept.move_to_end(segment.number)
        return index

    def _read_on(self, segment: StoredSegment, index: SegmentIndex) -> SegmentIndex | None:
        """Reads the next blocks of a segment; returns its index, another one if there is damage.

        None: the disk does not give them now.
        """
        try:
            return self._read_next(segment, index)
        except OSError as error:
            self.unreadable.note(segment.number, error)
            return None

    def _read_next(self, segment: StoredSegment, index: SegmentIndex) -> SegmentIndex:
        assert index.next_block is not None
        reader = self._scanner if self.is_referring else self.reader
        try:
            found = reader.next_blocks(segment.number, index.next_block, segment.end)
        except (BlockError, *MISSING):
            index = SegmentIndex(segment.number)
            found = list(self.reader.blocks(segment.number, segment.end))
            index.checked = segment.end
            self._kept[segment.number] = index
        else:
            last, block = found[-1]
            index.next_block = index.checked = last + block.octets
            if index.next_block >= segment.end:
                index.next_block = None
        for offset, block in found:
            index.add_block(offset, block)
        if index.next_block is None and len(index) < segment.stored:
            self._lacks(segment, index)
        return index

    def is_whole(self, segment: StoredSegment, index: SegmentIndex | Outline, last: int) -> bool:
        """Checks the blocks of a segment up to one, as far as they were not since they came."""
        begin = max(index.checked, SEGMENT_HEADER_OCTETS)
        while begin <= last:
            try:
                found = self._scanner.next_blocks(segment.number, begin, segment.end)
            except (BlockError, *MISSING):
                return False
            except OSError as error:
                self.unreadable.note(segment.number, error)
                return False
            offset, block = found[-1]
            begin = index.checked = offset + block.octets
        return True

    def keep(self, index: SegmentIndex) -> None:
        """Keeps an index, and no more than an outline of others that were not used for long."""
        self._forget_outline(index.segment)
        self._kept[index.segment] = index
        entries = sum(map(len, self._kept.values()))
        for number in list(self._kept)[: max(0, len(self._kept) - INDEXES_KEPT)]:
            if len(self._kept) <= _MORE_INDEXES_KEPT and entries <= _ENTRIES_KEPT:
                break
            if self.open is None or number != self.open.segment:
                entries -= len(self._kept[number])
                self._keep_outline(self._kept.pop(number).outline())

    def _keep_outline(self, outline: Outline | None) -> None:
        if outline is None:
            return
        self._outlines[outline.segment] = outline
        self._outline_octets += outline.octets
        while self._outline_octets > _OUTLINE_OCTETS_KEPT:
            self._forget_outline(next(iter(self._outlines)))

    def _forget_outline(self, number: int) -> None:
        outline = self._outlines.pop(number, None)
        if outline is not None:
            self._outline_octets -= outline.octets
