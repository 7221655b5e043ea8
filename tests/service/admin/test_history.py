"""Rates and samples."""

import attrs
import pytest

from router.core.snapshot import PeerRecord, Totals
from router.service.admin.history import KEPT_SECONDS, SAMPLE_SECONDS, History, Moment
from router.service.control import WorkerSnapshot
from router.service.fleet import RouterSnapshot
from router.service.merge import merge_cores
from tests.support.fleets import core, route, router_snapshot, vitals, worker_snapshot


def snapshot(
    at: float, deliveries: int, unsettled: int = 0, name: str = "orders"
) -> RouterSnapshot:
    totals = Totals(deliveries=deliveries, octets=100 * deliveries, accepted=deliveries - unsettled)
    record = route(name, received=totals, sent=totals, incoming_unsettled=unsettled)
    return of_workers(at, worker_snapshot(core=core(record, at=at)))


def of_workers(at: float, *workers: WorkerSnapshot) -> RouterSnapshot:
    merged = merge_cores([worker.core for worker in workers])
    return attrs.evolve(router_snapshot(), at=at, core=merged, workers=workers)


def worker(number: int, at: float, deliveries: int, process: int = 1) -> WorkerSnapshot:
    """A worker whose one route and one peer have moved so many deliveries."""
    totals = Totals(deliveries=deliveries)
    known = core(
        route(received=totals, sent=totals),
        at=at,
        peers=(PeerRecord(container="east", is_configured=True, received=totals),),
    )
    return worker_snapshot(number, core=known, vitals=vitals(process=process))


def test_the_first_snapshot_gives_no_rates_yet() -> None:
    history = History()
    moment = history.add(snapshot(10, 500))
    assert not history.samples
    assert moment == Moment()


def test_a_rate_is_what_came_between_two_samples() -> None:
    history = History()
    history.add(snapshot(10, 500))
    rates = history.add(snapshot(15, 1500)).routes["orders"]
    assert (rates.received, rates.sent) == (200, 200)
    assert rates.received_octets == 20_000
    assert rates.outcomes == 200
    assert history.samples[-1].rates == rates


def test_the_time_until_an_outcome_follows_from_littles_law() -> None:
    history = History()
    history.add(snapshot(10, 1000, unsettled=50))
    moment = history.add(snapshot(20, 2000, unsettled=50))
    assert moment.routes["orders"].outcome_seconds == pytest.approx(0.5)


def test_where_no_outcome_came_its_time_is_not_known() -> None:
    history = History()
    history.add(snapshot(10, 10, unsettled=10))
    moment = history.add(snapshot(20, 10, unsettled=10))
    assert moment.routes["orders"].outcome_seconds is None


def test_the_same_snapshot_again_changes_nothing() -> None:
    history = History()
    history.add(snapshot(10, 0))
    history.add(snapshot(15, 100))
    history.add(snapshot(15, 100))
    assert len(history.samples) == 1
    assert history.samples[-1].rates.received == 20


def test_a_worker_that_was_started_anew_gives_no_negative_rates() -> None:
    history = History()
    history.add(snapshot(10, 1000))
    assert history.add(snapshot(15, 10)).routes["orders"].received == 0


def test_what_a_new_route_has_moved_counts_for_it_and_for_the_router() -> None:
    history = History()
    history.add(snapshot(10, 0))
    moment = history.add(snapshot(15, 5, name="prices"))
    assert moment.routes["prices"].received == 1
    assert moment.total is not None
    assert moment.total.received == 1


def test_each_worker_is_compared_with_itself_on_its_own_clock() -> None:
    history = History()
    history.add(of_workers(10, worker(0, 70_000, 0), worker(1, 10, 900)))
    moment = history.add(of_workers(15, worker(0, 70_005, 500), worker(1, 15, 1000)))
    assert moment.total is not None
    assert moment.total.received == moment.routes["orders"].received == 120
    assert moment.peers["east", True].received == 120


def test_samples_go_on_when_the_worker_with_the_latest_clock_is_replaced() -> None:
    history = History()
    history.add(of_workers(10, worker(0, 70_000, 0), worker(1, 10, 0)))
    for at, clock in ((15, 20), (20, 25), (25, 30)):
        new = worker(0, clock, 100 * clock, process=2)
        history.add(of_workers(at, new, worker(1, at, 10 * at)))
    received = [sample.rates.received for sample in history.samples]
    assert received == [30, 110, 110]


def test_a_worker_that_was_silent_for_a_while_gives_no_leap() -> None:
    history = History()
    history.add(of_workers(10, worker(0, 10, 0), worker(1, 10, 1_000_000)))
    history.add(of_workers(15, worker(0, 15, 50)))
    history.add(of_workers(20, worker(0, 20, 100), worker(1, 20, 2_000_000)))
    assert [sample.rates.received for sample in history.samples] == [10, 10]


async def test_the_rates_of_a_moment_are_of_an_interval_that_is_long_enough() -> None:
    history = History()
    assert await history.moment(snapshot(9, 0)) == Moment()
    history.add(snapshot(10, 0))
    history.add(snapshot(15, 500))
    for at, deliveries, rate in ((16, 1700, 1700 / 6), (17.5, 1700, 480), (19, 1700, 300)):
        moment = await history.moment(snapshot(at, deliveries))
        assert moment.routes["orders"].received == pytest.approx(rate)
    assert len(history.samples) == 1


async def test_whoever_asks_at_the_same_moment_gets_the_same_rates() -> None:
    history = History()
    history.add(snapshot(10, 0))
    now = snapshot(14, 400)
    first = await history.moment(now)
    history.add(snapshot(15, 500))
    assert await history.moment(attrs.evolve(now, is_draining=True)) is first


def test_a_sample_tells_what_is_unsettled_and_how_late_the_loop_was() -> None:
    history = History()
    history.add(snapshot(10, 0))
    later = snapshot(15, 10, unsettled=3)
    late = attrs.evolve(later.workers[0], vitals=vitals(lag_seconds=0.2))
    history.add(attrs.evolve(later, workers=(late,)))
    sample = history.samples[-1]
    assert (sample.at, sample.unsettled, sample.lag_seconds) == (15, 3, 0.2)


def test_an_hour_is_remembered_and_no_more() -> None:
    history = History()
    for number in range(round(2 * KEPT_SECONDS / SAMPLE_SECONDS)):
        history.add(snapshot(SAMPLE_SECONDS * number, number))
    assert len(history.samples) == KEPT_SECONDS / SAMPLE_SECONDS
