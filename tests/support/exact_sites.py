"""A mesh of routers that write journals, so that each can crash and live on.

A crash takes the router's memory and its connections at one moment; the others see them end. What
the journal was handed is there in the next life.
"""

import attrs

from router.core.mesh.names import EGRESS, VOUCHED
from router.core.settings import CoreSettings
from router.journal.keys import LinkKey
from router.model.commands import AttachLink
from router.model.identity import DeliveryKey
from router.routes.route import Guarantee, Route
from router.wire.v1_0.express import make_express
from tests.support.fleet import Fleet
from tests.support.journaled import Journaled
from tests.support.play import Play
from tests.support.sites import Sites

FOREVER = 10**9

EXACT = Route(address="orders.#", guarantee=Guarantee.EXACTLY_ONCE)


class ExactSites(Sites):
    """A mesh of exactly-once routes; ``flushes`` is whether journals are durable at once."""

    flushes = True
    lives = 1
    link_credit = 1000
    suspended_links = 10_000

    @property
    def chain_attaches(self) -> list[tuple[str, AttachLink]]:
        """Attaches of chains that any router has sent so far, each with its egress."""
        return [
            (str(each.properties[EGRESS]), each)
            for joint in self.joints
            for each in joint.commands
            if isinstance(each, AttachLink) and VOUCHED in each.properties
        ]

    def make_play(self, name: str, *routes: Route | str) -> Play:
        settings = CoreSettings(
            router_id=name,
            link_credit=self.link_credit,
            suspended_links=self.suspended_links,
            expiry_seconds=FOREVER,
            failover_seconds=FOREVER,
        )
        if self._workers > 1:
            fleet = Fleet(
                self._workers,
                *routes,
                router_id=name,
                express=self.express,
                are_spread=True,
                settings=settings,
                make=Journaled,
            )
            self.fleets[name], self._lanes[name] = fleet, fleet.express[1]
            for play in fleet.plays.values():
                _journaled(play).settle_all = self.settle_all
            return fleet[1]
        self._lanes[name] = make_express(self.express)
        return Journaled(*routes, express=self._lanes[name], settings=settings)

    def journal(self, name: str) -> Journaled:
        """Gives a router with its journal; of several workers the first."""
        return _journaled(self.plays[name])

    def journals(self, name: str) -> list[Journaled]:
        """Gives all workers of a router."""
        fleet = self.fleets.get(name)
        plays = [self[name]] if fleet is None else fleet.plays.values()
        return [_journaled(each) for each in plays]

    def settle(self) -> None:
        super().settle()
        if self.flushes:
            self.settle_all()

    def settle_all(self) -> None:
        """Carries octets, and makes journals durable, until nobody has anything more to say."""
        super().settle()
        while self.flush():
            super().settle()

    def flush(self, *names: str) -> bool:
        """Makes journals durable, and says so; tells whether there was anything."""
        found = False
        for play in [play for name in names or tuple(self.plays) for play in self.journals(name)]:
            found |= play.durable < play.writer.next_sequence - 1
            play.flush()
        return found

    def crash(self, name: str, worker: int = 1) -> Journaled:
        """Kills a worker, which lives on without connections to neighbors, or to clients."""
        self.lives += 1
        before = _journaled(self.worker(name, worker))
        for peer in before.peers.values():
            peer.is_lost = True
        wires = [wire for wire in self.wires if name in wire.ends and worker == 1]
        self.wires = [wire for wire in self.wires if wire not in wires]
        fleet = self.fleets.get(name)
        pairs = [pair for pair in fleet.joints if worker in pair] if fleet else []
        ends = [joint for wire in wires for joint in wire.joints]
        after = before.crash()
        if worker == 1:
            self.plays[name] = after
        if fleet:
            fleet.plays[worker] = after
            ends += [joint for pair in pairs for joint in fleet.joints.pop(pair)]
        for joint in ends:
            if joint.play is not before:
                joint.lose()
        if worker == 1:
            self.join(name, after, self.lives)
        for one, other in pairs:
            assert fleet is not None
            fleet.join(one, other)
        self.settle()
        return after

    def come_back(self, name: str) -> None:
        """Connects a router to all of its neighbors again."""
        for other in self.costs[name]:
            if not self.is_connected(name, other):
                self.dial(name, other)

    def is_connected(self, one: str, other: str) -> bool:
        """Tells whether there is a connection between two routers."""
        return any(set(wire.ends) == {one, other} for wire in self.wires)

    def remembered(self, name: str) -> dict[tuple[LinkKey, DeliveryKey], object]:
        """What a router's journal keeps of deliveries that have not ended."""
        kept = [pair for play in self.journals(name) for pair in play.remembered().items()]
        return {key: attrs.evolve(each) for key, each in kept if each.is_open}


def _journaled(play: Play) -> Journaled:
    assert isinstance(play, Journaled)
    return play
