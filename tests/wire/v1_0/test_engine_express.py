"""Engines with the express lane between them: what the lane takes, what falls out, and in order."""

from itertools import count
from typing import Any

import attrs
import pytest

from router.model.commands import (
    AttachLink,
    CloseConnection,
    DetachLink,
    GrantCredit,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.condition import Condition
from router.model.events import (
    DeliveriesAdopted,
    DeliveriesReceived,
    DeliveriesUpdated,
    DeliveryContinued,
    Event,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import DeliveryNumber, LinkId, LinkName
from router.model.outcome import ACCEPTED, RELEASED, Rejected
from router.model.terminus import ReceiverSettleMode, Role, Source, Target
from router.wire.engine import EngineSettings
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.express import Express, Lane
from router.wire.v1_0.sections import AnnotatedMessage, Header, encode_message
from tests.support.kernel import make_kernel, needs_kernel
from tests.support.linked import BODY, deliveries

TTL = encode_message(AnnotatedMessage(header=Header(ttl_ms=1000), data=[b"body"]))
pytestmark = needs_kernel


@attrs.define(eq=False)
class Hop:
    """A connection: the router's engine, the peer's engine, and what both were told."""

    router: Engine10
    peer: Engine10
    peer_link: LinkId
    link: LinkId = attrs.field(init=False)
    events: list[Event] = attrs.field(factory=list)
    told: list[Event] = attrs.field(factory=list)


class World:
    """A peer that sends, a router with a lane, a peer that receives."""

    def __init__(self, *, second: bool = False, start: int = 0) -> None:
        self.express: Express = make_kernel()
        self.ids = map(LinkId, count(1))
        self.mode = ReceiverSettleMode(int(second))
        self.source = self._connect("sender", Role.SENDER, start)
        self.sink = self._connect("receiver", Role.RECEIVER, start)
        self.run()
        # The first delivery of a session tells where its ids begin; that is for the engine.
        self.source.router.execute(GrantCredit(self.source.link, 1))
        self.run()
        self.send(0)
        self.run()
        self.lane: Lane = self.express.open_lane(100)
        self.lane.add_outgoing(self.sink.link)
        self.lane.add_incoming(self.source.link)
        self.sink.peer.execute(GrantCredit(self.sink.peer_link, 50))
        self.run()
        for hop in (self.source, self.sink):
            hop.events.clear()
            hop.told.clear()

    def _connect(self, name: str, role: Role, start: int) -> Hop:
        settings = EngineSettings(is_server=True, container="router", link_ids=self.ids)
        router = Engine10(settings, self.express, initial_id=start)
        settings = attrs.evolve(settings, is_server=False, container=name)
        hop = Hop(router, Engine10(settings, initial_id=start), next(self.ids))
        self.hops = [*getattr(self, "hops", ()), hop]
        self.run()
        hop.peer.execute(
            AttachLink(
                link=hop.peer_link,
                name=LinkName("link"),
                role=role,
                source=Source(address="a"),
                target=Target(address="a"),
                receiver_settle_mode=self.mode,
            )
        )
        self.run()
        request = hop.events[-1]
        assert isinstance(request, LinkAttached)
        hop.link = request.link
        hop.router.execute(
            AttachLink(
                link=request.link,
                name=request.name,
                role=request.role,
                source=request.source,
                target=request.target,
                receiver_settle_mode=request.receiver_settle_mode,
            )
        )
        self.run()
        return hop

    def run(self) -> None:
        """Takes turns until nobody has anything to say."""
        is_moving = True
        while is_moving:
            is_moving = False
            for hop in self.hops:
                is_moving |= self._carry(hop.peer, hop.router, hop.events)
            self.express.end_turn()
            for hop in self.hops:
                is_moving |= self._carry(hop.router, hop.peer, hop.told)

    @staticmethod
    def _carry(source: Engine10, sink: Engine10, events: list[Event]) -> bool:
        octets = b""
        while len(shown := source.data_to_send()):
            octets += shown
            source.bytes_sent(len(shown))
        if octets:
            events += sink.receive_data(octets, 0.0)
        deadline = sink.deadline
        if deadline is not None and deadline <= 0.0:
            events += sink.handle_deadline(0.0)
        return bool(octets)

    def send(self, *numbers: int, **changes: Any) -> None:
        self.source.peer.execute(
            SendDeliveries(self.source.peer_link, deliveries(*numbers, **changes))
        )

    def received(self) -> list[Any]:
        """The deliveries that have reached the peer that receives."""
        return [
            each
            for event in self.sink.told
            if isinstance(event, DeliveriesReceived)
            for each in event.deliveries
        ]

    def update(self, *numbers: int, state: Any = ACCEPTED, settled: bool = True) -> None:
        mine = [self.received()[each].number for each in numbers]
        self.sink.peer.execute(UpdateDeliveries(self.sink.peer_link, mine, state, settled))
        self.run()


def outcomes(events: list[Event]) -> dict[int, Any]:
    return {
        number: (event.state, event.settled)
        for event in events
        if isinstance(event, DeliveriesUpdated)
        for number in event.numbers
    }


@pytest.mark.parametrize("start", [0, 300, 2**32 - 3])
def test_the_core_hears_nothing_of_what_the_lane_takes(start: int) -> None:
    world = World(start=start)
    for first in range(1, 200, 20):
        world.send(*range(first, first + 20))
        world.run()
        world.update(*range(first - 1, first + 19))
        world.sink.peer.execute(GrantCredit(world.sink.peer_link, 50))
        world.run()
    assert [each.payload for each in world.received()] == [BODY] * 200
    assert outcomes(world.source.told) == dict.fromkeys(range(1, 201), (ACCEPTED, True))
    assert world.source.events == []
    assert world.sink.events == []
    assert world.express.kept_octets == 0


def test_settling_second_goes_three_ways_on_the_lane() -> None:
    world = World(second=True)
    world.send(1, 2)
    world.run()
    world.update(0, 1, settled=False)
    assert outcomes(world.source.told) == dict.fromkeys((1, 2), (ACCEPTED, False))
    numbers = [DeliveryNumber(1), DeliveryNumber(2)]
    world.source.peer.execute(UpdateDeliveries(world.source.peer_link, numbers, ACCEPTED, True))
    world.run()
    assert [settled for _, settled in outcomes(world.sink.told).values()] == [True, True]
    assert world.source.events == world.sink.events == []


def test_nothing_passes_a_delivery_that_the_core_must_see_first() -> None:
    world = World()
    world.send(1, 2)
    world.send(3, payload=TTL)
    world.send(4, 5)
    world.run()
    assert len(world.received()) == 2
    (event,) = world.source.events
    assert isinstance(event, DeliveriesReceived)
    assert [bytes(each.tag) for each in event.deliveries] == [b"3", b"4", b"5"]
    assert event.deliveries[0].ttl_milliseconds == 1000
    world.send(6)
    world.run()
    assert len(world.received()) == 3  # the core has seen it: the lane goes on


def test_nothing_passes_the_parts_of_a_delivery_either() -> None:
    world = World()
    world.send(1, payload=BODY + bytes(3_000_000))  # more than a lane gathers
    world.send(2)
    world.run()
    kinds = [type(event) for event in world.source.events]
    assert set(kinds) <= {DeliveriesReceived, DeliveryContinued}
    tags = [
        bytes(each.tag)
        for event in world.source.events
        if isinstance(event, DeliveriesReceived)
        for each in event.deliveries
    ]
    assert tags == [b"1", b"2"]
    assert world.received() == []


def test_a_delivery_in_parts_goes_on_whole() -> None:
    world = World()
    payload = BODY + bytes(100_000)
    world.send(1, payload=payload)
    world.send(2)
    world.run()
    assert world.source.events == []
    assert [each.payload for each in world.received()] == [payload, BODY]


@pytest.mark.parametrize("state", [RELEASED, Rejected(Condition("x:no", "because"))])
def test_another_outcome_than_accepted_is_for_the_core(state: Any) -> None:
    world = World()
    world.send(1, 2, 3)
    world.run()
    world.update(1, state=state)
    adopted, updated = world.sink.events
    assert isinstance(adopted, DeliveriesAdopted)
    (pair,) = adopted.pairs
    assert (pair.incoming, pair.outgoing) == (world.source.link, world.sink.link)
    assert pair.delivery.payload == BODY
    assert updated == DeliveriesUpdated(world.sink.link, [pair.outgoing_number], state, True)
    world.source.router.execute(
        UpdateDeliveries(world.source.link, [pair.delivery.number], state, True)
    )
    world.run()
    assert outcomes(world.source.told) == {2: (state, True)}
    world.update(0, 2)
    assert outcomes(world.source.told) == {
        1: (ACCEPTED, True),
        2: (state, True),
        3: (ACCEPTED, True),
    }


@pytest.mark.parametrize("closed", [True, False])
def test_outcomes_of_the_turn_are_told_before_a_link_is_detached(closed: bool) -> None:
    world = World()
    world.send(1, 2)
    world.run()
    mine = [each.number for each in world.received()]
    world.sink.peer.execute(UpdateDeliveries(world.sink.peer_link, mine, ACCEPTED, True))
    world._carry(world.sink.peer, world.sink.router, world.sink.events)
    world.source.peer.execute(DetachLink(world.source.peer_link, closed))
    world.run()
    # the first delivery of all, which went by the general path, is not settled
    assert world.source.events == [LinkDetached(world.source.link, closed, is_numbered=not closed)]
    remains = world.lane.remove_incoming(world.source.link)
    assert remains.pairs == []
    if not closed:
        assert outcomes(world.source.told) == dict.fromkeys((1, 2), (ACCEPTED, True))


@pytest.mark.parametrize("hop", ["source", "sink"])
def test_what_a_lost_link_leaves_is_handed_to_the_core(hop: str) -> None:
    world = World()
    world.send(*range(60))
    world.run()
    lost: Hop = getattr(world, hop)
    lost.peer.execute(CloseConnection())
    world.run()
    if hop == "source":
        remains = world.lane.remove_incoming(world.source.link)
    else:
        remains = world.lane.remove_outgoing(world.sink.link)
    assert len(remains.pairs) == 50  # all that credit allowed
    assert {pair.delivery.payload for pair in remains.pairs} == {BODY}
    world.run()


def test_a_drain_and_an_echo_fall_out_and_are_answered() -> None:
    world = World()
    world.sink.peer.execute(GrantCredit(world.sink.peer_link, 50, drain=True))
    world.run()
    (event,) = world.sink.events
    assert getattr(event, "drain", False)
    world.send(1)
    world.run()
    assert len(world.received()) == 1
