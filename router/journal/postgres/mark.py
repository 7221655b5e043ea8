"""How far this machine knows the journal on PostgreSQL to have come, kept in the state directory.

A database that was restored from an older copy looks like any other. What it lacks was promised, so
a router must not go on with it as if nothing had happened. Each router notes the epoch of the lease
and the last group of blocks that it knows to be durable: the leader with each renewal, a standby
what it has seen of the leader. Who is to take the lease looks for both first.

    epoch       never gets less
    the group   is there, or a snapshot stands for its segment

Nothing is flushed to disk: after a power cut the mark may be an older one, which asks for less. So
it never asks for what was not durable.
"""

import contextlib
import errno
import os
from pathlib import Path
from typing import Final

import attrs

from router.journal.postgres.lease import Leader
from router.journal.postgres.storage import PostgresStorage, StoreError

MARK_NAME: Final = "journal.mark"
_OCTETS: Final = 96
"""Less than a sector, so that it is written as a whole or not."""


@attrs.frozen(order=True)
class Reached:
    """A place in the journal.

    Attributes:
        epoch: of the lease.
        segment: of the group; 0: there is none.
        commit: number of the group in its segment.
    """

    epoch: int
    segment: int = 0
    commit: int = 0


class Mark:
    """The file; it is read anew each time, because `router journal accept` may have removed it."""

    def __init__(self, state: Path, router: str) -> None:
        """Touches nothing yet.

        Args:
            state: directory of the router.
            router: its id; the mark of another one says nothing.
        """
        self._path = state / MARK_NAME
        self._router = router
        self._noted: Reached | None = None

    def read(self) -> Reached | None:
        """Returns what was noted last; None: nothing, or it cannot be read."""
        try:
            numbers, router = self._path.read_text().split(" for ")
            epoch, segment, commit = map(int, numbers.split())
        except (OSError, ValueError):
            return None
        return Reached(epoch, segment, commit) if router.strip() == self._router else None

    def note(self, reached: Reached) -> None:
        """Notes how far the journal has come; a disk that is full notes nothing."""
        if reached == self._noted:
            return
        text = f"{reached.epoch} {reached.segment} {reached.commit} for {self._router}"
        with contextlib.suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(file, f"{text.ljust(_OCTETS - 1)}\n".encode(), 0)
            finally:
                os.close(file)
            self._noted = reached

    def note_seen(self, leader: Leader) -> None:
        """Notes what was seen of another router's lease, if it is further than what is noted."""
        seen, noted = Reached(leader.epoch, leader.newest), self._noted or self.read()
        if noted is None or seen > noted:
            self.note(seen)

    def forget(self) -> bool:
        """Removes it; returns whether there was one.

        Raises:
            OSError: it cannot be removed.
        """
        self._noted = None
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        return True

    def check(self, leader: Leader, storage: PostgresStorage) -> Reached | None:
        """Checks that the database has what it had; returns what was noted.

        Args:
            leader: as the row of the lease says.
            storage: of the router.

        Raises:
            StoreError: it has not, or cannot be read.
        """
        noted = self.read()
        if noted is None:
            return None
        if leader.epoch < noted.epoch:
            lack = f"its lease has epoch {leader.epoch}, and {noted.epoch} was seen here"
        elif noted.segment and not storage.has_group(noted.segment, noted.commit):
            lack = f"it lacks row {noted.commit} of segment {noted.segment}, which was durable"
        else:
            return noted
        raise StoreError(
            errno.ESTALE,
            f"the database is not the one that was used here, or an older copy of it: {lack};"
            " name the right one in router.journal.store, or, if what is missing is lost, accept"
            " this one with `router journal accept`",
        )
