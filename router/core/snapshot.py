"""Snapshots of a core: frozen records of simple values that can be sent to other processes.

Counts are of deliveries unless the name says otherwise. Totals never decrease while the worker
lives: the totals of an ended link stay in those of its route. The counts of routes can be summed
over the workers of a router: links between workers count for no route.
"""

from typing import Final

import attrs

from router.model.terminus import Role

AGE_BOUNDS_SECONDS: Final = (0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 3600.0)
"""Upper bounds of the age histogram's buckets; one more bucket has all that are older."""

ANONYMOUS: Final = "(anonymous)"
"""The route name in records of links to the anonymous terminus, which have many routes."""

DYNAMIC: Final = "(dynamic)"
"""The route name of all dynamic nodes, which have no route in the file."""

OTHERS: Final = "(others)"
"""The container name of all peers beyond ``PEERS_MOST``."""

PEERS_MOST: Final = 200
"""Peers with a record of their own, by container-id; configured containers always have one."""

UPLINKS_MOST: Final = 16
"""Uplinks that are listed for one route, failing ones first."""


@attrs.frozen(kw_only=True)
class Totals:
    """Totals of one direction.

    Attributes:
        octets: of payload.
        settled: received or sent settled: no outcome is awaited.
        expired: their time to live ended while they were queued.
        redelivered: forwarded again after a failed attempt.
        dropped: received settled, and no receiver could take them.
        unroutable: refused by a target without a binding, or without a receiver.
        fallback: sent to the route's fallback, or pulled from it.
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
    unroutable: int = 0
    fallback: int = 0


@attrs.frozen(kw_only=True)
class UplinkRecord:
    """An uplink to a configured container, attached or not.

    Attributes:
        address: the container's node.
        role: our end's: SENDER towards ``to``, RECEIVER from ``from``.
        step: away, idle, attaching, attached or paused; see ``uplink``.
        failures: consecutive ends without an attachment that lasted.
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
    """An address of a route that waits and does not move.

    Attributes:
        seconds: since the last movement there.
        reason: the cause, as far as it is known here.
        deliveries: how many wait; 0: senders wait for credit.
    """

    address: str
    seconds: float
    reason: str
    deliveries: int = 1


@attrs.frozen(kw_only=True)
class Rejection:
    """What was rejected on a route, and the last of it.

    Attributes:
        count: deliveries since the worker was started.
        seconds: since the last one.
        reason: of the last one, as far as it was given.
        peer: who rejected it, or, ``by_router``, whose delivery the router rejected.
        address: that it was sent to.
        untold: how many senders had settled and were sent no outcome: these deliveries went to the
            route's dead letters, or were dropped.
    """

    count: int
    seconds: float
    reason: str
    peer: str
    address: str
    by_router: bool
    untold: int = 0


@attrs.frozen(kw_only=True)
class RouteRecord:
    """One route, all its addresses together.

    Attributes:
        address: its pattern.
        from_, to, fallback: endpoints as the configuration writes them.
        addresses: how many of its addresses are in use.
        senders, receivers: links attached on which we receive, or send.
        suspended: links whose peer is away and whose terminus is kept.
        blocked_senders: senders without credit.
        incoming_credit: credit of its senders.
        outgoing_credit: credit of its receivers.
        queued: received, and not forwarded yet.
        postponed: received, refused by a target, and to be retried later.
        incoming_unsettled: received, and the sender has no outcome yet.
        outgoing_unsettled: sent, and the receiver's outcome is awaited.
        in_doubt: sent, and the connection was lost before the outcome.
        unreachable: addresses whose messages have no way to a site of the mesh.
        payload_octets: payload of deliveries without an outcome.
        oldest_seconds: age of the oldest unsettled delivery; None: there is none.
        ages: unsettled deliveries by age, see ``AGE_BOUNDS_SECONDS``; deliveries not examined,
            behind very many old ones, count as older than they are.
        received, sent: totals.
        stall: the worst one.
        rejection: None: nothing was rejected.
    """

    name: str
    address: str
    from_: str | None = None
    to: tuple[str, ...] = ()
    fallback: str | None = None
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
    postponed: int = 0
    incoming_unsettled: int = 0
    outgoing_unsettled: int = 0
    in_doubt: int = 0
    unreachable: int = 0
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
        congested: connections whose unsent output exceeds the limit.
        held: connections whose octet budget is used up.
        received, sent: totals; of a configured container over all connections so far, of any other
            one over its open connections.
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
    """The state of a core at one time.

    Attributes:
        at: on the core's clock, seconds.
        connections: open connections, except those to other workers.
        routes: routes that have been used or are paused, in no particular order; dynamic nodes and
            the anonymous terminus are among them.
        payload_octets: payload of deliveries without an outcome.
        payload_limit_octets: the budget for them.
    """

    at: float
    is_draining: bool
    connections: int
    routes: tuple[RouteRecord, ...]
    peers: tuple[PeerRecord, ...]
    payload_octets: int
    payload_limit_octets: int
