"""Receiving: runs, parts, aborts, settlement on the way, and what the head of a message says."""

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.model.commands import GrantCredit, UpdateDeliveries
from router.model.delivery import ReceivedDelivery
from router.model.events import (
    DeliveriesReceived,
    DeliveriesUpdated,
    DeliveryAborted,
    DeliveryContinued,
    Event,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import DeliveryNumber, LinkId
from router.model.outcome import ACCEPTED, RELEASED, Received
from router.model.terminus import ReceiverSettleMode, Role, SenderSettleMode, Target
from router.wire.v1_0.frames import frame
from router.wire.v1_0.incoming import Receiving
from router.wire.v1_0.link import MOST_EXCESS
from router.wire.v1_0.performatives import (
    Detach,
    Disposition,
    Flow,
    Transfer,
    encode,
    encode_transfer,
)
from router.wire.v1_0.sections import AnnotatedMessage, Header, Properties, encode_message
from router.wire.v1_0.session import Session
from tests.support.peer import Peer, attached, begun


def received(events: list[Event]) -> list[ReceivedDelivery]:
    return [
        each
        for event in events
        if isinstance(event, DeliveriesReceived)
        for each in event.deliveries
    ]


def message(**changes: Any) -> bytes:
    return encode_message(AnnotatedMessage(**{"data": [b"body"]} | changes))


def test_transfers_of_one_link_that_follow_each_other_are_one_event() -> None:
    peer = attached()
    octets = b"".join(
        frame(0, encode_transfer(0, number, b"%d" % number, 0, False), b"%d" % number)
        for number in range(20)
    )
    peer.send_octets(octets)
    event = peer.take_event(DeliveriesReceived)
    assert [each.number for each in event.deliveries] == list(range(20))
    assert [each.payload for each in event.deliveries] == [b"%d" % each for each in range(20)]


def test_a_transfer_says_what_it_says() -> None:
    peer = attached(receiver_settle_mode=ReceiverSettleMode.SECOND)
    peer.transfer(
        7,
        b"payload",
        delivery_tag=b"tag",
        message_format=9,
        state=Received(1, 2),
        resume=True,
    )
    (delivery,) = received(peer.take_events())
    assert delivery == ReceivedDelivery(
        DeliveryNumber(7),
        b"tag",  # type: ignore[arg-type]
        b"payload",
        message_format=9,
        state=Received(1, 2),
        resume=True,
        settles_second=True,
    )


@pytest.mark.parametrize(
    ("settled", "mode", "is_second"),
    [
        (False, None, True),
        (True, None, False),
        (False, ReceiverSettleMode.FIRST, False),
        (False, ReceiverSettleMode.SECOND, True),
    ],
)
def test_who_settles_second(
    settled: bool, mode: ReceiverSettleMode | None, is_second: bool
) -> None:
    peer = attached(receiver_settle_mode=ReceiverSettleMode.SECOND)
    peer.transfer(0, settled=settled, rcv_settle_mode=mode)
    (delivery,) = received(peer.take_events())
    assert delivery.settles_second is is_second


@pytest.mark.parametrize("mode", SenderSettleMode)
@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("first_id", [0, 300])
def test_settled_must_agree_with_the_links_mode_on_every_way_in(
    mode: SenderSettleMode, settled: bool, first_id: int
) -> None:
    peer = attached(snd_settle_mode=mode)
    for delivery_id in range(first_id, first_id + 3):
        peer.transfer(delivery_id, settled=settled)
    events = peer.take_events()
    is_agreed = mode is SenderSettleMode.MIXED or settled is (mode is SenderSettleMode.SETTLED)
    assert len(received(events)) == (3 if is_agreed else 0)
    assert any(isinstance(each, LinkDetached) for each in events) is not is_agreed


# --- parts ----------------------------------------------------------------------------------------


def test_parts_that_arrive_together_are_one_message() -> None:
    peer = attached()
    first = encode_transfer(0, 0, b"t", 0, False, more=True)
    rest = [encode_transfer(0, more=True), encode_transfer(0, more=True), encode_transfer(0)]
    peer.send_octets(b"".join(frame(0, body, b"part") for body in (first, *rest)))
    (delivery,) = received(peer.take_events())
    assert delivery.payload == b"part" * 4
    assert delivery.more is False


def test_parts_that_arrive_apart_are_passed_on_as_they_come() -> None:
    peer = attached()
    peer.transfer(0, message()[:20], more=True)
    (first,) = received(peer.take_events())
    assert first.more
    peer.transfer(None, b"abc", more=True)
    assert peer.take_events() == [
        DeliveryContinued(LinkId(1), DeliveryNumber(0), b"abc", more=True)
    ]
    peer.transfer(None, b"", more=False)
    assert peer.take_events() == [DeliveryContinued(LinkId(1), DeliveryNumber(0), b"", more=False)]


def test_parts_of_several_links_may_take_turns() -> None:
    peer = attached()
    peer.attach(name="second", handle=1)
    second = peer.answer(10)
    peer.transfer(0, b"\x00\x53\x75\xa0\x04a", more=True)
    peer.transfer(1, b"\x00\x53\x75\xa0\x04b", more=True, handle=1)
    peer.transfer(None, b"aaa")
    peer.transfer(None, b"bbb", handle=1)
    told = peer.take_events()
    assert [(each.link, each.payload) for each in told if isinstance(each, DeliveryContinued)] == [
        (1, b"aaa"),
        (second, b"bbb"),
    ]


def test_an_aborted_delivery_is_void_and_forgotten() -> None:
    peer = attached()
    peer.transfer(0, b"\x00\x53\x75xyz", more=True)
    peer.take_events()
    peer.transfer(None, b"ignored", aborted=True, more=True)
    assert peer.take_event(DeliveryAborted) == DeliveryAborted(LinkId(1), DeliveryNumber(0))
    peer.engine.execute(UpdateDeliveries(LinkId(1), [DeliveryNumber(0)], ACCEPTED, True))
    peer.expect_nothing()
    peer.transfer(1)
    assert len(received(peer.take_events())) == 1


@pytest.mark.parametrize("is_at_once", [True, False])
def test_a_delivery_aborted_within_one_receive_still_counts(is_at_once: bool) -> None:
    peer = attached(credit=1)
    if is_at_once:
        peer.transfer(0, aborted=True)
    else:
        peer.send_octets(
            frame(0, encode_transfer(0, 0, b"t", 0, False, more=True), b"x")
            + frame(0, encode(Transfer(0, aborted=True)))
        )
    first, second = peer.take_events()
    (delivery,) = received([first])
    assert delivery.more
    assert delivery.payload == b""
    assert isinstance(second, DeliveryAborted)
    assert peer.engine._state.sessions[0].links[0].credit == 0


def test_settled_on_a_later_part_settles_the_delivery() -> None:
    peer = attached()
    peer.transfer(0, b"\x00\x53\x75a", more=True)
    peer.transfer(None, b"b", settled=True, more=True)
    peer.transfer(None, b"c")
    first, *rest = peer.take_events()
    assert not received([first])[0].settled
    assert rest == [
        DeliveryContinued(LinkId(1), DeliveryNumber(0), b"b", True, settled=True),
        DeliveryContinued(LinkId(1), DeliveryNumber(0), b"c", False, settled=True),
    ]
    peer.engine.execute(UpdateDeliveries(LinkId(1), [DeliveryNumber(0)], ACCEPTED, True))
    peer.expect_nothing()


def test_settled_on_a_part_of_the_same_receive_counts_from_the_start() -> None:
    peer = attached(snd_settle_mode=SenderSettleMode.SETTLED)
    peer.send_octets(
        frame(0, encode_transfer(0, 0, b"t", 0, False, more=True), b"x")
        + frame(0, encode(Transfer(0, settled=True)), b"y")
    )
    (delivery,) = received(peer.take_events())
    assert delivery.settled
    assert delivery.payload == b"xy"


def test_a_state_on_a_later_part_is_an_update() -> None:
    peer = attached()
    peer.transfer(0, b"\x00\x53\x75a", more=True)
    peer.take_events()
    peer.transfer(None, b"b", state=RELEASED, more=True)
    assert peer.take_events() == [
        DeliveriesUpdated(LinkId(1), [DeliveryNumber(0)], RELEASED, False),
        DeliveryContinued(LinkId(1), DeliveryNumber(0), b"b", True),
    ]


def test_received_says_nothing_unless_a_delivery_resumes() -> None:
    peer = attached()
    peer.transfer(0, b"a", state=Received(0, 1))
    peer.transfer(1, b"\x00\x53\x75a", more=True)
    peer.transfer(None, b"b", state=Received(0, 1))
    peer.transfer(2, b"c", state=Received(0, 1), resume=True)
    states = [each.state for each in received(peer.take_events())]
    assert states == [None, None, Received(0, 1)]


def test_a_disposition_about_a_part_comes_behind_it() -> None:
    peer = attached()
    peer.send_octets(
        frame(0, encode_transfer(0, 0, b"t", 0, False, more=True), b"\x00\x53\x75x")
        + frame(0, encode(Disposition(Role.SENDER, 0, None, True, None)))
    )
    kinds = [type(each) for each in peer.take_events()]
    assert kinds == [DeliveriesReceived, DeliveriesUpdated]


def test_a_continuation_may_repeat_what_names_it() -> None:
    peer = attached()
    peer.transfer(0, b"\x00\x53\x75a", more=True)
    peer.transfer(0, b"b")
    kinds = [type(each) for each in peer.take_events()]
    assert kinds == [DeliveriesReceived, DeliveryContinued]


def test_a_message_that_grows_too_large_on_the_way_detaches_its_link() -> None:
    peer = attached(max_message_octets=10)
    peer.transfer(0, b"\x00\x53\x75aaa", more=True)
    peer.transfer(None, b"bbbb", more=True)
    peer.take_events()
    peer.transfer(None, b"c", more=True)
    assert isinstance(peer.take_events()[0], LinkDetached)
    peer.transfer(None, b"c" * 100, more=True)
    peer.transfer(None, b"c")
    peer.transfer(1)
    assert peer.take_events() == []


# --- the head -------------------------------------------------------------------------------------


@given(
    st.one_of(st.none(), st.integers(0, 2**32 - 1)),
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.integers(1, 40),
    st.sampled_from([0, 300]),
)
def test_ttl_and_delivery_count_are_read_however_the_message_is_cut(
    ttl: int | None, count: int, durable: bool, cut: int, first_id: int
) -> None:
    payload = message(header=Header(durable=durable, ttl_ms=ttl, delivery_count=count))
    peer = attached()
    for delivery_id in range(first_id, first_id + 3):
        peer.transfer(delivery_id, payload)
    peer.transfer(first_id + 3, payload[:cut], more=True)
    peer.transfer(None, payload[cut:])
    deliveries = received(peer.take_events())
    assert [(each.ttl_milliseconds, each.delivery_count) for each in deliveries] == [
        (ttl, count)
    ] * 4


def test_one_headers_meaning_is_not_taken_for_anothers() -> None:
    peer = attached()
    headers = [
        Header(ttl_ms=1000),
        Header(ttl_ms=1000),
        Header(),
        None,
        Header(ttl_ms=1001),
        None,
        None,
        Header(delivery_count=3),
        Header(ttl_ms=1000),
    ]
    payloads = [message(header=each) for each in headers]
    payloads.insert(4, b"\x00\x53\x70\xc0\x09")  # cut short: says nothing
    payloads.insert(5, b"\x00\x53\x70\xc0\x09" + message(header=Header(ttl_ms=5))[5:])
    peer.send_octets(
        b"".join(
            frame(0, encode_transfer(0, 300 + at, b"tag", 0, False), payload)
            for at, payload in enumerate(payloads)
        )
    )
    told = [(each.ttl_milliseconds, each.delivery_count) for each in received(peer.take_events())]
    ttl = [1000, 1000, None, None, None, None, 1001, None, None, None, 1000]
    count = [0] * 9 + [3, 0]
    assert told == list(zip(ttl, count, strict=True))


def test_an_unusual_header_is_read_as_well() -> None:
    peer = attached()
    symbolic = b"\x00\xa3\x10amqp:header:list\xc0\x04\x03\x40\x40\x43"
    wide = b"\x00\x80" + bytes(7) + b"\x70\xd0\x00\x00\x00\x07\x00\x00\x00\x03\x40\x40\x43"
    for delivery_id, head in enumerate((symbolic, wide), 300):
        peer.transfer(delivery_id, head + b"\x00\x53\x75\xa0\x00")
    assert [each.ttl_milliseconds for each in received(peer.take_events())] == [0, 0]


def anonymous(**changes: Any) -> Peer:
    peer = begun(**changes)
    peer.attach(target=Target())
    peer.answer(100)
    return peer


@pytest.mark.parametrize("first_id", [0, 300])
def test_only_the_anonymous_terminus_asks_where_to(first_id: int) -> None:
    payload = message(header=Header(ttl_ms=9), properties=Properties(to="there"))
    for peer, address in ((anonymous(), "there"), (attached(), None)):
        for delivery_id in range(first_id, first_id + 3):
            peer.transfer(delivery_id, payload)
        told = received(peer.take_events())
        assert [(each.address, each.ttl_milliseconds) for each in told] == [(address, 9)] * 3


def test_where_to_is_waited_for_if_it_comes_late() -> None:
    peer = anonymous()
    payload = message(
        header=Header(), message_annotations={"a": "b"}, properties=Properties(to="x")
    )
    cut = payload.index(b"\x00\x53\x73")
    peer.transfer(0, payload[:cut], more=True)
    assert peer.take_events() == []
    peer.transfer(None, payload[cut:], more=True)
    (delivery,) = received(peer.take_events())
    assert delivery.address == "x"
    assert delivery.payload == payload
    assert delivery.more


def test_a_head_is_not_waited_for_without_bound() -> None:
    peer = anonymous()
    peer.transfer(0, b"\x00\x53\x72\xd1\x7f\xff\xff\xff", more=True)
    assert peer.take_events() == []
    for _ in range(3):
        peer.transfer(None, bytes(30_000), more=True)
    (delivery,) = received(peer.take_events())
    assert delivery.address is None


def test_a_message_without_an_address_or_broken_has_none() -> None:
    peer = anonymous()
    peer.transfer(0, message())
    peer.transfer(1, b"\x00\x53\x73\xc0\xff")
    peer.transfer(2, message(properties=Properties(to="x")), message_format=1)
    peer.transfer(3, b"")
    assert [each.address for each in received(peer.take_events())] == [None] * 4


KEY = bytes(range(16))


@pytest.mark.parametrize("trusted", [True, False])
def test_router_annotations_are_believed_from_trusted_routers_only(trusted: bool) -> None:
    peer = Peer(peer_is_trusted_router=trusted)
    peer.greet(properties={"product": "router"})
    peer.begin()
    peer.attach()
    peer.answer(100)
    annotations = {"x-opt-router-key": KEY, "x-opt-router-hops": ["a", "b"]}
    peer.transfer(0, message(header=Header(ttl_ms=7), delivery_annotations=annotations))
    peer.transfer(1, message(delivery_annotations={"x-opt-router-key": b"short"}))
    peer.transfer(2, message(delivery_annotations={"x-opt-router-hops": "no list"}))
    first, *others = received(peer.take_events())
    assert first.ttl_milliseconds == 7
    assert (first.key, first.hops) == ((KEY, ("a", "b")) if trusted else (None, ()))
    assert {(each.key, each.hops) for each in others} == {(None, ())}


@pytest.mark.parametrize("header", [None, Header(), Header(durable=True), Header(ttl_ms=9)])
@pytest.mark.parametrize("first_id", [0, 300])
def test_delivery_annotations_end_here_whatever_stands_before_them(
    header: Header | None, first_id: int
) -> None:
    peer = attached()
    plain = message(header=header, message_annotations={"x-opt-a": 1})
    annotated = message(
        header=header, delivery_annotations={"x-opt-b": 2}, message_annotations={"x-opt-a": 1}
    )
    for delivery_id, payload in enumerate((plain, plain, annotated, plain, annotated), first_id):
        peer.transfer(delivery_id, payload)
    deliveries = received(peer.take_events())
    assert [each.payload for each in deliveries] == [plain] * 5
    ttl = None if header is None else header.ttl_ms
    assert {each.ttl_milliseconds for each in deliveries} == {ttl}


def test_delivery_annotations_behind_an_empty_header_or_a_wide_descriptor_end_here() -> None:
    peer = attached()
    data = b"\x00\x53\x75\xa0\x01x"
    entries = b"\xc1\x05\x02\xa3\x01x\x43"
    wide = b"\x00\x80" + bytes(7) + b"\x71"
    for delivery_id, head in enumerate(
        (b"\x00\x53\x70\x45\x00\x53\x71", b"\x00\x53\x70\x45" + wide, wide), 300
    ):
        peer.transfer(delivery_id, head + entries + data)
    payloads = [each.payload for each in received(peer.take_events())]
    assert payloads == [b"\x00\x53\x70\x45" + data] * 2 + [data]


@pytest.mark.parametrize("cut", range(1, 40))
def test_delivery_annotations_of_a_message_in_parts_come_with_the_first_one(cut: int) -> None:
    peer = attached()
    payload = message(header=Header(durable=True), delivery_annotations={"x-opt-b": "12345678"})
    head = payload.index(b"\x00\x53\x75")
    peer.transfer(0, payload[:cut], more=True)
    told = received(peer.take_events())
    assert bool(told) is (cut >= head)
    if not told:
        peer.transfer(None, payload[cut : head + 3], more=True)
        told = received(peer.take_events())
        assert told[0].payload == payload[: max(cut, head + 3)]


# --- runs and single frames are the same ----------------------------------------------------------


@st.composite
def conversations(draw: st.DrawFn) -> list[bytes]:
    """Transfers on two links of one session, usual and unusual, in serial order."""
    first = draw(st.sampled_from([0, 250, 2**32 - 20]))
    frames = []
    open_parts: dict[int, bool] = {}
    next_id = first
    for _ in range(draw(st.integers(1, 40))):
        handle = draw(st.integers(0, 1))
        payload = draw(
            st.sampled_from([b"", message(), message(header=Header(ttl_ms=5)), b"x" * 50])
        )
        kind = draw(st.sampled_from(["usual"] * 6 + ["more", "settled", "format", "wide", "abort"]))
        if open_parts.get(handle):
            more = draw(st.booleans())
            open_parts[handle] = more
            frames.append(frame(0, encode_transfer(handle, more=more), payload))
            continue
        tag = draw(st.binary(min_size=1, max_size=3)) + b"%d" % (next_id % 7)
        transfer = Transfer(handle, next_id, tag, 0, False)
        if kind == "more":
            transfer.more = open_parts[handle] = True
        elif kind == "settled":
            transfer.settled = True
        elif kind == "format":
            transfer.message_format = 3
        elif kind == "abort":
            transfer.aborted = True
        body = encode(transfer)
        if kind == "wide":
            body = body[:3] + b"\xd0" + _u32(body[4] + 3) + _u32(body[5]) + body[6:]
        frames.append(frame(0, body, payload))
        next_id = (next_id + 1) % 2**32
    return frames


def _u32(value: int) -> bytes:
    return value.to_bytes(4, "big")


def _flat(events: list[Event]) -> list[object]:
    """Events with their runs taken apart, and numbers of octets added up per delivery."""
    told: list[object] = []
    parts: dict[tuple[int, int], bytes] = {}
    for event in events:
        if isinstance(event, DeliveriesReceived):
            for each in event.deliveries:
                parts[event.link, each.number] = each.payload
                each.payload = b""
                each.more = False
                told.append((event.link, each))
        elif isinstance(event, DeliveryContinued):
            parts[event.link, event.number] += event.payload
        else:
            told.append(event)
    return [sorted(map(repr, told)), sorted(parts.items())]


@given(conversations())
def test_runs_tell_the_same_as_frames_one_by_one(frames: list[bytes]) -> None:
    def play() -> Peer:
        peer = attached()
        peer.attach(name="second", handle=1)
        peer.answer(100)
        return peer

    together = play()
    together.send_octets(b"".join(frames))
    apart = play()
    for each in frames:
        apart.send_octets(each)
    slow = play()
    with patch.object(Receiving, "take_run", lambda self, connection, octets, at, end: at):
        slow.send_octets(b"".join(frames))
    told = [(_flat(peer.take_events())) for peer in (together, apart, slow)]
    assert told[0][1] == told[1][1]
    assert told[0] == told[2]
    counters = [_counters(peer.engine._state.sessions[0].owner) for peer in (together, apart, slow)]
    assert counters[0] == counters[2]
    assert counters[0][1:] == counters[1][1:]


def _counters(session: Session) -> list[object]:
    state = session.state
    return [
        (state.next_incoming_id, state.incoming_window, state.next_incoming_delivery),
        sorted(session.incoming),
        [
            (each.delivery_count, each.credit, each.allowance, each.deliveries)
            for each in state.links.values()
        ],
        [each.payload_octets for each in state.links.values()],
    ]


def test_a_handle_that_changes_hands_is_not_taken_for_the_old_link() -> None:
    peer = attached()
    octets = [frame(0, encode_transfer(0, 300 + at, b"tag", 0, False), b"x") for at in range(6)]
    peer.send_octets(b"".join(octets[:3]))
    peer.send(Detach(0, True))
    peer.attach(name="other")
    events = peer.take_events()
    assert isinstance(events[-1], LinkAttached)
    peer.events = [events[-1]]
    second = peer.answer()
    peer.send_octets(b"".join(octets[3:5]))
    assert [event.link for event in peer.take_events() if isinstance(event, LinkDetached)] == [
        second  # it has no credit of its own
    ]


def test_what_comes_beyond_the_credit_is_taken_as_far_as_a_broker_might_go() -> None:
    peer = attached(credit=10, session_window_frames=1 << 20)
    for delivery_id in range(300, 600):  # small, so that the window is wide then
        peer.transfer(delivery_id)
    assert len(received(peer.take_events())) == 300
    peer.engine.execute(GrantCredit(LinkId(1), 5))
    flow = peer.expect_one(Flow)
    assert (flow.delivery_count, flow.link_credit) == (300, 5)  # counted from what has come
    run = b"".join(
        frame(0, encode_transfer(0, each, b"tag", 0, True), b"x")
        for each in range(600, 600 + MOST_EXCESS + 6)
    )
    peer.send_octets(run)
    events = peer.take_events()
    assert len(received(events)) == MOST_EXCESS + 5
    assert isinstance(events[-1], LinkDetached)


def test_nothing_may_come_where_nothing_was_granted() -> None:
    peer = attached(credit=0)
    peer.transfer(0)
    assert isinstance(peer.take_events()[0], LinkDetached)


@pytest.mark.parametrize("handle", [0, 7, 300])
@pytest.mark.parametrize("settled", [None, True, False])
def test_usual_transfers_go_the_short_way_from_the_second_on(
    handle: int, settled: bool | None
) -> None:
    peer = begun()
    peer.attach(handle=handle)
    peer.answer(100)
    peer.transfer(300, b"x", handle=handle, settled=settled)
    peer.take_events()
    with patch.object(Receiving, "take", side_effect=AssertionError):
        for delivery_id in range(301, 310):
            peer.transfer(delivery_id, b"payload", handle=handle, settled=settled)
    deliveries = received(peer.take_events())
    assert [each.number for each in deliveries] == list(range(301, 310))
    assert {each.settled for each in deliveries} == {settled is True}


def test_a_transfer_that_asks_for_less_than_its_link_says_so() -> None:
    peer = attached(receiver_settle_mode=ReceiverSettleMode.SECOND)
    peer.transfer(0, message(), rcv_settle_mode=ReceiverSettleMode.FIRST)
    peer.transfer(1, message())
    first, second = received(peer.take_events())
    assert (first.settles_first, first.settles_second) == (True, False)
    assert (second.settles_first, second.settles_second) == (False, True)
