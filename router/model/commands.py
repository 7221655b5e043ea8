"""What the core tells an engine to do. A command the protocol cannot carry out is narrowed by the
engine through its one table; it never raises for that.
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
        max_message_octets: largest message we take; 0 = no limit.
        challenge: a number of 32 bits that no other attach of the link has had: the peer is asked
            to show that it has read this one, which is reported as ``PeerHeard``. Where we send it
            is our initial-delivery-count. None: nobody asks.
        is_exact: the route promises exactly-once, so an engine confirms nothing ahead of the core.
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


@attrs.frozen
class TellHeard:
    """Tell a sibling that the peer behind a link has been heard: there it is ``PeerHeard``."""

    link: LinkId


@attrs.frozen
class RefuseLink:
    """Answer a peer's attach with no terminus, then detach with the reason (§2.6.3)."""

    link: LinkId
    condition: Condition


@attrs.frozen
class AddressesChanged:
    """Tell a peer that has said ``AddressesWatched`` who is sent to; the first one accepts it.

    Attributes:
        come: addresses that somebody sends to now.
        gone: addresses that nobody sends to any more.
    """

    link: LinkId
    come: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


@attrs.frozen
class DetachLink:
    """Detach our end; ``closed`` ends the terminus too (§2.6.4-6)."""

    link: LinkId
    closed: bool
    condition: Condition | None = None


@attrs.frozen
class GrantCredit:
    """Set the credit that a sending peer has, counted from what has arrived (§2.6.7).

    Attributes:
        credit: deliveries it may send from now on; lowering is a request, not a fact.
        drain: ask it to use the credit up at once or give it back (``CreditReturned``).
        ahead: settled deliveries that may come beyond the credit. An engine whose protocol has no
            credit hands on all that it has read; at 0 it reads no further behind such a delivery.
            None: settled deliveries need credit like others.
    """

    link: LinkId
    credit: int
    drain: bool = False
    ahead: int | None = None


@attrs.frozen
class TellWays:
    """Tell a sending peer that is a router on which ways receivers are reached through us.

    Attributes:
        ways: they replace what was told before.
        is_traced: what comes may go on to routers, so the peer is to write down what it has passed.
    """

    link: LinkId
    ways: Ways
    is_traced: bool = False


@attrs.frozen
class ReturnCredit:
    """Answer a drain: nothing more to send, the credit left is void (§2.6.7)."""

    link: LinkId


@attrs.frozen
class HoldWindow:
    """Stop or resume making room for payload from the link's peer (§2.5.6, session window).

    Used while what a large delivery feeds is congested; credit counts deliveries, this octets.
    """

    link: LinkId
    held: bool


@attrs.frozen
class SendDeliveries:
    """Send a run of deliveries on one link, never more than its credit.

    The engine splits, keeps what the window refuses, and sends it later in order.
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
    """Give up a delivery that was begun and not finished (§2.7.5, aborted)."""

    link: LinkId
    number: DeliveryNumber


@attrs.frozen
class UpdateDeliveries:
    """Tell the peer a state of deliveries, or settle them (§2.7.6).

    Where we receive the numbers are the engine's, else the core's. An engine merges neighbours,
    also over several commands of one turn, into ranges.
    """

    link: LinkId
    numbers: Sequence[DeliveryNumber]
    state: DeliveryState | None
    settled: bool


@attrs.frozen
class MemoryFound:
    """Answers ``MemorySought``: what could be found is in the worker's store now.

    Attributes:
        is_busy: it may be elsewhere, and is not to be had; the peer may ask again.
    """

    store: str
    key: bytes
    is_busy: bool = False


@attrs.frozen
class CloseConnection:
    """Close the connection, orderly or with the reason (§2.4.3)."""

    condition: Condition | None = None


Command = (
    AttachLink
    | TellHeard
    | RefuseLink
    | AddressesChanged
    | DetachLink
    | GrantCredit
    | TellWays
    | ReturnCredit
    | HoldWindow
    | SendDeliveries
    | ContinueDelivery
    | AbortDelivery
    | UpdateDeliveries
    | MemoryFound
    | CloseConnection
)
