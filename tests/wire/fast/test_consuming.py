"""What a client receives: subscriptions, prefetch, acknowledgements, temporary destinations,
browsing, peer services, streams (RFC 006 §3.3.3, §3.5.4-12)."""

import pytest

from router.model.capabilities import Protocol
from router.model.commands import (
    AttachLink,
    DetachLink,
    GrantCredit,
    HoldWindow,
    RefuseLink,
    ReturnCredit,
    SendDeliveries,
)
from router.model.condition import NOT_FOUND, RESOURCE_DELETED, Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import (
    CreditGranted,
    DeliveriesReceived,
    DeliveriesUpdated,
    DeliveryAborted,
    DeliveryContinued,
    Event,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    DeliveryState,
    Rejected,
)
from router.model.terminus import Source
from router.wire import hub
from router.wire.fast import commands as c
from router.wire.fast.consuming import BACKLOG_CAPACITY, UNRELIABLE_CAPACITY
from router.wire.fast.framing import START
from router.wire.fast.receiving import list_of
from router.wire.v1_0.sections import AnnotatedMessage, decode_message
from tests.support.fast_peer import Client, message, outgoing


def consuming(prefetch: int = 10, **options: object) -> tuple[Client, LinkId]:
    """A client that consumes from "orders" by handle 1 on channel 1."""
    client = Client().open().channel(1, **options).handle(1, "orders")
    client.send(c.HandleConsume(1, 0, prefetch))
    (asked,) = client.say_yes()
    client.read()
    return client, asked.link


def credit(events: list[Event], link: LinkId) -> list[int]:
    return [
        event.credit for event in events if isinstance(event, CreditGranted) and event.link == link
    ]


def updates(events: list[Event]) -> list[tuple[int, DeliveryState | None]]:
    return [
        (number, event.state)
        for event in events
        if isinstance(event, DeliveriesUpdated)
        for number in event.numbers
    ]


def notices(client: Client) -> list[tuple[int, bytes]]:
    """Number and octets of each HANDLE NOTIFY."""
    return [
        (each[0].message_nbr, each[1])
        for each in client.read()
        if isinstance(each, tuple) and isinstance(each[0], c.HandleNotify)
    ]


def body_of(octets: bytes) -> bytes:
    return b"".join(hub.to_sections(Protocol.AMQP_FAST, b"\0\0" + octets).data)


# --- subscriptions --------------------------------------------------------------------------------


def test_consume_is_a_link_whose_credit_is_the_prefetch() -> None:
    """§3.5.4."""
    client = Client().open().channel().handle(1, "alt.")
    client.send(c.HandleConsume(1, 5, 10, dest_name="pets"))
    (asked,) = client.say_yes()
    assert asked.source is not None
    assert asked.source.address == "alt.pets"
    assert asked.source.distribution_mode == "move"
    assert client.read() == [c.HandleReply(1, 5, 200)]
    assert credit(client.events, asked.link) == [10]


def test_a_message_is_notified_with_the_full_name_of_its_destination() -> None:
    """§3.5.11."""
    client, link = consuming()
    client.do(SendDeliveries(link, [outgoing(71, b"body", identifier="x")]))
    assert client.read() == [
        (
            c.HandleNotify(1, 1, len(message(b"body")) + 1, delivered=True, dest_name="orders"),
            message(b"body", identifier="x"),
        )
    ]


def test_messages_of_a_channel_are_numbered_over_all_its_handles() -> None:
    """§3.3.3: "message numbers are assigned by the server and are sequential on a channel"."""
    client, link = consuming()
    client.handle(2, "other")
    client.send(c.HandleConsume(2, 0, 10))
    (other,) = client.say_yes()
    client.do(SendDeliveries(link, [outgoing(1)]))
    client.do(SendDeliveries(other.link, [outgoing(1)]))
    client.do(SendDeliveries(link, [outgoing(2)]))
    assert [number for number, _ in notices(client)] == [1, 2, 3]


def test_an_ack_settles_all_handles_up_to_its_number() -> None:
    """§3.3.3."""
    client, link = consuming()
    client.handle(2, "other")
    client.send(c.HandleConsume(2, 0, 10))
    (other,) = client.say_yes()
    client.do(SendDeliveries(link, [outgoing(11)]))
    client.do(SendDeliveries(other.link, [outgoing(21)]))
    client.do(SendDeliveries(link, [outgoing(12)]))
    client.read()
    events = client.send(c.ChannelAck(1, 6, 2))
    assert updates(events) == [(11, ACCEPTED), (21, ACCEPTED)]
    assert client.read() == [c.ChannelReply(1, 6, 200)]
    assert updates(client.send(c.ChannelAck(1, 0, 2))) == []
    assert updates(client.send(c.ChannelAck(1, 0, 99))) == [(12, ACCEPTED)]  # need not exist


def test_message_numbers_wrap() -> None:
    client, link = consuming()
    client.engine.channels[1].receiving._last = 0xFFFF_FFFE
    client.do(SendDeliveries(link, [outgoing(each) for each in (1, 2, 3)]))
    assert [number for number, _ in notices(client)] == [0xFFFF_FFFF, 0, 1]
    assert updates(client.send(c.ChannelAck(1, 0, 0))) == [(1, ACCEPTED), (2, ACCEPTED)]
    assert updates(client.send(c.HandleUnget(1, 0, 1))) == [(3, MODIFIED_FAILED)]


def test_no_more_than_the_prefetch_is_unacknowledged() -> None:
    client, link = consuming(4)
    client.take_events()
    client.do(SendDeliveries(link, [outgoing(each) for each in range(4)]))
    assert credit(client.take_events(), link) == []
    assert credit(client.send(c.ChannelAck(1, 0, 1)), link) == [1]
    assert credit(client.send(c.ChannelAck(1, 0, 4)), link) == [4]


def test_an_unreliable_subscription_accepts_what_is_sent() -> None:
    """§3.5.4, unreliable."""
    client = Client().open().channel().handle(1, "orders")
    client.send(c.HandleConsume(1, 0, 1, unreliable=True))
    (asked,) = client.say_yes()
    assert credit(client.events, asked.link) == [UNRELIABLE_CAPACITY]
    events = client.do(SendDeliveries(asked.link, [outgoing(1), outgoing(2), outgoing(3)]))
    assert updates(events) == [(1, ACCEPTED), (2, ACCEPTED), (3, ACCEPTED)]
    assert len(notices(client)) == 3


@pytest.mark.parametrize(
    ("service", "mode", "code"),
    [(1, "move", None), (2, "copy", None), (1, "copy", 401), (2, "move", 401)],
)
def test_the_service_type_is_what_the_route_gives(
    service: int, mode: str, code: int | None
) -> None:
    """§2.2.6: a queue's message goes to one reader, a topic's to all."""
    client = Client().open().channel().handle(1, "news", service=service)
    client.modes["news"] = mode
    client.send(c.HandleConsume(1, 4, 10))
    client.say_yes()
    (answer,) = client.read()
    if code is None:
        assert answer == c.HandleReply(1, 4, 200)
    else:
        assert isinstance(answer, c.HandleClose)
        assert answer.reply_code == code
        assert isinstance(client.take_events()[-1], LinkDetached)


@pytest.mark.parametrize(
    ("command", "service", "code"),
    [
        (c.HandleConsume(1, 0, 0), 1, 502),
        (c.HandleConsume(1, 0, 1, identifier="mine"), 1, 502),
        (c.HandleConsume(1, 0, 1, identifier="mine"), 2, 540),
        (c.HandleConsume(1, 0, 1, selector=b"a = 1"), 1, 540),
        (c.HandleConsume(1, 0, 1, no_local=True), 2, 540),
        (c.HandleConsume(1, 0, 1), 3, 503),
        (c.HandleFlow(1, 0, True), 3, 503),
        (c.HandleUnget(1, 0, 1), 3, 503),
        (c.HandleUnget(1, 0, 1), 2, 503),
        (c.HandleUnget(1, 0, 1), 1, 310),
        (c.HandleQuery(1), 3, 503),
        (c.HandleBrowse(1, 0, 1), 3, 503),
        (c.HandleQuery(1), 1, 540),
        (c.HandleQuery(1, selector=b"a = 1"), 1, 540),
        (c.HandleCancel(1, 0, "", "mine"), 1, 503),
        (c.HandleCancel(1, 0, "", "mine"), 2, 404),
        (c.HandleReady(1, 0), 1, 503),
        (c.HandlePrepare(1, 0), 2, None),
    ],
)
def test_what_is_not_valid_or_cannot_be_promised_is_refused(
    command: c.Command, service: int, code: int | None
) -> None:
    client = Client().open().channel().handle(1, "orders", service=service)
    client.send(command)
    client.take_events()
    (close,) = client.read()
    if code is None:  # a channel that is not restartable
        assert isinstance(close, c.ChannelClose)
        assert close.reply_code == 503
    else:
        assert isinstance(close, c.HandleClose)
        assert close.reply_code == code


@pytest.mark.parametrize("command", [c.HandleConsume(1), c.HandleQuery(1), c.HandleBrowse(1, 0, 1)])
def test_a_handle_is_opened_for_what_it_does(command: c.Command) -> None:
    client = Client().open().channel().handle(1, "orders", consumer=False, browser=False)
    client.send(command)
    (close,) = client.read()
    assert isinstance(close, c.HandleClose)
    assert close.reply_code == 403


def test_who_asks_for_no_name_is_told_so() -> None:
    client = Client().open().channel().handle(1, "")
    client.send(c.HandleConsume(1))
    (close,) = client.read()
    assert isinstance(close, c.HandleClose)
    assert close.reply_code == 404


def test_a_source_that_is_refused_or_ends_closes_the_handle() -> None:
    client = Client().open().channel().handle(1, "orders")
    client.send(c.HandleConsume(1, 3))
    (asked,) = client.take_events()
    assert isinstance(asked, LinkAttached)
    client.do(RefuseLink(asked.link, Condition(NOT_FOUND, "no route")))
    (close,) = client.read()
    assert isinstance(close, c.HandleClose)
    assert close.reply_code == 404
    other, link = consuming()
    other.do(SendDeliveries(link, [outgoing(1)]))
    other.read()
    other.do(DetachLink(link, True, Condition(RESOURCE_DELETED, "gone")))
    (close,) = other.read()
    assert isinstance(close, c.HandleClose)
    other.take_events()
    assert updates(other.send(c.ChannelAck(1, 0, 1))) == []


def test_consuming_again_changes_the_prefetch() -> None:
    client, link = consuming(4)
    client.take_events()
    client.send(c.HandleConsume(1, 3, 20))
    assert client.read() == [c.HandleReply(1, 3, 200)]
    client.settle()
    assert credit(client.take_events(), link) == [20]


# --- flow, giving back ----------------------------------------------------------------------------


def test_a_paused_handle_takes_nothing_and_a_restarted_one_goes_on() -> None:
    """§3.5.6."""
    client, link = consuming(4)
    client.take_events()
    events = client.send(c.HandleFlow(1, 5, True))
    assert credit(events, link) == [0]
    assert client.read() == [c.HandleReply(1, 5, 200)]
    client.do(SendDeliveries(link, [outgoing(1)]))  # was under way
    assert notices(client) == []
    events = client.send(c.HandleFlow(1, 0, False))
    assert [number for number, _ in notices(client)] == [1]
    assert credit(events, link) == [3]


def test_what_is_ungot_goes_to_another() -> None:
    """§3.5.7: 'unget 3' followed by 'ack 4'."""
    client, link = consuming()
    client.do(SendDeliveries(link, [outgoing(each) for each in (1, 2, 3, 4)]))
    client.read()
    assert updates(client.send(c.HandleUnget(1, 8, 3))) == [(3, MODIFIED_FAILED)]
    assert client.read() == [c.HandleReply(1, 8, 200)]
    assert updates(client.send(c.ChannelAck(1, 0, 4))) == [(n, ACCEPTED) for n in (1, 2, 4)]


@pytest.mark.parametrize(
    "close", [c.HandleClose(1, 200), c.ChannelClose(1, 200), c.ConnectionClose(200)]
)
def test_what_an_orderly_end_leaves_unacknowledged_is_given_back(close: c.Command) -> None:
    client, link = consuming()
    client.do(SendDeliveries(link, [outgoing(1), outgoing(2)]))
    client.send(c.ChannelAck(1, 0, 1))
    client.take_events()
    events = client.send(close)
    assert updates(events) == [(2, MODIFIED_FAILED)]


def test_a_delivery_that_cannot_be_sent_is_refused_alone() -> None:
    client, link = consuming()
    broken = OutgoingDelivery(DeliveryNumber(5), DeliveryTag(b"x"), b"\0\0", Protocol.AMQP_FAST)
    big = outgoing(6, headers={"a": bytes(60000), "b": bytes(5525)})
    events = client.do(SendDeliveries(link, [broken, big, outgoing(7)]))
    refused = dict(updates(events))
    assert list(refused) == [5, 6]
    assert all(isinstance(state, Rejected) for state in refused.values())
    assert [number for number, _ in notices(client)] == [1]


def test_redelivery_and_ttl_are_told() -> None:
    client, link = consuming()
    delivery = outgoing(1, b"x")
    delivery.delivery_count = 3
    delivery.ttl_milliseconds = 900
    client.do(SendDeliveries(link, [delivery]))
    ((notify, octets),) = client.fragments()
    assert isinstance(notify, c.HandleNotify)
    assert notify.redelivered
    told = hub.to_sections(Protocol.AMQP_FAST, b"\1\0" + octets)
    assert told.header is not None
    assert (told.header.delivery_count, told.header.ttl_ms) == (3, 900)


# --- transactions ---------------------------------------------------------------------------------


def test_acknowledgements_of_a_transaction_count_when_it_commits() -> None:
    """§3.3.4."""
    client, link = consuming(transacted=True)
    client.do(SendDeliveries(link, [outgoing(each) for each in (1, 2, 3)]))
    client.read()
    assert updates(client.send(c.ChannelAck(1, 0, 1))) == []
    assert updates(client.send(c.HandleUnget(1, 0, 2))) == []
    events = client.send(c.ChannelCommit(1, 4))
    assert updates(events) == [(1, ACCEPTED), (2, MODIFIED_FAILED)]
    assert client.read() == [c.ChannelReply(1, 4, 200)]
    assert updates(client.send(c.ChannelClose(1, 200))) == [(3, MODIFIED_FAILED)]


def test_a_client_that_never_acknowledges_commits_all_it_was_sent() -> None:
    """§3.3.4: "The transaction also confirms all messages sent to the client"."""
    client, link = consuming(transacted=True)
    client.do(SendDeliveries(link, [outgoing(1), outgoing(2)]))
    assert updates(client.send(c.ChannelCommit(1, 4))) == [(1, ACCEPTED), (2, ACCEPTED)]


def test_a_rollback_gives_back_all_that_was_not_committed() -> None:
    """§3.3.5."""
    client, link = consuming(transacted=True)
    client.do(SendDeliveries(link, [outgoing(each) for each in (1, 2, 3)]))
    client.send(c.ChannelAck(1, 0, 1), c.HandleUnget(1, 0, 2))
    events = client.send(c.ChannelRollback(1))
    assert updates(events) == [(n, MODIFIED_FAILED) for n in (1, 2, 3)]


# --- temporary destinations and browsing ----------------------------------------------------------


def temporary(**options: object) -> tuple[Client, LinkId]:
    client = Client().open().channel().handle(1, temporary=True, confirm_tag=9, **options)  # type: ignore[arg-type]
    (asked,) = client.say_yes()
    assert asked.source is not None
    assert asked.source.dynamic
    return client, asked.link


def test_a_temporary_destination_gets_a_name_of_the_routers() -> None:
    """§3.5.2.2, §3.5.10."""
    client, link = temporary()
    assert client.read() == [c.HandleCreated(1, "made/1"), c.HandleReply(1, 9, 200)]
    assert credit(client.events, link) == [BACKLOG_CAPACITY]


def test_a_name_of_the_clients_own_is_refused() -> None:
    client = Client().open().channel().handle(1, "mine", temporary=True)
    (close,) = client.read()
    assert isinstance(close, c.HandleClose)
    assert close.reply_code == 403


def test_what_comes_before_anybody_consumes_waits() -> None:
    client, link = temporary()
    client.read()
    client.do(SendDeliveries(link, [outgoing(1, b"a"), outgoing(2, b"b")]))
    assert client.read() == []
    client.send(c.HandleConsume(1, 0, 1))
    ((number, octets),) = notices(client)
    assert (number, body_of(octets)) == (1, b"a")
    client.send(c.ChannelAck(1, 0, 1))
    assert len(notices(client)) == 1


def test_only_its_own_messages_are_consumed_by_a_temporary_handle() -> None:
    client, _ = temporary()
    client.read()
    client.send(c.HandleConsume(1, 0, 1, dest_name="orders"))
    (close,) = client.read()
    assert isinstance(close, c.HandleClose)
    assert close.reply_code == 404


def test_messages_sent_before_the_name_is_known_keep_their_place() -> None:
    client = Client().open().channel().handle(1, temporary=True)
    client.post(b"1")
    client.post(b"2")
    client.send(c.HandleClose(1, 200))
    client.say_yes()
    client.say_yes()
    bodies = [
        each.payload[-1:]
        for event in client.events
        if isinstance(event, DeliveriesReceived)
        for each in event.deliveries
    ]
    assert bodies == [b"1", b"2"]


def test_what_waits_can_be_listed_and_looked_at() -> None:
    """§3.5.8-12: the messages stay where they are."""
    client, link = temporary()
    client.read()
    client.do(SendDeliveries(link, [outgoing(each, b"%d" % each) for each in (1, 2, 3)]))
    client.send(c.HandleQuery(1), c.HandleQuery(1, 1))
    assert client.read() == [c.HandleIndex(1, 0, b"1-3"), c.HandleIndex(1, 0, b"2-3")]
    client.send(c.HandleBrowse(1, 6, 2))
    reply, shown = client.read()
    assert reply == c.HandleReply(1, 6, 200)
    assert isinstance(shown, tuple)
    notify, octets = shown
    assert isinstance(notify, c.HandleNotify)
    assert (notify.message_nbr, notify.delivered) == (2, False)
    assert body_of(octets) == b"2"
    client.take_events()
    assert updates(client.send(c.ChannelAck(1, 0, 99))) == []
    client.send(c.HandleConsume(1, 0, 9))
    assert len(notices(client)) == 3


def drains(events: list[Event], link: LinkId) -> list[int]:
    return [
        event.credit
        for event in events
        if isinstance(event, CreditGranted) and event.link == link and event.drain
    ]


def posted() -> tuple[Client, LinkId]:
    """A client with a temporary destination, to which its channel has sent "1"."""
    client, link = temporary()
    client.post(b"1")
    client.say_yes()
    client.read()
    client.take_events()
    return client, link


def test_a_list_waits_for_what_its_channel_has_sent() -> None:
    """§2.2.5: "handled in a strictly serial fashion"; the core's word is behind the messages."""
    client, link = posted()
    assert drains(client.send(c.HandleQuery(1), c.HandleBrowse(1, 6, 1)), link) == [
        BACKLOG_CAPACITY
    ]
    client.do(SendDeliveries(link, [outgoing(1, b"1")]))
    assert client.read() == []
    client.take_events()
    client.do(ReturnCredit(link))
    assert client.read() == [c.HandleIndex(1, 0, b"1")]
    assert drains(client.take_events(), link) == [BACKLOG_CAPACITY - 1]
    client.do(ReturnCredit(link))
    reply, _ = client.read()
    assert reply == c.HandleReply(1, 6, 200)
    assert credit(client.take_events(), link) == [BACKLOG_CAPACITY - 1]


def test_a_list_waits_while_its_channels_messages_have_no_credit() -> None:
    client, link = temporary()
    client.post(b"1")
    client.send(c.HandleQuery(1))
    assert drains(client.events, link) == []
    client.say_yes()  # to the link of what was sent
    assert drains(client.events, link) == [BACKLOG_CAPACITY]


def test_a_list_does_not_wait_for_what_finds_no_room() -> None:
    client, link = temporary()
    client.post(b"1")
    client.send(c.HandleQuery(1))
    client.read()
    deliveries = [outgoing(number, b"x") for number in range(1, BACKLOG_CAPACITY + 1)]
    client.do(SendDeliveries(link, deliveries))  # others', until the destination is full
    assert client.read() == [c.HandleIndex(1, 0, b"1-%d" % BACKLOG_CAPACITY)]


def test_a_destination_that_goes_answers_its_lists_by_its_end() -> None:
    client, link = posted()
    client.send(c.HandleQuery(1))
    client.do(DetachLink(link, True, Condition(RESOURCE_DELETED, "gone")))
    (close,) = client.read()
    assert isinstance(close, c.HandleClose)
    client.do(ReturnCredit(link))
    assert client.read() == []


def test_a_message_that_is_not_here_is_said_so_and_the_handle_stays() -> None:
    """§3.5.9: HANDLE REPLY with code 310."""
    client = Client().open().channel().handle(1, "orders")
    client.send(c.HandleBrowse(1, 6, 2))
    (reply,) = client.read()
    assert isinstance(reply, c.HandleReply)
    assert (reply.confirm_tag, reply.reply_code) == (6, 310)
    assert client.engine.handles[1].is_open


@pytest.mark.parametrize(
    ("numbers", "listed"),
    [([], b""), ([5], b"5"), ([5, 9, *range(15, 41), 80], b"5,9,15-40,80")],
)
def test_message_lists_are_written_as_the_document_has_them(
    numbers: list[int], listed: bytes
) -> None:
    """§3.5.12, "5,9,15-40,80" (the printed dot is a comma in the original)."""
    assert list_of(numbers) == (listed, 0)


def test_a_list_that_does_not_fit_says_how_far_it_goes() -> None:
    """§3.5.12: message-nbr is the highest number if there are further messages."""
    listed, more = list_of(list(range(1, 2000, 2)))
    assert len(listed) <= 1024
    assert listed.endswith(b",%d" % more)


# --- peer services --------------------------------------------------------------------------------


def calling() -> tuple[Client, LinkId]:
    """A client with a handle for the peer service "clock"."""
    client = Client().open().channel().handle(1, "clock", service=3)
    client.post(b"what time is it")
    (asked,) = client.say_yes()
    assert asked.source is not None
    assert asked.source.dynamic
    return client, asked.link


def test_a_call_says_where_its_answer_goes() -> None:
    """§2.2.6: "the service accepts a request from the client and responds with a reply"."""
    client, link = calling()
    client.say_yes()
    (run,) = [event for event in client.events if isinstance(event, DeliveriesReceived)]
    told = hub.to_sections(Protocol.AMQP_FAST, run.deliveries[0].payload)
    assert told.properties is not None
    assert told.properties.reply_to == "made/1"
    events = client.do(SendDeliveries(link, [outgoing(1, b"noon")]))
    assert updates(events) == [(1, ACCEPTED)]  # CHANNEL ACK is not valid for peer services
    ((_, octets),) = notices(client)
    assert body_of(octets) == b"noon"


def test_a_call_may_name_another_place_for_its_answer() -> None:
    client, _ = calling()
    client.say_yes()
    client.take_events()
    client.post(b"x", headers={"x-amqp-reply-to": b"elsewhere"})
    (run,) = [event for event in client.events if isinstance(event, DeliveriesReceived)]
    told = hub.to_sections(Protocol.AMQP_FAST, run.deliveries[0].payload)
    assert told.properties is not None
    assert told.properties.reply_to == "elsewhere"


def test_a_call_without_room_for_its_answers_address_is_invalid() -> None:
    client = Client().open().channel().handle(1, "clock", service=3)
    (asked,) = client.say_yes()
    assert asked.source is not None
    octets = message(b"", headers={"a": bytes(65520)})
    half = len(octets) // 2
    client.send((c.HandleSend(1, 0, half, partial=True), octets[:half]))
    client.send((c.HandleSend(1, 0, len(octets) - half), octets[half:]))
    (close,) = client.read()
    assert isinstance(close, c.HandleClose)
    assert close.reply_code == 542


@pytest.mark.parametrize("service", [1, 3])
def test_a_name_that_cannot_be_told_closes_the_handle(service: int) -> None:
    client = (
        Client()
        .open()
        .channel()
        .handle(1, "" if service == 1 else "clock", service=service, temporary=service == 1)
    )
    (asked,) = [event for event in client.events if isinstance(event, LinkAttached)]
    client.do(
        AttachLink(
            link=asked.link,
            name=asked.name,
            role=asked.role,
            source=Source(address="x" * 300, dynamic=True),
            target=asked.target,
        )
    )
    (close,) = client.read()
    assert isinstance(close, c.HandleClose)
    assert close.reply_code == 541


def test_a_peer_service_is_never_temporary() -> None:
    client = Client().open().channel().handle(1, "", service=3, temporary=True)
    (close,) = client.read()
    assert isinstance(close, c.HandleClose)
    assert close.reply_code == 503


# --- streams --------------------------------------------------------------------------------------


def streamed(*bodies: bytes, client: Client | None = None) -> Client:
    """A client that has sent the beginning of a stream to the peer service "camera"."""
    if client is None:
        client = Client().open().channel().handle(1, "camera", service=3)
    for index, body in enumerate(bodies):
        octets = message(b"", mime_type="video/mpeg") + body if not index else body
        client.send((c.HandleSend(1, 0, len(octets), partial=True, streaming=True), octets))
    client.say_yes()
    return client


def parts(client: Client) -> list[tuple[bytes, bool]]:
    """Payload and ``more`` of all parts that the core was given."""
    found = []
    for event in client.events:
        if isinstance(event, DeliveriesReceived):
            found += [(each.payload, each.more) for each in event.deliveries]
            assert all(each.protocol is Protocol.AMQP_1_0 for each in event.deliveries)
        elif isinstance(event, DeliveryContinued):
            found.append((event.payload, event.more))
    return found


def whole(client: Client) -> AnnotatedMessage:
    return decode_message(b"".join(payload for payload, _ in parts(client)))


def test_a_stream_is_one_delivery_part_by_part() -> None:
    """§3.5.3.1."""
    client = streamed(b"one", b"two")
    client.say_yes()
    client.send((c.HandleSend(1, 5, 5, partial=True, streaming=True), b"three"))
    assert client.read() == [c.HandleReply(1, 5, 200)]
    assert [more for _, more in parts(client)] == [True, True]
    client.send(c.HandleClose(1, 200))
    assert [more for _, more in parts(client)] == [True, True, False]
    told = whole(client)
    assert b"".join(told.data) == b"onetwothree"
    assert told.properties is not None
    assert told.properties.content_type == "video/mpeg"
    assert told.properties.reply_to == "made/1"


def test_a_stream_waits_for_its_window() -> None:
    client = streamed(b"one")
    (asked,) = client.say_yes()
    client.do(HoldWindow(asked.link, True))
    client.send((c.HandleSend(1, 0, 3, partial=True, streaming=True), b"two"))
    assert len(parts(client)) == 1
    client.do(HoldWindow(asked.link, False))
    assert len(parts(client)) == 2


def test_a_stream_waits_for_credit_and_its_close_with_it() -> None:
    client = streamed(
        b"one", client=Client(credit=0).open().channel().handle(1, "camera", service=3)
    )
    (asked,) = client.say_yes()
    client.send(c.HandleClose(1, 200))
    assert parts(client) == []
    client.do(GrantCredit(asked.link, 1))
    assert b"".join(whole(client).data) == b"one"
    assert [more for _, more in parts(client)] == [True, False]


@pytest.mark.parametrize("how", ["channel", "connection"])
def test_an_orderly_end_of_anything_ends_a_stream(how: str) -> None:
    client = streamed(b"one")
    client.say_yes()
    client.send(c.ChannelClose(1, 200) if how == "channel" else c.ConnectionClose(200))
    assert [more for _, more in parts(client)] == [True, False]


def test_a_fault_aborts_a_stream() -> None:
    client = streamed(b"one")
    client.say_yes()
    octets = message(b"x")
    client.send((c.HandleSend(1, 0, len(octets)), octets))
    (close,) = client.read()
    assert isinstance(close, c.ChannelClose)
    assert close.reply_code == 503
    assert any(isinstance(event, DeliveryAborted) for event in client.events)


@pytest.mark.parametrize(
    ("command", "octets", "service", "code"),
    [
        (c.HandleSend(1, 0, 0, partial=True, streaming=True), message(b""), 1, 503),
        (c.HandleSend(1, 0, 0, partial=False, streaming=True), message(b""), 3, 502),
        (
            c.HandleSend(1, 0, 0, partial=True, streaming=True, recovery=True),
            message(b""),
            3,
            502,
        ),
        (c.HandleSend(1, 0, 0, partial=True, streaming=True), message(b"sized"), 3, 542),
        (c.HandleSend(1, 0, 0, partial=True, streaming=True), b"\0\0\0\0", 3, 502),
    ],
)
def test_streams_are_for_peers_and_have_no_size(
    command: c.HandleSend, octets: bytes, service: int, code: int
) -> None:
    client = Client().open().channel().handle(1, "camera", service=service)
    client.say_yes()
    client.read()
    size = c.HandleSend(
        1,
        0,
        len(octets),
        partial=command.partial,
        recovery=command.recovery,
        streaming=True,
    )
    client.send((size, octets))
    (close,) = client.read()
    assert isinstance(close, c.HandleClose)
    assert close.reply_code == code


def test_a_client_name_is_active_on_one_connection() -> None:
    """§3.2.6; RFC 011: 320, client already active."""
    first = Client(client_name="one").open()
    other = Client(client_name="one", area=first.engine.area)
    other.feed(START)
    other.send(c.ConnectionResponse("NONE"))
    other.send(c.ConnectionTune(4096, 1, 1, 0), c.ConnectionOpen(1, "/", "one"))
    close = other.read()[-1]
    assert isinstance(close, c.ConnectionClose)
    assert close.reply_code == 320
    first.send(c.ConnectionClose(200))
    Client(client_name="one", area=first.engine.area).open()


def test_the_name_of_a_client_that_has_left_is_free_though_not_all_is_read_that_it_sent() -> None:
    first = Client(client_name="one").open().channel().handle(1, "orders")
    first.post(b"before")
    first.say_yes()
    first.engine.peer_left()
    other = Client(client_name="one", area=first.engine.area).open().channel().handle(1, "orders")
    other.post(b"later")
    names = [[each.name for each in end.say_yes()] for end in (first, other)]
    assert not set(names[0]) & set(names[1])
    first.post(b"behind")
    (events,) = [[each for each in first.events if isinstance(each, DeliveriesReceived)]]
    assert [d.payload[-6:] for run in events for d in run.deliveries] == [b"before", b"behind"]
