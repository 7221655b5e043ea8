"""What a peer that calls itself a router says of its ways with a flow, true or not."""

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.model.commands import AdvertiseWays
from router.model.events import ConnectionClosed, CreditGranted, LinkDetached, WaysAdvertised
from router.model.identity import LinkId
from router.model.terminus import Role
from router.model.ways import (
    CREDIT_MOST,
    GAINS_MOST,
    STOP_CHARACTERS_MOST,
    STOPS_MOST,
    WAYS_MOST,
    Way,
)
from router.wire.v1_0.connection import TRACE
from router.wire.v1_0.flowing import GRANTED, TRACED, WAYS
from router.wire.v1_0.frames import frame
from router.wire.v1_0.performatives import Flow, encode
from router.wire.v1_0.types import Symbol, Uint, Ulong
from tests.support.amqp_values import values
from tests.support.peer import Peer

TWO = [[Ulong(1), "dc2#1"], [Ulong(0), "dc2#1", "dc3#1"]]


class Router:
    """A peer that receives, and says that it is a router."""

    def __init__(self) -> None:
        self.peer = Peer(is_router=True)
        self.peer.greet(offered_capabilities=(Symbol(TRACE),))
        self.peer.begin()
        self.peer.attach(Role.RECEIVER)
        self.link: LinkId = self.peer.answer()

    def tells(self, properties: Any) -> list[Any]:
        """Sends a flow with properties; returns what the core is told of it."""
        self.peer.flow(handle=0, delivery_count=0, link_credit=5, properties=properties)
        return self.peer.take_events()

    def ways(self, properties: Any) -> tuple[Way, ...]:
        """Returns the ways that a flow tells of."""
        (told,) = [each for each in self.tells(properties) if isinstance(each, WaysAdvertised)]
        return told.ways


def told(granted: object) -> list[int | None]:
    return [way.credit for way in Router().ways({WAYS: TWO, GRANTED: granted})]


def test_the_credit_of_ways_is_that_of_the_same_place() -> None:
    assert told([Uint(8), Uint(0)]) == [8, 0]
    assert told([None, Ulong(CREDIT_MOST)]) == [None, CREDIT_MOST]
    assert [way.credit for way in Router().ways({WAYS: TWO})] == [None, None]


@pytest.mark.parametrize(
    "granted",
    [None, True, "8", b"8", 8, {}, {Uint(0): Uint(1)}, [], [Uint(1)], [Uint(1)] * 3, [[], {}]],
)
def test_credit_that_is_no_list_of_as_many_numbers_is_as_if_not_told(granted: object) -> None:
    assert told(granted) == [None, None]


@pytest.mark.parametrize("value", [True, False, -1, CREDIT_MOST + 1, 1.5, "0", b"", [Uint(0)]])
def test_a_credit_that_is_none_is_as_if_not_told_and_the_others_count(value: object) -> None:
    assert told([value, Uint(4)]) == [None, 4]


@given(st.dictionaries(st.sampled_from([WAYS, GRANTED, TRACED]), values), values)
def test_no_properties_end_a_link_or_keep_its_credit_from_the_core(
    named: dict[Any, Any], granted: Any
) -> None:
    router = Router()
    for properties in (named, {**named, WAYS: TWO, GRANTED: granted}):
        events = router.tells(properties)
        assert not any(isinstance(each, ConnectionClosed | LinkDetached) for each in events)
        ways = [each.ways for each in events if isinstance(each, WaysAdvertised)]
        for way in ways[0] if ways else ():
            assert way.credit is None or 0 <= way.credit <= CREDIT_MOST
            assert way.stops
            assert all(isinstance(stop, str) for stop in way.stops)
        router.peer.flow(handle=0, delivery_count=0, link_credit=6)
        (credit,) = router.peer.take_events()
        assert isinstance(credit, CreditGranted)
        assert credit.credit == 6


def test_more_ways_and_stops_than_there_can_be_are_ignored() -> None:
    many = [[Ulong(0), f"dc{number}"] for number in range(WAYS_MOST + 1)]
    long = [[Ulong(0), *(f"dc{number}" for number in range(STOPS_MOST + 1))]]
    for ways in (many, long):
        events = Router().tells({WAYS: ways, GRANTED: [Uint(1)] * len(ways)})
        assert not any(isinstance(each, WaysAdvertised) for each in events)


@pytest.mark.parametrize("gains", [-1, Ulong(1 << 32), Ulong((1 << 64) - 1), "1", None])
def test_gains_that_could_not_be_passed_on_are_ignored(gains: object) -> None:
    events = Router().tells({WAYS: [[gains, "dc2#1"]]})
    assert not any(isinstance(each, WaysAdvertised) for each in events)


def test_a_stop_that_is_no_name_is_ignored() -> None:
    events = Router().tells({WAYS: [[Ulong(0), "x" * (STOP_CHARACTERS_MOST + 1)]]})
    assert not any(isinstance(each, WaysAdvertised) for each in events)


def advertised(*ways: Way, frame_octets: int = 512) -> Flow:
    """Returns the flow by which a router with small frames is told of ways."""
    peer = Peer(is_router=True)
    peer.greet(offered_capabilities=(Symbol(TRACE),), max_frame_size=frame_octets)
    peer.begin()
    peer.attach()
    link = peer.answer()
    peer.engine.execute(AdvertiseWays(link, ways, True))
    assert len(peer.engine.data_to_send()) <= frame_octets
    return peer.expect_one(Flow)


def test_of_ways_that_do_not_fit_the_peer_s_frames_the_longest_are_not_told() -> None:
    near, far = Way(("dc1#1",), 1, 4), Way(("dc1#1", "x" * STOP_CHARACTERS_MOST))
    assert (advertised(near, far).properties or {})[WAYS] == [[1, "dc1#1"]]
    assert WAYS not in (advertised(far).properties or {}), "or nobody would receive here"
    assert (advertised().properties or {})[WAYS] == []


def test_gains_and_credit_beyond_what_can_be_told_are_the_most_that_can() -> None:
    properties = advertised(Way(("dc1#1",), 1 << 70, 1 << 70)).properties or {}
    assert properties[WAYS] == [[GAINS_MOST, "dc1#1"]]
    assert properties[GRANTED] == [CREDIT_MOST]


def test_who_is_no_router_tells_of_no_ways() -> None:
    peer = Peer(is_router=True)
    peer.greet()
    peer.begin()
    peer.attach(Role.RECEIVER)
    peer.answer()
    peer.flow(handle=0, delivery_count=0, link_credit=5, properties={WAYS: TWO})
    assert isinstance(peer.take_event(CreditGranted), CreditGranted)


def test_ways_that_flap_leave_nothing_behind() -> None:
    router = Router()
    flows = b"".join(
        frame(
            0,
            encode(
                Flow(
                    next_incoming_id=0,
                    incoming_window=1000,
                    next_outgoing_id=0,
                    outgoing_window=1000,
                    handle=0,
                    delivery_count=0,
                    link_credit=5,
                    properties={WAYS: TWO, GRANTED: [Uint(number % 2), Uint(number)]},
                )
            ),
        )
        for number in range(100)
    )
    router.peer.send_octets(flows)
    router.peer.take_events()
    tracemalloc.start()
    try:
        for _ in range(50):
            router.peer.send_octets(flows)
            router.peer.take_events()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 1 << 20
