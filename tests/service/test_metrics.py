"""Metrics as Prometheus reads them."""

from collections import Counter

import attrs
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from router.core.snapshot import PeerRecord, Totals
from router.service.control import JournalRecord, LoginRecord, MeshLinkRecord, MeshRecord
from router.service.fleet import RouterSnapshot
from router.service.metrics import OUTCOMES, render
from tests.support.fleets import (
    container,
    core,
    listener,
    mesh_site,
    route,
    router_snapshot,
    stalled,
    vitals,
    worker_snapshot,
)

BUSY = route(
    "orders.#",
    senders=2,
    receivers=3,
    incoming_credit=10,
    outgoing_credit=20,
    queued=4,
    incoming_unsettled=6,
    outgoing_unsettled=5,
    in_doubt=1,
    unreachable=2,
    payload_octets=600,
    oldest_seconds=70.0,
    ages=(1, 2, 0, 0, 0, 2, 0, 1),
    received=Totals(deliveries=100, octets=5000, accepted=90, rejected=3, expired=1),
    sent=Totals(deliveries=99, octets=4900, accepted=90, redelivered=7),
)


def scrape(snapshot: RouterSnapshot) -> dict[str, Metric]:
    return {
        family.name: family for family in text_string_to_metric_families(render(snapshot).decode())
    }


def values(families: dict[str, Metric], name: str, **labels: str) -> list[float]:
    return [
        sample.value
        for family in families.values()
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]


def test_a_scrape_parses_and_no_family_or_sample_comes_twice() -> None:
    peers = (PeerRecord(container="east", is_configured=True),)
    snapshot = router_snapshot(BUSY, stalled("stuck"), containers=[container()])
    snapshot = attrs.evolve(snapshot, core=attrs.evolve(snapshot.core, peers=peers))
    families = list(text_string_to_metric_families(render(snapshot).decode()))
    assert len({family.name for family in families}) == len(families)
    samples = Counter(
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in families
        for sample in family.samples
    )
    assert set(samples.values()) == {1}
    assert all(name.startswith("router_") for name, _ in samples)
    assert all(family.documentation for family in families)


def test_counters_of_a_route_are_told_by_direction_and_outcome() -> None:
    families = scrape(router_snapshot(BUSY))
    deliveries = "router_route_deliveries_total"
    assert values(families, deliveries, route="orders.#", direction="incoming") == [100]
    assert values(families, deliveries, route="orders.#", direction="outgoing") == [99]
    outcomes = "router_route_outcomes_total"
    assert values(families, outcomes, direction="incoming", outcome="rejected") == [3]
    assert values(families, outcomes, direction="incoming", outcome="expired") == [1]
    assert len(values(families, outcomes, direction="incoming")) == len(OUTCOMES)
    assert values(families, "router_route_redeliveries_total") == [7]
    assert families["router_route_deliveries"].type == "counter"


def test_gauges_of_a_route_are_told() -> None:
    families = scrape(router_snapshot(BUSY))
    assert values(families, "router_route_credit", direction="outgoing") == [20]
    assert values(families, "router_route_links", direction="incoming") == [2]
    assert values(families, "router_route_queued_deliveries") == [4]
    assert values(families, "router_route_unsettled_deliveries", direction="incoming") == [6]
    assert values(families, "router_route_in_doubt_deliveries") == [1]
    assert values(families, "router_route_unreachable_addresses") == [2]
    assert values(families, "router_route_oldest_unsettled_seconds") == [70]
    assert values(families, "router_route_payload_bytes") == [600]


def test_ages_are_cumulative_buckets() -> None:
    families = scrape(router_snapshot(BUSY))
    name = "router_route_unsettled_age_seconds_bucket"
    assert values(families, name) == [1, 3, 3, 3, 3, 5, 5, 6]
    assert values(families, name, le="+Inf") == [6]


def test_stalls_and_pauses_are_told() -> None:
    worker = worker_snapshot(core=core(stalled("stuck"), BUSY), stalls={"stuck": 2})
    snapshot = router_snapshot(stalled("stuck", is_paused=True), BUSY, workers=(worker,))
    families = scrape(snapshot)
    assert values(families, "router_route_stalled", route="stuck") == [1]
    assert values(families, "router_route_stalled", route="orders.#") == [0]
    assert values(families, "router_route_paused", route="stuck") == [1]
    assert values(families, "router_route_stalls_total", route="stuck") == [2]
    assert values(families, "router_route_stalls_total", route="orders.#") == [0]


def test_containers_tell_whether_and_how_often_they_were_connected() -> None:
    containers = [container("east"), container("west", is_connected=True, opened=4, failed=2)]
    families = scrape(router_snapshot(containers=containers))
    assert values(families, "router_container_connected", container="east") == [0]
    assert values(families, "router_container_connected", container="west") == [1]
    assert values(families, "router_container_reconnects_total", container="west") == [3]
    assert values(families, "router_container_reconnects_total", container="east") == [0]
    assert values(families, "router_container_connect_failures_total", container="west") == [2]


def test_peers_are_told_with_what_they_hold() -> None:
    peer = PeerRecord(
        container='odd"name\n',
        is_configured=False,
        connections=2,
        incoming_unsettled=5,
        outgoing_credit=9,
        congested=1,
        received=Totals(deliveries=8, accepted=8),
    )
    snapshot = router_snapshot()
    snapshot = attrs.evolve(snapshot, core=attrs.evolve(snapshot.core, peers=(peer,)))
    families = scrape(snapshot)
    labels = {"container": 'odd"name\\n', "configured": "false"}
    assert values(families, "router_connection_open", **labels) == [2]
    assert values(families, "router_connection_congested", **labels) == [1]
    name = "router_connection_unsettled_deliveries"
    assert values(families, name, direction="incoming", **labels) == [5]
    assert values(families, "router_connection_credit", direction="outgoing", **labels) == [9]
    name = "router_connection_deliveries_total"
    assert values(families, name, direction="incoming", **labels) == [8]


HOSTILE = ("\x1b[2J", "\\x1b[2J", "a\u202eb", "x" * 70_000, "x" * 70_001, "[red]", "\0", "tab\t")


def test_labels_of_peers_are_printable_short_and_tell_them_apart() -> None:
    peers = tuple(PeerRecord(container=name, is_configured=False) for name in HOSTILE)
    snapshot = router_snapshot()
    text = render(attrs.evolve(snapshot, core=attrs.evolve(snapshot.core, peers=peers))).decode()
    assert all(line.isprintable() and len(line) < 500 for line in text.split("\n"))
    found = [line for line in text.split("\n") if line.startswith("router_connection_open{")]
    assert len(set(found)) == len(HOSTILE)


def test_workers_tell_lag_memory_and_processor_time() -> None:
    lagging = vitals(lags=(7, 1, 0, 0, 0, 0, 0, 0, 0, 2), lag_sum_seconds=4.5)
    workers = (worker_snapshot(0, core=core(), vitals=lagging),)
    families = scrape(router_snapshot(workers=workers))
    lag = "router_event_loop_lag_seconds"
    assert families[lag].type == "histogram"
    assert values(families, f"{lag}_bucket", worker="0", le="0.001") == [7]
    assert values(families, f"{lag}_bucket", worker="0", le="+Inf") == [10]
    assert values(families, f"{lag}_count", worker="0") == [10]
    assert values(families, f"{lag}_sum", worker="0") == [4.5]
    assert values(families, "router_worker_resident_memory_bytes", worker="0") == [50 << 20]
    assert values(families, "router_worker_cpu_seconds_total", worker="0") == [1.5]


def test_readiness_drain_and_listeners_are_told() -> None:
    families = scrape(router_snapshot(listeners=(listener(is_open=False),), is_draining=True))
    assert values(families, "router_ready") == [0]
    assert values(families, "router_draining") == [1]
    assert values(families, "router_listener_open", listener="127.0.0.1:5672") == [0]
    assert values(families, "router_info", id="dc1", version="1.2.3") == [1]


def test_links_and_sites_of_the_mesh_are_told() -> None:
    mesh = MeshRecord(
        router="dc1",
        links=(MeshLinkRecord(router="dc2", cost=10, is_up=True),),
        sites=(mesh_site("dc2", cost=10), mesh_site("dc3", cost=None)),
    )
    families = scrape(attrs.evolve(router_snapshot(), workers=(worker_snapshot(mesh=mesh),)))
    assert values(families, "router_mesh_link_up", neighbor="dc2") == [1]
    assert values(families, "router_mesh_site_reached", site="dc2") == [1]
    assert values(families, "router_mesh_site_reached", site="dc3") == [0]


def test_the_journal_and_failed_logins_are_told() -> None:
    journal = JournalRecord(trouble="No space left", records=10, durable=4, waiting_octets=600)
    logins = LoginRecord(failed=5, sources=(("10.0.0.7", 3), ("10.0.0.8", 1)))
    workers = (
        worker_snapshot(1, journal=journal, logins=logins),
        worker_snapshot(2, logins=attrs.evolve(logins, failed=1)),
    )
    families = scrape(attrs.evolve(router_snapshot(), workers=workers))
    assert values(families, "router_journal_writing") == [0]
    assert values(families, "router_journal_records_total", worker="1") == [10]
    assert values(families, "router_journal_durable_records_total") == [4]
    assert values(families, "router_journal_waiting_bytes") == [600]
    assert values(families, "router_failed_logins_total") == [5, 1]
    assert values(families, "router_recent_failed_logins", source="10.0.0.7") == [6]
