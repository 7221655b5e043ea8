"""Routes that trace: which deliveries are on record as part of a trace, and how they leave."""

from collections.abc import Iterable
from typing import Any

import attrs
import pytest

from router.journal.block import open_block
from router.journal.block_writer import SealedBlock
from router.journal.keys import hop_identity
from router.journal.record import (
    PROTOCOL_CODES,
    Record,
    RecordFlag,
    RecordKind,
    hop_from_body,
)
from router.journal.snapshot import write_memory
from router.journal.writer import RecordWriter
from router.links.position import position_at_end
from router.model.capabilities import Protocol
from router.model.outcome import ACCEPTED
from router.model.terminus import ExpiryPolicy
from router.model.trace import Sampling
from router.routes.route import Distribution, Guarantee, Route
from router.wire import hub
from router.wire.trace_context import read as read_context
from router.wire.v1_0.sections import (
    AnnotatedMessage,
    encode_message,
    peek,
    replace_annotations,
)
from tests.support.journaled import Journaled
from tests.support.play import RESUMING, ReceiverEnd, SenderEnd

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACED = Route(address="orders", is_recorded=True, tracing=Sampling.SENDER)
ALWAYS = attrs.evolve(TRACED, tracing=Sampling.ALWAYS)
EXACT = attrs.evolve(TRACED, guarantee=Guarantee.EXACTLY_ONCE)
KEPT: dict[str, Any] = {"policy": ExpiryPolicy.CONNECTION_CLOSE, "seconds": 300}
RECORDED = attrs.evolve(TRACED, tracing=None)
MORE = b"\x00\x53\x75\xa0\x01y"


def message(flags: int | None) -> bytes:
    """A message whose sender has these trace flags; None: it has no context."""
    fields = None if flags is None else {"traceparent": f"00-{TRACE}-{SPAN}-{flags:02x}"}
    return encode_message(AnnotatedMessage(application_properties=fields, data=[b"x"]))


def read(writer: RecordWriter) -> list[Record]:
    return records(writer.take_blocks())


def records(sealed: Iterable[SealedBlock]) -> list[Record]:
    blocks = [open_block(memoryview(each.octets)) for each in sealed]
    return [
        each
        for block in blocks
        for each in block.records()
        if each.kind in (RecordKind.TRACED, RecordKind.RECEIVED)
    ]


def meeting(*routes: Route) -> tuple[Journaled, SenderEnd, ReceiverEnd]:
    play = Journaled(*routes)
    receiving = play.connect("east").attach_receiver(credit=10)
    return play, play.connect("west").attach_sender(), receiving


def test_a_sampled_delivery_is_on_record_and_leaves_with_the_context_of_the_hop() -> None:
    play, sending, receiving = meeting(TRACED)
    sending.send(message(1))
    traced, received = read(play.writer)
    assert [traced.kind, received.kind] == [RecordKind.TRACED, RecordKind.RECEIVED]
    assert (traced.key, traced.incoming) == (received.key, received.incoming)
    hop = hop_from_body(traced.body)
    assert hop.trace.hex() == TRACE
    assert hop.parent.hex() == SPAN
    assert hop.span == hop_identity(traced.incoming, traced.key)[:8]
    [payload] = receiving.payloads
    seen = peek(payload)
    context = read_context(seen.message_annotations)
    assert context is not None
    assert (context.span, context.trace) == (hop.span, hop.trace)
    assert seen.application_properties == {"traceparent": f"00-{TRACE}-{SPAN}-01"}


@pytest.mark.parametrize(
    ("route", "flags"), [(TRACED, 0), (TRACED, None), (RECORDED, 1), (RECORDED, 0)]
)
def test_what_nobody_records_leaves_as_it_came(route: Route, flags: int | None) -> None:
    play, sending, receiving = meeting(route)
    octets = message(flags)
    sending.send(octets)
    assert [each.kind for each in read(play.writer)] == [RecordKind.RECEIVED]
    assert receiving.payloads == [octets]


def test_always_traces_what_has_no_context_or_is_not_sampled() -> None:
    play, sending, receiving = meeting(ALWAYS)
    sending.send(message(None), message(0))
    root, unsampled = (
        hop_from_body(each.body) for each in read(play.writer) if each.kind == RecordKind.TRACED
    )
    assert root.parent == b""
    assert any(root.trace)
    assert (unsampled.trace.hex(), unsampled.parent.hex(), unsampled.flags) == (TRACE, SPAN, 1)
    contexts = [read_context(peek(each).message_annotations) for each in receiving.payloads]
    assert [each and each.span for each in contexts] == [root.span, unsampled.span]


def test_a_run_of_several_kinds_keeps_its_order_and_each_has_its_own_span() -> None:
    play, sending, receiving = meeting(TRACED)
    numbers = sending.send(*(message(flags) for flags in (1, 0, None, 1)))
    traced = [each for each in read(play.writer) if each.kind == RecordKind.TRACED]
    assert len({hop_from_body(each.body).span for each in traced}) == 2
    contexts = [read_context(peek(each).message_annotations) for each in receiving.payloads]
    assert [each is not None for each in contexts] == [True, False, False, True]
    receiving.update(*receiving.unsettled)
    assert [sending.outcome(number) for number in numbers] == [(ACCEPTED, True)] * 4


def test_another_protocol_is_joined_and_its_neighbours_in_the_run_stay_as_they_came() -> None:
    play, sending, receiving = meeting(TRACED)
    octets = [
        hub.translate(message(flags), Protocol.AMQP_1_0, Protocol.AMQP_0_9_1) for flags in (0, 1)
    ]
    sending.send(*octets, protocol=Protocol.AMQP_0_9_1)
    plain, joined = receiving.payloads
    assert plain == octets[0]
    assert read_context(peek(joined).message_annotations) is not None
    [traced, *_] = [each for each in read(play.writer) if each.kind == RecordKind.TRACED]
    assert traced.protocol == PROTOCOL_CODES[Protocol.AMQP_0_9_1]


def test_what_waits_for_credit_is_accounted_for_with_what_the_hop_has_added() -> None:
    play = Journaled(TRACED)
    receiving = play.connect("east").attach_receiver(credit=1)
    sending = play.connect("west").attach_sender()
    sending.send(message(1), message(1))
    used = play.core._registry.process
    assert used.used > 2 * len(message(1))
    for _ in range(2):
        receiving.update(receiving.last.number)
        receiving.grant(5)
    assert used.used == 0


def test_a_settled_delivery_is_on_record_as_settled() -> None:
    play, sending, _ = meeting(attrs.evolve(TRACED, guarantee=Guarantee.AT_MOST_ONCE))
    sending.send(message(1), settled=True)
    traced, _ = read(play.writer)
    assert traced.flags & RecordFlag.SETTLED


def left_in(octets: bytes, span: bytes) -> bool:
    """Whether a message is that of ``message(1)`` and ``MORE``, with the context of a hop."""
    context = read_context(peek(octets).message_annotations)
    assert context is not None
    assert context.span == span
    return replace_annotations(octets, {}) == message(1) + MORE


@pytest.mark.parametrize("streams", [True, False])
def test_a_message_in_parts_leaves_with_the_context_of_the_hop(streams: bool) -> None:
    play = Journaled(TRACED)
    capabilities = RESUMING if streams else attrs.evolve(RESUMING, streams=False)
    peer = play.connect("east", capabilities=capabilities)
    receiving = peer.attach_receiver(credit=10)
    sending = play.connect("west").attach_sender()
    sending.send(message(1), more=True)
    assert len(receiving.bodies) == streams
    traced, received = read(play.writer)
    hop = hop_from_body(traced.body)
    assert hop.parent.hex() == SPAN
    assert received.flags & RecordFlag.SPLICED
    sending.go_on(MORE, more=False)
    [payload] = receiving.payloads
    assert left_in(payload, hop.span)


def test_each_receiver_of_a_multicast_gets_a_message_in_parts_with_the_context() -> None:
    play = Journaled(attrs.evolve(TRACED, distribution=Distribution.MULTICAST))
    receiving = [play.connect(name).attach_receiver(credit=10) for name in ("east", "north")]
    sending = play.connect("west").attach_sender()
    sending.send(message(1), more=True)
    sending.go_on(MORE, more=False)
    [traced, *_] = read(play.writer)
    span = hop_from_body(traced.body).span
    assert all(left_in(payload, span) for each in receiving for payload in each.payloads)
    assert [len(each.payloads) for each in receiving] == [1, 1]


@pytest.mark.parametrize(
    ("route", "octets"),
    [(ALWAYS, message(1)[:-30]), (ALWAYS, message(None)[:-4]), (TRACED, message(1)[:-30])],
)
def test_a_first_part_that_may_lack_what_decides_leaves_as_it_came(
    route: Route, octets: bytes
) -> None:
    play, sending, receiving = meeting(route)
    sending.send(octets, more=True)
    kinds = [each.kind for each in read(play.writer)]
    assert (RecordKind.TRACED in kinds) == (route is ALWAYS)
    assert receiving.bodies[receiving.last.number] == octets


@pytest.mark.parametrize("crashes", [False, True])
def test_a_sender_goes_on_where_it_was_cut_off_and_the_context_does_not_count(
    crashes: bool,
) -> None:
    play = Journaled(EXACT)
    east = play.connect("east", capabilities=RESUMING)
    receiving = east.attach_receiver(name="in", second=True, credit=5, **KEPT)
    peer = play.connect("west")
    sending = peer.attach_sender(name="out", second=True, **KEPT)
    (number,) = sending.send(message(1)[:-1], more=True)
    tag = sending.unsettled[number]
    play.flush()
    [traced] = [each for each in records(play.blocks) if each.kind == RecordKind.TRACED]
    after = play.crash() if crashes else play
    if not crashes:
        peer.lose()
    back = after.connect("west").attach_sender(
        name="out", second=True, unsettled={tag: None}, **KEPT
    )
    assert back.attach is not None
    known = (back.attach.unsettled or {})[tag]
    assert known == position_at_end(message(1)[:-1])
    rest = back.delivery(message(1)[-1:], tag=tag, resume=True, state=known, more=True)
    back.peer.happens(back.run([rest]))
    if crashes:
        receiving = after.connect("east", capabilities=RESUMING).attach_receiver(
            name="in", second=True, credit=5, unsettled={receiving.last.tag: None}, **KEPT
        )
    after.flush()
    back.go_on(MORE, more=False)
    after.flush()
    [payload] = receiving.payloads
    assert left_in(payload, hop_from_body(traced.body).span)


@pytest.mark.parametrize("is_complete", [False, True])
def test_after_a_crash_a_message_in_parts_leaves_as_before_though_its_route_does_not_trace(
    is_complete: bool,
) -> None:
    play = Journaled(EXACT)
    peer = play.connect("east", capabilities=RESUMING)
    first = peer.attach_receiver(name="in", second=True, credit=1, **KEPT)
    sending = play.connect("west").attach_sender(name="out", second=True, **KEPT)
    (number,) = sending.send(message(1), more=True)
    if is_complete:
        sending.go_on(MORE, more=False)
    play.flush()
    sent = first.bodies[first.last.number]
    tag = sending.unsettled[number]
    play.routes = (attrs.evolve(EXACT, tracing=None),)
    play.blocks = list(copies(play))
    after = play.crash()
    back = after.connect("west").attach_sender(
        name="out", second=True, unsettled={tag: None}, **KEPT
    )
    if not is_complete:
        known = position_at_end(message(1))
        part = back.delivery(b"", tag=tag, resume=True, state=known, more=True)
        back.peer.happens(back.run([part]))
        back.go_on(MORE, more=False)
    receiving = after.connect("east", capabilities=RESUMING).attach_receiver(
        name="in", second=True, credit=9, unsettled={first.last.tag: None}, **KEPT
    )
    after.flush()
    [payload] = receiving.bodies.values()
    assert not [each for each in records(play.blocks) if each.kind == RecordKind.TRACED]
    assert payload[: len(sent)] == sent
    assert replace_annotations(payload, {}) == message(1) + MORE


def copies(play: Journaled) -> Iterable[SealedBlock]:
    """What a snapshot says of the journal so far, in its place."""
    play.hand_in()
    writer = RecordWriter(worker=0, incarnation=1)
    write_memory(play.memory(), lambda _: writer)
    return writer.take_blocks()


def test_after_a_crash_the_message_leaves_in_the_same_span_and_is_not_traced_again() -> None:
    play = Journaled(EXACT)
    sending = play.connect("west").attach_sender(name="out", second=True, **KEPT)
    first = play.connect("east").attach_receiver(name="in", second=True, credit=1, **KEPT)
    sending.send(message(0), message(1))
    play.flush()
    [traced] = [each for each in records(play.blocks) if each.kind == RecordKind.TRACED]
    after = play.crash()
    receiving = after.connect("east").attach_receiver(
        name="in", second=True, credit=9, unsettled={first.last.tag: None}, **KEPT
    )
    after.flush()
    [payload] = [each.payload for each in receiving.received if not each.resume]
    context = read_context(peek(payload).message_annotations)
    assert context is not None
    assert context.span == hop_from_body(traced.body).span
    assert not [each for each in read(after.writer) if each.kind == RecordKind.TRACED]


def test_a_message_that_cannot_be_read_is_passed_on() -> None:
    play, sending, receiving = meeting(ALWAYS)
    sending.send(b"traceparent\xff")
    assert receiving.payloads == [b"traceparent\xff"]
    assert [each.kind for each in read(play.writer)] == [RecordKind.RECEIVED]
