"""Every rule of ``faults.Rule``, broken by a scripted peer: what it gets for it, and how far."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from router.model.commands import AttachLink, HoldWindow, RefuseLink, SendDeliveries
from router.model.condition import (
    DETACH_FORCED,
    ERRANT_LINK,
    FRAMING_ERROR,
    NOT_ALLOWED,
    TRANSACTION_UNKNOWN_ID,
    Condition,
)
from router.model.delivery import OutgoingDelivery
from router.model.events import ConnectionClosed, LinkAttached, LinkDetached
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.model.outcome import ACCEPTED, TransactionalState
from router.model.terminus import ReceiverSettleMode, Role, SenderSettleMode, Source
from router.wire.mechanisms import MechanismServer
from router.wire.v1_0.faults import Fault, Level, Rule
from router.wire.v1_0.fitting import fitting, shortened
from router.wire.v1_0.frames import AMQP_HEADER, SASL, SASL_HEADER, frame
from router.wire.v1_0.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Open,
    SaslMechanisms,
    SaslResponse,
    Transfer,
    encode,
)
from tests.support.peer import Peer, attached, begun, opened

BEGIN: Final = Begin(next_outgoing_id=0, incoming_window=1000, outgoing_window=1000)


def frame_state() -> Peer:
    peer = opened()
    peer.send(Open(container_id="again"))
    return peer


def open_channel() -> Peer:
    peer = Peer()
    peer.send_octets(AMQP_HEADER)
    peer.send(Open(container_id="peer"), channel=1)
    return peer


def frame_type() -> Peer:
    peer = opened()
    peer.send(SaslResponse(b""), kind=SASL)
    return peer


def sasl_frame() -> Peer:
    peer = Peer(sasl_server=MechanismServer)
    peer.send_octets(SASL_HEADER)
    peer.send(SaslResponse(b""), kind=SASL)
    return peer


def sasl_frame_type() -> Peer:
    peer = Peer(sasl_server=MechanismServer)
    peer.send_octets(SASL_HEADER)
    peer.send_octets(frame(0, b"", kind=SASL))
    return peer


def channel_max() -> Peer:
    peer = opened(channel_max=3)
    peer.send(BEGIN, channel=4)
    return peer


def max_frame_size_small() -> Peer:
    peer = Peer()
    peer.send_octets(AMQP_HEADER)
    peer.send(Open(container_id="peer", max_frame_size=511))
    return peer


def idle_time_out_short() -> Peer:
    peer = Peer()
    peer.send_octets(AMQP_HEADER)
    peer.send(Open(container_id="peer", idle_time_out=9))
    return peer


def idle() -> Peer:
    peer = opened(idle_seconds=30.0)
    peer.wait(30.0)
    return peer


def handshake() -> Peer:
    peer = Peer(handshake_seconds=10.0)
    peer.send_octets(AMQP_HEADER)
    peer.wait(10.0)
    return peer


def channel_unmapped() -> Peer:
    peer = opened()
    peer.flow(channel=2)
    return peer


def channel_in_use() -> Peer:
    peer = begun()
    peer.send(BEGIN)
    return peer


def remote_channel() -> Peer:
    peer = opened()
    peer.send(Begin(remote_channel=7, next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    return peer


def no_channel_left() -> Peer:
    peer = Peer()
    peer.greet(channel_max=0)
    peer.begin()
    peer.send(BEGIN, channel=1)
    return peer


def handle_max() -> Peer:
    peer = begun(handle_max=3)
    peer.attach(handle=4)
    return peer


def window() -> Peer:
    peer = attached(session_window_frames=4)
    peer.engine.execute(HoldWindow(LinkId(1), True))
    for delivery_id in range(5):
        peer.transfer(delivery_id)
    return peer


def handle_taken() -> Peer:
    peer = attached()
    peer.attach(name="other")
    return peer


def handle_unknown() -> Peer:
    peer = begun()
    peer.send(Detach(handle=5))
    return peer


def attach_after_error() -> Peer:
    peer = begun()
    peer.attach()
    event = peer.take_event(LinkAttached)
    peer.engine.execute(RefuseLink(event.link, Condition(DETACH_FORCED)))
    peer.expect(Attach, Detach)
    peer.attach(handle=1)
    return peer


def own(asked: LinkAttached) -> AttachLink:
    """Our attach that answers the peer's."""
    return AttachLink(
        link=asked.link,
        name=asked.name,
        role=asked.role,
        source=asked.source,
        target=asked.target,
    )


def input_after_error() -> Peer:
    peer = transfer_limit()
    peer.expect(Detach)
    peer.send(Detach(handle=0, closed=True))
    peer.flow(handle=0)
    return peer


def no_handle_left() -> Peer:
    peer = opened()
    peer.begin(handle_max=0)
    peer.attach()
    peer.answer()
    peer.attach(name="second", handle=1)
    peer.engine.execute(own(peer.take_event(LinkAttached)))
    return peer


def flow_fields() -> Peer:
    peer = begun()
    peer.flow(link_credit=1)
    return peer


def delivery_id() -> Peer:
    peer = attached()
    peer.transfer(0)
    peer.transfer(2)
    return peer


def disposition_range() -> Peer:
    peer = attached()
    peer.send(Disposition(Role.SENDER, 1, 0))
    return peer


def transfer_role() -> Peer:
    peer = attached(Role.RECEIVER)
    peer.transfer(0)
    return peer


def initial_delivery_count() -> Peer:
    peer = begun()
    peer.attach(initial_delivery_count=None)
    return peer


def delivery_tag() -> Peer:
    peer = attached()
    peer.transfer(0, delivery_tag=None)
    return peer


def continuation() -> Peer:
    peer = attached()
    peer.transfer(0, more=True)
    peer.transfer(None, delivery_tag=b"other")
    return peer


def settled_mode() -> Peer:
    peer = attached(snd_settle_mode=SenderSettleMode.SETTLED)
    peer.transfer(0, settled=False)
    return peer


def receiver_mode() -> Peer:
    peer = attached(receiver_settle_mode=ReceiverSettleMode.FIRST)
    peer.transfer(0, rcv_settle_mode=ReceiverSettleMode.SECOND)
    return peer


def transfer_limit() -> Peer:
    peer = attached(credit=0)
    peer.transfer(0)
    return peer


def message_size() -> Peer:
    peer = attached(max_message_octets=10)
    peer.transfer(0, b"x" * 11)
    return peer


def transaction() -> Peer:
    peer = attached()
    peer.transfer(0, state=TransactionalState(b"txn"))
    return peer


def incomplete_unsettled() -> Peer:
    peer = attached(incomplete_unsettled=True, unsettled={b"one": None})
    peer.transfer(0)
    return peer


PLAYS: Final[dict[Rule, Callable[[], Peer]]] = {
    Rule[play.__name__.upper()]: play
    for play in (
        frame_state,
        open_channel,
        frame_type,
        sasl_frame,
        sasl_frame_type,
        channel_max,
        max_frame_size_small,
        idle_time_out_short,
        idle,
        handshake,
        channel_unmapped,
        channel_in_use,
        remote_channel,
        no_channel_left,
        handle_max,
        window,
        handle_taken,
        handle_unknown,
        attach_after_error,
        input_after_error,
        no_handle_left,
        flow_fields,
        delivery_id,
        disposition_range,
        transfer_role,
        initial_delivery_count,
        delivery_tag,
        continuation,
        settled_mode,
        receiver_mode,
        transfer_limit,
        message_size,
        transaction,
        incomplete_unsettled,
    )
}


def test_every_rule_has_its_play() -> None:
    assert set(PLAYS) == set(Rule)


def _said(peer: Peer, kind: type[Any]) -> list[Condition | None]:
    """The errors in frames of one kind that the engine sends."""
    return [
        each.performative.error
        for each in peer.take_frames()
        if isinstance(each.performative, kind)
    ]


@pytest.mark.parametrize("rule", [rule for rule in Rule if rule.level is Level.LINK])
def test_a_broken_rule_of_a_link_detaches_the_link_alone(rule: Rule) -> None:
    peer = PLAYS[rule]()
    (error,) = _said(peer, Detach)
    assert error is not None
    assert error.name == rule.condition
    for event in peer.take_events():
        assert not isinstance(event, ConnectionClosed)
        assert not isinstance(event, LinkDetached) or event.condition == error
    peer.send(Detach(handle=0, closed=True))
    peer.attach(name="next", handle=0)
    assert peer.take_event(LinkAttached).name == "next"


@pytest.mark.parametrize("rule", [rule for rule in Rule if rule.level is Level.SESSION])
def test_a_broken_rule_of_a_session_ends_the_session_alone(rule: Rule) -> None:
    peer = PLAYS[rule]()
    (error,) = _said(peer, End)
    assert error is not None
    assert error.name == rule.condition
    assert not [event for event in peer.take_events() if isinstance(event, ConnectionClosed)]
    peer.flow(handle=77)  # under way when the end came: discarded
    peer.send(End())
    peer.begin()


@pytest.mark.parametrize("rule", [rule for rule in Rule if rule.level is Level.CONNECTION])
def test_a_broken_rule_of_the_connection_closes_it(rule: Rule) -> None:
    peer = PLAYS[rule]()
    events = peer.take_events()
    assert isinstance(events[-1], ConnectionClosed)
    assert not events[-1].by_peer
    assert events[-1].condition is not None
    assert events[-1].condition.name == rule.condition
    octets = peer.take_octets()
    if rule in {Rule.SASL_FRAME, Rule.SASL_FRAME_TYPE}:
        mechanisms = frame(0, encode(SaslMechanisms(("ANONYMOUS",))), kind=SASL)
        assert octets == SASL_HEADER + mechanisms  # before the open there is nobody to close for
        assert peer.engine.finished
        return
    assert octets.endswith(frame(0, encode(Close(events[-1].condition))))
    peer.send(Close())
    assert peer.engine.finished
    assert peer.take_events() == []


def test_a_transaction_in_a_later_transfer_or_a_disposition_is_unknown_too() -> None:
    peer = attached()
    peer.transfer(0, more=True)
    peer.transfer(None, state=TransactionalState(b"txn"))
    detach = peer.expect_one(Detach)
    assert detach.error is not None
    assert detach.error.name == TRANSACTION_UNKNOWN_ID
    peer = attached()
    peer.transfer(0)
    peer.send(Disposition(Role.SENDER, 0, state=TransactionalState(b"txn", ACCEPTED)))
    end = peer.expect_one(End)
    assert end.error is not None
    assert end.error.name == TRANSACTION_UNKNOWN_ID


@pytest.mark.parametrize("kind", ["flow", "transfer"])
@pytest.mark.parametrize("is_acknowledged", [True, False])
def test_input_after_our_detach_ends_the_session_only_if_the_detach_was_read(
    kind: str, is_acknowledged: bool
) -> None:
    peer = attached(credit=0)
    peer.attach(Role.RECEIVER, name="back", handle=1)
    back = peer.answer()
    peer.flow(handle=1, link_credit=10)
    peer.transfer(0)
    peer.expect(Detach)
    deliveries: list[Any] = [OutgoingDelivery(DeliveryNumber(1), DeliveryTag(b"t"), b"x")]
    peer.engine.execute(SendDeliveries(back, deliveries))
    peer.expect(Transfer)
    peer.take_events()
    peer.flow(next_incoming_id=1 if is_acknowledged else 0)
    if kind == "flow":
        peer.flow(handle=0, next_incoming_id=None)
    else:
        peer.transfer(1)
    if is_acknowledged:
        error = peer.expect_one(End).error
        assert error is not None
        assert error.name == ERRANT_LINK
    else:
        peer.expect_nothing()


def test_a_handle_is_good_for_another_link_after_one_that_ended_with_an_error() -> None:
    peer = transfer_limit()
    peer.expect(Detach)
    peer.send(Detach(handle=0, closed=True))
    peer.take_events()
    peer.attach(name="next")
    peer.answer(credit=1)
    peer.transfer(1)
    peer.expect_nothing()


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_link_that_cannot_be_answered_or_refused_ends_its_session(is_refused: bool) -> None:
    peer = opened()
    peer.begin(handle_max=0)
    peer.attach()
    first = peer.answer()
    peer.attach(name="second", handle=1)
    second = peer.take_event(LinkAttached)
    if is_refused:
        peer.engine.execute(RefuseLink(second.link, Condition(DETACH_FORCED)))
    else:
        peer.engine.execute(own(second))
    error = peer.expect_one(End).error
    assert error is not None
    assert error.name == NOT_ALLOWED
    peer.collect()
    lost = [event.link for event in peer.take_events() if isinstance(event, LinkDetached)]
    assert lost == ([first] if is_refused else [first, second.link])
    peer.send(End())
    peer.begin()


def test_a_request_that_is_taken_back_and_has_no_handle_ends_its_session() -> None:
    peer = opened()
    peer.begin(handle_max=0)
    peer.attach()
    peer.answer()
    peer.attach(name="second", handle=1)
    peer.send(Detach(handle=1, closed=True))
    assert peer.expect_one(End).error is not None


@pytest.mark.parametrize(
    ("octets", "condition"),
    [
        (b"\x00\x00\x00\x07\x02\x00\x00\x00", FRAMING_ERROR),
        (b"\x00\x00\x00\x08\x01\x00\x00\x00", FRAMING_ERROR),
        (b"\x00\x00\x00\x08\x03\x00\x00\x00", FRAMING_ERROR),
        (b"\x00\x01\x00\x01\x02\x00\x00\x00", FRAMING_ERROR),
        (b"\x00\x00\x00\x08\x02\x02\x00\x00", FRAMING_ERROR),
        (frame(0, b"garbage"), "amqp:decode-error"),
        (frame(0, b"\x00\x53\x10\xc0\x02\x01\x43"), "amqp:invalid-field"),
        (frame(0, b"\x00\x53\x99\x45"), "amqp:decode-error"),
    ],
)
def test_octets_that_are_no_frame_close_the_connection(octets: bytes, condition: str) -> None:
    peer = opened()
    peer.send_octets(octets)
    error = peer.expect_one(Close).error
    assert error is not None
    assert error.name == condition
    assert peer.take_event(ConnectionClosed) == ConnectionClosed(error, by_peer=False)


def test_a_fault_before_our_open_is_told_by_open_and_close() -> None:
    peer = Peer()
    peer.send_octets(AMQP_HEADER + frame(0, b"garbage"))
    peer.expect_octets(AMQP_HEADER)
    _, close = peer.expect(Open, Close)
    assert close.error.name == "amqp:decode-error"


def test_good_frames_before_the_bad_one_still_count() -> None:
    peer = attached()
    good = frame(0, encode(Transfer(0, 0, b"tag", 0, False)), b"\x00\x53\x75\xa0\x01x")
    peer.send_octets(good + bytes(8))
    kinds = [type(event).__name__ for event in peer.take_events()]
    assert kinds == ["DeliveriesReceived", "ConnectionClosed"]


def test_a_refusal_says_nothing_of_a_terminus_and_detaches() -> None:
    peer = begun()
    peer.attach()
    event = peer.take_event(LinkAttached)
    peer.engine.execute(RefuseLink(event.link, Condition("amqp:not-found", "no such address")))
    attach, detach = peer.expect(Attach, Detach)
    assert attach.target is None
    assert attach.source == Source(address="from")
    assert detach == Detach(attach.handle, True, Condition("amqp:not-found", "no such address"))
    peer.send(Detach(0, True))
    peer.expect_nothing()
    assert peer.take_events() == []


def test_conditions_are_cut_to_the_frame_that_the_peer_takes() -> None:
    peer = Peer()
    peer.greet(max_frame_size=512)
    peer.begin()
    peer.attach()
    event = peer.take_event(LinkAttached)
    long = Condition("x:" + "y" * 600, "ü" * 600, {"key": "z" * 600})
    peer.engine.execute(RefuseLink(event.link, long))
    octets = peer.take_octets()
    sizes = []
    at = 0
    while at < len(octets):
        sizes.append(int.from_bytes(octets[at : at + 4], "big"))
        at += sizes[-1]
    assert len(sizes) == 2
    assert max(sizes) <= 512


def test_a_short_condition_is_not_cut() -> None:
    condition = Condition("amqp:not-found", "where", {"a": 1})
    assert fitting(lambda error: encode(Close(error)), condition, 504) == encode(Close(condition))
    assert shortened(Condition("name"), 504) == Condition("name")


def test_a_fault_tells_its_rule_and_its_detail() -> None:
    fault = Fault(Rule.CHANNEL_MAX, "channel 9")
    assert fault.condition == Condition(FRAMING_ERROR, f"{Rule.CHANNEL_MAX.phrase}: channel 9")
    assert Fault(Rule.CHANNEL_MAX).condition.description == Rule.CHANNEL_MAX.phrase
