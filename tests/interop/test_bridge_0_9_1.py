"""Two RabbitMQ nodes bridged over 0-9-1, and between 0-9-1 and 1.0, every field compared.

Messages come and go by pika, so what is compared is what users see.
"""

import datetime
import decimal
import itertools
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.interop.test_rabbitmq_bridge import cut_in_traffic, cut_three_times, repeats_by_log
from tests.support import peers
from tests.support.cuttable import cuttable
from tests.support.rabbitmq import RabbitNode
from tests.support.running import running_router

pytestmark = [pytest.mark.interop, pytest.mark.long]

SHORT = 2_000
LONG = int(os.environ.get("BRIDGE_MESSAGES", "20000"))
"""Messages of a run, and of one in the long tier."""

COUNTS = [pytest.param(SHORT), pytest.param(LONG, marks=pytest.mark.slow)]

MOVE_SECONDS = 600.0

Message = tuple[Any, bytes]
"""Properties and a body, as pika has them."""

CONFIG = """\
router: {{admin: off}}
listeners: [{{bind: "127.0.0.1:0"}}]
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


def random_message(rng: random.Random, number: int, depth: int = 0) -> Message:
    """Properties that pika can write, and a body; at depth 2 nothing in headers is nested."""
    import pika

    def text() -> str:
        return "".join(rng.choice("abcdefghijäöüß€ ") for _ in range(rng.randrange(12)))

    def value(depth: int) -> Any:
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
        "headers": {rng.choice(("a", "b", "c", "x-d", "é")): value(depth) for _ in range(3)},
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


def fill(node: RabbitNode, messages: list[Message]) -> None:
    channel = channel_of(node)
    for properties, body in messages:
        channel.basic_publish("", "bridged", body, properties)
    while channel.queue_declare("bridged", passive=True).method.message_count < len(messages):
        channel.connection.process_data_events(0.05)
    channel.connection.close()


def take(node: RabbitNode, count: int) -> list[Message]:
    """Takes what arrives until ``count`` different messages have."""
    channel = channel_of(node)
    taken: list[Message] = []
    numbers: set[bytes] = set()
    give_up_at = time.monotonic() + MOVE_SECONDS
    for method, properties, body in channel.consume("bridged", auto_ack=True, inactivity_timeout=1):
        assert time.monotonic() < give_up_at, f"{len(numbers)} of {count}"
        if method is not None:
            taken.append((properties, body))
            numbers.add(number_of(body))
            if len(numbers) == count:
                break
    # What RabbitMQ had sent before it heard that this was enough is taken, too.
    channel.cancel()
    channel.connection.close()
    return taken


def number_of(body: bytes) -> bytes:
    return body.split(b" ")[0]


def waiting(node: RabbitNode) -> int:
    channel = channel_of(node)
    count: int = channel.queue_declare("bridged", passive=True).method.message_count
    channel.connection.close()
    return count


def wait_until(node: RabbitNode, is_so: Callable[[int], bool]) -> None:
    """Waits until the number of messages in the queue is as wanted."""
    give_up_at = time.monotonic() + MOVE_SECONDS
    while not is_so(waiting(node)):
        assert time.monotonic() < give_up_at, waiting(node)
        time.sleep(0.1)


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


@pytest.mark.parametrize("count", COUNTS)
def test_every_field_of_random_messages_crosses_from_0_9_1_to_0_9_1(
    nodes: tuple[RabbitNode, RabbitNode], tmp_path: Path, count: int
) -> None:
    east, west = nodes
    rng = random.Random(1)
    messages = [random_message(rng, number) for number in range(count)]
    fill(east, messages)
    with running_router(config(east.port, west.port, "amqp-0-9-1", "amqp-0-9-1"), tmp_path):
        taken = take(west, count)
    assert_same(taken, messages)
    assert not waiting(east)


@pytest.mark.parametrize("count", COUNTS)
def test_every_field_of_random_messages_crosses_to_1_0_and_back(
    nodes: tuple[RabbitNode, RabbitNode], tmp_path: Path, count: int
) -> None:
    """RabbitMQ keeps a message of 1.0 as it came, so what comes back from it is ours to answer."""
    east, west = nodes
    rng = random.Random(2)
    messages = [random_message(rng, number) for number in range(count)]
    fill(east, messages)
    there, back = tmp_path / "there", tmp_path / "back"
    there.mkdir()
    back.mkdir()
    with running_router(config(east.port, west.port, "amqp-0-9-1", "amqp-1.0"), there):
        wait_until(west, lambda here: here == count)
    assert not waiting(east)
    with running_router(config(west.port, east.port, "amqp-1.0", "amqp-0-9-1"), back):
        taken = take(east, count)
    assert_same(taken, messages)
    assert not waiting(west)


def assert_same(taken: list[Message], messages: list[Message]) -> None:
    """Wants the same messages in the same order, every field of them."""
    assert [body for _, body in taken] == [body for _, body in messages]
    for (found, _), (told, _) in zip(taken, messages, strict=True):
        assert found == told


@pytest.mark.parametrize(
    ("protocols", "side", "count"),
    [
        pytest.param(pair, side, count, marks=marks, id=f"{pair[0]}-{pair[1]}-{side}-{count}")
        for pair in itertools.product(ADDRESSES, repeat=2)
        for side in ("east", "west")
        for count, marks in ((SHORT, ()), (LONG, pytest.mark.slow))
        if "amqp-0-9-1" in pair and (count == LONG or side == "west" or pair[0] == pair[1])
    ],
)
async def test_cuts_lose_nothing_and_every_duplicate_is_in_the_log(
    nodes: tuple[RabbitNode, RabbitNode],
    tmp_path: Path,
    protocols: tuple[str, str],
    side: str,
    count: int,
) -> None:
    east, west = nodes
    first, second = protocols
    rng = random.Random(3)
    # RabbitMQ itself has no form in 1.0 for a table in a header.
    depth = 2 if first == "amqp-1.0" else 0
    messages = [random_message(rng, number, depth) for number in range(count)]
    await trio.to_thread.run_sync(fill, east, messages)
    async with cuttable(east.port) as to_east, cuttable(west.port) as to_west:
        with running_router(config(to_east.port, to_west.port, first, second), tmp_path) as router:
            await cut_three_times(to_east if side == "east" else to_west)
            taken = await trio.to_thread.run_sync(take, west, count)
            await trio.to_thread.run_sync(router.stop)
    left = await trio.to_thread.run_sync(waiting, west)
    assert {body for _, body in taken} == {body for _, body in messages}
    assert len(taken) + left - count <= repeats_by_log(router, count)
    assert not await trio.to_thread.run_sync(waiting, east)
    if first == second:
        told = {number_of(body): properties for properties, body in messages}
        for found, body in taken:
            found.headers.pop("x-delivery-count", None)  # what was cut off twice tells it
            assert found == told[number_of(body)]


async def test_cuts_repeat_nothing_of_a_route_that_promises_so(
    nodes: tuple[RabbitNode, RabbitNode], tmp_path: Path
) -> None:
    east, west = nodes
    rng = random.Random(5)
    messages = [random_message(rng, number) for number in range(SHORT)]
    await trio.to_thread.run_sync(fill, east, messages)
    async with cuttable(west.port) as to_west:
        text = config(east.port, to_west.port, "amqp-0-9-1", "amqp-0-9-1")
        with running_router(text + "    guarantee: at-most-once\n", tmp_path) as router:
            await cut_in_traffic(to_west)
            await trio.to_thread.run_sync(wait_until, east, lambda here: here == 0)
            await trio.to_thread.run_sync(router.stop)
    arrived = await trio.to_thread.run_sync(waiting, west)
    taken = await trio.to_thread.run_sync(take, west, arrived)  # as many are different
    assert {body for _, body in taken} <= {body for _, body in messages}
