"""A client purges a routed queue, on a real core: what is there is dropped, as if consumed."""

import pytest

from router.model.commands import ReturnCredit, SendDeliveries
from router.model.delivery import OutgoingDelivery
from router.model.identity import DeliveryNumber, DeliveryTag
from router.routes.route import Distribution, Route
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.content import Properties
from router.wire.v0_9_1.purging import LONGEST_SECONDS, PURGE_CREDIT, PURGE_SECONDS
from tests.support.basic_messages import content
from tests.support.basic_peer import ClientPeer, Content
from tests.support.basic_worker import Worker, WorkerClient

ROUTED = Route(address="q")


def purge(client: WorkerClient, *behind: m.Method) -> list[m.Method | Content | None]:
    """Purges ``q``; gives what the client hears until that is over."""
    client.methods()
    client.send(1, m.QueuePurge(queue="q"), *behind)
    client.wait(PURGE_SECONDS)
    return client.methods()


def test_a_purge_drops_what_waits_with_publishers_and_they_hear_that_it_was_taken() -> None:
    worker = Worker(ROUTED)
    purging, publishing = worker.connect(1), worker.connect(1)
    purging.publish(1, b"own")
    publishing.send(1, m.ConfirmSelect())
    publishing.publish(1, b"1")
    publishing.publish(1, b"2")
    publishing.methods()
    assert purge(purging, m.BasicGet(queue="q")) == [m.QueuePurgeOk(3), m.BasicGetEmpty()]
    assert publishing.methods() == [m.BasicAck(2, multiple=True)]


def test_a_purge_of_nothing_counts_nothing() -> None:
    client = Worker(ROUTED).connect(1)
    assert purge(client) == [m.QueuePurgeOk(0)]
    assert purge(client) == [m.QueuePurgeOk(0)]


def test_a_purge_goes_on_until_nothing_is_there() -> None:
    worker = Worker(ROUTED)
    purging, publishing = worker.connect(1), worker.connect(1)
    count = 2 * PURGE_CREDIT + 10
    for _ in range(count):
        publishing.publish(1, b"")
    assert purge(purging) == [m.QueuePurgeOk(count)]


def test_a_purge_leaves_consumers_what_they_have_room_for() -> None:
    worker = Worker(ROUTED)
    purging, consuming, publishing = worker.connect(1), worker.connect(1), worker.connect(1)
    consuming.send(1, m.BasicQos(prefetch_count=2), m.BasicConsume(queue="q", consumer_tag="c"))
    consuming.methods()
    purging.send(1, m.QueuePurge(queue="q"))
    for number in range(5):
        publishing.publish(1, b"%d" % number)
    purging.wait(PURGE_SECONDS)
    assert purging.methods() == [m.QueuePurgeOk(3)]
    assert [one.body for one in consuming.methods() if isinstance(one, Content)] == [b"0", b"1"]


def test_a_purge_without_a_route_is_not_found() -> None:
    client = Worker(Route(address="other")).connect(1)
    [closed] = purge(client)
    assert isinstance(closed, m.ChannelClose)
    assert (closed.reply_code, closed.class_id, closed.method_id) == (404, 50, 30)
    assert client.engine.purges == []


def test_a_multicast_address_has_nothing_to_be_purged() -> None:
    worker = Worker(Route(address="q", distribution=Distribution.MULTICAST))
    purging, consuming, publishing = worker.connect(1), worker.connect(1), worker.connect(1)
    consuming.send(1, m.BasicConsume(queue="q", consumer_tag="c"))
    consuming.methods()
    purging.send(1, m.QueuePurge(queue="q"))
    assert purging.methods() == [m.QueuePurgeOk(0)]
    publishing.publish(1, b"for whoever listens")
    assert len(consuming.methods()) == 1


def test_a_purge_that_is_fed_without_end_ends() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.QueuePurge(queue="q"))
    link = peer.accept()
    octets = content(Properties(), b"")
    count = 0
    while not (answers := peer.methods()):
        peer.wait(LONGEST_SECONDS / 4)
        tag, numbers = DeliveryTag(b"t"), range(count, count + PURGE_CREDIT)
        deliveries = [OutgoingDelivery(DeliveryNumber(each), tag, octets) for each in numbers]
        peer.do(SendDeliveries(link, deliveries), ReturnCredit(link))
        count += PURGE_CREDIT
    assert answers == [m.QueuePurgeOk(count)]
    assert count <= 5 * PURGE_CREDIT


@pytest.mark.parametrize("is_told", [True, False])
def test_a_purge_ends_with_its_connection(is_told: bool) -> None:
    worker = Worker(ROUTED)
    purging, publishing = worker.connect(1), worker.connect(1)
    purging.send(1, m.QueuePurge(queue="q"))
    if is_told:
        purging.send(0, m.ConnectionClose())
    purging.lose()
    assert purging.engine.purges == []
    publishing.publish(1, b"stays")
    publishing.send(1, m.BasicGet(queue="q"))
    [got] = publishing.methods()
    assert isinstance(got, Content)


def test_a_purge_whose_link_is_taken_away_closes_the_channel() -> None:
    worker = Worker(ROUTED)
    client = worker.connect(1)
    client.send(1, m.QueuePurge(queue="q"))
    worker.configure(Route(address="other"))
    [closed] = client.methods()
    assert isinstance(closed, m.ChannelClose)
    assert (closed.class_id, closed.method_id) == (50, 30)
    assert client.engine.purges == []
