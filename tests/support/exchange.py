"""A worker without sockets: core, engines and express lane, and clients on our own engine.

``Exchange`` moves octets between them, in pieces and whenever it is told to. ``Conversation`` makes
up what clients do, by a seed: the same seed leads to the same wishes whatever ``ROUTER_EXPRESS``
is, so that the ways of the router can be compared.
"""

import itertools
import random
from collections.abc import Iterator, Sequence

import attrs

from router.core.core import Core
from router.core.policy import OPEN, Policy
from router.core.settings import CoreSettings
from router.model.commands import (
    AbortDelivery,
    AttachLink,
    Command,
    ContinueDelivery,
    DetachLink,
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
    CreditReturned,
    DeliveriesReceived,
    DeliveriesUpdated,
    DeliveryAborted,
    DeliveryContinued,
    Event,
    LinkAttached,
    LinkDetached,
    OutputPending,
)
from router.model.identity import ConnectionId, DeliveryNumber, DeliveryTag, LinkId, LinkName
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    REJECTED,
    RELEASED,
    DeliveryState,
)
from router.model.terminus import ReceiverSettleMode, Role, SenderSettleMode, Source, Target
from router.routes.route import Route
from router.routes.table import RoutingTable
from router.wire.engine import EngineSettings
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.express import make_express
from tests.support.lane_world import data_section, header_with_ttl


@attrs.define(eq=False)
class Sent:
    """A delivery of a client that sends.

    Attributes:
        state: the last that the client was told; settled: by the router.
    """

    payload: bytes
    state: DeliveryState | None = None
    settled: bool = False
    is_aborted: bool = False


@attrs.define(eq=False)
class Sender:
    """A client's link that sends.

    Attributes:
        begun: the delivery of which more is to come.
    """

    client: "Client"
    link: LinkId
    address: str
    second: bool
    credit: int = 0
    is_attached: bool = False
    sent: list[Sent] = attrs.field(factory=list)
    settling: list[DeliveryNumber] = attrs.field(factory=list)
    begun: DeliveryNumber | None = None

    def begin(self, payload: bytes, settled: bool) -> bool:
        """Sends the first part of a delivery; false: there is no credit for it."""
        assert self.begun is None
        if not self.credit:
            return False
        self.credit -= 1
        self.begun = DeliveryNumber(len(self.sent))
        self.sent.append(Sent(payload, settled=settled))
        tag = DeliveryTag(b"%d" % self.begun)
        first = OutgoingDelivery(self.begun, tag, payload, settled=settled, more=True)
        self.client.engine.execute(SendDeliveries(self.link, [first]))
        return True

    def go_on(self, payload: bytes, more: bool) -> None:
        """Sends a further part of the delivery that was begun."""
        assert self.begun is not None
        self.sent[self.begun].payload += payload
        self.client.engine.execute(ContinueDelivery(self.link, self.begun, payload, more))
        if not more:
            self.begun = None

    def abort(self) -> None:
        """Gives the delivery up that was begun."""
        assert self.begun is not None
        sent = self.sent[self.begun]
        sent.is_aborted = sent.settled = True
        self.client.engine.execute(AbortDelivery(self.link, self.begun))
        self.begun = None

    def send(self, payloads: Sequence[bytes], settled: bool) -> None:
        deliveries = []
        for payload in payloads[: self.credit]:
            number = len(self.sent)
            self.sent.append(Sent(payload, settled=settled))
            tag = DeliveryTag(b"%d" % number)
            deliveries.append(
                OutgoingDelivery(DeliveryNumber(number), tag, payload, settled=settled)
            )
        self.credit -= len(deliveries)
        if deliveries:
            self.client.engine.execute(SendDeliveries(self.link, deliveries))

    def settle(self) -> None:
        """Settles what the receiver has told the outcome of (mode second)."""
        if self.settling:
            numbers, self.settling = self.settling, []
            self.client.engine.execute(UpdateDeliveries(self.link, numbers, ACCEPTED, True))


@attrs.define(eq=False)
class Receiver:
    """A client's link that receives.

    Attributes:
        waiting: numbers and payloads that it has said nothing about.
        received: payloads, in order.
        aborted: deliveries that it has seen the beginning of.
    """

    client: "Client"
    link: LinkId
    address: str
    is_attached: bool = False
    partial: bytes = b""
    aborted: int = 0
    waiting: list[tuple[DeliveryNumber, bytes]] = attrs.field(factory=list)
    received: list[bytes] = attrs.field(factory=list)

    def grant(self, credit: int, drain: bool = False) -> None:
        if self.is_attached:
            self.client.engine.execute(GrantCredit(self.link, credit, drain))

    def answer(self, count: int, settled: bool, *, accepts: bool = False) -> None:
        """Gives the oldest that wait their outcomes, as their payload says, or accepts them."""
        answered, self.waiting = self.waiting[:count], self.waiting[count:]
        outcomes = [ACCEPTED if accepts else outcome_of(payload) for _, payload in answered]
        pairs = zip(outcomes, answered, strict=True)
        for outcome, group in itertools.groupby(pairs, lambda each: each[0]):
            numbers = [number for _, (number, _) in group]
            self.client.engine.execute(UpdateDeliveries(self.link, numbers, outcome, settled))


@attrs.define(eq=False)
class Client:
    """A connection to the router, from both ends.

    Attributes:
        engine, router: the client's engine and the router's.
        inbox: octets on their way to the client; ``outbox``: to the router.
        heard: all octets that the router has sent.
    """

    id: ConnectionId
    engine: Engine10
    router: Engine10
    inbox: bytearray = attrs.field(factory=bytearray)
    outbox: bytearray = attrs.field(factory=bytearray)
    heard: bytearray = attrs.field(factory=bytearray)
    senders: dict[LinkId, Sender] = attrs.field(factory=dict)
    receivers: dict[LinkId, Receiver] = attrs.field(factory=dict)


def message(number: int, size: int, *, ttl: int = 0) -> bytes:
    """A message that carries its number, so that its outcome can be told from it.

    Args:
        ttl: its time to live in milliseconds; 0: it has none.
    """
    body = b"%08d" % number
    section = data_section(size)
    section = section[: len(section) - size] + body + bytes(size - len(body))
    return header_with_ttl(ttl) + section if ttl else section


def number_of(payload: bytes) -> int:
    """Reads the number of a message."""
    at = payload.index(b"\x00\x53\x75")
    at += 5 if payload[at + 3] == 0xA0 else 8
    return int(payload[at : at + 8])


def outcome_of(payload: bytes) -> DeliveryState:
    """What every receiver says of a message: nearly always accepted."""
    special: dict[int, DeliveryState] = {13: REJECTED, 29: RELEASED, 53: MODIFIED_FAILED}
    return special.get(number_of(payload) % 97, ACCEPTED)


class Exchange:
    """The worker, and everybody connected to it."""

    def __init__(
        self,
        mode: str,
        *routes: Route,
        settings: CoreSettings | None = None,
        policy: Policy = OPEN,
    ) -> None:
        self.express = make_express(mode)
        self._link_ids: Iterator[LinkId] = map(LinkId, itertools.count(1))
        self._client_ids: Iterator[LinkId] = map(LinkId, itertools.count(1))
        self.core = Core(
            settings or CoreSettings(router_id="router"),
            RoutingTable(routes or [Route(address="#")]),
            self._link_ids,
            self.express,
            policy=policy,
        )
        self._connection_ids = itertools.count(1)
        self.clients: dict[ConnectionId, Client] = {}
        self.now = 100.0

    # --- connections ------------------------------------------------------------------------------

    def connect(self) -> Client:
        number = next(self._connection_ids)
        ours = EngineSettings(is_server=True, container="router", link_ids=self._link_ids)
        theirs = EngineSettings(
            is_server=False, container=f"client {number}", link_ids=self._client_ids
        )
        client = Client(ConnectionId(number), Engine10(theirs), Engine10(ours, self.express))
        self.clients[client.id] = client
        self.settle_down()
        return client

    def push(self, client: Client, most: int = 1 << 30) -> None:
        """Lets octets of a client reach the router, which does what follows."""
        _collect(client.engine, client.outbox)
        octets = bytes(client.outbox[:most])
        del client.outbox[:most]
        if octets:
            self._handle(client, client.router.receive_data(octets, self.now))

    def _handle(self, client: Client, events: Sequence[Event]) -> None:
        while events:
            self.carry_out(self.core.handle(client.id, events, self.now))
            events = client.router.receive_data(b"", self.now)

    def carry_out(self, orders: Sequence[tuple[ConnectionId, Command]]) -> None:
        for connection, command in orders:
            self.clients[connection].router.execute(command)

    def end_turn(self) -> None:
        """Ends a turn of the data plane: everything that has output sends it."""
        while True:
            self.core.orders_done()
            if self.express is not None:
                self.express.end_turn()
            if not sum([_collect(each.router, each.inbox) for each in self.clients.values()]):
                return

    def pull(self, client: Client, most: int = 1 << 30) -> None:
        """Lets octets of the router reach a client."""
        octets = bytes(client.inbox[:most])
        del client.inbox[:most]
        client.heard += octets
        for event in client.engine.receive_data(octets, self.now) if octets else ():
            self._tell(client, event)

    @staticmethod
    def write(client: Client) -> None:
        """Has a client write what it has to say; what it says later does not change that."""
        _collect(client.engine, client.outbox)

    def settle_down(self) -> None:
        """Moves everything until nothing moves any more."""
        while True:
            self.end_turn()
            moving = sum([len(each.inbox) for each in self.clients.values()])
            for client in self.clients.values():
                self.pull(client)
                moving += _collect(client.engine, client.outbox) + len(client.outbox)
                self.push(client)
            if not moving:
                return

    def wait(self, seconds: float) -> None:
        """Lets time pass for the core."""
        self.now += seconds
        self.carry_out(self.core.handle_deadline(self.now))
        self.settle_down()

    def close(self, client: Client) -> None:
        """Loses a connection."""
        del self.clients[client.id]
        self._handle(client, [])
        self.carry_out(
            [
                order
                for order in self.core.connection_lost(client.id, self.now)
                if order[0] in self.clients
            ]
        )

    # --- clients ----------------------------------------------------------------------------------

    def attach_sender(self, client: Client, address: str, *, second: bool = False) -> Sender:
        sender = Sender(client, next(self._client_ids), address, second)
        client.senders[sender.link] = sender
        client.engine.execute(
            AttachLink(
                link=sender.link,
                name=LinkName(f"sender {sender.link}"),
                role=Role.SENDER,
                source=Source(address="here"),
                target=Target(address=address),
                receiver_settle_mode=ReceiverSettleMode(int(second)),
            )
        )
        return sender

    def attach_receiver(
        self,
        client: Client,
        address: str,
        *,
        second: bool = False,
        mode: SenderSettleMode = SenderSettleMode.MIXED,
    ) -> Receiver:
        receiver = Receiver(client, next(self._client_ids), address)
        client.receivers[receiver.link] = receiver
        client.engine.execute(
            AttachLink(
                link=receiver.link,
                name=LinkName(f"receiver {receiver.link}"),
                role=Role.RECEIVER,
                source=Source(address=address),
                target=Target(address="here"),
                sender_settle_mode=mode,
                receiver_settle_mode=ReceiverSettleMode(int(second)),
            )
        )
        return receiver

    def detach(self, link: Sender | Receiver) -> None:
        link.is_attached = False
        if isinstance(link, Receiver):
            link.waiting.clear()
        link.client.engine.execute(DetachLink(link.link, closed=True))

    def _tell(self, client: Client, event: Event) -> None:
        match event:
            case ConnectionOpened() | CreditReturned() | LinkDetached() | OutputPending():
                pass
            case LinkAttached(link=link):
                ends: dict[LinkId, Sender | Receiver] = {**client.senders, **client.receivers}
                ends[link].is_attached = True
            case CreditGranted(link=link, credit=credit, drain=drain):
                client.senders[link].credit = 0 if drain else credit
                if drain:
                    client.engine.execute(ReturnCredit(link))
            case ConnectionClosed(condition=condition):
                raise AssertionError(f"the router closed a connection: {condition}")
            case DeliveriesUpdated(link=link) if link in client.receivers:
                pass  # the router has settled what the receiver did not
            case DeliveriesUpdated(link=link, numbers=numbers, state=state, settled=settled):
                sender = client.senders[link]
                for number in numbers:
                    sent = sender.sent[number]
                    assert not sent.settled, "settled twice"
                    sent.state, sent.settled = state, settled
                    if not settled and state is not None:
                        assert sender.second, "the router settles first here"
                        sent.settled = True
                        sender.settling.append(number)
            case DeliveriesReceived(link=link, deliveries=deliveries):
                receiver = client.receivers[link]
                assert receiver.is_attached
                for delivery in deliveries:
                    if delivery.more:
                        receiver.partial = delivery.payload
                        continue
                    receiver.received.append(delivery.payload)
                    if not delivery.settled:
                        receiver.waiting.append((delivery.number, delivery.payload))
            case DeliveryContinued(link=link, number=number, payload=payload, more=more):
                receiver = client.receivers[link]
                receiver.partial += payload
                if not more:
                    receiver.received.append(receiver.partial)
                    receiver.waiting.append((number, receiver.partial))
            case DeliveryAborted(link=link):
                client.receivers[link].partial = b""
                client.receivers[link].aborted += 1
            case _:
                raise AssertionError(event)


def _collect(engine: Engine10, into: bytearray) -> int:
    """Takes an engine's output; returns how much it was."""
    before = len(into)
    while octets := bytes(engine.data_to_send()):
        into += octets
        engine.bytes_sent(len(octets))
    return len(into) - before


@attrs.frozen
class Outcome:
    """How a conversation ended.

    Attributes:
        outcomes: by the number of the message, the state that it ended in; None: sent settled.
        received: per receiver, the numbers of the messages that it got, in order.
        carried: deliveries that went by the express lane; 0 without it.
        aborted: numbers of the messages that their senders gave up.
    """

    outcomes: dict[int, DeliveryState | None]
    received: list[list[int]]
    carried: int
    aborted: set[int]


class Conversation:
    """Senders and receivers that do what comes into their heads, and in the end what they must."""

    def __init__(self, seed: int, mode: str, *, has_churn: bool = False) -> None:
        self.has_churn = has_churn
        self.choice = choice = random.Random(seed)
        self.exchange = Exchange(mode)
        self.numbers = itertools.count()
        self.senders: list[Sender] = []
        self.receivers: list[Receiver] = []
        self.second = second = choice.random() < 0.3
        self.gone: list[Receiver] = []
        self.settled_share = choice.choice((0, 0, 0.2))
        self.odd_share = choice.choice((0, 0, 0.02, 0.2))
        self.size = choice.choice((8, 100, 2000))
        self.parts_weight = choice.choice((0, 0, 8, 20))
        addresses = [f"address{number}" for number in range(choice.choice((1, 1, 2)))]
        clients = [self.exchange.connect() for _ in range(choice.randint(2, 5))]
        for _ in range(choice.randint(1, 4)):
            address, client = choice.choice(addresses), choice.choice(clients)
            self.receivers.append(self.exchange.attach_receiver(client, address, second=second))
        self.exchange.settle_down()
        for _ in range(choice.randint(1, 4)):
            address = choice.choice([each.address for each in self.receivers])
            client = choice.choice(clients)
            self.senders.append(self.exchange.attach_sender(client, address, second=second))
        self.exchange.settle_down()

    def lead(self, steps: int) -> Outcome:
        """Leads the conversation to its end."""
        kinds = ("send", "parts", "grant", "answer", "settle", "move", "turn", "churn")
        weights = (20, self.parts_weight, 10, 14, 6, 40, 10, 3 * self.has_churn)
        for _ in range(steps):
            (kind,) = self.choice.choices(kinds, weights)
            getattr(self, f"_{kind}")()
        self._finish()
        carried = [
            link.carried  # type: ignore[attr-defined]  # the kernel's states have it
            for client in self.exchange.clients.values()
            for session in client.router._state.sessions.values()
            for link in session.links.values()
            if link.role is Role.RECEIVER and self.exchange.express is not None
        ]
        return Outcome(
            {
                number_of(each.payload): each.state
                for sender in self.senders
                for each in sender.sent
                if not each.is_aborted
            },
            [[number_of(e) for e in each.received] for each in (*self.receivers, *self.gone)],
            sum(carried),
            {
                number_of(each.payload)
                for sender in self.senders
                for each in sender.sent
                if each.is_aborted
            },
        )

    def _send(self) -> None:
        choice = self.choice
        sender = choice.choice(self.senders)
        settled = choice.random() < self.settled_share
        # The wish is made up first: how much of it credit allows depends on the mode.
        payloads = []
        for _ in range(choice.choice((1, 2, 10, 60))):
            is_odd = choice.random() < self.odd_share
            size = choice.choice((70_000, 8)) if is_odd else self.size
            payloads.append(
                message(next(self.numbers), size, ttl=1000 if is_odd and size == 8 else 0)
            )
        if sender.begun is None:
            sender.send(payloads, settled)

    def _parts(self) -> None:
        """Begins a delivery of several parts, goes on with it, ends it or gives it up."""
        choice = self.choice
        sender = choice.choice(self.senders)
        settled = choice.random() < self.settled_share
        act = choice.choice(("go on", "end", "abort", "abort"))
        size = choice.choice((8, 100, 40_000, 70_000))
        number = next(self.numbers)
        if sender.begun is None:
            sender.begin(message(number, size), settled)
        elif act == "abort":
            sender.abort()
        else:
            sender.go_on(bytes(size), more=act == "go on")

    def _grant(self) -> None:
        self.choice.choice(self.receivers).grant(
            self.choice.choice((1, 5, 50, 500)), self.choice.random() < 0.03
        )

    def _answer(self) -> None:
        choice = self.choice
        choice.choice(self.receivers).answer(choice.choice((1, 10, 100)), choice.random() < 0.7)

    def _settle(self) -> None:
        self.choice.choice(self.senders).settle()

    def _move(self) -> None:
        choice = self.choice
        client = choice.choice(list(self.exchange.clients.values()))
        most = choice.choice((50, 1000, 1 << 30, 1 << 30))
        if choice.random() < 0.5:
            self.exchange.push(client, most)
        else:
            self.exchange.pull(client, most)

    def _turn(self) -> None:
        self.exchange.end_turn()

    def _churn(self) -> None:
        """Has a link, or a whole connection, go away and another one come."""
        choice, exchange = self.choice, self.exchange
        act = choice.choice(("receiver", "sender", "connection"))
        if act == "receiver":
            old = choice.choice(self.receivers)
            if old.is_attached:
                self._replace(old)
                exchange.detach(old)
        elif act == "sender":
            sender = choice.choice(self.senders)
            if sender.is_attached:
                exchange.detach(sender)
                self.senders.remove(sender)
                self._attach_sender(choice.choice(list(exchange.clients.values())), sender.address)
        else:
            lost = choice.choice(list(exchange.clients.values()))
            fresh = exchange.connect()
            exchange.close(lost)
            for sender in [each for each in self.senders if each.client is lost]:
                self.senders.remove(sender)
                self._attach_sender(fresh, sender.address)
            for receiver in [each for each in self.receivers if each.client is lost]:
                self._replace(receiver)
        if choice.random() < 0.5:
            exchange.settle_down()

    def _attach_sender(self, client: Client, address: str) -> None:
        self.senders.append(self.exchange.attach_sender(client, address, second=self.second))

    def _replace(self, old: Receiver) -> None:
        """Lets another receiver take the place of one, on any connection."""
        client = self.choice.choice(list(self.exchange.clients.values()))
        self.receivers.remove(old)
        self.gone.append(old)
        fresh = self.exchange.attach_receiver(client, old.address, second=self.second)
        self.receivers.append(fresh)

    def _finish(self) -> None:
        """Lets everything come to its end."""
        for sender in self.senders:
            if sender.begun is not None:
                sender.abort()
        for repeat in range(200):
            for receiver in self.receivers:
                receiver.grant(1000)
                # What came settled comes again and again to those who give it back.
                receiver.answer(1 << 30, True, accepts=repeat > 20)
            for sender in self.senders:
                sender.settle()
            self.exchange.settle_down()
            if self._is_done:
                break
        for sender in self.senders:
            sender.settle()
        self.exchange.settle_down()

    @property
    def _is_done(self) -> bool:
        express = self.exchange.express
        return (
            all(each.settled for sender in self.senders for each in sender.sent)
            and not any(receiver.waiting for receiver in self.receivers)
            and not self.exchange.core._registry.process.used
            and (express is None or not express.kept_octets)
        )
