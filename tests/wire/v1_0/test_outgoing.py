"""Sending: runs, splitting, waiting, taking turns, streaming, aborting, refusing what cannot go."""

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import TranslationError
from router.model.capabilities import Protocol
from router.model.commands import (
    AbortDelivery,
    ContinueDelivery,
    GrantCredit,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.condition import INVALID_FIELD, MESSAGE_SIZE_EXCEEDED
from router.model.delivery import OutgoingDelivery
from router.model.events import (
    CreditGranted,
    DeliveriesReceived,
    DeliveriesUpdated,
    DeliveryAborted,
    DeliveryContinued,
    OutputPending,
)
from router.model.identity import DeliveryKey, DeliveryNumber, DeliveryTag, LinkId
from router.model.outcome import ACCEPTED, Received, Rejected
from router.model.terminus import Role
from router.wire import hub
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.frames import frame
from router.wire.v1_0.outgoing import FRAMES_A_TURN, Outgoing
from router.wire.v1_0.performatives import Transfer, encode_transfer
from router.wire.v1_0.sections import (
    AnnotatedMessage,
    Header,
    decode_message,
    encode_message,
)
from tests.support.linked import BODY, Linked, deliveries
from tests.support.peer import Peer, attached, begun, settings

WRAP = 1 << 32


def receiving(credit: int = 1000, window: int = 1000, **changes: Any) -> Peer:
    """A peer that receives from link 1, whose frames are of 512 octets."""
    peer = Peer()
    peer.greet(max_frame_size=512)
    peer.begin()
    peer.attach(Role.RECEIVER, **changes)
    peer.answer()
    peer.flow(handle=0, link_credit=credit, incoming_window=window)
    peer.take_events()
    return peer


def send(peer: Peer, *each: OutgoingDelivery) -> None:
    peer.engine.execute(SendDeliveries(LinkId(1), list(each)))


def number(each: int) -> DeliveryNumber:
    return DeliveryNumber(each)


@pytest.mark.parametrize("handle", [0, 5, 300])
@pytest.mark.parametrize("initial_id", [250, 300, WRAP - 10])
@pytest.mark.parametrize("settled", [True, False])
def test_runs_are_written_as_single_transfers_would_be(
    handle: int, initial_id: int, settled: bool
) -> None:
    def play() -> bytes:
        peer = Peer(Engine10(settings(), initial_id=initial_id))
        peer.greet()
        peer.begin()
        for each in range(handle + 1):
            peer.attach(Role.RECEIVER, name=str(each), handle=each)
            link = peer.answer()
        peer.flow(
            next_incoming_id=initial_id,
            handle=handle,
            link_credit=100,
            delivery_count=initial_id,
        )
        own = deliveries(*range(8, 30), settled=settled)
        own[3].payload = b"x" * 100
        own[9].tag = DeliveryTag(b"t" * 32)
        peer.engine.execute(SendDeliveries(link, own))
        return peer.take_octets()

    together = play()
    with patch.object(Outgoing, "send_run", lambda self, link, deliveries, start: 0):
        apart = play()
    assert together == apart
    first = frame(0, encode_transfer(handle, initial_id, b"8", 0, settled), BODY)
    assert together.startswith(first)


def test_a_large_message_is_split_by_the_peers_frame_size() -> None:
    peer = receiving()
    payload = bytes(range(256)) * 6
    send(peer, *deliveries(1, payload=payload))
    frames = peer.take_frames()
    assert b"".join(each.payload for each in frames) == payload
    first, *rest = [each.performative for each in frames]
    assert first == Transfer(0, 0, b"1", 0, False, more=True)
    assert rest == [Transfer(0, more=True), Transfer(0, more=True), Transfer(0)]


@given(st.integers(0, 3000))
def test_a_message_of_any_size_arrives_whole_in_frames_that_fit(size: int) -> None:
    peer = receiving()
    payload = bytes(size)
    send(peer, *deliveries(1, payload=payload))
    octets = peer.take_octets()
    at = 0
    while at < len(octets):
        length = int.from_bytes(octets[at : at + 4], "big")
        assert length <= 512
        at += length
    reader = attached()
    reader.send_octets(octets)
    (event,) = reader.take_events()
    assert isinstance(event, DeliveriesReceived)
    assert event.deliveries[0].payload == payload
    assert not event.deliveries[0].more


def test_what_the_window_refuses_goes_later_in_order() -> None:
    peer = receiving(window=2)
    payload = bytes(1000)
    send(peer, *deliveries(1, payload=payload), *deliveries(2, 3))
    assert [each.more for each in peer.expect(Transfer, Transfer)] == [True, True]
    peer.flow(next_incoming_id=2, incoming_window=2)
    third, tag2 = peer.expect(Transfer, Transfer)
    assert (third.more, third.delivery_tag) == (False, None)
    assert tag2.delivery_tag == b"2"
    peer.flow(next_incoming_id=4, incoming_window=2)
    assert peer.expect_one(Transfer).delivery_tag == b"3"


def test_what_exceeds_the_credit_waits_for_more() -> None:
    peer = receiving(credit=1)
    send(peer, *deliveries(1, 2))
    assert peer.expect_one(Transfer).delivery_tag == b"1"
    peer.flow(next_incoming_id=1, handle=0, link_credit=1, delivery_count=1)
    assert peer.expect_one(Transfer).delivery_tag == b"2"
    assert peer.take_event(CreditGranted).credit == 0


def test_links_take_turns_when_the_window_opens() -> None:
    peer = receiving(window=0)
    peer.attach(Role.RECEIVER, name="second", handle=1)
    second = peer.answer()
    peer.flow(handle=1, link_credit=1000, incoming_window=0)
    send(peer, *deliveries(1, payload=bytes(504 * 30)))
    peer.engine.execute(SendDeliveries(second, deliveries(*range(20))))
    peer.expect_nothing()
    peer.flow(incoming_window=1000)
    handles = [each.performative.handle for each in peer.take_frames()]  # type: ignore[union-attr]
    turn = FRAMES_A_TURN
    assert handles[: 4 * turn] == [0] * turn + [1] * turn + [0] * turn + [1] * turn
    assert handles.count(1) == 20


def test_a_link_without_credit_does_not_keep_others_waiting() -> None:
    peer = receiving(credit=0, window=0)
    peer.attach(Role.RECEIVER, name="second", handle=1)
    second = peer.answer()
    peer.flow(handle=1, link_credit=10, incoming_window=0)
    send(peer, *deliveries(1))
    peer.engine.execute(SendDeliveries(second, deliveries(2, 3)))
    peer.flow(incoming_window=1000)
    assert [each.delivery_tag for each in peer.expect(Transfer, Transfer)] == [b"2", b"3"]


def test_a_link_that_has_nothing_left_does_not_keep_others_waiting_either() -> None:
    peer = receiving(window=0)
    peer.attach(Role.RECEIVER, name="second", handle=1)
    second = peer.answer()
    peer.flow(handle=1, link_credit=10, incoming_window=0)
    send(peer, *deliveries(1, more=True))
    peer.engine.execute(SendDeliveries(second, deliveries(2)))
    peer.engine.execute(AbortDelivery(LinkId(1), number(1)))
    peer.flow(incoming_window=1000)
    assert peer.expect_one(Transfer).delivery_tag == b"2"


def test_state_and_resume_go_with_the_first_transfer() -> None:
    peer = receiving()
    send(peer, *deliveries(1, payload=b"", state=Received(0, 5), resume=True))
    send(peer, *deliveries(2, payload=b"", message_format=5))
    first, second = peer.expect(Transfer, Transfer)
    assert (first.state, first.resume) == (Received(0, 5), True)
    assert second.message_format == 5


# --- streaming ------------------------------------------------------------------------------------


def test_a_streamed_delivery_arrives_part_by_part() -> None:
    linked = Linked()
    linked.send(1, payload=BODY[:5], more=True)
    linked.order(ContinueDelivery(linked.outgoing, number(1), b"xy", True))
    linked.order(ContinueDelivery(linked.outgoing, number(1), b"", False))
    first, *rest = linked.take_heard()
    assert isinstance(first, DeliveriesReceived)
    assert first.deliveries[0].payload == BODY[:5]
    assert rest == [
        DeliveryContinued(linked.incoming, number(0), b"xy", True),
        DeliveryContinued(linked.incoming, number(0), b"", False),
    ]
    linked.answer(UpdateDeliveries(linked.incoming, [number(0)], ACCEPTED, True))
    assert linked.take_told() == [DeliveriesUpdated(linked.outgoing, [number(1)], ACCEPTED, True)]


def test_an_abort_reaches_the_peer() -> None:
    linked = Linked()
    linked.send(1, payload=BODY[:5], more=True)
    linked.order(AbortDelivery(linked.outgoing, number(1)))
    linked.send(2)
    first, second, third = linked.take_heard()
    assert isinstance(first, DeliveriesReceived)
    assert second == DeliveryAborted(linked.incoming, number(0))
    assert isinstance(third, DeliveriesReceived)
    linked.order(UpdateDeliveries(linked.outgoing, [number(1)], ACCEPTED, True))
    assert linked.take_heard() == []


def test_an_abort_of_what_has_not_begun_leaves_no_trace() -> None:
    peer = receiving(credit=5, window=0)
    send(peer, *deliveries(1, more=True))
    peer.engine.execute(ContinueDelivery(LinkId(1), number(1), b"more", True))
    peer.engine.execute(AbortDelivery(LinkId(1), number(1)))
    peer.collect()
    assert peer.take_event(CreditGranted).credit == 5
    send(peer, *deliveries(2))
    peer.flow(incoming_window=10)
    assert peer.expect_one(Transfer).delivery_tag == b"2"


def test_an_abort_drops_what_waits_of_the_delivery() -> None:
    peer = receiving(window=1)
    send(peer, *deliveries(1, payload=bytes(3000), more=True))
    peer.expect_one(Transfer)
    peer.engine.execute(AbortDelivery(LinkId(1), number(1)))
    peer.expect_nothing()
    peer.flow(next_incoming_id=1, incoming_window=10)
    transfer = peer.expect_one(Transfer)
    assert (transfer.aborted, transfer.settled, transfer.more) == (True, True, False)


def test_parts_of_another_delivery_than_the_one_begun_are_ignored() -> None:
    peer = receiving()
    send(peer, *deliveries(1))
    peer.expect_one(Transfer)
    peer.engine.execute(ContinueDelivery(LinkId(1), number(1), b"x", False))
    peer.engine.execute(AbortDelivery(LinkId(1), number(1)))
    peer.engine.execute(ContinueDelivery(LinkId(9), number(1), b"x", False))
    peer.engine.execute(AbortDelivery(LinkId(9), number(1)))
    peer.expect_nothing()


# --- what cannot go -------------------------------------------------------------------------------


def test_a_message_that_is_too_large_for_the_peer_is_rejected_and_the_link_goes_on() -> None:
    peer = receiving(credit=3, max_message_size=100)
    send(peer, *deliveries(1), *deliveries(2, payload=bytes(101)), *deliveries(3))
    assert [each.delivery_tag for each in peer.expect(Transfer, Transfer)] == [b"1", b"3"]
    peer.collect()
    updated, credit = peer.take_events()
    assert isinstance(updated, DeliveriesUpdated)
    assert updated.numbers == [2]
    assert updated.settled
    assert isinstance(updated.state, Rejected)
    assert updated.state.error is not None
    assert updated.state.error.name == MESSAGE_SIZE_EXCEEDED
    assert credit == CreditGranted(LinkId(1), 1)


def test_a_stream_that_grows_too_large_for_the_peer_is_aborted() -> None:
    peer = receiving(max_message_size=100)
    send(peer, *deliveries(1, payload=bytes(60), more=True))
    peer.engine.execute(ContinueDelivery(LinkId(1), number(1), bytes(60), True))
    peer.engine.execute(ContinueDelivery(LinkId(1), number(1), bytes(60), False))
    send(peer, *deliveries(2))
    begun_, aborted, after = peer.expect(Transfer, Transfer, Transfer)
    assert (begun_.more, aborted.aborted, after.delivery_tag) == (True, True, b"2")
    peer.collect()
    updated = peer.take_events()[0]
    assert isinstance(updated, DeliveriesUpdated)
    assert isinstance(updated.state, Rejected)


@pytest.fixture
def foreign() -> Any:
    """A protocol whose payloads are the body's octets, and which cannot carry ``bad``."""

    def to_sections(payload: bytes) -> AnnotatedMessage:
        if payload == b"bad":
            raise TranslationError("headers.x", "it has no form in AMQP 1.0")
        return AnnotatedMessage(data=[payload])

    translator = hub.Translator(to_sections, lambda message: message.data[0])
    with patch.dict(hub._translators, {Protocol.AMQP_FAST: translator}):
        yield


@pytest.mark.usefixtures("foreign")
def test_a_foreign_message_is_translated_or_rejected_with_the_field_named() -> None:
    peer = receiving()
    send(
        peer,
        *deliveries(1, payload=b"good", protocol=Protocol.AMQP_FAST),
        *deliveries(2, payload=b"bad", protocol=Protocol.AMQP_FAST),
        *deliveries(3, payload=b"goo", protocol=Protocol.AMQP_FAST, more=True),
    )
    (seen,) = peer.take_frames()
    assert decode_message(seen.payload).data == [b"good"]
    peer.engine.execute(ContinueDelivery(LinkId(1), number(3), b"d", False))
    peer.expect_nothing()
    peer.collect()
    reasons = [
        each.state.error
        for each in peer.take_events()
        if isinstance(each, DeliveriesUpdated) and isinstance(each.state, Rejected)
    ]
    assert [reason.name for reason in reasons if reason] == [INVALID_FIELD] * 2
    assert "headers.x" in str(reasons[0])


def test_a_head_that_cannot_be_changed_is_rejected() -> None:
    peer = receiving()
    send(peer, *deliveries(1, payload=b"\x00\x53\x70\xc0\xff", ttl_milliseconds=5))
    peer.expect_nothing()
    peer.collect()
    assert isinstance(peer.take_events()[0], DeliveriesUpdated)


# --- the head -------------------------------------------------------------------------------------


def test_only_what_is_asked_for_is_changed() -> None:
    payload = encode_message(
        AnnotatedMessage(
            header=Header(durable=True, ttl_ms=100), message_annotations={"a": 1}, data=[b"x"]
        )
    )
    peer = receiving()
    send(
        peer,
        *deliveries(1, payload=payload),
        *deliveries(2, payload=payload, ttl_milliseconds=40),
        *deliveries(3, payload=payload, delivery_count=2),
        *deliveries(4, payload=payload, key=DeliveryKey(bytes(16)), hops=("a",)),
    )
    frames = [each.payload for each in peer.take_frames()]
    assert frames[0] == frames[3] == payload
    head = payload.index(b"\x00\x53\x72")
    assert [each[-len(payload) + head :] for each in frames] == [payload[head:]] * 4
    changed = [decode_message(each).header for each in frames[1:3]]
    assert changed == [
        Header(durable=True, ttl_ms=40),
        Header(durable=True, ttl_ms=100, delivery_count=2),
    ]


def test_router_annotations_go_to_routers() -> None:
    peer = Peer(peer_is_trusted_router=True)
    peer.greet(properties={"product": "router"})
    peer.begin()
    peer.attach(Role.RECEIVER)
    peer.answer()
    peer.flow(handle=0, link_credit=10)
    key = DeliveryKey(bytes(range(16)))
    annotated = encode_message(AnnotatedMessage(delivery_annotations={"x": 1}, data=[b"x"]))
    send(
        peer,
        *deliveries(1, key=key, hops=("a", "b")),
        *deliveries(2, payload=annotated, hops=("a",)),
    )
    first, second = [decode_message(each.payload) for each in peer.take_frames()]
    assert first.delivery_annotations == {"x-opt-router-key": key, "x-opt-router-hops": ["a", "b"]}
    assert second.delivery_annotations == {"x-opt-router-hops": ["a"]}, "what came goes no further"


def test_a_message_in_parts_goes_on_with_an_empty_section_for_its_delivery_annotations() -> None:
    peer = Peer()
    peer.greet()
    peer.begin()
    peer.attach(Role.RECEIVER)
    peer.answer()
    peer.flow(handle=0, link_credit=10)
    annotated = encode_message(AnnotatedMessage(delivery_annotations={"x": 1}, data=[b"x"]))
    plain = encode_message(AnnotatedMessage(data=[b"x"]))
    send(
        peer,
        *deliveries(1, payload=annotated, delivery_count=0),
        *deliveries(2, payload=plain, delivery_count=0),
        *deliveries(3, payload=b"no message", delivery_count=0),
        *deliveries(4, payload=annotated, delivery_count=0, resume=True, state=Received(1, 2)),
    )
    first, *others = [each.payload for each in peer.take_frames()]
    assert first == b"\x00\x53\x71\xc1\x01\x00" + plain
    assert others == [plain, b"no message", annotated]


# --- congestion -----------------------------------------------------------------------------------


def test_output_that_piles_up_is_told_once_and_told_when_it_has_gone() -> None:
    peer = begun(output_high_octets=1000, output_low_octets=100)
    peer.attach(Role.RECEIVER)
    peer.answer()
    peer.flow(handle=0, link_credit=1000)
    peer.take_events()
    engine = peer.engine
    for each in range(20):
        send(peer, *deliveries(each, payload=bytes(80)))
    peer.collect()
    assert peer.take_events() == [OutputPending(True)]
    while engine.output_octets > 100:
        peer.collect()
        assert peer.take_events() == []
        engine.bytes_sent(min(50, len(engine.data_to_send())))
    peer.collect()
    assert peer.take_events() == [OutputPending(False)]


def test_payload_that_waits_for_the_window_counts_as_piled_up() -> None:
    peer = begun(output_high_octets=1000, output_low_octets=100)
    peer.attach(Role.RECEIVER)
    peer.answer()
    peer.flow(handle=0, link_credit=1000, incoming_window=0)
    peer.take_events()
    send(peer, *deliveries(1, payload=bytes(2000)))
    peer.collect()
    assert peer.take_events() == [OutputPending(True)]
    peer.flow(handle=0, link_credit=1000, incoming_window=10)
    peer.take_octets()
    peer.collect()
    assert peer.take_events() == [OutputPending(False)]


def test_no_more_memory_is_held_once_all_is_sent_and_settled() -> None:
    linked = Linked(credit=100, receiver={"session_window_frames": 3})
    for start in range(0, 400, 10):
        linked.send(*range(start, start + 10), payload=bytes(300))
        mine = [
            each.number
            for event in linked.take_heard()
            if isinstance(event, DeliveriesReceived)
            for each in event.deliveries
        ]
        linked.answer(
            UpdateDeliveries(linked.incoming, mine, ACCEPTED, True),
            GrantCredit(linked.incoming, 100),
        )
    endpoints = linked.sender._endpoints
    (session,) = endpoints.outgoing.values()
    assert endpoints.waiting_octets == 0
    assert not session.outgoing
    assert not session.numbers
    assert not session.waiting
    link = endpoints.links[linked.outgoing]
    assert not link.ids  # type: ignore[attr-defined]
