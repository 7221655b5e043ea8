"""Routers of a mesh, joined by AMQP 1.0 engines in virtual time, without sockets.

Each router is a ``Play`` of one worker, or a ``Fleet`` of several, of which the first has the
connections to other routers. Connections carry whatever is said at once; time passes
only in ``run``, for all routers together, from one deadline to the next.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import attrs

from router.core.mesh.control import Plan
from router.core.mesh.names import EDGE, edge_name, site_name
from router.core.settings import CoreSettings
from router.model.commands import SendDeliveries
from router.model.identity import ConnectionId
from router.routes.mesh.mesh import Settings
from router.routes.mesh.nouns import RouterId
from router.routes.mesh.policy import Policy
from router.routes.route import Route
from router.wire.engine import EngineSettings
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.express import Express, make_express
from tests.routes.mesh.simulator import notary_for
from tests.support.fleet import Fleet, Joint, settle
from tests.support.play import Peer, Play, ReceiverEnd, SenderEnd

Line = tuple[str, str, int]
"""A link: its ends and its cost."""


@attrs.define(eq=False)
class Wire:
    """A connection between two routers.

    Attributes:
        ends: the one that dialed, and the other.
        joints: their engines.
        is_silent: what is said on it arrives nowhere, and nobody hears of that.
        heard_at: until then what is said on it is on its way.
    """

    ends: tuple[str, str]
    joints: tuple[Joint, Joint]
    is_silent: bool = False
    heard_at: float = 0.0


class Sites:
    """A mesh of routers; ``sites["dc1"]`` is the play of one.

    Attributes:
        express: ``cython`` or ``off``; only transits go on the lane, as clients have no engine.
    """

    express = "off"

    def __init__(
        self,
        links: Iterable[Line],
        *routes: Route | str,
        advertise: Mapping[str, Sequence[str]] | None = None,
        others: Sequence[str] = ("#",),
        own_routes: Mapping[str, Sequence[Route | str]] | None = None,
        workers: int = 1,
        edges: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Makes the routers, has the first of each link dial the second, and lets 3 s pass.

        Args:
            links: pairs of routers, with the cost of the link.
            routes: of every router.
            advertise: of a router, the patterns that its site serves.
            others: what the policy of each lets others advertise.
            own_routes: of a router, instead of ``routes``.
            workers: how many each router has.
            edges: routers that are edges, each with its hubs; ``dial`` connects them.
        """
        self.costs: dict[str, dict[RouterId, int]] = {}
        lines = tuple(links)
        for one, other, cost in lines:
            self.costs.setdefault(one, {})[RouterId(other)] = cost
            self.costs.setdefault(other, {})[RouterId(one)] = cost
        self._edges = edges or {}
        self.costs.update({name: {} for name in self._edges})
        self._policy = Policy.parse({}, tuple(others))
        self._advertise = advertise or {}
        self._routes = {name: (own_routes or {}).get(name, routes) for name in self.costs}
        self._workers = workers
        self.fleets: dict[str, Fleet] = {}
        self.wires: list[Wire] = []
        self.joints: list[Joint] = []
        self._lanes: dict[str, Express | None] = {}
        self.plays = {name: self._make(name, 1) for name in self.costs}
        for one, other, _ in lines:
            self.dial(one, other)
        self.run(3.0)

    def __getitem__(self, router: str) -> Play:
        return self.plays[router]

    def _make(self, name: str, epoch: int) -> Play:
        play = self.make_play(name, *self._routes[name])
        self.join(name, play, epoch)
        return play

    def make_play(self, name: str, *routes: Route | str) -> Play:
        """Makes a router that is in no mesh yet; of several workers the first."""
        if self._workers > 1:
            fleet = Fleet(self._workers, *routes, router_id=name, express=self.express)
            self.fleets[name], self._lanes[name] = fleet, fleet.express[1]
            return fleet[1]
        self._lanes[name] = make_express(self.express)
        settings = CoreSettings(router_id=name)
        return Play(*routes, settings=settings, express=self._lanes[name])

    def join(self, name: str, play: Play, epoch: int) -> None:
        """Has a router join the mesh."""
        settings = Settings(
            router=RouterId(name),
            epoch=epoch,
            costs=self.costs[name],
            advertise=tuple(self._advertise.get(name, ())),
            policy=self._policy,
        )
        notary = notary_for(RouterId(name))
        uplinks = tuple(map(RouterId, self._edges.get(name, ())))
        plan = Plan(settings=settings, notary=notary, uplinks=uplinks)
        play.carry_out(play.core.join_mesh(plan, play.now))

    # Connections

    def dial(self, one: str, other: str) -> Wire:
        """Connects a router to another."""
        wire = Wire((one, other), (self._end(one, other), self._end(other, None)))
        self.wires.append(wire)
        self.settle()
        return wire

    def _end(self, name: str, dialed: str | None) -> Joint:
        play = self.plays[name]
        settings = EngineSettings(
            is_server=dialed is None,
            container=name,
            link_ids=play.link_ids,
            idle_seconds=0,
            is_router=True,
            is_mesh=True,
            peer_is_trusted_router=True,
            properties={EDGE: True} if name in self._edges else {},
        )
        joint = Joint(
            play, ConnectionId(len(play.peers) + 1), Engine10(settings, self._lanes.get(name))
        )
        play.peers[joint.id] = cast("Peer", joint)
        self.joints.append(joint)
        if dialed is not None:
            named = edge_name(dialed) if name in self._edges else site_name(dialed)
            play.core.dialed(joint.id, named)
        return joint

    def wire(self, one: str, other: str) -> Wire:
        """Gives the connection between two routers."""
        (found,) = (wire for wire in self.wires if set(wire.ends) == {one, other})
        return found

    def cut(self, one: str, other: str) -> None:
        """Ends a connection without a word, as when a cable is cut and both ends see it."""
        wire = self.wire(one, other)
        self.wires.remove(wire)
        for joint in wire.joints:
            joint.lose()
        self.settle()

    def silence(self, one: str, other: str) -> None:
        """Has what is said on a connection vanish."""
        self.wire(one, other).is_silent = True

    def slow(self, one: str, other: str, seconds: float) -> None:
        """Has what is said on a connection arrive later, once."""
        self.wire(one, other).heard_at = self[one].now + seconds

    def kill_home(self, name: str) -> None:
        """Ends the worker that has a router's connections, of two, and starts it again."""
        for wire in [wire for wire in self.wires if name in wire.ends]:
            self.cut(*wire.ends)
        fleet = self.fleets[name]
        fleet.cut(1, 2)
        fresh = Fleet(1, *self._routes[name], router_id=name)[1]
        fresh.now = fleet[2].now
        self.plays[name] = fleet.plays[1] = fresh

    def revive_home(self, name: str, epoch: int) -> None:
        """Has the new first worker join its sibling and the mesh; it has dialed nobody yet."""
        self.join(name, self.plays[name], epoch)
        self.fleets[name].join(1, 2)

    def kill(self, name: str) -> None:
        """Ends a router, and all its connections."""
        for wire in [wire for wire in self.wires if name in wire.ends]:
            self.cut(*wire.ends)

    def is_up(self, one: str, other: str) -> bool:
        """Tells whether both routers count a connection as theirs."""
        ids = (self[one].core.mesh.connections, self[other].core.mesh.connections)
        return RouterId(other) in ids[0] and RouterId(one) in ids[1]

    # Time

    def settle(self) -> None:
        """Carries octets until nobody has anything more to say."""
        now = next(iter(self.plays.values())).now
        heard = (wire for wire in self.wires if not wire.is_silent and wire.heard_at <= now)
        inside = (pair for fleet in self.fleets.values() for pair in fleet.joints.values())
        pairs = [*(wire.joints for wire in heard), *inside]
        settle(pairs)
        while self.express != "off":
            self._end_turns()
            if not any(len(joint.engine.data_to_send()) for pair in pairs for joint in pair):
                break
            settle(pairs)

    def _end_turns(self) -> None:
        """Has lanes write what they have."""
        for play in self._all:
            play.core.orders_done()
        lanes = [*self._lanes.values(), *(each.express[2] for each in self.fleets.values())]
        for lane in lanes:
            if lane is not None:
                lane.end_turn()

    @property
    def _all(self) -> list[Play]:
        """All workers of all routers."""
        several = [play for fleet in self.fleets.values() for play in fleet.plays.values()]
        return several or list(self.plays.values())

    def run(self, seconds: float) -> None:
        """Lets time pass for all routers."""
        until = next(iter(self.plays.values())).now + seconds
        while True:
            self.settle()
            deadlines = [play.core.deadline for play in self._all]
            due = min((each for each in deadlines if each is not None), default=until)
            for play in self._all:
                play.wait(max(0.0, min(due, until) - play.now))
            if due >= until:
                break
        self.settle()

    # Clients

    def worker(self, router: str, number: int) -> Play:
        """Gives one worker of a router."""
        return self[router] if number == 1 else self.fleets[router][number]

    def receiver(self, router: str, address: str, credit: int = 10, worker: int = 1) -> ReceiverEnd:
        """Attaches somebody who receives at a router, and lets the others learn of it."""
        peer = self.worker(router, worker).connect(f"receiver-{router}")
        receiver = peer.attach_receiver(address, credit=credit)
        self.run(0.5)
        return receiver

    def sender(self, router: str, address: str, worker: int = 1) -> SenderEnd:
        """Attaches somebody who sends at a router, and lets credit arrive."""
        sender = self.worker(router, worker).connect(f"sender-{router}").attach_sender(address)
        self.run(0.5)
        return sender

    def transfers(self, one: str, other: str) -> int:
        """Tells how many deliveries one router has sent another, those of the control plane too."""
        wire = self.wire(one, other)
        end = wire.joints[wire.ends.index(one)]
        sent = (each for each in end.commands if isinstance(each, SendDeliveries))
        return sum(len(each.deliveries) for each in sent)


def unreachable(play: Play) -> int:
    """Returns how many addresses of a router's worker have no way to a site."""
    return sum(route.unreachable for route in play.core.surveyor.survey(play.now).routes)
