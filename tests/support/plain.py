"""A plain engine and a plain core, to try the data plane without a protocol.

The protocol: every run of octets is one delivery; ``!`` asks for an orderly close, ``?`` breaks
the engine. What is sent towards a peer arrives as it is.
"""

import itertools
import socket
from collections.abc import Callable, Iterator, Sequence

import attrs

from router.core.notices import Notices
from router.model.capabilities import Capabilities, Protocol
from router.model.commands import CloseConnection, Command, SendDeliveries
from router.model.condition import FRAMING_ERROR, Condition
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.events import (
    ConnectionClosed,
    ConnectionOpened,
    DeliveriesReceived,
    Event,
    LinkAttached,
    OutputPending,
)
from router.model.identity import (
    ConnectionId,
    ContainerId,
    DeliveryNumber,
    DeliveryTag,
    LinkId,
)
from router.net.switchboard import Order

LINK = LinkId(1)


@attrs.define(eq=False)
class PlainEngine:
    """Shows the face of an engine.

    Attributes:
        received: all octets so far.
        farewell: what is sent when it closes.
        idle_seconds: after this long without input it closes; None: never.
        fired: when ``handle_deadline`` was called.
        has_enough: nothing more should be read.
        has_left: it was told that its peer has ended the stream.
    """

    farewell: bytes = b""
    idle_seconds: float | None = None
    high_octets: int = 1 << 20
    received: bytearray = attrs.field(factory=bytearray)
    output: bytearray = attrs.field(factory=bytearray)
    finished: bool = False
    deadline: float | None = None
    fired: list[float] = attrs.field(factory=list)
    saw_eof: bool = False
    is_open: bool = False
    has_enough: bool = False
    has_left: bool = False
    _numbers: Iterator[int] = attrs.field(factory=itertools.count)

    @property
    def output_octets(self) -> int:
        return len(self.output)

    @property
    def waiting_octets(self) -> int:
        return 0

    @property
    def carried(self) -> None:
        return None

    @property
    def input_waits(self) -> bool:
        return self.has_enough

    def receive_data(self, octets: bytes | memoryview, now: float) -> list[Event]:
        arrived = bytes(octets)
        self.received += arrived
        if self.idle_seconds is not None:
            self.deadline = now + self.idle_seconds
        if b"?" in arrived:
            raise ZeroDivisionError("a defect")
        events: list[Event] = []
        if not self.is_open:
            self.is_open = True
            events.append(
                ConnectionOpened(
                    container=ContainerId("plain"),
                    capabilities=Capabilities(protocol=Protocol.AMQP_1_0),
                )
            )
        delivery = ReceivedDelivery(
            number=DeliveryNumber(next(self._numbers)), tag=DeliveryTag(b"t"), payload=arrived
        )
        events.append(DeliveriesReceived(LINK, [delivery]))
        if b"!" in arrived:
            events.append(self._close(None))
        return events

    def peer_left(self) -> None:
        self.has_left = True

    def receive_eof(self, now: float) -> list[Event]:
        self.saw_eof = True
        self.finished = True
        return [ConnectionClosed(Condition(FRAMING_ERROR, "the stream ended"))]

    def execute(self, command: Command) -> None:
        match command:
            case SendDeliveries(deliveries=deliveries):
                for delivery in deliveries:
                    self.output += delivery.payload
            case CloseConnection(condition=condition):
                self._close(condition)
            case _:
                raise AssertionError(command)

    def data_to_send(self) -> memoryview:
        return memoryview(bytes(self.output[:1_000_000]))

    def bytes_sent(self, count: int) -> None:
        del self.output[:count]

    def handle_deadline(self, now: float) -> list[Event]:
        self.fired.append(now)
        self.deadline = None
        return [self._close(Condition(FRAMING_ERROR, "silence"))]

    def _close(self, condition: Condition | None) -> ConnectionClosed:
        self.finished = True
        self.output += self.farewell
        return ConnectionClosed(condition)


Rule = Callable[[ConnectionId, bytes], list[tuple[ConnectionId, bytes]]]


def echo(connection: ConnectionId, octets: bytes) -> list[tuple[ConnectionId, bytes]]:
    """Sends everything back."""
    return [(connection, octets)]


@attrs.define(eq=False)
class PlainCore:
    """Answers each delivery by a rule, and writes down what it is told."""

    rule: Rule = echo
    notices: Notices = attrs.field(factory=Notices)
    deadline: float | None = None
    events: list[tuple[ConnectionId, Event]] = attrs.field(factory=list)
    lost: list[ConnectionId] = attrs.field(factory=list)
    dialed_containers: dict[ConnectionId, str] = attrs.field(factory=dict)
    fired: list[float] = attrs.field(factory=list)
    congested: set[ConnectionId] = attrs.field(factory=set)

    def handle(self, connection: ConnectionId, events: Sequence[Event], now: float) -> list[Order]:
        orders: list[Order] = []
        for event in events:
            self.events.append((connection, event))
            match event:
                case DeliveriesReceived(deliveries=deliveries):
                    for delivery in deliveries:
                        for target, octets in self.rule(connection, delivery.payload):
                            orders.append((target, send(octets)))
                case OutputPending(congested=congested):
                    (self.congested.add if congested else self.congested.discard)(connection)
                case _:
                    pass
        return orders

    def orders_done(self) -> None:
        pass

    def take_awakened(self) -> list[object]:
        return []

    def connection_lost(self, connection: ConnectionId, now: float) -> list[Order]:
        self.lost.append(connection)
        return []

    def dialed(self, connection: ConnectionId, container_name: str) -> None:
        self.dialed_containers[connection] = container_name

    def expect(self, connection: ConnectionId) -> None:
        pass

    def find_better_worker(self, connection: ConnectionId, attach: LinkAttached) -> str | None:
        return None

    def handle_deadline(self, now: float) -> list[Order]:
        self.fired.append(now)
        self.deadline = None
        self.notices.add("core.woken")
        return []


def send(octets: bytes) -> SendDeliveries:
    """An order to send octets."""
    return SendDeliveries(
        LINK,
        [OutgoingDelivery(number=DeliveryNumber(0), tag=DeliveryTag(b"t"), payload=octets)],
    )


def stream_pair(buffer_octets: int | None = None) -> tuple[socket.socket, socket.socket]:
    """Two connected, non-blocking sockets; (ours, the peer's)."""
    ours, peers = socket.socketpair()
    for each in (ours, peers):
        each.setblocking(False)
        if buffer_octets is not None:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_octets)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_octets)
    return ours, peers
