"""The store on PostgreSQL, read: rows of blocks shown as segments and snapshots.

A segment is its rows in order of ``commit``, from 0, the head, up to the first one that is missing.
What stands behind a missing row was never told durable: the process that wrote it ended before that
row was committed, and an insert of its epoch can commit no more. So a segment that is not the last
one never changes, and is shown sealed.

Used by the journal's process, by the processes that it starts to reclaim and to read, and by
commands for people; never by a worker.
"""

import contextlib
import errno
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import psycopg

from router.journal.block import salted
from router.journal.disk import Disk
from router.journal.ending import Ending
from router.journal.files import put_into_archive
from router.journal.postgres.lease import MOVED, Leader
from router.journal.postgres.schema import (
    ADD_ROUTER,
    CREATE,
    GRANTS,
    MISSING_RIGHTS,
    NUMBER_OF_ROUTER,
    SCHEMA,
    TAKE,
    VERSION,
    WHO_LEADS,
)
from router.journal.postgres.url import shown
from router.journal.record import RecordKind
from router.journal.segment import (
    numbered,
    own_block,
    segment_header,
    segment_name,
    snapshot_name,
)

PART_OCTETS: Final = 16 << 20
"""Of a snapshot in one row."""

ACKNOWLEDGED_SECONDS: Final = 5.0
"""A synchronous standby that is in order acknowledges a commit before."""

_LOCK_TIMEOUT: Final = "200ms"
"""A drop waits no longer for those who read; writers would queue behind it."""

_DROP_TRIES: Final = 50


class StoreError(OSError):
    """The database cannot be used; the text says why, without a password."""


def conninfo(url: str) -> str:
    """Returns the URL with what this program asks of every connection.

    Commits wait for the synchronous standby whatever the server's or the role's default is, and a
    server that does not answer is given up within seconds.

    Raises:
        StoreError: libpq cannot read it.
    """
    try:
        given = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error:  # its text repeats parts of the URL
        raise StoreError(errno.EINVAL, "router.journal.store is no URL that libpq reads") from None
    options = f"{given.pop('options', None) or ''} -c synchronous_commit=on".strip()
    defaults = {
        "connect_timeout": "3",
        "keepalives_idle": "2",
        "keepalives_interval": "1",
        "keepalives_count": "3",
        "tcp_user_timeout": "5000",
        "target_session_attrs": "read-write",
        "application_name": "router",
    }
    return str(psycopg.conninfo.make_conninfo("", **{**defaults, **given, "options": options}))


def connect(url: str) -> Any:
    """Connects, in autocommit mode.

    Raises:
        StoreError: it cannot; a password is wrong, the server does not answer.
    """
    try:
        return psycopg.connect(conninfo(url), autocommit=True)
    except psycopg.Error as error:
        raise StoreError(errno.EIO, _reason(error)) from error


def _reason(error: psycopg.Error) -> str:
    lines = str(error).strip().splitlines()
    return f"PostgreSQL: {lines[0] if lines else type(error).__name__}"


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Turns errors of the database into OSError."""
    try:
        yield
    except psycopg.errors.LockNotAvailable as error:
        raise BlockingIOError(errno.EAGAIN, _reason(error)) from error
    except psycopg.Error as error:
        raise StoreError(errno.EIO, _reason(error)) from error


def check_version(connection: Any) -> None:
    """Checks that the tables are there, and of this version.

    Raises:
        StoreError: they are not.
    """
    try:
        row = connection.execute(f"SELECT max(number) FROM {SCHEMA}.version").fetchone()
    except psycopg.errors.UndefinedTable as error:
        raise StoreError(errno.ENOENT, "it has no tables; run `router journal init`") from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoreError(errno.EACCES, f"{_reason(error)}; run `router journal init`") from error
    if row is None or row[0] != VERSION:
        found = None if row is None else row[0]
        advice = "; run `router journal init`" if found is None or found < VERSION else ""
        raise StoreError(errno.EPROTO, f"its tables have version {found}, not {VERSION}{advice}")


@attrs.frozen
class Durability:
    """What a server does before it says that a commit is done.

    Attributes:
        flushes: it flushes its log to disk (fsync).
        full_pages: a page that a crash tore is repaired.
        standbys: synchronous_standby_names; empty: it waits for no other server.
        answers: one of them has acknowledged a commit just now.
        missing: rights that ``init`` grants and the role does not have.
    """

    flushes: bool
    full_pages: bool
    standbys: str
    answers: bool
    missing: tuple[str, ...] = ()


def durability(
    url: str, router: str, check: Callable[[Leader, "PostgresStorage"], object] | None = None
) -> Durability:
    """Asks the server.

    Args:
        url: of the database.
        router: id of the router.
        check: looks at the lease and the journal, too, and raises StoreError.

    Raises:
        StoreError: it cannot be used, or has no room for the router.
    """
    storage = PostgresStorage(url, router)
    with connect(url) as connection, told():
        check_version(connection)
        missing = tuple(name for (name,) in connection.execute(MISSING_RIGHTS))
        if not missing:
            storage.names()
            leader = storage.leader()
            check_moved(leader)
            if check is not None:
                check(leader, storage)
            storage.close()
        flushes, pages, standbys = connection.execute(
            "SELECT current_setting('fsync'), current_setting('full_page_writes'),"
            " current_setting('synchronous_standby_names')"
        ).fetchone()
        standbys = standbys.strip()
        answers = bool(standbys) and not missing and _is_acknowledged(connection, router)
    return Durability(flushes == "on", pages == "on", standbys, answers, missing)


def _is_acknowledged(connection: Any, router: str) -> bool:
    """Commits what changes nothing, and returns whether a synchronous standby acknowledged that.

    Who is connected only roles with ``pg_read_all_stats`` may see; a router needs no such right.
    """
    noted = threading.Event()
    connection.add_notice_handler(lambda notice: noted.set())  # a wait that is canceled warns
    timer = threading.Timer(ACKNOWLEDGED_SECONDS, connection.cancel)
    timer.start()
    try:
        connection.execute(
            f"UPDATE {SCHEMA}.lease SET renewed = renewed WHERE router = %s", (router,)
        )
    except psycopg.errors.QueryCanceled:  # it waited for another one that does
        return False
    finally:
        timer.cancel()
    return not noted.is_set()


def check_moved(leader: Leader) -> None:
    """Checks that the journal was not moved to files.

    Raises:
        StoreError: it was, and a second one would begin in the database.
    """
    if leader.holder == MOVED:
        raise StoreError(
            errno.ENOENT,
            f"its journal was moved to files: {leader.place}; set router.journal.store to files"
            " there, or bring it back from there with `router journal move --to postgresql`",
        )


def init(url: str, router: str, role: str | None) -> None:
    """Makes the tables, makes room for a router, and grants a role what it needs; repeatable.

    Args:
        url: of a role that may create a schema in the database.
        router: id of the router.
        role: that the router logs in as; None: the one of ``url``.

    Raises:
        StoreError: it is not allowed, or the tables are of another version.
    """
    with connect(url) as connection, told():
        connection.execute(CREATE)
        check_version(connection)
        connection.execute(ADD_ROUTER, (router,))
        number = connection.execute(NUMBER_OF_ROUTER, (router,)).fetchone()[0]
        for table in ("blocks", "snapshots", "messages"):
            connection.execute(
                psycopg.sql.SQL(
                    "CREATE TABLE IF NOT EXISTS {}.{} PARTITION OF {}.{} FOR VALUES IN ({})"
                    " PARTITION BY RANGE (segment)"
                ).format(
                    psycopg.sql.Identifier(SCHEMA),
                    psycopg.sql.Identifier(f"{table}_{number}"),
                    psycopg.sql.Identifier(SCHEMA),
                    psycopg.sql.Identifier(table),
                    psycopg.sql.Literal(router),
                )
            )
        if role is not None:
            granted = psycopg.sql.Identifier(role).as_string(connection)
            connection.execute(GRANTS.format(role=granted))


class PostgresStorage:
    """The segments and snapshots of one router.

    Attributes:
        connections: how often it has connected; what another server had may be missing here.
    """

    def __init__(self, url: str, router: str) -> None:
        """Connects when it is first asked.

        Args:
            url: of the database.
            router: id of the router.
        """
        self.connections = 0
        self._url = url
        self._router = router
        self._connection: Any = None
        self._number = 0

    def __str__(self) -> str:
        return shown(self._url)

    def close(self) -> None:
        """Closes the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def names(self) -> list[str]:
        """Lists segments that have a head, and snapshots, which are there as a whole or not."""
        with self._use() as connection:
            segments = connection.execute(
                f"SELECT segment FROM {SCHEMA}.blocks WHERE router = %s AND commit = 0",
                (self._router,),
            ).fetchall()
            snapshots = connection.execute(
                f"SELECT segment FROM {SCHEMA}.snapshots WHERE router = %s AND part = 0",
                (self._router,),
            ).fetchall()
        return [
            *(segment_name(number) for (number,) in segments),
            *(snapshot_name(number) for (number,) in snapshots),
        ]

    def partitions(self) -> list[int]:
        """Lists the segments for which there is a partition, whether or not they have a head."""
        with self._use() as connection:
            rows = connection.execute(
                "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
                " WHERE i.inhparent = to_regclass(%s)",
                (f"{SCHEMA}.blocks_{self._number}",),
            ).fetchall()
        return sorted(int(name.rpartition("_")[2]) for (name,) in rows)

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Yields names with the octets of their rows."""
        with self._use() as connection:
            for table, name_of in (("blocks", segment_name), ("snapshots", snapshot_name)):
                rows = connection.execute(
                    f"SELECT segment, sum(octet_length(octets)) FROM {SCHEMA}.{table}"
                    " WHERE router = %s GROUP BY segment",
                    (self._router,),
                ).fetchall()
                yield from ((name_of(number), int(octets)) for number, octets in rows)

    def title(self, name: str) -> str:
        """Returns the name: there is no path."""
        return name

    def read(self, name: str) -> bytes:
        """Returns a segment or a snapshot, in the octets that files have.

        Raises:
            FileNotFoundError: there is none of this name.
            StoreError: the database cannot be read.
        """
        numbers = numbered([name], "snapshot")
        octets = self._read_snapshot(numbers[0]) if numbers else self._read_segment(name)
        if not octets:
            raise FileNotFoundError(errno.ENOENT, "the store does not have it", name)
        return octets

    def _read_snapshot(self, number: int) -> bytes:
        with self._use() as connection:
            rows = connection.execute(
                f"SELECT octets FROM {SCHEMA}.snapshots WHERE router = %s AND segment = %s"
                " ORDER BY part",
                (self._router, number),
                binary=True,
            ).fetchall()
        return b"".join(octets for (octets,) in rows)

    def _read_segment(self, name: str) -> bytes:
        number = numbered([name], "segment")[0]
        groups, newest = self.groups(number)
        if not groups:
            return b""
        if number < newest:
            now_ns = time.time_ns()
            groups.append(own_block(RecordKind.SEGMENT_END, now_ns, now_ns))
        salt = secrets.randbits(32)
        return segment_header(salt) + salted(b"".join(groups), salt)

    def groups(self, number: int, first: int = 0) -> tuple[list[bytes], int]:
        """Returns rows of a segment, and the number of the newest segment that has a head.

        Args:
            number: of the segment.
            first: number of the first row.
        """
        with self._use() as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            rows = connection.execute(
                f"SELECT commit, octets FROM {SCHEMA}.blocks WHERE router = %s AND segment = %s"
                " AND commit >= %s ORDER BY commit",
                (self._router, number, first),
                binary=True,
            ).fetchall()
            newest = connection.execute(
                f"SELECT max(segment) FROM {SCHEMA}.blocks WHERE router = %s AND commit = 0",
                (self._router,),
            ).fetchone()[0]
        found = enumerate(rows, first)
        return [octets for place, (commit, octets) in found if commit == place], newest

    def has_group(self, number: int, commit: int) -> bool:
        """Returns whether a row of blocks is there, or a snapshot stands for its segment."""
        query = (
            f"SELECT EXISTS (SELECT 1 FROM {SCHEMA}.blocks"
            " WHERE router = %(router)s AND segment = %(number)s AND commit = %(commit)s)"
            f" OR EXISTS (SELECT 1 FROM {SCHEMA}.snapshots"
            " WHERE router = %(router)s AND segment >= %(number)s)"
        )
        facts = {"router": self._router, "number": number, "commit": commit}
        with self._use() as connection:
            return bool(connection.execute(query, facts).fetchone()[0])

    def newest(self) -> int:
        """Returns the number of the newest segment with something durable, as the lease has it."""
        with self._use() as connection:
            row = connection.execute(
                f"SELECT newest FROM {SCHEMA}.lease WHERE router = %s", (self._router,)
            ).fetchone()
        return 0 if row is None else int(row[0])

    def ended(self) -> Ending:
        """Returns that nothing is known: a database has no torn tail that could be mistaken."""
        return Ending()

    def note_place(self, epoch: int, holder: str, place: str) -> None:
        """Records, under our lease, who has the journal and where.

        Raises:
            StoreError: another router leads.
        """
        with self._use() as connection:
            found = connection.execute(
                f"UPDATE {SCHEMA}.lease SET holder = %s, place = %s"
                " WHERE router = %s AND epoch = %s",
                (holder, place, self._router, epoch),
            )
        if not found.rowcount:
            raise StoreError(errno.ESTALE, "the lease was lost meanwhile")

    def forget_newest(self) -> None:
        """Begins anew: nothing is left here, because it was moved."""
        with self._use() as connection:
            connection.execute(
                f"UPDATE {SCHEMA}.lease SET newest = 0 WHERE router = %s", (self._router,)
            )

    def leader(self) -> Leader:
        """Returns who leads, or led last."""
        with self._use() as connection:
            row = connection.execute(WHO_LEADS, (self._router,)).fetchone()
        assert row is not None, "_use has checked that the lease has a row"
        return Leader.of(row[0])

    def follow(self, epoch: int) -> None:
        """Makes sure that what is read is of the server on which a lease was taken.

        Raises:
            StoreError: the server that is reached has another lease.
        """
        for _ in range(2):
            found = self.leader().epoch
            if found == epoch:
                return
            self.close()  # it may be one whose place another has taken
        raise StoreError(errno.ESTALE, f"PostgreSQL: its lease has epoch {found}, and not {epoch}")

    def take(self, facts: Mapping[str, object]) -> Leader | None:
        """Takes the lease; returns its row, or None: another router leads.

        Args:
            facts: what ``schema.TAKE`` names.
        """
        with self._use() as connection:
            row = connection.execute(TAKE, facts).fetchone()
        return None if row is None else Leader.of(row[0])

    def login_key(self) -> bytes | None:
        """Returns the secret that routers of this id share; None: there is none yet."""
        query = f"SELECT login_key FROM {SCHEMA}.lease WHERE router = %s"
        with self._use() as connection:
            row = connection.execute(query, (self._router,), binary=True).fetchone()
        return None if row is None else row[0]

    def put_key(self, key: bytes, epoch: int) -> bytes | None:
        """Shares a secret, under our lease, if none is shared yet; returns the one that is."""
        with self._use() as connection:
            row = connection.execute(
                f"UPDATE {SCHEMA}.lease SET login_key = coalesce(login_key, %b)"
                " WHERE router = %s AND epoch = %s RETURNING login_key",
                (key, self._router, epoch),
                binary=True,
            ).fetchone()
        return None if row is None else row[0]

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Takes an advisory lock, which ends with the connection.

        Raises:
            BlockingIOError: another process reclaims.
        """
        key = f"{SCHEMA}/{self._router}"
        with self._use() as connection:
            question = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
            if not connection.execute(question, (key,)).fetchone()[0]:
                raise BlockingIOError(errno.EAGAIN, "another process reclaims")
        try:
            yield
        finally:
            with contextlib.suppress(OSError), self._use() as connection:
                connection.execute("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", (key,))

    def keep_snapshot(self, number: int, octets: bytes) -> None:
        """Makes a snapshot in one transaction."""
        with self._use() as connection, connection.transaction():
            self._begin(connection, "snapshots", number)
            for part, start in enumerate(range(0, len(octets), PART_OCTETS)):
                connection.execute(
                    f"INSERT INTO {SCHEMA}.snapshots VALUES (%s, %s, %s, %b)",
                    (self._router, number, part, octets[start : start + PART_OCTETS]),
                )

    def begin_segment(self, number: int) -> None:
        """Makes the partition of a segment."""
        with self._use() as connection:
            self._begin(connection, "blocks", number)

    def _begin(self, connection: Any, table: str, number: int) -> None:
        connection.execute(
            f"SELECT {SCHEMA}.begin_partition(%s, %s, %s)", (table, self._router, number)
        )

    def let_go(self, number: int, archive: Path | None) -> None:
        """Drops the partition, after the segment is a file if the pipeline is to have it."""
        if archive is not None:
            disk = Disk()
            disk.make_directory(archive)
            with contextlib.suppress(FileNotFoundError):
                put_into_archive(archive, number, self.read(segment_name(number)), disk)
        self._drop("blocks", number)

    def drop_snapshot(self, number: int) -> None:
        """Drops the partition."""
        self._drop("snapshots", number)

    def _drop(self, table: str, number: int) -> None:
        """Drops a partition; one that is being read is waited for, but writers are not held up."""
        for left in reversed(range(_DROP_TRIES)):
            try:
                with self._use() as connection, connection.transaction():
                    connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
                    connection.execute(
                        f"SELECT {SCHEMA}.drop_partition(%s, %s, %s)", (table, self._router, number)
                    )
            except BlockingIOError:
                if not left:
                    raise
                time.sleep(0.05)
            else:
                return

    def sync(self) -> None:
        """Does nothing: what is committed is durable."""

    @contextlib.contextmanager
    def _use(self) -> Iterator[Any]:
        """Gives the connection, made if there is none.

        Raises:
            StoreError: the database cannot be used.
        """
        with told():
            if self._connection is None or self._connection.closed:
                self._connection = connect(self._url)
                self.connections += 1
                check_version(self._connection)
                row = self._connection.execute(NUMBER_OF_ROUTER, (self._router,)).fetchone()
                if row is None:
                    self.close()
                    raise StoreError(
                        errno.ENOENT,
                        f"it has no room for router {self._router}; run `router journal init`",
                    )
                self._number = row[0]
            yield self._connection
