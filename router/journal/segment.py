"""Segments: the files of the log, and how far each one is valid.

    octet  0            8      12     16
          +------------+------+------+-------------+-------+--------+-- ... --+-------------+--- ...
          | "AMQPJNL1" | salt | salt | head blocks | fence | blocks |         | end, or not | zeros
          |            | u32  | u32  |             |       |        |         |             |
          +------------+------+------+-------------+-------+--------+-- ... --+-------------+--- ...
                                      SEGMENT       '-- a commit --'          SEGMENT_END
                                      MARK ...
                                      LINK_ATTACHED, COPY ...

The head contains what a reader without older segments needs: the next sequence number of each
origin, so that missing records are detected, and every live link. Each commit begins with a
FENCE, which states how much of the segment was durable before it: nothing in the first one, whose
flush makes the head durable as well. A crash may tear the last commit, whose pages reach the disk
in any order. A segment that is full, or found at the next start, is cut behind its last whole block
and sealed with SEGMENT_END, which is then its last block.

At the first octet p that begins no whole block:

    nothing but zeros follow                           the end of an open segment
    the segment is sealed, or a later fence says that  damage: octets were durable and are not
    more than p octets are durable                     readable. Reading goes on at the next block
    otherwise                                          a torn tail. It is cut at p: nobody was
                                                       told that what stood there is durable

Snapshots (see ``reclaim``) have the same form; their one head record is SNAPSHOT.

Segments are a *chain*: the head of each names its predecessor, and the file ``newest`` names the
last one with durable records, so a missing segment is noticed, even if it is the only one.
Numbers may skip: a segment that could not be begun leaves a gap. Segments of an earlier version
name no predecessor, and an earlier version does not check.
"""

import contextlib
import enum
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from router.errors import RouterError
from router.journal.block import (
    HEADER,
    MAGIC,
    OWN_WORKER,
    Block,
    BlockError,
    BlockFlag,
    Origin,
    open_block,
    seal_block,
)
from router.journal.keys import NO_LINK, LinkKey
from router.journal.record import NO_KEY, NO_TTL, ROW, Record, RecordFlag, RecordKind, Row
from router.journal.writer import RecordWriter

SEGMENT_MAGIC: Final = b"AMQPJNL1"
SEGMENT_HEADER_OCTETS: Final = 16
NEWEST_NAME: Final = "newest"
END_OCTETS: Final = HEADER.size + ROW.size
_NAME: Final = re.compile(r"([0-9]{16})\.(segment|snapshot)")


class Tail(enum.StrEnum):
    """How a segment ends."""

    SEALED = "sealed"
    OPEN = "open"
    TORN = "torn"


@attrs.frozen
class Damage:
    """Octets that had been durable and cannot be read.

    Attributes:
        offset: of the first one.
        octets: how many until the next whole block.
        is_end: the end of the file is missing, and nobody knows how much stood there.
    """

    offset: int
    octets: int
    is_end: bool = False

    def __str__(self) -> str:
        return f"{self.octets} octets from offset {self.offset}"


@attrs.frozen
class ForeignFileError(RouterError):
    """A file of the journal's directory has another format: a later version may have written it."""

    path: Path

    def __str__(self) -> str:
        return f"{self.path} is not of the format {SEGMENT_MAGIC.decode()}; nothing was changed"


@attrs.frozen(kw_only=True)
class LinkRow:
    """A LINK_ATTACHED record as the log keeps it to repeat it in the next segment."""

    time_ns: int
    incoming: LinkKey
    outgoing: LinkKey
    body: bytes
    flags: int = 0


def segment_name(number: int) -> str:
    """Names segment ``number``; names sort as the numbers do."""
    return f"{number:016d}.segment"


def snapshot_name(number: int) -> str:
    """Names the snapshot that stands for all segments up to and with ``number``."""
    return f"{number:016d}.snapshot"


def numbered(names: Iterable[str], suffix: str) -> list[int]:
    """Returns the numbers of the ``segment`` or ``snapshot`` files among ``names``, ascending."""
    matches = (_NAME.fullmatch(name) for name in names)
    return sorted(int(match[1]) for match in matches if match and match[2] == suffix)


def segment_head(
    *,
    number: int,
    router: str,
    incarnation: int,
    time_ns: int,
    marks: Mapping[Origin, int],
    links: Iterable[LinkRow],
    previous: int = 0,
) -> bytes:
    """Returns the blocks that a segment begins with.

    Args:
        number: of the segment.
        router: id of the router that the journal belongs to.
        incarnation: which life of the journal's process.
        time_ns: now.
        marks: next sequence number of each origin.
        links: the links that live.
        previous: number of the segment, or snapshot, before it; 0: there is none.
    """
    writer = RecordWriter(worker=OWN_WORKER, incarnation=incarnation, is_own=True)
    writer.append(
        RecordKind.SEGMENT,
        time_ns,
        incoming=LinkKey(previous),
        message_octets=number,
        body=router.encode(),
    )
    append_marks(writer, time_ns, marks)
    for link in links:
        writer.append(
            RecordKind.LINK_ATTACHED,
            link.time_ns,
            incoming=link.incoming,
            outgoing=link.outgoing,
            flags=link.flags | RecordFlag.COPY,
            body=link.body,
        )
    return b"".join(block.octets for block in writer.take_blocks())


class Chain:
    """Follows which segment each one says stands before it.

    Attributes:
        last: number of the segment read last, or of the snapshot that reading began with.
        missing: segments that should have been read and were not there.
    """

    def __init__(self, last: int = 0) -> None:
        self.last = last
        self.missing: list[int] = []

    def follow(self, number: int, block: Block) -> bool:
        """Handles a block of segment ``number``; returns whether one before it is missing."""
        if number == self.last or not block.is_own:
            return False
        heads = [row for row in block.unpacked_rows() if row[0] == RecordKind.SEGMENT]
        if not heads:
            return False
        previous, before, self.last = heads[0][8], self.last, number
        return self._expect(previous, before)

    def end(self, newest: int) -> bool:
        """Handles what ``newest`` says; returns whether that one is missing."""
        return self._expect(newest, self.last)

    def _expect(self, number: int, last: int) -> bool:
        if number <= last:
            return False
        self.missing.append(number)
        return True


def newest_octets(number: int) -> bytes:
    """Returns the content of the file ``newest``."""
    return b"%016d\n" % number


def read_newest(octets: bytes) -> int:
    """Reads the file ``newest``; 0 if it cannot be read."""
    try:
        return int(octets)
    except ValueError:
        return 0


def segment_header(salt: int) -> bytes:
    """Returns the first octets of a file whose blocks are salted with ``salt``."""
    return SEGMENT_MAGIC + 2 * salt.to_bytes(4, "little")


def append_marks(writer: RecordWriter, time_ns: int, marks: Mapping[Origin, int]) -> None:
    """Appends one MARK for each origin."""
    for origin, next_sequence in marks.items():
        writer.append(
            RecordKind.MARK,
            time_ns,
            incoming=LinkKey(origin.worker),
            outgoing=LinkKey(origin.incarnation),
            message_octets=next_sequence,
        )


def mark_of_row(row: Row) -> tuple[Origin, int]:
    """Reads a MARK: an origin and its next sequence number."""
    return Origin(row[8], row[9]), row[10]


def own_block(
    kind: RecordKind, incarnation: int, time_ns: int, *, durable_octets: int = 0
) -> bytes:
    """Returns a FENCE or a SEGMENT_END, ``END_OCTETS`` long."""
    row = ROW.pack(
        kind, 0, 0, 0, 0, 0, time_ns, NO_KEY, NO_LINK, NO_LINK, durable_octets, 0, 0, NO_TTL,
        0, 0, 0,
    )  # fmt: skip
    return seal_block(
        row,
        b"",
        first_sequence=1,
        worker=OWN_WORKER,
        incarnation=incarnation,
        flags=int(BlockFlag.OWN),
    )


class SegmentScan:
    """Reads the blocks of one segment; once they are read it knows how the segment ends.

    Attributes:
        octets: the whole file.
        salt: of its blocks.
        end: where the last whole block ends; meaningful when the blocks are exhausted, as are
            the following.
        tail: how the segment ends.
        torn_octets: length of the torn tail up to its last octet that is not zero.
        damage: what could not be read.
    """

    def __init__(self, octets: bytes) -> None:
        self.octets = octets
        self._view = memoryview(octets)
        self.salt = self._find_salt()
        self.end = 0
        self.tail = Tail.OPEN
        self.torn_octets = 0
        self.damage: list[Damage] = []
        self._is_sealed = self._ends_with_seal()

    def blocks(self) -> Iterator[tuple[int, Block]]:
        """Yields each whole block with its offset."""
        has_header = self.octets.startswith(segment_header(self.salt))
        position = SEGMENT_HEADER_OCTETS if has_header else 0
        last: Block | None = None
        while position < len(self.octets):
            try:
                block = open_block(self._view, position, salt=self.salt)
            except BlockError:
                if self._is_zero_from(position):
                    break
                following = self._next_durable(position)
                if following is None:
                    self.tail = Tail.TORN
                    self.torn_octets = len(self.octets[position:].rstrip(b"\0"))
                    break
                self.damage.append(Damage(position, following - position))
                position = following
                continue
            yield position, block
            position += block.octets
            self.end, last = position, block
        if last is not None and _is_end(last):
            self.tail = Tail.SEALED

    def end_snapshot(self) -> None:
        """Records what a snapshot lacks; call it when its blocks are read.

        A snapshot has its name only when all of it is durable, so nothing that it lacks is a tail
        torn by a crash.
        """
        if self.tail is not Tail.SEALED:
            self.damage.append(Damage(self.end, len(self.octets) - self.end, is_end=True))
            self.torn_octets = 0

    @property
    def is_foreign(self) -> bool:
        """Whether another version wrote it, or it begins like something else and none can be read.

        A later version may have changed what records mean, and not the form of blocks. A segment
        that a crash has left unfinished begins with zeros: a sector is written whole.
        """
        magic = self.octets[: len(SEGMENT_MAGIC)]
        if SEGMENT_MAGIC.startswith(magic) or not magic.strip(b"\0"):
            return False
        if magic[:-1] == SEGMENT_MAGIC[:-1] and magic[-1:].isdigit():
            return True
        return self._next_block(-1) is None

    def records(self) -> Iterator[Record]:
        """Yields the records of all blocks.

        Raises:
            RecordError: see ``Block.records``.
        """
        for _, block in self.blocks():
            yield from block.records()

    def _ends_with_seal(self) -> bool:
        start = len(self.octets) - END_OCTETS
        if start < 0:
            return False
        try:
            return _is_end(open_block(self._view, start, salt=self.salt))
        except BlockError:
            return False

    def _is_zero_from(self, position: int) -> bool:
        nearby = self.octets[position : position + HEADER.size]
        return not nearby.strip(b"\0") and not self.octets[position:].strip(b"\0")

    def _find_salt(self) -> int:
        """Reads the salt, of which one copy may be damaged."""
        copies = [int.from_bytes(self.octets[at : at + 4], "little") for at in (8, 12)]
        for salt in copies:
            with contextlib.suppress(BlockError):
                open_block(self._view, SEGMENT_HEADER_OCTETS, salt=salt)
                return salt
        return copies[0]

    def _next_durable(self, position: int) -> int | None:
        """Finds where reading goes on behind ``position``; None if the tail is torn there."""
        following = self._next_block(position)
        if following is None or self._is_sealed:
            return following
        at: int | None = following
        while at is not None:
            if _fenced_octets(open_block(self._view, at, salt=self.salt)) > position:
                return following
            at = self._next_block(at)
        return None

    def _next_block(self, position: int) -> int | None:
        """Finds the next whole block behind ``position``."""
        at = self.octets.find(MAGIC, position + 1)
        while at >= 0:
            if at % 8 == 0:
                with contextlib.suppress(BlockError):
                    open_block(self._view, at, salt=self.salt)
                    return at
            at = self.octets.find(MAGIC, at + 1)
        return None


def _is_end(block: Block) -> bool:
    return block.is_own and any(row[0] == RecordKind.SEGMENT_END for row in block.unpacked_rows())


def _fenced_octets(block: Block) -> int:
    """Returns how much of the segment ``block`` says is durable; 0 if it is no fence."""
    if not block.is_own:
        return 0
    return max((row[10] for row in block.unpacked_rows() if row[0] == RecordKind.FENCE), default=0)
