"""What a consumer gives back, or leaves, reaches the consumer that is at the other worker.

Each protocol, each of its ways to give back, by a router of two workers. The other consumer is
known to all workers before anything is given back: it holds a message, which fills its prefetch.
"""

import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final, TypeVar

import pytest

from router.model.outcome import (
    MODIFIED_FAILED,
    MODIFIED_UNDELIVERABLE,
    RELEASED,
    DeliveryState,
)
from router.model.terminus import ALL_OUTCOMES, Role, Source
from router.service.errands import LOAD_SECONDS
from router.wire.fast import commands as c
from router.wire.v0_9_1 import methods as m
from router.wire.v0_10 import records as r
from router.wire.v1_0.performatives import Transfer
from tests.rules.fast.conftest import FastSocket
from tests.support.basic_socket import BasicSocket
from tests.support.durable import worker_of
from tests.support.frame_line import FrameLine
from tests.support.peer_0_10 import Line
from tests.support.peer_0_10 import Transfer as MessageTransfer
from tests.support.running import RunningRouter, running_router
from tests.support.workers import address_of

Client = TypeVar("Client")

SECONDS: Final = 60.0

CONFIG: Final = """
router: {id: given-back, workers: 2, admin: off, log_format: json, drain_seconds: 1s}
listeners: [{bind: "127.0.0.1:0"}]
routes: [{address: q.#}]
"""

BODIES: Final = [b"1", b"2", b"3"]


class Place:
    """A router of two workers, and connections that come to the worker that is wanted."""

    def __init__(self, router: RunningRouter, stack: ExitStack) -> None:
        self._router = router
        self._stack = stack
        self.port = int(address_of(router).rpartition(":")[2])

    def _at(self, worker: int, dial: Callable[[], tuple[Client, socket.socket]]) -> Client:
        """Dials until a connection has come to a worker."""
        while True:
            made, sock = dial()
            self._stack.callback(sock.close)
            if worker_of(self._router, sock) == worker:
                return made
            time.sleep(LOAD_SECONDS)  # by then it is known where there are fewer

    def basic(self, worker: int) -> BasicSocket:
        """A client of 0-9-1 with a channel."""

        def dial() -> tuple[BasicSocket, socket.socket]:
            made = BasicSocket(self.port).open(1)
            return made, made.socket

        return self._at(worker, dial)

    def fast(self, worker: int) -> FastSocket:
        """A client of AMQP/Fast with a channel."""

        def dial() -> tuple[FastSocket, socket.socket]:
            made = FastSocket(self.port).open()
            return made, made.socket

        return self._at(worker, dial)

    def frames(self, worker: int) -> FrameLine:
        """A client of 1.0 with a session."""

        def dial() -> tuple[FrameLine, socket.socket]:
            made = FrameLine(f"127.0.0.1:{self.port}", uuid.uuid4().hex[:8])
            return made, made.sock

        line = self._at(worker, dial)
        line.begin()
        return line

    def session(self, worker: int, name: bytes) -> Line:
        """A client of 0-10 with a session."""

        def dial() -> tuple[Line, socket.socket]:
            sock = socket.create_connection(("127.0.0.1", self.port), SECONDS)
            made = Line(sock)
            made.open()
            return made, sock

        line = self._at(worker, dial)
        line.control(r.SessionAttach(name, True))
        line.await_(r.SessionAttached)
        line.control(r.SessionCommandPoint(0, 0))
        return line


GiveBack = Callable[[], object]
"""Gives back what a consumer has."""


def consume_basic(place: Place, worker: int, address: str, how: str) -> Iterator[GiveBack]:
    """A consumer of 0-9-1; it has its messages when it is asked a second time."""
    client = place.basic(worker)
    client.ask(m.BasicConsume(queue=address, consumer_tag="a"))
    yield lambda: None
    assert client.bodies(len(BODIES)) == BODIES
    tags = range(1, 1 + len(BODIES))
    ways: dict[str, GiveBack] = {
        "reject": lambda: client.send(1, *(m.BasicReject(tag, True) for tag in tags)),
        "nack": lambda: client.send(1, m.BasicNack(len(BODIES), True, True)),
        "close": lambda: client.send(1, m.BasicCancel("a"), m.ChannelClose(reply_code=200)),
        "recover": lambda: client.send(1, m.BasicCancel("a"), m.BasicRecover(True)),
        "cut": client.socket.close,
    }
    yield ways[how]


def consume_fast(place: Place, worker: int, address: str, how: str) -> Iterator[GiveBack]:
    """A consumer of AMQP/Fast, likewise."""
    client = place.fast(worker).handle(1, address)
    client.send(c.HandleConsume(1, 1, prefetch=9))
    client.take()
    yield lambda: None
    assert client.bodies(len(BODIES)) == BODIES
    ungets = [c.HandleUnget(1, 0, tag) for tag in range(1, 1 + len(BODIES))]
    ways: dict[str, GiveBack] = {
        "unget": lambda: client.send(*ungets, c.ChannelAck(1, 0, len(BODIES))),
        "close": lambda: client.send(c.HandleClose(1, 200)),
        "cut": client.socket.close,
    }
    yield ways[how]


def consume_session(place: Place, worker: int, address: str, how: str) -> Iterator[GiveBack]:
    """A consumer of 0-10, likewise."""
    name = uuid.uuid4().bytes
    line = place.session(worker, name)
    line.command(
        r.MessageSubscribe(queue=address, destination="d", accept_mode=0, acquire_mode=0),
        r.MessageFlow("d", 0, 9),
        r.MessageFlow("d", 1, None),
        sync=True,
    )
    line.await_(r.SessionCompleted)
    yield lambda: None
    assert [line.await_(MessageTransfer).body for _ in BODIES] == BODIES
    every = ((0, len(BODIES) - 1),)
    ways: dict[str, GiveBack] = {
        "release": lambda: line.command(r.MessageRelease(every)),
        "release, set-redelivered": lambda: line.command(r.MessageRelease(every, True)),
        "detach": lambda: line.control(r.SessionDetach(name)),
        "cut": line.close,
    }
    yield ways[how]


STATES: Final[dict[str, DeliveryState]] = {
    "released": RELEASED,
    "modified, failed": MODIFIED_FAILED,
    "modified, undeliverable": MODIFIED_UNDELIVERABLE,
}


def consume_frames(place: Place, worker: int, address: str, how: str) -> Iterator[GiveBack]:
    """A receiver of 1.0, likewise."""
    line = place.frames(worker)
    terms = Source(address=address, outcomes=ALL_OUTCOMES)
    line.attach_receiver("a", address, credit=9, second=False, source=terms)
    yield lambda: None
    ids = [line.expect(Transfer).delivery_id or 0 for _ in BODIES]

    def give_back() -> None:
        if how == "detach":
            line.detach(closed=True)
        elif how == "cut":
            line.cut()
        else:
            line.dispose(Role.RECEIVER, ids[0], ids[-1], state=STATES[how], settled=True)

    yield give_back


WAYS: Final = [
    *((consume_basic, how) for how in ("reject", "nack", "close", "recover", "cut")),
    *((consume_fast, how) for how in ("unget", "close", "cut")),
    *((consume_session, how) for how in ("release", "release, set-redelivered", "detach", "cut")),
    *((consume_frames, how) for how in (*STATES, "detach", "cut")),
]

UNTRIED: Final = {"released", "modified, undeliverable", "release"}
"""What comes back so is not redelivered: nobody has tried it."""


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRouter]:
    with running_router(CONFIG, tmp_path_factory.mktemp("given-back")) as running:
        yield running


@pytest.fixture
def place(router: RunningRouter) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(router, stack)


@pytest.mark.parametrize("publisher_at", [1, 2])
@pytest.mark.parametrize(("consume", "how"), WAYS)
def test_what_one_gives_back_reaches_the_other_at_the_other_worker(
    place: Place,
    consume: Callable[[Place, int, str, str], Iterator[GiveBack]],
    how: str,
    publisher_at: int,
) -> None:
    address = f"q.{uuid.uuid4().hex[:8]}"
    publisher, other = place.basic(publisher_at), place.basic(2)
    other.ask(m.BasicQos(0, 1))
    other.ask(m.BasicConsume(queue=address))
    publisher.publish(b"0", address)
    first = other.take()
    assert (first.body, first.method.redelivered) == (b"0", False)
    one = consume(place, 1, address, how)
    next(one)
    for body in BODIES:
        publisher.publish(body, address)
    give_back = next(one)
    give_back()
    other.send(1, m.BasicAck(1))
    found: list[Any] = []
    for tag in range(2, 2 + len(BODIES)):
        found.append(other.take())
        other.send(1, m.BasicAck(tag))
    assert sorted(each.body for each in found) == BODIES
    assert {each.method.redelivered for each in found} == {how not in UNTRIED}
