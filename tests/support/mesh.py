"""Several routers joined as they are over a network: by AMQP 1.0 engines, without sockets.

Each router is one worker or several (``Fleet``), and dials the others as its configuration would
have it: the worker that owns a container has a connection to some worker of the router that it is.
"""

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import cast

from router.model.commands import SendDeliveries
from router.model.identity import ConnectionId
from router.routes.route import Endpoint, Route
from router.wire.engine import EngineSettings, PeerTerms
from router.wire.v1_0.engine import Engine10
from tests.support.fleet import Fleet, Joint, carry, settle, wake
from tests.support.play import Peer, Play, ReceiverEnd, SenderEnd


class Mesh:
    """Routers by their ids; ``mesh["dc1"][1]`` is the first worker of one.

    Each router has a container for every other one, of the name of its id.

    Attributes:
        to_dial: connections that are still to be made: by which worker of which router to which.
    """

    def __init__(
        self,
        routes: Mapping[str, Sequence[Route]],
        *,
        workers: int = 1,
        is_trusted: bool = True,
        shift: int = 0,
        accepts: int | None = None,
        dials: bool = True,
        express: str = "off",
    ) -> None:
        """Makes the routers, and lets each dial all others.

        Args:
            routes: of each router.
            workers: how many each has.
            is_trusted: who dials in is believed to be a router of ours, as by a rule of the policy.
            shift: chooses which workers dial, and which ones accept.
            accepts: the same for those that accept alone.
            dials: all of them at once; else ``dial`` does, one by one.
            express: ``cython`` or ``off``.
        """
        self._workers = workers
        self._is_trusted = is_trusted
        self._accepting = itertools.count(shift if accepts is None else accepts)
        self._joints: list[tuple[Joint, Joint]] = []
        self.routers: dict[str, Fleet] = {}
        self.to_dial: list[tuple[str, int, str]] = []
        for place, (name, own) in enumerate(routes.items(), shift):
            owned: list[list[str]] = [[] for _ in range(workers)]
            for turn, other in enumerate(each for each in routes if each != name):
                number = (place + turn) % workers
                owned[number].append(other)
                self.to_dial.append((name, number + 1, other))
            self.routers[name] = Fleet(workers, *own, owned=owned, router_id=name, express=express)
        while dials and self.to_dial:
            self.dial()

    def __getitem__(self, name: str) -> Fleet:
        return self.routers[name]

    def dial(self) -> None:
        """Has the next worker dial another router, which hands it to one of its workers."""
        name, number, other = self.to_dial.pop(0)
        accepting = 1 + next(self._accepting) % self._workers
        near = self._end(name, number, dialed=other)
        self._joints.append((near, self._end(other, accepting, dialed=None)))
        self.settle()

    def _end(self, name: str, number: int, *, dialed: str | None) -> Joint:
        fleet = self.routers[name]
        play = fleet[number]
        terms = PeerTerms(is_router=self._is_trusted)
        settings = EngineSettings(
            is_server=dialed is None,
            container=name,
            link_ids=play.link_ids,
            idle_seconds=0,
            is_router=True,
            peer_is_trusted_router=dialed is not None,
            terms=(lambda user, vhost: terms) if dialed is None else None,
        )
        engine = Engine10(settings, fleet.express[number])
        joint = Joint(play, ConnectionId(len(play.peers) + 1), engine)
        play.peers[joint.id] = cast("Peer", joint)
        if dialed is not None:
            play.core.dialed(joint.id, dialed)
        return joint

    def client(self, router: str, worker: int) -> Play:
        """Joins somebody by engines, who has routes to it: his links can be on the express lane."""
        own = Fleet(1, Route(address="#", to=(Endpoint(router),)), owned=[[router]], router_id="me")
        ends: list[Joint] = []
        for play, other, lane in (
            (own[1], router, None),
            (self[router][worker], None, self[router].express[worker]),
        ):
            settings = EngineSettings(
                is_server=other is None,
                container=router if other is None else "me",
                link_ids=play.link_ids,
                idle_seconds=0,
                is_router=other is None,
            )
            joint = Joint(play, ConnectionId(len(play.peers) + 1), Engine10(settings, lane))
            play.peers[joint.id] = cast("Peer", joint)
            if other is not None:
                play.core.dialed(joint.id, other)
            ends.append(joint)
        self._joints.append((ends[0], ends[1]))
        self.settle()
        return own[1]

    def settle(self) -> None:
        """Carries octets until nobody has anything more to say, on the express lane, too."""
        settle(self._pairs())
        while self._end_turns():
            settle(self._pairs())

    def settle_but_one(self, dialed: int) -> None:
        """Does the same while nothing gets through on one connection, by its place in order."""
        held = self._joints[dialed]
        for _ in range(20):
            settle([pair for pair in self._pairs() if pair is not held])
            self._end_turns()

    def _end_turns(self) -> bool:
        """Ends the turns of all lanes; returns whether an engine has output from that."""
        for fleet in self.routers.values():
            for number, lane in fleet.express.items():
                if lane is not None:
                    fleet[number].core.orders_done()
                    lane.end_turn()
        ends = itertools.chain.from_iterable(self._pairs())
        return any(end.engine.data_to_send() for end in ends)

    def carry(self, chosen: random.Random, count: int) -> None:
        """Carries what some engines have said so far, chosen at random, one after the other."""
        pairs = self._pairs()
        for _ in range(count):
            source, target = chosen.sample(chosen.choice(pairs), 2)
            wake(source)
            carry(source, target)

    def _pairs(self) -> list[tuple[Joint, Joint]]:
        """Gives all connections between routers and between workers."""
        pairs = [*self._joints]
        for fleet in self.routers.values():
            pairs += fleet.joints.values()
        return pairs

    def wait(self, seconds: float) -> None:
        """Lets time pass for all of them."""
        for fleet in self.routers.values():
            for play in fleet.plays.values():
                play.wait(seconds)
        self.settle()

    def receiver(self, router: str, address: str, credit: int = 10, worker: int = 1) -> ReceiverEnd:
        """Attaches somebody who receives, at one worker of a router."""
        peer = self[router][worker].connect(f"receiver-at-{router}-{worker}")
        receiver = peer.attach_receiver(address, credit=credit)
        self.settle()
        return receiver

    def sender(self, router: str, address: str, worker: int = 1) -> SenderEnd:
        """Attaches somebody who sends, at one worker of a router."""
        sender = self[router][worker].connect(f"sender-at-{router}-{worker}").attach_sender(address)
        self.settle()
        return sender

    def transfers(self) -> int:
        """Tells how many deliveries have gone from router to router so far."""
        ends = itertools.chain.from_iterable(self._joints)
        commands = itertools.chain.from_iterable(end.commands for end in ends)
        return sum(len(each.deliveries) for each in commands if isinstance(each, SendDeliveries))
