"""What is published without confirms to an exactly-once route is in the journal ahead of credit.

A consumer has room for three messages and acknowledges one; publishers send a thousand. The router
is killed with all its processes, and the next one on the same state has everything.
"""

import json
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from socket import SHUT_WR, create_connection
from typing import Any, Final

import pytest

from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.content import Properties, encode_content_header, encode_properties
from router.wire.v0_9_1.framing import METHOD
from router.wire.v0_9r1.kinds import BASIC, from_basic
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import encode_command
from router.wire.v0_10.framing import COMMAND, assembly
from router.wire.v0_10.message import write_header
from tests.rules.fast.conftest import FastSocket
from tests.rules.v0_9r1.conftest import DraftSocket
from tests.support.basic_peer import Content
from tests.support.basic_socket import BasicSocket
from tests.support.peer_0_10 import Line
from tests.support.ports import free_port
from tests.support.running import RunningRouter, running_router
from tests.support.workers import kill, lines, processes

CONFIG = """\
router:
  id: ahead
  workers: {workers}
  admin: 127.0.0.1:{admin}
  log_format: json
  state: {state}
listeners: [{{bind: "127.0.0.1:{port}"}}]
routes:
  - {{address: orders.#, guarantee: exactly-once, in_doubt: resend}}
"""
SECONDS: Final = 60.0
COUNT: Final = 1000
PREFETCH: Final = 3
KEY: Final = "orders.a"

Publish = Callable[[ExitStack, int, list[bytes]], Callable[[], None]]
"""Publishes over a new connection, which is open until the stack ends, or what is returned is
called: that says farewell."""


def publish_0_9_1(stack: ExitStack, port: int, bodies: list[bytes]) -> Callable[[], None]:
    client = stack.enter_context(BasicSocket(port)).open(1)
    return _publish_basic(client, bodies)


def publish_draft(stack: ExitStack, port: int, bodies: list[bytes]) -> Callable[[], None]:
    client = stack.enter_context(DraftPublisher(port)).open(1)
    return _publish_basic(client, bodies)


def _publish_basic(client: BasicSocket, bodies: list[bytes]) -> Callable[[], None]:
    method = m.BasicPublish(exchange="", routing_key=KEY)
    client.write(b"".join(client.content(method, body) for body in bodies))

    def leave() -> None:
        client.ask(m.ChannelClose(reply_code=200, reply_text="", class_id=0, method_id=0))

    return leave


def publish_0_10(stack: ExitStack, port: int, bodies: list[bytes]) -> Callable[[], None]:
    line = Line(stack.enter_context(create_connection(("127.0.0.1", port), SECONDS)))
    line.open()
    line.control(r.SessionAttach(bodies[0]))
    line.await_(r.SessionAttached)
    line.control(r.SessionCommandPoint(0, 0))
    head = encode_command(r.MessageTransfer("", 1, 0))
    header = write_header(r.DeliveryProperties(routing_key=KEY), None)
    for body in bodies:
        line.send(assembly(COMMAND, 1, head, 65535, (header, body)))

    def leave() -> None:
        line.control(r.SessionDetach(bodies[0]))
        line.await_(r.SessionDetached)

    return leave


def publish_fast(stack: ExitStack, port: int, bodies: list[bytes]) -> Callable[[], None]:
    client = stack.enter_context(FastSocket(port)).open().handle(1, KEY)
    for body in bodies:
        client.post(body)
    return lambda: client.socket.shutdown(SHUT_WR)


PROTOCOLS: Final[dict[str, Publish]] = {
    "0-9-1": publish_0_9_1,
    "draft": publish_draft,
    "0-10": publish_0_10,
    "fast": publish_fast,
}


class DraftPublisher(DraftSocket):
    """Its class basic has another number."""

    def content(
        self,
        method: m.Method,
        body: bytes = b"",
        properties: Properties | None = None,
        number: int = 1,
    ) -> bytes:
        header = encode_content_header(len(body), encode_properties(properties or Properties()))
        header = from_basic(BASIC, header, len(body))
        octets = self.frame(METHOD, number, self.codec.encode(method))
        return octets + self.framing.content_frames(number, header, body, 4096)


class Consumer(BasicSocket):
    """Has room for three messages."""

    def begin(self, prefetch: int = PREFETCH) -> "Consumer":
        self.open(1)
        self.ask(m.BasicQos(0, prefetch, False))
        self.ask(m.QueueDeclare(queue=KEY))
        self.ask(m.BasicConsume(queue=KEY))
        return self

    def acknowledge(self, tag: int, *, multiple: bool = False) -> None:
        self.send(1, m.BasicAck(delivery_tag=tag, multiple=multiple))


def queued(admin: int) -> int:
    """Tells how many messages wait at the routes."""
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/api/v1/routes", timeout=30) as answer:
        told: Any = json.load(answer)
    return sum(route["queued"] for route in told["routes"])


def wait_for(reached: Callable[[], bool]) -> None:
    """Waits until something holds."""
    deadline = time.monotonic() + SECONDS
    while not reached():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.05)


def bodies_of(who: int) -> list[bytes]:
    return [b"%d-%d" % (who, number) for number in range(COUNT)]


def wait_until_journaled(consumer: Consumer, admin: int, count: int) -> None:
    """Waits until the core has so many, and the journal all that it wrote before one more left."""
    wait_for(lambda: queued(admin) == count - PREFETCH)
    assert len(consumer.bodies(PREFETCH)) == PREFETCH
    consumer.acknowledge(1)
    assert len(consumer.bodies(1)) == 1


@pytest.fixture
def ports() -> tuple[int, int]:
    return free_port(), free_port()


@pytest.mark.long
@pytest.mark.parametrize("leaves", [False, True], ids=["connected", "gone"])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("publish", PROTOCOLS.values(), ids=PROTOCOLS)
def test_a_killed_router_has_lost_nothing_that_was_published_ahead_of_credit(
    tmp_path: Path, publish: Publish, workers: int, leaves: bool, ports: tuple[int, int]
) -> None:
    port, admin = ports
    config = CONFIG.format(workers=workers, port=port, admin=admin, state=tmp_path / "state")
    everything = {body for who in range(2) for body in bodies_of(who)}
    with running_router(config, tmp_path) as router, ExitStack() as stack:
        consumer = stack.enter_context(Consumer(port)).begin()
        for who in range(2):  # of two connections one after the other each is at another worker
            leave = publish(stack, port, bodies_of(who))
            if leaves:
                leave()
        wait_until_journaled(consumer, admin, len(everything))
        kill_all(router)
    with running_router(config, tmp_path) as router, ExitStack() as stack:
        consumer = stack.enter_context(Consumer(port)).begin(prefetch=500)
        got: set[bytes] = set()
        while len(got) < len(everything) - 1:
            answer = consumer.take(SECONDS)
            if isinstance(answer, Content) and isinstance(answer.method, m.BasicDeliver):
                got.add(answer.body)
                consumer.acknowledge(answer.method.delivery_tag)
        assert got >= everything - {b"0-0", b"1-0"}
        assert router.stop() == 0


def kill_all(router: RunningRouter) -> None:
    """Ends every process of a router with SIGKILL: the journal's, the supervisor, the workers."""
    (journal,) = lines(router, "journal.started")
    workers = processes(router)
    kill(int(str(journal["process"])))
    router.kill()
    for process in workers.values():
        with suppress(ProcessLookupError):
            kill(process)
