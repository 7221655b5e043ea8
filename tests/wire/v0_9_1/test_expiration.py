"""A message's ``expiration`` counts wherever it waits, on a real core: here, before the core."""

import pytest

from router.routes.route import Distribution, Route
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.content import Properties
from tests.support.basic_peer import Content
from tests.support.basic_worker import Worker, WorkerClient

ROUTED = Route(address="q")
STUCK = Route(address="stuck")


def living(milliseconds: int) -> Properties:
    return Properties(expiration=str(milliseconds))


def publisher(worker: Worker, *, confirms: bool = True) -> WorkerClient:
    client = worker.connect(1)
    if confirms:
        client.send(1, m.ConfirmSelect())
    client.methods()
    return client


def consumer(worker: Worker, queue: str = "q", prefetch: int = 0) -> WorkerClient:
    client = worker.connect(1)
    client.send(1, m.BasicQos(prefetch_count=prefetch))
    client.send(1, m.BasicConsume(queue=queue, consumer_tag="c"))
    return client


def got(client: WorkerClient) -> list[tuple[bytes, int | None]]:
    """Bodies, and how long each message says that it may live."""
    found = [one for one in client.methods() if isinstance(one, Content)]
    return [
        (one.body, None if one.properties.expiration is None else int(one.properties.expiration))
        for one in found
    ]


@pytest.mark.parametrize("confirms", [True, False])
def test_what_nobody_receives_in_time_goes_to_nobody(*, confirms: bool) -> None:
    worker = Worker(ROUTED)
    client = publisher(worker, confirms=confirms)
    client.publish(1, b"short", properties=living(1000))
    client.publish(1, b"long", properties=living(9000))
    client.publish(1, b"for ever")
    client.wait(0.9)
    assert client.methods() == []
    client.wait(0.2)
    assert client.methods() == ([m.BasicNack(1, requeue=False)] if confirms else [])
    client.wait(2)
    [(first, left), second] = got(consumer(worker))
    assert first == b"long"
    assert left is not None
    assert 5800 <= left <= 6000
    assert second == (b"for ever", None)


def test_it_ends_in_time_though_the_core_is_silent_meanwhile() -> None:
    worker = Worker(ROUTED)
    client = publisher(worker)
    client.publish(1, b"short", properties=living(5000))
    worker.now = client.now = worker.now + 4.5  # nobody looks at the connection until then
    other = consumer(worker)
    [(_, left)] = got(other)
    assert left is not None
    assert 400 <= left <= 500


def test_what_may_not_wait_at_all_goes_to_whoever_is_ready() -> None:
    worker = Worker(ROUTED)
    ready = consumer(worker)
    ready.methods()
    client = publisher(worker)
    client.publish(1, b"now", properties=living(0))
    assert [body for body, _ in got(ready)] == [b"now"]
    nobody = publisher(Worker(ROUTED))
    nobody.publish(1, b"now", properties=living(0))
    nobody.wait(0.1)
    assert nobody.methods() == [m.BasicNack(1, requeue=False)]


def test_it_ends_behind_a_message_that_is_stuck() -> None:
    worker = Worker(ROUTED, STUCK)
    client = publisher(worker)
    client.publish(1, b"x", routing_key="stuck")
    client.publish(1, b"short", properties=living(1000))
    client.wait(2)
    assert client.methods() == [m.BasicNack(2, requeue=False)]
    assert len(client.engine.channels) == 1


def test_what_stood_behind_it_goes_on() -> None:
    worker = Worker(ROUTED, STUCK)
    client = publisher(worker)
    ready = consumer(worker)
    client.publish(1, b"x", routing_key="stuck", properties=living(1000))
    client.publish(1, b"behind")
    ready.methods()
    client.wait(2)
    assert got(ready) == [(b"behind", None)]


def test_a_commit_of_what_has_ended_is_refused() -> None:
    client = Worker(ROUTED).connect(1)
    client.send(1, m.TxSelect())
    client.publish(1, b"short", properties=living(1000))
    client.wait(5)
    client.send(1, m.TxCommit())
    client.methods()
    client.wait(0.9)
    assert client.methods() == []
    client.wait(0.2)
    [closed] = client.methods()
    assert isinstance(closed, m.ChannelClose)
    assert closed.reply_code == 406


def test_what_waits_for_a_busy_consumer_ends_there() -> None:
    """Two addresses have room for one delivery each, and their consumer for one in all."""
    worker = Worker(ROUTED, Route(address="logs.#", distribution=Distribution.MULTICAST))
    busy = worker.connect(1)
    busy.send(
        1,
        m.ExchangeDeclare(exchange="logs", type="fanout"),
        m.QueueBind(queue="q", exchange="logs"),
        m.BasicQos(prefetch_count=1),
        m.BasicConsume(queue="q", consumer_tag="c"),
    )
    client = publisher(worker)
    client.send(1, m.ExchangeDeclare(exchange="logs", type="fanout"))
    client.methods()
    client.publish(1, b"1")
    assert [body for body, _ in got(busy)] == [b"1"]
    client.publish(1, b"2", exchange="logs", properties=living(1000))
    busy.wait(2)
    client.now = busy.now
    assert client.methods() == [m.BasicNack(2, requeue=False)]
    busy.send(1, m.BasicAck(1))
    assert got(busy) == []


BRIEF = Route(address="q", ttl_seconds=2)
"""A route with an upper limit of its own."""


@pytest.mark.parametrize("own", [None, 60_000])
def test_no_message_waits_for_longer_than_its_route_says(own: int | None) -> None:
    worker = Worker(BRIEF)
    client = publisher(worker)
    client.publish(1, b"a", properties=Properties() if own is None else living(own))
    client.wait(1)
    client.publish(1, b"b", properties=Properties() if own is None else living(own))
    client.publish(1, b"shorter", properties=living(500))
    client.wait(0.6)
    assert client.methods() == [m.BasicNack(3, requeue=False)]
    client.wait(0.5)
    assert client.methods() == [m.BasicNack(1, requeue=False)]
    [(body, left)] = got(consumer(worker))
    assert body == b"b"
    assert left is not None
    assert 800 <= left <= 1000


def test_what_waits_unconfirmed_ends_as_its_route_says() -> None:
    worker = Worker(BRIEF)
    client = publisher(worker, confirms=False)
    client.publish(1, b"a")
    client.wait(2.1)
    client.publish(1, b"b")
    assert [body for body, _ in got(consumer(worker))] == [b"b"]


def test_what_waits_for_credit_of_a_receiver_ends_as_its_route_says() -> None:
    worker = Worker(BRIEF)
    busy = consumer(worker, prefetch=1)
    busy.methods()
    client = publisher(worker)
    for body in (b"a", b"b"):
        client.publish(1, body)
    assert [body for body, _ in got(busy)] == [b"a"]
    client.wait(2.1)
    assert m.BasicNack(2, requeue=False) in client.methods()


def test_a_run_of_publishes_ends_as_its_route_says() -> None:
    worker = Worker(BRIEF)
    client = publisher(worker)
    for _ in range(30):
        client.publish(1, b"a")
    client.wait(2.1)
    nacks = [one for one in client.methods() if isinstance(one, m.BasicNack)]
    assert max(nack.delivery_tag for nack in nacks) == 30
