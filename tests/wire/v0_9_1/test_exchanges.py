"""Exchanges bound to exchanges: what a queue's binding stands for at their sources (RabbitMQ)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.model import condition as conditions
from router.model.commands import AddressesChanged, RefuseLink, SendDeliveries
from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import AddressesWatched, DeliveriesUpdated, LinkAttached, LinkDetached
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.outcome import MODIFIED_UNDELIVERABLE
from router.model.terminus import Source
from router.wire.exchange_names import ExchangeType, address_of
from router.wire.topics import key_matches
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.content import Properties
from router.wire.v0_9_1.exchanges import Binding, ExchangeBinding, Exchanges, Gate, Reach
from tests.support.basic_messages import content
from tests.support.basic_peer import ClientPeer

DIRECT, TOPIC = ExchangeType.DIRECT, ExchangeType.TOPIC
FANOUT, HEADERS = ExchangeType.FANOUT, ExchangeType.HEADERS


# --- what follows from the bindings ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "key", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("*", "", False),
        ("#", "", True),
        ("a.#", "a", True),
        ("#.b", "a.a.b", True),
        ("#.b.#", "a.c", False),
        ("*.#.z", "z", False),
        ("", "", True),
    ],
)
def test_a_topic_key_stands_for_words(pattern: str, key: str, expected: bool) -> None:
    assert key_matches(pattern, key) is expected


def reached(source: ExchangeType, first: str, behind: ExchangeType, second: str) -> list[Reach]:
    """What a queue bound to an internal exchange stands for at that exchange's source."""
    exchanges = Exchanges()
    exchanges |= {"s": source, "d": behind}
    exchanges.internal.add("d")
    exchanges.bindings.append(ExchangeBinding("d", "s", first, {}))
    return exchanges.reached(Binding("d", second, {}))


@pytest.mark.parametrize(
    ("gates", "expected"),
    [
        ((DIRECT, "eu", TOPIC, "#"), [Reach("s", "s/eu")]),
        ((DIRECT, "eu", FANOUT, "any"), [Reach("s", "s/eu")]),
        ((DIRECT, "eu", DIRECT, "us"), []),
        ((DIRECT, "eu.a", TOPIC, "us.*"), []),
        ((TOPIC, "eu.*", FANOUT, ""), [Reach("s", "s/eu.*", True, (Gate(TOPIC, "eu.*", {}),))]),
        ((TOPIC, "eu.#", DIRECT, "eu.a"), [Reach("s", "s/eu.a")]),
        (
            (TOPIC, "#", TOPIC, "eu.*"),
            [Reach("s", "s/eu.*", True, (Gate(TOPIC, "#", {}), Gate(TOPIC, "eu.*", {})))],
        ),
        (
            (TOPIC, "*.a", TOPIC, "eu.#"),
            [Reach("s", "s/*.a", True, (Gate(TOPIC, "*.a", {}), Gate(TOPIC, "eu.#", {})))],
        ),
        ((FANOUT, "", FANOUT, ""), [Reach("s", "s")]),
        ((FANOUT, "", DIRECT, "eu"), [Reach("s", "s", False, (Gate(DIRECT, "eu", {}),))]),
    ],
)
def test_a_binding_behind_another_stands_for_what_passes_both(
    gates: tuple[Any, ...], expected: list[Reach]
) -> None:
    assert reached(*gates) == expected


def test_circles_end_and_an_exchange_that_is_deleted_takes_its_bindings_along() -> None:
    exchanges = Exchanges()
    exchanges |= {"a": FANOUT, "b": FANOUT}
    exchanges.bindings += [ExchangeBinding("a", "b", "", {}), ExchangeBinding("b", "a", "", {})]
    binding = Binding("a", "", {})
    assert exchanges.reached(binding) == [Reach("a", "a"), Reach("b", "b")]
    exchanges.forget("b")
    assert exchanges.reached(binding) == [Reach("a", "a")]


NAMES = ("a", "b", "c")
keys = st.sampled_from(["", "x", "y", "x.y", "y.x", "x.y.x"])
binding_keys = keys | st.sampled_from(["*", "#", "x.*", "*.y", "x.#", "#.x", "*.*"])
tables = st.sampled_from([{}, {"h": 1}, {"h": 2}, {"h": 1, "x-match": "any"}])
bindings = st.tuples(binding_keys, tables)


@given(
    kinds=st.tuples(*[st.sampled_from(list(ExchangeType))] * 3),
    between=st.lists(
        st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES), bindings), max_size=4
    ),
    own=st.tuples(st.sampled_from(NAMES), bindings),
    published=st.tuples(st.sampled_from(NAMES), keys, tables),
)
def test_a_queue_gets_what_a_broker_would_route_to_it(
    kinds: tuple[ExchangeType, ...],
    between: list[tuple[str, str, tuple[str, dict[str, Any]]]],
    own: tuple[str, tuple[str, dict[str, Any]]],
    published: tuple[str, str, dict[str, Any]],
) -> None:
    exchanges = Exchanges()
    exchanges |= dict(zip(NAMES, kinds, strict=True))
    exchanges.bindings += [
        ExchangeBinding(destination, source, *binding) for destination, source, binding in between
    ]
    exchange, key, headers = published
    # A broker's way: from the exchange that it is published to, on to all that take it.
    visited, waiting = set[str](), [exchange]
    while waiting:
        here = waiting.pop()
        visited.add(here)
        waiting += [
            one.destination
            for one in exchanges.bindings
            if one.source == here
            and one.destination not in visited
            and Gate(exchanges[here], one.routing_key, one.arguments).lets(key, headers)
        ]
    name, (own_key, arguments) = own
    expected = name in visited and Gate(exchanges[name], own_key, arguments).lets(key, headers)
    # Ours: from the queue back to the addresses that it stands for.
    address = address_of(exchange, key, exchanges[exchange])
    found = False
    for reach in exchanges.reached(Binding(name, own_key, arguments)):
        if reach.exchange != exchange:
            continue
        if reach.is_pattern:
            watched = reach.address.removeprefix(exchange).removeprefix("/")
            if not key_matches(watched, key):
                continue
        gates = reach.gates_at(address)
        found |= gates is not None and all(gate.lets(key, headers) for gate in gates)
    assert found is expected


# --- on a connection ------------------------------------------------------------------------------


def bound() -> ClientPeer:
    """A client with a queue of its own at a fanout that is bound to a direct exchange."""
    peer = ClientPeer().open(1)
    peer.send(1, m.ExchangeDeclare(exchange="inner", type="fanout", internal=True))
    peer.send(1, m.QueueDeclare(queue="mine", exclusive=True))
    peer.accept()
    peer.send(1, m.QueueBind(queue="mine", exchange="inner"))
    peer.send(1, m.ExchangeBind(destination="inner", source="shop", routing_key="eu"))
    probe = peer.attached()
    assert probe.source == Source(address="shop/eu")
    peer.accept(probe)
    return peer


def detached(peer: ClientPeer) -> list[int]:
    return [event.link for event in peer.take_events() if isinstance(event, LinkDetached)]


def test_a_queue_is_attached_to_the_source_of_its_exchange() -> None:
    peer = bound()
    assert m.ExchangeBindOk() not in peer.methods()
    attach = peer.attached()
    assert attach.source == Source(address="shop/eu")
    link = peer.accept(attach)
    assert peer.methods()[-1:] == [m.ExchangeBindOk()]
    peer.take_events()
    peer.send(1, m.ExchangeUnbind(destination="inner", source="shop", routing_key="eu"))
    assert detached(peer) == [link]
    assert peer.methods() == [m.ExchangeUnbindOk()]


def test_a_source_without_a_route_is_not_found() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.ExchangeBind(destination="amq.fanout", source="shop", routing_key="eu"))
    peer.do(RefuseLink(peer.attached().link, Condition(conditions.NOT_FOUND, "no route")))
    [close] = peer.methods()
    assert isinstance(close, m.ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (404, 40, 30)


def test_a_binding_to_a_bound_exchange_needs_the_sources_too_and_is_refused_without() -> None:
    peer = ClientPeer().open(1, 2)
    peer.send(1, m.ExchangeBind(destination="amq.fanout", source="shop", routing_key="eu"))
    peer.accept()
    peer.send(1, m.QueueDeclare(queue="mine", exclusive=True))
    peer.accept()
    peer.received()
    peer.take_events()
    peer.send(1, m.QueueBind(queue="mine", exchange="amq.fanout"))
    first = peer.accept()
    peer.do(RefuseLink(peer.attached().link, Condition(conditions.NOT_FOUND, "no route")))
    [close] = peer.methods()
    assert isinstance(close, m.ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (404, 50, 20)
    assert first in detached(peer)


def test_a_deleted_exchange_gives_up_what_came_through_it() -> None:
    peer = bound()
    link = peer.accept()
    peer.take_events()
    peer.send(1, m.ExchangeDelete(exchange="inner"))
    assert detached(peer) == [link]


def test_a_message_that_an_exchange_on_the_way_does_not_take_is_not_for_the_queue() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.ExchangeBind(destination="amq.direct", source="amq.fanout"))
    peer.accept()
    peer.send(1, m.ExchangeDeclare(exchange="inner", type="direct", internal=True))
    peer.send(1, m.ExchangeBind(destination="inner", source="amq.fanout"))
    peer.accept()
    peer.send(1, m.QueueDeclare(queue="mine", exclusive=True))
    peer.accept()
    peer.send(1, m.QueueBind(queue="mine", exchange="inner", routing_key="eu"))
    link = peer.accept()
    peer.send(1, m.BasicConsume(queue="mine", consumer_tag="c"))
    peer.received()
    peer.take_events()
    payloads = [
        content(Properties(), b"hi", exchange=b"amq.fanout", routing_key=key)
        for key in (b"us", b"eu")
    ]
    deliveries = [
        OutgoingDelivery(DeliveryNumber(number), DeliveryTag(b"t"), payload, peer.engine.protocol)
        for number, payload in enumerate(payloads)
    ]
    peer.do(SendDeliveries(link, deliveries))
    [only] = peer.methods()
    assert only is not None
    assert not isinstance(only, m.Method)
    assert isinstance(only.method, m.BasicDeliver)
    assert only.method.routing_key == "eu"
    [update] = [one for one in peer.take_events() if isinstance(one, DeliveriesUpdated)]
    assert (update.numbers, update.state) == ([0], MODIFIED_UNDELIVERABLE)


def test_of_two_patterns_one_is_watched_and_the_other_chooses() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.ExchangeDeclare(exchange="inner", type="topic", internal=True))
    peer.send(1, m.QueueDeclare(queue="mine", exclusive=True))
    peer.accept()
    peer.send(1, m.QueueBind(queue="mine", exchange="inner", routing_key="eu.#"))
    peer.send(1, m.ExchangeBind(destination="inner", source="amq.topic", routing_key="*.disk"))
    for _ in range(2):  # the question, and then for good
        [watch] = [one for one in peer.take_events() if isinstance(one, AddressesWatched)]
        assert watch.pattern == "amq.topic/*.disk"
        peer.do(AddressesChanged(watch.link, ("amq.topic/us.disk", "amq.topic/eu.disk"), ()))
    attached = [event for event in peer.events if isinstance(event, LinkAttached)]
    assert [event.source for event in attached] == [Source(address="amq.topic/eu.disk")]
    peer.accept(attached[0])
    peer.take_events()
    assert peer.methods()[-1:] == [m.ExchangeBindOk()]
    # Without the choice all that is watched is attached to.
    peer.send(1, m.QueueBind(queue="mine", exchange="inner", routing_key="#"))
    assert peer.attached().source == Source(address="amq.topic/us.disk")


def test_a_passive_declare_tells_a_type_if_that_is_not_the_usual_one() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.ExchangeDeclare(exchange="shop", type="topic", passive=True))
    peer.accept()
    peer.send(1, m.ExchangeBind(destination="amq.fanout", source="shop", routing_key="eu.*"))
    peer.send(1, m.ExchangeDeclare(exchange="other", type="direct", passive=True))
    [watch] = [one for one in peer.take_events() if isinstance(one, AddressesWatched)]
    assert watch.pattern == "shop/eu.*"
    peer.do(AddressesChanged(watch.link, (), ()))
    peer.accept()
    assert list(peer.engine.exchanges) == [*Exchanges(), "shop"]
