"""Spark finds ``format("amqp")`` in the environment that ``make`` builds, wherever a job is run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.running import running_router

pytestmark = pytest.mark.long

JOB = Path("tests/support/amqp_format_job.py")
CONFIG = """
router: {{id: spark, workers: 1, admin: off}}
listeners: [{{bind: 127.0.0.1:{port}}}]
routes: [{{address: "#"}}]
"""


@pytest.mark.parametrize("is_activated", [True, False])
def test_a_job_outside_of_the_source_tree_consumes_what_is_sent(
    tmp_path: Path, is_activated: bool
) -> None:
    port, folder = free_port(), tmp_path / "elsewhere"
    folder.mkdir()
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    own = str(Path(sys.executable).parent)
    others = [each for each in alone["PATH"].split(":") if each != own]
    alone["PATH"] = ":".join([own, *others] if is_activated else others)
    alone.pop("PYSPARK_PYTHON", None)
    imports = [] if is_activated else ["import"]
    url = f"amqp://127.0.0.1:{port}"
    with running_router(CONFIG.format(port=port), tmp_path):
        sender = subprocess.Popen(
            [sys.executable, "-m", "router", "send", url, "lot", "--count", "7"]
        )
        job = subprocess.run(
            [sys.executable, str(JOB.resolve()), url, "lot", "7", str(folder / "wal"), *imports],
            cwd=folder,
            env=alone,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert "consumed 7" in job.stdout, job.stderr[-3000:]
        assert sender.wait(60) == 0
