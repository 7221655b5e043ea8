"""References: where messages of one queue stand, for a worker that reads the log's files itself.

A worker of the same machine that says READS is answered a FLOW with references instead of runs
(``runs``): the octets of messages do not pass the store's process. The messages are the same, and
nothing is unusual about them. The body of a REFERENCE::

    octet 0               4                8                12                 16
          +---------------+----------------+----------------+------------------+
          | segment       | durable octets | blocks         | octets of the    |
          |               | of it          |                | address          |
    16    +---------------+----------------+----------------+------------------+
          | address                                                            |
          | of each block its offset, that of its heap, and how many of the    |
          | messages it has                                                    |
          | of each message the octet of the segment where its row begins      |
          +--------------------------------------------------------------------+

All numbers are u32 and little-endian. What cannot be read so is given back, and comes over the
socket: the store lists what is damaged, and a disk that is slow or dead keeps no worker waiting.

Messages of one address that were stored together stand side by side: their rows are read at once,
and so are their strings, into the memory in which the worker keeps them. Their blocks were checked
by the store before it refers to them. If messages of several addresses alternate in a block, it is
read as a whole, checked, and kept for the runs of the other addresses.
"""

import errno
import os
import struct
import sys
from bisect import bisect_right
from collections import deque
from pathlib import Path
from typing import Final, NamedTuple

from router.journal.block import BLOCK_OCTETS_LIMIT, BlockError
from router.journal.bulk import shortcuts
from router.journal.disk import Disk
from router.journal.record import NO_TTL, ROW, RecordError, RecordFlag, RecordKind
from router.journal.segment import segment_name
from router.journal.store.place import (
    Place,
    place_octets,
    place_of,
    places_of,
    position_of,
)
from router.journal.store.queues import QueueKey, RouteKey
from router.journal.store.reading import SegmentReader, is_free
from router.journal.store.runs import PLACE_OCTETS, MessagesRead, Piece, compose, piece_of

_HEAD: Final = struct.Struct("<IIII")
_BLOCK: Final = struct.Struct("<III")
POSITION_OCTETS: Final = 4
_OFFSET: Final = struct.Struct("<I")
_OFFSET_AT: Final = 72  # in a row
_LEAST_STRETCH: Final = 8
"""Messages that stand side by side, in the mean; with fewer of them whole blocks are read."""

_MORE: Final = int(RecordFlag.MORE)
_STORED: Final = int(RecordKind.STORED)
_ROOMS_KEPT: Final = 64
_PATHS_KEPT: Final = 64
_STRETCHES_KEPT: Final = 48  # some three segments, so that many addresses can be read at once
_IS_LITTLE: Final = sys.byteorder == "little"
_NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
_MISSING: Final = "the block is missing, or not at hand"
_OTHERWISE: Final = "a message is not as its reference says"
_UNABLE: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


class Spot(NamedTuple):
    """Says where messages stand in one block.

    Attributes:
        offset: of the block in its segment.
        heap: offset of its heap, likewise.
        positions: of the messages in the segment, u32 each, ascending; at least one.
    """

    offset: int
    heap: int
    positions: bytes


class RunReference(NamedTuple):
    """Says where messages of one queue stand, none of which is unusual.

    Attributes:
        route: of the queue.
        queue: that they are in.
        address: of the queue.
        segment: that they stand in.
        end: octets of that segment that are durable.
        pieces: the blocks that they stand in.
    """

    route: RouteKey
    queue: QueueKey
    address: bytes
    segment: int
    end: int
    pieces: list[Spot]

    @property
    def messages(self) -> int:
        """How many."""
        return sum([len(each.positions) for each in self.pieces]) // POSITION_OCTETS

    @property
    def places(self) -> list[Place]:
        """Where they stand, as they are named."""
        return places_of(self.segment, self.positions)

    @property
    def positions(self) -> bytes:
        """Of all of them, u32 each."""
        return b"".join([each.positions for each in self.pieces])

    def positions_behind(self, place: Place) -> bytes:
        """Returns the positions of those that stand behind a place."""
        positions = self.positions
        if place < place_of(self.segment, 0):
            return positions
        if place >= place_of(self.segment + 1, 0):
            return b""
        known = memoryview(positions).cast("I")
        return positions[POSITION_OCTETS * bisect_right(known, position_of(place)) :]

    def encoded(self) -> bytes:
        """Returns the body drawn above."""
        blocks = len(self.pieces)
        counts = [
            _BLOCK.pack(offset, heap, len(positions) // POSITION_OCTETS)
            for offset, heap, positions in self.pieces
        ]
        return b"".join(
            [
                _HEAD.pack(self.segment, self.end, blocks, len(self.address)),
                self.address,
                *counts,
                *[each.positions for each in self.pieces],
            ]
        )

    @classmethod
    def decoded(cls, route: RouteKey, queue: QueueKey, body: bytes) -> "RunReference":
        """Reads a body.

        Raises:
            RecordError: it is malformed.
        """
        try:
            segment, end, blocks, address_octets = _HEAD.unpack_from(body)
            begin = _HEAD.size + address_octets
            at = begin + blocks * _BLOCK.size
            pieces = []
            for offset, heap, count in _BLOCK.iter_unpack(body[begin:at]):
                following = at + count * POSITION_OCTETS
                pieces.append(Spot(offset, heap, body[at:following]))
                at = following
        except struct.error as error:
            raise RecordError("a reference is malformed") from error
        if at != len(body) or not all(each.positions for each in pieces):
            raise RecordError("a reference is not as long as it says")
        return cls(route, queue, body[_HEAD.size : begin], segment, end, pieces)


class CachedDisk(Disk):
    """A disk of whose files only that is read which needs no wait: what the system has in memory.

    Attributes:
        is_able: the system can tell; it cannot on some file systems, of which nothing is read.
    """

    def __init__(self) -> None:
        self.is_able = bool(_NOWAIT)

    def read_part(self, path: Path, offset: int, octets: int) -> bytes:
        """Reads as ``Disk`` does; BlockingIOError: that would take a while."""
        room = bytearray(octets)
        return bytes(room[: self.read_into(path, offset, memoryview(room))])

    def read_into(self, path: Path, offset: int, room: memoryview) -> int:
        """Reads as ``Disk`` does; BlockingIOError: that would take a while."""
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.preadv(file, [room], offset, _NOWAIT)
        except OSError as error:
            self.is_able &= error.errno not in _UNABLE
            raise
        finally:
            os.close(file)

    def read_run(
        self, path: Path, reference: RunReference, room: bytearray
    ) -> tuple[int, int] | None:
        """Reads what stands side by side, in one call; only where there are shortcuts.

        Args:
            path: of the segment.
            reference: what is read.
            room: where it goes: rows, strings and places. It grows.

        Returns:
            How many messages, and the octets of their strings. None: too little stands so.

        Raises:
            BlockError: their file is shorter, or they are not all at hand.
            RecordError: a message is not as its reference says.
            OSError: their file cannot be read, or not at once.
        """
        assert shortcuts is not None
        most = BLOCK_OCTETS_LIMIT * len(reference.pieces)
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return shortcuts.read_run(
                file, _NOWAIT, reference.pieces, room, reference.segment, _LEAST_STRETCH, most
            )
        except EOFError as error:
            raise BlockError(_MISSING) from error
        except ValueError as error:
            raise RecordError(_OTHERWISE) from error
        except OSError as error:
            self.is_able &= error.errno not in _UNABLE
            raise
        finally:
            os.close(file)


class RunReader:
    """Reads runs out of the files of a store's log."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        """Begins with nothing in memory.

        Args:
            disk: of the files.
            directory: of the log's segments.
        """
        self._disk = disk
        self._directory = directory
        self._reader = SegmentReader(disk, directory, stretches=_STRETCHES_KEPT)
        self._rooms: deque[bytearray] = deque()
        self._paths: dict[int, Path] = {}
        self._is_used = False

    @classmethod
    def of(cls, directory: Path) -> "RunReader | None":
        """Returns what reads a directory of this machine; None: runs cannot be read so here."""
        return cls(CachedDisk(), directory) if _IS_LITTLE and _NOWAIT else None

    @property
    def is_able(self) -> bool:
        """Whether the file system can tell what would have to be waited for."""
        return not isinstance(self._disk, CachedDisk) or self._disk.is_able

    def run(self, reference: RunReference) -> MessagesRead:
        """Reads the messages of a reference.

        Raises:
            BlockError, RecordError: they cannot be read any more.
            OSError: their file cannot be read, or not at once.
        """
        self._is_used = True
        room = self._room()
        if shortcuts is not None and isinstance(self._disk, CachedDisk):
            found = self._disk.read_run(self._path(reference.segment), reference, room)
        else:
            found = self._read(reference, room)
        if found is None:
            return self._composed(reference, room)
        return self._run_in(room, reference, *found)

    def _read(self, reference: RunReference, room: bytearray) -> tuple[int, int] | None:
        """Reads what stands side by side; see ``CachedDisk.read_run``, which does the same.

        Returns:
            How many messages, and the octets of their strings. None: too little stands so.

        Raises:
            BlockError, RecordError, OSError: as ``run``.
        """
        stretches = _stretches_of(reference)
        if stretches is None:
            return None
        count = reference.messages
        heap_at, at, strings = count * ROW.size, 0, 0
        _extend(room, heap_at)
        path = self._path(reference.segment)
        found: list[tuple[int, int]] = []
        with memoryview(room) as view:
            for position, heap, messages in stretches:
                rows = view[at : at + messages * ROW.size]
                self._fill(path, position, rows)
                strings_at = strings_of(rows, strings)
                if strings_at is None:
                    raise RecordError(_OTHERWISE)
                found.append((heap + strings_at[0], strings_at[1]))
                at += messages * ROW.size
                strings += strings_at[1]
                rows.release()
        if strings > BLOCK_OCTETS_LIMIT * len(reference.pieces):
            raise RecordError(_OTHERWISE)
        places_at = heap_at + strings
        end = places_at + count * PLACE_OCTETS
        _extend(room, end)
        with memoryview(room) as view:
            at = heap_at
            for position, octets in found:
                self._fill(path, position, view[at : at + octets])
                at += octets
            view[places_at:end] = place_octets(reference.segment, reference.positions)
        return count, strings

    def _run_in(
        self, room: bytearray, reference: RunReference, count: int, strings: int
    ) -> MessagesRead:
        """Returns the messages that were read: rows, strings and places follow each other."""
        view, heap_at = memoryview(room), count * ROW.size
        places_at = heap_at + strings
        return MessagesRead(
            reference.route,
            reference.queue,
            view[places_at : places_at + count * PLACE_OCTETS],
            view[:heap_at],
            view[heap_at:places_at],
        )

    def _path(self, segment: int) -> Path:
        known = self._paths.get(segment)
        if known is None:
            if len(self._paths) > _PATHS_KEPT:
                self._paths.clear()
            known = self._paths[segment] = self._directory / segment_name(segment)
        return known

    def _fill(self, path: Path, offset: int, room: memoryview) -> None:
        if self._disk.read_into(path, offset, room) != len(room):
            raise BlockError(_MISSING)

    def _composed(self, reference: RunReference, room: bytearray) -> MessagesRead:
        """Reads messages that stand apart; each block is checked when it is read.

        Raises:
            BlockError, RecordError: they cannot be read any more.
            OSError: their file cannot be read, or not at once.
        """
        pieces: list[Piece] = []
        for offset, _, positions in reference.pieces:
            block = self._reader.block_ahead(reference.segment, offset, reference.end)
            piece = piece_of(block, offset, positions)
            if piece is None:
                raise RecordError(_OTHERWISE)
            pieces.append(piece)
        count = reference.messages
        strings = sum([piece.octets for piece in pieces])
        _extend(room, count * (ROW.size + PLACE_OCTETS) + strings)
        compose(room, 0, pieces, reference.segment, count, strings)
        return self._run_in(room, reference, count, strings)

    def rest(self) -> None:
        """Lets go of all memory if nothing was read since it was called last."""
        if not self._is_used:
            self._reader = SegmentReader(self._disk, self._directory, stretches=_STRETCHES_KEPT)
            self._rooms.clear()
        self._is_used = False

    def _room(self) -> bytearray:
        """Returns memory that nobody has a view of."""
        for _ in range(len(self._rooms)):
            room = self._rooms.popleft()
            self._rooms.append(room)
            if is_free(room):
                break
        else:
            room = bytearray()
            self._rooms.append(room)
            if len(self._rooms) > _ROOMS_KEPT:
                self._rooms.popleft()
        return room


def _extend(room: bytearray, octets: int) -> None:
    """Has memory be of so many octets, at least."""
    if len(room) < octets:
        room.extend(bytes(octets - len(room)))


def _stretches_of(reference: RunReference) -> list[tuple[int, int, int]] | None:
    """Returns what of a run stands side by side; None: too little does.

    Returns:
        For each stretch the position of its first message, the offset of the heap of its block, and
        how many messages it has.
    """
    size, found = ROW.size, []
    for _, heap, octets in reference.pieces:
        positions = memoryview(octets).cast("I")
        first, count, total = 0, 0, len(positions)
        while first < total:
            left = total - first
            if positions[total - 1] - positions[first] == (left - 1) * size:
                count = left
            else:
                count = 1
                while positions[first + count] - positions[first] == count * size:
                    count += 1
            found.append((positions[first], heap, count))
            first += count
        if len(found) * _LEAST_STRETCH > reference.messages + _LEAST_STRETCH * len(
            reference.pieces
        ):
            return None
    return found


def strings_of(rows: memoryview, base: int) -> tuple[int, int] | None:
    """Has rows that follow each other in a block point to where their strings will be.

    Args:
        rows: that are changed.
        base: octets of other strings that will stand before theirs.

    Returns:
        Where in the heap of the block their strings begin, and how many octets they have. None: a
        row is unusual, or other strings stand between theirs; the rows may have been changed.
    """
    if shortcuts is not None:
        return shortcuts.usual_strings(rows, base)
    first = octets = 0
    for number, row in enumerate(ROW.iter_unpack(rows)):
        if number == 0:
            first = row[15]
        is_whole = row[0] == _STORED and not row[4] & _MORE and row[13] == NO_TTL
        if not is_whole or row[5] + row[14] > row[16] or row[15] != first + octets:
            return None
        _OFFSET.pack_into(rows, number * ROW.size + _OFFSET_AT, base + octets)
        octets += row[16]
    return first, octets
