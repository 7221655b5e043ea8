"""The router beside RabbitMQ's own shovel: the same two nodes, the same messages, by turns.

    python -m tests.bench.shovel [--messages N] [--size OCTETS] [--runs N]

Each run fills a durable queue of one node and has one of the two move it to the other node over
0-9-1, acknowledging at the source what the target has confirmed (the shovel's ``on-confirm``, the
router's ``at-least-once``), with the same prefetch. Counted is from the first tenth to arrive to
the last message, so that neither pays for its start. Both nodes and the router share the machine's
cores, and each node has one scheduler.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any, Final

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
  west: {{url: "amqp://guest:guest@127.0.0.1:{west}", protocol: amqp-0-9-1}}
routes:
  - {{address: moved, from: east/moved, to: west/moved}}
"""


def main() -> None:
    """Measures and prints a line for each run, and the ratio of the medians."""
    parser = argparse.ArgumentParser(description="the router beside RabbitMQ's shovel")
    parser.add_argument("--messages", type=int, default=50_000, help="moved in each run")
    parser.add_argument("--size", type=int, default=100, help="octets of a body")
    parser.add_argument("--runs", type=int, default=3, help="of each; the median counts")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        running_all(Path(folder), "east", "west") as (east, west),
    ):
        rates = measure(east, west, options.messages, options.size, options.runs)
    medians = {name: statistics.median(each) for name, each in rates.items()}
    ratio = medians["router"] / medians["shovel"]
    print(json.dumps(medians | {"ratio": round(ratio, 2)}))


def measure(
    east: RabbitNode, west: RabbitNode, messages: int, size: int, runs: int
) -> dict[str, list[float]]:
    """Has each move the messages, taking turns; returns messages per second, by name."""
    rates: dict[str, list[float]] = {"shovel": [], "router": []}
    for run in range(runs):
        for name, move in (("shovel", by_shovel), ("router", by_router)):
            fill(east, west, messages, bytes(size))
            rates[name].append(move(east, west, messages))
            print(f"run {run + 1}: {name} {rates[name][-1]:,.0f} messages/s", flush=True)
    return rates


def fill(east: RabbitNode, west: RabbitNode, count: int, body: bytes) -> None:
    """Puts persistent messages into the one queue and empties the other."""
    import pika

    for node in (east, west):
        channel = open_channel(node)
        channel.queue_delete(QUEUE)
        channel.queue_declare(QUEUE, durable=True)
        if node is east:
            for _ in range(count):
                channel.basic_publish("", QUEUE, body, pika.BasicProperties(delivery_mode=2))
            while waiting(channel) < count:
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


def rate_at(node: RabbitNode, count: int) -> float:
    """Watches messages arrive; returns how many came per second behind the first tenth."""
    channel = open_channel(node)
    give_up_at = time.monotonic() + GIVE_UP_SECONDS
    first: tuple[float, int] | None = None
    while time.monotonic() < give_up_at:
        now, here = time.monotonic(), waiting(channel)
        if first is None and here >= count / 10:
            first = now, here
        if first is not None and here == count:
            channel.connection.close()
            return (count - first[1]) / (now - first[0])
        channel.connection.process_data_events(0.02)
    raise RuntimeError(f"{waiting(channel)} of {count} messages arrived")


def by_shovel(east: RabbitNode, west: RabbitNode, count: int) -> float:
    """Has a dynamic shovel of the target's node move the messages."""
    definition = {
        "src-protocol": "amqp091",
        "src-uri": f"amqp://127.0.0.1:{east.port}",
        "src-queue": QUEUE,
        "src-prefetch-count": PREFETCH,
        "dest-protocol": "amqp091",
        "dest-uri": f"amqp://127.0.0.1:{west.port}",
        "dest-queue": QUEUE,
        "ack-mode": "on-confirm",
    }
    ask(west, "PUT", {"value": definition})
    try:
        return rate_at(west, count)
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


def by_router(east: RabbitNode, west: RabbitNode, count: int) -> float:
    """Has a router of one worker move the messages."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "router.yaml"
        state = Path(folder) / "state"
        file.write_text(
            ROUTER.format(state=state, prefetch=PREFETCH, east=east.port, west=west.port)
        )
        command = [sys.executable, "-m", "router", "run", str(file)]
        with (
            (Path(folder) / "log").open("w") as log,
            subprocess.Popen(command, stdout=log, stderr=log, env=os.environ) as process,
        ):
            try:
                return rate_at(west, count)
            finally:
                process.terminate()


if __name__ == "__main__":
    main()
