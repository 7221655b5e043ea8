"""RabbitMQ's queue as a route's fallback while receivers come and go: nothing is lost or doubled.

``router send`` sends and demands every outcome; pika receives, and counts only what it has
acknowledged.
"""

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port
from tests.support.rabbitmq import RabbitNode
from tests.support.running import running_router

pytestmark = [pytest.mark.interop, pytest.mark.long]

CONFIG = """\
router: {{id: dc1, workers: {workers}, admin: "off"}}
listeners: [{{bind: "127.0.0.1:{listen}"}}]
containers:
  broker: {{url: "amqp://guest:guest@127.0.0.1:{port}", protocol: {protocol}}}
routes:
  - {{address: rpc.a, fallback: broker/overflow}}
"""

SECONDS = 240.0


def channel_at(port: int) -> Any:
    import pika

    parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)
    return pika.BlockingConnection(parameters).channel()


def depth(node: RabbitNode) -> int:
    channel = channel_at(node.port)
    count: int = channel.queue_declare("overflow", durable=True).method.message_count
    channel.connection.close()
    return count


def send(port: int, first: int, count: int) -> "subprocess.Popen[bytes]":
    """Begins to send numbers, one a message."""
    command = [sys.executable, "-m", "router", "send", f"amqp://127.0.0.1:{port}", "rpc.a"]
    process = subprocess.Popen([*command, "--lines"], stdin=subprocess.PIPE)
    lines = "".join(f"{number}\n" for number in range(first, first + count))

    def feed() -> None:
        assert process.stdin is not None
        process.stdin.write(lines.encode())
        process.stdin.close()

    threading.Thread(target=feed, daemon=True).start()
    return process


def receive(port: int, most: int, taken: Counter[int], patience: float) -> int:
    """Receives up to ``most`` messages and leaves; some are at this receiver unsettled then."""
    channel = channel_at(port)
    channel.basic_qos(prefetch_count=100)
    count = 0
    for method, properties, body in channel.consume("rpc.a", inactivity_timeout=patience):
        if method is None:
            break
        assert "x-opt-router-address" not in (properties.headers or {})
        taken[int(body)] += 1
        channel.basic_ack(method.delivery_tag)
        count += 1
        if count >= most:
            break
    channel.cancel()
    channel.connection.close()
    return count


@pytest.mark.parametrize("protocol", ["amqp-0-9-1"])
@pytest.mark.parametrize("count", [4_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_while_receivers_come_and_go_no_message_is_lost_or_doubled(
    rabbit_nodes: tuple[RabbitNode, RabbitNode], tmp_path: Path, protocol: str, count: int
) -> None:
    rabbit, _ = rabbit_nodes
    port = free_port()
    channel = channel_at(rabbit.port)
    channel.queue_delete("overflow")
    channel.connection.close()
    depth(rabbit)
    config = CONFIG.format(workers=2, listen=port, port=rabbit.port, protocol=protocol)
    choose = random.Random(7)
    taken: Counter[int] = Counter()
    with running_router(config, tmp_path):
        senders = [send(port, half * count // 2, count // 2) for half in (0, 1)]
        deadline = time.monotonic() + SECONDS
        while depth(rabbit) < count // 20:
            assert time.monotonic() < deadline
        visits = 0
        while any(each.poll() is None for each in senders):
            assert time.monotonic() < deadline
            receive(port, choose.randint(1, count // 10), taken, 0.5)
            visits += 1
            time.sleep(choose.random() / 2)
        assert [each.returncode for each in senders] == [0, 0]
        receive(port, count // 10, taken, 1.0)
        while sum(taken.values()) < count:
            assert time.monotonic() < deadline, f"{sum(taken.values())} of {count}"
            receive(port, count, taken, 3.0)
        time.sleep(1)
        receive(port, count, taken, 2.0)
    assert visits >= 1
    assert depth(rabbit) == 0
    assert sorted(taken) == list(range(count))
    assert set(taken.values()) == {1}
