"""pika, py-amqp and kombu publish without confirms: what their consumers leave behind is not lost.

A worker with late acknowledgments, as of Celery, takes a task and is killed: its socket is gone,
and the task goes to the next worker, redelivered. With two workers of the router the publisher, the
consumer that is killed and the next one are on any of them.
"""

import contextlib
import socket
import struct
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support import peers
from tests.support.ports import free_port
from tests.support.running import running_router

pytestmark = pytest.mark.interop

TIMEOUT_SECONDS = 20.0
TASKS = 5

CONFIG = """\
router: {{id: unconfirmed, admin: off, workers: {workers}, state: "{state}"}}
listeners:
  - bind: 127.0.0.1:{port}
routes:
  - address: "tasks.#"
  - {{address: "exact.#", guarantee: exactly-once}}
  - {{address: "again.#", guarantee: exactly-once, in_doubt: resend}}
"""


@pytest.fixture(scope="module", params=[1, 2], ids=["one worker", "two workers"])
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder, number = tmp_path_factory.mktemp("router"), free_port()
    config = CONFIG.format(workers=request.param, state=folder / "state", port=number)
    with running_router(config, folder):
        yield number


@pytest.fixture
def queue() -> str:
    return f"tasks.{uuid.uuid4().hex}"


@contextmanager
def pika_connection(port: int) -> Iterator[Any]:
    peers.need_python("pika")
    import pika

    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    try:
        yield connection
    finally:
        with contextlib.suppress(Exception):
            connection.close()


@contextmanager
def amqp_connection(port: int) -> Iterator[Any]:
    peers.need_python("amqp")
    import amqp

    connection = amqp.Connection(f"127.0.0.1:{port}", read_timeout=TIMEOUT_SECONDS)
    connection.connect()
    try:
        yield connection
    finally:
        with contextlib.suppress(Exception):
            connection.close()


def kill(sock: socket.socket) -> None:
    """Cuts a socket as the end of a process that was killed does."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def take(connection: Any, queue: str, count: int, *, acks: bool = True) -> list[tuple[bytes, bool]]:
    """Consumes with py-amqp: bodies, and whether they were redelivered."""
    channel = connection.channel()
    got: list[tuple[bytes, bool]] = []

    def on_message(message: Any) -> None:
        body = message.body if isinstance(message.body, bytes) else message.body.encode()
        got.append((body, message.delivery_info["redelivered"]))
        if acks:
            channel.basic_ack(message.delivery_tag)

    channel.basic_qos(0, 10, False)
    channel.basic_consume(queue, callback=on_message)
    until = time.monotonic() + TIMEOUT_SECONDS
    while len(got) < count and time.monotonic() < until:
        with contextlib.suppress(socket.timeout, TimeoutError):
            connection.drain_events(timeout=0.2)
    return got


def publish(port: int, queue: str, *bodies: bytes) -> None:
    """Publishes with py-amqp as Celery does, without confirms, and leaves."""
    peers.need_python("amqp")
    import amqp

    with amqp_connection(port) as connection:
        channel = connection.channel()
        for body in bodies:
            channel.basic_publish(amqp.Message(body), routing_key=queue)


BODIES = [b"task %d" % number for number in range(TASKS)]
AGAIN = [(body, True) for body in BODIES]


def test_a_killed_workers_tasks_go_to_the_next_redelivered(port: int, queue: str) -> None:
    with amqp_connection(port) as first:
        first.channel()
        publish(port, queue, *BODIES)
        assert take(first, queue, TASKS, acks=False) == [(body, False) for body in BODIES]
        kill(first.sock)
    with amqp_connection(port) as second:
        assert take(second, queue, TASKS) == AGAIN


def test_a_worker_that_is_there_gets_what_a_killed_one_had(port: int, queue: str) -> None:
    with amqp_connection(port) as first, pika_connection(port) as second:
        publish(port, queue, *BODIES)
        assert len(take(first, queue, TASKS, acks=False)) == TASKS
        channel = second.channel()
        got: list[tuple[bytes, bool]] = []

        def on_message(channel: Any, method: Any, _: object, body: bytes) -> None:
            got.append((body, method.redelivered))
            channel.basic_ack(method.delivery_tag)

        channel.basic_consume(queue, on_message)
        second.process_data_events(0.2)
        kill(first.sock)
        until = time.monotonic() + TIMEOUT_SECONDS
        while len(got) < TASKS and time.monotonic() < until:
            second.process_data_events(0.1)
        assert got == AGAIN


@pytest.mark.parametrize(("kind", "come"), [("exact", []), ("again", AGAIN)])
def test_on_exactly_once_routes_a_killed_workers_tasks_are_in_doubt(
    port: int, queue: str, kind: str, come: list[tuple[bytes, bool]]
) -> None:
    """They go to the next one only where the route says ``in_doubt: resend``."""
    queue = f"{kind}.{queue}"
    with amqp_connection(port) as first:
        first.channel()
        publish(port, queue, *BODIES)
        assert len(take(first, queue, TASKS, acks=False)) == TASKS
        kill(first.sock)
    time.sleep(0.5)  # until the router has noticed
    publish(port, queue, b"new")
    with amqp_connection(port) as second:
        assert sorted(take(second, queue, len(come) + 1)) == [(b"new", False), *come]


class Consumer:
    """Consumes with pika, and acknowledges nothing by itself."""

    def __init__(self, connection: Any, queue: str, *, transacted: bool = False) -> None:
        self.connection = connection
        self.channel = connection.channel()
        if transacted:
            self.channel.tx_select()
        self.got: list[tuple[int, bytes, bool]] = []
        self.channel.basic_consume(queue, self._on_message)

    def _on_message(self, _: object, method: Any, __: object, body: bytes) -> None:
        self.got.append((method.delivery_tag, body, method.redelivered))

    def take(self, count: int) -> list[tuple[bytes, bool]]:
        """Waits for messages: bodies, and whether they were redelivered."""
        until = time.monotonic() + TIMEOUT_SECONDS
        while len(self.got) < count and time.monotonic() < until:
            self.connection.process_data_events(0.1)
        taken, self.got = self.got[:count], self.got[count:]
        return [(body, redelivered) for _, body, redelivered in taken]


def test_what_is_nacked_recovered_or_left_on_a_closed_channel_comes_again(
    port: int, queue: str
) -> None:
    with pika_connection(port) as connection:
        publish(port, queue, *BODIES)
        consumer = Consumer(connection, queue)
        assert consumer.take(TASKS) == [(body, False) for body in BODIES]
        consumer.channel.basic_nack(1, requeue=True)
        assert consumer.take(1) == AGAIN[:1]
        consumer.channel.basic_recover(requeue=True)
        assert sorted(consumer.take(TASKS)) == AGAIN
        consumer.channel.close()
        consumer = Consumer(connection, queue)
        assert sorted(consumer.take(TASKS)) == AGAIN
        consumer.channel.basic_ack(0, multiple=True)


def test_a_task_outlives_its_publisher_and_waits_for_the_first_worker(
    port: int, queue: str
) -> None:
    publish(port, queue, *BODIES)
    with amqp_connection(port) as worker:
        assert take(worker, queue, TASKS) == [(body, False) for body in BODIES]


def test_what_a_transaction_acknowledged_and_rolled_back_comes_again(port: int, queue: str) -> None:
    with pika_connection(port) as connection:
        publish(port, queue, b"task")
        consumer = Consumer(connection, queue, transacted=True)
        assert consumer.take(1) == [(b"task", False)]
        consumer.channel.basic_ack(1)
        consumer.channel.tx_rollback()
        consumer.channel.close()
        consumer = Consumer(connection, queue)
        assert consumer.take(1) == [(b"task", True)]
        consumer.channel.basic_ack(1)


def test_kombu_with_late_acknowledgments_loses_no_task_of_a_killed_worker(
    port: int, queue: str
) -> None:
    peers.need_python("kombu")
    import kombu

    where = f"amqp://127.0.0.1:{port}//"
    with kombu.Connection(where) as publisher:
        producer = publisher.Producer(serializer="json")
        for number in range(TASKS):
            producer.publish({"task": number}, routing_key=queue, delivery_mode=2)
    with kombu.Connection(where) as worker:
        assert run_tasks(worker, queue, acks=False) == [(number, False) for number in range(TASKS)]
        kill(worker.connection.sock)
    with kombu.Connection(where) as worker:
        assert run_tasks(worker, queue, acks=True) == [(number, True) for number in range(TASKS)]


def run_tasks(worker: Any, queue: str, *, acks: bool) -> list[tuple[int, bool]]:
    """Takes tasks with kombu: their numbers, and whether they were redelivered."""
    import kombu

    got: list[tuple[int, bool]] = []

    def on_task(body: Any, message: Any) -> None:
        got.append((body["task"], message.delivery_info["redelivered"]))
        if acks:
            message.ack()

    routed = kombu.Queue(queue, routing_key=queue, durable=True, no_declare=True)
    consumer = worker.Consumer([routed], callbacks=[on_task], accept=["json"], prefetch_count=10)
    consumer.consume()
    until = time.monotonic() + TIMEOUT_SECONDS
    while len(got) < TASKS and time.monotonic() < until:
        with contextlib.suppress(socket.timeout, TimeoutError):
            worker.drain_events(timeout=0.2)
    return got
