"""A standalone cluster of Spark on this machine: a master and workers, each a JVM of its own."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from tests.support.ports import free_port

START_SECONDS = 180.0
DEPLOY = "org.apache.spark.deploy"
BINARIES = Path(sys.executable).parent


@attrs.define(eq=False)
class Cluster:
    """A cluster.

    Attributes:
        url: of its master.
        folder: logs, and the workers' directories.
        processes: master and workers, by name.
    """

    url: str
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = attrs.field(factory=dict)

    def log(self, name: str) -> str:
        """Returns what one of them has logged."""
        return (self.folder / f"{name}.log").read_text()

    def start(self, name: str, *arguments: str) -> None:
        """Starts a master or a worker."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(BINARIES / "spark-class"), *arguments],
                env=environment(SPARK_DAEMON_MEMORY="256m"),
                stdout=log,
                stderr=log,
            )

    def start_worker(self, name: str) -> None:
        """Starts a worker of one core, and waits until the master has it."""
        self.start(
            name,
            *(f"{DEPLOY}.worker.Worker", "--host", "127.0.0.1", "--cores", "1"),
            *("--memory", "1g", "--webui-port", str(free_port())),
            *("--work-dir", str(self.folder / f"{name}-work"), self.url),
        )
        self.wait_for(name, "Successfully registered with master")

    def wait_for(self, name: str, text: str, seconds: float = START_SECONDS) -> None:
        """Waits for a line of a log."""
        until = time.monotonic() + seconds
        while text not in self.log(name):
            assert self.processes[name].poll() is None, self.log(name)[-2000:]
            assert time.monotonic() < until, self.log(name)[-2000:]
            time.sleep(0.2)

    def submit(self, program: str, *arguments: str) -> subprocess.Popen[str]:
        """Runs ``spark-submit`` with a program, as the documentation says."""
        return subprocess.Popen(
            [
                *(str(BINARIES / "spark-submit"), "--master", self.url),
                *("--driver-memory", "700m", "--executor-memory", "700m"),
                *("--conf", "spark.driver.bindAddress=127.0.0.1"),
                *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false"),
                *("--conf", "spark.network.timeout=600s"),
                *("--conf", "spark.python.worker.reuse=true"),
                *(program, *arguments),
            ],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def executors(self, name: str) -> list[int]:
        """Returns the processes of the executors that a worker has started and that live."""
        parent = self.processes[name].pid
        found = subprocess.run(
            ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(parent)],
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        return [
            int(pid)
            for pid, arguments in re.findall(r"^\s*([0-9]+) (.*)$", found, re.MULTILINE)
            if "CoarseGrainedExecutorBackend" in arguments
        ]

    def kill_worker(self, name: str) -> int:
        """Kills a worker's JVM and its executors the hard way; returns how many these were."""
        executors = self.executors(name)
        for pid in executors:
            os.kill(pid, signal.SIGKILL)
        self.processes[name].kill()
        self.processes[name].wait()
        return len(executors)

    def stop(self) -> None:
        """Ends everything."""
        for name in reversed(self.processes):
            process = self.processes[name]
            if process.poll() is None:
                process.terminate()
                process.wait(60)


def environment(**more: str) -> Mapping[str, str]:
    """Returns the environment of Spark's processes: this interpreter, this tree, this machine."""
    return {
        **os.environ,
        "PYTHONPATH": str(Path.cwd()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        **more,
    }


@contextmanager
def cluster(folder: Path, workers: Sequence[str]) -> Iterator[Cluster]:
    """Yields a running cluster with workers of these names."""
    port = free_port()
    made = Cluster(f"spark://127.0.0.1:{port}", folder)
    try:
        made.start(
            "master",
            *(f"{DEPLOY}.master.Master", "--host", "127.0.0.1", "--port", str(port)),
            *("--webui-port", str(free_port())),
        )
        made.wait_for("master", "I have been elected leader")
        for name in workers:
            made.start_worker(name)
        yield made
    finally:
        made.stop()
