"""Metrics for Prometheus, made from a snapshot at each scrape.

Names follow Prometheus' conventions: ``_total`` for counters, seconds and bytes as units;
``direction`` is ``incoming`` or ``outgoing`` with respect to the router. Labels are bounded: routes
are those of the file; containers are those of the file and some 200 peers, whose names are escaped
and cut (``model.text.label``), so that they cannot control a terminal and no two peers share a
series. Of the routes without traffic so far the first ``UNUSED_ROUTES_MOST`` are shown, with zeros.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import attrs
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from router.core.snapshot import AGE_BOUNDS_SECONDS, PeerRecord, RouteRecord, Totals
from router.model.text import label
from router.service.control import StoredRecord, WorkerSnapshot
from router.service.diagnosis.process import failing_sources
from router.service.diagnosis.readiness import reasons_not_ready
from router.service.fleet import RouterSnapshot
from router.service.stores import drain_seconds
from router.service.vitals import LAG_BOUNDS_SECONDS

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
OUTCOMES: Final = ("accepted", "rejected", "released", "modified", "settled", "expired", "dropped")

UNUSED_ROUTES_MOST: Final = 1000
"""Unused routes that are shown. A route takes some 40 lines: a table of 100,000 would take four
million, most of them zeros."""

_Samples = Iterable[tuple[Sequence[str], float]]


def render(snapshot: RouterSnapshot) -> bytes:
    """Returns the text of a scrape."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SnapshotCollector(snapshot))
    return generate_latest(registry)


@attrs.frozen(eq=False)
class SnapshotCollector(Collector):
    """Converts one snapshot to metric families."""

    snapshot: RouterSnapshot

    def collect(self) -> Iterator[Metric]:
        """Yields the families, grouped by subject."""
        yield from _of_router(self.snapshot)
        routes = self.snapshot.routes.some(UNUSED_ROUTES_MOST)
        yield from _of_routes(routes)
        yield from _of_stalls(routes, self.snapshot.workers)
        yield from _of_containers(self.snapshot)
        yield from _of_peers(self.snapshot.core.peers)
        yield from _of_workers(self.snapshot)
        yield from _of_journal(self.snapshot)
        yield from _of_lease(self.snapshot)
        yield from _of_store(self.snapshot)
        yield from _of_mesh(self.snapshot)
        yield from _of_logins(self.snapshot)
        yield from _of_certificates(self.snapshot)

    def describe(self) -> Iterator[Metric]:
        """Yields nothing: the registry is made for one scrape."""
        return iter(())


def _of_router(snapshot: RouterSnapshot) -> Iterator[Metric]:
    info = {"id": snapshot.id, "version": snapshot.version}
    yield InfoMetricFamily("router", "The router.", value=info)
    yield _gauge(
        "router_ready",
        "1 if the router is ready for traffic.",
        (),
        [((), not reasons_not_ready(snapshot))],
    )
    yield _gauge(
        "router_draining", "1 if the router is draining.", (), [((), snapshot.is_draining)]
    )
    yield _gauge(
        "router_start_time_seconds",
        "Start time of the router, in seconds since 1970.",
        (),
        [((), snapshot.started_at)],
    )
    yield _gauge(
        "router_listener_open",
        "1 if the listener accepts connections.",
        ("listener",),
        [((listener.name,), bool(listener.addresses)) for listener in snapshot.listeners],
    )
    core = snapshot.core
    yield _gauge(
        "router_open_connections",
        "Open connections with peers.",
        (),
        [((), core.connections)],
    )
    yield _gauge(
        "router_payload_bytes",
        "Payload of deliveries without an outcome.",
        (),
        [((), core.payload_octets)],
    )
    yield _gauge(
        "router_payload_limit_bytes",
        "Limit of router_payload_bytes; near it senders of which much waits get no credit.",
        (),
        [((), core.payload_limit_octets)],
    )


def _of_routes(routes: Sequence[RouteRecord]) -> Iterator[Metric]:
    yield from _of_totals(
        "router_route",
        ("route",),
        [((route.name,), route.received, route.sent) for route in routes],
    )
    both = ("route", "direction")
    yield _gauge(
        "router_route_links",
        "Attached links (incoming: senders, outgoing: receivers).",
        both,
        _in_and_out(routes, lambda route: (route.senders, route.receivers)),
    )
    yield _gauge(
        "router_route_credit",
        "Credit of senders (incoming) or from receivers (outgoing), in deliveries.",
        both,
        _in_and_out(routes, lambda route: (route.incoming_credit, route.outgoing_credit)),
    )
    yield _gauge(
        "router_route_unsettled_deliveries",
        "Unsettled deliveries of senders (incoming) or at receivers (outgoing).",
        both,
        _in_and_out(routes, lambda route: (route.incoming_unsettled, route.outgoing_unsettled)),
    )
    for name, help_text, value in _ROUTE_GAUGES:
        yield _gauge(
            f"router_route_{name}",
            help_text,
            ("route",),
            [((route.name,), value(route)) for route in routes],
        )
    yield _ages(routes)


def _ages(routes: Sequence[RouteRecord]) -> Metric:
    """Returns the age histogram, without a sum, which would cost a visit of every delivery."""
    name = "router_route_unsettled_age_seconds"
    family = Metric(name, "Ages of unsettled deliveries at this moment.", "gaugehistogram")
    for route in routes:
        for bound, count in _buckets(AGE_BOUNDS_SECONDS, route.ages):
            family.add_sample(f"{name}_bucket", {"route": route.name, "le": bound}, count)
        family.add_sample(f"{name}_gcount", {"route": route.name}, float(sum(route.ages)))
    return family


_ROUTE_GAUGES: Final[tuple[tuple[str, str, Callable[[RouteRecord], float]], ...]] = (
    (
        "suspended_links",
        "Suspended links: the peer is away, the terminus is kept.",
        lambda route: route.suspended,
    ),
    (
        "blocked_senders",
        "Senders without credit.",
        lambda route: route.blocked_senders,
    ),
    (
        "queued_deliveries",
        "Deliveries queued for forwarding.",
        lambda route: route.queued,
    ),
    (
        "postponed_deliveries",
        "Deliveries that a target has no binding for and that are retried later.",
        lambda route: route.postponed,
    ),
    (
        "in_doubt_deliveries",
        "Deliveries in doubt: sent, and the connection was lost before the outcome.",
        lambda route: route.in_doubt,
    ),
    (
        "unreachable_addresses",
        "Addresses whose messages have no way to a site of the mesh that serves them or was chosen"
        " for them.",
        lambda route: route.unreachable,
    ),
    (
        "payload_bytes",
        "Payload of deliveries without an outcome.",
        lambda route: route.payload_octets,
    ),
    (
        "oldest_unsettled_seconds",
        "Age of the oldest unsettled delivery; 0 if there is none.",
        lambda route: route.oldest_seconds or 0.0,
    ),
    ("paused", "1 if an operator has paused the route.", lambda route: route.is_paused),
    (
        "stalled",
        "1 if something waits and nothing has moved for stall_seconds.",
        lambda route: route.stall is not None,
    ),
)


def _of_stalls(
    routes: Sequence[RouteRecord], workers: Sequence[WorkerSnapshot]
) -> Iterator[Metric]:
    counts: dict[str, int] = {route.name: 0 for route in routes}
    for worker in workers:
        for route, count in worker.stalls.items():
            counts[route] = counts.get(route, 0) + count
    yield _counter(
        "router_route_stalls",
        "Number of stalls of a route.",
        ("route",),
        [((route,), count) for route, count in counts.items()],
    )


def _of_containers(snapshot: RouterSnapshot) -> Iterator[Metric]:
    containers = snapshot.containers
    labels = ("container",)
    yield _gauge(
        "router_container_connected",
        "1 if the configured container is connected.",
        labels,
        [((each.name,), each.is_connected) for each in containers],
    )
    yield _counter(
        "router_container_connects",
        "Connections to the container that have opened.",
        labels,
        [((each.name,), each.opened) for each in containers],
    )
    yield _counter(
        "router_container_reconnects",
        "Reconnections to the container.",
        labels,
        [((each.name,), max(0, each.opened - 1)) for each in containers],
    )
    yield _counter(
        "router_container_connect_failures",
        "Failed attempts to connect to the container.",
        labels,
        [((each.name,), each.failed) for each in containers],
    )


def _of_peers(peers: Sequence[PeerRecord]) -> Iterator[Metric]:
    labels = ("container", "configured")

    def named(peer: PeerRecord) -> tuple[str, str]:
        return (label(peer.container), "true" if peer.is_configured else "false")

    yield from _of_totals(
        "router_connection",
        labels,
        [(named(peer), peer.received, peer.sent) for peer in peers],
    )
    for name, help_text, value in _PEER_GAUGES:
        yield _gauge(
            f"router_connection_{name}",
            help_text,
            labels,
            [(named(peer), value(peer)) for peer in peers],
        )
    both = (*labels, "direction")
    for name, help_text, values in _PEER_PAIRS:
        samples = [
            ((*named(peer), direction), value)
            for peer in peers
            for direction, value in zip(("incoming", "outgoing"), values(peer), strict=True)
        ]
        yield _gauge(f"router_connection_{name}", help_text, both, samples)


_PEER_GAUGES: Final[tuple[tuple[str, str, Callable[[PeerRecord], float]], ...]] = (
    ("open", "Connections to a container.", lambda peer: peer.connections),
    (
        "payload_bytes",
        "Payload of the peer's deliveries without an outcome.",
        lambda peer: peer.payload_octets,
    ),
    (
        "congested",
        "Connections whose unsent output exceeds the limit.",
        lambda peer: peer.congested,
    ),
    ("held", "Connections whose octet budget is used up.", lambda peer: peer.held),
)
_PEER_PAIRS: Final[tuple[tuple[str, str, Callable[[PeerRecord], tuple[int, int]]], ...]] = (
    (
        "links",
        "Attached links (incoming: senders, outgoing: receivers).",
        lambda peer: (peer.senders, peer.receivers),
    ),
    (
        "credit",
        "Credit of the peer's senders (incoming) or receivers (outgoing).",
        lambda peer: (peer.incoming_credit, peer.outgoing_credit),
    ),
    (
        "unsettled_deliveries",
        "Unsettled deliveries from (incoming) or to (outgoing) the peer.",
        lambda peer: (peer.incoming_unsettled, peer.outgoing_unsettled),
    ),
)


def _of_workers(snapshot: RouterSnapshot) -> Iterator[Metric]:
    workers = [((str(worker.worker),), worker.vitals) for worker in snapshot.workers]
    labels = ("worker",)
    lag = HistogramMetricFamily(
        "router_event_loop_lag_seconds",
        "Delay with which the worker's event loop runs a task that is due.",
        labels=labels,
    )
    for names, vitals in workers:
        buckets = _buckets(LAG_BOUNDS_SECONDS, vitals.lags)
        lag.add_metric(names, buckets, vitals.lag_sum_seconds)
    yield lag
    yield _gauge(
        "router_worker_resident_memory_bytes",
        "Resident memory of the worker.",
        labels,
        [(names, vitals.resident_octets) for names, vitals in workers],
    )
    yield _counter(
        "router_worker_cpu_seconds",
        "Processor time of the worker.",
        labels,
        [(names, vitals.cpu_seconds) for names, vitals in workers],
    )
    yield _gauge(
        "router_worker_open_fds",
        "Open file descriptors of the worker; 0 if unknown.",
        labels,
        [(names, vitals.open_files) for names, vitals in workers],
    )
    yield _counter(
        "router_worker_restarts",
        "Processes of the worker that have died; its other counters begin anew with each.",
        labels,
        [((str(lives.worker),), lives.ends) for lives in snapshot.lives],
    )
    yield _counter(
        "router_unrouted_messages",
        "Messages that no route took and whose senders were not told: AMQP 0-9-1 confirms them.",
        labels,
        [((str(worker.worker),), worker.unrouted) for worker in snapshot.workers],
    )
    yield _counter(
        "router_log_lost_lines",
        "Log lines of the worker that could not be written.",
        labels,
        [(names, vitals.lost_lines) for names, vitals in workers],
    )


def _of_mesh(snapshot: RouterSnapshot) -> Iterator[Metric]:
    meshes = [worker.mesh for worker in snapshot.workers if worker.mesh is not None]
    yield _gauge(
        "router_mesh_link_up",
        "1 if a neighbor of the mesh is connected, and both ends have heard each other.",
        ("neighbor",),
        [((link.router,), link.is_up) for mesh in meshes for link in mesh.links],
    )
    yield _gauge(
        "router_mesh_site_reached",
        "1 if a way leads to a site of the mesh; a site is forgotten after an hour without.",
        ("site",),
        [((site.router,), site.cost is not None) for mesh in meshes for site in mesh.sites],
    )


def _of_journal(snapshot: RouterSnapshot) -> Iterator[Metric]:
    journals = [
        ((str(worker.worker),), worker.journal)
        for worker in snapshot.workers
        if worker.journal is not None
    ]
    labels = ("worker",)
    yield _gauge(
        "router_journal_writing",
        "1 if the journal accepts records; if not, exactly-once routes get no credit.",
        labels,
        [(names, journal.trouble is None) for names, journal in journals],
    )
    yield _counter(
        "router_journal_records",
        "Records that the worker has sent to the journal.",
        labels,
        [(names, journal.records) for names, journal in journals],
    )
    yield _counter(
        "router_journal_durable_records",
        "Records of the worker that are durable.",
        labels,
        [(names, journal.durable) for names, journal in journals],
    )
    yield _counter(
        "router_ledger_unrecorded_deliveries",
        "Deliveries missing from the ledger because the journal could not write.",
        labels,
        [(names, journal.unrecorded) for names, journal in journals],
    )
    yield _gauge(
        "router_journal_waiting_bytes",
        "Records that wait for the journal.",
        labels,
        [(names, journal.waiting_octets) for names, journal in journals],
    )


def _of_lease(snapshot: RouterSnapshot) -> Iterator[Metric]:
    lease = snapshot.lease
    yield _gauge(
        "router_standby",
        "1 if the router waits as a standby until it may lead.",
        (),
        [((), snapshot.is_standby)],
    )
    if lease is None:
        return
    labels, names = ("id",), (snapshot.id,)
    yield _gauge(
        "router_leads",
        "1 if the router has the lease of the journal.",
        labels,
        [(names, lease.leads)],
    )
    yield _gauge(
        "router_lease_epoch",
        "Epoch of the lease; it grows whenever a router takes the lease.",
        labels,
        [(names, lease.epoch)],
    )
    if lease.age_seconds is not None:
        yield _gauge(
            "router_lease_age_seconds",
            "Time since the leader renewed the lease, as this router last saw it.",
            labels,
            [(names, lease.age_seconds)],
        )


def _of_store(snapshot: RouterSnapshot) -> Iterator[Metric]:
    stores = [
        (str(worker.worker), worker.store)
        for worker in snapshot.workers
        if worker.store is not None
    ]
    yield _gauge(
        "router_store_connected",
        "1 if the message store answers; if not, stored routes get no credit.",
        ("worker",),
        [((worker,), store.is_connected) for worker, store in stores],
    )
    routes = [
        ((worker, each.route or ""), each) for worker, store in stores for each in store.routes
    ]
    labels = ("worker", "route")
    yield _gauge(
        "router_stored_messages",
        "Messages in the store; route is empty if no route of the file has them.",
        labels,
        [(names, each.messages) for names, each in routes],
    )
    yield _gauge(
        "router_stored_bytes",
        "Size of these messages, with their records.",
        labels,
        [(names, each.octets) for names, each in routes],
    )
    yield _gauge(
        "router_stored_oldest_seconds",
        "Age of the oldest of these messages.",
        labels,
        [(names, each.oldest_seconds) for names, each in routes],
    )
    yield _gauge(
        "router_store_full",
        "1 if a route has stored as much as it may.",
        labels,
        [(names, each.is_full) for names, each in routes],
    )
    yield _gauge(
        "router_stored_dead_letters",
        "Stored messages that wait for the route's dead_letter.",
        labels,
        [(names, each.dead) for names, each in routes],
    )
    yield _counter(
        "router_store_dead_letters",
        "Stored messages that have become dead letters: rejected, also after ten failures; expired:"
        " too old; dropped: the oldest of too many, or by a person.",
        (*labels, "cause"),
        [((*names, cause), count) for names, each in routes for cause, count in _causes(each)],
    )
    paces = [(names, drain_seconds(each)) for names, each in routes]
    yield _gauge(
        "router_stored_drain_seconds",
        "Time until the route is empty at the pace of the last 15 s; none if it does not shrink.",
        labels,
        [(names, seconds) for names, seconds in paces if seconds is not None],
    )


def _causes(record: StoredRecord) -> tuple[tuple[str, int], ...]:
    return (
        ("rejected", record.rejected),
        ("expired", record.expired),
        ("dropped", record.dropped),
    )


def _of_logins(snapshot: RouterSnapshot) -> Iterator[Metric]:
    yield _counter(
        "router_failed_logins",
        "Failed logins.",
        ("worker",),
        [((str(worker.worker),), worker.logins.failed) for worker in snapshot.workers],
    )
    yield _gauge(
        "router_recent_failed_logins",
        "Failed logins of the last minutes, for the IP addresses with most of them.",
        ("source",),
        [((source,), count) for source, count in failing_sources(snapshot)],
    )


def _of_certificates(snapshot: RouterSnapshot) -> Iterator[Metric]:
    in_use = [((each.option, each.file), each) for each in snapshot.tls.in_use]
    labels = ("option", "file")
    yield _gauge(
        "router_certificate_expiry_timestamp_seconds",
        "When the certificate in use expires, in seconds since 1970: the first of a chain, the last"
        " of several authorities.",
        labels,
        [(names, each.ends) for names, each in in_use],
    )
    yield _gauge(
        "router_certificate_start_timestamp_seconds",
        "From when the certificate in use is valid, in seconds since 1970: the last of a chain, the"
        " first of several authorities.",
        labels,
        [(names, each.starts) for names, each in in_use],
    )
    yield _gauge(
        "router_certificate_due",
        "1 if the certificate has expired, or expires within 14 days or, if that is less, a quarter"
        " of its life.",
        labels,
        [(names, each.is_due(snapshot.at)) for names, each in in_use],
    )
    yield _gauge(
        "router_certificate_files_refused",
        "TLS files that were changed and are not used: an older certificate is.",
        (),
        [((), len(snapshot.tls.refused))],
    )


def _of_totals(
    prefix: str, labels: tuple[str, ...], rows: Sequence[tuple[tuple[str, ...], Totals, Totals]]
) -> Iterator[Metric]:
    """Yields the totals of deliveries and payload by direction, and the outcomes."""
    flows = [
        ((*names, direction), totals)
        for names, received, sent in rows
        for direction, totals in (("incoming", received), ("outgoing", sent))
    ]
    both = (*labels, "direction")
    yield _counter(
        f"{prefix}_deliveries",
        "Deliveries received (incoming) or sent (outgoing).",
        both,
        [(names, totals.deliveries) for names, totals in flows],
    )
    yield _counter(
        f"{prefix}_transferred_bytes",
        "Payload received (incoming) or sent (outgoing).",
        both,
        [(names, totals.octets) for names, totals in flows],
    )
    yield _counter(
        f"{prefix}_outcomes",
        "Outcomes sent to senders (incoming) or received from receivers (outgoing)."
        " settled: settled"
        " beforehand; dropped: settled, and no receiver could take it, or one rejected it.",
        (*both, "outcome"),
        [
            ((*names, outcome), getattr(totals, outcome))
            for names, totals in flows
            for outcome in OUTCOMES
        ],
    )
    yield _counter(
        f"{prefix}_unroutable",
        "Deliveries that a target had no binding for, or that nobody received.",
        labels,
        [(names, received.unroutable) for names, received, _ in rows],
    )
    yield _counter(
        f"{prefix}_fallback_deliveries",
        "Deliveries pulled back from the route's fallback (incoming) or sent there (outgoing).",
        both,
        [(names, totals.fallback) for names, totals in flows],
    )
    yield _counter(
        f"{prefix}_redeliveries",
        "Deliveries forwarded again after a failed attempt.",
        labels,
        [(names, sent.redelivered) for names, _, sent in rows],
    )


def _in_and_out(
    routes: Sequence[RouteRecord], values: Callable[[RouteRecord], tuple[int, int]]
) -> _Samples:
    for route in routes:
        incoming, outgoing = values(route)
        yield (route.name, "incoming"), incoming
        yield (route.name, "outgoing"), outgoing


def _buckets(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Returns cumulative buckets, as the exposition format requires."""
    total = 0
    buckets = []
    for bound, count in zip((*map(str, bounds), "+Inf"), counts, strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets


def _gauge(name: str, help_text: str, labels: Sequence[str], samples: _Samples) -> Metric:
    family = GaugeMetricFamily(name, help_text, labels=labels)
    for values, value in samples:
        family.add_metric(values, float(value))
    return family


def _counter(name: str, help_text: str, labels: Sequence[str], samples: _Samples) -> Metric:
    family = CounterMetricFamily(name, help_text, labels=labels)
    for values, value in samples:
        family.add_metric(values, float(value))
    return family
