"""The store on PostgreSQL when connections, servers and leaders come and go."""

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from router.journal.block import Origin
from router.journal.protocol import Health
from router.journal.replay import replay_from
from router.journal.storage import BlockLog
from tests.support.journal import SOURCE, START_NS, append, key, new_writer, write_life
from tests.support.postgres import Server, needs_postgres, postgres_server, shared_server
from tests.support.storages import ROUTER, Postgres, commit, store_under_test

ONE = Origin(1, START_NS)
LATER_NS = START_NS + 3_600_000_000_000

pytestmark = pytest.mark.processes


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Postgres]:
    with store_under_test("postgres", tmp_path) as store:
        assert isinstance(store, Postgres)
        yield store


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[tuple[Server, Postgres]]:
    """A store on a server of the test's own, that it may stop."""
    with postgres_server() as server:
        from router.journal.postgres.storage import init

        url = server.new_database("journal")
        init(url, ROUTER, None)
        yield server, Postgres(url, tmp_path)


def opened(store: Postgres, *, incarnation: int = START_NS, holder: str = "") -> Any:
    log = store.new_log(incarnation=incarnation, holder=holder)
    log.open(incarnation)
    return log


def write(log: BlockLog, writer: Any, numbers: range) -> None:
    for number in numbers:
        write_life(writer, number, payload=bytes(300))
        append(log, writer)


def expected(store: Postgres) -> int:
    read = replay_from(store.storage())
    assert not read.gaps
    return read.follower.expected.get(ONE, 1)


def test_a_lost_backend_loses_and_repeats_nothing(store: Postgres) -> None:
    log, writer = opened(store), new_writer()
    log.admit(ONE, 1)
    for round_ in range(12):
        write(log, writer, range(10 * round_, 10 * round_ + 10))
        log.commit(START_NS)
        if round_ % 3 == 0:
            _end_backends(store)
    commit(log)
    assert log.durable[ONE] == 481
    assert expected(store) == 481
    assert log.close(START_NS)


def _end_backends(store: Postgres) -> None:
    database = store.url.rpartition("/")[2]
    shared_server().run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        f" WHERE datname = '{database}' AND pid <> pg_backend_pid()"
    )


def test_a_killed_backend_and_an_immediate_stop_lose_and_repeat_nothing(
    mortal: tuple[Server, Postgres],
) -> None:
    server, store = mortal
    log, writer = opened(store), new_writer()
    log.admit(ONE, 1)
    write(log, writer, range(50))
    commit(log)
    told = log.durable[ONE]
    write(log, writer, range(50, 100))
    log.commit(START_NS)
    _kill_backend(server)  # the server ends all others and recovers, as after a crash
    write(log, writer, range(100, 150))
    commit(log)
    assert expected(store) == log.durable[ONE] == 601
    write(log, writer, range(150, 200))
    log.commit(START_NS)
    server.stop(signal.SIGQUIT)
    _wait_until(log, lambda: not log.is_held and log.health is Health.AWAY)
    server.start()
    commit(log)
    _wait_until(log, lambda: log.is_held and log.health is Health.WRITING)
    assert told == 201
    assert expected(store) == log.durable[ONE] == 801
    assert log.close(START_NS)


def _wait_until(log: Any, is_so: Callable[[], bool], seconds: float = 30.0) -> None:
    give_up_at = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < give_up_at, f"{log.is_held}, {log.health}, {log.trouble}"
        log.commit(START_NS)
        log.wait(0.1)


def _kill_backend(server: Server) -> None:
    """Kills one of the log's backends, and returns when the server has ended the others, too.

    Until then they would go on to serve; from then on nobody is let in before it has recovered.
    """
    rows = server.run(
        "SELECT pid FROM pg_stat_activity WHERE datname = 'journal' AND pid <> pg_backend_pid()"
    )
    processes = [int(str(pid)) for (pid,) in rows]
    os.kill(processes[0], signal.SIGKILL)
    give_up_at = time.monotonic() + 60
    while any(Path(f"/proc/{each}").exists() for each in processes):
        assert time.monotonic() < give_up_at, "the server has not ended its backends"
        time.sleep(0.01)


def test_a_commit_that_was_not_answered_is_looked_up(store: Postgres) -> None:
    log, writer = opened(store), new_writer()
    log.admit(ONE, 1)
    write(log, writer, range(5))
    commit(log)
    write(log, writer, range(5, 10))
    log.commit(START_NS)
    give_up_at = time.monotonic() + 30
    while expected(store) < 41 and time.monotonic() < give_up_at:
        time.sleep(0.01)  # the row is there, and its answer is on the way
    assert log.durable[ONE] == 21
    for pipe in log._pipes:
        pipe.lose("the answer is lost")
    commit(log)
    assert log.durable[ONE] == 41
    assert expected(store) == 41
    assert log.close(START_NS)


def test_whoever_takes_the_lease_waits_for_inserts_and_shuts_out_later_ones(
    store: Postgres,
) -> None:
    """The old process's insert is blocked by the new lease, and then finds no row of its epoch."""
    from router.journal.postgres.log import FencedError
    from router.journal.postgres.storage import connect

    log, writer = opened(store), new_writer()
    log.admit(ONE, 1)
    write(log, writer, range(5))
    commit(log)
    with connect(store.url) as other:
        other.execute("BEGIN")
        other.execute("UPDATE router_journal.lease SET epoch = epoch + 1, holder = 'other'")
        write(log, writer, range(5, 10))
        for _ in range(20):
            log.commit(START_NS)
            log.wait(0.02)
        assert log.durable[ONE] == 21, "it waits for whoever takes the lease"
        other.execute("COMMIT")
    with pytest.raises(FencedError):
        commit(log)
    assert log.durable[ONE] == 21
    assert expected(store) == 21
    log.abandon()


def test_a_lease_is_not_taken_before_an_insert_of_the_old_epoch_has_ended(store: Postgres) -> None:
    from router.journal.postgres.storage import connect

    log = opened(store)
    commit(log)
    taken = threading.Event()

    def take() -> None:
        with connect(store.url) as other:
            other.execute("UPDATE router_journal.lease SET epoch = epoch + 1")
        taken.set()

    with connect(store.url) as slow:
        slow.execute("BEGIN")
        slow.execute(
            "INSERT INTO router_journal.blocks SELECT %s, 1, 77, '' FROM router_journal.lease"
            " WHERE epoch = %s FOR KEY SHARE",
            (ROUTER, log.epoch),
        )
        thread = threading.Thread(target=take)
        thread.start()
        assert not taken.wait(0.5)
        slow.execute("ROLLBACK")
    assert taken.wait(30)
    thread.join()
    log.abandon()


def test_a_renewal_does_not_wait_for_inserts(store: Postgres) -> None:
    from router.journal.postgres.storage import connect

    log = opened(store)
    commit(log)
    with connect(store.url) as slow, connect(store.url) as renewing:
        slow.execute("BEGIN")
        slow.execute(
            "INSERT INTO router_journal.blocks SELECT %s, 1, 77, '' FROM router_journal.lease"
            " WHERE epoch = %s FOR KEY SHARE",
            (ROUTER, log.epoch),
        )
        renewing.execute("SET lock_timeout = '5s'")
        renewing.execute("UPDATE router_journal.lease SET renewed = clock_timestamp()")
        slow.execute("ROLLBACK")
    assert log.close(START_NS)


def test_rows_behind_a_missing_one_were_never_durable_and_stay_out(store: Postgres) -> None:
    from router.journal.postgres.storage import connect

    log, writer = opened(store), new_writer()
    log.admit(ONE, 1)
    for number in range(6):
        write(log, writer, range(number, number + 1))
        commit(log)
    with connect(store.url) as connection:  # as if it had not been committed when it crashed
        connection.execute("DELETE FROM router_journal.blocks WHERE segment = 1 AND commit = 4")
    store.kill(log)
    assert expected(store) == 13
    following = opened(store, incarnation=LATER_NS)
    assert following.durable[ONE] == 13
    assert expected(store) == 13
    assert following.close(LATER_NS)


def test_rows_that_vanish_from_a_sealed_segment_are_a_hole(store: Postgres) -> None:
    from router.journal.postgres.storage import connect

    log, writer = opened(store), new_writer()
    log.admit(ONE, 1)
    for number in range(120):
        write(log, writer, range(number, number + 1))
        commit(log)
    assert log.sealed
    with connect(store.url) as connection:
        connection.execute("DELETE FROM router_journal.blocks WHERE segment = 1 AND commit = 2")
    assert "missing" in replay_from(store.storage()).gaps[0]
    assert log.close(START_NS)


def test_the_router_of_the_same_directory_takes_its_lease_again_at_once(store: Postgres) -> None:
    log = opened(store, holder="here")
    commit(log)
    log.abandon()
    with pytest.raises(BlockingIOError, match="leads since"):
        opened(store, incarnation=LATER_NS, holder="elsewhere")
    following = opened(store, incarnation=LATER_NS, holder="here")
    assert following.epoch > log.epoch
    assert following.close(LATER_NS)
    elsewhere = opened(store, incarnation=LATER_NS + 1, holder="elsewhere")
    assert elsewhere.epoch > following.epoch
    assert elsewhere.close(LATER_NS)


def test_a_router_that_was_taken_over_meanwhile_does_not_go_on(store: Postgres) -> None:
    from router.journal.postgres.log import FencedError

    log = opened(store, holder="here")
    commit(log)
    store.kill(log)
    other = opened(store, incarnation=LATER_NS, holder="there")
    assert other.close(LATER_NS)
    again: Any = store.new_log(incarnation=LATER_NS + 1, holder="here")
    again._lease = log._lease
    with pytest.raises(FencedError):
        again.open(LATER_NS + 1)
    third = opened(store, incarnation=LATER_NS + 2, holder="there")
    assert third.close(LATER_NS)


def test_the_lease_ends_two_seconds_after_its_last_renewal_was_asked_for(tmp_path: Path) -> None:
    from router.journal.postgres.lease import LeaseFile, boot_ns

    lease, seen = LeaseFile(tmp_path / "lease"), LeaseFile(tmp_path / "lease")
    assert (seen.epoch, seen.is_held) == (0, False)
    lease.hold(7, boot_ns())
    assert (seen.epoch, seen.is_held) == (7, True)
    lease.hold(7, boot_ns() - 2_000_000_000)
    assert not seen.is_held
    lease.hold(8, boot_ns())
    lease.let_go()
    assert (seen.epoch, seen.is_held) == (8, False)


def test_a_role_with_the_rights_of_a_router_can_do_what_a_router_does_and_no_more(
    store: Postgres,
) -> None:
    import psycopg

    from router.journal.postgres.storage import init

    database, role = store.url.rpartition("/")[2], f"router_{os.getpid()}_{time.time_ns()}"
    server = shared_server()
    server.run(f"CREATE ROLE {role} LOGIN")
    init(store.url, ROUTER, role)
    plain = Postgres(server.url(database, role), store.directory)
    log, writer = opened(plain), new_writer()
    log.admit(ONE, 1)
    for number in range(120):
        write(log, writer, range(number, number + 1))
        commit(log)
    storage = plain.storage()
    storage.keep_snapshot(1, storage.read(storage.names()[0]))
    storage.let_go(1, None)
    storage.drop_snapshot(1)
    with psycopg.connect(plain.url, autocommit=True) as connection:
        for statement in (
            "DELETE FROM router_journal.blocks",
            "UPDATE router_journal.blocks SET octets = ''",
            "TRUNCATE router_journal.blocks",
            "DROP TABLE router_journal.blocks",
            "DELETE FROM router_journal.lease",
            "CREATE TABLE router_journal.mine (n int)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)
    assert log.close(START_NS)


@pytest.mark.parametrize(
    ("right", "named"),
    [
        ("INSERT ON router_journal.blocks", "INSERT on table router_journal.blocks"),
        ("INSERT ON router_journal.snapshots", "INSERT on table router_journal.snapshots"),
        ("SELECT ON router_journal.messages", "SELECT on table router_journal.messages"),
        (
            "UPDATE (renewed) ON router_journal.lease",
            "UPDATE (renewed) on table router_journal.lease",
        ),
        (
            "EXECUTE ON FUNCTION router_journal.begin_partition",
            "EXECUTE on function router_journal.begin_partition(text, text, bigint)",
        ),
    ],
)
def test_a_right_that_is_missing_is_named(store: Postgres, right: str, named: str) -> None:
    from router.journal.postgres.storage import durability, init

    database, role = store.url.rpartition("/")[2], f"router_{os.getpid()}_{time.time_ns()}"
    server = shared_server()
    server.run(f"CREATE ROLE {role} LOGIN")
    init(store.url, ROUTER, role)
    url = server.url(database, role)
    assert durability(url, ROUTER).missing == ()
    server.run(f"REVOKE {right} FROM {role}", database)
    assert durability(url, ROUTER).missing == (named,)


def test_passwords_are_not_shown() -> None:
    needs_postgres()
    from router.journal.postgres.storage import PostgresStorage
    from router.journal.postgres.url import shown

    assert "geheim" not in shown("postgresql://app:geheim@db/router?sslmode=verify-full")
    assert "geheim" not in shown("postgresql://app@db/router?password=geheim&sslmode=require")
    assert "geheim" not in shown("postgresql://app:ein@geheim@db/router")
    assert "geheim" not in shown("postgresql://app:ein/geheim@db/router")
    assert "geheim" not in str(PostgresStorage("postgresql://app:geheim@db/router", ROUTER))


def test_a_database_without_tables_is_refused_by_name(tmp_path: Path) -> None:
    needs_postgres()
    url = shared_server().new_database(f"empty_{time.time_ns()}")
    with pytest.raises(OSError, match="router journal init"):
        opened(Postgres(url, tmp_path))


def test_what_is_unsettled_is_the_same_after_a_takeover(store: Postgres) -> None:
    log, writer = opened(store), new_writer()
    log.admit(ONE, 1)
    writer.received(START_NS, key(1), SOURCE, b"t", payload=b"held")
    append(log, writer)
    commit(log)
    store.kill(log)
    other = opened(store, incarnation=LATER_NS)
    assert [each.key for each in replay_from(store.storage()).memory.deliveries.values()] == [
        key(1)
    ]
    assert other.close(LATER_NS)


def test_two_routers_that_make_the_same_partition_do_not_disturb_each_other(
    store: Postgres,
) -> None:
    """One that was taken over may still be making the partition with which the next one begins."""
    from router.journal.postgres.storage import connect

    made = threading.Event()

    def make() -> None:
        store.storage().begin_segment(7)  # type: ignore[attr-defined]
        made.set()

    with connect(store.url) as slow:
        slow.execute("BEGIN")
        slow.execute("SELECT router_journal.begin_partition('blocks', %s, 7)", (ROUTER,))
        thread = threading.Thread(target=make)
        thread.start()
        assert not made.wait(0.5)
        slow.execute("COMMIT")
    assert made.wait(30)
    thread.join()


REFUSALS = {
    "a right is missing": (
        ("REVOKE INSERT ON router_journal.blocks FROM {role}",),
        ("GRANT INSERT ON router_journal.blocks TO {role}",),
        (Health.IO_ERROR, "PostgreSQL: permission denied for table blocks"),
    ),
    "the disk is full": (
        (
            "CREATE FUNCTION router_journal.no_room() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE 'could not extend file' USING ERRCODE = 'disk_full'; END $$",
            "CREATE TRIGGER no_room BEFORE INSERT ON router_journal.blocks"
            " FOR EACH ROW EXECUTE FUNCTION router_journal.no_room()",
        ),
        ("DROP TRIGGER no_room ON router_journal.blocks",),
        (Health.DISK_FULL, "PostgreSQL: could not extend file"),
    ),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_journal_whose_inserts_are_refused_stays_failed_until_they_are_not(
    store: Postgres, refusal: str
) -> None:
    breaks, mends, expected_news = REFUSALS[refusal]
    plain, role = _with_role(store)
    log, writer = opened(plain), new_writer()
    log.admit(ONE, 1)
    write(log, writer, range(5))
    commit(log)
    _run(store, breaks, role)
    write(log, writer, range(5, 10))
    news: list[tuple[Health, str | None]] = []
    tries: set[int] = set()
    until = time.monotonic() + 2
    while time.monotonic() < until:
        log.commit(START_NS)
        log.wait(0.02)
        news += [(log.health, log.trouble)] if news[-1:] != [(log.health, log.trouble)] else []
        tries |= {group.since_ns for group in (*log._groups, *log._again)}
    assert news[-1] == expected_news
    assert news[:-1] in ([], [(Health.WRITING, None)])
    assert len(tries) < 40, "it pauses between two tries"
    assert log.is_held, "the lease is renewed meanwhile"
    _run(store, mends, role)
    commit(log)
    assert (log.health, log.trouble, log.durable[ONE]) == (Health.WRITING, None, 41)
    assert expected(store) == 41
    assert log.close(START_NS)


def _with_role(store: Postgres) -> tuple[Postgres, str]:
    """Returns the store as a role sees it that has the rights of a router, and the role."""
    from router.journal.postgres.storage import init

    database, role = store.url.rpartition("/")[2], f"router_{os.getpid()}_{time.time_ns()}"
    shared_server().run(f"CREATE ROLE {role} LOGIN")
    init(store.url, ROUTER, role)
    return Postgres(shared_server().url(database, role), store.directory), role


def _run(store: Postgres, statements: tuple[str, ...], role: str) -> None:
    for statement in statements:
        shared_server().run(statement.format(role=role), store.url.rpartition("/")[2])


def test_a_segment_that_may_not_be_made_holds_up_neither_blocks_nor_the_lease(
    store: Postgres,
) -> None:
    plain, role = _with_role(store)
    log, writer = opened(plain), new_writer()
    log.admit(ONE, 1)
    function = "router_journal.begin_partition(text, text, bigint)"
    _run(store, (f"REVOKE EXECUTE ON FUNCTION {function} FROM {{role}}",), role)
    for number in range(120):
        write(log, writer, range(number, number + 1))
        commit(log)
        assert (log.health, log.trouble) == (Health.WRITING, None)
    assert log.sealed <= 1
    assert log._failing.reason_of(_extend()) is not None
    _run(store, (f"GRANT EXECUTE ON FUNCTION {function} TO {{role}}",), role)
    give_up_at = time.monotonic() + 30
    while log._failing.reason_of(_extend()) and time.monotonic() < give_up_at:
        log.commit(START_NS)
        log.wait(0.05)
    for number in range(120, 200):
        write(log, writer, range(number, number + 1))
        commit(log)
    assert log.sealed > 1
    assert log.close(START_NS)


def _extend() -> Any:
    from router.journal.postgres.failing import Want

    return Want.EXTEND


def test_a_lease_that_may_not_be_renewed_is_told_with_the_reason_of_the_server(
    store: Postgres,
) -> None:
    plain, role = _with_role(store)
    log = opened(plain)
    commit(log)
    _run(store, ("REVOKE UPDATE (renewed) ON router_journal.lease FROM {role}",), role)
    give_up_at = time.monotonic() + 30
    while log.health is Health.WRITING and time.monotonic() < give_up_at:
        log.commit(START_NS)
        log.wait(0.05)
    assert (log.health, log.trouble) == (
        Health.AWAY,
        "PostgreSQL: permission denied for table lease",
    )
    _run(store, ("GRANT UPDATE (renewed) ON router_journal.lease TO {role}",), role)
    while log.health is not Health.WRITING and time.monotonic() < give_up_at:
        log.commit(START_NS)
        log.wait(0.05)
    assert (log.health, log.trouble) == (Health.WRITING, None)
    assert log.close(START_NS)


def test_a_lost_server_is_dialed_by_one_connection_until_it_is_there(
    mortal: tuple[Server, Postgres],
) -> None:
    server, store = mortal
    log = opened(store)
    commit(log)
    server.stop()
    give_up_at = time.monotonic() + 30
    while log.health is Health.WRITING and time.monotonic() < give_up_at:
        log.commit(START_NS)
        log.wait(0.05)
    starts: list[int] = []
    for pipe in log._all():
        pipe.start = _noting(starts, pipe)
    turns, until = 0, time.monotonic() + 2
    while time.monotonic() < until:
        log.commit(START_NS)
        log.wait(10)
        turns += 1
    assert starts
    assert set(starts) == {id(log._control)}
    assert turns < 200, "it sleeps between"
    assert "refused" in log.trouble
    server.start()
    while log.trouble is not None and time.monotonic() < give_up_at:
        log.commit(START_NS)
        log.wait(0.05)
    assert log.health is Health.WRITING
    assert log.close(START_NS)


def _noting(starts: list[int], pipe: Any) -> Callable[[], None]:
    begin = pipe.start

    def start() -> None:
        starts.append(id(pipe))
        begin()

    return start


def test_a_lease_that_was_released_is_not_renewed_by_what_comes_late(store: Postgres) -> None:
    """A renewal that is on its way when the log closes may be carried out after the release."""
    from router.journal.postgres.schema import LOOK, RENEW
    from router.journal.postgres.storage import connect

    log = opened(store)
    commit(log)
    assert log.close(START_NS)
    with connect(store.url) as connection:
        for late in (RENEW, LOOK):
            parameters = [ROUTER, log.epoch, log.number, 0][: late.count("$")]
            asked = re.sub(r"\$(\d)", r"%(p\1)s", late)
            connection.execute(asked, {f"p{n}": each for n, each in enumerate(parameters, 1)})
    assert not store.leader().renewed
