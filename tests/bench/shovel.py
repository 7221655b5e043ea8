"""The router beside RabbitMQ's own shovel: the same two nodes, the same messages, by turns.

    python -m tests.bench.shovel [--messages N] [--size OCTETS] [--runs N] [--queue TYPE]
                                 [--transient] [--to PROTOCOL] [--cores shared|apart] [--ids]

Each run fills a durable queue of one node and has one of the two move it to the other node,
acknowledging at the source what the target has confirmed (the shovel's ``on-confirm``, the
router's ``at-least-once``), with the same prefetch. Counted is from the first tenth to arrive to
the last message, so that neither pays for its start, and so is the processor time that each
process took meanwhile: who is the limit can be told from that. The shovel runs inside the west
node. Each node has one scheduler. All share the machine's cores, or with ``apart`` the nodes have
the first and the router the second.

A third mover shows what the nodes leave to be won: ``bare_bridge``, which does the least that a
bridge can. It speaks 0-9-1 to both.
"""

import argparse
import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final

import attrs

from tests.support.rabbitmq import RabbitNode, running_all

PREFETCH: Final = 1000
"""Deliveries under way: the shovel's default, and given to the router."""

QUEUE: Final = "moved"
GIVE_UP_SECONDS: Final = 300.0

ROUTER: Final = """\
router: {{admin: off, workers: 1, state: {state}}}
listeners: [{{bind: "127.0.0.1:0"}}]
limits: {{link_credit: {prefetch}}}
containers:
  east: {{url: "amqp://guest:guest@127.0.0.1:{east}", protocol: amqp-0-9-1}}
  west: {{url: "amqp://guest:guest@127.0.0.1:{west}", protocol: amqp-{protocol}}}
routes:
  - {{address: moved, from: east/moved, to: "west{target}"}}
"""

QUEUES: Final[dict[str, dict[str, object]]] = {
    "classic": {},
    "classic-v2": {"x-queue-version": 2},
    "quorum": {"x-queue-type": "quorum"},
}
"""Type → arguments of its declaration."""

TICKS: Final = os.sysconf("SC_CLK_TCK")


@attrs.frozen(kw_only=True)
class Job:
    """What is moved, and where the movers run.

    Attributes:
        size: octets of a body.
        queue: one of ``QUEUES``, at both nodes.
        is_persistent: messages are kept over a restart.
        protocol: spoken with the target.
        has_ids: each message has a message-id and a timestamp of its own.
        is_apart: nodes on the first core, the router on the second.
    """

    messages: int
    size: int
    queue: str
    is_persistent: bool
    protocol: str
    has_ids: bool
    is_apart: bool


@attrs.frozen
class Run:
    """What a run came to.

    Attributes:
        rate: messages per second.
        processor: process → microseconds of processor time per message; ``idle`` of the machine's.
    """

    rate: float
    processor: dict[str, float]


Process = Callable[[], float]
"""Tells the processor seconds that a process took so far."""


def main() -> None:
    """Measures and prints a line for each run, and the ratio of the medians."""
    parser = argparse.ArgumentParser(description="the router beside RabbitMQ's shovel")
    parser.add_argument("--messages", type=int, default=50_000, help="moved in each run")
    parser.add_argument("--size", type=int, default=100, help="octets of a body")
    parser.add_argument("--runs", type=int, default=3, help="of each; the median counts")
    parser.add_argument("--queue", choices=QUEUES, default="classic", help="type of both queues")
    parser.add_argument("--transient", action="store_true", help="messages, in a durable queue")
    parser.add_argument("--to", choices=("0-9-1", "1.0"), default="0-9-1", help="spoken with west")
    parser.add_argument("--ids", action="store_true", help="own message-ids and timestamps")
    parser.add_argument("--cores", choices=("shared", "apart"), default="shared")
    options = parser.parse_args()
    job = Job(
        messages=options.messages,
        size=options.size,
        queue=options.queue,
        is_persistent=not options.transient,
        protocol=options.to,
        has_ids=options.ids,
        is_apart=options.cores == "apart",
    )
    print(json.dumps(summary(compare(job, options.runs))))


def is_installed() -> bool:
    """Tells whether there is a RabbitMQ to compare with."""
    return shutil.which("rabbitmq-server") is not None


def measure_shovel(size: int, runs: int) -> dict[str, float]:
    """Measures the router as a part of the shovel, and of what the nodes leave to be won."""
    job = Job(
        messages=max(2_000, min(20_000, 40_000_000 // size)),
        size=size,
        queue="classic",
        is_persistent=False,
        protocol="0-9-1",
        has_ids=False,
        is_apart=False,
    )
    found = compare(job, runs)
    rates = {name: statistics.median(run.rate for run in each) for name, each in found.items()}
    return {
        "of_shovel": rates["router"] / rates["shovel"],
        "of_bare": rates["router"] / rates["bare"],
        **{f"{name}_per_second": rate for name, rate in rates.items()},
    }


def compare(job: Job, runs: int) -> dict[str, list[Run]]:
    """Starts two nodes, and has each mover move the messages from one to the other."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running_all(Path(folder), "east", "west") as (east, west),
    ):
        if job.is_apart:
            for node in (east, west):
                pin(group_of(node), 0)
        return measure(east, west, job, runs)


def summary(runs: dict[str, list[Run]]) -> dict[str, object]:
    """Takes the medians."""
    told: dict[str, object] = {}
    for name, each in runs.items():
        median = {"messages_per_second": round(statistics.median(run.rate for run in each))}
        for process in each[0].processor:
            took = statistics.median(run.processor[process] for run in each)
            median[f"{process}_us"] = round(took)
        told[name] = median
    rates = {name: statistics.median(run.rate for run in each) for name, each in runs.items()}
    told["ratio"] = round(rates["router"] / rates["shovel"], 2)
    if "bare" in rates:
        told["of_bare"] = round(rates["router"] / rates["bare"], 2)
    return told


def measure(east: RabbitNode, west: RabbitNode, job: Job, runs: int) -> dict[str, list[Run]]:
    """Has each move the messages, taking turns; returns what came of it, by name."""
    movers = {"shovel": by_shovel, "router": by_router}
    if job.protocol == "0-9-1":
        movers["bare"] = by_bare_bridge
    found: dict[str, list[Run]] = {name: [] for name in movers}
    for number in range(runs):
        for name, move in movers.items():
            fill(east, west, job)
            run = move(east, west, job)
            found[name].append(run)
            took = ", ".join(f"{name} {each:.1f}" for name, each in run.processor.items())
            print(
                f"run {number + 1}: {name} {run.rate:,.0f} messages/s; us each: {took}", flush=True
            )
    return found


# --- processor time -------------------------------------------------------------------------------


def group_of(node: RabbitNode) -> list[int]:
    """Finds the processes of a node."""
    assert node.process is not None
    group = node.process.pid
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = _stat(int(entry.name))
            except OSError:
                continue
            if int(fields[2]) == group:
                found.append(int(entry.name))
    return found


def _stat(process: int) -> list[str]:
    """Reads what the system says of a process, behind its name: state, parent, group, ..."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def processor_seconds(*processes: int) -> float:
    """Tells the processor time that processes took so far."""
    return sum(sum(map(int, _stat(each)[11:13])) for each in processes) / TICKS


def idle_seconds() -> float:
    """Tells how long the machine's cores had nothing to do."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return sum(map(int, fields[4:6])) / TICKS


def pin(processes: list[int], core: int) -> None:
    """Puts processes, and all their threads, on one core."""
    for process in processes:
        for thread in Path(f"/proc/{process}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {core})


# --- queues ---------------------------------------------------------------------------------------


def fill(east: RabbitNode, west: RabbitNode, job: Job) -> None:
    """Puts messages into the one queue and empties the other."""
    import pika

    body = bytes(job.size)
    for node in (east, west):
        channel = open_channel(node)
        channel.queue_delete(QUEUE)
        channel.queue_declare(QUEUE, durable=True, arguments=QUEUES[job.queue])
        if node is east:
            mode = 2 if job.is_persistent else 1
            properties = pika.BasicProperties(delivery_mode=mode)
            for number in range(job.messages):
                if job.has_ids:
                    properties.message_id = f"message-{number:08}"
                    properties.timestamp = 1_700_000_000 + number
                channel.basic_publish("", QUEUE, body, properties)
            while waiting(channel) < job.messages:
                channel.connection.process_data_events(0.05)
        channel.connection.close()


def open_channel(node: RabbitNode) -> Any:
    import pika

    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", node.port, heartbeat=0)
    ).channel()


def waiting(channel: Any) -> int:
    count: int = channel.queue_declare(QUEUE, passive=True).method.message_count
    return count


def watch(node: RabbitNode, count: int, processes: dict[str, Process]) -> Run:
    """Watches messages arrive; tells how many came per second behind the first tenth."""
    channel = open_channel(node)
    give_up_at = time.monotonic() + GIVE_UP_SECONDS
    first: tuple[float, int, dict[str, float]] | None = None
    while time.monotonic() < give_up_at:
        now, here = time.monotonic(), waiting(channel)
        if first is None and here >= count / 10:
            first = now, here, {name: took() for name, took in processes.items()}
        if first is not None and here == count:
            then, there, before = first
            moved, seconds = count - there, now - then
            took = {name: process() - before[name] for name, process in processes.items()}
            channel.connection.close()
            each = {name: took_seconds / moved * 1e6 for name, took_seconds in took.items()}
            return Run(moved / seconds, each)
        channel.connection.process_data_events(0.02)
    raise RuntimeError(f"{waiting(channel)} of {count} messages arrived")


def processes_of(east: RabbitNode, west: RabbitNode) -> dict[str, Process]:
    """Makes what tells of the nodes' processor time, and of the machine's time at rest."""
    nodes = {
        node.name: functools.partial(processor_seconds, *group_of(node)) for node in (east, west)
    }
    return {"idle": idle_seconds} | nodes


# --- movers ---------------------------------------------------------------------------------------


def by_shovel(east: RabbitNode, west: RabbitNode, job: Job) -> Run:
    """Has a dynamic shovel of the target's node move the messages."""
    definition = {
        "src-protocol": "amqp091",
        "src-uri": f"amqp://127.0.0.1:{east.port}",
        "src-queue": QUEUE,
        "src-prefetch-count": PREFETCH,
        "dest-uri": f"amqp://127.0.0.1:{west.port}",
        "ack-mode": "on-confirm",
    }
    if job.protocol == "1.0":
        definition |= {"dest-protocol": "amqp10", "dest-address": f"/queue/{QUEUE}"}
    else:
        definition |= {"dest-protocol": "amqp091", "dest-queue": QUEUE}
    ask(west, "PUT", {"value": definition})
    try:
        return watch(west, job.messages, processes_of(east, west))
    finally:
        ask(west, "DELETE", None)


def ask(node: RabbitNode, method: str, body: object) -> None:
    """Asks the management plugin, once that is up, to define the shovel or to end it."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{node.management_port}/api/parameters/shovel/%2f/moving",
        data=json.dumps(body).encode() if body else None,
        method=method,
        headers={
            "Authorization": f"Basic {b64encode(b'guest:guest').decode()}",
            "Content-Type": "application/json",
        },
    )
    give_up_at = time.monotonic() + GIVE_UP_SECONDS
    while True:
        try:
            with urllib.request.urlopen(request, timeout=10):
                return
        except OSError:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.2)


def by_router(east: RabbitNode, west: RabbitNode, job: Job) -> Run:
    """Has a router of one worker move the messages."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "router.yaml"
        state = Path(folder) / "state"
        file.write_text(
            ROUTER.format(
                state=state,
                prefetch=PREFETCH,
                east=east.port,
                west=west.port,
                protocol=job.protocol,
                target=f"//amq/queue/{QUEUE}" if job.protocol == "1.0" else f"/{QUEUE}",
            )
        )
        with (Path(folder) / "log").open("w") as log:
            return by_process(east, west, job, ["router", "run", str(file)], log)


def by_bare_bridge(east: RabbitNode, west: RabbitNode, job: Job) -> Run:
    """Has the least of all bridges move the messages."""
    module = [
        "tests.bench.bare_bridge",
        *(str(each) for each in (east.port, west.port, QUEUE, PREFETCH)),
    ]
    return by_process(east, west, job, module, subprocess.DEVNULL)


def by_process(
    east: RabbitNode, west: RabbitNode, job: Job, module: list[str], log: int | IO[str]
) -> Run:
    """Has a program of one process move the messages."""
    command = [sys.executable, "-m", *module]
    if job.is_apart:
        command = ["taskset", "-c", "1", *command]
    with subprocess.Popen(command, stdout=log, stderr=log, env=os.environ) as process:
        try:
            mover = functools.partial(processor_seconds, process.pid)
            return watch(west, job.messages, processes_of(east, west) | {"mover": mover})
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
