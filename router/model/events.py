"""Events of an engine to the core: everything that five protocols can express, in terms of 1.0.

Events that concern deliveries come in runs on one link. An engine emits events in the order in
which the octets that caused them arrived.
"""

from collections.abc import Mapping, Sequence

import attrs

from router.model.capabilities import Capabilities
from router.model.condition import Condition
from router.model.delivery import ReceivedDelivery
from router.model.identity import ContainerId, DeliveryNumber, DeliveryTag, LinkId, LinkName
from router.model.lane import LanePair
from router.model.outcome import DeliveryState
from router.model.terminus import (
    Coordinator,
    ReceiverSettleMode,
    Role,
    SenderSettleMode,
    Source,
    Target,
)
from router.model.ways import Ways


@attrs.frozen(kw_only=True)
class ConnectionOpened:
    """The peer's open has arrived, and ours is sent or queued (§2.4.1).

    Attributes:
        container: the peer's container-id; engines of protocols without one make one up.
        hostname: virtual host that the peer asked for.
        user: authenticated identity; None if anonymous.
        properties: of the peer's open, for people and for recognizing routers.
        alternatives: where else the peer says that its container is found, as it says it
            (``router.wire.alternatives``); None: it says nothing of that.
    """

    container: ContainerId
    hostname: str | None = None
    user: str | None = None
    capabilities: Capabilities
    properties: Mapping[object, object] = attrs.field(factory=dict)
    alternatives: object = None


@attrs.frozen
class ConnectionClosed:
    """The connection has ended by protocol; no event follows. None: orderly, by either side.

    Attributes:
        condition: the error that ended it, of either side.
        by_peer: the peer reported the error; otherwise we found it and reported it to the peer.
    """

    condition: Condition | None = None
    by_peer: bool = False


@attrs.frozen(kw_only=True)
class LinkAttached:
    """The peer has attached a link (§2.6.3): its request, or its answer to our ``AttachLink``.

    A request (``is_answer`` false) must be answered with ``AttachLink`` or ``RefuseLink``.
    An answer with neither source nor target, as its role demands, is a refusal: a
    ``LinkDetached`` with the reason follows, and no delivery may be sent meanwhile.

    Attributes:
        role: our end's role: RECEIVER for a link on which the peer sends.
        unsettled: the peer's map of unsettled deliveries; None if it keeps no state (§2.6.13).
        max_message_octets: largest message the peer accepts; 0 = no limit.
        home: the worker that keeps the suspended link, if the engine knows that it is another
            worker; None otherwise.
        may_be_late: the attach and its map may be outdated: they may have been delayed while the
            peer attached the link again elsewhere; see ``AttachConfirmed``.
        session: names the link's session, if deliveries keep their numbers after the link has been
            detached (§2.7.6); None: they do not.
        dynamic termini are asked for by ``source.dynamic`` or ``target.dynamic``.
    """

    link: LinkId
    name: LinkName
    role: Role
    is_answer: bool
    source: Source | None
    target: Target | Coordinator | None
    sender_settle_mode: SenderSettleMode = SenderSettleMode.MIXED
    receiver_settle_mode: ReceiverSettleMode = ReceiverSettleMode.FIRST
    unsettled: Mapping[DeliveryTag, DeliveryState | None] | None = None
    incomplete_unsettled: bool = False
    max_message_octets: int = 0
    offered_capabilities: tuple[str, ...] = ()
    desired_capabilities: tuple[str, ...] = ()
    properties: Mapping[object, object] = attrs.field(factory=dict)
    home: str | None = None
    may_be_late: bool = False
    session: int | None = None


@attrs.frozen
class AttachConfirmed:
    """The peer has proved that it has read our attach (§2.6.13), which carried a challenge.

    The event is emitted once, before any other event of the link that implies the same.
    """

    link: LinkId


@attrs.frozen
class AddressesWatched:
    """A peer wants to receive from every address that matches a pattern and has a sender.

    Only engines of protocols with such subscriptions emit it. The core answers with
    ``AddressesChanged``, at once and whenever senders of such addresses come or go, or with
    ``RefuseLink``; the engine attaches to the addresses itself. ``LinkDetached`` ends the watch.

    Attributes:
        link: names the subscription; no deliveries are sent on it.
        pattern: in the syntax of routes.
    """

    link: LinkId
    pattern: str


@attrs.frozen
class AddressesReached:
    """A peer that watches a pattern has attached to all reported addresses that it wants.

    Until then messages to those addresses wait for a limited time, unless an attach of the peer
    shows that it is attached already.
    """

    link: LinkId


@attrs.frozen
class LinkDetached:
    """A link endpoint is gone (§2.6.4-6); if the peer detached first, the engine has answered.

    Attributes:
        closed: the terminus is gone as well; otherwise the link is suspended.
        is_numbered: its unsettled deliveries keep their numbers (§2.7.6): ``DeliveriesUpdated`` may
            still follow, and ``UpdateDeliveries`` still reaches the peer, until ``SessionEnded`` or
            a second ``LinkDetached`` for the link.
    """

    link: LinkId
    closed: bool
    condition: Condition | None = None
    is_numbered: bool = False


@attrs.frozen
class SessionEnded:
    """A session has ended, after all its links were detached (§2.5.2).

    Attributes:
        session: as in ``LinkAttached``; a later session may reuse the name.
    """

    session: int


@attrs.frozen
class CreditGranted:
    """How many more deliveries the peer accepts on a link where we send (§2.6.7).

    Attributes:
        credit: deliveries that ``SendDeliveries`` may still send, after all commands so far.
        drain: the peer wants the credit used up or returned: answer with ``ReturnCredit``.
        ahead: settled deliveries that a sibling accepts beyond the credit, as in ``GrantCredit``.
    """

    link: LinkId
    credit: int
    drain: bool = False
    ahead: int | None = None


@attrs.frozen
class WaysAdvertised:
    """A receiving peer, a router, has reported the ways on which it reaches receivers.

    Attributes:
        ways: they replace the ways reported before.
        is_traced: deliveries are to carry the stops that they have passed.
    """

    link: LinkId
    ways: Ways
    is_traced: bool = False


@attrs.frozen
class WaitingReported:
    """A receiving peer, a router, has deliveries of a link for which its receivers lack credit.

    Attributes:
        count: how many.
    """

    link: LinkId
    count: int


@attrs.frozen
class DeliveriesRecalled:
    """A sending peer, a router, has others that can take what waits here (``ReportWaiting``).

    Attributes:
        count: how many it asks for at most, the last ones first.
    """

    link: LinkId
    count: int


@attrs.frozen
class CreditReturned:
    """A sending peer has returned credit, in answer to a drain (§2.6.7).

    Attributes:
        credit: the credit it has left, 0 after a drain.
    """

    link: LinkId
    credit: int


@attrs.frozen
class DeliveriesReceived:
    """A run of deliveries on one link where we receive, in order."""

    link: LinkId
    deliveries: list[ReceivedDelivery]


@attrs.frozen
class DeliveryContinued:
    """A further part of the delivery last begun on a link; each link may have one open delivery.

    Attributes:
        settled: as of this part; once true, it stays true (§2.7.5).
    """

    link: LinkId
    number: DeliveryNumber
    payload: bytes
    more: bool
    settled: bool = False


@attrs.frozen
class DeliveryAborted:
    """A partly sent delivery is void and settled (§2.7.5, aborted)."""

    link: LinkId
    number: DeliveryNumber


@attrs.frozen
class PartsTaken:
    """A receiving peer accepts deliveries on a link part by part from now on (§2.6.14).

    Not emitted on connections where every link does (``Capabilities.streams``).
    """

    link: LinkId


@attrs.frozen
class DeliveriesUpdated:
    """The peer has sent a state of deliveries on one link, or settled them (§2.7.6).

    On links where we send, the numbers are the core's; else they are the engine's.
    Numbers that are settled already never appear.

    Attributes:
        is_unsent: the engine says so, not the peer, to which nothing of them was sent.
    """

    link: LinkId
    numbers: Sequence[DeliveryNumber]
    state: DeliveryState | None
    settled: bool
    is_unsent: bool = False


@attrs.frozen
class DeliveriesAdopted:
    """The express lane hands deliveries, of this and other connections, over to the core.

    An event about some of them follows. From now on the core treats them as if it had forwarded
    them itself.
    """

    pairs: list[LanePair]


@attrs.frozen
class RecordAwaited:
    """The peer waits until what it has sent on a link is on record.

    On a link where it sends, these are settled deliveries; where it receives, outcomes. For
    protocols that confirm the one or the other, on routes that promise exactly-once. Each is
    answered by one ``ReportRecorded``, in order; none is if the link ends before.
    """

    link: LinkId


@attrs.frozen
class DeliveriesRecorded:
    """A sibling answers ``AwaitRecord``: what was sent on a link before it is durable there."""

    link: LinkId


@attrs.frozen
class OutputPending:
    """The engine's output has grown past its high mark, or fallen below its low mark again.

    Attributes:
        congested: true from the high mark until the low mark; send no payload meanwhile.
    """

    congested: bool


@attrs.frozen
class MemorySought:
    """A returning peer asks for state that its engine does not find in this worker.

    The answer, ``MemoryFound``, comes when the router's other workers have been asked.

    Attributes:
        store: names the store of such state in each worker (``router.wire.memory``).
        key: the key of the state in the store.
        force: take the state even from a connection that uses it.
    """

    store: str
    key: bytes
    force: bool = False


@attrs.frozen
class MemoryLeft:
    """A connection has lost state that it used in its worker; its links there are detached.

    Attributes:
        store, key: as in ``MemorySought``.
    """

    store: str
    key: bytes


@attrs.frozen(kw_only=True)
class SubscriptionEnded:
    """A broker's queue that fed a link is not bound for it any more, or could not be unbound.

    Attributes:
        link: the link; it has been detached.
        queue: the queue, which stays at the broker with what is in it.
        address: the source that it was bound to, as the link named it.
        messages: how many messages are in the queue; None: the broker has not said.
        is_unbound: the broker has removed the binding.
    """

    link: LinkId
    queue: str
    address: str
    messages: int | None = None
    is_unbound: bool = False


@attrs.frozen
class MessageUnrouted:
    """A message that no route takes was dropped, and its sender hears nothing of that.

    Attributes:
        address: that it was sent to.
        condition: why no link could be attached there.
    """

    address: str
    condition: Condition


Event = (
    ConnectionOpened
    | ConnectionClosed
    | LinkAttached
    | AttachConfirmed
    | AddressesWatched
    | AddressesReached
    | LinkDetached
    | SessionEnded
    | SubscriptionEnded
    | CreditGranted
    | WaysAdvertised
    | WaitingReported
    | DeliveriesRecalled
    | CreditReturned
    | DeliveriesReceived
    | DeliveryContinued
    | DeliveryAborted
    | PartsTaken
    | DeliveriesUpdated
    | DeliveriesAdopted
    | RecordAwaited
    | DeliveriesRecorded
    | OutputPending
    | MemorySought
    | MemoryLeft
    | MessageUnrouted
)
