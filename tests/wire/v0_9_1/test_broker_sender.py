"""We publish to a broker."""

from typing import Any

import attrs
import pytest

from router.model import condition as conditions
from router.model.capabilities import Protocol
from router.model.commands import DetachLink, SendDeliveries
from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import CreditGranted, DeliveriesUpdated, Event, LinkDetached
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.model.outcome import ACCEPTED, RELEASED, DeliveryState, Rejected
from router.model.terminus import Role, SenderSettleMode
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.broker_sender import WINDOW
from router.wire.v0_9_1.content import Properties
from router.wire.v1_0.sections import AnnotatedMessage, encode_message
from tests.support.basic_messages import content
from tests.support.basic_peer import BrokerPeer, Content, attach

LINK = LinkId(1)


def delivery(number: int, payload: bytes | None = None, **options: Any) -> OutgoingDelivery:
    octets = content(Properties(message_id=str(number)), b"body") if payload is None else payload
    protocol = options.pop("protocol", Protocol.AMQP_0_9_1)
    return OutgoingDelivery(DeliveryNumber(number), DeliveryTag(b"t"), octets, protocol, **options)


def sending(
    address: str | None = "q", mode: SenderSettleMode = SenderSettleMode.MIXED
) -> BrokerPeer:
    peer = BrokerPeer().open()
    peer.do(attach(Role.SENDER, address, mode=mode))
    answers: list[m.Method] = [m.ChannelOpenOk()]
    if address is not None:
        answers.append(m.ExchangeDeclareOk() if "/" in address else m.QueueDeclareOk("q"))
    if mode is not SenderSettleMode.SETTLED:
        answers.append(m.ConfirmSelectOk())
    peer.answer(1, *answers)
    peer.received()
    peer.take_events()
    return peer


def send(peer: BrokerPeer, *numbers: int, **options: Any) -> list[Event]:
    return peer.do(SendDeliveries(LINK, [delivery(number, **options) for number in numbers]))


def updated(numbers: list[int], state: DeliveryState) -> DeliveriesUpdated:
    return DeliveriesUpdated(LINK, [DeliveryNumber(number) for number in numbers], state, True)


def updates(events: list[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, DeliveriesUpdated)]


@pytest.mark.parametrize(
    ("address", "exchange", "key"), [("q", "", "q"), ("shop/eu.orders", "shop", "eu.orders")]
)
def test_a_delivery_is_published_mandatory_where_the_link_leads(
    address: str, exchange: str, key: str
) -> None:
    peer = sending(address)
    send(peer, 1)
    assert peer.received() == [
        (
            1,
            Content(
                m.BasicPublish(exchange=exchange, routing_key=key, mandatory=True),
                Properties(message_id="1"),
                b"body",
            ),
        )
    ]


def test_the_anonymous_terminus_publishes_where_each_delivery_says() -> None:
    peer = sending(None)
    send(peer, 1, address="a")
    send(peer, 2, address="e/k")
    keys = []
    for one in peer.methods():
        assert isinstance(one, Content)
        assert isinstance(one.method, m.BasicPublish)
        keys.append((one.method.exchange, one.method.routing_key))
    assert keys == [("", "a"), ("e", "k")]


def test_a_confirm_is_the_outcome_of_all_that_it_covers() -> None:
    peer = sending()
    send(peer, 11, 12, 13, 14)
    assert updates(peer.send(1, m.BasicAck(2, multiple=True))) == [updated([11, 12], ACCEPTED)]
    assert updates(peer.send(1, m.BasicAck(4))) == [updated([14], ACCEPTED)]
    assert updates(peer.send(1, m.BasicNack(3))) == [updated([13], RELEASED)]
    assert updates(peer.send(1, m.BasicAck(3), m.BasicAck(99))) == []


def test_confirms_in_one_piece_are_one_run() -> None:
    peer = sending()
    send(peer, *range(1, 21))
    events = peer.send(1, *(m.BasicAck(number) for number in range(1, 21)))
    assert updates(events) == [updated(list(range(1, 21)), ACCEPTED)]


def returned(peer: BrokerPeer, number: int, body: bytes = b"body") -> bytes:
    method = m.BasicReturn(reply_code=312, reply_text="NO_ROUTE", routing_key="q")
    return peer.content(1, method, body, Properties(message_id=str(number)))


def test_a_return_rejects_the_message_that_came_back_and_its_ack_says_no_more() -> None:
    peer = sending("shop/eu")
    send(peer, 1, 2, 3)
    refused = Rejected(Condition(conditions.NOT_FOUND, "312 NO_ROUTE"))
    assert updates(peer.feed(returned(peer, 2))) == [updated([2], refused)]
    assert updates(peer.send(1, m.BasicAck(3, multiple=True))) == [updated([1, 3], ACCEPTED)]


def test_a_return_from_a_queue_is_the_end_of_the_link_when_all_is_decided() -> None:
    peer = sending()
    send(peer, 1, 2, 3)
    events = peer.feed(returned(peer, 2))
    assert updates(events) == [updated([2], RELEASED)]
    assert CreditGranted(LINK, 0) in events
    events = peer.send(1, m.BasicAck(2, multiple=True))
    assert updates(events) == [updated([1], ACCEPTED)]
    send(peer, 4)  # what the core had credit for
    events = peer.feed(returned(peer, 3)) + peer.send(1, m.BasicAck(3))
    assert updates(events) == [updated([3], RELEASED), updated([4], RELEASED)]
    assert events[-1] == LinkDetached(
        LINK, True, Condition(conditions.NOT_FOUND, "queue 'q' is gone")
    )
    closed = [one for _, one in peer.received() if isinstance(one, m.ChannelClose)]
    assert len(closed) == 1


@pytest.mark.parametrize("protocol", [Protocol.AMQP_0_9_1, Protocol.AMQP_1_0])
def test_the_message_that_came_back_is_known_by_its_body(protocol: Protocol) -> None:
    peer = sending("shop/eu")
    made = []
    for number, body in ((5, b"one"), (6, b"two"), (7, b"six")):
        octets = content(Properties(), body)
        if protocol is Protocol.AMQP_1_0:
            octets = encode_message(AnnotatedMessage(data=[body]))
        made.append(delivery(number, octets, protocol=protocol))
    peer.do(SendDeliveries(LINK, made))
    sent = [one for one in peer.methods() if isinstance(one, Content)]
    back = m.BasicReturn(exchange="shop", routing_key="eu")
    [told] = updates(peer.feed(peer.content(1, back, sent[1].body, sent[1].properties)))
    assert isinstance(told, DeliveriesUpdated)
    assert list(told.numbers) == [6]
    assert updates(peer.send(1, m.BasicAck(3, multiple=True))) == [updated([5, 7], ACCEPTED)]


def test_the_message_that_came_back_is_known_by_where_it_went() -> None:
    peer = sending(None)
    octets = content(Properties(), b"same")
    made = [delivery(number, octets, address=f"e/{number}") for number in (5, 6)]
    peer.do(SendDeliveries(LINK, made))
    back = peer.content(1, m.BasicReturn(exchange="e", routing_key="6"), b"same", Properties())
    [told] = updates(peer.feed(back))
    assert isinstance(told, DeliveriesUpdated)
    assert list(told.numbers) == [6]


def test_a_header_that_the_broker_wrote_anew_does_not_hide_what_came_back() -> None:
    peer = sending("shop/eu")
    octets = content(Properties(headers={"a": 1, "b": 2}), b"same")
    peer.do(SendDeliveries(LINK, [delivery(5, octets)]))
    anew = Properties(headers={"b": 2, "a": 1})
    [told] = updates(peer.feed(peer.content(1, m.BasicReturn(), b"same", anew)))
    assert isinstance(told, DeliveriesUpdated)
    assert list(told.numbers) == [5]


def test_what_was_sent_settled_hides_no_message_that_came_back() -> None:
    peer = sending("shop/eu")
    octets = content(Properties(), b"same")
    made = [delivery(5, octets, settled=True), delivery(6, octets)]
    peer.do(SendDeliveries(LINK, made))
    [told] = updates(peer.feed(peer.content(1, m.BasicReturn(), b"same", Properties())))
    assert isinstance(told, DeliveriesUpdated)
    assert list(told.numbers) == [6]


def test_of_equal_messages_the_oldest_comes_back_first() -> None:
    peer = sending()
    octets = content(Properties(), b"same")
    peer.do(SendDeliveries(LINK, [delivery(number, octets) for number in (5, 6)]))
    back = peer.content(1, m.BasicReturn(routing_key="q"), b"same", Properties())
    [first] = updates(peer.feed(back))
    [second] = updates(peer.feed(back))
    assert isinstance(first, DeliveriesUpdated)
    assert isinstance(second, DeliveriesUpdated)
    assert (list(first.numbers), list(second.numbers)) == ([5], [6])
    assert updates(peer.feed(back)) == []


def test_credit_is_what_may_be_unconfirmed() -> None:
    peer = sending()
    assert send(peer, *range(1, WINDOW + 1)) == []
    half = WINDOW // 2
    assert peer.send(1, m.BasicAck(1))[-1] == CreditGranted(LINK, 1)
    events = peer.send(1, m.BasicAck(half, multiple=True))
    assert not any(isinstance(event, CreditGranted) for event in events)
    events = peer.send(1, m.BasicAck(half + 1))
    assert events[-1] == CreditGranted(LINK, half + 1)


@pytest.mark.parametrize("whole_connection", [True, False])
def test_a_blocked_connection_or_channel_has_no_credit_and_holds_what_was_promised(
    whole_connection: bool,
) -> None:
    peer = sending()
    stop: m.Method = m.ConnectionBlocked("memory") if whole_connection else m.ChannelFlow(False)
    go: m.Method = m.ConnectionUnblocked() if whole_connection else m.ChannelFlow(True)
    number = 0 if whole_connection else 1
    assert peer.send(number, stop) == [CreditGranted(LINK, 0)]
    answer = [] if whole_connection else [(1, m.ChannelFlowOk(False))]
    assert peer.received() == answer
    send(peer, 1, 2)
    assert peer.received() == []
    events = peer.send(number, go)
    assert events == [CreditGranted(LINK, WINDOW - 2)]
    published = [one for one in peer.methods() if isinstance(one, Content)]
    assert len(published) == 2


def test_what_was_never_sent_is_given_back() -> None:
    peer = sending()
    peer.send(0, m.ConnectionBlocked("memory"))
    send(peer, 1, 2)
    peer.take_events()
    peer.do(DetachLink(LINK, True))
    assert peer.take_events() == [updated([1, 2], RELEASED), LinkDetached(LINK, True)]


def test_a_channel_that_the_broker_closes_is_a_link_detached_with_its_reason() -> None:
    peer = sending()
    send(peer, 1)
    peer.take_events()
    peer.send(1, m.ChannelClose(reply_code=406, reply_text="too large"))
    reason = Condition(conditions.PRECONDITION_FAILED, "406 too large")
    assert peer.take_events() == [LinkDetached(LINK, True, reason)]
    assert send(peer, 2) == []


def test_a_settled_link_asks_for_no_confirms_and_renews_its_own_credit() -> None:
    peer = sending(mode=SenderSettleMode.SETTLED)
    events = send(peer, *range(1, WINDOW // 2 + 1), settled=True)
    assert events == [CreditGranted(LINK, WINDOW)]
    one = peer.methods()[0]
    assert isinstance(one, Content)
    assert isinstance(one.method, m.BasicPublish)
    assert one.method.mandatory is False


def test_a_settled_delivery_on_a_confirming_link_has_no_outcome() -> None:
    peer = sending()
    send(peer, 1, settled=True)
    send(peer, 2)
    assert updates(peer.send(1, m.BasicAck(2, multiple=True))) == [updated([2], ACCEPTED)]


def test_an_odd_message_is_rejected_alone() -> None:
    peer = sending()
    peer.take_events()
    odd = encode_message(AnnotatedMessage(application_properties={"k" * 256: 1}, data=[b""]))
    events = send(peer, 1, payload=odd, protocol=Protocol.AMQP_1_0)
    [update] = updates(events)
    assert isinstance(update, DeliveriesUpdated)
    assert isinstance(update.state, Rejected)
    send(peer, 2)
    assert len(peer.received()) == 1
    assert updates(peer.send(1, m.BasicAck(1))) == [updated([2], ACCEPTED)]


def test_a_user_id_that_is_not_our_login_goes_as_a_header() -> None:
    peer = sending()
    peer.engine.outgoing.login = "me"
    octets = content(Properties(user_id="other", message_id="m"), b"")
    peer.do(SendDeliveries(LINK, [delivery(1, octets)]))
    peer.do(SendDeliveries(LINK, [delivery(2, content(Properties(user_id="me"), b""))]))
    first, second = peer.methods()
    assert isinstance(first, Content)
    assert isinstance(second, Content)
    assert first.properties == Properties(message_id="m", headers={"x-amqp-user-id": "other"})
    assert second.properties == Properties(user_id="me")


# --- what a broker objects to ---------------------------------------------------------------------

OBJECTION = m.ChannelClose(
    reply_code=406, reply_text="PRECONDITION_FAILED - invalid message", class_id=60, method_id=40
)


def again(peer: BrokerPeer) -> None:
    """Attaches anew, as the core does."""
    peer.received()
    peer.take_events()
    peer.do(attach(Role.SENDER, "q"))
    number = max(peer.engine.channels)
    peer.answer(number, m.ChannelOpenOk(), m.QueueDeclareOk("q"), m.ConfirmSelectOk())
    peer.received()


def credit(peer: BrokerPeer) -> int:
    return [one.credit for one in peer.take_events() if isinstance(one, CreditGranted)][-1]


@pytest.mark.parametrize("code", [406, 311])
def test_the_one_message_that_a_broker_objects_to_is_rejected_in_its_words(code: int) -> None:
    peer = sending()
    send(peer, 1, 2)
    peer.answer(1, m.BasicAck(1))
    peer.take_events()
    events = peer.answer(1, attrs.evolve(OBJECTION, reply_code=code))
    told, detached = events
    assert isinstance(told, DeliveriesUpdated)
    assert told.numbers == [2]
    assert isinstance(told.state, Rejected)
    assert told.state.error is not None
    assert "invalid message" in (told.state.error.description or "")
    assert isinstance(detached, LinkDetached)
    again(peer)
    assert credit(peer) == WINDOW


def test_one_odd_message_among_several_is_found_and_the_others_go_on() -> None:
    peer = sending()
    send(peer, 1, 2, 3)
    assert updates(peer.answer(1, OBJECTION)) == []
    again(peer)
    assert credit(peer) == 1
    send(peer, 1)
    peer.answer(2, m.BasicAck(1))
    assert credit(peer) == 1
    send(peer, 2)
    [told] = updates(peer.answer(2, OBJECTION))
    assert isinstance(told, DeliveriesUpdated)
    assert told.numbers == [2]
    assert isinstance(told.state, Rejected)
    again(peer)
    assert credit(peer) == WINDOW


def test_when_none_of_them_was_odd_the_window_is_open_again() -> None:
    peer = sending()
    send(peer, 1, 2)
    peer.answer(1, OBJECTION)
    again(peer)
    for number in (1, 2):
        assert credit(peer) == 1
        send(peer, number)
        peer.answer(2, m.BasicAck(number))
    assert credit(peer) == WINDOW


@pytest.mark.parametrize("code", [403, 404])
def test_what_is_no_fault_of_the_message_is_not_blamed_on_it(code: int) -> None:
    peer = sending()
    send(peer, 1)
    assert updates(peer.answer(1, attrs.evolve(OBJECTION, reply_code=code))) == []
