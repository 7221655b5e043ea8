"""What a journal's store must be able to do, whatever it is made of.

A store has two halves. ``BlockLog`` is the half that the journal's process writes: it appends
blocks, says how far they are durable, and admits workers. ``Storage`` is the half that everybody
else reads: it shows what was written as *segments* and *snapshots* by name, in the octets that
``segment`` draws, wherever they are kept. Everything above is the same for all stores:

    replay         ``replay.replay_from`` reads the newest snapshot and the segments behind it
    reclaim        ``reclaim.reclaim_from`` keeps a snapshot, then lets go of the segments before it
    inspection     ``router journal inspect`` reads any of them
    compaction     ``let_go`` hands a segment over as a file, which ``router ledger compact`` reads

``log.Log`` and ``files.FileStorage`` are the two halves of the store of files, the default.
``tests/journal/test_storage.py`` has what every store must pass.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol as Interface

import attrs

from router.journal.block import Block, Origin
from router.journal.ending import Ending
from router.journal.protocol import Health
from router.journal.segment import Damage


@attrs.frozen(kw_only=True)
class Opened:
    """The findings of ``BlockLog.open``.

    Attributes:
        segments: how many there were.
        cut_octets: length of the torn tail that was cut.
        damage: unreadable parts of the segments that were checked: the last ones.
        router: id of the router that wrote the last segment; None: there is none.
    """

    segments: int
    cut_octets: int
    damage: tuple[Damage, ...]
    router: str | None = None


class BlockLog(Interface):
    """The half that is written, by one process alone.

    All times are nanoseconds since 1970 that never step back, handed in by the caller. Nothing is
    lost while the process lives: what was appended stays in memory until it is durable.

    Attributes:
        router: id of the router that the journal belongs to.
        incarnation: start time of the journal's process.
        health: whether it can write; anything but WRITING stops credit for exactly-once routes.
        errno: of the last failure, 0 in WRITING.
        durable: the next sequence number that is not durable yet, by origin.
        pending_octets: octets appended and not durable.
        commits: commits that made records durable.
        written_octets: octets made durable by these commits.
        sealed: how many segments were sealed since ``open``.
        number: number of the newest segment, or of the one that could not be created.
    """

    router: str
    incarnation: int
    health: Health
    errno: int
    pending_octets: int
    commits: int
    written_octets: int
    sealed: int
    number: int

    @property
    def durable(self) -> dict[Origin, int]:
        """Next sequence number of each origin, as far as durable."""

    @property
    def appended(self) -> dict[Origin, int]:
        """Next sequence number of each origin that wrote, durable or not."""

    @property
    def deadline_ns(self) -> int | None:
        """When ``commit`` should be called although nothing was appended; None: never."""

    @property
    def waits(self) -> Mapping[int, int]:
        """Descriptors, with events as ``selectors`` names them, that ``commit`` waits for."""

    def open(self, now_ns: int) -> Opened:
        """Makes this process the only writer and begins a segment.

        Raises:
            OSError: the store cannot be had; another process has it, for example.
            ForeignFileError: it was written by a later version; nothing was changed.
        """

    def append(self, octets: bytes, blocks: list[Block]) -> None:
        """Accepts whole blocks, which a later ``commit`` makes durable.

        Args:
            octets: the encoded blocks, as they are stored.
            blocks: the same, decoded. The caller has checked that the first sequence number of each
                is the one that ``appended`` has for its origin.
        """

    def admit(self, origin: Origin, first_sequence: int) -> None:
        """Admits ``origin``; earlier lives of its worker can write no more.

        Args:
            origin: the origin that will append.
            first_sequence: the first record that it can still send. If that is later than expected,
                the records between are lost, and the gap in the sequence shows it.
        """

    def has_pending(self, worker: int) -> bool:
        """Returns whether records of a worker, of any of its lives, are not durable yet."""

    def commit(self, now_ns: int) -> bool:
        """Goes on making durable what was appended, and does what else is due.

        Returns:
            Whether nothing is pending any more.
        """

    def close(self, now_ns: int) -> bool:
        """Commits, seals the segment and lets others have the store.

        Returns:
            Whether everything was durable.
        """


class Readable(Interface):
    """What a replay reads: segments and snapshots by name.

    A name is one of ``segment.segment_name`` or ``segment.snapshot_name``; there may be others,
    which mean nothing here. Every method raises OSError if the store fails.
    """

    def names(self) -> list[str]:
        """Lists what there is, unordered."""

    def read(self, name: str) -> bytes:
        """Returns the whole content of a segment or snapshot.

        Raises:
            FileNotFoundError: it was let go of meanwhile.
        """

    def newest(self) -> int:
        """Returns the number of the newest segment that holds something durable; 0: unknown."""

    def ended(self) -> Ending:
        """Returns where the last segment ended that was closed in order, as far as known."""


class Storage(Readable, Interface):
    """The half that is read. Every method raises OSError if the store fails; nothing is lost."""

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Yields names with their octets."""

    def title(self, name: str) -> str:
        """Returns where a person finds a segment or snapshot."""

    def lock(self) -> AbstractContextManager[None]:
        """Keeps other processes from reclaiming.

        Raises:
            BlockingIOError: another one does.
        """

    def keep_snapshot(self, number: int, octets: bytes) -> None:
        """Makes a snapshot durable, which is complete as soon as it is seen."""

    def let_go(self, number: int, archive: Path | None) -> None:
        """Removes a segment.

        Args:
            number: of the segment.
            archive: directory where it stays as a file, for the pipeline; None: nowhere.
        """

    def drop_snapshot(self, number: int) -> None:
        """Removes a snapshot that another one has replaced."""

    def sync(self) -> None:
        """Returns when the removals are durable."""
