"""What a core can tell of itself: frozen records of plain values, fit to be sent elsewhere.

Counts are of deliveries unless the name says else. Totals never go back while the worker lives:
what a link has done stays in its route's totals when the link is gone. What routes count can be
added up over the workers of a router: links from worker to worker count for none.
"""

from typing import Final

import attrs

from router.model.terminus import Role

AGE_BOUNDS_SECONDS: Final = (0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 3600.0)
"""Upper bounds of the age histogram's buckets; one more takes whatever is older."""

ANONYMOUS: Final = "(anonymous)"
"""Stands for a route in the records of links to the anonymous terminus: these have many."""

DYNAMIC: Final = "(dynamic)"
"""Stands for the route of all dynamic nodes, which have none in the file."""

OTHERS: Final = "(others)"
"""Stands for the peers beyond ``PEERS_MOST``."""

PEERS_MOST: Final = 200
"""Peers that are told apart by container-id; configured containers always are."""

UPLINKS_MOST: Final = 16
"""Links to containers that are told of for one route, those in trouble first."""


@attrs.frozen(kw_only=True)
class Totals:
    """What has passed in one direction.

    Attributes:
        octets: of payload.
        settled: came or went settled beforehand: nobody waits for an outcome.
        expired: time to live ran out while they waited here.
        redelivered: sent on again after an attempt elsewhere had failed.
        dropped: settled beforehand, and nobody could take them.
    """

    deliveries: int = 0
    octets: int = 0
    settled: int = 0
    accepted: int = 0
    rejected: int = 0
    released: int = 0
    modified: int = 0
    expired: int = 0
    redelivered: int = 0
    dropped: int = 0


@attrs.frozen(kw_only=True)
class UplinkRecord:
    """A link of ours to a configured container, attached or not.

    Attributes:
        address: of the node over there.
        role: our end's: SENDER towards ``to``, RECEIVER from ``from``.
        step: away, idle, attaching, attached or paused; see ``uplink``.
        failures: ends in a row without an attachment that lasted.
        error: why it last ended or was refused.
    """

    container: str
    address: str
    role: Role
    step: str
    failures: int = 0
    error: str | None = None


@attrs.frozen(kw_only=True)
class Stall:
    """One address of a route on which somebody waits and nothing moves.

    Attributes:
        seconds: since something last moved there.
        reason: what holds it up, as far as is known here.
    """

    address: str
    seconds: float
    reason: str


@attrs.frozen(kw_only=True)
class Rejection:
    """What was rejected on a route, and the last of it.

    Attributes:
        count: deliveries since the worker was started.
        seconds: since the last one.
        reason: of the last one, as far as it was given.
        peer: who rejected it, or, ``by_router``, whose delivery the router rejected.
        address: that it was sent to.
    """

    count: int
    seconds: float
    reason: str
    peer: str
    address: str
    by_router: bool


@attrs.frozen(kw_only=True)
class RouteRecord:
    """One route, all its addresses together.

    Attributes:
        address: its pattern.
        from_, to: endpoints as the configuration writes them.
        addresses: how many of its addresses are in use.
        senders, receivers: links attached on which we receive, or send.
        suspended: links whose peer is away and whose terminus is kept.
        blocked_senders: those that have no credit.
        incoming_credit: what its senders may still send.
        outgoing_credit: what its receivers still take.
        queued: came and wait to be sent on.
        incoming_unsettled: came, and the sender has not been told the outcome.
        outgoing_unsettled: went out, and the receiver's outcome is awaited.
        in_doubt: went out, and the connection was lost before the outcome came.
        payload_octets: kept until outcomes are known.
        oldest_seconds: age of the oldest unsettled delivery; None: there is none.
        ages: unsettled deliveries by age, see ``AGE_BOUNDS_SECONDS``; those that were not looked
            at, behind very many old ones, count as older than they are.
        received, sent: totals.
        stall: the worst one.
        rejection: None: nothing was rejected.
    """

    name: str
    address: str
    from_: str | None = None
    to: tuple[str, ...] = ()
    distribution: str = ""
    guarantee: str = ""
    is_paused: bool = False
    addresses: int = 0
    senders: int = 0
    receivers: int = 0
    suspended: int = 0
    blocked_senders: int = 0
    incoming_credit: int = 0
    outgoing_credit: int = 0
    queued: int = 0
    incoming_unsettled: int = 0
    outgoing_unsettled: int = 0
    in_doubt: int = 0
    payload_octets: int = 0
    oldest_seconds: float | None = None
    ages: tuple[int, ...] = (0,) * (len(AGE_BOUNDS_SECONDS) + 1)
    received: Totals = attrs.field(factory=Totals)
    sent: Totals = attrs.field(factory=Totals)
    uplinks: tuple[UplinkRecord, ...] = ()
    stall: Stall | None = None
    rejection: Rejection | None = None


@attrs.frozen(kw_only=True)
class PeerRecord:
    """All connections to one container.

    Attributes:
        container: the name in the configuration if we dial it, else the peer's container-id.
        is_configured: we dial it.
        routes: routes that its links belong to: (name, our role) of each.
        congested: connections whose output has piled up.
        held: connections whose octet budget is spent.
        received, sent: totals; of a configured container over all connections so far, of another
            one over those that stand.
    """

    container: str
    is_configured: bool
    connections: int = 0
    routes: tuple[tuple[str, Role], ...] = ()
    senders: int = 0
    receivers: int = 0
    incoming_credit: int = 0
    outgoing_credit: int = 0
    incoming_unsettled: int = 0
    outgoing_unsettled: int = 0
    payload_octets: int = 0
    congested: int = 0
    held: int = 0
    received: Totals = attrs.field(factory=Totals)
    sent: Totals = attrs.field(factory=Totals)


@attrs.frozen(kw_only=True)
class Snapshot:
    """What a core knew at one time.

    Attributes:
        at: on the core's clock, seconds.
        connections: that have opened, but for those to other workers.
        routes: those that something has used, or that are paused, in no particular order; dynamic
            nodes and the anonymous terminus are among them.
        payload_octets: kept for deliveries whose outcome is not known.
        payload_limit_octets: the budget for them.
    """

    at: float
    is_draining: bool
    connections: int
    routes: tuple[RouteRecord, ...]
    peers: tuple[PeerRecord, ...]
    payload_octets: int
    payload_limit_octets: int
