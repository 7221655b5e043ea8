"""What a machine knows of the journal on PostgreSQL, and a database that lacks it."""

import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner

from router.cli.main import main
from router.journal.block import Origin
from router.journal.postgres.lease import Leader
from router.journal.reclaim import reclaim_from
from tests.support.journal import START_NS, append, new_writer, write_life
from tests.support.postgres import needs_postgres, shared_server
from tests.support.storages import ROUTER, Postgres, commit, store_under_test

LATER_NS = START_NS + 3_600_000_000_000

pytestmark = pytest.mark.processes


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Postgres]:
    with store_under_test("postgres", tmp_path) as store:
        assert isinstance(store, Postgres)
        yield store


def lead(store: Postgres, state: Path, *, count: int, incarnation: int = START_NS) -> None:
    """Leads, makes some groups durable, renews the lease after that, and is killed."""
    from router.journal.postgres.mark import Mark

    mark, writer = Mark(state, ROUTER), new_writer(incarnation=incarnation)
    log = store.new_log(incarnation=incarnation, holder="one", mark=mark)
    log.open(incarnation)
    log.admit(Origin(1, incarnation), 1)
    for number in range(count):
        write_life(writer, number, payload=bytes(300))
        append(log, writer)
        commit(log)
    give_up_at = time.monotonic() + 30
    while (noted := mark.read()) is None or noted.commit < count:
        assert time.monotonic() < give_up_at, noted
        log.commit(incarnation)
        time.sleep(0.02)
    store.kill(log)


def refusal(store: Postgres, state: Path) -> str:
    """Tries to lead; returns why that is refused, or nothing."""
    from router.journal.postgres.mark import Mark
    from router.journal.postgres.storage import StoreError

    log = store.new_log(incarnation=LATER_NS, holder="two", mark=Mark(state, ROUTER))
    try:
        log.open(LATER_NS)
    except StoreError as error:
        return str(error)
    store.kill(log)
    return ""


def copied(store: Postgres) -> Postgres:
    """Gives a copy of the database as it is now."""
    name = store.url.rpartition("/")[2]
    server, copy = shared_server(), f"copy_{time.time_ns()}"
    server.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
    server.run(f"CREATE DATABASE {copy} TEMPLATE {name}")
    return attrs.evolve(store, url=server.url(copy), lives=store.lives + 1000)


def test_an_older_copy_of_the_database_is_refused_until_a_person_accepts_it(
    store: Postgres, tmp_path: Path
) -> None:
    lead(store, tmp_path, count=2)
    copy = copied(store)
    lead(store, tmp_path, count=2, incarnation=LATER_NS - 1)
    reason = refusal(copy, tmp_path)
    assert "an older copy of it" in reason
    assert f"its lease has epoch {START_NS}, and {LATER_NS - 1} was seen here" in reason
    assert copy.leader().epoch == START_NS, "it did not take the lease"
    file = tmp_path / "router.yaml"
    file.write_text(
        f"router: {{id: {ROUTER}, state: {tmp_path}, journal: {{store: '{copy.url}'}}}}"
    )
    runner, check = CliRunner(), ["check", str(file), "--connect"]
    found = runner.invoke(main, check)
    assert found.exit_code == 1
    assert "`router journal accept`" in found.output
    accepted = runner.invoke(main, ["journal", "accept", str(file)])
    assert accepted.exit_code == 0, accepted.output
    assert f"forgotten: epoch {LATER_NS - 1}" in accepted.output
    again = runner.invoke(main, ["journal", "accept", str(file)])
    assert "nothing had to be accepted" in again.output
    assert runner.invoke(main, check).exit_code == 0
    assert not refusal(copy, tmp_path)


def test_a_copy_of_the_same_epoch_that_lacks_what_was_durable_is_refused(
    store: Postgres, tmp_path: Path
) -> None:
    lead(store, tmp_path, count=3)
    database = store.url.rpartition("/")[2]
    shared_server().run("DELETE FROM router_journal.blocks WHERE commit = 3", database)
    assert "it lacks row 3 of segment 1, which was durable" in refusal(store, tmp_path)


def test_an_empty_database_is_no_journal_that_is_gone_on_with(
    store: Postgres, tmp_path: Path
) -> None:
    lead(store, tmp_path, count=1)
    with store_under_test("postgres", tmp_path) as empty:
        assert isinstance(empty, Postgres)
        empty.lives = 1000
        assert "its lease has epoch 0" in refusal(empty, tmp_path)


def test_a_database_that_has_gone_on_or_was_reclaimed_is_taken(
    store: Postgres, tmp_path: Path
) -> None:
    lead(store, tmp_path, count=2)
    other = tmp_path / "other"
    other.mkdir()
    lead(store, other, count=2, incarnation=START_NS + 1)
    storage = store.storage()
    reclaim_from(storage, 1, now_ns=START_NS)
    assert not any(name.startswith(f"{1:020}.segment") for name in storage.names())
    assert not refusal(store, tmp_path)


def test_a_mark_of_another_router_and_one_that_cannot_be_read_say_nothing(
    store: Postgres, tmp_path: Path
) -> None:
    from router.journal.postgres.mark import MARK_NAME, Mark, Reached

    Mark(tmp_path, "another").note(Reached(LATER_NS))
    assert not refusal(store, tmp_path)
    (tmp_path / MARK_NAME).write_bytes(b"\0" * 96)
    assert Mark(tmp_path, ROUTER).read() is None
    assert not refusal(store, tmp_path)


def test_a_standby_notes_what_the_leader_has_renewed_its_lease_after(tmp_path: Path) -> None:
    """What is seen may not have reached the synchronous standby before the next renewal is seen."""
    needs_postgres()
    from router.journal.postgres.mark import Mark, Reached
    from router.journal.postgres.watch import Watch

    mark = Mark(tmp_path, ROUTER)
    watch = Watch("postgresql://db/router", ROUTER, "own", report=lambda *_: None, mark=mark)
    leader = Leader(epoch=7, holder="o", place="b", since=0.0, age_seconds=0.1, renewed=1, newest=4)
    watch._see(leader)
    watch._see(leader)
    assert mark.read() is None
    watch._see(attrs.evolve(leader, renewed=2, newest=5))
    assert mark.read() == Reached(7, 4)
    watch._see(attrs.evolve(leader, renewed=3, epoch=8))
    watch._see(attrs.evolve(leader, renewed=0, epoch=8))
    assert mark.read() == Reached(7, 4)
