"""The API's answers: frozen records whose fields are the fields of the JSON.

The trailing underscore of a name that would be a Python keyword is left out (``from_`` is
``from``).
"""

import enum
from collections.abc import Mapping

import attrs

from router.core.snapshot import PeerRecord, Rejection, Stall, Totals, UplinkRecord
from router.model.terminus import Role
from router.service.admin.history import PeerRates, Rates, Sample
from router.service.control import (
    ContainerRecord,
    MeshLinkRecord,
    MeshSiteRecord,
    MeshWayRecord,
)
from router.service.diagnosis.problem import Problem
from router.service.difference import Change
from router.service.fleet import ListenerRecord
from router.service.lease import LeaseRecord


class RouteState(enum.StrEnum):
    """State of a route: the first of these that applies."""

    STALLED = "stalled"
    """Deliveries or senders wait, and nothing has moved for ``stall_seconds``."""
    BROKEN = "broken"
    """A container is disconnected or ends our links, and deliveries may wait for it."""
    REJECTING = "rejecting"
    """Deliveries were rejected, by a receiver or the router, during the last minutes."""
    PAUSED = "paused"
    """An operator has paused the route."""
    FLOWING = "flowing"
    """Deliveries were received or sent during the last seconds."""
    WAITING = "waiting"
    """A sender has no credit, or deliveries are queued: no receiver takes them at present."""
    AWAY = "away"
    """A container of the route is disconnected; nothing is waiting for it."""
    IDLE = "idle"
    """Nothing is waiting."""


@attrs.frozen(kw_only=True)
class WorkerView:
    """One worker.

    Attributes:
        process: id of its process.
        uptime_seconds: since its process was started; its totals count from then on.
        restarts: how many of its processes have died.
        express: the express lane it uses: cython, or off.
        lag_seconds: the worst lag of its event loop during the last 10 s.
    """

    worker: int
    process: int
    uptime_seconds: float
    cpu_seconds: float
    resident_octets: int
    open_files: int
    lag_seconds: float
    express: str
    restarts: int = 0


@attrs.frozen(kw_only=True)
class StatusView:
    """Summary of the router, with its problems.

    Attributes:
        at: seconds since 1970.
        reasons: why it is not ready.
        is_standby: another router leads, or none; this one is not ready until it leads.
        lease: who leads, of several routers with one journal on PostgreSQL; null: the journal is
            in files, or there is none.
        is_broken: it is not ready and no standby, or one of the problems is an error: something
            does not work.
        problems: the worst first.
        connections: open connections, without those between workers.
        rates: of all routes together, over the last seconds; null: not known yet.
        unsettled: deliveries received whose outcome has not been sent to the sender.
        queued: of these, those that wait to be forwarded.
        in_doubt: deliveries sent whose connection was lost before the outcome arrived.
        payload_octets: kept until outcomes are known.
    """

    id: str
    version: str
    at: float
    uptime_seconds: float
    is_ready: bool
    is_draining: bool
    is_standby: bool
    lease: LeaseRecord | None
    reasons: tuple[str, ...]
    is_broken: bool
    problems: tuple[Problem, ...]
    listeners: tuple[ListenerRecord, ...]
    workers: tuple[WorkerView, ...]
    connections: int
    routes: int
    unsettled: int
    queued: int
    in_doubt: int
    oldest_seconds: float | None
    payload_octets: int
    payload_limit_octets: int
    rates: Rates | None


@attrs.frozen(kw_only=True)
class RouteView:
    """One route, with the sums over all its addresses.

    Attributes:
        address: its pattern.
        from_: container, or container/address, that it pulls from.
        to: containers, or container/address, that it pushes to.
        addresses: how many of its addresses are in use.
        senders, receivers: links attached on which the router receives, or sends.
        suspended: links whose peer is away and whose terminus is kept.
        blocked_senders: senders without credit.
        incoming_credit: credit of its senders, in deliveries.
        outgoing_credit: credit from its receivers, in deliveries.
        queued: deliveries received that wait to be forwarded.
        postponed: deliveries that a target gave back, and that are tried again later.
        incoming_unsettled: deliveries received whose outcome has not been sent to the sender.
        outgoing_unsettled: deliveries sent whose outcome has not arrived from the receiver.
        in_doubt: deliveries sent whose connection was lost before the outcome arrived.
        payload_octets: kept until outcomes are known.
        oldest_seconds: age of the oldest unsettled delivery.
        ages: unsettled deliveries by age: up to 0.1 s, 1 s, 5 s, 15 s, 1 min, 5 min, 1 h, older.
        received, sent: totals since the router, or a worker that died meanwhile, was started.
        rates: over the last seconds; null: not known yet.
        rejection: how many deliveries were rejected, the last of them by whom and why; null: none.
    """

    name: str
    address: str
    state: RouteState
    from_: str | None
    to: tuple[str, ...]
    distribution: str
    guarantee: str
    addresses: int
    senders: int
    receivers: int
    suspended: int
    blocked_senders: int
    incoming_credit: int
    outgoing_credit: int
    queued: int
    postponed: int
    incoming_unsettled: int
    outgoing_unsettled: int
    in_doubt: int
    payload_octets: int
    oldest_seconds: float | None
    ages: tuple[int, ...]
    received: Totals
    sent: Totals
    rates: Rates | None
    uplinks: tuple[UplinkRecord, ...]
    stall: Stall | None
    rejection: Rejection | None


@attrs.frozen(kw_only=True)
class RoutesView:
    """Routes; ``next`` is the cursor of the next page."""

    routes: tuple[RouteView, ...]
    next: str | None


@attrs.frozen(kw_only=True)
class ContainersView:
    """Configured containers; ``next`` is the cursor of the next page."""

    containers: tuple[ContainerRecord, ...]
    next: str | None


@attrs.frozen(kw_only=True)
class StoredRouteView:
    """What the message store holds of one route.

    Attributes:
        route: its name; null: messages that no route of the file has.
        messages: stored, and not at their target or with the dead letters.
        octets: of their records.
        oldest_seconds: age of the oldest one; null: there is none.
        stored_rate, forwarded_rate: messages a second, over the last 15 s; null: not known yet.
        drain_seconds: until it is empty, at that pace; null: it does not become less.
        messages_most, octets_most, age_seconds: bounds of the route; null: it has none.
        when_full: refuse or drop-oldest; null: the route stores no more.
        share: of the nearest bound that is used; null: it has none.
        is_full: its senders wait, or its oldest messages are dropped.
        dead: dead letters that wait for their target.
        resting: addresses that rest because their target returned or refused a message.
        rejected, expired, dropped: messages that have become dead letters since the router started:
            by their target, by age, or as the oldest of too many and by a person.
        waits_for: what keeps the messages from being forwarded, in words.
    """

    route: str | None
    messages: int
    octets: int
    oldest_seconds: float | None
    stored_rate: float | None
    forwarded_rate: float | None
    drain_seconds: float | None
    messages_most: int | None
    octets_most: int | None
    age_seconds: float | None
    when_full: str | None
    share: float | None
    is_full: bool
    dead: int
    resting: int
    rejected: int
    expired: int
    dropped: int
    waits_for: tuple[str, ...]


@attrs.frozen(kw_only=True)
class StoreView:
    """What the message store holds.

    Attributes:
        is_connected: it answers; otherwise stored routes get no credit; null: no route stores.
        routes: stored routes in the order of the file; last the messages that no route has.
        trouble: why it cannot write, and so takes no messages; null: it can.
        unreadable: segments that it cannot read now, why, and how many messages wait; null: it can.
    """

    is_connected: bool | None
    routes: tuple[StoredRouteView, ...]
    trouble: str | None = None
    unreadable: str | None = None


@attrs.frozen(kw_only=True)
class DroppedView:
    """How many stored messages were dropped."""

    dropped: int


@attrs.frozen(kw_only=True)
class MeshView:
    """The mesh as this router knows it.

    Attributes:
        router: this router's id.
        is_edge: it is an edge: it knows no sites, and the links are its uplinks.
        links: its neighbors; ``is_up``: both ends have heard each other; ``role``: router, or edge;
            ``is_active``: messages take it, as an edge uses one of its uplinks at a time.
        sites: all routers, this one too: what each serves, and the cost of the way there (null:
            there is none) by the neighbor ``hop``.
        ways: for the address that was asked for, the best first; ``hop`` is empty for receivers
            here, and the cost null while a site cannot be reached.
    """

    router: str
    is_edge: bool
    links: tuple[MeshLinkRecord, ...]
    sites: tuple[MeshSiteRecord, ...]
    ways: tuple[MeshWayRecord, ...]


@attrs.frozen(kw_only=True)
class ReplayedView:
    """Stored messages that are tried at once.

    Attributes:
        resting: addresses that rested after failures.
        revived: dead letters that are sent to their target again.
    """

    resting: int
    revived: int


@attrs.frozen(kw_only=True)
class StoredAddressView:
    """What the message store holds of one address.

    Attributes:
        priority: of its messages.
        octets: of their records.
        oldest_seconds: age of the oldest message; null: that would take long to find.
    """

    address: str
    priority: int
    messages: int
    octets: int
    oldest_seconds: float | None


@attrs.frozen(kw_only=True)
class StoredAddressesView:
    """One stored route, and its addresses that hold most.

    Attributes:
        addresses: the deepest first.
        hidden: how many more there are.
    """

    route: StoredRouteView
    addresses: tuple[StoredAddressView, ...]
    hidden: int


@attrs.frozen(kw_only=True)
class PeersView:
    """Containers by what they hold and move, configured or not; at most some 200.

    Attributes:
        peers: those that we dial by their configured names, others by container-id.
    """

    peers: tuple[PeerRecord, ...]


@attrs.frozen(kw_only=True)
class ConnectionView:
    """One connection.

    Attributes:
        worker: which worker has it; connection is its number there.
        container: the peer's container-id.
        configured: its name in the configuration, if the router dialed it.
        user: authenticated identity; null: anonymous.
        address: the peer's.
        listener: that accepted it.
        transport: below AMQP: tcp, tls, ws, wss or unix.
        seconds: since it was opened.
        is_congested: the peer reads more slowly than the router sends.
        is_held: its octet budget is spent; it gets no credit.
    """

    worker: int
    connection: int
    container: str
    configured: str | None
    user: str | None
    protocol: str
    is_router: bool
    address: str
    listener: str | None
    transport: str
    seconds: float
    octets_in: int
    octets_out: int
    senders: int
    receivers: int
    incoming_unsettled: int
    outgoing_unsettled: int
    payload_octets: int
    is_congested: bool
    is_held: bool


@attrs.frozen(kw_only=True)
class ConnectionsView:
    """Connections; ``next`` is the cursor of the next page."""

    connections: tuple[ConnectionView, ...]
    next: str | None


@attrs.frozen(kw_only=True)
class LinkView:
    """One link.

    Attributes:
        worker: which worker has it.
        link: its number there; null: it is suspended, its peer is away.
        connection: number of its connection; null: it is suspended.
        container: the peer's container-id.
        configured: its name in the configuration, if the router dialed it.
        role: the router's end's: sender or receiver.
        address: null: the anonymous terminus.
        credit: that its sender has left.
        queued: deliveries received on it that wait to be forwarded.
        oldest_seconds: age of its oldest unsettled delivery.
        payload_octets: received on it and kept until outcomes are known.
        is_held: the peer may send no payload: a budget is spent, or its receivers are congested.
    """

    worker: int
    link: int | None
    connection: int | None
    container: str
    configured: str | None
    name: str
    role: Role
    address: str | None
    route: str
    credit: int
    queued: int
    unsettled: int
    oldest_seconds: float | None
    payload_octets: int
    is_draining: bool
    is_held: bool
    totals: Totals


@attrs.frozen(kw_only=True)
class LinksView:
    """Links; ``next`` is the cursor of the next page."""

    links: tuple[LinkView, ...]
    next: str | None


@attrs.frozen(kw_only=True)
class DeliveryView:
    """One unsettled delivery.

    Attributes:
        worker: which worker has it.
        tag: its delivery-tag as received, in hexadecimal digits.
        container, link: its sender: container-id and link name.
        state: partial: still arriving; queued: waits to be forwarded; sent: the receiver's outcome
            is awaited; answered: the outcome was sent and the sender has to settle; in doubt: sent,
            and the connection was lost before the outcome arrived.
        to_container, to_link: its receiver: container-id and link name.
        age_seconds: since it arrived.
        octets: payload that is kept.
        attempts: number of failed attempts to forward it.
        in_custody: its sender has settled it, and the router itself is responsible for it.
    """

    worker: int
    tag: str
    route: str
    address: str
    container: str
    link: str
    state: str
    to_container: str | None
    to_link: str | None
    age_seconds: float
    octets: int
    attempts: int
    in_custody: bool


@attrs.frozen(kw_only=True)
class DeliveriesView:
    """Unsettled deliveries, the oldest first; ``next`` is the cursor of the next page.

    Attributes:
        is_cut: there are so many that the rest was not searched; use narrower filters.
        on_lane: unsettled deliveries on the express lane beyond 5,000, which are only counted.
        gaps: parts of the journal that are missing; deliveries recorded only there may be in doubt
            and are not listed.
    """

    deliveries: tuple[DeliveryView, ...]
    next: str | None
    is_cut: bool
    on_lane: int
    gaps: tuple[str, ...]


@attrs.frozen(kw_only=True)
class HistoryView:
    """Samples of the last hour.

    Attributes:
        sample_seconds: between two samples.
        samples: the oldest first.
    """

    sample_seconds: float
    samples: tuple[Sample, ...]


@attrs.frozen(kw_only=True)
class ProblemCounts:
    """Number of problems by severity."""

    error: int
    warning: int
    note: int


@attrs.frozen(kw_only=True)
class PeerView:
    """One container by what it holds and moves, configured or not.

    Attributes:
        container: its name in the configuration if the router dials it, else its container-id.
        routes: those that its links belong to, each with the role of the router's end.
        congested: connections whose peer reads more slowly than the router sends.
        held: connections whose octet budget is spent.
        rates: over the last seconds; null: not known yet.
    """

    container: str
    is_configured: bool
    connections: int
    routes: tuple[tuple[str, Role], ...]
    incoming_unsettled: int
    outgoing_unsettled: int
    congested: int
    held: int
    rates: PeerRates | None


@attrs.frozen(kw_only=True)
class OverviewView:
    """Overview of the router at one moment, limited to what fits a screen.

    Attributes:
        status: of its problems only the worst are listed.
        hidden_problems: number of problems left out.
        problem_counts: all problems.
        routes: those in trouble first, then those with the most traffic.
        hidden_routes: number of routes left out; idle ones are, if that was asked for.
        hidden_states: how many of these are in each state.
        route_counts: all routes, by state.
        containers: those in trouble first.
        hidden_containers: number of containers left out.
        peers: those in trouble first, then those that hold most; workers are not among them.
        hidden_peers: number of peers left out.
        store: what the message store holds, of the routes whose stores are deepest.
        hidden_stores: number of stored routes left out.
        mesh: null: the router is in none; of its sites those that are not reached, and the nearest.
        hidden_sites: number of sites left out.
        samples: of the history, those that are later than what was asked for.
    """

    status: StatusView
    hidden_problems: int
    problem_counts: ProblemCounts
    routes: tuple[RouteView, ...]
    hidden_routes: int
    hidden_states: Mapping[RouteState, int]
    route_counts: Mapping[RouteState, int]
    containers: tuple[ContainerRecord, ...]
    hidden_containers: int
    peers: tuple[PeerView, ...]
    hidden_peers: int
    store: StoreView
    hidden_stores: int
    mesh: MeshView | None
    hidden_sites: int
    samples: tuple[Sample, ...]


@attrs.frozen(kw_only=True)
class DifferenceView:
    """One entry of the configuration file that differs.

    Attributes:
        section: router, listeners, containers, routes, limits or policy.
        name: the entry's; null for sections that have no entries.
        options: those of its options that differ, if it was changed.
        waits_for_restart: changes of these options take effect when the router is restarted.
        kept: unsettled exactly-once deliveries of a removed route; they stay in the journal until
            there is a route for their address again.
    """

    section: str
    name: str | None
    change: Change
    options: tuple[str, ...]
    waits_for_restart: bool
    kept: int
    effects: tuple[str, ...]


@attrs.frozen(kw_only=True)
class ReloadView:
    """The changes made by a reload of the configuration file, or that it would make.

    Attributes:
        differences: in the order of the file; at most 1000, of which routes are the first to be
            left out.
        total: how many there are in all.
        added, removed, changed: how many of all are applied.
        waiting: how many of all wait for a restart.
        refused: why changed TLS files are not used: those from before are.
    """

    differences: tuple[DifferenceView, ...]
    total: int
    added: int
    removed: int
    changed: int
    waiting: int
    refused: tuple[str, ...]


@attrs.frozen(kw_only=True)
class ResolvedView:
    """Number of deliveries that were resolved."""

    resolved: int


@attrs.frozen(kw_only=True)
class LogLevelView:
    """The least severity that is logged: debug, info, warning or error."""

    level: str


@attrs.frozen(kw_only=True)
class LiveView:
    """The process answers."""

    live: bool = True


@attrs.frozen(kw_only=True)
class ReadyView:
    """Whether the router is ready for traffic.

    Attributes:
        reasons: why it is not ready.
        stalls: routes on which nothing moves; these alone do not make it unready.
        broken: all that does not work, at most 50 lines.
        still_ready: why it is ready although something is broken; null: nothing is, or it is not
            ready.
    """

    ready: bool
    reasons: tuple[str, ...]
    stalls: tuple[str, ...]
    broken: tuple[str, ...] = ()
    still_ready: str | None = None


@attrs.frozen(kw_only=True)
class TraceLineView:
    """One line of a trace.

    Attributes:
        worker: number of the worker.
        seconds: since the trace began.
        what: transfer, disposition, flow, attach, detach, or decision.
        is_incoming: the peer sent it; null: a decision of the router.
        delivery: number of the traced delivery, from 1; null: it concerns the link.
        container: the peer: its configured name, or its container-id.
        text: details for people; payload is never shown.
    """

    worker: int
    seconds: float
    what: str
    is_incoming: bool | None
    delivery: int | None
    container: str | None
    link: str | None
    text: str
