"""The stores of a journal, each behind the same face, for the tests that all of them must pass."""

import selectors
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Protocol as Interface

import attrs

from router.journal.disk import Disk
from router.journal.files import FileStorage
from router.journal.log import Log
from router.journal.postgres.lease import Leader
from router.journal.storage import BlockLog, Storage
from tests.support.journal import START_NS
from tests.support.postgres import needs_postgres, shared_server

if TYPE_CHECKING:
    from router.journal.postgres.mark import Mark

ROUTER = "dc1"
SEGMENT_OCTETS = 16 << 10


class StoreUnderTest(Interface):
    """A store that a test writes, reads, and takes away from its writer."""

    def new_log(self, *, incarnation: int = START_NS) -> BlockLog:
        """Gives a log with small segments, not open yet."""

    def storage(self) -> Storage:
        """Gives the half that is read."""

    def kill(self, log: BlockLog) -> None:
        """Lets go of a log as a killed process does: nothing is committed or sealed."""


@attrs.frozen
class Files:
    """The store of files."""

    directory: Path

    def new_log(self, *, incarnation: int = START_NS) -> BlockLog:
        return Log(
            self.directory,
            ROUTER,
            disk=Disk(),
            incarnation=incarnation,
            segment_octets=SEGMENT_OCTETS,
            reserve_octets=8 << 10,
        )

    def storage(self) -> Storage:
        return FileStorage(self.directory)

    def kill(self, log: BlockLog) -> None:
        assert isinstance(log, Log)
        Disk().close(log._lock)


@attrs.define(eq=False)
class Postgres:
    """The store on PostgreSQL, in a database of its own."""

    url: str
    directory: Path
    lives: int = 0

    def new_log(
        self, *, incarnation: int = START_NS, holder: str = "", mark: "Mark | None" = None
    ) -> BlockLog:
        from router.journal.postgres.lease import LeaseFile
        from router.journal.postgres.log import PostgresLog

        self.lives += 1
        return PostgresLog(
            self.url,
            ROUTER,
            incarnation=incarnation,
            holder=holder or f"holder {self.lives}",
            lease=LeaseFile(self.directory / f"lease-{self.lives}"),
            mark=mark,
            segment_octets=SEGMENT_OCTETS,
            retry_seconds=0.05,
        )

    def storage(self) -> Storage:
        from router.journal.postgres.storage import PostgresStorage

        return PostgresStorage(self.url, ROUTER)

    def leader(self) -> Leader:
        from router.journal.postgres.storage import PostgresStorage

        storage = PostgresStorage(self.url, ROUTER)
        try:
            return storage.leader()
        finally:
            storage.close()

    def kill(self, log: BlockLog) -> None:
        from router.journal.postgres.log import PostgresLog
        from router.journal.postgres.storage import connect

        assert isinstance(log, PostgresLog)
        log.abandon()
        with connect(self.url) as connection:  # its lease would end by itself in three seconds
            connection.execute("UPDATE router_journal.lease SET renewed = 'epoch'")


KINDS = ("files", "postgres")


@contextmanager
def store_under_test(kind: str, directory: Path) -> Iterator[StoreUnderTest]:
    """Gives an empty store.

    Args:
        kind: one of ``KINDS``.
        directory: an empty one, of the test.
    """
    if kind == "files":
        yield Files(directory / "journal")
        return
    needs_postgres()
    from router.journal.postgres.storage import init

    url = shared_server().new_database(f"test_{uuid.uuid4().hex}")
    init(url, ROUTER, None)
    yield Postgres(url, directory)


def commit(log: BlockLog, now_ns: int = START_NS) -> None:
    """Commits until everything appended is durable."""
    give_up_at = time.monotonic() + 30
    while not log.commit(now_ns):
        assert time.monotonic() < give_up_at, f"it is not durable: {log.health}, {log.errno}"
        with selectors.DefaultSelector() as selector:
            for descriptor, events in log.waits.items():
                selector.register(descriptor, events)
            selector.select(0.05)
