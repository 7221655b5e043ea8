"""What a client sends: handles, names, confirmations, credit, faults, transactions (§3.5.2-3)."""

import pytest

from router.model.capabilities import Protocol
from router.model.commands import (
    AttachLink,
    DetachLink,
    GrantCredit,
    HoldWindow,
    RefuseLink,
    UpdateDeliveries,
)
from router.model.condition import (
    MESSAGE_SIZE_EXCEEDED,
    NOT_FOUND,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
    Condition,
)
from router.model.events import (
    ConnectionClosed,
    CreditReturned,
    DeliveriesReceived,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import LinkId, LinkName
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    REJECTED,
    RELEASED,
    DeliveryState,
    Rejected,
)
from router.model.terminus import Role, Target
from router.wire import hub
from router.wire.fast import commands as c
from router.wire.fast.types import Seconds, TableDecimal
from router.wire.inlets import INLETS_KEPT
from tests.support.fast_peer import Client, message


def opened(dest_name: str = "orders", **options: object) -> Client:
    client = Client().open().channel().handle(1, dest_name, **options)  # type: ignore[arg-type]
    client.read()
    return client


def received(client: Client) -> list[bytes]:
    """Bodies that the core was given."""
    runs = [event for event in client.events if isinstance(event, DeliveriesReceived)]
    return [
        b"".join(hub.to_sections(each.protocol, each.payload).data)
        for run in runs
        for each in run.deliveries
    ]


def targets(client: Client) -> list[str | None]:
    """Addresses of the links that the core was asked for."""
    return [
        event.target.address
        for event in client.events
        if isinstance(event, LinkAttached) and isinstance(event.target, Target)
    ]


# --- channels and handles -------------------------------------------------------------------------


def test_commands_are_confirmed_by_their_tags() -> None:
    """§3.2.11, §3.3.8: CHANNEL REPLY and HANDLE REPLY, if the tag is not zero."""
    client = Client().open()
    client.send(c.ChannelOpen(1, 7), c.HandleOpen(1, 3, 1, 8, producer=True))
    assert client.read() == [c.ChannelReply(1, 7, 200), c.HandleReply(3, 8, 200)]
    client.send(c.ChannelOpen(2), c.HandleOpen(2, 4, 1))
    assert client.read() == []


def test_a_channel_that_is_open_cannot_be_opened() -> None:
    """§3.3.9: "On an open channel, reply with CHANNEL CLOSE"."""
    client = Client().open().channel()
    client.send(c.ChannelOpen(1, 1))
    (close,) = client.read()
    assert isinstance(close, c.ChannelClose)
    assert close.reply_code == 503


def test_a_handle_that_is_open_cannot_be_opened() -> None:
    """§3.5.17: "On an open destination, reply with HANDLE CLOSE"."""
    client = opened()
    client.handle(1, "other")
    (close,) = client.read()
    assert isinstance(close, c.HandleClose)
    assert (close.handle_id, close.reply_code) == (1, 503)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (c.ChannelOpen(0), 504),
        (c.ChannelAck(5, 0, 1), 504),
        (c.ChannelClose(5, 200), 504),
        (c.HandleOpen(5, 1, 1), 504),
        (c.HandleFlow(5, 0, True), 505),
        (c.HandleCancel(5, 0, "x"), 505),
        (c.HandleClose(5, 200), 505),
    ],
)
def test_what_is_not_open_ends_the_connection(command: c.Command, code: int) -> None:
    """§3.3.10, §3.5.17."""
    client = opened()
    client.send(command)
    (close,) = client.read()
    assert isinstance(close, c.ConnectionClose)
    assert close.reply_code == code


def test_limits_of_tune_are_kept() -> None:
    client = Client().open()
    for number in range(1, 11):
        client.channel(number)
    for number in range(100):
        client.handle(number, "x")
    assert client.read() == []
    client.handle(100, "x")
    (close,) = client.read()
    assert isinstance(close, c.HandleClose)
    assert close.reply_code == 506
    client.channel(11)
    (last,) = client.read()
    assert isinstance(last, c.ConnectionClose)
    assert last.reply_code == 504


@pytest.mark.parametrize("service", [0, 4, 65535])
def test_other_service_types_are_refused(service: int) -> None:
    """§3.5.2.1."""
    client = opened()
    client.send(c.HandleOpen(1, 2, service))
    (close,) = client.read()
    assert isinstance(close, c.HandleClose)
    assert close.reply_code == 401


def test_out_of_band_transfers_are_not_implemented() -> None:
    client = opened()
    client.send(c.ChannelOpen(2, out_of_band="/dev/shm/x"))
    (close,) = client.read()
    assert isinstance(close, c.ChannelClose)
    assert close.reply_code == 540
    client.send(c.HandleSend(1, 0, 1000, out_of_band=True))
    (refused,) = client.read()
    assert isinstance(refused, c.HandleClose)
    assert refused.reply_code == 540


def test_only_producers_send() -> None:
    client = opened(producer=False)
    client.post(b"x")
    (close,) = client.read()
    assert isinstance(close, c.HandleClose)
    assert close.reply_code == 403


# --- names ----------------------------------------------------------------------------------------


def test_a_name_goes_on_where_the_handles_ends() -> None:
    """§3.5.2.3: open "alt.rec.", send "pets", "pets.cats.discuss"."""
    client = opened("alt.rec.")
    client.post(b"1", dest_name="pets")
    client.post(b"2", dest_name="pets.cats.discuss")
    client.post(b"3", dest_name="pets")
    assert targets(client) == ["alt.rec.pets", "alt.rec.pets.cats.discuss"]
    client.say_yes()
    assert received(client) == [b"1", b"2", b"3"]


def test_a_name_that_no_route_takes_closes_the_handle() -> None:
    """§3.5.2.3: "an error that would provoke a HANDLE CLOSE command from the server"."""
    client = opened("alt.rec.pets")
    client.post(b"1", dest_name="alt")
    client.post(b"2", dest_name="alt")
    (asked,) = [event for event in client.events if isinstance(event, LinkAttached)]
    client.do(RefuseLink(asked.link, Condition(NOT_FOUND, "no route")))
    (close,) = client.read()
    assert isinstance(close, c.HandleClose)
    assert (close.reply_code, close.reply_text) == (404, f"{NOT_FOUND}: no route")
    client.post(b"3")  # under way before the client heard
    assert client.read() == []
    client.send(c.HandleClose(1, 200))
    client.handle(1, "orders").post(b"4")
    client.say_yes()
    assert received(client) == [b"4"]


def test_no_name_at_all_is_no_destination_here() -> None:
    """§3.5.2.3 has it mean all destinations in the hierarchy; a router does not know them."""
    client = opened("")
    client.post(b"x")
    (close,) = client.read()
    assert isinstance(close, c.HandleClose)
    assert close.reply_code == 404


def test_who_may_not_send_is_told_so() -> None:
    client = opened()
    client.post(b"x", tag=5)
    (asked,) = [event for event in client.events if isinstance(event, LinkAttached)]
    client.do(RefuseLink(asked.link, Condition(UNAUTHORIZED_ACCESS, "rule 3")))
    (close,) = client.read()
    assert isinstance(close, c.HandleClose)
    assert close.reply_code == 403


def test_links_longest_idle_make_room_for_others() -> None:
    client = opened("")
    for number in range(INLETS_KEPT + 5):
        client.post(b"x", dest_name=f"q{number}")
        client.say_yes()
    assert len(client.engine.inlets) == INLETS_KEPT
    assert len([event for event in client.events if isinstance(event, LinkDetached)]) == 5


# --- messages -------------------------------------------------------------------------------------


def test_a_message_keeps_its_octets() -> None:
    client = opened()
    client.post(
        b"body",
        persistent=True,
        priority=7,
        expiration=1234,
        mime_type="text/plain",
        encoding="binary",
        identifier="id-1",
        headers={"a": b"x", "b": 1, "c": Seconds(2), "d": TableDecimal(1, 5)},
    )
    client.say_yes()
    (run,) = [event for event in client.events if isinstance(event, DeliveriesReceived)]
    (delivery,) = run.deliveries
    assert delivery.protocol is Protocol.AMQP_FAST
    assert delivery.settled
    told = hub.to_sections(Protocol.AMQP_FAST, delivery.payload)
    assert told.header is not None
    assert told.header.durable
    assert told.header.priority == 7
    assert told.properties is not None
    assert told.properties.absolute_expiry_time == 1_234_000
    assert told.properties.content_type == "text/plain"
    assert told.properties.message_id == "id-1"


def test_what_the_handle_says_of_all_messages_fills_what_they_leave_out() -> None:
    """§3.4.4: "If empty, defaults to the mime-type value specified in the open command"."""
    client = opened(mime_type="text/xml", encoding="gzip")
    client.post(b"1")
    client.post(b"2", mime_type="text/plain")
    client.say_yes()
    (run,) = [event for event in client.events if isinstance(event, DeliveriesReceived)]
    told = [hub.to_sections(each.protocol, each.payload).properties for each in run.deliveries]
    assert [(each.content_type, each.content_encoding) for each in told if each is not None] == [
        ("text/xml", "gzip"),
        ("text/plain", "gzip"),
    ]


def test_ttl_is_read_from_its_header() -> None:
    client = opened()
    client.post(b"1", headers={"x-amqp-ttl": 5000})
    client.say_yes()
    (run,) = [event for event in client.events if isinstance(event, DeliveriesReceived)]
    assert run.deliveries[0].ttl_milliseconds == 5000


@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_message_comes_in_fragments(size: int) -> None:
    """§3.4.2-4: header and body are one block, cut anywhere; the name comes with the last."""
    client = opened("alt.")
    octets = message(bytes(range(200)), identifier="whole")
    for start in range(0, len(octets), size):
        chunk = octets[start : start + size]
        partial = start + size < len(octets)
        name = "ignored" if partial else "pets"
        client.send((c.HandleSend(1, 0, len(chunk), partial=partial, dest_name=name), chunk))
    assert targets(client) == ["alt.pets"]
    client.say_yes()
    assert received(client) == [bytes(range(200))]


def test_fragments_of_two_messages_are_not_mixed_on_a_channel() -> None:
    """§3.4.2."""
    client = opened().handle(2, "other")
    octets = message(b"body")
    client.send((c.HandleSend(1, 0, len(octets), partial=True), octets))
    client.send((c.HandleSend(2, 0, len(octets)), octets))
    (close,) = client.read()
    assert isinstance(close, c.ChannelClose)
    assert close.reply_code == 503


def test_messages_of_two_channels_may_be_mixed() -> None:
    """§3.4.2: "At the connection level, fragments from different messages can be interleaved"."""
    client = opened("a").channel(2).handle(2, "b", channel=2)
    one, two = message(b"one"), message(b"two")
    client.send((c.HandleSend(1, 0, 9, partial=True), one[:9]))
    client.send((c.HandleSend(2, 0, 9, partial=True), two[:9]))
    client.send((c.HandleSend(1, 0, len(one) - 9), one[9:]))
    client.send((c.HandleSend(2, 0, len(two) - 9), two[9:]))
    client.say_yes()
    assert received(client) == [b"one", b"two"]


@pytest.mark.parametrize(
    ("octets", "code"),
    [
        (b"", 502),
        (b"\0" * 9, 502),
        (message(b"body")[:-1], 542),
        (message(b"body") + b"x", 542),
        (message(b"").replace(b"\0\0", b"\1\xff", 1), 542),
        (message(b"", mime_type="xy").replace(b"xy", b"\xff\xfe"), 502),
        (message(b"", headers={"a": 1}).replace(b"I", b"Q"), 502),
    ],
)
def test_a_broken_message_closes_the_handle(octets: bytes, code: int) -> None:
    client = opened()
    client.send((c.HandleSend(1, 0, len(octets)), octets))
    (close,) = client.read()
    assert isinstance(close, c.HandleClose)
    assert close.reply_code == code
    assert received(client) == []


def test_a_message_too_large_is_refused_as_soon_as_its_size_is_known() -> None:
    client = opened()
    octets = (1 << 30).to_bytes(4, "big") + bytes(20)
    client.send((c.HandleSend(1, 0, len(octets), partial=True), octets))
    (close,) = client.read()
    assert isinstance(close, c.HandleClose)
    assert close.reply_code == 311
    assert client.engine.budget.octets == 0


@pytest.mark.parametrize("tag", [0, 7])
def test_a_message_that_came_before_the_link_was_attached_is_measured_by_what_it_takes(
    tag: int,
) -> None:
    client = opened()
    client.post(b"x" * 100, tag=tag)
    (asked,) = [event for event in client.events if isinstance(event, LinkAttached)]
    client.do(
        AttachLink(
            link=asked.link,
            name=asked.name,
            role=asked.role,
            source=asked.source,
            target=asked.target,
            max_message_octets=50,
        ),
        GrantCredit(asked.link, 10),
    )
    closes = [each for each in client.read() if isinstance(each, c.HandleClose)]
    assert [each.reply_code for each in closes] == [311]
    assert received(client) == []


# --- outcomes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (ACCEPTED, 200),
        (RELEASED, 507),
        (MODIFIED_FAILED, 507),
        (REJECTED, 542),
        (Rejected(Condition(NOT_FOUND, "gone")), 404),
        (Rejected(Condition(UNAUTHORIZED_ACCESS)), 403),
        (Rejected(Condition(MESSAGE_SIZE_EXCEEDED)), 311),
        (Rejected(Condition(RESOURCE_LIMIT_EXCEEDED)), 506),
        (Rejected(Condition("com.example:odd")), 541),
        (None, 507),
    ],
)
def test_an_outcome_is_the_reply_to_its_confirm_tag(state: DeliveryState | None, code: int) -> None:
    client = opened()
    client.post(b"x", tag=77)
    (asked,) = client.say_yes()
    (run,) = [event for event in client.events if isinstance(event, DeliveriesReceived)]
    assert not run.deliveries[0].settled
    client.do(UpdateDeliveries(asked.link, [run.deliveries[0].number], state, True))
    (reply,) = client.read()
    assert isinstance(reply, c.HandleReply)
    assert (reply.handle_id, reply.confirm_tag, reply.reply_code) == (1, 77, code)


def test_replies_come_as_outcomes_do() -> None:
    client = opened()
    for tag in (5, 6, 7):
        client.post(b"x", tag=tag)
    (asked,) = client.say_yes()
    client.do(UpdateDeliveries(asked.link, [3, 1], ACCEPTED, True))  # type: ignore[list-item]
    assert client.read() == [c.HandleReply(1, 7, 200), c.HandleReply(1, 5, 200)]


# --- credit ---------------------------------------------------------------------------------------


def test_without_credit_messages_wait_in_order_over_all_addresses() -> None:
    client = Client(credit=0).open().channel().handle(1)
    for number in range(6):
        client.post(b"%d" % number, dest_name=("a", "b")[number % 2])
    one, two = client.say_yes()
    assert received(client) == []
    client.do(GrantCredit(two.link, 10))
    assert received(client) == []  # "a" was first
    client.do(GrantCredit(one.link, 2))
    assert received(client) == [b"0", b"1", b"2", b"3"]
    client.do(GrantCredit(one.link, 2))
    assert received(client) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_drain_gives_back_what_is_left() -> None:
    client = opened()
    client.post(b"x")
    (asked,) = client.say_yes()
    client.do(GrantCredit(asked.link, 5, drain=True))
    assert CreditReturned(asked.link, 0) in client.events
    client.post(b"y")
    assert received(client) == [b"x"]


def test_a_held_window_stops_what_credit_would_let_go() -> None:
    client = opened()
    client.post(b"x")
    (asked,) = client.say_yes()
    client.do(HoldWindow(asked.link, True))
    client.post(b"y")
    assert received(client) == [b"x"]
    client.do(HoldWindow(asked.link, False))
    assert received(client) == [b"x", b"y"]


# --- closing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "close", [c.HandleClose(1, 200), c.ChannelClose(1, 200), c.ConnectionClose(200)]
)
def test_a_close_waits_for_what_was_sent_before(close: c.Command) -> None:
    client = Client(credit=0).open().channel().handle(1, "orders")
    client.post(b"x")
    client.send(close)
    (asked,) = client.say_yes()
    assert client.read() == []
    client.do(GrantCredit(asked.link, 10))
    assert received(client) == [b"x"]
    assert client.read() == [close]


def test_a_close_does_not_wait_for_ever() -> None:
    client = Client(credit=0).open().channel().handle(1, "orders")
    client.post(b"x")
    client.send(c.HandleClose(1, 200))
    client.say_yes()
    client.wait(10.0)
    assert client.read() == [c.HandleClose(1, 200)]
    client.handle(2, "orders").post(b"y", handle=2)
    client.send(c.ChannelClose(1, 200))
    client.wait(10.0)
    assert client.read()[-1] == c.ChannelClose(1, 200)
    client.channel().handle(3, "orders").post(b"z", handle=3)
    client.say_yes()
    client.send(c.ConnectionClose(200))
    client.wait(10.0)
    assert client.engine.finished
    assert received(client) == [b"x", b"y", b"z"]


def test_what_is_to_be_confirmed_is_void_when_a_close_has_waited_long_enough() -> None:
    client = Client(credit=0).open().channel().handle(1, "orders")
    client.post(b"x", tag=7)
    client.send(c.ChannelClose(1, 200))
    client.say_yes()
    client.wait(10.0)
    assert client.read()[-1] == c.ChannelClose(1, 200)
    assert received(client) == []


def test_a_lost_connection_hands_over_what_was_not_to_be_confirmed() -> None:
    client = Client(credit=0).open().channel().handle(1, "orders")
    client.post(b"x")
    client.post(b"y", tag=7)
    client.say_yes()
    client.events += client.engine.receive_eof(client.now)
    assert received(client) == [b"x"]


def test_a_channel_that_was_closed_can_be_opened_again() -> None:
    client = opened()
    client.post(b"x")
    client.say_yes()
    client.send(c.ChannelClose(1, 200))
    assert client.read() == [c.ChannelClose(1, 200)]
    assert [type(event) for event in client.take_events()][-1] is LinkDetached
    client.channel().handle(1, "orders")
    client.post(b"y")
    client.say_yes()
    assert received(client) == [b"y"]


def test_the_end_of_a_link_closes_the_handles_that_sent_by_it() -> None:
    client = opened().handle(2, "orders").handle(3, "other")
    client.post(b"x")
    client.post(b"y", handle=2)
    (asked,) = client.say_yes()
    client.do(DetachLink(asked.link, True, Condition(NOT_FOUND, "the route is gone")))
    closes = [each for each in client.read() if isinstance(each, c.HandleClose)]
    assert [(each.handle_id, each.reply_code) for each in closes] == [(1, 404), (2, 404)]
    gone = Condition(NOT_FOUND, "the route is gone")
    assert LinkDetached(asked.link, True, gone) in client.events


def test_links_that_the_core_asks_for_are_declined() -> None:
    client = opened()
    link = AttachLink(
        link=LinkId(99), name=LinkName("x"), role=Role.SENDER, source=None, target=Target()
    )
    answer, detached = client.do(link)
    assert isinstance(answer, LinkAttached)
    assert answer.is_answer
    assert answer.target is None
    assert isinstance(detached, LinkDetached)


# --- transactions ---------------------------------------------------------------------------------


def transacted() -> Client:
    client = Client().open().channel(1, transacted=True).handle(1, "orders")
    client.read()
    return client


def test_nothing_is_handed_on_before_commit() -> None:
    """§3.3.4: "When the transaction is committed, any HANDLE SENDs are committed"."""
    client = transacted()
    client.post(b"1")
    client.post(b"2")
    (asked,) = client.say_yes()
    assert received(client) == []
    client.send(c.ChannelCommit(1, 9))
    assert received(client) == [b"1", b"2"]
    assert client.read() == []
    client.do(UpdateDeliveries(asked.link, [1, 2], ACCEPTED, True))  # type: ignore[list-item]
    assert client.read() == [c.ChannelReply(1, 9, 200)]


def test_a_commit_whose_link_is_taken_away_ends_its_channel_with_the_reason() -> None:
    client = transacted()
    client.post(b"1")
    (asked,) = client.say_yes()
    client.send(c.ChannelCommit(1, 9))
    client.do(DetachLink(asked.link, True, Condition(NOT_FOUND, "the route is gone")))
    (close,) = client.read()
    assert isinstance(close, c.ChannelClose)
    assert close.reply_code == 404


def test_what_was_rolled_back_never_was() -> None:
    """§3.3.5."""
    client = transacted()
    client.post(b"1")
    client.say_yes()
    client.send(c.ChannelRollback(1, 8))
    assert client.read() == [c.ChannelReply(1, 8, 200)]
    client.post(b"2")
    client.send(c.ChannelCommit(1, 9))
    assert received(client) == [b"2"]


def test_a_commit_of_nothing_is_confirmed_at_once() -> None:
    client = transacted()
    client.send(c.ChannelCommit(1, 9))
    assert client.read() == [c.ChannelReply(1, 9, 200)]


def test_commits_are_confirmed_in_order() -> None:
    client = transacted()
    client.post(b"1")
    client.send(c.ChannelCommit(1, 8))
    client.post(b"2")
    client.send(c.ChannelCommit(1, 9))
    (asked,) = client.say_yes()
    assert received(client) == [b"1", b"2"]
    client.do(UpdateDeliveries(asked.link, [2], ACCEPTED, True))  # type: ignore[list-item]
    assert client.read() == []
    client.do(UpdateDeliveries(asked.link, [1], ACCEPTED, True))  # type: ignore[list-item]
    assert client.read() == [c.ChannelReply(1, 8, 200), c.ChannelReply(1, 9, 200)]


def test_a_transaction_that_is_not_taken_whole_closes_the_channel() -> None:
    """§3.3.8: "If there is an error processing one of these commands the server closes"."""
    client = transacted()
    client.post(b"1")
    client.post(b"2")
    client.send(c.ChannelCommit(1, 9))
    (asked,) = client.say_yes()
    client.do(UpdateDeliveries(asked.link, [1], RELEASED, True))  # type: ignore[list-item]
    client.do(UpdateDeliveries(asked.link, [2], ACCEPTED, True))  # type: ignore[list-item]
    (close,) = client.read()
    assert isinstance(close, c.ChannelClose)
    assert close.reply_code == 507
    assert "1 messages" in close.reply_text


def test_a_transaction_towards_nowhere_closes_the_channel() -> None:
    client = transacted()
    client.post(b"1")
    client.send(c.ChannelCommit(1, 9))
    (asked,) = [event for event in client.events if isinstance(event, LinkAttached)]
    client.do(RefuseLink(asked.link, Condition(NOT_FOUND, "no route")))
    (close,) = client.read()
    assert isinstance(close, c.ChannelClose)
    assert close.reply_code == 404


@pytest.mark.parametrize("command", [c.ChannelCommit(1), c.ChannelRollback(1)])
def test_channels_without_transactions_have_neither_commit_nor_rollback(
    command: c.Command,
) -> None:
    """§3.3.4-5: "This command is valid only on transacted channels"."""
    client = opened()
    client.send(command)
    (close,) = client.read()
    assert isinstance(close, c.ChannelClose)
    assert close.reply_code == 503


def test_a_lost_connection_is_told_once_and_leaves_nothing() -> None:
    client = opened()
    client.post(b"x")
    client.say_yes()
    client.events = client.engine.receive_eof(1.0)
    assert [type(event) for event in client.events] == [ConnectionClosed]
    assert not client.engine.inlets
    assert client.engine.budget.octets == 0
