"""python-qpid-proton, unmodified, against the listener."""

import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from tests.interop.conftest import Reachable
from tests.support import peers

pytestmark = pytest.mark.interop

TIMEOUT_SECONDS = 20


@pytest.fixture(autouse=True)
def _proton() -> None:
    peers.need_python("proton")


@pytest.fixture
def address() -> str:
    return f"proton.{uuid.uuid4().hex}"


@contextmanager
def connected(reachable: Reachable) -> Iterator[Any]:
    from proton.utils import BlockingConnection

    connection = BlockingConnection(reachable.url, timeout=TIMEOUT_SECONDS)
    try:
        yield connection
    finally:
        connection.close()


def wait_settled(connection: Any, delivery: Any) -> None:
    connection.wait(lambda: delivery.settled, timeout=TIMEOUT_SECONDS)


def wait_for_end(connection: Any, thread: threading.Thread) -> None:
    """Serves a connection until a thread has ended.

    proton looks at a condition after an event only, and the end of a thread is none.
    """
    from proton import Timeout

    while thread.is_alive():
        with suppress(Timeout):
            connection.wait(lambda: not thread.is_alive(), timeout=0.1)
    thread.join()


def test_an_address_written_as_a_url_is_answered_as_it_was_written(
    reachable: Reachable, address: str
) -> None:
    from proton import Message

    with connected(reachable) as connection:  # it refuses another address than it has asked for
        receiver = connection.create_receiver(f"amqp://here/{address}%20eu", credit=1)
        sender = connection.create_sender(f"amqp://there:5672/{address}%20eu")
        sender.link.send(Message(body="a"))
        assert receiver.receive(timeout=TIMEOUT_SECONDS).body == "a"
        receiver.accept()


def test_messages_come_as_they_were_sent_and_in_order(reachable: Reachable, address: str) -> None:
    from proton import Message, symbol, timestamp, ulong

    with connected(reachable) as connection:
        receiver = connection.create_receiver(address, credit=100)
        sender = connection.create_sender(address)
        for number in range(50):
            delivery = sender.link.send(
                Message(
                    id=ulong(number),
                    body={"number": number, "text": "grüße", "list": [1, None, 2.5]},
                    properties={"n": number, "when": timestamp(1_700_000_000_000)},
                    annotations={symbol("x-opt-note"): "kept"},
                    durable=True,
                    priority=7,
                    subject="prices",
                )
            )
            message = receiver.receive(timeout=TIMEOUT_SECONDS)
            receiver.accept()
            wait_settled(connection, delivery)
            assert message.id == number
            assert message.body == {"number": number, "text": "grüße", "list": [1, None, 2.5]}
            assert message.properties == {"n": number, "when": timestamp(1_700_000_000_000)}
            assert message.annotations == {symbol("x-opt-note"): "kept"}
            assert (message.durable, message.priority, message.subject) == (True, 7, "prices")


class Exchange:
    """A proton container that sends ``bodies`` and answers each delivery with ``answer``."""

    def __new__(cls, *arguments: Any, **named: Any) -> Any:
        from proton.handlers import MessagingHandler

        class Handler(MessagingHandler):  # type: ignore[misc]  # proton has no types
            def __init__(
                self, url: str, address: str, bodies: list[Any], answer: str, prefetch: int = 10
            ) -> None:
                super().__init__(prefetch=prefetch, auto_accept=False, auto_settle=True)
                self.url, self.address, self.answer = url, address, answer
                self.bodies = list(bodies)
                self.left = len(bodies)
                self.received: list[Any] = []
                self.outcomes: list[str] = []

            def on_start(self, event: Any) -> None:
                self.connection = event.container.connect(self.url, reconnect=False)
                self.receiver = event.container.create_receiver(self.connection, self.address)
                self.sender = event.container.create_sender(self.connection, self.address)
                self.timer = event.container.schedule(TIMEOUT_SECONDS, self)

            def on_sendable(self, event: Any) -> None:
                from proton import Message

                while event.sender.credit and self.bodies:
                    event.sender.send(Message(body=self.bodies.pop(0)))

            def on_message(self, event: Any) -> None:
                from proton import Delivery

                self.received.append(event.message.body)
                delivery = event.delivery
                match self.answer:
                    case "accept":
                        self.accept(delivery)
                    case "reject":
                        delivery.local.condition = None
                        self.reject(delivery)
                    case "release":
                        self.release(delivery, delivered=False)
                    case "modify":
                        delivery.local.failed = True
                        delivery.local.undeliverable = True
                        delivery.update(Delivery.MODIFIED)
                        delivery.settle()

            def _one_done(self, event: Any, outcome: str) -> None:
                self.outcomes.append(outcome)
                self.left -= 1
                if not self.left:
                    self.timer.cancel()
                    self.connection.close()

            def on_accepted(self, event: Any) -> None:
                self._one_done(event, "accept")

            def on_rejected(self, event: Any) -> None:
                self._one_done(event, "reject")

            def on_released(self, event: Any) -> None:
                from proton import Delivery

                modified = event.delivery.remote_state == Delivery.MODIFIED
                self._one_done(event, "modify" if modified else "release")

            def on_timer_task(self, event: Any) -> None:
                self.connection.close()

        return Handler(*arguments, **named)


@pytest.mark.parametrize("answer", ["accept", "reject", "release", "modify"])
def test_every_outcome_comes_back(reachable: Reachable, address: str, answer: str) -> None:
    from proton.reactor import Container

    exchange = Exchange(reachable.url, address, [f"m{n}" for n in range(20)], answer)
    Container(exchange).run()
    assert exchange.outcomes == [answer] * 20


def test_a_state_that_is_no_outcome_reaches_the_sender_and_the_outcome_after_it(
    reachable: Reachable, address: str
) -> None:
    """``received`` tells how far the receiver is (§3.4.1), and ends nothing."""
    from proton import Delivery, Message

    with connected(reachable) as connection:
        receiver = connection.create_receiver(address, credit=1)
        sent = connection.create_sender(address).link.send(Message(body="far"))
        receiver.receive(timeout=TIMEOUT_SECONDS)
        came = receiver.fetcher.unsettled[0]
        came.local.section_number, came.local.section_offset = 1, 3
        came.update(Delivery.RECEIVED)
        connection.wait(lambda: sent.remote_state == Delivery.RECEIVED, timeout=TIMEOUT_SECONDS)
        assert (sent.remote.section_number, sent.remote.section_offset) == (1, 3)
        assert not sent.settled
        receiver.accept()
        wait_settled(connection, sent)
        assert sent.remote_state == Delivery.ACCEPTED


def test_a_thousand_messages_are_each_accepted_once(reachable: Reachable, address: str) -> None:
    from proton.reactor import Container

    bodies = list(range(1000))
    exchange = Exchange(reachable.url, address, bodies, "accept", prefetch=100)
    Container(exchange).run()
    assert exchange.received == bodies
    assert exchange.outcomes == ["accept"] * 1000


def test_a_drain_is_answered(reachable: Reachable, address: str) -> None:
    from proton import Message
    from proton.handlers import MessagingHandler
    from proton.reactor import Container

    class Drainer(MessagingHandler):  # type: ignore[misc]  # proton has no types
        def __init__(self) -> None:
            super().__init__(prefetch=0)
            self.received: list[Any] = []
            self.drained_credit: int | None = None

        def on_start(self, event: Any) -> None:
            self.connection = event.container.connect(reachable.url, reconnect=False)
            self.receiver = event.container.create_receiver(self.connection, address)
            self.receiver.flow(5)
            self.sender = event.container.create_sender(self.connection, address)
            self.timer = event.container.schedule(TIMEOUT_SECONDS, self)
            self.is_sent = False

        def on_sendable(self, event: Any) -> None:
            if not self.is_sent:
                self.is_sent = True
                for number in range(3):
                    event.sender.send(Message(body=number))

        def on_message(self, event: Any) -> None:
            self.received.append(event.message.body)
            if len(self.received) == 3:
                event.receiver.drain(0)

        def on_link_flow(self, event: Any) -> None:
            if event.link == self.receiver and len(self.received) == 3:
                if not self.receiver.draining() and not self.receiver.credit:
                    self.drained_credit = self.receiver.credit
                    self.timer.cancel()
                    self.connection.close()

        def on_timer_task(self, event: Any) -> None:
            self.connection.close()

    drainer = Drainer()
    Container(drainer).run()
    assert drainer.received == [0, 1, 2]
    assert drainer.drained_credit == 0


@pytest.mark.long
def test_a_message_of_100_mib_is_streamed(reachable: Reachable, address: str) -> None:
    from proton import Message

    body = bytes(range(256)) * (100 * 4096)
    with connected(reachable) as connection:
        receiver = connection.create_receiver(address, credit=1)
        delivery = connection.create_sender(address).link.send(Message(body=body))
        message = receiver.receive(timeout=120)
        received = bytes(message.body)
        receiver.accept()
        wait_settled(connection, delivery)
    assert received == body


def test_everyone_gets_a_multicast_message(reachable: Reachable) -> None:
    from proton import Delivery, Message

    address = f"everyone.{uuid.uuid4().hex}"
    with connected(reachable) as connection:
        receivers = [
            connection.create_receiver(address, credit=5, name=f"{address}-{number}")
            for number in range(3)
        ]
        delivery = connection.create_sender(address).link.send(Message(body="for all"))
        for receiver in receivers:
            assert receiver.receive(timeout=TIMEOUT_SECONDS).body == "for all"
            receiver.accept()
        wait_settled(connection, delivery)
        assert delivery.remote_state == Delivery.ACCEPTED


def test_the_anonymous_relay_sends_each_message_to_its_own_address(
    reachable: Reachable, address: str
) -> None:
    from proton import Message

    with connected(reachable) as connection:
        first = connection.create_receiver(f"{address}.a", credit=5)
        second = connection.create_receiver(f"{address}.b", credit=5)
        sender = connection.create_sender(None)
        sender.link.send(Message(address=f"{address}.b", body="b"))
        sender.link.send(Message(address=f"{address}.a", body="a"))
        assert first.receive(timeout=TIMEOUT_SECONDS).body == "a"
        assert second.receive(timeout=TIMEOUT_SECONDS).body == "b"


def test_a_request_is_answered_to_a_dynamic_address(reachable: Reachable, address: str) -> None:
    from proton import Message

    with connected(reachable) as connection:
        requests = connection.create_receiver(address, credit=1)
        replies = connection.create_receiver(None, dynamic=True, credit=1)
        reply_to = replies.link.remote_source.address
        connection.create_sender(address).link.send(Message(body="ask", reply_to=reply_to))
        request = requests.receive(timeout=TIMEOUT_SECONDS)
        requests.accept()
        connection.create_sender(request.reply_to).link.send(Message(body="answer"))
        assert replies.receive(timeout=TIMEOUT_SECONDS).body == "answer"


class Service(threading.Thread):
    """Answers each question by its one link to the anonymous terminus, until it is told to end."""

    def __init__(self, reachable: Reachable, address: str) -> None:
        super().__init__(daemon=True)
        self.reachable, self.address = reachable, address
        self.is_there = threading.Event()
        self.outcomes: list[object] = []

    def run(self) -> None:
        from proton import Message

        sent = []
        with connected(self.reachable) as connection:
            asked = connection.create_receiver(self.address, credit=10)
            replies = connection.create_sender(None)
            self.is_there.set()
            while (question := asked.receive(timeout=TIMEOUT_SECONDS)).body != "end":
                asked.accept()
                reply = Message(address=question.reply_to, body=question.body)
                sent.append(replies.link.send(reply))
            asked.accept()
            for delivery in sent:
                wait_settled(connection, delivery)
            self.outcomes = [delivery.remote_state for delivery in sent]


def test_a_service_answers_the_others_when_one_of_its_clients_has_left(
    reachable: Reachable, address: str
) -> None:
    from proton import Delivery, Message

    service = Service(reachable, address)
    service.start()
    assert service.is_there.wait(TIMEOUT_SECONDS)
    with ExitStack() as stack:
        clients = []
        for _ in range(4):  # on all workers
            connection = stack.enter_context(connected(reachable))
            inbox = connection.create_receiver(None, dynamic=True)
            clients.append((inbox, connection.create_sender(address)))

        def ask(number: int) -> str:
            inbox, questions = clients[number]
            reply_to = str(inbox.link.remote_source.address)
            questions.send(Message(reply_to=reply_to, body=number))
            answer = inbox.receive(timeout=TIMEOUT_SECONDS)
            inbox.accept()
            assert answer.body == number
            return reply_to

        left = [ask(number) for number in range(4)].pop()
        clients[3][0].close()
        clients[0][1].send(Message(reply_to=left, body="nobody hears the answer"))
        for number in range(3):
            ask(number)
        clients[0][1].send(Message(body="end"))
    service.join(TIMEOUT_SECONDS)
    assert not service.is_alive()
    accepted, rejected = Delivery.ACCEPTED, Delivery.REJECTED
    assert service.outcomes == [*4 * [accepted], rejected, *3 * [accepted]]


def test_a_settled_message_that_nobody_can_have_ends_the_anonymous_link_and_is_named(
    reachable: Reachable,
) -> None:
    from proton import Message
    from proton.reactor import AtMostOnce
    from proton.utils import LinkDetached

    with connected(reachable) as connection:
        sender = connection.create_sender(None, options=AtMostOnce())
        sender.link.send(Message(address=f"nobody.{uuid.uuid4().hex}"), tag="this one")
        with pytest.raises(LinkDetached):
            connection.wait(lambda: False, timeout=TIMEOUT_SECONDS)
        condition = sender.link.remote_condition
        assert condition.name == "amqp:not-found"
        assert condition.info == {"delivery-tag": b"this one"}


class Feeding(threading.Thread):
    """Sends messages one by one, each when the one before was accepted."""

    def __init__(self, reachable: Reachable, address: str, count: int) -> None:
        super().__init__(daemon=True)
        self.reachable, self.address, self.count = reachable, address, count

    def run(self) -> None:
        from proton import Message

        with connected(self.reachable) as connection:
            sender = connection.create_sender(self.address)
            for number in range(self.count):
                sender.send(Message(body=number))


def test_a_receiver_that_polls_gets_what_senders_have(reachable: Reachable, address: str) -> None:
    """Credit with drain at once, as ``receiveNoWait`` of JMS; the sender answers no drains."""
    feeding = [Feeding(reachable, address, 10) for _ in range(3)]  # on all workers
    with connected(reachable) as connection:
        receiver = connection.create_receiver(address, credit=0)
        for each in feeding:
            each.start()
        got: list[int] = []
        deadline = time.monotonic() + 2 * TIMEOUT_SECONDS
        while len(got) < 30 and time.monotonic() < deadline:
            receiver.link.drain(1)
            connection.wait(lambda: receiver.link.credit == 0, timeout=TIMEOUT_SECONDS)
            while receiver.fetcher.has_message:
                got.append(receiver.fetcher.pop().body)
                receiver.accept()
        assert sorted(got) == sorted(3 * list(range(10)))
        receiver.link.drain(1)
        began = time.monotonic()
        connection.wait(lambda: receiver.link.credit == 0, timeout=TIMEOUT_SECONDS)
        assert time.monotonic() - began < TIMEOUT_SECONDS / 4
        assert not receiver.fetcher.has_message
    for each in feeding:
        each.join(TIMEOUT_SECONDS)
        assert not each.is_alive()


def returning(reachable: Reachable, address: str, count: int, mode: str) -> list[tuple[Any, int]]:
    """Runs a receiver that dies with ``count`` messages, or comes back for them."""
    script = "tests/interop/proton_returning.py"
    finished = subprocess.run(
        [sys.executable, script, reachable.url, address, str(count), mode],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 0, (finished.stdout, finished.stderr)
    return [(body, times) for body, times in json.loads(finished.stdout)]


def test_a_receiver_that_pipelines_its_credit_gets_what_it_had_and_then_what_is_new(
    reachable: Reachable, address: str
) -> None:
    """Its first flow tells a delivery-count though it has not read our attach, nor does it echo."""
    from proton import Message

    with connected(reachable) as connection:
        sender = connection.create_sender(address)
        seen: list[tuple[Any, int]] = []
        dying = threading.Thread(
            target=lambda: seen.extend(returning(reachable, address, 3, "die"))
        )
        dying.start()
        sent = [sender.link.send(Message(body=number)) for number in range(3)]
        wait_for_end(connection, dying)
        assert seen == [(0, 0), (1, 0), (2, 0)]
        back: list[tuple[Any, int]] = []
        coming = threading.Thread(
            target=lambda: back.extend(returning(reachable, address, 30, "settle"))
        )
        coming.start()
        for number in range(3, 30):
            connection.wait(lambda: sender.link.credit > 0, timeout=TIMEOUT_SECONDS)
            sent.append(sender.link.send(Message(body=number)))
        for delivery in sent:
            wait_settled(connection, delivery)
        coming.join()
        assert back[:3] == [(0, 1), (1, 1), (2, 1)]
        assert [body for body, _ in back] == list(range(30))
