"""Rates and samples."""

import attrs
import pytest

from router.core.snapshot import Totals
from router.service.admin.history import KEPT_SECONDS, SAMPLE_SECONDS, History
from router.service.fleet import RouterSnapshot
from tests.support.fleets import route, router_snapshot, vitals, worker_snapshot


def snapshot(
    at: float, deliveries: int, unsettled: int = 0, name: str = "orders"
) -> RouterSnapshot:
    totals = Totals(deliveries=deliveries, octets=100 * deliveries, accepted=deliveries - unsettled)
    record = route(name, received=totals, sent=totals, incoming_unsettled=unsettled)
    made = router_snapshot(record)
    return attrs.evolve(made, at=at, core=attrs.evolve(made.core, at=at))


def test_the_first_snapshot_gives_no_rates_yet() -> None:
    history = History()
    history.add(snapshot(10, 500))
    assert not history.samples
    assert not history.rates


def test_a_rate_is_what_came_between_two_samples() -> None:
    history = History()
    history.add(snapshot(10, 500))
    history.add(snapshot(15, 1500))
    rates = history.rates["orders"]
    assert (rates.received, rates.sent) == (200, 200)
    assert rates.received_octets == 20_000
    assert rates.outcomes == 200
    assert history.samples[-1].rates == rates


def test_the_time_until_an_outcome_follows_from_littles_law() -> None:
    history = History()
    history.add(snapshot(10, 1000, unsettled=50))
    history.add(snapshot(20, 2000, unsettled=50))
    assert history.rates["orders"].outcome_seconds == pytest.approx(0.5)


def test_where_no_outcome_came_its_time_is_not_known() -> None:
    history = History()
    history.add(snapshot(10, 10, unsettled=10))
    history.add(snapshot(20, 10, unsettled=10))
    assert history.rates["orders"].outcome_seconds is None


def test_the_same_snapshot_again_changes_nothing() -> None:
    history = History()
    history.add(snapshot(10, 0))
    history.add(snapshot(15, 100))
    history.add(snapshot(15, 100))
    assert len(history.samples) == 1
    assert history.rates["orders"].received == 20


def test_a_worker_that_was_started_anew_gives_no_negative_rates() -> None:
    history = History()
    history.add(snapshot(10, 1000))
    history.add(snapshot(15, 10))
    assert history.rates["orders"].received == 0


def test_a_route_that_is_new_has_no_rates_yet() -> None:
    history = History()
    history.add(snapshot(10, 0))
    history.add(snapshot(15, 5, name="prices"))
    assert "prices" not in history.rates


def test_a_sample_tells_what_is_unsettled_and_how_late_the_loop_was() -> None:
    history = History()
    history.add(snapshot(10, 0))
    later = snapshot(15, 10, unsettled=3)
    worker = worker_snapshot(vitals=vitals(lag_seconds=0.2))
    history.add(attrs.evolve(later, workers=(worker,)))
    sample = history.samples[-1]
    assert (sample.at, sample.unsettled, sample.lag_seconds) == (15, 3, 0.2)


def test_an_hour_is_remembered_and_no_more() -> None:
    history = History()
    for number in range(round(2 * KEPT_SECONDS / SAMPLE_SECONDS)):
        history.add(snapshot(SAMPLE_SECONDS * number, number))
    assert len(history.samples) == KEPT_SECONDS / SAMPLE_SECONDS
