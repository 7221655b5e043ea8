"""Blocks: the unit that is sent to the journal's process and checked for damage.

    octet  0          4          8                12
          +----------+----------+----------------+----------------+
          | "JBLK"   | CRC-32   | block octets   | heap octets    |
          |          | of 8-end | u32            | u32            |
     16   +----------+----------+----------------+----------------+
          | sequence number of the first row     | incarnation    |
          | u64                                  | u64            |
     32   +----------+----------+----------------+----------------+
          | worker   | flags    | rows, u32      |
          | u16      | u16      |                |
     40   +----------+----------+----------------+
          | rows, 80 octets each                  |
          | heap                                  |
          | zeros up to a multiple of eight       |
          +---------------------------------------+

The socket and the segment carry the same octets, so the journal's process writes
what it reads. Row ``i`` of a block has sequence number first + ``i``; each (worker, incarnation)
counts from 1 without a gap. Blocks with the flag OWN are the journal's and count nothing. A block
with the flag HELLO opens a connection and is never stored: its heap is the router id, its sequence
number that of the first record that the worker still has to hand in.

CRC-32 is zlib's. In a segment it is xored with the segment's salt, a random number that no peer
knows. So a reader that searches for the next block behind a damaged one never mistakes a payload
that looks like a block, or a block of another segment, for one. On the socket the salt is 0.
"""

import enum
import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import attrs

from router.errors import RouterError
from router.journal.bulk import shortcuts
from router.journal.record import ROW, Record, Row, record_from_row

MAGIC: Final = b"JBLK"
crc32: Final = zlib.crc32 if shortcuts is None else shortcuts.crc32
HEADER: Final = struct.Struct("<4sIIIQQHHI")
_CHECKED: Final = struct.Struct("<IIQQHHI")  # the header without magic and CRC
_CRC: Final = struct.Struct("<I")
_UNCHECKED_OCTETS: Final = HEADER.size - _CHECKED.size

BLOCK_OCTETS_LIMIT: Final = 4 << 20
"""No block is longer: a length beyond it is damage, and one buffer of this size reads any block."""

OWN_WORKER: Final = 0xFFFF
"""Stands for the journal itself where blocks name their worker."""


class BlockFlag(enum.IntFlag):
    """Facts about a block that a reader can use without parsing the rows.

    Attributes:
        HELLO: first block of a connection, never stored.
        DEFINES: holds records about links.
        OWN: written by the journal itself.
        ASKS: what a worker asks of a message store, never stored; see ``store.asks``.
    """

    HELLO = 0x01
    DEFINES = 0x02
    OWN = 0x04
    ASKS = 0x08


_OWN: Final = BlockFlag.OWN.value
_DEFINES: Final = (BlockFlag.DEFINES | BlockFlag.OWN).value
"""Plain numbers: to combine members of an enumeration costs as much as to open a block."""


class BlockError(RouterError):
    """The octets are not a whole block.

    Attributes:
        is_short: they may be the beginning of one: more octets could make it whole.
    """

    def __init__(self, reason: str, *, is_short: bool = False) -> None:
        super().__init__(reason)
        self.is_short = is_short


class Origin(NamedTuple):
    """The writer of a sequence; a tuple, since one is made and looked up for each block.

    Attributes:
        worker: its number, or ``OWN_WORKER``.
        incarnation: grows from one life of the worker to the next; its start in nanoseconds.
    """

    worker: int
    incarnation: int


@attrs.define(kw_only=True)
class Block:
    """One whole block whose CRC is right; a value.

    Attributes:
        octets: how long it is, padding included.
        first_sequence: number of its first row.
        row_count: how many rows.
        origin: who wrote it.
        flags: ``BlockFlag`` bits.
        rows: all rows.
        heap: strings of the rows.
        position: among the blocks that a reader has read, for that reader.
    """

    octets: int
    first_sequence: int
    row_count: int
    origin: Origin
    flags: int
    rows: memoryview
    heap: memoryview
    position: int = attrs.field(default=0, eq=False)

    @property
    def is_own(self) -> bool:
        """Whether the journal itself wrote it."""
        return bool(self.flags & _OWN)

    @property
    def may_define(self) -> bool:
        """Whether it may hold records about links, or the journal's own."""
        return bool(self.flags & _DEFINES)

    @property
    def last_sequence(self) -> int:
        """Number of the last row; one less than the first if there is no row."""
        return self.first_sequence + self.row_count - 1

    def unpacked_rows(self) -> Iterator[Row]:
        """Returns the rows as tuples, the cheap way."""
        return ROW.iter_unpack(self.rows)

    def records(self) -> Iterator[Record]:
        """Yields the rows as nouns.

        Raises:
            RecordError: a row points outside of the heap.
        """
        first, step = (0, 0) if self.is_own else (self.first_sequence, 1)
        for index, row in enumerate(self.unpacked_rows()):
            yield record_from_row(
                row,
                self.heap,
                sequence=first + step * index,
                worker=self.origin.worker,
                incarnation=self.origin.incarnation,
            )


def seal_block(
    rows: bytes | bytearray | memoryview,
    heap: bytes | bytearray | memoryview,
    *,
    first_sequence: int,
    worker: int,
    incarnation: int,
    flags: int = 0,
) -> bytes:
    """Makes the octets of a block.

    Raises:
        BlockError: it would be longer than ``BLOCK_OCTETS_LIMIT``.
    """
    rows_octets, heap_octets = len(rows), len(heap)
    padding = bytes(-heap_octets % 8)
    octets = HEADER.size + rows_octets + heap_octets + len(padding)
    if octets > BLOCK_OCTETS_LIMIT:
        raise BlockError(f"a block of {octets} octets is too long")
    checked = _CHECKED.pack(
        octets, heap_octets, first_sequence, incarnation, worker, flags, rows_octets // ROW.size
    )
    crc = crc32(padding, crc32(heap, crc32(rows, crc32(checked))))
    return b"".join((MAGIC, crc.to_bytes(4, "little"), checked, rows, heap, padding))


def open_block(
    octets: memoryview, offset: int = 0, *, salt: int = 0, is_checked: bool = False
) -> Block:
    """Reads the block that starts at ``offset``; what follows it may be anything.

    Args:
        octets: of a segment, or of a connection.
        offset: of the block.
        salt: of the segment.
        is_checked: its CRC means nothing: who sends it over a socket of this machine has read it
            out of blocks that were checked.

    Raises:
        BlockError: there is no whole block with the right CRC.
    """
    available = len(octets) - offset
    if available < HEADER.size:
        raise BlockError("the header is cut short", is_short=True)
    (magic, crc, length, heap_octets, first_sequence, incarnation, worker, flags, row_count) = (
        HEADER.unpack_from(octets, offset)
    )
    if magic != MAGIC:
        raise BlockError("no block begins here")
    heap_start = HEADER.size + row_count * ROW.size
    if not heap_start + heap_octets <= length <= BLOCK_OCTETS_LIMIT or length % 8:
        raise BlockError("the lengths of the block do not fit")
    if available < length:
        raise BlockError("the block is cut short", is_short=True)
    checked = octets[offset + _UNCHECKED_OCTETS : offset + length]
    if not is_checked and crc32(checked) != crc ^ salt:
        raise BlockError("the CRC of the block is wrong")
    return Block(
        octets=length,
        first_sequence=first_sequence,
        row_count=row_count,
        origin=Origin(worker, incarnation),
        flags=flags,
        rows=octets[offset + HEADER.size : offset + heap_start],
        heap=octets[offset + heap_start : offset + heap_start + heap_octets],
    )


def octets_of(octets: memoryview, offset: int) -> int:
    """Returns how long a block says to be that begins at ``offset``; 0: it does not yet."""
    is_known = len(octets) - offset >= HEADER.size
    return int(HEADER.unpack_from(octets, offset)[2]) if is_known else 0


def salted(octets: bytes, salt: int) -> bytes:
    """Returns the blocks in ``octets``, whole and without salt, with the salt of a segment."""
    blocks = bytearray(octets)
    add_salt(blocks, salt)
    return bytes(blocks)


def add_salt(blocks: bytearray, salt: int) -> None:
    """Adds the salt of a segment to whole blocks without salt."""
    offset = 0
    while offset < len(blocks):
        _, crc, length, *_ = HEADER.unpack_from(blocks, offset)
        _CRC.pack_into(blocks, offset + len(MAGIC), crc ^ salt)
        offset += length
