"""The log of the store of files: appends blocks to segments, and tracks which are durable.

Nothing is lost while this process lives: blocks given to ``append`` stay in memory until a
``commit`` has made them durable, and ``commit`` may fail as often as the disk does.

    commit    one write and one flush for all blocks appended since the last: group commit.
              With a ``Flusher`` the flush goes on while others are appended; until it has ended
              nothing else is done with the disk, and ``waits`` says when to call ``commit`` again
    zeros     the segment is filled with zeros some way ahead of the last block, so that a commit
              changes no metadata of the file, and so that blocks in flight when the disk fills
              up still have room: the health is DISK_FULL while commits use up that reserve
    rotate    when the segment is full or old: cut and seal it, begin the next
    failure   no room: the next try writes the same octets to the same place.
              an error of write or flush: the kernel may have dropped the pages and reports that
              only once, so this segment is abandoned behind its last durable octet, and everything
              that is not durable goes to a new one. A reader drops repeats (by sequence number).

States (``health``), and what moves between them:

    WRITING      no room for the reserve, or for the next segment     DISK_FULL, commits go on
    any          no room for what is pending                          DISK_FULL, blocked
    any          any other OSError                                    IO_ERROR, blocked
    any          a commit, and the reserve is there                   WRITING

While the log is blocked, or lacks its reserve, it tries again only when ``deadline_ns`` has passed.
"""

import contextlib
import errno
import selectors
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from typing import Protocol as Interface

import attrs

from router.journal.block import Block, Origin
from router.journal.disk import Disk
from router.journal.ending import Ending, write_ending
from router.journal.facts import LatestFacts
from router.journal.flusher import Flusher
from router.journal.protocol import Health
from router.journal.record import RecordError, RecordKind, heap_strings
from router.journal.segment import (
    END_OCTETS,
    NEWEST_NAME,
    Damage,
    ForeignFileError,
    SegmentScan,
    Tail,
    newest_octets,
    numbered,
    own_block,
    read_newest,
    segment_head,
    segment_name,
    snapshot_name,
)
from router.journal.segment_file import SegmentFile, end_file, write_note
from router.journal.storage import Opened

SEGMENT_OCTETS: Final = 64 << 20
SEGMENT_SHARE: Final = 48
"""A segment is no larger than this part of the disk: a journal takes up to six of them, and a
message store beside it leaves it an eighth."""

ROTATE_SECONDS: Final = 300.0
"""The pipeline sees a segment when it is sealed, so a quiet router seals early."""

RETRY_SECONDS: Final = 1.0
LOCK_NAME: Final = "lock"
"""File in the directory that the only process that writes it holds locked."""

RESERVE_OCTETS: Final = 1 << 20
"""Zeros kept ahead of what is written: some 10,000 records to settle with on a full disk."""

_NANOSECONDS: Final = 1_000_000_000
DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Contents(Interface):
    """Whoever must know in which segments a log's records are; see ``store.store``."""

    def restore(self, now_ns: int) -> None:
        """Reads the segments; the directory is locked, and the last one ends in a whole block."""

    def head(self, now_ns: int) -> bytes:
        """Returns blocks for the head of the next segment, about what is durable."""

    def written(self) -> None:
        """Records that all blocks appended so far were written; if that fails, once more later."""

    def landed(self, segment: int, offset: int) -> None:
        """Records that these blocks are durable, one behind another from ``offset`` on."""


@attrs.frozen
class Written:
    """What was written, and is not known to be durable.

    Attributes:
        octets: of the group.
        blocks: how often ``append`` was called for it.
        appended_octets: of these blocks.
        marks: next sequence number of each origin behind them.
    """

    octets: int
    blocks: int
    appended_octets: int
    marks: dict[Origin, int]


class Log:
    """One directory of segments, written by this process alone: a ``storage.BlockLog``.

    All times are nanoseconds since 1970, handed in by the caller.

    Attributes:
        health: see the table of the module.
        errno: of the last failure, 0 in WRITING.
        pending_octets: octets appended and not durable.
        commits: flushes that made records durable.
        written_octets: octets made durable by these commits, fences included.
        sealed: how many segments were sealed since ``open``.
        number: number of the newest segment, or of the one that could not be created.
    """

    def __init__(
        self,
        directory: Path,
        router: str,
        *,
        disk: Disk,
        incarnation: int,
        segment_octets: int = SEGMENT_OCTETS,
        reserve_octets: int = RESERVE_OCTETS,
        rotate_seconds: float = ROTATE_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        contents: Contents | None = None,
        flusher: Flusher | None = None,
    ) -> None:
        """Makes a closed log; ``open`` opens it.

        Args:
            directory: of the segments; made if missing.
            router: id of the router that the journal belongs to.
            disk: the operating system's, or a test's.
            incarnation: start time of the journal's process, in nanoseconds.
            segment_octets: a segment that would grow beyond is sealed before.
            reserve_octets: zeros kept ahead of what is written.
            rotate_seconds: a segment with records in it is sealed when it is as old as this.
            retry_seconds: pause between two attempts after a failure.
            contents: follows which records are where; None: nobody does.
            flusher: flushes while this log goes on; None: a commit ends when its flush does.
        """
        self.directory = directory
        self.router = router
        self.incarnation = incarnation
        self.health = Health.WRITING
        self.errno = 0
        self.pending_octets = 0
        self.commits = 0
        self.written_octets = 0
        self.sealed = 0
        self.number = 0
        self._disk = disk
        self._contents = contents
        self._flusher = flusher
        self._waits = {} if flusher is None else {flusher.descriptor: selectors.EVENT_READ}
        self._written: Written | None = None
        self._segment_octets = segment_octets
        self._rotate_ns = int(rotate_seconds * _NANOSECONDS)
        self._retry_ns = int(retry_seconds * _NANOSECONDS)
        self._blocked_until_ns = 0
        self._full_until_ns = 0
        self._reserve_octets = reserve_octets
        self._pending: list[bytes] = []
        self._facts = LatestFacts()
        self._segment: SegmentFile | None = None
        self._begun = 0
        self._noted = 0
        self._lock = -1

    @property
    def durable(self) -> dict[Origin, int]:
        """Next sequence number of each origin, as far as durable."""
        return self._facts.durable

    @property
    def appended(self) -> dict[Origin, int]:
        """Next sequence number of each origin that wrote, durable or not."""
        return self._facts.marks

    def open(self, now_ns: int) -> Opened:
        """Locks the directory, cuts the torn tail of the last segment and begins a new one.

        Raises:
            BlockingIOError: another process writes this journal.
            OSError: the directory cannot be made, locked or read. That no segment can be written
                is no error here, but a ``health``: what is appended is kept meanwhile.
            ForeignFileError: the last segment or snapshot is of another format, and stays so.
        """
        self._disk.make_directory(self.directory)
        self._lock = self._disk.lock(self.directory / LOCK_NAME)
        names = self._disk.names(self.directory)
        numbers = numbered(names, "segment")
        self._noted = self._read_newest(names)
        self.number = max([self._noted, *numbers, *numbered(names, "snapshot")])
        for number in numbered(names, "snapshot")[-1:]:
            self._know(self.directory / snapshot_name(number))
        damage: list[Damage] = []
        cut_octets = 0
        begun: list[SegmentScan] = []
        router: str | None = None
        self._begun = max([self._noted, *numbers[:-1], *numbered(names, "snapshot")])
        for number in reversed(numbers):
            scan = self._know(self.directory / segment_name(number))
            head = _router_of(scan)
            if not begun:
                cut_octets = scan.torn_octets
                self._seal_found(number, scan, now_ns)
                if scan.end:
                    self._begun = max(self._begun, number)
            damage += scan.damage
            begun.append(scan)
            if head is not None:
                router = head
                break
        for scan in reversed(begun):
            for _, block in SegmentScan(scan.octets).blocks():
                self._facts.learn(block)
        self._facts.flushed()
        self._restore_contents(now_ns)
        self._attempt(now_ns)
        return Opened(
            segments=len(numbers), cut_octets=cut_octets, damage=tuple(damage), router=router
        )

    def _restore_contents(self, now_ns: int) -> None:
        if self._contents is None:
            return
        try:
            self._contents.restore(now_ns)
        except (OSError, ForeignFileError):
            self._disk.close(self._lock)
            raise

    def append(self, octets: bytes, blocks: list[Block]) -> None:
        """Accepts whole blocks, which the next successful commit makes durable.

        Args:
            octets: the encoded blocks, as they are stored.
            blocks: the same, decoded. The caller has checked that the first sequence number of each
                is the one that ``appended`` has for its origin.
        """
        for block in blocks:
            self._facts.learn(block)
        self._pending.append(octets)
        self.pending_octets += len(octets)

    def admit(self, origin: Origin, first_sequence: int) -> None:
        """Admits ``origin``; earlier lives of its worker can write no more.

        Args:
            origin: the origin that will append.
            first_sequence: the first record that it can still send. If that is later than expected,
                the records between are lost, and the gap in the sequence shows it.
        """
        self._facts.admit(origin, first_sequence)

    def has_pending(self, worker: int) -> bool:
        """Returns whether records of a worker, of any of its lives, are not durable yet."""
        return self._facts.has_pending(worker)

    @property
    def deadline_ns(self) -> int | None:
        """When ``commit`` should be called although nothing was appended; None: never."""
        if self._written is not None:
            return None
        if self._blocked_until_ns:
            return self._blocked_until_ns
        if self.health is not Health.WRITING:
            return self._full_until_ns
        if self._segment is None or not self._segment.has_records:
            return None
        return self._segment.begun_ns + self._rotate_ns

    @property
    def waits(self) -> Mapping[int, int]:
        """What the flusher says that it is ready with; nothing without one."""
        return self._waits

    def commit(self, now_ns: int) -> bool:
        """Makes all appended blocks durable, and does what else is due.

        Returns:
            Whether nothing is pending any more. Otherwise ``health`` and ``errno`` say why, and
            ``deadline_ns`` when to try again.
        """
        if self._written is not None and not self._is_flushed(now_ns):
            return False
        if now_ns >= self._blocked_until_ns:
            self._attempt(now_ns)
        return not self._pending

    def close(self, now_ns: int) -> bool:
        """Commits, seals the segment and unlocks the directory.

        Returns:
            Whether everything was durable.
        """
        self._await_flush(now_ns)
        self._blocked_until_ns = 0
        self.commit(now_ns)
        self._await_flush(now_ns)
        is_durable = not self._pending
        if self._flusher is not None:
            self._flusher.close()
        if self._segment is not None:
            self._segment.seal(incarnation=self.incarnation, time_ns=now_ns)
            self._note_end(self._segment)
            self._segment = None
        self._disk.close(self._lock)
        return is_durable

    def _note_end(self, segment: SegmentFile) -> None:
        """Records where the last segment ends, if it has records: nobody writes to it again."""
        if segment.has_records and self._disk.has_files:
            ending = Ending(self._begun, segment.durable_octets, self._messages_in(self._begun))
            write_ending(self._disk, self.directory, ending)

    def _messages_in(self, number: int) -> int:
        """Returns how many messages a segment held, in the log of a message store."""
        return 0

    def _attempt(self, now_ns: int) -> None:
        """Commits and sets ``health``."""
        try:
            has_space = self._commit(now_ns)
        except OSError as error:
            self._fail(error, now_ns)
            return
        self._blocked_until_ns = 0
        if has_space:
            self.health = Health.WRITING
            self.errno = 0

    def _fail(self, error: OSError, now_ns: int) -> None:
        self._blocked_until_ns = now_ns + self._retry_ns
        self.errno = error.errno or errno.EIO
        self.health = Health.DISK_FULL if self.errno in DISK_FULL else Health.IO_ERROR
        if self.health is Health.IO_ERROR:
            self._abandon()

    def _is_flushed(self, now_ns: int) -> bool:
        """Returns whether the flush under way has ended, and handles its end."""
        assert self._flusher is not None
        try:
            if not self._flusher.take():
                return False
        except OSError as error:
            self._written = None
            self._abandon()  # whatever the error: see SegmentFile.flush
            self._fail(error, now_ns)
        else:
            self._landed()
        return True

    def _await_flush(self, now_ns: int) -> None:
        while self._written is not None:
            assert self._flusher is not None
            self._flusher.wait()
            self._is_flushed(now_ns)

    def _commit(self, now_ns: int) -> bool:
        """Writes the pending blocks and does what else is due.

        Returns:
            Whether there is space for more.

        Raises:
            OSError: the blocks stay pending.
        """
        segment, has_space = self._segment, True
        if segment is None:
            segment = self._begin_segment(now_ns)
        elif self._is_due(segment, now_ns):
            has_space = self._rotate(segment, now_ns)
            segment = self._segment or segment
        group = self._next_group(segment, now_ns)
        try:
            has_space &= self._fill(segment, len(group), now_ns)
        except OSError as error:
            if error.errno != errno.EFBIG or not segment.has_records:
                raise
            segment = self._begin_after(segment, now_ns)  # this file may not grow; another may
            group = self._next_group(segment, now_ns)
            has_space = self._fill(segment, len(group), now_ns)
        if group:
            self._write(segment, group)
        return has_space

    def _next_group(self, segment: SegmentFile, now_ns: int) -> bytearray:
        """Returns the octets of the next commit: a fence and all pending blocks, if any."""
        if not self._pending:
            return bytearray()
        fence = own_block(
            RecordKind.FENCE, self.incarnation, now_ns, durable_octets=segment.flushed_octets
        )
        return bytearray().join((fence, *self._pending))

    def _write(self, segment: SegmentFile, group: bytearray) -> None:
        """Makes ``group``, all pending blocks, durable, or begins to."""
        segment.write(group)
        self._written = Written(
            len(group), len(self._pending), self.pending_octets, dict(self._facts.marks)
        )
        if self._contents is not None:
            self._contents.written()
        if self._flusher is not None:
            self._flusher.start(segment.flush)
            return
        try:
            segment.flush()
        except OSError:
            self._written = None
            self._abandon()  # whatever the error: see SegmentFile.flush
            raise
        self._landed()

    def _landed(self) -> None:
        """Records that what was written is durable."""
        written, self._written = self._written, None
        assert written is not None
        assert self._segment is not None
        self._segment.flushed(written.octets)
        if self._contents is not None:
            first = self._segment.durable_octets - written.octets + END_OCTETS
            self._contents.landed(self._begun, first)
        del self._pending[: written.blocks]
        self.pending_octets -= written.appended_octets
        self._facts.flushed(written.marks)
        self.commits += 1
        self.written_octets += written.octets
        if self._noted != self._begun:
            self._note_newest(self._begun)

    def _fill(self, segment: SegmentFile, group_octets: int, now_ns: int) -> bool:
        """Writes zeros ahead of the written octets.

        Returns:
            Whether the reserve is complete as well.

        Raises:
            OSError: there is no space for ``group_octets``.
        """
        needed = segment.durable_octets + group_octets
        is_writing = self.health is Health.WRITING
        if is_writing and segment.zeroed_octets >= needed + self._reserve_octets // 2:
            return True
        if segment.zeroed_octets >= needed and now_ns < self._full_until_ns:
            return False
        try:
            segment.fill(needed + self._reserve_octets)
        except OSError as error:
            if segment.zeroed_octets < needed or error.errno not in DISK_FULL:
                raise
            if error.errno == errno.EFBIG:
                return True  # not the disk is full, only this file: the next one has room
            self._note_full(error, now_ns)
            return False
        return True

    def _note_full(self, error: OSError, now_ns: int) -> None:
        """Records that there is space for the pending blocks and for nothing more."""
        self.health = Health.DISK_FULL
        self.errno = error.errno or errno.ENOSPC
        self._full_until_ns = now_ns + self._retry_ns

    def _is_due(self, segment: SegmentFile, now_ns: int) -> bool:
        if not segment.has_records:
            return False
        octets = segment.durable_octets + END_OCTETS + self.pending_octets + END_OCTETS
        is_full = octets > self._segment_octets and bool(self._pending)
        return is_full or now_ns - segment.begun_ns >= self._rotate_ns

    def _rotate(self, segment: SegmentFile, now_ns: int) -> bool:
        """Creates the segment after ``segment``.

        Returns:
            Whether there was space. If not, ``segment`` is written further, with what is left of
            its reserve.
        """
        if now_ns < self._full_until_ns:
            return False
        try:
            self._begin_after(segment, now_ns)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self._note_full(error, now_ns)
            return False
        return True

    def _begin_after(self, segment: SegmentFile, now_ns: int) -> SegmentFile:
        following = self._begin_segment(now_ns)
        segment.seal(incarnation=self.incarnation, time_ns=now_ns)
        self.sealed += 1
        return following

    def _begin_segment(self, now_ns: int) -> SegmentFile:
        self.number += 1
        head = segment_head(
            number=self.number,
            router=self.router,
            incarnation=self.incarnation,
            time_ns=now_ns,
            marks=self.durable,
            links=self._facts.links.values(),
            previous=self._begun,
        )
        if self._contents is not None:
            head += self._contents.head(now_ns)
        path = self.directory / segment_name(self.number)
        self._segment = SegmentFile.create(
            self._disk, path, head, reserve_octets=self._reserve_octets, begun_ns=now_ns
        )
        self._begun = self.number
        return self._segment

    def _read_newest(self, names: list[str]) -> int:
        if NEWEST_NAME not in names:
            return 0
        return read_newest(self._disk.read(self.directory / NEWEST_NAME))

    def _note_newest(self, number: int) -> None:
        """Records, as far as the disk allows, that a segment holds durable records."""
        self._noted = number
        with contextlib.suppress(OSError):
            write_note(self._disk, self.directory / NEWEST_NAME, newest_octets(number))

    def _know(self, path: Path) -> SegmentScan:
        """Reads a file that must be of our format."""
        scan = SegmentScan(self._disk.read(path))
        if scan.is_foreign:
            self._disk.close(self._lock)
            raise ForeignFileError(path)
        return scan

    def _abandon(self) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.abandon()

    def _seal_found(self, number: int, scan: SegmentScan, now_ns: int) -> None:
        """Cuts and seals the segment that the previous process left behind."""
        if scan.tail is Tail.SEALED:
            return
        path = self.directory / segment_name(number)
        with contextlib.suppress(OSError):
            if not scan.end:
                self._disk.remove(path)
                return
            file = self._disk.open(path)
            try:
                end_file(
                    self._disk,
                    file,
                    scan.end,
                    salt=scan.salt,
                    incarnation=self.incarnation,
                    time_ns=now_ns,
                )
            finally:
                self._disk.close(file)


def _router_of(scan: SegmentScan) -> str | None:
    """Reads ``scan`` to its end and returns its router; None: its head is not among the blocks."""
    router: str | None = None
    for _, block in scan.blocks():
        if block.is_own:
            for row in block.unpacked_rows():
                if row[0] == RecordKind.SEGMENT:
                    with contextlib.suppress(RecordError):
                        router = heap_strings(row, block.heap)[2].decode(errors="replace")
    return router
