"""The anonymous terminus, TTLs, hops, and what nobody can take."""

import attrs
import pytest

from router.core.policy import Policy, PolicyRule
from router.core.relay import REMEMBERED_ADDRESSES
from router.core.settings import CoreSettings
from router.model.condition import NOT_FOUND, UNAUTHORIZED_ACCESS
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_UNDELIVERABLE,
    RELEASED,
    DeliveryState,
    Rejected,
)
from router.routes.route import Endpoint, Guarantee, Route, Unroutable
from tests.support.fleet import Fleet
from tests.support.play import AMQP, Play, SenderEnd

EXACT = Route(address="orders", guarantee=Guarantee.EXACTLY_ONCE)


def error_at_detach(sender: SenderEnd) -> tuple[str, object]:
    """The error that a link ended with, and the tag that it names."""
    assert sender.detached is not None
    assert sender.detached.closed
    error = sender.detached.condition
    assert error is not None
    assert error.info is not None
    return error.name, error.info["delivery-tag"]


def error_of(outcome: tuple[DeliveryState | None, bool] | None) -> str:
    assert outcome is not None
    assert isinstance(outcome[0], Rejected)
    assert outcome[0].error is not None
    return outcome[0].error.name


# Anonymous


def test_each_delivery_goes_where_its_address_says() -> None:
    play = Play("orders.*")
    client = play.connect("r")
    eu, us = (client.attach_receiver(f"orders.{name}", credit=9) for name in ("eu", "us"))
    relay = play.connect("s").attach_sender(None)
    deliveries = [
        relay.delivery(body, address=f"orders.{name}")
        for body, name in (("1", "eu"), ("2", "us"), ("3", "us"), ("4", "eu"))
    ]
    relay.peer.happens(relay.run(deliveries))
    assert eu.payloads == [b"1", b"4"]
    assert us.payloads == [b"2", b"3"]
    us.accept()
    assert relay.outcome(deliveries[1].number) == (ACCEPTED, True)


def test_anonymous_link_always_has_credit() -> None:
    play = Play("orders")
    relay = play.connect("s").attach_sender(None)
    assert relay.credit == 250
    for _ in range(100):
        relay.send(*"abcdefgh", address="nowhere")
        assert relay.credit > 0


@pytest.mark.parametrize("address", ["nowhere", None])
def test_delivery_without_a_route_is_rejected(address: str | None) -> None:
    play = Play("orders")
    relay = play.connect("s").attach_sender(None)
    (number,) = relay.send("x", address=address)
    assert error_of(relay.outcome(number)) == NOT_FOUND


def test_delivery_without_a_route_ends_the_link_if_its_source_knows_no_rejected() -> None:
    play = Play("orders")
    relay = play.connect("s").attach_sender(
        None, outcomes=("amqp:accepted:list", "amqp:released:list")
    )
    (number,) = relay.send("x", address="nowhere", tag=b"this")
    assert relay.outcome(number) is None
    assert error_at_detach(relay) == (NOT_FOUND, b"this")
    assert play.core._registry.process.used == 0


@pytest.mark.parametrize("address", ["nowhere", None])
def test_settled_delivery_without_a_route_is_counted_and_ends_the_link(
    address: str | None,
) -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=9)
    relay = play.connect("s").attach_sender(None)
    told = relay.delivery("told", address=address)
    settled = {"address": address, "settled": True}
    deliveries = [
        relay.delivery("before", address="orders", settled=True),
        told,
        relay.delivery("x", b"this", **settled),
        relay.delivery("y", b"that", **settled),
        relay.delivery("behind", address="orders", settled=True),
    ]
    relay.peer.happens(relay.run(deliveries))
    assert receiver.payloads == [b"before"]
    receiver.accept()
    assert error_of(relay.outcome(told.number)) == NOT_FOUND
    assert error_at_detach(relay) == (NOT_FOUND, b"this")
    dropped = [n for n in play.noticed if n.event == "delivery.dropped"]
    assert [notice.fields["address"] for notice in dropped] == [address] * 2
    totals = play.core._registry.retired.routes.values()
    assert sum(each.received.dropped for each in totals) == 2
    assert play.core._registry.process.used == 0


def test_a_settled_delivery_that_is_denied_ends_the_link_with_the_denial() -> None:
    rule = PolicyRule(name="s", send=("orders",))
    play = Play("orders", "secret", policy=Policy([rule]))
    relay = play.connect("s").attach_sender(None)
    relay.send("x", address="secret", tag=b"this", settled=True)
    assert error_at_detach(relay) == (UNAUTHORIZED_ACCESS, b"this")


def test_a_settled_delivery_in_parts_ends_the_link_at_its_first() -> None:
    play = Play("orders")
    relay = play.connect("s").attach_sender(None)
    relay.send("one ", address="nowhere", tag=b"this", settled=True, more=True)
    assert error_at_detach(relay) == (NOT_FOUND, b"this")
    assert play.core._registry.process.used == 0


def test_the_next_link_of_the_same_name_begins_anew() -> None:
    play = Play("orders")
    peer = play.connect("s")
    relay = peer.attach_sender(None, name="relay", seconds=300, unsettled={})
    relay.send("x", address="nowhere", settled=True)
    assert relay.detached is not None
    relay = peer.attach_sender(None, name="relay", seconds=300, unsettled={})
    (number,) = relay.send("x", address="nowhere")
    assert error_of(relay.outcome(number)) == NOT_FOUND


@pytest.mark.parametrize("policy", [Unroutable.RELEASE, Unroutable.HOLD, Unroutable.DEAD_LETTER])
def test_the_word_of_a_route_decides_over_settled_deliveries_to_nobody(policy: Unroutable) -> None:
    play = Play(
        Route(
            address="orders",
            unroutable=policy,
            dead_letter=Endpoint("east") if policy is Unroutable.DEAD_LETTER else None,
        )
    )
    east = play.dial("east")
    relay = play.connect("s").attach_sender(None)
    relay.send("x", address="orders", settled=True)
    if policy is Unroutable.DEAD_LETTER:
        assert east.answer_receiver(credit=1).payloads == [b"x"]
    else:  # nobody could have it back: it waits in custody
        assert play.connect("r").attach_receiver(credit=1).payloads == [b"x"]
    assert not relay.is_detached()
    assert "delivery.dropped" not in play.events()


def test_where_a_route_rejects_what_nobody_receives_a_settled_delivery_ends_the_link() -> None:
    play = Play(Route(address="orders", unroutable=Unroutable.REJECT))
    client = play.connect("s")
    relay, named = client.attach_sender(None), client.attach_sender("orders")
    (number,) = relay.send("x", address="orders")
    assert error_of(relay.outcome(number)) == NOT_FOUND
    assert not relay.is_detached()
    for sender in (named, relay):
        sender.send("x", address="orders", tag=b"this", settled=True)
    assert not named.is_detached()  # its attach has told it all
    assert error_at_detach(relay) == (NOT_FOUND, b"this")


@pytest.mark.parametrize("routes", [("orders",), (EXACT,)])
def test_the_tag_is_told_from_whichever_worker_finds_no_route(
    routes: tuple[str | Route, ...],
) -> None:
    fleet = Fleet(2, *routes)
    relay = fleet[2].connect("s").attach_sender(None)
    fleet.settle()
    to = b"\x00\x53\x73\xc0\x0c\x03\x40\x40\xa1\x07nowhere\x00\x53\x75\xa0\x01a"
    relay.send(to, address="nowhere", tag=b"this", settled=True)
    fleet.settle()
    assert error_at_detach(relay) == (NOT_FOUND, b"this")


def test_anonymous_delivery_to_nobody_is_released() -> None:
    play = Play("orders")
    relay = play.connect("s").attach_sender(None)
    (number,) = relay.send("x", address="orders")
    assert relay.outcome(number) == (RELEASED, True)


def test_made_up_addresses_do_not_fill_memory() -> None:
    play = Play("orders.#")
    relay = play.connect("s").attach_sender(None)
    for number in range(3 * REMEMBERED_ADDRESSES):
        relay.send("x", address=f"orders.{number}")
    assert len(play.core._registry.nodes) <= REMEMBERED_ADDRESSES + 1
    relay.detach()
    assert not play.core._registry.nodes


def test_address_towards_a_container_is_attached_for_an_anonymous_delivery() -> None:
    play = Play(Route(address="orders.#", to=(Endpoint("east"),)))
    east = play.dial("east")
    relay = play.connect("s").attach_sender(None)
    (number,) = relay.send("x", address="orders.eu")
    assert relay.outcome(number) is None
    target = east.answer_receiver("orders.eu", credit=1)
    assert target.payloads == [b"x"]
    target.accept()
    assert relay.outcome(number) == (ACCEPTED, True)


def test_large_delivery_through_the_anonymous_terminus() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=9)
    relay = play.connect("s").attach_sender(None)
    relay.send("one ", address="orders", more=True)
    relay.go_on(b"two", more=False)
    assert receiver.payloads == [b"one two"]


def test_large_delivery_to_nowhere_is_rejected_at_its_end() -> None:
    play = Play("orders")
    relay = play.connect("s").attach_sender(None)
    (number,) = relay.send("one ", address="nowhere", more=True)
    assert relay.outcome(number) is None
    relay.go_on(b"two", more=False)
    assert error_of(relay.outcome(number)) == NOT_FOUND
    assert play.core._registry.process.used == 0


# Time to live


def test_ttl_is_counted_down_while_a_delivery_waits() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=1)
    sender = play.connect("s").attach_sender()
    sender.send("at once", ttl_milliseconds=5000)
    assert receiver.last.ttl_milliseconds is None
    sender.send("later", ttl_milliseconds=5000)
    play.wait(2)
    receiver.grant(1)
    assert receiver.last.ttl_milliseconds == 3000


def test_expired_delivery_is_modified_undeliverable_and_not_sent() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=1)
    sender = play.connect("s").attach_sender()
    sender.send("sent")
    (long, short) = (sender.send("x", ttl_milliseconds=ttl)[0] for ttl in (5000, 1000))
    play.wait(1.5)
    assert sender.outcome(short) == (MODIFIED_UNDELIVERABLE, True)
    assert sender.outcome(long) is None
    play.wait(4)
    assert sender.outcome(long) == (MODIFIED_UNDELIVERABLE, True)
    receiver.grant(5)
    assert receiver.payloads == [b"sent"]
    assert play.core.deadline is None


def test_expiry_is_found_even_if_credit_comes_first() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=1)
    sender = play.connect("s").attach_sender()
    sender.send("sent")
    (number,) = sender.send("x", ttl_milliseconds=1000)
    play.now += 3
    receiver.grant(5)
    assert receiver.payloads == [b"sent"]
    assert sender.outcome(number) == (MODIFIED_UNDELIVERABLE, True)


def test_route_may_shorten_life() -> None:
    play = Play(Route(address="orders", ttl_seconds=2))
    receiver = play.connect("r").attach_receiver("orders", credit=1)
    sender = play.connect("s").attach_sender()
    sender.send("x", ttl_milliseconds=60_000)
    assert receiver.last.ttl_milliseconds == 2000
    (number,) = sender.send("y")
    play.wait(3)
    assert sender.outcome(number) == (MODIFIED_UNDELIVERABLE, True)


# Hops


def test_delivery_that_was_here_before_is_given_back() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=5)
    sender = play.connect("s").attach_sender()
    (number,) = sender.send("x", hops=("dc2", "dc1"))
    assert sender.outcome(number) == (RELEASED, True)
    assert not receiver.received
    assert play.core._registry.process.used == 0
    (notice,) = (n for n in play.noticed if n.event == "delivery.looped")
    assert notice.fields["condition"] == "it passed dc2 > dc1"


def test_settled_delivery_that_was_here_before_goes_to_those_who_receive_here() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=5)
    play.connect("s").attach_sender().send("x", hops=("dc2", "dc1"), settled=True)
    assert receiver.payloads == [b"x"]


def test_delivery_that_passed_too_many_routers_is_given_back() -> None:
    play = Play("orders", settings=CoreSettings(router_id="dc1", hop_limit=3))
    receiver = play.connect("r").attach_receiver(credit=5)
    sender = play.connect("s").attach_sender()
    (near, far) = (sender.send("x", hops=("r",) * n)[0] for n in (2, 3))
    assert sender.outcome(near) is None
    assert sender.outcome(far) == (RELEASED, True)
    assert len(receiver.received) == 1


def test_trace_is_carried_to_routers_only() -> None:
    play = Play("orders", "bills")
    router = play.connect("dc2", capabilities=attrs.evolve(AMQP, is_router=True))
    there = router.attach_receiver("orders", credit=5)
    here = play.connect("r").attach_receiver("bills", credit=5)
    client = play.connect("s")
    client.attach_sender("orders").send("x", hops=("dc0",))
    client.attach_sender("bills").send("x", hops=("dc0",))
    assert there.last.hops == ("dc0", "dc1")
    assert here.last.hops is None


# What nobody can take


def test_unroutable_rejected_where_the_route_says_so() -> None:
    play = Play(Route(address="orders", unroutable=Unroutable.REJECT))
    relay = play.connect("s").attach_sender(None)
    (number,) = relay.send("x", address="orders")
    assert error_of(relay.outcome(number)) == NOT_FOUND


def test_unroutable_held_until_somebody_comes() -> None:
    play = Play(Route(address="orders", unroutable=Unroutable.HOLD))
    relay = play.connect("s").attach_sender(None)
    (number,) = relay.send("x", address="orders")
    play.wait(3600)
    assert relay.outcome(number) is None
    receiver = play.connect("r").attach_receiver(credit=1)
    assert receiver.payloads == [b"x"]


def test_unroutable_goes_to_the_dead_letters() -> None:
    route = Route(
        address="orders.*",
        unroutable=Unroutable.DEAD_LETTER,
        dead_letter=Endpoint("east", "dead.*"),
    )
    play = Play(route)
    east = play.dial("east")
    relay = play.connect("s").attach_sender(None)
    (number,) = relay.send("x", address="orders.eu")
    letters = east.answer_receiver("dead.eu", credit=5)
    assert letters.payloads == [b"x"]
    letters.accept()
    assert relay.outcome(number) == (ACCEPTED, True)
    relay.detach()
    play.wait(60)
    assert letters.detached is not None
    assert not play.core._registry.nodes


def test_container_that_stays_away_is_given_up() -> None:
    play = Play(Route(address="orders", to=(Endpoint("east"),)))
    east = play.dial("east")
    sender = play.connect("s").attach_sender()
    target = east.answer_receiver(credit=5)
    (sent,) = sender.send("sent")
    target.grant(0)
    (waits,) = sender.send("waits")
    east.lose()
    play.wait(59)
    assert sender.outcome(sent) is None
    assert sender.outcome(waits) is None
    play.wait(2)
    assert sender.outcome(waits) == (RELEASED, True)
    outcome = sender.outcome(sent)
    assert outcome is not None
    assert outcome[0] != ACCEPTED


def test_container_that_comes_back_gets_what_waited_in_order() -> None:
    play = Play(Route(address="orders", to=(Endpoint("east"),)))
    east = play.dial("east")
    sender = play.connect("s").attach_sender()
    target = east.answer_receiver(credit=2)
    sender.send(*"123")
    east.lose()
    for attempt in (1, 2, 3):
        play.wait(5)
        east = play.dial("east")
        target = east.answer_receiver(credit=10)
        assert target.payloads == [b"1", b"2", b"3"]
        assert target.received[0].delivery_count == attempt
        east.lose()
