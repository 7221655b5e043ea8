"""Asking all workers at once, and what comes of it."""

import pytest
import trio
from trio.testing import MockClock

from router.core.listing import Filter
from router.core.resolve import Decision
from router.core.trace import TraceLine
from router.routes.table import RoutingTable
from router.service.control import SAME_MOMENT_SECONDS, MeshRecord, UnknownRouteError
from router.service.cursor import CursorError
from router.service.fleet import ANSWER_SECONDS, RouterControl, SilentError
from tests.support.fleets import (
    FakeControl,
    container,
    core,
    delivery,
    fleet,
    route,
    worker_snapshot,
)

EVERYTHING = Filter()


def line(text: str) -> TraceLine:
    return TraceLine(
        seconds=0.0,
        what="decision",
        is_incoming=None,
        delivery=1,
        container=None,
        link=None,
        text=text,
    )


# Snapshots


async def test_the_router_is_told_with_all_its_workers() -> None:
    one = FakeControl(0, worker_snapshot(core=core(route(queued=1)), at=10.0))
    other = FakeControl(
        1, worker_snapshot(core=core(route(queued=2)), at=12.0, containers=(container(),))
    )
    snapshot = await fleet(one, other).control.snapshot()
    assert [worker.worker for worker in snapshot.workers] == [0, 1]
    assert snapshot.core.routes[0].queued == 3
    assert [each.name for each in snapshot.containers] == ["east"]
    assert (snapshot.id, snapshot.at, snapshot.silent) == ("dc1", 12.0, ())


async def test_a_worker_that_does_not_answer_is_named_and_left_out(
    autojump_clock: MockClock,
) -> None:
    snapshot = await fleet(FakeControl(0), FakeControl(1, is_silent=True)).control.snapshot()
    assert [worker.worker for worker in snapshot.workers] == [0]
    assert snapshot.silent == (1,)


async def test_a_worker_that_is_just_gone_is_named_and_left_out() -> None:
    snapshot = await fleet(FakeControl(0, is_gone=True), FakeControl(1)).control.snapshot()
    assert [worker.worker for worker in snapshot.workers] == [1]
    assert snapshot.silent == (0,)


async def test_a_router_without_workers_yet_says_at_once_what_it_does() -> None:
    made = fleet()
    made.workers.clear()
    with pytest.raises(SilentError, match=r"^it starts its workers$"):
        await made.control.snapshot()


async def test_a_router_none_of_whose_workers_answers_says_so(autojump_clock: MockClock) -> None:
    with pytest.raises(SilentError, match=r"^no worker answers within 5 s$"):
        await fleet(FakeControl(is_silent=True)).control.snapshot()


async def test_workers_are_asked_for_the_same_moment_and_the_answer_is_reused() -> None:
    made = fleet(FakeControl(0), FakeControl(1))
    control = RouterControl(made.steering, lambda: made.workers)
    first = await control.snapshot()
    again = await control.snapshot()
    assert again.core is first.core
    assert again.workers is first.workers
    for worker in made.workers:
        assert worker.surveyed == [SAME_MOMENT_SECONDS]


async def test_whoever_asks_while_no_worker_answers_waits_for_one_survey_at_most(
    autojump_clock: MockClock,
) -> None:
    control = fleet(FakeControl(is_silent=True)).control
    waited = []

    async def ask() -> None:
        began = trio.current_time()
        with pytest.raises(SilentError):
            await control.snapshot()
        waited.append(trio.current_time() - began)

    async with trio.open_nursery() as nursery:
        for _ in range(16):
            nursery.start_soon(ask)
    assert len(waited) == 16
    assert max(waited) <= ANSWER_SECONDS


async def test_a_survey_is_not_reused_after_an_order_a_reload_or_with_another_worker() -> None:
    made = fleet(FakeControl(0))
    control = RouterControl(made.steering, lambda: made.workers)
    surveyed = made.workers[0].surveyed
    await control.snapshot()
    await control.pause("orders")
    await control.snapshot()
    assert len(surveyed) == 2
    made.steering.table = RoutingTable()
    await control.snapshot()
    assert len(surveyed) == 3
    made.workers.append(FakeControl(1))
    await control.snapshot()
    await control.snapshot()
    assert len(surveyed) == 4


# Lists


@pytest.mark.parametrize("most", [1, 2, 3, 4, 7, 100])
async def test_pages_of_links_go_from_worker_to_worker(most: int) -> None:
    workers = [FakeControl(0, attached=(1, 2, 3)), FakeControl(1), FakeControl(2, attached=(1, 5))]
    control = fleet(*workers).control
    seen: list[tuple[int, int | None]] = []
    cursor: str | None = None
    while True:
        page = await control.links(EVERYTHING, most, cursor)
        assert len(page.items) <= most
        seen += [(number, record.link) for number, record in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert seen == [(0, 1), (0, 2), (0, 3), (2, 1), (2, 5)]


@pytest.mark.parametrize("most", [1, 2, 3, 100])
async def test_pages_of_connections_go_from_worker_to_worker(most: int) -> None:
    control = fleet(FakeControl(0, connected=(4, 9)), FakeControl(1, connected=(1, 2))).control
    seen: list[tuple[int, int]] = []
    cursor: str | None = None
    while True:
        page = await control.connections(EVERYTHING, most, cursor)
        seen += [(number, entry.record.connection) for number, entry in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert seen == [(0, 4), (0, 9), (1, 1), (1, 2)]


@pytest.mark.parametrize("most", [1, 2, 3, 100])
async def test_deliveries_of_all_workers_come_oldest_first(most: int) -> None:
    control = fleet(
        FakeControl(0, unsettled=[delivery(b"a", 90), delivery(b"c", 20)]),
        FakeControl(1, unsettled=[delivery(b"b", 50), delivery(b"d", 10), delivery(b"e", 5)]),
    ).control
    seen: list[bytes] = []
    cursor: str | None = None
    while True:
        page = await control.deliveries(EVERYTHING, most, cursor)
        assert len(page.items) <= most
        seen += [bytes.fromhex(record.tag) for _, record in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert seen == [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.parametrize("cursor", ["", "!", "bm9uZQ", "W10", "WzBd", "WzAsW11d", "e30", "ä"])
async def test_a_text_that_is_no_cursor_is_refused(cursor: str) -> None:
    control = fleet().control
    for ask in (control.connections, control.links, control.deliveries):
        with pytest.raises(CursorError):
            await ask(EVERYTHING, 10, cursor)


# Orders


async def test_every_worker_pauses_and_resumes() -> None:
    workers = [FakeControl(0), FakeControl(1)]
    control = fleet(*workers).control
    await control.pause("orders")
    await control.resume("orders")
    for worker in workers:
        assert worker.asked == [("pause", "orders"), ("resume", "orders")]


async def test_a_route_that_no_worker_knows_is_refused() -> None:
    with pytest.raises(UnknownRouteError):
        await fleet(FakeControl(0), FakeControl(1)).control.pause("nothing")


async def test_deliveries_resolved_on_all_workers_are_added_up() -> None:
    workers = [FakeControl(0, in_doubt={b"t": 1}), FakeControl(1, in_doubt={b"t": 2})]
    count = await fleet(*workers).control.resolve(b"t", "push", Decision.ACCEPT)
    assert count == 3
    assert workers[0].asked == [("resolve", b"t", "push", Decision.ACCEPT)]


async def test_a_trace_gathers_the_lines_of_all_workers_and_ends_when_all_have() -> None:
    workers = [
        FakeControl(0, lines=[[line("one")], [line("two")]]),
        FakeControl(1, lines=[[line("three")]]),
    ]
    found: list[tuple[int, str]] = []
    async with fleet(*workers).control.trace("orders", 5) as feed:
        while lines := await feed.take():
            found += [(number, each.text) for number, each in lines]
    assert sorted(found) == [(0, "one"), (0, "two"), (1, "three")]
    assert all(("trace ended",) in worker.asked for worker in workers)


async def test_a_trace_that_is_left_early_ends_on_every_worker() -> None:
    workers = [FakeControl(0, lines=[[line("one")]] * 50), FakeControl(1)]
    async with fleet(*workers).control.trace("orders", 5) as feed:
        await feed.take()
    assert all(("trace ended",) in worker.asked for worker in workers)


async def test_the_mesh_is_what_the_worker_says_that_serves_it() -> None:
    mesh = MeshRecord(router="dc1", links=(), sites=())
    workers = [FakeControl(0), FakeControl(1, shared_mesh=mesh)]
    assert await fleet(*workers).control.mesh("orders") == mesh
    assert workers[0].asked == [("mesh", "orders")]
    assert await fleet(FakeControl(0)).control.mesh(None) is None
