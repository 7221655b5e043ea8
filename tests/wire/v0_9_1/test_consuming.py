"""A client consumes from the router."""

from typing import Any

import pytest

from router.model import condition as conditions
from router.model.capabilities import Protocol
from router.model.commands import DetachLink, RefuseLink, ReturnCredit, SendDeliveries
from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import (
    CreditGranted,
    DeliveriesUpdated,
    Event,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    MODIFIED_UNDELIVERABLE,
    REJECTED,
    RELEASED,
    DeliveryState,
    Rejected,
)
from router.model.terminus import PRIORITY, Role, Source
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.content import Properties
from router.wire.v0_9_1.prefetch import UNBOUNDED_CAPACITY
from router.wire.v0_9_1.queues import LOCAL_CREDIT
from router.wire.v0_9_1.reply import Reply
from router.wire.v1_0.sections import AnnotatedMessage, encode_message
from router.wire.v1_0.sections import Properties as Sections
from router.wire.v1_0.types import Symbol
from tests.support.basic_messages import content
from tests.support.basic_peer import ClientPeer, Content


def delivery(number: int, payload: bytes | None = None, **options: Any) -> OutgoingDelivery:
    octets = content(Properties(), b"%d" % number, routing_key=b"q") if payload is None else payload
    protocol = options.pop("protocol", Protocol.AMQP_0_9_1)
    return OutgoingDelivery(DeliveryNumber(number), DeliveryTag(b"t"), octets, protocol, **options)


def deliver(peer: ClientPeer, link: LinkId, *numbers: int, **options: Any) -> list[Event]:
    return peer.do(SendDeliveries(link, [delivery(number, **options) for number in numbers]))


def consuming(prefetch: int = 0, number: int = 1, **options: Any) -> tuple[ClientPeer, LinkId]:
    """A client whose consumer the core has accepted."""
    peer = ClientPeer().open(1, 2)
    if prefetch:
        peer.send(number, m.BasicQos(prefetch_count=prefetch))
    peer.send(number, m.BasicConsume(queue="q", consumer_tag="c", **options))
    link = peer.accept()
    peer.received()
    return peer, link


def bodies(peer: ClientPeer) -> list[tuple[int, bytes]]:
    """Delivery tags and bodies of what the client got."""
    found = []
    for one in peer.methods():
        assert isinstance(one, Content)
        assert isinstance(one.method, m.BasicDeliver)
        found.append((one.method.delivery_tag, one.body))
    return found


def updated(numbers: list[int], state: DeliveryState, link: LinkId) -> DeliveriesUpdated:
    return DeliveriesUpdated(link, [DeliveryNumber(number) for number in numbers], state, True)


def credits(events: list[Event]) -> list[int]:
    return [event.credit for event in events if isinstance(event, CreditGranted)]


# --- consumers ------------------------------------------------------------------------------------


def test_a_consumer_is_a_link_and_starts_when_the_core_accepts() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.BasicConsume(queue="orders", consumer_tag="c"), m.BasicQos())
    asked = peer.attached()
    assert asked.role is Role.SENDER
    assert asked.source == Source(address="orders")
    assert peer.methods() == []
    link = peer.accept(asked)
    assert peer.methods() == [m.BasicConsumeOk("c"), m.BasicQosOk()]
    assert peer.take_events() == [CreditGranted(link, UNBOUNDED_CAPACITY)]


def test_a_queue_that_is_not_routed_is_not_found() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.BasicConsume(queue="nowhere"))
    peer.do(RefuseLink(peer.attached().link, Condition(conditions.NOT_FOUND, "no route")))
    [close] = peer.methods()
    assert isinstance(close, m.ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (404, 60, 20)


def test_a_delivery_goes_out_with_its_own_route_and_the_next_tag() -> None:
    peer, link = consuming()
    octets = content(
        Properties(message_id="m"), b"body", exchange=b"ex", routing_key=b"key", redelivered=True
    )
    peer.do(SendDeliveries(link, [delivery(7, octets), delivery(8, octets)]))
    first, second = peer.methods()
    assert first == Content(
        m.BasicDeliver(
            consumer_tag="c", delivery_tag=1, redelivered=True, exchange="ex", routing_key="key"
        ),
        Properties(message_id="m"),
        b"body",
    )
    assert isinstance(second, Content)
    assert isinstance(second.method, m.BasicDeliver)
    assert second.method.delivery_tag == 2


def test_a_message_of_1_0_is_translated_and_named_after_its_address() -> None:
    peer, link = consuming()
    octets = encode_message(AnnotatedMessage(properties=Sections(subject="s"), data=[b"body"]))
    deliver(peer, link, 1, payload=octets, protocol=Protocol.AMQP_1_0)
    [got] = peer.methods()
    assert got == Content(
        m.BasicDeliver(consumer_tag="c", delivery_tag=1, exchange="", routing_key="q"),
        Properties(type="s"),
        b"body",
    )


def test_ttl_and_delivery_count_are_told_as_they_are_now() -> None:
    peer, link = consuming()
    octets = content(Properties(expiration="9000", message_id="m"), b"")
    deliver(peer, link, 1, payload=octets, ttl_milliseconds=500, delivery_count=3)
    deliver(peer, link, 2, payload=octets, delivery_count=1)
    deliver(peer, link, 3, payload=octets, delivery_count=0)
    three, one, none = peer.methods()
    assert isinstance(three, Content)
    assert three.properties == Properties(
        expiration="500", message_id="m", headers={"x-delivery-count": 3}
    )
    flags = []
    for got in (three, one, none):
        assert isinstance(got, Content)
        assert isinstance(got.method, m.BasicDeliver)
        flags.append(got.method.redelivered)
    assert flags == [True, True, False]


@pytest.mark.parametrize(
    ("payload", "protocol", "field"),
    [
        (
            encode_message(AnnotatedMessage(application_properties={"k" * 256: 1}, data=[b""])),
            Protocol.AMQP_1_0,
            "application-properties",
        ),
        (b"\x00\x53\x99\x45", Protocol.AMQP_1_0, "payload"),
        (content(Properties(headers={"h": b"x" * 4096})), Protocol.AMQP_0_9_1, "headers"),
        (
            content(Properties(content_type="a"))[:-2] + b"\x09a",
            Protocol.AMQP_0_9_1,
            "content-header",
        ),
        (b"", Protocol.AMQP_0_9_1, "content-header"),
    ],
)
def test_one_odd_message_is_rejected_with_its_field_named_and_the_link_goes_on(
    payload: bytes, protocol: Protocol, field: str
) -> None:
    peer, link = consuming()
    peer.take_events()
    deliver(peer, link, 1, payload=payload, protocol=protocol)
    deliver(peer, link, 2)
    [rejection] = [event for event in peer.events if isinstance(event, DeliveriesUpdated)]
    assert rejection.settled
    assert isinstance(rejection.state, Rejected)
    assert rejection.state.error is not None
    assert str(rejection.state.error.description).startswith(field)
    assert bodies(peer) == [(1, b"2")]


# --- credit ---------------------------------------------------------------------------------------


def test_the_prefetch_is_the_credit_and_acks_renew_it_by_halves() -> None:
    peer, link = consuming(prefetch=4)
    assert credits(peer.take_events()) == [4]
    deliver(peer, link, 1, 2, 3, 4)
    assert peer.take_events() == []
    assert credits(peer.send(1, m.BasicAck(1))) == [1]
    deliver(peer, link, 5)
    assert credits(peer.send(1, m.BasicAck(3, multiple=True))) == [2]
    assert bodies(peer) == [(1, b"1"), (2, b"2"), (3, b"3"), (4, b"4"), (5, b"5")]


def test_credit_left_is_raised_only_when_half_is_free() -> None:
    peer, link = consuming(prefetch=10)
    peer.take_events()
    deliver(peer, link, 1, 2, 3, 4, 5, 6)
    assert credits(peer.send(1, m.BasicAck(4, multiple=True))) == []
    assert credits(peer.send(1, m.BasicAck(5))) == [9]


def test_without_prefetch_or_acks_the_credit_is_renewed_as_it_is_used() -> None:
    for options in ({}, {"no_ack": True}):
        peer, link = consuming(**options)
        assert credits(peer.take_events()) == [UNBOUNDED_CAPACITY]
        half = UNBOUNDED_CAPACITY // 2
        events = deliver(peer, link, *range(1, half))
        assert credits(events) == []
        events = deliver(peer, link, half)
        assert credits(events) == [UNBOUNDED_CAPACITY]


def test_a_channels_prefetch_is_shared_by_its_consumers() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.BasicQos(prefetch_count=2, all_consumers=True))
    peer.send(1, m.BasicConsume(queue="a", consumer_tag="a"))
    first = peer.accept()
    peer.send(1, m.BasicConsume(queue="b", consumer_tag="b"))
    second = peer.accept()
    peer.received()
    assert credits(peer.take_events()) == [2, 2]
    deliver(peer, first, 1)
    deliver(peer, second, 1, 2)
    assert [body for _, body in bodies(peer)] == [b"1", b"1"]
    peer.send(1, m.BasicAck(1))
    assert bodies(peer) == [(3, b"2")]


def test_a_paused_channel_takes_no_more_and_then_goes_on() -> None:
    peer, link = consuming(prefetch=10)
    peer.take_events()
    events = peer.send(1, m.ChannelFlow(active=False))
    assert peer.methods() == [m.ChannelFlowOk(active=False)]
    assert events == [CreditGranted(link, 0)]
    deliver(peer, link, 1)
    assert peer.methods() == []
    events = peer.send(1, m.ChannelFlow(active=True))
    got = peer.methods()
    assert got[0] == m.ChannelFlowOk(active=True)
    assert isinstance(got[1], Content)
    assert credits(events) == [9]


def test_a_consumers_priority_is_its_links_and_goes_before_turns() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.BasicQos(prefetch_count=1))
    low = m.BasicConsume(queue="q", consumer_tag="low", arguments={"x-priority": -1})
    high = m.BasicConsume(queue="q", consumer_tag="high", arguments={"x-priority": 3})
    peer.send(1, low)
    asked = peer.attached()
    assert asked.properties == {PRIORITY: -1}
    link = peer.accept(asked)
    peer.send(1, high)
    peer.received()
    deliver(peer, link, 0, 1)
    told = [one.method for one in peer.methods() if isinstance(one, Content)]
    assert [each.consumer_tag for each in told if isinstance(each, m.BasicDeliver)] == [
        "high",
        "low",
    ]


def test_a_priority_that_is_no_number_is_refused() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.BasicConsume(queue="q", arguments={"x-priority": "high"}))
    [close] = peer.methods()
    assert isinstance(close, m.ChannelClose)
    assert close.reply_code == Reply.PRECONDITION_FAILED


def test_consumers_of_one_queue_take_turns_on_one_link() -> None:
    peer, link = consuming(prefetch=2)
    peer.send(1, m.BasicConsume(queue="q", consumer_tag="d"))
    assert not any(isinstance(event, LinkAttached) for event in peer.events)
    assert peer.methods() == [m.BasicConsumeOk("d")]
    deliver(peer, link, 1, 2, 3, 4)
    tags = []
    for one in peer.methods():
        assert isinstance(one, Content)
        assert isinstance(one.method, m.BasicDeliver)
        tags.append(one.method.consumer_tag)
    assert sorted(tags) == ["c", "c", "d", "d"]
    assert tags[0] != tags[1]


@pytest.mark.parametrize(
    ("method", "code", "closes_connection"),
    [
        (m.BasicConsume(queue="q", no_local=True), 540, True),
        (m.BasicConsume(queue="q", exclusive=True), 403, False),
        (m.BasicConsume(queue="q", consumer_tag="c"), 530, True),
        (m.BasicConsume(), 404, False),
        (m.BasicQos(prefetch_size=1), 540, True),
        (m.BasicRecover(requeue=False), 540, True),
        (m.BasicRecoverAsync(requeue=False), 540, True),
        (m.BasicAck(1), 406, False),
        (m.BasicAck(0), 406, False),
        (m.BasicReject(5), 406, False),
        (m.BasicNack(5, multiple=True), 406, False),
    ],
)
def test_what_cannot_be_promised_or_does_not_exist_is_refused(
    method: m.Method, code: int, closes_connection: bool
) -> None:
    peer, _ = consuming()
    peer.send(1, method)
    [close] = peer.methods()
    kind = m.ConnectionClose if closes_connection else m.ChannelClose
    assert isinstance(close, kind)
    assert close.reply_code == code


# --- acknowledgments ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "numbers", "state"),
    [
        (m.BasicAck(2), [2], ACCEPTED),
        (m.BasicAck(2, multiple=True), [1, 2], ACCEPTED),
        (m.BasicAck(0, multiple=True), [1, 2, 3], ACCEPTED),
        (m.BasicReject(1, requeue=True), [1], MODIFIED_FAILED),
        (m.BasicReject(1, requeue=False), [1], REJECTED),
        (m.BasicNack(2, multiple=True, requeue=True), [1, 2], MODIFIED_FAILED),
        (m.BasicNack(3, multiple=False, requeue=False), [3], REJECTED),
        (m.BasicNack(0, multiple=True, requeue=False), [1, 2, 3], REJECTED),
        (m.BasicRecover(requeue=True), [1, 2, 3], MODIFIED_FAILED),
        (m.BasicRecoverAsync(requeue=True), [1, 2, 3], MODIFIED_FAILED),
    ],
)
def test_acknowledgments_become_outcomes_one_run_for_many(
    method: m.Method, numbers: list[int], state: DeliveryState
) -> None:
    peer, link = consuming(prefetch=100)
    deliver(peer, link, 1, 2, 3)
    peer.received()
    peer.take_events()
    events = peer.send(1, method)
    assert [event for event in events if isinstance(event, DeliveriesUpdated)] == [
        updated(numbers, state, link)
    ]
    answer = [m.BasicRecoverOk()] if isinstance(method, m.BasicRecover) else []
    assert peer.methods() == answer


def test_many_acks_in_one_piece_are_one_run() -> None:
    peer, link = consuming(prefetch=100)
    deliver(peer, link, *range(1, 51))
    peer.take_events()
    events = peer.send(1, *(m.BasicAck(tag) for tag in range(1, 51)))
    [update] = [event for event in events if isinstance(event, DeliveriesUpdated)]
    assert list(update.numbers) == list(range(1, 51))


def test_no_ack_is_accepted_as_it_is_sent() -> None:
    peer, link = consuming(no_ack=True)
    peer.take_events()
    assert deliver(peer, link, 1, 2) == [updated([1, 2], ACCEPTED, link)]
    assert deliver(peer, link, 3, settled=True) == []
    peer.send(1, m.BasicAck(1))
    close = peer.methods()[-1]
    assert isinstance(close, m.ChannelClose)


def test_a_settled_delivery_may_be_acknowledged_and_nobody_is_told() -> None:
    peer, link = consuming()
    deliver(peer, link, 1, settled=True)
    peer.take_events()
    peer.send(1, m.BasicAck(1))
    assert not [event for event in peer.events if isinstance(event, DeliveriesUpdated)]
    assert len(peer.methods()) == 1


def test_acknowledgments_of_a_transaction_count_at_its_commit() -> None:
    peer, link = consuming()
    peer.send(1, m.TxSelect())
    deliver(peer, link, 1, 2, 3)
    peer.received()
    peer.take_events()
    assert peer.send(1, m.BasicAck(2)) == []
    peer.send(1, m.TxRollback())
    events = peer.send(1, m.BasicAck(1), m.BasicReject(2, requeue=False), m.TxCommit())
    assert [event for event in events if isinstance(event, DeliveriesUpdated)] == [
        updated([1], ACCEPTED, link),
        updated([2], REJECTED, link),
    ]
    assert peer.methods() == [m.TxRollbackOk(), m.TxCommitOk()]


# --- ends -----------------------------------------------------------------------------------------


def test_a_cancelled_consumers_link_stays_until_its_deliveries_are_settled() -> None:
    peer, link = consuming(prefetch=10)
    deliver(peer, link, 1)
    peer.received()
    peer.take_events()
    events = peer.send(1, m.BasicCancel("c"))
    assert peer.methods() == [m.BasicCancelOk("c")]
    assert events == [CreditGranted(link, 0)]
    deliver(peer, link, 2)
    assert peer.take_events()[1:] == [updated([2], RELEASED, link)]
    assert peer.send(1, m.BasicAck(1)) == [
        updated([1], ACCEPTED, link),
        LinkDetached(link, closed=True),
    ]


def test_cancelling_nobody_is_no_fault() -> None:
    peer, _ = consuming()
    peer.send(1, m.BasicCancel("nobody"), m.BasicCancel("c", no_wait=True))
    assert peer.methods() == [m.BasicCancelOk("nobody")]


def test_a_closed_channel_gives_back_what_it_had_not_acknowledged() -> None:
    peer, link = consuming(prefetch=10)
    deliver(peer, link, 1, 2)
    peer.received()
    peer.take_events()
    events = peer.send(1, m.ChannelClose())
    assert events[-2:] == [updated([1, 2], MODIFIED_FAILED, link), LinkDetached(link, closed=True)]


def test_a_closed_channels_queue_goes_on_with_the_consumers_of_others() -> None:
    peer, link = consuming(prefetch=1)
    peer.send(2, m.BasicConsume(queue="q", consumer_tag="d"))
    deliver(peer, link, 1)
    peer.received()
    peer.take_events()
    events = peer.send(1, m.ChannelClose())
    assert updated([1], MODIFIED_FAILED, link) in events
    assert not any(isinstance(event, LinkDetached) for event in events)
    deliver(peer, link, 2)
    assert (2, m.ChannelCloseOk()) not in peer.received()


def test_an_orderly_close_gives_everything_back_before_the_end() -> None:
    peer, link = consuming(prefetch=1)
    deliver(peer, link, 1)
    deliver(peer, link, 2)
    peer.received()
    peer.take_events()
    events = peer.send(0, m.ConnectionClose())
    states = [
        (list(event.numbers), event.state)
        for event in events
        if isinstance(event, DeliveriesUpdated)
    ]
    assert states == [([2], RELEASED), ([1], MODIFIED_FAILED)]


def test_a_link_that_the_core_takes_away_cancels_the_consumer() -> None:
    peer, link = consuming()
    deliver(peer, link, 1)
    peer.received()
    peer.take_events()
    peer.do(DetachLink(link, True, Condition(conditions.RESOURCE_DELETED)))
    assert peer.methods() == [m.BasicCancel("c", no_wait=True)]
    assert peer.take_events() == [LinkDetached(link, True, Condition(conditions.RESOURCE_DELETED))]
    assert peer.send(1, m.BasicAck(1)) == []
    assert peer.methods() == []


def test_a_client_that_cannot_be_told_of_a_cancelled_consumer_loses_the_channel() -> None:
    peer = ClientPeer().open(1, capabilities=False)
    peer.send(1, m.BasicConsume(queue="q", consumer_tag="c"))
    link = peer.accept()
    peer.received()
    peer.do(DetachLink(link, True, Condition(conditions.RESOURCE_DELETED)))
    [close] = peer.methods()
    assert isinstance(close, m.ChannelClose)
    assert close.reply_code == Reply.NOT_FOUND


@pytest.mark.parametrize("capabilities", [False, True])
def test_consumers_hear_nothing_from_a_router_that_is_about_to_stop(capabilities: bool) -> None:
    """It closes the connection next, and says why: their queues are not gone."""
    peer = ClientPeer().open(1, capabilities=capabilities)
    peer.send(1, m.BasicConsume(queue="q", consumer_tag="c"))
    link = peer.accept()
    peer.received()
    peer.do(DetachLink(link, False))
    assert peer.methods() == []


# --- get ------------------------------------------------------------------------------------------


def getting(no_ack: bool = False) -> tuple[ClientPeer, LinkId]:
    peer = ClientPeer().open(1)
    peer.send(1, m.BasicGet(queue="q", no_ack=no_ack), m.BasicQos())
    link = peer.accept()
    assert peer.take_events() == [CreditGranted(link, 1, drain=True)]
    assert peer.methods() == []
    return peer, link


def test_a_get_asks_for_one_and_drains() -> None:
    peer, link = getting()
    deliver(peer, link, 1)
    [got] = peer.methods()
    assert isinstance(got, Content)
    assert got.method == m.BasicGetOk(delivery_tag=1, exchange="", routing_key="q")
    assert got.body == b"1"
    peer.do(ReturnCredit(link))
    assert peer.methods() == [m.BasicQosOk()]
    assert peer.send(1, m.BasicAck(1)) == [updated([1], ACCEPTED, link)]


def test_a_get_of_nothing_is_empty_and_its_link_is_kept_for_the_next() -> None:
    peer, link = getting()
    peer.do(ReturnCredit(link))
    assert peer.methods() == [m.BasicGetEmpty(), m.BasicQosOk()]
    peer.send(1, m.BasicGet(queue="q"))
    assert peer.take_events() == [CreditGranted(link, 1, drain=True)]


def test_a_get_without_ack_is_accepted_as_it_is_sent() -> None:
    peer, link = getting(no_ack=True)
    assert deliver(peer, link, 1) == [updated([1], ACCEPTED, link)]


def test_a_get_of_a_queue_that_is_not_routed_is_not_found() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.BasicGet(queue="nowhere"))
    peer.do(RefuseLink(peer.attached().link, Condition(conditions.NOT_FOUND)))
    [close] = peer.methods()
    assert isinstance(close, m.ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (404, 60, 70)


def test_a_get_whose_link_is_taken_away_closes_the_channel() -> None:
    peer, link = getting()
    peer.do(DetachLink(link, True, Condition(conditions.RESOURCE_DELETED)))
    close = peer.methods()[0]
    assert isinstance(close, m.ChannelClose)


def test_what_comes_to_a_get_that_was_answered_is_given_back() -> None:
    peer, link = getting()
    peer.do(ReturnCredit(link))
    peer.take_events()
    assert deliver(peer, link, 9) == [updated([9], RELEASED, link)]


def test_a_get_of_an_odd_message_is_empty_and_the_message_is_rejected() -> None:
    peer, link = getting()
    deliver(peer, link, 1, payload=b"")
    assert peer.methods()[0] == m.BasicGetEmpty()
    [update] = [event for event in peer.events if isinstance(event, DeliveriesUpdated)]
    assert isinstance(update.state, Rejected)


# --- local queues ---------------------------------------------------------------------------------


def local(name: str = "", **options: Any) -> tuple[ClientPeer, LinkId, str]:
    """A client with a queue of its own."""
    peer = ClientPeer().open(1)
    peer.send(1, m.QueueDeclare(queue=name, exclusive=True, **options))
    link = peer.accept()
    [declared] = peer.methods()
    assert isinstance(declared, m.QueueDeclareOk)
    return peer, link, declared.queue


def test_a_server_named_queue_is_a_dynamic_node_that_gathers_until_it_is_consumed() -> None:
    peer, link, name = local()
    assert name == f"router/temp/{link}"
    assert credits(peer.take_events()) == [LOCAL_CREDIT]
    deliver(peer, link, 1, 2)
    assert peer.methods() == []
    peer.send(1, m.QueueDeclare(queue=name, passive=True))
    assert peer.methods() == [m.QueueDeclareOk(name, 2, 0)]
    peer.send(1, m.BasicConsume(queue=name, consumer_tag="c"))
    got = peer.methods()
    assert got[0] == m.BasicConsumeOk("c")
    assert len(got) == 3
    assert not any(isinstance(event, LinkAttached) for event in peer.events)


def test_a_get_of_a_local_queue_takes_what_waits() -> None:
    peer, link, name = local()
    deliver(peer, link, 1)
    peer.send(1, m.BasicGet(queue=name), m.BasicGet(queue=name))
    got, empty = peer.methods()
    assert isinstance(got, Content)
    assert empty == m.BasicGetEmpty()


def test_a_purge_drops_what_waits_as_consumed() -> None:
    peer, link, name = local()
    deliver(peer, link, 1, 2)
    peer.take_events()
    events = peer.send(1, m.QueuePurge(queue=name))
    assert peer.methods() == [m.QueuePurgeOk(2)]
    assert updated([1, 2], ACCEPTED, link) in events


def test_a_deleted_local_queue_gives_back_what_waits_and_cancels_its_consumers() -> None:
    peer, link, name = local()
    deliver(peer, link, 1)
    peer.take_events()
    events = peer.send(1, m.QueueDelete(queue=name))
    assert peer.methods() == [m.QueueDeleteOk(1)]
    assert events[-2:] == [updated([1], RELEASED, link), LinkDetached(link, closed=True)]
    peer.send(1, m.BasicConsume(queue=name))
    peer.do(RefuseLink(peer.attached().link, Condition(conditions.NOT_FOUND)))
    assert isinstance(peer.methods()[0], m.ChannelClose)


@pytest.mark.parametrize(
    ("options", "code"), [({"if_unused": True}, 406), ({"if_empty": True}, 406)]
)
def test_a_queue_in_use_is_not_deleted_by_those_who_ask_first(
    options: dict[str, bool], code: int
) -> None:
    peer, link, name = local()
    if "if_unused" in options:
        peer.send(1, m.BasicConsume(queue=name))
    else:
        deliver(peer, link, 1)
    peer.received()
    peer.send(1, m.QueueDelete(queue=name, **options))
    [close] = peer.methods()
    assert isinstance(close, m.ChannelClose)
    assert close.reply_code == code


def test_an_auto_delete_queue_goes_with_its_last_consumer() -> None:
    peer, link, name = local(auto_delete=True)
    peer.send(1, m.BasicConsume(queue=name, consumer_tag="c"))
    peer.take_events()
    events = peer.send(1, m.BasicCancel("c"))
    assert LinkDetached(link, closed=True) in events
    assert name not in peer.engine.queues


def test_a_headers_binding_takes_what_matches_and_gives_the_rest_to_others() -> None:
    peer, own, name = local()
    peer.send(
        1,
        m.QueueBind(queue=name, exchange="amq.headers", arguments={"x-match": "all", "kind": "a"}),
    )
    link = peer.accept()
    peer.received()
    peer.send(1, m.BasicConsume(queue=name, consumer_tag="c"))
    peer.received()
    peer.take_events()
    deliver(peer, link, 1, payload=content(Properties(headers={"kind": "a"}), b"mine"))
    deliver(peer, link, 2, payload=content(Properties(headers={"kind": "b"}), b"yours"))
    message = AnnotatedMessage(
        message_annotations={Symbol("x-c"): 1},
        application_properties={"kind": "a"},
        data=[b"mine too"],
    )
    octets = encode_message(message)
    deliver(peer, link, 3, payload=octets, protocol=Protocol.AMQP_1_0)
    assert [body for _, body in bodies(peer)] == [b"mine", b"mine too"]
    assert updated([2], MODIFIED_UNDELIVERABLE, link) in peer.take_events()
    assert own != link
