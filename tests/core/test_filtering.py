"""Filters: those that a route names for its source, and those of clients' receivers."""

import attrs
import pytest

from router.core.settings import ContainerTerms
from router.model.condition import (
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT_EXCEEDED,
    Condition,
)
from router.model.events import CreditGranted, LinkDetached, SessionEnded
from router.model.identity import DeliveryNumber
from router.model.outcome import ACCEPTED
from router.model.terminus import Role, Source
from router.routes.route import Endpoint, Guarantee, LinkTerms, Route
from router.wire.v1_0.types import Described, Symbol, encode_value
from tests.support.play import AMQP, Peer, Play, ReceiverEnd, SenderEnd, table

SESSION = Symbol("com.microsoft:session-filter")
ASKED: dict[object, object] = {SESSION: Described(SESSION, "s1")}
TERMS = LinkTerms(
    filters=encode_value(ASKED),
    filter_names=(str(SESSION),),
    capabilities=("queue",),
    link_name="mine",
    properties=encode_value({Symbol("epoch"): 7}),
)
PULL = Route(address="orders.s1", from_=Endpoint("azure", "orders", TERMS))
TO = Route(address="orders", to=(Endpoint("azure"),))
OTHERS = attrs.evolve(AMQP, filters=False)


def receive(peer: Peer, filters: dict[object, object] | None, **more: object) -> ReceiverEnd:
    return peer.attach_receiver(source=Source(address="orders", filters=filters), **more)  # type: ignore[arg-type]


def reload(play: Play, *routes: Route) -> None:
    play.carry_out(play.core.configure(table(*routes), play.now))


def source_of(end: ReceiverEnd) -> Source:
    assert end.attach is not None
    assert end.attach.source is not None
    return end.attach.source


def test_the_attach_to_a_source_asks_for_all_that_its_route_says() -> None:
    play = Play(PULL)
    azure = play.dial("azure")
    (asked,) = azure.asked.values()
    assert asked.name == "mine"
    assert asked.source is not None
    assert asked.source.filters == ASKED
    assert asked.source.capabilities == ("queue",)
    assert dict(asked.properties) == {"epoch": 7}
    received = play.connect().attach_receiver("orders.s1", credit=5)
    azure.answer_sender("orders").send("a")
    assert received.payloads == [b"a"]


def test_the_attach_to_a_target_asks_for_capabilities_and_no_filters() -> None:
    play = Play(attrs.evolve(TO, to=(Endpoint("azure", "orders", TERMS),)))
    azure = play.dial("azure")
    play.connect().attach_sender("orders")
    (asked,) = azure.asked.values()
    assert asked.role is Role.SENDER
    assert asked.source is not None
    assert asked.source.filters is None
    assert getattr(asked.target, "capabilities", None) == ("queue",)
    assert dict(asked.properties) == {"epoch": 7}


def test_a_container_that_leaves_a_filter_of_the_route_out_is_not_read_unfiltered() -> None:
    play = Play(PULL)
    azure = play.dial("azure")
    received = play.connect().attach_receiver("orders.s1", credit=5)
    end = azure.answer_sender("orders", source=Source(address="orders"))
    assert end.is_detached()
    assert end.detached is not None
    assert end.detached.condition is not None
    assert end.detached.condition.name == NOT_IMPLEMENTED
    assert end.credit == 0
    play.wait(60)
    azure.answer_sender("orders").send("a")
    assert received.payloads == [b"a"]


def test_another_filter_for_the_same_name_attaches_the_link_anew() -> None:
    play = Play(PULL)
    azure = play.dial("azure")
    old = azure.answer_sender("orders")
    changed = attrs.evolve(TERMS, filters=encode_value({SESSION: Described(SESSION, "s2")}))
    reload(play, attrs.evolve(PULL, from_=Endpoint("azure", "orders", changed)))
    assert old.is_detached()
    (asked,) = azure.asked.values()
    assert asked.source is not None
    assert asked.source.filters == {SESSION: Described(SESSION, "s2")}


CHANGED = attrs.evolve(
    PULL,
    from_=Endpoint(
        "azure",
        "orders",
        attrs.evolve(TERMS, filters=encode_value({SESSION: Described(SESSION, "s2")})),
    ),
)


def reading() -> tuple[Play, Peer, SenderEnd, ReceiverEnd, DeliveryNumber]:
    """A receiver has a message of a container that it has not settled."""
    play = Play(PULL)
    azure = play.dial("azure")
    received = play.connect().attach_receiver("orders.s1", credit=5)
    source = azure.answer_sender("orders")
    (number,) = source.send("a")
    return play, azure, source, received, number


def test_a_link_whose_filter_changes_ends_when_receivers_have_settled_what_came_on_it() -> None:
    play, azure, old, received, number = reading()
    reload(play, CHANGED)
    assert not old.is_detached()
    assert not azure.asked, "its name is taken"
    assert old.credit == 0
    received.accept()
    assert old.outcome(number) == (ACCEPTED, True)
    play.wait(1.0)
    assert old.is_detached()
    azure.answer_sender("orders").send("b")
    assert received.payloads == [b"a", b"b"]


def test_what_nobody_settles_keeps_the_other_filter_waiting_for_some_seconds_only() -> None:
    play, azure, old, received, _ = reading()
    reload(play, CHANGED)
    play.wait(9.0)
    assert not old.is_detached()
    play.wait(2.0)
    assert old.is_detached()
    azure.answer_sender("orders").send("b")
    assert received.payloads == [b"a", b"b"]


def test_a_link_that_is_to_end_goes_on_if_its_filter_is_wanted_again() -> None:
    play, azure, old, received, _ = reading()
    reload(play, CHANGED)
    reload(play, PULL)
    received.accept()
    play.wait(20.0)
    assert not old.is_detached()
    assert not azure.asked
    assert old.credit > 0
    old.send("b")
    assert received.payloads == [b"a", b"b"]


def test_a_clients_filter_goes_to_the_container_and_its_answer_comes_back() -> None:
    play = Play(TO)
    azure = play.dial("azure")
    client = play.connect()
    plain = receive(client, None, credit=5)
    everything = azure.answer_sender("orders")
    filtered = receive(client, ASKED, credit=3)
    assert filtered.attach is None  # the container has not answered
    (asked,) = azure.asked.values()
    assert asked.source is not None
    assert asked.source.filters == ASKED
    own = azure.answer_sender("orders")
    assert source_of(filtered).filters == ASKED
    assert own.credit == 3  # which the client had granted while it waited
    own.send("mine")
    everything.send("anybody's")
    assert filtered.payloads == [b"mine"]
    assert plain.payloads == [b"anybody's"]


def test_what_the_container_does_not_echo_is_not_echoed() -> None:
    play = Play(TO)
    azure = play.dial("azure")
    other = Described(Symbol("b"), 1)
    filtered = receive(play.connect(), {**ASKED, Symbol("b"): other})
    azure.answer_sender("orders", source=Source(address="orders", filters={"b": other}))
    assert source_of(filtered).filters == {"b": other}
    none = receive(play.connect("another"), ASKED)
    azure.answer_sender("orders", source=Source(address="orders"))
    assert source_of(none).filters is None


def test_all_containers_of_a_route_apply_what_is_echoed() -> None:
    play = Play(attrs.evolve(TO, to=(Endpoint("azure"), Endpoint("west"))))
    azure, west = play.dial("azure"), play.dial("west")
    filtered = receive(play.connect(), ASKED, credit=4)
    azure.answer_sender("orders")
    assert filtered.attach is None
    west.answer_sender("orders", source=Source(address="orders"))
    assert source_of(filtered).filters is None


def test_two_clients_with_one_filter_do_not_share_a_link() -> None:
    play = Play(TO)
    azure = play.dial("azure")
    receive(play.connect("a"), ASKED, credit=1)
    receive(play.connect("b"), ASKED, credit=1)
    names = [asked.name for asked in azure.asked.values()]
    assert len(set(names)) == 2


def test_the_containers_refusal_is_the_clients() -> None:
    play = Play(TO)
    azure = play.dial("azure")
    filtered = receive(play.connect(), ASKED)
    azure.refuse(Condition("com.microsoft:session-cannot-be-locked", "taken"))
    assert filtered.refused == Condition("com.microsoft:session-cannot-be-locked", "taken")
    play.wait(120)
    assert not azure.asked


@pytest.mark.parametrize("leaves", ["detach", "session", "connection"])
def test_a_client_that_leaves_while_it_waits_is_forgotten(leaves: str) -> None:
    play = Play(TO)
    azure = play.dial("azure")
    client = play.connect()
    filtered = receive(client, ASKED, session=4)
    (asked,) = azure.asked.values()
    match leaves:
        case "detach":
            client.happens(LinkDetached(filtered.link, closed=True))
        case "session":
            client.happens(SessionEnded(4))
        case "connection":
            client.lose()
    play.wait(1)
    assert not azure.asked
    assert not play.core._registry.nodes
    assert asked.link not in azure.sends


def test_the_link_to_the_container_goes_at_once_with_its_receiver() -> None:
    play = Play(TO)
    azure = play.dial("azure")
    filtered = receive(play.connect(), ASKED, credit=3)
    own = azure.answer_sender("orders")
    filtered.detach()
    play.wait(0.1)
    assert own.is_detached()
    assert not play.core._registry.nodes


def test_another_filter_on_the_same_link_takes_its_place() -> None:
    play = Play(TO)
    azure = play.dial("azure")
    client = play.connect()
    first = receive(client, ASKED, credit=3, name="l")
    own = azure.answer_sender("orders")
    again = receive(client, {SESSION: Described(SESSION, "s2")}, credit=3, name="l")
    assert first.is_detached()
    assert own.is_detached()
    azure.answer_sender("orders").send("a")
    assert again.payloads == [b"a"]


def test_a_container_that_is_away_is_waited_for_and_in_the_end_the_client_is_refused() -> None:
    terms = {"azure": ContainerTerms(failover_seconds=20.0)}
    play = Play(TO, terms=terms)
    filtered = receive(play.connect(), ASKED, credit=1)
    play.wait(10)
    assert (filtered.attach, filtered.refused) == (None, None)
    azure = play.dial("azure")
    azure.answer_sender("orders").send("a")
    assert filtered.payloads == [b"a"]
    late = Play(TO, terms=terms)
    refused = receive(late.connect(), ASKED)
    late.wait(21)
    assert refused.refused is not None
    assert refused.refused.name == NOT_FOUND
    assert "'azure' is not connected" in str(refused.refused)


def test_where_no_filter_is_applied_the_answer_is_immediate_and_without_it() -> None:
    exactly_once = attrs.evolve(TO, guarantee=Guarantee.EXACTLY_ONCE)
    for route, capabilities in ((TO, OTHERS), (exactly_once, AMQP), ("orders", AMQP)):
        play = Play(route)
        azure = play.dial("azure", capabilities=capabilities)
        filtered = receive(play.connect(), ASKED, credit=1)
        assert source_of(filtered).filters is None
        for asked in azure.asked.values():
            assert asked.source is not None
            assert asked.source.filters is None


def test_the_routes_filter_goes_before_the_clients() -> None:
    play = Play(attrs.evolve(TO, to=(Endpoint("azure", None, TERMS),)))
    azure = play.dial("azure")
    theirs: dict[object, object] = {SESSION: Described(SESSION, "not theirs"), Symbol("b"): None}
    receive(play.connect(), theirs)
    (asked,) = azure.asked.values()
    assert asked.source is not None
    assert asked.source.filters == {**ASKED, Symbol("b"): None}
    assert asked.name != "mine"


def test_a_client_without_permission_asks_no_container() -> None:
    play = Play(attrs.evolve(TO, address="others"))
    azure = play.dial("azure")
    filtered = receive(play.connect(), ASKED)
    assert filtered.refused is not None
    assert filtered.refused.name in (NOT_FOUND, NOT_ALLOWED)
    assert not azure.asked


def test_a_route_that_goes_while_the_client_waits_refuses_it() -> None:
    play = Play(TO)
    azure = play.dial("azure")
    filtered = receive(play.connect(), ASKED)
    reload(play, attrs.evolve(TO, address="others"))
    assert filtered.refused is not None
    assert not play.core._registry.nodes
    assert azure.is_lost is False


def test_a_container_without_filters_that_comes_late_has_the_client_answered_without_them() -> None:
    play = Play(TO)
    filtered = receive(play.connect(), ASKED, credit=2)
    assert filtered.attach is None
    azure = play.dial("azure", capabilities=OTHERS)
    assert source_of(filtered).filters is None
    azure.answer_sender("orders").send("a")
    assert filtered.payloads == [b"a"]


def test_filters_that_a_containers_frame_may_not_hold_are_refused_to_the_client_alone() -> None:
    play = Play(TO)
    azure = play.dial("azure")
    large: dict[object, object] = {SESSION: Described(SESSION, "x" * 4096)}
    filtered = receive(play.connect(), large)
    assert filtered.refused is not None
    assert filtered.refused.name == RESOURCE_LIMIT_EXCEEDED
    assert not azure.asked


def test_a_waiting_client_that_floods_grants_takes_no_memory_for_them() -> None:
    play = Play(TO)
    client = play.connect()
    filtered = receive(client, ASKED, credit=1)
    for credit in range(2, 1000):
        client.happens(CreditGranted(filtered.link, credit))
    (waiting,) = play.core._filtering._waiting.values()
    assert len(waiting.events) == 2
    azure = play.dial("azure")
    assert azure.answer_sender("orders").credit == 999


def test_a_turn_looks_at_no_waiting_client_whose_links_have_not_changed() -> None:
    play = Play(TO, "direct")
    for number in range(5):
        receive(play.connect(f"c{number}"), ASKED)
    assert not play.core._registry.sought
    play.connect("other").attach_sender("direct")
    assert not play.core._registry.sought
    play.dial("azure")
    assert len(play.core._filtering._waiting) == 5
