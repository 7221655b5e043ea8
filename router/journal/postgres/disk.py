"""The segments of a message store as rows of PostgreSQL, behind the calls of ``journal.disk``.

A file is the rows of one segment, one behind another: ``place`` is the octet at which a row begins.
What is written is kept until ``flush``, which inserts it as one row, together with the head of a
segment that it begins. As in ``log``, the row of the lease is asked in the same statement, so a
router that was taken over inserts nothing, and removes nothing: ``FencedError``.

A flush whose answer was lost may or may not have been committed. The log then gives the segment up
behind what it knows to be durable (``journal.log``), and the same records go to the next one. A
reader drops what it meets twice, as it does with files.

Every call waits for the database, for some seconds at most. What is read is kept for a while: rows
never change.
"""

import contextlib
import errno
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import structlog

from router.journal.disk import Disk
from router.journal.postgres.log import FencedError
from router.journal.postgres.schema import INSERT_MESSAGES, NOT_FENCED, SCHEMA, TOUCH
from router.journal.postgres.storage import check_version, connect, told
from router.journal.segment import numbered, segment_name

WINDOW_OCTETS: Final = 1 << 20
"""Read at once, and kept."""

_WINDOWS: Final = 8
_log = structlog.get_logger("router.journal")


@attrs.define(eq=False)
class _File:
    """A file that is open for writing.

    Attributes:
        number: of the segment; None: what is written is not needed here.
        is_begun: it has a partition.
        parts: what was not flushed, with the octets at which it begins.
    """

    number: int | None
    is_begun: bool
    parts: list[tuple[int, bytes]] = attrs.field(factory=list)


@attrs.frozen
class _Window:
    """Some octets of a segment that were read."""

    number: int
    first: int
    octets: bytes

    def get(self, number: int, offset: int, octets: int) -> bytes | None:
        """Returns octets of a segment; None: not all of them are here."""
        start = offset - self.first
        if number != self.number or start < 0 or start + octets > len(self.octets):
            return None
        return self.octets[start : start + octets]


class PostgresDisk(Disk):
    """The message store of one router, under one lease."""

    reserves = False
    has_files = False

    def __init__(self, url: str, router: str, epoch: int) -> None:
        """Connects when it is first asked.

        Args:
            url: of the database.
            router: id of the router.
            epoch: of the lease under which this is written.
        """
        self._url = url
        self._router = router
        self._epoch = epoch
        self._connection: Any = None
        self._files: dict[int, _File] = {}
        self._windows: deque[_Window] = deque(maxlen=_WINDOWS)
        self._trouble: str | None = None

    def disconnect(self) -> None:
        """Closes the connection to the database."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # Reading

    def names(self, directory: Path) -> list[str]:
        """Lists the segments that have a head, as names of files."""
        query = f"SELECT segment FROM {SCHEMA}.messages WHERE router = %s AND place = 0"
        return [segment_name(number) for (number,) in self._ask(query, self._router)]

    def read(self, path: Path) -> bytes:
        """Returns the whole content."""
        octets = self._read(path, 0, None)[1]
        if not octets:
            raise FileNotFoundError(errno.ENOENT, "the store does not have it", path.name)
        return octets

    def read_part(self, path: Path, offset: int, octets: int) -> bytes:
        """Returns up to ``octets`` from ``offset`` on; less at the end of the segment."""
        number = _number(path)
        if number is None:
            raise FileNotFoundError(errno.ENOENT, "the store does not have it", path.name)
        for window in self._windows:
            found = window.get(number, offset, octets)
            if found is not None:
                return found
        first, read = self._read(path, offset, max(octets, WINDOW_OCTETS))
        if not read:
            raise FileNotFoundError(errno.ENOENT, "the store does not have it", path.name)
        self._windows.append(_Window(number, first, read))
        return read[offset - first :][:octets]

    def read_into(self, path: Path, offset: int, room: memoryview) -> int:
        """Reads what there is from ``offset`` on into ``room``, and returns how much that was."""
        octets = self.read_part(path, offset, len(room))
        room[: len(octets)] = octets
        return len(octets)

    def octets(self, path: Path) -> int:
        """Returns the size of a segment."""
        return len(self.read(path))

    def _read(self, path: Path, offset: int, octets: int | None) -> tuple[int, bytes]:
        """Returns rows from that on in which an octet is, and the place of the first."""
        number = _number(path)
        rows = self._ask(
            f"SELECT place, octets FROM {SCHEMA}.messages WHERE router = %(router)s"
            " AND segment = %(number)s AND (%(end)s::bigint IS NULL OR place < %(end)s::bigint)"
            f" AND place >= (SELECT max(place) FROM {SCHEMA}.messages WHERE router = %(router)s"
            " AND segment = %(number)s AND place <= %(offset)s) ORDER BY place",
            router=self._router,
            number=number,
            offset=offset,
            end=None if octets is None else offset + octets,
        )
        first = rows[0][0] if rows else 0
        parts, end = [], first
        for place, part in rows:
            if place != end:
                break  # what stands behind a missing row was never durable
            parts.append(part)
            end += len(part)
        return first, b"".join(parts)

    # Writing

    def make_directory(self, path: Path) -> None:
        """Does nothing: `router journal init` has made the tables."""

    def lock(self, path: Path) -> int:
        """Does nothing: whoever has the lease is the only one that writes."""
        return -1

    def create(self, path: Path) -> int:
        """Begins a segment, of which nothing is seen before it is flushed."""
        return self._open(_File(_number(path), is_begun=False))

    def open(self, path: Path) -> int:
        """Opens a segment to write behind its end."""
        return self._open(_File(_number(path), is_begun=True))

    def _open(self, file: _File) -> int:
        handle = max(self._files, default=0) + 1
        self._files[handle] = file
        return handle

    def write(self, file: int, octets: bytes | memoryview, offset: int) -> int:
        """Keeps octets until they are flushed."""
        known = self._files[file]
        known.parts = [each for each in known.parts if each[0] != offset]
        known.parts.append((offset, bytes(octets)))
        return len(octets)

    def truncate(self, file: int, octets: int) -> None:
        """Drops what was not flushed behind an octet."""
        known = self._files[file]
        known.parts = [each for each in known.parts if each[0] < octets]

    def flush(self, file: int) -> None:
        """Inserts what was written; returns when that is committed.

        Raises:
            FencedError: another router leads.
            StoreError: it may or may not have been inserted.
        """
        known = self._files[file]
        if known.number is None or not known.parts:
            known.parts.clear()
            return
        known.parts.sort()
        place, octets = known.parts[0][0], b"".join(part for _, part in known.parts)
        with self._use() as connection:
            self._insert(connection, known, place, octets)
        known.is_begun = True
        known.parts.clear()

    def _insert(self, connection: Any, file: _File, place: int, octets: bytes) -> None:
        facts = {"router": self._router, "epoch": self._epoch}
        row = {**facts, "segment": file.number, "place": place, "octets": octets}
        with connection.transaction():
            if not file.is_begun:
                self._begin(connection, file.number)
            if connection.execute(INSERT_MESSAGES, row).rowcount:
                return
            if not connection.execute(TOUCH, facts).rowcount:  # else it was there
                raise FencedError

    def _begin(self, connection: Any, number: int | None) -> None:
        connection.execute(
            f"SELECT {SCHEMA}.begin_partition('messages', %s, %s)", (self._router, number)
        )

    def close(self, file: int) -> None:
        """Forgets what was not flushed."""
        self._files.pop(file, None)

    def remove(self, path: Path) -> None:
        """Drops the partition of a segment, if there is one.

        Raises:
            FencedError: another router leads.
        """
        number = _number(path)
        self._windows = deque((e for e in self._windows if e.number != number), _WINDOWS)
        facts = {"router": self._router, "epoch": self._epoch}
        with self._use() as connection, connection.transaction():
            if connection.execute(NOT_FENCED, facts).fetchone() is None:
                raise FencedError
            connection.execute("SET LOCAL lock_timeout = '200ms'")
            connection.execute(
                f"SELECT {SCHEMA}.drop_partition('messages', %s, %s)", (self._router, number)
            )

    def rename(self, path: Path, to: Path) -> None:
        """Is not needed here."""
        raise NotImplementedError

    def sync_directory(self, directory: Path) -> None:
        """Does nothing: what is committed is durable."""

    # The connection

    def _ask(self, query: str, *row: object, **facts: object) -> list[Any]:
        with self._use() as connection:
            return list(connection.execute(query, row or facts, binary=True).fetchall())

    @contextlib.contextmanager
    def _use(self) -> Iterator[Any]:
        """Gives the connection, made if there is none; logs what is wrong with it, once."""
        trouble: str | None = None
        try:
            with told():
                yield self._connected()
        except OSError as error:
            trouble = error.strerror
            raise
        finally:
            if trouble is not None and trouble != self._trouble:
                _log.warning("messages.disconnected", reason=trouble)
            self._trouble = trouble

    def _connected(self) -> Any:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._url)
            check_version(self._connection)
        return self._connection


def _number(path: Path) -> int | None:
    """Returns the number of a segment; None: the path is something else."""
    return next(iter(numbered([path.name], "segment")), None)
