"""Every protocol as sender by every protocol as receiver, with the connection of each cut midway.

One router process serves all of them on one port. Each pair moves ``COUNT`` messages for each
guarantee that both can give, over relays that cut the sender's connection when a third has been
sent and the receiver's when a third has come. What may then be lost or come twice is what the
guarantee says, and no more. Where an end cannot give a guarantee, it says so and nothing moves.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

import attrs
import pytest
import trio

from router.model.capabilities import Protocol
from router.model.condition import NOT_IMPLEMENTED
from router.model.delivery import ReceivedDelivery
from router.model.identity import DeliveryNumber, LinkName
from router.model.outcome import ACCEPTED, Accepted, DeliveryState
from router.net.client.conversation import Conversation, LinkMachine
from router.net.client.message import numbered
from router.net.client.receiver import ReceivingLink
from router.net.client.relay import Relay
from router.net.client.sender import SendingLink
from router.routes.route import Guarantee
from router.wire import hub
from router.wire.protocols import PROTOCOLS
from router.wire.v1_0.sections import AnnotatedMessage, Properties, encode_message
from tests.support.conversing import conversing
from tests.support.ports import free_port
from tests.support.running import running_router

COUNT = 90
THIRD = COUNT // 3
WINDOW = 10
"""Deliveries that an end may be ahead, so that cuts come in the middle of something."""

PATIENCE_SECONDS = 90.0
"""Upper bound for one pair; it takes half a second."""

FIRST = "first"
"""Message-id of what is sent ahead of what may be lost, until a receiver is there."""

LAST = "last"
"""Message-id of what is sent behind all others, to a receiver that cannot know when to stop."""

EXACTLY_ONCE = {Protocol.AMQP_1_0}
"""Protocols whose receivers remember until the sender has settled."""

ROOTS = {
    Guarantee.AT_MOST_ONCE: "lossy",
    Guarantee.AT_LEAST_ONCE: "matrix",
    Guarantee.EXACTLY_ONCE: "once",
}
"""Addresses of routes that give just that: elsewhere what came settled comes again if need be."""

CONFIG = """\
router: {{id: matrix, admin: off, workers: 1}}
listeners: [{{bind: '127.0.0.1:{port}'}}]
routes:
  - address: matrix.#
  - address: once.#
    guarantee: exactly-once
  - address: lossy.#
    guarantee: at-most-once
"""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    found = free_port()
    folder = tmp_path_factory.mktemp("matrix")
    with running_router(CONFIG.format(port=found), folder):
        yield found


@attrs.define(eq=False, kw_only=True)
class Remembering(SendingLink):
    """Remembers what was not accepted, as an application would that sends it again."""

    refused: list[int] = attrs.field(factory=list, init=False)

    def _settle(self, number: DeliveryNumber, state: DeliveryState | None) -> bool:
        is_new = super()._settle(number, state)
        if is_new and not isinstance(state, Accepted):
            self.refused.append(number)
        return is_new


@attrs.define(eq=False)
class Account:
    """What became of one pair's messages under one guarantee.

    Attributes:
        seen: message-id → how often it came.
        refused: how often the sender was told that a message was not taken, and sent it again.
        failures: why an end cannot give the guarantee.
    """

    sender: Protocol
    receiver: Protocol
    guarantee: Guarantee
    seen: Counter[str] = attrs.field(factory=Counter)
    refused: int = 0
    failures: list[str] = attrs.field(factory=list)

    @property
    def lost(self) -> int:
        return COUNT - len(self.seen.keys() - {FIRST, LAST})

    @property
    def duplicated(self) -> int:
        return sum(self.seen.values()) - len(self.seen)

    @property
    def address(self) -> str:
        return f"{ROOTS[self.guarantee]}.{self.guarantee}.{self.sender}.{self.receiver}"


@attrs.define(eq=False)
class Pair:
    """Moves one pair's messages under one guarantee.

    Attributes:
        near, far: what the sender and the receiver dial through.
    """

    account: Account
    port: int
    near: Relay = attrs.field(init=False)
    far: Relay = attrs.field(init=False)
    has_all: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self.near, self.far = Relay(self.port), Relay(self.port)

    async def move(self) -> None:
        """Moves them, each end's connection cut once."""
        account = self.account
        receiving = ReceivingLink(
            name=LinkName(f"receive {account.address}"),
            address=account.address,
            take=self._take,
            guarantee=account.guarantee,
            window=WINDOW,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(self.near.run)
            await nursery.start(self.far.run)
            nursery.start_soon(self._conversation(receiving, account.receiver, self.far).run)
            if account.guarantee is Guarantee.AT_MOST_ONCE:
                await self._send_parts(receiving)
            else:
                await self._send(numbers=range(COUNT), cut_at=THIRD)
            await self.has_all.wait()
            nursery.cancel_scope.cancel()
        assert receiving.failure is None
        assert receiving.report.connections == 2

    async def _send_parts(self, receiving: ReceivingLink) -> None:
        """Sends what nobody answers for: a third in peace, one with a cut in it, and a third.

        A receiver cannot know how much was lost, so a last message, sent until it is accepted,
        tells it that there is no more. What comes before any receiver is dropped, so a first one
        is sent in the same way until it has come.
        """
        while not self.account.seen:
            await self._send(ids=[FIRST], guarantee=Guarantee.AT_LEAST_ONCE)
            await trio.sleep(0.01)
        await self._send(numbers=range(THIRD))
        while receiving.report.connections < 2:
            await trio.sleep(0.01)
        await self._send(numbers=range(THIRD, 2 * THIRD), cut_at=3 * THIRD // 2)
        await self._send(numbers=range(2 * THIRD, COUNT))
        await self._send(ids=[LAST], guarantee=Guarantee.AT_LEAST_ONCE)

    async def _send(
        self,
        *,
        numbers: range = range(0),
        ids: Sequence[str] = (),
        cut_at: int | None = None,
        guarantee: Guarantee | None = None,
    ) -> None:
        """Sends messages with these ids; cuts the connection when one is due."""
        account = self.account

        told = [str(each) for each in (*numbers, *ids)]

        def supply() -> Iterator[bytes]:
            for each in told:
                if each == str(cut_at):
                    self.near.cut()
                properties = Properties(message_id=each)
                yield encode_message(AnnotatedMessage(properties=properties, data=[b"x" * 100]))

        machine = Remembering(
            name=LinkName(f"send {account.address} {numbers}"),
            address=account.address,
            supply=supply(),
            guarantee=guarantee or account.guarantee,
            window=WINDOW,
        )
        await self._conversation(machine, account.sender, self.near).run()
        assert machine.failure is None
        if machine.guarantee is not Guarantee.AT_MOST_ONCE:
            assert machine.report.settled == len(told)
            assert machine.report.connections == 1 + (cut_at is not None)
            account.refused += len(machine.refused)
            if machine.refused:
                await self._send(ids=[told[number] for number in machine.refused])

    def _take(self, delivery: ReceivedDelivery) -> DeliveryState:
        properties = hub.to_sections(delivery.protocol, delivery.payload).properties
        assert properties is not None
        seen = self.account.seen
        seen[str(properties.message_id)] += 1
        if seen.total() == THIRD // 2:
            self.far.cut()
        if LAST in seen or len(seen) == COUNT:
            self.has_all.set()
        return ACCEPTED

    async def refuse(self) -> None:
        """Has the ends that cannot give the guarantee say so."""
        account = self.account
        machines: list[tuple[SendingLink | ReceivingLink, Protocol]] = [
            (
                SendingLink(
                    name=LinkName("s"),
                    address=account.address,
                    supply=numbered(b"x", 1),
                    guarantee=account.guarantee,
                ),
                account.sender,
            ),
            (
                ReceivingLink(
                    name=LinkName("r"),
                    address=account.address,
                    take=self._take,
                    guarantee=account.guarantee,
                ),
                account.receiver,
            ),
        ]
        async with trio.open_nursery() as nursery:
            await nursery.start(self.near.run)
            for machine, protocol in machines:
                if protocol not in EXACTLY_ONCE:
                    await self._conversation(machine, protocol, self.near).run()
                    assert machine.failure is not None
                    account.failures.append(machine.failure.name)
            nursery.cancel_scope.cancel()

    def _conversation(self, machine: LinkMachine, protocol: Protocol, relay: Relay) -> Conversation:
        container = f"{self.account.address} {type(machine).__name__}"
        return conversing(machine, protocol, relay.port, container)


def can_give(account: Account) -> bool:
    """Whether both ends' protocols can give the guarantee."""
    if account.guarantee is not Guarantee.EXACTLY_ONCE:
        return True
    return {account.sender, account.receiver} <= EXACTLY_ONCE


@pytest.mark.parametrize(
    ("sender", "receiver"),
    list(itertools.product(PROTOCOLS, PROTOCOLS)),
    ids=lambda each: str(each).removeprefix("amqp-"),
)
async def test_each_pair_keeps_each_guarantee_though_both_connections_are_cut(
    sender: Protocol, receiver: Protocol, port: int
) -> None:
    accounts = [Account(sender, receiver, guarantee) for guarantee in Guarantee]
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            for account in accounts:
                pair = Pair(account, port)
                nursery.start_soon(pair.move if can_give(account) else pair.refuse)
    for account in accounts:
        if not can_give(account):
            assert account.failures == [NOT_IMPLEMENTED] * len(account.failures)
            assert account.failures
            assert not account.seen
            continue
        print(account.guarantee, account.lost, "lost", account.duplicated, "duplicated")
        match account.guarantee:
            case Guarantee.AT_MOST_ONCE:
                assert account.duplicated == 0
                assert account.lost <= 3 * THIRD // 2  # what was sent into the cuts
            case Guarantee.AT_LEAST_ONCE:
                assert account.lost == 0
            case Guarantee.EXACTLY_ONCE:
                assert (account.lost, account.duplicated) == (0, 0)
