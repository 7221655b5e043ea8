"""A route with ``store: {in: journal}``: what was accepted outlives the machine."""

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from router.cli.main import main
from router.journal.disk import Disk
from router.journal.store.reading import StoredMessage
from router.journal.store.store import MessageStore
from router.model.delivery import ReceivedDelivery
from router.model.outcome import DeliveryState
from router.service.config import ConfigError, load
from router.service.elsewhere import why_not_files, why_not_postgres
from tests.service.test_stored_routes import FAR, PATIENCE_SECONDS, Places, until
from tests.support import peers
from tests.support.chaos import Books, number_of, receiving
from tests.support.journal import START_NS
from tests.support.ports import free_port
from tests.support.postgres import Server, postgres_server
from tests.support.running import RunningRouter, running_router
from tests.support.stored import Custodian, numbers
from tests.support.workers import lines

NEAR = """
router:
  id: near
  workers: 1
  admin: off
  state: {{folder}}/{state}
  log_format: json
  journal: {{{{store: "{url}"}}}}
listeners: [{{{{bind: "127.0.0.1:{{near}}"}}}}]
containers:
  cloud: {{{{url: "amqp://127.0.0.1:{{far}}", retry_limit_seconds: 1s, resumes: true}}}}
routes:
  - address: telemetry.#
    to: cloud
    guarantee: {guarantee}
    store: {{{{always: true, in: journal}}}}
    dead_letter: cloud/dead
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server() as server:
        yield server


def database(server: Server, places: Places, guarantee: str) -> str:
    """Makes a database with tables; gives its URL."""
    url = server.new_database(f"stored_{time.time_ns()}")
    file = places.folder / "init.yaml"
    file.write_text(filled(places, url, "first", guarantee))
    done = CliRunner().invoke(main, ["journal", "init", str(file)])
    assert done.exit_code == 0, done.output
    return url


def filled(places: Places, url: str, state: str, guarantee: str) -> str:
    return places.filled(NEAR.format(url=url, state=state, guarantee=guarantee))


def lose(router: RunningRouter) -> None:
    """Ends a router and its processes, as the loss of the machine does."""
    for event in ("journal.started", "messages.started"):
        os.kill(int(str(lines(router, event)[-1]["process"])), 9)
    router.kill()


@pytest.mark.long
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
async def test_what_a_lost_machine_has_accepted_is_forwarded_by_the_next_one(
    server: Server, tmp_path: Path, guarantee: str
) -> None:
    """The first one is lost while it forwards; the target hears every message, in order."""
    places, books, order = Places(tmp_path), Books(), list[int]()
    url = database(server, places, guarantee)

    def take(delivery: ReceivedDelivery) -> DeliveryState:
        order.append(number_of(delivery))
        return books.take(delivery)

    with trio.fail_after(PATIENCE_SECONDS):
        async with _running(places, url, "first", guarantee) as first:
            await places.send("telemetry.a", 0, 2000, books)
            async with places.running("far", FAR), trio.open_nursery() as nursery:
                nursery.start_soon(receiving("receiver", "telemetry.a", places.far, take).run)
                await until(lambda: len(order) >= 500)
                lose(first)
                async with _running(places, url, "second", guarantee):
                    await until(lambda: not books.lost)
                    await places.send("telemetry.a", 2000, 100, books)
                    await until(lambda: not books.lost)
                nursery.cancel_scope.cancel()
    assert sorted(set(order)) == [*range(2100)]
    firsts = [number for place, number in enumerate(order) if number not in order[:place]]
    assert firsts == sorted(firsts), "in the order in which they were stored"
    if guarantee == "exactly-once":
        assert not books.duplicated


@pytest.mark.long
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
async def test_a_standby_forwards_what_the_leader_has_stored_when_it_is_killed(
    server: Server, tmp_path: Path, guarantee: str
) -> None:
    places, books, order = Places(tmp_path), Books(), list[int]()
    url = database(server, places, guarantee)

    def take(delivery: ReceivedDelivery) -> DeliveryState:
        order.append(number_of(delivery))
        return books.take(delivery)

    def file(state: str) -> str:
        text = filled(places, url, state, guarantee)
        return text.replace(f'store: "{url}"', f'store: "{url}", standby: true')

    with trio.fail_after(PATIENCE_SECONDS), ExitStack() as machines:
        leader = machines.enter_context(_machine(file("first"), tmp_path / "first"))
        await until(lambda: bool(lines(leader, "standby.ended")))
        await places.send("telemetry.a", 0, 2000, books)
        text = file("second").replace(f":{places.near}", f":{free_port()}")
        standby = machines.enter_context(_machine(text, tmp_path / "second"))
        async with places.running("far", FAR), trio.open_nursery() as nursery:
            nursery.start_soon(receiving("receiver", "telemetry.a", places.far, take).run)
            await until(lambda: len(order) >= 500)
            lose(leader)
            await until(lambda: not books.lost)
            assert lines(standby, "standby.ended")
            nursery.cancel_scope.cancel()
    assert sorted(set(order)) == [*range(2000)]
    assert [*dict.fromkeys(order)] == [*range(2000)], "in the order in which they were stored"
    if guarantee == "exactly-once":
        assert not books.duplicated


def _machine(text: str, folder: Path) -> AbstractContextManager[RunningRouter]:
    folder.mkdir()
    return running_router(text, folder, until="standby.began")


@asynccontextmanager
async def _running(places: Places, url: str, state: str, guarantee: str):  # type: ignore[no-untyped-def]
    text = filled(places, url, state, guarantee).replace("{", "{{").replace("}", "}}")
    async with places.running(state, text) as router:
        yield router


def test_stored_messages_move_to_postgresql_and_back(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from router.journal.postgres.disk import PostgresDisk

    places = Places(tmp_path)
    url = database(server, places, "at-least-once")
    file, folder = tmp_path / "init.yaml", tmp_path / "first" / "messages"
    custodian = Custodian(Disk(), folder=folder)  # type: ignore[arg-type]
    custodian.open()
    for number in range(100):
        custodian.put(number)
        assert custodian.commit()
    runner, move = CliRunner(), ["journal", "move", str(file), "--to"]
    done = runner.invoke(main, [*move, "postgresql"])  # as after a crash: the last one is open
    assert done.exit_code == 0, done.output
    assert not folder.exists()
    config = load(file)
    assert "--to files" in str(why_not_files(config, folder))
    there = PostgresDisk(url, "near", 0)
    assert numbers(_read(there, folder)) == [*range(100)]
    removed = PostgresDisk.remove

    def remove_one(self: PostgresDisk, path: Path) -> None:
        removed(self, path)
        raise OSError("lost")

    with monkeypatch.context() as patch:
        patch.setattr(PostgresDisk, "remove", remove_one)
        assert runner.invoke(main, [*move, "files"]).exit_code == 1
    assert "--to files" in str(why_not_files(config, folder))
    back = runner.invoke(main, [*move, "files"])
    assert back.exit_code == 0, back.output
    assert why_not_files(config, folder) is None
    assert "stored messages" in str(why_not_postgres(config, folder))
    assert not there.names(folder)
    assert numbers(_read(Disk(), folder)) == [*range(100)]
    assert runner.invoke(main, [*move, "postgresql"]).exit_code == 0, "and there again"


def _read(disk: Disk, folder: Path) -> list[StoredMessage]:
    store = MessageStore(folder, disk=disk, incarnation=0)
    store.restore(START_NS)
    (key,) = store.holdings.queues
    return store.read(key, 1000, START_NS)


STORED = """
router: {{id: near, journal: {{store: {store}}}}}
containers: {{cloud: {{url: "amqp://127.0.0.1:1", resumes: true}}}}
routes:
  - {{address: a, to: cloud, dead_letter: cloud/dead, store: {{in: {first}}}, guarantee: {promise}}}
  - {{address: b, to: cloud, dead_letter: cloud/dead, store: {{in: {second}}}}}
"""


@pytest.mark.parametrize(
    ("places", "promise", "store", "problem"),
    [
        (("journal", "journal"), "exactly-once", "postgresql://db/router", None),
        (("files", "files"), "at-least-once", "postgresql://db/router", None),
        (("journal", "files"), "exactly-once", "files", None),
        (("journal", "files"), "at-least-once", "postgresql://db/router", "one message store"),
        (("files", "files"), "exactly-once", "postgresql://db/router", "in: journal in store"),
    ],
)
def test_all_routes_store_in_one_place_and_exactly_once_beside_the_journal(
    tmp_path: Path, places: tuple[str, str], promise: str, store: str, problem: str | None
) -> None:
    peers.need_python("psycopg")
    file, (first, second) = tmp_path / "router.yaml", places
    file.write_text(STORED.format(first=first, second=second, promise=promise, store=store))
    if problem is None:
        load(file)
        return
    with pytest.raises(ConfigError, match=problem):
        load(file)


@pytest.mark.parametrize(
    ("place", "said"), [("journal", "the database"), ("files", "this machine")]
)
def test_check_says_where_stored_messages_are(tmp_path: Path, place: str, said: str) -> None:
    peers.need_python("psycopg")
    file = tmp_path / "router.yaml"
    url, promise = "postgresql://db/router", "at-least-once"
    file.write_text(STORED.format(first=place, second=place, promise=promise, store=url))
    found = CliRunner().invoke(main, ["check", str(file)])
    assert found.exit_code == 0, found.output
    stored = found.output.partition("messages of routes with store")[2]
    assert said in stored, found.output
