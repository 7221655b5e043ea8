"""Reads stored messages out of their segments' files, block by block."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from router.journal.block import (
    BLOCK_OCTETS_LIMIT,
    HEADER,
    Block,
    BlockError,
    octets_of,
    open_block,
)
from router.journal.disk import Disk
from router.journal.keys import LinkKey
from router.journal.record import (
    NO_TTL,
    ROW,
    RecordError,
    RecordFlag,
    RecordKind,
    Row,
    heap_strings,
)
from router.journal.segment import SEGMENT_HEADER_OCTETS, SegmentScan, segment_name
from router.journal.store.index import Entry
from router.journal.store.place import position_of, segment_of
from router.journal.store.queues import Claim, StoredQueue
from router.model.identity import DeliveryKey

STRETCHES_KEPT: Final = 16
_STRETCH_OCTETS: Final = 512 << 10  # so that it stays in a processor's cache until it is sent
_ROOM_OCTETS: Final = 2 << 20
_BLOCKS_KEPT: Final = 64  # that were read by themselves
_OCTETS_KEPT: Final = 16 << 20  # of these; the one that is read is kept, however long
_SALTS_KEPT: Final = 64
_PATHS_KEPT: Final = 64
MISSING: Final = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
"""What a disk says if there is no such file; any other error may end by itself."""

_MORE: Final = int(RecordFlag.MORE)
_PART: Final = int(RecordKind.PART)
_PARTED: Final = "a part of a message is missing"


class StoredMessage(NamedTuple):
    """A message as it was handed over; a tuple, since one is made for each that is forwarded.

    Attributes:
        claim: names it towards the store.
        time_ns: when it arrived.
        key: of the delivery.
        incoming: link that it came over.
        tag: on that link.
        address: of the message.
        priority: of its queue.
        guarantee: a ``GuaranteeCode``.
        protocol: encoding of ``payload``, one of ``PROTOCOL_CODES``.
        message_format: §2.8.11.
        delivery_count: earlier failed attempts.
        ttl_milliseconds: counts from ``time_ns``; None: it has none.
        payload: the whole message.
        is_overdue: it must not go to the route's target any more, but to the dead letters.
        is_clouded: it may have been forwarded: records are missing.
    """

    claim: Claim
    time_ns: int
    key: DeliveryKey
    incoming: LinkKey
    tag: bytes
    address: str
    priority: int
    guarantee: int
    protocol: int
    message_format: int
    delivery_count: int
    ttl_milliseconds: int | None
    payload: bytes
    is_overdue: bool = False
    is_clouded: bool = False

    @property
    def ttl_ends_ns(self) -> int | None:
        """When its time to live ends; None: never."""
        if self.ttl_milliseconds is None:
            return None
        return self.time_ns + self.ttl_milliseconds * 1_000_000


class SegmentReader:
    """Reads blocks of segments and keeps the last few; each is checked when it is read."""

    def __init__(self, disk: Disk, directory: Path, *, stretches: int = STRETCHES_KEPT) -> None:
        self._disk = disk
        self._directory = directory
        self._stretches_kept = stretches
        self._stretches: deque[_Stretch] = deque()
        self._blocks: OrderedDict[tuple[int, int], Block] = OrderedDict()
        self._octets = 0
        self._salts: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self._paths: dict[int, Path] = {}  # to make a path takes as long as a block

    def message(self, entry: Entry, queue: StoredQueue) -> StoredMessage:
        """Reads a message.

        Raises:
            BlockError, RecordError: it cannot be read any more.
            OSError: its file cannot be read.
        """
        segment, offset = segment_of(entry.place), entry.block
        block = self.block(segment, offset)
        number = (position_of(entry.place) - offset - HEADER.size) // ROW.size
        row: Row = ROW.unpack_from(block.rows, number * ROW.size)
        tag, address, body = heap_strings(row, block.heap)
        pieces = [body]
        more = row[4] & _MORE
        while more:
            number += 1
            while number == block.row_count:
                offset += block.octets
                block, number = self.block(segment, offset), 0
            part: Row = ROW.unpack_from(block.rows, number * ROW.size)
            if part[0] != _PART or part[7] != row[7]:
                raise RecordError(_PARTED)
            pieces.append(heap_strings(part, block.heap)[2])
            more = part[4] & _MORE
        if len(pieces) > 1 and sum(map(len, pieces)) != row[10]:
            raise RecordError(_PARTED)
        return StoredMessage(
            claim=Claim(entry.place, queue.key, entry.octets),
            time_ns=row[6],
            key=DeliveryKey(row[7]),
            incoming=LinkKey(row[8]),
            tag=tag,
            address=address,
            priority=row[1],
            guarantee=row[2],
            protocol=row[3],
            message_format=row[11],
            delivery_count=row[12],
            ttl_milliseconds=None if row[13] == NO_TTL else row[13],
            payload=b"".join(pieces),
        )

    def blocks(self, segment: int, end: int) -> Iterator[tuple[int, Block]]:
        """Reads a segment, and yields its blocks that can be read, with their offsets.

        Args:
            segment: number of the segment; it has no block if its file is missing.
            end: blocks from there on do not count.

        Raises:
            OSError: its file cannot be read.
        """
        try:
            octets = self._disk.read(self._directory / segment_name(segment))
        except MISSING:
            return
        for offset, block in SegmentScan(octets).blocks():
            if offset >= end:
                break
            yield offset, block

    def next_blocks(self, segment: int, offset: int, end: int) -> list[tuple[int, Block]]:
        """Reads some blocks that follow each other, for those who read the whole segment.

        They are kept until others have been read this way ``stretches`` times.

        Args:
            segment: number of the segment.
            offset: of the first of them.
            end: blocks from there on do not count.

        Raises:
            BlockError: one cannot be read any more.
            OSError: the file of the segment cannot be read.
        """
        if len(self._stretches) < self._stretches_kept:
            self._stretches.appendleft(_Stretch())
        stretch, path = self._stretches[0], self._path(segment)
        self._stretches.rotate(-1)
        salts = self._salts_of(segment, path)
        octets, at = stretch.read(self._disk, path, offset, end), 0
        found: list[tuple[int, Block]] = []
        while at < len(octets):
            block = _opened(octets, at, salts)
            found.append((offset + at, block))
            at += block.octets
        stretch.blocks = {(segment, each): block for each, block in found}
        return found

    def block_ahead(self, segment: int, offset: int, end: int) -> Block:
        """Reads a block, and some that follow it, which are kept as ``next_blocks`` says.

        Args:
            segment: number of the segment.
            offset: of the block.
            end: blocks from there on do not count.

        Raises:
            BlockError: it cannot be read any more.
            OSError: its file cannot be read.
        """
        place = segment, offset
        for stretch in self._stretches:
            if place in stretch.blocks:
                return stretch.blocks[place]
        try:
            return self.next_blocks(segment, offset, end)[0][1]
        except (BlockError, IndexError):
            return self.block(segment, offset)  # another one is damaged

    def block(self, segment: int, offset: int) -> Block:
        """Reads a block.

        Raises:
            BlockError: it cannot be read any more.
            OSError: its file cannot be read.
        """
        place = segment, offset
        for stretch in self._stretches:
            if place in stretch.blocks:
                return stretch.blocks[place]
        known = self._blocks.get(place)
        if known is not None:
            self._blocks.move_to_end(place)
            return known
        known = self._blocks[place] = self._read(segment, offset)
        self._octets += known.octets
        while len(self._blocks) > 1 and (
            len(self._blocks) > _BLOCKS_KEPT or self._octets > _OCTETS_KEPT
        ):
            self._octets -= self._blocks.popitem(last=False)[1].octets
        return known

    def _read(self, segment: int, offset: int) -> Block:
        path = self._path(segment)
        header = self._disk.read_part(path, offset, HEADER.size)
        if len(header) < HEADER.size:
            raise BlockError("the block is missing")
        length = min(HEADER.unpack(header)[2], BLOCK_OCTETS_LIMIT)
        octets = memoryview(self._disk.read_part(path, offset, length))
        return _opened(octets, 0, self._salts_of(segment, path))

    def _path(self, segment: int) -> Path:
        known = self._paths.get(segment)
        if known is None:
            if len(self._paths) == _PATHS_KEPT:
                self._paths.clear()
            known = self._paths[segment] = self._directory / segment_name(segment)
        return known

    def _salts_of(self, segment: int, path: Path) -> tuple[int, int]:
        """Reads both copies of the salt, one of which may be damaged."""
        known = self._salts.get(segment)
        if known is None:
            header = self._disk.read_part(path, 0, SEGMENT_HEADER_OCTETS)
            known = int.from_bytes(header[8:12], "little"), int.from_bytes(header[12:16], "little")
            self._salts[segment] = known
            if len(self._salts) > _SALTS_KEPT:
                self._salts.popitem(last=False)
        return known


class _Stretch:
    """Blocks that follow each other in a segment, in memory that is used again.

    Attributes:
        blocks: by segment and offset.
    """

    def __init__(self) -> None:
        self.blocks: dict[tuple[int, int], Block] = {}
        self._room = bytearray()

    def read(self, disk: Disk, path: Path, offset: int, end: int) -> memoryview:
        """Reads whole blocks from ``offset`` on, some ``_STRETCH_OCTETS`` of them, to ``end``.

        Raises:
            BlockError: there is none, or its length is damaged.
            OSError: the file cannot be read.
        """
        self.blocks = {}
        if not is_free(self._room) or len(self._room) > _ROOM_OCTETS:
            self._room = bytearray()
        octets, filled = 0, self._fill(disk, path, offset, 0, min(_STRETCH_OCTETS, end - offset))
        while octets < _STRETCH_OCTETS and offset + octets < end:
            filled = self._fill(disk, path, offset, filled, octets + HEADER.size)
            length = octets_of(memoryview(self._room)[:filled], octets)
            if not HEADER.size <= length <= BLOCK_OCTETS_LIMIT:
                raise BlockError("the length of the block is missing or damaged")
            octets += length
            filled = self._fill(disk, path, offset, filled, octets)
            if filled < octets:
                raise BlockError("the block is missing")
        return memoryview(self._room)[:octets]

    def _fill(self, disk: Disk, path: Path, offset: int, filled: int, wanted: int) -> int:
        """Reads on until there are as many octets as are wanted; returns how many there are."""
        if wanted > len(self._room):
            self._room.extend(bytes(wanted - len(self._room)))
        if wanted > filled:
            room = memoryview(self._room)[filled:wanted]
            filled += disk.read_into(path, offset + filled, room)
        return filled


def is_free(room: bytearray) -> bool:
    """Returns whether nobody has a view of ``room``; its last octet is gone then.

    To append one might move all others.
    """
    try:
        if room:
            room.pop()
    except BufferError:
        return False
    return True


def _opened(octets: memoryview, offset: int, salts: tuple[int, int]) -> Block:
    """Opens a block of a segment, one of whose salts may be damaged."""
    try:
        return open_block(octets, offset, salt=salts[0])
    except BlockError:
        return open_block(octets, offset, salt=salts[1])
