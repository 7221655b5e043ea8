"""Direct reply-to, on a real core: answers that come to a channel without a queue."""

from typing import Any

from router.routes.route import Distribution, Route
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.content import Properties
from router.wire.v0_9_1.names import DIRECT_REPLIES
from tests.support.basic_peer import Content
from tests.support.basic_worker import Worker, WorkerClient

CALLS = Route(address="calls")
EVERYTHING = Route(address="#", distribution=Distribution.MULTICAST)
CONSUME = m.BasicConsume(queue=DIRECT_REPLIES, consumer_tag="answers", no_ack=True)
ASKING = Properties(reply_to=DIRECT_REPLIES, correlation_id="7", headers={"h": 1})


def contents(client: WorkerClient) -> list[Content]:
    return [one for one in client.methods() if isinstance(one, Content)]


def asking(worker: Worker) -> WorkerClient:
    """A client that awaits answers on channel 1."""
    client = worker.connect(1, 2)
    client.send(1, CONSUME)
    assert client.methods() == [m.BasicConsumeOk("answers")]
    return client


def serving(worker: Worker) -> WorkerClient:
    client = worker.connect(1)
    client.send(1, m.BasicConsume(queue="calls", consumer_tag="c", no_ack=True))
    client.methods()
    return client


def code(client: WorkerClient) -> int:
    closed = client.methods()[-1]
    assert isinstance(closed, m.ChannelClose)
    return closed.reply_code


def test_answers_come_to_the_channel_that_asked() -> None:
    worker = Worker(CALLS)
    client, server = asking(worker), serving(worker)
    for number in range(3):
        client.publish(1, b"%d" % number, routing_key="calls", properties=ASKING)
        [call] = contents(server)
        assert call.properties.correlation_id == "7"
        assert call.properties.headers == {"h": 1}
        answer_to = call.properties.reply_to
        assert answer_to is not None
        assert answer_to != DIRECT_REPLIES
        server.publish(1, b"answer", routing_key=answer_to, mandatory=True)
        [answer] = contents(client)
        assert isinstance(answer.method, m.BasicDeliver)
        assert answer.method.consumer_tag == "answers"
        assert answer.body == b"answer"
    assert server.methods() == []  # nothing came back


def test_each_channel_has_answers_of_its_own() -> None:
    worker = Worker(CALLS)
    client, server = asking(worker), serving(worker)
    client.send(2, CONSUME)
    client.methods()
    for number in (1, 2):
        client.publish(number, b"call", routing_key="calls", properties=ASKING)
    addresses = [call.properties.reply_to for call in contents(server)]
    for address in reversed(addresses):
        assert address is not None
        server.publish(1, address.encode(), routing_key=address)
    got = {
        number: one.body.decode() for number, one in client.received() if isinstance(one, Content)
    }
    assert got == {1: addresses[0], 2: addresses[1]}
    assert len(set(addresses)) == 2


def test_a_name_that_only_looks_like_it_is_left_alone() -> None:
    worker = Worker(CALLS)
    client, server = asking(worker), serving(worker)
    told = Properties(reply_to="elsewhere", correlation_id=DIRECT_REPLIES)
    for _ in range(2):
        client.publish(1, b"call", routing_key="calls", properties=told)
        assert [call.properties for call in contents(server)] == [told]


def test_who_asks_has_to_listen() -> None:
    worker = Worker(CALLS)
    client = worker.connect(1)
    client.publish(1, b"no question", routing_key="calls")
    client.publish(1, b"no question", routing_key="calls")
    client.publish(1, b"call", routing_key="calls", properties=ASKING)
    assert code(client) == 406
    client = asking(worker)
    client.send(1, m.BasicCancel(consumer_tag="answers"))
    client.methods()
    client.publish(1, b"call", routing_key="calls", properties=ASKING)
    assert code(client) == 406


def test_answers_to_who_has_gone_come_back_if_mandatory() -> None:
    worker = Worker(CALLS)
    client, server = asking(worker), serving(worker)
    client.publish(1, b"call", routing_key="calls", properties=ASKING)
    [call] = contents(server)
    client.send(1, m.ChannelClose())
    server.publish(1, b"late", routing_key=str(call.properties.reply_to), mandatory=True)
    [returned] = contents(server)
    assert isinstance(returned.method, m.BasicReturn)
    server.send(1, m.QueueDeclare(queue=str(call.properties.reply_to), passive=True))
    assert code(server) == 404


def test_answers_are_consumed_once_and_without_acknowledgments() -> None:
    client = asking(Worker())
    again: dict[str, Any] = {"queue": DIRECT_REPLIES, "consumer_tag": "again"}
    client.send(1, m.BasicConsume(no_ack=True, **again))
    assert code(client) == 406
    client.send(2, m.BasicConsume(**again))
    assert code(client) == 406


def test_the_name_is_there_and_is_no_address() -> None:
    worker = Worker(EVERYTHING)
    client = worker.connect(1)
    client.send(1, m.QueueDeclare(queue=DIRECT_REPLIES, passive=True))
    assert client.methods() == [m.QueueDeclareOk(DIRECT_REPLIES, 0, 0)]
    client.publish(1, b"x", routing_key=DIRECT_REPLIES, mandatory=True)
    [returned] = contents(client)
    assert isinstance(returned.method, m.BasicReturn)
    assert returned.method.reply_code == 312
