"""Two RabbitMQ nodes (AMQP 1.0 plugin) bridged from a file of ten lines."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support import peers
from tests.support.cuttable import Cuttable, cuttable
from tests.support.rabbitmq import RabbitNode
from tests.support.running import RunningRouter, running_router

pytestmark = [pytest.mark.interop, pytest.mark.long]

COUNT = 10_000
MOVE_SECONDS = 120.0
OCTETS_BETWEEN_CUTS = 100_000

CONFIG = """\
router: {{admin: off}}
containers:
  east: {{url: "amqp://guest:guest@127.0.0.1:{east}"}}
  west: {{url: "amqp://guest:guest@127.0.0.1:{west}"}}
routes:
  - address: orders
    from: east//amq/queue/orders
    to: west//amq/queue/orders
"""


def channel_of(node: RabbitNode) -> Any:
    import pika

    parameters = pika.ConnectionParameters("127.0.0.1", node.port, heartbeat=0)
    return pika.BlockingConnection(parameters).channel()


def fill(node: RabbitNode, queue: str, count: int) -> None:
    """Puts numbered messages into a new durable queue."""
    import pika

    make_empty(node, queue)
    channel = channel_of(node)
    properties = pika.BasicProperties(delivery_mode=2)
    for number in range(count):
        channel.basic_publish("", queue, str(number).encode(), properties)
    while waiting(node, queue) < count:
        channel.connection.process_data_events(0.05)
    channel.connection.close()


def make_empty(node: RabbitNode, queue: str) -> None:
    channel = channel_of(node)
    channel.queue_delete(queue)
    channel.queue_declare(queue, durable=True)
    channel.connection.close()


def waiting(node: RabbitNode, queue: str) -> int:
    channel = channel_of(node)
    count: int = channel.queue_declare(queue, durable=True, passive=True).method.message_count
    channel.connection.close()
    return count


def take_all(node: RabbitNode, queue: str) -> list[int]:
    """Empties a queue."""
    channel = channel_of(node)
    taken: list[int] = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            break
        taken.append(int(body))
    channel.connection.close()
    return taken


async def moved(east: RabbitNode, west: RabbitNode, count: int) -> None:
    """Waits until ``count`` messages have arrived and none is left behind."""
    with trio.fail_after(MOVE_SECONDS):
        while True:
            there = await trio.to_thread.run_sync(waiting, west, "orders")
            here = await trio.to_thread.run_sync(waiting, east, "orders")
            if there >= count and not here:
                return
            await trio.sleep(0.2)


@pytest.fixture
def nodes(rabbit_nodes: tuple[RabbitNode, RabbitNode]) -> tuple[RabbitNode, RabbitNode]:
    peers.need_python("pika")
    east, west = rabbit_nodes
    fill(east, "orders", COUNT)
    make_empty(west, "orders")
    return east, west


async def test_ten_thousand_messages_cross_once_and_in_order(
    nodes: tuple[RabbitNode, RabbitNode], tmp_path: Path
) -> None:
    east, west = nodes
    config = CONFIG.format(east=east.port, west=west.port)
    assert len(config.splitlines()) <= 10
    with running_router(config, tmp_path):
        await moved(east, west, COUNT)
    assert await trio.to_thread.run_sync(take_all, west, "orders") == list(range(COUNT))
    assert take_all(east, "orders") == []


@pytest.mark.parametrize("side", ["east", "west"])
async def test_three_cuts_lose_nothing_and_every_duplicate_is_in_the_log(
    nodes: tuple[RabbitNode, RabbitNode], tmp_path: Path, side: str
) -> None:
    east, west = nodes
    async with cuttable(east.port) as to_east, cuttable(west.port) as to_west:
        config = CONFIG.format(east=to_east.port, west=to_west.port)
        with running_router(config, tmp_path) as router:
            await cut_three_times(to_east if side == "east" else to_west)
            await moved(east, west, COUNT)
            await trio.to_thread.run_sync(router.stop)
        taken = await trio.to_thread.run_sync(take_all, west, "orders")
    assert sorted(set(taken)) == list(range(COUNT))
    assert len(taken) - COUNT <= repeats_by_log(router, COUNT)


async def cut_three_times(relay: Cuttable) -> None:
    """Cuts the connection in the middle of the traffic, each time that it has come to life."""
    for _ in range(3):
        await cut_in_traffic(relay)


async def cut_in_traffic(relay: Cuttable) -> None:
    """Cuts the connection when some traffic has passed."""
    before = relay.octets
    with trio.fail_after(MOVE_SECONDS):
        while relay.octets < before + OCTETS_BETWEEN_CUTS:
            await trio.sleep(0.001)
    assert relay.cut()


def repeats_by_log(router: RunningRouter, count: int) -> int:
    """How many deliveries went to the west a second time, by the router's own account.

    Either the source brought a message again, or the router sent it again after the target's
    connection was lost.

    Args:
        router: it has ended.
        count: different messages that were moved.
    """
    entries = [json.loads(line) for line in router.log if "link.detached" in line]
    came: int = sum(entry["count"] for entry in entries if "<east" in entry["link"])
    sent_again: int = sum(entry["redelivered"] for entry in entries if ">west" in entry["link"])
    return came - count + sent_again
