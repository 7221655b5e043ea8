"""What stored routes hold, put together from the answers of all workers."""

import io
from pathlib import Path
from typing import Any

import attrs
import pytest
from rich.console import Console

from router.cli.depth_screen import routes
from router.journal.disk import Disk
from router.journal.segment import segment_name
from router.journal.store.queues import Bounds, Full
from router.routes.route import Endpoint, Route, Storing, WhenFull
from router.routes.table import RoutingTable
from router.service.admin.showing import as_json, stored_route_view
from router.service.admin.views import StoreView
from router.service.config import read
from router.service.control import StoredRecord, StoreRecord
from router.service.diagnosis.rules import diagnose
from router.service.fleet import RouterSnapshot
from router.service.kept_store import await_storing, read_kept
from router.service.metrics import render
from router.service.route_list import RouteList
from router.service.stores import has_store, is_answering, share_of, stored_routes
from tests.support.fleets import container, router_snapshot, worker_snapshot
from tests.support.stored import Custodian

STORED = Route(
    address="telemetry.#",
    to=(Endpoint("cloud"),),
    store=Storing(messages=1000, octets=1 << 30, full=WhenFull.REFUSE),
    dead_letter=Endpoint("cloud", "dead"),
)


def record(route: str | None = STORED.name, **fields: Any) -> StoredRecord:
    usual = {"messages": 100, "octets": 20_000, "oldest_seconds": 60.0, "is_full": False}
    return StoredRecord(route=route, **{**usual, **fields})


def snapshot(*records: StoredRecord, is_away: bool = False, workers: int = 1) -> RouterSnapshot:
    store = StoreRecord(is_connected=True, routes=records)
    return router_snapshot(
        containers=(container("cloud", is_connected=not is_away),),
        routes=RouteList.of(RoutingTable((STORED,)), ()),
        workers=tuple(worker_snapshot(number, store=store) for number in range(workers)),
    )


def test_a_router_without_stored_routes_has_no_store() -> None:
    assert not has_store(router_snapshot())
    assert stored_routes(router_snapshot()) == ()


def test_several_workers_say_the_same_of_the_store_and_each_its_own_of_what_waits() -> None:
    (found,) = stored_routes(snapshot(record(dead=3, resting=1, failures=2), workers=2))
    assert (found.record.messages, found.record.dead, found.record.resting) == (100, 6, 2)
    assert is_answering(snapshot(record()))


@pytest.mark.parametrize(
    ("stored", "forwarded", "seconds"),
    [(10.0, 60.0, 2.0), (60.0, 60.0, None), (60.0, 10.0, None), (None, None, None)],
)
def test_the_time_to_drain_is_what_is_left_by_what_becomes_less_a_second(
    stored: float | None, forwarded: float | None, seconds: float | None
) -> None:
    (found,) = stored_routes(snapshot(record(stored_rate=stored, forwarded_rate=forwarded)))
    assert found.drain_seconds == seconds


def test_an_empty_route_is_drained_and_waits_for_nothing() -> None:
    (found,) = stored_routes(snapshot(record(messages=0, octets=0), is_away=True))
    assert (found.drain_seconds, found.waits_for) == (0.0, ())


def test_the_nearest_bound_says_how_full_a_route_is() -> None:
    (found,) = stored_routes(snapshot(record(messages=250, octets=1 << 29)))
    assert found.share == 0.5


def test_a_route_that_drops_its_oldest_messages_is_at_most_125_percent_full() -> None:
    bounds = Bounds(messages=1000, full=Full.DROP_OLDEST)
    (most, _) = bounds.most
    assert most == 1250
    assert share_of(Storing(messages=1000, full=WhenFull.DROP_OLDEST), most, 0) == 1.25


def test_a_route_says_what_it_waits_for() -> None:
    resting = record(dead=12, resting=2, failures=4, rests_seconds=8.0)
    (found,) = stored_routes(snapshot(resting, is_away=True))
    assert found.waits_for == (
        "cloud, away for 30 s",
        "the next try of 2 addresses in 8 s, after 4 failures",
        "cloud/dead, to take 12 dead letters",
    )


def test_messages_without_a_route_come_last_and_say_so() -> None:
    first, last = stored_routes(snapshot(record(None), record()))
    assert (first.name, last.name) == (STORED.name, None)
    assert last.waits_for == ("the target of a route with their addresses",)


def problems(found: RouterSnapshot) -> list[tuple[str, str, str]]:
    """Gives what is wrong with stores, as an operator reads it."""
    return [
        (each.severity, each.subject, each.text)
        for each in diagnose(found)
        if each.subject in {"store", "route"}
    ]


def test_a_full_route_is_an_error_and_one_that_fills_a_warning() -> None:
    full = snapshot(record(messages=1000, is_full=True))
    assert problems(full) == [
        ("error", "route", "has stored as much as it may: its senders wait"),
    ]
    fills = snapshot(record(messages=400, stored_rate=11.0, forwarded_rate=1.0))
    assert problems(fills) == [
        ("warning", "route", "stores more than it forwards: it is full in 60 s"),
    ]
    slow = record(messages=400, octets=80_000, stored_rate=0.001, forwarded_rate=0.0)
    assert problems(snapshot(slow)) == []
    assert problems(snapshot(record(stored_rate=1.0, forwarded_rate=2.0))) == []


def test_a_message_beyond_half_of_the_routes_age_is_a_warning() -> None:
    ageing = attrs.evolve(STORED, store=Storing(age_seconds=100.0))
    table = RouteList.of(RoutingTable((ageing,)), ())
    assert problems(attrs.evolve(snapshot(record(oldest_seconds=50.0)), routes=table)) == []
    assert problems(attrs.evolve(snapshot(record(oldest_seconds=60.0)), routes=table)) == [
        (
            "warning",
            "route",
            "has stored a message for 60 s: after 100 s it goes to the dead letters",
        )
    ]


def test_a_store_that_does_not_answer_is_an_error() -> None:
    away = StoreRecord(is_connected=False)
    found = router_snapshot(workers=(worker_snapshot(store=away),))
    text = "does not answer: routes that store messages get no credit"
    assert problems(found) == [("error", "store", text)]
    starting = attrs.evolve(found, uptime_seconds=0.5)
    assert problems(starting) == []
    set_back = attrs.evolve(found, at=found.started_at - 3 * 24 * 3600.0)
    assert problems(set_back) == problems(found), "the clock says nothing about how long it runs"


def test_a_store_that_cannot_write_is_an_error_that_says_why() -> None:
    full = StoreRecord(is_connected=True, trouble="No space left on device")
    workers = (worker_snapshot(store=StoreRecord(is_connected=True)), worker_snapshot(store=full))
    (found,) = diagnose(router_snapshot(workers=workers))
    assert (found.severity, found.subject, found.text, found.advice) == (
        "error",
        "store",
        "cannot write: No space left on device; routes that store messages get no credit until"
        " it can",
        "make room on the disk of router.state; it goes on by itself then",
    )


def test_segments_that_the_store_cannot_read_are_an_error_and_are_shown() -> None:
    words = "2.segment: Input/output error; 170 messages wait for it"
    unread = StoreRecord(is_connected=True, unreadable=words)
    (found,) = diagnose(router_snapshot(workers=(worker_snapshot(store=unread),)))
    assert (found.severity, found.subject) == ("error", "store")
    assert found.text == f"cannot read {words}, and so does what stands behind them"
    view: dict[str, Any] = {
        "is_connected": True,
        "trouble": None,
        "unreadable": words,
        "routes": [],
    }
    console = Console(width=100, file=io.StringIO())
    console.print(routes(view, 100))
    assert f"the message store cannot read {words}" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_store_without_its_router_is_read_as_far_as_the_disk_gives_it(tmp_path: Path) -> None:
    custodian = Custodian(Disk(), folder=tmp_path, segment_octets=2500)  # type: ignore[arg-type]
    custodian.open()
    for number in range(40):
        custodian.put(number)
        assert custodian.commit()
    custodian.log.close(custodian.now_ns)
    (tmp_path / segment_name(1)).unlink()
    (tmp_path / segment_name(1)).symlink_to("/proc/self/mem")
    kept = read_kept(tmp_path, ())
    assert [each.record.messages for each in kept.routes] == [40]
    assert kept.unreadable is not None
    assert segment_name(1) in kept.unreadable


async def test_the_containers_of_stored_messages_are_known_as_the_router_starts(
    tmp_path: Path,
) -> None:
    """Those of the routes that the addresses take now."""
    config = read(
        f"""
        router: {{id: dc1, state: {tmp_path}}}
        containers: {{a: {{url: "amqp://a"}}, b: {{url: "amqp://b"}}}}
        routes:
          - {{address: telemetry.#, to: a}}
          - {{address: orders, to: b}}
        """,
        "router.yaml",
        Path(),
        {},
    )
    assert await await_storing(config) == frozenset()
    (tmp_path / "messages").mkdir()
    custodian = Custodian(Disk(), folder=tmp_path / "messages")  # type: ignore[arg-type]
    custodian.open()
    custodian.put(1)
    assert custodian.commit()
    custodian.log.close(custodian.now_ns)
    assert await await_storing(config) == {"a"}


def test_metrics_have_the_time_to_drain_while_a_route_shrinks_and_its_dead_letters() -> None:
    text = render(snapshot(record(dead=3, stored_rate=10.0, forwarded_rate=60.0))).decode()
    assert 'router_stored_drain_seconds{route="telemetry.#",worker="0"} 2.0' in text
    assert 'router_stored_dead_letters{route="telemetry.#",worker="0"} 3.0' in text
    grows = render(snapshot(record(stored_rate=60.0, forwarded_rate=10.0))).decode()
    assert "router_stored_drain_seconds{" not in grows


def test_what_has_become_a_dead_letter_is_told_by_cause() -> None:
    known = snapshot(record(rejected=2, expired=1000))
    text = render(known).decode()
    labels = 'route="telemetry.#",worker="0"'
    assert f'router_store_dead_letters_total{{cause="expired",{labels}}} 1000.0' in text
    assert f'router_store_dead_letters_total{{cause="dropped",{labels}}} 0.0' in text
    views = tuple(map(stored_route_view, stored_routes(known)))
    console = Console(width=200, file=io.StringIO())
    console.print(routes(as_json(StoreView(is_connected=True, routes=views)), 200))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert (
        "telemetry.# has made dead letters of 2 that its target rejected, 1,000 that were too old"
        in shown
    )
