"""Stored routes while workers, the store, the supervisor and the target are killed at random.

Nothing that a sender was told to be accepted is lost. At least once: what was under way when
something was killed may arrive twice; how often that happened is printed. Exactly once: nothing
does.
"""

import contextlib
import json
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from router.links.attaches import no_number
from router.model.delivery import ReceivedDelivery
from router.model.identity import LinkName
from router.model.outcome import ACCEPTED, DeliveryState
from router.net.client.sender import SendingLink
from router.routes.route import Guarantee
from tests.support.chaos import Books, Client, numbered, receiving, sending
from tests.support.cuttable import Cuttable, cuttable
from tests.support.mortal import MortalRouter
from tests.support.ports import free_port
from tests.support.rabbitmq import RabbitNode

pytestmark = pytest.mark.long

MESSAGES = int(os.environ.get("ROUTER_CHAOS_DELIVERIES", "20000"))
SEED = int(os.environ.get("ROUTER_CHAOS_SEED", "1"))
REST_SECONDS = 240.0
PACE = 800.0
"""Messages a second that are sent, at most."""

STEP = 100

LARGE = 30
LARGE_OCTETS = 3_500_000
PAUSE_SECONDS = 20.0

NEAR = """
router: {{id: near, workers: 2, admin: off, state: {folder}/near-state, log_format: json}}
listeners: [{{bind: "127.0.0.1:{near}"}}]
containers: {{cloud: {{url: "amqp://127.0.0.1:{far}", retry_limit_seconds: 1s}}}}
routes:
  - address: telemetry.#
    to: cloud
    store: {{always: {always}}}
    dead_letter: cloud/dead
"""

FAR = """
router: {{id: far, workers: 1, admin: off, state: {folder}/far-state, log_format: json}}
listeners: [{{bind: "127.0.0.1:{far}"}}]
routes:
  - address: telemetry.#
  - address: dead
"""


@attrs.define(eq=False)
class Faults:
    """The two routers, and what is done to them.

    Attributes:
        done: how often each was done.
    """

    near: MortalRouter
    far: MortalRouter | Cuttable
    nursery: trio.Nursery
    chance: random.Random
    done: dict[str, int] = attrs.field(factory=dict)

    async def go_on(self, until: Callable[[], bool]) -> None:
        """Does one thing after another, each at least once."""
        kinds = [self.first_worker, self.second_worker, self.store, self.supervisor, self.target]
        while not (until() and self.done):
            for kind in self.chance.sample(kinds, len(kinds)):
                await trio.sleep(self.chance.uniform(0.5, 1.5))
                await kind()
                self.done[kind.__name__] = self.done.get(kind.__name__, 0) + 1

    async def first_worker(self) -> None:
        self.near.kill_worker(1)

    async def second_worker(self) -> None:
        self.near.kill_worker(2)

    async def store(self) -> None:
        started = [line for line in self.near.life.lines if '"messages.started"' in line]
        if started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(json.loads(started[-1])["process"], signal.SIGKILL)

    async def supervisor(self) -> None:
        await self.near.kill()
        await self.near.start(self.nursery)

    async def target(self) -> None:
        if isinstance(self.far, Cuttable):
            self.far.refuse = True
            self.far.cut()
            await trio.sleep(self.chance.uniform(0.0, 3.0))
            self.far.refuse = False
            return
        await self.far.kill()
        await trio.sleep(self.chance.uniform(0.0, 3.0))
        await self.far.start(self.nursery)


@attrs.define(eq=False)
class Sending:
    """A sender that is not faster than ``PACE``, so that much happens while it sends."""

    books: Books
    port: int
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    is_done: bool = False

    async def run(self) -> None:
        """Sends everything, a bit at a time."""
        for first in range(0, MESSAGES, STEP):
            numbers = iter(range(first, min(first + STEP, MESSAGES)))
            supply = numbered(self.books.count(numbers), 100)
            machine = SendingLink(
                name=LinkName(f"sender-{first}"),
                address="telemetry.a",
                supply=supply,
                guarantee=self.guarantee,
                window=STEP,
                draw_number=no_number,
            )
            await Client(machine, self.port).run()
            await trio.sleep(STEP / PACE)
        self.is_done = True


@pytest.mark.parametrize("always", ["true", "false"])
@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE])
async def test_nothing_that_was_accepted_is_lost_whatever_is_killed(
    tmp_path: Path, always: str, guarantee: Guarantee
) -> None:
    books, places = Books(), {"folder": tmp_path, "near": free_port(), "far": free_port()}
    near_text, far_text = NEAR, FAR
    if guarantee is Guarantee.EXACTLY_ONCE:
        near_text = near_text.replace("1s}}", "1s, is_router: true}}")
        near_text += "    guarantee: exactly-once\n"
        far_text = far_text.replace("telemetry.#", "telemetry.#\n    guarantee: exactly-once")
    for name, text in (("near", near_text), ("far", far_text)):
        (tmp_path / f"{name}.yaml").write_text(text.format(always=always, **places))
    near, far = (MortalRouter(tmp_path / f"{name}.yaml") for name in ("near", "far"))
    sender = Sending(books, int(str(places["near"])), guarantee)
    receiver = receiving("receiver", "telemetry.a", int(str(places["far"])), books.take)
    async with trio.open_nursery() as nursery:
        await near.start(nursery)
        await far.start(nursery)
        faults = Faults(near, far, nursery, random.Random(SEED))
        nursery.start_soon(receiver.run)
        nursery.start_soon(sender.run)
        await faults.go_on(lambda: len(books.sent) >= MESSAGES * 9 // 10)
        with trio.move_on_after(REST_SECONDS):
            while not sender.is_done or books.lost:
                await trio.sleep(0.2)
        twice = len(books.duplicated)
        print(
            f"{guarantee}, always {always}:"
            f" sent {len(books.sent):,}, received {len(books.taken):,},"
            f" lost {len(books.lost)}, twice {twice}; faults {faults.done}"
        )
        await near.kill()
        await far.kill()
        nursery.cancel_scope.cancel()
    assert sender.is_done
    assert (len(books.sent), len(books.lost)) == (MESSAGES, 0)
    assert guarantee is Guarantee.AT_LEAST_ONCE or not twice


def large(number: int) -> bytes:
    """Makes a message that stands in several records and blocks of a journal."""
    body = b"%020d" % number + random.Random(number).randbytes(LARGE_OCTETS)
    return b"\x00\x53\x75\xb0" + len(body).to_bytes(4, "big") + body


@attrs.define(eq=False)
class LargeBooks(Books):
    """Looks at each octet.

    Attributes:
        broken: numbers of messages that did not arrive as they were sent.
    """

    broken: list[int] = attrs.field(factory=list)

    def take(self, delivery: ReceivedDelivery) -> DeliveryState:
        at = delivery.payload.index(b"\x00\x53\x75\xb0")  # a header may tell of an attempt
        number = int(delivery.payload[at + 8 : at + 28])
        if delivery.payload[at:] != large(number):
            self.broken.append(number)
        self.taken[number] = self.taken.get(number, 0) + 1
        return ACCEPTED


@pytest.mark.parametrize("stores", [True, False])
async def test_large_messages_arrive_whole_and_once_whatever_is_killed(
    tmp_path: Path, stores: bool
) -> None:
    """Without a store a sender may have to hear that one has failed, and cannot be resumed."""
    books, near_port, far_port = LargeBooks(), free_port(), free_port()
    places = {"folder": tmp_path, "near": near_port, "far": far_port, "always": "true"}
    near_text = NEAR.replace("1s}}", "1s, is_router: true}}") + "    guarantee: exactly-once\n"
    if not stores:
        kept = [line for line in near_text.splitlines() if "store:" not in line]
        near_text = "\n".join(line for line in kept if "dead_letter:" not in line) + "\n"
    far_text = FAR.replace("telemetry.#", "telemetry.#\n    guarantee: exactly-once")
    for name, text in (("near", near_text), ("far", far_text)):
        (tmp_path / f"{name}.yaml").write_text(text.format(**places))
    near, far = (MortalRouter(tmp_path / f"{name}.yaml") for name in ("near", "far"))
    supply = map(large, books.count(iter(range(LARGE))))
    sender = sending("sender", "telemetry.a", near_port, supply, window=10)
    receiver = receiving("receiver", "telemetry.a", far_port, books.take)
    async with trio.open_nursery() as nursery:
        await near.start(nursery)
        await far.start(nursery)
        faults = Faults(near, far, nursery, random.Random(SEED))
        nursery.start_soon(receiver.run)
        nursery.start_soon(sender.run)
        for kind in (faults.supervisor, faults.first_worker, faults.target) * 4:
            before = len(books.taken)
            with trio.move_on_after(PAUSE_SECONDS):
                while len(books.taken) == before < LARGE:
                    await trio.sleep(0.05)
            await trio.sleep(faults.chance.uniform(0.0, 0.3))
            await kind()
        with trio.move_on_after(REST_SECONDS):
            while len(books.taken) + sender.machine.report.outcomes["modified"] < LARGE:
                await trio.sleep(0.2)
        await near.kill()
        await far.kill()
        nursery.cancel_scope.cancel()
    failed = sender.machine.report.outcomes["modified"]
    assert (len(books.taken) + failed, books.duplicated, books.broken) == (LARGE, {}, [])
    assert not (stores and failed)


@pytest.mark.interop
@pytest.mark.parametrize("always", ["true", "false"])
async def test_nothing_is_lost_on_its_way_to_rabbitmq_either(
    tmp_path: Path, rabbit_nodes: tuple[RabbitNode, RabbitNode], always: str
) -> None:
    rabbit, _ = rabbit_nodes
    books, port = Books(), free_port()
    channel = _channel_at(rabbit.port)
    for queue in ("telemetry.a", "dead"):
        channel.queue_delete(queue)
        channel.queue_declare(queue, durable=True)
    async with trio.open_nursery() as nursery, cuttable(rabbit.port) as relay:
        text = NEAR.replace("amqp://127.0.0.1:{far}", "amqp://guest:guest@127.0.0.1:{far}").replace(
            "retry_limit_seconds: 1s", "retry_limit_seconds: 1s, protocol: amqp-0-9-1"
        )
        file = tmp_path / "near.yaml"
        file.write_text(text.format(always=always, folder=tmp_path, near=port, far=relay.port))
        near = MortalRouter(file)
        await near.start(nursery)
        sender = Sending(books, port)
        nursery.start_soon(sender.run)
        faults = Faults(near, relay, nursery, random.Random(SEED))
        await faults.go_on(lambda: len(books.sent) >= MESSAGES * 9 // 10)
        with trio.move_on_after(REST_SECONDS):
            while not sender.is_done or books.lost:
                _take_all(channel, books)
                await trio.sleep(0.2)
        twice = len(books.duplicated)
        print(
            f"RabbitMQ, always {always}: sent {len(books.sent):,}, received {len(books.taken):,},"
            f" lost {len(books.lost)}, twice {twice}; faults {faults.done}"
        )
        await near.kill()
        nursery.cancel_scope.cancel()
    channel.connection.close()
    assert sender.is_done
    assert (len(books.sent), len(books.lost)) == (MESSAGES, 0)


def _channel_at(port: int) -> Any:
    import pika

    parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)
    return pika.BlockingConnection(parameters).channel()


def _take_all(channel: Any, books: Books) -> None:
    """Takes what is in the queue."""
    while (got := channel.basic_get("telemetry.a", auto_ack=True))[0] is not None:
        number = int(got[2][-20:])
        books.taken[number] = books.taken.get(number, 0) + 1
