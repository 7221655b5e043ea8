"""RabbitMQ as the target of routes with ``store``, by 0-9-1 and by 1.0, as it comes and goes.

It is stopped in order, killed, and cut off from the network in turn. Two senders, one for each
protocol, never pause. All that was accepted must be in RabbitMQ's queues in the end, which tell the
order in which it came. What was on its way when RabbitMQ was lost may be there twice: neither
protocol has it resume its links.
"""

import itertools
import os
import random
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from router.model.capabilities import Protocol
from router.model.identity import LinkName
from router.net.client.conversation import Conversation
from router.net.client.sender import SendingLink
from router.routes.route import Guarantee
from router.wire.v1_0.sections import AnnotatedMessage, Header, Properties, encode_message
from tests.support import peers
from tests.support.conversing import conversing
from tests.support.cuttable import Cuttable, cuttable
from tests.support.mortal import MortalRouter
from tests.support.ports import free_port
from tests.support.rabbitmq import RabbitNode

pytestmark = [pytest.mark.interop]

ROUNDS = int(os.environ.get("ROUTER_AWAY_ROUNDS", "10"))
"""How often the slow test has each kind of end."""

AWAY_SECONDS = (10.0, 40.0)
LONG_SECONDS = (60.0, 120.0)
"""How long RabbitMQ is away in the slow test; every fourth time it is long."""

SEED = int(os.environ.get("ROUTER_CHAOS_SEED", "1"))
PACE = 100
"""Messages a second of each sender."""

WINDOW = 500
REST_SECONDS = 240.0
ORDERLY_SECONDS = 120.0
TICK_SECONDS = 0.1

CONFIG = """
router: {{id: near, workers: 2, admin: off, state: state, log_format: json}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
containers:
  old: {{url: "amqp://guest:guest@127.0.0.1:{relay}", protocol: amqp-0-9-1}}
  new: {{url: "amqp://guest:guest@127.0.0.1:{relay}"}}
routes:
  - {{address: old, to: old//amq/queue/old, store: {{}}, dead_letter: old//amq/queue/dead}}
  - {{address: new, to: new//amq/queue/new, store: {{}}, dead_letter: new//amq/queue/dead}}
"""

QUEUES = ("old", "new")


@attrs.define(eq=False)
class Sender:
    """Sends numbered messages at a pace, and never pauses.

    Attributes:
        allowed: how many it may have begun with.
        is_over: no more will be allowed.
    """

    address: str
    port: int
    allowed: int = 0
    is_over: bool = False
    machine: SendingLink = attrs.field(init=False)
    speech: Conversation = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.machine = SendingLink(
            name=LinkName(self.address),
            address=self.address,
            supply=self._supply(),
            guarantee=Guarantee.AT_LEAST_ONCE,
            window=WINDOW,
        )
        self.speech = conversing(self.machine, Protocol.AMQP_1_0, self.port, self.address)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pace)
            await self.speech.run()
            assert self.machine.failure is None
            nursery.cancel_scope.cancel()

    async def _pace(self) -> None:
        while True:
            self.allowed += 0 if self.is_over else int(PACE * TICK_SECONDS)
            self.speech.wake()
            await trio.sleep(TICK_SECONDS)

    def _supply(self) -> Iterator[bytes | None]:
        number = 0
        while number < self.allowed or not self.is_over:
            if number < self.allowed:
                yield _message(number)
                number += 1
            else:
                yield None


def _message(number: int) -> bytes:
    properties = Properties(message_id=str(number), content_type="text/plain")
    body = b"%0100d" % number
    return encode_message(
        AnnotatedMessage(header=Header(durable=True), properties=properties, data=[body])
    )


@attrs.define(eq=False)
class Ends:
    """What becomes of RabbitMQ, and of the way to it."""

    node: RabbitNode
    relay: Cuttable

    async def stopped(self, seconds: float) -> None:
        await trio.to_thread.run_sync(self.node.stop, ORDERLY_SECONDS)
        await self._start(seconds)

    async def killed(self, seconds: float) -> None:
        await trio.to_thread.run_sync(self.node.kill)
        await self._start(seconds)

    async def cut(self, seconds: float) -> None:
        self.relay.refuse = True
        self.relay.cut()
        await trio.sleep(seconds)
        self.relay.refuse = False

    async def _start(self, seconds: float) -> None:
        await trio.sleep(seconds)
        await trio.to_thread.run_sync(self.node.start)

    @property
    def kinds(self) -> list[Callable[[float], Awaitable[None]]]:
        return [self.stopped, self.killed, self.cut]


def _channel_of(node: RabbitNode) -> Any:
    import pika

    parameters = pika.ConnectionParameters("127.0.0.1", node.port, heartbeat=0)
    return pika.BlockingConnection(parameters).channel()


def _declare(node: RabbitNode) -> None:
    channel = _channel_of(node)
    for queue in (*QUEUES, "dead"):
        channel.queue_declare(queue, durable=True)
    channel.connection.close()


def _take(node: RabbitNode, queue: str) -> list[int]:
    """Takes all that is in a queue, in its order.

    What RabbitMQ has sent and nobody has seen, as the machine was too busy for a second, stays.
    """
    channel, found, last = _channel_of(node), list[int](), 0
    for method, _, body in channel.consume(queue, inactivity_timeout=1.0):
        if method is None:
            break
        found.append(int(body))
        last = method.delivery_tag
    if last:
        channel.basic_ack(last, multiple=True)
    channel.connection.close()
    return found


@attrs.define(eq=False)
class Account:
    """What came of one sender's messages.

    Attributes:
        outcomes: what the sender has heard, how often.
        order: numbers in RabbitMQ's order.
    """

    protocol: str
    sent: int
    outcomes: dict[str, int]
    order: list[int] = attrs.field(factory=list)

    @property
    def lost(self) -> set[int]:
        return set(range(self.sent)) - set(self.order)

    @property
    def duplicated(self) -> int:
        return len(self.order) - len(set(self.order))

    @property
    def overtaken(self) -> int:
        """Messages that came for the first time behind one that was sent after them."""
        highest, count = -1, 0
        for number in dict.fromkeys(self.order):
            count += number < highest
            highest = max(highest, number)
        return count

    def __str__(self) -> str:
        return (
            f"{self.protocol}: sent {self.sent:,}, received {len(self.order):,}, lost"
            f" {len(self.lost)}, twice {self.duplicated}, out of order {self.overtaken};"
            f" {self.outcomes}"
        )


async def _run(folder: Path, rounds: int, *absences: tuple[float, float]) -> None:
    """Runs the trial; absences take turns."""
    peers.need_rabbitmq()
    peers.need_python("pika")
    node = RabbitNode("away", folder / "away").prepare()
    chance, away = random.Random(SEED), itertools.cycle(absences)
    try:
        await trio.to_thread.run_sync(node.start)
        await trio.to_thread.run_sync(_declare, node)
        async with trio.open_nursery() as nursery, cuttable(node.port) as relay:
            port = free_port()
            config = folder / "near.yaml"
            config.write_text(CONFIG.format(port=port, relay=relay.port))
            near = MortalRouter(config)
            await near.start(nursery)
            senders = [Sender(queue, port) for queue in QUEUES]
            ends = Ends(node, relay)
            async with trio.open_nursery() as sending:
                for sender in senders:
                    sending.start_soon(sender.run)
                await trio.sleep(2.0)
                for number in range(rounds):
                    for kind in ends.kinds:
                        seconds = chance.uniform(*next(away))
                        await kind(seconds)
                        await trio.sleep(chance.uniform(1.0, 10.0))
                        print(f"{number + 1}: {kind.__name__}, away {seconds:.0f} s", flush=True)
                for sender in senders:
                    sender.is_over = True
            accounts = [
                Account(each.address, each.allowed, dict(each.machine.report.outcomes))
                for each in senders
            ]
            for account in accounts:
                await _gather(node, account)
                print(account)
            dead = await trio.to_thread.run_sync(_take, node, "dead")
            assert await near.end() == 0
            nursery.cancel_scope.cancel()
    finally:
        await trio.to_thread.run_sync(node.stop)
    assert not dead
    for account in accounts:
        assert not account.lost, account
        assert not account.overtaken, account
    failed = near.complaints()
    assert not failed, "\n".join(failed[:3])


async def _gather(node: RabbitNode, account: Account) -> None:
    """Takes what RabbitMQ has until nothing is missing, or for as long as may be."""
    with trio.move_on_after(REST_SECONDS):
        while account.lost:
            account.order += await trio.to_thread.run_sync(_take, node, account.protocol)


@pytest.mark.long
async def test_nothing_is_lost_while_rabbitmq_comes_and_goes(tmp_path: Path) -> None:
    await _run(tmp_path, 1, (3.0, 6.0))


@pytest.mark.slow
async def test_nothing_is_lost_while_rabbitmq_is_away_for_long_again_and_again(
    tmp_path: Path,
) -> None:
    await _run(tmp_path, ROUNDS, LONG_SECONDS, AWAY_SECONDS, AWAY_SECONDS, AWAY_SECONDS)
