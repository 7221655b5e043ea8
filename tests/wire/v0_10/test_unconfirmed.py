"""What a session took with accept-mode none, or released, on a real core: it goes to the next."""

import itertools
from collections import deque
from collections.abc import Sequence

import pytest

from router.core.core import Core
from router.core.settings import CoreSettings
from router.model.events import Event
from router.model.identity import ConnectionId, LinkId
from router.routes.route import Guarantee, Route
from router.routes.table import RoutingTable
from router.wire.engine import EngineSettings
from router.wire.v0_10 import message as messages
from router.wire.v0_10 import records as r
from router.wire.v0_10.server import ServerEngine
from tests.support.peer_0_10 import Peer, Transfer

ORDERS = Route(address="orders")
NONE, EXPLICIT = 1, 0


class Worker:
    """A core and the engines of those who are connected."""

    def __init__(self, *routes: Route) -> None:
        self.links = map(LinkId, itertools.count(1))
        self.core = Core(CoreSettings(router_id="dc1"), RoutingTable(routes), self.links)
        self.clients: dict[ConnectionId, Client] = {}

    def connect(self) -> "Client":
        client = Client(self, ConnectionId(len(self.clients) + 1))
        self.clients[client.id] = client
        client.open()
        client.attach(b"s%d" % client.id)
        return client

    def happened(self, connection: ConnectionId, events: Sequence[Event]) -> None:
        waiting = deque([(connection, events)])
        while waiting:
            who, events = waiting.popleft()
            for each, command in self.core.handle(who, events, 1.0):
                engine = self.clients[each].engine
                engine.execute(command)
            for each, client in self.clients.items():
                due = client.engine.deadline
                if due is not None and due <= client.now:
                    more = client.engine.handle_deadline(client.now)
                    if more:
                        waiting.append((each, more))

    @property
    def octets(self) -> int:
        return self.core._registry.process.used


class Client(Peer):
    """A client, opposite the worker."""

    def __init__(self, worker: Worker, connection: ConnectionId) -> None:
        settings = EngineSettings(is_server=True, container="dc1", link_ids=worker.links)
        super().__init__(ServerEngine(settings))
        self.worker, self.id, self.now = worker, connection, 1.0

    def take(self, events: list[Event]) -> list[Event]:
        self.worker.happened(self.id, events)
        return events

    def lose(self) -> None:
        self.worker.happened(self.id, self.engine.receive_eof(self.now))

    def got(self) -> list[tuple[bytes, bool]]:
        """Bodies of what came, and whether they were marked as redelivered."""
        return [(each.body, _is_again(each)) for each in self.said(Transfer)]


def _is_again(transfer: Transfer) -> bool:
    _, told = messages.routing_of(transfer.header)
    return told is not None and told.redelivered


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
