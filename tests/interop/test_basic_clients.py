"""pika, aio-pika, py-amqp and kombu, unmodified, against the listener; proton at the other end."""

import asyncio
import contextlib
import importlib
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from tests.interop.conftest import Reachable
from tests.support import peers

pytestmark = pytest.mark.interop

TIMEOUT_SECONDS = 20.0


@pytest.fixture
def address() -> str:
    return f"basic.{uuid.uuid4().hex}"


@contextmanager
def pika_connection(reachable: Reachable) -> Iterator[Any]:
    peers.need_python("pika")
    import pika

    parameters = pika.ConnectionParameters("127.0.0.1", reachable.port, heartbeat=10)
    connection = pika.BlockingConnection(parameters)
    try:
        yield connection
    finally:
        if connection.is_open:
            connection.close()


@contextmanager
def proton_connection(reachable: Reachable) -> Iterator[Any]:
    peers.need_python("proton")
    from proton.utils import BlockingConnection

    connection = BlockingConnection(reachable.url, timeout=int(TIMEOUT_SECONDS))
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def meanwhile(action: Callable[[], None]) -> Iterator[None]:
    """Runs something beside the block, and waits for it at the end."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001  told to the test
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(TIMEOUT_SECONDS)
        assert not thread.is_alive()
        assert not failures, failures


def drain(connection: Any, is_done: Callable[[], bool]) -> None:
    """Lets pika work until something is so."""
    for _ in range(int(TIMEOUT_SECONDS * 10)):
        if is_done():
            return
        connection.process_data_events(0.1)
    raise AssertionError("not in time")


# --- pika -----------------------------------------------------------------------------------------


def test_pika_confirms_are_the_consumers_acknowledgments(
    reachable: Reachable, address: str
) -> None:
    with pika_connection(reachable) as consuming, pika_connection(reachable) as publishing:
        import pika

        channel = consuming.channel()
        assert channel.queue_declare(address, durable=True).method.queue == address
        channel.basic_qos(prefetch_count=10)
        got: list[tuple[Any, Any, bytes]] = []

        def take(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            got.append((method, properties, body))
            channel.basic_ack(method.delivery_tag)

        channel.basic_consume(address, take)
        told = pika.BasicProperties(
            content_type="text/plain",
            headers={"n": 7, "text": "grüße", "list": [1, {"a": None}], "yes": True},
            delivery_mode=2,
            priority=3,
            correlation_id="c",
            reply_to="r",
            message_id="m",
            timestamp=1_700_000_000,
            type="t",
            app_id="a",
        )

        def publish() -> None:
            sender = publishing.channel()
            sender.confirm_delivery()
            for number in range(100):
                sender.basic_publish("", address, b"%d" % number, told, mandatory=True)

        with meanwhile(publish):
            drain(consuming, lambda: len(got) == 100)
        assert [body for _, _, body in got] == [b"%d" % n for n in range(100)]
        assert got[0][1] == told
        assert got[0][0].routing_key == address


def test_pika_learns_that_nobody_takes_what_it_publishes(
    reachable: Reachable, address: str
) -> None:
    with pika_connection(reachable) as consuming, pika_connection(reachable) as publishing:
        import pika

        channel = consuming.channel()
        channel.basic_consume(
            address,
            lambda channel, method, properties, body: channel.basic_reject(
                method.delivery_tag, requeue=False
            ),
        )
        errors: list[Exception] = []

        def publish() -> None:
            sender = publishing.channel()
            sender.confirm_delivery()
            try:
                sender.basic_publish("", address, b"poison")
            except pika.exceptions.NackError as error:
                errors.append(error)

        with meanwhile(publish):
            drain(consuming, lambda: bool(errors))


def test_pika_has_an_unrouted_mandatory_message_back(reachable: Reachable) -> None:
    with pika_connection(reachable) as connection:
        import pika

        channel = connection.channel()
        channel.confirm_delivery()
        with pytest.raises(pika.exceptions.UnroutableError) as caught:
            channel.basic_publish("", "", b"lost", mandatory=True)
        [message] = caught.value.messages
        assert message.body == b"lost"
        assert message.method.reply_code == 312


def test_pika_is_answered_by_the_route_where_nobody_receives(reachable: Reachable) -> None:
    address = f"nobody.{uuid.uuid4().hex}"
    with pika_connection(reachable) as connection:
        import pika

        channel = connection.channel()
        channel.confirm_delivery()
        with pytest.raises(pika.exceptions.UnroutableError) as caught:
            channel.basic_publish("", address, b"lost", mandatory=True)
        assert [one.method.reply_code for one in caught.value.messages] == [312]
        channel.basic_publish("", address, b"lost, too")  # is confirmed, as RabbitMQ does


def test_pika_asks_and_answers_over_a_queue_of_its_own(reachable: Reachable, address: str) -> None:
    with pika_connection(reachable) as serving, pika_connection(reachable) as asking:
        import pika

        server = serving.channel()

        def answer(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            channel.basic_publish(
                "",
                properties.reply_to,
                body.upper(),
                pika.BasicProperties(correlation_id=properties.correlation_id),
            )
            channel.basic_ack(method.delivery_tag)

        server.basic_consume(address, answer)
        client = asking.channel()
        own = client.queue_declare("", exclusive=True).method.queue
        answers: list[tuple[str, bytes]] = []
        client.basic_consume(
            own, lambda c, m, p, body: answers.append((p.correlation_id, body)), auto_ack=True
        )
        client.basic_publish(
            "", address, b"question", pika.BasicProperties(reply_to=own, correlation_id="7")
        )
        for _ in range(100):
            serving.process_data_events(0.05)
            asking.process_data_events(0.05)
            if answers:
                break
        assert answers == [("7", b"QUESTION")]


def test_pika_subscribes_to_a_fanout_exchange(reachable: Reachable) -> None:
    exchange = f"everyone.{uuid.uuid4().hex}"
    with pika_connection(reachable) as first, pika_connection(reachable) as second:
        heard: list[tuple[str, bytes]] = []
        for name, connection in (("first", first), ("second", second)):
            channel = connection.channel()
            channel.exchange_declare(exchange, "fanout")
            queue = channel.queue_declare("", exclusive=True).method.queue
            channel.queue_bind(queue, exchange)

            def hear(c: Any, m: Any, p: Any, body: bytes, name: str = name) -> None:
                heard.append((name, body))

            channel.basic_consume(queue, hear, auto_ack=True)
        with pika_connection(reachable) as publishing:
            channel = publishing.channel()
            channel.exchange_declare(exchange, "fanout")
            channel.basic_publish(exchange, "ignored", b"news")
            for _ in range(100):
                first.process_data_events(0.05)
                second.process_data_events(0.05)
                if len(heard) == 2:
                    break
        assert sorted(heard) == [("first", b"news"), ("second", b"news")]


def test_pika_subscribes_to_a_topic_exchange_with_wildcards(reachable: Reachable) -> None:
    exchange = f"everyone.{uuid.uuid4().hex}"
    keys = ("eu.orders", "us.orders", "eu.news.late")
    with (
        pika_connection(reachable) as orders,
        pika_connection(reachable) as europe,
        pika_connection(reachable) as publishing,
    ):
        early = publishing.channel()
        early.exchange_declare(exchange, "topic")
        heard: list[tuple[str, str]] = []
        for name, connection, pattern in (
            ("orders", orders, "*.orders"),
            ("europe", europe, "eu.#"),
        ):
            channel = connection.channel()
            channel.exchange_declare(exchange, "topic")
            queue = channel.queue_declare("", exclusive=True).method.queue
            channel.queue_bind(queue, exchange, pattern)

            def hear(c: Any, m: Any, p: Any, body: bytes, name: str = name) -> None:
                heard.append((name, body.decode()))

            channel.basic_consume(queue, hear, auto_ack=True)
        for key in keys:
            early.basic_publish(exchange, key, key.encode())
        wanted = sorted(
            [
                ("orders", "eu.orders"),
                ("orders", "us.orders"),
                ("europe", "eu.orders"),
                ("europe", "eu.news.late"),
            ]
        )
        for _ in range(400):
            for connection in (publishing, orders, europe):
                connection.process_data_events(0.02)
            if len(heard) >= len(wanted):
                break
        assert sorted(heard) == wanted


def test_pika_binds_an_exchange_to_another(reachable: Reachable) -> None:
    orders, europe = f"everyone.{uuid.uuid4().hex}", f"everyone.{uuid.uuid4().hex}"
    with pika_connection(reachable) as consuming, pika_connection(reachable) as publishing:
        channel = consuming.channel()
        channel.exchange_declare(orders, "topic")
        channel.exchange_declare(europe, "fanout")
        channel.exchange_bind(europe, orders, "eu.*")
        heard: list[tuple[str, str, str]] = []
        for name, exchange, pattern in (("europe", europe, ""), ("others", orders, "us.*")):
            queue = channel.queue_declare("", exclusive=True).method.queue
            channel.queue_bind(queue, exchange, pattern)

            def hear(c: Any, method: Any, p: Any, body: bytes, name: str = name) -> None:
                heard.append((name, method.exchange, method.routing_key))

            channel.basic_consume(queue, hear, auto_ack=True)
        sending = publishing.channel()
        sending.exchange_declare(orders, "topic")
        sending.exchange_declare(europe, "fanout")
        for exchange, key in ((orders, "us.a"), (orders, "eu.a"), (europe, "any")):
            sending.basic_publish(exchange, key, b"")
        wanted = [("europe", europe, "any"), ("europe", orders, "eu.a"), ("others", orders, "us.a")]
        drain(consuming, lambda: len(heard) >= len(wanted))
        assert sorted(heard) == sorted(wanted)
        channel.exchange_unbind(europe, orders, "eu.*")
        assert channel.is_open


def test_pika_gets_what_is_there_and_nothing_when_nothing_is(
    reachable: Reachable, address: str
) -> None:
    with pika_connection(reachable) as getting, pika_connection(reachable) as publishing:
        channel = getting.channel()
        own = channel.queue_declare("", exclusive=True).method.queue
        assert channel.basic_get(own) == (None, None, None)
        assert channel.basic_get(address) == (None, None, None)
        publishing.channel().basic_publish("", own, b"there")
        for _ in range(100):
            method, _, body = channel.basic_get(own)
            if method is not None:
                break
            getting.process_data_events(0.05)
        assert body == b"there"
        channel.basic_ack(method.delivery_tag)


@pytest.mark.parametrize(
    ("code", "action"),
    [
        (403, lambda channel: channel.queue_delete("not-ours")),
        (404, lambda channel: channel.queue_bind("", "amq.topic", "a")),
        (406, lambda channel: (channel.basic_ack(99), channel.basic_qos())),
        (
            406,
            lambda channel: channel.queue_declare(
                "mine", exclusive=True, arguments={"x-max-priority": 1}
            ),
        ),
    ],
)
def test_pika_is_told_what_a_router_does_not_do(
    reachable: Reachable, code: int, action: Callable[[Any], object]
) -> None:
    with pika_connection(reachable) as connection:
        import pika

        channel = connection.channel()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            action(channel)
        assert caught.value.reply_code == code
        assert connection.channel().is_open


# --- py-amqp and kombu ----------------------------------------------------------------------------


def test_py_amqp_publishes_and_consumes(reachable: Reachable, address: str) -> None:
    peers.need_python("amqp")
    import amqp

    with amqp.Connection(
        f"127.0.0.1:{reachable.port}", confirm_publish=False, connect_timeout=5
    ) as connection:
        channel = connection.channel()
        channel.queue_declare(address, durable=True, auto_delete=False)
        got: list[Any] = []
        channel.basic_consume(address, callback=got.append)
        headers = {"n": 1, "text": "grüße", "nested": {"a": [1, 2]}}
        for number in range(10):
            channel.basic_publish(
                amqp.Message(f"body {number}", application_headers=headers, message_id="m"),
                routing_key=address,
            )
        while len(got) < 10:
            connection.drain_events(timeout=TIMEOUT_SECONDS)
        assert [message.body for message in got] == [f"body {number}" for number in range(10)]
        assert got[0].headers == headers
        for message in got:
            channel.basic_ack(message.delivery_tag)


def test_kombu_declares_its_topology_and_exchanges_messages(
    reachable: Reachable, address: str
) -> None:
    peers.need_python("kombu")
    kombu: Any = importlib.import_module("kombu")
    exchange = kombu.Exchange(address, type="direct")
    queue = kombu.Queue(address, exchange, routing_key=address, durable=True)
    got: list[Any] = []

    def take(body: Any, message: Any) -> None:
        got.append(body)
        message.ack()

    with kombu.Connection(f"amqp://guest:guest@127.0.0.1:{reachable.port}//") as connection:
        with connection.Consumer(queue, callbacks=[take], accept=["json"]):
            producer = connection.Producer(serializer="json")
            for number in range(10):
                producer.publish(
                    {"n": number}, exchange=exchange, routing_key=address, declare=[queue]
                )
            while len(got) < 10:
                connection.drain_events(timeout=TIMEOUT_SECONDS)
        assert [body["n"] for body in got] == list(range(10))
        simple = connection.SimpleQueue(f"simple.{address}")
        simple.put("hello")
        message = simple.get(timeout=TIMEOUT_SECONDS)
        assert message.payload == "hello"
        message.ack()
        simple.close()


def test_kombu_calls_all_that_listen_and_gathers_their_answers(
    reachable: Reachable, address: str
) -> None:
    """Celery's remote control: fanout, reply queues that end by themselves, both with a ttl."""
    peers.need_python("kombu")
    kombu: Any = importlib.import_module("kombu")
    pidbox: Any = importlib.import_module("kombu.pidbox")
    url = f"amqp://guest:guest@127.0.0.1:{reachable.port}//"
    ended = threading.Event()

    def listen(name: str, is_listening: threading.Event) -> None:
        with kombu.Connection(url) as connection:
            mailbox = pidbox.Mailbox(f"everyone.{address}", type="fanout", connection=connection)
            node = mailbox.Node(name, state=None, channel=connection.default_channel)
            node.handlers["add_one"] = lambda state, n: {name: n + 1}
            with node.listen():
                is_listening.set()
                while not ended.is_set():
                    with contextlib.suppress(TimeoutError):
                        connection.drain_events(timeout=0.1)

    with contextlib.ExitStack() as listeners:
        listeners.callback(ended.set)
        for name in ("one", "two"):
            is_listening = threading.Event()
            stack = meanwhile(partial(listen, name, is_listening))
            listeners.enter_context(stack)
            listeners.callback(ended.set)
            assert is_listening.wait(TIMEOUT_SECONDS)
        with kombu.Connection(url) as connection:
            mailbox = pidbox.Mailbox(f"everyone.{address}", type="fanout", connection=connection)
            answers = mailbox.multi_call("add_one", {"n": 1}, timeout=TIMEOUT_SECONDS, limit=2)
    assert sorted(name for answer in answers for name in answer) == ["one", "two"]


# --- aio-pika -------------------------------------------------------------------------------------


def test_aio_pika_confirms_while_it_consumes_on_the_same_connection(
    reachable: Reachable, address: str
) -> None:
    peers.need_python("aio_pika")
    import aio_pika

    async def exchange() -> list[bytes]:
        url = f"amqp://guest:guest@127.0.0.1:{reachable.port}/"
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel(publisher_confirms=True)
            await channel.set_qos(prefetch_count=5)
            queue = await channel.declare_queue(address, durable=True)
            got: list[bytes] = []
            done = asyncio.Event()

            async def take(message: Any) -> None:
                async with message.process():
                    got.append(message.body)
                    if len(got) == 50:
                        done.set()

            await queue.consume(take)
            publishing = await connection.channel(publisher_confirms=True)
            for number in range(50):
                await publishing.default_exchange.publish(
                    aio_pika.Message(b"%d" % number), routing_key=address
                )
            await asyncio.wait_for(done.wait(), TIMEOUT_SECONDS)
            return got

    assert asyncio.run(exchange()) == [b"%d" % number for number in range(50)]


# --- with AMQP 1.0 --------------------------------------------------------------------------------


def test_what_pika_publishes_a_proton_receiver_reads(reachable: Reachable, address: str) -> None:
    with proton_connection(reachable) as proton_side, pika_connection(reachable) as publishing:
        import pika
        from proton import Timeout, symbol

        confirmed: list[bool] = []
        receiver = proton_side.create_receiver(address, credit=10)

        def publish() -> None:
            sender = publishing.channel()
            sender.confirm_delivery()
            sender.basic_publish(
                "",
                address,
                "grüße".encode(),
                pika.BasicProperties(
                    content_type="text/plain",
                    content_encoding="utf-8",
                    headers={"n": 7, "x-note": "kept", "list": [1]},
                    delivery_mode=2,
                    priority=3,
                    correlation_id="c",
                    reply_to="r",
                    expiration="60000",
                    message_id="m",
                    timestamp=1_700_000_000,
                    type="order",
                    app_id="shop",
                ),
            )
            confirmed.append(True)

        with meanwhile(publish):
            message = receiver.receive(timeout=TIMEOUT_SECONDS)
            receiver.accept()
            while not confirmed:
                with contextlib.suppress(Timeout):
                    proton_side.wait(lambda: False, timeout=0.05)
        assert bytes(message.body) == "grüße".encode()
        assert (message.durable, message.priority) == (True, 3)
        assert 0 < message.ttl <= 60
        assert (message.id, message.correlation_id, message.reply_to) == ("m", "c", "r")
        assert (message.content_type, message.subject) == ("text/plain", "order")
        assert message.creation_time == 1_700_000_000
        assert message.properties == {"n": 7, "x-amqp-0-10.app-id": "shop"}
        assert message.annotations[symbol("x-note")] == "kept"
        assert message.annotations[symbol("x-basic-headers")] == {"list": [1]}
        assert message.annotations[symbol("x-routing-key")] == address


def test_what_a_proton_sender_sends_pika_consumes(reachable: Reachable, address: str) -> None:
    with proton_connection(reachable) as proton_side, pika_connection(reachable) as consuming:
        from proton import Message, ulong

        channel = consuming.channel()
        got: list[tuple[Any, Any, bytes]] = []

        def take(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            got.append((method, properties, body))
            channel.basic_ack(method.delivery_tag)

        channel.basic_consume(address, take)

        def send() -> None:
            sender = proton_side.create_sender(address)
            sender.send(
                Message(
                    id=ulong(7),
                    body="text",
                    subject="order",
                    durable=True,
                    priority=3,
                    properties={"n": 1, "yes": True},
                )
            )
            sender.send(Message(body={"a": [1, 2]}))

        with meanwhile(send):
            drain(consuming, lambda: len(got) == 2)
        (method, properties, body), (_, mapped, encoded) = got
        assert (method.exchange, method.routing_key) == ("", address)
        assert body == b"text"
        assert (properties.message_id, properties.type) == ("7", "order")
        assert (properties.delivery_mode, properties.priority) == (2, 3)
        assert properties.content_type == "text/plain"
        assert properties.headers["n"] == 1
        assert properties.headers["x-amqp-body"] == "string, text/plain"
        assert mapped.type == "amqp-1.0"
        assert encoded.startswith(b"\x00\x53\x77")


def test_a_basic_get_has_senders_send_what_they_have(reachable: Reachable, address: str) -> None:
    """They are granted credit only while somebody receives; a get is that for a moment."""
    with proton_connection(reachable) as sending, pika_connection(reachable) as getting:
        from proton import Message

        sender = sending.create_sender(address)
        channel = getting.channel()

        def send() -> None:
            for number in range(5):
                sender.send(Message(body=str(number), inferred=True))

        got: list[object] = []
        with meanwhile(send):
            for _ in range(200):
                method, _, body = channel.basic_get(address)
                if method is not None:
                    channel.basic_ack(method.delivery_tag)
                    got.append(body)
                if len(got) == 5:
                    break
        assert len(got) == 5
        assert channel.basic_get(address) == (None, None, None)
