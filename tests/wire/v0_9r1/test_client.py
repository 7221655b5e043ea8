"""Our side towards a broker of the draft: transactions for outcomes, consumers with prefetch."""

import pytest

from router.model.capabilities import Protocol
from router.model.commands import GrantCredit, SendDeliveries
from router.model.commands import UpdateDeliveries as Update
from router.model.condition import NOT_FOUND
from router.model.delivery import OutgoingDelivery
from router.model.events import (
    CreditGranted,
    DeliveriesReceived,
    DeliveriesUpdated,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.model.outcome import (
    ACCEPTED,
    REJECTED,
    RELEASED,
    Accepted,
    DeliveryState,
    Rejected,
    Released,
)
from router.model.terminus import Role, SenderSettleMode
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.content import Properties, encode_properties
from router.wire.v0_9r1 import methods as d
from router.wire.v0_9r1.content import fold
from router.wire.v0_9r1.framing import FRAMING, FrameType
from tests.support.basic_messages import content
from tests.support.basic_peer import Content, attach
from tests.support.draft_peer import DraftBrokerPeer, hexed, wire
from tests.wire.v0_9r1.test_content import made

LINK = LinkId(1)


def sender(mode: SenderSettleMode = SenderSettleMode.MIXED) -> DraftBrokerPeer:
    """A link to a queue that is attached."""
    peer = DraftBrokerPeer().open()
    peer.do(attach(Role.SENDER, "q", mode=mode))
    answers: list[m.Method] = [m.ChannelOpenOk(), m.QueueDeclareOk("q")]
    if mode is not SenderSettleMode.SETTLED:
        answers.append(m.TxSelectOk())
    peer.answer(1, *answers)
    return peer


def send(peer: DraftBrokerPeer, *bodies: bytes) -> None:
    run = [
        OutgoingDelivery(
            DeliveryNumber(number),
            DeliveryTag(b"%d" % number),
            content(Properties(), body),
            Protocol.AMQP_0_9R1,
        )
        for number, body in enumerate(bodies, 1)
    ]
    peer.do(SendDeliveries(LINK, run))


def outcomes(peer: DraftBrokerPeer) -> dict[int, DeliveryState | None]:
    return {
        number: event.state
        for event in peer.take_events()
        if isinstance(event, DeliveriesUpdated)
        for number in event.numbers
    }


def test_a_link_that_wants_outcomes_is_transactional() -> None:
    peer = sender()
    kinds = [type(one) for one in peer.methods()]
    assert kinds == [m.ChannelOpen, m.QueueDeclare, m.TxSelect]
    attached, granted = peer.take_events()
    assert isinstance(attached, LinkAttached)
    assert isinstance(granted, CreditGranted)
    assert granted.credit > 0


def test_a_link_that_wants_none_is_not() -> None:
    peer = sender(SenderSettleMode.SETTLED)
    assert m.TxSelect not in [type(one) for one in peer.methods()]
    send(peer, b"a")
    [published] = peer.methods()
    assert isinstance(published, Content)
    assert isinstance(published.method, m.BasicPublish)
    assert not published.method.mandatory


def test_each_publish_is_mandatory_and_a_transaction_of_its_own() -> None:
    peer = sender()
    peer.received()
    send(peer, b"a", b"b")
    told = peer.methods()
    kinds = [type(one.method if isinstance(one, Content) else one) for one in told]
    assert kinds == [m.BasicPublish, m.TxCommit] * 2
    assert isinstance(told[0], Content)
    assert told[0].method == m.BasicPublish(routing_key="q", mandatory=True)
    peer.take_events()
    peer.send(1, m.TxCommitOk())
    assert outcomes(peer) == {1: ACCEPTED}
    peer.send(1, m.TxCommitOk())
    assert outcomes(peer) == {2: ACCEPTED}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (312, Rejected),
        (404, Rejected),
        (310, Released),
        (313, Released),
        (403, Rejected),
        (541, Rejected),
    ],
)
def test_what_comes_back_has_the_outcome_that_its_code_says(code: int, kind: type) -> None:
    peer = sender()
    send(peer, b"same", b"same")
    peer.take_events()
    peer.send(1, m.TxCommitOk())
    peer.feed(peer.content(1, m.BasicReturn(reply_code=code, routing_key="q"), b"same"))
    peer.send(1, m.TxCommitOk())
    found = outcomes(peer)
    assert found[1] == ACCEPTED
    assert isinstance(found[2], kind)
    if code in (312, 404):
        assert isinstance(found[2], Rejected)
        assert found[2].error is not None
        assert found[2].error.name == NOT_FOUND


def test_a_commit_ok_that_nobody_asked_for_is_out_of_place() -> None:
    peer = sender()
    peer.received()
    peer.send(1, m.TxCommitOk())
    [close] = peer.methods()
    assert isinstance(close, m.ConnectionClose)
    assert close.reply_code == 503


def test_a_channel_that_the_broker_closes_is_a_link_detached_with_the_open_ones_in_doubt() -> None:
    peer = sender()
    send(peer, b"a", b"b")
    peer.take_events()
    peer.send(1, m.TxCommitOk(), m.ChannelClose(reply_code=310, reply_text="no"))
    events = peer.take_events()
    assert [type(one) for one in events] == [DeliveriesUpdated, LinkDetached]
    assert isinstance(events[0], DeliveriesUpdated)
    assert list(events[0].numbers) == [1]
    assert isinstance(events[0].state, Accepted)


def test_children_are_frames_again_and_known_when_they_come_back() -> None:
    peer = sender()
    peer.received()
    tree = made(b"parent", made(b"child"), properties=Properties(headers={"a": "b"}))
    payload = b"\0\0\0" + fold(tree) + b"parent"
    peer.do(
        SendDeliveries(
            LINK,
            [OutgoingDelivery(DeliveryNumber(1), DeliveryTag(b"t"), payload, Protocol.AMQP_0_9R1)],
        )
    )
    octets = peer.octets()
    assert wire(1, tree) in octets
    peer.take_events()
    returned = d.CODEC.encode(m.BasicReturn(reply_code=310, routing_key="q"))
    peer.feed(FRAMING.frame(FrameType.METHOD, 1, returned) + wire(1, tree))
    assert outcomes(peer) == {1: RELEASED}


# --- receiving ------------------------------------------------------------------------------------


def receiver(credit: int = 5) -> DraftBrokerPeer:
    """A link from a queue, with a consumer that the broker calls 77."""
    peer = DraftBrokerPeer().open()
    peer.do(attach(Role.RECEIVER, "q"), GrantCredit(LINK, credit))
    peer.answer(1, m.ChannelOpenOk(), m.QueueDeclareOk("q"))
    peer.answer(1, d.BasicConsumeOk(77))
    return peer


def deliver(peer: DraftBrokerPeer, tag: int, body: bytes = b"x") -> None:
    method = d.BasicDeliver(consumer_tag=77, delivery_tag=tag, routing_key="q")
    peer.feed(peer.content(1, method, body))


def test_a_consumer_is_asked_for_with_the_credit_for_prefetch() -> None:
    peer = receiver(5)
    asked = [one for one in peer.methods() if isinstance(one, d.BasicConsume)]
    assert asked == [d.BasicConsume(queue="q", prefetch_count=5)]


def test_a_consumer_is_cancelled_by_the_number_that_the_broker_chose() -> None:
    peer = receiver()
    peer.received()
    peer.do(GrantCredit(LINK, 0))
    assert peer.methods() == [d.BasicCancel(77)]
    peer.answer(1, d.BasicCancelOk())
    peer.do(GrantCredit(LINK, 3))
    assert peer.methods() == [d.BasicConsume(queue="q", prefetch_count=3)]


def test_deliveries_are_told_and_their_outcomes_sent() -> None:
    peer = receiver()
    peer.received()
    for tag in (1, 2, 3, 4):
        deliver(peer, tag)
    found = [
        delivery
        for event in peer.take_events()
        if isinstance(event, DeliveriesReceived)
        for delivery in event.deliveries
    ]
    assert [each.number for each in found] == [1, 2, 3, 4]
    assert {each.protocol for each in found} == {Protocol.AMQP_0_9R1}
    numbers = [each.number for each in found]
    peer.do(
        Update(LINK, numbers[:2], ACCEPTED, True),
        Update(LINK, numbers[2:3], REJECTED, True),
        Update(LINK, numbers[3:], RELEASED, True),
    )
    told = sorted(peer.methods(), key=repr)
    assert told == sorted(
        [m.BasicAck(2, multiple=True), m.BasicReject(3, requeue=False), m.BasicReject(4)],
        key=repr,
    )


def test_an_ack_is_written_as_the_table_has_it() -> None:
    peer = receiver()
    peer.received()
    deliver(peer, 1)
    peer.do(Update(LINK, [DeliveryNumber(1)], ACCEPTED, True))
    assert peer.octets() == hexed("01 00 0001 0000000d 0006 000b 0000000000000001 00 ce")


def test_a_drain_fetches_what_is_there_one_by_one() -> None:
    peer = DraftBrokerPeer().open()
    peer.do(attach(Role.RECEIVER, "q"))
    peer.answer(1, m.ChannelOpenOk(), m.QueueDeclareOk("q"))
    peer.do(GrantCredit(LINK, 2, drain=True))
    peer.received()
    peer.feed(peer.content(1, m.BasicGetOk(delivery_tag=1, routing_key="q"), b"x"))
    assert peer.methods() == [m.BasicGet(queue="q")]
    peer.send(1, m.BasicGetEmpty())
    assert not peer.engine.finished


def test_the_properties_that_are_sent_are_the_drafts() -> None:
    peer = sender()
    peer.received()
    rich = content(Properties(headers={"x-flag": True, "n": 1 << 40}), b"b")
    delivery = OutgoingDelivery(DeliveryNumber(1), DeliveryTag(b"t"), rich, Protocol.AMQP_0_9_1)
    peer.do(SendDeliveries(LINK, [delivery]))
    [published, _] = peer.methods()
    assert isinstance(published, Content)
    assert published.properties.headers is not None
    assert list(published.properties.headers) == ["n", "$router"]
    assert encode_properties(published.properties)
