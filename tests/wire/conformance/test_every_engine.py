"""What every engine keeps, whatever its protocol: the face and Capabilities are all it knows."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import MisuseError
from router.model.commands import (
    AbortDelivery,
    CloseConnection,
    ContinueDelivery,
    DetachLink,
    GrantCredit,
    HoldWindow,
    RefuseLink,
    ReturnCredit,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.condition import CONNECTION_FORCED, NOT_FOUND, Condition
from router.model.events import (
    ConnectionClosed,
    ConnectionOpened,
    DeliveriesReceived,
    DeliveryContinued,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import DeliveryNumber, LinkId
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    RELEASED,
    Accepted,
    DeliveryState,
    Modified,
    Rejected,
    Released,
)
from router.model.terminus import Role
from router.wire.engine import Engine, EngineSettings
from tests.support.meeting import PAIRS, Meeting, Pair, Side

pairs = pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
both_ways = pytest.mark.parametrize("role", Role)


def opened(pair: Pair, *, chunk: int = 1 << 20, grant: int = 100) -> Meeting:
    meeting = Meeting(pair, chunk=chunk, grant=grant)
    meeting.run()
    return meeting


def linked(meeting: Meeting, role: Role) -> tuple[Side, LinkId, Side, LinkId]:
    """Attaches a client's link; returns who sends, on which link, and who receives, on which.

    One delivery has gone through: some protocols know of a link only then.
    """
    own = meeting.attach(role)
    if role is Role.SENDER:
        meeting.send(meeting.client, own, b"first")
        sender, out, receiver = meeting.client, own, meeting.server
        into = meeting.link_at(receiver, Role.RECEIVER)
    else:
        sender, out = meeting.server, meeting.link_at(meeting.server, Role.SENDER)
        receiver, into = meeting.client, own
        meeting.send(sender, out, b"first")
    (first,) = receiver.received.pop(into)
    meeting.order(
        receiver,
        UpdateDeliveries(into, [first.number], ACCEPTED, True),
        GrantCredit(into, meeting.grant),
    )
    return sender, out, receiver, into


# --- opening --------------------------------------------------------------------------------------


@pairs
def test_both_sides_hear_of_the_other_first(pair: Pair) -> None:
    meeting = opened(pair)
    for side in (meeting.client, meeting.server):
        assert isinstance(side.events[0], ConnectionOpened)
        assert len(side.of(ConnectionOpened)) == 1
        assert side.capabilities.protocol is pair.protocol
        assert not side.engine.finished


@pairs
def test_a_server_is_silent_until_spoken_to_and_a_client_is_not(pair: Pair) -> None:
    meeting = Meeting(pair)
    assert len(meeting.server.engine.data_to_send()) == 0
    assert len(meeting.client.engine.data_to_send()) > 0


@pairs
@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_octets_may_be_cut_anywhere(pair: Pair, chunk: int) -> None:
    meeting = opened(pair, chunk=chunk)
    sender, out, receiver, into = linked(meeting, Role.SENDER)
    meeting.send(sender, out, b"one", b"two")
    assert [meeting.body(each.payload) for each in receiver.received[into]] == [b"one", b"two"]


# --- deliveries -----------------------------------------------------------------------------------


@pairs
@both_ways
def test_deliveries_arrive_once_and_in_order(pair: Pair, role: Role) -> None:
    meeting = opened(pair)
    sender, out, receiver, into = linked(meeting, role)
    bodies = [b"%d" % each * (each * 37 % 400) for each in range(60)]
    meeting.send(sender, out, *bodies)
    received = receiver.received[into]
    assert [meeting.body(each.payload) for each in received] == bodies
    if pair.is_lossless:
        assert [each.payload for each in received] == [meeting.payload(body) for body in bodies]
    numbers = [each.number for each in received]
    assert len(set(numbers)) == len(numbers)
    assert not any(each.more for each in received)
    assert all(each.protocol is pair.protocol for each in received)


@pairs
@both_ways
def test_a_message_larger_than_any_frame_arrives_whole(pair: Pair, role: Role) -> None:
    meeting = opened(pair)
    sender, out, receiver, into = linked(meeting, role)
    body = bytes(range(256)) * 1200
    meeting.send(sender, out, body)
    (delivery,) = receiver.received[into]
    assert meeting.body(delivery.payload) == body
    assert delivery.more is False


@pairs
@both_ways
def test_several_links_do_not_disturb_each_other(pair: Pair, role: Role) -> None:
    meeting = opened(pair)
    links = [linked(meeting, role) for _ in range(5)]
    for round_ in range(10):
        for index, (sender, out, _, _) in enumerate(links):
            meeting.send(sender, out, b"%d of %d" % (round_, index))
    for index, (_, _, receiver, into) in enumerate(links):
        bodies = [meeting.body(each.payload) for each in receiver.received[into]]
        assert bodies == [b"%d of %d" % (round_, index) for round_ in range(10)]


@pairs
@both_ways
@pytest.mark.parametrize(
    "state", [ACCEPTED, RELEASED, MODIFIED_FAILED, Rejected(Condition(NOT_FOUND, "no"))]
)
def test_an_outcome_reaches_the_sender_as_far_as_the_protocol_tells_it(
    pair: Pair, role: Role, state: DeliveryState
) -> None:
    meeting = opened(pair)
    sender, out, receiver, into = linked(meeting, role)
    numbers = meeting.send(sender, out, b"a", b"b", b"c")
    theirs = [each.number for each in receiver.received[into]]
    meeting.order(receiver, UpdateDeliveries(into, theirs, state, True))
    can_tell = sender.capabilities.reports_outcomes and receiver.capabilities.learns_outcomes
    for number in numbers:
        seen, settled = sender.updates[out][number]
        assert settled
        assert isinstance(seen, Accepted) is isinstance(state, Accepted)  # never better than told
        if can_tell:
            assert _kind(seen) == _kind(state)
        if pair.is_lossless:
            assert seen == state


def _kind(state: DeliveryState | None) -> str:
    match state:
        case Accepted():
            return "taken"
        case Released() | Modified():
            return "given back"
        case Rejected():
            return "refused"
        case _:
            raise AssertionError(f"{state} is no outcome")


@pairs
@both_ways
def test_outcomes_find_their_deliveries_in_any_order(pair: Pair, role: Role) -> None:
    meeting = opened(pair)
    sender, out, receiver, into = linked(meeting, role)
    numbers = meeting.send(sender, out, *[b"x"] * 9)
    theirs = [each.number for each in receiver.received[into]]
    for at in (4, 3, 8, 0, 1, 7, 2, 6, 5):
        state = ACCEPTED if at % 2 else Rejected()
        meeting.order(receiver, UpdateDeliveries(into, [theirs[at]], state, True))
    accepted = {
        at for at, number in enumerate(numbers) if sender.updates[out][number][0] == ACCEPTED
    }
    assert accepted == {1, 3, 5, 7}


@pairs
@both_ways
def test_settled_deliveries_are_never_told_of_again(pair: Pair, role: Role) -> None:
    meeting = opened(pair)
    sender, out, receiver, into = linked(meeting, role)
    numbers = meeting.send(sender, out, b"a", b"b")
    theirs = [each.number for each in receiver.received[into]]
    meeting.order(receiver, UpdateDeliveries(into, theirs, ACCEPTED, True))
    told = len(sender.events)
    meeting.order(receiver, UpdateDeliveries(into, theirs, RELEASED, True))
    meeting.order(sender, UpdateDeliveries(out, numbers, ACCEPTED, True))
    assert not [each for each in sender.events[told:] if not isinstance(each, ConnectionOpened)]


@pairs
def test_pre_settled_deliveries_arrive_settled_or_are_settled_by_nobody(pair: Pair) -> None:
    meeting = opened(pair)
    sender, out, receiver, into = linked(meeting, Role.SENDER)
    (number,) = meeting.send(sender, out, b"a", settled=True)
    (delivery,) = receiver.received[into]
    meeting.order(receiver, UpdateDeliveries(into, [delivery.number], ACCEPTED, True))
    assert number not in sender.updates[out] or not delivery.settled


# --- credit ---------------------------------------------------------------------------------------


@pairs
@both_ways
def test_credit_is_granted_before_anything_is_sent(pair: Pair, role: Role) -> None:
    meeting = opened(pair, grant=7)
    sender, out, _, _ = linked(meeting, role)
    assert sender.credit[out] > 0


@pairs
@both_ways
def test_more_credit_lets_more_come(pair: Pair, role: Role) -> None:
    meeting = opened(pair, grant=5)
    sender, out, receiver, into = linked(meeting, role)
    sent = 0
    for _ in range(20):
        credit = min(sender.credit[out], 5)
        meeting.send(sender, out, *[b"x"] * credit)
        sent += credit
        mine = [each.number for each in receiver.received[into]][-credit:] if credit else []
        meeting.order(receiver, UpdateDeliveries(into, mine, ACCEPTED, True), GrantCredit(into, 5))
    assert sent == len(receiver.received[into])
    assert sent >= 20


# --- ends -----------------------------------------------------------------------------------------


@pairs
@both_ways
@pytest.mark.parametrize("by_client", [True, False])
def test_a_detached_link_is_gone_on_both_sides(pair: Pair, role: Role, by_client: bool) -> None:
    meeting = opened(pair)
    sender, out, receiver, into = linked(meeting, role)
    side, link = (meeting.client, out if role is Role.SENDER else into)
    if not by_client:
        side, link = (meeting.server, into if role is Role.SENDER else out)
    meeting.order(side, DetachLink(link, True))
    assert link in {event.link for event in side.of(LinkDetached)}
    other_side, other = (receiver, into) if link == out else (sender, out)
    assert other in {event.link for event in other_side.of(LinkDetached)} or not by_client
    told = len(side.events)
    meeting.order(side, GrantCredit(link, 5), DetachLink(link, True), ReturnCredit(link))
    meeting.order(side, UpdateDeliveries(link, [DeliveryNumber(1)], ACCEPTED, True))
    meeting.order(side, SendDeliveries(link, []), HoldWindow(link, True))
    meeting.order(side, ContinueDelivery(link, DeliveryNumber(1), b"", False))
    meeting.order(side, AbortDelivery(link, DeliveryNumber(1)), RefuseLink(link, Condition("x")))
    assert side.events[told:] == []
    sender, out, receiver, into = linked(meeting, role)
    meeting.send(sender, out, b"next")
    assert [meeting.body(each.payload) for each in receiver.received[into]] == [b"next"]


@pairs
@pytest.mark.parametrize("by_client", [True, False])
@pytest.mark.parametrize("condition", [None, Condition(CONNECTION_FORCED, "going home")])
def test_a_close_ends_both_sides_once(
    pair: Pair, by_client: bool, condition: Condition | None
) -> None:
    meeting = opened(pair)
    linked(meeting, Role.SENDER)
    here, there = meeting.client, meeting.server
    if not by_client:
        here, there = there, here
    meeting.order(here, CloseConnection(condition))
    for side in (here, there):
        assert side.engine.finished
        assert isinstance(side.events[-1], ConnectionClosed)
        assert len(meeting.closed(side)) == 1
        assert side.engine.receive_data(b"more", 1.0) == []
        assert side.engine.receive_eof(1.0) == []
        assert len(side.engine.data_to_send()) == 0
    assert there.events[-1].by_peer  # type: ignore[union-attr]
    told = meeting.closed(there)[0].condition
    assert (told is None) is (condition is None)


@pairs
@pytest.mark.parametrize("is_server", [True, False])
def test_a_stream_that_ends_is_told_once_and_last(pair: Pair, is_server: bool) -> None:
    meeting = opened(pair)
    linked(meeting, Role.SENDER)
    side = meeting.server if is_server else meeting.client
    side.take(side.engine.receive_eof(1.0), 0)
    assert isinstance(side.events[-1], ConnectionClosed)
    assert side.events[-1].condition is not None
    assert side.engine.finished
    assert side.engine.receive_eof(2.0) == []


@pairs
@pytest.mark.parametrize("is_server", [True, False])
def test_a_silent_peer_is_given_up_in_time(pair: Pair, is_server: bool) -> None:
    settings = EngineSettings(is_server=is_server, container="lonely", handshake_seconds=10.0)
    engine = pair.make(settings)
    events = engine.handle_deadline(100.0)
    now = 100.0
    while not engine.finished:
        engine.bytes_sent(len(engine.data_to_send()))
        deadline = engine.deadline
        assert deadline is not None
        now = max(now, deadline)
        assert now <= 100.0 + 2 * 10.0
        events += engine.handle_deadline(now)
    assert [type(each) for each in events] == [ConnectionClosed]
    assert now >= 110.0


@pairs
@pytest.mark.parametrize("is_server", [True, False])
def test_an_idle_peer_is_given_up_and_a_live_one_is_not(pair: Pair, is_server: bool) -> None:
    meeting = opened(pair)
    side = meeting.server if is_server else meeting.client
    for _ in range(100):  # both are alive, and say so
        meeting.now += 30.0
        for each in (meeting.client, meeting.server):
            each.take(each.engine.handle_deadline(meeting.now), 0)
        meeting.run()
    assert not meeting.closed(side)
    end = meeting.now + 1000.0
    while meeting.now < end and not side.engine.finished:  # nothing comes any more
        side.engine.bytes_sent(len(side.engine.data_to_send()))
        deadline = side.engine.deadline
        assert deadline is not None
        meeting.now = max(meeting.now, deadline)
        side.take(side.engine.handle_deadline(meeting.now), 0)
    assert len(meeting.closed(side)) == 1
    assert meeting.closed(side)[0].condition is not None


# --- octets ---------------------------------------------------------------------------------------


@pairs
def test_what_is_shown_is_shown_until_it_is_confirmed(pair: Pair) -> None:
    meeting = Meeting(pair)
    engine = meeting.client.engine
    shown = bytes(engine.data_to_send())
    assert bytes(engine.data_to_send()) == shown
    engine.bytes_sent(1)
    assert bytes(engine.data_to_send())[: len(shown) - 1] == shown[1:]


def _survive(engine: Engine, octets: bytes, size: int) -> None:
    events = []
    for at in range(0, len(octets), size):
        events += engine.receive_data(octets[at : at + size], 0.0)
    events += engine.receive_eof(1.0)
    closed = [event for event in events if isinstance(event, ConnectionClosed)]
    assert len(closed) == 1
    assert events[-1] is closed[0]
    assert engine.finished


@pairs
@pytest.mark.parametrize("is_server", [True, False])
@given(octets=st.binary(max_size=200), size=st.integers(1, 50))
def test_random_octets_end_in_one_word_and_no_exception(
    pair: Pair, is_server: bool, octets: bytes, size: int
) -> None:
    _survive(pair.make(EngineSettings(is_server=is_server, container="x")), octets, size)


@pytest.mark.thorough
@pairs
@given(
    data=st.data(),
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=5),
)
def test_a_damaged_conversation_ends_in_one_word_and_no_exception(
    pair: Pair, data: st.DataObject, changes: list[tuple[float, int]]
) -> None:
    octets = bytearray(_recorded(pair))
    for where, value in changes:
        octets[8 + int(where * (len(octets) - 9))] = value
    size = data.draw(st.sampled_from([7, 100, 1 << 20]))
    _survive(pair.make(EngineSettings(is_server=True, container="x")), bytes(octets), size)


def _recorded(pair: Pair) -> bytes:
    """What a client sends in a good conversation."""
    meeting = Meeting(pair)
    recorded = bytearray()
    take = meeting.server.engine.receive_data

    def receive(octets: bytes | memoryview, now: float) -> list[object]:
        recorded.extend(octets)
        return take(octets, now)  # type: ignore[return-value]

    meeting.server.engine.receive_data = receive  # type: ignore[method-assign, assignment]
    meeting.run()
    sender, out, _, _ = linked(meeting, Role.SENDER)
    meeting.send(sender, out, b"one", b"two")
    meeting.attach(Role.RECEIVER)
    meeting.order(meeting.client, CloseConnection())
    return bytes(recorded)


@pairs
def test_what_is_no_command_is_misuse(pair: Pair) -> None:
    meeting = opened(pair)
    with pytest.raises((MisuseError, AssertionError)):
        meeting.client.engine.execute(object())  # type: ignore[arg-type]


@pairs
@both_ways
def test_events_of_a_link_lie_between_its_attach_and_its_detach(pair: Pair, role: Role) -> None:
    meeting = opened(pair)
    sender, out, receiver, into = linked(meeting, role)
    meeting.send(sender, out, b"a", b"b")
    theirs = [each.number for each in receiver.received[into]]
    meeting.order(receiver, UpdateDeliveries(into, theirs, ACCEPTED, True))
    own = out if role is Role.SENDER else into
    meeting.order(meeting.client, DetachLink(own, True))
    for side in (meeting.client, meeting.server):
        for link, group in itertools.groupby(
            sorted(
                (event for event in side.events if hasattr(event, "link")),
                key=lambda event: event.link,
            ),
            key=lambda event: event.link,
        ):
            kinds = [type(event) for event in group]
            assert kinds[0] is LinkAttached, (link, kinds)
            assert LinkDetached not in kinds[:-1], (link, kinds)
            assert DeliveriesReceived not in kinds[:1]


# --- large messages: docs/large-messages.md -------------------------------------------------------

STREAMS = {"amqp-1.0"}
"""Protocols that hand parts on as they come, and take them."""


@pairs
def test_parts_are_handed_on_as_they_come_or_not_before_they_are_whole(pair: Pair) -> None:
    meeting = opened(pair, chunk=10_000)
    sender, link, receiver, _ = linked(meeting, Role.SENDER)
    seen = len(receiver.of(DeliveriesReceived))
    meeting.send(sender, link, bytes(100_000))
    (event,) = receiver.of(DeliveriesReceived)[seen:]
    (delivery,) = event.deliveries
    assert meeting.body(delivery.payload) == bytes(100_000)
    came_in_parts = bool(receiver.of(DeliveryContinued))
    assert came_in_parts is (pair.protocol in STREAMS)
    assert receiver.capabilities.streams is (pair.protocol in STREAMS)
