"""A worker without sockets that forwards what is stored: core, store's engine, log, express lane.

Whatever ``mode`` the lane has, the same becomes of the messages.
"""

import errno
import itertools
from collections.abc import Sequence

import attrs

from router.core.core import Core
from router.core.dead_letters import DEAD_LETTERS
from router.core.settings import CoreSettings
from router.core.stored import STORE, STORED
from router.journal.block import Origin, open_block
from router.journal.record import NO_TTL
from router.journal.store.client import StoreClient
from router.journal.store.queues import Bounds, route_key
from router.journal.store.records import StoreWriter
from router.journal.store.references import RunReader, RunReference
from router.journal.store.runs import MessagesRead
from router.model.commands import Command, GrantCredit, UpdateDeliveries
from router.model.events import DeliveriesReceived, Event, LinkAttached
from router.model.identity import ConnectionId, DeliveryKey, DeliveryNumber, LinkId
from router.model.outcome import ACCEPTED, DeliveryState
from router.model.terminus import Role, Target
from router.net.store.engine import StoreEngine
from router.net.store.unfinished import NOTHING
from router.routes.route import Endpoint, Route, Storing
from router.routes.table import RoutingTable
from router.wire.engine import EngineSettings
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.express import make_express
from tests.support.accepting import accepting
from tests.support.exchange import message, number_of
from tests.support.journal import DIRECTORY, SOURCE, START_NS, FakeDisk, key
from tests.support.store_peer import StoreHost, crashed

ROUTE = Route(
    address="telemetry.#",
    to=(Endpoint("cloud"),),
    store=Storing(always=True),
    dead_letter=Endpoint("cloud", "dead"),
)
KEY = route_key(ROUTE.name)
OTHER_WORKER = 7
"""Writes what is stored before the worker comes."""


@attrs.define(eq=False)
class Place:
    """A link on which the target receives.

    Attributes:
        address: of the link.
        waiting: numbers of deliveries without an outcome, and their messages.
        received: numbers of all messages, in the order in which they came.
    """

    address: str
    waiting: list[tuple[DeliveryNumber, int]] = attrs.field(factory=list)
    received: list[int] = attrs.field(factory=list)


class Cloud:
    """The target: a container that the router has dialed."""

    def __init__(self, link_ids: object, window: int) -> None:
        settings = EngineSettings(
            is_server=True,
            container="cloud",
            link_ids=link_ids,  # type: ignore[arg-type]
            session_window_frames=window,
        )
        self.engine = Engine10(settings)
        self.places: dict[LinkId, Place] = {}

    def tell(self, events: Sequence[Event], credit: int) -> None:
        """Hears of links and deliveries, and answers attaches."""
        for event in events:
            match event:
                case LinkAttached(is_answer=False, role=Role.RECEIVER):
                    self.engine.execute(accepting(event))
                    self.engine.execute(GrantCredit(event.link, credit))
                    assert isinstance(event.target, Target)
                    assert event.target.address is not None
                    self.places[event.link] = Place(event.target.address)
                case DeliveriesReceived(link=link, deliveries=deliveries):
                    place = self.places[link]
                    numbers = [number_of(each.payload) for each in deliveries]
                    pairs = zip(deliveries, numbers, strict=True)
                    place.waiting += [(each.number, number) for each, number in pairs]
                    place.received += numbers
                case _:
                    pass


class _Reader(RunReader):
    """Reads what the store refers to, unless the system would have to wait for the disk."""

    def __init__(self, lane: "StoredLane") -> None:
        super().__init__(lane.host.disk, DIRECTORY)
        self._lane = lane

    @property
    def is_able(self) -> bool:
        return not self._lane.is_unable

    def run(self, reference: RunReference) -> MessagesRead:
        self._lane.referred += 1
        if self._lane.waits_for_disk:
            self._lane.unread += 1
            self._lane.is_unable |= self._lane.becomes_unable
            raise BlockingIOError(errno.EAGAIN, "later")
        return super().run(reference)


class StoredLane:
    """The worker, the store's process and the target.

    Attributes:
        now: the clock of all of them, in seconds.
        is_committing: the log makes durable at once what it is given.
        credit: that the target grants on each link when it is attached.
        window: frames that the target takes at a time.
        reads_files: the worker reads the log's files itself ...
        waits_for_disk: ... but not now: it would have to wait.
        is_unable: the file system cannot tell.
        becomes_unable: that is found out when it is asked first.
        referred: how many runs the store has referred to ...
        unread: ... and the worker could not read.
    """

    def __init__(
        self,
        mode: str,
        *,
        disk: FakeDisk | None = None,
        credit: int = 1000,
        reads_files: bool = True,
        window: int = 512,
    ) -> None:
        self.express = make_express(mode)
        self.link_ids = map(LinkId, itertools.count(1))
        table = RoutingTable([ROUTE])
        self.core = Core(CoreSettings(router_id="dc1"), table, self.link_ids, self.express)
        self.now = 100.0
        self.credit = credit
        self.window = window
        self.reads_files = reads_files
        self.waits_for_disk = self.is_unable = self.becomes_unable = False
        self.referred = self.unread = 0
        self._brought = 0
        self.is_committing = True
        self.lives = itertools.count(START_NS + 1)
        self.host = StoreHost.begun(disk or FakeDisk(), next(self.lives), self.now_ns)
        self.unfinished = NOTHING
        self.store: StoreEngine | None = None
        self.ours: Engine10 | None = None
        self.cloud = Cloud(map(LinkId, itertools.count(1)), self.window)
        self.clouds: list[Cloud] = []
        self._ids = itertools.count(1)
        self._store_id = self._cloud_id = ConnectionId(0)
        self._origin = Origin(1, 0)
        self._unheard = b""  # what the worker has sent to the store's process

    @property
    def now_ns(self) -> int:
        """Returns the time."""
        return START_NS + int(self.now * 1e9)

    @property
    def brought(self) -> int:
        """Returns how many messages the lane has taken as they came from the log."""
        lane = None if self.store is None else self.store.lane
        return self._brought + (0 if lane is None else lane.brought)

    # What is stored

    def fill(self, numbers: Sequence[int], address: str = "telemetry.a", **fields: object) -> None:
        """Stores messages that carry numbers."""
        writer = StoreWriter(worker=OTHER_WORKER, incarnation=next(self.lives))
        self.host.log.admit(Origin(OTHER_WORKER, writer.incarnation), 1)
        common: dict[str, object] = {"guarantee": 2, "protocol": 1, "priority": 4}
        common |= {"size": 30, "ttl_milliseconds": NO_TTL, "has_key": False} | fields
        size, has_key = common.pop("size"), common.pop("has_key")
        assert isinstance(size, int)
        for number in numbers:
            name = key(number) if has_key else DeliveryKey(bytes(16))
            writer.stored(
                self.now_ns,
                name,
                SOURCE,
                b"",
                message(number, size),
                route=KEY,
                address=address,
                **common,  # type: ignore[arg-type]
            )
        for sealed in writer.take_blocks():
            self.host.log.append(sealed.octets, [open_block(memoryview(sealed.octets))])
        self.host.log.commit(self.now_ns)

    @property
    def messages(self) -> int:
        """Returns how many messages are stored."""
        return self.host.log.store.holdings.route(KEY).messages

    # Connections

    def connect(self, bounds: Bounds | None = None) -> None:
        """The worker connects to the store."""
        life, self._unheard = next(self.lives), b""
        self._origin, self._store_id = Origin(1, life), ConnectionId(next(self._ids))
        self.store = StoreEngine(
            StoreClient(router="dc1", worker=1, incarnation=life),
            link_ids=self.link_ids,
            clock_ns=lambda: self.now_ns,
            stored_property=STORED,
            dead_property=DEAD_LETTERS,
            unfinished=self.unfinished,
            express=self.express,
            reader=_Reader(self) if self.reads_files else None,
        )
        self.store.follow({KEY: bounds or Bounds()}, (KEY,))
        self.core.dialed(self._store_id, STORE)

    def lose_store(self, seed: int) -> None:
        """The store's process is killed, perhaps with its machine, and begins again."""
        assert self.store is not None
        self._brought = self.brought
        lost, self.store = self.store, None
        self.unfinished = lost.unfinished
        self._carry_out(self.core.connection_lost(self._store_id, self.now))
        self.host = StoreHost.begun(crashed(self.host, seed), next(self.lives), self.now_ns)

    def dial(self) -> None:
        """The worker connects to the target."""
        self._cloud_id = ConnectionId(next(self._ids))
        self.cloud = Cloud(map(LinkId, itertools.count(1)), self.window)
        self.clouds.append(self.cloud)
        settings = EngineSettings(is_server=False, container="dc1", link_ids=self.link_ids)
        self.ours = Engine10(settings, self.express)
        self.core.dialed(self._cloud_id, "cloud")

    def lose_cloud(self) -> None:
        """The connection to the target is lost."""
        self.ours = None
        self._carry_out(self.core.connection_lost(self._cloud_id, self.now))

    # Turns

    def _carry_out(self, orders: Sequence[tuple[ConnectionId, Command]]) -> None:
        for connection, command in orders:
            if connection == self._store_id and self.store is not None:
                self.store.execute(command)
            elif connection == self._cloud_id and self.ours is not None:
                self.ours.execute(command)

    def _happens(self, connection: ConnectionId, events: Sequence[Event]) -> None:
        if events:
            self._carry_out(self.core.handle(connection, events, self.now))

    def end_turn(self) -> None:
        """The turn of the data plane ends: everything that has output sends it.

        What the store's engine does with that may give the lane output once more.
        """
        while True:
            self.core.orders_done()
            dirty = [] if self.express is None else self.express.end_turn()
            if self.store is None or self.store not in dirty:
                return
            while view := self.store.data_to_send():
                self._unheard += bytes(view)
                self.store.bytes_sent(len(view))

    def hear_store(self) -> bool:
        """Octets go to and fro between the worker and the store."""
        if self.store is None:
            return False
        unheard, self._unheard = self._unheard, b""
        is_busy = bool(unheard)
        if unheard:
            self._hand_in(unheard)
        while view := self.store.data_to_send():
            self._hand_in(bytes(view))
            self.store.bytes_sent(len(view))
            is_busy = True
        octets = self.host.answer(self._origin, self.now_ns)
        if octets:
            self._happens(self._store_id, self.store.receive_data(octets, self.now))
        deadline = self.store.deadline
        if deadline is not None and deadline <= self.now:
            self._happens(self._store_id, self.store.handle_deadline(self.now))
            is_busy = True
        return is_busy or bool(octets)

    def _hand_in(self, octets: bytes) -> None:
        assert self.store is not None
        if self.host.hand_in(self._origin, octets) or self.is_committing:
            self.commit()

    def commit(self) -> None:
        """The log makes durable what it has, and says so."""
        if self.store is not None and self._origin in self.host.log.durable:
            reply = self.host.commit(self._origin, self.now_ns)
            self._happens(self._store_id, self.store.receive_data(reply, self.now))

    def hear_cloud(self) -> bool:
        """Octets go to and fro between the worker and the target."""
        if self.ours is None:
            return False
        octets = b""
        while view := self.ours.data_to_send():
            octets += bytes(view)
            self.ours.bytes_sent(len(view))
        self.cloud.tell(self.cloud.engine.receive_data(octets, self.now), self.credit)
        answer = b""
        while view := self.cloud.engine.data_to_send():
            answer += bytes(view)
            self.cloud.engine.bytes_sent(len(view))
        if answer:
            self._happens(self._cloud_id, self.ours.receive_data(answer, self.now))
        return bool(octets or answer)

    def settle_down(self) -> None:
        """Lets everybody do all that they can."""
        is_busy = True
        while is_busy:
            self.end_turn()
            is_busy = self.hear_store() | self.hear_cloud()

    def wait(self, seconds: float) -> None:
        """Lets time pass."""
        self.now += seconds
        if self.core.deadline is not None and self.core.deadline <= self.now:
            self._carry_out(self.core.handle_deadline(self.now))
        self.settle_down()

    # The target

    def places(self, address: str) -> list[Place]:
        """Returns all links of an address that the target has had."""
        return [
            place
            for cloud in self.clouds
            for place in cloud.places.values()
            if place.address == address
        ]

    def received(self, address: str = "telemetry.a") -> list[int]:
        """Returns what the target was sent for an address."""
        return [number for place in self.places(address) for number in place.received]

    def answer(
        self, most: int = 1 << 30, state: DeliveryState | None = ACCEPTED, address: str = ""
    ) -> list[int]:
        """The target says what became of the oldest that it has; returns these."""
        answered = []
        for link, place in self.cloud.places.items():
            if address in ("", place.address):
                said, place.waiting = place.waiting[:most], place.waiting[most:]
                numbers = [number for number, _ in said]
                if numbers:
                    self.cloud.engine.execute(UpdateDeliveries(link, numbers, state, True))
                answered += [number for _, number in said]
        return answered

    def grant(self, credit: int) -> None:
        """The target grants credit on all its links."""
        for link in self.cloud.places:
            self.cloud.engine.execute(GrantCredit(link, credit))
