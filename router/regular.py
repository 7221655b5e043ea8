"""Files that a configuration names, read without waiting for somebody else.

To open a pipe waits for its other end, and to read a device may wait for ever. Who reads such a
file at a reload would wait with it, and so would all signals that come later.
"""

import errno
import os
import stat
from pathlib import Path
from typing import Final

NO_FILE: Final = "it is no regular file: a pipe, socket or device is not read"

_NULL_DEVICE: Final = os.makedev(1, 3)
"""Linux's ``/dev/null``: what is read there is nothing, at once."""


def read_regular(path: Path, most_octets: int | None = None) -> bytes:
    """Reads a regular file.

    Args:
        path: of the file; links to one are followed.
        most_octets: what lies beyond is not read; None: all is.

    Raises:
        OSError: it cannot be read, or is no regular file.
        ValueError: this is not a path.
    """
    with os.fdopen(_open(path), "rb") as opened:
        return opened.read(-1 if most_octets is None else most_octets)


def check_regular(path: Path) -> None:
    """Opens a regular file, and closes it again.

    Raises:
        OSError, ValueError: as ``read_regular``.
    """
    os.close(_open(path))


def _open(path: Path) -> int:
    """Opens a file, which never waits for the other end of a pipe (O_NONBLOCK, open(2))."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _check(os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    is_null = stat.S_ISCHR(status.st_mode) and status.st_rdev == _NULL_DEVICE
    if not (is_null or stat.S_ISREG(status.st_mode)):
        raise OSError(errno.EINVAL, NO_FILE)
