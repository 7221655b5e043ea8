"""A stage for playbook tests of the core.

``Play`` holds a core and a clock that only ``wait`` moves. ``Peer`` is a connection with a fake
engine and a peer behind it: it records what the core orders and fails at once if an order breaks
a rule that every engine relies on (credit exceeded, a number used twice, a delivery settled twice,
one begun while another is unfinished, …).
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from router.core.core import Core
from router.core.homes import Homes
from router.core.lanes import Express
from router.core.notices import Notice
from router.core.policy import OPEN, Policy
from router.core.settings import ContainerTerms, CoreSettings
from router.core.turn import Order
from router.model.capabilities import Capabilities, Protocol
from router.model.commands import (
    AbortDelivery,
    AddressesChanged,
    AttachLink,
    CloseConnection,
    Command,
    ContinueDelivery,
    DetachLink,
    GrantCredit,
    HoldWindow,
    RefuseLink,
    ReportRecorded,
    ReturnCredit,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.events import (
    AddressesWatched,
    AttachConfirmed,
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
    RecordAwaited,
    SessionEnded,
)
from router.model.identity import (
    ConnectionId,
    ContainerId,
    DeliveryNumber,
    DeliveryTag,
    LinkId,
    LinkName,
)
from router.model.outcome import ACCEPTED, DeliveryState, Outcome
from router.model.terminus import (
    PRIORITY,
    Coordinator,
    ExpiryPolicy,
    ReceiverSettleMode,
    Role,
    SenderSettleMode,
    Source,
    Target,
)
from router.routes.route import Route
from router.routes.table import RoutingTable

AMQP = Capabilities(
    protocol=Protocol.AMQP_1_0,
    settles_second=True,
    streams=True,
    annotates=True,
    names_links=True,
    writes_urls=True,
    filters=True,
    accepts_links=True,
)
"""What a peer with AMQP 1.0 in full can do."""

RESUMING = attrs.evolve(AMQP, resumes_links=True)
"""The same of a peer that is known to resume its links."""

Map = dict[DeliveryTag, DeliveryState | None]


@attrs.define(eq=False, kw_only=True)
class SenderEnd:
    """A peer's sending link, and the fake engine's state of our end of it."""

    peer: "Peer"
    link: LinkId
    name: LinkName
    attach: AttachLink | None = None
    refused: Condition | None = None
    detached: DetachLink | None = None
    credit: int = 0
    ahead: int | None = None
    drained: bool = False
    held: bool = False
    partial: DeliveryNumber | None = None
    unsettled: dict[DeliveryNumber, DeliveryTag] = attrs.field(factory=dict)
    told: dict[DeliveryNumber, list[tuple[DeliveryState | None, bool]]] = attrs.field(factory=dict)
    numbers: Iterator[int] = attrs.field(factory=itertools.count)
    records_reported: int = 0

    def await_record(self) -> None:
        """Asks to hear when what was sent is on record."""
        self.peer.happens(RecordAwaited(self.link))

    def send(self, *payloads: bytes | str, **fields: Any) -> list[DeliveryNumber]:
        """Sends one delivery per payload, in one run."""
        deliveries = [self.delivery(payload, **fields) for payload in payloads]
        self.peer.happens(self.run(deliveries))
        return [delivery.number for delivery in deliveries]

    def run(self, deliveries: list[ReceivedDelivery]) -> DeliveriesReceived:
        """Accounts for deliveries, as the engine does, and gives the event."""
        for delivery in deliveries:
            self.credit -= 1
            if not delivery.settled:
                self.unsettled[delivery.number] = delivery.tag
            self.partial = delivery.number if delivery.more else None
        return DeliveriesReceived(self.link, deliveries)

    def delivery(
        self, payload: bytes | str, tag: bytes | None = None, **fields: Any
    ) -> ReceivedDelivery:
        """Makes a delivery with the next number."""
        octets = payload.encode() if isinstance(payload, str) else payload
        number = DeliveryNumber(next(self.numbers))
        own_tag = DeliveryTag(b"t%d" % number if tag is None else tag)
        delivery = ReceivedDelivery(number, own_tag, octets)
        for field, value in fields.items():
            setattr(delivery, field, value)
        return delivery

    def go_on(self, payload: bytes, more: bool = True, settled: bool = False) -> None:
        """Sends a further part."""
        assert self.partial is not None
        number = self.partial
        if not more:
            self.partial = None
        self.peer.happens(DeliveryContinued(self.link, number, payload, more, settled))

    def abort(self) -> None:
        assert self.partial is not None
        number, self.partial = self.partial, None
        self.unsettled.pop(number, None)
        self.peer.happens(DeliveryAborted(self.link, number))

    def update(
        self,
        *numbers: DeliveryNumber,
        state: DeliveryState | None = None,
        settled: bool = False,
    ) -> None:
        """Tells a state of deliveries, or settles them."""
        if settled:
            for number in numbers:
                del self.unsettled[number]
        self.peer.happens(DeliveriesUpdated(self.link, list(numbers), state, settled))

    def settle(self, *numbers: DeliveryNumber, state: DeliveryState | None = None) -> None:
        self.update(*numbers, state=state, settled=True)

    def is_detached(self) -> bool:
        """Tells whether the core has detached it."""
        return self.detached is not None

    def is_live(self) -> bool:
        """Tells whether it is attached."""
        return not self.peer.is_lost and self.peer.sends.get(self.link) is self

    def is_held(self) -> bool:
        """Tells whether its window is held."""
        return self.held

    def was_drained(self) -> bool:
        """Tells whether the last grant asked for the credit to be used up or given back."""
        return self.drained

    def outcome(self, number: DeliveryNumber) -> tuple[DeliveryState | None, bool] | None:
        """Gives the last state that the sender was told, and whether it was settled."""
        told = self.told.get(number)
        return told[-1] if told else None

    def give_back_credit(self) -> None:
        """Answers a drain."""
        self.credit = 0
        self.peer.happens(CreditReturned(self.link, 0))

    def detach(self, closed: bool = True, condition: Condition | None = None) -> None:
        self.peer.sends.pop(self.link, None)
        self.peer.happens(LinkDetached(self.link, closed, condition))

    def leave(self) -> None:
        """Detaches it, and can still speak of what is unsettled, until the session ends."""
        self.peer.left[self.link] = self.peer.sends.pop(self.link)
        self.peer.happens(LinkDetached(self.link, False, is_numbered=bool(self.unsettled)))


@attrs.define(eq=False, kw_only=True)
class ReceiverEnd:
    """A peer's receiving link, and the fake engine's state of our end of it."""

    peer: "Peer"
    link: LinkId
    name: LinkName
    attach: AttachLink | None = None
    refused: Condition | None = None
    detached: DetachLink | None = None
    credit: int = 0
    drains_answered: int = 0
    received: list[OutgoingDelivery] = attrs.field(factory=list)
    runs: list[int] = attrs.field(factory=list)
    partial: DeliveryNumber | None = None
    bodies: dict[int, bytes] = attrs.field(factory=dict)
    aborted: list[DeliveryNumber] = attrs.field(factory=list)
    unsettled: dict[DeliveryNumber, DeliveryTag] = attrs.field(factory=dict)
    told: dict[DeliveryNumber, list[tuple[DeliveryState | None, bool]]] = attrs.field(factory=dict)
    records_reported: int = 0

    def await_record(self) -> None:
        """Asks to hear when the outcomes that it has sent are on record."""
        self.peer.happens(RecordAwaited(self.link))

    @property
    def payloads(self) -> list[bytes]:
        """Whole payloads of what was received, in order, aborted ones left out."""
        return [
            self.bodies[delivery.number]
            for delivery in self.received
            if delivery.number not in self.aborted and delivery.number != self.partial
        ]

    @property
    def last(self) -> OutgoingDelivery:
        return self.received[-1]

    def is_detached(self) -> bool:
        """Tells whether the core has detached it."""
        return self.detached is not None

    def is_live(self) -> bool:
        """Tells whether it is attached."""
        return not self.peer.is_lost and self.peer.receives.get(self.link) is self

    def grant(self, credit: int, drain: bool = False) -> None:
        self.credit = credit
        self.peer.happens(CreditGranted(self.link, credit, drain))

    def update(
        self,
        *numbers: DeliveryNumber,
        state: DeliveryState | None = ACCEPTED,
        settled: bool = True,
    ) -> None:
        if settled:
            for number in numbers:
                del self.unsettled[number]
        self.peer.happens(DeliveriesUpdated(self.link, list(numbers), state, settled))

    def accept(self, *numbers: DeliveryNumber) -> None:
        """Accepts and settles deliveries; without numbers all that are unsettled."""
        self.update(*(numbers or tuple(self.unsettled)))

    def detach(self, closed: bool = True, condition: Condition | None = None) -> None:
        self.peer.receives.pop(self.link, None)
        self.peer.happens(LinkDetached(self.link, closed, condition))

    def leave(self) -> None:
        """Detaches it, and can still speak of what is unsettled, until the session ends."""
        self.peer.left[self.link] = self.peer.receives.pop(self.link)
        self.peer.happens(LinkDetached(self.link, False, is_numbered=bool(self.unsettled)))

    def told_last(self, number: DeliveryNumber) -> tuple[DeliveryState | None, bool] | None:
        told = self.told.get(number)
        return told[-1] if told else None


@attrs.define(eq=False)
class WatchEnd:
    """A peer's interest in a pattern.

    Attributes:
        addresses: those that it has been told of and that are not gone; None: not accepted yet.
    """

    peer: "Peer"
    link: LinkId
    addresses: set[str] | None = None
    refused: Condition | None = None

    @property
    def is_answered(self) -> bool:
        """Whether the core has said yes."""
        return self.addresses is not None

    def changed(self, come: tuple[str, ...], gone: tuple[str, ...]) -> None:
        """Takes what the core tells, and holds it to the rules."""
        known = self.addresses or set()
        assert not known.intersection(come), "told twice"
        assert known.issuperset(gone), "gone before it came"
        self.addresses = (known | set(come)) - set(gone)

    def end(self) -> None:
        """Watches no more."""
        del self.peer.watches[self.link]
        self.peer.happens(LinkDetached(self.link, closed=True))


@attrs.define(eq=False)
class Peer:
    """A connection.

    Attributes:
        is_silent: it does not show that it reads our attaches, until ``speak`` is called.
        left: ends that were detached and can still be spoken of.
    """

    play: "Play"
    id: ConnectionId
    container: str
    sends: dict[LinkId, SenderEnd] = attrs.field(factory=dict)
    receives: dict[LinkId, ReceiverEnd] = attrs.field(factory=dict)
    asked: dict[LinkId, AttachLink] = attrs.field(factory=dict)
    watches: dict[LinkId, WatchEnd] = attrs.field(factory=dict)
    left: "dict[LinkId, SenderEnd | ReceiverEnd]" = attrs.field(factory=dict)
    closed: CloseConnection | None = None
    is_congested: bool = False
    is_lost: bool = False
    is_silent: bool = False

    def happens(self, *events: Event) -> list[Order]:
        """Hands events of this connection to the core, and its orders to whom they concern."""
        return self.play.carry_out(self.play.core.handle(self.id, events, self.play.now))

    def watch(self, pattern: str) -> WatchEnd:
        """Watches the addresses of a pattern."""
        link = self.play.next_link()
        end = self.watches[link] = WatchEnd(self, link)
        self.happens(AddressesWatched(link, pattern))
        return end

    # Attaching

    def attach_sender(
        self,
        address: str | None = "orders",
        *,
        name: str | None = None,
        unsettled: Map | None = None,
        second: bool = False,
        outcomes: tuple[str, ...] = (),
        default_outcome: Outcome | None = None,
        policy: ExpiryPolicy = ExpiryPolicy.SESSION_END,
        seconds: int = 0,
        dynamic: bool = False,
        node_properties: dict[object, object] | None = None,
        target: Target | Coordinator | None = None,
        incomplete: bool = False,
        mode: SenderSettleMode = SenderSettleMode.MIXED,
        properties: dict[object, object] | None = None,
        session: int | None = None,
    ) -> SenderEnd:
        link = self.play.next_link()
        own_name = self.play.name(link, name)
        end = self.sends[link] = SenderEnd(peer=self, link=link, name=own_name)
        asked = Target(
            address=address,
            expiry_policy=policy,
            expiry_seconds=seconds,
            dynamic=dynamic,
            dynamic_node_properties=node_properties,
        )
        self.happens(
            LinkAttached(
                link=link,
                name=own_name,
                role=Role.RECEIVER,
                is_answer=False,
                source=Source(address="here", outcomes=outcomes, default_outcome=default_outcome),
                target=target or asked,
                sender_settle_mode=mode,
                receiver_settle_mode=ReceiverSettleMode(int(second)),
                unsettled=unsettled,
                incomplete_unsettled=incomplete,
                properties=properties or {},
                may_be_late=True,
                session=session,
            )
        )
        return end

    def attach_receiver(
        self,
        address: str | None = "orders",
        *,
        credit: int = 0,
        name: str | None = None,
        unsettled: Map | None = None,
        second: bool = False,
        mode: SenderSettleMode = SenderSettleMode.MIXED,
        max_message_octets: int = 0,
        policy: ExpiryPolicy = ExpiryPolicy.SESSION_END,
        seconds: int = 0,
        dynamic: bool = False,
        node_properties: dict[object, object] | None = None,
        source: Source | None = None,
        incomplete: bool = False,
        priority: int = 0,
        properties: dict[object, object] | None = None,
        session: int | None = None,
    ) -> ReceiverEnd:
        link = self.play.next_link()
        own_name = self.play.name(link, name)
        end = self.receives[link] = ReceiverEnd(peer=self, link=link, name=own_name)
        asked = Source(
            address=address,
            expiry_policy=policy,
            expiry_seconds=seconds,
            dynamic=dynamic,
            dynamic_node_properties=node_properties,
        )
        self.happens(
            LinkAttached(
                link=link,
                name=own_name,
                role=Role.SENDER,
                is_answer=False,
                source=source or asked,
                target=Target(address="there"),
                sender_settle_mode=mode,
                receiver_settle_mode=ReceiverSettleMode(int(second)),
                unsettled=unsettled,
                incomplete_unsettled=incomplete,
                max_message_octets=max_message_octets,
                properties={PRIORITY: priority} if priority else properties or {},
                may_be_late=True,
                session=session,
            )
        )
        if credit:
            end.grant(credit)
        return end

    def answer(
        self, address: str | None = None, role: Role | None = None, **fields: Any
    ) -> SenderEnd | ReceiverEnd:
        """Answers the oldest attach that the core has asked for (only that to ``address``)."""
        for asked in self.asked.values():
            there = asked.target if asked.role is Role.SENDER else asked.source
            assert isinstance(there, Source | Target)
            if address in (None, there.address) and role in (None, asked.role):
                break
        else:
            raise AssertionError(f"no attach to {address} among {self.asked}")
        link = asked.link
        del self.asked[link]
        event = LinkAttached(
            link=link,
            name=asked.name,
            role=asked.role,
            is_answer=True,
            source=asked.source,
            target=asked.target,
            sender_settle_mode=asked.sender_settle_mode,
            receiver_settle_mode=asked.receiver_settle_mode,
        )
        event = attrs.evolve(event, **fields)
        if asked.role is Role.SENDER:
            receiver = ReceiverEnd(peer=self, link=link, name=asked.name, attach=asked)
            self.receives[link] = receiver
            self.happens(event)
            return receiver
        sender = SenderEnd(peer=self, link=link, name=asked.name, attach=asked)
        self.sends[link] = sender
        self.happens(event)
        return sender

    def answer_receiver(self, address: str | None = None, credit: int = 0) -> ReceiverEnd:
        """Answers an attach on which the core sends, and grants credit."""
        end = self.answer(address, Role.SENDER)
        assert isinstance(end, ReceiverEnd)
        if credit:
            end.grant(credit)
        return end

    def answer_sender(self, address: str | None = None, **fields: Any) -> SenderEnd:
        """Answers an attach on which the core receives."""
        end = self.answer(address, Role.RECEIVER, **fields)
        assert isinstance(end, SenderEnd)
        return end

    def wants_receiver(self) -> str | None:
        """Gives the address of an attach on which the core sends, if one is not answered yet."""
        for asked in self.asked.values():
            if asked.role is Role.SENDER and isinstance(asked.target, Target):
                return asked.target.address
        return None

    def wants_sender(self) -> str | None:
        """Gives the address of an attach on which the core receives, likewise."""
        for asked in self.asked.values():
            if asked.role is Role.RECEIVER and asked.source is not None:
                return asked.source.address
        return None

    def refuse(self, condition: Condition | None = None) -> None:
        """Refuses the oldest attach that the core has asked for."""
        link, asked = next(iter(self.asked.items()))
        del self.asked[link]
        self.happens(
            LinkAttached(
                link=link,
                name=asked.name,
                role=asked.role,
                is_answer=True,
                source=None,
                target=None,
            ),
            LinkDetached(link, True, condition),
        )

    def end_session(self, session: int) -> None:
        """A session ends whose links are detached."""
        self.left.clear()
        self.happens(SessionEnded(session))

    # The connection

    def congest(self, congested: bool = True) -> None:
        self.is_congested = congested
        self.happens(OutputPending(congested))

    def speak(self, end: SenderEnd | ReceiverEnd) -> None:
        """Shows on a link that the answer to its attach was read."""
        self.happens(AttachConfirmed(end.link))

    def lose(self) -> None:
        """The socket is gone."""
        self.is_lost = True
        self.play.carry_out(self.play.core.connection_lost(self.id, self.play.now))

    def close(self) -> None:
        self.is_lost = True
        self.happens(ConnectionClosed())

    # The fake engine

    def execute(self, command: Command) -> None:
        """Carries out what the core orders, and holds it to the rules."""
        assert not self.is_lost, f"{command} for a connection that is gone"
        match command:
            case AttachLink():
                self._attach(command)
            case AddressesChanged(link=link, come=come, gone=gone):
                self.watches[link].changed(come, gone)
            case RefuseLink(link=link, condition=condition) if link in self.watches:
                self.watches.pop(link).refused = condition
            case RefuseLink(link=link, condition=condition):
                refused = self.sends.pop(link, None) or self.receives.pop(link)
                refused.refused = condition
            case DetachLink(link=link):
                self.asked.pop(link, None)
                detached = self.sends.pop(link, None) or self.receives.pop(link, None)
                if detached is not None:
                    detached.detached = command
                    if not command.closed and command.condition is None:
                        self.left[link] = detached
            case GrantCredit(link=link, credit=credit, drain=drain, ahead=ahead):
                self.sends[link].credit = credit
                self.sends[link].ahead = ahead
                self.sends[link].drained = drain
            case HoldWindow(link=link, held=held):
                assert self.sends[link].held is not held, "nothing changes"
                self.sends[link].held = held
            case ReportRecorded(link=link):
                asked = self.sends.get(link) or self.receives[link]
                asked.records_reported += 1
            case ReturnCredit(link=link):
                self.receives[link].credit = 0
                self.receives[link].drains_answered += 1
            case SendDeliveries(link=link, deliveries=deliveries):
                self._receive(self.receives[link], deliveries)
            case ContinueDelivery(link=link, number=number, payload=payload, more=more):
                end = self.receives[link]
                assert end.partial == number, "only the delivery last begun goes on"
                assert not self.is_congested, "no payload while congested"
                end.bodies[number] += payload
                end.partial = number if more else None
            case AbortDelivery(link=link, number=number):
                end = self.receives[link]
                assert end.partial == number, "only a delivery that is not finished is aborted"
                end.partial = None
                end.aborted.append(number)
                end.unsettled.pop(number, None)
            case UpdateDeliveries(link=link, numbers=numbers, state=state, settled=settled):
                self._update(link, numbers, state, settled)
            case CloseConnection():
                self.closed = command

    def _attach(self, command: AttachLink) -> None:
        known = self.sends.get(command.link) or self.receives.get(command.link)
        if known is None:
            self.asked[command.link] = command
        else:
            assert known.attach is None, "answered twice"
            known.attach = command
            if command.challenge is not None and not self.is_silent:
                self.play.heard.append(known)

    def _receive(self, end: ReceiverEnd, deliveries: Sequence[OutgoingDelivery]) -> None:
        assert end.attach is not None, "not attached"
        assert end.partial is None, "the delivery before is not finished"
        assert not self.is_congested, "no payload while congested"
        assert deliveries, "an empty run"
        end.credit -= len(deliveries)
        assert end.credit >= 0, "more than the credit"
        end.runs.append(len(deliveries))
        for delivery in deliveries:
            assert end.partial is None, "only the last of a run may be in parts"
            assert delivery.number not in end.bodies, "numbers are used once"
            assert delivery.tag not in end.unsettled.values(), "tags are unique while unsettled"
            assert 1 <= len(delivery.tag) <= 32
            end.received.append(delivery)
            end.bodies[delivery.number] = delivery.payload
            if not delivery.settled:
                end.unsettled[delivery.number] = delivery.tag
            if delivery.more:
                end.partial = delivery.number

    def _update(
        self,
        link: LinkId,
        numbers: Sequence[DeliveryNumber],
        state: DeliveryState | None,
        settled: bool,
    ) -> None:
        end = self.sends.get(link) or self.receives.get(link) or self.left[link]
        assert numbers
        for number in numbers:
            assert number in end.unsettled, f"{number} is settled, or was never sent"
            end.told.setdefault(number, []).append((state, settled))
            if settled:
                del end.unsettled[number]


class Play:
    """The core, its clock, and everybody connected to it.

    Attributes:
        frame_octets: the largest frame that its peers take; 0: any.
    """

    def __init__(
        self,
        *routes: Route | str,
        settings: CoreSettings | None = None,
        policy: Policy = OPEN,
        terms: Mapping[str, ContainerTerms] | None = None,
        random: Callable[[], float] = lambda: 1.0,
        containers: frozenset[str] | None = None,
        homes: Homes | None = None,
        frame_octets: int = 0,
        express: Express | None = None,
    ) -> None:
        self.now = 1000.0
        self.frame_octets = frame_octets
        self.link_ids = map(LinkId, itertools.count(1))
        self.kept: dict[str, object] = {}
        self._tokens = itertools.count(1)
        self.settings = settings or CoreSettings(router_id="dc1")
        self.core = Core(
            self.settings,
            table(*routes),
            self.link_ids,
            express,
            containers=containers,
            homes=homes or Homes(),
            memory=self.kept,
            policy=policy,
            terms=terms or {},
            random=random,
            make_token=lambda: f"token{next(self._tokens)}",
        )
        self.peers: dict[ConnectionId, Peer] = {}
        self.orders: list[Order] = []
        self.heard: list[SenderEnd | ReceiverEnd] = []
        self.noticed: list[Notice] = []

    def name(self, link: LinkId, name: str | None) -> LinkName:
        """Names a link; one of no name has one that no other worker gives."""
        worker = self.settings.worker
        return LinkName(name or (f"link-{worker}.{link}" if worker else f"link-{link}"))

    def next_link(self) -> LinkId:
        return next(self.link_ids)

    def connect(
        self,
        container: str = "client",
        *,
        user: str | None = None,
        vhost: str | None = None,
        capabilities: Capabilities = AMQP,
        dialed: str | None = None,
    ) -> Peer:
        """A connection opens; ``dialed`` names the configured container that it leads to."""
        peer = Peer(self, ConnectionId(len(self.peers) + 1), dialed or container)
        self.peers[peer.id] = peer
        if dialed is not None:
            self.core.dialed(peer.id, dialed)
        peer.happens(
            ConnectionOpened(
                container=ContainerId(container),
                hostname=vhost,
                user=user,
                capabilities=attrs.evolve(capabilities, frame_octets=self.frame_octets),
            )
        )
        return peer

    def dial(self, container: str, *, capabilities: Capabilities = AMQP) -> Peer:
        """The connector has reached a configured container."""
        return self.connect(f"{container}-id", capabilities=capabilities, dialed=container)

    def wait(self, seconds: float) -> None:
        """Time passes, with all that it brings."""
        until = self.now + seconds
        while (deadline := self.core.deadline) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.carry_out(self.core.handle_deadline(self.now))
        self.now = until

    def carry_out(self, orders: list[Order]) -> list[Order]:
        self.orders += orders
        for connection, command in orders:
            self.peers[connection].execute(command)
        self.core.orders_done()
        self.noticed += self.core.notices.take()
        while self.heard:
            end = self.heard.pop(0)
            if end.is_live():
                end.peer.speak(end)
        return orders

    def pass_on(self) -> None:
        """Lets go what waits for a journal; here nothing does."""

    def events(self) -> list[str]:
        """Names of all notices so far."""
        return [notice.event for notice in self.noticed]


def table(*routes: Route | str) -> RoutingTable:
    """Makes a routing table; a string is a direct route."""
    return RoutingTable(
        Route(address=route) if isinstance(route, str) else route for route in routes
    )
