"""A router that is started while its journal cannot be opened or written serves what needs none."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from tests.service.test_disk_full import SPOILED, status, until_ready
from tests.support.chaos import Books, numbered, receiving, sending
from tests.support.ports import free_port
from tests.support.running import running_router

CONFIG = """
router: {{id: full, workers: {workers}, admin: "127.0.0.1:{admin}", log_format: json,
  state: {state}}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
routes:
- {{address: orders, guarantee: exactly-once, unroutable: hold}}
- {{address: prices}}
"""
HOLDER = """
import ctypes, fcntl, signal, sys, time
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("locked", flush=True)
time.sleep(600)
"""
"""Locks a file. A stopped process neither ends by itself nor by SIGTERM; it ends with the tests."""


@contextmanager
def stopped_holder(lock: Path) -> Iterator["subprocess.Popen[str]"]:
    """Runs a process that has locked a file and is stopped; it is killed in any case."""
    lock.parent.mkdir(parents=True)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # a reader of our own would wait for its end
        text=True,
    )
    try:
        assert holder.stdout is not None
        with holder.stdout as output:
            assert output.readline() == "locked\n"
        holder.send_signal(signal.SIGSTOP)
        yield holder
    finally:
        holder.kill()
        holder.wait(30)


async def transfer(port: int, address: str, count: int, books: Books) -> None:
    """Sends messages, and returns when all of them have been received and settled."""
    name = f"{address} {count}"
    sender = sending(f"s {name}", address, port, numbered(books.count(iter(range(count))), 50))
    receiver = receiving(f"r {name}", address, port, books.take)
    with trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receiver.run)
            await sender.run()
            nursery.cancel_scope.cancel()
    assert not books.lost
    assert not books.duplicated


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 2])
@pytest.mark.parametrize("call", ["write", pytest.param("make_directory", marks=pytest.mark.long)])
async def test_a_router_started_on_a_full_disk_serves_what_needs_no_journal(
    tmp_path: Path, workers: int, call: str
) -> None:
    port, admin, spoil = free_port(), free_port(), tmp_path / "trouble"
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "sitecustomize.py").write_text(SPOILED.format(trouble=str(spoil)))
    spoil.write_text(f"{call} ENOSPC")
    text = CONFIG.format(state=tmp_path / "state", port=port, admin=admin, workers=workers)
    with running_router(text, tmp_path, {"PYTHONPATH": str(modules)}) as router:
        await transfer(port, "prices", 50, Books())
        why = await until_ready(admin, is_ready=False)
        assert why.count("No space left on device") == 1
        seen = await status(admin)
        assert seen.count("exactly-once routes get no credit until it can") == 1
        assert "make room on the disk of router.state" in seen
        books, is_through = Books(), trio.Event()

        async def late() -> None:
            await transfer(port, "orders", 50, books)
            is_through.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(late)
            with trio.move_on_after(1.0):
                await is_through.wait()
            assert not books.taken
            spoil.unlink()
        await until_ready(admin, is_ready=True)
        assert router.stop() == 0


async def test_a_stopped_process_that_has_the_journal_locked_is_named(tmp_path: Path) -> None:
    port, admin, state = free_port(), free_port(), tmp_path / "state"
    text = CONFIG.format(state=state, port=port, admin=admin, workers=1)
    with (
        stopped_holder(state / "journal" / "lock") as holder,
        running_router(text, tmp_path) as router,
    ):
        await transfer(port, "prices", 50, Books())
        router.wait_for("journal.refused")
        why = await until_ready(admin, is_ready=False)
        assert f"it is locked by process {holder.pid}, which is stopped" in why
        assert len([line for line in router.log if "journal.refused" in line]) == 1
        holder.kill()
        await until_ready(admin, is_ready=True)
        await transfer(port, "orders", 50, Books())
        assert router.stop() == 0
