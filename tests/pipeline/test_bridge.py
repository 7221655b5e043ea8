"""A Spark job between two addresses is killed again and again: each message is processed once.

Each kill comes right after a step of a micro-batch (``STEPS``) that chance chose, the first or a
later one, however long the machine takes to get there. Little is under way at any time, so what is
left when the last kill is over is soon done.
"""

import functools
import itertools
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from router.net.client.message import numbered
from tests.support.ports import free_port
from tests.support.running import running_router
from tests.support.spark_jobs import (
    CONFIG,
    SLOW_WORKER,
    STEPS,
    Steps,
    Taken,
    kill_session,
    receiver,
    sender,
    start_bridge,
)

pytestmark = pytest.mark.long

SEED = int(os.environ.get("ROUTER_CHAOS_SEED", "1"))
PATIENCE_SECONDS = 600.0
"""For one step of a job; a busy machine needs a minute to start one."""

UNDER_WAY = 100
"""Messages that the sender may be ahead of the job."""

STEPS_MOST = 3


@attrs.define(eq=False)
class Bridge:
    """One job, killed and begun again on the same directory.

    Attributes:
        ends: how often it ended by itself.
    """

    url: str
    directory: Path
    archive: Path | None = None
    ends: int = 0
    job: subprocess.Popen[bytes] | None = None
    _log: int = 0

    def start(self) -> None:
        log = self.directory / "job.log"
        self._log = log.stat().st_size if log.exists() else 0
        self.job = start_bridge(self.url, self.directory, self.archive)

    def prepare(self, archive: Path) -> None:
        """Runs the job once to its end, for Java to start quicker afterwards."""
        self.archive = archive
        while not archive.exists():
            self.start()
            assert self.job is not None
            try:
                code = self.job.wait(PATIENCE_SECONDS)
            finally:
                self.kill()
            assert code == 0 or self.is_slow(), self.log()[-3000:]

    def wait_until(self, is_reached: Callable[[], bool]) -> None:
        """Waits, and fails if the job ends for no good reason, or nothing comes of it."""
        assert self.job is not None
        until = time.monotonic() + PATIENCE_SECONDS
        while not is_reached():
            if self.job.poll() is not None:
                assert self.is_slow(), self.log()[-3000:]
                self.ends += 1
                self.kill()
                self.start()
            assert time.monotonic() < until, self.log()[-3000:]
            time.sleep(0.005)

    def is_slow(self) -> bool:
        """Tells whether the machine was too slow for Spark."""
        return SLOW_WORKER in self.log()

    def kill(self) -> None:
        assert self.job is not None
        kill_session(self.job)

    def log(self) -> str:
        return (self.directory / "job.log").read_bytes()[self._log :].decode(errors="replace")


def has_taken(steps: Steps, wanted: int) -> bool:
    return steps.look() >= wanted


def run(folder: Path, kills: int, archive: Path | None = None) -> None:
    """Kills a job so often, and counts what became of the messages."""
    chance = random.Random(SEED)
    port = free_port()
    url = f"amqp://127.0.0.1:{port}"
    taken, sent = Taken(), itertools.count()
    bridge = Bridge(url, folder / "job")
    messages = numbered(b"x" * 50, None)
    is_over = False
    steps: list[str] = []
    while len(steps) < kills:
        steps += chance.sample(list(STEPS), min(len(STEPS), kills - len(steps)))

    def supply(most: int | None = None) -> Iterator[bytes]:
        for payload in itertools.islice(messages, most):
            next(sent)
            yield payload
            if is_over:
                return

    with running_router(CONFIG.format(state=folder / "state", port=port), folder):
        receiving = receiver(url, "out", taken)
        if archive is not None:
            sending = sender(url, "in", supply(UNDER_WAY), UNDER_WAY)
            bridge.prepare(archive)
            sending.wait_end()
        sending = sender(url, "in", supply(), UNDER_WAY)
        for number, step in enumerate(steps, 1):
            wanted = chance.randint(1, STEPS_MOST)
            is_reached = functools.partial(has_taken, Steps(bridge.directory, step), wanted)
            bridge.start()
            try:
                bridge.wait_until(is_reached)
            finally:
                bridge.kill()
            print(f"kill {number}: {step} {wanted}, {len(taken.numbers)} processed", flush=True)
        is_over = True
        bridge.start()
        try:
            bridge.wait_until(lambda: sending.is_over)
            total = next(sent)
            bridge.wait_until(lambda: len(taken.numbers) >= total)
            bridge.wait_until(lambda: not any((folder / "job/wal").glob("seg-*")))
        finally:
            bridge.kill()
        receiving.end()
    lost = set(range(total)) - taken.numbers.keys()
    doubled = {number: times for number, times in taken.numbers.items() if times > 1}
    print(
        f"seed {SEED}, {kills} kills ({', '.join(steps)}): {total} sent,"
        f" {len(taken.numbers)} processed, {len(lost)} lost, {len(doubled)} doubled;"
        f" the job ended {bridge.ends} times by itself"
    )
    assert not lost
    assert not doubled
    assert total >= kills


def test_each_message_is_processed_once_though_the_job_is_killed(tmp_path: Path) -> None:
    run(tmp_path, 2)


@pytest.mark.slow
def test_twenty_kills(tmp_path: Path) -> None:
    run(tmp_path, 20, tmp_path / "spark.jsa")
