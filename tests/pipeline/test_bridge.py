"""A Spark job between two addresses is killed again and again: each message is processed once."""

import itertools
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from router.net.client.message import numbered
from tests.support.rabbitmq import free_port
from tests.support.running import running_router
from tests.support.spark_jobs import CONFIG, Taken, kill_session, receiver, sender, start_bridge

SEED = int(os.environ.get("ROUTER_CHAOS_SEED", "1"))
PATIENCE_SECONDS = 300.0


def run(folder: Path, kills: int, seconds: tuple[float, float]) -> None:
    """Kills a job so often, each time some seconds after it has begun to move messages."""
    chance = random.Random(SEED)
    port = free_port()
    url = f"amqp://127.0.0.1:{port}"
    taken, sent = Taken(), itertools.count()
    is_over = False

    def supply() -> Iterator[bytes]:
        for payload in numbered(b"x" * 50, None):
            if is_over:
                return
            next(sent)
            time.sleep(0.002)  # for something to be under way at any moment
            yield payload

    def wait_for(more: int) -> None:
        until, wanted = time.monotonic() + PATIENCE_SECONDS, len(taken.numbers) + more
        while len(taken.numbers) < wanted:
            assert job.poll() is None, (folder / "job/job.log").read_text()[-3000:]
            assert time.monotonic() < until, f"{len(taken.numbers)} of {wanted} have come"
            time.sleep(0.05)

    with running_router(CONFIG.format(state=folder / "state", port=port), folder):
        receiving = receiver(url, "out", taken)
        sending = sender(url, "in", supply())
        for _ in range(kills):
            job = start_bridge(url, folder / "job")
            try:
                wait_for(1)
                time.sleep(chance.uniform(*seconds))
            finally:
                kill_session(job)
        is_over = True
        job = start_bridge(url, folder / "job")
        try:
            sending.wait_end()
            total = next(sent)
            wait_for(total - len(taken.numbers))
            time.sleep(1)  # for what would come twice
        finally:
            kill_session(job)
        receiving.end()
    twice = {number: times for number, times in taken.numbers.items() if times > 1}
    assert not twice
    assert taken.numbers.keys() == set(range(total))
    print(f"{kills} kills, {total} messages, each once")


def test_each_message_is_processed_once_though_the_job_is_killed(tmp_path: Path) -> None:
    run(tmp_path, 2, (0.0, 1.5))


@pytest.mark.slow
def test_twenty_kills(tmp_path: Path) -> None:
    run(tmp_path, 20, (0.0, 6.0))
