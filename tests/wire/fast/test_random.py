"""Random commands, octets and cores: no exception, one end, nothing left behind."""

import random
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.model.commands import (
    AttachLink,
    CloseConnection,
    Command,
    DetachLink,
    GrantCredit,
    HoldWindow,
    RefuseLink,
    ReturnCredit,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.condition import NOT_FOUND, Condition
from router.model.events import (
    ConnectionClosed,
    CreditGranted,
    DeliveriesReceived,
    Event,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import DeliveryNumber, LinkId, LinkName
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, REJECTED, RELEASED
from router.model.terminus import Role, Source, Target
from router.wire.fast import commands as c
from router.wire.fast.area import Area
from router.wire.fast.commands import SPECS
from router.wire.fast.framing import frame
from tests.support.accepting import accepting
from tests.support.fast_peer import Client, Peer, Server, message, outgoing

STATES = (ACCEPTED, RELEASED, REJECTED, MODIFIED_FAILED, None)

_SMALL: dict[str, Callable[[random.Random], Any]] = {
    "o": lambda dice: dice.randrange(5),
    "h": lambda dice: dice.choice([0, 1, 1, 1, 2, 2, 3, 200, 404, 507]),
    "l": lambda dice: dice.choice([0, 1, 2, 3, 5, 40, 4096]),
    "b": lambda dice: dice.random() < 0.3,
    **dict.fromkeys("scw", lambda dice: dice.choice(["", "", "a", "b", "a.b", "made/1"])),
    "x": lambda dice: dice.choice([b"", b"", b"x"]),
    "t": lambda dice: dice.choice([{}, {"a": 1}]),
}


def command(dice: random.Random) -> bytes:
    """A command that may make sense, and the message octets behind it."""
    spec = dice.choice(SPECS)
    made = spec.record(*(_SMALL[letter](dice) for letter in spec.letters))
    if not spec.has_fragment:
        return frame(made)
    octets = message(bytes(dice.choice([0, 5, 40])), headers={"a": 1})
    if dice.random() < 0.3:
        octets = octets[: dice.randrange(len(octets))]
    if not getattr(made, "out_of_band", False):
        made = attrs.evolve(made, fragment_size=len(octets))
    return frame(made) + (b"" if getattr(made, "out_of_band", False) else octets)


class Core:
    """A core that says anything."""

    def __init__(self, dice: random.Random, peer: Peer) -> None:
        self.dice = dice
        self.peer = peer
        self.open: dict[LinkId, Role] = {}
        self.asked: dict[LinkId, LinkAttached] = {}
        self.credit: dict[LinkId, int] = {}
        self.received: list[tuple[LinkId, DeliveryNumber]] = []
        self.number = 0
        self.closed = 0

    def take(self, events: list[Event]) -> None:
        for event in events:
            assert not self.closed, event
            match event:
                case LinkAttached(is_answer=False):
                    self.asked[event.link] = event
                case LinkAttached():
                    if event.source is not None or event.target is not None:
                        self.open[event.link] = event.role
                case LinkDetached(link=link):
                    self.open.pop(link, None)
                    self.asked.pop(link, None)
                case CreditGranted(link=link, credit=credit):
                    self.credit[link] = credit
                case DeliveriesReceived(link=link, deliveries=run):
                    last_words = link in self.asked and all(each.settled for each in run)
                    assert last_words or self.open.get(link) is Role.RECEIVER
                    self.received += [(link, each.number) for each in run if not each.settled]
                case ConnectionClosed():
                    self.closed += 1
                case _:
                    pass

    def say(self) -> Command:
        dice = self.dice
        kind = dice.randrange(9)
        if self.asked and kind < 4:
            link, event = self.asked.popitem()
            if dice.random() < 0.2:
                return RefuseLink(link, Condition(NOT_FOUND, "no"))
            self.open[link] = event.role
            return accepting(event)
        link = dice.choice([*self.open, LinkId(999)])
        if kind < 3:
            return GrantCredit(link, dice.choice([0, 1, 10]), dice.random() < 0.2)
        if kind == 3 and self.received:
            where, number = self.received.pop(dice.randrange(len(self.received)))
            return UpdateDeliveries(where, [number], dice.choice(STATES), dice.random() < 0.8)
        if kind < 6 and self.credit.get(link, 0) > 0 and self.open.get(link) is Role.SENDER:
            self.credit[link] -= 1
            self.number += 1
            body = bytes(dice.choice([0, 10, 9000]))
            delivery = outgoing(self.number, body, settled=dice.random() < 0.2)
            return SendDeliveries(link, [delivery])
        if kind == 6:
            return DetachLink(link, True, None)
        if kind == 7:
            return HoldWindow(link, dice.random() < 0.5)
        return ReturnCredit(link)


def converse(seed: int, steps: int, area: Area) -> None:
    """Has one engine, of either side, talk with a peer and a core that say anything."""
    dice = random.Random(seed)
    peer: Peer
    if dice.random() < 0.7:
        peer = Client(client_name=f"c{seed % 3}", area=area).open()
        for number in (1, 2):
            options = {"transacted": dice.random() < 0.4, "restartable": dice.random() < 0.5}
            peer.channel(number, **options).handle(number, "a", channel=number)
        peer.handle(3, "p", service=3)
    else:
        peer = Server(area=area).open(4096)
        for number in range(1, 4):
            role = dice.choice(list(Role))
            peer.attach(role, dice.choice(["a", "/topic/t"]))
            peer.send(c.HandleReply(number, 2, 200))
    core = Core(dice, peer)
    core.take(peer.take_events())
    for _ in range(steps):
        if dice.random() < 0.6:
            octets = b"".join(command(dice) for _ in range(dice.randrange(4)))
            if dice.random() < 0.03:
                octets += bytes(dice.randrange(256) for _ in range(dice.randrange(30)))
            peer.feed(octets)
        elif dice.random() < 0.02:
            peer.wait(dice.choice([1.0, 70.0]))
        else:
            peer.do(core.say())
        core.take(peer.take_events())
        peer.settle()
        core.take(peer.take_events())
        if peer.engine.finished:
            break
        assert peer.octets() is not None
    core.take(peer.engine.receive_eof(peer.now))
    assert core.closed == 1
    assert peer.engine.finished
    assert peer.engine.budget.octets == 0
    assert peer.engine.waiting_octets == 0
    assert peer.engine._held == 0


@pytest.mark.parametrize("seed", range(300))
def test_random_conversations_end_in_one_word_and_leave_nothing(seed: int) -> None:
    converse(seed, 60, Area())


@pytest.mark.slow
def test_many_random_conversations_do_so_too() -> None:
    area = Area(limit=100_000)
    for seed in range(1000, 16_000):
        converse(seed, 120, area)
        assert area.octets <= area.limit


@pytest.mark.slow
def test_much_noise_after_a_good_beginning_costs_no_memory() -> None:
    dice = random.Random(7)
    for _ in range(3000):
        client = Client().open().channel().handle(1, "a")
        size = dice.choice([1, 100, 5000])
        client.feed(dice.randbytes(size) * dice.choice([1, 50]))
        client.engine.receive_eof(1.0)
        assert client.engine.finished
        assert client.engine.budget.octets == 0


@given(st.binary(max_size=300), st.integers(1, 60), st.booleans())
def test_random_octets_behind_a_good_handshake(octets: bytes, size: int, is_server: bool) -> None:
    peer: Peer = Client().open().channel().handle(1, "a") if is_server else Server().open()
    for at in range(0, len(octets), size):
        peer.feed(octets[at : at + size])
    peer.events += peer.engine.receive_eof(1.0)
    assert isinstance(peer.events[-1], ConnectionClosed)
    assert sum(isinstance(event, ConnectionClosed) for event in peer.events) == 1


def test_links_named_by_nobody_harm_nobody() -> None:
    server = Server().open()
    link = AttachLink(
        link=LinkId(1),
        name=LinkName("x"),
        role=Role.SENDER,
        source=Source(),
        target=Target(address="a"),
    )
    server.do(link, CloseConnection(None))
    assert isinstance(server.take_events()[-1], ConnectionClosed)
