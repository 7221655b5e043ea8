"""Attaching: what the router promises in its answers."""

import attrs

from router.model.condition import (
    DETACH_FORCED,
    INVALID_FIELD,
    NOT_IMPLEMENTED,
    RESOURCE_DELETED,
)
from router.model.terminus import (
    ALL_OUTCOMES,
    Coordinator,
    Durability,
    ExpiryPolicy,
    Source,
    Target,
)
from router.routes.route import Distribution, Endpoint, Route
from tests.support.play import AMQP, Play, ReceiverEnd, SenderEnd


def source_of(end: ReceiverEnd) -> Source:
    assert end.attach is not None
    assert end.attach.source is not None
    return end.attach.source


def target_of(end: SenderEnd) -> Target:
    assert end.attach is not None
    assert isinstance(end.attach.target, Target)
    return end.attach.target


def test_filters_and_durability_that_are_not_kept_are_not_echoed() -> None:
    play = Play("orders")
    asked = Source(
        address="orders",
        durability=Durability.UNSETTLED_STATE,
        filters={"selector": "a = 1"},
        distribution_mode="copy",
        capabilities=("queue",),
    )
    source = source_of(play.connect().attach_receiver(source=asked))
    assert source.filters is None
    assert source.durability is Durability.NONE
    assert source.distribution_mode == "move"
    assert source.capabilities == ()
    assert source.outcomes == ALL_OUTCOMES


def test_multicast_source_says_that_it_copies() -> None:
    play = Play(Route(address="prices", distribution=Distribution.MULTICAST))
    assert source_of(play.connect().attach_receiver("prices")).distribution_mode == "copy"


def test_expiry_is_kept_as_asked_for_up_to_the_limit() -> None:
    play = Play("orders")
    client = play.connect()
    target = target_of(client.attach_sender(policy=ExpiryPolicy.LINK_DETACH, seconds=60))
    assert (target.expiry_policy, target.expiry_seconds) == (ExpiryPolicy.LINK_DETACH, 60)
    target = target_of(client.attach_sender(policy=ExpiryPolicy.LINK_DETACH, seconds=10**9))
    assert target.expiry_seconds == 3600
    source = source_of(client.attach_receiver(policy=ExpiryPolicy.NEVER))
    assert source.expiry_policy is not ExpiryPolicy.NEVER
    assert source.expiry_seconds == 3600


def test_transactions_are_refused() -> None:
    refused = Play("orders").connect().attach_sender(target=Coordinator()).refused
    assert refused is not None
    assert refused.name == NOT_IMPLEMENTED


def test_receiver_without_an_address_is_refused() -> None:
    refused = Play("orders").connect().attach_receiver(None).refused
    assert refused is not None
    assert refused.name == INVALID_FIELD


def test_dynamic_source_makes_an_address_that_lives_with_its_link() -> None:
    play = Play("orders")
    client, server = play.connect("client"), play.connect("server")
    inbox = client.attach_receiver(None, dynamic=True, credit=5)
    source = source_of(inbox)
    assert source.dynamic
    assert source.address == "dc1/temp/token1"
    sender = server.attach_sender(source.address)
    sender.send("reply")
    assert inbox.payloads == [b"reply"]
    inbox.detach()
    assert sender.detached is not None
    assert sender.detached.condition is not None
    assert sender.detached.condition.name == RESOURCE_DELETED
    assert server.attach_sender(source.address).refused is not None


def test_dynamic_target_makes_an_address_that_lives_with_its_link() -> None:
    play = Play("orders")
    client, other = play.connect("client"), play.connect("other")
    sender = client.attach_sender(None, dynamic=True)
    address = target_of(sender).address
    receiver = other.attach_receiver(address, credit=1)
    sender.send("x")
    assert receiver.payloads == [b"x"]
    client.lose()
    assert receiver.detached is not None


def test_dynamic_reply_address_is_reached_through_the_anonymous_terminus() -> None:
    play = Play("orders")
    inbox = play.connect("client").attach_receiver(None, dynamic=True, credit=5)
    relay = play.connect("server").attach_sender(None)
    relay.send("reply", address=source_of(inbox).address)
    assert inbox.payloads == [b"reply"]


def test_mode_second_is_not_promised_where_the_far_side_cannot() -> None:
    play = Play(Route(address="orders", to=(Endpoint("east"),)))
    play.dial("east", capabilities=attrs.evolve(AMQP, settles_second=False))
    client = play.connect()
    client.attach_sender()
    sender = client.attach_sender(second=True)
    assert sender.attach is not None
    assert sender.attach.receiver_settle_mode == 0
    first = Play(Route(address="orders", to=(Endpoint("east"),)))
    first.dial("east", capabilities=attrs.evolve(AMQP, settles_second=False))
    sender = first.connect().attach_sender(second=True)
    assert sender.attach is not None
    assert sender.attach.receiver_settle_mode == 0


def test_draining_router_takes_no_new_links() -> None:
    play = Play("orders")
    client = play.connect()
    play.carry_out(play.core.drain(play.now))
    refused = client.attach_sender().refused
    assert refused is not None
    assert refused.name == DETACH_FORCED


def test_refusal_is_noted_with_its_reason() -> None:
    play = Play("orders")
    play.connect("app").attach_sender("bills")
    (notice,) = (n for n in play.noticed if n.event == "link.refused")
    assert notice.fields["container"] == "app"
    assert "bills" in str(notice.fields["condition"])
