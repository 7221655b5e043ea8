"""The few calls of the operating system that the journal makes, in one place.

Tests put a disk here that fails, fills up, or forgets what was not flushed.
"""

import contextlib
import fcntl
import os
from pathlib import Path


class Disk:
    """Files as the system gives them; every method raises OSError as the system does.

    Attributes:
        reserves: zeros that were written ahead keep room for what is written there.
        has_files: what it keeps are files of this machine.
    """

    reserves = True
    has_files = True

    def make_directory(self, path: Path) -> None:
        """Makes ``path`` and what is missing above it, readable by the owner alone."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def names(self, directory: Path) -> list[str]:
        """Lists the names in ``directory``, unordered."""
        return os.listdir(directory)

    def read(self, path: Path) -> bytes:
        """Returns the whole content."""
        try:
            return path.read_bytes()
        except OSError as error:
            error.filename = str(path)  # a read that fails does not name it
            raise

    def read_part(self, path: Path, offset: int, octets: int) -> bytes:
        """Returns up to ``octets`` from ``offset`` on; less at the end of the file."""
        with path.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), octets, offset)

    def read_into(self, path: Path, offset: int, room: memoryview) -> int:
        """Reads what there is from ``offset`` on into ``room``, and returns how much that was."""
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.preadv(file, [room], offset)
        finally:
            os.close(file)

    def octets(self, path: Path) -> int:
        """Returns the size of a file."""
        return path.stat().st_size

    def room(self, directory: Path) -> tuple[int, int] | None:
        """Returns octets of the file system that are free, and all; None: there is none."""
        found = os.statvfs(directory)
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize

    def create(self, path: Path) -> int:
        """Creates ``path``, which must not exist, and opens it for writing."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def open(self, path: Path) -> int:
        """Opens ``path``, which must exist, for writing."""
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC)

    def write(self, file: int, octets: bytes | memoryview, offset: int) -> int:
        """Writes at ``offset`` and tells how much, which may be less than all."""
        return os.pwrite(file, octets, offset)

    def flush(self, file: int) -> None:
        """Returns when what was written, and the size of the file, are durable."""
        if hasattr(os, "fdatasync"):
            os.fdatasync(file)
        else:
            os.fsync(file)

    def truncate(self, file: int, octets: int) -> None:
        """Cuts the file to ``octets``."""
        os.ftruncate(file, octets)

    def close(self, file: int) -> None:
        """Closes; what goes wrong here went wrong in ``flush`` already."""
        with contextlib.suppress(OSError):
            os.close(file)

    def remove(self, path: Path) -> None:
        """Removes a file."""
        path.unlink()

    def rename(self, path: Path, to: Path) -> None:
        """Renames a file, replacing ``to``."""
        path.replace(to)

    def sync_directory(self, directory: Path) -> None:
        """Returns when the names in ``directory`` are durable."""
        descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: Path) -> int:
        """Locks ``path`` until the descriptor is closed or this process ends.

        Raises:
            BlockingIOError: another process holds the lock.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor
