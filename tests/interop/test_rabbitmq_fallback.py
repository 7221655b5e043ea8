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
from collections.abc import Callable
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


@pytest.mark.parametrize("protocol", ["amqp-0-9-1", "amqp-1.0"])
def test_mandatory_priority_and_time_to_live_go_through_the_fallback(
    rabbit_nodes: tuple[RabbitNode, RabbitNode], tmp_path: Path, protocol: str
) -> None:
    import pika

    rabbit, _ = rabbit_nodes
    port = free_port()
    channel = channel_at(rabbit.port)
    channel.queue_delete("overflow")
    channel.queue_declare("overflow", durable=True)
    returned: list[bytes] = []
    config = CONFIG.format(workers=1, listen=port, port=rabbit.port, protocol=protocol)
    if protocol == "amqp-1.0":
        config = config.replace("broker/overflow", "broker//amq/queue/overflow")
    with running_router(config, tmp_path) as router:
        sender = channel_at(port)
        sender.add_on_return_callback(lambda *told: returned.append(told[-1]))
        sender.confirm_delivery()
        # RabbitMQ lets messages expire at the head of a queue, so the one that is to goes first
        for body, expiration in ((b"short", "1500"), (b"long", "600000"), (b"for ever", None)):
            properties = pika.BasicProperties(
                priority=7, expiration=expiration, delivery_mode=2, message_id=body.decode(),
                headers={"kind": "test"},
            )  # fmt: skip
            sender.basic_publish("", "rpc.a", body, properties, mandatory=True)
        assert not returned, "mandatory is kept: the fallback has taken it, which is a route"
        wait_for(lambda: depth(rabbit) <= 2)  # one has expired there
        found = {}
        receiver = channel_at(port)
        for method, properties, body in receiver.consume("rpc.a", inactivity_timeout=20.0):
            if method is None:
                break
            found[body] = properties
            receiver.basic_ack(method.delivery_tag)
            if len(found) == 2:
                break
        receiver.connection.close()
        assert set(found) == {b"long", b"for ever"}
        for body, properties in found.items():
            assert (properties.priority, properties.delivery_mode) == (7, 2)
            assert properties.message_id == body.decode()
            assert properties.headers["kind"] == "test"
        assert found[b"for ever"].expiration is None
        assert 0 < int(found[b"long"].expiration) <= 600_000
        sender.connection.close()
        assert not [line for line in router.log if "error" in line and "Traceback" in line]
    assert depth(rabbit) == 0
    channel.connection.close()


def test_a_mandatory_message_comes_back_if_the_fallback_cannot_be_reached(tmp_path: Path) -> None:
    import pika
    from pika.exceptions import NackError, UnroutableError

    port, nobody = free_port(), free_port()
    config = CONFIG.format(workers=1, listen=port, port=nobody, protocol="amqp-0-9-1")
    config = config.replace("protocol: amqp-0-9-1", "protocol: amqp-0-9-1, failover_seconds: 1s")
    config = config.replace("broker/overflow}", "broker/overflow, unroutable: reject}")
    with running_router(config, tmp_path):
        sender = channel_at(port)
        sender.confirm_delivery()
        with pytest.raises((UnroutableError, NackError)) as caught:
            sender.basic_publish("", "rpc.a", b"x", pika.BasicProperties(), mandatory=True)
        assert isinstance(caught.value, UnroutableError), "it comes back, and is not only nacked"
        sender.connection.close()


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60.0
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.2)
