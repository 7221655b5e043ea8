"""Unmodified clients of 0-9-1, each exchanging messages with a proton receiver and sender."""

import asyncio
import contextlib
import importlib
import shutil
import subprocess
import uuid
from collections.abc import Callable
from typing import Any, Final

import attrs
import pytest

from tests.interop.conftest import Reachable
from tests.interop.test_basic_clients import meanwhile, proton_connection
from tests.support import peers

pytestmark = pytest.mark.interop

COUNT: Final = 5
BODIES: Final = [f"body {number};" for number in range(COUNT)]
TIMEOUT_SECONDS: Final = 60.0


@attrs.frozen
class Program:
    """A client: publishes ``BODIES`` as text/plain to a queue, or consumes as many and acks them.

    Attributes:
        need: skips the test, or fails it in CI, where the client is not installed.
    """

    name: str
    need: Callable[[], object]
    publish: Callable[[int, str], object]
    consume: Callable[[int, str], str]


# --- pika -----------------------------------------------------------------------------------------


def publish_by_pika(port: int, queue: str) -> None:
    pika: Any = importlib.import_module("pika")
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    for body in BODIES:
        properties = pika.BasicProperties(content_type="text/plain")
        channel.basic_publish("", queue, body, properties, mandatory=True)
    connection.close()


def consume_by_pika(port: int, queue: str) -> str:
    pika: Any = importlib.import_module("pika")
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    got = ""
    for number, (method, _, body) in enumerate(channel.consume(queue), 1):
        got += body.decode()
        channel.basic_ack(method.delivery_tag)
        if number == COUNT:
            break
    channel.cancel()
    connection.close()
    return got


# --- aio-pika -------------------------------------------------------------------------------------


def publish_by_aio_pika(port: int, queue: str) -> None:
    aio_pika: Any = importlib.import_module("aio_pika")

    async def publish() -> None:
        async with await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/") as connection:
            channel = await connection.channel(publisher_confirms=True)
            await channel.declare_queue(queue, durable=True)
            for body in BODIES:
                message = aio_pika.Message(body.encode(), content_type="text/plain")
                await channel.default_exchange.publish(message, routing_key=queue)

    asyncio.run(asyncio.wait_for(publish(), TIMEOUT_SECONDS))


def consume_by_aio_pika(port: int, queue: str) -> str:
    aio_pika: Any = importlib.import_module("aio_pika")

    async def consume() -> str:
        got: list[str] = []
        async with await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/") as connection:
            channel = await connection.channel()
            source = await channel.declare_queue(queue, durable=True)
            async with source.iterator() as messages:
                async for message in messages:
                    async with message.process():
                        got.append(message.body.decode())
                    if len(got) == COUNT:
                        break
        return "".join(got)

    return asyncio.run(asyncio.wait_for(consume(), TIMEOUT_SECONDS))


# --- kombu ----------------------------------------------------------------------------------------


def publish_by_kombu(port: int, queue: str) -> None:
    kombu: Any = importlib.import_module("kombu")
    options = {"confirm_publish": True}
    url = f"amqp://guest:guest@127.0.0.1:{port}//"
    with kombu.Connection(url, transport_options=options) as connection:
        producer = connection.Producer()
        declared = kombu.Queue(queue, durable=True)
        for body in BODIES:
            producer.publish(
                body,
                routing_key=queue,
                declare=[declared],
                content_type="text/plain",
                content_encoding="utf-8",
            )


def consume_by_kombu(port: int, queue: str) -> str:
    kombu: Any = importlib.import_module("kombu")
    got: list[str] = []

    def take(body: Any, message: Any) -> None:
        got.append(body.decode() if isinstance(body, bytes) else body)
        message.ack()

    with kombu.Connection(f"amqp://guest:guest@127.0.0.1:{port}//") as connection:
        consumer = connection.Consumer(kombu.Queue(queue, durable=True), callbacks=[take])
        consumer.consume()
        while len(got) < COUNT:
            connection.drain_events(timeout=TIMEOUT_SECONDS)
    return "".join(got)


# --- programs -------------------------------------------------------------------------------------


def run(*command: str) -> str:
    """Runs a program to its end; returns what it printed."""
    return subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_SECONDS, check=True
    ).stdout


def by_amqplib(port: int, what: str, queue: str) -> str:
    return run("node", "tests/interop/node/one_way.js", str(port), what, queue, str(COUNT))


def need_tools() -> None:
    if shutil.which("amqp-consume") is None:
        peers.miss("amqp-tools")


def publish_by_tool(port: int, queue: str) -> None:
    url = f"--url=amqp://guest:guest@127.0.0.1:{port}"
    for body in BODIES:
        run("amqp-publish", url, f"--routing-key={queue}", f"--body={body}", "-C", "text/plain")


def consume_by_tool(port: int, queue: str) -> str:
    url = f"--url=amqp://guest:guest@127.0.0.1:{port}"
    return run("amqp-consume", url, f"--queue={queue}", f"--count={COUNT}", "cat")


PROGRAMS: Final = [
    Program("pika", lambda: peers.need_python("pika"), publish_by_pika, consume_by_pika),
    Program(
        "aio-pika",
        lambda: peers.need_python("aio_pika"),
        publish_by_aio_pika,
        consume_by_aio_pika,
    ),
    Program("kombu", lambda: peers.need_python("kombu"), publish_by_kombu, consume_by_kombu),
    Program(
        "amqplib",
        lambda: peers.need_node("amqplib"),
        lambda port, queue: by_amqplib(port, "publish", queue),
        lambda port, queue: by_amqplib(port, "consume", queue),
    ),
    Program("librabbitmq", need_tools, publish_by_tool, consume_by_tool),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_what_a_program_publishes_a_proton_receiver_reads(
    reachable: Reachable, program: Program
) -> None:
    program.need()
    queue = f"exchanged.{uuid.uuid4().hex}"
    with proton_connection(reachable) as connection:
        from proton import Timeout

        receiver = connection.create_receiver(queue, credit=COUNT)
        published: list[bool] = []

        def publish() -> None:
            program.publish(reachable.port, queue)
            published.append(True)

        with meanwhile(publish):
            messages = []
            for _ in BODIES:
                messages.append(receiver.receive(timeout=TIMEOUT_SECONDS))
                with contextlib.suppress(
                    IndexError
                ):  # amqp-publish wants no confirm: it is settled
                    receiver.accept()
            for _ in range(1000):  # until the confirms have come
                if published:
                    break
                with contextlib.suppress(Timeout):
                    connection.wait(lambda: False, timeout=0.05)
        assert published
        assert [bytes(message.body).decode() for message in messages] == BODIES
        assert {message.content_type for message in messages} == {"text/plain"}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_what_a_proton_sender_sends_a_program_consumes(
    reachable: Reachable, program: Program
) -> None:
    program.need()
    queue = f"exchanged.{uuid.uuid4().hex}"
    with proton_connection(reachable) as connection:
        from proton import Delivery, Message

        consumed: list[str] = []
        with meanwhile(lambda: consumed.append(program.consume(reachable.port, queue))):
            sender = connection.create_sender(queue)
            for body in BODIES:
                message = Message(body=body.encode(), inferred=True, content_type="text/plain")
                delivery = sender.send(message, timeout=TIMEOUT_SECONDS)
                assert delivery.remote_state == Delivery.ACCEPTED
        assert consumed == ["".join(BODIES)]
