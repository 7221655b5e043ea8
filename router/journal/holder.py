"""Finds the process that holds a lock on a file, for messages to operators (Linux only)."""

from pathlib import Path
from typing import Final

import attrs

_LOCKS: Final = Path("/proc/locks")
_STOPPED: Final = "Tt"
"""States of a process that was stopped by a signal, or by a debugger."""


@attrs.frozen
class Holder:
    """A process that holds a lock.

    Attributes:
        process: its process id.
        is_stopped: it does not run, and releases nothing: it was stopped (SIGSTOP).
    """

    process: int
    is_stopped: bool

    def __str__(self) -> str:
        if not self.is_stopped:
            return f"process {self.process}"
        return f"process {self.process}, which is stopped (kill -CONT or -KILL {self.process})"


def find_holder(path: Path) -> Holder | None:
    """Returns the process that holds a lock (flock) on a file; None: it cannot be found out."""
    try:
        inode = path.stat().st_ino
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        words = line.split()
        if len(words) < 6 or words[1] != "FLOCK":  # a waiting process has "->" there
            continue
        process, place = words[4], words[5]
        if place.rpartition(":")[2] == str(inode) and int(process) > 0:
            return Holder(int(process), is_stopped(int(process)))
    return None


def is_stopped(process: int) -> bool:
    """Returns whether a process is stopped by a signal; False if that cannot be found out."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(") ")[2][:1] in _STOPPED
