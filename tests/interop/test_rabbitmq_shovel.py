"""RabbitMQ's own AMQP 1.0 shovel, and its federation, dial the router and have messages of it."""

import base64
import contextlib
import json
import time
import urllib.request
import uuid

import pytest

from tests.interop.conftest import Reachable
from tests.interop.test_rabbitmq_bridge import fill, waiting
from tests.support import peers
from tests.support.rabbitmq import RabbitNode

pytestmark = [pytest.mark.interop, pytest.mark.long]

COUNT = 500
START_SECONDS = 60.0


def start_shovel(node: RabbitNode, name: str, definition: dict[str, object]) -> None:
    """Defines a dynamic shovel by the management plugin."""
    define(node, f"parameters/shovel/%2f/{name}", {"value": definition})


def define(node: RabbitNode, what: str, definition: dict[str, object]) -> None:
    """Defines something by the management plugin, once that is up."""
    url = f"http://127.0.0.1:{node.management_port}/api/{what}"
    secret = base64.b64encode(b"guest:guest").decode()
    request = urllib.request.Request(
        url,
        data=json.dumps(definition).encode(),
        method="PUT",
        headers={"Authorization": f"Basic {secret}", "Content-Type": "application/json"},
    )
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                assert answer.status in (201, 204)
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def stops(node: RabbitNode) -> int:
    """How often a shovel of the node has died, as its log tells."""
    return sum(
        line.count("is stopping, reason:")
        for path in (node.home / "log").glob("*.log")
        for line in path.read_text(errors="replace").splitlines()
        if "Shovel 'to-router'" in line
    )


def test_the_shovel_dials_the_router_and_delivers(
    reachable: Reachable, rabbit_node: RabbitNode
) -> None:
    """Nothing comes twice unless the shovel has died meanwhile, and then from one place on.

    The shovel of RabbitMQ 3.10 dies when messages of its source and the end of its credit cross
    ("insufficient_credit"); it begins again 5 s later, with what it had not acknowledged.
    """
    peers.need_python("proton")
    peers.need_python("pika")
    from proton import Timeout
    from proton.utils import BlockingConnection

    address = f"shoveled.{uuid.uuid4().hex}"
    fill(rabbit_node, "to-shovel", COUNT)
    connection = BlockingConnection(reachable.url, timeout=60)
    receiver = connection.create_receiver(address, credit=50)
    start_shovel(
        rabbit_node,
        "to-router",
        {
            "src-protocol": "amqp091",
            "src-uri": f"amqp://127.0.0.1:{rabbit_node.port}",
            "src-queue": "to-shovel",
            "dest-protocol": "amqp10",
            "dest-uri": f"amqp://127.0.0.1:{reachable.port}",
            "dest-address": address,
            "ack-mode": "on-confirm",
        },
    )
    received: list[int] = []
    deadline = time.monotonic() + 240
    while len(set(received)) < COUNT or waiting(rabbit_node, "to-shovel"):
        assert time.monotonic() < deadline, f"{len(set(received))} of {COUNT}"
        with contextlib.suppress(Timeout):
            message = receiver.receive(timeout=1)  # its body is a view, and goes with it
            received.append(int(bytes(message.body)))
            receiver.accept()
    begun = [n for n in range(1, len(received)) if received[n] != received[n - 1] + 1]
    assert received[0] == 0
    assert all(received[n] <= received[n - 1] for n in begun), "out of order"
    assert len(begun) <= stops(rabbit_node), "came twice by the router's doing"
    connection.close()


def federate(node: RabbitNode, reachable: Reachable, prefix: str, what: str) -> None:
    """Has the node's queues or exchanges whose names begin so pull from the router."""
    upstream: dict[str, object] = {"uri": f"amqp://127.0.0.1:{reachable.port}"}
    define(node, "parameters/federation-upstream/%2f/router", {"value": upstream})
    policy: dict[str, object] = {"federation-upstream-set": "all"}
    define(
        node,
        f"policies/%2f/{prefix}",
        {"pattern": f"^{prefix}\\.", "definition": policy, "apply-to": what},
    )


def test_a_federated_queue_pulls_from_the_router(
    reachable: Reachable, rabbit_node: RabbitNode
) -> None:
    """Federation consumes with a priority below zero, and only while somebody wants messages."""
    peers.need_python("pika")
    import pika

    queue = f"federated.{uuid.uuid4().hex}"
    federate(rabbit_node, reachable, "federated", "queues")
    parameters = pika.ConnectionParameters("127.0.0.1", rabbit_node.port, heartbeat=0)
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    received: list[int] = []

    def take(channel: object, method: object, properties: object, body: bytes) -> None:
        received.append(int(body))

    channel.basic_consume(queue, take, auto_ack=True)
    sending = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", reachable.port))
    publishing = sending.channel()
    for number in range(COUNT):
        publishing.basic_publish("", queue, str(number).encode())
    deadline = time.monotonic() + 120
    while len(received) < COUNT:
        assert time.monotonic() < deadline, f"{len(received)} of {COUNT}"
        connection.process_data_events(0.1)
        sending.process_data_events(0)
    assert received == list(range(COUNT))
    sending.close()
    connection.close()


def test_a_federated_exchange_has_what_is_published_to_the_router(
    reachable: Reachable, rabbit_node: RabbitNode
) -> None:
    """Its upstream end is a queue, an exchange bound to it, and that bound to the exchange."""
    peers.need_python("pika")
    import pika

    exchange = f"fed-exchange.{uuid.uuid4().hex}"
    federate(rabbit_node, reachable, "fed-exchange", "exchanges")
    parameters = pika.ConnectionParameters("127.0.0.1", rabbit_node.port, heartbeat=0)
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.exchange_declare(exchange, "topic", durable=True)
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, exchange, "eu.*")
    received: list[tuple[str, int]] = []

    def take(channel: object, method: pika.spec.Basic.Deliver, p: object, body: bytes) -> None:
        received.append((method.routing_key, int(body)))

    channel.basic_consume(queue, take, auto_ack=True)
    sending = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", reachable.port))
    publishing = sending.channel()
    publishing.exchange_declare(exchange, "topic", durable=True)
    for number in range(COUNT):
        publishing.basic_publish(exchange, "eu.a", str(number).encode())
    deadline = time.monotonic() + 120
    while len(received) < COUNT:
        assert time.monotonic() < deadline, f"{len(received)} of {COUNT}"
        connection.process_data_events(0.1)
        sending.process_data_events(0)
    assert received == [("eu.a", number) for number in range(COUNT)]
    sending.close()
    channel.exchange_delete(exchange)
    connection.close()
