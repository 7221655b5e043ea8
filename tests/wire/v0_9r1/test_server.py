"""What a client of the draft publishes and consumes, and what it learns."""

import pytest

from router.model.capabilities import Protocol
from router.model.commands import (
    AttachLink,
    DetachLink,
    GrantCredit,
    RefuseLink,
    SendDeliveries,
)
from router.model.commands import UpdateDeliveries as Update
from router.model.condition import DETACH_FORCED, NOT_FOUND, RESOURCE_DELETED, Condition
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.events import CreditGranted, DeliveriesReceived, DeliveriesUpdated, LinkAttached
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId, LinkName
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    REJECTED,
    RELEASED,
    DeliveryState,
    Rejected,
)
from router.model.terminus import Role
from router.wire import hub
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.content import Properties
from router.wire.v0_9r1 import methods as d
from router.wire.v0_9r1.content import fold
from router.wire.v0_9r1.framing import FRAMING, FrameType
from tests.support.basic_peer import Content
from tests.support.draft_peer import DraftClientPeer, wire
from tests.wire.v0_9r1.test_content import made

_FROM_1_0 = (Protocol.AMQP_1_0, Protocol.AMQP_0_9R1)
NO_ROUTE = Rejected(Condition(NOT_FOUND, "no"))


def publisher(*, in_transactions: bool = True) -> tuple[DraftClientPeer, LinkId]:
    """A client whose first publish has made its link, which has credit."""
    peer = DraftClientPeer().open(1)
    peer.publish(1, b"first")
    link = peer.accept()
    peer.do(GrantCredit(link, 100))
    if in_transactions:
        peer.send(1, m.TxSelect())
    peer.received()
    peer.take_events()
    return peer, link


def deliveries(peer: DraftClientPeer) -> list[ReceivedDelivery]:
    found = [
        delivery
        for event in peer.take_events()
        if isinstance(event, DeliveriesReceived)
        for delivery in event.deliveries
    ]
    assert all(each.protocol == "amqp-0-9r1" for each in found)
    return found


# --- publishing -----------------------------------------------------------------------------------


def test_a_publish_that_nobody_can_be_told_of_is_settled() -> None:
    peer, _ = publisher(in_transactions=False)
    peer.publish(1, b"a")
    peer.publish(1, b"b", mandatory=True)
    assert [each.settled for each in deliveries(peer)] == [True, False]


def test_a_publish_of_a_transaction_waits_for_its_commit_and_that_for_its_outcome() -> None:
    peer, link = publisher()
    peer.publish(1, b"a")
    assert deliveries(peer) == []
    peer.send(1, m.TxCommit())
    [delivery] = deliveries(peer)
    assert not delivery.settled
    assert peer.methods() == []
    peer.do(Update(link, [delivery.number], ACCEPTED, True))
    assert peer.methods() == [m.TxCommitOk()]


def test_a_publish_that_waits_for_longer_than_its_expiration_comes_back() -> None:
    peer, link = publisher(in_transactions=False)
    peer.do(GrantCredit(link, 0))
    properties = Properties(expiration="1000")
    peer.publish(1, b"a", mandatory=True, properties=properties)
    peer.wait(0.5)
    assert peer.received() == []
    peer.wait(0.6)
    [returned] = peer.methods()
    assert isinstance(returned, Content)
    assert isinstance(returned.method, m.BasicReturn)
    assert returned.method.reply_code == 310
    peer.do(GrantCredit(link, 100))
    assert deliveries(peer) == []


def test_a_publish_that_waits_for_longer_than_its_route_says_comes_back() -> None:
    peer = DraftClientPeer().open(1)
    peer.publish(1, b"a", mandatory=True)
    peer.accept(ttl_seconds=1)
    peer.publish(1, b"packet", mandatory=True)
    peer.wait(0.9)
    assert peer.methods() == []
    peer.wait(0.2)
    returned = [one for one in peer.methods() if isinstance(one, Content)]
    assert [one.body for one in returned] == [b"a", b"packet"]


def test_what_goes_on_in_time_has_the_rest_of_its_expiration() -> None:
    peer, link = publisher(in_transactions=False)
    peer.do(GrantCredit(link, 0))
    peer.publish(1, b"a", mandatory=True, properties=Properties(expiration="1000"))
    peer.wait(0.4)
    peer.do(GrantCredit(link, 100))
    [delivery] = deliveries(peer)
    assert delivery.ttl_milliseconds == 600


def test_transactions_do_not_wait_for_each_other_and_are_answered_in_order() -> None:
    peer, link = publisher()
    for body in (b"a", b"b", b"c"):
        peer.publish(1, body, mandatory=True)
        peer.send(1, m.TxCommit())
    one, two, three = (each.number for each in deliveries(peer))
    peer.do(Update(link, [three], ACCEPTED, True), Update(link, [two], RELEASED, True))
    assert peer.methods() == []
    peer.do(Update(link, [one], ACCEPTED, True))
    kinds = [type(one.method if isinstance(one, Content) else one) for one in peer.methods()]
    assert kinds == [m.TxCommitOk, m.BasicReturn, m.TxCommitOk, m.TxCommitOk]


@pytest.mark.parametrize(
    ("state", "code"),
    [(NO_ROUTE, 404), (RELEASED, 310), (MODIFIED_FAILED, 310), (REJECTED, 403), (None, 310)],
)
@pytest.mark.parametrize("in_transactions", [True, False])
def test_a_mandatory_publish_that_was_not_taken_comes_back_with_the_code_that_says_why(
    state: DeliveryState | None, code: int, in_transactions: bool
) -> None:
    peer, link = publisher(in_transactions=in_transactions)
    peer.publish(1, b"a", mandatory=True)
    if in_transactions:
        peer.send(1, m.TxCommit())
    [delivery] = deliveries(peer)
    peer.do(Update(link, [delivery.number], state, True))
    returned, *rest = peer.methods()
    assert isinstance(returned, Content)
    assert isinstance(returned.method, m.BasicReturn)
    assert returned.method.reply_code == code
    assert returned.body == b"a"
    assert rest == ([m.TxCommitOk()] if in_transactions else [])


@pytest.mark.parametrize("state", [RELEASED, REJECTED])
def test_a_transaction_of_which_something_else_was_not_taken_ends_its_channel(
    state: DeliveryState,
) -> None:
    peer, link = publisher()
    peer.publish(1, b"a")
    peer.publish(1, b"b")
    peer.send(1, m.TxCommit())
    one, two = (each.number for each in deliveries(peer))
    peer.do(Update(link, [one], ACCEPTED, True), Update(link, [two], state, True))
    [close] = peer.methods()
    assert isinstance(close, m.ChannelClose)
    assert close.reply_code == 310


def test_a_transaction_that_is_rolled_back_never_was() -> None:
    peer, _ = publisher()
    peer.publish(1, b"a")
    peer.send(1, m.TxRollback(), m.TxCommit())
    assert deliveries(peer) == []
    assert peer.methods() == [m.TxRollbackOk(), m.TxCommitOk()]


def test_what_has_no_route_comes_back_before_any_link_stands() -> None:
    peer = DraftClientPeer().open(1)
    peer.publish(1, b"a", mandatory=True)
    peer.do(RefuseLink(peer.attached().link, Condition(NOT_FOUND, "no")))
    [returned] = peer.methods()
    assert isinstance(returned, Content)
    assert isinstance(returned.method, m.BasicReturn)
    assert returned.method.reply_code == 404


@pytest.mark.parametrize("is_attached", [False, True])
@pytest.mark.parametrize("in_transactions", [False, True])
@pytest.mark.parametrize(("condition", "code"), [(DETACH_FORCED, 310), (RESOURCE_DELETED, 403)])
def test_what_a_router_that_stops_has_not_handed_on_comes_back_as_not_delivered(
    condition: str, code: int, in_transactions: bool, is_attached: bool
) -> None:
    peer = DraftClientPeer().open(1)
    if in_transactions:
        peer.send(1, m.TxSelect())
        peer.methods()
    peer.publish(1, b"a", mandatory=True)
    if in_transactions:
        peer.send(1, m.TxCommit())
    reason = Condition(condition, "the router is about to stop")
    if is_attached:
        peer.do(DetachLink(peer.accept(), False, reason))
    else:
        peer.do(RefuseLink(peer.attached().link, reason))
    returned, *_ = peer.methods()
    assert isinstance(returned, Content)
    assert isinstance(returned.method, m.BasicReturn)
    assert returned.method.reply_code == code


def test_a_fault_names_its_method_by_the_drafts_numbers() -> None:
    peer = DraftClientPeer().open(1)
    peer.publish(1, b"a", exchange="nowhere")
    peer.do(RefuseLink(peer.attached().link, Condition(NOT_FOUND, "no")))
    [close] = peer.methods()
    assert isinstance(close, m.ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (404, 6, 5)


def test_structured_content_arrives_with_its_children_among_the_headers() -> None:
    peer, _ = publisher(in_transactions=False)
    content = made(b"parent", made(b"child", made(b"grandchild")), made(b""))
    publish = d.CODEC.encode(m.BasicPublish(routing_key="q"))
    peer.feed(FRAMING.frame(FrameType.METHOD, 1, publish) + wire(1, content))
    [delivery] = deliveries(peer)
    assert delivery.payload.endswith(fold(content) + b"parent")


# --- consuming ------------------------------------------------------------------------------------


def consumer(prefetch: int = 10, *, auto_ack: bool = False) -> tuple[DraftClientPeer, LinkId, int]:
    peer = DraftClientPeer().open(1)
    peer.send(1, d.BasicConsume(queue="q", prefetch_count=prefetch, auto_ack=auto_ack))
    event = peer.attached()
    assert event.role is Role.SENDER
    link = peer.accept(event)
    [answer] = peer.methods()
    assert isinstance(answer, d.BasicConsumeOk)
    return peer, link, answer.consumer_tag


def send(peer: DraftClientPeer, link: LinkId, number: int, body: bytes) -> None:
    payload = hub.translate(b"\x00\x53\x75\xa0" + bytes((len(body),)) + body, *_FROM_1_0)
    peer.do(
        SendDeliveries(
            link,
            [OutgoingDelivery(DeliveryNumber(number), DeliveryTag(b"t"), payload, _FROM_1_0[1])],
        )
    )


def updates(peer: DraftClientPeer) -> list[tuple[int, DeliveryState | None]]:
    return [
        (number, event.state)
        for event in peer.take_events()
        if isinstance(event, DeliveriesUpdated)
        for number in event.numbers
    ]


def test_a_consumer_brings_its_prefetch_and_gets_a_number_for_a_tag() -> None:
    peer, link, tag = consumer(prefetch=7)
    assert tag == 1
    peer.take_events()
    granted = peer.engine.handle_deadline(0.0)
    credit = [each.credit for each in granted if isinstance(each, CreditGranted)]
    assert credit in ([], [7])
    send(peer, link, 1, b"a")
    [content] = peer.methods()
    assert isinstance(content, Content)
    assert content.method == d.BasicDeliver(consumer_tag=1, delivery_tag=1, routing_key="q")
    peer.send(1, d.BasicCancel(tag))
    assert peer.methods() == [d.BasicCancelOk()]


def test_each_consumer_has_a_tag_of_its_own() -> None:
    peer, _, first = consumer()
    peer.send(1, d.BasicConsume(queue="q"), d.BasicConsume(queue="q"))
    tags = [one.consumer_tag for one in peer.methods() if isinstance(one, d.BasicConsumeOk)]
    assert [first, *tags] == [1, 2, 3]


@pytest.mark.parametrize(
    ("method", "outcomes"),
    [
        (m.BasicAck(2), [(2, ACCEPTED)]),
        (m.BasicAck(2, multiple=True), [(1, ACCEPTED), (2, ACCEPTED)]),
        (m.BasicReject(1, requeue=True), [(1, MODIFIED_FAILED)]),
        (m.BasicReject(1, requeue=False), [(1, REJECTED)]),
    ],
)
def test_acknowledgments_are_outcomes(
    method: m.Method, outcomes: list[tuple[int, DeliveryState]]
) -> None:
    peer, link, _ = consumer()
    for number in (1, 2, 3):
        send(peer, link, number, b"x")
    peer.take_events()
    peer.send(1, method)
    assert updates(peer) == outcomes


def test_what_is_acknowledged_in_a_transaction_counts_with_its_commit() -> None:
    peer, link, _ = consumer()
    send(peer, link, 1, b"x")
    peer.take_events()
    peer.send(1, m.TxSelect(), m.BasicAck(1))
    assert updates(peer) == []
    peer.send(1, m.TxCommit())
    assert updates(peer) == [(1, ACCEPTED)]


def test_without_acknowledgments_a_delivery_is_accepted_when_sent() -> None:
    peer, link, _ = consumer(auto_ack=True)
    peer.take_events()
    send(peer, link, 1, b"x")
    assert updates(peer) == [(1, ACCEPTED)]


def test_flow_stops_deliveries_and_has_no_answer() -> None:
    peer, link, _ = consumer()
    peer.send(1, m.ChannelFlow(active=False))
    assert peer.methods() == []
    send(peer, link, 1, b"x")
    assert peer.methods() == []
    peer.send(1, m.ChannelFlow(active=True))
    assert len(peer.methods()) == 1


def test_get_fetches_one_message_or_says_that_there_is_none() -> None:
    peer = DraftClientPeer().open(1)
    peer.send(1, m.BasicGet(queue="q"))
    link = peer.accept()
    send(peer, link, 1, b"x")
    [content] = peer.methods()
    assert isinstance(content, Content)
    assert content.method == m.BasicGetOk(delivery_tag=1, routing_key="q")


@pytest.mark.parametrize(
    ("method", "code"),
    [
        (d.BasicConsume(queue="q", prefetch_size=1), 540),
        (d.BasicConsume(queue="q", no_local=True), 540),
        (d.BasicConsume(queue="q", exclusive=True), 403),
        (m.TxCommit(), 406),
        (m.BasicAck(5), 406),
    ],
)
def test_what_a_router_cannot_promise_is_refused(method: m.Method, code: int) -> None:
    peer = DraftClientPeer().open(1)
    peer.send(1, method)
    [close] = peer.methods()
    assert isinstance(close, m.ChannelClose | m.ConnectionClose)
    assert close.reply_code == code


def test_links_that_the_core_asks_for_are_declined() -> None:
    peer = DraftClientPeer().open(1)
    asked = AttachLink(
        link=LinkId(99), name=LinkName("x"), role=Role.SENDER, source=None, target=None
    )
    [event] = [each for each in peer.do(asked) if isinstance(each, LinkAttached)]
    assert event.target is None
