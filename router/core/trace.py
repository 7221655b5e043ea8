"""Traces the next deliveries of an address: their frames in both directions, and each decision.

Theory of operation. A tracer sees the events that the core receives (``happened``, before the core
handles them) and the core's orders (``ordered`` and ``released``, before the engines carry them
out), and changes nothing. It follows up to ``most`` deliveries, from their arrival on a link of an
address that its pattern matches until they are settled with their sender. It writes a line for
every transfer and disposition of theirs, for attaches, detaches and credit at those addresses, and
for each decision. Links that lead through other workers are followed at their home. Lines use the
words of AMQP 1.0 for every protocol; they show the length of payload, never the payload.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from router.core.node import Feed, Node
from router.core.registry import Registry
from router.core.retired import node_of
from router.core.turn import Order
from router.links.link import Connection, IncomingLink, Link, OutgoingLink
from router.links.pairing import Pairing
from router.model.commands import (
    AbortDelivery,
    AttachLink,
    Command,
    ContinueDelivery,
    DetachLink,
    GrantCredit,
    RefuseLink,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.events import (
    CreditGranted,
    DeliveriesReceived,
    DeliveriesUpdated,
    DeliveryAborted,
    DeliveryContinued,
    Event,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import ConnectionId, DeliveryNumber, LinkId
from router.model.outcome import Accepted, DeliveryState, Rejected
from router.model.terminus import Coordinator, Role
from router.routes.match import Pattern, capture, parse_pattern

LINES_MOST: Final = 10_000
"""The most lines of one trace; then it ends."""


@attrs.frozen(kw_only=True)
class TraceLine:
    """One line of a trace.

    Attributes:
        seconds: since the trace began.
        what: the performative (transfer, disposition, flow, attach, detach) or ``decision``.
        is_incoming: the peer sent it; None: a decision of our own.
        delivery: number of the followed delivery, from 1; None: it concerns the link.
        container: the peer: its configured name, or its container-id.
        link: name of the link.
        text: the rest, for operators.
    """

    seconds: float
    what: str
    is_incoming: bool | None
    delivery: int | None
    container: str | None
    link: str | None
    text: str


@attrs.define(eq=False)
class _Followed:
    """One delivery that is followed; the core may drop its payload before the tracer sees it sent.

    Attributes:
        sent: how often it was sent.
        is_over: it was sent settled the last time.
    """

    index: int
    incoming: IncomingLink
    node: Node | None
    delivery: ReceivedDelivery
    payload: bytes
    sent: int = 0
    is_over: bool = False


@attrs.frozen
class _Said:
    """A line without the delivery and the link that it concerns."""

    what: str
    is_incoming: bool | None
    text: str


_Key = tuple[LinkId, DeliveryNumber]


class Tracer:
    """Follows the next deliveries of the addresses that a pattern matches.

    Attributes:
        lines: not returned by ``take`` yet.
    """

    def __init__(self, registry: Registry, pattern: str, most: int, now: float) -> None:
        """Begins.

        Args:
            registry: of the core.
            pattern: an address, or a pattern of addresses.
            most: deliveries to follow.
            now: on the core's clock.

        Raises:
            PatternError: it is no pattern.
        """
        self.lines: list[TraceLine] = []
        self._registry = registry
        self._pattern: Pattern = parse_pattern(pattern)
        self._most = most
        self._began = self._now = now
        self._written = 0
        self._count = 0
        self._open: dict[_Key, _Followed] = {}
        self._outgoing: dict[_Key, _Followed] = {}
        self._new: list[_Followed] = []
        self._asking: dict[LinkId, tuple[str, str]] = {}

    @property
    def is_done(self) -> bool:
        """Whether all deliveries to follow have ended."""
        return self._written >= LINES_MOST or (self._count == self._most and not self._open)

    def take(self) -> list[TraceLine]:
        """Returns the lines since the last call."""
        lines, self.lines = self.lines, []
        return lines

    # Events

    def happened(self, connection: ConnectionId, events: Sequence[Event], now: float) -> None:
        """Traces events of one connection that the core has not handled yet."""
        self._now = now
        known = self._registry.connections.get(connection)
        if known is not None:
            for event in events:
                self._see_event(self._party(known, getattr(event, "link", None)), event)

    def _party(self, connection: Connection, link: LinkId | None) -> Connection:
        """Returns the guest that a link belongs to; the connection itself if it is no guest's."""
        guest = self._registry.guests.get(link) if link is not None else None
        return connection if guest is None else guest

    def _see_event(self, connection: Connection, event: Event) -> None:
        match event:
            case DeliveriesReceived(link=link, deliveries=deliveries):
                incoming = connection.incoming.get(link)
                if incoming is not None:
                    for delivery in deliveries:
                        self._received(incoming, delivery)
            case DeliveryContinued(link=link, number=number, payload=payload, more=more):
                said = _Said("transfer", True, _part(payload, more))
                self._of_sender(connection, (link, number), said)
            case DeliveryAborted(link=link, number=number):
                self._of_sender(connection, (link, number), _Said("transfer", True, "aborted"))
                self._open.pop((link, number), None)
            case DeliveriesUpdated(link=link, numbers=numbers, state=state, settled=settled):
                self._updated(connection, link, numbers, _disposition(True, state, settled))
                if settled:
                    self._close(link, numbers)
                if isinstance(state, Accepted | Rejected):
                    self._close_custody(link, numbers)
            case CreditGranted(link=link, credit=credit, drain=drain):
                self._of_link(connection.outgoing.get(link), _flow(True, credit, drain))
            case LinkAttached():
                self._asked(connection, event)
            case LinkDetached(link=link, closed=closed, condition=condition):
                self._of_link(_link(connection, link), _detach(True, closed, condition))
            case _:
                pass

    def _received(self, incoming: IncomingLink, delivery: ReceivedDelivery) -> None:
        if self._count == self._most or incoming.link is None:
            return
        node = incoming.queue.node if isinstance(incoming.queue, Feed) else None
        address = delivery.address if incoming.address is None else _address(node)
        if address is None or capture(self._pattern, address) is None:
            return
        self._count += 1
        followed = _Followed(self._count, incoming, node, delivery, delivery.payload)
        self._new.append(followed)
        self._open[incoming.link, delivery.number] = followed
        facts = _facts(delivery)
        if delivery.resume:
            facts.append("resumed")
        if incoming.address is None:
            facts.append(f"to {address}")
        self._write(_Said("transfer", True, ", ".join(facts)), incoming, followed)

    def _asked(self, connection: Connection, event: LinkAttached) -> None:
        terminus = event.target if event.role is Role.RECEIVER else event.source
        if isinstance(terminus, Coordinator) or terminus is None or terminus.address is None:
            return
        if capture(self._pattern, terminus.address) is not None:
            peer = (connection.configured or connection.container, event.name)
            self._asking[event.link] = peer
            kind = "sender" if event.role is Role.RECEIVER else "receiver"
            verb = "answers" if event.is_answer else "asks"
            self._write_line(_Said("attach", True, f"{kind} at {terminus.address} {verb}"), peer)

    # Orders

    def ordered(self, orders: Sequence[Order]) -> None:
        """Traces orders that no engine has carried out yet; none: the events led to no order."""
        self._see_orders(orders)
        for followed in self._new:
            if not followed.sent:
                self._write(_Said("decision", None, self._why_not(followed)), None, followed)
        self._new.clear()
        for key, followed in tuple(self._open.items()):
            if followed.delivery.settled and followed.is_over:
                del self._open[key]

    def released(self, orders: Sequence[Order], now: float) -> None:
        """Traces orders that have waited for the journal and are carried out now."""
        self._now = now
        self._see_orders(orders)

    def _see_orders(self, orders: Sequence[Order]) -> None:
        for connection, command in orders:
            known = self._registry.connections.get(connection)
            if known is not None:
                self._see_command(self._party(known, getattr(command, "link", None)), command)

    def _see_command(self, connection: Connection, command: Command) -> None:
        match command:
            case SendDeliveries(link=link, deliveries=deliveries):
                outgoing = connection.outgoing.get(link)
                if outgoing is not None:
                    for delivery in deliveries:
                        self._sent(outgoing, delivery)
            case ContinueDelivery(link=link, number=number, payload=payload, more=more):
                said = _Said("transfer", False, _part(payload, more))
                self._of_receiver(connection, (link, number), said)
            case AbortDelivery(link=link, number=number):
                self._of_receiver(connection, (link, number), _Said("transfer", False, "aborted"))
            case UpdateDeliveries(link=link, numbers=numbers, state=state, settled=settled):
                self._updated(connection, link, numbers, _disposition(False, state, settled))
                if settled:
                    self._close(link, numbers)
            case GrantCredit(link=link, credit=credit, drain=drain):
                self._of_link(connection.incoming.get(link), _flow(False, credit, drain))
            case AttachLink(link=link):
                self._answered(link, "attached")
            case RefuseLink(link=link, condition=condition):
                self._answered(link, f"refused: {condition}")
            case DetachLink(link=link, closed=closed, condition=condition):
                self._of_link(_link(connection, link), _detach(False, closed, condition))
            case _:
                pass

    def _sent(self, outgoing: OutgoingLink, delivery: OutgoingDelivery) -> None:
        assert outgoing.link is not None
        followed = self._find(outgoing.unsettled.get(delivery.number), delivery)
        if followed is None:
            return
        followed.sent += 1
        followed.is_over = delivery.settled
        self._outgoing[outgoing.link, delivery.number] = followed
        facts = _facts(delivery)
        if delivery.delivery_count:
            facts.append(f"delivery-count {delivery.delivery_count}")
        self._write(_Said("decision", None, self._why(outgoing, followed)), None, followed)
        self._write(_Said("transfer", False, ", ".join(facts)), outgoing, followed)

    def _find(self, pairing: Pairing | None, sent: OutgoingDelivery) -> _Followed | None:
        """Finds the followed delivery that is sent; settled ones by identity of their payload."""
        if pairing is not None:
            link = pairing.incoming.link
            return None if link is None else self._open.get((link, pairing.number))
        for followed in self._open.values():
            if followed.payload is sent.payload and sent.payload:
                return followed
        return None

    def _why(self, outgoing: OutgoingLink, followed: _Followed) -> str:
        """Returns why a delivery is sent to this receiver."""
        node = node_of(outgoing)
        if node is None:
            return "sent on"
        rule = "a dynamic node"
        if node.match is not None:
            explained = self._registry.table.explain(node.match.address)
            rule = f"route {node.route.name}: {explained.rule}"
        count = len(node.outgoing)
        chosen = "the only receiver" if count == 1 else f"{node.route.distribution} over {count}"
        repeated = ", again" if followed.sent > 1 and not node.is_multicast else ""
        return f"{rule}; {chosen}, {outgoing.credit} credit left{repeated}"

    def _why_not(self, followed: _Followed) -> str:
        if all(each is not followed for each in self._open.values()):
            return "answered here"
        pairing = followed.incoming.unsettled.get(followed.delivery.number)
        if pairing is not None and (pairing.outgoing is not None or pairing.fan is not None):
            return "waits until the journal has it"
        node = followed.node
        if node is None:
            return "waits at its address"
        if node.is_paused:
            return f"waits: route {node.route.name} is paused"
        if not node.outgoing:
            return f"waits: nobody receives from {node.key.address}"
        if not node.can_send:
            return f"waits: none of {len(node.outgoing)} receivers has credit"
        return "waits behind others, or for a congested receiver"

    # Lines

    def _updated(
        self, connection: Connection, link: LinkId, numbers: Iterable[DeliveryNumber], said: _Said
    ) -> None:
        for number in numbers:
            self._of_receiver(connection, (link, number), said)
            self._of_sender(connection, (link, number), said)

    def _close(self, link: LinkId, numbers: Iterable[DeliveryNumber]) -> None:
        for number in numbers:
            self._open.pop((link, number), None)

    def _close_custody(self, link: LinkId, numbers: Iterable[DeliveryNumber]) -> None:
        """Ends deliveries that their sender has settled: the receiver's outcome is the last one."""
        for number in numbers:
            followed = self._outgoing.get((link, number))
            if followed is not None and followed.delivery.settled and followed.incoming.link:
                self._open.pop((followed.incoming.link, followed.delivery.number), None)

    def _of_sender(self, connection: Connection, key: _Key, said: _Said) -> None:
        followed, link = self._open.get(key), connection.incoming.get(key[0])
        if followed is not None and link is not None:
            self._write(said, link, followed)

    def _of_receiver(self, connection: Connection, key: _Key, said: _Said) -> None:
        followed, link = self._outgoing.get(key), connection.outgoing.get(key[0])
        if followed is not None and link is not None:
            self._write(said, link, followed)

    def _of_link(self, link: Link | None, said: _Said) -> None:
        address = None if link is None else _address(node_of(link))
        if address is not None and capture(self._pattern, address) is not None:
            self._write(said, link, None)

    def _answered(self, link: LinkId, text: str) -> None:
        peer = self._asking.pop(link, None)
        if peer is not None:
            self._write_line(_Said("attach", False, text), peer)

    def _write(self, said: _Said, link: Link | None, followed: _Followed | None) -> None:
        peer: tuple[str | None, str | None] = (None, None)
        if link is not None:
            configured = None if link.connection is None else link.connection.configured
            peer = (configured or link.key.container, link.key.name)
        self._write_line(said, peer, None if followed is None else followed.index)

    def _write_line(
        self, said: _Said, peer: tuple[str | None, str | None], delivery: int | None = None
    ) -> None:
        if self._written == LINES_MOST:
            return
        self._written += 1
        line = TraceLine(
            seconds=self._now - self._began,
            what=said.what,
            is_incoming=said.is_incoming,
            delivery=delivery,
            container=peer[0],
            link=peer[1],
            text=said.text,
        )
        self.lines.append(line)


def _link(connection: Connection, link: LinkId) -> Link | None:
    return connection.incoming.get(link) or connection.outgoing.get(link)


def _address(node: Node | None) -> str | None:
    return None if node is None else node.key.address


def _facts(delivery: ReceivedDelivery | OutgoingDelivery) -> list[str]:
    facts = [
        f"tag {delivery.tag.hex()}",
        f"{len(delivery.payload)} octets",
        "settled" if delivery.settled else "unsettled",
    ]
    if delivery.more:
        facts.append("more")
    return facts


def _part(payload: bytes, more: bool) -> str:
    return f"{len(payload)} octets, {'more' if more else 'last part'}"


def _flow(is_incoming: bool, credit: int, drain: bool) -> _Said:
    return _Said("flow", is_incoming, f"credit {credit}{', drain' if drain else ''}")


def _detach(is_incoming: bool, closed: bool, condition: Condition | None) -> _Said:
    reason = "" if condition is None else f": {condition}"
    return _Said("detach", is_incoming, f"{'closed' if closed else 'not closed'}{reason}")


def _disposition(is_incoming: bool, state: DeliveryState | None, settled: bool) -> _Said:
    said = "no state" if state is None else type(state).__name__.lower()
    if isinstance(state, Rejected) and state.error is not None:
        said += f" ({state.error})"
    return _Said("disposition", is_incoming, f"{said}, {'settled' if settled else 'unsettled'}")
