"""A journal that was moved is used in the one place where it is, and nowhere else."""

import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner, Result

from router.cli.main import main
from router.journal.replay import replay, replay_from
from router.service.config import load
from router.service.journal import JournalError, JournalKeeper
from router.service.journal import Store as Stores
from tests.support.journal import SOURCE, START_NS, append, key, new_writer
from tests.support.postgres import shared_server
from tests.support.storages import Files, Postgres, commit

pytestmark = pytest.mark.processes

CONFIG = """
router:
  id: dc1
  state: {state}
  admin: off
  journal: {{store: "{store}"}}
listeners: [{{bind: "127.0.0.1:0"}}]
routes: [{{address: orders, guarantee: exactly-once}}]
"""


@attrs.define
class Moved:
    """A router's file and state directory, and a database with tables for it."""

    folder: Path
    url: str

    @property
    def file(self) -> Path:
        return self.folder / "router.yaml"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def name(self, store: str) -> None:
        self.file.write_text(CONFIG.format(state=self.state, store=store))

    def router(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, [*arguments])

    def move(self, target: str) -> Result:
        self.name(self.url)
        return self.router("journal", "move", str(self.file), "--to", target)

    def hold(self, count: int = 3) -> None:
        """Leaves unsettled deliveries in files."""
        log, writer = Files(self.state / "journal").new_log(), new_writer()
        log.open(START_NS)
        for number in range(count):
            writer.received(START_NS, key(number), SOURCE, b"t", payload=b"held")
        append(log, writer)
        commit(log)
        assert log.close(START_NS)

    def free_lease(self) -> None:
        """Frees a lease that a log had, which may have asked for its renewal before it closed."""
        server, database = shared_server(), self.url.rpartition("/")[2]
        busy = f"SELECT FROM pg_stat_activity WHERE datname = '{database}'"
        give_up_at = time.monotonic() + 30
        while server.run(busy):
            assert time.monotonic() < give_up_at, "the log is still connected"
            time.sleep(0.02)
        server.run("UPDATE router_journal.lease SET renewed = 'epoch'", database)

    def names(self, pattern: str) -> list[str]:
        return sorted(each.name for each in self.state.glob(pattern))

    def refusal(self, store: str) -> str:
        """Gives what a router says that does not start with a store; ``check`` says it, too."""
        self.name(store)
        checked = self.router("check", str(self.file))
        assert checked.exit_code == 2, checked.output
        line = next(
            number
            for number, text in enumerate(self.file.read_text().splitlines(), 1)
            if "store:" in text
        )
        assert checked.output.startswith(f"{self.file}:{line}:")
        done = subprocess.run(
            [sys.executable, "-m", "router", "run", str(self.file)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        said = done.stdout + done.stderr
        assert done.returncode
        assert "router.ready" not in said
        return said

    async def is_admitted(self, store: str) -> bool:
        """Gives whether the router's first process would use the store."""
        self.name(store)
        keeper = JournalKeeper(load(self.file), Stores.JOURNAL, lock_seconds=0)
        try:
            return await keeper._open()
        except JournalError:
            return False
        finally:
            keeper._close()


@pytest.fixture
def moved(tmp_path: Path) -> Moved:
    url = shared_server().new_database(f"moved_{time.time_ns()}")
    given = Moved(tmp_path, url)
    given.name(url)
    done = given.router("journal", "init", str(given.file))
    assert done.exit_code == 0, done.output
    return given


def test_a_snapshot_in_files_refuses_a_router_on_postgresql(moved: Moved) -> None:
    moved.hold()
    assert moved.move("postgresql").exit_code == 0
    assert moved.move("files").exit_code == 0
    assert not moved.names("journal/*.segment")
    said = moved.refusal(moved.url)
    assert str(moved.state / "journal") in said
    assert moved.url in said
    assert f"router journal move {moved.file} --to postgresql" in said
    assert "remove" not in said


def test_a_journal_that_was_moved_away_refuses_a_router_on_files(moved: Moved) -> None:
    moved.hold()
    assert moved.move("postgresql").exit_code == 0
    said = moved.refusal("files")
    (mark,) = moved.names("journal.moved-*")
    assert mark in said
    assert moved.url in said
    assert f"router journal move {moved.file} --to files" in said
    assert str(moved.state / mark) in said


async def test_a_journal_is_admitted_where_it_is(moved: Moved) -> None:
    assert await moved.is_admitted("files"), "a fresh state directory"
    moved.hold()
    for _ in range(2):
        assert not await moved.is_admitted(moved.url)
        assert await moved.is_admitted("files")
        assert "3 deliveries" in moved.move("postgresql").output
        assert await moved.is_admitted(moved.url)
        assert not await moved.is_admitted("files")
        assert "3 deliveries" in moved.move("files").output
    assert len(moved.names("journal.returned-*")) == 2
    assert not moved.names("journal.moved-*")


async def test_moving_the_mark_away_begins_an_empty_journal(moved: Moved) -> None:
    moved.hold()
    assert moved.move("postgresql").exit_code == 0
    (mark,) = moved.names("journal.moved-*")
    shutil.move(moved.state / mark, moved.folder / "kept")
    assert await moved.is_admitted("files")


async def test_an_exactly_once_route_that_left_the_file_does_not_hide_the_mark(
    moved: Moved,
) -> None:
    moved.hold()
    assert moved.move("postgresql").exit_code == 0
    moved.name("files")
    moved.file.write_text(moved.file.read_text().replace(", guarantee: exactly-once", ""))
    assert moved.router("check", str(moved.file)).exit_code == 2


async def test_a_mark_of_before_marks_were_taken_away_does_not_refuse_for_ever(
    moved: Moved,
) -> None:
    moved.hold()
    (moved.state / "journal.moved-1").mkdir()
    assert await moved.is_admitted("files")


class LostError(Exception):
    """The machine was lost in the middle of a move."""


def lose(*_: object) -> None:
    raise LostError


@pytest.mark.parametrize("step", ["_hand_over", "_forget", "_take_marks_away"])
async def test_a_move_to_files_that_was_interrupted_admits_neither_until_it_is_ended(
    moved: Moved, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    moved.hold()
    assert moved.move("postgresql").exit_code == 0
    shutil.rmtree(moved.state / moved.names("journal.moved-*")[0])  # as on another machine
    with monkeypatch.context() as patch:
        patch.setattr(f"router.service.moving.{step}", lose)
        assert isinstance(moved.move("files").exception, LostError)
    assert not await moved.is_admitted("files")
    if step != "_hand_over":
        assert f"router journal move {moved.file} --to files" in moved.refusal(moved.url)
    done = moved.move("files")
    assert done.exit_code == 0, done.output
    assert "3 deliveries" in done.output
    assert await moved.is_admitted("files")
    assert not await moved.is_admitted(moved.url)
    assert len(replay(moved.state / "journal").memory.deliveries) == 3
    assert not Postgres(moved.url, moved.folder).storage().names()


async def test_a_move_to_files_that_was_lost_while_it_removed_is_ended(
    moved: Moved, monkeypatch: pytest.MonkeyPatch
) -> None:
    from router.journal.postgres.storage import PostgresStorage

    storage = Postgres(moved.url, moved.folder)
    log, writer = storage.new_log(), new_writer()
    log.open(START_NS)
    writer.received(START_NS, key(1), SOURCE, b"t", payload=b"held")
    append(log, writer)
    commit(log)
    assert log.close(START_NS)
    moved.free_lease()
    let_go = PostgresStorage.let_go

    def let_one_go(self: PostgresStorage, number: int, archive: Path | None) -> None:
        let_go(self, number, archive)
        lose()

    with monkeypatch.context() as patch:
        patch.setattr(PostgresStorage, "let_go", let_one_go)
        patch.setattr(PostgresStorage, "forget_newest", lose)
        lost = moved.move("files")
        assert isinstance(lost.exception, LostError), lost.output
    assert not await moved.is_admitted("files")
    done = moved.move("files")
    assert done.exit_code == 0, done.output
    assert "1 delivery" in done.output
    assert await moved.is_admitted("files")


@pytest.mark.parametrize("step", ["_hand_over", "_put_aside"])
async def test_a_move_to_postgresql_that_was_interrupted_is_ended(
    moved: Moved, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    moved.hold()
    with monkeypatch.context() as patch:
        patch.setattr(f"router.service.moving.{step}", lose)
        assert isinstance(moved.move("postgresql").exception, LostError)
    assert not await moved.is_admitted(moved.url)
    done = moved.move("postgresql")
    assert done.exit_code == 0, done.output
    assert await moved.is_admitted(moved.url)
    assert not await moved.is_admitted("files")
    held = replay_from(Postgres(moved.url, moved.folder).storage()).memory.deliveries
    assert len(held) == 3


async def test_another_database_does_not_take_the_mark_away(moved: Moved) -> None:
    moved.hold()
    assert moved.move("postgresql").exit_code == 0
    url, moved.url = moved.url, shared_server().new_database(f"other_{time.time_ns()}")
    moved.name(moved.url)
    assert moved.router("journal", "init", str(moved.file)).exit_code == 0
    done = moved.move("files")
    assert done.exit_code == 1
    assert url in done.output
    assert not await moved.is_admitted("files")


def renew(moved: Moved) -> None:
    """Renews the lease as a router would that leads."""
    sql = "UPDATE router_journal.lease SET renewed = clock_timestamp(), epoch = 7, place = 'east'"
    shared_server().run(sql, moved.url.rpartition("/")[2])


def test_a_router_that_was_killed_leads_no_more_when_its_lease_has_expired(moved: Moved) -> None:
    moved.hold()
    renew(moved)
    done = moved.move("postgresql")
    assert done.exit_code == 0, done.output


def test_a_router_that_renews_its_lease_runs(moved: Moved) -> None:
    moved.hold()
    renew(moved)
    ended = threading.Event()

    def lead() -> None:
        while not ended.wait(0.2):
            renew(moved)

    leading = threading.Thread(target=lead)
    leading.start()
    try:
        done = moved.move("postgresql")
    finally:
        ended.set()
        leading.join()
    assert done.exit_code == 1
    assert "router journal move: the router runs: the router on east leads since" in done.output
