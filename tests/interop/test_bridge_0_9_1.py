"""Two RabbitMQ nodes bridged over 0-9-1, and between 0-9-1 and 1.0, every field compared.

Messages come and go by pika, so what is compared is what users see.
"""

import datetime
import decimal
import random
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support import peers
from tests.support.cuttable import Cuttable, cuttable
from tests.support.rabbitmq import RabbitNode
from tests.support.running import running_router

pytestmark = pytest.mark.interop

COUNT = 2_000
MOVE_SECONDS = 120.0

CONFIG = """\
router: {{admin: off}}
containers:
  east:
    url: "amqp://guest:guest@127.0.0.1:{east}"
    protocol: {first}
  west:
    url: "amqp://guest:guest@127.0.0.1:{west}"
    protocol: {second}
routes:
  - address: bridged
    from: east/{source}
    to: west/{target}
"""

ADDRESSES = {"amqp-0-9-1": "bridged", "amqp-1.0": "/amq/queue/bridged"}


def channel_of(node: RabbitNode) -> Any:
    import pika

    parameters = pika.ConnectionParameters("127.0.0.1", node.port, heartbeat=0)
    return pika.BlockingConnection(parameters).channel()


def make_empty(node: RabbitNode) -> None:
    channel = channel_of(node)
    channel.queue_delete("bridged")
    channel.queue_declare("bridged", durable=True)
    channel.connection.close()


def random_message(rng: random.Random, number: int) -> tuple[Any, bytes]:
    """Properties that pika can write, and a body."""
    import pika

    def text() -> str:
        return "".join(rng.choice("abcdefghijäöüß€ ") for _ in range(rng.randrange(12)))

    def value(depth: int = 0) -> Any:
        choices = (
            rng.random() < 0.5,
            rng.randrange(-(1 << 31), 1 << 31),
            rng.randrange(-(1 << 63), 1 << 63),
            text(),
            None,
            datetime.datetime.fromtimestamp(rng.randrange(1 << 31), datetime.UTC),
            decimal.Decimal(rng.randrange(1000)) / 8,
            [value(2) for _ in range(depth < 2 and rng.randrange(3))],
            {f"k{n}": value(2) for n in range(depth < 2 and rng.randrange(3))},
        )
        return rng.choice(choices)

    told = {
        "content_type": rng.choice((None, "text/plain", "application/json")),
        "content_encoding": rng.choice((None, "gzip")),
        "headers": {rng.choice(("a", "b", "c", "x-d", "é")): value() for _ in range(3)},
        "delivery_mode": rng.choice((1, 2)),
        "priority": rng.choice((None, 0, 5, 9)),
        "correlation_id": rng.choice((None, text())),
        "reply_to": rng.choice((None, text())),
        "message_id": rng.choice((str(number), f"urn:uuid:{uuid_of(number)}")),
        "timestamp": rng.choice((None, rng.randrange(1 << 33))),
        "type": rng.choice((None, text())),
        "app_id": rng.choice((None, text())),
    }
    body = str(number).encode() + b" " + rng.randbytes(rng.choice((0, 10, 500, 5000)))
    return pika.BasicProperties(**told), body


def uuid_of(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


def fill(node: RabbitNode, messages: list[tuple[Any, bytes]]) -> None:
    channel = channel_of(node)
    for properties, body in messages:
        channel.basic_publish("", "bridged", body, properties)
    while channel.queue_declare("bridged", passive=True).method.message_count < len(messages):
        channel.connection.process_data_events(0.05)
    channel.connection.close()


def take(node: RabbitNode, count: int) -> list[tuple[Any, bytes]]:
    """Takes what arrives until ``count`` different messages have."""
    channel = channel_of(node)
    taken: list[tuple[Any, bytes]] = []
    numbers: set[bytes] = set()
    give_up_at = time.monotonic() + MOVE_SECONDS
    while len(numbers) < count:
        assert time.monotonic() < give_up_at, f"{len(numbers)} of {count}"
        method, properties, body = channel.basic_get("bridged", auto_ack=True)
        if method is None:
            channel.connection.process_data_events(0.05)
            continue
        taken.append((properties, body))
        numbers.add(body.split(b" ")[0])
    channel.connection.close()
    return taken


def is_empty(node: RabbitNode) -> bool:
    channel = channel_of(node)
    for _ in range(100):
        if not channel.queue_declare("bridged", passive=True).method.message_count:
            break
        channel.connection.process_data_events(0.05)
    left: int = channel.queue_declare("bridged", passive=True).method.message_count
    channel.connection.close()
    return left == 0


def wait_filled(node: RabbitNode) -> None:
    """Waits until all messages have arrived: those under way when a router drains go back."""
    channel = channel_of(node)
    give_up_at = time.monotonic() + MOVE_SECONDS
    while channel.queue_declare("bridged", passive=True).method.message_count < COUNT:
        assert time.monotonic() < give_up_at
        channel.connection.process_data_events(0.1)
    channel.connection.close()


@pytest.fixture
def nodes(rabbit_nodes: tuple[RabbitNode, RabbitNode]) -> tuple[RabbitNode, RabbitNode]:
    peers.need_python("pika")
    for node in rabbit_nodes:
        make_empty(node)
    return rabbit_nodes


def config(east: int, west: int, first: str, second: str) -> str:
    return CONFIG.format(
        east=east,
        west=west,
        first=first,
        second=second,
        source=ADDRESSES[first],
        target=ADDRESSES[second],
    )


def test_a_route_that_says_so_has_the_broker_make_the_queue(
    nodes: tuple[RabbitNode, RabbitNode], tmp_path: Path
) -> None:
    import pika

    east, west = nodes
    channel = channel_of(west)
    channel.queue_delete("made")
    fill(east, [random_message(random.Random(4), number) for number in range(10)])
    text = config(east.port, west.port, "amqp-0-9-1", "amqp-0-9-1").replace("/bridged\n", "/made\n")
    text = text.replace("east/made", "east/bridged") + "    declare: durable\n"
    with running_router(text, tmp_path):
        give_up_at = time.monotonic() + MOVE_SECONDS
        while time.monotonic() < give_up_at:
            channel.connection.process_data_events(0.1)
            asking = channel_of(west)
            try:
                if asking.queue_declare("made", passive=True).method.message_count == 10:
                    break
            except pika.exceptions.ChannelClosedByBroker:
                continue  # not made yet
            finally:
                asking.connection.close()
        else:
            pytest.fail("the queue was not made, or not filled")
    channel.queue_declare("made", durable=True)  # refused if it were another kind
    channel.queue_delete("made")


def test_every_field_of_random_messages_crosses_from_0_9_1_to_0_9_1(
    nodes: tuple[RabbitNode, RabbitNode], tmp_path: Path
) -> None:
    east, west = nodes
    rng = random.Random(1)
    messages = [random_message(rng, number) for number in range(COUNT)]
    fill(east, messages)
    with running_router(config(east.port, west.port, "amqp-0-9-1", "amqp-0-9-1"), tmp_path):
        taken = take(west, COUNT)
    assert [body for _, body in taken] == [body for _, body in messages]
    for (found, _), (told, _) in zip(taken, messages, strict=True):
        assert found == told
    assert is_empty(east)


def test_every_field_of_random_messages_crosses_to_1_0_and_back(
    nodes: tuple[RabbitNode, RabbitNode], tmp_path: Path
) -> None:
    """RabbitMQ's own translation stands between, so only what it keeps can be compared."""
    east, west = nodes
    rng = random.Random(2)
    messages = [random_message(rng, number) for number in range(COUNT)]
    fill(east, messages)
    there, back = tmp_path / "there", tmp_path / "back"
    there.mkdir()
    back.mkdir()
    with running_router(config(east.port, west.port, "amqp-0-9-1", "amqp-1.0"), there):
        wait_filled(west)
    assert is_empty(east)
    with running_router(config(west.port, east.port, "amqp-1.0", "amqp-0-9-1"), back):
        taken = take(east, COUNT)
    assert [body for _, body in taken] == [body for _, body in messages]
    for (found, _), (told, _) in zip(taken, messages, strict=True):
        for field in (
            "content_type",
            "content_encoding",
            "delivery_mode",
            "priority",
            "correlation_id",
            "reply_to",
            "message_id",
            "timestamp",
        ):
            assert getattr(found, field) == getattr(told, field), field
    assert is_empty(west)


@pytest.mark.parametrize("side", ["east", "west"])
async def test_cuts_of_a_0_9_1_bridge_lose_nothing(
    nodes: tuple[RabbitNode, RabbitNode], tmp_path: Path, side: str
) -> None:
    east, west = nodes
    rng = random.Random(3)
    messages = [random_message(rng, number) for number in range(COUNT)]
    await trio.to_thread.run_sync(fill, east, messages)
    async with cuttable(east.port) as to_east, cuttable(west.port) as to_west:
        text = config(to_east.port, to_west.port, "amqp-0-9-1", "amqp-0-9-1")
        with running_router(text, tmp_path):
            await cut_three_times(to_east if side == "east" else to_west)
            taken = await trio.to_thread.run_sync(take, west, COUNT)
    bodies = {body for _, body in taken}
    assert bodies == {body for _, body in messages}


async def cut_three_times(relay: Cuttable) -> None:
    """Cuts the connection in the middle of the traffic."""
    for _ in range(3):
        before = relay.octets
        with trio.fail_after(MOVE_SECONDS):
            while relay.octets < before + 200_000:
                await trio.sleep(0.001)
        relay.cut()
