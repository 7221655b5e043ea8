"""Our own clients beside a Spark job, and Spark jobs that can be killed."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from router.model.delivery import ReceivedDelivery
from router.model.identity import LinkName
from router.model.outcome import ACCEPTED, DeliveryState
from router.net.client.message import number_of
from router.net.client.receiver import ReceivingLink
from router.net.client.sender import SendingLink
from router.pipeline.amqp.dialogue import Dialogue
from router.pipeline.amqp.options import Options
from router.routes.route import Guarantee

CONFIG = """
router: {{id: spark, workers: 1, admin: off, log_format: json, state: {state}}}
listeners: [{{bind: 127.0.0.1:{port}}}]
routes:
  - {{address: in, guarantee: exactly-once, unroutable: hold}}
  - {{address: out, guarantee: exactly-once, unroutable: hold}}
"""

SLOW_WORKER = "Python worker failed to connect back"
"""Spark gives the Python processes of a stream ten seconds to start, and no setting for it. On a
busy machine a query may fail for this, and is begun again, as any operator would have it."""


@attrs.define(eq=False)
class Taken:
    """What a receiver has taken, by the numbers of the messages."""

    numbers: Counter[int] = attrs.field(factory=Counter)
    payloads: list[bytes] = attrs.field(factory=list)

    def take(self, delivery: ReceivedDelivery) -> DeliveryState:
        number = number_of(delivery.payload)
        self.numbers[-1 if number is None else number] += 1
        self.payloads.append(delivery.payload)
        return ACCEPTED


def sender(url: str, address: str, supply: Iterator[bytes], window: int = 5000) -> Dialogue:
    """Sends exactly once, in a thread; at most ``window`` deliveries wait for their outcome."""
    machine = SendingLink(
        name=LinkName("test-sender"),
        address=address,
        supply=supply,
        guarantee=Guarantee.EXACTLY_ONCE,
        window=window,
    )
    return Dialogue(machine, Options(url=url, address=address), container="test-sender")


def receiver(url: str, address: str, taken: Taken) -> Dialogue:
    """Receives exactly once, in a thread."""
    machine = ReceivingLink(
        name=LinkName("test-receiver"),
        address=address,
        take=taken.take,
        guarantee=Guarantee.EXACTLY_ONCE,
        window=500,
    )
    return Dialogue(machine, Options(url=url, address=address), container="test-receiver")


def start_bridge(
    url: str, directory: Path, archive: Path | None = None, master: str = "local[1]"
) -> subprocess.Popen[bytes]:
    """Starts the job of ``bridge_job``; its output goes to a file in ``directory``."""
    directory.mkdir(exist_ok=True)
    arguments = [url, "in", "out", str(directory), master]
    with (directory / "job.log").open("ab") as log:
        return subprocess.Popen(
            [
                *(sys.executable, "tests/support/bridge_job.py"),
                *(arguments if archive is None else [*arguments, str(archive)]),
            ],
            env={**os.environ, "PYTHONPATH": str(Path.cwd())},
            stdout=log,
            stderr=log,
        )


STEPS: Mapping[str, str] = {
    "received": "wal/seg-*-*.arrow",
    "planned": "checkpoint/offsets/*",
    "settled": "wal/committed",
    "spooled": "spool/*.spool",
    "assembled": "spool/batch.json",
    "sending": "spool/sent-*-*",
    "sent": "spool/done.json",
    "committed": "checkpoint/commits/*",
}
"""The steps of one micro-batch, in order, and the files that are new when it is taken."""


@attrs.define(eq=False)
class Steps:
    """Watches a job from outside: how often it has taken a step."""

    directory: Path
    step: str
    count: int = 0
    _seen: set[tuple[str, int, int]] = attrs.field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self._look()
        self.count = 0

    def look(self) -> int:
        """Gives how often the step was taken since the watch began, as far as was seen."""
        self.count += self._look()
        return self.count

    def _look(self) -> int:
        before = len(self._seen)
        for path in self.directory.glob(STEPS[self.step]):
            try:
                made = path.stat()
            except FileNotFoundError:
                continue
            self._seen.add((path.name, made.st_ino, made.st_mtime_ns))
        return len(self._seen) - before


def kill_session(job: subprocess.Popen[bytes]) -> None:
    """Ends a job with SIGKILL, its JVM and all its workers too."""
    processes = [job.pid, *_descendants(job.pid)]
    for process in processes:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    job.wait()


def _descendants(process: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    found, waiting = [], [process]
    while waiting:
        for child in children.get(waiting.pop(), []):
            found.append(child)
            waiting.append(child)
    return found
