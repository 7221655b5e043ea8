"""A connection of the core to the message store: its engine, and the store's process behind it."""

import random

import attrs

from router.core.dead_letters import DEAD_LETTERS
from router.core.stored import STORE, STORED
from router.journal.block import BlockFlag, Origin, open_block
from router.journal.protocol import REPLY, is_hello
from router.journal.store.client import StoreClient
from router.journal.store.desk import Desk
from router.journal.store.log import StoreLog
from router.journal.store.queues import UNBOUNDED, Bounds, route_key
from router.journal.store.references import RunReader
from router.journal.store.store import STORE_SEGMENT_OCTETS
from router.model.commands import Command
from router.model.events import ConnectionClosed, Event
from router.model.identity import ConnectionId
from router.net.store.engine import StoreEngine
from router.net.store.unfinished import NOTHING, Unfinished
from router.routes.route import Guarantee, Route
from tests.support.journal import DIRECTORY, RESERVE_OCTETS, START_NS, FakeDisk
from tests.support.play import Play


@attrs.define(eq=False)
class StoreHost:
    """The store's process: a log on a disk, and its desk."""

    disk: FakeDisk
    log: StoreLog
    desk: Desk

    @classmethod
    def begun(
        cls, disk: FakeDisk, life: int, now_ns: int, octets: int = STORE_SEGMENT_OCTETS
    ) -> "StoreHost":
        """Starts it; a segment has so many octets."""
        log = StoreLog(
            DIRECTORY,
            "dc1",
            disk=disk,
            incarnation=life,
            segment_octets=octets,
            reserve_octets=RESERVE_OCTETS,
        )
        log.open(now_ns)
        return cls(disk, log, Desk(log.store))

    def hand_in(self, origin: Origin, octets: bytes) -> bool:
        """Gets what a worker has written; returns whether that is answered at once."""
        view, at, is_hello_there = memoryview(octets), 0, False
        while at < len(view):
            block = open_block(view, at)
            if is_hello(block):
                self.log.admit(origin, 1)
                is_hello_there = True
            elif block.flags & BlockFlag.ASKS:
                self.desk.asked(origin, block)
            else:
                self.log.append(octets[at : at + block.octets], [block])
            at += block.octets
        return is_hello_there

    def commit(self, origin: Origin, now_ns: int) -> bytes:
        """Makes durable what it was given, and returns what a worker hears of that."""
        self.log.commit(now_ns)
        durable = self.log.durable[origin] - 1
        return REPLY.pack(self.log.health, self.log.errno, durable)

    def answer(self, origin: Origin, now_ns: int) -> memoryview:
        """Returns what it answers a worker."""
        return self.desk.output(origin, now_ns)


@attrs.define(eq=False)
class StorePeer:
    """A connection to the store.

    Attributes:
        is_deaf: the worker reads nothing any more.
    """

    play: Play
    id: ConnectionId
    engine: StoreEngine
    host: StoreHost
    origin: Origin
    is_lost: bool = False
    is_deaf: bool = False

    @classmethod
    def connected(
        cls,
        play: Play,
        host: StoreHost,
        life: int,
        route: Route,
        unfinished: Unfinished = NOTHING,
        *,
        bounds: Bounds = UNBOUNDED,
    ) -> "StorePeer":
        """The keeper has connected; every other time the worker reads the log's files itself."""
        reads_files = life % 2 == 0
        engine = StoreEngine(
            StoreClient(router="dc1", worker=1, incarnation=life),
            link_ids=play.link_ids,
            clock_ns=lambda: START_NS + int(play.now * 1e9),
            stored_property=STORED,
            dead_property=DEAD_LETTERS,
            unfinished=unfinished,
            reader=RunReader(host.disk, DIRECTORY) if reads_files else None,
        )
        peer = cls(play, ConnectionId(1000 + life - START_NS), engine, host, Origin(1, life))
        peer.follow(route, bounds)
        play.peers[peer.id] = peer  # type: ignore[assignment]
        play.core.dialed(peer.id, STORE)
        return peer

    def follow(self, route: Route, bounds: Bounds = UNBOUNDED) -> None:
        """The keeper has read the route, as a file has it."""
        key = route_key(route.name)
        exact = (key,) if route.guarantee is Guarantee.EXACTLY_ONCE else ()
        passing = (key,) if route.passes_through else ()
        stored = {} if route.store is None else {key: bounds}
        self.engine.follow(stored, (key,), passing, exact, is_exact_at=lambda address: bool(exact))

    def execute(self, command: Command) -> None:
        """Hands the engine a command of the core."""
        self.engine.execute(command)

    def now_ns(self) -> int:
        """Returns the time of both."""
        return START_NS + int(self.play.now * 1e9)

    def happens(self, events: list[Event]) -> None:
        """Hands the core events of the engine."""
        if events and not self.is_deaf:
            self.play.carry_out(self.play.core.handle(self.id, events, self.play.now))

    def hand_in(self) -> bool:
        """Gives the process what the engine has written."""
        octets = b""
        while view := self.engine.data_to_send():
            octets += bytes(view)
            self.engine.bytes_sent(len(view))
        if self.host.hand_in(self.origin, octets):
            self.commit()
        return bool(octets)

    def commit(self) -> None:
        """The process makes durable what it was given."""
        reply = self.host.commit(self.origin, self.now_ns())
        self.happens(self.engine.receive_data(reply, self.play.now))

    def give(self) -> bool:
        """The engine gets what the process answers."""
        octets = self.host.answer(self.origin, self.now_ns())
        if octets:
            self.happens(self.engine.receive_data(octets, self.play.now))
        return bool(octets)

    def tick(self) -> None:
        """Does what is due."""
        deadline = self.engine.deadline
        if deadline is not None and deadline <= self.play.now:
            self.happens(self.engine.handle_deadline(self.play.now))

    def settle(self) -> None:
        """Lets both do all that they can."""
        for _ in range(40):
            is_busy = self.hand_in()
            if is_busy:
                self.commit()
            is_busy |= self.give()
            self.tick()
            if not is_busy:
                return

    def lose(self) -> None:
        """The core hears that the connection is gone."""
        self.is_lost = True
        self.play.carry_out(self.play.core.handle(self.id, [ConnectionClosed()], self.play.now))

    def leave(self) -> None:
        """The process reads the connection to its end, and makes durable what came over it."""
        self.host.log.commit(self.now_ns())
        self.host.desk.lost(self.origin)


def crashed(host: StoreHost, seed: int) -> FakeDisk:
    """Returns the disk of a process that was killed, perhaps with its machine."""
    return host.disk.crashed(random.Random(seed))
