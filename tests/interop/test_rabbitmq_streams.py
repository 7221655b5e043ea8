"""A stream of RabbitMQ, read from an offset over 0-9-1 by a route."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import peers
from tests.support.rabbitmq import RabbitNode
from tests.support.running import running_router

pytestmark = [pytest.mark.interop, pytest.mark.long]

COUNT = 500
PATIENCE_SECONDS = 120.0

CONFIG = """\
router: {{id: dc1, workers: {workers}, admin: off}}
listeners: [{{bind: "127.0.0.1:0"}}]
containers:
  east: {{url: "amqp://guest:guest@127.0.0.1:{east}", protocol: amqp-0-9-1}}
  west: {{url: "amqp://guest:guest@127.0.0.1:{west}", protocol: amqp-0-9-1}}
routes:
  - address: history
    from: {{container: east, address: history, filter: {{"rabbitmq:stream-offset-spec": {spec}}}}}
    to: west/copies
"""


def channel_of(node: RabbitNode) -> Any:
    import pika

    parameters = pika.ConnectionParameters("127.0.0.1", node.port, heartbeat=0)
    return pika.BlockingConnection(parameters).channel()


@pytest.fixture
def nodes(rabbit_nodes: tuple[RabbitNode, RabbitNode]) -> tuple[RabbitNode, RabbitNode]:
    peers.need_python("pika")
    east, west = rabbit_nodes
    channel = channel_of(east)
    channel.queue_delete("history")
    channel.queue_declare("history", durable=True, arguments={"x-queue-type": "stream"})
    publish(east, range(COUNT))
    channel = channel_of(west)
    channel.queue_delete("copies")
    channel.queue_declare("copies", durable=True)
    return east, west


def publish(node: RabbitNode, numbers: range) -> None:
    channel = channel_of(node)
    channel.confirm_delivery()
    for number in numbers:
        channel.basic_publish("", "history", b"%d" % number)
    channel.connection.close()


def take(node: RabbitNode, count: int, limit: float) -> list[int]:
    """Takes so many messages out of the copies."""
    channel, found = channel_of(node), list[int]()
    while len(found) < count and time.monotonic() < limit:
        method, _, body = channel.basic_get("copies", auto_ack=True)
        if method is not None:
            found.append(int(body))
        else:
            channel.connection.process_data_events(0.02)
    channel.connection.close()
    return found


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("spec", "first"), [("first", 0), ("{ulong: 123}", 123)])
def test_a_route_reads_a_stream_from_where_its_filter_says(
    nodes: tuple[RabbitNode, RabbitNode], tmp_path: Path, spec: str, first: int, workers: int
) -> None:
    east, west = nodes
    config = CONFIG.format(east=east.port, west=west.port, spec=spec, workers=workers)
    limit = time.monotonic() + PATIENCE_SECONDS
    with running_router(config, tmp_path) as router:
        early = take(west, COUNT - first, limit)
        publish(east, range(COUNT, COUNT + 50))
        late = take(west, 50, limit)
        router.stop()
    assert early == list(range(first, COUNT))
    assert late == list(range(COUNT, COUNT + 50))
    assert take(west, 1, time.monotonic() + 1) == [], "nothing comes twice"


def test_a_route_reads_what_is_published_from_now_on(
    nodes: tuple[RabbitNode, RabbitNode], tmp_path: Path
) -> None:
    east, west = nodes
    config = CONFIG.format(east=east.port, west=west.port, spec="next", workers=1)
    limit = time.monotonic() + PATIENCE_SECONDS
    with running_router(config, tmp_path):
        number, found = COUNT, list[int]()
        while not found:  # until the consumer is there
            publish(east, range(number, number + 1))
            number += 1
            found = take(west, 1, min(limit, time.monotonic() + 0.2))
            assert time.monotonic() < limit
        publish(east, range(number, number + 50))
        found += take(west, number + 50 - found[0] - 1, limit)
    assert found == list(range(found[0], number + 50))
    assert found[0] >= COUNT
