"""What senders are told is what receivers said, whoever comes, goes or breaks off, on any worker.

Receivers come and go all the time. Each settles what it takes with outcomes of its own choice, at
once or in batches, and leaves in one of several ways; one that leaves in an orderly way has been
heard. So a sender must be told just what the last receiver of a delivery said, and nothing is taken
twice unless the connection of who took it was cut.
"""

import os
import random
from collections import defaultdict
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

from router.model.commands import CloseConnection, DetachLink, GrantCredit, UpdateDeliveries
from router.model.delivery import ReceivedDelivery
from router.model.events import DeliveriesReceived, DeliveriesUpdated, Event, LinkAttached
from router.model.identity import DeliveryNumber
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, REJECTED, RELEASED, DeliveryState
from tests.support.clients import LINK, Receiver, Sender, body_of, receiving_as, sending_as
from tests.support.ports import free_port
from tests.support.running import running_router

pytestmark = pytest.mark.long

CONFIG = """\
router: {{id: outcomes, admin: off, workers: 2, state: {state}}}
listeners: [{{bind: 127.0.0.1:{port}}}]
routes: [{{address: orders.#, guarantee: {guarantee}}}]
"""
ADDRESSES = ("orders.one", "orders.two", "orders.three")
SENDERS = 6
COUNT = 1_500
"""Deliveries of one sender."""
PLACES = 5
"""Receivers that are attached at a time."""
PATIENCE_SECONDS = 0.3
"""After which a receiver that gets nothing leaves, so that every address is served in turn."""
OUTCOMES = (ACCEPTED, REJECTED, RELEASED, MODIFIED_FAILED)
FINAL = (ACCEPTED, REJECTED)
SEED = int(os.environ.get("ROUTER_CHAOS_SEED", "1"))


class Way(StrEnum):
    """How a receiver leaves."""

    DETACH = "detach"
    CLOSE = "close"
    ABANDON = "abandon"  # with what it has in hand
    CUT = "cut"


@attrs.define
class Account:
    """What became of each body.

    Attributes:
        said: by its receivers, in order.
        cut: said by one whose connection was then cut, so that perhaps nobody heard it.
        told: to its sender.
    """

    said: dict[bytes, list[DeliveryState]] = attrs.field(factory=lambda: defaultdict(list))
    cut: set[bytes] = attrs.field(factory=set)
    told: dict[bytes, list[DeliveryState | None]] = attrs.field(factory=lambda: defaultdict(list))

    def wrongs(self) -> list[str]:
        """Returns a line for each body whose sender was told what is not so."""
        return [
            f"{body!r} told {told} said {self.said[body]}{' cut' * (body in self.cut)}"
            for body, told in self.told.items()
            if len(told) != 1 or not self._is_so(body, told[0])
        ]

    def _is_so(self, body: bytes, told: DeliveryState | None) -> bool:
        said = self.said[body]
        is_final = told in (ACCEPTED, REJECTED)
        if body in self.cut:
            return not is_final or told in said
        if is_final:
            return said[-1:] == [told] and sum(map(FINAL.__contains__, said)) == 1
        return not any(state in FINAL for state in said)


@attrs.define(eq=False)
class Teller(Sender):
    """Sends, and writes down what it is told of each body."""

    account: Account = attrs.field(factory=Account)

    def react(self, event: Event) -> None:
        if isinstance(event, DeliveriesUpdated):
            for number in event.numbers:
                self.account.told[self.sent[number]].append(event.state)
        super().react(event)


@attrs.define(eq=False)
class Judge(Receiver):
    """Settles as the dice fall, until it has taken what it wants.

    Attributes:
        wanted: its credit, given once.
        batch: deliveries that it settles at a time.
        taken: deliveries so far.
        in_hand: not settled yet.
        is_leaving: it says no more.
    """

    account: Account = attrs.field(factory=Account)
    dice: random.Random = attrs.field(factory=random.Random)
    wanted: int = 1
    batch: int = 1
    taken: int = 0
    in_hand: list[tuple[DeliveryNumber, bytes]] = attrs.field(factory=list)
    judged: list[bytes] = attrs.field(factory=list)
    is_leaving: bool = False

    def react(self, event: Event) -> None:
        match event:
            case LinkAttached():
                self.engine.execute(GrantCredit(LINK, self.wanted))
            case DeliveriesReceived(deliveries=deliveries) if not self.is_leaving:
                self._take_all(deliveries)
            case _:
                pass

    def _take_all(self, deliveries: Sequence[ReceivedDelivery]) -> None:
        for delivery in deliveries:
            self.taken += 1
            self.in_hand.append((delivery.number, body_of(delivery.payload)))
            if len(self.in_hand) >= self.batch:
                self.settle()

    def settle(self) -> None:
        """Says what becomes of everything in hand."""
        if not self.in_hand:
            return
        state = self.dice.choices(OUTCOMES, (8, 2, 2, 1))[0]
        numbers = [number for number, _ in self.in_hand]
        for _, body in self.in_hand:
            self.account.said[body].append(state)
            self.judged.append(body)
        self.in_hand.clear()
        self.engine.execute(UpdateDeliveries(LINK, numbers, state, settled=True))

    async def leave(self, way: Way) -> None:
        """Ends the link, the connection, or both."""
        if way is not Way.ABANDON:
            self.settle()
        self.is_leaving = True
        if way is Way.CUT:
            self.account.cut.update(self.judged)
            self.cut()
        elif way is Way.CLOSE:
            await self.command(CloseConnection())
            await self.wait_until(lambda: self.engine.finished)
        else:
            await self.command(DetachLink(LINK, closed=True))
            await self.wait_until(lambda: self.detached is not None)


@pytest.mark.parametrize("guarantee", ["at-least-once"])
async def test_senders_are_told_what_receivers_said(tmp_path: Path, guarantee: str) -> None:
    port, account = free_port(), Account()
    config = CONFIG.format(state=tmp_path / "state", port=port, guarantee=guarantee)
    with running_router(config, tmp_path):
        await _traffic(f"127.0.0.1:{port}", account)
    assert len(account.told) == SENDERS * COUNT
    wrongs = account.wrongs()
    assert not wrongs, f"seed {SEED}: {len(wrongs)} of {len(account.told)}: {wrongs[:5]}"


async def _traffic(router: str, account: Account) -> None:
    async with trio.open_nursery() as senders, trio.open_nursery() as places:
        for number in range(PLACES):
            places.start_soon(_keep_place, router, account, random.Random(f"{SEED} {number}"))
        for number in range(SENDERS):
            senders.start_soon(_send, router, number, account)
        while len(account.told) < SENDERS * COUNT:
            await trio.sleep(0.05)
        places.cancel_scope.cancel()


async def _send(router: str, number: int, account: Account) -> None:
    address = ADDRESSES[number % len(ADDRESSES)]
    bodies = [b"%d of %d" % (each, number) for each in range(COUNT)]
    async with sending_as(Teller, router, address, bodies) as sender:
        sender.account = account
        await sender.wait_until(lambda: sum(sender.outcomes.values()) == COUNT)


async def _keep_place(router: str, account: Account, dice: random.Random) -> None:
    """Has one receiver after another at a place."""
    while True:
        await _receive(router, account, dice)


async def _receive(router: str, account: Account, dice: random.Random) -> None:
    judge_of = partial(
        Judge,
        account=account,
        dice=dice,
        wanted=dice.choice((1, 3, 20, 300)),
        batch=dice.choice((1, 1, 4, 50)),
    )
    async with receiving_as(judge_of, router, dice.choice(ADDRESSES)) as judge:
        enough = dice.randint(1, judge.wanted)
        with trio.move_on_after(PATIENCE_SECONDS):
            await judge.wait_until(lambda: judge.taken >= enough)
        await judge.leave(dice.choice(tuple(Way)))
