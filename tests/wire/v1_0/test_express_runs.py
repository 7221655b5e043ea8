"""Transfers that the kernel handles in runs come to the same as transfers one by one."""

from typing import Any

import pytest

from router.model.terminus import Role
from router.wire.v1_0.frames import frame
from router.wire.v1_0.performatives import Transfer, encode
from tests.support.kernel import make_kernel, needs_kernel
from tests.support.lane_world import (
    HEADER_DURABLE,
    HEADER_TTL,
    World,
    data_section,
    disposition,
    transfer,
)

pytestmark = needs_kernel

COUNTS = ("delivery_count", "credit", "allowance", "unsettled", "carried", "carried_octets")
"""Of a link."""

IDS = (
    "next_incoming_id",
    "incoming_window",
    "next_outgoing_id",
    "remote_incoming_window",
    "remote_outgoing_window",
    "next_incoming_delivery",
    "next_outgoing_delivery",
)
"""Of a session."""


def world(receivers: int = 1, *, credit: int = 500, window: int = 2048, first_id: int = 0) -> World:
    """One sender with two links, and receivers; the first link is on the lane."""
    made = World(make_kernel(), high_octets=20_000)
    made.connect(window=window, first_id=first_id)
    made.attach(0, Role.RECEIVER, credit=300)
    made.attach(0, Role.RECEIVER, credit=300)
    lanes = [made.open_lane(300), made.open_lane(300)]
    for _ in range(receivers + 1):
        made.attach(made.connect(window=window, first_id=first_id), Role.SENDER, credit=credit)
    for link, lane in ((0, 0), (1, 1), (2, 1), *((3 + each, 0) for each in range(receivers))):
        made.join(lanes[lane], link)
    made.end_turn()
    for connection in range(len(made.connections)):
        made.send(connection)
    return made


def usual(count: int, first: int = 0, **options: Any) -> list[bytes]:
    return [
        transfer(0, first + each, data_section(60 + each % 40), tag=b"12345678", **options)
        for each in range(count)
    ]


def odd(performative: Transfer, payload: bytes) -> bytes:
    return frame(0, encode(performative), payload)


def outcome(made: World, octets: list[bytes]) -> object:
    """Lets the sender send; returns everything that can be seen of it."""
    left: list[Any] = [each for part in octets for each in made.feed(0, part)]
    made.end_turn()
    sent = [made.send(each) for each in range(len(made.connections))]
    made.check("after the turn")
    links = [[getattr(link, name) for name in COUNTS] for link in made.links]
    sessions = [
        [getattr(each, name) for name in IDS]
        for connection in made.connections
        for each in connection.sessions.values()
    ]
    reasons = [reason for _, reason in left]
    return sent, links, sessions, reasons, made.express.kept_octets


PAYLOAD = data_section(90)

INTERRUPTIONS = {
    "nothing": [],
    "settled by the sender": [odd(Transfer(0, 20, b"12345678", 0, True), PAYLOAD)],
    "a longer tag": [odd(Transfer(0, 20, b"123456789", 0, False), PAYLOAD)],
    "no tag": [odd(Transfer(0, 20, None, 0, False), PAYLOAD)],
    "another id": [odd(Transfer(0, 25, b"12345678", 0, False), PAYLOAD)],
    "another link": [odd(Transfer(1, 20, b"12345678", 0, False), PAYLOAD)],
    "no such link": [odd(Transfer(9, 20, b"12345678", 0, False), PAYLOAD)],
    "more to come": [
        odd(Transfer(0, 20, b"12345678", 0, False, more=True), PAYLOAD),
        odd(Transfer(0, 20, b"12345678", 0, False), PAYLOAD),
    ],
    "aborted": [odd(Transfer(0, 20, b"12345678", 0, False, aborted=True), PAYLOAD)],
    "batchable": [odd(Transfer(0, 20, b"12345678", 0, False, batchable=True), PAYLOAD)],
    "a header with ttl": [odd(Transfer(0, 20, b"12345678", 0, False), HEADER_TTL + PAYLOAD)],
    "a header": [odd(Transfer(0, 20, b"12345678", 0, False), HEADER_DURABLE + PAYLOAD)],
    "no sections": [odd(Transfer(0, 20, b"12345678", 0, False), b"x" * 90)],
    "no payload": [odd(Transfer(0, 20, b"12345678", 0, False), b"")],
    "a small one": [odd(Transfer(0, 20, b"12345678", 0, False), data_section(1))],
    "a large one": [odd(Transfer(0, 20, b"12345678", 0, False), data_section(60_000))],
}


@pytest.mark.parametrize("interruption", INTERRUPTIONS)
@pytest.mark.parametrize("receivers", [1, 2])
def test_a_run_ends_where_a_transfer_differs(interruption: str, receivers: int) -> None:
    octets = [*usual(20), *INTERRUPTIONS[interruption], *usual(20, 21)]
    whole, single = world(receivers), world(receivers)
    assert outcome(whole, [b"".join(octets)]) == outcome(single, octets)


@pytest.mark.parametrize("first_id", [0, 250, 0xFFFF_FFF0])
def test_a_run_passes_the_borders_of_ids(first_id: int) -> None:
    octets = [
        transfer(0, (first_id + each) & 0xFFFF_FFFF, PAYLOAD, tag=b"1") for each in range(100)
    ]
    whole, single = world(first_id=first_id), world(first_id=first_id)
    assert outcome(whole, [b"".join(octets)]) == outcome(single, octets)


@pytest.mark.parametrize(
    ("credit", "window", "count", "carried"),
    [(0, 2048, 30, 0), (7, 2048, 30, 7), (500, 12, 12, 12), (500, 2048, 290, 185)],
)
def test_a_run_heeds_credit_window_and_a_full_output(
    credit: int, window: int, count: int, carried: int
) -> None:
    octets = usual(count)
    whole, single = (world(credit=credit, window=window) for _ in range(2))
    assert outcome(whole, [b"".join(octets)]) == outcome(single, octets)
    assert whole.links[3].carried == carried


@pytest.mark.parametrize("cut", [1, 13, 40, 80])
def test_a_run_stops_before_a_transfer_that_is_incomplete(cut: int) -> None:
    octets = b"".join(usual(10))
    made = world()
    at = made.express.feed(made.connections[0], octets[:-cut], 0, len(octets) - cut)
    assert at == sum(map(len, usual(9)))
    assert made.links[0].carried == 9


def test_outcomes_of_a_run_are_passed_on_as_one_range() -> None:
    made = world()
    assert made.feed(0, b"".join(usual(40))) == []
    made.end_turn()
    for connection in (0, 2):
        made.send(connection)
    assert made.feed(2, disposition(Role.RECEIVER, 0, 39)) == []
    made.end_turn()
    assert disposition(Role.RECEIVER, 0, 39, channel=5) in made.send(0)
    assert made.links[0].unsettled == made.links[3].unsettled == 0
    assert made.links[0].accepted == made.links[3].accepted == 40
    assert made.express.kept_octets == 0
