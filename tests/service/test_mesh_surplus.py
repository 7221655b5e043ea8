"""Five sites as processes: of a burst the fast receiver gets what the slow one cannot take."""

import contextlib
from collections import Counter
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

from router.model.commands import GrantCredit, UpdateDeliveries
from router.model.delivery import ReceivedDelivery
from router.model.events import CreditGranted, DeliveriesReceived, Event, LinkAttached
from router.model.outcome import ACCEPTED
from tests.service.test_mesh import SECONDS, running_mesh, wait_for
from tests.support.clients import LINK, Receiver, Sender, body_of, receiving_as, sending_as

pytestmark = pytest.mark.long

WINDOW = 20
COUNT = 200
"""Messages of each burst."""


@attrs.define(eq=False)
class Burst(Sender):
    """Sends nothing before it is told to, and then as much as there is credit for."""

    credit: int = 0
    is_begun: bool = False

    def react(self, event: Event) -> None:
        if isinstance(event, CreditGranted) and not self.is_begun:
            self.credit = event.credit
        else:
            super().react(event)

    async def begin(self) -> None:
        """Sends the first messages."""
        self.is_begun = True
        self.react(CreditGranted(LINK, self.credit))
        await self.command()


@attrs.define(eq=False)
class Slow(Receiver):
    """Accepts nothing before it is told to."""

    held: list[ReceivedDelivery] = attrs.field(factory=list)

    def react(self, event: Event) -> None:
        if isinstance(event, LinkAttached):
            self.engine.execute(GrantCredit(LINK, WINDOW))
        elif isinstance(event, DeliveriesReceived):
            self.bodies += [body_of(delivery.payload) for delivery in event.deliveries]
            self.held += event.deliveries

    async def accept(self) -> None:
        """Accepts all that it has."""
        numbers = [delivery.number for delivery in self.held]
        await self.command(UpdateDeliveries(LINK, numbers, ACCEPTED, settled=True))


async def test_the_fast_receiver_gets_what_the_slow_one_cannot_take(tmp_path: Path) -> None:
    running = running_mesh(tmp_path, {})
    sites = await trio.to_thread.run_sync(running.__enter__)
    at = {name: f"127.0.0.1:{site.port}" for name, site in sites.items()}
    bodies = [[b"%d of %d" % (number, place) for number in range(COUNT)] for place in (1, 3)]
    try:
        async with contextlib.AsyncExitStack() as stack:
            enter = stack.enter_async_context
            slow = await enter(receiving_as(Slow, at["dc2"], "orders.eu"))
            fast = await enter(
                receiving_as(partial(Receiver, window=WINDOW), at["dc4"], "orders.eu")
            )
            for name in ("dc1", "dc3"):  # these make the chains
                await enter(sending_as(Sender, at[name], "orders.eu"))
                for egress in ("dc2", "dc4"):
                    await wait_for(sites[name], f"{name}>{egress}:orders.eu")
            senders = [
                await enter(sending_as(Burst, at[name], "orders.eu", own))
                for name, own in zip(("dc1", "dc3"), bodies, strict=True)
            ]
            for sender in senders:
                await sender.wait_until(partial(has_credit, sender), SECONDS)
            for sender in senders:
                await sender.begin()
            began = trio.current_time()
            await fast.wait_until(lambda: len(fast.bodies) == 2 * COUNT - WINDOW, SECONDS)
            print(f"all but {len(slow.bodies)} after {trio.current_time() - began:.2f} s")
            await slow.accept()
            for sender, own in zip(senders, bodies, strict=True):
                await sender.wait_until(partial(has_all, sender), SECONDS)
                assert sorted(sender.accepted) == sorted(own)
                assert sender.outcomes == {"Accepted": COUNT}
            taken = Counter([*slow.bodies, *fast.bodies])
            assert taken == Counter([*bodies[0], *bodies[1]]), "nothing lost, nothing twice"
            assert len(slow.bodies) == WINDOW
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(running.__exit__, None, None, None)


def has_credit(sender: Burst) -> bool:
    return sender.credit >= 2 * WINDOW


def has_all(sender: Sender) -> bool:
    return len(sender.accepted) == COUNT
