"""Celery as its recipe has it: the router is its broker, and brings tasks and results."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import peers
from tests.support.ports import free_port
from tests.support.running import running_router

pytestmark = [pytest.mark.interop, pytest.mark.long]

PAGE = Path("docs/recipes/celery.md").read_text()
CALLS = """
from tasks import add
results = [add.delay(number, number) for number in range(50)]
print([each.get(timeout=60) for each in results])
"""


def block(kind: str, port: int) -> str:
    """Returns the first block of a kind on the page, at another port."""
    found = re.search(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1].replace("127.0.0.1:5672", f"127.0.0.1:{port}")


@contextmanager
def worker(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Runs a worker of Celery for the length of the block."""
    command = [sys.executable, "-m", "celery", "-A", "tasks", "worker"]
    process = subprocess.Popen([*command, "--concurrency", "1"], cwd=folder)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def test_a_worker_does_the_tasks_and_their_results_come_back(tmp_path: Path) -> None:
    peers.need_python("celery")
    port = free_port()
    (tmp_path / "tasks.py").write_text(block("python", port))
    (tmp_path / "router.yaml").write_text(
        "router: {id: celery, admin: off, workers: 1}\n" + block("yaml", port)
    )
    with running_router(tmp_path / "router.yaml", tmp_path), worker(tmp_path):
        done = subprocess.run(
            [sys.executable, "-c", CALLS],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == str([2 * number for number in range(50)])
