"""Two engines of one protocol, ours on both sides, and a core at each that says yes to everything.

What every engine must keep, whatever its protocol, is tested with this (tests/wire/conformance). A
protocol joins by a row in ``PAIRS``.
"""

from collections.abc import Callable
from itertools import count
from typing import TypeVar

import attrs

from router.model.capabilities import Capabilities, Protocol
from router.model.commands import AttachLink, Command, GrantCredit, SendDeliveries
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.events import (
    ConnectionClosed,
    ConnectionOpened,
    CreditGranted,
    DeliveriesReceived,
    DeliveriesUpdated,
    DeliveryContinued,
    Event,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId, LinkName
from router.model.outcome import DeliveryState
from router.model.terminus import Role, Source, Target
from router.wire import hub
from router.wire.engine import Engine, EngineSettings
from router.wire.fast.engine import make_engine as make_fast
from router.wire.v0_9_1.engine import make_engine as make_0_9_1
from router.wire.v0_9r1.engine import make_engine as make_0_9r1
from router.wire.v0_10.engine import make_engine as make_0_10
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.sections import AnnotatedMessage, Properties
from tests.support.accepting import accepting

Kind = TypeVar("Kind", bound=Event)


@attrs.frozen
class Pair:
    """How the engines of a protocol are made.

    Attributes:
        make: makes either side's, by ``is_server``.
        is_lossless: messages arrive octet for octet, and outcomes with all they say.
    """

    protocol: Protocol
    make: Callable[[EngineSettings], Engine]
    is_lossless: bool = False


PAIRS = {
    pair.protocol.value: pair
    for pair in (
        Pair(Protocol.AMQP_1_0, Engine10, is_lossless=True),
        Pair(Protocol.AMQP_0_9_1, make_0_9_1),
        Pair(Protocol.AMQP_0_9R1, make_0_9r1),
        Pair(Protocol.AMQP_FAST, make_fast),
        Pair(Protocol.AMQP_0_10, make_0_10),
    )
}


@attrs.define(eq=False)
class Side:
    """An engine and what its core knows.

    Attributes:
        events: everything it was told, in order.
        credit: link → deliveries that may be sent.
        received: link → deliveries, as far as they have come.
        updates: link → number → state and whether it is settled, as last told.
    """

    engine: Engine
    events: list[Event] = attrs.field(factory=list)
    credit: dict[LinkId, int] = attrs.field(factory=dict)
    received: dict[LinkId, list[ReceivedDelivery]] = attrs.field(factory=dict)
    updates: dict[LinkId, dict[DeliveryNumber, tuple[DeliveryState | None, bool]]] = attrs.field(
        factory=dict
    )

    @property
    def capabilities(self) -> Capabilities:
        """What the engine said of its peer."""
        return self.of(ConnectionOpened)[0].capabilities

    def of(self, kind: type[Kind]) -> list[Kind]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def take(self, events: list[Event], grant: int) -> None:
        """Takes events as a core does that says yes to everything."""
        for event in events:
            self.events.append(event)
            match event:
                case LinkAttached(is_answer=False):
                    self.engine.execute(_yes(event))
                    if event.role is Role.RECEIVER:
                        self.engine.execute(GrantCredit(event.link, grant))
                case LinkAttached():
                    if event.role is Role.RECEIVER:
                        self.engine.execute(GrantCredit(event.link, grant))
                case CreditGranted(link=link, credit=credit):
                    self.credit[link] = credit
                case DeliveriesReceived(link=link, deliveries=run):
                    self.received.setdefault(link, []).extend(run)
                case DeliveryContinued(link=link, payload=payload, more=more):
                    last = self.received[link][-1]
                    last.payload += payload
                    last.more = more
                case DeliveriesUpdated(link=link, numbers=numbers, state=state, settled=settled):
                    told = self.updates.setdefault(link, {})
                    for number in numbers:
                        told[number] = (state, settled)
                case _:
                    pass


def _yes(event: LinkAttached) -> AttachLink:
    return accepting(
        event,
        sender_settle_mode=event.sender_settle_mode,
        receiver_settle_mode=event.receiver_settle_mode,
    )


class Meeting:
    """A client and a server of one protocol.

    Attributes:
        client, server: the sides.
        now: the clock.
    """

    def __init__(self, pair: Pair, *, grant: int = 100, chunk: int = 1 << 20) -> None:
        self.pair = pair
        self.ids = map(LinkId, count(1))
        self.numbers = map(DeliveryNumber, count(1))
        self.now = 0.0
        self.grant = grant
        self.chunk = chunk
        settings = EngineSettings(is_server=True, container="server", link_ids=self.ids)
        self.server = Side(pair.make(settings))
        settings = attrs.evolve(settings, is_server=False, container="client")
        self.client = Side(pair.make(settings))

    def run(self) -> None:
        """Carries octets, and does what time asks for at once, until both are silent."""
        is_moving = True
        while is_moving:
            is_moving = False
            for source, sink in ((self.client, self.server), (self.server, self.client)):
                shown = source.engine.data_to_send()
                if len(shown):
                    is_moving = True
                    size = min(self.chunk, len(shown))
                    sink.take(sink.engine.receive_data(shown[:size], self.now), self.grant)
                    source.engine.bytes_sent(size)
                deadline = sink.engine.deadline
                if deadline is not None and deadline <= self.now:
                    is_moving = True
                    sink.take(sink.engine.handle_deadline(self.now), self.grant)

    def order(self, side: Side, *commands: Command) -> None:
        """Has one side carry out commands, and lets them talk."""
        for command in commands:
            side.engine.execute(command)
        self.run()

    def attach(self, role: Role) -> LinkId:
        """Has the client attach a link to a node of its own; ``role`` is the client's."""
        link = next(self.ids)
        where = f"node-{link}"
        command = AttachLink(
            link=link,
            name=LinkName(f"link-{link}"),
            role=role,
            source=Source(address=where if role is Role.RECEIVER else None),
            target=Target(address=where if role is Role.SENDER else None),
        )
        self.order(self.client, command)
        return link

    def link_at(self, side: Side, role: Role) -> LinkId:
        """The link that was attached last on a side, in a role, and is still there."""
        gone = {event.link for event in side.of(LinkDetached)}
        return [
            event.link
            for event in side.of(LinkAttached)
            if event.role is role and event.link not in gone
        ][-1]

    def payload(self, body: bytes) -> bytes:
        """A message in the pair's own encoding."""
        message = AnnotatedMessage(properties=Properties(), data=[body])
        return hub.from_sections(self.pair.protocol, message)

    def body(self, payload: bytes) -> bytes:
        """The body of a message in the pair's own encoding."""
        return b"".join(hub.to_sections(self.pair.protocol, payload).data)

    def delivery(self, body: bytes, *, settled: bool = False) -> OutgoingDelivery:
        """A delivery in the pair's own encoding, the next by number."""
        number = next(self.numbers)
        return OutgoingDelivery(
            number,
            DeliveryTag(number.to_bytes(4, "big")),
            self.payload(body),
            self.pair.protocol,
            settled=settled,
        )

    def send(
        self, side: Side, link: LinkId, *bodies: bytes, settled: bool = False
    ) -> list[DeliveryNumber]:
        """Sends deliveries, as credit allows; returns their numbers."""
        run = [self.delivery(body, settled=settled) for body in bodies]
        numbers = [each.number for each in run]
        while run:
            credit = side.credit.get(link, 0)
            assert credit > 0, "no credit"
            side.credit[link] = credit - len(run[:credit])
            self.order(side, SendDeliveries(link, run[:credit]))
            run = run[credit:]
        return numbers

    def closed(self, side: Side) -> list[ConnectionClosed]:
        """How often, and how, a side was told that the connection has ended."""
        return side.of(ConnectionClosed)
