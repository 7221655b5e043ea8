"""Reads stored messages out of their segments' files, block by block."""

from collections import OrderedDict
from pathlib import Path
from typing import Final, NamedTuple

from router.journal.block import BLOCK_OCTETS_LIMIT, HEADER, Block, BlockError, open_block
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
from router.journal.segment import SEGMENT_HEADER_OCTETS, segment_name
from router.journal.store.index import Entry
from router.journal.store.place import position_of, segment_of
from router.journal.store.queues import Claim, StoredQueue
from router.model.identity import DeliveryKey

_BLOCKS_KEPT: Final = 64
_OCTETS_KEPT: Final = 24 << 20  # of blocks; the one that is read is kept, however long
_SALTS_KEPT: Final = 64
_MORE: Final = int(RecordFlag.MORE)
_PART: Final = int(RecordKind.PART)


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
    """Reads blocks of segments and keeps the last few."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory
        self._blocks: OrderedDict[tuple[int, int], Block] = OrderedDict()
        self._octets = 0
        self._salts: OrderedDict[int, tuple[int, int]] = OrderedDict()

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
                raise RecordError("a part of a message is missing")
            pieces.append(heap_strings(part, block.heap)[2])
            more = part[4] & _MORE
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

    def block(self, segment: int, offset: int) -> Block:
        """Reads a block.

        Raises:
            BlockError: it cannot be read any more.
            OSError: its file cannot be read.
        """
        place = segment, offset
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
        path = self._directory / segment_name(segment)
        header = self._disk.read_part(path, offset, HEADER.size)
        if len(header) < HEADER.size:
            raise BlockError("the block is missing")
        length = min(HEADER.unpack(header)[2], BLOCK_OCTETS_LIMIT)
        octets = memoryview(self._disk.read_part(path, offset, length))
        first, second = self._salts_of(segment, path)
        try:
            return open_block(octets, salt=first)
        except BlockError:
            return open_block(octets, salt=second)

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
