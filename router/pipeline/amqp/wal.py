"""The durable log of a reader: deliveries are kept until Spark has committed them and the peer has
settled them.

    walDir/wal.json                 who this log belongs to: an id, the address
           lock                     held by the one reader
           attaches.json            numbers of the link's attaches (``numbers``)
           seg-0000000000000001-0000000000000200.arrow     rows (``schema.MESSAGES``), by sequence
           committed                last sequence number that Spark has committed
           forgotten                8 octets each: numbers that the peer has settled as well
           ids                      of messages whose segment has gone (``settled_ids``); for dedupe

    before a row is known to Spark   its segment is flushed and has its name
    before the peer hears an outcome ``committed`` covers the delivery
    before the peer may use a tag again ``forgotten`` has the delivery's number

A segment goes when all of its rows are committed and forgotten. What a new reader has to tell the
peer of a link, its unsettled map, is every row that is left: committed ones as accepted. The log's
id stands in Spark's offsets, so that a checkpoint is never read with another's log.
"""

import contextlib
import fcntl
import json
import os
import re
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa

from router.errors import RouterError
from router.journal.disk import Disk
from router.pipeline.amqp.settled_ids import SettledIds

LOCK_SECONDS: Final = 60.0
"""How long the previous reader may take to end: its process ends when Spark's does."""

_NAME: Final = re.compile(r"seg-([0-9]{16})-([0-9]{16})\.arrow")
_NUMBER_OCTETS: Final = 8


class LogError(RouterError):
    """The log is another query's, or is used by another reader."""


@attrs.frozen(order=True)
class Segment:
    """Rows from ``first`` to ``last``, in the file ``path``."""

    first: int
    last: int
    path: Path


@attrs.frozen(kw_only=True)
class Kept:
    """A delivery that the peer may still know.

    Attributes:
        is_committed: Spark has committed it, so it is accepted.
        message_id: with its type; None if it has none.
    """

    sequence: int
    tag: bytes
    is_committed: bool
    message_id: str | None


@attrs.define(eq=False)
class Log:
    """The log in one directory; its writer must have locked it.

    Attributes:
        buries: keeps the ids of messages whose segment goes.
    """

    directory: Path
    id: str
    committed: int = 0
    buries: bool = False
    settled_ids: SettledIds = attrs.field(init=False)
    _forgotten: set[int] = attrs.field(factory=set, init=False)
    _forgotten_file: int = attrs.field(default=-1, init=False)
    _lock: int = attrs.field(default=-1, init=False)
    _disk: Disk = attrs.field(factory=Disk, init=False)
    _guard: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self.settled_ids = SettledIds(self.directory / "ids")

    @classmethod
    def open(cls, directory: Path, address: str) -> "Log":
        """Opens the log of a directory, or creates one.

        Raises:
            LogError: the log is that of another address.
            OSError: the directory cannot be used.
        """
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "wal.json"
        with contextlib.suppress(FileExistsError):
            write_json(path, {"id": uuid.uuid4().hex, "address": address}, is_first=True)
        noted = json.loads(path.read_bytes())
        if noted["address"] != address:
            raise LogError(f"{directory} is the log of another address, {noted['address']}")
        log = cls(directory, noted["id"])
        log.refresh()
        return log

    def refresh(self) -> None:
        """Reads the positions ``committed`` and ``forgotten``."""
        with contextlib.suppress(FileNotFoundError):
            self.committed = int((self.directory / "committed").read_bytes())
        with contextlib.suppress(FileNotFoundError):
            octets = (self.directory / "forgotten").read_bytes()
            whole = len(octets) - len(octets) % _NUMBER_OCTETS
            self._forgotten = {
                int.from_bytes(octets[at : at + _NUMBER_OCTETS], "big")
                for at in range(0, whole, _NUMBER_OCTETS)
            }

    def lock(self, seconds: float = LOCK_SECONDS) -> None:
        """Locks the log against other readers as long as this process lives.

        Raises:
            LogError: another reader does not release it.
        """
        self._lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        until = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise LogError(f"{self.directory} is used by another query") from None
                time.sleep(0.05)
            else:
                break
        self.refresh()
        self._forgotten_file = os.open(
            self.directory / "forgotten",
            os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
            0o600,
        )

    def close(self) -> None:
        """Unlocks the log."""
        for descriptor in (self._lock, self._forgotten_file):
            if descriptor >= 0:
                os.close(descriptor)
        self._lock = self._forgotten_file = -1

    def segments(self) -> list[Segment]:
        """Lists the segments, oldest first."""
        found = []
        for name in os.listdir(self.directory):
            match = _NAME.fullmatch(name)
            if match:
                found.append(Segment(int(match[1]), int(match[2]), self.directory / name))
        return sorted(found)

    @property
    def last(self) -> int:
        """Number of the last row ever written."""
        segments = self.segments()
        return max(self.committed, segments[-1].last if segments else 0)

    def append(self, batch: Any) -> Segment:
        """Makes rows durable; they are numbered already, from ``last`` + 1."""
        first = batch.column("sequence")[0].as_py()
        last = first + batch.num_rows - 1
        path = self.directory / f"seg-{first:016d}-{last:016d}.arrow"
        write_arrow(path, [batch])
        return Segment(first, last, path)

    def commit(self, sequence: int) -> None:
        """Records that Spark has committed everything up to ``sequence``; durable on return."""
        if sequence > self.committed:
            path = self.directory / "committed"
            aside = path.with_suffix(".unfinished")
            _write_durably(aside, str(sequence).encode())
            self._disk.rename(aside, path)
            self._disk.sync_directory(self.directory)
            self.committed = sequence

    def forget(self, sequences: Iterable[int]) -> None:
        """Records that the peer has settled these; may be called by any thread."""
        with self._guard:
            numbers = sorted(set(sequences) - self._forgotten)
            if numbers:
                octets = b"".join(number.to_bytes(_NUMBER_OCTETS, "big") for number in numbers)
                os.write(self._forgotten_file, octets)
                self._forgotten.update(numbers)

    def clean(self) -> None:
        """Removes segments that neither Spark nor the peer needs any more."""
        with self._guard:
            for segment in self.segments():
                numbers = set(range(segment.first, segment.last + 1))
                if segment.last <= self.committed and numbers <= self._forgotten:
                    if self.buries:
                        self.settled_ids.add(_ids_of(segment))
                    segment.path.unlink(missing_ok=True)
                    self._forgotten -= numbers
            if not self._forgotten and self._forgotten_file >= 0:
                os.ftruncate(self._forgotten_file, 0)

    def kept(self) -> Iterator[Kept]:
        """Yields the deliveries that the peer may still know, oldest first."""
        for segment in self.segments():
            table = read_arrow(segment.path)
            names = ("sequence", "tag", "message_id", "message_id_type")
            for row in table.select(list(names)).to_pylist():
                if row["sequence"] not in self._forgotten:
                    id_text = row["message_id"]
                    yield Kept(
                        sequence=row["sequence"],
                        tag=row["tag"],
                        is_committed=row["sequence"] <= self.committed,
                        message_id=id_text and f"{row['message_id_type']}:{id_text}",
                    )

    def known_ids(self) -> Iterator[tuple[int, str]]:
        """Yields the ids of messages received, as far back as they are kept, oldest first."""
        yield from self.settled_ids.load()
        for segment in self.segments():
            yield from _ids_of(segment)


def _ids_of(segment: Segment) -> list[tuple[int, str]]:
    table = read_arrow(segment.path).select(["sequence", "message_id", "message_id_type"])
    return [
        (row["sequence"], f"{row['message_id_type']}:{row['message_id']}")
        for row in table.to_pylist()
        if row["message_id"] is not None
    ]


def write_arrow(path: Path, batches: list[Any]) -> None:
    """Writes batches to a temporary file, makes it durable and gives it its name."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with aside.open("wb") as file:
        with pa.ipc.new_file(file, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    Disk().sync_directory(path.parent)


def read_arrow(path: Path) -> Any:
    """Reads a file of batches, without copying it."""
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def write_json(path: Path, noted: Mapping[str, Any], *, is_first: bool = False) -> None:
    """Writes a small file durably and atomically, replacing an existing one.

    Args:
        path: of the file.
        noted: its contents.
        is_first: does not replace an existing file.

    Raises:
        FileExistsError: with ``is_first``, the file exists already.
    """
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    _write_durably(aside, json.dumps(noted).encode())
    if is_first:
        try:
            os.link(aside, path)
        finally:
            aside.unlink()
    else:
        aside.replace(path)
    Disk().sync_directory(path.parent)


def _write_durably(path: Path, octets: bytes) -> None:
    with path.open("wb") as file:
        file.write(octets)
        file.flush()
        os.fsync(file.fileno())
