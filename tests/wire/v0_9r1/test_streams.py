"""Class stream: packets that nobody acknowledges."""

import pytest

from router.model.capabilities import Protocol
from router.model.commands import GrantCredit, SendDeliveries
from router.model.commands import UpdateDeliveries as Update
from router.model.condition import NOT_FOUND, Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import CreditGranted, DeliveriesReceived, DeliveriesUpdated
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.model.outcome import ACCEPTED, Rejected
from router.wire.v0_9_1 import content as contents
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.content import Properties
from router.wire.v0_9_1.types import Seconds
from router.wire.v0_9r1 import methods as d
from router.wire.v0_9r1 import optional as o
from router.wire.v0_9r1.framing import FRAMING, FrameType
from router.wire.v0_9r1.translate import to_sections
from tests.support.basic_messages import content
from tests.support.basic_peer import Content
from tests.support.draft_peer import DraftClientPeer, hexed, wire
from tests.wire.v0_9r1.test_content import made

PACKET = "0008 0000 0000000000000002 0800 0000000000000007"  # timestamp 7


def publish(peer: DraftClientPeer, *, mandatory: bool = False, immediate: bool = False) -> None:
    peer.send(1, o.StreamPublish(routing_key="q", mandatory=mandatory, immediate=immediate))
    peer.feed(
        FRAMING.frame(FrameType.HEADER, 1, hexed(PACKET)) + FRAMING.frame(FrameType.BODY, 1, b"hi")
    )


def consumer(rate: int = 0, queue: str = "q") -> tuple[DraftClientPeer, LinkId]:
    peer = DraftClientPeer().open(1)
    peer.send(1, o.StreamConsume(queue=queue, consume_rate=rate))
    link = peer.accept()
    assert peer.methods() == [o.StreamConsumeOk(1)]
    return peer, link


def packet(number: int, body: bytes = b"hi", *, settled: bool = False) -> OutgoingDelivery:
    return OutgoingDelivery(
        DeliveryNumber(number),
        DeliveryTag(b"%d" % number),
        content(Properties(timestamp=Seconds(7), type="t"), body, exchange=b"e", routing_key=b"k"),
        Protocol.AMQP_0_9R1,
        settled=settled,
    )


def test_a_packet_is_a_delivery_that_is_settled_when_it_comes() -> None:
    peer = DraftClientPeer().open(1)
    publish(peer)
    peer.do(GrantCredit(peer.accept(), 10))
    [event] = [each for each in peer.take_events() if isinstance(each, DeliveriesReceived)]
    [delivery] = event.deliveries
    assert delivery.settled
    message = to_sections(delivery.payload)
    assert message.data == [b"hi"]
    found = contents.properties_of(delivery.payload, contents.content_layout(delivery.payload))
    assert found == Properties(timestamp=Seconds(7))


def test_packets_are_in_no_transaction() -> None:
    peer = DraftClientPeer().open(1)
    peer.send(1, m.TxSelect())
    publish(peer)
    peer.do(GrantCredit(peer.accept(), 10))
    assert any(isinstance(each, DeliveriesReceived) for each in peer.take_events())
    peer.send(1, m.TxRollback(), m.TxCommit())
    assert peer.methods() == [m.TxSelectOk(), m.TxRollbackOk(), m.TxCommitOk()]


@pytest.mark.parametrize("in_transactions", [False, True])
def test_a_mandatory_packet_without_a_route_comes_back_by_its_class(in_transactions: bool) -> None:
    peer = DraftClientPeer().open(1)
    if in_transactions:
        peer.send(1, m.TxSelect())
    publish(peer, mandatory=True)
    link = peer.accept()
    peer.do(GrantCredit(link, 10))
    peer.methods()
    no_route = Rejected(Condition(NOT_FOUND, "no"))
    peer.do(Update(link, [DeliveryNumber(1)], no_route, True))
    [returned] = peer.methods()
    assert isinstance(returned, Content)
    assert isinstance(returned.method, o.StreamReturn)
    assert (returned.method.reply_code, returned.method.routing_key) == (404, "q")
    assert returned.properties == Properties(timestamp=Seconds(7))
    assert returned.body == b"hi"


def test_an_immediate_packet_is_not_implemented() -> None:
    peer = DraftClientPeer().open(1)
    publish(peer, immediate=True)
    [close] = peer.methods()
    assert isinstance(close, m.ConnectionClose)
    assert (close.reply_code, close.class_id, close.method_id) == (540, 8, 5)


def test_a_packet_with_children_is_not_implemented() -> None:
    peer = DraftClientPeer().open(1)
    peer.send(1, o.StreamPublish(routing_key="q"))
    peer.feed(FRAMING.frame(FrameType.HEADER, 1, hexed("0008 0001 0000000000000000 0000")))
    [close] = peer.methods()
    assert isinstance(close, m.ConnectionClose)
    assert close.reply_code == 540


def test_a_content_of_another_class_behind_a_method_is_a_frame_error() -> None:
    peer = DraftClientPeer().open(1)
    peer.send(1, o.StreamPublish(routing_key="q"))
    peer.feed(wire(1, made(b"ab")))
    [close] = peer.methods()
    assert isinstance(close, m.ConnectionClose)
    assert close.reply_code == 501


def test_broken_properties_of_a_packet_are_a_syntax_error() -> None:
    peer = DraftClientPeer().open(1)
    peer.send(1, o.StreamPublish(routing_key="q"))
    peer.feed(FRAMING.frame(FrameType.HEADER, 1, hexed("0008 0000 0000000000000000 0400")))
    [close] = peer.methods()
    assert isinstance(close, m.ConnectionClose)
    assert (close.reply_code, close.class_id, close.method_id) == (502, 8, 5)


def test_a_consumer_gets_packets_which_count_as_accepted() -> None:
    peer, link = consumer()
    peer.take_events()
    peer.do(SendDeliveries(link, [packet(1), packet(2, settled=True)]))
    first, second = peer.methods()
    assert isinstance(first, Content)
    assert first.method == o.StreamDeliver(delivery_tag=1, exchange="e", queue="q")
    assert first.properties == Properties(timestamp=Seconds(7))  # a packet has no type
    assert isinstance(second, Content)
    assert second.method == o.StreamDeliver(delivery_tag=2, exchange="e", queue="q")
    [told] = [each for each in peer.events if isinstance(each, DeliveriesUpdated)]
    assert (list(told.numbers), told.state, told.settled) == ([1], ACCEPTED, True)


def test_a_rate_spreads_packets_over_time() -> None:
    peer, link = consumer(rate=1000)
    assert [each.credit for each in peer.events if isinstance(each, CreditGranted)] == [16]
    peer.do(SendDeliveries(link, [packet(number, bytes(500)) for number in (1, 2, 3)]))
    assert len(peer.methods()) == 1
    peer.wait(0.4)
    assert peer.methods() == []
    peer.wait(0.2)
    assert len(peer.methods()) == 1
    peer.wait(0.3)
    assert peer.methods() == []
    peer.wait(0.2)
    assert len(peer.methods()) == 1


def test_a_consumer_with_a_rate_is_granted_more_when_what_it_had_is_used_up() -> None:
    peer, link = consumer(rate=1000)
    peer.take_events()
    peer.do(SendDeliveries(link, [packet(number, bytes(100)) for number in range(16)]))
    peer.wait(1.45)
    assert len(peer.methods()) == 15
    assert not any(isinstance(each, CreditGranted) for each in peer.take_events())
    peer.wait(0.2)
    assert len(peer.methods()) == 1
    assert [each.credit for each in peer.take_events() if isinstance(each, CreditGranted)] == [16]


def test_a_consumer_that_is_cancelled_gets_nothing_more() -> None:
    peer, link = consumer(rate=1)
    peer.do(SendDeliveries(link, [packet(1), packet(2)]))
    peer.methods()
    peer.send(1, o.StreamCancel(1))
    assert peer.methods() == [o.StreamCancelOk()]
    peer.wait(100)
    assert peer.methods() == []


def test_a_channel_with_a_rate_may_close() -> None:
    peer, link = consumer(rate=1)
    peer.do(SendDeliveries(link, [packet(1), packet(2)]))
    peer.methods()
    peer.send(1, m.ChannelClose())
    assert peer.methods() == [m.ChannelCloseOk()]
    peer.wait(100)
    assert peer.methods() == []


def test_flow_pauses_a_stream() -> None:
    peer, link = consumer(rate=1000)
    peer.send(1, m.ChannelFlow(active=False))
    peer.do(SendDeliveries(link, [packet(1)]))
    assert peer.methods() == []
    peer.send(1, m.ChannelFlow(active=True))
    assert len(peer.methods()) == 1


def test_what_a_router_cannot_promise_a_stream_is_refused_as_for_basic() -> None:
    peer = DraftClientPeer().open(1)
    peer.send(1, o.StreamConsume(queue="q", no_local=True))
    [close] = peer.methods()
    assert isinstance(close, m.ConnectionClose)
    assert (close.reply_code, close.class_id, close.method_id) == (540, 8, 1)
    peer = DraftClientPeer().open(1)
    peer.send(1, o.StreamConsume(queue="q", exclusive=True))
    [refused] = peer.methods()
    assert isinstance(refused, m.ChannelClose)
    assert refused.reply_code == 403


def test_consumers_of_all_classes_share_a_queue() -> None:
    peer, link = consumer()
    peer.send(1, d.BasicConsume(queue="q", auto_ack=True))
    assert peer.methods() == [d.BasicConsumeOk(2)]
    peer.do(SendDeliveries(link, [packet(1), packet(2)]))
    kinds = [type(each.method) for each in peer.methods() if isinstance(each, Content)]
    assert sorted(kind.__name__ for kind in kinds) == ["BasicDeliver", "StreamDeliver"]
