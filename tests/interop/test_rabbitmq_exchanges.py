"""Topic exchanges of two RabbitMQ nodes bridged as they are: routing keys, counts, what is unbound.

Messages come and go by pika, so what is compared is what users see.
"""

import json
import random
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support import peers
from tests.support.ports import free_port
from tests.support.rabbitmq import RabbitNode
from tests.support.running import running_router

pytestmark = [pytest.mark.interop, pytest.mark.long]

COUNT = 10_000
KEYS = [f"{region}.k{number}" for region in ("eu", "us") for number in range(20)]
"""Keys to which a queue of the far end is bound."""

UNBOUND = [f"nowhere.k{number}" for number in range(10)]
"""Keys to which none is."""

MOVE_SECONDS = 120.0

CONFIG = """\
router: {{id: dc1, workers: {workers}, admin: "127.0.0.1:{admin}"}}
listeners: [{{bind: "127.0.0.1:0"}}]
containers:
  east: {{url: "amqp://guest:guest@127.0.0.1:{east}", protocol: amqp-0-9-1}}
  west: {{url: "amqp://guest:guest@127.0.0.1:{west}", protocol: {protocol}}}
routes:
  - address: prices/#
    from: east/prices/#
    to: {to}
    unroutable: {unroutable}
"""

QUEUE = "dc1.prices/#"
"""What feeds the route at the east."""


def channel_of(node: RabbitNode) -> Any:
    import pika

    parameters = pika.ConnectionParameters("127.0.0.1", node.port, heartbeat=0)
    return pika.BlockingConnection(parameters).channel()


def set_up(node: RabbitNode, *bindings: str) -> None:
    """Declares the exchange, and a queue that is bound to it."""
    channel = channel_of(node)
    channel.queue_delete("copies")
    channel.queue_delete(QUEUE)
    channel.exchange_delete("prices")
    channel.exchange_declare("prices", "topic", durable=True)
    channel.queue_declare("copies", durable=True)
    for binding in bindings:
        channel.queue_bind("copies", "prices", binding)
    channel.connection.close()


def publish(node: RabbitNode, keys: list[str]) -> None:
    import pika

    channel = channel_of(node)
    channel.confirm_delivery()
    for number, key in enumerate(keys):
        properties = pika.BasicProperties(delivery_mode=2, headers={"number": number})
        channel.basic_publish("prices", key, str(number).encode(), properties)
    channel.connection.close()


def waiting(node: RabbitNode, queue: str = "copies") -> int:
    channel = channel_of(node)
    count: int = channel.queue_declare(queue, passive=True).method.message_count
    channel.connection.close()
    return count


def take_all(node: RabbitNode) -> list[tuple[str, str, int]]:
    """Empties the queue; returns exchange, routing key and number of each message."""
    channel = channel_of(node)
    taken = []
    while True:
        method, properties, body = channel.basic_get("copies", auto_ack=True)
        if method is None:
            break
        assert properties.headers["number"] == int(body)
        taken.append((method.exchange, method.routing_key, int(body)))
    channel.connection.close()
    return taken


def wait_until(node: RabbitNode, count: int) -> None:
    deadline = time.monotonic() + MOVE_SECONDS
    while waiting(node) < count:
        assert time.monotonic() < deadline, f"{waiting(node)} of {count} messages arrived"
        time.sleep(0.2)


def total(port: int, name: str) -> float:
    """Returns a metric of the route."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    beginning = f'{name}{{route="prices/#"}} '
    return sum(float(line.removeprefix(beginning)) for line in lines if line.startswith(beginning))


def wait_for_total(port: int, name: str, wanted: float) -> None:
    deadline = time.monotonic() + MOVE_SECONDS
    while (found := total(port, name)) != wanted:
        assert time.monotonic() < deadline, f"{name} is {found}, not {wanted}"
        time.sleep(0.2)


UNROUTABLE = "router_route_unroutable_total"
POSTPONED = "router_route_postponed_deliveries"


def mixed_keys(count: int = COUNT) -> list[str]:
    rng = random.Random(18)
    return [rng.choice(KEYS + UNBOUND) for _ in range(count)]


def config_of(
    nodes: tuple[RabbitNode, RabbitNode],
    admin: int,
    *,
    to: str,
    unroutable: str,
    workers: int = 1,
) -> str:
    east, west = nodes
    return CONFIG.format(
        east=east.port,
        west=west.port,
        protocol="amqp-0-9-1",
        to=to,
        unroutable=unroutable,
        workers=workers,
        admin=admin,
    )


@pytest.fixture
def nodes(rabbit_nodes: tuple[RabbitNode, RabbitNode]) -> tuple[RabbitNode, RabbitNode]:
    peers.need_python("pika")
    east, west = rabbit_nodes
    set_up(east)
    set_up(west, "eu.#", "us.#")
    return east, west


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("to", ["west", "west/prices/#"])
def test_ten_thousand_messages_of_fifty_keys_keep_them_and_unbound_ones_are_dropped_and_counted(
    nodes: tuple[RabbitNode, RabbitNode], tmp_path: Path, to: str, workers: int
) -> None:
    east, west = nodes
    keys = mixed_keys()
    sent = [("prices", key, number) for number, key in enumerate(keys) if key in KEYS]
    admin = free_port()
    config = config_of(nodes, admin, to=to, unroutable="drop", workers=workers)
    with running_router(config, tmp_path) as router:
        router.wait_for('"link": "dc1:prices/#<east/prices/#"')
        publish(east, keys)
        wait_until(west, len(sent))
        wait_for_total(admin, UNROUTABLE, COUNT - len(sent))
        assert '"event": "delivery.unroutable"' in "".join(router.log)
        router.stop()
    assert take_all(west) == sent, "keys, counts and order"
    assert waiting(east, QUEUE) == 0, "the source was told of all"


def test_what_is_unbound_is_tried_again_until_it_is_bound_and_blocks_nothing(
    nodes: tuple[RabbitNode, RabbitNode], tmp_path: Path
) -> None:
    east, west = nodes
    keys = mixed_keys(3_000)
    bound = [("prices", key, number) for number, key in enumerate(keys) if key in KEYS]
    unbound = [("prices", key, number) for number, key in enumerate(keys) if key in UNBOUND]
    admin = free_port()
    config = config_of(nodes, admin, to="west", unroutable="release")
    with running_router(config, tmp_path) as router:
        router.wait_for('"link": "dc1:prices/#<east/prices/#"')
        publish(east, keys)
        wait_until(west, len(bound))
        wait_for_total(admin, POSTPONED, len(unbound))
        wait_for_total(admin, UNROUTABLE, len(unbound))
        assert take_all(west) == bound
        channel = channel_of(west)
        channel.queue_bind("copies", "prices", "nowhere.#")
        wait_until(west, len(unbound))
        wait_for_total(admin, POSTPONED, 0)
        router.stop()
    taken = take_all(west)
    assert sorted(taken) == sorted(unbound)
    assert all(sorted(each) == each for each in numbers_by_key(taken)), "each key in its order"
    assert waiting(east, QUEUE) == 0


def numbers_by_key(taken: list[tuple[str, str, int]]) -> list[list[int]]:
    """Returns the numbers of the messages of each key, in the order in which they arrived."""
    keys = sorted({key for _, key, _ in taken})
    return [[number for _, each, number in taken if each == key] for key in keys]


def test_the_queue_keeps_messages_while_the_router_is_away_and_is_unbound_with_its_route(
    nodes: tuple[RabbitNode, RabbitNode], tmp_path: Path
) -> None:
    east, west = nodes
    config = config_of(nodes, free_port(), to="west", unroutable="drop")
    with running_router(config, tmp_path) as router:
        router.wait_for('"link": "dc1:prices/#<east/prices/#"')
        router.stop()
    publish(east, ["eu.k1", "eu.k2"])
    assert waiting(east, QUEUE) == 2, "a stop is no end of the route"
    with running_router(config, tmp_path) as router:
        wait_until(west, 2)
        without = config[: config.index("routes:")] + "routes: []\n"
        (tmp_path / "router.yaml").write_text(without)
        router.process.send_signal(signal.SIGHUP)
        line = json.loads(router.wait_for('"event": "queue.unbound"'))
        assert (line["container"], line["queue"], line["address"], line["count"]) == (
            "east",
            QUEUE,
            "prices/#",
            0,
        )
        publish(east, ["eu.k3"])
        assert waiting(east, QUEUE) == 0
        router.stop()
