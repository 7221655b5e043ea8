"""Segments on PostgreSQL are dropped by processes of their own: one run for each news, and again
after a failure."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from router.journal.replay import replay_from
from router.journal.segment import numbered
from router.journal.storage import BlockLog
from tests.journal.test_storage import busy
from tests.support.journal import START_NS
from tests.support.storages import (
    ROUTER,
    SEGMENT_OCTETS,
    Postgres,
    StoreUnderTest,
    store_under_test,
)

SECONDS = 120.0

pytestmark = pytest.mark.processes


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreUnderTest]:
    with store_under_test("postgres", tmp_path) as store:
        yield store


@pytest.fixture
def log(store: StoreUnderTest) -> BlockLog:
    log = store.new_log()
    log.open(START_NS)
    busy(log)
    return log


class Reclaiming:
    """A reclaimer, and how often it has begun a run."""

    def __init__(self, store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
        from router.journal.postgres.reclaim import PostgresReclaimer

        assert isinstance(store, Postgres)
        self.now = 1000.0
        self.runs = 0
        self.reclaimer = PostgresReclaimer(store.url, ROUTER, archive=None, segment_octets=0)
        monkeypatch.setattr(self.reclaimer, "_clock", lambda: self.now)
        monkeypatch.setattr(self.reclaimer, "_first_at", self.now)
        start = self.reclaimer._start

        def count(through: int) -> None:
            self.runs += 1
            start(through)

        monkeypatch.setattr(self.reclaimer, "_start", count)

    def run(self, through: int) -> None:
        """Steps until no run is under way, as the journal's process does."""
        give_up_at = time.monotonic() + SECONDS
        self.reclaimer.step(through)
        while self.reclaimer.is_running:
            assert time.monotonic() < give_up_at
            time.sleep(0.01)
            self.reclaimer.step(through)


@pytest.fixture
def reclaiming(store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch) -> Reclaiming:
    return Reclaiming(store, monkeypatch)


def test_partitions_of_closed_segments_go_once_and_nothing_is_forgotten(
    store: StoreUnderTest, log: BlockLog, reclaiming: Reclaiming
) -> None:
    storage = store.storage()
    before = replay_from(storage).memory.deliveries
    through = log.number - 1
    assert through > 2
    reclaiming.run(through)
    assert numbered(storage.names(), "segment")[0] > through
    assert numbered(storage.names(), "snapshot") == [through]
    assert replay_from(storage).memory.deliveries == before
    for _ in range(3):
        reclaiming.run(through)
    assert reclaiming.runs == 1, "nothing has been sealed since"
    busy(log)
    reclaiming.run(log.number - 1)
    assert reclaiming.runs == 2


def test_a_run_that_failed_is_repeated_though_nothing_has_been_sealed_since(
    store: StoreUnderTest, log: BlockLog, reclaiming: Reclaiming
) -> None:
    from router.journal.postgres.storage import PostgresStorage

    assert isinstance(store, Postgres)
    through = log.number - 1
    another = PostgresStorage(store.url, ROUTER)
    with another.lock():
        reclaiming.run(through)
        assert reclaiming.reclaimer.wait_seconds
    assert numbered(store.storage().names(), "segment")[0] <= through
    reclaiming.now += reclaiming.reclaimer.wait_seconds or 0.0
    reclaiming.run(through)
    assert numbered(store.storage().names(), "segment")[0] > through
    assert reclaiming.runs == 2
    assert reclaiming.reclaimer.wait_seconds is None


def test_what_an_earlier_leader_wrote_is_reclaimed_soon_after_a_takeover(
    store: StoreUnderTest, log: BlockLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standby that is started from now on need not read it."""
    from router.journal.postgres import reclaim

    monkeypatch.setattr(reclaim, "FIRST_OCTETS", 1 << 10)
    assert isinstance(store, Postgres)
    reclaimer = reclaim.PostgresReclaimer(
        store.url, ROUTER, archive=None, segment_octets=SEGMENT_OCTETS << 10
    )
    now = reclaimer._clock()
    monkeypatch.setattr(reclaimer, "_clock", lambda: now)
    through = log.number - 1
    reclaimer.step(through)
    assert not reclaimer.is_running, "workers restore themselves first"
    soon = reclaimer.wait_seconds
    assert soon
    now += soon
    _run(reclaimer, through)
    assert numbered(store.storage().names(), "snapshot") == [through]
    assert reclaimer.wait_seconds is None
    busy(log)
    _run(reclaimer, log.number - 1)
    assert numbered(store.storage().names(), "snapshot") == [through], "that is not much"
    _run(reclaimer, log.number - 1, is_disk_full=True)
    assert numbered(store.storage().names(), "snapshot") == [log.number - 1], "that is some room"


def _run(reclaimer: Any, through: int, *, is_disk_full: bool = False) -> None:
    give_up_at = time.monotonic() + SECONDS
    reclaimer.step(through, is_disk_full=is_disk_full)
    while reclaimer.is_running:
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
        reclaimer.step(through, is_disk_full=is_disk_full)
