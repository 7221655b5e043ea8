"""The same job file, given to spark-submit with the URL of a cluster: two workers of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ledgers import plant, tally

pytestmark = pytest.mark.long

SUBMIT = Path(sys.executable).with_name("spark-submit")


PROGRAM = """
import sys
sys.path.insert(0, {tree!r})
from router.pipeline.session import spark_session
with spark_session("test", {master!r}) as spark:
    print("master is", spark.sparkContext.master)
"""


@pytest.mark.parametrize(("master", "used"), [(None, "local[3]"), ("local[1]", "local[1]")])
def test_the_master_is_that_of_spark_submit_unless_another_is_named(
    tmp_path: Path, master: str | None, used: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(tree=str(Path.cwd()), master=master))
    done = subprocess.run(
        [str(SUBMIT), "--master", "local[3]", "--driver-memory", "512m", str(program)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"master is {used}" in done.stdout


@pytest.mark.slow
def test_the_audit_runs_on_a_cluster_under_spark_submit(tmp_path: Path) -> None:
    truth = tally(plant(tmp_path / "ledger", 10_000))
    command = [
        *(str(SUBMIT), "--master", "local-cluster[2,1,1024]", "--driver-memory", "1g"),
        *("--conf", "spark.executor.memory=1g"),
        *("router/__main__.py", "audit", str(tmp_path / "ledger"), "--grace", "0"),
        *("--out", str(tmp_path / "out")),
    ]
    done = subprocess.run(
        command,
        env={
            **os.environ,
            "PYTHONPATH": str(Path.cwd()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 1, done.stderr[-3000:]
    verdicts = json.loads((tmp_path / "out/audit.json").read_text())["verdicts"]
    assert {name: count for name, count in verdicts.items() if count} == truth
