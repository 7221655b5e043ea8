"""What a publisher leaves behind that asked for no confirms, on a real core."""

import attrs
import pytest

from router.model.events import DeliveriesUpdated
from router.routes.route import Guarantee, InDoubt, Route
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.content import Properties
from tests.support.basic_peer import Content
from tests.support.basic_worker import Worker, WorkerClient

ROUTED = Route(address="q")
EXACT = Route(address="q", guarantee=Guarantee.EXACTLY_ONCE)
RESEND = attrs.evolve(EXACT, in_doubt=InDoubt.RESEND)
CONSUME = m.BasicConsume(queue="q", consumer_tag="c")
LEAVING = [m.ChannelClose(reply_code=200), None]


def deliveries(client: WorkerClient) -> list[tuple[int, bytes, bool]]:
    """Tag and body of what has come, and whether it had come before."""
    return [
        (one.method.delivery_tag, one.body, one.method.redelivered)
        for one in client.methods()
        if isinstance(one, Content) and isinstance(one.method, m.BasicDeliver)
    ]


def leave(client: WorkerClient, close: m.ChannelClose | None) -> None:
    """Ends the channel in order, or loses the connection."""
    if close is None:
        client.lose()
    else:
        client.send(1, close)


@pytest.mark.parametrize("close", LEAVING)
@pytest.mark.parametrize("is_mandatory", [True, False])
def test_what_is_under_way_is_the_routers_when_its_publisher_has_left(
    close: m.ChannelClose | None, is_mandatory: bool
) -> None:
    worker = Worker(ROUTED)
    consumer, publisher = worker.connect(1), worker.connect(1)
    consumer.send(1, CONSUME)
    publisher.publish(1, b"x", mandatory=is_mandatory)
    [(tag, _, _)] = deliveries(consumer)
    leave(publisher, close)
    for again in (2, 3):  # nobody else is there
        consumer.send(1, m.BasicNack(tag, requeue=True))
        [(tag, body, redelivered)] = deliveries(consumer)
        assert (tag, body, redelivered) == (again, b"x", True)
    other = worker.connect(1)
    other.send(1, CONSUME)
    consumer.lose()
    assert deliveries(other) == [(1, b"x", True)]


@pytest.mark.parametrize("close", LEAVING)
def test_what_was_mandatory_before_confirms_were_asked_for_is_the_routers_too(
    close: m.ChannelClose | None,
) -> None:
    worker = Worker(ROUTED)
    consumer, publisher = worker.connect(1), worker.connect(1)
    consumer.send(1, m.BasicQos(prefetch_count=2), CONSUME)
    for body in (b"1", b"2", b"3"):  # the third waits with its publisher
        publisher.publish(1, body, mandatory=True)
    publisher.send(1, m.ConfirmSelect())
    assert len(deliveries(consumer)) == 2
    leave(publisher, close)
    publisher.wait(30)  # a close waits for what may still come back
    consumer.send(1, m.BasicNack(2, multiple=True, requeue=True))
    assert {body for _, body, _ in deliveries(consumer)} == {b"1", b"2"}
    consumer.send(1, m.BasicAck(0, multiple=True))
    assert [body for _, body, _ in deliveries(consumer)] == [b"3"]


@pytest.mark.parametrize("route", [ROUTED, EXACT], ids=["usual", "exactly once"])
def test_what_a_consumer_gives_back_comes_again_though_it_was_mandatory(route: Route) -> None:
    worker = Worker(route)
    consumer, publisher = worker.connect(1), worker.connect(1)
    consumer.send(1, CONSUME)
    for body in (b"1", b"2", b"3"):
        publisher.publish(1, body, mandatory=True)
    assert len(deliveries(consumer)) == 3
    for last in (3, 6):  # again and again
        consumer.send(1, m.BasicNack(last, multiple=True, requeue=True))
        publisher.wait(0)
        given = [(body, redelivered) for _, body, redelivered in deliveries(consumer)]
        assert given == [(b"1", True), (b"2", True), (b"3", True)]


@pytest.mark.parametrize("close", LEAVING)
def test_what_was_given_back_and_waits_is_left_to_the_router(close: m.ChannelClose | None) -> None:
    worker = Worker(ROUTED)
    consumer, publisher = worker.connect(1), worker.connect(1)
    consumer.send(1, CONSUME)
    publisher.publish(1, b"1", mandatory=True)
    consumer.lose()
    leave(publisher, close)
    other = worker.connect(1)
    other.send(1, CONSUME)
    assert deliveries(other) == [(1, b"1", True)]


def test_what_is_rejected_or_has_expired_does_not_come_again() -> None:
    worker = Worker(ROUTED)
    consumer, publisher = worker.connect(1), worker.connect(1)
    consumer.send(1, m.BasicQos(prefetch_count=1), CONSUME)
    publisher.publish(1, b"1", mandatory=True)
    publisher.publish(1, b"2", mandatory=True, properties=Properties(expiration="1000"))
    publisher.wait(2)
    consumer.send(1, m.BasicReject(1, requeue=False))
    publisher.wait(2)
    assert [body for _, body, _ in deliveries(consumer)] == [b"1"]
    publisher.publish(1, b"3", mandatory=True)
    assert [body for _, body, _ in deliveries(consumer)] == [b"3"]


def test_what_a_confirm_or_commit_was_waited_for_is_not() -> None:
    worker = Worker(ROUTED)
    consumer = worker.connect(1)
    consumer.send(1, CONSUME)
    for select, commit in ((m.ConfirmSelect(), ()), (m.TxSelect(), (m.TxCommit(),))):
        publisher = worker.connect(1)
        publisher.send(1, select)
        publisher.publish(1, b"x", mandatory=True)
        publisher.send(1, *commit)
        [(tag, _, _)] = deliveries(consumer)
        publisher.lose()
        consumer.send(1, m.BasicNack(tag, requeue=True))
        assert deliveries(consumer) == []


def test_a_mandatory_publish_that_was_answered_is_left_to_nobody() -> None:
    worker = Worker(ROUTED)
    consumer, publisher = worker.connect(1), worker.connect(1)
    consumer.send(1, CONSUME)
    publisher.publish(1, b"x", mandatory=True)
    [(tag, _, _)] = deliveries(consumer)
    consumer.send(1, m.BasicAck(tag))
    events = publisher.send(1, m.ChannelClose(reply_code=200))
    assert not any(isinstance(event, DeliveriesUpdated) for event in events)


def test_on_exactly_once_routes_what_is_under_way_goes_on_to_its_end_alone() -> None:
    """Its receiver knows it by a tag of its sender's, which must stay what it is."""
    worker = Worker(EXACT)
    consumer, publisher = worker.connect(1), worker.connect(1)
    consumer.send(1, CONSUME)
    publisher.publish(1, b"x", mandatory=True)
    assert len(deliveries(consumer)) == 1
    events = publisher.send(1, m.ChannelClose(reply_code=200))
    assert not any(isinstance(event, DeliveriesUpdated) for event in events)


@pytest.mark.parametrize(
    ("route", "come"),
    [(ROUTED, [(1, b"x", True)]), (RESEND, [(1, b"x", True)]), (EXACT, [])],
    ids=["usual", "resend", "exactly once"],
)
def test_what_a_lost_consumer_had_goes_on_unless_it_is_in_doubt(
    route: Route, come: list[tuple[int, bytes, bool]]
) -> None:
    worker = Worker(route)
    lost, publisher, other = worker.connect(1), worker.connect(1), worker.connect(1)
    lost.send(1, CONSUME)
    publisher.publish(1, b"x")
    assert deliveries(lost) == [(1, b"x", False)]
    lost.lose()
    other.send(1, CONSUME)
    assert deliveries(other) == come
    publisher.publish(1, b"y")
    assert [body for _, body, _ in deliveries(other)] == [b"y"]


@pytest.mark.parametrize("route", [ROUTED, EXACT, RESEND], ids=["usual", "exactly once", "resend"])
@pytest.mark.parametrize("channel", [0, 1])
def test_what_a_consumer_had_that_closes_in_order_goes_on_whatever_is_promised(
    route: Route, channel: int
) -> None:
    worker = Worker(route)
    leaving, publisher, other = worker.connect(1), worker.connect(1), worker.connect(1)
    leaving.send(1, CONSUME)
    publisher.publish(1, b"x")
    assert len(deliveries(leaving)) == 1
    close = m.ChannelClose(reply_code=200) if channel else m.ConnectionClose(reply_code=200)
    leaving.send(channel, close)
    other.send(1, CONSUME)
    assert deliveries(other) == [(1, b"x", True)]
