"""The journal beside a running router: killed, not needed, and in another router's hands."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from router.journal.record import RecordKind
from router.service import journal
from router.service.config import load
from router.service.journal import JournalError, JournalKeeper
from tests.support.chaos import Books, numbered, receiving, sending
from tests.support.journal import records_in
from tests.support.ports import free_port
from tests.support.running import RunningRouter, running_router

CONFIG = """
router: {{id: kept, workers: 1, admin: off, log_format: json, state: {state}}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
routes: [{{address: orders, guarantee: exactly-once, unroutable: hold}}]
"""
COUNT = 2000


def journal_process(router: RunningRouter) -> int:
    """Gives the process that the router started last."""
    lines = [line for line in router.log if '"journal.started"' in line]
    return int(json.loads(lines[-1])["process"])


async def test_traffic_waits_for_a_journal_that_was_killed_and_goes_on(tmp_path: Path) -> None:
    port = free_port()
    with running_router(CONFIG.format(state=tmp_path / "state", port=port), tmp_path) as router:
        books = Books()
        sender = sending("sender", "orders", port, numbered(books.count(iter(range(COUNT))), 50))
        receiver = receiving("receiver", "orders", port, books.take)
        with trio.fail_after(90):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(receiver.run)
                async with trio.open_nursery() as traffic:
                    traffic.start_soon(sender.run)
                    for _ in range(2):
                        before = len(books.taken)
                        while len(books.taken) == before and len(books.taken) < COUNT:
                            await trio.sleep(0.01)
                        os.kill(journal_process(router), signal.SIGKILL)
                        await trio.to_thread.run_sync(wait_for_lines, router, "journal.started")
                nursery.cancel_scope.cancel()
        assert router.stop() == 0
    assert not books.lost
    assert not books.duplicated
    assert any("journal.lost" in line for line in router.log)


@pytest.mark.parametrize(("level", "count"), [("info", 2), ("warning", 0)])
def test_the_journals_lines_are_of_the_routers_log(tmp_path: Path, level: str, count: int) -> None:
    """They go where the others go, and the file's level and format hold for them."""
    file = tmp_path / "router.yaml"
    text = CONFIG.format(state=tmp_path / "state", port=free_port())
    file.write_text(text.replace("log_format: json", f"log_format: console, log_level: {level}"))
    command = [sys.executable, "-m", "router", "run", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as router:
        state = tmp_path / "state" / "journal"
        deadline = time.monotonic() + 60
        while not list(state.glob("*.segment")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        router.terminate()
        output, errors = router.communicate(timeout=60)
    lines = output.decode().splitlines()
    assert errors == b""
    told = [line for line in lines if "journal.opened" in line or "journal.closed" in line]
    assert len(told) == count, lines
    assert not any(line.startswith("{") for line in lines)


def wait_for_lines(router: RunningRouter, text: str) -> None:
    """Waits for one more line that contains ``text``."""
    before = sum(text in line for line in tuple(router.log))
    deadline = time.monotonic() + 30
    while sum(text in line for line in tuple(router.log)) == before:
        assert time.monotonic() < deadline, "\n".join(router.log[-20:])
        time.sleep(0.02)


async def test_a_state_directory_that_another_router_keeps_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    file = tmp_path / "router.yaml"
    text = CONFIG.format(state=state, port=free_port())
    file.write_text(text.replace("admin: off", "admin: off, drain_seconds: 0"))
    with (state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(JournalError, match=f"another router uses it: process {os.getpid()}"):
            await JournalKeeper(load(file), lock_seconds=0.1).run()


async def test_a_state_directory_on_a_full_disk_is_tried_again_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, make = tmp_path / "state", Path.mkdir
    file = tmp_path / "router.yaml"
    file.write_text(CONFIG.format(state=state, port=free_port()))

    def refuse(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(journal, "REFUSED_SECONDS", 0.01)
    keeper = JournalKeeper(load(file))
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await nursery.start(keeper.run)
            refused = keeper.trouble
            assert refused == "No space left on device"
            monkeypatch.setattr(Path, "mkdir", make)
            while not keeper.store.socket(keeper.config).exists():
                await trio.sleep(0.01)
            assert keeper.trouble is None
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("error", [errno.EACCES, errno.EIO, errno.ENOTDIR])
async def test_a_journals_directory_that_cannot_be_used_is_named_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    directory, look = tmp_path / "state" / "journal", Path.iterdir
    directory.mkdir(parents=True)
    (tmp_path / "state" / "lock").touch()
    file = tmp_path / "router.yaml"
    file.write_text(CONFIG.format(state=tmp_path / "state", port=free_port()))

    def refuse(path: Path) -> Iterator[Path]:
        if path == directory:
            raise OSError(error, os.strerror(error), str(path))
        return look(path)

    monkeypatch.setattr(Path, "iterdir", refuse)
    monkeypatch.setattr(journal, "REFUSED_SECONDS", 0.01)
    keeper = JournalKeeper(load(file))
    with trio.fail_after(60), capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            await nursery.start(keeper.run)
            refused = keeper.trouble
            assert refused == os.strerror(error)
            monkeypatch.setattr(Path, "iterdir", look)
            while not keeper.store.socket(keeper.config).exists():
                await trio.sleep(0.01)
            assert keeper.trouble is None
            nursery.cancel_scope.cancel()
    (line,) = (line for line in lines if line["event"] == "journal.refused")
    assert line["directory"] == str(directory)


async def test_what_is_recorded_and_archived_is_on_disk_though_nothing_waits_for_it(
    tmp_path: Path,
) -> None:
    port, state = free_port(), tmp_path / "state"
    text = CONFIG.format(state=state, port=port)
    text = text.replace("exactly-once", "at-least-once, archive: true")
    with running_router(text, tmp_path) as router:
        books = Books()
        sender = sending("sender", "orders", port, numbered(books.count(iter(range(50))), 50))
        receiver = receiving("receiver", "orders", port, books.take)
        with trio.fail_after(90):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(receiver.run)
                await sender.run()
                nursery.cancel_scope.cancel()
        assert router.stop() == 0
    assert len(books.taken) == 50
    received = records_in(state / "journal", RecordKind.RECEIVED)
    archived = records_in(state / "archive", RecordKind.ARCHIVED)
    assert [each.key for each in archived] == [each.key for each in received]
    assert sorted(int(each.body[-20:]) for each in archived) == list(range(50))
    assert {each.address for each in archived} == {"orders"}
    assert len(records_in(state / "journal", RecordKind.OUTCOME)) == 50


async def test_no_journal_is_kept_where_nothing_needs_one(tmp_path: Path) -> None:
    config = CONFIG.format(state=tmp_path / "state", port=free_port())
    with running_router(config.replace("exactly-once", "at-least-once"), tmp_path) as router:
        assert not any("journal." in line for line in router.log)
    assert not (tmp_path / "state" / "journal").exists()
