"""Every protocol as sender to and as target of routes with ``store``, between two routers.

The near router has a container of each protocol, all of which are the far router, and all pairs
send and receive at the same time, each on links that begin once and outlive whatever happens: a
receiver knows what it has had.
"""

import contextlib
import itertools
import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from router.model.capabilities import Protocol
from router.model.delivery import ReceivedDelivery
from router.model.identity import LinkName
from router.model.outcome import ACCEPTED, DeliveryState
from router.net.client.conversation import Conversation
from router.net.client.receiver import ReceivingLink
from router.net.client.sender import SendingLink
from router.routes.route import Guarantee
from router.wire import hub
from router.wire.fast.server_receiver import LEAST_PREFETCH
from router.wire.protocols import PROTOCOLS
from router.wire.v1_0.sections import (
    AnnotatedMessage,
    Header,
    Properties,
    encode_message,
)
from tests.support.conversing import conversing
from tests.support.mortal import MortalRouter
from tests.support.ports import free_port

pytestmark = pytest.mark.long

PART = 40
"""Messages that each pair sends at a time."""

PATIENCE_SECONDS = 300.0

NAMES = dict(zip(PROTOCOLS, "abcde", strict=True))
"""A word of an address for each protocol."""

ROOTS = {Guarantee.AT_LEAST_ONCE: "least", Guarantee.EXACTLY_ONCE: "once"}

NEAR = """\
router: {{id: near, workers: 2, admin: off, drain_seconds: 2s, state: near, log_format: json}}
listeners: [{{bind: '127.0.0.1:{near}'}}]
containers:
{containers}
routes:
{routes}
  - address: once.#
    to: a
    guarantee: exactly-once
    store: {{always: {always}}}
    dead_letter: a/dead
"""

CONTAINER = """\
  {name}: {{url: 'amqp://127.0.0.1:{far}', protocol: {protocol}, retry_limit_seconds: 1s{more}}}
"""

ROUTE = """\
  - address: least.{name}.#
    to: {name}
    store: {{always: {always}}}
    dead_letter: {name}/dead
"""

FAR = """\
router: {{id: far, workers: 1, admin: off, drain_seconds: 2s, state: far, log_format: json}}
listeners: [{{bind: '127.0.0.1:{far}'}}]
routes:
  - address: least.#
  - address: dead
  - address: once.#
    guarantee: exactly-once
"""


def message(number: int) -> bytes:
    """Returns a message with all that each protocol carries, and more."""
    properties = Properties(
        message_id=str(number), correlation_id=f"c{number}", content_type="text/plain"
    )
    return encode_message(
        AnnotatedMessage(
            header=Header(durable=True),
            properties=properties,
            application_properties={"number": str(number), "word": "wörd"},
            data=[b"body of %d" % number],
        )
    )


def content(message: AnnotatedMessage) -> Any:
    """Returns what must arrive of a message; protocols differ in the rest."""
    properties = message.properties
    assert properties is not None
    kept = (properties.message_id, properties.correlation_id, properties.content_type)
    own = {
        str(key): value
        for key, value in dict(message.application_properties or {}).items()
        if str(key) in ("number", "word")
    }
    return (kept, own, b"".join(message.data))


@attrs.define(eq=False)
class Pair:
    """One pair's messages, and its two links.

    Attributes:
        allowed: messages that the sender may have begun with.
        order: numbers as they came; ``altered``: those that did not come as they should.
    """

    sender: Protocol
    target: Protocol
    guarantee: Guarantee
    near_port: int
    far_port: int
    total: int
    allowed: int = 0
    order: list[int] = attrs.field(factory=list)
    altered: list[Any] = attrs.field(factory=list)
    sending: SendingLink = attrs.field(init=False)
    speech: Conversation = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.sending = SendingLink(
            name=LinkName(f"send {self}"),
            address=self.address,
            supply=self._supply(),
            guarantee=self.guarantee,
            window=PART,
        )
        self.speech = conversing(
            self.sending,
            self.sender,
            self.near_port,
            f"sender of {self}",
            patience_seconds=PATIENCE_SECONDS,
        )

    def __str__(self) -> str:
        return f"{self.sender} to {self.target}, {self.guarantee.value}"

    @property
    def address(self) -> str:
        return f"{ROOTS[self.guarantee]}.{NAMES[self.target]}.{NAMES[self.sender]}"

    @property
    def duplicated(self) -> int:
        return len(self.order) - len(set(self.order))

    @property
    def first_comings(self) -> list[int]:
        """Numbers in the order in which each came for the first time."""
        return list(dict.fromkeys(self.order))

    def allow(self, count: int) -> None:
        """Lets the sender send so many more."""
        self.allowed += count
        self.speech.wake()

    def is_accepted(self) -> bool:
        """Returns whether the store has accepted all that was sent."""
        return self.sending.report.outcomes["accepted"] >= self.allowed

    def has_arrived(self) -> bool:
        """Returns whether all that was sent has come."""
        return len(set(self.order)) >= self.allowed

    async def send(self) -> None:
        """Sends all that is allowed, to the end."""
        await self.speech.run()
        assert self.sending.failure is None, f"{self}: {self.sending.failure}"

    async def receive(self) -> None:
        """Receives without end.

        With less credit a receiver over AMQP/Fast returns some of what it is sent, out of order.
        """
        machine = ReceivingLink(
            name=LinkName(f"receive {self}"),
            address=self.address,
            take=self._take,
            guarantee=self.guarantee,
            window=LEAST_PREFETCH if self.target is Protocol.AMQP_FAST else PART // 2,
        )
        await conversing(
            machine,
            self.target,
            self.far_port,
            f"receiver of {self}",
            patience_seconds=PATIENCE_SECONDS,
        ).run()
        raise AssertionError(f"{self}: {machine.failure}")

    def _supply(self) -> Iterator[bytes | None]:
        number = 0
        while number < self.total:
            if number < self.allowed:
                yield message(number)
                number += 1
            else:
                yield None

    def _take(self, delivery: ReceivedDelivery) -> DeliveryState:
        found = content(hub.to_sections(delivery.protocol, delivery.payload))
        number = int(str(found[0][0]))
        self.order.append(number)
        if found != self._expected(number):
            self.altered.append((found, self._expected(number)))
        return ACCEPTED

    def _expected(self, number: int) -> Any:
        """Returns what becomes of a message by translation alone."""
        sent = hub.translate(message(number), Protocol.AMQP_1_0, self.sender)
        come = hub.translate(sent, self.sender, self.target)
        return content(hub.to_sections(self.target, come))


@attrs.define(eq=False)
class Stage:
    """Two routers, and all pairs.

    Attributes:
        dead: messages that came as dead letters.
    """

    folder: Path
    always: bool
    total: int
    nursery: trio.Nursery
    near: MortalRouter = attrs.field(init=False)
    far: MortalRouter = attrs.field(init=False)
    pairs: list[Pair] = attrs.field(init=False)
    dead: list[bytes] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        near, far, always = free_port(), free_port(), str(self.always).lower()
        containers, routes = "", ""
        for protocol, name in NAMES.items():
            more = ", is_router: true" if protocol is Protocol.AMQP_1_0 else ""
            containers += CONTAINER.format(name=name, far=far, protocol=protocol, more=more)
            routes += ROUTE.format(name=name, always=always)
        filled = {
            "near": NEAR.format(near=near, containers=containers, routes=routes, always=always),
            "far": FAR.format(far=far),
        }
        for name, text in filled.items():
            (self.folder / f"{name}.yaml").write_text(text)
        self.near = MortalRouter(self.folder / "near.yaml")
        self.far = MortalRouter(self.folder / "far.yaml")
        least, once = Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE
        kinds = [(*pair, least) for pair in itertools.product(PROTOCOLS, PROTOCOLS)]
        kinds.append((Protocol.AMQP_1_0, Protocol.AMQP_1_0, once))
        self.pairs = [Pair(*kind, near, far, self.total) for kind in kinds]

    def begin(self) -> None:
        """Begins with the links of all pairs, and with one for dead letters."""
        for pair in self.pairs:
            self.nursery.start_soon(pair.send)
            self.nursery.start_soon(pair.receive)
        machine = ReceivingLink(
            name=LinkName("dead"),
            address="dead",
            take=self._bury,
            guarantee=Guarantee.AT_LEAST_ONCE,
        )
        far_port, patience = self.pairs[0].far_port, PATIENCE_SECONDS
        speech = conversing(machine, Protocol.AMQP_1_0, far_port, "dead", patience_seconds=patience)
        self.nursery.start_soon(speech.run)

    def allow(self, count: int) -> None:
        """Lets each sender send so many more."""
        for pair in self.pairs:
            pair.allow(count)

    async def until(self, is_so: Callable[[Pair], bool], what: str) -> None:
        """Waits until something is so of all pairs."""
        with trio.move_on_after(PATIENCE_SECONDS) as patience:
            while not all(map(is_so, self.pairs)):
                await trio.sleep(0.02)
        missing = [
            f"{pair}: {len(set(pair.order))} of {pair.allowed}, accepted"
            f" {pair.sending.report.outcomes['accepted']}"
            for pair in self.pairs
            if not is_so(pair)
        ]
        assert not patience.cancelled_caught, f"{what}: {missing}"

    async def until_some(self, count: int) -> None:
        """Waits until so many messages have come, over all pairs."""
        with trio.fail_after(PATIENCE_SECONDS):
            while sum(len(pair.order) for pair in self.pairs) < count:
                await trio.sleep(0.002)

    def check(self, pairs: Iterable[Pair], *, in_order: bool) -> None:
        """Wants everything there, as it was sent."""
        assert not self.dead
        for pair in pairs:
            assert not pair.altered, f"{pair}: {pair.altered[0]}"
            assert sorted(set(pair.order)) == list(range(self.total)), str(pair)
            if in_order:
                assert pair.order == list(range(self.total)), str(pair)

    async def end(self) -> None:
        await self.near.kill()
        await self.far.kill()
        self.nursery.cancel_scope.cancel()

    def _bury(self, delivery: ReceivedDelivery) -> DeliveryState:
        self.dead.append(delivery.payload)
        return ACCEPTED


@pytest.mark.parametrize("always", [True, False], ids=["always", "while-away"])
async def test_what_was_stored_before_a_restart_arrives_in_order_and_newcomers_behind_it(
    tmp_path: Path, always: bool
) -> None:
    async with trio.open_nursery() as nursery:
        stage = Stage(tmp_path, always, 4 * PART, nursery)
        await stage.near.start(nursery)
        stage.begin()
        stage.allow(PART)
        await stage.until(Pair.is_accepted, "accepted while the target is away")
        assert await stage.near.end() == 0
        await stage.near.start(nursery)
        stage.allow(PART)
        await stage.until(Pair.is_accepted, "accepted after a restart")
        await stage.far.start(nursery)
        stage.allow(PART)
        await stage.until(Pair.has_arrived, "forwarded, with newcomers behind")
        stage.allow(PART)
        await stage.until(Pair.has_arrived, "sent while the target is there")
        stage.check(stage.pairs, in_order=True)
        await stage.end()


@pytest.mark.parametrize("always", [True, False], ids=["always", "while-away"])
async def test_whatever_is_killed_each_pair_gets_all_that_was_accepted(
    tmp_path: Path, always: bool
) -> None:
    """At least once: what was under way may come twice; exactly once: nothing does."""
    async with trio.open_nursery() as nursery:
        kinds = [_kill_first_worker, _kill_second_worker, _kill_store, _kill_near, _kill_far]
        stage = Stage(tmp_path, always, 3 * PART * len(kinds), nursery)
        await stage.near.start(nursery)
        stage.begin()
        for kind in kinds:
            stage.allow(PART)
            if kind is not _kill_far:
                await kind(stage)
            await stage.until(Pair.is_accepted, f"accepted, {kind.__name__}")
            await stage.far.start(nursery)
            some = sum(len(pair.order) for pair in stage.pairs) + len(stage.pairs) * PART // 3
            stage.allow(PART)
            await stage.until_some(some)
            await kind(stage)
            if kind is _kill_far:
                await stage.far.start(nursery)
            await stage.until(Pair.has_arrived, f"all forwarded, {kind.__name__}")
            stage.allow(PART)
            await stage.until(Pair.has_arrived, f"newcomers, {kind.__name__}")
            await stage.far.end()
        for pair in stage.pairs:
            in_order = pair.first_comings == sorted(pair.first_comings)
            print(f"{pair}: {pair.duplicated} twice, {'in' if in_order else 'OUT OF'} order")
        stage.check(stage.pairs, in_order=False)
        for pair in stage.pairs:
            assert pair.guarantee is not Guarantee.EXACTLY_ONCE or not pair.duplicated
        await stage.end()


async def _kill_first_worker(stage: Stage) -> None:
    stage.near.kill_worker(1)


async def _kill_second_worker(stage: Stage) -> None:
    stage.near.kill_worker(2)


async def _kill_store(stage: Stage) -> None:
    started = [line for line in stage.near.life.lines if '"messages.started"' in line]
    with contextlib.suppress(ProcessLookupError):
        os.kill(json.loads(started[-1])["process"], signal.SIGKILL)


async def _kill_near(stage: Stage) -> None:
    await stage.near.kill()
    await stage.near.start(stage.nursery)


async def _kill_far(stage: Stage) -> None:
    await stage.far.kill()
