"""A client publishes to the router."""

from typing import Any

import pytest

from router.model import condition as conditions
from router.model.commands import (
    DetachLink,
    GrantCredit,
    HoldWindow,
    RefuseLink,
    UpdateDeliveries,
)
from router.model.condition import Condition
from router.model.delivery import ReceivedDelivery
from router.model.events import (
    CreditReturned,
    DeliveriesReceived,
    DeliveriesUpdated,
    LinkAttached,
    LinkDetached,
    MessageUnrouted,
)
from router.model.identity import DeliveryNumber, LinkId
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    MODIFIED_UNDELIVERABLE,
    REJECTED,
    RELEASED,
    DeliveryState,
    Rejected,
)
from router.model.terminus import Role, Target
from router.wire.inlets import INLETS_KEPT
from router.wire.machine import HELD_LIMIT_OCTETS, HELD_STOP_OCTETS
from router.wire.mechanisms import MechanismServer
from router.wire.serving import DRAIN_SECONDS
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.content import Properties, content_layout, content_route
from router.wire.v0_9_1.reply import Reply
from tests.support.basic_peer import ClientPeer, Content

NOT_FOUND = Rejected(Condition(conditions.NOT_FOUND, "no receiver"))


class Passwords:
    def verify_plain(self, user: str, password: str) -> bool:
        return (user, password) == ("guest", "guest")


def attached(peer: ClientPeer, credit: int = 100, **publish: Any) -> LinkId:
    """Publishes a first message, has the core accept the link and grant credit."""
    peer.publish(1, b"first", **publish)
    link = peer.accept()
    peer.do(GrantCredit(link, credit))
    return link


def deliveries(peer: ClientPeer) -> list[ReceivedDelivery]:
    """Takes all deliveries that came."""
    runs = [event for event in peer.take_events() if isinstance(event, DeliveriesReceived)]
    return [delivery for run in runs for delivery in run.deliveries]


def waits(peer: ClientPeer) -> bool:
    return peer.engine.input_waits


def bodies(peer: ClientPeer) -> list[bytes]:
    return [
        delivery.payload[content_layout(delivery.payload).body_start :]
        for delivery in deliveries(peer)
    ]


def decide(
    peer: ClientPeer, link: LinkId, state: DeliveryState | None, *numbers: int
) -> list[m.Method | Content | None]:
    """Has the core tell outcomes; returns what the client then gets."""
    given = [DeliveryNumber(number) for number in numbers]
    peer.do(UpdateDeliveries(link, given, state, True))
    return peer.methods()


def confirming(credit: int = 100, **publish: Any) -> tuple[ClientPeer, LinkId]:
    peer = ClientPeer().open(1)
    peer.send(1, m.ConfirmSelect())
    link = attached(peer, credit, **publish)
    peer.received()
    return peer, link


# --- links ----------------------------------------------------------------------------------------


def test_the_first_publish_to_an_address_asks_for_a_link_and_waits_for_it() -> None:
    peer = ClientPeer().open(1)
    peer.publish(1, b"one", routing_key="orders")
    asked = peer.attached()
    assert asked.role is Role.RECEIVER
    assert asked.target == Target(address="orders")
    assert asked.is_answer is False
    assert peer.events == []
    link = peer.accept(asked)
    assert peer.take_events() == []
    peer.do(GrantCredit(link, 10))
    [delivery] = deliveries(peer)
    assert delivery.number == 1
    assert delivery.settled
    assert content_route(delivery.payload) == (b"", b"orders")


def test_publishes_to_one_address_are_one_run_on_one_link() -> None:
    peer = ClientPeer().open(1)
    link = attached(peer)
    peer.take_events()
    method = m.BasicPublish(routing_key="q")
    peer.feed(b"".join(peer.content(1, method, b"%d" % n) for n in range(5)))
    [event] = peer.events
    assert isinstance(event, DeliveriesReceived)
    assert event.link == link
    assert bodies(peer) == [b"0", b"1", b"2", b"3", b"4"]


def test_exchange_and_key_are_the_address_and_fanout_forgets_the_key() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.ExchangeDeclare(exchange="news", type="fanout"))
    for exchange, key, address in (
        ("shop", "eu", "shop/eu"),
        ("news", "eu", "news"),
        ("amq.fanout", "x", "amq.fanout"),
        ("amq.topic", "a.b", "amq.topic/a.b"),
    ):
        peer.publish(1, exchange=exchange, routing_key=key)
        assert peer.attached().target == Target(address=address)


def test_each_channel_has_links_of_its_own() -> None:
    peer = ClientPeer().open(1, 2)
    peer.publish(1)
    peer.publish(2)
    names = [event.name for event in peer.events if isinstance(event, LinkAttached)]
    assert len(set(names)) == 2


def test_the_address_longest_idle_makes_room_for_another() -> None:
    peer = ClientPeer().open(1)
    links = []
    for number in range(INLETS_KEPT + 1):
        peer.publish(1, routing_key=f"q{number}")
        detached = [event for event in peer.events if isinstance(event, LinkDetached)]
        peer.events = [event for event in peer.events if isinstance(event, LinkAttached)]
        links.append(peer.accept())
        peer.do(GrantCredit(links[-1], 10))
        peer.take_events()
    assert detached == [LinkDetached(links[0], closed=True)]


def test_several_frames_may_make_a_body_and_none_an_empty_one() -> None:
    peer = ClientPeer().open(1)
    attached(peer)
    peer.take_events()
    method = m.BasicPublish(routing_key="q")
    peer.feed(peer.content(1, method, b"x" * 10_000, frame_max=4096))
    peer.feed(peer.content(1, method, b""))
    assert bodies(peer) == [b"x" * 10_000, b""]


@pytest.mark.parametrize("size", [1, 3, 8, 21, 50])
def test_publishes_may_come_in_pieces_of_any_size(size: int) -> None:
    peer = ClientPeer().open(1)
    attached(peer)
    peer.take_events()
    octets = b"".join(
        peer.content(1, m.BasicPublish(routing_key="q"), b"body %d" % n) for n in range(4)
    )
    for start in range(0, len(octets), size):
        peer.feed(octets[start : start + size])
    assert bodies(peer) == [b"body 0", b"body 1", b"body 2", b"body 3"]


def test_ttl_and_properties_are_told_and_kept() -> None:
    peer = ClientPeer().open(1)
    attached(peer)
    peer.take_events()
    peer.publish(1, b"b", properties=Properties(expiration="5000", content_type="a/b"))
    [delivery] = deliveries(peer)
    assert delivery.ttl_milliseconds == 5000


# --- credit ---------------------------------------------------------------------------------------


def test_what_there_is_no_credit_for_is_held_in_order_over_all_addresses() -> None:
    peer = ClientPeer().open(1)
    link = attached(peer, credit=2)
    peer.take_events()
    for body in (b"2", b"3", b"4"):
        peer.publish(1, body)
    peer.publish(1, b"other", routing_key="other")
    other = peer.accept()
    peer.do(GrantCredit(other, 10))
    assert bodies(peer) == [b"2"]
    peer.do(GrantCredit(link, 1))
    assert bodies(peer) == [b"3"]
    peer.do(GrantCredit(link, 5))
    assert bodies(peer) == [b"4", b"other"]


def test_a_drain_gives_credit_back_at_once() -> None:
    peer = ClientPeer().open(1)
    link = attached(peer)
    peer.take_events()
    peer.do(GrantCredit(link, 0, drain=True))
    assert peer.take_events() == [CreditReturned(link, 0)]
    peer.publish(1, b"held")
    assert peer.take_events() == []
    peer.do(GrantCredit(link, 1))
    assert bodies(peer) == [b"held"]


def test_a_held_window_holds_what_is_published() -> None:
    peer = ClientPeer().open(1)
    link = attached(peer)
    peer.take_events()
    peer.do(HoldWindow(link, True))
    peer.publish(1, b"held")
    assert peer.take_events() == []
    peer.do(HoldWindow(link, False))
    assert bodies(peer) == [b"held"]


def test_reading_stops_when_too_much_is_held_and_goes_on_when_it_is_handed_on() -> None:
    peer = ClientPeer().open(1, frame_max=65536)
    link = attached(peer, credit=1)
    assert waits(peer) is False
    for _ in range(HELD_STOP_OCTETS // 60_000 + 1):
        peer.feed(peer.content(1, m.BasicPublish(routing_key="q"), b"x" * 60_000, frame_max=65536))
    assert waits(peer) is True
    [blocked] = peer.methods()
    assert isinstance(blocked, m.ConnectionBlocked)
    peer.do(GrantCredit(link, 10))
    assert waits(peer) is True
    peer.do(GrantCredit(link, 1000))
    assert waits(peer) is False
    assert peer.methods() == [m.ConnectionUnblocked()]


def test_an_owner_that_does_not_stop_reading_loses_the_connection_not_the_memory() -> None:
    peer = ClientPeer().open(1, frame_max=65536)
    attached(peer, credit=1)
    octets = peer.content(1, m.BasicPublish(routing_key="q"), b"x" * 1_000_000, frame_max=65536)
    for _ in range(HELD_LIMIT_OCTETS // 1_000_000 + 2):
        peer.feed(octets)
    _, close = peer.methods()
    assert isinstance(close, m.ConnectionClose)
    assert close.reply_code == Reply.RESOURCE_ERROR


def test_what_may_have_waited_too_long_at_a_headers_exchange_is_not_called_unroutable() -> None:
    """The core says the same of it as queues say of what no binding of theirs takes."""
    peer, link = confirming(exchange="amq.headers")
    short, plain = Properties(expiration="1000"), Properties()
    for properties in (short, plain):
        peer.publish(1, b"x", exchange="amq.headers", mandatory=True, properties=properties)
    told = decide(peer, link, MODIFIED_UNDELIVERABLE, 2, 3)
    assert [type(one.method if isinstance(one, Content) else one) for one in told] == [
        m.BasicReturn,
        m.BasicNack,
        m.BasicAck,
    ]


# --- outcomes -------------------------------------------------------------------------------------


def test_accepted_is_an_ack_and_neighbors_are_one() -> None:
    peer, link = confirming()
    for _ in range(4):
        peer.publish(1)
    assert [one.number for one in deliveries(peer)] == [1, 2, 3, 4, 5]
    peer.do(
        UpdateDeliveries(link, [DeliveryNumber(1), DeliveryNumber(2)], ACCEPTED, True),
        UpdateDeliveries(link, [DeliveryNumber(3)], ACCEPTED, True),
    )
    assert peer.methods() == [m.BasicAck(3, multiple=True)]
    assert decide(peer, link, ACCEPTED, 5) == [m.BasicAck(5)]
    assert decide(peer, link, ACCEPTED, 4) == [m.BasicAck(4)]


@pytest.mark.parametrize(
    "state",
    [
        RELEASED,
        REJECTED,
        MODIFIED_FAILED,
        None,
        Rejected(Condition(conditions.RESOURCE_LIMIT_EXCEEDED)),
    ],
)
def test_every_other_outcome_is_a_nack(state: DeliveryState | None) -> None:
    peer, link = confirming()
    assert decide(peer, link, state, 1) == [m.BasicNack(1, requeue=False)]


def test_what_is_not_routed_is_acked_for_that_is_what_the_protocol_promises() -> None:
    peer, link = confirming()
    assert decide(peer, link, NOT_FOUND, 1) == [m.BasicAck(1)]


def test_what_is_not_routed_comes_back_first_if_it_was_mandatory() -> None:
    told = Properties(message_id="m", headers={"a": 1})
    peer, link = confirming(mandatory=True, exchange="ex", routing_key="q", properties=told)
    returned, ack = decide(peer, link, NOT_FOUND, 1)
    assert ack == m.BasicAck(1)
    assert returned == Content(
        m.BasicReturn(
            reply_code=312,
            reply_text="NO_ROUTE - no route takes it",
            exchange="ex",
            routing_key="q",
        ),
        told,
        b"first",
    )


def test_a_mandatory_publish_without_confirms_is_returned_or_never_heard_of_again() -> None:
    peer = ClientPeer().open(1)
    link = attached(peer, mandatory=True)
    peer.publish(1, b"second", mandatory=True)
    assert [one.settled for one in deliveries(peer)] == [False, False]
    assert decide(peer, link, ACCEPTED, 1) == []
    [returned] = decide(peer, link, NOT_FOUND, 2)
    assert isinstance(returned, Content)
    assert returned.body == b"second"


def test_an_outcome_that_waits_for_the_publisher_is_settled_for_it() -> None:
    peer, link = confirming()
    numbers = [DeliveryNumber(1)]
    peer.take_events()
    peer.do(UpdateDeliveries(link, numbers, ACCEPTED, False))
    assert peer.take_events() == [DeliveriesUpdated(link, numbers, ACCEPTED, True)]
    assert peer.methods() == [m.BasicAck(1)]


def test_confirms_count_from_the_select_on() -> None:
    peer = ClientPeer().open(1)
    link = attached(peer)
    peer.publish(1, mandatory=True)
    peer.send(1, m.ConfirmSelect(no_wait=True))
    peer.publish(1)
    assert peer.methods() == []
    assert [one.number for one in deliveries(peer)] == [1, 2, 3]
    assert decide(peer, link, ACCEPTED, 3) == [m.BasicAck(1)]
    assert decide(peer, link, ACCEPTED, 2) == []


# --- refusals -------------------------------------------------------------------------------------


def refuse(peer: ClientPeer, name: str = conditions.NOT_FOUND) -> None:
    peer.do(RefuseLink(peer.attached().link, Condition(name, "no route for the address 'q'")))


def test_an_address_without_a_route_is_unroutable() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.ConfirmSelect())
    peer.received()
    peer.publish(1, b"1")
    peer.publish(1, b"2", mandatory=True)
    refuse(peer)
    returned, ack = peer.methods()
    assert isinstance(returned, Content)
    assert returned.body == b"2"
    assert ack == m.BasicAck(2, multiple=True)
    unrouted = [each for each in peer.take_events() if isinstance(each, MessageUnrouted)]
    assert [each.address for each in unrouted] == ["q"], "the other publisher has been told"


def test_a_refused_address_is_asked_for_again_by_the_next_publish() -> None:
    peer = ClientPeer().open(1)
    peer.publish(1, b"lost")
    refuse(peer)
    peer.publish(1, b"found")
    link = peer.accept()
    peer.do(GrantCredit(link, 1))
    assert bodies(peer) == [b"found"]


def test_publishing_to_an_exchange_nobody_knows_closes_the_channel() -> None:
    peer = ClientPeer().open(1)
    peer.publish(1, exchange="nowhere")
    refuse(peer)
    [close] = peer.methods()
    assert isinstance(close, m.ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (404, 60, 40)


def test_publishing_to_an_exchange_declared_here_is_unroutable_at_worst() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.ExchangeDeclare(exchange="news", no_wait=True))
    peer.publish(1, exchange="news")
    refuse(peer)
    assert peer.methods() == []


def test_publishing_where_one_may_not_closes_the_channel() -> None:
    peer = ClientPeer().open(1)
    peer.publish(1)
    refuse(peer, conditions.UNAUTHORIZED_ACCESS)
    [close] = peer.methods()
    assert isinstance(close, m.ChannelClose)
    assert close.reply_code == Reply.ACCESS_REFUSED


def test_neither_exchange_nor_key_is_unroutable_without_asking_anybody() -> None:
    peer = ClientPeer().open(1)
    peer.publish(1, routing_key="", mandatory=True)
    assert peer.events == []
    [returned] = peer.methods()
    assert isinstance(returned, Content)


@pytest.mark.parametrize(
    ("name", "reply"),
    [
        (conditions.UNAUTHORIZED_ACCESS, Reply.ACCESS_REFUSED),
        (conditions.RESOURCE_DELETED, Reply.NOT_FOUND),
        (conditions.DETACH_FORCED, Reply.PRECONDITION_FAILED),
    ],
)
def test_a_link_taken_away_that_leaves_publishes_without_outcome_closes_the_channel(
    name: str, reply: Reply
) -> None:
    peer, link = confirming(credit=1)
    peer.take_events()
    peer.do(DetachLink(link, True, Condition(name, "why")))
    [close] = peer.methods()
    assert isinstance(close, m.ChannelClose)
    assert close.reply_code == reply
    assert "the outcome of 1 messages for 'q' is unknown" in close.reply_text


def test_a_link_taken_away_that_nobody_waits_for_leaves_the_channel_open() -> None:
    peer = ClientPeer().open(1)
    link = attached(peer, 1, mandatory=True)
    peer.methods()
    peer.do(DetachLink(link, True, Condition(conditions.RESOURCE_DELETED)))
    assert peer.methods() == []


def test_a_link_that_the_core_takes_away_refuses_what_is_held_and_is_asked_for_anew() -> None:
    peer, link = confirming(credit=1)
    peer.do(UpdateDeliveries(link, [DeliveryNumber(1)], ACCEPTED, True))
    peer.publish(1, b"held")
    peer.take_events()
    peer.methods()
    peer.do(DetachLink(link, True, Condition(conditions.RESOURCE_DELETED)))
    assert peer.methods() == [m.BasicNack(2, requeue=False)]
    assert LinkDetached(link, True, Condition(conditions.RESOURCE_DELETED)) in peer.take_events()
    peer.publish(1, b"again")
    assert peer.attached().target == Target(address="q")


def test_immediate_is_refused() -> None:
    peer = ClientPeer().open(1)
    peer.feed(peer.content(1, m.BasicPublish(routing_key="q", immediate=True), b""))
    [close] = peer.methods()
    assert isinstance(close, m.ConnectionClose)
    assert (close.reply_code, close.class_id, close.method_id) == (Reply.NOT_IMPLEMENTED, 60, 40)
    assert close.reply_text == "NOT_IMPLEMENTED - immediate=true"  # RabbitMQ's words


def test_a_user_id_must_be_the_publishers_own() -> None:
    peer = ClientPeer(MechanismServer(offer=("PLAIN",), verifier=Passwords())).open(1)
    assert peer.engine.user == "guest"
    attached(peer, properties=Properties(user_id="guest"))
    peer.publish(1, properties=Properties(user_id="guest"))
    assert peer.methods() == []
    peer.publish(1, properties=Properties(user_id="root"))
    [close] = peer.methods()
    assert isinstance(close, m.ChannelClose)
    assert close.reply_code == Reply.PRECONDITION_FAILED


def test_a_body_larger_than_the_link_takes_closes_the_channel() -> None:
    peer = ClientPeer().open(1)
    peer.publish(1)
    asked = peer.attached()
    peer.accept(asked, max_message_octets=10)
    peer.do(GrantCredit(asked.link, 10))
    peer.publish(1, b"x" * 10)
    assert peer.methods() == []
    peer.publish(1, b"x" * 11)
    [close] = peer.methods()
    assert isinstance(close, m.ChannelClose)
    assert close.reply_code == Reply.CONTENT_TOO_LARGE


@pytest.mark.parametrize("confirms", [False, True])
def test_a_body_that_came_before_the_link_was_attached_is_measured_by_what_it_takes(
    confirms: bool,
) -> None:
    peer = ClientPeer().open(1)
    if confirms:
        peer.send(1, m.ConfirmSelect())
    for body in (b"x" * 10, b"x" * 11, b"x"):
        peer.publish(1, body)
    asked = peer.attached()
    peer.accept(asked, max_message_octets=10)
    peer.do(GrantCredit(asked.link, 10))
    [close] = [each for each in peer.methods() if isinstance(each, m.ChannelClose)]
    assert (close.reply_code, close.class_id, close.method_id) == (311, 60, 40)
    assert "a body of 11 octets" in close.reply_text
    runs = [event for event in peer.take_events() if isinstance(event, DeliveriesReceived)]
    given = [each.payload[-11:] for run in runs for each in run.deliveries]
    assert b"x" * 11 not in given


def test_a_body_of_a_transaction_is_measured_when_it_is_committed() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.TxSelect())
    peer.publish(1, b"x" * 11)
    asked = peer.attached()
    peer.accept(asked, max_message_octets=10)
    peer.do(GrantCredit(asked.link, 10))
    peer.send(1, m.TxCommit())
    [close] = [each for each in peer.methods() if isinstance(each, m.ChannelClose)]
    assert close.reply_code == Reply.CONTENT_TOO_LARGE


# --- content out of order -------------------------------------------------------------------------


def test_a_content_may_not_be_interrupted_on_its_channel_but_on_others() -> None:
    peer = ClientPeer().open(1, 2)
    peer.send(1, m.BasicPublish(routing_key="q"))
    peer.send(2, m.BasicQos())
    assert peer.methods() == [m.BasicQosOk()]
    peer.send(1, m.BasicQos())
    [close] = peer.methods()
    assert isinstance(close, m.ConnectionClose)
    assert close.reply_code == Reply.UNEXPECTED_FRAME


# --- transactions ---------------------------------------------------------------------------------


def transactional() -> tuple[ClientPeer, LinkId]:
    peer = ClientPeer().open(1)
    link = attached(peer)
    peer.send(1, m.TxSelect())
    peer.received()
    peer.take_events()
    return peer, link


def test_nothing_of_a_transaction_is_handed_on_before_commit() -> None:
    peer, link = transactional()
    peer.publish(1, b"a")
    peer.publish(1, b"b")
    assert peer.take_events() == []
    peer.send(1, m.TxCommit(), m.BasicQos())
    sent = deliveries(peer)
    assert [one.settled for one in sent] == [False, False]
    assert peer.methods() == []
    assert decide(peer, link, ACCEPTED, sent[0].number) == []
    assert decide(peer, link, ACCEPTED, sent[1].number) == [m.TxCommitOk(), m.BasicQosOk()]


def test_an_empty_transaction_commits_at_once() -> None:
    peer, _ = transactional()
    peer.send(1, m.TxCommit())
    assert peer.methods() == [m.TxCommitOk()]


def test_a_transaction_that_was_not_taken_closes_the_channel() -> None:
    peer, link = transactional()
    peer.publish(1, b"a")
    peer.publish(1, b"b")
    peer.send(1, m.TxCommit())
    first, second = deliveries(peer)
    assert decide(peer, link, RELEASED, first.number) == []
    [close] = decide(peer, link, ACCEPTED, second.number)
    assert isinstance(close, m.ChannelClose)
    assert close.reply_code == Reply.PRECONDITION_FAILED
    assert "1 publishes" in close.reply_text


def test_a_transaction_whose_address_is_not_routed_commits_as_the_protocol_has_it() -> None:
    peer, _ = transactional()
    peer.publish(1, routing_key="nowhere")
    peer.send(1, m.TxCommit())
    refuse(peer)
    assert peer.methods() == [m.TxCommitOk()]


def test_a_rollback_forgets_what_was_published() -> None:
    peer, _ = transactional()
    peer.publish(1, b"a")
    peer.send(1, m.TxRollback(), m.TxCommit())
    assert peer.methods() == [m.TxRollbackOk(), m.TxCommitOk()]
    assert peer.take_events() == []
    assert peer.engine.input_waits is False


@pytest.mark.parametrize(
    "methods",
    [
        (m.TxCommit(),),
        (m.TxRollback(),),
        (m.ConfirmSelect(), m.TxSelect()),
        (m.TxSelect(), m.ConfirmSelect()),
    ],
)
def test_modes_exclude_each_other(methods: tuple[m.Method, ...]) -> None:
    peer = ClientPeer().open(1)
    peer.send(1, *methods)
    close = peer.methods()[-1]
    assert isinstance(close, m.ChannelClose)
    assert close.reply_code == Reply.PRECONDITION_FAILED


# --- ends -----------------------------------------------------------------------------------------


def told_of_confirms() -> ClientPeer:
    peer = ClientPeer().open(1)
    peer.send(1, m.ConfirmSelect())
    peer.methods()
    return peer


def test_a_close_of_the_channel_waits_for_what_was_published_before_it() -> None:
    peer = told_of_confirms()
    peer.publish(1, b"last words")
    peer.send(1, m.ChannelClose())
    assert peer.methods() == []
    link = peer.accept()
    peer.do(GrantCredit(link, 5))
    assert peer.methods() == [m.ChannelCloseOk()]
    delivered, detached = peer.take_events()
    assert isinstance(delivered, DeliveriesReceived)
    assert detached == LinkDetached(link, closed=True)


def test_a_close_of_the_connection_waits_for_what_was_published_before_it() -> None:
    peer = told_of_confirms()
    peer.publish(1, b"last words")
    peer.send(0, m.ConnectionClose())
    assert peer.methods() == []
    link = peer.accept()
    peer.do(GrantCredit(link, 5))
    assert peer.methods() == [m.ConnectionCloseOk()]
    assert peer.engine.finished


@pytest.mark.parametrize(
    ("number", "close", "answer"),
    [
        (1, m.ChannelClose(), m.ChannelCloseOk()),
        (0, m.ConnectionClose(), m.ConnectionCloseOk()),
    ],
)
def test_a_close_does_not_wait_for_ever(number: int, close: m.Method, answer: m.Method) -> None:
    peer = told_of_confirms()
    peer.publish(1, b"last words")
    peer.send(number, close)
    peer.wait(DRAIN_SECONDS - 0.1)
    assert peer.methods() == []
    peer.wait(0.2)
    assert peer.methods() == [answer]


def handed_on(peer: ClientPeer) -> list[tuple[bytes, bool]]:
    """Bodies of what the core has been given, and whether they were settled."""
    return [
        (delivery.payload[-1:], delivery.settled)
        for event in peer.take_events()
        if isinstance(event, DeliveriesReceived)
        for delivery in event.deliveries
    ]


@pytest.mark.parametrize("number", [0, 1])
def test_a_close_hands_over_what_was_published_without_confirms_and_has_no_credit(
    number: int,
) -> None:
    peer = ClientPeer().open(1)
    peer.publish(1, b"a")
    link = peer.accept()
    peer.publish(1, b"b")
    peer.send(number, m.ConnectionClose() if number == 0 else m.ChannelClose())
    assert peer.methods() == [m.ConnectionCloseOk() if number == 0 else m.ChannelCloseOk()]
    events = peer.take_events()
    (delivered,) = [event for event in events if isinstance(event, DeliveriesReceived)]
    assert delivered.link == link
    assert [delivery.payload[-1:] for delivery in delivered.deliveries] == [b"a", b"b"]
    assert all(delivery.settled for delivery in delivered.deliveries)
    assert events.index(delivered) < len(events) - 1


def test_a_lost_connection_hands_over_what_was_published_without_confirms() -> None:
    peer = ClientPeer().open(1)
    peer.publish(1, b"a")
    peer.publish(1, b"b", mandatory=True)
    peer.accept()
    peer.take_events()
    peer.events += peer.engine.receive_eof(peer.now)
    assert handed_on(peer) == [(b"a", True), (b"b", True)]


def test_what_was_to_be_confirmed_or_committed_is_void_with_its_connection() -> None:
    peer = told_of_confirms()
    peer.publish(1, b"a")
    peer.send(0, m.ConnectionClose())
    other, _ = transactional()
    other.publish(1, b"a")
    for each in (peer, other):
        each.take_events()
        each.events += each.engine.receive_eof(each.now)
        assert handed_on(each) == []


def test_what_is_held_for_the_cores_budget_waits_for_it_when_its_channel_closes() -> None:
    peer = ClientPeer().open(1)
    peer.publish(1, b"a")
    peer.do(HoldWindow(peer.accept(), True))
    peer.send(1, m.ChannelClose())
    assert peer.methods() == []
    peer.wait(DRAIN_SECONDS + 0.1)
    assert peer.methods() == [m.ChannelCloseOk()]
    assert handed_on(peer) == [(b"a", True)]


def test_a_channel_number_may_be_used_again_after_its_close() -> None:
    peer = ClientPeer().open(1)
    peer.publish(1, b"a")
    link = peer.accept()
    peer.do(GrantCredit(link, 1))
    peer.send(1, m.ChannelClose(), m.ChannelOpen())
    assert peer.methods() == [m.ChannelCloseOk(), m.ChannelOpenOk()]
    peer.take_events()
    peer.publish(1, b"b")
    assert peer.attached().link != link


def test_after_a_channels_fault_everything_is_dropped_until_close_ok() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.BasicAck(99))
    [close] = peer.methods()
    assert isinstance(close, m.ChannelClose)
    peer.publish(1, b"dropped")
    peer.send(1, m.BasicQos(), m.ChannelClose())
    assert peer.methods() == [m.ChannelCloseOk()]
    peer.send(1, m.ChannelCloseOk(), m.ChannelOpen())
    assert peer.methods() == [m.ChannelOpenOk()]
    assert peer.events == []
