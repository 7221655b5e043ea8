"""Log lines: each is written whole and at once, or lost and counted; no writer waits long.

Theory of operation. A broken output (a file on a full disk, a pipe whose reader has
gone or hangs, a closed terminal) must not stop a router or make it fail. A line that
cannot be written is lost. The next line that can be written is preceded by one that reports how
many were lost, and why; if the disk took a part of a line before it was full, that line is ended.

Lines bypass Python's buffers, which would keep unwritten lines and fail with them again
when the process ends. A regular file never makes a writer wait. Any other output is polled for
room first, and given ``PATIENCE_SECONDS`` to make room, but not again after a line was lost.
"""

import contextlib
import datetime
import io
import json
import os
import select
import stat
from typing import Final, TextIO

PATIENCE_SECONDS: Final = 0.05
"""How long a reader may take to make space for a line, if the previous line was not lost."""

CLOSED: Final = "it is closed"

_CHUNK_OCTETS: Final = 4096
"""A writable pipe accepts this many octets without waiting (PIPE_BUF)."""


class LineWriter(io.TextIOBase):
    """Writes lines to a stream.

    Attributes:
        lost: how many lines were lost.
        trouble: why the last line was lost; None: it was written.
    """

    def __init__(self, stream: TextIO | None, *, is_json: bool) -> None:
        """Writes nothing yet.

        Args:
            stream: the output; None: there is none, all lines are lost.
            is_json: the form of the line that reports how many were lost.
        """
        self.lost = 0
        self.trouble: str | None = None
        self._stream = stream
        self._is_json = is_json
        self._unreported = 0
        self._is_torn = False
        self._descriptor = _descriptor_of(stream)
        self._is_file = self._descriptor is not None and _is_file(self._descriptor)

    def write(self, text: str) -> int:
        """Writes a line, or counts it; ``text`` ends in a newline."""
        try:
            if self._unreported:
                self._write(self._report())
                self._unreported = 0
            self._write(text)
        except OSError as error:
            self._lose(os.strerror(error.errno) if error.errno else str(error))
        except ValueError:
            self._lose(CLOSED)
        else:
            self.trouble = None
        return len(text)

    def flush(self) -> None:
        """Does nothing: no line is buffered."""

    def isatty(self) -> bool:
        """Returns whether the output is a terminal."""
        with contextlib.suppress(ValueError):
            return self._stream is not None and self._stream.isatty()
        return False

    def _lose(self, reason: str) -> None:
        self.trouble = reason
        self.lost += 1
        self._unreported += 1

    def _write(self, text: str) -> None:
        """Writes a line.

        Raises:
            OSError, ValueError: the line was not, or not wholly, written.
        """
        if self._stream is None:
            raise ValueError(CLOSED)
        if self._descriptor is None:
            self._stream.write(text)
            self._stream.flush()
            return
        octets = text.encode(errors="backslashreplace")
        if self._is_torn:
            octets = b"\n" + octets
        left = memoryview(octets)
        try:
            while left:
                left = left[self._write_some(self._descriptor, left) :]
        finally:
            if len(left) < len(octets):
                self._is_torn = bool(left)

    def _write_some(self, descriptor: int, octets: memoryview) -> int:
        if self._is_file:
            return os.write(descriptor, octets)
        seconds = 0.0 if self.trouble is not None else PATIENCE_SECONDS
        if not _is_writable(descriptor, seconds):
            raise BlockingIOError("nobody reads it")
        return os.write(descriptor, octets[:_CHUNK_OCTETS])

    def _report(self) -> str:
        now = datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z")
        count, reason = self._unreported, self.trouble
        if not self._is_json:
            return f'{now} [warning  ] lines.lost count={count} reason="{reason}"\n'
        facts = {"count": count, "reason": reason, "event": "lines.lost"}
        return json.dumps({**facts, "level": "warning", "timestamp": now}) + "\n"


def hold_standard_streams() -> None:
    """Opens closed standard streams, so that no socket gets the descriptor of one."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free


def _descriptor_of(stream: TextIO | None) -> int | None:
    if stream is None:
        return None
    with contextlib.suppress(OSError, ValueError):
        stream.flush()
        return stream.fileno()
    return None


def _is_file(descriptor: int) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    return False


def _is_writable(descriptor: int, seconds: float) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLOUT)
    return bool(poller.poll(seconds * 1000))
