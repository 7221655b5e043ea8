"""A master and two workers, spark-submit, and a worker that is killed in the middle: it all counts.

Each test kills a worker's JVM with its executor while the job runs, and starts another one.
"""

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from router.net.client.message import numbered
from tests.support.ledgers import plant, tally
from tests.support.ports import free_port
from tests.support.running import running_router
from tests.support.spark_cluster import Cluster, cluster
from tests.support.spark_jobs import Taken, receiver, sender

pytestmark = [pytest.mark.slow, pytest.mark.long]

JOB_SECONDS = 1500.0
MESSAGES = 600
CONFIG = """
router: {{id: spark, workers: 1, admin: off, log_format: json, state: {state}}}
listeners: [{{bind: 127.0.0.1:{port}}}]
routes: [{{address: "#", guarantee: exactly-once, unroutable: hold}}]
"""


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster"), ["one", "two"]) as made:
        yield made


def killed_in_the_middle(made: Cluster, job: subprocess.Popen[str], after_seconds: float) -> str:
    """Kills a worker some time after it got an executor for the job; returns the job's output."""
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(job.stdout or ()))
    reader.start()
    until = time.monotonic() + JOB_SECONDS
    name = next(each for each in reversed(made.processes) if each != "master")
    while not made.executors(name) and job.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(after_seconds)
    assert job.poll() is None, "".join(lines)[-3000:]
    assert made.kill_worker(name) == 1
    made.start_worker(f"{name}+")
    job.wait(until - time.monotonic())
    reader.join(60)
    return "".join(lines)


def test_an_audit_and_a_report_come_to_the_truth(spark_cluster: Cluster, tmp_path: Path) -> None:
    truth = tally(plant(tmp_path / "ledger", 300_000, files=16))
    job = spark_cluster.submit(
        *("router/__main__.py", "audit", f"file://{tmp_path}/ledger", "--grace", "0"),
        *("--out", str(tmp_path / "out")),
    )
    output = killed_in_the_middle(spark_cluster, job, 3.0)
    assert job.returncode == 1, output[-3000:]
    verdicts = json.loads((tmp_path / "out/audit.json").read_text())["verdicts"]
    assert {name: count for name, count in verdicts.items() if count} == truth
    job = spark_cluster.submit("router/__main__.py", "traffic", str(tmp_path / "ledger"), "--json")
    output = killed_in_the_middle(spark_cluster, job, 3.0)
    assert job.returncode == 0, output[-3000:]
    traffic = json.loads(output[output.index("{") : output.rindex("}") + 1])
    assert sum(cell["deliveries"] for cell in traffic["matrix"]) > 0


def test_a_stream_in_and_out_loses_and_doubles_nothing(
    spark_cluster: Cluster, tmp_path: Path
) -> None:
    place = os.environ.get("ROUTER_TEST_STORE", str(tmp_path))  # or the URL of a shared store
    port = free_port()
    with running_router(CONFIG.format(state=tmp_path / "state", port=port), tmp_path):
        url = f"amqp://127.0.0.1:{port}"
        offered = sender(url, "in", numbered(b"body", MESSAGES))
        taken = Taken()
        receiving = receiver(url, "out", taken)
        runs = 0
        while not offered.is_over:
            job = spark_cluster.submit(
                "tests/support/amqp_stream_job.py", url, "in", "out", str(tmp_path), place
            )
            output = killed_in_the_middle(spark_cluster, job, 12.0)
            runs += 1
            print(runs, job.returncode, len(taken.payloads), output[-500:])
            assert runs < 5, output[-3000:]
        receiving.end()
        counts = taken.numbers
    assert sorted(counts.elements()) == list(range(MESSAGES))
