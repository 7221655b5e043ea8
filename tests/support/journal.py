"""For tests of the journal: a disk that fails, fills up and forgets, and records to put on it."""

import errno
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from router.journal.block import open_block
from router.journal.disk import Disk
from router.journal.flusher import Flusher
from router.journal.keys import LinkKey
from router.journal.log import Log
from router.journal.memory import Memory
from router.journal.record import Record, RecordFlag, RecordKind
from router.journal.segment import SegmentScan
from router.journal.storage import BlockLog
from router.journal.writer import RecordWriter
from router.model.identity import DeliveryKey

SECTOR_OCTETS = 512
DIRECTORY = Path("/journal")
SOURCE = LinkKey(0x5000)
TARGET = LinkKey(0x7000)
SECOND_NS = 1_000_000_000
START_NS = 1_763_000_000 * SECOND_NS
RESERVE_OCTETS = 8 << 10
"""Zeros ahead of a log: a real one has megabytes of them, which a ``FakeDisk`` holds twice."""


def key(number: int) -> DeliveryKey:
    """Gives a delivery key that is easy to tell from others."""
    return DeliveryKey(number.to_bytes(16, "big"))


def records_in(directory: Path, kind: RecordKind) -> list[Record]:
    """Reads the records of one kind from the segments of a real directory."""
    found: list[Record] = []
    for segment in sorted(directory.glob("*.segment")):
        found += [each for each in SegmentScan(segment.read_bytes()).records() if each.kind == kind]
    return found


def write_life(writer: RecordWriter, number: int, *, payload: bytes | None = None) -> None:
    """Writes all that happens to one delivery from its receipt to its end: four records."""
    now_ns = START_NS + number
    writer.received(now_ns, key(number), SOURCE, b"tag-%d" % number, payload=payload)
    writer.sent(now_ns, key(number), SOURCE, TARGET, b"out-%d" % number)
    writer.outcome(now_ns, key(number), SOURCE, TARGET, 0x24, flags=RecordFlag.SETTLED)
    writer.settled(now_ns, key(number), SOURCE)


def append(log: BlockLog, writer: RecordWriter) -> None:
    """Hands what ``writer`` has to ``log``, as the journal's process does."""
    for sealed in writer.take_blocks():
        log.append(sealed.octets, [open_block(memoryview(sealed.octets))])


def remembered(octets: bytes) -> Memory:
    """Replays one segment and nothing else."""
    memory = Memory()
    for _, block in SegmentScan(octets).blocks():
        memory.apply(block)
    return memory


@attrs.define
class _Operation:
    """A write (``octets``) or a truncation (None) that was not flushed yet."""

    offset: int
    octets: bytes | None

    def sectors(self) -> Iterator["_Operation"]:
        """Cuts a write where the disk may tear it."""
        if self.octets is None:
            yield self
            return
        start = 0
        while start < len(self.octets):
            end = SECTOR_OCTETS - (self.offset + start) % SECTOR_OCTETS + start
            yield _Operation(self.offset + start, self.octets[start:end])
            start = end

    def apply(self, content: bytearray) -> None:
        """Does it to ``content``."""
        if self.octets is None:
            del content[self.offset :]
            content.extend(bytes(self.offset - len(content)))
            return
        if self.offset > len(content):
            content.extend(bytes(self.offset - len(content)))
        content[self.offset : self.offset + len(self.octets)] = self.octets


@attrs.define(eq=False)
class _File:
    durable: bytearray = attrs.Factory(bytearray)
    content: bytearray = attrs.Factory(bytearray)
    unflushed: list[_Operation] = attrs.Factory(list)

    def do(self, operation: _Operation) -> None:
        operation.apply(self.content)
        self.unflushed.append(operation)


@attrs.frozen
class _NameChange:
    """A file got a name, lost one, or both at once."""

    gained: Path | None
    lost: Path | None
    file: _File

    def apply(self, names: dict[Path, _File]) -> None:
        """Does it to ``names``."""
        if self.lost is not None:
            names.pop(self.lost, None)
        if self.gained is not None:
            names[self.gained] = self.file

    def touches(self, directory: Path) -> bool:
        """Tells whether ``directory`` must be synced to make it durable."""
        return any(path and path.parent == directory for path in (self.gained, self.lost))


@attrs.define
class Fault:
    """An error that the disk gives.

    Attributes:
        operation: name of the method of ``Disk``.
        errno: what it raises.
        after: how many calls of that method succeed before.
        times: how many fail then.
    """

    operation: str
    errno: int
    after: int = 0
    times: int = 1


class CrashError(Exception):
    """The machine stopped in the middle of an operation; see ``FakeDisk.crash_at``."""


class HeldFlusher(Flusher):
    """Flushes when it is told to.

    Attributes:
        is_held: the flush that was started is not done yet.
    """

    def __init__(self) -> None:
        self.descriptor = -1
        self.is_held = True
        self._flush: Callable[[], None] | None = None

    def is_busy(self) -> bool:
        """Tells whether a flush was started and is not done."""
        return self._flush is not None

    def start(self, flush: Callable[[], None]) -> None:
        assert self._flush is None
        self._flush = flush

    def take(self) -> bool:
        if self.is_held:
            return False
        flush, self._flush = self._flush, None
        assert flush is not None
        self.is_held = True
        flush()
        return True

    def wait(self) -> None:
        self.is_held = False

    def close(self) -> None:
        assert self._flush is None


class FakeDisk(Disk):
    """Files in memory, of which a crash leaves what was flushed and any part of the rest.

    Attributes:
        capacity_octets: what all files together may hold; None for no limit.
        file_octets: what one file may hold; None for no limit.
        faults: what goes wrong.
        unreadable: files that cannot be read, with the errors.
        failed_flush_keeps: a flush that fails leaves what it should write for the next one; if
            not, it is read back and never written, as Linux does.
        crash_at: number of operations that change anything until ``CrashError``; None for never.
        operations: how many there were.
    """

    def __init__(self) -> None:
        self.capacity_octets: int | None = None
        self.file_octets: int | None = None
        self.faults: list[Fault] = []
        self.bad_files: list[_File] = []
        self.unreadable: dict[Path, int] = {}
        self.failed_flush_keeps = False
        self.crash_at: int | None = None
        self.operations = 0
        self._files: dict[Path, _File] = {}
        self._durable_names: dict[Path, _File] = {}
        self._unsynced: list[_NameChange] = []
        self._descriptors: dict[int, _File] = {}
        self._next_descriptor = 3
        self._locked: dict[Path, int] = {}

    def crashed(self, draw: random.Random) -> "FakeDisk":
        """Gives the disk as it may be found after the machine stopped just now.

        Of the changes to names that were not synced, the first few are kept, as file systems with
        a journal do; of each file, any of the sectors that were written since the last flush, and
        any of the truncations.
        """
        after = FakeDisk()
        names = dict(self._durable_names)
        for change in self._unsynced[: draw.randint(0, len(self._unsynced))]:
            change.apply(names)
        for path, file in names.items():
            content = bytearray(file.durable)
            share = draw.choice((0.0, 0.5, 0.9, 1.0))
            for operation in file.unflushed:
                for sector in operation.sectors():
                    if draw.random() < share:
                        sector.apply(content)
            kept = _File(bytearray(content), bytearray(content))
            after._files[path] = after._durable_names[path] = kept
        return after

    def content(self, path: Path) -> bytes:
        """Gives what a reader would see now."""
        return bytes(self._files[path].content)

    def spoil(self, path: Path) -> None:
        """Lets every write to a file fail from now on."""
        self.bad_files.append(self._files[path])

    def put(self, path: Path, octets: bytes) -> None:
        """Places a durable file."""
        file = _File(bytearray(octets), bytearray(octets))
        self._files[path] = self._durable_names[path] = file

    @property
    def paths(self) -> list[Path]:
        """All files there are."""
        return sorted(self._files)

    def _begin(self, operation: str, *, changes: bool = True) -> None:
        for fault in self.faults:
            if fault.operation == operation and fault.times:
                if fault.after:
                    fault.after -= 1
                else:
                    fault.times -= 1
                    raise OSError(fault.errno, operation)
        if changes:
            if self.crash_at is not None and self.operations >= self.crash_at:
                raise CrashError
            self.operations += 1

    def _open(self, file: _File) -> int:
        self._next_descriptor += 1
        self._descriptors[self._next_descriptor] = file
        return self._next_descriptor

    def _file(self, path: Path) -> _File:
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, str(path))
        return self._files[path]

    def make_directory(self, path: Path) -> None:
        self._begin("make_directory", changes=False)

    def names(self, directory: Path) -> list[str]:
        self._begin("names", changes=False)
        return [path.name for path in self._files if path.parent == directory]

    def read(self, path: Path) -> bytes:
        self._begin("read", changes=False)
        self._refuse(path)
        return bytes(self._file(path).content)

    def read_part(self, path: Path, offset: int, octets: int) -> bytes:
        self._begin("read_part", changes=False)
        self._refuse(path)
        return bytes(self._file(path).content[offset : offset + octets])

    def read_into(self, path: Path, offset: int, room: memoryview) -> int:
        octets = self.read_part(path, offset, len(room))
        room[: len(octets)] = octets
        return len(octets)

    def _refuse(self, path: Path) -> None:
        if path in self.unreadable:
            raise OSError(self.unreadable[path], os.strerror(self.unreadable[path]), str(path))

    def room(self, directory: Path) -> tuple[int, int] | None:
        if self.capacity_octets is None:
            return None
        used = sum(len(file.content) for file in self._files.values())
        return self.capacity_octets - used, self.capacity_octets

    def create(self, path: Path) -> int:
        self._begin("create")
        if path in self._files:
            raise FileExistsError(errno.EEXIST, str(path))
        self._rename(_NameChange(path, None, _File()))
        return self._open(self._files[path])

    def open(self, path: Path) -> int:
        self._begin("open", changes=False)
        return self._open(self._file(path))

    def write(self, file: int, octets: bytes | memoryview, offset: int) -> int:
        self._begin("write")
        if self._descriptors[file] in self.bad_files:
            raise OSError(errno.EIO, "this file cannot be written")
        written = bytes(octets[: self._room(self._descriptors[file], offset, len(octets))])
        self._descriptors[file].do(_Operation(offset, written))
        return len(written)

    def _room(self, file: _File, offset: int, octets: int) -> int:
        """Tells how many octets can be written at ``offset``."""
        if self.file_octets is not None and offset + octets > self.file_octets:
            octets = self.file_octets - offset
            if octets <= 0:
                raise OSError(errno.EFBIG, "the file may not grow")
        if self.capacity_octets is not None:
            used = sum(len(other.content) for other in self._files.values())
            growth = offset + octets - len(file.content)
            if growth > 0 and used + growth > self.capacity_octets:
                octets -= used + growth - self.capacity_octets
                if octets <= 0:
                    raise OSError(errno.ENOSPC, "the disk is full")
        return octets

    def flush(self, file: int) -> None:
        try:
            self._begin("flush")
        except OSError:
            if not self.failed_flush_keeps:
                self._descriptors[file].unflushed.clear()
            raise
        flushed = self._descriptors[file]
        for operation in flushed.unflushed:
            operation.apply(flushed.durable)
        flushed.unflushed.clear()

    def truncate(self, file: int, octets: int) -> None:
        self._begin("truncate")
        self._descriptors[file].do(_Operation(octets, None))

    def close(self, file: int) -> None:
        self._descriptors.pop(file, None)
        for path, descriptor in list(self._locked.items()):
            if descriptor == file:
                del self._locked[path]

    def remove(self, path: Path) -> None:
        self._begin("remove")
        self._rename(_NameChange(None, path, self._file(path)))

    def rename(self, path: Path, to: Path) -> None:
        self._begin("rename")
        if self.is_other_disk(to) != self.is_other_disk(path):
            raise OSError(errno.EXDEV, "another disk")
        self._rename(_NameChange(to, path, self._file(path)))

    def _rename(self, change: _NameChange) -> None:
        change.apply(self._files)
        self._unsynced.append(change)

    def is_other_disk(self, path: Path) -> bool:
        """Tells whether ``path`` is below /elsewhere, to which nothing can be renamed."""
        return path.parts[1] == "elsewhere"

    def sync_directory(self, directory: Path) -> None:
        self._begin("sync_directory")
        touching = [i for i, change in enumerate(self._unsynced) if change.touches(directory)]
        synced = touching[-1] + 1 if touching else 0
        for change in self._unsynced[:synced]:
            change.apply(self._durable_names)
        del self._unsynced[:synced]

    def lock(self, path: Path) -> int:
        self._begin("lock", changes=False)
        if path in self._locked:
            raise BlockingIOError(errno.EAGAIN, str(path))
        self._next_descriptor += 1
        self._locked[path] = self._next_descriptor
        return self._next_descriptor


def new_log(
    disk: Disk,
    *,
    directory: Path = DIRECTORY,
    incarnation: int = START_NS,
    segment_octets: int = 64 << 10,
    reserve_octets: int = RESERVE_OCTETS,
    flusher: Flusher | None = None,
) -> Log:
    """Makes a log of small segments, not open yet."""
    return Log(
        directory,
        "dc1",
        disk=disk,
        incarnation=incarnation,
        segment_octets=segment_octets,
        reserve_octets=reserve_octets,
        flusher=flusher,
    )


def new_writer(worker: int = 1, incarnation: int = START_NS) -> RecordWriter:
    """Makes the writer of a worker."""
    return RecordWriter(worker=worker, incarnation=incarnation)
