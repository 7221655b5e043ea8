"""Sessions of AMQP 0-10 over real sockets that are cut: nothing is lost, nothing comes twice."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import encode_command
from router.wire.v0_10.framing import COMMAND, assembly
from tests.support.durable import Durable
from tests.support.peer_0_10 import Line, Transfer
from tests.support.ports import free_port
from tests.support.running import RunningRouter, running_router
from tests.support.workers import kill, processes

CONFIG = """\
router: {{id: sessions, workers: {workers}, admin: off, state: state}}
listeners: [{{bind: 127.0.0.1:{port}}}]
routes:
  - address: orders.#
  - address: exact.#
    guarantee: exactly-once
"""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    found = free_port()
    folder: Path = tmp_path_factory.mktemp("sessions")
    with running_router(CONFIG.format(port=found, workers=1), folder):
        yield found


@contextmanager
def line(port: int) -> Iterator[Line]:
    """A connection whose session 's' has a timeout of a minute."""
    with socket.create_connection(("127.0.0.1", port), 60) as sock:
        found = Line(sock)
        found.open()
        yield found


def attach(found: Line, name: bytes) -> None:
    found.control(r.SessionAttach(name))
    found.await_(r.SessionAttached)
    found.control(r.SessionRequestTimeout(60))
    found.await_(r.SessionTimeout)
    found.control(r.SessionCommandPoint(0, 0))


def subscribe(found: Line, address: str) -> None:
    found.command(
        r.MessageSubscribe(queue=address, destination="d", accept_mode=0, acquire_mode=0),
        r.MessageFlow("d", 1, None),
        r.MessageFlow("d", 0, 50),
        sync=True,
    )
    found.await_(r.SessionCompleted)


def bodies(found: Line, count: int) -> list[bytes]:
    return [found.await_(Transfer).body for _ in range(count)]


def test_a_sender_that_was_cut_off_hears_the_outcome_and_nothing_comes_twice(port: int) -> None:
    with line(port) as receiver:
        attach(receiver, b"receiver-1")
        subscribe(receiver, "orders.a")
        with line(port) as sender:
            attach(sender, b"sender-1")
            for body in (b"one", b"two"):
                sender.transfer("orders.a", body)
            assert bodies(receiver, 2) == [b"one", b"two"]
        receiver.command(r.MessageAccept(((0, 1),)), sync=True)  # nobody is there to hear it
        receiver.await_(r.SessionCompleted)
        with line(port) as sender:
            attach(sender, b"sender-1")
            sender.control(r.SessionFlush(expected=True))
            sender.control(r.SessionExpected(()))
            assert sender.await_(r.SessionExpected).commands == ((2, 2),)
            for body in (b"one", b"two", b"three"):  # it replays all that it has, and goes on
                sender.transfer("orders.a", body)
            assert sender.await_(r.MessageAccept).transfers == ((0, 1),)
            assert bodies(receiver, 1) == [b"three"]
            receiver.command(r.MessageAccept(((2, 2),)))
            assert sender.await_(r.MessageAccept).transfers == ((2, 2),)


def test_a_receiver_that_was_cut_off_gets_what_it_lacks_and_no_more(port: int) -> None:
    with line(port) as sender:
        attach(sender, b"sender-2")
        with line(port) as receiver:
            attach(receiver, b"receiver-2")
            subscribe(receiver, "orders.b")
            for body in (b"one", b"two", b"three"):
                sender.transfer("orders.b", body)
            assert bodies(receiver, 3) == [b"one", b"two", b"three"]
        with line(port) as receiver:
            attach(receiver, b"receiver-2")
            receiver.await_(r.SessionFlush)
            receiver.control(r.SessionExpected(((2, 2),)))  # the third was lost
            assert bodies(receiver, 1) == [b"three"]
            receiver.control(r.SessionCommandPoint(3, 0))
            receiver.command(r.MessageAccept(((0, 2),)))
            told = 0
            while told < 3:
                for first, last in sender.await_(r.MessageAccept).transfers or ():
                    told += last - first + 1
            sender.transfer("orders.b", b"four")
            assert bodies(receiver, 1) == [b"four"]


ROUNDS = 4
BURST = 20


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningRouter, int]]:
    found = free_port()
    folder: Path = tmp_path_factory.mktemp("several")
    with running_router(CONFIG.format(port=found, workers=2), folder) as router:
        yield router, found


@pytest.mark.parametrize("address", ["orders.c", "exact.c"])
def test_clients_that_come_back_to_another_worker_each_time_lose_nothing_and_get_nothing_twice(
    several: tuple[RunningRouter, int], address: str
) -> None:
    router, port = several
    sink = Durable(router, port, b"sink " + address.encode())
    source = Durable(router, port, b"source " + address.encode())
    sink.come()
    sink.subscribe(address, ROUNDS * BURST)
    source.come()
    expected: list[bytes] = []
    for turn in range(ROUNDS):
        bodies = [b"%d-%d" % (turn, number) for number in range(BURST)]
        expected += bodies
        source.transfer(address, *bodies)
        half = assembly(COMMAND, 1, encode_command(r.ExecutionSync()), 65535)[:7]
        source.cut(amid=[half])
        if turn % 2:
            sink.cut()
            sink.come()
        source.come()
        sink.receive(len(expected) - BURST // 2)
    sink.receive(len(expected))
    source.hear(len(expected))
    assert sorted(sink.bodies) == sorted(expected)
    assert len(set(source.accepted)) == len(source.accepted) == len(expected)
    assert (sink.began_anew, source.began_anew) == (1, 1)  # the first time
    sink.cut()
    source.cut()


@pytest.mark.parametrize("address", ["orders.d", "exact.d"])
def test_a_client_whose_worker_is_killed_begins_anew_and_nothing_is_lost(
    several: tuple[RunningRouter, int], address: str
) -> None:
    router, port = several
    sink = Durable(router, port, b"sink " + address.encode())
    source = Durable(router, port, b"source " + address.encode())
    home, other = 1, 2  # what is exactly-once is kept by the first worker
    sink.come(but=other)
    sink.subscribe(address, 1000)
    source.come(but=home)
    bodies = [b"%d" % number for number in range(3 * BURST)]
    source.transfer(address, *bodies[:BURST])
    sink.receive(BURST)
    source.hear(BURST)
    source.transfer(address, *bodies[BURST : 2 * BURST])
    sink.await_bodies(2 * BURST)  # they have come, and are not answered
    kill(processes(router)[other])
    source.cut()
    sink.acknowledge()  # nobody is there to hear it
    source.come()
    assert source.began_anew == 2
    with sink.serving():
        source.transfer(address, *bodies[2 * BURST :])
        source.hear(len(bodies))
    assert set(sink.bodies) == set(bodies)
    if address.startswith("exact"):
        assert sorted(sink.bodies) == sorted(bodies)
    source.cut()


def test_what_a_receiver_said_as_the_home_was_killed_counts_and_nothing_comes_twice(
    several: tuple[RunningRouter, int],
) -> None:
    router, port = several
    home = 1
    sink = Durable(router, port, b"sink of the home")
    source = Durable(router, port, b"source of the home")
    sink.come(but=home)
    sink.subscribe("exact.e", 1000)
    source.come(but=home)
    bodies = [b"%d" % number for number in range(3 * BURST)]
    source.transfer("exact.e", *bodies[:BURST])
    sink.receive(BURST)
    source.hear(BURST)
    source.transfer("exact.e", *bodies[BURST : 2 * BURST])
    sink.await_bodies(2 * BURST)
    kill(processes(router)[home])
    sink.acknowledge()  # its worker hears it, and the home does not
    sink.cut()
    source.cut()
    sink.come(but=home)
    source.come(but=home)
    with sink.serving():
        source.hear(2 * BURST)
        source.transfer("exact.e", *bodies[2 * BURST :])
        source.hear(3 * BURST)
    assert sorted(sink.bodies) == sorted(bodies)
    assert (sink.began_anew, source.began_anew) == (1, 1)  # the first time
    source.cut()
