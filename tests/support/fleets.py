"""A router without a network, for the tests of what people ask it: records, workers, requests."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

import attrs
import trio
from starlette.types import ASGIApp

from router.core.listing import (
    ConnectionRecord,
    DeliveryPage,
    DeliveryPosition,
    DeliveryRecord,
    Filter,
    LinkPage,
    LinkPosition,
    LinkRecord,
)
from router.core.resolve import Decision
from router.core.snapshot import Rejection, RouteRecord, Snapshot, Stall, Totals, UplinkRecord
from router.core.trace import TraceLine
from router.errors import RouterError
from router.model.place import BindAddress, TcpAddress
from router.model.terminus import Role
from router.routes.table import RoutingTable
from router.service.admin.app import make_app
from router.service.admin.history import History, Moment, Rates
from router.service.books import Books
from router.service.certificates import NO_TLS, TlsRecord
from router.service.config.process import LogLevel
from router.service.control import (
    ConnectionEntries,
    ConnectionEntry,
    ContainerRecord,
    MeshRecord,
    MeshSiteRecord,
    Replayed,
    TraceFeed,
    UnknownRouteError,
    WorkerSnapshot,
)
from router.service.fleet import ListenerRecord, ReloadReport, RouterControl, RouterSnapshot
from router.service.lives import NONE_WAIT, WaitingClients, WorkerLives
from router.service.rehearsal import FindRecord, ListLinks
from router.service.route_list import RouteList
from router.service.vitals import LAG_BOUNDS_SECONDS, Vitals

LOOPBACK = TcpAddress("127.0.0.1", 8672)


# Records


def route(name: str = "orders", **fields: Any) -> RouteRecord:
    return attrs.evolve(RouteRecord(name=name, address=name), **fields)


def core(*routes: RouteRecord, **fields: Any) -> Snapshot:
    empty = Snapshot(
        at=1000.0,
        is_draining=False,
        connections=1,
        routes=routes or (route(),),
        peers=(),
        payload_octets=0,
        payload_limit_octets=1 << 20,
    )
    return attrs.evolve(empty, **fields)


def container(name: str = "east", *, is_connected: bool = False, **fields: Any) -> ContainerRecord:
    record = ContainerRecord(
        name=name,
        urls=(f"amqp://{name}.example:5672",),
        protocol="amqp-1.0",
        is_connected=is_connected,
        seconds=30.0,
        address=f"{name}.example:5672" if is_connected else None,
        opened=1 if is_connected else 0,
        failed=0 if is_connected else 3,
        error=None if is_connected else "Connection refused",
    )
    return attrs.evolve(record, **fields)


def vitals(**fields: Any) -> Vitals:
    usual = Vitals(
        process=4711,
        uptime_seconds=60.0,
        cpu_seconds=1.5,
        resident_octets=50 << 20,
        open_files=12,
        lag_seconds=0.001,
        lags=(5,) * (len(LAG_BOUNDS_SECONDS) + 1),
        lag_sum_seconds=2.0,
    )
    return attrs.evolve(usual, **fields)


def worker_snapshot(number: int = 0, **fields: Any) -> WorkerSnapshot:
    usual = WorkerSnapshot(
        worker=number, at=5000.0, express="off", vitals=vitals(), core=core(), containers=()
    )
    return attrs.evolve(usual, **fields)


def router_snapshot(
    *routes: RouteRecord, containers: Sequence[ContainerRecord] = (), **fields: Any
) -> RouterSnapshot:
    """A router of one worker."""
    known = core(*routes)
    usual = RouterSnapshot(
        id="dc1",
        version="1.2.3",
        at=5000.0,
        started_at=4000.0,
        uptime_seconds=1000.0,
        is_draining=False,
        required_containers=(),
        listeners=(listener(),),
        workers=(worker_snapshot(core=known, containers=tuple(containers)),),
        silent=(),
        core=known,
        routes=RouteList.of(RoutingTable(), known.routes),
        containers=tuple(containers),
    )
    return attrs.evolve(usual, **fields)


def listener(*addresses: str, is_open: bool = True) -> ListenerRecord:
    return ListenerRecord(
        name="127.0.0.1:5672",
        addresses=addresses or (("127.0.0.1:5672",) if is_open else ()),
        protocols=("amqp-1.0",),
        has_tls=False,
    )


def stalled(name: str = "orders", **fields: Any) -> RouteRecord:
    stall = Stall(address=name, seconds=75.0, reason="3 deliveries wait: nobody receives from it")
    return route(name, stall=stall, **fields)


def rejecting(name: str = "orders", **fields: Any) -> RouteRecord:
    usual = Rejection(
        count=12,
        seconds=4.0,
        reason="amqp:not-found: no such queue",
        peer="west",
        address=name,
        by_router=False,
    )
    return route(name, rejection=attrs.evolve(usual, **fields))


def uplink(step: str, error: str | None = None, name: str = "east") -> UplinkRecord:
    return UplinkRecord(container=name, address="orders", role=Role.SENDER, step=step, error=error)


def delivery(tag: bytes, age_seconds: float, **fields: Any) -> DeliveryRecord:
    usual = DeliveryRecord(
        tag=tag.hex(),
        route="orders",
        address="orders",
        container="source",
        link="push",
        state="sent",
        to_container="sink",
        to_link="pull",
        age_seconds=age_seconds,
        octets=100,
        attempts=0,
        position=DeliveryPosition(1000.0 - age_seconds, "source", "push", 1),
    )
    return attrs.evolve(usual, **fields)


def link(number: int) -> LinkRecord:
    return LinkRecord(
        link=number,
        connection=1,
        container="source",
        configured=None,
        name=f"link-{number}",
        role=Role.RECEIVER,
        address="orders",
        route="orders",
        credit=10,
        totals=Totals(),
    )


def connection(number: int) -> ConnectionEntry:
    record = ConnectionRecord(
        connection=number,
        container=f"client-{number}",
        configured=None,
        user=None,
        protocol="amqp-1.0",
        is_router=False,
        senders=1,
        receivers=0,
        incoming_unsettled=0,
        outgoing_unsettled=0,
        payload_octets=0,
        is_congested=False,
        is_held=False,
    )
    return ConnectionEntry(
        record=record,
        address="127.0.0.1:40000",
        listener="127.0.0.1:5672",
        transport="tcp",
        seconds=1.0,
        octets_in=10,
        octets_out=20,
    )


# Workers


@attrs.define(eq=False)
class FakeFeed:
    batches: list[list[TraceLine]]

    async def take(self) -> list[TraceLine]:
        await trio.lowlevel.checkpoint()
        return self.batches.pop(0) if self.batches else []


class GoneError(RouterError):
    """As a proxy says when its worker's process has just ended."""


@attrs.define(eq=False)
class FakeControl:
    """A worker that says what it is told to, and remembers what it was asked.

    Attributes:
        is_silent: it never answers.
        is_gone: it is being started anew.
        surveyed: the greatest age that was asked for, of each snapshot.
    """

    number: int = 0
    fares: WorkerSnapshot = attrs.field(factory=worker_snapshot)
    connected: Sequence[int] = ()
    attached: Sequence[int] = ()
    unsettled: Sequence[DeliveryRecord] = ()
    lines: list[list[TraceLine]] = attrs.field(factory=list)
    in_doubt: Mapping[bytes, int] = attrs.field(factory=dict)
    is_silent: bool = False
    is_gone: bool = False
    shared_mesh: MeshRecord | None = None
    replayed: Replayed = attrs.field(factory=lambda: Replayed(resting=0, revived=0))
    asked: list[tuple[Any, ...]] = attrs.field(factory=list)
    surveyed: list[float] = attrs.field(factory=list)
    routes: set[str] = attrs.field(factory=lambda: {"orders", "a/b c.#"})

    async def snapshot(self, most_seconds: float = 0.0) -> WorkerSnapshot:
        await self._answer()
        self.surveyed.append(most_seconds)
        return attrs.evolve(self.fares, worker=self.number)

    async def connections(self, wanted: Filter, most: int, after: int) -> ConnectionEntries:
        await self._answer()
        numbers = [number for number in self.connected if number > after]
        some = tuple(connection(number) for number in numbers[:most])
        return ConnectionEntries(some, numbers[most - 1] if len(numbers) > most else None)

    async def links(self, wanted: Filter, most: int, after: LinkPosition) -> LinkPage:
        await self._answer()
        numbers = [number for number in self.attached if number > after.link]
        some = tuple(link(number) for number in numbers[:most])
        go_on = LinkPosition(numbers[most - 1]) if len(numbers) > most else None
        return LinkPage(some, go_on)

    async def deliveries(
        self, wanted: Filter, most: int, after: DeliveryPosition | None
    ) -> DeliveryPage:
        await self._answer()
        self.asked.append(("deliveries", wanted))
        behind = [each for each in self.unsettled if after is None or each.position > after]
        return DeliveryPage(tuple(behind[:most]), len(behind) > most)

    async def pause(self, route: str) -> None:
        await self._order("pause", route)

    async def resume(self, route: str) -> None:
        await self._order("resume", route)

    async def resolve(self, tag: bytes, link: str | None, decision: Decision) -> int:
        await self._answer()
        self.asked.append(("resolve", tag, link, decision))
        return self.in_doubt.get(tag, 0)

    @asynccontextmanager
    async def trace(self, pattern: str, most: int) -> AsyncIterator[TraceFeed]:
        self.asked.append(("trace", pattern, most))
        yield FakeFeed([list(batch) for batch in self.lines])
        self.asked.append(("trace ended",))

    async def replay(self, route: str | None, address: str | None) -> Replayed:
        await self._answer()
        self.asked.append(("replay", route, address))
        return self.replayed

    async def mesh(self, address: str | None) -> MeshRecord | None:
        await self._answer()
        self.asked.append(("mesh", address))
        return self.shared_mesh

    async def _order(self, what: str, route: str) -> None:
        await self._answer()
        if route not in self.routes:
            raise UnknownRouteError(route)
        self.asked.append((what, route))

    async def _answer(self) -> None:
        if self.is_gone:
            raise GoneError
        if self.is_silent:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()


@attrs.define(eq=False)
class FakeSteering:
    """A process that does as it is told."""

    id: str = "dc1"
    started_at: float = 4000.0
    uptime_seconds: float = 1000.0
    is_draining: bool = False
    required_containers: Sequence[str] = ()
    books: Books = attrs.field(factory=Books)
    is_standby: bool = False
    tls: TlsRecord = NO_TLS
    awaits_restart: Sequence[str] = ()
    lives: Sequence[WorkerLives] = ()
    waiting: WaitingClients = NONE_WAIT
    log_level: LogLevel = LogLevel.INFO
    report: ReloadReport = attrs.field(factory=ReloadReport)
    reloads: int = 0
    listening: tuple[ListenerRecord, ...] = attrs.field(factory=lambda: (listener(),))
    table: RoutingTable = attrs.field(factory=RoutingTable)

    def listeners(self) -> tuple[ListenerRecord, ...]:
        return self.listening

    def why_no_worker(self) -> str:
        return "it starts its workers"

    def why_no_handover(self) -> str | None:
        return None

    def drain(self, *, to_standby: bool = False) -> None:
        self.is_draining = True

    async def reload(self, find: FindRecord, list_links: ListLinks) -> ReloadReport:
        await trio.lowlevel.checkpoint()
        self.reloads += 1
        return self.report

    async def rehearse(self, find: FindRecord, list_links: ListLinks) -> ReloadReport:
        await trio.lowlevel.checkpoint()
        return self.report


@attrs.define(eq=False)
class Fleet:
    """Some workers, the process around them, and the control of both."""

    workers: list[FakeControl]
    steering: FakeSteering = attrs.field(factory=FakeSteering)
    control: RouterControl = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.control = RouterControl(self.steering, lambda: self.workers, fresh_seconds=-1)


def fleet(*workers: FakeControl) -> Fleet:
    return Fleet(list(workers) or [FakeControl()])


@attrs.define(eq=False)
class KnownHistory(History):
    """A history with the rates of routes that it is told."""

    rates: Mapping[str, Rates] = attrs.field(factory=dict, kw_only=True)

    async def moment(self, snapshot: RouterSnapshot) -> Moment:
        return Moment(routes=self.rates)


# Requests


@attrs.frozen
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@attrs.define(eq=False)
class Site:
    """The admin application, asked without a socket."""

    fleet: Fleet = attrs.field(factory=fleet)
    bind: BindAddress = LOOPBACK
    token: str | None = None
    history: History = attrs.field(factory=History)
    app: ASGIApp = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.app = make_app(self.fleet.control, self.history, self.bind, self.token)

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.ask("GET", path, headers=headers)

    async def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        if body is None:
            return await self.ask("POST", path, headers=headers)
        headers = {"content-type": "application/json", **headers}
        return await self.ask("POST", path, json.dumps(body).encode(), headers)

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | list[bytes] = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Sends one request; underscores in names of headers stand for hyphens."""
        parts = [body] if isinstance(body, bytes) else body
        messages: list[dict[str, Any]] = [
            {"type": "http.request", "body": part, "more_body": index + 1 < len(parts)}
            for index, part in enumerate(parts)
        ]
        sent: list[dict[str, Any]] = []
        split = urlsplit(path)
        given = {"host": "localhost:8672", **(headers or {})}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(split.path),
            "raw_path": split.path.encode(),
            "query_string": split.query.encode(),
            "root_path": "",
            "headers": [
                (name.replace("_", "-").encode(), value.encode()) for name, value in given.items()
            ],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8672),
        }

        async def receive() -> dict[str, Any]:
            if not messages:
                await trio.sleep_forever()
            await trio.lowlevel.checkpoint()
            return messages.pop(0)

        async def send(message: Any) -> None:
            await trio.lowlevel.checkpoint()
            sent.append(message)

        await self.app(scope, receive, send)
        start = sent[0]
        return Answer(
            start["status"],
            {name.decode(): value.decode() for name, value in start["headers"]},
            b"".join(message.get("body", b"") for message in sent[1:]),
        )


def mesh_site(router: str, *, cost: int | None) -> MeshSiteRecord:
    """A site of a mesh that serves nothing."""
    hop = "" if cost is None else router
    return MeshSiteRecord(router=router, cost=cost, hop=hop, links=(), prefixes=(), addresses=0)
