"""What is pulled from an exchange by a pattern, and what a target has no binding for."""

from collections.abc import Mapping

import attrs
import pytest

from router.core.settings import ContainerTerms
from router.model.commands import DetachLink
from router.model.condition import NOT_FOUND, Condition
from router.model.outcome import ACCEPTED, RELEASED, Rejected
from router.model.terminus import ADDRESSES, SUBSCRIPTION, Target
from router.routes.route import Distribution, Endpoint, Route, Unroutable
from router.routes.table import RoutingTable
from tests.support.play import AMQP, Peer, Play, ReceiverEnd, SenderEnd

BROKER = attrs.evolve(AMQP, declares=True, subscribes=True, releases_unroutable=False)
TERMS: Mapping[str, ContainerTerms] = dict.fromkeys(
    ("east", "west"), ContainerTerms(takes_addresses=True)
)
NO_BINDING = Rejected(Condition(NOT_FOUND, "312 NO_ROUTE"))
DIRECT = Route(address="prices/#", from_=Endpoint("east", "prices/#"))
BRIDGE = attrs.evolve(DIRECT, to=(Endpoint("west", "quotes/#"),))


def bridge(route: Route = BRIDGE) -> tuple[Play, Peer, SenderEnd, ReceiverEnd]:
    """A play with both ends of a bridge attached."""
    play = Play(route, terms=TERMS, random=lambda: 1.0)
    east = play.dial("east", capabilities=BROKER)
    west = play.dial("west", capabilities=BROKER)
    return play, east, east.answer_sender(), west.answer_receiver(credit=100)


def configure(play: Play, *routes: Route) -> None:
    play.carry_out(play.core.configure(RoutingTable(routes), play.now))


def test_a_bridge_brings_each_message_to_its_own_address_on_one_link() -> None:
    _, _, source, target = bridge()
    assert source.attach is not None
    assert source.attach.properties[SUBSCRIPTION] == "dc1.prices/#"
    assert isinstance(source.attach.target, Target)
    assert source.attach.target.address is None
    assert target.attach is not None
    assert target.attach.properties[ADDRESSES] == "quotes/#"
    source.send("a", address="prices/eu.ber")
    source.send("b", address="prices/us")
    source.send("c", address="prices/")
    assert [each.address for each in target.received] == ["quotes/eu.ber", "quotes/us", "quotes/"]
    target.accept()
    assert not source.unsettled


def test_without_a_target_each_message_goes_to_those_who_receive_from_its_address() -> None:
    play = Play(DIRECT, terms=TERMS)
    east = play.dial("east", capabilities=BROKER)
    source = east.answer_sender("prices/#")
    one = play.connect().attach_receiver("prices/eu", credit=10)
    other = play.connect().attach_receiver("prices/us", credit=10)
    assert source.credit > 0
    source.send("a", address="prices/eu")
    source.send("b", address="prices/us")
    assert (one.payloads, other.payloads) == ([b"a"], [b"b"])


def test_what_nobody_receives_waits_apart_and_goes_to_the_first_who_comes() -> None:
    play = Play(DIRECT, terms=TERMS)
    source = play.dial("east", capabilities=BROKER).answer_sender("prices/#")
    (number,) = source.send("a", address="prices/eu")
    assert source.outcome(number) is None
    late = play.connect().attach_receiver("prices/eu", credit=10)
    assert late.payloads == [b"a"]
    late.accept()
    assert source.outcome(number) == (ACCEPTED, True)


def test_what_a_target_has_no_binding_for_is_tried_again_ever_later_and_blocks_nothing() -> None:
    play, _, source, target = bridge()
    (number,) = source.send("a", address="prices/nowhere")
    for pause in (1, 2, 4, 8, 16, 30, 30):
        target.update(target.last.number, state=NO_BINDING)
        sent = len(target.received)
        source.send("b", address="prices/eu")
        target.accept()
        play.wait(pause - 0.01)
        assert len(target.received) == sent + 1
        play.wait(0.02)
        assert target.payloads[-1] == b"a"
    assert source.outcome(number) is None
    target.accept()
    assert source.outcome(number) == (ACCEPTED, True)
    assert play.events().count("delivery.unroutable") == 1


def test_an_address_keeps_its_order_while_its_messages_are_tried_again() -> None:
    play, _, source, target = bridge()
    source.send("1", "2", address="prices/nowhere")
    target.update(*tuple(target.unsettled), state=NO_BINDING)
    source.send("3", "4", address="prices/nowhere")
    assert len(target.received) == 2
    play.wait(1.01)
    assert target.payloads[2:] == [b"1"], "one is tried first"
    target.accept()
    play.wait(0.21)
    assert target.payloads[2:] == [b"1", b"2", b"3", b"4"]
    target.accept()
    play.wait(1)
    assert not source.unsettled


def test_messages_that_wait_apart_leave_their_link_its_credit() -> None:
    _, _, source, target = bridge()
    for _ in range(5):
        assert source.credit >= 50
        source.send(*["x"] * 50, address="prices/nowhere")
        if target.unsettled:
            target.update(*tuple(target.unsettled), state=NO_BINDING)
    target.grant(100)
    source.send("b", address="prices/eu")
    assert target.payloads[-1] == b"b"


def test_a_connection_that_is_lost_takes_what_was_put_off_with_it() -> None:
    play, east, source, target = bridge()
    source.send("a", address="prices/nowhere")
    target.update(target.last.number, state=NO_BINDING)
    east.lose()
    assert play.core._registry.process.used == 0, "it is freed at once"
    play.wait(60)
    assert target.payloads == [b"a"], "the broker delivers it again itself"


@pytest.mark.parametrize("ends", ["nothing", "its connection", "its route"])
def test_what_the_source_has_settled_is_tried_again_though_the_source_is_gone(ends: str) -> None:
    play, east, source, target = bridge()
    source.send("a", address="prices/nowhere", settled=True)
    target.update(target.last.number, state=NO_BINDING)
    assert target.payloads == [b"a"]
    if ends == "its connection":
        east.lose()
    elif ends == "its route":
        configure(play, attrs.evolve(BRIDGE, from_=Endpoint("east", "other/#")))
    play.wait(1.01)
    assert target.payloads == [b"a", b"a"]
    target.accept()
    play.wait(60)
    assert target.payloads == [b"a", b"a"]
    assert play.core._registry.process.used == 0


@pytest.mark.parametrize("is_last", [True, False])
def test_nothing_looks_after_an_offer_whose_source_and_target_are_gone(is_last: bool) -> None:
    play, east, source, target = bridge()
    source.send("a", *([] if is_last else ["b"]), address="prices/nowhere", settled=True)
    target.update(*tuple(target.unsettled), state=NO_BINDING)
    play.wait(1.01)
    assert target.payloads[-1] == b"a", "it is offered again, and has no outcome yet"
    east.lose()
    target.peer.lose()
    configure(play)
    play.wait(100_000)
    assert play.core.deadline is None


def test_what_the_source_has_settled_waits_for_its_route_to_come_back() -> None:
    play, _, source, target = bridge()
    source.send("a", address="prices/nowhere", settled=True)
    target.update(target.last.number, state=NO_BINDING)
    configure(play)
    play.wait(60)
    configure(play, BRIDGE)
    again = play.peers[target.peer.id].answer_receiver(credit=10)
    assert (target.payloads, again.payloads) == ([b"a"], [b"a"])


@pytest.mark.parametrize(
    ("policy", "outcome"),
    [(Unroutable.DROP, ACCEPTED), (Unroutable.REJECT, NO_BINDING)],
)
def test_the_route_says_what_becomes_of_what_a_target_has_no_binding_for(
    policy: Unroutable, outcome: object
) -> None:
    play, _, source, target = bridge(attrs.evolve(BRIDGE, unroutable=policy))
    (number,) = source.send("a", address="prices/nowhere")
    target.update(target.last.number, state=NO_BINDING)
    assert source.outcome(number) == (outcome, True)
    assert play.events().count("delivery.unroutable") == 1


def test_dead_letters_get_what_a_target_has_no_binding_for() -> None:
    route = attrs.evolve(
        BRIDGE, unroutable=Unroutable.DEAD_LETTER, dead_letter=Endpoint("west", "dead")
    )
    play = Play(route, terms=TERMS)
    east = play.dial("east", capabilities=BROKER)
    west = play.dial("west", capabilities=BROKER)
    source, target = east.answer_sender(), west.answer_receiver(credit=10)
    source.send("a", address="prices/nowhere")
    target.update(target.last.number, state=NO_BINDING)
    assert west.answer_receiver("dead", credit=10).payloads == [b"a"]


def test_a_target_that_releases_is_tried_again_and_what_it_has_no_binding_for_may_be_dropped() -> (
    None
):
    route = Route(address="q", from_=Endpoint("east", "q"), to=(Endpoint("west", "q"),))
    play = Play(route)
    source = play.dial("east").answer_sender("q")
    target = play.dial("west").answer_receiver("q", credit=10)
    (number,) = source.send("a")
    target.update(target.last.number, state=RELEASED)
    assert source.outcome(number) is None
    play.wait(1.01)
    assert target.payloads == [b"a", b"a"]


def test_one_target_of_a_multicast_that_has_no_binding_gets_it_again_alone() -> None:
    route = attrs.evolve(
        BRIDGE,
        to=(Endpoint("west", "quotes/#"), Endpoint("east", "copies/#")),
        distribution=Distribution.MULTICAST,
    )
    play = Play(route, terms=TERMS, random=lambda: 1.0)
    east = play.dial("east", capabilities=BROKER)
    west = play.dial("west", capabilities=BROKER)
    source = east.answer_sender()
    good, bad = west.answer_receiver(credit=10), east.answer_receiver(credit=10)
    (number,) = source.send("a", address="prices/eu")
    good.accept()
    bad.update(bad.last.number, state=NO_BINDING)
    assert source.outcome(number) is None
    play.wait(1.01)
    assert (good.payloads, bad.payloads) == ([b"a"], [b"a", b"a"])
    bad.accept()
    assert source.outcome(number) == (ACCEPTED, True)


def test_a_client_is_told_that_a_target_has_no_binding_unless_the_route_drops() -> None:
    for policy, outcome in ((Unroutable.RELEASE, NO_BINDING), (Unroutable.DROP, ACCEPTED)):
        play = Play(Route(address="prices/#", to=(Endpoint("west"),), unroutable=policy))
        west = play.dial("west", capabilities=BROKER)
        client = play.connect().attach_sender("prices/eu")
        target = west.answer_receiver(credit=10)
        (number,) = client.send("a")
        target.update(target.last.number, state=NO_BINDING)
        assert client.outcome(number) == (outcome, True)


def test_drop_accepts_and_counts_what_nobody_receives() -> None:
    play = Play(Route(address="news", unroutable=Unroutable.DROP))
    client = play.connect().attach_sender("news")
    (number,) = client.send("a")
    assert client.outcome(number) == (ACCEPTED, True)
    assert "delivery.unroutable" in play.events()


def test_the_binding_ends_with_the_route_and_not_when_something_else_of_it_changes() -> None:
    play, _, source, _ = bridge()
    configure(play, attrs.evolve(BRIDGE, stall_seconds=5.0))
    assert source.is_live()
    configure(play)
    assert isinstance(source.detached, DetachLink)
    assert source.detached.unsubscribes
    other, _, again, _ = bridge()
    configure(other, attrs.evolve(BRIDGE, from_=Endpoint("east", "prices/eu.#")))
    assert again.detached is not None
    assert again.detached.unsubscribes


def test_a_queue_that_stays_bound_because_its_container_is_away_is_warned_of() -> None:
    play, east, _, _ = bridge()
    east.lose()
    configure(play)
    (notice,) = (each for each in play.noticed if each.event == "queue.left")
    assert notice.is_warning
    assert notice.fields == {"container": "east", "queue": "dc1.prices/#", "address": "prices/#"}


def test_no_queue_is_left_at_a_container_that_keeps_none() -> None:
    route = Route(address="eu", from_=Endpoint("east", "prices/eu"))
    play = Play(route, terms=TERMS)
    east = play.dial("east", capabilities=attrs.evolve(BROKER, subscribes=False))
    source = east.answer_sender()
    assert source.attach is not None
    assert SUBSCRIPTION not in source.attach.properties
    east.lose()
    configure(play)
    assert "queue.left" not in play.events()


@pytest.mark.parametrize("policy", [Unroutable.DROP, Unroutable.RELEASE])
@pytest.mark.parametrize("scattered", [False, True])
def test_a_target_that_is_away_has_refused_nothing_so_nothing_is_dropped(
    policy: Unroutable, *, scattered: bool
) -> None:
    terms = TERMS if not scattered else {}
    play = Play(attrs.evolve(BRIDGE, unroutable=policy), terms=terms)
    source = play.dial("east", capabilities=BROKER).answer_sender()
    (number,) = source.send("a", address="prices/eu")
    play.wait(300)
    assert source.outcome(number) == (None if scattered else (RELEASED, True))
    assert scattered or source.credit <= 0
