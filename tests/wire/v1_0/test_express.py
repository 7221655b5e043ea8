"""What the kernel of the express lane takes, what it leaves, and what it writes."""

from collections.abc import Iterator
from typing import Any

import pytest

from router.errors import MisuseError
from router.links.credit import grant
from router.model.delivery import ReceivedDelivery
from router.model.identity import DeliveryNumber, LinkId
from router.model.lane import LanePair, Remains
from router.model.outcome import ACCEPTED, RELEASED
from router.model.serial import MASK
from router.model.terminus import ReceiverSettleMode, Role
from router.routes.distribution import share
from router.wire.v1_0 import state
from router.wire.v1_0.express import describe, make_express
from router.wire.v1_0.frames import frame
from router.wire.v1_0.performatives import (
    Disposition,
    Flow,
    Performative,
    SaslPerformative,
    Transfer,
    decode,
    encode,
    encode_disposition,
    encode_flow,
    encode_transfer,
)
from tests.support.balanced import balanced
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

ANNOTATIONS = b"\x00\x53\x71\xc1\x05\x02\xa3\x01x\x43"
"""Delivery annotations with one entry (§3.2.2)."""

SENDER, RECEIVER = 0, 1
"""In a pair: connections and links of the peer that sends and of the one that receives."""


def pair(*, first_id: int = 0, credit: int = 1000, second: bool = False) -> World:
    """One sender, one receiver, one lane, credit given all the way."""
    world = World(make_kernel())
    for role in (Role.RECEIVER, Role.SENDER):
        connection = world.connect(window=100_000, first_id=first_id)
        world.attach(connection, role, second=second)
    world.open_lane(credit=100_000)
    world.join(world.open_lane(credit=100_000), SENDER)
    world.join(1, RECEIVER)
    grant_credit(world, RECEIVER, credit)
    turn(world)
    return world


def grant_credit(world: World, link: int, credit: int) -> None:
    """Lets a receiver give credit."""
    state = world.links[link]
    session = state.session
    handle = next(key for key, each in session.links.items() if each is state)
    flow = Flow(
        session.next_outgoing_id,
        session.remote_incoming_window,
        session.next_incoming_id,
        2048,
        handle,
        state.delivery_count,
        credit,
    )
    assert world.feed(session.connection.owner, frame(0, encode(flow))) == []


def turn(world: World) -> dict[int, bytes]:
    """Ends the turn and sends everything; what each connection got."""
    world.end_turn()
    return {index: world.send(index) for index in range(len(world.connections))}


def frames(octets: bytes) -> Iterator[tuple[Performative | SaslPerformative, bytes]]:
    """Reads frames back: performative and payload."""
    at = 0
    while at < len(octets):
        end = at + int.from_bytes(octets[at : at + 4], "big")
        performative, payload_at = decode(octets, at + 8, end)
        yield performative, octets[payload_at:end]
        at = end


def performatives(octets: bytes) -> list[Performative | SaslPerformative]:
    return [performative for performative, _ in frames(octets)]


def many(count: int, first: int = 0, **options: Any) -> bytes:
    return b"".join(
        transfer(0, (first + each) & MASK, data_section(each % 300), **options)
        for each in range(count)
    )


# --- transfers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("first_id", [0, 250, MASK - 5])
def test_deliveries_go_on_with_ids_and_tags_of_their_own(first_id: int) -> None:
    world = pair(first_id=first_id)
    world.links[RECEIVER].session.next_outgoing_delivery = first_id
    assert world.feed(SENDER, many(20, first_id, tag=b"theirs")) == []
    expected = b"".join(
        frame(
            5,
            encode_transfer(
                3, (first_id + each) & MASK, (0x8000_0000 + each).to_bytes(4, "big"), 0
            ),
            data_section(each),
        )
        for each in range(20)
    )
    assert turn(world)[RECEIVER] == expected


@pytest.mark.parametrize("handle", [0, 7, 255, 256, 70_000])
def test_handles_of_any_size_are_written(handle: int) -> None:
    world = World(make_kernel())
    for role in (Role.RECEIVER, Role.SENDER):
        world.attach(world.connect(first_id=300), role)
    world.links[RECEIVER].handle = handle
    lane = world.open_lane()
    world.join(lane, SENDER)
    world.join(lane, RECEIVER)
    grant_credit(world, RECEIVER, 10)
    turn(world)
    assert world.feed(SENDER, transfer(0, 300, data_section(5), settled=True)) == []
    body = encode_transfer(handle, 300, b"\x80\0\0\0", 0)
    assert turn(world)[RECEIVER] == frame(5, body, data_section(5))


@pytest.mark.parametrize("payload", [data_section(400), HEADER_DURABLE + data_section(1)])
def test_payload_goes_on_unchanged(payload: bytes) -> None:
    world = pair()
    octets = b"".join(transfer(0, each, payload) for each in range(30))
    assert world.feed(SENDER, octets) == []
    assert [found for _, found in frames(turn(world)[RECEIVER])] == [payload] * 30


@pytest.mark.parametrize(
    "octets",
    [
        transfer(0, 0, HEADER_TTL + data_section(5)),
        transfer(0, 0, ANNOTATIONS + data_section(5)),
        transfer(0, 0, HEADER_DURABLE + ANNOTATIONS + data_section(5)),
        transfer(0, 0, b"\x00\x53\x70\x45" + ANNOTATIONS + data_section(5)),
        transfer(0, 0, HEADER_DURABLE),
        transfer(0, 0, b""),
        transfer(0, 0, b"\x00\x53\x24\x45"),
        frame(0, encode(Transfer(0, 0, b"t", 1, False)), data_section(5)),
        frame(0, encode(Transfer(0, 0, b"t", 0, False, state=RELEASED)), data_section(5)),
        frame(0, encode(Transfer(0, 0, b"t", 0, False, resume=True)), data_section(5)),
        frame(0, encode(Transfer(0, 0, b"t", 0, False, aborted=True)), data_section(5)),
        frame(
            0,
            encode(Transfer(0, 0, b"t", 0, False, rcv_settle_mode=ReceiverSettleMode.SECOND)),
            data_section(5),
        ),
        transfer(0, 1, data_section(5)),
        transfer(1, 0, data_section(5)),
        transfer(0, 0, data_section(5), channel=1),
        transfer(0, 0, data_section(70_000)),
        frame(0, b"\x00\x53\x14\xc0\x04\x03\x43\x43\x40", data_section(5)),
        frame(0, b"\x00\x53\x14\xc0\xf0\x05\x43\x43\xa0\x01t\x43\x42", data_section(5)),
        frame(0, b"\x00\x53\x14\xd0\xff\xff\xff\xff\x00\x00\x00\x05\x43\x43", data_section(5)),
    ],
    ids=[
        "ttl",
        "annotations",
        "annotations-behind-a-header",
        "annotations-behind-an-empty-header",
        "header-alone",
        "empty",
        "no-section",
        "format",
        "state",
        "resume",
        "aborted",
        "second",
        "id",
        "handle",
        "channel",
        "large",
        "short",
        "long",
        "huge",
    ],
)
def test_an_unusual_transfer_is_left_alone(octets: bytes) -> None:
    world = pair()
    connection = world.connections[SENDER]
    assert world.express.feed(connection, octets, 0, len(octets)) == 0
    assert world.links[SENDER].carried == 0


@pytest.mark.parametrize("header", [b"", HEADER_DURABLE])
def test_annotations_are_seen_behind_any_number_of_messages_without(header: bytes) -> None:
    world = pair(first_id=300)
    connection = world.connections[SENDER]
    plain = b"".join(transfer(0, 300 + each, header + data_section(5)) for each in range(20))
    annotated = transfer(0, 320, header + ANNOTATIONS + data_section(5))
    octets = plain + annotated
    assert world.express.feed(connection, octets, 0, len(octets)) == len(plain)


def test_nothing_behind_a_frame_that_was_left_is_taken_before_it() -> None:
    world = pair()
    usual = many(3)
    octets = usual + transfer(0, 3, HEADER_TTL + data_section(5)) + many(5, 4)
    assert world.express.feed(world.connections[SENDER], octets, 0, len(octets)) == len(usual)
    assert world.links[SENDER].carried == 3


@pytest.mark.parametrize("cut", [1, 7, 11, 40])
def test_an_incomplete_frame_waits_for_its_rest(cut: int) -> None:
    world = pair()
    octets = many(3) + transfer(0, 3, data_section(100))
    whole = len(many(3))
    connection = world.connections[SENDER]
    assert world.express.feed(connection, octets, 0, whole + cut) == whole
    assert world.express.feed(connection, octets, whole, len(octets)) == len(octets)
    assert world.links[SENDER].carried == 4


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_octets_are_read_from_any_buffer(kind: type) -> None:
    world = pair()
    octets = kind(b"before" + many(3) + b"behind")
    end = len(octets) - 6
    assert world.express.feed(world.connections[SENDER], octets, 6, end) == end


def test_transfers_beyond_credit_and_window_are_left_to_be_judged() -> None:
    world = pair(credit=3)
    octets = many(5)
    assert world.express.feed(world.connections[SENDER], octets, 0, len(octets)) == len(many(3))
    world.links[SENDER].credit = 10
    world.links[SENDER].session.incoming_window = 1
    rest = many(2, 3)
    assert world.express.feed(world.connections[SENDER], rest, 0, len(rest)) == len(many(1, 3))


@pytest.mark.parametrize("attribute", ["in_progress", "is_open"])
def test_a_link_that_is_busy_or_closing_is_left_alone(attribute: str) -> None:
    world = pair()
    link = world.links[SENDER]
    setattr(link, attribute, not getattr(link, attribute))
    octets = many(1)
    assert world.express.feed(world.connections[SENDER], octets, 0, len(octets)) == 0


def test_a_connection_without_lanes_costs_nothing_and_keeps_its_frames() -> None:
    world = pair()
    world.leave(SENDER)
    octets = many(1)
    assert world.express.feed(world.connections[SENDER], octets, 0, len(octets)) == 0


def towards(mode: int, *, only_settled: bool = False) -> World:
    """A lane from one sender to one receiver of a settle mode."""
    world = World(make_kernel())
    world.attach(world.connect(), Role.RECEIVER)
    world.attach(world.connect(), Role.SENDER, credit=10, mode=mode)
    lane = world.open_lane(only_settled=only_settled)
    world.join(lane, SENDER)
    world.join(lane, RECEIVER)
    turn(world)
    return world


@pytest.mark.parametrize(("mode", "only_settled"), [(1, False), (1, True), (2, True)])
def test_settled_deliveries_go_on_settled_to_those_that_want_it_or_if_nobody_may_ask_for_more(
    mode: int, only_settled: bool
) -> None:
    world = towards(mode, only_settled=only_settled)
    assert world.feed(SENDER, many(5, settled=True)) == []
    assert all(found.settled for found in performatives(turn(world)[RECEIVER]))  # type: ignore[union-attr]
    assert world.links[RECEIVER].settled == 5
    assert world.express.kept_octets == 0


@pytest.mark.parametrize("mode", [0, 2])
def test_settled_deliveries_go_on_unsettled_and_are_kept_until_they_are_accepted(mode: int) -> None:
    world = towards(mode)
    assert world.feed(SENDER, many(5, settled=True)) == []
    assert not any(found.settled for found in performatives(turn(world)[RECEIVER]))  # type: ignore[union-attr]
    assert world.links[RECEIVER].unsettled == 5
    assert world.links[SENDER].unsettled == 0
    assert world.express.kept_octets > 0
    assert world.feed(RECEIVER, disposition(Role.RECEIVER, 0, 4)) == []
    told = performatives(turn(world)[SENDER])
    assert not any(isinstance(found, Disposition) for found in told)
    assert world.links[RECEIVER].unsettled == world.express.kept_octets == 0


def test_a_receiver_that_does_not_settle_what_came_settled_is_settled_for() -> None:
    world = towards(2)
    world.feed(SENDER, many(3, settled=True))
    turn(world)
    assert world.feed(RECEIVER, disposition(Role.RECEIVER, 0, 2, settled=False)) == []
    (found,) = performatives(turn(world)[RECEIVER])
    assert isinstance(found, Disposition)
    assert (found.role, found.first, found.last, found.settled) == (Role.SENDER, 0, 2, True)


@pytest.mark.parametrize("leaving", [SENDER, RECEIVER])
def test_what_came_settled_is_given_up_with_either_link_and_is_still_settled(leaving: int) -> None:
    world = towards(2)
    world.feed(SENDER, many(3, settled=True))
    turn(world)
    remains = world.leave(leaving)
    assert isinstance(remains, Remains)
    assert [pair.delivery.settled for pair in remains.pairs] == [True] * 3
    assert [pair.delivery.payload for pair in remains.pairs] == [data_section(n) for n in range(3)]
    assert world.express.kept_octets == 0
    assert not world.links[SENDER].session.incoming


def test_what_came_settled_and_is_not_accepted_is_for_the_core() -> None:
    world = towards(2)
    world.feed(SENDER, many(3, settled=True))
    turn(world)
    released: Any = world.feed(RECEIVER, disposition(Role.RECEIVER, 1, 1, state=RELEASED))
    ((_, (found,)),) = released
    assert isinstance(found, LanePair)
    assert found.delivery.settled
    assert found.delivery.number == 1
    assert world.links[RECEIVER].unsettled == 2


@pytest.mark.parametrize(
    ("mode", "settled", "only_settled"), [(0, True, True), (1, False, False), (2, False, True)]
)
def test_a_receiver_is_not_sent_what_its_settle_mode_excludes(
    mode: int, settled: bool, only_settled: bool
) -> None:
    world = towards(mode, only_settled=only_settled)
    octets = transfer(0, 0, data_section(5), settled=settled)
    assert world.express.feed(world.connections[SENDER], octets, 0, len(octets)) == 0


# --- deliveries in parts --------------------------------------------------------------------------


def parts(payload: bytes, size: int, delivery_id: int = 0, settled: bool = False) -> list[bytes]:
    """Transfers of one delivery, each with up to ``size`` octets of its payload."""
    pieces = [payload[at : at + size] for at in range(0, len(payload), size)]
    last = len(pieces) - 1
    first = transfer(0, delivery_id, pieces[0], settled=settled, more=last > 0)
    rest = [
        frame(0, encode_transfer(0, more=each < last), piece)
        for each, piece in enumerate(pieces)
        if each
    ]
    return [first, *rest]


def whole(octets: bytes) -> list[bytes]:
    """Puts the payloads of deliveries together again."""
    found: list[bytes] = []
    is_partial = False
    for performative, payload in frames(octets):
        assert isinstance(performative, Transfer)
        if is_partial:
            found[-1] += payload
        else:
            found.append(payload)
        is_partial = performative.more
    return found


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize(("octets", "size"), [(200_000, 65_000), (500, 100), (66_000, 400)])
def test_a_delivery_in_parts_goes_on_when_it_is_whole(
    octets: int, size: int, settled: bool
) -> None:
    world = pair()
    payload = data_section(octets)
    *most, last = parts(payload, size, settled=settled)
    assert world.feed(SENDER, b"".join(most)) == []
    assert turn(world)[RECEIVER] == b""
    assert world.express.kept_octets == len(payload) - (len(payload) % size or size)
    assert world.feed(SENDER, last + transfer(0, 1, data_section(7))) == []
    assert whole(turn(world)[RECEIVER]) == [payload, data_section(7)]
    world.feed(RECEIVER, disposition(Role.RECEIVER, 0, 1))
    turn(world)
    assert world.express.kept_octets == world.links[SENDER].unsettled == 0
    statistics = world.lanes[1].statistics(LinkId(1))
    assert (statistics.deliveries, statistics.octets) == (2, len(payload) + 12)


def test_a_large_frame_is_split_for_a_receiver_of_small_ones() -> None:
    world = World(make_kernel())
    world.attach(world.connect(), Role.RECEIVER)
    small = world.connect()
    world.connections[small].max_frame_octets = 512
    world.attach(small, Role.SENDER)
    lane = world.open_lane(credit=100)
    world.join(lane, SENDER)
    world.join(lane, RECEIVER)
    grant_credit(world, RECEIVER, 10)
    turn(world)
    payload = data_section(2000)
    assert world.feed(SENDER, transfer(0, 0, payload) + transfer(0, 1, data_section(20_000))) != []
    sent = turn(world)[RECEIVER]
    assert whole(sent) == [payload]
    at = 0
    while at < len(sent):
        size = int.from_bytes(sent[at : at + 4], "big")
        assert size <= 512
        at += size


def test_a_delivery_in_parts_waits_for_credit_and_for_window() -> None:
    world = pair(credit=1)
    world.links[SENDER].credit = 10
    payload = data_section(200_000)
    assert world.feed(SENDER, transfer(0, 0, data_section(1))) == []
    assert world.feed(SENDER, b"".join(parts(payload, 60_000, 1))) == []
    session = world.links[RECEIVER].session
    session.remote_incoming_window = 3
    grant_credit(world, RECEIVER, 5)
    assert whole(turn(world)[RECEIVER]) == [data_section(1)]
    flow = Flow(session.next_outgoing_id, 100, session.next_incoming_id, 0)
    assert world.feed(RECEIVER, frame(0, encode(flow))) == []
    assert whole(turn(world)[RECEIVER]) == [payload]


@pytest.mark.parametrize(
    "octets",
    [
        frame(0, encode(Transfer(0, aborted=True))),
        frame(0, encode(Transfer(0, 5, more=True)), b"x"),
        frame(0, encode(Transfer(0, delivery_tag=b"other")), b"x"),
        frame(0, encode(Transfer(0, settled=True)), b"x"),
        frame(0, encode(Transfer(0, state=RELEASED)), b"x"),
        frame(0, b"\x00\x53\x14\xc0\x04\x03\x43\x43\x44", b"x"),
        transfer(3, 1, b"x"),
    ],
    ids=["aborted", "id", "tag", "settled", "state", "unreadable", "handle"],
)
def test_a_delivery_whose_next_part_is_unusual_becomes_the_engines(octets: bytes) -> None:
    world = pair()
    first, second, *_ = parts(data_section(300), 100)
    assert world.feed(SENDER, first + second) == []
    connection = world.connections[SENDER]
    assert world.express.feed(connection, octets, 0, len(octets)) == 0
    payload = data_section(300)[:200]
    adopted = world.links[SENDER].session.owner.adopted
    assert adopted == [("part", 1, 0, b"tag", False, False, payload)]
    assert world.express.kept_octets == 0
    assert world.links[SENDER].credit == 999


def test_a_delivery_that_grows_too_large_becomes_the_engines() -> None:
    world = pair()
    payload = data_section(3_000_000)
    left = world.feed(SENDER, b"".join(parts(payload, 60_000)))
    assert left
    (adopted,) = world.links[SENDER].session.owner.adopted
    assert adopted[0] == "part"
    assert payload.startswith(adopted[-1])


@pytest.mark.parametrize("is_open", [True, False])
def test_a_link_that_leaves_in_the_middle_of_a_delivery_gives_it_to_the_engine(
    is_open: bool,
) -> None:
    world = pair()
    assert world.feed(SENDER, parts(data_section(300), 100)[0]) == []
    if not is_open:
        world.express.forget(world.links[SENDER])
    world.leave(SENDER)
    assert len(world.links[SENDER].session.owner.adopted) == is_open
    assert world.express.kept_octets == 0


def test_an_evicted_delivery_in_parts_comes_back_whole() -> None:
    world = pair()
    payload = data_section(150_000)
    world.feed(SENDER, b"".join(parts(payload, 60_000)))
    (found,) = world.express.evict(world.links[RECEIVER].session, True, 0, 0)
    assert found.delivery.payload == payload


# --- outcomes -------------------------------------------------------------------------------------


def test_acceptance_returns_as_one_range() -> None:
    world = pair()
    world.feed(SENDER, many(50))
    turn(world)
    for first, last in ((30, 49), (0, 9), (10, 29)):
        assert world.feed(RECEIVER, disposition(Role.RECEIVER, first, last)) == []
    sent = turn(world)
    expected = encode_disposition(Role.RECEIVER, 0, 49, True, ACCEPTED)
    assert sent[SENDER].startswith(frame(5, expected))
    assert sent[RECEIVER] == b""
    assert world.links[SENDER].unsettled == world.links[RECEIVER].unsettled == 0
    assert world.express.kept_octets == 0


def test_gaps_between_outcomes_stay_gaps() -> None:
    world = pair()
    world.feed(SENDER, many(10))
    for each in (8, 1, 2, 5):
        world.feed(RECEIVER, disposition(Role.RECEIVER, each))
    found = [each for each in performatives(turn(world)[SENDER]) if isinstance(each, Disposition)]
    assert [(each.first, each.last) for each in found] == [(1, 2), (5, None), (8, None)]


def test_ranges_run_over_the_end_of_the_numbers() -> None:
    world = pair(first_id=MASK - 2)
    world.feed(SENDER, many(10, MASK - 2))
    for first, last in ((2, 6), (MASK - 2, 1)):
        assert world.feed(RECEIVER, disposition(Role.RECEIVER, first, last)) == []
    (found,) = performatives(turn(world)[SENDER])
    assert found == Disposition(Role.RECEIVER, MASK - 2, 6, True, ACCEPTED)


def test_a_range_beyond_what_is_unsettled_is_cut() -> None:
    world = pair()
    world.feed(SENDER, many(10))
    assert world.feed(RECEIVER, disposition(Role.RECEIVER, MASK - 5, 0x7FFF_FFF0)) == []
    (found,) = performatives(turn(world)[SENDER])
    assert found == Disposition(Role.RECEIVER, 0, 9, True, ACCEPTED)
    assert world.feed(RECEIVER, disposition(Role.RECEIVER, 0, 9)) == []
    assert turn(world)[SENDER] == b""


def test_a_receiver_that_does_not_settle_is_settled_back() -> None:
    world = pair()
    world.feed(SENDER, many(5))
    turn(world)
    world.feed(RECEIVER, disposition(Role.RECEIVER, 0, 4, settled=False))
    sent = turn(world)
    assert performatives(sent[SENDER]) == [Disposition(Role.RECEIVER, 0, 4, True, ACCEPTED)]
    assert performatives(sent[RECEIVER]) == [Disposition(Role.SENDER, 0, 4, True, ACCEPTED)]


def test_settling_second_takes_three_steps() -> None:
    world = pair(second=True)
    world.feed(SENDER, many(5))
    turn(world)
    world.feed(RECEIVER, disposition(Role.RECEIVER, 0, 4, settled=False))
    world.feed(RECEIVER, disposition(Role.RECEIVER, 0, 4, settled=False))
    sent = turn(world)
    assert performatives(sent[SENDER]) == [Disposition(Role.RECEIVER, 0, 4, False, ACCEPTED)]
    assert sent[RECEIVER] == b""
    assert world.feed(SENDER, disposition(Role.SENDER, 0, 4, state=None)) == []
    sent = turn(world)
    assert sent[SENDER] == b""
    assert performatives(sent[RECEIVER]) == [Disposition(Role.SENDER, 0, 4, True, ACCEPTED)]
    assert world.links[SENDER].unsettled == world.express.kept_octets == 0


def test_a_receiver_that_settles_too_early_leaves_the_sender_its_turn() -> None:
    world = pair(second=True)
    world.feed(SENDER, many(2))
    turn(world)
    world.feed(RECEIVER, disposition(Role.RECEIVER, 0, 1))
    assert performatives(turn(world)[SENDER]) == [Disposition(Role.RECEIVER, 0, 1, False, ACCEPTED)]
    assert (world.links[SENDER].unsettled, world.links[RECEIVER].unsettled) == (2, 0)
    assert world.feed(SENDER, disposition(Role.SENDER, 0, 1)) == []
    assert turn(world)[RECEIVER] == b""
    assert world.links[SENDER].unsettled == 0


@pytest.mark.parametrize(
    "octets",
    [
        disposition(Role.RECEIVER, 0, 4, state=RELEASED),
        disposition(Role.RECEIVER, 0, 4, state=None),
        disposition(Role.SENDER, 0, 4),
        disposition(Role.SENDER, 0, 4, settled=False),
        disposition(Role.RECEIVER, 4, 0),
    ],
    ids=["released", "no-outcome", "sender-early", "sender-unsettled", "reversed"],
)
def test_an_unusual_disposition_is_left_alone(octets: bytes) -> None:
    world = pair()
    world.feed(SENDER, many(5))
    connection = SENDER if octets[14] == 0x42 else RECEIVER
    assert world.express.feed(world.connections[connection], octets, 0, len(octets)) == 0
    assert world.links[SENDER].unsettled == 5


@pytest.mark.parametrize("second", [False, True])
def test_a_range_that_may_touch_general_deliveries_is_left_to_the_engine(second: bool) -> None:
    world = pair(second=second)
    world.feed(SENDER, many(5))
    session = world.links[RECEIVER].session
    session.outgoing[session.next_outgoing_delivery] = "general"
    session.next_outgoing_delivery += 1
    octets = disposition(Role.RECEIVER, 3, 5)
    assert world.express.feed(world.connections[RECEIVER], octets, 0, len(octets)) == 0
    assert len(world.express.evict(session, True, 3, 5)) == (2 if second else 0)
    assert world.links[SENDER].unsettled == 3
    octets = disposition(Role.RECEIVER, 0, 2)
    assert world.express.feed(world.connections[RECEIVER], octets, 0, len(octets)) == len(octets)


# --- eviction -------------------------------------------------------------------------------------


def test_an_evicted_delivery_is_handed_over_with_all_that_is_needed() -> None:
    world = pair()
    payload = HEADER_DURABLE + data_section(300)
    world.feed(SENDER, transfer(0, 0, data_section(9), tag=b"a"))
    world.feed(SENDER, transfer(0, 1, payload, tag=b"t" * 32))
    turn(world)
    pairs = world.express.evict(world.links[RECEIVER].session, True, 1, 1)
    delivery = ReceivedDelivery(1, b"t" * 32, payload)  # type: ignore[arg-type]
    expected = LanePair(LinkId(1), delivery, LinkId(2), DeliveryNumber(0x8000_0001), place=2)
    assert pairs == [expected]
    assert world.links[SENDER].session.owner.adopted == [("in", 1, 1, b"t" * 32, False)]
    tag = b"\x80\x00\x00\x01"
    assert world.links[RECEIVER].session.owner.adopted == [("out", 2, 1, 0x8000_0001, tag)]
    assert world.links[SENDER].unsettled == 1
    assert world.express.evict(world.links[RECEIVER].session, True, 1, 1) == []


def test_eviction_by_the_senders_numbers_finds_the_same_pairs() -> None:
    world = pair()
    world.feed(SENDER, many(10))
    pairs = world.express.evict(world.links[SENDER].session, False, 3, 5)
    assert [each.delivery.number for each in pairs] == [3, 4, 5]
    assert world.links[RECEIVER].unsettled == 7


def test_what_the_sender_was_told_stays_known() -> None:
    world = pair(second=True)
    world.feed(SENDER, many(3))
    world.feed(RECEIVER, disposition(Role.RECEIVER, 0, settled=False))
    world.feed(RECEIVER, disposition(Role.RECEIVER, 1, settled=True))
    pairs = world.express.evict(world.links[SENDER].session, False, 0, 2)
    assert [(each.state, each.receiver_settled) for each in pairs] == [
        (ACCEPTED, False),
        (ACCEPTED, True),
        (None, False),
    ]
    assert all(each.delivery.settles_second for each in pairs)
    adopted = world.links[RECEIVER].session.owner.adopted
    assert [each[2] for each in adopted] == [0, 2]


def test_a_link_that_leaves_takes_along_what_is_not_settled() -> None:
    world = pair(credit=5)
    world.links[SENDER].credit = 8
    world.feed(SENDER, many(8))
    world.feed(RECEIVER, disposition(Role.RECEIVER, 0, 1))
    remains = world.leave(SENDER)
    assert isinstance(remains, Remains)
    assert [each.delivery.number for each in remains.queued[LinkId(1)]] == [5, 6, 7]
    assert [each.delivery.number for each in remains.pairs] == [2, 3, 4]
    assert remains.credits == {1: 0}
    assert world.express.kept_octets == 0
    adopted = world.links[SENDER].session.owner.adopted
    assert sorted(each[2] for each in adopted) == [2, 3, 4, 5, 6, 7]


def test_a_receiver_that_leaves_gives_back_only_its_own() -> None:
    world = pair()
    other = world.connect()
    third = world.attach(other, Role.SENDER, credit=100)
    world.join(1, third)
    world.feed(SENDER, many(10))
    remains = world.leave(RECEIVER)
    assert isinstance(remains, Remains)
    assert [each.delivery.number for each in remains.pairs] == [0, 2, 4, 6, 8]
    assert remains.granted == {2: 1000}
    assert world.links[third].unsettled == 5
    world.feed(SENDER, many(3, 10))
    assert world.links[third].unsettled == 8


def test_a_closed_lane_gives_up_everything() -> None:
    world = pair()
    world.feed(SENDER, many(10))
    remains = world.close_lane(1)
    assert isinstance(remains, Remains)
    assert len(remains.pairs) == 10
    assert remains.credits == {1: 990, 2: 990}
    octets = many(1, 10)
    assert world.express.feed(world.connections[SENDER], octets, 0, len(octets)) == 0
    world.join(world.open_lane(), SENDER)


def test_a_detached_link_keeps_its_pairs_until_the_lane_lets_it_go() -> None:
    world = pair()
    world.feed(SENDER, many(3))
    world.express.forget(world.links[SENDER])
    assert world.feed(RECEIVER, disposition(Role.RECEIVER, 0)) == []
    remains = world.leave(SENDER)
    assert isinstance(remains, Remains)
    assert len(remains.pairs) == 2
    # its session stands, so they may be spoken of (§2.7.6); the engine knows whether it is closed
    adopted = world.links[SENDER].session.owner.adopted
    assert [each[:3] for each in adopted] == [("in", 1, 1), ("in", 1, 2)]
    with pytest.raises(MisuseError):
        world.join(1, SENDER)


# --- who gets what --------------------------------------------------------------------------------


@pytest.mark.parametrize("is_weighed", [False, True])
def test_each_delivery_goes_where_the_balanced_rule_says(is_weighed: bool) -> None:
    world = World(make_kernel())
    world.attach(world.connect(), Role.RECEIVER)
    lane = world.open_lane(credit=1000)
    world.join(lane, SENDER)
    receivers = []
    for credit in (3, 200, 50):
        receivers.append(world.attach(world.connect(), Role.SENDER, credit=credit))
        world.join(lane, receivers[-1])
    turn(world)
    if is_weighed:
        link = world.links[receivers[1]].link
        world.lanes[lane].weigh(link, 9, 3)
        for elsewhere, count in ((-1, 1), (0, 0)):
            with pytest.raises(MisuseError):
                world.lanes[lane].weigh(link, elsewhere, count)
    states = [world.links[each] for each in receivers]
    for number in range(120):
        expected = balanced(states)
        before = {each: each.carried for each in states}
        assert world.feed(SENDER, transfer(0, number, data_section(1))) == []
        assert [each for each in states if each.carried > before[each]] == [expected]
        if number % 7 == 0:
            world.feed(states[1].session.connection.owner, disposition(Role.RECEIVER, 0, 9))


def test_what_nobody_has_credit_for_waits_in_order() -> None:
    world = pair(credit=2)
    world.links[SENDER].credit = 100
    world.feed(SENDER, many(10))
    turn(world)
    assert world.lanes[1].queued(LinkId(1)) == 8
    assert world.lanes[1].statistics(LinkId(1)).queued == 8
    grant_credit(world, RECEIVER, 5)
    sent = [found for _, found in frames(turn(world)[RECEIVER])]
    assert sent == [data_section(each) for each in range(2, 7)]
    world.feed(SENDER, many(1, 10))
    grant_credit(world, RECEIVER, 50)
    sent = [found for _, found in frames(turn(world)[RECEIVER])]
    assert sent == [data_section(each) for each in (7, 8, 9, 0)]


@pytest.mark.parametrize(("credit", "shares"), [(160, [128, 32]), (480, [160, 128, 128, 40, 24])])
def test_queues_are_served_in_turn_with_a_share_each(credit: int, shares: list[int]) -> None:
    world = World(make_kernel())
    lane = world.open_lane(credit=1000)
    for _ in range(3):
        world.join(lane, world.attach(world.connect(), Role.RECEIVER, credit=300))
    receiver = world.attach(world.connect(), Role.SENDER)
    world.join(lane, receiver)
    for sender in range(3):
        octets = b"".join(transfer(0, each, data_section(sender)) for each in range(200))
        assert world.feed(sender, octets) == []
    grant_credit(world, receiver, credit)
    order = [len(found) - 5 for _, found in frames(turn(world)[3])]
    expected = [[turn_of % 3] * count for turn_of, count in enumerate(shares)]
    assert order == [each for run in expected for each in run]
    assert shares[0] == share(credit, 3)


def test_nothing_is_sent_into_a_closed_window_until_it_opens() -> None:
    world = pair()
    session = world.links[RECEIVER].session
    session.remote_incoming_window = 3
    world.feed(SENDER, many(5))
    assert len(performatives(turn(world)[RECEIVER])) == 3
    flow = Flow(session.next_outgoing_id, 100, session.next_incoming_id, 0)
    assert world.feed(RECEIVER, frame(0, encode(flow))) == []
    assert len(performatives(turn(world)[RECEIVER])) == 2


def test_nothing_is_sent_while_output_is_congested() -> None:
    world = pair()
    output = world.connections[RECEIVER].output
    output.high_octets, output.low_octets = 1000, 500
    world.feed(SENDER, b"".join(transfer(0, each, data_section(200)) for each in range(20)))
    world.end_turn()
    assert output.congested
    assert world.links[RECEIVER].carried == 5
    world.send(RECEIVER, 600)
    world.end_turn()
    assert world.links[RECEIVER].carried == 5
    world.send(RECEIVER, 400)
    assert world.end_turn() == [RECEIVER]
    assert world.links[RECEIVER].carried == 9
    assert output.congested


def test_a_receiver_with_a_smaller_limit_cannot_join_what_already_waits() -> None:
    world = pair(credit=1)
    world.links[SENDER].credit = 10
    world.feed(SENDER, many(5))
    small = world.attach(world.connect(), Role.SENDER, credit=10)
    world.links[small].max_message_octets = 20
    assert world.join(1, small) is False
    grant_credit(world, RECEIVER, 10)
    assert world.join(1, small) is True
    octets = transfer(0, 5, data_section(30))
    assert world.express.feed(world.connections[SENDER], octets, 0, len(octets)) == 0


@pytest.mark.parametrize("part", [1000, 20])
def test_each_link_keeps_to_its_own_largest_message(part: int) -> None:
    world = pair()
    other = world.attach(SENDER, Role.RECEIVER, credit=50)
    world.join(1, other)
    turn(world)
    for link, most in ((SENDER, 35), (other, 45)):
        world.links[link].max_message_octets = most

    def say(handle: int, number: int, octets: int) -> list[object]:
        payload = data_section(octets - 5)
        pieces = [payload[at : at + part] for at in range(0, octets, part)]
        sent = [
            transfer(handle, number, piece, more=at + 1 < len(pieces))
            for at, piece in enumerate(pieces)
        ]
        return world.feed(SENDER, b"".join(sent))

    assert say(0, 0, 35) == say(1, 1, 45) == say(0, 2, 35) == []
    assert say(1, 3, 36) == []
    assert len(say(0, 4, 36)) == 1  # the engine's, which detaches the link
    if part == 1000:
        assert len(say(1, 5, 46)) == 1


def test_deliveries_of_the_general_path_join_the_queue() -> None:
    world = pair(credit=3)
    link = world.links[SENDER]
    link.session.incoming |= {7: "general", 8: "general"}
    deliveries = [
        ReceivedDelivery(number, b"t", data_section(number), settled=settled)  # type: ignore[arg-type]
        for number, settled in ((7, False), (8, False), (9, True), (10, True))
    ]
    world.lanes[1].put(LinkId(1), deliveries)
    sent = [found for _, found in frames(turn(world)[RECEIVER])]
    assert sent == [data_section(number) for number in (7, 8, 9)]
    assert world.lanes[1].queued(LinkId(1)) == 1
    assert link.session.incoming == {}
    world.feed(RECEIVER, disposition(Role.RECEIVER, 0, 1))
    assert performatives(turn(world)[SENDER]) == [Disposition(Role.RECEIVER, 7, 8, True, ACCEPTED)]
    statistics = world.lanes[1].statistics(LinkId(1))
    assert (statistics.accepted, statistics.unsettled, statistics.queued) == (2, 0, 1)
    large = ReceivedDelivery(11, b"t", bytes(3_000_000))  # type: ignore[arg-type]
    with pytest.raises(MisuseError):
        world.lanes[1].put(LinkId(1), [large])
    with pytest.raises(MisuseError):
        world.lanes[1].put(LinkId(2), [])


# --- credit and windows ---------------------------------------------------------------------------


def test_credit_follows_the_one_rule() -> None:
    world = World(make_kernel())
    world.attach(world.connect(), Role.RECEIVER)
    world.attach(world.connect(), Role.SENDER)
    lane = world.open_lane(credit=30)
    world.join(lane, SENDER)
    world.join(lane, RECEIVER)
    assert turn(world)[SENDER] == b""
    link = world.links[SENDER]
    number = 0
    for width in (1, 2, 9, 40, 100):
        grant_credit(world, RECEIVER, width)
        for _ in range(width):
            expected = grant(30, width, link.credit, world.lanes[lane].queued(LinkId(1)))
            before = link.credit
            turn(world)
            can_send = world.links[RECEIVER].credit > 0
            assert link.credit == (before if expected is None or not can_send else expected)
            world.feed(SENDER, transfer(0, number, data_section(1)))
            number += link.credit < before


def test_a_grant_is_written_as_a_flow_with_the_window_renewed() -> None:
    world = pair(credit=10)
    session = world.links[SENDER].session
    world.feed(SENDER, many(5))
    assert turn(world)[SENDER] == b""  # half is left: it can wait for something to go with
    world.feed(SENDER, many(1, 5))
    expected = encode_flow(6, 100_000, session.next_outgoing_id, 0x7FFF_FFFF, 3, 6, 10)
    assert turn(world)[SENDER] == frame(5, expected)
    assert session.incoming_window == 100_000


def test_what_comes_from_far_goes_to_nobody_far() -> None:
    world = World(make_kernel())
    lane = world.open_lane(credit=100)
    near_in = world.attach(world.connect(), Role.RECEIVER, credit=100)
    far_in = world.attach(world.connect(), Role.RECEIVER, credit=10)
    near_out = world.attach(world.connect(), Role.SENDER)
    far_out = world.attach(world.connect(), Role.SENDER)
    for link, is_far in ((near_in, False), (far_in, True), (near_out, False), (far_out, True)):
        world.join(lane, link, is_far)
    grant_credit(world, far_out, 20)
    world.feed(1, many(5))
    assert list(frames(turn(world)[3])) == []  # only the far receiver has credit
    world.feed(0, many(6))
    assert len(list(frames(turn(world)[3]))) == 6  # what waits for others is no obstacle
    grant_credit(world, near_out, 20)
    sent = turn(world)
    assert [len(found) - 5 for _, found in frames(sent[2])] == [0, 1, 2, 3, 4]
    assert world.links[far_in].credit == 20  # as many as the near receiver takes
    world.leave(far_in)
    world.feed(0, many(6, 6))
    sent = turn(world)
    assert len([*frames(sent[2]), *frames(sent[3])]) == 6


def test_a_grant_goes_with_an_outcome_before_it_has_to() -> None:
    world = pair(credit=10)
    session = world.links[SENDER].session
    world.feed(SENDER, many(3))
    assert turn(world)[SENDER] == b""
    world.feed(RECEIVER, disposition(Role.RECEIVER, 0, 2))
    sent = turn(world)[SENDER]
    flow = encode_flow(3, 100_000, session.next_outgoing_id, 0x7FFF_FFFF, 3, 3, 10)
    assert sent.endswith(frame(5, flow))
    assert len(sent) > len(frame(5, flow))


@pytest.mark.parametrize("held", [False, True])
def test_a_used_window_is_renewed_unless_it_is_held(held: bool) -> None:
    world = pair()
    session = world.links[SENDER].session
    session.window_frames = 12
    session.incoming_window = 12
    session.is_held = held
    world.feed(SENDER, many(6, settled=True))
    sent = turn(world)[SENDER]
    if held:
        assert (sent, session.incoming_window) == (b"", 6)
    else:
        assert sent == frame(5, encode_flow(6, 12, 0, 0x7FFF_FFFF))


def test_credit_stops_at_the_budget_and_goes_on_below_it() -> None:
    world = World(make_kernel(octet_budget=1000))
    world.attach(world.connect(), Role.RECEIVER, credit=30)
    world.attach(world.connect(), Role.SENDER, credit=30)
    lane = world.open_lane(credit=30)
    world.join(lane, SENDER)
    world.join(lane, RECEIVER)
    turn(world)
    world.feed(SENDER, b"".join(transfer(0, each, data_section(100)) for each in range(20)))
    assert turn(world)[SENDER] == b""
    world.feed(RECEIVER, disposition(Role.RECEIVER, 0, 19))
    flows = [each for each in performatives(turn(world)[SENDER]) if isinstance(each, Flow)]
    assert [each.link_credit for each in flows] == [30]


def pairs(count: int, **budgets: int) -> World:
    """Pairs of a sender and a receiver, a lane and connections each; ``pair`` is the first."""
    world = World(make_kernel(**budgets))
    for each in range(count):
        for role in (Role.RECEIVER, Role.SENDER):
            world.attach(world.connect(window=100_000), role, credit=30)
        lane = world.open_lane(credit=30)
        world.join(lane, 2 * each)
        world.join(lane, 2 * each + 1)
    turn(world)
    return world


def credit_after(world: World, link: int, first: int, count: int, octets: int) -> list[int]:
    """Has a sender send; the credit of the flows that it gets."""
    world.feed(link, b"".join(transfer(0, first + n, data_section(octets)) for n in range(count)))
    flows = [each for each in performatives(turn(world)[link]) if isinstance(each, Flow)]
    return [each.link_credit for each in flows if each.link_credit is not None]


def test_links_whose_receivers_read_nothing_leave_others_their_credit() -> None:
    world = pairs(3, octet_budget=1 << 20)
    sent = {0: 0, 2: 0}
    while any(sent[hog] < 3000 and credit_after(world, hog, sent[hog], 20, 1000) for hog in sent):
        for hog in sent:
            sent[hog] += 20
    kept = world.express.kept_octets
    assert kept < 1 << 20
    for turns in range(10):
        assert credit_after(world, 4, 20 * turns, 20, 200) == [30]
        world.feed(5, disposition(Role.RECEIVER, 20 * turns, 20 * turns + 19))
        grant_credit(world, 5, 30)
    assert world.express.kept_octets == kept


def test_a_spent_budget_leaves_each_link_its_reserve() -> None:
    world = pairs(2, octet_budget=1 << 20)
    world.express.keep_beside(2 << 20)
    assert credit_after(world, 0, 0, 20, 2) == [30]
    assert credit_after(world, 2, 0, 20, 20) == []
    world.express.keep_beside(0)
    assert credit_after(world, 2, 20, 1, 20) == [30]


@pytest.mark.parametrize(
    "flow",
    [
        Flow(0, 10, 0, 10, 0, 0, 10, drain=True),
        Flow(0, 10, 0, 10, 0, 0, 10, echo=True),
        Flow(0, 10, 0, 10, 0, 0, 10, properties={}),
        Flow(0, 10, 0, 10, 0, 0, 0),
        Flow(None, 10, 0, 10, 0, 0, 10),
        Flow(0, 10, 7, 10, 0, 0, 10),
        Flow(9, 10, 0, 10, 0, 0, 10),
        Flow(0, 10, 0, 10, 0, 5, 10),
        Flow(0, 10, 0, 10, 0, None, 10),
        Flow(0, 10, 0, 10, 1, 0, 10),
    ],
    ids=[
        "drain",
        "echo",
        "properties",
        "stop",
        "unseen",
        "lost",
        "ahead",
        "beyond",
        "uncounted",
        "handle",
    ],
)
def test_an_unusual_flow_is_left_alone(flow: Flow) -> None:
    world = pair(credit=50)
    octets = frame(0, encode(flow))
    assert world.express.feed(world.connections[RECEIVER], octets, 0, len(octets)) == 0
    assert world.links[RECEIVER].credit == 50


def test_flows_are_the_engines_while_it_waits_for_a_detach_to_be_read() -> None:
    world = pair()
    session = world.links[RECEIVER].session
    session.is_errant = True
    state = world.links[RECEIVER]
    handle = next(key for key, each in session.links.items() if each is state)
    flow = Flow(
        session.next_outgoing_id,
        session.remote_incoming_window,
        session.next_incoming_id,
        2048,
        handle,
        state.delivery_count,
        7,
    )
    octets = frame(0, encode(flow))
    connection = world.connections[RECEIVER]
    assert world.express.feed(connection, octets, 0, len(octets)) == 0
    session.is_errant = False
    assert world.express.feed(connection, octets, 0, len(octets)) == len(octets)


def test_flows_are_the_engines_while_it_waits_for_the_window() -> None:
    world = pair()
    session = world.links[RECEIVER].session
    session.waiting.append("a link")
    octets = frame(0, encode(Flow(0, 10, 0, 10)))
    assert world.express.feed(world.connections[RECEIVER], octets, 0, len(octets)) == 0


# --- many unsettled -------------------------------------------------------------------------------


def test_rings_grow_with_what_is_unsettled() -> None:
    world = pair(credit=50_000)
    world.links[SENDER].credit = world.links[SENDER].allowance = 50_000
    for first in range(0, 40_000, 1000):
        assert world.feed(SENDER, many(1000, first)) == []
        turn(world)
    assert world.links[RECEIVER].unsettled == 40_000
    for first in range(39_000, -1, -1000):
        world.feed(RECEIVER, disposition(Role.RECEIVER, first, first + 999))
    found = [each for each in performatives(turn(world)[SENDER]) if isinstance(each, Disposition)]
    assert [(each.first, each.last) for each in found] == [(0, 39_999)]
    assert world.express.kept_octets == 0


def test_deliveries_that_are_stuck_do_not_hinder_the_others() -> None:
    world = pair()
    stuck = [0, 1, 700, 5000]
    world.links[SENDER].credit = world.links[SENDER].allowance = 100_000
    world.links[RECEIVER].credit = 100_000
    for first in range(0, 20_000, 100):
        world.feed(SENDER, many(100, first))
        turn(world)
        for number in range(first, first + 100):
            if number not in stuck:
                world.feed(RECEIVER, disposition(Role.RECEIVER, number))
    assert world.links[RECEIVER].unsettled == 4
    turn(world)
    pairs = world.express.evict(world.links[RECEIVER].session, True, 0, 900)
    assert [each.delivery.number for each in pairs] == [0, 1, 700]
    assert [each.delivery.payload for each in pairs] == [data_section(n % 100) for n in stuck[:3]]
    world.feed(RECEIVER, disposition(Role.RECEIVER, 1000, 20_000))
    assert performatives(turn(world)[SENDER])[0] == Disposition(
        Role.RECEIVER, 5000, None, True, ACCEPTED
    )


def test_payload_survives_however_much_passes_by() -> None:
    world = pair()
    world.links[SENDER].credit = world.links[SENDER].allowance = 100_000
    world.links[RECEIVER].credit = 100_000
    body = data_section(60_000)
    for first in range(0, 3000, 10):
        octets = b"".join(
            transfer(0, each, data_section(each) if each % 10 == 0 else body)
            for each in range(first, first + 10)
        )
        assert world.feed(SENDER, octets) == []
        turn(world)
        world.received[RECEIVER].clear()
        world.feed(RECEIVER, disposition(Role.RECEIVER, first + 1, first + 9))
    turn(world)
    remains = world.leave(RECEIVER)
    assert isinstance(remains, Remains)
    assert [each.delivery.payload for each in remains.pairs] == [
        data_section(each) for each in range(0, 3000, 10)
    ]


# --- the interface --------------------------------------------------------------------------------


def test_a_turn_names_each_connection_that_has_output_once() -> None:
    world = pair()
    assert world.end_turn() == []
    world.feed(SENDER, many(3))
    world.feed(SENDER, many(3, 3))
    assert world.end_turn() == [RECEIVER]
    world.feed(RECEIVER, disposition(Role.RECEIVER, 0, 5))
    assert world.end_turn() == [SENDER]


def test_outcomes_can_be_had_before_the_turn_ends() -> None:
    world = pair()
    world.feed(SENDER, many(3))
    world.feed(RECEIVER, disposition(Role.RECEIVER, 0, 2))
    assert world.connections[SENDER].output.octets == 0
    world.flush()
    assert world.connections[SENDER].output.octets > 0


def test_the_kernel_has_every_attribute_that_engines_use() -> None:
    own: Any = make_kernel().states
    for name in ("Output", "LinkState", "SessionState", "ConnectionState"):
        used = {each for each in dir(getattr(state, name)) if each[0] != "_"}
        assert used <= set(dir(getattr(own, name)))


def test_links_join_only_lanes_that_fit_them() -> None:
    world = pair()
    lane = world.lanes[0]
    with pytest.raises(MisuseError):
        lane.add_incoming(LinkId(1))
    with pytest.raises(MisuseError):
        lane.add_incoming(LinkId(77))
    world.leave(SENDER)
    with pytest.raises(MisuseError):
        lane.add_outgoing(LinkId(1))


@pytest.mark.parametrize("mode", ["off", "cython"])
def test_the_environment_chooses(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUTER_EXPRESS", mode)
    made = make_express()
    assert (made.kind if made is not None else "off") == mode


def test_the_lane_is_used_when_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROUTER_EXPRESS", raising=False)
    made = make_express()
    assert made is not None
    assert made.kind == describe() == "cython"
