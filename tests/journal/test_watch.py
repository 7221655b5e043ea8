"""A standby's look at the lease: it takes what nobody holds, and only while its router works."""

import os
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from router.journal.lifeline import BEATEN_SECONDS, Lifeline
from router.journal.postgres.lease import Leader, LeaseFile, boot_ns
from router.journal.postgres.schema import LEASE_SECONDS
from tests.support.journal import START_NS
from tests.support.postgres import needs_postgres
from tests.support.storages import ROUTER, Postgres, store_under_test

SECOND_NS = 1_000_000_000
LEADER = Leader(
    epoch=7, holder="other", place="b", since=4000.0, age_seconds=0.1, address=("b:5672", None)
)


def test_a_leader_is_read_as_it_was_written() -> None:
    assert Leader.of(LEADER.text) == LEADER


def test_whoever_has_the_lease_file_of_an_earlier_life_never_holds_a_lease_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "lease"
    earlier = LeaseFile(path)
    held = [earlier.is_held]
    earlier.hold(7, boot_ns())
    held.append(earlier.is_held)
    LeaseFile.begin(path)
    held.append(earlier.is_held)  # a process that was stopped may still have it mapped
    fresh = LeaseFile(path)
    assert not fresh.epoch
    fresh.hold(8, boot_ns())
    assert fresh.is_held
    assert [*held, earlier.is_held] == [False, True, False, False]


@pytest.mark.parametrize(
    ("leader", "yields", "is_free"),
    [
        (LEADER, False, False),
        (attrs.evolve(LEADER, age_seconds=2.9), False, False),
        (attrs.evolve(LEADER, age_seconds=3.1), False, True),
        (attrs.evolve(LEADER, age_seconds=1e9), False, True),
        (attrs.evolve(LEADER, holder="own"), False, True),
        (attrs.evolve(LEADER, holder="own", age_seconds=1e9), True, False),
        (attrs.evolve(LEADER, age_seconds=3.1), True, True),
    ],
    ids=["renewed", "late", "expired", "released", "own", "handed-over", "expired-after"],
)
def test_a_lease_is_taken_when_nobody_else_may_act_on_it(
    leader: Leader, yields: bool, is_free: bool
) -> None:
    needs_postgres()
    from router.journal.postgres.watch import YIELD_SECONDS, Watch

    now_ns = 100 * SECOND_NS
    lifeline = Lifeline(-1, now_ns)
    watch = Watch(
        "postgresql://db/router",
        ROUTER,
        "own",
        report=lambda leader, trouble: None,
        lifeline=lifeline,
        yields=yields,
        clock=lambda: now_ns,
    )
    assert watch.is_free(leader) is is_free
    now_ns += int(BEATEN_SECONDS * SECOND_NS)
    assert not watch.is_free(leader), "its own router does not work"
    now_ns += int(YIELD_SECONDS * SECOND_NS)
    lifeline.beaten_ns = now_ns
    own = leader.holder == "own"
    assert watch.is_free(leader) is (is_free or own), "none has taken what it has released"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Postgres]:
    with store_under_test("postgres", tmp_path) as store:
        assert isinstance(store, Postgres)
        yield store


@pytest.mark.processes
def test_a_watch_reports_who_leads_and_ends_when_the_lease_is_released(store: Postgres) -> None:
    from router.journal.postgres.watch import Watch

    log = store.new_log()
    log.open(START_NS)
    seen: list[Leader] = []

    def report(leader: Leader | None, trouble: str | None) -> None:
        assert trouble is None
        assert leader is not None
        seen.append(leader)
        if len(seen) == 1:
            log.close(START_NS)

    assert Watch(store.url, ROUTER, "own", report=report).run()
    assert seen[0].holder == seen[-1].holder == "holder 1"
    assert seen[-1].age_seconds > LEASE_SECONDS


@pytest.mark.processes
def test_a_watch_ends_with_its_supervisor(store: Postgres) -> None:
    from router.journal.postgres.watch import Watch

    log = store.new_log()
    log.open(START_NS)
    reading, writing = os.pipe()

    def report(leader: Leader | None, trouble: str | None) -> None:
        os.close(writing)

    lifeline = Lifeline(reading, boot_ns())
    assert not Watch(store.url, ROUTER, "own", report=report, lifeline=lifeline).run()
    os.close(reading)
