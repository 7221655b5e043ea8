"""Applications that mind their own business while somebody else attacks the router.

For each protocol one receiver stays, and senders come, send a few messages at a time and go, so
that new connections are tried as well as old ones, at every worker. A pair over AMQP 1.0 keeps to
a rate and measures how long each message is under way. Everything is counted by number.

usage: good_pairs.py PORT      runs until standard input ends, then prints an account as JSON
"""

import json
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import attrs
import trio

from router.model.capabilities import Protocol
from router.model.commands import SendDeliveries
from router.model.delivery import ReceivedDelivery
from router.model.events import CreditGranted, Event
from router.model.identity import LinkId, LinkName
from router.model.outcome import ACCEPTED, DeliveryState
from router.net.client.conversation import Conversation, Dialing
from router.net.client.message import numbered
from router.net.client.receiver import ReceivingLink
from router.net.client.sender import SendingLink
from router.routes.route import Guarantee
from router.wire import hub
from router.wire.engine import Engine, EngineSettings
from router.wire.mechanisms import MechanismClient
from router.wire.protocols import PROTOCOLS, vhost_to_ask_for
from tests.support.clients import LINK, Receiver, Sender, receiving_as, sending_as

ROUND = 20
ROUND_PAUSE_SECONDS = 0.2
PACE_SECONDS = 0.01
STUCK_SECONDS = 30
STAMP = struct.Struct(">d")


@attrs.define(eq=False)
class Pair:
    """One protocol's pair.

    Attributes:
        sent: messages that were accepted.
        received: how often each number came.
        reasons: why connections were lost; a good pair loses none.
        slowest: the longest that a round took, connecting included.
    """

    protocol: Protocol
    port: int
    sent: int = 0
    received: Counter[str] = attrs.field(factory=Counter)
    reasons: list[str] = attrs.field(factory=list)
    slowest: float = 0.0

    @property
    def address(self) -> str:
        return f"good.{self.protocol.value.replace('.', '-')}"

    def dialing(self, name: str) -> Dialing:
        def make_engine(link_ids: Iterator[LinkId]) -> Engine:
            settings = EngineSettings(
                is_server=False,
                container=name,
                link_ids=link_ids,
                hostname=vhost_to_ask_for(self.protocol, None, "localhost"),
                sasl_client=lambda: MechanismClient(user=None, password=None),
                handshake_seconds=60,
            )
            return PROTOCOLS[self.protocol].make(settings, None)

        return Dialing(
            dial=lambda: trio.open_tcp_stream("127.0.0.1", self.port),
            make_engine=make_engine,
            on_lost=self.reasons.append,
        )

    def take(self, delivery: ReceivedDelivery) -> DeliveryState:
        message = hub.to_sections(delivery.protocol, delivery.payload)
        assert message.properties is not None
        self.received[str(message.properties.message_id)] += 1
        return ACCEPTED

    async def receive(self) -> None:
        machine = ReceivingLink(
            name=LinkName(f"{self.address} in"),
            address=self.address,
            take=self.take,
            guarantee=Guarantee.AT_LEAST_ONCE,
        )
        await Conversation(self.dialing(f"{self.address} in"), machine).run()
        self.reasons.append(f"the receiver ended: {machine.failure}")

    async def send(self, stopping: trio.Event) -> None:
        supply = numbered(b"good", None)
        number = 0
        while not stopping.is_set():
            number += 1
            began = trio.current_time()
            machine = SendingLink(
                name=LinkName(f"{self.address} out {number}"),
                address=self.address,
                supply=iter([next(supply) for _ in range(ROUND)]),
                guarantee=Guarantee.AT_LEAST_ONCE,
            )
            dialing = self.dialing(f"{self.address} out {number}")
            with trio.move_on_after(STUCK_SECONDS) as stuck:
                await Conversation(dialing, machine).run()
            if stuck.cancelled_caught:
                self.reasons.append(f"a round stood still: {machine.waits_for}")
            self.slowest = max(self.slowest, trio.current_time() - began)
            self.sent += machine.report.outcomes["accepted"]
            if machine.failure is not None:
                self.reasons.append(str(machine.failure))
            await trio.sleep(ROUND_PAUSE_SECONDS)

    def account(self) -> dict[str, Any]:
        return {
            "sent": self.sent,
            "received": len(self.received),
            "doubled": sum(count > 1 for count in self.received.values()),
            "slowest_round_seconds": round(self.slowest, 3),
            "reasons": self.reasons[:5],
        }


@attrs.define(eq=False)
class Metronome(Sender):
    """Sends a stamped message every other moment."""

    count: int = 0
    _credit: int = 0

    def react(self, event: Event) -> None:
        if isinstance(event, CreditGranted):
            self._credit = event.credit
        else:
            super().react(event)

    async def beat(self, stopping: trio.Event) -> None:
        while not stopping.is_set():
            await trio.sleep(PACE_SECONDS)
            if self._credit > 0:
                self._credit -= 1
                self.count += 1
                body = STAMP.pack(time.monotonic())
                await self.command(SendDeliveries(LINK, [self._next(body)]))


@attrs.define(eq=False)
class Stopwatch(Receiver):
    """Notes how long each stamped message was under way, in seconds."""

    delays: list[float] = attrs.field(factory=list)

    def react(self, event: Event) -> None:
        seen = len(self.bodies)
        super().react(event)
        now = time.monotonic()
        self.delays += [now - STAMP.unpack(body)[0] for body in self.bodies[seen:]]


async def main(port: int) -> dict[str, Any]:
    """Runs all pairs until standard input ends; returns their account."""
    pairs = [Pair(protocol, port) for protocol in PROTOCOLS]
    place = f"127.0.0.1:{port}"
    stopping = trio.Event()
    async with (
        receiving_as(partial(Stopwatch, window=500), place, "good.paced") as sink,
        sending_as(Metronome, place, "good.paced") as source,
        trio.open_nursery() as receivers,
    ):
        for pair in pairs:
            receivers.start_soon(pair.receive)
        async with trio.open_nursery() as senders:
            senders.start_soon(source.beat, stopping)
            for pair in pairs:
                senders.start_soon(pair.send, stopping)
            print("ready", flush=True)
            await trio.to_thread.run_sync(sys.stdin.read)
            stopping.set()
        with trio.move_on_after(20):
            while len(sink.bodies) < source.count or any(
                len(pair.received) < pair.sent for pair in pairs
            ):
                await trio.sleep(0.05)
        account: dict[str, Any] = {pair.protocol.value: pair.account() for pair in pairs}
        delays = sorted(sink.delays)
        account["paced"] = {
            "sent": source.count,
            "received": len(sink.bodies),
            "accepted": len(source.accepted),
            "p99_seconds": round(delays[len(delays) * 99 // 100], 4),
            "longest_seconds": round(delays[-1], 4),
        }
        receivers.cancel_scope.cancel()
    return account


if __name__ == "__main__":
    print(json.dumps(trio.run(main, int(sys.argv[1]))))
