"""The questions that a running worker answers, and the answers of a worker in this process.

``Control`` is the complete interface between the admin endpoint and one worker. ``LocalControl``
answers for a worker in the same process; a supervisor has a proxy with the same interface for each
of its worker processes. Questions and answers are frozen records of plain values, fit for any
channel. ``fleet`` combines the workers' answers to those of one router.

Questions never delay traffic for long: a survey of the core runs in steps and lets other tasks run
between them, its result is reused for ``FRESH_SECONDS``, and lists are short.
"""

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final
from typing import Protocol as Interface

import attrs
import structlog
import trio

from router.core.dial_in import DialedIn
from router.core.listing import (
    ConnectionRecord,
    DeliveryPage,
    DeliveryPosition,
    Filter,
    LinkPage,
    LinkPosition,
)
from router.core.mesh.names import router_named
from router.core.resolve import Decision
from router.core.snapshot import Snapshot
from router.core.trace import TraceLine, Tracer
from router.errors import RouterError
from router.model.capabilities import Protocol
from router.model.identity import ConnectionId, DeliveryTag
from router.net.leisure import at_leisure
from router.net.store.burials import Cause
from router.net.store.keeper import StoredDepth
from router.net.transport import transport_of
from router.routes.mesh.edge import Edge
from router.routes.mesh.mesh import Mesh
from router.routes.mesh.paths import Nobody, Order, Through, Unreachable, Ways
from router.service.assembly import Assembly
from router.service.certificates import NO_TLS, TlsRecord
from router.service.config.containers import Container
from router.service.vitals import Meter, Vitals
from router.service.worker import Worker

FRESH_SECONDS: Final = 0.5
"""Greatest age of a snapshot that is reused."""

SAME_MOMENT_SECONDS: Final = 0.02
"""Greatest age of a worker's survey that is added to surveys of other workers."""

WATCH_SECONDS: Final = (0.5, 5.0)
"""Bounds of the interval between stall checks: a quarter of the shortest ``stall_seconds``."""

SOURCES_MOST: Final = 20
"""Sources of failed logins that are reported; a bound for the metrics."""

_TRACE_LOOK_SECONDS: Final = 0.05


@attrs.frozen
class UnknownRouteError(RouterError):
    """There is no route of that name."""

    route: str

    def __str__(self) -> str:
        return f"there is no route named {self.route!r}"


@attrs.frozen(kw_only=True)
class ContainerRecord:
    """One configured container.

    Attributes:
        urls: where it is dialed, without passwords; empty: it dials in.
        seconds: since it was connected, or since its connection was lost.
        address: of the connection, or of all its connections.
        opened: how often a connection to it has opened.
        failed: how often dialing it or opening the connection has failed, or a further connection
            of it was refused.
        error: why it is not connected, or why the last attempt failed.
        redirected_from: the place that has redirected the router to ``address``.
        others: places that the container names and that are dialed when its connection is lost.
    """

    name: str
    urls: tuple[str, ...]
    protocol: str
    is_connected: bool
    seconds: float
    address: str | None
    opened: int
    failed: int
    error: str | None
    redirected_from: str | None = None
    others: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class JournalRecord:
    """The state of the journal, as a worker sees it.

    Attributes:
        trouble: why the journal cannot be written; None: it can.
        records: records written since the worker was started.
        durable: how many of these are on disk.
        waiting_octets: octets of records that the journal has not accepted yet.
        unrecorded: deliveries that went unrecorded because their routes do not wait for the
            journal: gaps of the ledger.
        gaps: what was missing of the journal when it was read at the start, for people.
    """

    trouble: str | None
    records: int
    durable: int
    waiting_octets: int
    unrecorded: int = 0
    gaps: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class StoredRecord:
    """What the message store holds of one route.

    Attributes:
        route: its name; None: no route of the file has these messages.
        messages: how many are stored.
        octets: of their records.
        oldest_seconds: age of the oldest one; 0: there is none.
        is_full: its senders wait, or its oldest messages are dropped.
        stored_rate, forwarded_rate: messages a second; None: not known yet.
        dead: dead letters that wait for their target.
        resting: addresses that rest because their target returned or refused a message.
        failures: how often one of these has, at most, since it accepted something.
        rests_seconds: until the first of these goes on.
        rejected, expired, dropped: messages that have become dead letters since the worker started:
            by their target, by age, or as the oldest of too many and by a person.
    """

    route: str | None
    messages: int
    octets: int
    oldest_seconds: float
    is_full: bool
    stored_rate: float | None = None
    forwarded_rate: float | None = None
    dead: int = 0
    resting: int = 0
    failures: int = 0
    rests_seconds: float = 0.0
    rejected: int = 0
    expired: int = 0
    dropped: int = 0


@attrs.frozen(kw_only=True)
class StoreRecord:
    """The state of the message store, as a worker sees it.

    Attributes:
        is_connected: it takes messages and gives them.
        routes: what it holds.
        trouble: why it cannot write, and so takes none; None: it can.
        unreadable: segments that it cannot read now, and why; None: it can.
    """

    is_connected: bool
    routes: tuple[StoredRecord, ...] = ()
    trouble: str | None = None
    unreadable: str | None = None


@attrs.frozen(kw_only=True)
class Replayed:
    """Stored messages that are tried at once because somebody wants it.

    Attributes:
        resting: addresses that rested.
        revived: dead letters that are sent to their target again.
    """

    resting: int
    revived: int


@attrs.frozen(kw_only=True)
class MeshLinkRecord:
    """A connection to a neighbor of the mesh.

    Attributes:
        router: the neighbor's id.
        cost: of what this router sends there.
        is_up: both ends have heard each other.
        role: router, or edge: one of this router's edges.
        is_active: messages take it; an edge uses one of its uplinks at a time.
    """

    router: str
    cost: int
    is_up: bool
    role: str = "router"
    is_active: bool = False


@attrs.frozen(kw_only=True)
class MeshSiteRecord:
    """A router of the mesh.

    Attributes:
        router: its id.
        cost: of the way to it; None: there is none.
        hop: the neighbor on that way; empty: it is this router, or there is no way.
        links: its neighbors, each with the cost.
        prefixes: patterns that it serves.
        addresses: how many single addresses it serves beside these.
    """

    router: str
    cost: int | None
    hop: str
    links: tuple[tuple[str, int], ...]
    prefixes: tuple[str, ...]
    addresses: int


@attrs.frozen(kw_only=True)
class MeshWayRecord:
    """A way that a message to an address may take.

    Attributes:
        egress: the router whose receivers get it.
        hop: the neighbor that it is sent to first; empty: it stays at this router.
        cost: of the way; None: there is none at present.
        error: why the egress refuses the address; None: as far as is known it does not.
    """

    egress: str
    hop: str
    cost: int | None
    error: str | None = None


@attrs.frozen(kw_only=True)
class MeshRecord:
    """The mesh as this router knows it.

    Attributes:
        router: this router's id.
        links: its neighbors.
        sites: all routers, this one too; of an edge none.
        is_edge: this router is an edge, and the links are its uplinks.
        ways: for the address that was asked for, the best first.
    """

    router: str
    links: tuple[MeshLinkRecord, ...]
    sites: tuple[MeshSiteRecord, ...]
    is_edge: bool = False
    ways: tuple[MeshWayRecord, ...] = ()


@attrs.frozen(kw_only=True)
class LoginRecord:
    """Failed logins.

    Attributes:
        failed: how many since the worker was started.
        sources: IP addresses with the most failures in the last minutes, and their counts.
    """

    failed: int = 0
    sources: tuple[tuple[str, int], ...] = ()


@attrs.frozen(kw_only=True)
class WorkerSnapshot:
    """The state of one worker at one time.

    Attributes:
        at: time of the snapshot, in seconds since 1970.
        express: the express lane it uses: cython, or off.
        stalls: by route, how often it was found stalled.
        journal: None: no route asks for one.
        store: the message store; None: no route has one.
        mesh: the mesh; None: the worker is in none.
        tls: its certificates.
        unrouted: messages that no route took whose senders have not been told.
    """

    worker: int
    at: float
    express: str
    vitals: Vitals
    core: Snapshot
    containers: tuple[ContainerRecord, ...]
    stalls: Mapping[str, int] = attrs.field(factory=dict)
    journal: JournalRecord | None = None
    store: StoreRecord | None = None
    mesh: MeshRecord | None = None
    logins: LoginRecord = LoginRecord()
    tls: TlsRecord = NO_TLS
    unrouted: int = 0


@attrs.frozen(kw_only=True)
class ConnectionEntry:
    """One connection, with the facts of its socket.

    Attributes:
        address: the peer's.
        listener: that accepted it; None: we dialed.
        transport: below AMQP: tcp, tls, ws, wss or unix.
        seconds: since it was opened.
        octets_in, octets_out: received and sent through its socket.
    """

    record: ConnectionRecord
    address: str
    listener: str | None
    transport: str
    seconds: float
    octets_in: int
    octets_out: int


@attrs.frozen
class ConnectionEntries:
    """A page of connections, and the number of the last one; None: there are no more."""

    entries: tuple[ConnectionEntry, ...]
    next: int | None


class TraceFeed(Interface):
    """Lines of a running trace."""

    async def take(self) -> list[TraceLine]:
        """Waits for lines and returns them; none: the trace has ended."""


class Control(Interface):
    """The admin endpoint's interface to one worker."""

    @property
    def number(self) -> int:
        """The worker's number."""

    async def snapshot(self, most_seconds: float) -> WorkerSnapshot:
        """Returns the worker's state.

        Args:
            most_seconds: greatest age of a survey that is reused.
        """

    async def connections(self, wanted: Filter, most: int, after: int) -> ConnectionEntries:
        """Lists connections after a number, like ``Lister.connections``."""

    async def links(self, wanted: Filter, most: int, after: LinkPosition) -> LinkPage:
        """Lists links after a position, like ``Lister.links``."""

    async def deliveries(
        self, wanted: Filter, most: int, after: DeliveryPosition | None
    ) -> DeliveryPage:
        """Lists unsettled deliveries after a position, like ``Lister.deliveries``."""

    async def pause(self, route: str) -> None:
        """Pauses a route: its deliveries are no longer forwarded.

        Raises:
            UnknownRouteError: there is no route of that name.
        """

    async def resume(self, route: str) -> None:
        """Resumes a paused route.

        Raises:
            UnknownRouteError: there is no route of that name.
        """

    async def resolve(self, tag: bytes, link: str | None, decision: Decision) -> int:
        """Resolves the deliveries in doubt that have a tag; returns how many there were.

        Args:
            tag: delivery-tag, as received.
            link: name of the link that received them; None: any link.
            decision: the outcome that they get.
        """

    async def replay(self, route: str | None, address: str | None) -> Replayed:
        """Tries stored messages at once that rest, and dead letters that wait.

        Args:
            route: of the messages; None: any.
            address: of the messages; None: any.
        """

    async def mesh(self, address: str | None) -> MeshRecord | None:
        """Returns the mesh; None: this router is in none.

        Args:
            address: the ways to it are wanted, too; None: no address.
        """

    def trace(self, pattern: str, most: int) -> AbstractAsyncContextManager[TraceFeed]:
        """Traces the next ``most`` deliveries of the addresses that match a pattern.

        Raises:
            PatternError: the pattern is malformed.
        """


@attrs.define(eq=False)
class LocalControl:
    """Answers for a worker in this process."""

    worker: Worker
    number: int = 0
    _meter: Meter = attrs.field(factory=Meter, init=False)
    _survey: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _last: WorkerSnapshot | None = attrs.field(default=None, init=False)
    _taken_at: float = attrs.field(default=float("-inf"), init=False)
    _taken_of: Assembly | None = attrs.field(default=None, init=False)
    _pause: float = attrs.field(default=0.0, init=False)
    _paused_for: Assembly | None = attrs.field(default=None, init=False)
    _stalled: set[str] = attrs.field(factory=set, init=False)
    _stalls: dict[str, int] = attrs.field(factory=dict, init=False)
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Measures the worker's event loop and reports stalls, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._meter.run)
            task_status.started()
            while True:
                began = trio.current_time()
                await self.snapshot()
                cost = trio.current_time() - began
                await trio.sleep(max(self._pause_seconds(), 20 * cost))

    def _pause_seconds(self) -> float:
        assembly = self.worker.assembly
        if self._paused_for is not assembly:  # not at every check: there may be many routes
            self._paused_for = assembly
            least, most = WATCH_SECONDS
            shortest = min((route.stall_seconds for route in assembly.config.routes), default=most)
            self._pause = max(least, min(most, shortest / 4))
        return self._pause

    async def snapshot(self, most_seconds: float = FRESH_SECONDS) -> WorkerSnapshot:
        """Returns a survey of the worker, as ``Control`` says."""
        since = trio.current_time() - most_seconds
        async with self._survey:
            if self._last is None or not self._is_fresh(since):
                began = trio.current_time()
                core = await at_leisure(self.worker.core.surveyor.steps(self.worker.plane.clock()))
                express = self.worker.shared.express
                self._note_stalls(core)
                self._last = WorkerSnapshot(
                    worker=self.number,
                    at=time.time(),
                    express="off" if express is None else express.kind,
                    vitals=self._meter.vitals(),
                    core=core,
                    containers=tuple(self._containers()),
                    stalls=dict(self._stalls),
                    journal=self._journal(),
                    store=self._store(),
                    mesh=await self.mesh(None),
                    logins=self._logins(),
                    tls=self._tls(),
                    unrouted=self.worker.core.unrouted,
                )
                self._taken_at = began
                self._taken_of = self.worker.assembly
            return self._last

    def _tls(self) -> TlsRecord:
        return TlsRecord.of(each.context for each in self.worker.assembly.rotations.values())

    def _journal(self) -> JournalRecord | None:
        port = self.worker.ledger
        if port is None:
            return None
        return JournalRecord(
            trouble=port.trouble,
            records=port.client.appended_sequence,
            durable=port.client.durable_sequence,
            waiting_octets=port.client.waiting_octets,
            unrecorded=self.worker.core.unrecorded,
            gaps=self.worker.core.lister.gaps,
        )

    def _store(self) -> StoreRecord | None:
        keeper = self.worker.message_store
        if keeper is None:
            return None
        now_ns = time.time_ns()
        routes = tuple(_stored_record(each, now_ns) for each in keeper.depths)
        return StoreRecord(
            is_connected=keeper.is_connected,
            routes=routes,
            trouble=keeper.trouble,
            unreadable=keeper.unreadable,
        )

    def _logins(self) -> LoginRecord:
        failed, sources = self.worker.failed_logins(SOURCES_MOST)
        return LoginRecord(failed=failed, sources=tuple(sources))

    def _is_fresh(self, since: float) -> bool:
        """Returns whether the last survey began after a time, with the routes of now."""
        return self._taken_at >= since and self._taken_of is self.worker.assembly

    def _note_stalls(self, core: Snapshot) -> None:
        """Reports each stall once, and its end."""
        stalled = set()
        for route in core.routes:
            if route.stall is None:
                continue
            stalled.add(route.name)
            if route.name not in self._stalled:
                self._stalls[route.name] = self._stalls.get(route.name, 0) + 1
                self._log.warning(
                    "route.stalled",
                    route=route.name,
                    address=route.stall.address,
                    reason=route.stall.reason,
                    seconds=round(route.stall.seconds, 1),
                )
        for name in self._stalled - stalled:
            self._log.info("route.moved_again", route=name)
        self._stalled = stalled

    def _containers(self) -> list[ContainerRecord]:
        return [
            self._as_neighbor(_container_record(name, container, self.worker))
            for name, container in self.worker.assembly.config.containers.items()
            if name in self.worker.connectors
        ] + [
            _dialed_in_record(name, known, self.worker)
            for name, known in self.worker.core.dialed_in.items()
            if known.connections or self.worker.containers is None or name in self.worker.containers
        ]

    def _as_neighbor(self, record: ContainerRecord) -> ContainerRecord:
        """Returns a record in which a neighbor of the mesh that has dialed us is connected, too."""
        mesh, plane = self.worker.core.mesh, self.worker.plane
        if record.is_connected or not mesh.is_served(record.name):
            return record
        connection = plane.switchboard.connections.get(mesh.connections[router_named(record.name)])
        address = None if connection is None else connection.address
        return attrs.evolve(record, is_connected=True, error=None, address=address)

    async def connections(self, wanted: Filter, most: int, after: int) -> ConnectionEntries:
        """Lists connections, as ``Control`` says."""
        page = self.worker.core.lister.connections(wanted, most, after)
        entries = (self._entry(record) for record in page.connections)
        return ConnectionEntries(tuple(each for each in entries if each is not None), page.next)

    def _entry(self, record: ConnectionRecord) -> ConnectionEntry | None:
        plane = self.worker.plane
        known = plane.switchboard.connections.get(ConnectionId(record.connection))
        if known is None:
            return None
        return ConnectionEntry(
            record=record,
            address=known.address,
            listener=known.listener,
            transport=transport_of(known),
            seconds=plane.clock() - known.since,
            octets_in=known.octets_in,
            octets_out=known.octets_out,
        )

    async def links(self, wanted: Filter, most: int, after: LinkPosition) -> LinkPage:
        """Lists links, as ``Control`` says."""
        return self.worker.core.lister.links(wanted, most, after, self.worker.plane.clock())

    async def deliveries(
        self, wanted: Filter, most: int, after: DeliveryPosition | None
    ) -> DeliveryPage:
        """Lists deliveries, as ``Control`` says."""
        return self.worker.core.lister.deliveries(wanted, most, after, self.worker.plane.clock())

    async def pause(self, route: str) -> None:
        """Pauses a route, as ``Control`` says."""
        plane = self.worker.plane
        try:
            orders = self.worker.core.pause(route, plane.clock())
        except KeyError:
            raise UnknownRouteError(route) from None
        plane.carry_out(orders)
        self._log.info("route.paused", route=route)
        self._taken_at = float("-inf")

    async def resume(self, route: str) -> None:
        """Resumes a route, as ``Control`` says."""
        plane = self.worker.plane
        try:
            orders = self.worker.core.resume(route, plane.clock())
        except KeyError:
            raise UnknownRouteError(route) from None
        plane.carry_out(orders)
        self._log.info("route.resumed", route=route)
        self._taken_at = float("-inf")

    async def resolve(self, tag: bytes, link: str | None, decision: Decision) -> int:
        """Resolves deliveries in doubt, as ``Control`` says."""
        plane = self.worker.plane
        count, orders = self.worker.core.resolve(DeliveryTag(tag), link, decision, plane.clock())
        plane.carry_out(orders)
        return count

    async def replay(self, route: str | None, address: str | None) -> Replayed:
        """Tries stored messages at once, as ``Control`` says."""
        keeper = self.worker.message_store
        resting, revived = (0, 0) if keeper is None else keeper.replay(route, address)
        self._taken_at = float("-inf")
        return Replayed(resting=resting, revived=revived)

    async def mesh(self, address: str | None) -> MeshRecord | None:
        """Returns the mesh, as ``Control`` says."""
        mesh = self.worker.core.mesh.machine
        if mesh is None:
            return None
        record = mesh_record(mesh, address)
        refusals = {} if address is None else self.worker.core.mesh_refusals(address)
        ways = (attrs.evolve(way, error=refusals.get(way.egress)) for way in record.ways)
        return attrs.evolve(record, ways=tuple(ways))

    @asynccontextmanager
    async def trace(self, pattern: str, most: int) -> AsyncIterator[TraceFeed]:
        """Traces deliveries, as ``Control`` says."""
        tracer = self.worker.core.trace(pattern, most, self.worker.plane.clock())
        try:
            yield _LocalFeed(tracer)
        finally:
            self.worker.core.end_trace(tracer)


def mesh_record(mesh: Mesh | Edge, address: str | None) -> MeshRecord:
    """Returns what people see of a mesh, and the ways to an address."""
    survey = mesh.survey()
    return MeshRecord(
        router=survey.router,
        links=tuple(MeshLinkRecord(**attrs.asdict(each)) for each in survey.links),
        sites=tuple(MeshSiteRecord(**attrs.asdict(each, recurse=False)) for each in survey.sites),
        is_edge=survey.is_edge,
        ways=() if address is None else tuple(_ways(mesh, address)),
    )


def _ways(mesh: Mesh | Edge, address: str) -> Iterator[MeshWayRecord]:
    if isinstance(mesh, Edge):
        hub = mesh.way()
        if mesh.serves(address):
            yield MeshWayRecord(egress=mesh.router, hop="", cost=0)
        if hub is not None:
            yield MeshWayRecord(egress=hub.egress, hop=hub.hop, cost=hub.cost)
        return
    match mesh.paths.find(address, Order.CLOSEST):
        case Ways(ways):
            for way in ways:
                is_here = way.through is not Through.ROUTER
                hop = "" if is_here else way.hop
                yield MeshWayRecord(egress=way.egress, hop=hop, cost=way.cost)
        case Unreachable(egresses):
            for egress in egresses:
                yield MeshWayRecord(egress=egress, hop="", cost=None)
        case Nobody():
            pass


@attrs.define(eq=False)
class _LocalFeed:
    """Queues a tracer's lines until they are read."""

    tracer: Tracer

    async def take(self) -> list[TraceLine]:
        while True:
            lines = self.tracer.take()
            if lines or self.tracer.is_done:
                return lines
            await trio.sleep(_TRACE_LOOK_SECONDS)


def _stored_record(depth: StoredDepth, now_ns: int) -> StoredRecord:
    stored_rate, forwarded_rate = (None, None) if depth.pace is None else depth.pace
    return StoredRecord(
        route=depth.route,
        messages=depth.messages,
        octets=depth.octets,
        oldest_seconds=max(0, now_ns - depth.oldest_ns) / 1e9 if depth.oldest_ns else 0.0,
        is_full=depth.is_full,
        stored_rate=stored_rate,
        forwarded_rate=forwarded_rate,
        dead=depth.delays.dead,
        resting=depth.delays.resting,
        failures=depth.delays.failures,
        rests_seconds=depth.rests_seconds,
        **{cause.value: depth.deaths.get(cause, 0) for cause in Cause},
    )


def _dialed_in_record(name: str, known: DialedIn, worker: Worker) -> ContainerRecord:
    connections = worker.plane.switchboard.connections
    found = [connections[each] for each in known.connections.values() if each in connections]
    return ContainerRecord(
        name=name,
        urls=(),
        protocol=Protocol.AMQP_1_0.value,
        is_connected=bool(known.connections),
        seconds=worker.plane.clock() - known.since,
        address=", ".join(each.address for each in found) or None,
        opened=known.opened,
        failed=known.refused,
        error=None if known.error is None else str(known.error),
    )


def _container_record(name: str, container: Container, worker: Worker) -> ContainerRecord:
    status = worker.connectors[name].status
    return ContainerRecord(
        name=name,
        urls=tuple(map(str, container.url)),
        protocol=container.protocol.value,
        is_connected=status.is_connected,
        seconds=status.seconds,
        address=status.address,
        opened=status.opened,
        failed=status.failed,
        error=status.error,
        redirected_from=status.redirected_from,
        others=status.others,
    )
