"""Where engines meet the core: events in, orders out, nothing awaited.

Theory of operation. The data plane delivers octets, ends of streams and deadlines to one engine,
which turns them into events; the core answers with orders for any engine. The switchboard carries
the orders out at once and notes the connections whose output has grown (*dirty*), so that the data
plane can send once for each at the end of its turn.

On the express lane (``Lanes``) engines of one worker also produce output for each other without the
core; at the end of each turn the lane is asked which connections have such output.

A new connection that may be handed to another worker has a *transcript* (``handing``). Its first
attach is shown to the core before it acts on it: if the link's home is another worker, that worker
is offered the connection, which is *held* until it has answered.

Any failure in one connection's engine, including a defect of ours, ends that connection:
it is marked with the reason and as dirty, so that the data plane finds it.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final
from typing import Protocol as Interface

import attrs
import structlog

from router.core.notices import Notices
from router.model.commands import CloseConnection, Command
from router.model.events import (
    ConnectionClosed,
    ConnectionOpened,
    DeliveriesAdopted,
    DeliveriesReceived,
    DeliveriesUpdated,
    DeliveryContinued,
    Event,
    LinkAttached,
)
from router.model.identity import ConnectionId
from router.model.log_values import reason_of
from router.net.around import innermost
from router.net.connection import Connection
from router.net.tls_stream import explained
from router.net.transcript import Held
from router.wire.carrier import Carrier

CORE_REST_SECONDS: Final = 1.0
"""After a defect in what the core does by time, so that it does not fill the log."""

Order = tuple[ConnectionId, Command]


class Core(Interface):
    """What the switchboard asks of ``router.core.core.Core``."""

    @property
    def notices(self) -> Notices:
        """What it has to say to people."""

    @property
    def deadline(self) -> float | None:
        """When ``handle_deadline`` wants to be called; None: never."""

    def handle(
        self, connection: ConnectionId, events: Sequence[Event], now: float
    ) -> Iterable[Order]:
        """Answers events of one connection."""

    def orders_done(self) -> None:
        """Records that all orders have been carried out."""

    def take_awakened(self) -> Iterable[object]:
        """Returns engines that have output or events although nothing was received for them."""

    def connection_lost(self, connection: ConnectionId, now: float) -> Iterable[Order]:
        """Records that a connection is gone, orderly or not."""

    def dialed(self, connection: ConnectionId, container_name: str) -> None:
        """Records, before its first events, which container a connection leads to."""

    def handle_deadline(self, now: float) -> Iterable[Order]:
        """Does what time asks for."""

    def expect(self, connection: ConnectionId) -> None:
        """Records that a connection comes from a sibling, where it has been admitted."""

    def find_better_worker(self, connection: ConnectionId, attach: LinkAttached) -> str | None:
        """Returns the name of the sibling to which a new connection is to be handed, if any."""


class Lanes(Interface):
    """What the switchboard asks of ``router.wire.v1_0.express.Express``."""

    def end_turn(self) -> Iterable[object]:
        """Ends the turn; returns the engines that have got output from it, until there are none."""

    def make_carrier(
        self,
        poller: int,
        take: Callable[[int, int, bytes | None], None],
        fail: Callable[[int, Exception], None],
        others: int = -1,
    ) -> Carrier | None:
        """Makes what receives and sends for connections on the lane."""


Offer = Callable[[Connection, str], bool]
"""Offers a connection to a sibling; false: it stays."""


@attrs.define(eq=False)
class Switchboard:
    """The connections of a worker and the core between them.

    Attributes:
        core: decides.
        lanes: the express lane; None: there is none.
        connections: those that the core knows of.
        dirty: those whose output is to be sent, or that are to be ended.
        offer: offers connections to siblings; None: all of them stay.
    """

    core: Core
    lanes: Lanes | None = None
    connections: dict[ConnectionId, Connection] = attrs.field(factory=dict, init=False)
    dirty: list[Connection] = attrs.field(factory=list, init=False)
    offer: Offer | None = attrs.field(default=None, init=False)
    _by_engine: dict[object, Connection] = attrs.field(factory=dict, init=False)
    _ids: Iterator[int] = attrs.field(factory=lambda: itertools.count(1), init=False)
    _core_rests_until: float = attrs.field(default=-math.inf, init=False)
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    def next_id(self) -> ConnectionId:
        """Names a connection to come."""
        return ConnectionId(next(self._ids))

    def add(self, connection: Connection) -> None:
        """Adds a connection; a dialed one is announced to the core."""
        self.connections[connection.id] = connection
        self._by_engine[innermost(connection.engine)] = connection
        if connection.container is not None:
            self.core.dialed(connection.id, connection.container)
        self.touch(connection)

    def touch(self, connection: Connection) -> None:
        """Puts a connection among the dirty."""
        if not connection.is_dirty:
            connection.is_dirty = True
            self.dirty.append(connection)

    def take_dirty(self) -> list[Connection]:
        """Ends the turn: gives those whose output is to be sent, who count as clean from now on."""
        if self.lanes is not None:
            self.core.orders_done()
            for engine in self.lanes.end_turn():
                connection = self._by_engine.get(engine)
                if connection is not None:
                    connection.is_deadline_stale |= connection.carried is None
                    self.touch(connection)
        for engine in self.core.take_awakened():
            connection = self._by_engine.get(engine)
            if connection is not None:
                connection.is_deadline_stale = True
                self.touch(connection)
        dirty, self.dirty = self.dirty, []
        for connection in dirty:
            connection.is_dirty = False
        return dirty

    def receive(self, connection: Connection, octets: bytes | memoryview, now: float) -> int:
        """Passes octets to the engine, and carries out the resulting orders.

        Returns:
            How many deliveries the octets have moved on or settled, off the express lane.
        """
        if connection.held is not None:
            connection.held.late += octets
            return 0
        if connection.transcript is not None:
            connection.transcript.hear(octets, now)
        try:
            events = connection.engine.receive_data(octets, now)
        except Exception as error:  # noqa: BLE001  a defect of one engine ends one connection
            self.fail(connection, error)
            return 0
        self._answer(connection, events, now)
        return _count_moved(events)

    def repeat(self, connection: Connection, octets: bytes | None, then: float, now: float) -> None:
        """Repeats what another worker's engine has done; it can only have opened a connection."""
        engine = connection.engine
        try:
            if octets is None:
                events = engine.handle_deadline(then)
            else:
                events = engine.receive_data(octets, then)
        except Exception as error:  # noqa: BLE001  as in receive
            self.fail(connection, error)
            return
        if any(type(event) is not ConnectionOpened for event in events):
            connection.failure = "another worker has read it otherwise"
        elif events:
            self._note(connection, events, now)
            self.hand_in(connection, events, now)

    def receive_eof(self, connection: Connection, now: float) -> None:
        """Informs the engine that no octets follow."""
        try:
            events = connection.engine.receive_eof(now)
            if connection.stream is not None and connection.stream.alert is not None:
                events = explained(events, connection.stream.alert)
        except Exception as error:  # noqa: BLE001  as in receive
            self.fail(connection, error)
            return
        self._answer(connection, events, now)

    def handle_deadline(self, connection: Connection, now: float) -> None:
        """Calls the engine at its deadline; the connection is reviewed in any case."""
        connection.is_deadline_stale = True
        self.touch(connection)
        if connection.held is not None:
            return  # what is due will be found when it is no longer held
        if connection.transcript is not None:
            connection.transcript.hear(None, now)
        try:
            events = connection.engine.handle_deadline(now)
        except Exception as error:  # noqa: BLE001  as in receive
            self.fail(connection, error)
            return
        self._answer(connection, events, now)

    def fail(self, connection: Connection, error: Exception) -> None:
        """Marks a connection as ended by a defect of ours."""
        connection.failure = f"defect: {type(error).__name__}: {reason_of(error)}"
        self._log.error(
            "connection.failed",
            connection=connection.id,
            container=connection.container,
            address=connection.address,
            exc_info=error,
        )
        self.touch(connection)

    @property
    def core_deadline(self) -> float | None:
        """When ``handle_core_deadline`` wants to be called; None: never."""
        deadline = self.core.deadline
        return None if deadline is None else max(deadline, self._core_rests_until)

    def handle_core_deadline(self, now: float) -> None:
        """Calls the core if its deadline has passed."""
        deadline = self.core_deadline
        if deadline is None or deadline > now:
            return
        try:
            orders = self.core.handle_deadline(now)
        except Exception:  # noqa: BLE001  traffic goes on; what is due is tried again
            self._core_rests_until = now + CORE_REST_SECONDS
            self._log.exception("core.failed", retry_seconds=CORE_REST_SECONDS)
            return
        self.carry_out(orders)

    def lose(self, connection: Connection, now: float) -> None:
        """Removes a connection and informs the core; its engine is not called again."""
        if self.connections.pop(connection.id, None) is None:
            return
        del self._by_engine[innermost(connection.engine)]
        try:
            orders = self.core.connection_lost(connection.id, now)
        except Exception:  # noqa: BLE001  nothing is left to end: say so and go on
            self._log.exception("connection.failed", connection=connection.id)
            return
        self.carry_out(orders)

    def carry_out(self, orders: Iterable[Order]) -> None:
        """Has engines execute orders; those for connections that are gone are void."""
        connections = self.connections
        for connection_id, command in orders:
            connection = connections.get(connection_id)
            if connection is None:
                continue
            try:
                connection.engine.execute(command)
            except Exception as error:  # noqa: BLE001  as in receive
                self.fail(connection, error)
                continue
            if connection.held is not None:
                connection.held.is_spoiled = True
            if type(command) is CloseConnection and connection.condition is None:
                connection.condition = command.condition
            connection.is_deadline_stale = True
            if not connection.is_dirty:
                connection.is_dirty = True
                self.dirty.append(connection)

    def log_notices(self) -> None:
        """Hands the core's notices to the log."""
        for notice in self.core.notices.take():
            tell = self._log.warning if notice.is_warning else self._log.info
            tell(notice.event, **notice.fields)

    def _answer(self, connection: Connection, events: list[Event], now: float) -> None:
        if not events:
            engine = connection.engine
            if not (engine.output_octets or engine.finished or engine.input_waits):
                deadline = engine.deadline
                if deadline is None or deadline >= connection.woken_at:
                    return  # usual traffic: whoever has got output from it is known to the lanes
        connection.is_deadline_stale = True
        if not connection.is_dirty:
            connection.is_dirty = True
            self.dirty.append(connection)
        if not events:
            return
        if connection.opened_at is None or type(events[-1]) is ConnectionClosed:
            self._note(connection, events, now)
        if connection.transcript is not None:
            events = self._withhold(connection, events, now)
        if events:
            self.hand_in(connection, events, now)

    def hand_in(self, connection: Connection, events: Sequence[Event], now: float) -> None:
        """Hands events to the core, and carries out the resulting orders."""
        try:
            orders = self.core.handle(connection.id, events, now)
        except Exception as error:  # noqa: BLE001  ends the connection whose events it choked on
            self.fail(connection, error)
            return
        self.carry_out(orders)

    def _withhold(self, connection: Connection, events: list[Event], now: float) -> list[Event]:
        """Offers a connection to the home of its first link; returns what the core is to handle."""
        assert connection.transcript is not None
        for index, event in enumerate(events):
            if isinstance(event, ConnectionOpened):
                continue
            if not isinstance(event, LinkAttached) or connection.transcript.is_too_long:
                break
            if index:  # the core has to know who it is before it is asked
                self.hand_in(connection, events[:index], now)
            rest = events[index:]
            home = self.core.find_better_worker(connection.id, event)
            if home is not None and self.offer is not None and connection.failure is None:
                connection.held = Held(rest)
                if self.offer(connection, home):
                    return []
                connection.held = None
            connection.transcript = None
            return rest
        else:
            return events
        connection.transcript = None
        return events

    def _note(self, connection: Connection, events: list[Event], now: float) -> None:
        for event in events:
            if isinstance(event, ConnectionOpened):
                connection.opened_at = now
                connection.container = connection.container or event.container
                self._log.info(
                    "connection.opened",
                    connection=connection.id,
                    container=connection.container,
                    address=connection.address,
                    protocol=event.capabilities.protocol.value,
                    user=event.user,
                    seconds=round(now - connection.since, 6),
                )
                if connection.on_open is not None:
                    connection.on_open(event)
                connection.on_open = connection.on_failed_login = None  # not needed any more
            elif isinstance(event, ConnectionClosed):
                connection.condition = event.condition or connection.condition
                connection.by_peer = event.by_peer


def _count_moved(events: list[Event]) -> int:
    """Counts the deliveries that events are about."""
    count = 0
    for event in events:
        match event:
            case DeliveriesReceived(deliveries=deliveries):
                count += len(deliveries)
            case DeliveriesUpdated(numbers=numbers):
                count += len(numbers)
            case DeliveriesAdopted(pairs=pairs):
                count += len(pairs)
            case DeliveryContinued():
                count += 1
            case _:
                pass
    return count
