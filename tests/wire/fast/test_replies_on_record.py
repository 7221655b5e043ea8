"""On exactly-once routes acknowledgments are confirmed when they are on record (§3.3.6, §3.3.8)."""

from router.model.commands import DetachLink, ReportRecorded, SendDeliveries
from router.model.condition import RESOURCE_DELETED, Condition
from router.model.events import DeliveriesUpdated, Event, LinkDetached, RecordAwaited
from router.model.identity import LinkId
from router.model.outcome import ACCEPTED, MODIFIED_FAILED
from router.wire.fast import commands as c
from tests.support.fast_peer import Client, outgoing
from tests.wire.fast.test_consuming import updates

GONE = Condition(RESOURCE_DELETED, "the route is gone")


class ExactClient(Client):
    is_exact = True


def consuming(*names: str, **options: object) -> tuple[Client, list[LinkId]]:
    """A client that consumes from names by handle 1, 2 …, and has a message or two of each."""
    client = ExactClient().open().channel(1, **options)
    links = []
    for number, name in enumerate(names, 1):
        client.handle(number, name)
        client.send(c.HandleConsume(number, 0, 10))
        (asked,) = client.say_yes()
        links.append(asked.link)
    for at, link in enumerate(links):
        client.do(SendDeliveries(link, [outgoing(10 * at + each) for each in (1, 2)]))
    client.read()
    client.take_events()
    return client, links


def asked(events: list[Event]) -> list[LinkId]:
    return [event.link for event in events if isinstance(event, RecordAwaited)]


def test_an_ack_is_confirmed_when_it_is_on_record() -> None:
    client, (link,) = consuming("orders")
    events = client.send(c.ChannelAck(1, 6, 2))
    assert updates(events) == [(1, ACCEPTED), (2, ACCEPTED)]
    assert asked(events) == [link]
    assert isinstance(events[-1], RecordAwaited)
    assert client.read() == []
    client.do(ReportRecorded(link))
    assert client.read() == [c.ChannelReply(1, 6, 200)]


def test_one_that_is_not_to_be_confirmed_asks_for_nothing() -> None:
    client, _ = consuming("orders")
    assert asked(client.send(c.ChannelAck(1, 0, 2))) == []


def test_on_other_routes_it_is_confirmed_at_once() -> None:
    client = Client().open().channel(1).handle(1, "orders")
    client.send(c.HandleConsume(1, 0, 10))
    (made,) = client.say_yes()
    client.do(SendDeliveries(made.link, [outgoing(1)]))
    client.read()
    assert asked(client.send(c.ChannelAck(1, 6, 1))) == []
    assert client.read() == [c.ChannelReply(1, 6, 200)]


def test_replies_keep_their_order_and_one_question_is_under_way() -> None:
    client, (one, other) = consuming("orders", "bills")
    assert asked(client.send(c.ChannelAck(1, 6, 1))) == [one]
    assert asked(client.send(c.ChannelAck(1, 7, 2))) == []
    assert asked(client.send(c.ChannelAck(1, 8, 4))) == [other]
    client.do(ReportRecorded(other))
    assert client.read() == []
    assert asked(client.do(ReportRecorded(one))) == [one]
    assert client.read() == [c.ChannelReply(1, 6, 200)]
    client.do(ReportRecorded(one))
    assert client.read() == [c.ChannelReply(1, 7, 200), c.ChannelReply(1, 8, 200)]


def test_a_returned_message_is_confirmed_when_that_is_on_record() -> None:
    client, (link,) = consuming("orders")
    events = client.send(c.HandleUnget(1, 5, 1))
    assert (updates(events), asked(events)) == ([(1, MODIFIED_FAILED)], [link])
    assert client.read() == []
    client.do(ReportRecorded(link))
    assert client.read() == [c.HandleReply(1, 5, 200)]


def test_a_commit_is_confirmed_when_what_it_acknowledges_is_on_record() -> None:
    client, (link,) = consuming("orders", transacted=True)
    client.send(c.ChannelAck(1, 0, 2))
    assert asked(client.send(c.ChannelCommit(1, 4))) == [link]
    assert client.read() == []
    client.do(ReportRecorded(link))
    assert client.read() == [c.ChannelReply(1, 4, 200)]


def test_the_link_of_a_closed_handle_stays_until_the_reply() -> None:
    client, (link,) = consuming("orders")
    client.send(c.ChannelAck(1, 6, 2))
    events = client.send(c.HandleClose(1, 200))
    assert not [each for each in events if isinstance(each, LinkDetached)]
    client.read()
    late = client.do(SendDeliveries(link, [outgoing(3)]))
    assert [each.numbers for each in late if isinstance(each, DeliveriesUpdated)] == [[3]]
    events = client.do(ReportRecorded(link))
    assert LinkDetached(link, closed=True) in events
    assert client.read() == [c.ChannelReply(1, 6, 200)]


def test_the_link_of_a_closed_handle_stays_until_its_transaction_is_over() -> None:
    client, (link,) = consuming("orders", transacted=True)
    client.send(c.ChannelAck(1, 0, 1))
    events = client.send(c.HandleClose(1, 200))
    assert updates(events) == [(2, MODIFIED_FAILED)]
    assert not [each for each in events if isinstance(each, LinkDetached)]
    events = client.send(c.ChannelCommit(1, 4))
    assert (updates(events), asked(events)) == ([(1, ACCEPTED)], [link])
    client.read()
    assert LinkDetached(link, closed=True) in client.do(ReportRecorded(link))
    assert client.read() == [c.ChannelReply(1, 4, 200)]


def test_a_channel_that_ends_returns_what_a_closed_handle_left_in_its_transaction() -> None:
    client, (link,) = consuming("orders", transacted=True)
    client.send(c.ChannelAck(1, 0, 1), c.HandleClose(1, 200))
    events = client.send(c.ChannelClose(1, 200))
    assert updates(events) == [(1, MODIFIED_FAILED)]
    assert LinkDetached(link, closed=True) in events


def test_the_close_of_a_channel_follows_the_reply() -> None:
    client, (link,) = consuming("orders")
    client.send(c.ChannelAck(1, 6, 2), c.ChannelClose(1, 200))
    assert client.read() == []
    client.do(ReportRecorded(link))
    assert client.read() == [c.ChannelReply(1, 6, 200), c.ChannelClose(1, 200)]


def test_a_link_that_ends_before_closes_the_channel() -> None:
    client, (link,) = consuming("orders")
    client.send(c.ChannelAck(1, 6, 2))
    client.do(DetachLink(link, True, GONE))
    said = client.read()
    assert not [each for each in said if isinstance(each, c.ChannelReply)]
    assert [each.reply_code for each in said if isinstance(each, c.ChannelClose)] == [404]


def test_a_commit_whose_link_has_ended_closes_the_channel() -> None:
    client, (link,) = consuming("orders", transacted=True)
    client.send(c.ChannelAck(1, 0, 2))
    client.do(DetachLink(link, True, GONE))
    client.read()
    client.send(c.ChannelCommit(1, 4))
    (close,) = client.read()
    assert isinstance(close, c.ChannelClose)
    assert close.reply_code == 507
