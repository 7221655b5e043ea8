"""What a session took with accept-mode none, or released, on a real core: it goes to the next."""

import attrs
import pytest

from router.routes.route import Guarantee, Route
from router.wire.v0_10 import records as r
from tests.support.peer_0_10 import Transfer
from tests.support.worker_0_10 import JournaledWorker, Worker

ORDERS = Route(address="orders")
NONE, EXPLICIT = 1, 0


@pytest.mark.parametrize("mode", [NONE, None])
def test_what_a_lost_subscriber_had_goes_to_the_next_redelivered(mode: int | None) -> None:
    worker = Worker(ORDERS)
    first, publisher = worker.connect(), worker.connect()
    first.subscribe("orders")
    publisher.publish("orders", b"one", mode=mode)
    assert first.got() == [(b"one", False)]
    first.lose()
    second = worker.connect()
    second.subscribe("orders")
    assert second.got() == [(b"one", True)]


@pytest.mark.parametrize("ends", ["detach", "loss"])
def test_it_outlives_the_session_that_brought_it_and_that_which_had_it(ends: str) -> None:
    worker = Worker(ORDERS)
    first, publisher = worker.connect(), worker.connect()
    first.subscribe("orders")
    publisher.publish("orders", b"one", mode=NONE)
    assert publisher.said(r.SessionCompleted)
    publisher.lose()
    if ends == "loss":
        first.lose()
    else:
        first.control(r.SessionDetach(b"s%d" % first.id))
    second = worker.connect()
    second.subscribe("orders")
    assert second.got() == [(b"one", True)]
    second.command(r.MessageAccept(((0, 0),)))
    assert worker.octets == 0


@pytest.mark.parametrize("is_received", [True, False])
def test_exactly_once_it_is_complete_when_that_is_durable(is_received: bool) -> None:
    worker = JournaledWorker(attrs.evolve(ORDERS, guarantee=Guarantee.EXACTLY_ONCE))
    publisher = worker.connect()
    if is_received:
        worker.connect().subscribe("orders")
    publisher.publish("orders", b"one", mode=NONE)
    publisher.publish("orders", b"two", mode=NONE)
    assert not publisher.said(r.SessionCompleted)
    worker.flush()
    worker.flush()  # the second came when the first was asked about
    assert publisher.said(r.SessionCompleted)[-1].commands == ((0, 1),)
    publisher.publish("orders", b"three", mode=NONE)
    assert not publisher.said(r.SessionCompleted)
    worker.flush()
    assert publisher.said(r.SessionCompleted)[-1].commands == ((0, 2),)


def test_at_most_once_it_ends_with_the_session_that_had_it() -> None:
    worker = Worker(Route(address="orders", guarantee=Guarantee.AT_MOST_ONCE))
    first, publisher = worker.connect(), worker.connect()
    first.subscribe("orders")
    publisher.publish("orders", b"one", mode=NONE)
    first.lose()
    assert worker.octets == 0


@pytest.mark.parametrize("redelivered", [True, False])
@pytest.mark.parametrize("mode", [EXPLICIT, NONE, None])
def test_what_a_subscriber_releases_goes_to_the_next_before_its_publisher_hears(
    mode: int | None, redelivered: bool
) -> None:
    worker = Worker(ORDERS)
    first, second, publisher = worker.connect(), worker.connect(), worker.connect()
    first.subscribe("orders")
    second.subscribe("orders")
    publisher.publish("orders", b"one", mode=mode)
    publisher.read()
    assert first.got() == [(b"one", False)]
    first.command(r.MessageRelease(((0, 0),), redelivered))
    assert second.got() == [(b"one", redelivered)]
    assert not publisher.said(r.MessageRelease)
    second.command(r.MessageAccept(((0, 0),)))
    told = [each for _, each in publisher.read()]
    assert (r.MessageAccept(((0, 0),)) in told) is (mode == EXPLICIT)


@pytest.mark.parametrize("mode", [EXPLICIT, NONE, None])
def test_so_it_does_among_the_subscriptions_of_one_sessions_own_queue(mode: int | None) -> None:
    worker = Worker(ORDERS)
    client, publisher = worker.connect(), worker.connect()
    client.command(r.QueueDeclare(queue="orders", auto_delete=True))
    for name in ("a", "b", "c"):
        client.command(
            r.MessageSubscribe(queue="orders", destination=name, accept_mode=0, acquire_mode=0),
            r.MessageFlow(name, 1, None),
            r.MessageFlow(name, 0, 10),
        )
    publisher.publish("orders", b"one", mode=mode)
    publisher.read()
    places = []
    for number in range(3):
        (transfer,) = client.said(Transfer)
        places.append(transfer.command.destination)
        if number < 2:
            client.command(r.MessageRelease(((number, number),), True))
            assert not publisher.said(r.MessageRelease)
    assert sorted(places) == ["a", "b", "c"]
    client.command(r.MessageAccept(((2, 2),)))
    assert worker.octets == 0
    told = [each for _, each in publisher.read()]
    assert (r.MessageAccept(((0, 0),)) in told) is (mode == EXPLICIT)


def test_a_publisher_hears_when_all_subscriptions_of_a_queue_have_released_it() -> None:
    worker = Worker(ORDERS)
    client, publisher = worker.connect(), worker.connect()
    client.command(r.QueueDeclare(queue="orders", auto_delete=True))
    for name in ("a", "b"):
        client.command(
            r.MessageSubscribe(queue="orders", destination=name, accept_mode=0, acquire_mode=0),
            r.MessageFlow(name, 1, None),
            r.MessageFlow(name, 0, 10),
        )
    publisher.publish("orders", b"one")
    publisher.read()
    client.command(r.MessageRelease(((0, 0),)))
    client.command(r.MessageRelease(((1, 1),)))
    assert publisher.said(r.MessageRelease) == [r.MessageRelease(((0, 0),))]
    assert worker.octets == 0


def test_what_the_last_of_several_subscriptions_has_released_waits_for_no_one_that_has_left() -> (
    None
):
    worker = Worker(ORDERS)
    client, publisher = worker.connect(), worker.connect()
    client.command(r.QueueDeclare(queue="orders", auto_delete=True))
    for name, credit in (("a", 10), ("b", 0)):
        client.command(
            r.MessageSubscribe(queue="orders", destination=name, accept_mode=0, acquire_mode=0),
            r.MessageFlow(name, 1, None),
            r.MessageFlow(name, 0, credit),
        )
    publisher.publish("orders", b"one")
    publisher.read()
    client.command(r.MessageRelease(((0, 0),)))
    assert not publisher.said(r.MessageRelease)
    client.command(r.MessageCancel("b"))
    client.command(r.MessageFlow("a", 0, 10))
    assert publisher.said(r.MessageRelease) == [r.MessageRelease(((0, 0),))]


def test_exactly_once_a_commit_is_complete_when_all_outcomes_are_durable() -> None:
    worker = JournaledWorker(attrs.evolve(ORDERS, guarantee=Guarantee.EXACTLY_ONCE))
    subscriber, publisher = worker.connect(), worker.connect()
    subscriber.subscribe("orders")
    publisher.command(r.TxSelect())
    publisher.publish("orders", b"one")
    publisher.command(r.TxCommit(), sync=True)
    worker.flush()
    assert subscriber.got() == [(b"one", False)]
    subscriber.command(r.MessageAccept(((0, 0),)))
    assert ((0, 2),) not in [each.commands for each in publisher.said(r.SessionCompleted)]
    worker.flush()
    assert publisher.said(r.SessionCompleted)[-1].commands == ((0, 2),)
