"""What is asked of a client's own queue counts what its channel has published to it before."""

import random
from typing import Any

import pytest

from router.model.events import Event
from router.routes.route import Distribution, Route, Unroutable
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.queues import LOCAL_CREDIT
from tests.support.basic_peer import Content
from tests.support.basic_worker import Worker, WorkerClient

ROUTED = Route(address="q")
SUBSCRIBED = Route(address="news.*", distribution=Distribution.MULTICAST)
SHARED = Route(address="q", distribution=Distribution.MULTICAST)


class LateClient(WorkerClient):
    """A client whose connection is looked at again only some time after the core's commands.

    What these bring about waits until then, as behind a real socket; what the client says meanwhile
    comes first.
    """

    def feed(self, octets: bytes) -> list[Event]:
        events = self.engine.receive_data(octets, self.now)
        self.worker.happened(self.id, events)
        return events

    def carry_out(self, commands: list[Any]) -> list[Event]:
        for command in commands:
            self.engine.execute(command)
        return []

    def settle(self) -> None:
        """Looks at the connection until nothing is left to do."""
        while (deadline := self.engine.deadline) is not None and deadline <= self.now:
            self.worker.happened(self.id, self.engine.handle_deadline(self.now))


def connect(worker: Worker, *channels: int) -> LateClient:
    """A client with channels, whose engine is looked at late."""
    plain = worker.connect(*channels or (1,))
    late = LateClient(worker, plain.id)
    late.engine = plain.engine
    worker.clients[plain.id] = late
    return late


def octets_of(client: WorkerClient, *methods: m.Method) -> bytes:
    """Frames of methods; a publish has a body of one octet."""
    found = b""
    for each in methods:
        if isinstance(each, m.BasicPublish):
            found += client.content(1, each, b"x")
        else:
            found += client.framing.frame(1, 1, client.codec.encode(each))
    return found


PUBLISH = m.BasicPublish(routing_key="q")
NEWS = m.BasicPublish(exchange="news.eu", routing_key="any")
DECLARE = m.QueueDeclare(queue="q", passive=True)
EXCLUSIVE = {"exclusive": True}
AUTO_DELETE = {"auto_delete": True}


def said(client: WorkerClient) -> list[m.Method | bytes]:
    """What the client got, without answers that say nothing; contents are their bodies."""
    return [
        one.body if isinstance(one, Content) else one
        for one in client.methods()
        if one is not None and not isinstance(one, m.BasicAck)
    ]


# --- the moments at which it went wrong -----------------------------------------------------------


@pytest.mark.parametrize("options", [EXCLUSIVE, AUTO_DELETE])
@pytest.mark.parametrize("routes", [(), (ROUTED,), (SHARED,)], ids=["unrouted", "direct", "copies"])
def test_all_of_it_in_one_piece_is_counted(
    options: dict[str, Any], routes: tuple[Route, ...]
) -> None:
    client = connect(Worker(*routes))
    declare = m.QueueDeclare(queue="q", **options)
    client.feed(octets_of(client, declare, PUBLISH, DECLARE, m.QueuePurge(queue="q")))
    client.settle()
    first, second, purged = said(client)
    assert first == m.QueueDeclareOk("q", 0, 0)
    assert second == m.QueueDeclareOk("q", 1, 0)
    assert purged == m.QueuePurgeOk(1)
    client.feed(octets_of(client, PUBLISH, m.QueueDelete(queue="q", if_empty=True)))
    client.settle()
    [refused] = said(client)
    assert isinstance(refused, m.ChannelClose)
    assert refused.reply_code == 406


def test_what_came_through_an_exchange_is_counted() -> None:
    client = connect(Worker(SUBSCRIBED))
    client.feed(
        octets_of(
            client,
            m.ExchangeDeclare(exchange="news.eu", type="fanout"),
            m.QueueDeclare(queue="q", exclusive=True),
            m.QueueBind(queue="q", exchange="news.eu"),
            NEWS,
            PUBLISH,
            DECLARE,
            m.QueuePurge(queue="q"),
            NEWS,
            m.QueueDelete(queue="q"),
        )
    )
    client.settle()
    *_, declared, purged, deleted = said(client)
    assert declared == m.QueueDeclareOk("q", 2, 0)
    assert purged == m.QueuePurgeOk(2)
    assert deleted == m.QueueDeleteOk(1)


def test_what_no_binding_takes_is_not_counted() -> None:
    client = connect(Worker(SUBSCRIBED))
    arguments = {"x-match": "all", "colour": "red"}
    client.feed(
        octets_of(
            client,
            m.ExchangeDeclare(exchange="news.eu", type="headers"),
            m.QueueDeclare(queue="q", exclusive=True),
            m.QueueBind(queue="q", exchange="news.eu", arguments=arguments),
            NEWS,
            DECLARE,
        )
    )
    client.settle()
    assert said(client)[-1] == m.QueueDeclareOk("q", 0, 0)


@pytest.mark.parametrize("confirms", [True, False])
def test_more_than_the_queue_has_credit_for_is_counted(*, confirms: bool) -> None:
    client = connect(Worker())
    many = 3 * LOCAL_CREDIT + 7
    asked = [m.ConfirmSelect()] if confirms else []
    client.feed(
        octets_of(
            client,
            *asked,
            m.QueueDeclare(queue="q", exclusive=True),
            *[PUBLISH] * many,
            DECLARE,
            m.BasicGet(queue="q", no_ack=True),
            m.QueuePurge(queue="q"),
            PUBLISH,
            m.QueueDelete(queue="q"),
        )
    )
    client.settle()
    assert [one for one in said(client) if not isinstance(one, m.ConfirmSelectOk)] == [
        m.QueueDeclareOk("q", 0, 0),
        m.QueueDeclareOk("q", many, 0),
        b"x",
        m.QueuePurgeOk(many - 1),
        m.QueueDeleteOk(1),
    ]


def test_what_stands_behind_a_publish_that_nobody_receives_is_counted_without_waiting() -> None:
    client = connect(Worker(Route(address="nobody")))
    client.feed(
        octets_of(
            client,
            m.QueueDeclare(queue="q", exclusive=True),
            m.BasicPublish(routing_key="nobody"),
            PUBLISH,
            PUBLISH,
            DECLARE,
            m.QueuePurge(queue="q"),
            PUBLISH,
            m.QueueDelete(queue="q", if_empty=True),
        )
    )
    client.settle()
    _, declared, purged, refused = said(client)
    assert declared == m.QueueDeclareOk("q", 2, 0)
    assert purged == m.QueuePurgeOk(2)
    assert isinstance(refused, m.ChannelClose)


def test_publishes_of_two_channels_are_counted_each_by_its_own() -> None:
    worker = Worker()
    client = connect(worker, 1, 2)
    client.feed(octets_of(client, m.QueueDeclare(queue="q", exclusive=True), PUBLISH))
    client.settle()
    client.methods()
    other = client.content(2, PUBLISH, b"x")
    other += client.framing.frame(1, 2, client.codec.encode(DECLARE))
    client.feed(octets_of(client, PUBLISH, DECLARE) + other)
    client.settle()
    declared = dict(client.received())
    assert isinstance(declared[1], m.QueueDeclareOk)
    assert declared[1].message_count >= 2
    assert declared[2] == m.QueueDeclareOk("q", 3, 0)


def test_an_address_published_to_many_others_ago_is_counted() -> None:
    """The link to the queue has made room for others by then."""
    client = connect(Worker(Route(address="other.#", unroutable=Unroutable.REJECT)))
    others = [m.BasicPublish(routing_key=f"other.{number}") for number in range(100)]
    declare = m.QueueDeclare(queue="q", exclusive=True)
    client.feed(octets_of(client, declare, PUBLISH, *others, DECLARE))
    client.settle()
    assert said(client)[-1] == m.QueueDeclareOk("q", 1, 0)


# --- any conversation -----------------------------------------------------------------------------


class Model:
    """A queue as it should be."""

    def __init__(self) -> None:
        self.count = 0
        self.expected: list[Any] = []

    def do(self, method: m.Method) -> None:
        """Takes a method, and notes what should be answered."""
        match method:
            case m.BasicPublish():
                self.count += 1
            case m.QueueDeclare():
                self.expected.append(m.QueueDeclareOk("q", self.count, 0))
            case m.QueuePurge():
                self.expected.append(m.QueuePurgeOk(self.count))
                self.count = 0
            case m.QueueDelete():
                self.expected.append(m.QueueDeleteOk(self.count))
                self.count = 0
            case m.BasicGet():
                self.expected.append(b"x" if self.count else m.BasicGetEmpty())
                self.count = max(0, self.count - 1)


@pytest.mark.parametrize("seed", range(40))
def test_any_conversation_is_answered_as_by_a_queue(seed: int) -> None:
    dice = random.Random(seed)
    options: dict[str, Any] = dice.choice([EXCLUSIVE, AUTO_DELETE])
    routes: tuple[Route, ...] = dice.choice([(), (ROUTED,), (SHARED,)])
    client = connect(Worker(*routes, SUBSCRIBED))
    declare = m.QueueDeclare(queue="q", **options)
    start: list[m.Method] = [m.ExchangeDeclare(exchange="news.eu", type="fanout"), declare]
    is_bound = dice.random() < 0.5
    bind = m.QueueBind(queue="q", exchange="news.eu")
    start += [bind] if is_bound else []
    start += [m.ConfirmSelect()] if dice.random() < 0.5 else []
    client.feed(octets_of(client, *start))
    if dice.random() < 0.5:
        client.settle()
    methods: list[m.Method] = [*[PUBLISH, NEWS if is_bound else PUBLISH] * 3, *[DECLARE] * 2]
    methods += [m.QueuePurge(queue="q"), m.QueueDelete(queue="q")]
    methods += [m.BasicGet(queue="q", no_ack=True)] * 2
    model = Model()
    for _ in range(60):
        piece: list[m.Method] = []
        for _ in range(dice.randint(1, 4)):
            method = dice.choice(methods)
            piece.append(method)
            model.do(method)
            if isinstance(method, m.QueueDelete):
                piece.append(declare)
                model.expected.append(m.QueueDeclareOk("q", 0, 0))
                piece += [bind] if is_bound else []
        octets = octets_of(client, *piece)
        cut = dice.randrange(len(octets))
        client.feed(octets[:cut])
        if dice.random() < 0.3:
            client.settle()
        client.feed(octets[cut:])
        if dice.random() < 0.3:
            client.settle()
    client.settle()
    told = (m.ExchangeDeclareOk, m.QueueBindOk, m.ConfirmSelectOk)
    answers = [one for one in said(client) if not isinstance(one, told)]
    assert answers == [m.QueueDeclareOk("q", 0, 0), *model.expected]
