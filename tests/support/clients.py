"""Clients on our own AMQP 1.0 engine, over real sockets: one sends and counts, one accepts.

They are as plain as can be, so that a test of the router fails for the router's sake.
"""

import contextlib
import itertools
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

import attrs
import trio

from router.model.commands import (
    AttachLink,
    CloseConnection,
    Command,
    GrantCredit,
    ReturnCredit,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.delivery import OutgoingDelivery
from router.model.events import (
    ConnectionClosed,
    ConnectionOpened,
    CreditGranted,
    DeliveriesReceived,
    DeliveriesUpdated,
    Event,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId, LinkName
from router.model.outcome import ACCEPTED, DeliveryState
from router.model.terminus import (
    ALL_OUTCOMES,
    ExpiryPolicy,
    ReceiverSettleMode,
    Role,
    Source,
    Target,
)
from router.wire.engine import EngineSettings
from router.wire.v1_0.engine import Engine10
from tests.support.planes import dial

LINK = LinkId(1)
DATA = b"\x00\x53\x75\xb0"
_names = itertools.count(1)


def message(body: bytes) -> bytes:
    """Encodes a message of one data section."""
    return DATA + struct.pack(">I", len(body)) + body


def body_of(payload: bytes) -> bytes:
    """Returns what ``message`` encoded."""
    return payload.partition(DATA)[2][4:]  # a header before it tells of earlier attempts


@attrs.define(eq=False)
class Client:
    """One connection and one link.

    Attributes:
        closed: how the connection ended by protocol, once it did.
        detached: how the link ended, once it did.
        is_paused: nothing is read from the socket, as from a peer that hangs.
    """

    engine: Engine10
    stream: trio.SocketStream
    attach: AttachLink
    closed: ConnectionClosed | None = None
    detached: LinkDetached | None = None
    is_attached: bool = False
    is_paused: bool = False
    _pulse: trio.Event = attrs.field(factory=trio.Event, init=False)
    _sending: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def run(self) -> None:
        """Converses until the connection is over; a lost one is no error here."""
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._flush()
            while not self.engine.finished:
                while self.is_paused:
                    await self._pulse.wait()
                self._take(await self._receive())
                await self._flush()
        self.pulse()
        await self.stream.aclose()

    async def wait_until(self, is_true: Callable[[], bool], seconds: float = 120) -> None:
        """Waits for something that this client's traffic brings about."""
        with trio.fail_after(seconds):
            while not is_true():
                await self._pulse.wait()

    def pulse(self) -> None:
        """Lets those who wait look again."""
        self._pulse.set()
        self._pulse = trio.Event()

    async def command(self, *commands: Command) -> None:
        """Carries commands out and sends what follows."""
        for each in commands:
            self.engine.execute(each)
        await self._flush()

    def cut(self) -> None:
        """Ends the connection without a word."""
        self.stream.socket.close()

    def react(self, event: Event) -> None:
        """Does what the kind of client does."""

    async def _receive(self) -> list[Event]:
        deadline = self.engine.deadline
        octets: bytes | bytearray | None = None
        with trio.move_on_at(float("inf") if deadline is None else deadline):
            octets = await self.stream.receive_some(1 << 18)
        now = trio.current_time()
        if octets is None:
            return self.engine.handle_deadline(now)
        return (
            self.engine.receive_data(bytes(octets), now) if octets else self.engine.receive_eof(now)
        )

    def _take(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, ConnectionOpened):
                self.engine.execute(self.attach)
            elif isinstance(event, ConnectionClosed):
                self.closed = event
            elif isinstance(event, LinkDetached):
                self.detached = event
            elif isinstance(event, LinkAttached):
                self.is_attached = True
                self.react(event)
            else:
                self.react(event)
        self.pulse()

    async def _flush(self) -> None:
        async with self._sending:
            while octets := bytes(self.engine.data_to_send()):
                self.engine.bytes_sent(len(octets))
                await self.stream.send_all(octets)


@attrs.define(eq=False)
class Sender(Client):
    """Sends bodies as credit allows.

    Attributes:
        bodies: what is still to be sent.
        sent: by number, what has been sent and not settled.
        outcomes: how often each was told.
        accepted: bodies that were.
    """

    bodies: Iterator[bytes] = attrs.field(factory=lambda: iter(()))
    sent: dict[int, bytes] = attrs.field(factory=dict)
    outcomes: Counter[str] = attrs.field(factory=Counter)
    accepted: list[bytes] = attrs.field(factory=list)
    _numbers: Iterator[int] = attrs.field(factory=itertools.count, init=False)

    def react(self, event: Event) -> None:
        match event:
            case CreditGranted(credit=credit, drain=drain):
                run = [self._next(body) for body in itertools.islice(self.bodies, credit)]
                if run:
                    self.engine.execute(SendDeliveries(LINK, run))
                if drain:
                    self.engine.execute(ReturnCredit(LINK))
            case DeliveriesUpdated(numbers=numbers, state=state, settled=settled):
                self.outcomes[type(state).__name__] += len(numbers)
                bodies = [self.sent.pop(number) for number in numbers]
                if state == ACCEPTED:
                    self.accepted += bodies
                if not settled:
                    self.engine.execute(UpdateDeliveries(LINK, numbers, None, settled=True))
            case _:
                pass

    def _next(self, body: bytes) -> OutgoingDelivery:
        number = next(self._numbers)
        self.sent[number] = body
        return OutgoingDelivery(
            number=DeliveryNumber(number),
            tag=DeliveryTag(number.to_bytes(4, "big")),
            payload=message(body),
        )


@attrs.define(eq=False)
class Receiver(Client):
    """Accepts whatever comes.

    Attributes:
        window: credit that is kept open.
        bodies: what has come, in order.
    """

    window: int = 200
    bodies: list[bytes] = attrs.field(factory=list)
    _credit: int = attrs.field(default=0, init=False)

    def react(self, event: Event) -> None:
        match event:
            case LinkAttached():
                self._grant()
            case DeliveriesReceived(deliveries=deliveries):
                self.bodies += [body_of(delivery.payload) for delivery in deliveries]
                numbers = [delivery.number for delivery in deliveries if not delivery.settled]
                self.engine.execute(UpdateDeliveries(LINK, numbers, ACCEPTED, settled=True))
                self._credit -= len(deliveries)
                if self._credit <= self.window // 2:
                    self._grant()
            case _:
                pass

    def _grant(self) -> None:
        self._credit = self.window
        self.engine.execute(GrantCredit(LINK, self.window))


def _engine(container: str, idle_seconds: float) -> Engine10:
    return Engine10(
        EngineSettings(
            is_server=False,
            container=container,
            hostname="localhost",
            idle_seconds=idle_seconds,
            handshake_seconds=30,
        )
    )


def attach_of(role: Role, address: str, name: str) -> AttachLink:
    """Makes what a client asks for."""
    near, far = Source(address=name, outcomes=ALL_OUTCOMES), Target(address=address)
    if role is Role.RECEIVER:
        near, far = Source(address=address, outcomes=ALL_OUTCOMES), Target(address=name)
    return AttachLink(link=LINK, name=LinkName(name), role=role, source=near, target=far)


SomeSender = TypeVar("SomeSender", bound=Sender)
SomeReceiver = TypeVar("SomeReceiver", bound=Receiver)


def sending(
    router: str, address: str, bodies: Iterable[bytes], idle_seconds: float = 120
) -> contextlib.AbstractAsyncContextManager[Sender]:
    """A client that sends ``bodies`` to ``address``, for the length of the block."""
    return sending_as(Sender, router, address, bodies, idle_seconds)


@contextlib.asynccontextmanager
async def sending_as(
    kind: type[SomeSender],
    router: str,
    address: str,
    bodies: Iterable[bytes] = (),
    idle_seconds: float = 120,
) -> AsyncIterator[SomeSender]:
    """The same with a client of another kind."""
    name = f"sender-{next(_names)}"
    stream = await dial(router)
    client = kind(
        _engine(name, idle_seconds),
        stream,
        attach_of(Role.SENDER, address, name),
        bodies=iter(bodies),
    )
    async with _running(client):
        yield client


def receiving(
    router: str, address: str, window: int = 200, idle_seconds: float = 120
) -> contextlib.AbstractAsyncContextManager[Receiver]:
    """A client that receives from ``address``, for the length of the block."""
    return receiving_as(partial(Receiver, window=window), router, address, idle_seconds)


@contextlib.asynccontextmanager
async def receiving_as(
    make: Callable[[Engine10, trio.SocketStream, AttachLink], SomeReceiver],
    router: str,
    address: str,
    idle_seconds: float = 120,
) -> AsyncIterator[SomeReceiver]:
    """The same with a client of another kind."""
    name = f"receiver-{next(_names)}"
    stream = await dial(router)
    client = make(_engine(name, idle_seconds), stream, attach_of(Role.RECEIVER, address, name))
    async with _running(client):
        await client.wait_until(lambda: client.is_attached or client.closed is not None)
        yield client


SomeClient = TypeVar("SomeClient", bound=Client)


@contextlib.asynccontextmanager
async def resuming_as(
    kind: Callable[[Engine10, trio.SocketStream, AttachLink], SomeClient],
    router: str,
    name: str,
    attach: AttachLink,
    unsettled: Mapping[DeliveryTag, DeliveryState | None] | None,
) -> AsyncIterator[SomeClient]:
    """A client whose link outlives its connections, and settles second (§2.6.13).

    Args:
        kind: of the client.
        router: where it connects.
        name: of its container and of its link.
        attach: with address and role; see ``attach_of``.
        unsettled: its map; None: it is here for the first time.
    """
    keeping: Any = {"expiry_policy": ExpiryPolicy.CONNECTION_CLOSE, "expiry_seconds": 600}
    assert isinstance(attach.source, Source)
    assert isinstance(attach.target, Target)
    attach = attrs.evolve(
        attach,
        source=attrs.evolve(attach.source, **keeping),
        target=attrs.evolve(attach.target, **keeping),
        receiver_settle_mode=ReceiverSettleMode.SECOND,
        unsettled=unsettled,
    )
    client = kind(_engine(name, 120), await dial(router), attach)
    async with _running(client):
        yield client


@contextlib.asynccontextmanager
async def _running(client: Client) -> AsyncIterator[None]:
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.run)
            yield
            if client.closed is None and client.stream.socket.fileno() >= 0:
                with trio.move_on_after(2), contextlib.suppress(trio.BrokenResourceError):
                    await client.command(CloseConnection())
                    await client.wait_until(lambda: client.engine.finished)
            nursery.cancel_scope.cancel()
    finally:
        client.stream.socket.close()  # a client that was refused has not come to it
