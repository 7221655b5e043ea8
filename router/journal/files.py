"""The store of files, read: a directory of segments and snapshots, one file each.

``log.Log`` writes it. A snapshot gets its name only when all of it is durable.
"""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from router.journal.disk import Disk
from router.journal.ending import Ending, read_ending
from router.journal.segment import NEWEST_NAME, read_newest, segment_name, snapshot_name
from router.journal.segment_file import write_all

_LOCK_NAME: Final = "reclaim.lock"
_UNFINISHED_NAME: Final = "snapshot.unfinished"


class FileStorage:
    """A directory of segments and snapshots."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        """Opens nothing yet.

        Args:
            directory: of the segments.
            disk: the operating system's, or a test's.
        """
        self._directory = directory
        self._disk = disk or Disk()

    def __str__(self) -> str:
        return str(self._directory)

    def names(self) -> list[str]:
        """Lists the files."""
        return self._disk.names(self._directory)

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Yields names with their octets, of files that do not vanish meanwhile."""
        for name in self.names():
            with contextlib.suppress(FileNotFoundError):
                yield name, self._disk.octets(self._directory / name)

    def title(self, name: str) -> str:
        """Returns the path."""
        return str(self._directory / name)

    def read(self, name: str) -> bytes:
        """Returns the whole content."""
        return self._disk.read(self._directory / name)

    def newest(self) -> int:
        """Reads the file ``newest``."""
        try:
            return read_newest(self.read(NEWEST_NAME))
        except FileNotFoundError:
            return 0

    def ended(self) -> Ending:
        """Reads the file ``ended``."""
        return read_ending(self._disk, self._directory)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Locks a file of its own: the log's lock is another."""
        lock = self._disk.lock(self._directory / _LOCK_NAME)
        try:
            yield
        finally:
            self._disk.close(lock)

    def keep_snapshot(self, number: int, octets: bytes) -> None:
        """Writes the file under another name, flushes it, renames it, flushes the directory."""
        disk, unfinished = self._disk, self._directory / _UNFINISHED_NAME
        with contextlib.suppress(FileNotFoundError):
            disk.remove(unfinished)
        try:
            _create(unfinished, octets, disk)
            disk.rename(unfinished, self._directory / snapshot_name(number))
        except OSError:
            with contextlib.suppress(OSError):
                disk.remove(unfinished)  # on a full disk the log needs the room
            raise
        disk.sync_directory(self._directory)

    def let_go(self, number: int, archive: Path | None) -> None:
        """Moves or removes the file; the archive may be on another disk."""
        disk, segment = self._disk, self._directory / segment_name(number)
        if archive is None:
            disk.remove(segment)
            return
        disk.make_directory(archive)
        try:
            disk.rename(segment, archive / segment.name)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            put_into_archive(archive, number, disk.read(segment), disk)
            disk.remove(segment)
        disk.sync_directory(archive)

    def drop_snapshot(self, number: int) -> None:
        """Removes the file."""
        self._disk.remove(self._directory / snapshot_name(number))

    def sync(self) -> None:
        """Flushes the directory."""
        self._disk.sync_directory(self._directory)


def put_into_archive(archive: Path, number: int, octets: bytes, disk: Disk) -> None:
    """Makes a durable file of a segment in a directory; it has its name only when it is whole."""
    unfinished = archive / f"_{segment_name(number)}"
    with contextlib.suppress(FileNotFoundError):
        disk.remove(unfinished)
    _create(unfinished, octets, disk)
    disk.rename(unfinished, archive / segment_name(number))
    disk.sync_directory(archive)


def _create(path: Path, octets: bytes, disk: Disk) -> None:
    """Creates a file with these octets, durable except for its name."""
    file = disk.create(path)
    try:
        write_all(disk, file, octets, 0)
        disk.flush(file)
    finally:
        disk.close(file)
