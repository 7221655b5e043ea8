"""Shortcuts change nothing: whatever happens, orders and records are those of the long way."""

from collections.abc import Callable
from functools import partialmethod
from random import Random
from typing import Any

import attrs
import pytest

from router.core import bulk
from router.core.bulk import Shortcuts
from router.core.forward import Forwarder
from router.core.node import Node
from router.links.link import OutgoingLink
from router.model.commands import SendDeliveries
from router.model.condition import INVALID_FIELD, Condition
from router.model.outcome import ACCEPTED, RELEASED, DeliveryState, Modified, Rejected
from router.model.terminus import ExpiryPolicy
from router.model.ways import NODE
from router.routes.route import Guarantee, Route
from tests.support.counted import Counted
from tests.support.journaled import EXACT, Journaled
from tests.support.play import AMQP, ReceiverEnd, SenderEnd

STATES: list[DeliveryState | None] = [
    ACCEPTED, ACCEPTED, ACCEPTED, ACCEPTED, RELEASED, Modified(delivery_failed=True), None,
    Rejected(Condition(INVALID_FIELD, "no")),
]  # fmt: skip
UNUSUAL: list[dict[str, object]] = [
    {"ttl_milliseconds": 5000},
    {"settled": True},
    {"message_format": 7},
    {"delivery_count": 2},
    {"state": ACCEPTED},
    {"settles_first": True},
    {"settles_second": True},
    {"hops": ("dc7",)},
    {"key": b"hop's key %06d"},
    {"tag": b"so long that it is hashed, %04d"},
]
RECORDED = attrs.evolve(EXACT, guarantee=Guarantee.AT_LEAST_ONCE, is_recorded=True)


@attrs.define(eq=False)
class Dice:
    """Moves that a seed chooses, upon a play of two senders and two receivers."""

    play: Journaled
    dice: Random
    senders: list[SenderEnd] = attrs.field(factory=list)
    receivers: list[ReceiverEnd] = attrs.field(factory=list)

    def begin(self) -> None:
        dice = self.dice
        for name in ("one", "two")[: dice.randrange(1, 3)]:
            end = self.play.connect(name).attach_sender(
                name=name,
                second=dice.random() < 0.8,
                policy=ExpiryPolicy.CONNECTION_CLOSE,
                seconds=300,
            )
            self.senders.append(end)
        for name in ("three", "four")[: dice.randrange(1, 3)]:
            self.receive(name)

    def receive(self, name: str) -> None:
        capabilities = attrs.evolve(AMQP, is_router=self.dice.random() < 0.4)
        end = self.play.connect(name, capabilities=capabilities).attach_receiver(
            name=name,
            second=self.dice.random() < 0.8,
            credit=self.dice.choice([0, 5, 1000]),
            properties={NODE: f"{name}#1"} if self.dice.random() < 0.8 else None,
        )
        self.receivers.append(end)

    def send(self) -> None:
        end = self.dice.choice(self.senders)
        count = min(end.credit, self.dice.choice([1, 2, 5, 40]))
        if count <= 0 or not end.is_live():
            return
        run = [end.delivery(bytes(self.dice.choice([0, 1, 100]))) for _ in range(count)]
        if self.dice.random() < 0.3:
            one = self.dice.choice(run)
            for field, value in self.dice.choice(UNUSUAL).items():
                setattr(one, field, value % one.number if isinstance(value, bytes) else value)
        end.peer.happens(end.run(run))

    def answer(self) -> None:
        end = self.dice.choice(self.receivers)
        known = list(end.unsettled)
        if not known or not end.is_live():
            return
        settled = self.dice.random() < 0.3
        if settled:
            self.play.flush()  # no settlement of ours crosses theirs: the fake engine minds
            known = list(end.unsettled)
        first = self.dice.randrange(len(known) or 1)
        numbers = known[first : first + self.dice.choice([1, 3, 1000])]
        if numbers:
            end.update(*numbers, state=self.dice.choice(STATES), settled=settled)

    def settle(self) -> None:
        self.play.flush()  # as in answer
        end = self.dice.choice(self.senders)
        told = [number for number in end.unsettled if end.outcome(number) is not None]
        if told and end.is_live():
            numbers = told[: self.dice.choice([1, 3, 1000])]
            end.settle(*numbers, state=self.dice.choice([None, None, ACCEPTED]))

    def give_up(self) -> None:
        """A sender settles what it has not heard of; nothing about it is held at the gate."""
        self.play.flush()
        end = self.dice.choice(self.senders)
        if end.unsettled and end.is_live():
            end.settle(self.dice.choice(list(end.unsettled)))

    def grant(self) -> None:
        end = self.dice.choice(self.receivers)
        if end.is_live():
            end.grant(1000)  # less than what is held, and on its way, would be more than the credit

    def lose(self) -> None:
        end = self.dice.choice(self.receivers)
        if end.is_live():
            end.peer.lose()
            self.receivers.remove(end)
            self.receive(str(end.name))


def drive(route: Route, seed: int) -> tuple[list[str], list[bytes], list[str]]:
    """Plays; gives all orders, all blocks, and what is left."""
    stage = Dice(Journaled(route), Random(seed))
    stage.begin()
    moves: list[tuple[int, Callable[[], None]]] = [
        (8, stage.send), (6, stage.answer), (6, stage.settle), (1, stage.give_up),
        (3, stage.grant), (6, stage.play.flush), (1, stage.lose),
    ]  # fmt: skip
    orders: list[str] = []
    for _ in range(80):
        stage.dice.choices([move for _, move in moves], [weight for weight, _ in moves])[0]()
        orders += map(repr, stage.play.orders[len(orders) :])
    left = [repr(each) for each in sorted(stage.play.remembered())]
    return orders, [block.octets for block in stage.play.blocks], left


@pytest.mark.thorough
@pytest.mark.skipif(bulk.shortcuts is None, reason="nothing was compiled")
@pytest.mark.parametrize("route", [EXACT, RECORDED], ids=["exactly-once", "recorded"])
@pytest.mark.parametrize("seed", range(60))
def test_orders_and_records_are_those_of_the_long_way(
    route: Route, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = drive(route, seed)
    monkeypatch.setattr(bulk, "shortcuts", None)
    assert drive(route, seed) == short


@pytest.mark.parametrize("route", [EXACT, RECORDED], ids=["exactly-once", "recorded"])
def test_keys_go_to_routers_in_runs_as_one_at_a_time_would(
    route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    def orders() -> list[SendDeliveries]:
        play = Journaled(route)
        router = attrs.evolve(AMQP, is_router=True)
        peer = play.connect("b", capabilities=router)
        peer.attach_receiver(second=True, credit=100, properties={NODE: "b#1"})
        sender = play.connect("a").attach_sender(second=True)
        run = [sender.delivery(b"x" * size) for size in range(5)]
        sender.peer.happens(sender.run(run))
        play.flush()
        return [each for _, each in play.orders if isinstance(each, SendDeliveries)]

    alone: list[object] = []
    careful = Forwarder._send_careful

    def counted(self: Forwarder, *arguments: Any) -> None:
        alone.append(arguments)
        careful(self, *arguments)

    monkeypatch.setattr(Forwarder, "_send_careful", counted)
    (short,) = orders()
    assert not alone
    assert len({each.key for each in short.deliveries} - {None}) == 5
    monkeypatch.setattr(bulk, "shortcuts", None)
    assert orders() == [short]
    assert not alone
    monkeypatch.setattr(Node, "look_at", partialmethod(_look_closely, Node.look_at))
    assert orders() == [short]
    assert len(alone) == 5


def _look_closely(node: Node, look_at: Callable[[Node, OutgoingLink], None], link: Any) -> None:
    """Has every delivery looked at before it goes out."""
    look_at(node, link)
    link.is_unrestricted = False


def test_dice_take_every_shortcut_and_every_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    if bulk.shortcuts is None:
        pytest.skip("nothing was compiled")
    counting = Counted(bulk.shortcuts)
    monkeypatch.setattr(bulk, "shortcuts", counting)
    for seed in range(20):
        drive(EXACT, seed)
    names = {name for name in vars(Shortcuts) if not name.startswith("_")}
    assert counting.taken == names - {"answer"}  # which has nothing to say
    assert counting.refused >= names - {"name", "settle_with_sender", "heard"}
