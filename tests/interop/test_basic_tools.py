"""amqplib (npm), librabbitmq's command line tools and RabbitMQ's 0-9-1 shovel, unmodified."""

import json
import shutil
import subprocess
import time
import uuid
from typing import Any

import pytest

from tests.interop.conftest import Reachable
from tests.interop.test_rabbitmq_bridge import fill, waiting
from tests.interop.test_rabbitmq_shovel import start_shovel
from tests.support import peers
from tests.support.rabbitmq import RabbitNode

pytestmark = [pytest.mark.interop, pytest.mark.long]

TIMEOUT_SECONDS = 60


@pytest.fixture
def address() -> str:
    return f"tools.{uuid.uuid4().hex}"


# --- amqplib --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("answer", "confirmed"), [("ack", 200), ("reject", 0)])
def test_amqplib_learns_what_its_consumer_says(
    reachable: Reachable, address: str, answer: str, confirmed: int
) -> None:
    peers.need_node("amqplib")
    run = subprocess.run(
        ["node", "tests/interop/node/basic.js", str(reachable.port), address, "200", answer],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report["received"] == list(range(200))
    assert report["confirmed"] == confirmed
    assert report["refused"] == 200 - confirmed
    assert report["headers"] == {
        "n": 199,
        "half": 0.5,
        "text": "grüße",
        "list": [1, "a"],
        "yes": True,
    }


# --- librabbitmq ----------------------------------------------------------------------------------


def tool(name: str, reachable: Reachable, *arguments: str) -> list[str]:
    if shutil.which(name) is None:
        peers.miss("amqp-tools")
    return [name, f"--url=amqp://guest:guest@127.0.0.1:{reachable.port}", *arguments]


def test_amqp_publish_and_amqp_consume_meet(reachable: Reachable, address: str) -> None:
    consuming = subprocess.Popen(
        tool("amqp-consume", reachable, f"--queue={address}", "--count=3", "cat"),
        stdout=subprocess.PIPE,
        text=True,
    )
    for number in range(3):
        subprocess.run(
            tool("amqp-publish", reachable, f"--routing-key={address}", f"--body=body {number};"),
            check=True,
            timeout=TIMEOUT_SECONDS,
        )
    output, _ = consuming.communicate(timeout=TIMEOUT_SECONDS)
    assert consuming.returncode == 0
    assert sorted(output.split(";")) == ["", "body 0", "body 1", "body 2"]  # of three senders


def test_amqp_get_finds_nothing_where_nothing_is(reachable: Reachable, address: str) -> None:
    got = subprocess.run(
        tool("amqp-get", reachable, f"--queue={address}"),
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert got.returncode == 2
    assert got.stdout == b""


def test_amqp_declare_queue_is_told_what_is_there(reachable: Reachable, address: str) -> None:
    declared = subprocess.run(
        tool("amqp-declare-queue", reachable, f"--queue={address}", "--durable"),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=True,
    )
    assert declared.stdout.strip() == address


def test_amqp_delete_queue_is_refused(reachable: Reachable, address: str) -> None:
    deleted = subprocess.run(
        tool("amqp-delete-queue", reachable, f"--queue={address}"),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert deleted.returncode != 0
    assert "403" in deleted.stderr


# --- the shovel of 0-9-1 --------------------------------------------------------------------------


def shovel(node: RabbitNode, name: str, definition: dict[str, Any]) -> None:
    protocols = {"src-protocol": "amqp091", "dest-protocol": "amqp091", "ack-mode": "on-confirm"}
    start_shovel(node, name, {**protocols, **definition})


def test_the_shovel_delivers_to_the_router_and_hears_the_outcome(
    reachable: Reachable, rabbit_node: RabbitNode, address: str
) -> None:
    peers.need_python("pika")
    import pika

    count = 500
    fill(rabbit_node, "basic-to-router", count)
    parameters = pika.ConnectionParameters("127.0.0.1", reachable.port, heartbeat=30)
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.basic_qos(prefetch_count=100)
    got: list[int] = []

    def take(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        got.append(int(body))
        channel.basic_ack(method.delivery_tag)

    channel.basic_consume(address, take)
    shovel(
        rabbit_node,
        "basic-to-router",
        {
            "src-uri": f"amqp://127.0.0.1:{rabbit_node.port}",
            "src-queue": "basic-to-router",
            "dest-uri": f"amqp://127.0.0.1:{reachable.port}",
            "dest-queue": address,
        },
    )
    give_up_at = time.monotonic() + TIMEOUT_SECONDS
    while len(got) < count or waiting(rabbit_node, "basic-to-router"):
        assert time.monotonic() < give_up_at, len(got)
        connection.process_data_events(0.2)
    assert got == list(range(count))
    connection.close()


def test_the_shovel_consumes_from_the_router(
    reachable: Reachable, rabbit_node: RabbitNode, address: str
) -> None:
    peers.need_python("pika")
    import pika

    count = 500
    fill(rabbit_node, "basic-from-router", 0)
    shovel(
        rabbit_node,
        "basic-from-router",
        {
            "src-uri": f"amqp://127.0.0.1:{reachable.port}",
            "src-queue": address,
            "dest-uri": f"amqp://127.0.0.1:{rabbit_node.port}",
            "dest-queue": "basic-from-router",
        },
    )
    parameters = pika.ConnectionParameters("127.0.0.1", reachable.port, heartbeat=30)
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.confirm_delivery()
    for number in range(count):
        channel.basic_publish("", address, b"%d" % number)
    assert waiting(rabbit_node, "basic-from-router") == count
    connection.close()
