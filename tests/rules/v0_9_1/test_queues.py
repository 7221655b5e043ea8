"""Exchanges, queues and bindings (0-9-1 §3.1, classes exchange and queue)."""

import time
from typing import Any

import pytest

from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.content import Properties
from tests.rules.v0_9_1.conftest import Dial
from tests.support.basic_peer import Content

PREDECLARED = ("amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match")


def consume(queue: str, tag: str = "c") -> m.BasicConsume:
    return m.BasicConsume(queue=queue, consumer_tag=tag, no_ack=True)


# --- exchanges ------------------------------------------------------------------------------------


def test_each_standard_type_of_exchange_can_be_declared(dial: Dial) -> None:
    client = dial()
    for kind in ("direct", "fanout", "topic", "headers"):
        for durable in (True, False):
            name = f"ex.{kind}{durable}"
            declare = m.ExchangeDeclare(exchange=name, type=kind, durable=durable)
            assert client.ask(declare) == m.ExchangeDeclareOk()


@pytest.mark.parametrize("name", PREDECLARED)
def test_a_queue_can_be_bound_to_each_predeclared_exchange(dial: Dial, name: str) -> None:
    client = dial()
    client.ask(m.QueueDeclare(queue="own", exclusive=True))
    assert client.ask(m.ExchangeDeclare(exchange=name, passive=True)) == m.ExchangeDeclareOk()
    assert client.ask(m.QueueBind(queue="own", exchange=name, routing_key="k")) == m.QueueBindOk()


def test_predeclared_exchanges_are_in_each_virtual_host(dial: Dial) -> None:
    client = dial(1, vhost="other")
    for name in PREDECLARED:
        assert client.ask(m.ExchangeDeclare(exchange=name, passive=True)) == m.ExchangeDeclareOk()


def test_the_default_exchange_leads_to_each_queue_by_its_name(dial: Dial) -> None:
    client = dial()
    for declare in (m.QueueDeclare(queue="own", exclusive=True), m.QueueDeclare()):
        name = client.ask(declare).queue
        client.ask(m.QueueBind(queue=name, exchange="", routing_key=name))
        client.publish(b"by name", name)
        client.send(1, m.BasicGet(queue=name, no_ack=True))
        assert client.take().body == b"by name"


def test_the_default_exchange_cannot_be_declared_or_deleted(dial: Dial) -> None:
    client = dial()
    for method in (
        m.ExchangeDeclare(exchange="", type="direct"),
        m.ExchangeDelete(exchange=""),
        m.ExchangeBind(destination="", source="amq.topic"),
        m.ExchangeBind(destination="amq.topic", source=""),
    ):
        assert client.code(method) == 403


def test_hundreds_of_exchanges_can_be_declared(dial: Dial) -> None:
    client = dial()
    for number in range(300):
        client.send(1, m.ExchangeDeclare(exchange=f"ex.{number}", type="topic"))
    assert client.rest() == [m.ExchangeDeclareOk()] * 300


@pytest.mark.parametrize("kind", ["exchange", "queue"])
def test_names_that_begin_with_amq_are_reserved(dial: Dial, kind: str) -> None:
    client = dial()
    if kind == "exchange":
        assert client.code(m.ExchangeDeclare(exchange="amq.new", type="direct")) == 403
    else:
        assert client.code(m.QueueDeclare(queue="amq.new", exclusive=True)) == 403
        assert client.code(m.QueueDeclare(queue="amq.new", durable=True)) == 403


def test_names_may_have_any_character_and_255_octets(dial: Dial) -> None:
    client = dial()
    for name in ("with space", "a@b!c", "größe", "x" * 255):
        assert client.ask(m.ExchangeDeclare(exchange=name, type="fanout")) == m.ExchangeDeclareOk()
        assert client.ask(m.QueueDeclare(queue=name, exclusive=True)).queue == name


def test_an_exchange_declared_again_as_another_type_is_406(dial: Dial) -> None:
    client = dial()
    client.ask(m.ExchangeDeclare(exchange="ex.typed", type="topic"))
    assert client.code(m.ExchangeDeclare(exchange="ex.typed", type="fanout")) == 406
    again = m.ExchangeDeclare(exchange="ex.typed", type="topic")
    assert client.ask(again) == m.ExchangeDeclareOk()


@pytest.mark.parametrize("kind", ["", "nonsense", "system", "x-own"])
def test_an_unknown_type_of_exchange_is_503(dial: Dial, kind: str) -> None:
    assert dial().code(m.ExchangeDeclare(exchange="ex.1", type=kind)) == 503


def test_a_passive_declare_of_what_is_not_there_is_404(dial: Dial) -> None:
    client = dial()
    assert client.code(m.ExchangeDeclare(exchange="nowhere", passive=True)) == 404
    assert client.code(m.QueueDeclare(queue="nowhere", passive=True)) == 404
    assert client.ask(m.QueueDeclare(queue="q.there", passive=True)).queue == "q.there"


def test_deleting_an_exchange_that_is_not_there_is_confirmed(dial: Dial) -> None:
    assert dial().ask(m.ExchangeDelete(exchange="nowhere")) == m.ExchangeDeleteOk()


def test_a_predeclared_exchange_is_not_deleted(dial: Dial) -> None:
    assert dial().code(m.ExchangeDelete(exchange="amq.topic")) == 403


def test_a_used_exchange_is_not_deleted_by_who_asks_for_an_unused_one(dial: Dial) -> None:
    client = dial()
    client.ask(m.ExchangeDeclare(exchange="ex", type="topic"))
    client.ask(m.QueueDeclare(queue="own", exclusive=True))
    assert client.ask(m.QueueBind(queue="own", exchange="ex", routing_key="k")) == m.QueueBindOk()
    assert client.code(m.ExchangeDelete(exchange="ex", if_unused=True)) == 406
    assert client.ask(m.ExchangeDelete(exchange="ex")) == m.ExchangeDeleteOk()


@pytest.mark.parametrize("kind", ["direct", "topic", "fanout", "headers"])
def test_a_deleted_exchange_takes_its_bindings_along(dial: Dial, kind: str) -> None:
    client, publisher = dial(), dial()
    for each in (client, publisher):
        each.ask(m.ExchangeDeclare(exchange="gone", type=kind))
    client.ask(m.QueueDeclare(queue="own", exclusive=True))
    bind = m.QueueBind(queue="own", exchange="gone", routing_key="k")
    assert client.ask(bind) == m.QueueBindOk()
    client.ask(consume("own"))
    publisher.publish(b"before", "k", exchange="gone")
    assert client.bodies(1) == [b"before"]
    assert client.ask(m.ExchangeDelete(exchange="gone")) == m.ExchangeDeleteOk()
    publisher.publish(b"behind", "k", exchange="gone")
    assert client.rest() == []


@pytest.mark.parametrize("kind", ["direct", "topic", "fanout", "headers"])
def test_a_deleted_queue_takes_its_bindings_along(dial: Dial, kind: str) -> None:
    """§3.1.5."""
    client, publisher = dial(), dial()
    for each in (client, publisher):
        each.ask(m.ExchangeDeclare(exchange="gone", type=kind))
    own = m.QueueDeclare(queue="own", exclusive=True)
    client.ask(own)
    bind = m.QueueBind(queue="own", exchange="gone", routing_key="k")
    assert client.ask(bind) == m.QueueBindOk()
    client.ask(consume("own", "first"))
    publisher.publish(b"before", "k", exchange="gone")
    assert client.bodies(1) == [b"before"]
    client.send(1, m.BasicCancel("first"), m.QueueDelete(queue="own"), own, consume("own"))
    client.rest()
    publisher.publish(b"behind", "k", exchange="gone")
    assert client.rest() == []


def test_no_wait_is_not_answered(dial: Dial) -> None:
    client = dial()
    client.send(
        1,
        m.ExchangeDeclare(exchange="ex", type="topic", no_wait=True),
        m.QueueDeclare(queue="own", exclusive=True, no_wait=True),
        m.QueueBind(queue="own", exchange="ex", routing_key="k", no_wait=True),
        m.QueuePurge(queue="own", no_wait=True),
        m.QueueDelete(queue="own", no_wait=True),
        m.ExchangeDelete(exchange="ex", no_wait=True),
        m.BasicQos(),
    )
    assert client.rest() == [m.BasicQosOk()]


# --- how exchanges match --------------------------------------------------------------------------


def test_a_direct_exchange_matches_equal_keys(dial: Dial) -> None:
    client, publisher = dial(), dial()
    client.ask(m.QueueDeclare(queue="own", exclusive=True))
    client.ask(m.QueueBind(queue="own", exchange="amq.direct", routing_key="K"))
    client.ask(consume("own"))
    publisher.publish(b"other", "k", exchange="amq.direct")
    publisher.publish(b"equal", "K", exchange="amq.direct")
    assert client.bodies(1) == [b"equal"]


def test_a_fanout_exchange_gives_each_queue_everything(dial: Dial) -> None:
    clients, publisher = [dial(), dial()], dial()
    for client in clients:
        client.ask(m.QueueDeclare(queue="own", exclusive=True))
        client.ask(m.QueueBind(queue="own", exchange="amq.fanout"))
        client.ask(consume("own"))
    publisher.publish(b"1", "any", exchange="amq.fanout")
    publisher.publish(b"2", "", exchange="amq.fanout")
    for client in clients:
        assert client.bodies(2) == [b"1", b"2"]


@pytest.mark.parametrize(
    ("pattern", "keys"),
    [
        ("*.stock.#", {"usd.stock", "eur.stock.db"}),
        ("#", {"usd.stock", "eur.stock.db", "stock.nasdaq", "stock"}),
        ("*", {"stock"}),
        ("stock.*", {"stock.nasdaq"}),
        ("stock.#", {"stock.nasdaq", "stock"}),
    ],
)
def test_a_topic_exchange_matches_words(dial: Dial, pattern: str, keys: set[str]) -> None:
    client, publisher = dial(), dial()
    client.ask(m.QueueDeclare(queue="own", exclusive=True))
    client.ask(m.QueueBind(queue="own", exchange="amq.topic", routing_key=pattern))
    client.ask(consume("own"))
    for key in ("usd.stock", "eur.stock.db", "stock.nasdaq", "stock"):
        publisher.publish(key.encode(), key, exchange="amq.topic")
    found = client.bodies(len(keys))
    assert sorted(found) == sorted(key.encode() for key in keys)
    client.ask(m.QueueDelete(queue="own"))


@pytest.mark.parametrize(
    ("arguments", "taken"),
    [
        ({"x-match": "all", "a": 1, "b": "x"}, [b"both"]),
        ({"x-match": "any", "a": 1, "b": "x"}, [b"both", b"a", b"b"]),
        ({"x-match": "all", "a": None}, [b"both", b"a", b"other a"]),
        ({"x-match": "all", "a": 1, "x-later": 5}, [b"both", b"a"]),
    ],
)
def test_a_headers_exchange_matches_all_or_any(
    dial: Dial, arguments: dict[str, object], taken: list[bytes]
) -> None:
    client, publisher = dial(), dial()
    client.ask(m.QueueDeclare(queue="own", exclusive=True))
    client.ask(m.QueueBind(queue="own", exchange="amq.match", arguments=arguments))
    client.ask(consume("own"))
    for body, headers in (
        (b"both", {"a": 1, "b": "x"}),
        (b"a", {"a": 1}),
        (b"b", {"b": "x"}),
        (b"other a", {"a": 2}),
        (b"none", {"c": 1}),
    ):
        publisher.publish(body, "", exchange="amq.match", properties=Properties(headers=headers))
    assert client.bodies(len(taken)) == taken


def test_a_queue_gets_a_message_once_however_many_bindings_match(dial: Dial) -> None:
    client, publisher = dial(), dial()
    client.ask(m.QueueDeclare(queue="own", exclusive=True))
    for key in ("a.*", "a.b", "#", "*.b"):
        bind = m.QueueBind(queue="own", exchange="logs", routing_key=key)
        client.ask(m.ExchangeDeclare(exchange="logs", type="topic"))
        assert client.ask(bind) == m.QueueBindOk()
    client.ask(consume("own"))
    publisher.publish(b"once", "a.b", exchange="logs")
    assert client.bodies(1) == [b"once"]


# --- queues ---------------------------------------------------------------------------------------


def test_hundreds_of_queues_with_names_of_the_servers_are_different(dial: Dial) -> None:
    client = dial()
    for _ in range(300):
        client.send(1, m.QueueDeclare())
    names = {each.queue for each in client.rest()}
    assert len(names) == 300


def test_a_queue_declared_again_as_another_is_406(dial: Dial) -> None:
    client = dial()
    same = m.QueueDeclare(queue="own", exclusive=True, arguments={"x-max-length": 5})
    assert client.ask(same).queue == client.ask(same).queue == "own"
    for other in (
        m.QueueDeclare(queue="own", auto_delete=True, arguments={"x-max-length": 5}),
        m.QueueDeclare(queue="own", exclusive=True, auto_delete=True),
        m.QueueDeclare(queue="own", exclusive=True, arguments={"x-max-length": 6}),
    ):
        assert client.code(other) == 406
    assert client.ask(m.QueueDeclare(queue="own", passive=True)).queue == "own"


def test_durable_transient_exclusive_and_shared_queues_can_be_declared(dial: Dial) -> None:
    client = dial()
    for options in ({"durable": True}, {}, {"exclusive": True}, {"auto_delete": True}):
        declare = m.QueueDeclare(queue="q.kinds", **options)  # type: ignore[arg-type]
        assert client.ask(declare).queue == "q.kinds"
        if "exclusive" in options or "auto_delete" in options:
            client.ask(m.QueueDelete(queue="q.kinds"))


def test_a_shared_queue_without_a_route_is_404(dial: Dial) -> None:
    assert dial().code(m.QueueDeclare(queue="nowhere", durable=True)) == 404


def test_each_connection_has_its_own_exclusive_queue_of_a_name(dial: Dial) -> None:
    first, second = dial(), dial()
    for client, body in ((first, b"1"), (second, b"2")):
        assert client.ask(m.QueueDeclare(queue="lock", exclusive=True)).queue == "lock"
        client.publish(body, "lock")
    for client, body in ((first, b"1"), (second, b"2")):
        client.send(1, m.BasicGet(queue="lock", no_ack=True))
        assert client.take().body == body
    third = dial()
    assert third.code(m.QueueDeclare(queue="lock", passive=True)) == 404
    assert third.code(m.BasicConsume(queue="lock", consumer_tag="c")) == 404


def test_an_exclusive_queue_goes_with_its_connection(dial: Dial) -> None:
    client, other = dial(), dial()
    name = client.ask(m.QueueDeclare(exclusive=True)).queue
    other.publish(b"x", name, mandatory=True)
    client.send(0, m.ConnectionClose(reply_code=200))
    client.end()
    returned = [one for one in other.rest(1) if isinstance(one, Content)]
    other.publish(b"y", name, mandatory=True)
    returned += [one for one in other.rest(1) if isinstance(one, Content)]
    assert returned
    assert other.code(m.QueueDeclare(queue=name, passive=True)) == 404


def test_what_one_client_has_declared_others_see_a_moment_later(dial: Dial) -> None:
    first, others = dial(), (dial(), dial())
    for _ in range(10):
        name = first.ask(m.QueueDeclare()).queue
        assert first.ask(m.QueueDeclare(queue=name, passive=True)).queue == name
        until = time.monotonic() + 2
        for other in others:  # at the same worker at once
            while other.code(m.QueueDeclare(queue=name, passive=True)):
                assert time.monotonic() < until
                time.sleep(0.01)


# --- bindings -------------------------------------------------------------------------------------


def test_the_same_binding_twice_is_no_error(dial: Dial) -> None:
    client = dial()
    client.ask(m.QueueDeclare(queue="own", exclusive=True))
    for _ in range(2):
        bind = m.QueueBind(queue="own", exchange="amq.topic", routing_key="a.*")
        assert client.ask(bind) == m.QueueBindOk()


def test_a_durable_queue_can_be_bound_to_a_transient_exchange(dial: Dial) -> None:
    client = dial()
    client.ask(m.ExchangeDeclare(exchange="ex", type="direct", durable=False))
    client.ask(m.QueueDeclare(queue="q.durable", durable=True))
    bind = m.QueueBind(queue="q.durable", exchange="ex", routing_key="k")
    assert client.ask(bind) == m.QueueBindOk()


def test_a_binding_of_a_shared_queue_lasts_while_it_is_consumed_here(dial: Dial) -> None:
    client, publisher = dial(), dial()
    client.ask(m.QueueDeclare(queue="q.bound", durable=True))
    client.ask(m.QueueBind(queue="q.bound", exchange="shop", routing_key="k"))
    client.ask(consume("q.bound"))
    publisher.publish(b"1", "k", exchange="shop")
    assert client.bodies(1) == [b"1"]
    client.send(0, m.ConnectionClose(reply_code=200))
    client.end()
    again = dial()
    again.ask(consume("q.bound"))
    publisher.publish(b"2", "k", exchange="shop")
    assert again.rest() == []


def test_a_queue_can_be_bound_many_times(dial: Dial) -> None:
    client = dial()
    client.ask(m.QueueDeclare(queue="own", exclusive=True))
    for number in range(100):
        client.send(1, m.QueueBind(queue="own", exchange="shop", routing_key=f"k{number}"))
    for name in PREDECLARED[:4]:
        client.send(1, m.QueueBind(queue="own", exchange=name, routing_key="k"))
    assert client.rest(2) == [m.QueueBindOk()] * 104


@pytest.mark.parametrize("method", [m.QueueBind, m.QueueUnbind, m.QueuePurge, m.QueueDelete])
def test_no_name_is_the_queue_last_declared_and_404_without_one(dial: Dial, method: Any) -> None:
    client = dial(1, 2)
    options = {"exchange": "amq.topic"} if method in (m.QueueBind, m.QueueUnbind) else {}
    assert client.code(method(queue="", **options)) == 404
    client.ask(m.QueueDeclare(queue="own", exclusive=True))
    assert client.code(method(queue="", **options), 2) == 404  # declared on another channel
    assert client.code(method(queue="", **options)) == 0


@pytest.mark.parametrize("method", [m.QueueBind, m.QueueUnbind, m.QueuePurge, m.QueueDelete])
def test_a_queue_that_is_not_there_is_404(dial: Dial, method: Any) -> None:
    options = {"exchange": "amq.topic"} if method in (m.QueueBind, m.QueueUnbind) else {}
    assert dial().code(method(queue="nowhere", **options)) == 404


def test_binding_to_an_exchange_that_is_not_there_is_404(dial: Dial) -> None:
    client = dial()
    client.ask(m.QueueDeclare(queue="own", exclusive=True))
    assert client.code(m.QueueBind(queue="own", exchange="nowhere", routing_key="k")) == 404


def test_unbinding_what_was_not_bound_is_confirmed(dial: Dial) -> None:
    client = dial()
    client.ask(m.QueueDeclare(queue="own", exclusive=True))
    for name in ("amq.topic", "nowhere"):
        unbind = m.QueueUnbind(queue="own", exchange=name, routing_key="k")
        assert client.ask(unbind) == m.QueueUnbindOk()


def test_a_blank_exchange_is_the_default_one_for_bind_and_unbind(dial: Dial) -> None:
    client = dial()
    client.ask(m.QueueDeclare(queue="own", exclusive=True))
    for key in ("own", "q.alias"):
        bind = m.QueueBind(queue="own", exchange="", routing_key=key)
        assert client.ask(bind) == m.QueueBindOk()
    client.ask(consume("own"))
    client.publish(b"1", "q.alias").publish(b"2", "own")
    assert sorted(client.bodies(2)) == [b"1", b"2"]
    unbind = m.QueueUnbind(queue="own", exchange="", routing_key="q.alias")
    assert client.ask(unbind) == m.QueueUnbindOk()


# --- purge and delete -----------------------------------------------------------------------------


def test_a_purge_leaves_what_a_client_has_and_has_not_acknowledged(dial: Dial) -> None:
    client = dial()
    client.ask(m.QueueDeclare(queue="own", exclusive=True))
    for body in (b"1", b"2", b"3"):
        client.publish(body, "own")
    client.send(1, m.BasicGet(queue="own"))
    assert client.take().body == b"1"
    assert client.ask(m.QueuePurge(queue="own")).message_count == 2
    client.send(1, m.BasicNack(1, requeue=True), m.BasicGet(queue="own", no_ack=True))
    assert client.take().body == b"1"


def test_a_used_or_filled_queue_is_not_deleted_by_who_asks_for_another(dial: Dial) -> None:
    client = dial()
    client.ask(m.QueueDeclare(queue="own", exclusive=True))
    client.publish(b"1", "own")
    assert client.code(m.QueueDelete(queue="own", if_empty=True)) == 406
    client.send(1, m.BasicConsume(queue="own", consumer_tag="c"))
    client.rest()
    assert client.code(m.QueueDelete(queue="own", if_unused=True)) == 406


def test_what_waits_in_a_deleted_queue_goes_back_and_on_to_others(dial: Dial) -> None:
    client, publisher, other = dial(), dial(), dial()
    client.ask(m.QueueDeclare(queue="q.deleted", exclusive=True))
    publisher.publish(b"1", "q.deleted")
    assert client.rest() == []
    assert isinstance(client.ask(m.QueueDelete(queue="q.deleted")), m.QueueDeleteOk)
    other.ask(consume("q.deleted"))
    assert other.bodies(1) == [b"1"]


def test_a_shared_queue_is_not_the_clients_to_delete(dial: Dial) -> None:
    assert dial().code(m.QueueDelete(queue="q.shared")) == 403
