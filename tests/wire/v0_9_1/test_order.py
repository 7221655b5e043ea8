"""Methods of a channel act in order, on a real core: what comes behind a publish finds it done."""

from itertools import permutations
from typing import Any

import pytest

from router.routes.route import Distribution, Route
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.queues import KEPT_OCTETS, LOCAL_CREDIT
from tests.support.basic_peer import Content
from tests.support.basic_worker import Worker, WorkerClient

ROUTED = Route(address="q")
SUBSCRIBED = Route(address="news.*", distribution=Distribution.MULTICAST)


def bodies(client: WorkerClient) -> list[bytes | None]:
    """Bodies of what the client got, None for each get that was empty."""
    found: list[bytes | None] = []
    for one in client.methods():
        if isinstance(one, Content):
            found.append(one.body)
        elif isinstance(one, m.BasicGetEmpty):
            found.append(None)
    return found


def publish_and(client: WorkerClient, body: bytes, *methods: m.Method, key: str = "q") -> None:
    """Publishes and goes on, in one piece."""
    octets = client.content(1, m.BasicPublish(routing_key=key), body)
    frame, encode = client.framing.frame, client.codec.encode
    client.feed(octets + b"".join(frame(1, 1, encode(one)) for one in methods))


def owner(*routes: Route, confirms: bool = False, **options: Any) -> WorkerClient:
    """A client with a queue of its own, ``q``."""
    client = Worker(*routes).connect(1, 2)
    client.send(1, m.QueueDeclare(queue="q", **(options or {"exclusive": True})))
    if confirms:
        client.send(1, m.ConfirmSelect())
    client.methods()
    return client


# --- gets -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("routes", [(), (ROUTED,)], ids=["unrouted", "routed"])
@pytest.mark.parametrize("confirms", [True, False])
@pytest.mark.parametrize("options", [{"exclusive": True}, {"auto_delete": True}])
def test_a_get_behind_a_publish_to_the_clients_own_queue_answers_it(
    routes: tuple[Route, ...], confirms: bool, options: dict[str, bool]
) -> None:
    client = owner(*routes, confirms=confirms, **options)
    for body in (b"first", b"second"):
        publish_and(client, body, m.BasicGet(queue="q", no_ack=True), m.BasicGet(queue="q"))
        assert bodies(client) == [body, None]


def test_gets_behind_several_publishes_answer_them_in_order() -> None:
    client = owner()
    for body in (b"1", b"2", b"3"):
        client.publish(1, body)
    client.send(1, *[m.BasicGet(queue="q") for _ in range(4)])
    assert bodies(client) == [b"1", b"2", b"3", None]


def test_a_get_behind_a_publish_to_a_routed_queue_answers_it() -> None:
    client = Worker(ROUTED).connect(1)
    client.send(1, m.QueueDeclare(queue="q", durable=True))
    for body in (b"first", b"second"):
        publish_and(client, body, m.BasicGet(queue="q", no_ack=True), m.BasicGet(queue="q"))
        assert bodies(client) == [body, None]


def test_gets_from_a_routed_queue_in_one_piece_are_answered_one_by_one() -> None:
    client = Worker(ROUTED).connect(1)
    for body in (b"1", b"2", b"3"):
        client.publish(1, body)
    client.send(1, *[m.BasicGet(queue="q", no_ack=True) for _ in range(5)])
    assert bodies(client) == [b"1", b"2", b"3", None, None]


def test_a_get_behind_a_publish_through_an_exchange_answers_it() -> None:
    client = owner(SUBSCRIBED)
    client.send(1, m.ExchangeDeclare(exchange="news.eu", type="fanout"))
    client.send(1, m.QueueBind(queue="q", exchange="news.eu"))
    client.methods()
    method = m.BasicPublish(exchange="news.eu", routing_key="any")
    get = client.framing.frame(1, 1, client.codec.encode(m.BasicGet(queue="q")))
    client.feed(client.content(1, method, b"heard") + get)
    assert bodies(client) == [b"heard"]


def test_a_get_takes_what_consumers_have_no_room_for() -> None:
    client = owner()
    client.send(2, m.BasicQos(prefetch_count=1), m.BasicConsume(queue="q", consumer_tag="c"))
    client.publish(1, b"consumed")
    client.methods()
    publish_and(client, b"got", m.BasicGet(queue="q"), m.BasicGet(queue="q"))
    assert bodies(client) == [b"got", None]


def test_a_queue_deleted_by_another_channel_answers_the_get_that_waits() -> None:
    client = owner()
    publish_and(client, b"1", m.BasicGet(queue="q", no_ack=True))
    client.send(2, m.QueueDelete(queue="q"))
    client.send(1, m.BasicGet(queue="q"))
    *_, closed = client.methods()
    assert isinstance(closed, m.ChannelClose)
    assert closed.reply_code == 404


# --- counts ---------------------------------------------------------------------------------------


def test_a_declare_a_purge_and_a_delete_count_what_was_published_before() -> None:
    client = owner()
    publish_and(client, b"1", m.QueueDeclare(queue="q", passive=True))
    assert client.methods() == [m.QueueDeclareOk("q", 1, 0)]
    publish_and(client, b"2", m.QueuePurge(queue="q"))
    assert client.methods() == [m.QueuePurgeOk(2)]
    publish_and(client, b"3", m.QueueDelete(queue="q", if_empty=True))
    [refused] = client.methods()
    assert isinstance(refused, m.ChannelClose)
    assert (refused.reply_code, refused.class_id, refused.method_id) == (406, 50, 40)
    client.send(1, m.ChannelCloseOk())
    client.send(1, m.ChannelOpen())
    client.methods()
    publish_and(client, b"4", m.QueueDelete(queue="q"))
    assert client.methods() == [m.QueueDeleteOk(2)]


def test_a_get_tells_how_many_are_left() -> None:
    client = owner()
    for body in (b"1", b"2", b"3"):
        client.publish(1, body)
    client.send(1, m.BasicGet(queue="q"), m.BasicGet(queue="q"))
    answers = [one.method for one in client.methods() if isinstance(one, Content)]
    assert [one.message_count for one in answers if isinstance(one, m.BasicGetOk)] == [2, 1]


# --- what is the queue's own ----------------------------------------------------------------------


def test_what_a_client_publishes_to_its_exclusive_queue_is_confirmed_when_the_queue_has_it() -> (
    None
):
    client = owner(confirms=True)
    for number in range(1, LOCAL_CREDIT + 50):
        client.publish(1, b"body", mandatory=True)
        assert client.methods() == [m.BasicAck(number)]


def test_what_others_publish_to_it_is_confirmed_by_its_consumer() -> None:
    worker = Worker(ROUTED)
    owner, other = worker.connect(1), worker.connect(1)
    owner.send(1, m.QueueDeclare(queue="q", exclusive=True))
    other.send(1, m.ConfirmSelect())
    other.methods()
    other.publish(1, b"asked")
    assert other.methods() == []
    owner.send(1, m.BasicConsume(queue="q", consumer_tag="c"), m.BasicAck(1))
    assert other.methods() == [m.BasicAck(1)]


@pytest.mark.parametrize("routes", [(), (ROUTED,)], ids=["unrouted", "routed"])
def test_what_a_client_publishes_to_its_auto_delete_queue_needs_no_consumer_to_be_confirmed(
    routes: tuple[Route, ...],
) -> None:
    client = owner(*routes, confirms=True, auto_delete=True)
    for number in range(1, LOCAL_CREDIT + 50):
        client.publish(1, b"body", mandatory=True)
        assert client.methods() == [m.BasicAck(number)]


@pytest.mark.parametrize("confirms", [True, False])
@pytest.mark.parametrize("order", list(permutations([1, 2])))
def test_what_is_given_back_stands_in_the_queue_again(
    confirms: bool, order: tuple[int, ...]
) -> None:
    client = owner(confirms=confirms)
    client.publish(1, b"1")
    client.publish(1, b"2")
    client.send(1, m.BasicGet(queue="q"), m.BasicGet(queue="q"))
    client.methods()
    for tag in reversed(order):
        client.send(1, m.BasicNack(tag, requeue=True))
    client.send(1, m.BasicGet(queue="q"), m.BasicGet(queue="q"))
    got = [one for one in client.methods() if isinstance(one, Content)]
    assert [one.body for one in got] == [b"%d" % number for number in order]
    assert all(isinstance(one.method, m.BasicGetOk) and one.method.redelivered for one in got)


def test_what_is_given_back_at_once_keeps_its_order() -> None:
    client = owner()
    client.publish(1, b"1")
    client.publish(1, b"2")
    client.send(1, m.BasicGet(queue="q"), m.BasicGet(queue="q"), m.BasicRecover(requeue=True))
    client.send(1, m.BasicGet(queue="q"), m.BasicGet(queue="q"))
    assert bodies(client) == [b"1", b"2", b"1", b"2"]


def test_what_a_channel_had_is_there_for_the_next_one() -> None:
    client = owner()
    client.publish(1, b"1")
    client.send(1, m.BasicConsume(queue="q", consumer_tag="c"))
    client.send(1, m.ChannelClose())
    client.methods()
    client.send(2, m.QueueDeclare(queue="q", passive=True), m.BasicGet(queue="q"))
    declared, got = client.methods()
    assert declared == m.QueueDeclareOk("q", 1, 0)
    assert isinstance(got, Content)


def test_what_was_got_from_a_routed_queue_and_given_back_is_got_again() -> None:
    client = Worker(ROUTED).connect(1)
    publish_and(client, b"1", m.BasicGet(queue="q"), m.BasicNack(1, requeue=True))
    client.send(1, m.BasicGet(queue="q"), m.BasicAck(2), m.BasicGet(queue="q"))
    assert bodies(client) == [b"1", b"1", None]
    assert client.worker.core._registry.process.used == 0


@pytest.mark.parametrize("requeue", [False, True])
def test_rejected_is_gone_unless_it_is_to_be_queued_again(requeue: bool) -> None:
    client = owner()
    publish_and(client, b"1", m.BasicGet(queue="q"), m.BasicReject(1, requeue=requeue))
    client.methods()
    client.send(1, m.QueueDeclare(queue="q", passive=True))
    assert client.methods() == [m.QueueDeclareOk("q", int(requeue), 0)]


def test_what_a_queue_has_stays_when_its_binding_goes() -> None:
    client = owner(SUBSCRIBED)
    client.send(1, m.ExchangeDeclare(exchange="news.eu", type="fanout"))
    client.send(1, m.QueueBind(queue="q", exchange="news.eu"), m.ConfirmSelect())
    client.publish(1, b"heard", exchange="news.eu")
    client.send(1, m.QueueUnbind(queue="q", exchange="news.eu"), m.BasicGet(queue="q"))
    assert bodies(client) == [b"heard"]


def test_a_transaction_with_the_clients_own_queue_needs_no_consumer() -> None:
    client = owner()
    client.send(1, m.TxSelect())
    client.publish(1, b"1", mandatory=True)
    client.send(1, m.QueueDeclare(queue="q", passive=True), m.TxCommit())
    client.send(1, m.QueueDeclare(queue="q", passive=True))
    assert client.methods() == [
        m.TxSelectOk(),
        m.QueueDeclareOk("q", 0, 0),
        m.TxCommitOk(),
        m.QueueDeclareOk("q", 1, 0),
    ]


def test_a_client_that_acknowledges_nothing_does_not_fill_the_router() -> None:
    client = owner()
    client.send(2, m.BasicConsume(queue="q", consumer_tag="c"))
    body, got = bytes(1 << 20), 0
    for _ in range(40):
        client.publish(1, body)
        got += len(bodies(client))
        client.feed(b"")  # its output has gone
    assert KEPT_OCTETS >> 20 <= got < 20
    assert client.engine.input_waits
    client.send(2, m.BasicAck(0, multiple=True))
    assert not client.engine.input_waits


# --- names without a route ------------------------------------------------------------------------


def test_an_unrouted_queue_is_reached_by_its_name_on_its_connection_alone() -> None:
    worker = Worker(SUBSCRIBED)
    owner, other = worker.connect(1), worker.connect(1)
    for client in (owner, other):
        client.send(1, m.QueueDeclare(queue="q", exclusive=True))
        client.publish(1, b"%d" % client.id, mandatory=True)
    for client in (owner, other):
        client.send(1, m.BasicConsume(queue="q", consumer_tag="c"))
        assert bodies(client) == [b"%d" % client.id]


def test_a_deleted_queue_without_a_route_is_not_found() -> None:
    client = owner()
    client.publish(1, b"there")
    client.send(1, m.QueueDelete(queue="q"))
    client.publish(1, b"gone", mandatory=True)
    client.send(1, m.QueueDeclare(queue="q", passive=True))
    deleted, returned, closed = client.methods()
    assert deleted == m.QueueDeleteOk(1)
    assert isinstance(returned, Content)
    assert isinstance(returned.method, m.BasicReturn)
    assert isinstance(closed, m.ChannelClose)
    assert closed.reply_code == 404
