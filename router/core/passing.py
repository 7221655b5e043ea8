"""One passage: what is known of a link that leads through, and how its ends say the same.

``passage`` moves passages from their beginning to their end, and sends. Here is their state, the
attach by which one is begun at its home, the answer to the peer, and the table by which an event on
one link becomes a command on the other.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, cast

import attrs

from router.core.alarms import Alarm
from router.core.attach import CHALLENGE
from router.core.branches import Branches
from router.core.guests import GUEST, Introduction
from router.core.mesh.names import (
    EGRESS,
    INGRESS,
    MESH_USER,
    VOUCHED,
    address_of,
    is_site,
    is_site_name,
    link_name,
    read_chain,
)
from router.core.reach import is_sibling
from router.links.attaches import ATTACH
from router.links.link import Connection
from router.model.commands import (
    AbortDelivery,
    AdvertiseWays,
    AttachLink,
    AwaitRecord,
    Command,
    ContinueDelivery,
    GrantCredit,
    RecallDeliveries,
    ReportAttachConfirmed,
    ReportRecorded,
    ReportWaiting,
    ReturnCredit,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.events import (
    AttachConfirmed,
    CreditGranted,
    CreditReturned,
    DeliveriesRecalled,
    DeliveriesReceived,
    DeliveriesRecorded,
    DeliveriesUpdated,
    DeliveryAborted,
    DeliveryContinued,
    Event,
    LinkAttached,
    RecordAwaited,
    WaitingReported,
    WaysAdvertised,
)
from router.model.identity import LinkId, LinkName
from router.model.terminus import PRIORITY, ReceiverSettleMode, Role
from router.model.ways import NODE

SURPLUS_OCTETS: Final = 1 << 18
"""Queued payload in octets, sent ahead of the home's credit, at which a peer is not read."""

_CARRIED: Final = (ATTACH, NODE, PRIORITY, INGRESS, EGRESS, VOUCHED)
"""Properties of an attach that are meant for the other end of a passage."""


@attrs.define(eq=False, kw_only=True)
class Passage:
    """A link of a peer, and ours to its home.

    Attributes:
        peer: whose link it is.
        attach: how the peer asked for it.
        leads_to: name of the home.
        home: connection of the far link; None: the home is away.
        far: the far link; None: it is not attached yet.
        is_answered: the peer's attach has been answered.
        waiting: events of the peer before that.
        alarm: ends the wait for a home that is away.
        takes_parts: the peer accepts deliveries part by part.
        is_amid: a delivery has been forwarded in part.
        begun: the first part of a delivery for a peer that accepts no parts.
        parts: the parts of that delivery received so far.
        credit: of the far link, for a peer that sends.
        ahead: settled deliveries that the home accepts beyond that; None: they need credit, too.
        is_full: the home accepts no more beyond the credit, and the peer knows it.
        surplus: deliveries of the peer beyond both, queued until there is credit.
        surplus_octets: their payload.
        awaits_record: the peer waits until they are on record; the home is asked behind them.
        has_brought: a delivery has come since the home was last asked to drain.
        is_revoked: a peer that receives has taken back its credit.
        branches: the link leads to several homes, and this passage, whose ``attach.link`` is of its
            own, to one of them; None: it has one.
    """

    peer: Connection
    attach: LinkAttached
    leads_to: str
    home: Connection | None = None
    far: LinkId | None = None
    is_answered: bool = False
    waiting: list[Event] = attrs.field(factory=list)
    alarm: Alarm | None = None
    takes_parts: bool = False
    is_amid: bool = False
    begun: ReceivedDelivery | None = None
    parts: list[bytes] = attrs.field(factory=list)
    credit: int = 0
    ahead: int | None = None
    is_full: bool = False
    surplus_octets: int = 0
    surplus: deque[ReceivedDelivery] = attrs.field(factory=deque)
    awaits_record: bool = False
    has_brought: bool = False
    is_revoked: bool = False
    branches: Branches | None = None

    @property
    def link(self) -> tuple[object, ...]:
        """Names the peer's link, whenever it is attached."""
        peer, asked = self.peer, self.attach
        return (peer.container, peer.user, peer.vhost, asked.name, asked.role)

    @property
    def is_chain(self) -> bool:
        """Whether it is part of an exactly-once chain between sites (``mesh.chains``)."""
        return is_site(self.peer) or is_sibling(self.peer)

    @property
    def is_transit(self) -> bool:
        """Whether it is part of a chain of which this router is neither end."""
        return is_site(self.peer) and is_site_name(self.leads_to)

    @property
    def is_volatile(self) -> bool:
        """Whether what is unsettled is in the peer's engine, and dies with its worker."""
        is_kept = self.is_chain or self.peer.capabilities.resumes_links
        return self.attach.unsettled is not None and not is_kept

    @property
    def may_bring(self) -> bool:
        """Whether deliveries may be on their way that the peer can no longer receive.

        They are given back, or they would be in doubt at home, though nobody has had them. The
        links of an engine that keeps its state end at once: the engine's memory may be on its way
        to another worker (``memories``).
        """
        return (
            self.attach.role is Role.SENDER
            and self.is_answered
            and not (self.is_amid or self.is_volatile)
        )

    def follows(self, before: "Passage") -> bool:
        """Returns whether a receiver attaches again a link of which deliveries are given back."""
        same = self.far is None and self.link == before.link
        return same and self.attach.role is Role.SENDER

    # Deliveries beyond the credit

    def hold(self, deliveries: list[ReceivedDelivery]) -> None:
        """Queues deliveries of the peer."""
        self.surplus.extend(deliveries)
        self.surplus_octets += sum([len(delivery.payload) for delivery in deliveries])

    def take_out(self) -> list[ReceivedDelivery]:
        """Removes and returns queued deliveries that may be sent, within credit or ahead of it.

        Nothing is sent ahead of credit while the home's connection is congested.
        """
        run: list[ReceivedDelivery] = []
        surplus = self.surplus
        is_congested = self.home is not None and self.home.is_congested
        while surplus:
            if self.credit > 0:
                self.credit -= 1
            elif self.ahead and surplus[0].settled and not is_congested:
                self.ahead -= 1
            else:
                break
            run.append(surplus.popleft())
        self.surplus_octets -= sum([len(delivery.payload) for delivery in run])
        return run

    # Deliveries in parts

    def watch(self, event: Event) -> None:
        """Records whether a delivery has been forwarded in part."""
        match event:
            case DeliveriesReceived(deliveries=deliveries):
                self.is_amid = deliveries[-1].more
            case DeliveryContinued(more=more):
                self.is_amid = more
            case DeliveryAborted():
                self.is_amid = False
            case _:
                pass

    def gathered(self, event: Event) -> Iterator[Event]:
        """Yields what an event of the home is to a peer that accepts no parts.

        A delivery in frames is sent when it is whole.
        """
        if self.takes_parts or self.peer.capabilities.streams:
            yield event
            return
        match event:
            case DeliveriesReceived(link=link, deliveries=deliveries):
                whole = [delivery for delivery in deliveries if not delivery.more]
                if whole:
                    yield DeliveriesReceived(link, whole)
                for delivery in deliveries[-1:]:
                    if delivery.more:
                        self.begun, self.parts = delivery, [delivery.payload]
            case DeliveryContinued(link=link, payload=payload, more=more):
                self.parts.append(payload)
                if not more and self.begun is not None:
                    payload, self.parts = b"".join(self.parts), []
                    delivery = attrs.evolve(self.begun, payload=payload, more=False)
                    self.begun = None
                    yield DeliveriesReceived(link, [delivery])
            case DeliveryAborted():
                self.begun, self.parts = None, []
            case _:
                yield event


# Attaches


def introduction(passage: Passage, far: LinkId, hostname: str | None) -> AttachLink:
    """Returns the attach of a peer's link at its home, with who the peer is.

    Args:
        passage: the link.
        far: the link to the home.
        hostname: that the peer asked for, as the policy sees it; None: we dialed it.
    """
    peer, asked = passage.peer, passage.attach
    container, user, name = str(peer.container), peer.user, asked.name
    if passage.is_chain:
        container, user, name = _ingress_of(asked)
    guest = Introduction(
        container=container,
        user=user,
        vhost=peer.vhost,
        hostname=hostname,
        name=name,
        is_router=peer.capabilities.is_router,
        is_volatile=passage.is_volatile,
        streams=peer.capabilities.streams,
        keeps_maps=passage.is_chain or not asked.may_be_late,
        frame_octets=_share_of_frame(passage),
        is_neighbor=peer.capabilities.is_neighbor,
        sends_ahead=peer.capabilities.sends_ahead,
    )
    second = ReceiverSettleMode.SECOND if passage.is_volatile else asked.receiver_settle_mode
    return AttachLink(
        link=far,
        name=LinkName(f"{peer.container}:{asked.name}:{far}"),
        role=Role.SENDER if asked.role is Role.RECEIVER else Role.RECEIVER,
        source=asked.source,
        target=asked.target,
        sender_settle_mode=asked.sender_settle_mode,
        receiver_settle_mode=second if asked.role is Role.RECEIVER else asked.receiver_settle_mode,
        unsettled=asked.unsettled,
        incomplete_unsettled=asked.incomplete_unsettled,
        max_message_octets=asked.max_message_octets,
        properties={**_carried(asked), GUEST: guest.property()},
    )


def _ingress_of(asked: LinkAttached) -> tuple[str, str, LinkName]:
    """Returns container, user and link name of the ingress, by which its egress knows a chain."""
    chain = read_chain(asked.properties)
    assert chain is not None, "it has been looked at"
    return chain.ingress, MESH_USER, link_name(chain, str(address_of(asked)))


def next_hop(passage: Passage, far: LinkId, vouched: Mapping[object, object]) -> AttachLink:
    """Returns the attach by which a chain goes on to the next hop.

    Args:
        passage: the link.
        far: the link to the next hop.
        vouched: the property by which this router vouches for a chain that begins here.
    """
    asked = passage.attach
    return AttachLink(
        link=far,
        name=asked.name,
        role=Role.SENDER,
        source=asked.source,
        target=asked.target,
        sender_settle_mode=asked.sender_settle_mode,
        receiver_settle_mode=asked.receiver_settle_mode,
        unsettled=asked.unsettled,
        incomplete_unsettled=asked.incomplete_unsettled,
        properties={**_carried(asked), **vouched},
    )


def answer_of(
    passage: Passage, event: LinkAttached, ttl_seconds: float | None = None
) -> AttachLink:
    """Returns the answer to the peer's attach.

    Args:
        passage: the link.
        event: the answer of its home.
        ttl_seconds: the longest life of a message on its route; None: any.
    """
    asked = passage.attach
    return AttachLink(
        link=asked.link,
        name=asked.name,
        role=asked.role,
        source=event.source,
        target=event.target,
        sender_settle_mode=event.sender_settle_mode,
        receiver_settle_mode=event.receiver_settle_mode,
        unsettled=event.unsettled,
        incomplete_unsettled=event.incomplete_unsettled,
        max_message_octets=event.max_message_octets,
        challenge=cast("int | None", event.properties.get(CHALLENGE)),
        is_exact=True,
        ttl_seconds=ttl_seconds,
        confirms_outcomes=passage.is_volatile,
        properties=_carried(event),
    )


def _carried(event: LinkAttached) -> dict[object, object]:
    """Returns the properties of an attach that are meant for the other end of a passage."""
    return {key: event.properties[key] for key in _CARRIED if key in event.properties}


def _share_of_frame(passage: Passage) -> int:
    """Returns the largest frame of a peer: the maps of all homes have to fit one together."""
    octets = passage.peer.capabilities.frame_octets
    return octets if passage.branches is None else octets // len(passage.branches.homes)


# What is said on one link, on the other


def translate(event: Event, link: LinkId) -> Command | None:
    """Returns the command that repeats an event of one link on another; None: there is none."""
    match event:
        case CreditGranted():
            return GrantCredit(link, event.credit, event.drain, event.ahead)
        case CreditReturned():
            return ReturnCredit(link)
        case AttachConfirmed():
            return ReportAttachConfirmed(link)
        case WaysAdvertised():
            return AdvertiseWays(link, event.ways, event.is_traced)
        case WaitingReported():
            return ReportWaiting(link, event.count)
        case DeliveriesRecalled():
            return RecallDeliveries(link, event.count)
        case RecordAwaited():
            return AwaitRecord(link)
        case DeliveriesRecorded():
            return ReportRecorded(link)
        case DeliveriesReceived():
            return SendDeliveries(link, [_send_on(delivery) for delivery in event.deliveries])
        case DeliveryContinued():
            return ContinueDelivery(link, event.number, event.payload, event.more)
        case DeliveryAborted():
            return AbortDelivery(link, event.number)
        case DeliveriesUpdated():
            return UpdateDeliveries(link, event.numbers, event.state, event.settled)
        case _:
            return None


def _send_on(delivery: ReceivedDelivery) -> OutgoingDelivery:
    return OutgoingDelivery(
        number=delivery.number,
        tag=delivery.tag,
        payload=delivery.payload,
        protocol=delivery.protocol,
        message_format=delivery.message_format,
        settled=delivery.settled,
        more=delivery.more,
        state=delivery.state,
        resume=delivery.resume,
        address=delivery.address,
        key=delivery.key,
        hops=delivery.hops or None,
    )
