"""Follows the store on PostgreSQL while another router writes it, so that little is left to read.

``Tail`` hands out what has been committed since it was last asked, in the order of the journal.
``ReplayedAhead`` replays that as it comes, and shows all of it as one snapshot, as if the store had
just been reclaimed: a worker that restores itself from there reads what is unsettled, and not what
has happened since the last reclaim.

A row never changes, and rows are read in order. But a row that is seen may be missing at another
server, if its commit had not reached that. So what was read is forgotten with the connection over
which it was read, and whoever acts on it takes the lease first, whose commit stands behind all rows
that are seen.

    snapshot S, segments S + 1 ...    read from the snapshot on
    segment N, then N + 1             N has all its rows by then: it is read to its end first
    a snapshot of N or later          reclaimed behind our back: begin anew, from that
"""

import time
from collections.abc import Iterator
from pathlib import Path

import attrs

from router.journal.block import salted
from router.journal.postgres.storage import PostgresStorage
from router.journal.reclaim import snapshot_octets
from router.journal.replay import Replayed
from router.journal.segment import (
    ForeignFileError,
    SegmentScan,
    numbered,
    segment_header,
    snapshot_name,
)


@attrs.frozen(kw_only=True)
class Piece:
    """What has been read.

    Attributes:
        number: of the segment or snapshot.
        scan: of some of its blocks, or of all; not read yet.
        is_snapshot: it is a whole snapshot.
        begins_anew: what was read before is void.
    """

    number: int
    scan: SegmentScan
    is_snapshot: bool = False
    begins_anew: bool = False


class Tail:
    """Reads each row once.

    Attributes:
        number: of the segment or snapshot that was read last; 0: none.
    """

    def __init__(self, storage: PostgresStorage, *, is_whole: bool = True) -> None:
        """Reads nothing yet.

        Args:
            storage: the store.
            is_whole: read all there is; else begin with the last segment, whose head repeats what
                the log needs to know.
        """
        self._storage = storage
        self._is_whole = is_whole
        self._connection = 0
        self._base = 0
        self._groups = 0
        self.number = 0

    def advance(self, before: int | None = None) -> Iterator[Piece]:
        """Yields what is new.

        Args:
            before: no segment from this one on; None: all of them.

        Raises:
            OSError: the store cannot be read; ask again.
        """
        storage = self._storage
        names = storage.names()
        snapshots = [n for n in numbered(names, "snapshot") if before is None or n < before]
        last = max(snapshots, default=0)
        begins_anew = storage.connections != self._connection or self.number <= last != self._base
        if begins_anew:
            segments = numbered(names, "segment")
            is_snapshot = self._is_whole or not segments
            if not is_snapshot:
                last = segments[-1] - 1
            self._connection, self._base = storage.connections, last
            self._groups, self.number = 0, last
            if last and is_snapshot:
                scan = SegmentScan(storage.read(snapshot_name(last)))
                yield Piece(number=last, scan=scan, is_snapshot=True, begins_anew=True)
                begins_anew = False
        for number in numbered(names, "segment"):
            if number <= last or number < self.number or (before is not None and number >= before):
                continue
            read = self._groups if number == self.number else 0
            groups, _ = storage.groups(number, read)
            if storage.connections != self._connection:
                return  # begins anew next time
            self.number, self._groups = number, read + len(groups)
            if groups or begins_anew:
                octets = segment_header(0) + salted(b"".join(groups), 0)
                yield Piece(number=number, scan=SegmentScan(octets), begins_anew=begins_anew)
                begins_anew = False


class ReplayedAhead:
    """What is unsettled, as far as it was read."""

    def __init__(self, storage: PostgresStorage) -> None:
        self._tail = Tail(storage)
        self._replayed = Replayed()

    def advance(self, before: int | None = None) -> None:
        """Replays what is new; see ``Tail.advance``.

        Raises:
            OSError: the store cannot be read; ask again.
            ForeignFileError: a later version has written it.
        """
        for piece in self._tail.advance(before):
            if piece.begins_anew:
                self._replayed = Replayed()
            if piece.scan.is_foreign:
                raise ForeignFileError(Path(snapshot_name(piece.number)))
            if piece.is_snapshot:
                self._replayed.take_snapshot(snapshot_name(piece.number), piece.scan)
                self._replayed.chain.last = piece.number
            else:
                self._replayed.take_segment(piece.number, piece.scan)

    def snapshot(self, before: int) -> tuple[int, bytes] | None:
        """Returns the number and the octets of a snapshot of all that was written before a segment.

        Nothing is added there any more: another router has taken the lease.

        Returns:
            None: there is nothing, or something is missing, which whoever reads all of it finds.

        Raises:
            OSError, ForeignFileError: see ``advance``.
        """
        self.advance(before)
        if not self._tail.number or self._replayed.gaps:
            return None
        self._replayed.memory.forget_links()
        octets = snapshot_octets(self._replayed, self._tail.number, time.time_ns())
        return self._tail.number, octets
