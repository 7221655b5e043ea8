"""The log of the store on PostgreSQL: inserts blocks, and tracks how far they are durable.

All that was appended since the last insert is one row, a *group*. Up to ``PIPES`` groups are on
their way at once, each on a connection of its own, and they may be committed in any order: durable
is the prefix in which none is missing. A group is kept here until it is durable.

    INSERT ... SELECT ... FROM lease WHERE router = R AND epoch = E FOR KEY SHARE

**Fence.** Whoever takes the lease over changes its epoch, and waits for all that hold this row; an
insert that waits for it meanwhile finds another epoch, and inserts nothing. So when a lease is
taken, no group of an earlier epoch can follow. ``FencedError`` ends this process then.

**Unknown.** When a connection is lost, the groups on it may or may not have been committed. They
are inserted again, under the same number: the row is there, is inserted, or the insert waits for
the lost one to end. If it was there, ``schema.LOOK`` makes sure that it is durable.

**Lease.** It is renewed every ``RENEW_SECONDS`` over a fourth connection, and holds for two seconds
from the time at which that was asked for (``lease``). While it does not hold, the health is AWAY.
With a ``lifeline`` on which the supervisor beats, it is renewed only while that works.

**Failures.** What the server refuses is tried again with pauses, one group alone, until it works
(``failing``). A failure ends when a group is durable; if none waits, when the lease is renewed.

    rotate    a segment is a partition. The one behind the next is made beforehand, so that a
              rotation waits for the groups on their way and for nothing else
    health    WRITING    the lease holds, some connection takes groups, and none was refused
              DISK_FULL  the server says that it has no room for them
              IO_ERROR   it refuses them for another reason
              AWAY       no connection is there, or the lease does not hold
"""

import contextlib
import errno
import itertools
import os
import platform
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import attrs
import structlog

from router.errors import RouterError
from router.journal.block import Block, Origin
from router.journal.facts import LatestFacts
from router.journal.lifeline import Lifeline
from router.journal.log import RETRY_SECONDS, ROTATE_SECONDS, SEGMENT_OCTETS
from router.journal.postgres.ahead import Tail
from router.journal.postgres.failing import Failing, Want
from router.journal.postgres.lease import HELD_SECONDS, MOVED, Leader, LeaseFile, boot_ns
from router.journal.postgres.login_key import share_login_key
from router.journal.postgres.mark import Mark, Reached
from router.journal.postgres.pipe import Answer, Octets, Pipe, PipeState
from router.journal.postgres.schema import (
    INSERT_BLOCKS,
    LOOK,
    RELEASE,
    RENEW,
    SCHEMA,
)
from router.journal.postgres.storage import (
    PostgresStorage,
    StoreError,
    check_moved,
    connect,
    conninfo,
    told,
)
from router.journal.protocol import Health
from router.journal.record import RecordError, RecordKind, heap_strings
from router.journal.segment import (
    ForeignFileError,
    numbered,
    segment_head,
    segment_name,
)
from router.journal.storage import Opened

PIPES: Final = 3
GROUP_OCTETS: Final = 4 << 20
"""A larger group is cut into several rows."""

RENEW_SECONDS: Final = 0.5
CLOSE_SECONDS: Final = 5.0
CONNECT_SECONDS: Final = 3.0
_NANOSECONDS: Final = 1_000_000_000
_SILENT_NS: Final = int(2 * HELD_SECONDS * _NANOSECONDS)
"""A renewal that is not answered for so long was lost with its connection."""

_NO_ROOM: Final = frozenset({"53100", "53000", "53200"})
_ENDS_CONNECTION: Final = frozenset({"08", "25", "57", "58", "XX"})
"""Classes of errors (SQLSTATE) after which another connection may reach another server."""

UNRENEWED: Final = f"the lease was not renewed for {HELD_SECONDS:g} s"
UNBEATEN: Final = "the router's process gives no sign of life, so its lease is not renewed"
_REASONS_MOST: Final = 20
_NONE: Final = (PipeState.IDLE, PipeState.LOST)
_log = structlog.get_logger("router.journal")


class FencedError(RouterError):
    """Another router leads."""

    def __str__(self) -> str:
        return "another router has taken the lease"


@attrs.define(eq=False)
class Group:
    """Blocks that are one row.

    Attributes:
        segment: its partition.
        commit: its number there, from 0.
        octets: the blocks.
        marks: next sequence numbers of the origins in it.
        is_durable: it is committed.
        since_ns: when it was sent (CLOCK_BOOTTIME).
    """

    segment: int
    commit: int
    octets: bytes
    marks: dict[Origin, int]
    is_durable: bool = False
    since_ns: int = 0


@attrs.frozen
class _Look:
    """Whether a group was committed that was already there."""

    group: Group


@attrs.frozen
class _Renewal:
    asked_ns: int


@attrs.frozen
class _Partition:
    number: int


class PostgresLog:
    """The journal of one router in PostgreSQL: a ``storage.BlockLog``.

    Attributes:
        first: number of the first segment of this lease.
        trouble: why it cannot write; None: it can.
    """

    def __init__(
        self,
        url: str,
        router: str,
        *,
        incarnation: int,
        holder: str,
        lease: LeaseFile,
        mark: Mark | None = None,
        place: str | None = None,
        address: str = "[]",
        segment_octets: int = SEGMENT_OCTETS,
        rotate_seconds: float = ROTATE_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        clock: Callable[[], int] = boot_ns,
    ) -> None:
        """Makes a closed log.

        Args:
            url: of the database.
            router: id of the router that the journal belongs to.
            incarnation: start time of the journal's process, in nanoseconds.
            holder: names this router's place among those with the same id, in all its lives.
            place: of this router, for people; default: this machine and process.
            lease: where workers see how long it holds.
            mark: how far the journal has come, as this machine knows; None: nothing is compared.
            address: where peers reach this router: a JSON list, as ``Leader.address``.
            segment_octets: a segment that would grow beyond is sealed before.
            rotate_seconds: a segment with records in it is sealed when it is as old as this.
            retry_seconds: pause between two attempts to connect.
            clock: CLOCK_BOOTTIME, in nanoseconds.
        """
        self.router = router
        self.incarnation = incarnation
        self.health = Health.WRITING
        self.errno = 0
        self.pending_octets = 0
        self.commits = 0
        self.written_octets = 0
        self.sealed = 0
        self.number = 0
        self.first = 0
        self.epoch = 0
        self.leader: Leader | None = None
        self.lifeline: Lifeline | None = None
        self.trouble: str | None = None
        self.group_octets = GROUP_OCTETS
        self._url = url
        self._holder = holder
        self._lease = lease
        self._mark, self._reached = mark, Reached(0)
        self._place = place or f"{platform.node()}, process {os.getppid()}"
        self._address = address
        self._segment_octets = segment_octets
        self._rotate_ns = int(rotate_seconds * _NANOSECONDS)
        self._retry_ns = int(retry_seconds * _NANOSECONDS)
        self._clock = clock
        self._facts = LatestFacts()
        self._storage = PostgresStorage(url, router)
        self._tail = Tail(self._storage, is_whole=False)
        self._written_by: str | None = None
        self._pipes: list[Pipe] = []
        self._control: Pipe | None = None
        self._retry_at_ns: dict[int, int] = {}
        self._started_ns: dict[int, int] = {}
        self._pending: list[tuple[bytes, dict[Origin, int]]] = []
        self._groups: deque[Group] = deque()
        self._again: deque[Group] = deque()
        self._commit = itertools.count()
        self._begun = 0
        self._begun_ns = 0
        self._octets = 0
        self._has_records = False
        self._newest = 0
        self._prepared = 0
        self._is_preparing = False
        self._renew_at_ns = 0
        self._ends_ns = 0
        self._failing = Failing(self._retry_ns)
        self._is_proven = True
        self._warned: set[str | None] = set()

    # Opening

    def share_login_key(self, state: Path) -> None:
        """Makes the shared secret of salts that of a state directory; see ``login_key``.

        Raises:
            OSError: the database or the directory cannot be used.
        """
        try:
            share_login_key(self._storage, state, self.epoch or None)
        finally:
            if self.epoch:
                self._storage.close()

    def prepare(self) -> None:
        """Reads ahead, so that ``open`` need not; a standby does that now and then.

        Raises:
            OSError: the database cannot be used.
        """
        for piece in self._tail.advance():
            if piece.begins_anew or piece.number != self._begun:
                self._facts = LatestFacts()  # the head of each segment repeats them
                self._begun = piece.number
            if piece.scan.is_foreign:
                raise ForeignFileError(Path(segment_name(piece.number)))
            for _, block in piece.scan.blocks():
                self._facts.learn(block)
                self._written_by = _router_of(block) or self._written_by

    def open(self, now_ns: int, seen: Leader | None = None) -> Opened:
        """Takes the lease, reads the last segment and begins a new one.

        Args:
            now_ns: the epoch is no less.
            seen: see ``take``.

        Raises:
            BlockingIOError: another router leads.
            FencedError: another router led since this one's last lease.
            StoreError: the database cannot be used.
            ForeignFileError: the last segment was written by a later version.
        """
        try:
            self.take(now_ns, seen)
            opened = self._read_last()
            self._storage.begin_segment(self.number)
        finally:
            self._storage.close()
        self._prepared = self.number  # the next one is made when the connections are there
        self._facts.flushed()
        self._begin_segment(now_ns)
        info = conninfo(self._url)
        self._pipes = [Pipe(info) for _ in range(PIPES)]
        self._control = Pipe(info)
        return opened

    def take(self, now_ns: int, seen: Leader | None = None) -> None:
        """Takes the lease.

        Args:
            now_ns: the epoch is no less.
            seen: whose lease has been watched for long enough; None: the database's clock decides.

        Raises:
            BlockingIOError: another router leads.
            FencedError: another router led since this one's last lease.
            StoreError: the database cannot be used, is older than the mark, or its journal was
                moved to files.
        """
        asked_ns, last = self._clock(), self._lease.epoch
        leader = self._storage.leader() if seen is None else seen
        if last and leader.epoch != last:
            self._lease.let_go()
            raise FencedError
        if self._holder != MOVED:
            check_moved(leader)
        if self._mark is not None:
            self._reached = self._mark.check(leader, self._storage) or self._reached
        facts = {
            "now_ns": now_ns,
            "holder": self._holder,
            "place": self._place,
            "router": self.router,
            "address": self._address,
            "seen": None if seen is None else seen.epoch,
            "seen_renewed": None if seen is None else seen.renewed,
        }
        self.leader = self._storage.take(facts)
        if self.leader is None:
            raise BlockingIOError(errno.EAGAIN, str(leader))
        self.epoch = self.leader.epoch
        self._reached = attrs.evolve(self._reached, epoch=self.epoch)
        self._hold(asked_ns)

    def _read_last(self) -> Opened:
        """Learns what the head of the next segment must repeat."""
        self.prepare()
        names, storage = self._storage.names(), self._storage
        segments, snapshots = numbered(names, "segment"), numbered(names, "snapshot")
        self._newest = storage.newest()
        found = [*segments, *snapshots]
        self._begun = max([0, *found])
        self.number = max([self._newest, *found, *storage.partitions()], default=0) + 1
        self.first = self.number
        return Opened(segments=len(segments), cut_octets=0, damage=(), router=self._written_by)

    # The interface

    @property
    def durable(self) -> dict[Origin, int]:
        """Next sequence number of each origin, as far as durable."""
        return self._facts.durable

    @property
    def appended(self) -> dict[Origin, int]:
        """Next sequence number of each origin that wrote, durable or not."""
        return self._facts.marks

    def append(self, octets: bytes, blocks: list[Block]) -> None:
        """Accepts whole blocks."""
        marks: dict[Origin, int] = {}
        for block in blocks:
            self._facts.learn(block)
            marks[block.origin] = block.last_sequence + 1
        self._pending.append((octets, marks))
        self.pending_octets += len(octets)

    def admit(self, origin: Origin, first_sequence: int) -> None:
        """Admits ``origin``; earlier lives of its worker can write no more."""
        self._facts.admit(origin, first_sequence)

    def has_pending(self, worker: int) -> bool:
        """Returns whether records of a worker, of any of its lives, are not durable yet."""
        return self._facts.has_pending(worker)

    @property
    def waits(self) -> Mapping[int, int]:
        """Descriptors of the connections, with the events that ``commit`` waits for."""
        return dict(waits for pipe in self._all() if (waits := pipe.waits) is not None)

    @property
    def deadline_ns(self) -> int | None:
        """When the segment is old; what the connections need is in ``wait_seconds``."""
        if not self._has_records or self._groups or self._prepared <= self.number:
            return None  # what it waits for wakes it
        return self._begun_ns + self._rotate_ns

    @property
    def wait_seconds(self) -> float:
        """How long until ``commit`` must be called though nothing else happens."""
        due = [
            self._retry_at_ns[id(pipe)]
            for pipe in self._all()
            if pipe.state in _NONE and id(pipe) in self._retry_at_ns and self._may_connect(pipe)
        ]
        for pipe in self._all():
            if pipe.state is PipeState.CONNECTING:
                due.append(self._started_ns[id(pipe)] + int(CONNECT_SECONDS * _NANOSECONDS))
        if self._control is not None and self._control.state is PipeState.READY:
            asked = [each for each in self._control.in_flight if isinstance(each, _Renewal)]
            if asked:
                due.append(asked[0].asked_ns + _SILENT_NS)
            elif self._may_renew:
                due.append(self._renew_at_ns)
        if self.is_held:
            due.append(self._ends_ns)
        due += self._failing.due_ns(self._clock())
        if not due:
            return RENEW_SECONDS
        return max(0.0, (min(due) - self._clock()) / _NANOSECONDS)

    def commit(self, now_ns: int) -> bool:
        """Goes on with all that can go on.

        Raises:
            FencedError: another router leads.
        """
        self._connect()
        for pipe in self._all():
            answers = pipe.advance()
            for answer in answers:
                self._answered(pipe, answer)
            if pipe.state is PipeState.LOST:
                self._lost(pipe)
        self._settle()
        self._renew()
        self._rotate(now_ns)
        self._send()
        self._judge()
        return not (self._pending or self._groups)

    def close(self, now_ns: int) -> bool:
        """Commits what it can within some seconds, and lets others have the lease at once."""
        ends_ns = self._clock() + int(CLOSE_SECONDS * _NANOSECONDS)
        is_durable = False
        with contextlib.suppress(FencedError):
            while not (is_durable := self.commit(now_ns)) and self._clock() < ends_ns:
                self.wait(0.05)
        for pipe in self._all():
            pipe.close()
        self.release()
        return is_durable

    def renew_now(self) -> bool:
        """Renews the lease and waits for that; returns whether it is still this log's.

        Raises:
            StoreError: the database cannot be used.
        """
        with connect(self._url) as connection, told():
            row = connection.execute(
                f"UPDATE {SCHEMA}.lease SET renewed = clock_timestamp()"
                " WHERE router = %s AND epoch = %s RETURNING 1",
                (self.router, self.epoch),
            ).fetchone()
        return row is not None

    def release(self) -> None:
        """Lets others have the lease at once, if the database can be told."""
        self._lease.let_go()
        with contextlib.suppress(OSError), connect(self._url) as connection, told():
            connection.execute(RELEASE, (self.router, self.epoch))

    def abandon(self) -> None:
        """Closes the connections and nothing else, as the end of the process does."""
        for pipe in self._all():
            pipe.close()

    def wait(self, seconds: float) -> None:
        """Waits until ``commit`` may get on, for those who have no loop of their own."""
        import selectors  # noqa: PLC0415

        with selectors.DefaultSelector() as selector:
            for descriptor, events in self.waits.items():
                selector.register(descriptor, events)
            selector.select(min(seconds, self.wait_seconds))

    # Connections

    def _all(self) -> list[Pipe]:
        return self._pipes if self._control is None else [*self._pipes, self._control]

    def _connect(self) -> None:
        now_ns = self._clock()
        for pipe in self._all():
            if pipe.state is PipeState.LOST and pipe.in_flight:
                self._lost(pipe)
            due_ns = self._retry_at_ns.get(id(pipe), 0)
            if pipe.state in _NONE and now_ns >= due_ns:
                if not self._may_connect(pipe):
                    continue
                self._retry_at_ns.pop(id(pipe), None)
                self._started_ns[id(pipe)] = now_ns
                pipe.start()
            elif self._is_slow(pipe, now_ns) or self._is_silent(pipe, now_ns):
                pipe.lose("it does not answer")
                self._lost(pipe)

    def _may_connect(self, pipe: Pipe) -> bool:
        """Returns whether this one, too, should try: one alone tries while none is there."""
        is_alone = Want.REACH in self._failing and pipe is not self._control
        return not is_alone or any(each.state is PipeState.READY for each in self._all())

    def _is_slow(self, pipe: Pipe, now_ns: int) -> bool:
        if pipe.state is not PipeState.CONNECTING:
            return False
        return now_ns - self._started_ns[id(pipe)] >= int(CONNECT_SECONDS * _NANOSECONDS)

    def _is_silent(self, pipe: Pipe, now_ns: int) -> bool:
        if pipe is not self._control or pipe.state is not PipeState.READY or not pipe.in_flight:
            return False
        oldest = pipe.in_flight[0]
        return isinstance(oldest, _Renewal) and now_ns - oldest.asked_ns >= _SILENT_NS

    def _lost(self, pipe: Pipe) -> None:
        """Takes back what was on a connection; nobody knows what became of it."""
        for request in pipe.take_unanswered():
            self._take_back(request)
        if id(pipe) in self._retry_at_ns:
            return
        now_ns, reason = self._clock(), pipe.trouble or "the connection is lost"
        self._retry_at_ns[id(pipe)] = now_ns + self._retry_ns
        if pipe is self._control or not self._is_connected:
            self._failing.failed(Want.REACH, reason, now_ns)
            if not self._is_connected:
                again_ns = self._failing.again_ns(Want.REACH)
                self._retry_at_ns = {id(each): again_ns for each in self._all()}

    @property
    def _is_connected(self) -> bool:
        return any(pipe.state is PipeState.READY for pipe in self._all())

    def _take_back(self, request: object) -> None:
        if isinstance(request, Group):
            self._again.append(request)
        elif isinstance(request, _Look):
            self._again.append(request.group)
        elif isinstance(request, _Partition):
            self._is_preparing = False

    def _answered(self, pipe: Pipe, answer: Answer) -> None:
        request = answer.request
        if answer.error is not None:
            self._failed(pipe, answer)
        elif isinstance(request, Group):
            if answer.rows:
                self._is_committed(request)
            else:
                self._look(pipe, request)
        elif isinstance(request, _Look):
            if not answer.rows:
                self._lease.let_go()
                raise FencedError
            if answer.value == b"1":
                self._is_committed(request.group)
            else:
                self._again.append(request.group)
        elif isinstance(request, _Renewal):
            if not answer.rows:
                self._lease.let_go()
                raise FencedError
            self._worked(Want.RENEW)
            self._hold(request.asked_ns)
        elif isinstance(request, _Partition):
            self._worked(Want.EXTEND)
            self._is_preparing = False
            self._prepared = max(self._prepared, request.number)

    def _is_committed(self, group: Group) -> None:
        group.is_durable = True
        self._worked(Want.WRITE)

    def _worked(self, want: Want) -> None:
        """Records that the database has done something; what it refuses may still be refused."""
        self._failing.worked(want)
        if want is Want.WRITE or not self._groups:
            self._is_proven = True

    def _failed(self, pipe: Pipe, answer: Answer) -> None:
        """Handles an error of the server: the statement was not committed."""
        request, reason = answer.request, f"PostgreSQL: {answer.error}"
        is_full = answer.code in _NO_ROOM
        self._failing.failed(_want(request), reason, self._clock(), is_full=is_full)
        if answer.code[:2] in _ENDS_CONNECTION:
            pipe.in_flight.appendleft(request)
            pipe.lose(reason)
        else:
            self._take_back(request)

    def _look(self, pipe: Pipe, group: Group) -> None:
        self._ask(
            pipe,
            _Look(group),
            LOOK,
            self.router.encode(),
            b"%d" % self.epoch,
            b"%d" % group.segment,
            b"%d" % group.commit,
        )

    def _ask(self, pipe: Pipe, request: object, statement: str, *parameters: bytes) -> None:
        if pipe.state is PipeState.READY:
            pipe.send(request, statement, list(parameters))
        else:
            pipe.in_flight.append(request)
        if pipe.state is PipeState.LOST:
            self._lost(pipe)

    # The lease

    def _renew(self) -> None:
        now_ns, control = self._clock(), self._control
        if control is None or control.state is not PipeState.READY or now_ns < self._renew_at_ns:
            return
        if not (self._may_renew and self._failing.may_try(Want.RENEW, now_ns)):
            return
        self._renew_at_ns = now_ns + int(RENEW_SECONDS * _NANOSECONDS)
        if any(isinstance(each, _Renewal) for each in control.in_flight):
            return
        self._ask(
            control,
            _Renewal(now_ns),
            RENEW,
            self.router.encode(),
            b"%d" % self.epoch,
            b"%d" % self._newest,
        )

    @property
    def _may_renew(self) -> bool:
        return self.lifeline is None or self.lifeline.is_beaten(self._clock())

    def _hold(self, asked_ns: int) -> None:
        self._ends_ns = asked_ns + int(HELD_SECONDS * _NANOSECONDS)
        self._lease.hold(self.epoch, asked_ns)
        if self._mark is not None:
            self._mark.note(self._reached)

    @property
    def is_held(self) -> bool:
        """Whether the lease holds."""
        return self._clock() < self._ends_ns

    # Groups

    def _settle(self) -> None:
        """Moves the prefix that is durable."""
        while self._groups and self._groups[0].is_durable:
            group = self._groups.popleft()
            for origin, following in group.marks.items():
                if origin in self.durable or origin in self._facts.marks:
                    self.durable[origin] = following
            self._reached = Reached(self.epoch, group.segment, group.commit)
            if group.commit:
                self.pending_octets -= len(group.octets)
                self.commits += 1
                if group.segment > self._newest:
                    self._newest = group.segment
                    self._renew_at_ns = 0  # so that the lease names it soon
            self.written_octets += len(group.octets)

    def _send(self) -> None:
        is_refused, now_ns = Want.WRITE in self._failing, self._clock()
        if not self._failing.may_try(Want.WRITE, now_ns):
            return
        for pipe in self._pipes:
            if is_refused and any(each.in_flight for each in self._pipes):
                return  # one tries for all
            if pipe.state is not PipeState.READY or pipe.in_flight:
                continue
            group = self._again.popleft() if self._again else self._next_group()
            if group is None:
                return
            group.since_ns = now_ns
            self._ask(
                pipe,
                group,
                INSERT_BLOCKS,
                self.router.encode(),
                b"%d" % group.segment,
                b"%d" % group.commit,
                Octets(group.octets),
                b"%d" % self.epoch,
            )

    def _next_group(self) -> Group | None:
        if not self._pending or self._is_due_now:
            return None
        marks: dict[Origin, int] = {}
        parts: list[bytes] = []
        octets = 0
        for part, its_marks in self._pending:
            if parts and octets + len(part) > self.group_octets:
                break
            parts.append(part)
            octets += len(part)
            marks.update(its_marks)
        del self._pending[: len(parts)]
        self._octets += octets
        self._has_records = True
        return self._add_group(b"".join(parts), marks)

    def _add_group(self, octets: bytes, marks: dict[Origin, int]) -> Group:
        group = Group(self._begun, next(self._commit), octets, marks)
        self._groups.append(group)
        return group

    # Segments

    _is_due_now = False

    def _rotate(self, now_ns: int) -> None:
        """Begins the next segment if it is time, when nothing is on its way."""
        self._prepare()
        is_full = self._has_records and bool(self._pending) and self._octets > self._segment_octets
        is_old = self._has_records and now_ns - self._begun_ns >= self._rotate_ns
        self._is_due_now = (is_full or is_old) and self._prepared > self.number
        if not self._is_due_now or self._groups:
            return
        self._is_due_now = False
        self.number += 1
        self.sealed += 1
        self._begin_segment(now_ns)

    def _begin_segment(self, now_ns: int) -> None:
        head = segment_head(
            number=self.number,
            router=self.router,
            incarnation=self.incarnation,
            time_ns=now_ns,
            marks=self.durable,
            links=self._facts.links.values(),
            previous=self._begun,
        )
        self._begun, self._begun_ns, self._octets = self.number, now_ns, len(head)
        self._has_records = False
        self._commit = itertools.count()
        self._again.append(self._add_group(head, {}))

    def _prepare(self) -> None:
        control = self._control
        if control is None or control.state is not PipeState.READY or self._is_preparing:
            return
        if not self._failing.may_try(Want.EXTEND, self._clock()):
            return
        if self._prepared <= self.number:
            self._is_preparing = True
            self._ask(
                control,
                _Partition(self._prepared + 1),
                f"SELECT {SCHEMA}.begin_partition('blocks', $1, $2)",
                self.router.encode(),
                b"%d" % (self._prepared + 1),
            )

    def _judge(self) -> None:
        """Sets ``health`` and ``trouble``, and logs what does no harm yet."""
        is_refused, is_held = Want.WRITE in self._failing, self.is_held
        is_ready = any(pipe.state is PipeState.READY for pipe in self._pipes)
        if is_held and is_ready and self._is_proven and not is_refused:
            self.health, self.errno, self.trouble = Health.WRITING, 0, None
            self._warn()
            return
        is_lost = any(pipe.state is PipeState.LOST for pipe in self._all())
        if is_held and self._is_proven and not (is_refused or is_lost):
            return  # it has just begun to connect
        self._is_proven = False
        unreached = None if self._is_connected else self._failing.reason_of(Want.REACH)
        unheld = UNRENEWED if self._may_renew else UNBEATEN
        self.trouble = unreached or self._failing.reason or unheld
        if is_refused and self._failing.is_full:
            self.health, self.errno = Health.DISK_FULL, errno.ENOSPC
        elif is_refused and is_held:
            self.health, self.errno = Health.IO_ERROR, errno.EIO
        else:
            self.health, self.errno = Health.AWAY, errno.EHOSTUNREACH

    def _warn(self) -> None:
        """Logs what fails although blocks are written, each reason once until nothing fails."""
        lost = {pipe.trouble for pipe in self._all() if pipe.state is PipeState.LOST}
        refused = self._failing.reason_of(Want.EXTEND)
        for reason in lost - self._warned:
            _log.warning("journal.disconnected", reason=reason)
        if refused is not None and refused not in self._warned:
            _log.warning("segment.refused", reason=refused)
        self._warned |= {*lost, refused}
        is_whole = all(pipe.state is PipeState.READY for pipe in self._all())
        if (is_whole and refused is None) or len(self._warned) > _REASONS_MOST:
            self._warned.clear()


def _want(request: object) -> Want:
    """Returns what a statement was for."""
    if isinstance(request, _Renewal):
        return Want.RENEW
    return Want.EXTEND if isinstance(request, _Partition) else Want.WRITE


def _router_of(block: Block) -> str | None:
    if not block.is_own:
        return None
    for row in block.unpacked_rows():
        if row[0] == RecordKind.SEGMENT:
            with contextlib.suppress(RecordError):
                return heap_strings(row, block.heap)[2].decode(errors="replace")
    return None


__all__ = ["FencedError", "PostgresLog", "StoreError"]
