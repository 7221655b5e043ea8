"""The file of the open segment: zeros ahead, one flush per commit, a seal at the end."""

import contextlib
import secrets
from pathlib import Path
from typing import Final

from router.journal.block import add_salt, salted
from router.journal.disk import Disk
from router.journal.record import RecordKind
from router.journal.segment import SEGMENT_HEADER_OCTETS, own_block, segment_header

_ZEROS: Final = bytes(1 << 20)
"""What a file is filled with, so much at a time, whatever is kept ahead."""


def write_all(disk: Disk, file: int, octets: bytes | bytearray, offset: int) -> None:
    """Writes all of ``octets`` at ``offset``; OSError if the disk takes only a part."""
    view = memoryview(octets)
    while view:
        written = disk.write(file, view, offset)
        view = view[written:]
        offset += written


def write_note(disk: Disk, path: Path, octets: bytes) -> None:
    """Makes a short file durable that always has as many octets, and may exist.

    Raises:
        OSError: it has its octets of before, or these.
    """
    is_new = path.name not in disk.names(path.parent)
    file = disk.create(path) if is_new else disk.open(path)
    try:
        write_all(disk, file, octets, 0)
        disk.flush(file)
    finally:
        disk.close(file)
    if is_new:
        disk.sync_directory(path.parent)


def end_file(disk: Disk, file: int, end: int, *, salt: int, incarnation: int, time_ns: int) -> None:
    """Cuts a segment at ``end`` and seals it there."""
    disk.truncate(file, end)
    seal = own_block(RecordKind.SEGMENT_END, incarnation, time_ns)
    write_all(disk, file, salted(seal, salt), end)
    disk.flush(file)


class SegmentFile:
    """One segment that is open for writing; made by ``create``.

    Attributes:
        begun_ns: when.
        durable_octets: all before it is durable, but for the head, which the first commit makes so;
            the next commit goes here.
        flushed_octets: all before it is durable.
        zeroed_octets: up to here the file has been filled.
    """

    def __init__(self, disk: Disk, file: int, *, head_octets: int, begun_ns: int) -> None:
        self.begun_ns = begun_ns
        self.durable_octets = head_octets
        self.flushed_octets = 0
        self.zeroed_octets = 0
        self._disk = disk
        self._file = file
        self._head_octets = head_octets
        self._salt = secrets.randbits(32)

    @classmethod
    def create(
        cls, disk: Disk, path: Path, head: bytes, *, reserve_octets: int, begun_ns: int
    ) -> "SegmentFile":
        """Creates the file with the blocks of ``head`` and zeros, and makes its name durable.

        What is in it becomes so with the first commit.

        Raises:
            OSError: it could not, and what there was of it is removed if that can be done.
        """
        file = disk.create(path)
        try:
            octets = SEGMENT_HEADER_OCTETS + len(head)
            segment = cls(disk, file, head_octets=octets, begun_ns=begun_ns)
            segment.fill(octets + reserve_octets)
            header = segment_header(segment._salt)
            write_all(disk, file, header + salted(head, segment._salt), 0)
            disk.sync_directory(path.parent)
        except OSError:
            disk.close(file)
            with contextlib.suppress(OSError):
                disk.remove(path)
            raise
        return segment

    @property
    def has_records(self) -> bool:
        """Whether anything was committed to it."""
        return self.durable_octets > self._head_octets

    def fill(self, octets: int) -> None:
        """Writes zeros until the file has ``octets``.

        Raises:
            OSError: not that many; ``zeroed_octets`` tells how many.
        """
        if not self._disk.reserves:
            self.zeroed_octets = max(self.zeroed_octets, octets)
        while self.zeroed_octets < octets:
            step = memoryview(_ZEROS)[: octets - self.zeroed_octets]
            self.zeroed_octets += self._disk.write(self._file, step, self.zeroed_octets)

    def write(self, group: bytearray) -> None:
        """Writes the blocks of ``group``, which is taken over, behind what is durable.

        If it fails the same may be tried again, with a group made anew.
        """
        add_salt(group, self._salt)
        write_all(self._disk, self._file, group, self.durable_octets)

    def flush(self) -> None:
        """Makes durable the group that was written last; ``flushed`` has to follow.

        A failed flush may have dropped the pages, and the next one would not say so again: then
        the segment is good for nothing but ``abandon``.
        """
        self._disk.flush(self._file)

    def flushed(self, group_octets: int) -> None:
        """Records that the group that was written last is durable."""
        self.durable_octets += group_octets
        self.flushed_octets = self.durable_octets

    def seal(self, *, incarnation: int, time_ns: int) -> None:
        """Cuts and seals the file as far as the disk allows, and closes it.

        All in it is durable already, so nothing depends on the seal.
        """
        with contextlib.suppress(OSError):
            end_file(
                self._disk,
                self._file,
                self.durable_octets,
                salt=self._salt,
                incarnation=incarnation,
                time_ns=time_ns,
            )
        self._disk.close(self._file)

    def abandon(self) -> None:
        """Closes the file behind its last durable octet."""
        with contextlib.suppress(OSError):
            self._disk.truncate(self._file, self.durable_octets)
        self._disk.close(self._file)
