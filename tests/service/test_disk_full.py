"""The disk is full, or fails, under a running router: it stops, says so, loses nothing, goes on."""

import itertools
import json
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import trio

from tests.support.chaos import Books, numbered, receiving, sending
from tests.support.ports import free_port
from tests.support.running import running_router

CONFIG = """
router: {{id: full, workers: 1, admin: "127.0.0.1:{admin}", log_format: json, state: {state}}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
routes: [{{address: orders, guarantee: exactly-once, unroutable: hold}}]
"""

SPOILED = """
import errno, os
from pathlib import Path
from router.journal.disk import Disk

write, flush, make_directory = Disk.write, Disk.flush, Disk.make_directory

def check(call):
    trouble = Path({trouble!r})
    if trouble.exists():
        name, code = trouble.read_text().split()
        if name == call:
            raise OSError(getattr(errno, code), os.strerror(getattr(errno, code)))

def spoiled_write(self, file, octets, offset):
    check("write")
    return write(self, file, octets, offset)

def spoiled_flush(self, file):
    check("flush")
    flush(self, file)

def spoiled_make_directory(self, path):
    check("make_directory")
    make_directory(self, path)

Disk.write, Disk.flush = spoiled_write, spoiled_flush
Disk.make_directory = spoiled_make_directory
"""
"""A ``sitecustomize`` by which the file ``trouble`` says what the disk does."""


def ready(admin: int) -> tuple[bool, str]:
    """Asks whether the router is ready, and why not."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}/readyz", timeout=30) as answer:
            return True, str(json.load(answer)["reasons"])
    except urllib.error.HTTPError as error:
        return False, str(json.load(error)["reasons"])


async def until_ready(admin: int, *, is_ready: bool) -> str:
    """Waits until it is, or is not; gives the reasons."""
    with trio.fail_after(90):
        while True:
            now, reasons = await trio.to_thread.run_sync(ready, admin)
            if now is is_ready:
                return reasons
            await trio.sleep(0.05)


async def status(admin: int) -> str:
    """Gives what ``router status`` prints, on one line."""
    with trio.fail_after(90):
        done = await trio.run_process(
            [sys.executable, "-m", "router", "status", "--admin", f"127.0.0.1:{admin}"],
            capture_stdout=True,
            check=False,
        )
    return " ".join(done.stdout.decode().split())


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [("write ENOSPC", "No space left on device"), ("flush EIO", "Input/output error")],
)
async def test_traffic_stops_is_explained_and_goes_on_when_the_disk_does(
    tmp_path: Path, trouble: str, reason: str
) -> None:
    port, admin, spoil = free_port(), free_port(), tmp_path / "trouble"
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "sitecustomize.py").write_text(SPOILED.format(trouble=str(spoil)))
    text = CONFIG.format(state=tmp_path / "state", port=port, admin=admin)
    books, is_over = Books(), False
    supply = itertools.takewhile(lambda _: not is_over, itertools.count())
    sender = sending("sender", "orders", port, numbered(books.count(supply), 50))
    receiver = receiving("receiver", "orders", port, books.take)
    with running_router(text, tmp_path, {"PYTHONPATH": str(modules)}) as router:
        with trio.fail_after(180):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(receiver.run)
                async with trio.open_nursery() as traffic:
                    traffic.start_soon(sender.run)
                    while len(books.taken) < 200:
                        await trio.sleep(0.01)
                    (tmp_path / "new").write_text(trouble)
                    (tmp_path / "new").rename(spoil)  # whole, whenever it is read
                    why = await until_ready(admin, is_ready=False)
                    assert reason in why
                    assert any(reason in line and "journal.stuck" in line for line in router.log)
                    seen = await status(admin)
                    assert reason in seen
                    assert "exactly-once routes get no credit until it can" in seen
                    taken = len(books.taken)
                    spoil.unlink()
                    while len(books.taken) < taken + 200:
                        await trio.sleep(0.01)
                    await until_ready(admin, is_ready=True)
                    is_over = True
                nursery.cancel_scope.cancel()
        assert router.stop() == 0
        assert any("journal.moving" in line for line in router.log)
    assert not books.lost
    assert not books.duplicated
