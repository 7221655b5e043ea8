"""Keeps a worker connected to the message store's process, for as long as it works.

Each connection has an engine, and a client with an incarnation, of its own; what the last one had
forwarded, and did not hear to be durable, is handed to the next.
"""

import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import structlog
import trio

from router.core.dead_letters import DEAD_LETTERS
from router.core.stored import STORE, STORED
from router.journal.store.asks import RouteNews
from router.journal.store.client import StoreClient
from router.journal.store.queues import Bounds, Full, RouteKey, route_key
from router.journal.store.references import RunReader
from router.model.identity import LinkId
from router.net.connection import Connection
from router.net.dataplane import DataPlane
from router.net.journal import connect_unix
from router.net.store.burials import Cause, Deaths
from router.net.store.engine import StoreEngine
from router.net.store.inlet import NO_DELAYS, Delays
from router.net.store.pace import Paces
from router.net.store.unfinished import NOTHING, Unfinished
from router.routes.route import Guarantee, Storing, WhenFull
from router.routes.table import RoutingTable
from router.wire.v1_0.express import Express

PAUSE_SECONDS: Final = 0.1
"""Between two tries to connect; the process that listens starts within some tenths of a second."""

_NANOSECONDS: Final = 1_000_000_000
_FULL: Final[Mapping[WhenFull, Full]] = {
    WhenFull.REFUSE: Full.REFUSE,
    WhenFull.DROP_OLDEST: Full.DROP_OLDEST,
}


@attrs.frozen(kw_only=True)
class StoredDepth:
    """What the store holds of one route.

    Attributes:
        route: its name; None: no route of the file has these messages.
        messages: how many.
        octets: of their records.
        oldest_ns: when the oldest came; 0: there is none.
        is_full: its senders wait, or its oldest messages are dropped.
        pace: messages stored and forwarded a second; None: not known yet.
        delays: what of it does not go on by itself.
        deaths: what has become a dead letter since the worker started.
        rests_seconds: until the first of its resting addresses goes on.
    """

    route: str | None
    messages: int
    octets: int
    oldest_ns: int
    is_full: bool
    pace: tuple[float, float] | None = None
    delays: Delays = NO_DELAYS
    deaths: Mapping[Cause, int] = attrs.field(factory=dict)
    rests_seconds: float = 0.0


@attrs.define(eq=False, kw_only=True)
class StoreKeeper:
    """A worker's connection to the message store.

    Attributes:
        router: id of the router.
        worker: number of the worker.
        path: of the socket.
        plane: the data plane.
        link_ids: shared with the worker's engines.
        clock_ns: nanoseconds since 1970.
        express: the worker's express lane; None: it has none.
        reader: reads the log's files; None: they are not on this machine.
    """

    router: str
    worker: int
    path: Path
    plane: DataPlane
    link_ids: Iterator[LinkId]
    clock_ns: Callable[[], int]
    express: Express | None = None
    reader: RunReader | None = None
    _engine: StoreEngine | None = attrs.field(default=None, init=False)
    _connection: Connection | None = attrs.field(default=None, init=False)
    _bounds: dict[RouteKey, Bounds] = attrs.field(factory=dict, init=False)
    _names: dict[RouteKey, str] = attrs.field(factory=dict, init=False)
    _passing: set[RouteKey] = attrs.field(factory=set, init=False)
    _exact: set[RouteKey] = attrs.field(factory=set, init=False)
    _table: RoutingTable | None = attrs.field(default=None, init=False)
    _unfinished: Unfinished = attrs.field(default=NOTHING, init=False)
    _deaths: Deaths = attrs.field(factory=dict, init=False)
    _incarnation: int = attrs.field(default=0, init=False)
    _ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    _is_stopped: bool = attrs.field(default=False, init=False)
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    async def run(self) -> None:
        """Keeps connected until cancelled or stopped."""
        while not self._is_stopped:
            if self._connect():
                await self._ended.wait()
            await trio.sleep(PAUSE_SECONDS)

    def stop(self) -> None:
        """Connects no more."""
        self._is_stopped = True

    def follow(self, table: RoutingTable) -> None:
        """Serves the routes of a table from now on."""
        self._bounds = {
            route_key(route.name): bounds_of(route.store)
            for route in table.routes
            if route.store is not None
        }
        self._names = {route_key(route.name): route.name for route in table.routes if route.to}
        self._passing = {route_key(each.name) for each in table.routes if each.passes_through}
        exactly_once = Guarantee.EXACTLY_ONCE
        self._exact = {route_key(e.name) for e in table.routes if e.guarantee is exactly_once}
        self._table = table
        if self._engine is not None and self._connection is not None:
            self._follow(self._engine)
            self.plane.switchboard.touch(self._connection)
            self.plane.flush(self.plane.clock())

    def replay(self, route: str | None, address: str | None) -> tuple[int, int]:
        """Tries at once what rests, and revives dead letters; see ``Inlets.replay``."""
        if self._engine is None or self._connection is None:
            return 0, 0
        found = self._engine.inlets.replay(
            None if route is None else route_key(route),
            None if address is None else address.encode(),
        )
        self.plane.switchboard.touch(self._connection)
        self.plane.flush(self.plane.clock())
        return found

    @property
    def is_connected(self) -> bool:
        """Whether the store has let this worker in."""
        return self._connection is not None and self._connection.opened_at is not None

    @property
    def trouble(self) -> str | None:
        """Why the store cannot write, as it said last; None: it can."""
        return None if self._engine is None else self._engine.trouble

    @property
    def unreadable(self) -> str | None:
        """What the store cannot read now, and why, as it said last; None: it can."""
        return None if self._engine is None else self._engine.unreadable

    @property
    def depths(self) -> list[StoredDepth]:
        """What the store has said last of each route."""
        engine = self._engine
        if engine is None:
            return []
        delays, now = engine.inlets.delays(), self.plane.clock()
        return [
            self._depth(news, engine.paces, delays.get(news.route, NO_DELAYS), now)
            for news in engine.held.values()
        ]

    def _depth(self, news: RouteNews, paces: Paces, delays: Delays, now: float) -> StoredDepth:
        return StoredDepth(
            route=self._names.get(news.route),
            messages=news.messages,
            octets=news.octets,
            oldest_ns=news.oldest_ns,
            is_full=news.is_full,
            pace=paces.of(news.route),
            delays=delays,
            deaths=self._deaths.get(news.route, {}),
            rests_seconds=max(0.0, delays.rests_until - now) if delays.resting else 0.0,
        )

    def _follow(self, engine: StoreEngine) -> None:
        engine.follow(
            self._bounds,
            self._names.keys(),
            self._passing,
            self._exact,
            is_exact_at=self._is_exact_at,
        )

    def _is_exact_at(self, address: str) -> bool:
        """Returns whether the route of an address promises exactly-once."""
        match = None if self._table is None else self._table.lookup(address)
        return match is not None and match.route.guarantee is Guarantee.EXACTLY_ONCE

    def _connect(self) -> bool:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connect_unix(sock, self.path)
        except OSError:
            sock.close()
            return False
        sock.setblocking(False)
        self._ended = trio.Event()
        self._incarnation = max(self._incarnation + 1, self.clock_ns())
        client = StoreClient(router=self.router, worker=self.worker, incarnation=self._incarnation)
        self._engine = engine = StoreEngine(
            client,
            link_ids=self.link_ids,
            clock_ns=self.clock_ns,
            stored_property=STORED,
            dead_property=DEAD_LETTERS,
            unfinished=self._unfinished,
            express=self.express,
            reader=self.reader,
            deaths=self._deaths,
        )
        self._follow(engine)
        self._connection = self.plane.add(
            sock, engine, address="the message store", container=STORE, on_end=self._end
        )
        self._connection.brings_runs = True
        return True

    def _end(self, connection: Connection) -> None:
        assert self._engine is not None
        self._unfinished = self._engine.unfinished
        self._incarnation = max(self._incarnation, self._engine.incarnation)
        self._engine = self._connection = None
        if not self._is_stopped:
            self._log.warning("store.lost", reason=connection.failure or connection.condition)
        self._ended.set()


def bounds_of(store: Storing) -> Bounds:
    """Returns the bounds of a route as the store's process has them."""
    age = store.age_seconds
    return Bounds(
        octets=store.octets,
        messages=store.messages,
        age_ns=None if age is None else int(age * _NANOSECONDS),
        full=_FULL[store.full],
    )
