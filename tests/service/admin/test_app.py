"""What the API answers."""

import gzip
import json
import re
import time
from collections.abc import Sequence
from typing import Any

import attrs
import jsonschema
import pytest
from prometheus_client.parser import text_string_to_metric_families

from router.core.listing import Filter
from router.core.resolve import Decision
from router.core.snapshot import PeerRecord, RouteRecord, Totals
from router.core.trace import TraceLine
from router.routes.route import Endpoint, Route
from router.routes.table import RoutingTable
from router.service.admin.history import Rates, Sample
from router.service.config.process import LogLevel
from router.service.control import ContainerRecord, MeshRecord
from router.service.difference import Change, Difference
from router.service.fleet import ReloadReport
from router.service.metrics import UNUSED_ROUTES_MOST
from tests.support.fleets import (
    FakeControl,
    KnownHistory,
    Site,
    container,
    core,
    delivery,
    fleet,
    listener,
    mesh_site,
    rejecting,
    route,
    router_snapshot,
    stalled,
    uplink,
    worker_snapshot,
)

RATES = Rates(
    received=10.0,
    sent=20.0,
    received_octets=1000.0,
    sent_octets=2000.0,
    outcomes=10.0,
    outcome_seconds=0.05,
)


def site_of(*routes: RouteRecord, containers: Sequence[ContainerRecord] = ()) -> Site:
    known = worker_snapshot(core=core(*routes), containers=tuple(containers))
    return Site(fleet(FakeControl(fares=known)))


def huge(*used: RouteRecord, count: int) -> Site:
    """A router with many routes, of which only some were used."""
    site = site_of(*used)
    site.fleet.steering.table = RoutingTable(Route(address=f"r{number}") for number in range(count))
    return site


# Probes


async def test_livez_answers_without_asking_any_worker() -> None:
    site = Site(fleet(FakeControl(is_silent=True)))
    answer = await site.get("/livez")
    assert (answer.status, answer.json) == (200, {"live": True})


async def test_readyz_says_that_all_is_well() -> None:
    answer = await Site().get("/readyz")
    assert (answer.status, answer.json) == (
        200,
        {"ready": True, "reasons": [], "stalls": [], "broken": [], "still_ready": None},
    )


async def test_readyz_says_what_is_broken_and_why_the_router_is_ready_all_the_same() -> None:
    answer = await site_of(rejecting("orders"), containers=[container("gone")]).get("/readyz")
    assert (answer.status, answer.json["ready"]) == (200, True)
    assert answer.json["broken"] == [
        "container gone is not connected for 30 s: Connection refused (3 attempts failed)",
        "route orders 12 deliveries were rejected by west, the last 4 s ago at 'orders':"
        " amqp:not-found: no such queue",
    ]
    assert "its listeners are open, and its other routes serve" in answer.json["still_ready"]
    assert "--wait-for" in answer.json["still_ready"]


async def test_readyz_names_the_containers_that_it_depends_on() -> None:
    known = [container("east", is_connected=True), container("west")]
    site = site_of(containers=known)
    site.fleet.steering.required_containers = ("east",)
    answer = (await site.get("/readyz")).json
    assert "its listeners are open and east connected" in answer["still_ready"]
    site.fleet.steering.required_containers = ("west",)
    answer = (await site.get("/readyz")).json
    assert (answer["ready"], answer["still_ready"]) == (False, None)
    assert len(answer["broken"]) == 1


async def test_a_warning_breaks_nothing() -> None:
    site = site_of(route("doubtful", in_doubt=2))
    assert (await site.get("/readyz")).json["still_ready"] is None
    status = (await site.get("/api/v1/status")).json
    assert (status["is_broken"], len(status["problems"])) == (False, 1)


async def test_readyz_gives_every_reason_why_not() -> None:
    site = site_of(stalled("stuck"), containers=(container("west"),))
    site.fleet.steering.required_containers = ("west",)
    site.fleet.steering.listening = (listener(is_open=False),)
    answer = await site.get("/readyz")
    assert answer.status == 503
    assert answer.json["ready"] is False
    assert answer.json["reasons"] == [
        "listener 127.0.0.1:5672 is not open",
        "container west is not connected: Connection refused",
    ]
    assert answer.json["stalls"][0].startswith("route stuck is stalled: ")


async def test_a_draining_router_is_not_ready() -> None:
    site = Site()
    site.fleet.steering.is_draining = True
    answer = await site.get("/readyz")
    assert (answer.status, answer.json["reasons"]) == (503, ["it is draining"])


async def test_a_router_whose_workers_are_not_up_is_not_ready() -> None:
    site = Site()
    site.fleet.workers.clear()
    answer = await site.get("/readyz")
    assert answer.status == 503
    assert answer.json == {
        "ready": False,
        "reasons": ["it starts its workers"],
        "stalls": [],
        "broken": [],
        "still_ready": None,
    }
    assert (await site.get("/livez")).status == 200


async def test_a_list_of_a_worker_that_is_just_gone_is_unavailable() -> None:
    answer = await Site(fleet(FakeControl(is_gone=True))).get("/api/v1/links")
    assert answer.status == 503


async def test_metrics_are_text_that_prometheus_parses() -> None:
    answer = await Site().get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    names = {each.name for each in text_string_to_metric_families(answer.body.decode())}
    assert {"router_ready", "router_route_deliveries", "router_event_loop_lag_seconds"} <= names


async def test_metrics_of_a_huge_table_have_what_is_used_and_some_of_the_rest() -> None:
    site = huge(route("r4000", senders=1), count=5000)
    text = (await site.get("/metrics")).body.decode()
    shown = set(re.findall(r'router_route_paused{route="(\w+)"}', text))
    assert shown == {*(f"r{number}" for number in range(UNUSED_ROUTES_MOST)), "r4000"}


# Status


async def test_status_tells_what_is_wrong_first() -> None:
    site = site_of(stalled("stuck"), route(queued=2, incoming_unsettled=5, oldest_seconds=3.0))
    status = (await site.get("/api/v1/status")).json
    assert status["id"] == "dc1"
    assert status["uptime_seconds"] == 1000.0
    assert status["is_ready"] is True
    assert status["problems"][0]["severity"] == "error"
    assert (status["unsettled"], status["queued"], status["oldest_seconds"]) == (5, 2, 3.0)
    assert status["workers"][0]["process"] == 4711
    assert status["rates"] is None


async def test_overview_shows_the_worst_routes_first_then_the_busiest() -> None:
    routes = (
        route("idle"),
        route("busy"),
        route("paused", is_paused=True),
        route("broken", senders=1, uplinks=(uplink("away"),)),
        stalled("stuck"),
        route("busier"),
    )
    site = site_of(*routes)
    rates = {"busy": RATES, "busier": attrs.evolve(RATES, received=1000.0)}
    site = Site(site.fleet, history=KnownHistory(rates=rates))
    overview = (await site.get("/api/v1/overview")).json
    assert [each["name"] for each in overview["routes"]] == [
        "stuck", "broken", "paused", "busier", "busy", "idle",
    ]  # fmt: skip
    states = [each["state"] for each in overview["routes"]]
    assert states == ["stalled", "broken", "paused", "flowing", "flowing", "idle"]


async def test_overview_leaves_out_what_is_too_much_and_says_how_much() -> None:
    containers = [container("good", is_connected=True), container("bad")]
    site = site_of(*(route(f"r{number}") for number in range(10)), containers=containers)
    overview = (await site.get("/api/v1/overview?most=1")).json
    assert (len(overview["routes"]), overview["hidden_routes"]) == (1, 9)
    assert [each["name"] for each in overview["containers"]] == ["bad"]
    assert overview["hidden_containers"] == 1


async def test_routes_that_lead_to_a_container_that_is_away_are_not_idle() -> None:
    routes = [
        route("to", to=("gone/queue",)),
        route("from", from_="gone", to=("here",)),
        route("either", to=("here", "gone")),
        route("well", to=("here",)),
    ]
    site = site_of(*routes, containers=[container("gone"), container("here", is_connected=True)])
    overview = (await site.get("/api/v1/overview")).json
    states = {each["name"]: each["state"] for each in overview["routes"]}
    assert states == {"to": "away", "from": "away", "either": "away", "well": "idle"}
    assert overview["routes"][-1]["name"] == "well"
    assert (await site.get("/api/v1/routes/to")).json["state"] == "away"
    assert (await site.get("/api/v1/routes")).json["routes"][0]["state"] == "away"


async def test_a_route_of_which_a_delivery_was_rejected_lately_says_so() -> None:
    site = site_of(route("busy", senders=1), rejecting("lately"), rejecting("once", seconds=301.0))
    site = Site(site.fleet, history=KnownHistory(rates={"busy": RATES}))
    overview = (await site.get("/api/v1/overview")).json
    found = [(each["name"], each["state"]) for each in overview["routes"]]
    assert found == [("lately", "rejecting"), ("busy", "flowing"), ("once", "idle")]
    assert overview["routes"][0]["rejection"] == {
        "count": 12,
        "seconds": 4.0,
        "reason": "amqp:not-found: no such queue",
        "peer": "west",
        "address": "lately",
        "by_router": False,
        "untold": 0,
    }
    assert overview["routes"][2]["rejection"]["count"] == 12
    assert [each["name"] for each in overview["status"]["problems"]] == ["lately"]


async def test_of_5000_routes_nobody_has_used_those_that_lead_nowhere_come_first() -> None:
    site = huge(route("r4000", senders=1), count=5000)
    gone = (Route(address=f"gone{number}", to=(Endpoint("gone"),)) for number in range(4))
    site.fleet.steering.table = RoutingTable((*site.fleet.steering.table.routes, *gone))
    (control,) = site.fleet.workers
    assert isinstance(control, FakeControl)
    control.fares = attrs.evolve(control.fares, containers=(container("gone"),))
    overview = (await site.get("/api/v1/overview?most=3")).json
    assert [each["name"] for each in overview["routes"]] == ["gone0", "gone1", "gone2"]
    assert overview["hidden_routes"] == 5001
    assert overview["hidden_states"] == {"away": 1, "idle": 5000}


async def test_overview_leaves_idle_routes_out_and_counts_every_state() -> None:
    used = (
        route("waits", queued=1, senders=1, blocked_senders=1),
        stalled("stuck"),
        route("quiet", senders=1),
        route("in doubt", in_doubt=1),
    )
    site = huge(*used, count=5000)
    overview = (await site.get("/api/v1/overview?idle=5001")).json
    assert [each["name"] for each in overview["routes"]] == ["stuck", "in doubt", "waits"]
    assert overview["route_counts"] == {"stalled": 1, "waiting": 1, "idle": 5002}
    assert overview["hidden_states"] == {"idle": 5001}
    assert overview["hidden_routes"] == 5001
    overview = (await site.get("/api/v1/overview?idle=5002&most=5")).json
    assert [each["name"] for each in overview["routes"][3:]] == ["quiet", "r0"]


async def test_many_routes_in_trouble_leave_a_third_of_the_places_to_the_busiest() -> None:
    broken = (stalled(f"stuck.{number}") for number in range(9))
    busy = [route(f"busy.{number}") for number in range(9)]
    rates = {each.name: attrs.evolve(RATES, sent=float(place)) for place, each in enumerate(busy)}
    site = Site(site_of(*broken, *busy).fleet, history=KnownHistory(rates=rates))
    overview = (await site.get("/api/v1/overview?most=6")).json
    assert [each["name"] for each in overview["routes"]] == [
        "stuck.0", "stuck.1", "stuck.2", "stuck.3", "busy.8", "busy.7",
    ]  # fmt: skip
    overview = (await site.get("/api/v1/overview?most=6&match=stuck")).json
    assert len(overview["routes"]) == 6


async def test_overview_finds_routes_by_a_text_in_their_names_and_endpoints() -> None:
    used = (route("orders", to=("east/Orders",)), route("prices", from_="west/prices"))
    site = huge(*used, count=50)
    found = (await site.get("/api/v1/overview?match=west")).json["routes"]
    assert [each["name"] for each in found] == ["prices"]
    found = (await site.get("/api/v1/overview?match=east/ORDERS")).json["routes"]
    assert [each["name"] for each in found] == ["orders"]
    found = (await site.get("/api/v1/overview?match=r1&most=3")).json["routes"]
    assert [each["name"] for each in found] == ["r1", "r10", "r11"]


async def test_overview_lists_the_worst_problems_and_counts_all() -> None:
    paused = (route(f"p{number}", is_paused=True) for number in range(300))
    overview = (await site_of(*paused, stalled("stuck")).get("/api/v1/overview?most=2")).json
    assert [each["severity"] for each in overview["status"]["problems"]] == ["error", "note"]
    assert overview["problem_counts"] == {"error": 1, "warning": 0, "note": 300}
    assert overview["hidden_problems"] == 299


async def test_overview_leaves_links_between_workers_out_and_puts_peers_in_trouble_first() -> None:
    peers = (
        PeerRecord(container="/1", is_configured=True, incoming_unsettled=900),
        PeerRecord(container="busy", is_configured=False, incoming_unsettled=500),
        PeerRecord(container="slow", is_configured=False, congested=1),
    )
    site = Site(fleet(FakeControl(fares=worker_snapshot(core=core(peers=peers)))))
    overview = (await site.get("/api/v1/overview")).json
    assert [each["container"] for each in overview["peers"]] == ["slow", "busy"]
    assert overview["hidden_peers"] == 0


async def test_rates_of_an_overview_are_of_one_interval_and_add_up() -> None:
    def worker(number: int, at: float, moved: int) -> FakeControl:
        records = (
            route("orders", received=Totals(deliveries=moved)),
            route("prices", received=Totals(deliveries=3 * moved)),
        )
        peer = PeerRecord(
            container="east", is_configured=True, received=Totals(deliveries=4 * moved)
        )
        return FakeControl(number, worker_snapshot(core=core(*records, at=at, peers=(peer,))))

    made = fleet(worker(0, 100.0, 1000), worker(1, 70_000.0, 0))
    site = Site(made)
    site.history.add(await made.control.snapshot())
    made.workers[:] = [worker(0, 104.0, 1400), worker(1, 70_004.0, 40)]
    overview = (await site.get("/api/v1/overview")).json
    rates = {each["name"]: each["rates"]["received"] for each in overview["routes"]}
    assert rates == {"orders": 110.0, "prices": 330.0}
    assert overview["status"]["rates"]["received"] == 440.0
    assert overview["peers"][0]["rates"] == {"received": 440.0, "sent": 0.0}


async def test_long_answers_are_compressed_for_those_who_accept_that() -> None:
    site = huge(count=5000)
    plain = await site.get("/api/v1/overview?most=100")
    assert "content-encoding" not in plain.headers
    for accepted in ("gzip", "br, gzip", "gzip;q=0.5"):
        answer = await site.get("/api/v1/overview?most=100", accept_encoding=accepted)
        assert answer.headers["content-encoding"] == "gzip"
        assert len(answer.body) < len(plain.body) / 10
        assert json.loads(gzip.decompress(answer.body))["routes"] == plain.json["routes"]
    for accepted in ("br", "gzip;q=0", "gzip;q=0.0", ""):
        answer = await site.get("/api/v1/overview?most=100", accept_encoding=accepted)
        assert "content-encoding" not in answer.headers
    short = await site.get("/livez", accept_encoding="gzip")
    assert "content-encoding" not in short.headers


async def test_overview_brings_the_samples_that_are_later() -> None:
    site = site_of(route())
    for number in range(3):
        site.history.add(
            attrs.evolve(
                router_snapshot(),
                at=1000.0 + number,
                workers=(worker_snapshot(core=core(at=float(number))),),
            )
        )
    assert (await site.get("/api/v1/overview")).json["samples"] == []
    samples = (await site.get("/api/v1/overview?since=1001")).json["samples"]
    assert [each["at"] for each in samples] == [1002.0]


async def test_a_huge_table_is_counted_and_listed_whole_and_its_used_routes_come_first() -> None:
    site = huge(route("r4000", senders=1), stalled("r17"), count=5000)
    overview = (await site.get("/api/v1/overview?most=3")).json
    assert [each["name"] for each in overview["routes"]] == ["r17", "r4000", "r0"]
    assert overview["hidden_routes"] == 4997
    assert overview["hidden_states"] == {"idle": 4997}
    assert overview["status"]["routes"] == 5000
    page = (await site.get("/api/v1/routes?limit=3")).json
    assert [each["name"] for each in page["routes"]] == ["r0", "r1", "r2"]
    found = (await site.get("/api/v1/routes/r4000")).json
    assert (found["senders"], found["state"]) == (1, "idle")
    assert (await site.get("/api/v1/routes/r4001")).json["senders"] == 0
    assert (await site.get("/api/v1/routes/r5000")).status == 404


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "idle"),
        ({"blocked_senders": 1}, "waiting"),
        ({"queued": 1}, "waiting"),
        ({"uplinks": (uplink("away"),)}, "idle"),
        ({"uplinks": (uplink("away"),), "from_": "east"}, "broken"),
        ({"uplinks": (uplink("paused"),), "senders": 1}, "broken"),
        ({"uplinks": (uplink("attached"),), "senders": 1}, "idle"),
        ({"is_paused": True, "queued": 3}, "paused"),
    ],
)
async def test_the_state_of_a_route_is_the_worst_that_is_true_of_it(
    fields: dict[str, Any], state: str
) -> None:
    shown = (await site_of(attrs.evolve(route(), **fields)).get("/api/v1/routes/orders")).json
    assert shown["state"] == state


async def test_history_goes_back_as_far_as_asked() -> None:
    site = Site()
    now = time.time()
    for ago in (1000.0, 100.0, 10.0):
        site.history.samples.append(
            Sample(
                at=now - ago,
                rates=RATES,
                unsettled=1,
                queued=0,
                in_doubt=0,
                oldest_seconds=None,
                lag_seconds=0.0,
            )
        )
    assert len((await site.get("/api/v1/history")).json["samples"]) == 2
    assert len((await site.get("/api/v1/history?seconds=3600")).json["samples"]) == 3
    assert len((await site.get("/api/v1/history?seconds=50")).json["samples"]) == 1


# Routes


async def test_routes_are_paged_in_the_order_of_the_file() -> None:
    site = site_of(*(route(f"r{number}") for number in range(5)))
    seen: list[str] = []
    path = "/api/v1/routes?limit=2"
    while True:
        page = (await site.get(path)).json
        seen += [each["name"] for each in page["routes"]]
        if page["next"] is None:
            break
        path = f"/api/v1/routes?limit=2&after={page['next']}"
    assert seen == ["r0", "r1", "r2", "r3", "r4"]


async def test_a_route_is_found_by_a_name_with_any_characters() -> None:
    site = site_of(route("a/b c.#"))
    shown = await site.get("/api/v1/routes/a%2Fb%20c.%23")
    assert (shown.status, shown.json["name"]) == (200, "a/b c.#")


async def test_a_routes_keyword_field_has_its_plain_name() -> None:
    shown = (await site_of(route(from_="east")).get("/api/v1/routes/orders")).json
    assert shown["from"] == "east"
    assert "from_" not in shown


async def test_pause_and_resume_reach_every_worker() -> None:
    site = Site(fleet(FakeControl(0), FakeControl(1)))
    assert (await site.post("/api/v1/routes/orders/pause")).status == 200
    assert (await site.post("/api/v1/routes/orders/resume")).status == 200
    for worker in site.fleet.workers:
        assert worker.asked == [("pause", "orders"), ("resume", "orders")]


@pytest.mark.parametrize("what", ["", "/pause", "/resume"])
async def test_a_route_that_is_not_there_is_not_found(what: str) -> None:
    path = f"/api/v1/routes/nothing{what}"
    answer = await (Site().post(path) if what else Site().get(path))
    assert answer.status == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json == {
        "title": "Not Found",
        "status": 404,
        "detail": "there is no route named 'nothing'",
    }


# Lists


async def test_connections_and_links_are_listed_with_their_worker() -> None:
    site = Site(fleet(FakeControl(0, connected=(1,), attached=(1, 2))))
    (entry,) = (await site.get("/api/v1/connections")).json["connections"]
    assert (entry["worker"], entry["connection"], entry["container"]) == (0, 1, "client-1")
    assert (entry["octets_in"], entry["listener"]) == (10, "127.0.0.1:5672")
    links = (await site.get("/api/v1/links?limit=1")).json
    assert [each["name"] for each in links["links"]] == ["link-1"]
    more = (await site.get(f"/api/v1/links?limit=1&after={links['next']}")).json
    assert [each["name"] for each in more["links"]] == ["link-2"]
    assert more["next"] is None


async def test_deliveries_are_listed_oldest_first_and_filters_are_passed_on() -> None:
    worker = FakeControl(unsettled=[delivery(b"old", 50), delivery(b"new", 5)])
    site = Site(fleet(worker))
    page = (await site.get("/api/v1/deliveries?route=orders&container=sink&in_doubt=true")).json
    assert [each["tag"] for each in page["deliveries"]] == [b"old".hex(), b"new".hex()]
    assert "position" not in page["deliveries"][0]
    (_, wanted) = worker.asked[0]
    assert (wanted.route, wanted.container, wanted.in_doubt) == ("orders", "sink", True)


async def test_peers_and_containers_are_listed() -> None:
    site = site_of(containers=(container("east"), container("west", is_connected=True)))
    worker = site.fleet.workers[0]
    peer = PeerRecord(container="client", is_configured=False, connections=2)
    known = attrs.evolve(worker.fares.core, peers=(peer,))
    worker.fares = attrs.evolve(worker.fares, core=known)
    assert (await site.get("/api/v1/peers")).json["peers"][0]["connections"] == 2
    page = (await site.get("/api/v1/containers?limit=1")).json
    assert [each["name"] for each in page["containers"]] == ["east"]
    rest = (await site.get(f"/api/v1/containers?after={page['next']}")).json
    assert [each["name"] for each in rest["containers"]] == ["west"]


# Orders


async def test_a_delivery_in_doubt_is_decided_about() -> None:
    worker = FakeControl(in_doubt={b"\x0a\xff": 1})
    site = Site(fleet(worker))
    answer = await site.post(
        "/api/v1/deliveries/0AFF/resolve", {"decision": "resend", "link": "push"}
    )
    assert (answer.status, answer.json) == (200, {"resolved": 1})
    assert worker.asked == [("resolve", b"\x0a\xff", "push", Decision.RESEND)]


async def test_a_tag_that_several_links_use_needs_the_name_of_one() -> None:
    ours, theirs = delivery(b"\0\0", 50), delivery(b"\0\0", 5, link="another")
    worker = FakeControl(unsettled=[ours, theirs], in_doubt={b"\0\0": 2})
    site = Site(fleet(worker))
    answer = await site.post("/api/v1/deliveries/0000/resolve", {"decision": "accept"})
    assert answer.status == 409
    assert "name the link: another (" in answer.json["detail"]
    assert worker.asked == [("deliveries", Filter(in_doubt=True, tag="0000"))]
    body = {"decision": "accept", "link": "another"}
    assert (await site.post("/api/v1/deliveries/0000/resolve", body)).status == 200


@pytest.mark.parametrize("tag", ["00", "zz", "0", "0a" * 300])
async def test_a_tag_that_nothing_in_doubt_has_is_not_found(tag: str) -> None:
    answer = await Site().post(f"/api/v1/deliveries/{tag}/resolve", {"decision": "accept"})
    assert answer.status in (400, 404)
    assert answer.json["detail"]


async def test_drain_begins_and_says_so() -> None:
    site = Site()
    answer = await site.post("/api/v1/drain")
    assert (answer.status, answer.json["is_draining"]) == (202, True)
    assert site.fleet.steering.is_draining


async def test_reload_tells_the_difference() -> None:
    site = Site()
    site.fleet.steering.report = ReloadReport(
        differences=(
            Difference(section="routes", name="new", change=Change.ADDED),
            Difference(section="routes", name="old", change=Change.REMOVED, kept=5),
            Difference(
                section="router",
                name=None,
                change=Change.CHANGED,
                options=("id",),
                waits_for_restart=True,
            ),
        )
    )
    answer = await site.post("/api/v1/reload")
    assert answer.json["differences"] == [
        {
            "section": "routes",
            "name": "new",
            "change": "added",
            "options": [],
            "waits_for_restart": False,
            "kept": 0,
            "effects": [],
        },
        {
            "section": "routes",
            "name": "old",
            "change": "removed",
            "options": [],
            "waits_for_restart": False,
            "kept": 5,
            "effects": [],
        },
        {
            "section": "router",
            "name": None,
            "change": "changed",
            "options": ["id"],
            "waits_for_restart": True,
            "kept": 0,
            "effects": [],
        },
    ]


async def test_a_dry_run_tells_the_difference_and_reloads_nothing() -> None:
    site = Site()
    effects = ("its connection is closed",)
    gone = Difference(section="containers", name="east", change=Change.REMOVED, effects=effects)
    site.fleet.steering.report = ReloadReport(differences=(gone,))
    answer = await site.post("/api/v1/reload?dry_run=true")
    (told,) = answer.json["differences"]
    assert (told["name"], told["effects"]) == ("east", [*effects])
    assert site.fleet.steering.reloads == 0
    await site.post("/api/v1/reload?dry_run=false")
    assert site.fleet.steering.reloads == 1


async def test_a_file_with_problems_is_a_conflict_that_tells_them() -> None:
    site = Site()
    problems = ("router.yaml:3:1: unknown key", "router.yaml:9:1: no container")
    site.fleet.steering.report = ReloadReport(problems=problems)
    answer = await site.post("/api/v1/reload")
    assert (answer.status, answer.json["detail"]) == (409, "\n".join(problems))


@pytest.mark.parametrize("query", ["", "?dry_run=true"])
async def test_a_router_that_reads_no_file_now_says_why(query: str) -> None:
    site = Site()
    site.fleet.steering.report = ReloadReport(refusal="this router is a standby")
    answer = await site.post(f"/api/v1/reload{query}")
    assert (answer.status, answer.json["detail"]) == (503, "this router is a standby")


async def test_the_log_level_is_told_and_set() -> None:
    site = Site()
    assert (await site.get("/api/v1/log-level")).json == {"level": "info"}
    body = json.dumps({"level": "debug"}).encode()
    answer = await site.ask("PUT", "/api/v1/log-level", body, {"content-type": "application/json"})
    assert (answer.status, answer.json) == (200, {"level": "debug"})
    assert site.fleet.steering.log_level is LogLevel.DEBUG


async def test_a_trace_comes_line_by_line_and_ends() -> None:
    line = TraceLine(
        seconds=0.5,
        what="transfer",
        is_incoming=True,
        delivery=1,
        container="source",
        link="push",
        text="tag 00, 10 octets, unsettled",
    )
    worker = FakeControl(lines=[[line], [line]])
    answer = await Site(fleet(worker)).post("/api/v1/trace", {"address": "orders", "count": 2})
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(text) for text in answer.body.decode().splitlines() if text]
    assert len(lines) == 2
    assert lines[0]["worker"] == 0
    assert lines[0]["text"] == "tag 00, 10 octets, unsettled"
    assert worker.asked == [("trace", "orders", 2), ("trace ended",)]


async def test_a_trace_of_what_is_no_pattern_is_refused() -> None:
    answer = await Site().post("/api/v1/trace", {"address": "a.#b"})
    assert answer.status == 400


# Reading requests


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/api/v1/status?x=1", "unknown parameter 'x'"),
        ("/api/v1/links?limit=0", "less than 1"),
        ("/api/v1/links?limit=501", "more than 500"),
        ("/api/v1/links?limit=1e3", "whole number"),
        ("/api/v1/links?limit=", "whole number"),
        ("/api/v1/links?limit=5&limit=6", "given twice"),
        ("/api/v1/deliveries?in_doubt=yes", "true or false"),
        ("/api/v1/links?after=no%20cursor", "not of the form"),
        (f"/api/v1/links?route={'x' * 5000}", "more than 4096 characters"),
    ],
)
async def test_a_query_that_is_not_as_documented_is_refused(path: str, reason: str) -> None:
    answer = await Site().get(path)
    assert answer.status == 400
    assert reason in answer.json["detail"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[" * 10_000, "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "key 'address' is missing"),
        (b'{"address": 3}', "of type str"),
        (b'{"address": null}', "of type str"),
        (b'{"address": ""}', "less than 1 characters"),
        (b'{"address": "a", "count": 0}', "less than 1"),
        (b'{"address": "a", "count": true}', "of type int"),
        (b'{"address": "a", "count": 1.5}', "of type int"),
        (b'{"address": "a", "seconds": NaN}', "less than 0.1"),
        (b'{"address": "a", "seconds": 1e9}', "more than 600"),
        (b'{"address": "a", "x": 1}', "unknown key 'x'"),
        (b'{"address": "a\\ud800"}', "half of a surrogate pair"),
    ],
)
async def test_a_body_that_is_not_as_documented_is_refused(body: bytes, reason: str) -> None:
    answer = await Site().ask("POST", "/api/v1/trace", body, {"content-type": "application/json"})
    assert answer.status == 400
    assert reason in answer.json["detail"]


async def test_a_body_of_another_type_is_refused() -> None:
    answer = await Site().ask("POST", "/api/v1/trace", b"{}", {"content-type": "text/plain"})
    assert answer.status == 415


@pytest.mark.parametrize("path", ["/api/v1/trace", "/api/v1/drain", "/api/v1/status"])
async def test_a_long_body_is_refused_wherever_it_is_sent(path: str) -> None:
    method = "GET" if path.endswith("status") else "POST"
    parts = [b"x" * 10_000] * 8
    answer = await Site().ask(method, path, parts, {"content-type": "application/json"})
    assert answer.status == 413


@pytest.mark.parametrize("what", ["routes", "containers", "connections", "links", "deliveries"])
async def test_a_cursor_that_is_none_of_the_list_leads_nowhere(what: str) -> None:
    answer = await Site().get(f"/api/v1/{what}?after=nonsense")
    assert answer.status == 404
    assert "no cursor" in answer.json["detail"]


async def test_a_path_below_a_name_allows_its_own_methods_only() -> None:
    wrong = await Site().ask("OPTIONS", "/api/v1/routes/orders/pause")
    assert (wrong.status, wrong.headers["allow"]) == (405, "POST")


async def test_an_unknown_path_and_a_wrong_method_are_told_apart() -> None:
    assert (await Site().get("/api/v1/nothing")).status == 404
    wrong = await Site().ask("DELETE", "/api/v1/log-level")
    assert wrong.status == 405
    assert set(wrong.headers["allow"].split(", ")) >= {"GET", "PUT"}
    assert wrong.headers["content-type"] == "application/problem+json"


async def test_a_router_that_does_not_answer_is_unavailable(autojump_clock: object) -> None:
    answer = await Site(fleet(FakeControl(is_silent=True))).get("/api/v1/status")
    assert answer.status == 503


async def test_a_defect_is_answered_and_gives_nothing_away(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()

    async def fail() -> None:
        raise ValueError("secret details")

    monkeypatch.setattr(type(site.fleet.control), "snapshot", lambda self: fail())
    with pytest.raises(ValueError, match="secret details"):  # goes on to the server, which logs it
        await site.get("/api/v1/status")


# The document


async def test_the_openapi_document_names_every_path_and_its_answers_fit() -> None:
    site = site_of(
        stalled(uplinks=(uplink("paused", "refused"),), oldest_seconds=5.0),
        containers=(container(),),
    )
    (worker,) = site.fleet.workers
    worker.shared_mesh = MeshRecord(router="dc1", links=(), sites=(mesh_site("dc2", cost=10),))
    site = Site(site.fleet, history=KnownHistory(rates={"orders": RATES}))
    document = (await site.get("/openapi.json")).json
    assert document["openapi"].startswith("3.1")
    checked = 0
    for path, operations in document["paths"].items():
        if "get" not in operations or "{" in path:
            continue
        schema = operations["get"]["responses"]["200"]["content"].get("application/json")
        if schema is None:
            continue
        answer = (await site.get(path)).json
        resolved = {**schema["schema"], "components": document["components"]}
        jsonschema.Draft202012Validator(resolved).validate(answer)
        checked += 1
    assert checked >= 10


async def test_every_schema_describes_itself_and_its_fields() -> None:
    document = (await Site().get("/openapi.json")).json
    schemas = document["components"]["schemas"]
    assert schemas["RouteView"]["properties"]["from"]["description"]
    assert schemas["TraceBody"]["required"] == ["address"]
    assert schemas["TraceBody"]["properties"]["count"]["maximum"] == 100
    for name, schema in schemas.items():
        assert schema["description"], name
        jsonschema.Draft202012Validator.check_schema(schema)


async def test_of_very_many_differences_the_answer_lists_some_and_counts_all() -> None:
    site = Site()
    many = [Difference(section="routes", name=f"r{n}", change=Change.ADDED) for n in range(50_000)]
    kept = Difference(section="routes", name="old", change=Change.REMOVED, kept=5)
    limits = Difference(section="limits", name=None, change=Change.CHANGED, waits_for_restart=True)
    site.fleet.steering.report = ReloadReport(differences=(*many, kept, limits))
    answer = await site.post("/api/v1/reload")
    told = answer.json
    counts = {key: told[key] for key in ("total", "added", "removed", "changed", "waiting")}
    assert counts == {
        "total": 50_002,
        "added": 50_000,
        "removed": 1,
        "changed": 0,
        "waiting": 1,
    }
    names = [each["name"] for each in told["differences"]]
    assert names == [*(f"r{n}" for n in range(998)), "old", None]
    assert len(answer.body) < 200_000
