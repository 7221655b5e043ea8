"""Peers that mean harm: the limit is named, and neither memory nor time grows with the flood."""

import gc
import itertools
import time
import tracemalloc
from typing import Any

import pytest

from router.core.core import Core
from router.core.policy import PeerLimits, Policy
from router.core.settings import CoreSettings
from router.model.condition import RESOURCE_LIMIT_EXCEEDED
from router.model.events import ConnectionClosed, ConnectionOpened
from router.model.identity import ConnectionId, LinkId
from router.model.outcome import ACCEPTED
from router.model.terminus import Role, Source, Target
from router.routes.route import Route
from router.routes.table import RoutingTable
from router.wire.engine import PeerTerms
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.frames import AMQP_HEADER, frame
from router.wire.v1_0.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    Flow,
    Open,
    decode,
    encode,
)
from tests.support.peer import Peer, settings

MEBI = 1 << 20


class Victim:
    """A core with one engine before it."""

    def __init__(self, **limits: int) -> None:
        links = map(LinkId, itertools.count(1))
        policy = Policy(limits=PeerLimits(**limits))
        routes = RoutingTable([Route(address="#")])
        self.core = Core(CoreSettings(router_id="dc1"), routes, links, policy=policy)
        self.engine = Engine10(settings(link_ids=links))
        self.answers: list[object] = []
        self.send_octets(AMQP_HEADER)
        self.send(
            Open(container_id="evil"),
            Begin(next_outgoing_id=0, incoming_window=1000, outgoing_window=1000),
        )

    def send(self, *performatives: Any) -> None:
        self.send_octets(b"".join(frame(0, encode(each)) for each in performatives))

    def send_octets(self, octets: bytes) -> None:
        events = self.engine.receive_data(octets, 1.0)
        while events:
            for _, command in self.core.handle(ConnectionId(1), events, 1.0):
                self.engine.execute(command)
            self.core.notices.take()
            events = self.engine.receive_data(b"", 1.0)
        while len(shown := self.engine.data_to_send()):
            count = len(shown)
            self.answers += _frames(bytes(shown))
            del shown
            self.engine.bytes_sent(count)


def _frames(octets: bytes) -> list[object]:
    """Reads whole frames; a header is left out."""
    found: list[object] = []
    at = 8 if octets.startswith(b"AMQP") else 0
    while at < len(octets):
        size = int.from_bytes(octets[at : at + 4], "big")
        if size > 8:
            found.append(decode(octets, at + 8, at + size)[0])
        at += size
    return found


def attach(handle: int, **fields: Any) -> Attach:
    return Attach(
        name=f"link {handle}",
        handle=handle,
        role=Role.SENDER,
        source=Source(address="a"),
        target=Target(address="a"),
        initial_delivery_count=0,
        **fields,
    )


def test_attaches_beyond_the_limit_are_refused_by_name_and_leave_nothing() -> None:
    victim = Victim(links_per_connection=50)
    for handle in range(50):
        victim.send(attach(handle))
    victim.send(attach(99))
    victim.send(Detach(99, True))
    tracemalloc.start()
    try:
        victim.answers.clear()
        for _ in range(2_000):
            victim.send(attach(99))
            victim.send(Detach(99, True))
        reasons = [
            each.error.description
            for each in victim.answers
            if isinstance(each, Detach) and each.error is not None
        ]
        victim.answers.clear()
        gc.collect()  # what waits for the next collection is not kept
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert reasons == ["limits.links_per_connection: 50"] * 2_000
    assert grown < MEBI


def test_a_flood_of_credit_changes_nothing_but_the_credit() -> None:
    victim = Victim()
    receiver = Attach(
        name="r",
        handle=0,
        role=Role.RECEIVER,
        source=Source(address="a"),
        target=Target(address="x"),
    )
    victim.send(receiver)
    flow = frame(
        0,
        encode(
            Flow(
                next_incoming_id=0,
                incoming_window=2**31,
                next_outgoing_id=0,
                outgoing_window=1,
                handle=0,
                delivery_count=0,
                link_credit=2**32 - 1,
            )
        ),
    )
    victim.send_octets(flow)
    tracemalloc.start()
    try:
        for _ in range(20):
            victim.send_octets(flow * 500)
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < MEBI


def test_a_disposition_of_all_numbers_costs_no_more_than_what_is_unsettled() -> None:
    victim = Victim()
    whole = frame(0, encode(Disposition(Role.RECEIVER, 0, 2**31 - 1, settled=True, state=ACCEPTED)))
    began = time.process_time()
    victim.send_octets(whole * 1_000)
    assert time.process_time() - began < 5.0  # walking one of the ranges takes minutes


@pytest.mark.parametrize(
    "properties",
    [
        b"\xd1\xff\xff\xff\xf0\x7f\xff\xff\xff",  # says that it has two thousand million entries
        b"\xc0\x03\x02" * 8_000,  # maps in maps
        b"\xf0\x00\x00\x00\x09\x7f\xff\xff\xff\x45",  # an array of empty lists without end
    ],
)
def test_maps_that_promise_more_than_they_hold_are_refused(properties: bytes) -> None:
    victim = Victim()
    fields = b"\xa1\x01l" + b"\x43" + b"\x41" + b"\x40" * 10 + properties
    body = b"\x00\x53\x12\xd0" + (len(fields) + 4).to_bytes(4, "big")
    body += (14).to_bytes(4, "big") + fields
    tracemalloc.start()
    try:
        victim.send_octets(frame(0, body))
        _, highest = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert highest < 4 * MEBI
    (close,) = [each for each in victim.answers if isinstance(each, Close)]
    assert close.error is not None


def test_one_connection_too_many_is_told_which_limit_it_met() -> None:
    victim = Victim(connections=0)
    (close,) = [each for each in victim.answers if isinstance(each, Close)]
    assert close.error is not None
    assert close.error.name == RESOURCE_LIMIT_EXCEEDED
    assert "limits.connections: 0" in (close.error.description or "")


def test_sessions_are_those_of_the_peers_rule_and_the_limit_is_named() -> None:
    peer = Peer(terms=lambda user, host: PeerTerms(sessions=2))
    peer.greet()
    for channel in range(3):
        peer.send(
            Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10), channel=channel
        )
    (closed,) = [each for each in peer.events if isinstance(each, ConnectionClosed)]
    assert closed.condition is not None
    assert "limits.sessions_per_connection: 2" in (closed.condition.description or "")


@pytest.mark.parametrize("is_router", [True, False])
def test_a_peer_is_a_router_if_its_rule_and_itself_say_so(is_router: bool) -> None:
    def terms(user: str | None, host: str | None) -> PeerTerms:
        return PeerTerms(is_router=is_router and host == "dc1")

    peer = Peer(terms=terms)
    peer.send_octets(AMQP_HEADER)
    peer.send(Open(container_id="dc2", hostname="dc1", properties={"product": "router"}))
    assert peer.take_event(ConnectionOpened).capabilities.is_router is is_router
