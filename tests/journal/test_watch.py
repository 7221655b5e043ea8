"""A standby's look at the lease: it takes what nobody holds, and only while its router works."""

import os
import selectors
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from router.journal.lifeline import BEATEN_SECONDS, Lifeline
from router.journal.postgres.lease import Leader, LeaseFile, boot_ns
from router.journal.postgres.schema import LEASE_SECONDS
from router.service.login_key import keep_key
from tests.support.journal import START_NS
from tests.support.ports import free_port
from tests.support.postgres import needs_postgres
from tests.support.storages import ROUTER, Postgres, commit, store_under_test

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


RENEWED = attrs.evolve(LEADER, renewed=5_000_000)
RELEASED = attrs.evolve(LEADER, age_seconds=1e9, renewed=0)


@attrs.define(eq=False)
class Clock:
    """CLOCK_BOOTTIME of a test, at which the supervisor beats."""

    lifeline: Lifeline
    now_ns: int = 100 * SECOND_NS

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, seconds: float) -> None:
        self.now_ns += int(seconds * SECOND_NS)
        self.lifeline.beaten_ns = self.now_ns


def watching(*, yields: bool = False) -> tuple[Any, Clock]:
    """Gives a watch that is connected to nothing, and its clock."""
    needs_postgres()
    from router.journal.postgres.watch import Watch

    clock = Clock(Lifeline(-1, 100 * SECOND_NS))
    watch = Watch(
        "postgresql://db/router",
        ROUTER,
        "own",
        report=lambda leader, trouble: None,
        lifeline=clock.lifeline,
        yields=yields,
        clock=clock,
    )
    return watch, clock


@pytest.mark.parametrize(
    ("leader", "yields", "is_free"),
    [
        (RENEWED, False, False),
        (attrs.evolve(RENEWED, age_seconds=1e6), False, False),
        (RELEASED, False, True),
        (attrs.evolve(RENEWED, holder="own"), False, True),
        (attrs.evolve(RELEASED, holder="own"), True, False),
        (RELEASED, True, True),
    ],
    ids=["renewed", "the-database-clock-jumped", "released", "own", "handed-over", "not-own"],
)
def test_a_lease_that_is_seen_for_the_first_time_is_taken_if_nobody_acts_on_it(
    leader: Leader, yields: bool, is_free: bool
) -> None:
    watch, clock = watching(yields=yields)
    from router.journal.postgres.watch import YIELD_SECONDS

    watch._see(leader)
    assert watch.is_free(leader) is is_free
    clock.now_ns += int(BEATEN_SECONDS * SECOND_NS)
    assert not watch.is_free(leader), "its own router does not work"
    clock.advance(YIELD_SECONDS)
    assert watch.is_free(leader), "none has renewed it, or taken what was released"


@pytest.mark.parametrize("jump_seconds", [0.0, 3600.0, -3600.0])
def test_a_lease_expires_by_the_clock_of_whoever_watches_it(jump_seconds: float) -> None:
    """The clock of the database may jump: it only says whether a renewal is another one."""
    watch, clock = watching()
    for renewal in range(5):
        leader = attrs.evolve(LEADER, renewed=RENEWED.renewed + renewal)
        watch._see(leader)
        clock.advance(LEASE_SECONDS - 0.1)
        aged = attrs.evolve(leader, age_seconds=LEASE_SECONDS - 0.1 + jump_seconds)
        watch._see(aged)
        assert not watch.is_free(aged)
    clock.advance(0.1)
    assert watch.is_free(aged)


def test_a_lease_that_nobody_ever_had_is_not_waited_for() -> None:
    watch, _ = watching()
    nobody = attrs.evolve(LEADER, epoch=0, renewed=0)
    watch._see(nobody)
    assert watch.is_free(nobody)
    assert watch.unchanged_seconds(nobody) == 0.0


def test_what_libpq_says_is_one_line() -> None:
    needs_postgres()
    from router.journal.postgres.pipe import Pipe, PipeState

    pipe = Pipe(f"postgresql://127.0.0.1:{free_port()}/router")
    pipe.start()
    with selectors.DefaultSelector() as selector:
        while (waits := pipe.waits) is not None:
            key = selector.register(*waits)
            selector.select(10)
            selector.unregister(key.fileobj)
            pipe.advance()
    assert pipe.state is PipeState.LOST
    assert pipe.trouble is not None
    assert "refused; Is the server running" in pipe.trouble
    assert pipe.trouble.isprintable()


def test_a_watch_looks_again_just_when_the_lease_ends() -> None:
    watch, clock = watching()
    watch._see(RENEWED)
    clock.advance(LEASE_SECONDS - 0.02)
    watch._be_due_in(0.1)
    watch._see(RENEWED)
    assert watch._due_ns - clock.now_ns == pytest.approx(0.02 * SECOND_NS, abs=1000)


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

    watch = Watch(store.url, ROUTER, "own", report=report)
    assert watch.run() == seen[-1]
    watch.close()
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
    watch = Watch(store.url, ROUTER, "own", report=report, lifeline=lifeline)
    assert watch.run() is None
    watch.close()
    os.close(reading)


@pytest.mark.processes
def test_a_lease_is_taken_as_it_was_seen_and_not_if_it_was_renewed_meanwhile(
    store: Postgres,
) -> None:
    from router.journal.postgres.storage import connect

    log: Any = store.new_log(holder="here")
    log.open(START_NS)
    commit(log)
    seen = store.leader()
    assert seen.renewed
    assert log.renew_now()
    other: Any = store.new_log(incarnation=START_NS + 1, holder="there")
    with pytest.raises(BlockingIOError, match="leads since"):
        other.open(START_NS + 1, seen)
    with connect(store.url) as connection:  # as if the clock had jumped back by an hour
        connection.execute("UPDATE router_journal.lease SET renewed = renewed + interval '1 hour'")
    log.abandon()
    other.open(START_NS + 2, store.leader())
    assert other.epoch > log.epoch
    assert other.close(START_NS + 2)


@pytest.mark.processes
def test_routers_of_one_id_have_the_same_secret_of_salts(store: Postgres, tmp_path: Path) -> None:
    """The first leader shares its own; a standby takes it over, and shares nothing."""
    states = [tmp_path / name for name in ("one", "two", "three")]
    for place, state in enumerate(states[:2]):
        state.mkdir()
        keep_key(state)
        assert (state / "login.key").stat().st_mode & 0o077 == 0, place
    states[2].mkdir()
    keys = [keep_key(state) for state in states[:2]]
    first: Any = store.new_log(holder="one")
    standby: Any = store.new_log(incarnation=START_NS + 1, holder="two")
    standby.share_login_key(states[1])
    salt = keys[1].salt("alice", "SCRAM-SHA-256", 16)
    assert not keys[1].refresh(), "nobody has led yet"
    first.open(START_NS)
    first.share_login_key(states[0])
    standby.share_login_key(states[1])
    assert keys[1].refresh()
    assert not keys[0].refresh()
    assert keys[1].octets == keys[0].octets
    assert keys[1].salt("alice", "SCRAM-SHA-256", 16) != salt
    standby.share_login_key(states[2])
    assert (states[2] / "login.key").read_bytes() == keys[0].octets
    assert (states[1] / "login.key").stat().st_mode & 0o077 == 0
    standby.abandon()
    store.kill(first)
