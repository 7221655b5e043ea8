"""What an engine tells the core: the union of what five protocols can say, in 1.0's words.

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
    """The peer's open has come and ours is under way (§2.4.1).

    Attributes:
        container: the peer's container-id; engines of protocols without one make one up.
        hostname: virtual host that the peer asked for.
        user: authenticated identity; None if anonymous.
        properties: of the peer's open, for people and for telling routers apart.
    """

    container: ContainerId
    hostname: str | None = None
    user: str | None = None
    capabilities: Capabilities
    properties: Mapping[object, object] = attrs.field(factory=dict)


@attrs.frozen
class ConnectionClosed:
    """The connection has ended by protocol; no event follows. None: orderly, by either side.

    Attributes:
        condition: why, if it was an error, whosoever's.
        by_peer: the peer said so; otherwise we found the fault and have told the peer.
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
        max_message_octets: largest message the peer takes; 0 = no limit.
        home: the worker that keeps the suspended link, if the engine knows that it is another's;
            None otherwise.
        may_be_late: the attach and its map are the peer's word alone, and may have been held up
            while the peer attached the link again elsewhere: see ``PeerHeard``.
        session: names the session that it is attached on, where a link's deliveries keep their
            numbers though it is detached (§2.7.6); None: they do not.
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
class PeerHeard:
    """The peer has shown that it has read our attach (§2.6.13); asked for by a challenge in it.

    It comes once, before anything else of the link that could not have been said without it.
    """

    link: LinkId


@attrs.frozen
class AddressesWatched:
    """A peer wants to receive from every address of a pattern that somebody sends to.

    Only engines of protocols with such subscriptions say so. It is answered with
    ``AddressesChanged``, at once and whenever senders of such addresses come or go, or with
    ``RefuseLink``; the engine attaches to the addresses itself. ``LinkDetached`` ends it.

    Attributes:
        link: names the subscription; no delivery flows on it.
        pattern: as in the routes of a configuration.
    """

    link: LinkId
    pattern: str


@attrs.frozen
class AddressesReached:
    """A peer that watches a pattern has attached to all that it was told of, as far as it will.

    Without it what is sent to those addresses waits a while, unless an attach of the peer's says
    the same: it may have been attached already.
    """

    link: LinkId


@attrs.frozen
class LinkDetached:
    """A link's end is gone (§2.6.4-6); if the peer began it, the engine has answered.

    Attributes:
        closed: the terminus is gone as well; otherwise the link is suspended.
        is_numbered: its unsettled deliveries keep their numbers (§2.7.6): ``DeliveriesUpdated`` may
            still come, and ``UpdateDeliveries`` still reaches the peer, until ``SessionEnded``, or
            until this comes for the link a second time.
    """

    link: LinkId
    closed: bool
    condition: Condition | None = None
    is_numbered: bool = False


@attrs.frozen
class SessionEnded:
    """A session has ended, after all its links were detached (§2.5.2).

    Attributes:
        session: as ``LinkAttached`` has named it; another session may be named so afterwards.
    """

    session: int


@attrs.frozen
class CreditGranted:
    """How many more deliveries the peer takes on a link where we send (§2.6.7).

    Attributes:
        credit: deliveries that ``SendDeliveries`` may still name, all commands so far counted.
        drain: the peer wants the credit used up or given back: answer with ``ReturnCredit``.
        ahead: settled deliveries that a sibling takes beyond the credit, as in ``GrantCredit``.
    """

    link: LinkId
    credit: int
    drain: bool = False
    ahead: int | None = None


@attrs.frozen
class WaysTold:
    """A receiving peer, a router, has told on which ways receivers are reached through it.

    Attributes:
        ways: they replace what was told before.
        is_traced: deliveries are to say what they have passed.
    """

    link: LinkId
    ways: Ways
    is_traced: bool = False


@attrs.frozen
class CreditReturned:
    """A sending peer has given back credit, in answer to a drain (§2.6.7).

    Attributes:
        credit: what it has left, 0 after a drain.
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
    """A further part of the delivery last begun on a link; several may be open on several links.

    Attributes:
        settled: as of this part; once true, it stays (§2.7.5).
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
    """A receiving peer takes deliveries on a link part by part from now on (§2.6.14).

    Peers of whose connections that is true anyway (``Capabilities.streams``) do not say it.
    """

    link: LinkId


@attrs.frozen
class DeliveriesUpdated:
    """The peer has told a state of, or settled, deliveries on one link (§2.7.6).

    Where we are the sender the numbers are those that the core gave, else those of the engine.
    Numbers that are settled already never appear.
    """

    link: LinkId
    numbers: Sequence[DeliveryNumber]
    state: DeliveryState | None
    settled: bool


@attrs.frozen
class DeliveriesAdopted:
    """The express lane gives up deliveries, of this and other connections, to the core's judgement.

    An event about some of them follows; from here on they are as if the core had forwarded them.
    """

    pairs: list[LanePair]


@attrs.frozen
class OutputPending:
    """The engine's output has grown past its high mark, or fallen below its low mark again.

    Attributes:
        congested: true from the high mark until the low mark; send no payload meanwhile.
    """

    congested: bool


@attrs.frozen
class MemorySought:
    """A peer has come back for what its engine keeps and does not find in this worker.

    It is answered with ``MemoryFound`` when the router's other workers have been asked.

    Attributes:
        store: names what keeps such memory in each worker (``router.wire.memory``).
        key: of what is sought.
        force: it is to be taken from another connection that uses it.
    """

    store: str
    key: bytes
    force: bool = False


@attrs.frozen
class MemoryLeft:
    """A connection has lost what it used of its worker's memory; its links there are detached.

    Attributes:
        store, key: as in ``MemorySought``.
    """

    store: str
    key: bytes


Event = (
    ConnectionOpened
    | ConnectionClosed
    | LinkAttached
    | PeerHeard
    | AddressesWatched
    | AddressesReached
    | LinkDetached
    | SessionEnded
    | CreditGranted
    | WaysTold
    | CreditReturned
    | DeliveriesReceived
    | DeliveryContinued
    | DeliveryAborted
    | PartsTaken
    | DeliveriesUpdated
    | DeliveriesAdopted
    | OutputPending
    | MemorySought
    | MemoryLeft
)
