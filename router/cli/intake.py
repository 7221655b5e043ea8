"""Messages for ``router send`` out of a file or standard input, read as they are sent.

Theory of operation. ``run`` reads chunks in a thread, so that neither a slow writer nor a terminal
holds up the connection, and makes messages of them. The sending link iterates over the messages; it
gets None where the next has not been read yet. ``run`` stops reading while ``AHEAD_OCTETS`` wait:
a router that grants no credit stops it, and with it the writer of the input.

Reading ends at the end of the file or at the first line that is no message: that line and those
after it are not sent, the messages before it are.
"""

import os
import select
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from stat import S_ISFIFO, S_ISREG
from typing import Final

import attrs
import trio

from router.errors import RouterError

CHUNK_OCTETS: Final = 1 << 16
AHEAD_OCTETS: Final = 1 << 20
"""Octets of messages that may wait to be sent before reading pauses."""

MESSAGE_OCTETS: Final = 1 << 30
"""Largest line, or whole body, that is read."""

_ENTRY_OCTETS: Final = 64
"""What a waiting message counts besides its octets: many may be empty."""

STANDARD_INPUT: Final = 0


@attrs.frozen
class LineError(RouterError):
    """A line of which no message can be made.

    Attributes:
        reason: the rule that it breaks, in one phrase.
    """

    reason: str

    def __str__(self) -> str:
        return self.reason


@attrs.define(eq=False, kw_only=True)
class Intake:
    """Reads messages from a file: one a line, or one that is the whole of it.

    Attributes:
        descriptor: of the open file.
        name: of the file, for people.
        encode: makes a message of a line, or of the whole; raises ``LineError``.
        is_by_line: each line is a message; its end, a line feed, is no part of it.
        count: messages read so far.
        problem: why reading ended before the end of the file; None: it did not.
        has_ended: nothing more is read.
    """

    descriptor: int
    name: str
    encode: Callable[[bytes], bytes]
    is_by_line: bool
    count: int = attrs.field(default=0, init=False)
    problem: str | None = attrs.field(default=None, init=False)
    has_ended: bool = attrs.field(default=False, init=False)
    _parts: list[bytes] = attrs.field(factory=list, init=False)
    _parts_octets: int = attrs.field(default=0, init=False)
    _waiting: deque[bytes] = attrs.field(factory=deque, init=False)
    _waiting_octets: int = attrs.field(default=0, init=False)
    _space: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def waits_for(self) -> str | None:
        """What it waits for, for people; None: messages wait to be sent, or nothing more comes."""
        if self.has_ended or self._waiting:
            return None
        return f"it waits for {self.name}"

    # --- what the sending link calls --------------------------------------------------------------

    def __iter__(self) -> Iterator[bytes | None]:
        return self

    def __next__(self) -> bytes | None:
        """Returns the next message; None: it has not been read yet."""
        if not self._waiting:
            if self.has_ended:
                raise StopIteration
            return None
        message = self._waiting.popleft()
        self._waiting_octets -= len(message) + _ENTRY_OCTETS
        if self._waiting_octets < AHEAD_OCTETS:
            self._space.set()
        return message

    # --- reading ----------------------------------------------------------------------------------

    async def run(self, wake: Callable[[], None]) -> None:
        """Reads to the end.

        Args:
            wake: called when messages have come, or the end.
        """
        while not self.has_ended:
            while self._waiting_octets >= AHEAD_OCTETS:
                self._space = trio.Event()
                await self._space.wait()
            try:
                octets = await trio.to_thread.run_sync(
                    _read_some, self.descriptor, abandon_on_cancel=True
                )
            except OSError as error:
                self._end(f"{self.name}: {error.strerror}")
            else:
                self.take(octets)
            wake()

    def take(self, octets: bytes) -> None:
        """Handles what was read; nothing means the end of the file."""
        if not octets:
            if self._parts or not self.is_by_line:
                self._message(b"")
            self.has_ended = True
            return
        if not self.is_by_line:
            self._keep(octets)
            return
        *ended, rest = octets.split(b"\n")
        for line in ended:
            self._message(line)
            if self.has_ended:
                return
        if rest:
            self._keep(rest)

    def _keep(self, octets: bytes) -> None:
        """Keeps a part of a message whose end is yet to come."""
        self._parts.append(octets)
        self._parts_octets += len(octets)
        if self._parts_octets > MESSAGE_OCTETS:
            self._refuse(f"it is longer than {MESSAGE_OCTETS:,} octets")

    def _message(self, last: bytes) -> None:
        """Handles the last part of a message."""
        if self._parts:
            last = b"".join([*self._parts, last])
            self._parts.clear()
            self._parts_octets = 0
        try:
            message = self.encode(last)
        except LineError as error:
            self._refuse(error.reason)
            return
        self.count += 1
        self._waiting.append(message)
        self._waiting_octets += len(message) + _ENTRY_OCTETS

    def _refuse(self, reason: str) -> None:
        where = f", line {self.count + 1:,}" if self.is_by_line else ""
        self._end(f"{self.name}{where}: {reason}")

    def _end(self, problem: str) -> None:
        self.problem = problem
        self.has_ended = True


def _read_some(descriptor: int) -> bytes:
    """Reads what there is; waits if there is nothing, also where the descriptor does not block."""
    while True:
        try:
            return os.read(descriptor, CHUNK_OCTETS)
        except BlockingIOError:
            select.select([descriptor], [], [])


def open_input(path: Path | None) -> tuple[int, str]:
    """Opens a file, or standard input where the path is None or ``-``.

    Returns:
        its descriptor and its name for people.

    Raises:
        OSError: it cannot be opened.
    """
    if path is None or str(path) == "-":
        return STANDARD_INPUT, "standard input"
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC), str(path)


def has_input(descriptor: int = STANDARD_INPUT) -> bool:
    """Returns whether a pipe or a file with something in it, or yet to come, is connected."""
    try:
        status = os.fstat(descriptor)
        if S_ISREG(status.st_mode):
            return status.st_size > os.lseek(descriptor, 0, os.SEEK_CUR)
    except OSError:
        return False  # it is closed
    if not S_ISFIFO(status.st_mode):
        return False
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    found = poll.poll(0)
    return not found or bool(found[0][1] & select.POLLIN)
