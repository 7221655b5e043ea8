"""Several cores joined as the workers of one router are: by AMQP 1.0 engines, without sockets.

Each worker is a ``Play``, with clients and containers of its own. ``settle`` carries octets between
the engines until nobody has anything more to say.
"""

import itertools
from collections.abc import Collection, Iterable, Mapping
from typing import cast

import attrs

from router.core.homes import Homes
from router.core.policy import OPEN, Policy
from router.core.reach import sibling_name
from router.core.settings import ContainerTerms, CoreSettings
from router.model.commands import Command
from router.model.events import Event
from router.model.identity import ConnectionId
from router.net.siblings import make_sibling_engine
from router.routes.route import Route
from router.wire.engine import Engine, EngineSettings
from router.wire.v1_0.express import make_express
from tests.support.play import Peer, Play


@attrs.define(eq=False)
class Joint:
    """One end of a connection between two workers, or two routers."""

    play: Play
    id: ConnectionId
    engine: Engine
    commands: list[Command] = attrs.field(factory=list)
    is_lost: bool = False

    def execute(self, command: Command) -> None:
        """Carries out what the core orders."""
        self.commands.append(command)
        self.engine.execute(command)

    def take(self, octets: bytes) -> None:
        """Takes octets of the other end."""
        events = self.engine.receive_data(octets, self.play.now)
        while events:  # what follows them waits until the core knows them
            self.happens(events)
            events = self.engine.receive_data(b"", self.play.now)

    def lose(self) -> None:
        """The connection is gone, and the core hears of it."""
        self.is_lost = True
        self.play.carry_out(self.play.core.connection_lost(self.id, self.play.now))

    def happens(self, events: list[Event]) -> None:
        """Hands events to the core."""
        self.play.carry_out(self.play.core.handle(self.id, events, self.play.now))


class Fleet:
    """The workers of one router; ``fleet[1]`` is the first."""

    def __init__(
        self,
        workers: int,
        *routes: Route | str,
        owned: Iterable[Iterable[str]] = (),
        router_id: str = "dc1",
        policy: Policy = OPEN,
        terms: Mapping[str, ContainerTerms] | None = None,
        express: str = "off",
        are_spread: bool = False,
        settings: CoreSettings | None = None,
        make: type[Play] = Play,
    ) -> None:
        """Makes the workers and joins each with each.

        Args:
            workers: how many.
            routes: of their common configuration.
            owned: the containers that the first, the second, … is to dial.
            router_id: the router's name.
            policy: who may do what.
            terms: of the containers.
            are_spread: addresses of exactly-once routes have homes at all workers.
            express: ``cython`` or ``off``; nobody but engines' links can be on the express lane.
            settings: of each, but for its number.
            make: of what kind they are.
        """
        self.router_id = router_id
        self.express = {number: make_express(express) for number in range(1, workers + 1)}
        lots = itertools.chain(map(frozenset, owned), itertools.repeat(frozenset[str]()))
        self.plays = {
            number: make(
                *routes,
                settings=attrs.evolve(
                    settings or CoreSettings(router_id=router_id), worker=str(number)
                ),
                policy=policy,
                terms=terms,
                containers=lot,
                homes=Homes(own=number, workers=workers, are_spread=are_spread),
                express=self.express[number],
            )
            for number, lot in zip(range(1, workers + 1), lots, strict=False)
        }
        self.joints: dict[tuple[int, int], tuple[Joint, Joint]] = {}
        for one, other in itertools.combinations(self.plays, 2):
            self.join(one, other)
        for number in self.plays if are_spread else ():
            self.join(number, number)

    def __getitem__(self, number: int) -> Play:
        return self.plays[number]

    def join(self, one: int, other: int) -> None:
        """Joins two workers, as the supervisor does when one has come up, or one to itself."""
        ends = self._end(one, other, is_server=True), self._end(other, one, is_server=False)
        self.joints[one, other] = ends
        self.settle()

    def _end(self, number: int, other: int, *, is_server: bool) -> Joint:
        play = self.plays[number]
        settings = EngineSettings(
            is_server=is_server, container=self.router_id, link_ids=play.link_ids, idle_seconds=0
        )
        joint = Joint(
            play,
            ConnectionId(len(play.peers) + 1),
            make_sibling_engine(settings, number, self.express[number]),
        )
        play.peers[joint.id] = cast("Peer", joint)
        play.core.dialed(joint.id, sibling_name(other))
        return joint

    def cut(self, one: int, other: int) -> None:
        """Ends the connection between two workers without a word, as when one dies."""
        for joint in self.joints.pop((one, other)):
            play = joint.play
            play.carry_out(play.core.connection_lost(joint.id, play.now))
        self.settle()

    def settle(self) -> None:
        """Carries octets until nobody has anything more to say."""
        settle(self.joints.values())

    def carry(self, one: int, other: int) -> None:
        """Carries what one worker has said so far to another, and nothing back."""
        source, target = self.joints[min(one, other), max(one, other)]
        carry(*((source, target) if one < other else (target, source)))

    def wait(self, seconds: float) -> None:
        """Lets time pass for all of them."""
        for play in self.plays.values():
            play.wait(seconds)
        self.settle()


def settle(joints: Collection[tuple[Joint, Joint]]) -> None:
    """Carries octets between both ends of each until nobody has anything more to say."""
    busy = True
    while busy:
        busy = False
        for one, other in joints:
            busy |= wake(one) | wake(other)
            busy |= carry(one, other) | carry(other, one)


def wake(joint: Joint) -> bool:
    """Lets an engine tell what the core's orders have brought about."""
    due = joint.engine.deadline
    if due is None or due > joint.play.now:
        return False
    joint.happens(joint.engine.handle_deadline(joint.play.now))
    return True


def carry(source: Joint, target: Joint) -> bool:
    """Carries what an engine has said so far; tells whether there was anything."""
    octets = bytes(source.engine.data_to_send())
    if octets:
        source.engine.bytes_sent(len(octets))
        target.take(octets)
    return bool(octets)
