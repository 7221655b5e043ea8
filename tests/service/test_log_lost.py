"""What takes the log is full, gone, or was never there: lines are lost, and the router serves."""

import itertools
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from tests.support.chaos import Books, numbered, receiving, sending
from tests.support.ports import free_port

pytestmark = pytest.mark.long

CONFIG = """
router: {{id: mute, workers: {workers}, admin: "127.0.0.1:{admin}", state: {state}}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
routes: [{{address: orders, guarantee: exactly-once, unroutable: hold}}]
"""
COUNT = 500


@contextmanager
def output(kind: str) -> Iterator[int]:
    """Gives a descriptor for the router's standard output."""
    if kind == "full disk":
        descriptor = os.open("/dev/full", os.O_WRONLY)
    else:
        reading, descriptor = os.pipe()
        os.close(reading)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def fetch(admin: int, path: str) -> str:
    """Asks the admin endpoint; nothing, if it cannot answer yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}{path}", timeout=30) as answer:
            text: str = answer.read().decode()
            return text
    except (urllib.error.URLError, ConnectionError):
        return ""


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("full disk", "No space left on device"),
        ("broken pipe", "Broken pipe"),
        ("closed", None),
    ],
)
async def test_a_router_whose_log_nobody_takes_serves_and_counts_what_is_lost(
    tmp_path: Path, workers: int, kind: str, reason: str | None
) -> None:
    port, admin = free_port(), free_port()
    file = tmp_path / "router.yaml"
    state = tmp_path / "state"
    file.write_text(CONFIG.format(workers=workers, port=port, admin=admin, state=state))
    command = [sys.executable, "-m", "router", "run", str(file)]
    if kind == "closed":
        command = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    books = Books()
    with output(kind) as taken:
        process = subprocess.Popen(
            command, stdout=taken, stderr=subprocess.PIPE, cwd=tmp_path, env=environment
        )
    try:
        with trio.fail_after(120):
            while not await trio.to_thread.run_sync(fetch, admin, "/readyz"):
                assert process.poll() is None
                await trio.sleep(0.05)
            numbers = books.count(itertools.islice(itertools.count(), COUNT))
            sender = sending("sender", "orders", port, numbered(numbers, 50))
            receiver = receiving("receiver", "orders", port, books.take)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(receiver.run)
                await sender.run()
                nursery.cancel_scope.cancel()
            assert (len(books.taken), books.lost, books.duplicated) == (COUNT, set(), {})
            if reason is not None:
                metrics = await trio.to_thread.run_sync(fetch, admin, "/metrics")
                lost = [line for line in metrics.splitlines() if "log_lost_lines_total{" in line]
                assert len(lost) == workers
                assert any(float(line.split()[-1]) > 0 for line in lost)
                status = await trio.to_thread.run_sync(fetch, admin, "/api/v1/status")
                assert f"cannot be written: {reason}" in status
    finally:
        process.terminate()
        _, errors = await trio.to_thread.run_sync(process.communicate)
    assert process.returncode == 0
    assert errors == b""
