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
        self._lanes[name] = make_express(self.express)
        return Journaled(
            *routes,
            express=self._lanes[name],
            settings=CoreSettings(
                router_id=name,
                link_credit=self.link_credit,
                suspended_links=self.suspended_links,
                expiry_seconds=FOREVER,
                failover_seconds=FOREVER,
            ),
        )

    def journal(self, name: str) -> Journaled:
        """Gives a router with its journal."""
        play = self.plays[name]
        assert isinstance(play, Journaled)
        return play

    def settle(self) -> None:
        super().settle()
        while self.flushes and self.flush():
            super().settle()

    def flush(self, *names: str) -> bool:
        """Makes journals durable, and says so; tells whether there was anything."""
        found = False
        for name in names or tuple(self.plays):
            play = self.journal(name)
            found |= play.durable < play.writer.next_sequence - 1
            play.flush()
        return found

    def crash(self, name: str) -> Journaled:
        """Kills a router, which lives on without connections."""
        self.lives += 1
        before = self.journal(name)
        for peer in before.peers.values():
            peer.is_lost = True
        wires = [wire for wire in self.wires if name in wire.ends]
        self.wires = [wire for wire in self.wires if wire not in wires]
        after = self.plays[name] = before.crash()
        for joint in [joint for wire in wires for joint in wire.joints]:
            if joint.play is not before:
                joint.lose()
        self.join(name, after, self.lives)
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
        kept = self.journal(name).remembered()
        return {key: attrs.evolve(each) for key, each in kept.items() if each.is_open}
