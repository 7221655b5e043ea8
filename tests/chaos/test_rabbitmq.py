"""A bridge between two RabbitMQ nodes, which neither resume links nor settle second.

Connections are cut and the router is killed at random. With ``in_doubt: hold`` nothing arrives
twice, and whatever has not arrived for certain is listed; with ``resend`` nothing is lost. The
messages carry ids, by which the router knows those that the source brings again.
"""

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from tests.support import peers
from tests.support.cuttable import Cuttable, cuttable
from tests.support.mortal import MortalRouter
from tests.support.ports import free_port
from tests.support.rabbitmq import RabbitNode

pytestmark = [pytest.mark.interop, pytest.mark.long]

SECONDS = float(os.environ.get("ROUTER_CHAOS_SECONDS", "15"))
SEED = int(os.environ.get("ROUTER_CHAOS_SEED", "1"))
COUNT = int(os.environ.get("ROUTER_CHAOS_DELIVERIES", "20000"))
REST_SECONDS = 300.0
QUEUE = "doubtful"

CONFIG = """
router: {{id: chaos, workers: 1, admin: "127.0.0.1:{admin}", log_format: json, state: {state}}}
listeners: []
containers:
  east: {{url: "amqp://guest:guest@127.0.0.1:{east}"}}
  west: {{url: "amqp://guest:guest@127.0.0.1:{west}"}}
routes:
  - address: doubtful
    from: east//amq/queue/doubtful
    to: west//amq/queue/doubtful
    guarantee: {guarantee}
    in_doubt: {in_doubt}
    unroutable: hold
"""


def channel_of(node: RabbitNode) -> Any:
    import pika

    parameters = pika.ConnectionParameters("127.0.0.1", node.port, heartbeat=0)
    return pika.BlockingConnection(parameters).channel()


def fill(node: RabbitNode, count: int) -> None:
    """Puts numbered messages with ids into a new durable queue."""
    import pika

    channel = channel_of(node)
    channel.queue_delete(QUEUE)
    channel.queue_declare(QUEUE, durable=True)
    for number in range(count):
        properties = pika.BasicProperties(delivery_mode=2, message_id=f"id-{number}")
        channel.basic_publish("", QUEUE, b"%d" % number, properties)
    channel.connection.close()


def ready_messages(node: RabbitNode) -> int:
    channel = channel_of(node)
    count: int = channel.queue_declare(QUEUE, durable=True, passive=True).method.message_count
    channel.connection.close()
    return count


def take_all(node: RabbitNode) -> list[int]:
    channel = channel_of(node)
    taken: list[int] = []
    while (got := channel.basic_get(QUEUE, auto_ack=True))[0] is not None:
        taken.append(int(got[2]))
    channel.connection.close()
    return taken


@attrs.frozen
class Result:
    """What was where in the end.

    Attributes:
        listed: how many deliveries the router called in doubt before it was told to end.
        west: numbers that arrived, each as often as it did.
        east: numbers that the source has still, or again.
    """

    listed: int
    west: list[int]
    east: list[int]

    def __str__(self) -> str:
        return (
            f"{len(self.west)} arrived, {self.duplicates} of them again, {len(self.east)} at the"
            f" source, {self.listed} in doubt, {len(self.lost)} lost"
        )

    @property
    def lost(self) -> set[int]:
        return set(range(COUNT)) - set(self.west) - set(self.east)

    @property
    def duplicates(self) -> int:
        return len(self.west) - len(set(self.west))


async def run_chaos(
    nodes: tuple[RabbitNode, RabbitNode], folder: Path, in_doubt: str, guarantee: str
) -> Result:
    peers.need_python("pika")
    east, west = nodes
    chance = random.Random(SEED)
    admin = free_port()
    await trio.to_thread.run_sync(fill, east, COUNT)
    await trio.to_thread.run_sync(fill, west, 0)
    async with (
        trio.open_nursery() as nursery,
        cuttable(east.port) as to_east,
        cuttable(west.port) as to_west,
    ):
        config = folder / "router.yaml"
        config.write_text(
            CONFIG.format(
                admin=admin,
                state=folder / "state",
                east=to_east.port,
                west=to_west.port,
                guarantee=guarantee,
                in_doubt=in_doubt,
            )
        )
        router = MortalRouter(config)
        await router.start(nursery)
        await make_trouble(router, nursery, [to_east, to_west], chance)
        await rest(east, west)
        listed = await list_in_doubt(admin)
        assert await router.end() == 0
        nursery.cancel_scope.cancel()
    failed = router.complaints()
    assert not failed, "\n".join(failed[:3])
    assert router.kills > 0
    return Result(
        listed,
        await trio.to_thread.run_sync(take_all, west),
        await trio.to_thread.run_sync(take_all, east),
    )


async def make_trouble(
    router: MortalRouter, nursery: trio.Nursery, relays: list[Cuttable], chance: random.Random
) -> None:
    until = trio.current_time() + SECONDS
    while trio.current_time() < until or not router.kills:
        await trio.sleep(chance.uniform(0.1, 1.0))
        if chance.random() < 0.4:
            await router.kill()
            await trio.sleep(chance.uniform(0.0, 0.5))
            await router.start(nursery)
        else:
            chance.choice(relays).cut()


async def rest(east: RabbitNode, west: RabbitNode) -> None:
    """Waits until the source has nothing ready and nothing arrives any more."""
    before = -1
    with trio.fail_after(REST_SECONDS):
        while True:
            here = await trio.to_thread.run_sync(ready_messages, east)
            there = await trio.to_thread.run_sync(ready_messages, west)
            if not here and there == before:
                return
            before = there
            await trio.sleep(1.0)


async def list_in_doubt(admin: int) -> int:
    process = await trio.run_process(
        [
            *(sys.executable, "-m", "router", "deliveries", "--in-doubt", "--json"),
            *("--limit", "1000000", "--admin", f"127.0.0.1:{admin}"),
        ],
        capture_stdout=True,
    )
    return len(json.loads(process.stdout))


async def test_held_deliveries_never_arrive_twice_and_each_one_is_listed(
    rabbit_nodes: tuple[RabbitNode, RabbitNode], tmp_path: Path
) -> None:
    result = await run_chaos(rabbit_nodes, tmp_path, "hold", "exactly-once")
    print(f"seed {SEED}, hold: {result}")
    assert result.duplicates == 0
    assert not result.lost
    assert result.listed == len(result.east)


async def test_resent_deliveries_are_never_lost(
    rabbit_nodes: tuple[RabbitNode, RabbitNode], tmp_path: Path
) -> None:
    result = await run_chaos(rabbit_nodes, tmp_path, "resend", "at-least-once")
    print(f"seed {SEED}, resend: {result}")
    assert not result.lost
    assert sorted(set(result.west)) == list(range(COUNT))
    assert result.listed == 0
