"""Queues that go with their owners, and publishers that have sent to them."""

import pytest

from router.routes.route import Route
from router.wire.v0_9_1 import methods as m
from tests.support.basic_peer import Content
from tests.support.basic_worker import Worker, WorkerClient


def consumer(worker: Worker, declare: m.QueueDeclare) -> tuple[WorkerClient, str]:
    """A client that consumes from a queue of its own, with its name."""
    client = worker.connect()
    client.send(1, declare)
    (declared,) = [each for each in client.methods() if isinstance(each, m.QueueDeclareOk)]
    client.send(1, m.BasicConsume(queue=declared.queue, consumer_tag="c", no_ack=True))
    client.methods()
    return client, declared.queue


def bodies(client: WorkerClient) -> list[bytes]:
    return [each.body for each in client.methods() if isinstance(each, Content)]


@pytest.mark.parametrize(
    "declare", [m.QueueDeclare(exclusive=True), m.QueueDeclare(auto_delete=True)]
)
@pytest.mark.parametrize("confirms", [False, True])
def test_a_publisher_outlives_the_queues_that_it_has_published_to(
    declare: m.QueueDeclare, confirms: bool
) -> None:
    worker = Worker(Route(address="orders"))
    gone, first = consumer(worker, declare)
    stays, second = consumer(worker, declare)
    publisher = worker.connect()
    if confirms:
        publisher.send(1, m.ConfirmSelect())
    for queue in (first, second):
        publisher.publish(1, b"reply", routing_key=queue)
    assert bodies(gone) == bodies(stays) == [b"reply"]
    publisher.methods()
    gone.send(0, m.ConnectionClose(reply_code=200))
    assert publisher.methods() == []
    publisher.publish(1, b"too late", routing_key=first)
    publisher.publish(1, b"in time", routing_key=second)
    assert bodies(stays) == [b"in time"]
    heard = publisher.methods()
    assert not any(isinstance(each, m.ChannelClose | m.ConnectionClose) for each in heard)
    assert [each for each in heard if isinstance(each, m.BasicAck)] == (
        [m.BasicAck(delivery_tag=4, multiple=True)] if confirms else []
    )


def test_what_a_queue_that_goes_has_not_settled_is_refused_and_what_follows_is_returned() -> None:
    worker = Worker(Route(address="orders"))
    client = worker.connect()
    client.send(1, m.QueueDeclare(queue="", exclusive=True))
    (declared,) = [each for each in client.methods() if isinstance(each, m.QueueDeclareOk)]
    client.send(1, m.BasicQos(prefetch_count=1), m.BasicConsume(queue=declared.queue))
    publisher = worker.connect()
    publisher.send(1, m.ConfirmSelect())
    publisher.methods()
    for _ in range(3):
        publisher.publish(1, b"reply", routing_key=declared.queue, mandatory=True)
    assert publisher.methods() == []
    client.send(0, m.ConnectionClose(reply_code=200))
    refused = [each for each in publisher.methods() if not isinstance(each, Content)]
    assert [*map(type, refused)] == [m.BasicNack] * 3
    publisher.publish(1, b"late", routing_key=declared.queue, mandatory=True)
    returned, answered = publisher.methods()
    assert isinstance(returned, Content)
    assert isinstance(returned.method, m.BasicReturn)
    assert answered == m.BasicAck(delivery_tag=4)
