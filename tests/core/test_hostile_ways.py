"""A peer that calls itself a router and tells of ways at random: others are served all the same."""

import random
import tracemalloc
from collections import Counter

import pytest

from router.model.events import WaysAdvertised
from router.model.outcome import ACCEPTED, RELEASED
from router.model.ways import CREDIT_MOST, GAINS_MOST, NODE, STOPS_MOST, WAYS_MOST, Way, Ways
from router.routes.route import Distribution, Route
from tests.core.test_mesh import neighbor
from tests.support.play import Play, ReceiverEnd

ROUTES = [Route(address="orders", distribution=each) for each in Distribution]


def lies(chosen: random.Random, own: str) -> Ways:
    """Returns ways that nobody has: through this router, over one stop twice, of any credit."""
    stops = [own, "dc2#1", "dc3#1", "liar#1", "", "#", "x" * 500]
    return tuple(
        Way(
            tuple(chosen.choices(stops, k=chosen.choice((1, 1, 2, 3, STOPS_MOST)))),
            chosen.choice((0, 1, GAINS_MOST)),
            chosen.choice((None, 0, 1, CREDIT_MOST)),
        )
        for _ in range(chosen.choice((0, 1, 2, WAYS_MOST)))
    )


class Town:
    """A liar among an honest router, which sends and receives, and two clients."""

    def __init__(self, route: Route, seed: int) -> None:
        self.chosen = random.Random(f"{route.distribution} {seed}")
        self.play = play = Play(route)
        self.honest = neighbor(play, "dc2", Way(("dc2#1",), 0, 16), credit=10)
        self.here = play.connect("r").attach_receiver("orders", credit=10)
        self.liar = neighbor(play, "liar", credit=0)
        self.own = next(iter(play.core._registry.nodes.values())).stop
        self.senders = [
            play.connect("s").attach_sender("orders"),
            self.honest.peer.attach_sender("orders", properties={NODE: "dc2#1"}),
            self.liar.peer.attach_sender("orders", properties={NODE: self.own}),
        ]
        self.count = 0

    def step(self) -> None:
        """Has the liar say something, and one of the others do something."""
        chosen, liar = self.chosen, self.liar
        match chosen.randrange(5):
            case 0:
                liar.grant(chosen.choice((0, 1, 10, 1 << 30)))
            case 1 if liar.unsettled:
                liar.update(chosen.choice(list(liar.unsettled)), state=RELEASED)
            case _:
                told = lies(chosen, self.own)
                liar.peer.happens(WaysAdvertised(liar.link, told, chosen.random() < 0.5))
        sender = chosen.choice(self.senders[:2])
        if sender.credit and self.count < 250:
            hops = ("dc2#1",) if sender is self.senders[1] else ()
            sender.send(b"\x00Su\xa0\x01%c" % self.count, hops=hops)
            self.count += 1
        for receiver in (self.honest, self.here):
            if receiver.unsettled and chosen.random() < 0.5:
                receiver.accept()
                receiver.grant(10)

    def finish(self) -> None:
        """Has the liar leave, and the others take what is left."""
        self.liar.detach()
        for _ in range(300):
            for receiver in (self.honest, self.here):
                if receiver.unsettled:
                    receiver.accept()
                receiver.grant(10)


def got(receiver: ReceiverEnd) -> Counter[bytes]:
    return Counter(receiver.payloads)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("route", ROUTES, ids=lambda each: each.distribution.value)
def test_whatever_a_peer_tells_of_ways_others_get_every_message_once(
    route: Route, seed: int
) -> None:
    town = Town(route, seed)
    for _ in range(100):
        town.step()
        assert town.senders[0].credit <= 1000, "its link's limit"
    assert town.count > 10
    town.finish()
    own, far = got(town.here), got(town.honest)
    told = Counter(
        sender.outcome(number) for sender in town.senders[:2] for number in list(sender.told)
    )
    if route.distribution is Distribution.MULTICAST:
        assert set(own.values()) <= {1}
    else:
        assert set((own + far).values()) <= {1}
        assert told[ACCEPTED, True] == len(own + far)
    assert sum(told.values()) == town.count
    assert set(told) <= {(ACCEPTED, True), (RELEASED, True)}
    assert town.play.connect("late").attach_sender("orders").credit == 20 or route.distribution in (
        Distribution.MULTICAST,
    )


def test_ways_that_flap_leave_nothing_behind_in_the_core() -> None:
    town = Town(ROUTES[0], 0)
    ways = [Way(("liar#1",), 0, 0)], [Way(("liar#1",), 0, 8), Way(("liar#1", "dc9#1"), 1)]

    def flap(count: int) -> None:
        for number in range(count):
            told = tuple(ways[number % 2])
            town.liar.peer.happens(WaysAdvertised(town.liar.link, told, True))
            town.play.orders.clear()

    flap(100)
    tracemalloc.start()
    try:
        flap(2_000)
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 1 << 18
