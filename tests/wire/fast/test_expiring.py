"""The time to live of messages that wait with their sender counts, and what is left goes on."""

from typing import Any

import pytest

from router.model.commands import AttachLink, GrantCredit, UpdateDeliveries
from router.model.delivery import ReceivedDelivery
from router.model.events import DeliveriesReceived, LinkAttached
from router.model.identity import LinkId
from router.model.outcome import ACCEPTED
from router.model.terminus import Role, Source, Target
from router.wire.fast import commands as c
from router.wire.fast.message import decode_head, layout_of
from router.wire.fast.types import decode_short
from tests.support.fast_peer import Client

NOT_TAKEN = 507


def sender(**channel: Any) -> tuple[Client, LinkId]:
    """A client whose link has no credit."""
    client = Client(credit=0).open().channel(**channel).handle(1, "orders")
    client.post(b"asks", tag=1)
    (asked,) = client.say_yes()
    if not channel:
        client.do(GrantCredit(asked.link, 1))
        client.do(GrantCredit(asked.link, 0))
    client.read()
    client.take_events()
    return client, asked.link


def given(client: Client) -> list[ReceivedDelivery]:
    """What the core was given."""
    return [
        each
        for event in client.take_events()
        if isinstance(event, DeliveriesReceived)
        for each in event.deliveries
    ]


def replies(client: Client) -> list[tuple[int, int]]:
    """Confirm-tags and codes of replies."""
    return [
        (each.confirm_tag, each.reply_code)
        for each in client.read()
        if isinstance(each, c.HandleReply)
    ]


def test_what_waits_for_longer_is_dropped_and_its_sender_hears_that_nobody_took_it() -> None:
    client, link = sender()
    client.post(b"short", tag=7, headers={"x-amqp-ttl": 1000})
    client.post(b"lasting", tag=8)
    client.wait(0.9)
    assert replies(client) == []
    client.wait(0.2)
    assert replies(client) == [(7, NOT_TAKEN)]
    client.do(GrantCredit(link, 10))
    assert [each.payload[-7:] for each in given(client)] == [b"lasting"]


def test_what_goes_on_in_time_has_the_rest_of_it() -> None:
    client, link = sender()
    client.post(b"short", tag=7, headers={"x-amqp-ttl": 1000, "other": 1})
    client.wait(0.4)
    client.do(GrantCredit(link, 10))
    (delivery,) = given(client)
    assert delivery.ttl_milliseconds == 600
    at = layout_of(delivery.payload)
    head = decode_head(delivery.payload, at.head_start, at.body_start, decode_short)[0]
    assert head.headers == {"x-amqp-ttl": 600, "other": 1}


def test_what_may_not_wait_at_all_reaches_who_is_ready() -> None:
    client, link = sender()
    client.post(b"now", tag=7, headers={"x-amqp-ttl": 0})
    client.do(GrantCredit(link, 10))
    assert [each.ttl_milliseconds for each in given(client)] == [0]


@pytest.mark.parametrize("ends", [True, False])
def test_it_counts_from_the_commit(ends: bool) -> None:
    client, link = sender(transacted=True)
    client.post(b"short", headers={"x-amqp-ttl": 1000})
    client.wait(5)
    client.send(c.ChannelCommit(1, 4))
    client.do(GrantCredit(link, 1))
    client.do(GrantCredit(link, 0))
    client.wait(1.1 if ends else 0.1)
    found = given(client)
    client.do(GrantCredit(link, 5))
    found += given(client)
    assert [each.ttl_milliseconds for each in found] == ([None] if ends else [None, 900])
    numbers = [each.number for each in found]
    client.do(UpdateDeliveries(link, numbers, ACCEPTED, True))
    assert any(isinstance(each, c.ChannelClose) for each in client.read()) is ends


def test_nothing_ends_before_the_core_has_said_whether_a_route_takes_it() -> None:
    client = Client().open().channel().handle(1, "orders")
    client.post(b"short", tag=7, headers={"x-amqp-ttl": 1000})
    (asked,) = [each for each in client.take_events() if isinstance(each, LinkAttached)]
    client.wait(5)
    assert replies(client) == []
    answer = AttachLink(
        link=asked.link,
        name=asked.name,
        role=Role.RECEIVER,
        source=Source(),
        target=Target(address="orders"),
    )
    client.do(answer)
    assert replies(client) == [(7, NOT_TAKEN)]


@pytest.mark.parametrize("headers", [{}, {"x-amqp-ttl": 60_000}])
@pytest.mark.parametrize("tag", [7, 0])
def test_no_message_waits_for_longer_than_its_route_says(tag: int, headers: dict[str, Any]) -> None:
    client = Client().open().channel().handle(1, "orders")
    client.post(b"first", tag=tag, headers=headers)
    (asked,) = [each for each in client.take_events() if isinstance(each, LinkAttached)]
    answer = AttachLink(
        link=asked.link,
        name=asked.name,
        role=Role.RECEIVER,
        source=Source(),
        target=Target(address="orders"),
        ttl_seconds=1,
    )
    client.do(answer)
    client.wait(0.6)
    client.post(b"second", tag=tag, headers=headers)
    client.wait(0.5)
    assert replies(client) == ([(7, NOT_TAKEN)] if tag else [])
    client.do(GrantCredit(asked.link, 10))
    (delivery,) = given(client)
    assert delivery.payload.endswith(b"second")
    assert delivery.ttl_milliseconds == pytest.approx(500, abs=10)
