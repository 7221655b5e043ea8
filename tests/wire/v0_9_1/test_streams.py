"""We read a stream of RabbitMQ from an offset."""

from typing import Any

import attrs
import pytest

from router.model.commands import GrantCredit, UpdateDeliveries
from router.model.events import CreditReturned, DeliveriesReceived, Event, LinkAttached
from router.model.identity import DeliveryNumber, LinkId
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, REJECTED, RELEASED, DeliveryState
from router.model.terminus import STREAM_OFFSET, Role, SenderSettleMode, Source
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.broker_receiver import CONSUMER_TAG
from router.wire.v0_9_1.content import Properties, content_layout
from router.wire.v0_9_1.types import Seconds
from router.wire.v1_0.types import Described, Symbol, Timestamp, Ulong
from tests.support.basic_peer import BrokerPeer, attach

LINK = LinkId(1)


def reading(
    spec: object = "first",
    credit: int = 10,
    mode: SenderSettleMode = SenderSettleMode.UNSETTLED,
) -> BrokerPeer:
    """A link that has asked for a consumer, which the broker has not answered yet."""
    name = Symbol(STREAM_OFFSET)
    source = Source(address="s", filters={name: Described(name, spec)})
    peer = BrokerPeer().open()
    peer.do(attrs.evolve(attach(Role.RECEIVER, "s", mode=mode), source=source))
    events = peer.answer(1, m.ChannelOpenOk(), m.QueueDeclareOk("s"))
    [attached] = [each for each in events if isinstance(each, LinkAttached)]
    assert attached.source == source, "the filter is applied"
    peer.received()
    peer.do(GrantCredit(LINK, credit))
    return peer


def started(peer: BrokerPeer) -> Any:
    """The offset of the consumer that was asked for, and is now there."""
    qos, consume = peer.methods()
    assert isinstance(qos, m.BasicQos)
    assert qos.prefetch_count
    assert isinstance(consume, m.BasicConsume)
    assert not consume.no_ack
    peer.send(1, m.BasicQosOk(), m.BasicConsumeOk(CONSUMER_TAG))
    return consume.arguments["x-stream-offset"]


@attrs.define
class Stream:
    """The broker's side: it numbers deliveries of a channel."""

    peer: BrokerPeer
    tag: int = 0

    def deliver(self, *offsets: int) -> list[int]:
        """Delivers messages; returns the offsets of those that are reported."""
        octets = b""
        for offset in offsets:
            self.tag += 1
            deliver = m.BasicDeliver(
                consumer_tag=CONSUMER_TAG, delivery_tag=self.tag, exchange="", routing_key="s"
            )
            headers = Properties(headers={"x-stream-offset": offset})
            octets += self.peer.content(1, deliver, b"%d" % offset, headers)
        return reported(self.peer.feed(octets))

    def restart(self) -> Any:
        """The consumer is cancelled and started again; returns where."""
        assert m.BasicCancel(CONSUMER_TAG) in self.peer.methods()
        self.peer.send(1, m.BasicCancelOk(CONSUMER_TAG))
        return started(self.peer)


def reported(events: list[Event]) -> list[int]:
    return [
        int(each.payload[content_layout(each.payload).body_start :])
        for event in events
        if isinstance(event, DeliveriesReceived)
        for each in event.deliveries
    ]


def answer(peer: BrokerPeer, state: DeliveryState, *tags: int) -> None:
    peer.do(UpdateDeliveries(LINK, [DeliveryNumber(tag) for tag in tags], state, True))


@pytest.mark.parametrize(
    ("spec", "argument"),
    [("first", "first"), (Ulong(7), 7), (Timestamp(90_000), Seconds(90)), ("1h", "1h")],
)
def test_the_consumer_begins_where_the_filter_says(spec: object, argument: object) -> None:
    assert started(reading(spec)) == argument


def test_what_is_accepted_or_rejected_is_acknowledged() -> None:
    peer = reading()
    started(peer)
    assert Stream(peer).deliver(0, 1, 2) == [0, 1, 2]
    answer(peer, ACCEPTED, 1, 2)
    assert peer.methods() == [m.BasicAck(2, multiple=True)]
    answer(peer, REJECTED, 3)
    assert peer.methods() == [m.BasicAck(3)]


@pytest.mark.parametrize("state", [RELEASED, MODIFIED_FAILED])
def test_what_is_released_comes_again_and_nothing_else_does(state: DeliveryState) -> None:
    peer = reading()
    started(peer)
    stream = Stream(peer)
    assert stream.deliver(10, 11, 12, 13) == [10, 11, 12, 13]
    answer(peer, ACCEPTED, 1)
    answer(peer, state, 2)
    assert stream.deliver(14) == [14], "the cancel is under way"
    answer(peer, state, 4)
    assert stream.restart() == 11
    assert stream.deliver(11, 12, 13, 14, 15) == [11, 13, 15]
    peer.methods()
    answer(peer, ACCEPTED, 6, 8, 10)
    assert stream.deliver(16) == [16]


def test_what_has_gone_from_the_stream_is_not_waited_for() -> None:
    peer = reading()
    started(peer)
    stream = Stream(peer)
    stream.deliver(1, 2, 3)
    answer(peer, RELEASED, 1, 3)
    assert stream.restart() == 1
    assert stream.deliver(3) == [3]
    answer(peer, RELEASED, 4)
    assert stream.restart() == 3


def test_a_consumer_without_credit_stays_and_holds_what_comes() -> None:
    peer = reading("next", credit=2)
    started(peer)
    stream = Stream(peer)
    peer.do(GrantCredit(LINK, 0))
    assert stream.deliver(5, 6) == []
    assert peer.methods() == []
    assert reported(peer.do(GrantCredit(LINK, 1))) == [5]
    assert reported(peer.do(GrantCredit(LINK, 1))) == [6]


def test_what_is_held_when_the_consumer_starts_again_comes_again_once() -> None:
    peer = reading(credit=2)
    started(peer)
    stream = Stream(peer)
    assert stream.deliver(0, 1, 2, 3) == [0, 1]
    answer(peer, RELEASED, 1)
    peer.do(GrantCredit(LINK, 0))
    assert m.BasicCancel(CONSUMER_TAG) in peer.methods()
    peer.send(1, m.BasicCancelOk(CONSUMER_TAG))
    peer.do(GrantCredit(LINK, 10))
    assert next(each for each in peer.methods() if isinstance(each, m.BasicConsume)).arguments == {
        "x-stream-offset": 0
    }
    peer.send(1, m.BasicQosOk(), m.BasicConsumeOk(CONSUMER_TAG))
    assert stream.deliver(0, 1, 2, 3, 4) == [0, 2, 3, 4]


def test_a_drain_is_answered_at_once_and_gets_nothing() -> None:
    peer = reading(credit=2)
    started(peer)
    events = peer.do(GrantCredit(LINK, 5, drain=True))
    assert CreditReturned(LINK, 0) in events
    assert not any(isinstance(each, m.BasicGet | m.BasicCancel) for each in peer.methods())
    assert Stream(peer).deliver(0) == []
    assert reported(peer.do(GrantCredit(LINK, 5))) == [0]


def test_a_link_for_settled_deliveries_acknowledges_what_it_reports() -> None:
    peer = reading(mode=SenderSettleMode.SETTLED)
    started(peer)
    assert Stream(peer).deliver(0, 1) == [0, 1]
    assert peer.methods() == [m.BasicAck(2, multiple=True)]
