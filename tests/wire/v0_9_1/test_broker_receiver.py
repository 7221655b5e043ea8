"""We consume from a broker."""

import attrs
import pytest

from router.model import condition as conditions
from router.model.commands import (
    CloseConnection,
    DetachLink,
    GrantCredit,
    HoldWindow,
    UpdateDeliveries,
)
from router.model.events import (
    ConnectionClosed,
    CreditReturned,
    DeliveriesReceived,
    DeliveriesUpdated,
    Event,
    LinkDetached,
    SubscriptionEnded,
)
from router.model.identity import DeliveryNumber, LinkId
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    REJECTED,
    RELEASED,
    DeliveryState,
)
from router.model.terminus import SUBSCRIPTION, Role, SenderSettleMode, Target
from router.wire.holding import HOLD_SECONDS
from router.wire.machine import CLOSE_SECONDS
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.broker_receiver import CONSUMER_TAG
from router.wire.v0_9_1.content import Properties, content_layout, content_route
from tests.support.basic_peer import BrokerPeer, attach

LINK = LinkId(1)


def idle(address: str = "q", mode: SenderSettleMode = SenderSettleMode.UNSETTLED) -> BrokerPeer:
    """A link that is attached and has no credit yet."""
    peer = BrokerPeer().open()
    peer.do(attach(Role.RECEIVER, address, mode=mode))
    peer.answer(1, m.ChannelOpenOk(), m.QueueDeclareOk("q"))
    peer.received()
    peer.take_events()
    return peer


def consuming(credit: int = 10, mode: SenderSettleMode = SenderSettleMode.UNSETTLED) -> BrokerPeer:
    peer = idle(mode=mode)
    peer.do(GrantCredit(LINK, credit))
    assert peer.methods() == [
        m.BasicQos(prefetch_count=credit),
        m.BasicConsume(queue="q", consumer_tag=CONSUMER_TAG),
    ]
    peer.send(1, m.BasicQosOk(), m.BasicConsumeOk(CONSUMER_TAG))
    return peer


def deliver(peer: BrokerPeer, *tags: int, redelivered: bool = False) -> list[Event]:
    return peer.feed(
        b"".join(
            peer.content(
                1,
                m.BasicDeliver(
                    consumer_tag=CONSUMER_TAG,
                    delivery_tag=tag,
                    redelivered=redelivered,
                    exchange="ex",
                    routing_key="key",
                ),
                b"%d" % tag,
            )
            for tag in tags
        )
    )


def numbers(events: list[Event]) -> list[int]:
    return [
        delivery.number
        for event in events
        if isinstance(event, DeliveriesReceived)
        for delivery in event.deliveries
    ]


def update(
    peer: BrokerPeer, state: DeliveryState | None, *tags: int, settled: bool = True
) -> list[object]:
    peer.do(UpdateDeliveries(LINK, [DeliveryNumber(tag) for tag in tags], state, settled))
    return list(peer.methods())


# --- credit and the consumer ----------------------------------------------------------------------


def test_the_first_credit_is_the_prefetch_and_starts_the_consumer() -> None:
    peer = consuming(credit=5)
    peer.do(GrantCredit(LINK, 5))
    assert peer.received() == []


def test_deliveries_in_one_piece_are_one_run_with_their_tags_as_numbers() -> None:
    peer = consuming()
    [event] = deliver(peer, 1, 2, 3)
    assert isinstance(event, DeliveriesReceived)
    assert numbers([event]) == [1, 2, 3]
    delivery = event.deliveries[0]
    assert delivery.delivery_count == 0
    assert delivery.settled is False
    assert content_route(delivery.payload) == (b"ex", b"key")
    assert delivery.payload.endswith(b"1")


@pytest.mark.parametrize("size", [1, 5, 20, 33])
def test_deliveries_may_come_in_pieces_of_any_size(size: int) -> None:
    peer = consuming()
    octets = b"".join(
        peer.content(1, m.BasicDeliver(consumer_tag=CONSUMER_TAG, delivery_tag=tag), b"body")
        for tag in (1, 2, 3)
    )
    for start in range(0, len(octets), size):
        peer.feed(octets[start : start + size])
    assert numbers(peer.take_events()) == [1, 2, 3]


def test_bodies_of_many_frames_and_of_none_are_whole() -> None:
    peer = consuming()
    method = m.BasicDeliver(consumer_tag=CONSUMER_TAG, delivery_tag=1)
    peer.feed(peer.content(1, method, b"x" * 10_000))
    peer.feed(peer.content(1, m.BasicDeliver(consumer_tag=CONSUMER_TAG, delivery_tag=2), b""))
    sizes = []
    for event in peer.take_events():
        assert isinstance(event, DeliveriesReceived)
        sizes += [content_layout(one.payload).body_octets for one in event.deliveries]
    assert sizes == [10_000, 0]


def test_redelivered_counts_as_an_attempt_and_a_counted_header_as_it_says() -> None:
    peer = consuming()
    deliver(peer, 1, redelivered=True)
    counted = Properties(headers={"x-delivery-count": 4}, expiration="250")
    for tag, redelivered in ((2, True), (3, False)):
        method = m.BasicDeliver(
            consumer_tag=CONSUMER_TAG, delivery_tag=tag, redelivered=redelivered
        )
        peer.feed(peer.content(1, method, b"", counted))
    found = []
    for event in peer.take_events():
        assert isinstance(event, DeliveriesReceived)
        found += [(one.delivery_count, one.ttl_milliseconds) for one in event.deliveries]
    assert found[0] == (1, None)
    assert found[1] == (4, 250)
    assert found[2][1] == 250


def test_what_comes_beyond_the_credit_is_held_until_it_is_granted() -> None:
    peer = consuming(credit=2)
    assert numbers(deliver(peer, 1, 2)) == [1, 2]
    assert update(peer, ACCEPTED, 1) == [m.BasicAck(1)]
    assert deliver(peer, 3) == []
    assert numbers(peer.do(GrantCredit(LINK, 1))) == [3]


def test_a_held_window_holds_deliveries_whatever_the_credit() -> None:
    peer = consuming()
    peer.do(HoldWindow(LINK, True))
    assert deliver(peer, 1) == []
    assert numbers(peer.do(HoldWindow(LINK, False))) == [1]


def test_more_than_twice_the_prefetch_starts_the_consumer_anew() -> None:
    peer = consuming(credit=2)
    deliver(peer, 1, 2)
    peer.do(GrantCredit(LINK, 2))
    assert peer.received() == []
    peer.do(GrantCredit(LINK, 10))
    assert peer.methods() == [m.BasicCancel(CONSUMER_TAG)]
    assert numbers(deliver(peer, 3)) == [3]
    peer.send(1, m.BasicCancelOk(CONSUMER_TAG))
    assert peer.methods() == [
        m.BasicQos(prefetch_count=9),
        m.BasicConsume(queue="q", consumer_tag=CONSUMER_TAG),
    ]


def test_credit_taken_back_stops_the_consumer_and_what_is_held_stays() -> None:
    """A broker counts what is returned, and nobody has seen it."""
    peer = consuming(credit=2)
    deliver(peer, 1, 2)
    update(peer, ACCEPTED, 1)
    deliver(peer, 3)
    peer.take_events()
    peer.do(GrantCredit(LINK, 0))
    assert peer.methods() == [m.BasicCancel(CONSUMER_TAG)]
    deliver(peer, 4)
    peer.send(1, m.BasicCancelOk(CONSUMER_TAG))
    assert peer.methods() == []
    assert peer.take_events() == []
    assert update(peer, ACCEPTED, 2) == [m.BasicAck(2)]
    assert numbers(peer.do(GrantCredit(LINK, 1))) == [3]
    assert peer.methods() == []
    assert numbers(peer.do(GrantCredit(LINK, 2))) == [4]
    assert peer.methods()[0] == m.BasicQos(prefetch_count=1)


def test_what_is_held_goes_back_when_nobody_grants_credit_for_long() -> None:
    """Others may be waiting for it."""
    peer = consuming(credit=1)
    deliver(peer, 1, 2)
    peer.do(GrantCredit(LINK, 0))
    peer.send(1, m.BasicCancelOk(CONSUMER_TAG))
    peer.methods()
    peer.wait(HOLD_SECONDS - 0.01)
    assert peer.methods() == []
    peer.wait(0.02)
    assert peer.methods() == [m.BasicReject(2, requeue=True)]


def test_what_is_held_goes_back_with_what_receivers_return() -> None:
    """Nobody takes it then."""
    peer = consuming(credit=2)
    deliver(peer, 1, 2, 3, 4)
    peer.do(GrantCredit(LINK, 0, drain=True))
    peer.send(1, m.BasicCancelOk(CONSUMER_TAG))
    peer.methods()
    assert update(peer, REJECTED, 1) == [m.BasicReject(1, requeue=False)]
    assert update(peer, RELEASED, 2) == [m.BasicReject(tag, requeue=True) for tag in (2, 3, 4)]


def test_a_drain_gets_nothing_while_its_window_is_held() -> None:
    peer = consuming(credit=2)
    peer.do(HoldWindow(LINK, True), GrantCredit(LINK, 1, drain=True))
    peer.send(1, m.BasicCancelOk(CONSUMER_TAG))
    assert not any(isinstance(each, m.BasicGet) for each in peer.methods())
    peer.do(HoldWindow(LINK, False))
    assert peer.methods() == [m.BasicGet(queue="q")]


# --- drain ----------------------------------------------------------------------------------------


def test_a_drain_without_a_consumer_gets_one_by_one_until_nothing_is_there() -> None:
    peer = idle()
    peer.do(GrantCredit(LINK, 3, drain=True))
    assert peer.methods() == [m.BasicGet(queue="q")]
    events = peer.feed(
        peer.content(1, m.BasicGetOk(delivery_tag=1, exchange="", routing_key="q"), b"1")
    )
    assert numbers(events) == [1]
    assert peer.methods() == [m.BasicGet(queue="q")]
    assert peer.send(1, m.BasicGetEmpty()) == [CreditReturned(LINK, 0)]
    assert peer.received() == []


def test_a_drain_stops_when_the_credit_is_used_up() -> None:
    peer = idle()
    peer.do(GrantCredit(LINK, 1, drain=True))
    peer.received()
    events = peer.feed(peer.content(1, m.BasicGetOk(delivery_tag=1), b"1"))
    assert numbers(events) == [1]
    assert events[-1] == CreditReturned(LINK, 0)
    assert peer.received() == []


def test_a_drain_of_a_consumer_cancels_it_first_and_then_gets() -> None:
    peer = consuming(credit=3)
    deliver(peer, 1)
    peer.take_events()
    peer.do(GrantCredit(LINK, 2, drain=True))
    assert peer.methods() == [m.BasicCancel(CONSUMER_TAG)]
    assert numbers(deliver(peer, 2)) == [2]
    peer.send(1, m.BasicCancelOk(CONSUMER_TAG))
    assert peer.methods() == [m.BasicGet(queue="q")]
    assert peer.send(1, m.BasicGetEmpty()) == [CreditReturned(LINK, 0)]


def test_a_drain_of_no_credit_is_answered_when_nothing_is_under_way() -> None:
    peer = consuming(credit=3)
    peer.take_events()
    peer.do(GrantCredit(LINK, 0, drain=True))
    assert peer.take_events() == []
    peer.received()
    assert peer.send(1, m.BasicCancelOk(CONSUMER_TAG)) == [CreditReturned(LINK, 0)]


def test_credit_that_comes_before_the_link_is_attached_counts_when_it_is() -> None:
    peer = BrokerPeer().open()
    peer.do(attach(Role.RECEIVER, "q"), GrantCredit(LINK, 7))
    peer.answer(1, m.ChannelOpenOk(), m.QueueDeclareOk("q"))
    assert peer.methods()[-2] == m.BasicQos(prefetch_count=7)


# --- outcomes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "frames"),
    [
        (ACCEPTED, [m.BasicAck(3, multiple=True)]),
        (REJECTED, [m.BasicReject(tag, requeue=False) for tag in (1, 2, 3)]),
        (RELEASED, [m.BasicReject(tag, requeue=True) for tag in (1, 2, 3)]),
        (MODIFIED_FAILED, [m.BasicReject(tag, requeue=True) for tag in (1, 2, 3)]),
        (None, [m.BasicReject(tag, requeue=True) for tag in (1, 2, 3)]),
    ],
)
def test_outcomes_become_what_0_9_1_has_for_them(
    state: DeliveryState | None, frames: list[m.Method]
) -> None:
    peer = consuming()
    deliver(peer, 1, 2, 3)
    assert update(peer, state, 1, 2, 3) == frames
    assert update(peer, state, 1, 2, 3) == []


def test_acks_are_joined_only_behind_what_is_done() -> None:
    peer = consuming()
    deliver(peer, 1, 2, 3, 4, 5, 6)
    peer.do(
        UpdateDeliveries(LINK, [DeliveryNumber(5)], ACCEPTED, True),
        UpdateDeliveries(LINK, [DeliveryNumber(2), DeliveryNumber(1)], ACCEPTED, True),
    )
    assert peer.methods() == [m.BasicAck(2, multiple=True), m.BasicAck(5)]
    assert update(peer, ACCEPTED, 4) == [m.BasicAck(4)]
    assert update(peer, ACCEPTED, 3, 6) == [m.BasicAck(6, multiple=True)]


def test_acks_never_cover_what_is_held() -> None:
    peer = consuming(credit=2)
    deliver(peer, 1, 2)
    peer.do(HoldWindow(LINK, True))
    deliver(peer, 3)
    assert update(peer, ACCEPTED, 1, 2) == [m.BasicAck(2, multiple=True)]


def test_an_outcome_that_waits_for_the_broker_is_settled_for_it() -> None:
    peer = consuming()
    deliver(peer, 1)
    peer.take_events()
    assert update(peer, ACCEPTED, 1, settled=False) == [m.BasicAck(1)]
    assert peer.take_events() == [DeliveriesUpdated(LINK, [DeliveryNumber(1)], ACCEPTED, True)]


def test_a_settled_link_acknowledges_as_it_hands_on() -> None:
    peer = consuming(credit=2, mode=SenderSettleMode.SETTLED)
    [event] = deliver(peer, 1, 2)
    assert isinstance(event, DeliveriesReceived)
    assert all(delivery.settled for delivery in event.deliveries)
    assert peer.methods() == [m.BasicAck(2, multiple=True)]
    assert deliver(peer, 3) == []
    assert peer.methods() == []


# --- ends -----------------------------------------------------------------------------------------


def test_a_consumer_that_the_broker_cancels_is_a_link_detached() -> None:
    peer = consuming()
    events = peer.send(1, m.BasicCancel(CONSUMER_TAG, no_wait=True))
    [detached] = events
    assert isinstance(detached, LinkDetached)
    assert detached.condition is not None
    assert detached.condition.name == conditions.RESOURCE_DELETED
    [close] = peer.methods()
    assert isinstance(close, m.ChannelClose)


def test_what_is_to_be_acknowledged_goes_out_before_the_channel_is_closed() -> None:
    peer = consuming()
    deliver(peer, 1, 2)
    peer.do(UpdateDeliveries(LINK, [DeliveryNumber(1)], ACCEPTED, True), DetachLink(LINK, True))
    ack, close = peer.methods()
    assert ack == m.BasicAck(1)
    assert isinstance(close, m.ChannelClose)


def test_an_exchange_is_consumed_through_a_queue_of_our_own_that_goes_with_the_link() -> None:
    peer = BrokerPeer().open()
    peer.do(attach(Role.RECEIVER, "logs/kern.*"), GrantCredit(LINK, 5))
    peer.send(1, m.ChannelOpenOk())
    peer.send(1, m.ExchangeDeclareOk())
    peer.send(1, m.QueueDeclareOk("amq.gen-1"))
    peer.send(1, m.QueueBindOk())
    assert peer.methods() == [
        m.ChannelOpen(),
        m.ExchangeDeclare(exchange="logs", type="topic", passive=True),
        m.QueueDeclare(exclusive=True),
        m.QueueBind(exchange="logs", routing_key="kern.*"),
        m.BasicQos(prefetch_count=5),
        m.BasicConsume(queue="amq.gen-1", consumer_tag=CONSUMER_TAG),
    ]
    peer.do(DetachLink(LINK, True))
    assert peer.methods()[0] == m.QueueDelete(queue="amq.gen-1", no_wait=True)


def subscribed(address: str = "prices/#") -> BrokerPeer:
    """A link that is fed by a queue which stays, each delivery with an address of its own."""
    peer = BrokerPeer().open()
    command = attach(Role.RECEIVER, address)
    peer.do(
        attrs.evolve(command, target=Target(address=None), properties={SUBSCRIPTION: "dc1.prices"})
    )
    peer.send(1, m.ChannelOpenOk(), m.ExchangeDeclareOk(), m.QueueDeclareOk("dc1.prices"))
    peer.send(1, m.QueueBindOk())
    return peer


def test_a_subscription_is_a_durable_queue_that_is_bound_and_stays() -> None:
    peer = subscribed()
    assert peer.methods()[-3:] == [
        m.ExchangeDeclare(exchange="prices", type="topic", passive=True),
        m.QueueDeclare(queue="dc1.prices", durable=True),
        m.QueueBind(queue="dc1.prices", exchange="prices", routing_key="#"),
    ]
    peer.do(DetachLink(LINK, closed=True))
    assert [type(each) for each in peer.methods()] == [m.ChannelClose]


def test_each_delivery_of_an_exchange_has_the_address_that_it_was_published_to() -> None:
    peer = subscribed()
    peer.do(GrantCredit(LINK, 10))
    peer.send(1, m.BasicQosOk(), m.BasicConsumeOk(CONSUMER_TAG))
    (event,) = (each for each in deliver(peer, 1, 2) if isinstance(each, DeliveriesReceived))
    assert [each.address for each in event.deliveries] == ["ex/key", "ex/key"]


def test_a_subscription_ends_with_its_messages_back_in_the_queue_and_the_binding_gone() -> None:
    peer = subscribed()
    peer.do(GrantCredit(LINK, 10))
    peer.send(1, m.BasicQosOk(), m.BasicConsumeOk(CONSUMER_TAG))
    deliver(peer, 1)
    peer.methods()
    peer.do(DetachLink(LINK, closed=True, unsubscribes=True))
    assert peer.methods() == [m.BasicCancel(CONSUMER_TAG)], "it is answered late"
    assert not numbers(deliver(peer, 2)), "what was on its way is the queue's again"
    peer.send(1, m.BasicCancelOk(CONSUMER_TAG))
    assert peer.methods() == [
        m.BasicNack(0, multiple=True, requeue=True),
        m.QueueUnbind(queue="dc1.prices", exchange="prices", routing_key="#"),
    ]
    peer.send(1, m.QueueUnbindOk())
    assert peer.methods() == [m.QueueDeclare(queue="dc1.prices", passive=True)]
    events = peer.send(1, m.QueueDeclareOk("dc1.prices", 7))
    assert events == [
        SubscriptionEnded(
            link=LINK, queue="dc1.prices", address="prices/#", messages=7, is_unbound=True
        )
    ]
    assert [type(each) for each in peer.methods()] == [m.ChannelClose]


def unsubscribing() -> BrokerPeer:
    """A link whose consumer ends, before its binding is removed; the connection closes."""
    peer = subscribed()
    peer.do(GrantCredit(LINK, 10))
    peer.send(1, m.BasicQosOk(), m.BasicConsumeOk(CONSUMER_TAG))
    peer.do(DetachLink(LINK, closed=True, unsubscribes=True))
    peer.do(CloseConnection())
    assert peer.methods()[-1] == m.BasicCancel(CONSUMER_TAG)
    return peer


def test_a_connection_that_closes_removes_the_binding_first() -> None:
    peer = unsubscribing()
    peer.send(1, m.BasicCancelOk(CONSUMER_TAG), m.QueueUnbindOk())
    peer.send(1, m.QueueDeclareOk("dc1.prices", 7))
    (ended,) = (each for each in peer.events if isinstance(each, SubscriptionEnded))
    assert (ended.is_unbound, ended.messages) == (True, 7)
    peer.wait(0)
    sent = [type(each) for each in peer.methods()]
    assert sent[-2:] == [m.ChannelClose, m.ConnectionClose]
    assert isinstance(peer.events[-1], ConnectionClosed)


@pytest.mark.parametrize("broker", ["is silent", "closes the channel"])
def test_a_binding_that_cannot_be_removed_holds_up_no_close(broker: str) -> None:
    peer = unsubscribing()
    if broker == "is silent":
        peer.wait(CLOSE_SECONDS)
    else:
        peer.send(1, m.ChannelClose(reply_code=404, reply_text="gone"))
        peer.wait(0)
    (ended,) = (each for each in peer.events if isinstance(each, SubscriptionEnded))
    assert not ended.is_unbound
    assert isinstance(peer.methods()[-1], m.ConnectionClose)


def test_a_binding_that_a_later_link_needs_stays() -> None:
    peer = subscribed()
    peer.do(GrantCredit(LINK, 10))
    peer.send(1, m.BasicQosOk(), m.BasicConsumeOk(CONSUMER_TAG))
    peer.do(DetachLink(LINK, closed=True, unsubscribes=True))
    again = attrs.evolve(
        attach(Role.RECEIVER, "prices/#"),
        link=LinkId(2),
        target=Target(address=None),
        properties={SUBSCRIPTION: "dc1.prices"},
    )
    peer.do(again)
    peer.methods()
    events = peer.send(1, m.BasicCancelOk(CONSUMER_TAG))
    assert [type(each) for each in peer.methods()] == [m.ChannelClose]
    assert not [each for each in events if isinstance(each, SubscriptionEnded)]
