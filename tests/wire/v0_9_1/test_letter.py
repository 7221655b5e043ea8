"""What 0-9-1 says to the letter, on a real core: existence, exclusiveness, equivalence, limits."""

from typing import Any

import pytest

from router.routes.route import Distribution, Route, Unroutable
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.content import Properties
from router.wire.v0_9_1.framing import BODY
from tests.support.basic_peer import BrokerPeer, ClientPeer, Content
from tests.support.basic_worker import Worker, WorkerClient

ROUTED = Route(address="q")
LOGS = Route(address="logs.#", distribution=Distribution.MULTICAST)


def code(client: ClientPeer) -> int | None:
    """The code of the last thing that the client was told, if it ends something; goes on."""
    last = client.methods()[-1]
    if isinstance(last, m.ChannelClose):
        client.send(1, m.ChannelCloseOk(), m.ChannelOpen())
        client.methods()
    return last.reply_code if isinstance(last, m.ChannelClose | m.ConnectionClose) else None


def bodies(client: WorkerClient) -> list[bytes]:
    return [one.body for one in client.methods() if isinstance(one, Content)]


# --- existence ------------------------------------------------------------------------------------


def test_only_a_queue_that_is_there_can_be_bound_unbound_or_deleted() -> None:
    worker = Worker(ROUTED, LOGS)
    client, other = worker.connect(1), worker.connect(1)
    other.send(1, m.QueueDeclare(queue="theirs", exclusive=True))
    client.send(1, m.QueueDeclare(queue="mine", exclusive=True))
    for name, expected in (("q", None), ("mine", None), ("theirs", 404), ("nothing", 404)):
        client.send(1, m.QueueBind(queue=name, exchange="logs", routing_key="k"))
        assert code(client) == expected, name
        client.send(1, m.QueueUnbind(queue=name, exchange="logs", routing_key="k"))
        assert code(client) == expected, name
    for name, expected in (("mine", None), ("mine", 404), ("nothing", 404), ("q", 403)):
        client.send(1, m.QueueDelete(queue=name))
        assert code(client) == expected, name


def test_deleting_what_is_not_there_says_nothing_of_routes() -> None:
    client = Worker(ROUTED).connect(1)
    client.send(1, m.QueueDelete(queue="nothing"))
    [closed] = client.methods()
    assert isinstance(closed, m.ChannelClose)
    assert (closed.class_id, closed.method_id) == (50, 40)
    assert "route's address" not in closed.reply_text


def test_a_queue_that_the_server_named_can_be_bound_by_others() -> None:
    worker = Worker(LOGS)
    client, other = worker.connect(1), worker.connect(1)
    other.send(1, m.QueueDeclare())
    [declared] = other.methods()
    assert isinstance(declared, m.QueueDeclareOk)
    client.send(1, m.QueueBind(queue=declared.queue, exchange="logs", routing_key="k"))
    assert client.methods() == [m.QueueBindOk()]


def test_the_last_declared_queue_is_bound_by_its_name_if_no_key_is_given() -> None:
    client = Worker(LOGS).connect(1)
    client.send(
        1,
        m.QueueDeclare(queue="mine", exclusive=True),
        m.QueueBind(exchange="logs"),
        m.BasicConsume(queue="mine", consumer_tag="c", no_ack=True),
    )
    client.publish(1, b"heard", exchange="logs", routing_key="mine")
    assert bodies(client) == [b"heard"]
    client.send(1, m.QueueUnbind(exchange="logs"), m.ConfirmSelect())
    assert not client.engine.queues["mine"].bindings


def test_a_blank_exchange_name_means_the_default_exchange() -> None:
    client, other = (worker := Worker(ROUTED, Route(address="k"))).connect(1), worker.connect(1)
    client.send(1, m.QueueDeclare(queue="mine", exclusive=True))
    client.methods()
    for name, key in (("mine", "mine"), ("mine", ""), ("q", "q"), ("mine", "k"), ("mine", "k")):
        client.send(1, m.QueueBind(queue=name, exchange="", routing_key=key))
        assert client.methods() == [m.QueueBindOk()], (name, key)
    client.send(1, m.BasicConsume(queue="mine", consumer_tag="c", no_ack=True))
    other.publish(1, b"by another name", routing_key="k")
    client.publish(1, b"by its own", routing_key="mine")
    assert bodies(client) == [b"by another name", b"by its own"]
    client.send(1, m.QueueBind(queue="mine", exchange="", routing_key="nowhere"))
    assert code(client) == 404
    client.send(1, m.QueueUnbind(queue="mine", exchange="", routing_key="k"))
    assert client.methods() == [m.QueueUnbindOk()]
    client.send(1, m.QueueUnbind(queue="mine", exchange="", routing_key="mine"))
    assert code(client) == 403


@pytest.mark.parametrize("name", ["zero\0", "\0"])
def test_a_name_with_a_zero_octet_ends_the_connection(name: str) -> None:
    client = Worker(ROUTED).connect(1)
    client.send(1, m.QueueDeclare(queue=name, exclusive=True))
    assert code(client) == 502


# --- exclusiveness --------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"exclusive": True}, {"auto_delete": True}])
def test_an_exclusive_consumer_of_ones_own_queue_is_alone_until_it_leaves(
    options: dict[str, Any],
) -> None:
    client = Worker().connect(1, 2)
    client.send(2, m.QueueDeclare(queue="mine", **options))
    client.send(2, m.BasicConsume(queue="mine", consumer_tag="alone", exclusive=True))
    for exclusive in (False, True):
        client.send(1, m.BasicConsume(queue="mine", consumer_tag="too", exclusive=exclusive))
        assert code(client) == 403
    client.publish(1, b"1")
    if "exclusive" in options:  # the other one goes with its last consumer
        client.send(2, m.BasicCancel(consumer_tag="alone"))
        client.send(1, m.BasicConsume(queue="mine", consumer_tag="too"))
        assert code(client) is None


def test_who_is_not_alone_does_not_become_so() -> None:
    client = Worker().connect(1)
    client.send(1, m.QueueDeclare(queue="mine", exclusive=True))
    client.send(1, m.BasicConsume(queue="mine", consumer_tag="first"))
    client.send(1, m.BasicConsume(queue="mine", consumer_tag="alone", exclusive=True))
    assert code(client) == 403


def test_nobody_is_promised_to_be_alone_where_others_may_consume_elsewhere() -> None:
    client = Worker(ROUTED).connect(1)
    client.send(1, m.QueueDeclare(queue="q", auto_delete=True))
    client.send(1, m.BasicConsume(queue="q", consumer_tag="c", exclusive=True))
    assert code(client) == 403


# --- exchanges ------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["durable", "auto_delete", "internal"])
def test_an_exchange_declared_again_with_another_flag_is_refused(flag: str) -> None:
    client = Worker().connect(1)
    for first in (False, True):
        told: dict[str, Any] = {flag: first}
        client.send(1, m.ExchangeDeclare(exchange="e", type="topic", **told))
        assert client.methods() == [m.ExchangeDeclareOk()]
        client.send(1, m.ExchangeDeclare(exchange="e", type="topic", **told))
        assert client.methods() == [m.ExchangeDeclareOk()]
        other: dict[str, Any] = {flag: not first}
        client.send(1, m.ExchangeDeclare(exchange="e", type="topic", **other))
        assert code(client) == 406
        client.send(1, m.ExchangeDeclare(exchange="e", passive=True))
        assert client.methods() == [m.ExchangeDeclareOk()]
        client.send(1, m.ExchangeDelete(exchange="e"))
        client.methods()


def test_predeclared_exchanges_are_durable() -> None:
    client = Worker().connect(1)
    client.send(1, m.ExchangeDeclare(exchange="amq.topic", type="topic", durable=True))
    assert client.methods() == [m.ExchangeDeclareOk()]
    client.send(1, m.ExchangeDeclare(exchange="amq.topic", type="topic"))
    assert code(client) == 406


def test_a_declare_that_was_refused_declared_nothing() -> None:
    client = Worker().connect(1)
    refused = m.ExchangeDeclare(exchange="e", durable=True, arguments={"alternate-exchange": "x"})
    client.send(1, refused)
    assert code(client) == 406
    client.send(1, m.ExchangeDeclare(exchange="e"))
    assert client.methods() == [m.ExchangeDeclareOk()]


# --- channels and frames --------------------------------------------------------------------------


def test_a_channel_cannot_be_opened_twice() -> None:
    client = ClientPeer().open(1)
    client.send(1, m.ChannelOpen())
    [closed] = client.methods()
    assert isinstance(closed, m.ConnectionClose)
    assert (closed.reply_code, closed.class_id, closed.method_id) == (504, 20, 10)


@pytest.mark.parametrize("frame_max", [4096, 10_000, 65536])
def test_frames_above_the_agreed_size_are_refused(frame_max: int) -> None:
    client = ClientPeer().open(1, frame_max=frame_max)
    publish = m.BasicPublish(routing_key="q")
    client.feed(client.content(1, publish, bytes(2 * frame_max), frame_max=frame_max))
    assert client.methods() == []
    client.feed(client.content(1, publish, bytes(2 * frame_max), frame_max=frame_max + 1))
    [closed] = client.methods()
    assert isinstance(closed, m.ConnectionClose)
    assert closed.reply_code == 501


def test_so_are_those_of_a_broker() -> None:
    broker = BrokerPeer().open(frame_max=5000)
    broker.feed(broker.framing.frame(BODY, 1, bytes(5000 - 7)))
    closed = broker.methods()[-1]
    assert isinstance(closed, m.ConnectionClose)
    assert closed.reply_code == 501


def test_an_unroutable_address_is_no_queue() -> None:
    client = Worker(Route(address="x", unroutable=Unroutable.REJECT)).connect(1)
    client.send(1, m.QueueBind(queue="y", exchange="amq.direct", routing_key="x"))
    assert code(client) == 404


# --- headers exchanges ----------------------------------------------------------------------------

RED = Properties(headers={"colour": "red"})
BLUE = Properties(headers={"colour": "blue"})
COPIES = Route(address="paint", distribution=Distribution.MULTICAST)
ONE_EACH = Route(address="paint")
PAINT = m.ExchangeDeclare(exchange="paint", type="headers")


def bound(worker: Worker, colour: str, **options: Any) -> WorkerClient:
    """A client that consumes messages of one colour from a headers exchange."""
    client = worker.connect(1)
    arguments = {"x-match": "all", "colour": colour}
    client.send(
        1,
        PAINT,
        m.QueueDeclare(queue="mine", exclusive=True, **options),
        m.QueueBind(queue="mine", exchange="paint", arguments=arguments),
        m.BasicConsume(queue="mine", consumer_tag="c", no_ack=True),
    )
    client.methods()
    return client


def painter(worker: Worker) -> WorkerClient:
    client = worker.connect(1)
    client.send(1, PAINT, m.ConfirmSelect())
    client.methods()
    return client


def told(client: WorkerClient) -> list[int | str]:
    """Codes of what came back, and acks and nacks, in order."""
    found: list[int | str] = []
    for one in client.methods():
        if isinstance(one, Content) and isinstance(one.method, m.BasicReturn):
            found.append(one.method.reply_code)
        else:
            found.append(type(one).__name__)
    return found


@pytest.mark.parametrize("route", [COPIES, ONE_EACH], ids=["copies", "one each"])
def test_what_no_binding_of_a_headers_exchange_takes_is_acked_and_comes_back_if_mandatory(
    route: Route,
) -> None:
    worker = Worker(route)
    reds = [bound(worker, "red"), bound(worker, "red")]
    client = painter(worker)
    client.publish(1, b"x", exchange="paint", properties=BLUE)
    assert told(client) == ["BasicAck"]
    client.publish(1, b"x", exchange="paint", properties=BLUE, mandatory=True)
    assert told(client) == [312, "BasicAck"]
    client.publish(1, b"x", exchange="paint", properties=RED, mandatory=True)
    assert told(client) == ["BasicAck"]
    got = [body for each in reds for body in bodies(each)]
    assert got == [b"x"] * (2 if route is COPIES else 1)


@pytest.mark.parametrize("route", [COPIES, ONE_EACH], ids=["copies", "one each"])
def test_one_binding_that_takes_it_is_enough(route: Route) -> None:
    worker = Worker(route)
    bound(worker, "red")
    blue = bound(worker, "blue")
    client = painter(worker)
    client.publish(1, b"x", exchange="paint", properties=BLUE, mandatory=True)
    assert told(client) == ["BasicAck"]
    assert bodies(blue) == [b"x"]


def test_a_transaction_is_committed_though_nobody_is_bound_to_a_part_of_it() -> None:
    worker = Worker(COPIES)
    bound(worker, "red")
    client = worker.connect(1)
    client.send(1, PAINT, m.TxSelect())
    client.methods()
    client.publish(1, b"x", exchange="paint", properties=BLUE, mandatory=True)
    client.publish(1, b"x", exchange="paint", properties=RED)
    client.send(1, m.TxCommit())
    assert told(client) == [312, "TxCommitOk"]


def test_what_a_full_queue_does_not_take_is_refused_though_it_is_bound() -> None:
    worker = Worker(COPIES)
    arguments = {"x-max-length": 0, "x-overflow": "reject-publish"}
    full = bound(worker, "red", arguments=arguments)
    full.send(1, m.BasicCancel(consumer_tag="c"))
    client = painter(worker)
    client.publish(1, b"x", exchange="paint", properties=RED, mandatory=True)
    assert told(client) == ["BasicNack"]


def test_what_has_waited_too_long_is_not_called_unroutable() -> None:
    worker = Worker(COPIES)
    slow = bound(worker, "red", arguments={"x-message-ttl": 1000})
    slow.send(1, m.BasicCancel(consumer_tag="c"))
    client = painter(worker)
    client.publish(1, b"x", exchange="paint", properties=RED, mandatory=True)
    slow.wait(2)
    assert told(client) == ["BasicNack"]
