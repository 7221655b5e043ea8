"""Every protocol as sender and as receiver of a route whose fallback is a queue of RabbitMQ.

Each pair has an address and a queue of its own. The messages are sent while nobody receives; then
receivers come and go, each of which takes a part, while more is sent. None is lost, and none comes
twice: no connection is lost in the middle of anything.
"""

import itertools
import time
from collections import Counter
from collections.abc import Iterator

import attrs
import pytest
import trio

from router.model.capabilities import Protocol
from router.model.delivery import ReceivedDelivery
from router.model.identity import LinkName
from router.model.outcome import ACCEPTED, DeliveryState
from router.net.client.conversation import Conversation, LinkMachine
from router.net.client.receiver import ReceivingLink
from router.net.client.sender import SendingLink
from router.routes.route import Guarantee
from router.wire import hub
from router.wire.protocols import PROTOCOLS
from router.wire.v1_0.sections import AnnotatedMessage, Properties, encode_message
from tests.support.conversing import conversing
from tests.support.ports import free_port
from tests.support.rabbitmq import RabbitNode
from tests.support.running import running_router

pytestmark = [pytest.mark.interop, pytest.mark.long]

COUNT = 60
PART = COUNT // 3
PATIENCE_SECONDS = 120.0

CONFIG = """\
router: {{id: dc1, workers: 1, admin: off}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
containers:
  broker: {{url: "amqp://guest:guest@127.0.0.1:{broker}", protocol: amqp-0-9-1}}
routes:
  - {{address: matrix.*.*, fallback: broker/waiting.*.*, declare: transient}}
"""


@pytest.fixture(scope="module")
def port(rabbit_node: RabbitNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    found = free_port()
    config = CONFIG.format(port=found, broker=rabbit_node.port)
    with running_router(config, tmp_path_factory.mktemp("fallback")):
        yield found


@attrs.define(eq=False)
class Pair:
    """One pair's messages.

    Attributes:
        seen: message-id → how often it came.
    """

    sender: Protocol
    receiver: Protocol
    port: int
    window: int = PART // 2
    address: str = attrs.field()
    seen: Counter[str] = attrs.field(factory=Counter)

    @address.default
    def _own_address(self) -> str:
        return f"matrix.{self.sender}.{self.receiver}".replace("1.0", "1-0")

    async def send(self, numbers: range) -> None:
        """Sends messages with these ids; each is accepted."""

        def supply() -> Iterator[bytes]:
            for each in numbers:
                properties = Properties(message_id=str(each))
                yield encode_message(AnnotatedMessage(properties=properties, data=[b"x" * 100]))

        machine = SendingLink(
            name=LinkName(f"send {self.address} {numbers}"),
            address=self.address,
            supply=supply(),
            guarantee=Guarantee.AT_LEAST_ONCE,
            window=max(self.window, 100),
        )
        await self._conversation(machine, self.sender).run()
        assert machine.failure is None
        assert machine.report.settled == len(numbers)

    async def receive(self, count: int) -> None:
        """Receives so many, and leaves."""
        machine = ReceivingLink(
            name=LinkName(f"receive {self.address} {len(self.seen)}"),
            address=self.address,
            take=self._take,
            guarantee=Guarantee.AT_LEAST_ONCE,
            count=count,
            window=self.window,
        )
        await self._conversation(machine, self.receiver).run()
        assert machine.failure is None

    def _take(self, delivery: ReceivedDelivery) -> DeliveryState:
        sections = hub.to_sections(delivery.protocol, delivery.payload)
        assert sections.properties is not None
        assert "x-opt-router-address" not in dict(sections.message_annotations or {})
        self.seen[str(sections.properties.message_id)] += 1
        return ACCEPTED

    def _conversation(self, machine: LinkMachine, protocol: Protocol) -> Conversation:
        return conversing(machine, protocol, self.port, f"{self.address} {type(machine).__name__}")


@pytest.mark.parametrize(
    ("sender", "receiver"),
    list(itertools.product(PROTOCOLS, PROTOCOLS)),
    ids=lambda each: str(each).removeprefix("amqp-"),
)
async def test_receivers_that_come_and_go_get_each_message_once(
    sender: Protocol, receiver: Protocol, port: int
) -> None:
    pair = Pair(sender, receiver, port)
    with trio.fail_after(PATIENCE_SECONDS):
        await pair.send(range(2 * PART))
        await pair.receive(PART // 2)
        await pair.receive(PART)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.send, range(2 * PART, COUNT))
            nursery.start_soon(pair.receive, PART)
        await pair.receive(COUNT - 2 * PART - PART // 2)
    assert sorted(map(int, pair.seen)) == list(range(COUNT))
    assert set(pair.seen.values()) == {1}


@pytest.mark.slow
async def test_a_hundred_thousand_messages_go_by_the_queue_while_receivers_come_and_go(
    port: int,
) -> None:
    count, parts = 100_000, 5
    pair = Pair(Protocol.AMQP_1_0, Protocol.AMQP_1_0, port, window=100, address="matrix.many.many")
    begun = time.monotonic()
    await pair.send(range(count // 2))
    sent = time.monotonic()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pair.send, range(count // 2, count))
        for _ in range(parts):
            await pair.receive(count // parts)
            await trio.sleep(0.3)
    ended = time.monotonic()
    print(
        f"{count:,} messages: {count // 2 / (sent - begun):,.0f} a second to the queue,"
        f" then {count / (ended - sent):,.0f} a second back while as many are sent"
    )
    assert sorted(map(int, pair.seen)) == list(range(count))
    assert set(pair.seen.values()) == {1}
