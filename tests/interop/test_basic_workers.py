"""pika, py-amqp and amqplib against one worker and two: what 0-9-1 promises holds across them.

The supervisor hands each new connection to the worker with the fewest, so of two connections each
is at another worker.
"""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import peers
from tests.support.ports import free_port
from tests.support.running import running_router

pytestmark = pytest.mark.interop

TIMEOUT_SECONDS = 20.0

CONFIG = """\
router: {{id: pair, admin: off, workers: {workers}}}
listeners: [{{bind: '127.0.0.1:{port}'}}]
routes:
  - {{address: paint, distribution: multicast}}
  - {{address: logs/#, distribution: multicast}}
  - address: tasks.#
  - {{address: tasks.#, vhost: other}}
"""


@pytest.fixture(scope="module", params=[1, 2], ids=["one worker", "two workers"])
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    found = free_port()
    config = CONFIG.format(workers=request.param, port=found)
    with running_router(config, tmp_path_factory.mktemp("pair")):
        yield found


@contextmanager
def pika_connections(port: int, count: int = 2) -> Iterator[list[Any]]:
    peers.need_python("pika")
    import pika

    made = []
    try:
        for _ in range(count):
            parameters = pika.ConnectionParameters(
                "127.0.0.1", port, blocked_connection_timeout=TIMEOUT_SECONDS
            )
            made.append(pika.BlockingConnection(parameters))
        yield made
    finally:
        for connection in made:
            if connection.is_open:
                connection.close()


def drain(connection: Any, is_done: Callable[[], bool]) -> None:
    """Lets pika work until something is so."""
    for _ in range(int(TIMEOUT_SECONDS * 20)):
        if is_done():
            return
        connection.process_data_events(0.05)
    raise AssertionError("not in time")


def refused(action: Callable[..., object], *arguments: object, **options: object) -> int:
    """Does what closes the channel; tells the code."""
    import pika

    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        action(*arguments, **options)
    code: int = caught.value.reply_code
    return code


def test_a_transaction_over_200_addresses_is_committed_and_delivered(port: int) -> None:
    addresses = [f"tasks.tx.{number}" for number in range(200)]
    with pika_connections(port) as (consuming, publishing):
        channel = consuming.channel()
        got: list[str] = []
        for address in addresses:
            channel.basic_consume(address, lambda *given: got.append(given[1].routing_key), True)
        sender = publishing.channel()
        sender.tx_select()
        for address in addresses:
            sender.basic_publish("", address, b"x")
        consuming.process_data_events(0)
        sender.tx_commit()
        drain(consuming, lambda: len(got) == len(addresses))
        assert sorted(got) == sorted(addresses)


@pytest.mark.parametrize("options", [{"exclusive": True}, {"auto_delete": True}])
@pytest.mark.parametrize("name", ["", "mine", "tasks.mine"])
def test_what_was_just_published_is_counted_every_time(
    port: int, name: str, options: dict[str, bool]
) -> None:
    with pika_connections(port, 1) as (connection,):
        channel = connection.channel()
        for _ in range(30):
            queue = channel.queue_declare(name, **options).method.queue
            channel.basic_publish("", queue, b"1")
            assert channel.queue_declare(queue, passive=True).method.message_count == 1
            channel.basic_publish("", queue, b"2")
            assert channel.basic_get(queue, auto_ack=True)[2] == b"1"
            assert channel.queue_purge(queue).method.message_count == 1
            channel.basic_publish("", queue, b"3")
            assert refused(channel.queue_delete, queue, if_empty=True) == 406
            channel = connection.channel()
            assert channel.queue_delete(queue).method.message_count == 1


def test_a_queue_is_confirmed_before_anybody_consumes_and_consumed_elsewhere(port: int) -> None:
    with pika_connections(port) as (publishing, consuming):
        sender = publishing.channel()
        sender.confirm_delivery()
        sender.queue_declare("tasks.early", auto_delete=True)
        for number in range(120):
            sender.basic_publish("", "tasks.early", b"%d" % number, mandatory=True)
        channel = consuming.channel()
        channel.basic_qos(prefetch_count=10)
        got: list[int] = []

        def take(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            got.append(int(body))
            channel.basic_ack(method.delivery_tag)

        channel.basic_consume("tasks.early", take)
        drain(consuming, lambda: len(got) == 120)
        assert got == list(range(120))
        publishing.process_data_events(0.1)
        assert sender.queue_declare("tasks.early", passive=True).method.message_count == 0


def test_a_queue_that_is_not_there_is_not_bound(port: int) -> None:
    with pika_connections(port) as (owning, other):
        owner = owning.channel()
        owner.queue_declare("private", exclusive=True)
        named = owner.queue_declare("", exclusive=True).method.queue
        for queue in ("private", "tasks.x", named):
            owner.queue_bind(queue, "logs", "k")
        for queue in ("tasks.x", named):
            other.channel().queue_bind(queue, "logs", "k")
        for queue in ("private", "nothing"):
            assert refused(other.channel().queue_bind, queue, "logs", "k") == 404
            assert refused(other.channel().queue_delete, queue) == 404
        assert refused(other.channel().queue_delete, "tasks.x") == 403


def test_an_exclusive_consumer_of_ones_own_queue_is_alone(port: int) -> None:
    with pika_connections(port, 1) as (connection,):
        channel, other = connection.channel(), connection.channel()
        channel.queue_declare("mine", exclusive=True)
        channel.basic_consume("mine", lambda *_: None, exclusive=True)
        assert refused(other.basic_consume, "mine", print) == 403


def test_what_no_headers_match_comes_back_and_is_confirmed(port: int) -> None:
    peers.need_python("pika")
    import pika

    with pika_connections(port) as (consuming, publishing):
        channel = consuming.channel()
        channel.exchange_declare("paint", "headers")
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(queue, "paint", arguments={"x-match": "all", "colour": "red"})
        got: list[bytes] = []
        channel.basic_consume(queue, lambda *given: got.append(given[3]), auto_ack=True)
        sender = publishing.channel()
        sender.exchange_declare("paint", "headers")
        sender.confirm_delivery()
        blue = pika.BasicProperties(headers={"colour": "blue"})
        red = pika.BasicProperties(headers={"colour": "red"})
        sender.basic_publish("paint", "", b"blue", blue)
        with pytest.raises(pika.exceptions.UnroutableError) as caught:
            sender.basic_publish("paint", "", b"blue", blue, mandatory=True)
        assert [one.method.reply_code for one in caught.value.messages] == [312]
        sender.basic_publish("paint", "", b"red", red, mandatory=True)
        drain(consuming, lambda: got == [b"red"])


def test_a_message_that_nobody_received_in_time_is_received_by_nobody(port: int) -> None:
    peers.need_python("pika")
    import pika

    with pika_connections(port) as (publishing, consuming):
        sender = publishing.channel()
        sender.basic_publish("", "tasks.old", b"old", pika.BasicProperties(expiration="200"))
        sender.basic_publish("", "tasks.old", b"new", pika.BasicProperties(expiration="60000"))
        publishing.process_data_events(0.5)
        channel = consuming.channel()
        got: list[Any] = []
        channel.basic_consume("tasks.old", lambda *given: got.append(given[2:]), auto_ack=True)
        drain(consuming, lambda: bool(got))
        [(properties, body)] = got
        assert body == b"new"
        assert 50_000 < int(properties.expiration) < 60_000


def test_answers_come_directly_to_who_asked(port: int) -> None:
    peers.need_python("pika")
    import pika

    with pika_connections(port) as (serving, asking):
        server = serving.channel()

        def answer(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            channel.basic_publish("", properties.reply_to, body.upper())

        server.basic_consume("tasks.rpc", answer, auto_ack=True)
        client = asking.channel()
        answers: list[bytes] = []
        name = "amq.rabbitmq.reply-to"
        client.basic_consume(name, lambda *given: answers.append(given[3]), auto_ack=True)
        for number in range(20):
            told = pika.BasicProperties(reply_to=name)
            client.basic_publish("", "tasks.rpc", b"ask %d" % number, told)
        for _ in range(100):
            serving.process_data_events(0.02)
            asking.process_data_events(0.02)
            if len(answers) == 20:
                break
        assert answers == [b"ASK %d" % number for number in range(20)]


def test_an_unknown_virtual_host_is_refused_and_the_usual_one_is_there(port: int) -> None:
    peers.need_python("pika")
    import pika

    for vhost in ("/", "other"):
        parameters = pika.ConnectionParameters("127.0.0.1", port, vhost)
        pika.BlockingConnection(parameters).close()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, "nowhere"))


def test_pika_has_a_thousand_channels(port: int) -> None:
    with pika_connections(port, 1) as (connection,):
        channels = [connection.channel() for _ in range(1000)]
        assert channels[-1].queue_declare("", exclusive=True).method.queue


def test_py_amqp_commits_counts_and_is_refused_what_is_not_there(port: int) -> None:
    peers.need_python("amqp")
    import amqp

    with amqp.Connection(f"127.0.0.1:{port}", connect_timeout=TIMEOUT_SECONDS) as connection:
        channel = connection.channel()
        channel.queue_declare("mine", exclusive=True, auto_delete=False)
        for number in range(3):
            channel.basic_publish(amqp.Message(b"%d" % number), "", "mine")
        assert channel.queue_declare("mine", passive=True).message_count == 3
        assert channel.queue_purge("mine") == 3
        channel.tx_select()
        channel.basic_publish(amqp.Message(b"x"), "", "mine")
        channel.tx_commit()
        assert channel.queue_declare("mine", passive=True).message_count == 1
        with pytest.raises(amqp.NotFound):
            channel.queue_bind("nothing", "logs", "k")


def test_amqplib_commits_counts_and_is_refused_what_is_not_there(port: int) -> None:
    peers.need_node("amqplib")
    script = Path("tests/interop/node/letter.js")
    done = subprocess.run(
        ["node", str(script), str(port)],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["1", "1", "1", "404", "confirmed", "asked"]
