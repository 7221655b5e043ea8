"""Queues bound with patterns get what publishers send that close at once, on every worker."""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from router.wire.v0_9_1 import methods as m
from tests.support.answer_socket import SECONDS
from tests.support.basic_peer import Content
from tests.support.basic_socket import BasicSocket
from tests.support.by_hand_0_10 import hand
from tests.support.ports import free_port
from tests.support.running import running_router

pytestmark = pytest.mark.long

COUNT = 500
PERIOD = 10
KEYS = [f"k{number % PERIOD}" for number in range(COUNT)]
EXPECTED = [list(range(key, COUNT, PERIOD)) for key in range(PERIOD)]

Send = Callable[[int, str, list[str]], None]

CONFIG = """\
router: {{id: left, admin: off, workers: 2}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
routes:
  - address: prices/#
  - {{address: news/#, distribution: multicast}}
"""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    found = free_port()
    with running_router(CONFIG.format(port=found), tmp_path_factory.mktemp("left")):
        yield found


@contextlib.contextmanager
def bound(port: int, exchange: str) -> Iterator[BasicSocket]:
    """A consumer of a queue that is bound to an exchange with ``#``."""
    with BasicSocket(port).open(1) as consumer:
        consumer.ask(m.ExchangeDeclare(exchange=exchange, type="topic"))
        queue = consumer.ask(m.QueueDeclare(exclusive=True)).queue
        consumer.ask(m.QueueBind(queue=queue, exchange=exchange, routing_key="#"))
        consumer.ask(m.BasicConsume(queue=queue, no_ack=True))
        yield consumer


def publish(port: int, exchange: str, keys: list[str]) -> None:
    """Publishes without confirms, and closes at once."""
    with BasicSocket(port).open(1) as publisher:
        contents = (
            publisher.content(m.BasicPublish(exchange=exchange, routing_key=key), b"%d" % number)
            for number, key in enumerate(keys)
        )
        publisher.write(b"".join(contents))


def transfer(port: int, exchange: str, keys: list[str]) -> None:
    """Transfers settled messages over 0-10, and closes at once."""
    with hand(port) as publisher:
        publisher.open()
        publisher.attach(b"left")
        for number, key in enumerate(keys):
            publisher.transfer(b"%d" % number, key=key, exchange=exchange, mode=1)
        publisher.sock.shutdown(socket.SHUT_WR)
        while not publisher.has_ended():
            pass  # closing with unread octets would reset the stream, and lose what is on its way


@pytest.mark.parametrize("send", [publish, transfer])
def test_each_bound_queue_of_a_multicast_gets_all_and_in_order(port: int, send: Send) -> None:
    with bound(port, "news") as one, bound(port, "news") as other:
        send(port, "news", KEYS)
        for consumer in (one, other):
            assert numbers_by_key(consumer.bodies(COUNT)) == EXPECTED


@pytest.mark.parametrize("send", [publish, transfer])
def test_bound_queues_get_each_message_once(port: int, send: Send) -> None:
    with bound(port, "prices") as one, bound(port, "prices") as other:
        send(port, "prices", KEYS)
        found: list[bytes] = []
        deadline = time.monotonic() + SECONDS
        while len(found) < COUNT and time.monotonic() < deadline:
            for consumer in (one, other):
                found += [each.body for each in consumer.rest(0.2) if isinstance(each, Content)]
    assert sorted(map(int, found)) == list(range(COUNT))


def numbers_by_key(bodies: list[bytes]) -> list[list[int]]:
    """Returns the numbers of the messages of each key, in the order in which they arrived."""
    numbers = list(map(int, bodies))
    return [[each for each in numbers if each % PERIOD == key] for key in range(PERIOD)]
