"""A client declares and binds, and is held against the routes."""

from typing import Any

import pytest

from router.model import condition as conditions
from router.model.commands import RefuseLink
from router.model.condition import Condition
from router.model.events import CreditGranted, LinkAttached, LinkDetached
from router.model.terminus import Role, Source, Target
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.limits import STORAGE_ARGUMENTS
from router.wire.v0_9_1.queues import LOCAL_CREDIT
from tests.support.basic_peer import ClientPeer


def refuse(peer: ClientPeer, name: str = conditions.NOT_FOUND) -> None:
    peer.do(RefuseLink(peer.attached().link, Condition(name, "no route for the address")))


def close_of(peer: ClientPeer) -> tuple[int, int, int]:
    """Code, class and method of the one close that the client got."""
    [close] = peer.methods()
    assert isinstance(close, m.ChannelClose | m.ConnectionClose)
    return close.reply_code, close.class_id, close.method_id


def asked(peer: ClientPeer) -> list[LinkAttached]:
    return [event for event in peer.events if isinstance(event, LinkAttached)]


# --- queues ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("passive", [True, False])
def test_a_durable_queue_is_there_if_a_route_takes_its_name(passive: bool) -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.QueueDeclare(queue="orders", durable=True, passive=passive), m.BasicQos())
    probe = peer.attached()
    assert probe.role is Role.RECEIVER
    assert probe.target == Target(address="orders")
    assert peer.methods() == []
    link = peer.accept(probe)
    assert peer.take_events() == [LinkDetached(link, closed=True)]
    assert peer.methods() == [m.QueueDeclareOk("orders", 0, 0), m.BasicQosOk()]


@pytest.mark.parametrize("passive", [True, False])
def test_a_durable_queue_without_a_route_is_not_found(passive: bool) -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.QueueDeclare(queue="orders", durable=True, passive=passive))
    refuse(peer)
    assert close_of(peer) == (404, 50, 10)


def test_a_queue_that_may_not_be_used_is_refused_and_one_not_for_everybody_is_there() -> None:
    peer = ClientPeer().open(1, 2)
    peer.send(1, m.QueueDeclare(queue="q"))
    refuse(peer, conditions.UNAUTHORIZED_ACCESS)
    assert peer.methods() == []  # it may still be one to receive from
    refuse(peer, conditions.UNAUTHORIZED_ACCESS)
    assert close_of(peer) == (403, 50, 10)
    peer.send(2, m.QueueDeclare(queue="q"))
    refuse(peer, conditions.NOT_ALLOWED)
    assert peer.methods() == [m.QueueDeclareOk("q", 0, 0)]


def test_no_wait_is_not_answered() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.QueueDeclare(queue="q", no_wait=True))
    peer.accept()
    peer.send(1, m.ExchangeDeclare(exchange="e", no_wait=True))
    peer.send(1, m.ExchangeDelete(exchange="e", no_wait=True))
    assert peer.methods() == []


def test_the_queue_declared_last_is_the_one_without_a_name() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.QueueDeclare(queue="q"))
    peer.accept()
    peer.send(1, m.BasicConsume(consumer_tag="c"))
    assert peer.attached().source == Source(address="q")


def test_a_server_named_queue_asks_for_a_dynamic_node() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.QueueDeclare(queue="", exclusive=True))
    node = peer.attached()
    assert node.role is Role.SENDER
    assert node.source == Source(dynamic=True)
    link = peer.accept(node)
    assert peer.methods() == [m.QueueDeclareOk(f"router/temp/{link}", 0, 0)]
    assert peer.take_events() == [CreditGranted(link, LOCAL_CREDIT)]


@pytest.mark.parametrize("options", [{"exclusive": True}, {"auto_delete": True}])
def test_a_queue_that_ends_with_the_connection_needs_no_route(options: dict[str, Any]) -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.QueueDeclare(queue="mine", **options))
    refuse(peer)
    node = peer.attached()
    assert node.source == Source(dynamic=True)
    link = peer.accept(node)
    assert peer.methods() == [m.QueueDeclareOk("mine", 0, 0)]
    peer.send(1, m.QueueDeclare(queue="mine", **options))
    assert peer.methods() == [m.QueueDeclareOk("mine", 0, 0)]
    assert asked(peer) == []
    peer.publish(1, routing_key="mine")
    assert peer.attached().target == Target(address=f"router/temp/{link}")


@pytest.mark.parametrize("name", [conditions.NOT_ALLOWED, conditions.UNAUTHORIZED_ACCESS])
def test_a_local_queue_whose_name_is_not_for_it_has_its_bindings_alone(name: str) -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.QueueDeclare(queue="mine", exclusive=True))
    refuse(peer, name)
    assert peer.methods() == [m.QueueDeclareOk("mine", 0, 0)]
    peer.publish(1, routing_key="mine")
    assert peer.attached().target == Target(address="mine")


def test_what_is_behind_a_consume_waits_until_all_that_the_queue_stands_for_is_attached() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.QueueDeclare(queue="orders", durable=True))
    peer.accept()
    peer.send(1, m.QueueBind(queue="orders", exchange="amq.direct", routing_key="a"))
    peer.accept()
    peer.accept()
    peer.methods()
    peer.send(1, m.BasicConsume(queue="orders", consumer_tag="c"), m.BasicQos())
    peer.accept()
    assert peer.methods() == []
    peer.accept()
    assert peer.methods() == [m.BasicConsumeOk("c"), m.BasicQosOk()]


@pytest.mark.parametrize("argument", sorted(STORAGE_ARGUMENTS))
def test_a_local_queue_cannot_be_asked_to_store(argument: str) -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.QueueDeclare(exclusive=True, arguments={argument: 1}))
    assert close_of(peer) == (406, 50, 10)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (m.QueueDeclare(queue="amq.mine", exclusive=True), (403, 50, 10)),
        (m.QueueDeclare(passive=True), (404, 50, 10)),
        (m.QueueBind(exchange="amq.direct"), (404, 50, 20)),
        (
            m.QueueBind(queue="q", exchange="amq.match", arguments={"x-match": "some"}),
            (406, 50, 20),
        ),
        (m.ExchangeDeclare(exchange="amq.mine"), (403, 40, 10)),
        (m.ExchangeDeclare(exchange=""), (403, 40, 10)),
        (m.ExchangeDeclare(exchange="amq.direct", type="topic"), (406, 40, 10)),
        (m.ExchangeDeclare(exchange="e", type="x-random"), (503, 40, 10)),
        (
            m.ExchangeDeclare(exchange="e", arguments={"alternate-exchange": "x"}),
            (406, 40, 10),
        ),
        (m.ExchangeDelete(exchange="amq.topic"), (403, 40, 20)),
        (m.ExchangeBind(destination="a", source="amq.topic"), (404, 40, 30)),
        (m.ExchangeBind(destination="amq.topic", source=""), (403, 40, 30)),
        (m.ExchangeUnbind(destination="", source="amq.topic"), (403, 40, 40)),
    ],
)
def test_what_a_router_cannot_do_is_refused_with_the_code_that_says_so(
    method: m.Method, expected: tuple[int, int, int]
) -> None:
    peer = ClientPeer().open(1)
    peer.send(1, method)
    assert close_of(peer) == expected
    assert asked(peer) == []


def test_a_local_queue_declared_anew_with_other_flags_is_refused() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.QueueDeclare(queue="mine", auto_delete=True))
    peer.accept()
    peer.received()
    peer.send(1, m.QueueDeclare(queue="mine", exclusive=True))
    assert close_of(peer) == (406, 50, 10)


# --- exchanges ------------------------------------------------------------------------------------


def test_declaring_an_exchange_promises_nothing_and_asks_nobody() -> None:
    peer = ClientPeer().open(1)
    declare = m.ExchangeDeclare(exchange="logs", type="topic", durable=True)
    peer.send(1, declare, declare, m.ExchangeDelete(exchange="logs"))
    peer.send(1, m.ExchangeDeclare(exchange="logs", type="fanout"))
    assert [type(one) for one in peer.methods()] == [
        m.ExchangeDeclareOk,
        m.ExchangeDeclareOk,
        m.ExchangeDeleteOk,
        m.ExchangeDeclareOk,
    ]
    assert peer.events == []


def test_an_exchange_with_bindings_is_not_deleted_by_those_who_ask_first() -> None:
    peer = with_queue()
    unused = m.ExchangeDelete(exchange="logs", if_unused=True)
    peer.send(1, m.ExchangeDeclare(exchange="logs"), unused, m.ExchangeDeclare(exchange="logs"))
    peer.send(1, m.QueueBind(queue="mine", exchange="logs", routing_key="kern"))
    peer.accept()
    peer.received()
    peer.send(1, unused)
    assert close_of(peer) == (406, 40, 20)


def test_nobody_publishes_to_an_internal_exchange() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.ExchangeDeclare(exchange="inner", type="fanout", internal=True))
    peer.received()
    peer.publish(1, exchange="inner")
    assert close_of(peer) == (403, 60, 40)
    assert asked(peer) == []


def test_an_exchange_may_be_asked_for() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.ExchangeDeclare(exchange="amq.topic", passive=True))
    assert peer.methods() == [m.ExchangeDeclareOk()]
    peer.send(1, m.ExchangeDeclare(exchange="logs", passive=True))
    peer.accept()
    assert peer.methods() == [m.ExchangeDeclareOk()]
    peer.send(1, m.ExchangeDeclare(exchange="nowhere", passive=True))
    refuse(peer)
    assert close_of(peer) == (404, 40, 10)


# --- bindings -------------------------------------------------------------------------------------


def with_queue(name: str = "mine", **options: Any) -> ClientPeer:
    peer = ClientPeer(**options).open(1)
    peer.send(1, m.QueueDeclare(queue=name, exclusive=True))
    peer.accept()
    peer.received()
    peer.take_events()
    return peer


def test_a_binding_of_a_local_queue_is_a_link_that_gathers() -> None:
    peer = with_queue()
    peer.send(1, m.QueueBind(queue="mine", exchange="logs", routing_key="kern"))
    binding = peer.attached()
    assert binding.role is Role.SENDER
    assert binding.source == Source(address="logs/kern")
    link = peer.accept(binding)
    assert peer.methods() == [m.QueueBindOk()]
    assert peer.take_events() == [CreditGranted(link, LOCAL_CREDIT)]


def test_a_binding_that_no_route_gives_is_not_found() -> None:
    peer = with_queue()
    peer.send(1, m.QueueBind(queue="mine", exchange="logs", routing_key="kern"))
    refuse(peer)
    assert close_of(peer) == (404, 50, 20)


def test_the_same_binding_twice_is_one() -> None:
    peer = with_queue()
    bind = m.QueueBind(queue="mine", exchange="logs", routing_key="kern")
    peer.send(1, bind)
    peer.accept()
    peer.send(1, bind)
    assert peer.methods() == [m.QueueBindOk(), m.QueueBindOk()]
    assert asked(peer) == []


def test_a_binding_of_a_routed_queue_is_probed_and_attached_when_it_is_consumed() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.QueueBind(queue="q", exchange="logs", routing_key="kern"))
    peer.accept()  # the queue is there
    probe = peer.attached()
    assert probe.role is Role.SENDER
    peer.take_events()
    link = peer.accept(probe)
    assert peer.take_events() == [LinkDetached(link, closed=True)]
    assert peer.methods() == [m.QueueBindOk()]
    peer.send(1, m.BasicConsume(queue="q", consumer_tag="c"))
    sources = []
    for _ in range(2):
        event = peer.attached()
        sources.append(event.source)
        assert peer.methods() == []
        peer.accept(event)
    assert sorted(str(source) for source in sources) == sorted(
        [str(Source(address="q")), str(Source(address="logs/kern"))]
    )
    assert peer.methods() == [m.BasicConsumeOk("c")]


def test_a_queue_without_a_route_of_its_own_is_consumed_by_its_bindings() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.QueueBind(queue="q", exchange="logs", routing_key="kern"))
    refuse(peer, conditions.NOT_ALLOWED)  # it is there, though nobody may attach to it by its name
    peer.accept()
    peer.received()
    peer.send(1, m.BasicConsume(queue="q", consumer_tag="c"))
    refuse(peer)
    peer.accept()
    assert peer.methods() == [m.BasicConsumeOk("c")]


def test_an_unbound_queues_link_goes() -> None:
    peer = with_queue()
    peer.send(1, m.QueueBind(queue="mine", exchange="logs", routing_key="kern"))
    link = peer.accept()
    peer.received()
    peer.take_events()
    peer.send(1, m.QueueUnbind(queue="mine", exchange="logs", routing_key="other"))
    assert peer.methods() == [m.QueueUnbindOk()]
    assert peer.take_events() == []
    peer.send(1, m.QueueUnbind(queue="mine", exchange="logs", routing_key="kern"))
    assert peer.methods() == [m.QueueUnbindOk()]
    assert peer.take_events() == [CreditGranted(link, 0), LinkDetached(link, closed=True)]


def test_a_fanout_binding_is_to_the_exchange_alone() -> None:
    peer = with_queue()
    peer.send(1, m.QueueBind(queue="mine", exchange="amq.fanout", routing_key="whatever"))
    assert peer.attached().source == Source(address="amq.fanout")


def test_two_channels_that_ask_for_one_queue_share_its_link_and_both_are_answered() -> None:
    peer = ClientPeer().open(1, 2)
    peer.send(1, m.BasicConsume(queue="q", consumer_tag="a"))
    peer.send(2, m.QueueDeclare(queue="mine", auto_delete=True))
    first, second = asked(peer)
    peer.events.clear()
    peer.accept(second)
    peer.accept(first)
    assert peer.received() == [
        (2, m.QueueDeclareOk("mine", 0, 0)),
        (1, m.BasicConsumeOk("a")),
    ]


def test_a_channel_closed_in_the_middle_of_a_question_leaves_no_trace() -> None:
    peer = ClientPeer().open(1, 2)
    peer.send(1, m.QueueDeclare(queue="q"), m.ChannelClose())
    assert peer.methods() == []
    peer.accept()
    assert peer.methods() == [m.QueueDeclareOk("q", 0, 0), m.ChannelCloseOk()]


def test_a_ticket_is_given_to_those_who_ask() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.AccessRequest(realm="/data"))
    assert peer.methods() == [m.AccessRequestOk(1)]


def test_a_local_queue_is_not_declared_again_with_other_flags() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.QueueDeclare(queue="mine", auto_delete=True))
    peer.accept()
    peer.received()
    peer.send(1, m.QueueDeclare(queue="mine"))
    assert close_of(peer) == (406, 50, 10)
