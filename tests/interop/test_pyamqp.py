"""The AMQP 1.0 client inside azure-servicebus, unmodified, against the listener (SASL PLAIN)."""

import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.interop.conftest import PASSWORD, USER, Reachable
from tests.support import peers

pytestmark = pytest.mark.interop

TIMEOUT_SECONDS = 20


@pytest.fixture(autouse=True)
def _pyamqp() -> None:
    peers.need_python("azure.servicebus")


@contextmanager
def clients(reachable: Reachable, **receiving: Any) -> Iterator[tuple[Any, Any]]:
    """A receiver and a sender for one address of its own, opened in this order."""
    from azure.servicebus._pyamqp import ReceiveClient, SendClient
    from azure.servicebus._pyamqp.authentication import SASLPlainAuth
    from azure.servicebus._pyamqp.constants import ReceiverSettleMode

    host = f"127.0.0.1:{reachable.password_port}"
    address = f"pyamqp.{uuid.uuid4().hex}"
    options: dict[str, Any] = {"use_tls": False, "auth": SASLPlainAuth(USER, PASSWORD)}
    receiver = ReceiveClient(host, f"amqp://{host}/{address}", **options, **receiving)
    # Its default asks the receiver to settle second, and then it never settles first (§2.8.3).
    first = {"receive_settle_mode": ReceiverSettleMode.First}
    sender = SendClient(host, f"amqp://{host}/{address}", **options, **first)
    with receiver:
        while not receiver.client_ready():
            pass
        # The receiver gives credit only here, and the sender sends whether it has credit or not.
        assert receiver.receive_message_batch(timeout=1) == []
        with sender:
            yield sender, receiver


def test_it_sends_and_receives(reachable: Reachable) -> None:
    from azure.servicebus._pyamqp.message import Message, Properties

    messages = [
        Message(
            data=[f"body {number}".encode()],
            properties=Properties(message_id=f"id-{number}"),
            application_properties={"n": number},
        )
        for number in range(20)
    ]
    with clients(reachable, link_credit=10) as (sender, receiver):
        # The receiver gives credit only here, and the sender sends whether it has credit or not.
        assert receiver.receive_message_batch(timeout=1) == []
        with ThreadPoolExecutor(1) as other:
            sending = other.submit(send_all, sender, messages)
            received = receive(receiver, len(messages))
            sending.result(TIMEOUT_SECONDS)
    assert [message.application_properties[b"n"] for message in received] == list(range(20))
    assert [b"".join(message.data) for message in received] == [
        f"body {number}".encode() for number in range(20)
    ]


def send_all(sender: Any, messages: list[Any]) -> None:
    for message in messages:
        sender.send_message(message, timeout=TIMEOUT_SECONDS)


def receive(receiver: Any, count: int) -> list[Any]:
    """Receives and settles ``count`` messages."""
    received: list[Any] = []
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while len(received) < count and time.monotonic() < deadline:
        receiver.do_work(batch=count)
        while not receiver._received_messages.empty():
            transfer, message = receiver._received_messages.get()
            receiver.settle_messages(transfer[1], transfer[2], "accepted")
            received.append(message)
    return received
