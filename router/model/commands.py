"""Commands of the core to an engine. If the protocol cannot carry out a command, the engine narrows
it by its one table; it never raises for that.
"""

from collections.abc import Mapping, Sequence

import attrs

from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId, LinkName
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
class AttachLink:
    """Attach our end: a request of ours, or the answer to the peer's (§2.6.3).

    Attributes:
        link: for an answer, the id of the ``LinkAttached`` event; else a new one.
        role: our end's role.
        unsettled: our unsettled map; None if no state is kept.
        incomplete_unsettled: the map does not fit a frame; the rest follows by a re-attach.
        max_message_octets: largest message we accept; 0 = no limit.
        challenge: a number of 32 bits that no other attach of the link has had. The engine has the
            peer prove that it has read this attach, and then emits ``AttachConfirmed``. On a link
            where we send, the number is our initial-delivery-count. None: no proof is needed.
        is_exact: the route promises exactly-once, so an engine confirms nothing before the core
            does.
        ttl_seconds: the longest life of a message on the route, for engines where messages wait for
            credit; None: a message's own ttl only.
        confirms_outcomes: what the engine reports can be lost on the way to the link's home, so it
            keeps outcomes until they are settled.
    """

    link: LinkId
    name: LinkName
    role: Role
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
    challenge: int | None = None
    is_exact: bool = False
    ttl_seconds: float | None = None
    confirms_outcomes: bool = False


@attrs.frozen
class ReportAttachConfirmed:
    """Report ``AttachConfirmed`` of the peer behind a link to a sibling."""

    link: LinkId


@attrs.frozen
class RefuseLink:
    """Answer a peer's attach without a terminus, then detach with the reason (§2.6.3)."""

    link: LinkId
    condition: Condition


@attrs.frozen
class AddressesChanged:
    """Answer ``AddressesWatched`` with the addresses in use; the first answer accepts it.

    Attributes:
        come: addresses that now have a sender.
        gone: addresses that have no sender any more.
    """

    link: LinkId
    come: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


@attrs.frozen
class DetachLink:
    """Detach our end; ``closed`` ends the terminus too (§2.6.4-6).

    Attributes:
        unsubscribes: the binding that the link has made at a broker (``SUBSCRIPTION``) ends, too.
    """

    link: LinkId
    closed: bool
    condition: Condition | None = None
    unsubscribes: bool = False


@attrs.frozen
class GrantCredit:
    """Set a sending peer's credit, counted from the deliveries that have arrived (§2.6.7).

    Attributes:
        credit: deliveries it may send from now on; a lower credit is a request, not a fact.
        drain: ask the peer to use up the credit at once or return it (``CreditReturned``).
        ahead: settled deliveries that are accepted beyond the credit. An engine whose protocol has
            no credit hands on every one that it has read; at 0 it stops reading after such a
            delivery. None: settled deliveries need credit like others.
        beside: deliveries that stay unsettled for long and are not to count where what is
            unsettled is limited.
        follows: the peer must not see it before the outcomes that were ordered earlier.
    """

    link: LinkId
    credit: int
    drain: bool = False
    ahead: int | None = None
    beside: int = 0
    follows: bool = False


@attrs.frozen
class AdvertiseWays:
    """Tell a sending peer, a router, the ways on which receivers are reached through us.

    Attributes:
        ways: they replace the ways told before.
        is_traced: deliveries may go on to routers, so the peer is to add the stops that they have
            passed.
    """

    link: LinkId
    ways: Ways
    is_traced: bool = False


@attrs.frozen
class ReportWaiting:
    """Tell a sending peer, a router, that deliveries of a link wait here for receivers' credit.

    It may recall them (``DeliveriesRecalled``).

    Attributes:
        count: how many.
    """

    link: LinkId
    count: int


@attrs.frozen
class RecallDeliveries:
    """Ask a receiving peer, a router, to return what waits there; it does so as ``UNSENT``.

    Attributes:
        count: how many at most, the last ones first.
    """

    link: LinkId
    count: int


@attrs.frozen
class ReturnCredit:
    """Answer a drain: nothing is left to send, the remaining credit is void (§2.6.7)."""

    link: LinkId


@attrs.frozen
class HoldWindow:
    """Stop or resume opening the session window for payload of the link's peer (§2.5.6).

    Used while the receivers of a large delivery are congested: credit limits deliveries, the window
    limits octets.
    """

    link: LinkId
    held: bool


@attrs.frozen
class SendDeliveries:
    """Send a run of deliveries on one link, never more than its credit.

    The engine splits deliveries into frames, keeps those that the window does not admit, and sends
    them later in order.
    """

    link: LinkId
    deliveries: list[OutgoingDelivery]


@attrs.frozen
class ContinueDelivery:
    """A further part of the delivery last begun on the link."""

    link: LinkId
    number: DeliveryNumber
    payload: bytes
    more: bool


@attrs.frozen
class AbortDelivery:
    """Abort a delivery of which some parts were sent (§2.7.5, aborted)."""

    link: LinkId
    number: DeliveryNumber


@attrs.frozen
class UpdateDeliveries:
    """Send the peer a state of deliveries, or settle them (§2.7.6).

    On links where we receive, the numbers are the engine's; else they are the core's. An engine
    merges adjacent numbers into ranges, also across several commands of one turn.
    """

    link: LinkId
    numbers: Sequence[DeliveryNumber]
    state: DeliveryState | None
    settled: bool


@attrs.frozen
class AwaitRecord:
    """Ask a sibling to report when what was sent on a link so far is on record.

    These are deliveries, or outcomes where we receive. It answers with ``DeliveriesRecorded``.
    """

    link: LinkId


@attrs.frozen
class ReportRecorded:
    """Answers ``RecordAwaited``: what came on the link before it is durable."""

    link: LinkId


@attrs.frozen
class MemoryFound:
    """Answers ``MemorySought``: the state, if any worker had it, is in this worker's store now.

    Attributes:
        is_busy: another worker may have the state but could not hand it over; the peer may retry.
    """

    store: str
    key: bytes
    is_busy: bool = False


@attrs.frozen
class CloseConnection:
    """Close the connection, in an orderly way or with an error (§2.4.3)."""

    condition: Condition | None = None


Command = (
    AttachLink
    | ReportAttachConfirmed
    | RefuseLink
    | AddressesChanged
    | DetachLink
    | GrantCredit
    | AdvertiseWays
    | ReportWaiting
    | RecallDeliveries
    | ReturnCredit
    | HoldWindow
    | SendDeliveries
    | ContinueDelivery
    | AbortDelivery
    | UpdateDeliveries
    | AwaitRecord
    | ReportRecorded
    | MemoryFound
    | CloseConnection
)
