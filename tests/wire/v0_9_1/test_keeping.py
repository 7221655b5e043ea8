"""What a client publishes to a shared queue of its own, on a real core, before anybody consumes."""

from typing import Any

from router.model.events import LinkDetached
from router.routes.route import Distribution, Guarantee, Route
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.content import Properties
from router.wire.v0_9_1.queues import KEPT_OCTETS
from tests.support.basic_peer import Content
from tests.support.basic_worker import Worker, WorkerClient

ROUTED = Route(address="q")
NEWS = Route(address="news.*", distribution=Distribution.MULTICAST)


def owner(worker: Worker, *channels: int, **arguments: Any) -> WorkerClient:
    """A client that has declared ``q``, which others may consume, and wants confirms."""
    client = worker.connect(*channels or (1, 2))
    client.send(1, m.QueueDeclare(queue="q", auto_delete=True, arguments=arguments))
    client.send(1, m.ConfirmSelect())
    client.methods()
    return client


def consumer(worker: Worker, prefetch: int = 0, **options: Any) -> WorkerClient:
    """Somebody else who consumes it."""
    client = worker.connect(1)
    client.send(1, m.BasicQos(prefetch_count=prefetch))
    client.send(1, m.BasicConsume(queue="q", consumer_tag="c", **options))
    return client


def bodies(client: WorkerClient) -> list[bytes]:
    return [one.body for one in client.methods() if isinstance(one, Content)]


def test_what_was_kept_goes_to_whoever_consumes_elsewhere_in_order() -> None:
    worker = Worker(ROUTED)
    client = owner(worker)
    for number in range(5):
        client.publish(1, b"%d" % number)
    assert client.methods()[-1] == m.BasicAck(5, multiple=True)
    other = consumer(worker, prefetch=2)
    assert bodies(other) == [b"0", b"1"]
    other.send(1, m.BasicAck(2, multiple=True))
    assert bodies(other) == [b"2", b"3"]
    other.send(1, m.BasicAck(0, multiple=True))
    assert bodies(other) == [b"4"]
    other.send(1, m.BasicAck(5))
    client.send(1, m.QueueDeclare(queue="q", passive=True))
    assert client.methods() == [m.QueueDeclareOk("q", 0, 0)]
    assert client.engine.queues["q"].kept_octets == 0


def test_what_is_kept_goes_to_consumers_of_the_same_connection() -> None:
    worker = Worker(ROUTED)
    client = owner(worker)
    client.publish(1, b"1")
    client.send(2, m.BasicConsume(queue="q", consumer_tag="c", no_ack=True))
    assert bodies(client) == [b"1"]
    client.publish(1, b"2")
    assert bodies(client) == [b"2"]


def test_a_publish_behind_what_is_kept_comes_behind_it() -> None:
    worker = Worker(ROUTED)
    client = owner(worker)
    client.publish(1, b"1")
    client.publish(1, b"2")
    other = consumer(worker, prefetch=1)
    client.publish(1, b"3")
    got = []
    for tag in range(1, 4):
        got += bodies(other)
        other.send(1, m.BasicAck(tag))
    assert got == [b"1", b"2", b"3"]


def test_what_comes_back_stands_in_the_queue_again() -> None:
    worker = Worker(ROUTED)
    client = owner(worker)
    client.publish(1, b"1")
    client.publish(1, b"2")
    other = consumer(worker)
    assert bodies(other) == [b"1", b"2"]
    other.lose()
    client.methods()
    client.send(1, m.BasicGet(queue="q"), m.BasicGet(queue="q"), m.BasicGet(queue="q"))
    first, second, nothing = client.methods()
    assert isinstance(first, Content)
    assert isinstance(second, Content)
    assert [first.body, second.body] == [b"1", b"2"]
    assert isinstance(first.method, m.BasicGetOk)
    assert first.method.redelivered
    assert nothing == m.BasicGetEmpty()


def test_what_a_consumer_elsewhere_rejects_is_gone() -> None:
    worker = Worker(ROUTED)
    client = owner(worker)
    client.publish(1, b"1")
    other = consumer(worker)
    other.send(1, m.BasicReject(1, requeue=False))
    other.lose()
    client.methods()
    client.send(1, m.QueueDeclare(queue="q", passive=True))
    assert client.methods() == [m.QueueDeclareOk("q", 0, 0)]
    assert client.engine.queues["q"].kept_octets == 0


def test_a_publisher_without_confirms_is_not_held_up_at_other_addresses() -> None:
    worker = Worker(ROUTED, Route(address="other"))
    client = worker.connect(1)
    client.send(1, m.QueueDeclare(queue="q", auto_delete=True))
    got = worker.connect(1)
    got.send(1, m.BasicConsume(queue="other", consumer_tag="c", no_ack=True))
    client.publish(1, b"kept")
    client.publish(1, b"passes", routing_key="other")
    assert bodies(got) == [b"passes"]


def test_a_transaction_needs_no_consumer() -> None:
    client = Worker(ROUTED).connect(1)
    client.send(1, m.QueueDeclare(queue="q", auto_delete=True), m.TxSelect())
    client.methods()
    client.publish(1, b"1")
    client.publish(1, b"2")
    client.send(1, m.TxCommit(), m.QueueDeclare(queue="q", passive=True))
    assert client.methods() == [m.TxCommitOk(), m.QueueDeclareOk("q", 2, 0)]


def test_what_came_through_an_exchange_is_confirmed_too() -> None:
    client = owner(Worker(ROUTED, NEWS))
    client.send(1, m.ExchangeDeclare(exchange="news.eu", type="fanout"))
    client.send(1, m.QueueBind(queue="q", exchange="news.eu"))
    client.methods()
    client.publish(1, b"heard", exchange="news.eu")
    assert client.methods() == [m.BasicAck(1)]
    client.send(1, m.BasicGet(queue="q", no_ack=True))
    assert bodies(client) == [b"heard"]


def test_a_full_queue_drops_the_oldest_or_refuses_the_newest() -> None:
    client = owner(Worker(ROUTED), **{"x-max-length": 2})
    for number in range(3):
        client.publish(1, b"%d" % number)
    assert client.methods() == [m.BasicAck(3, multiple=True)]
    client.send(1, m.BasicGet(queue="q", no_ack=True))
    assert bodies(client) == [b"1"]
    client = owner(Worker(ROUTED), **{"x-max-length": 2, "x-overflow": "reject-publish"})
    for number in range(3):
        client.publish(1, b"%d" % number)
    refused, confirmed = client.methods()
    assert isinstance(refused, m.BasicNack)
    assert refused.delivery_tag == 3
    assert confirmed == m.BasicAck(2, multiple=True)


def test_what_has_waited_too_long_goes_to_nobody() -> None:
    worker = Worker(ROUTED)
    client = owner(worker)
    client.publish(1, b"short", properties=Properties(expiration="1000"))
    client.publish(1, b"long", properties=Properties(expiration="5000"))
    client.wait(2)
    other = consumer(worker)
    [got] = [one for one in other.methods() if isinstance(one, Content)]
    assert got.body == b"long"
    assert got.properties.expiration is not None
    assert 2900 <= int(got.properties.expiration) <= 3000


def test_what_is_too_much_waits_with_its_publisher() -> None:
    client = owner(Worker(ROUTED))
    body, confirmed = bytes(1 << 20), 0
    for _ in range(30):
        client.publish(1, body)
        confirmed += sum(isinstance(one, m.BasicAck) for one in client.methods())
    assert KEPT_OCTETS >> 20 <= confirmed <= 1 + (KEPT_OCTETS >> 20)
    assert client.engine.input_waits


def test_the_queues_link_goes_when_nothing_is_kept_any_more() -> None:
    worker = Worker(ROUTED)
    client = owner(worker)
    client.publish(1, b"1")
    other = consumer(worker)
    links = set(client.engine.inlets)
    other.send(1, m.BasicAck(1))
    client.feed(b"")
    assert len(client.engine.inlets) == len(links) - 1


def test_a_deleted_queue_keeps_nothing() -> None:
    worker = Worker(ROUTED)
    client = owner(worker)
    client.publish(1, b"1")
    client.send(1, m.QueueDelete(queue="q"))
    assert m.QueueDeleteOk(1) in client.methods()
    other = consumer(worker)
    assert bodies(other) == []
    assert not [event for event in client.events if isinstance(event, LinkDetached)]


def test_where_the_route_promises_exactly_once_nothing_is_confirmed_before_it_is_consumed() -> None:
    worker = Worker(Route(address="q", guarantee=Guarantee.EXACTLY_ONCE))
    client = owner(worker)
    client.publish(1, b"1")
    assert client.methods() == []
    client.send(1, m.QueueDeclare(queue="q", passive=True))
    assert client.methods() == [m.QueueDeclareOk("q", 1, 0)]
