"""Clients are handed to the home of their link by the workers of a running router."""

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from router.core.homes import rendezvous
from router.model.terminus import Role, Source, Target
from router.wire.v0_9_1 import methods as m
from router.wire.v1_0.frames import frame
from router.wire.v1_0.performatives import encode
from router.wire.v1_0.records import Attach, Begin
from tests.support.basic_socket import BasicSocket
from tests.support.running import RunningRouter, running_router
from tests.support.workers import address_of, greet, kill, lines, processes

pytestmark = pytest.mark.long

FILE = """
router: {id: r, workers: 2, homes: all, admin: off, log_format: json, state: ./state}
listeners: [{bind: "127.0.0.1:0"}]
routes: [{address: "q.#", guarantee: exactly-once, unroutable: hold}]
"""

BEGIN = frame(0, encode(Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100)))


def address_at(home: int) -> str:
    """An address that a worker is the home of."""
    return next(name for name in map("q.{}".format, range(100)) if rendezvous(name, 2) == home)


def client_at(router: RunningRouter, worker: int, name: str) -> socket.socket:
    """A connection that has been opened at a worker, and has done nothing else."""
    for number in range(10):
        container = f"{name}-{number}"
        peer = greet(address_of(router), container)
        router.wait_for(f'"container": "{container}"')
        opened = lines(router, "connection.opened")
        if any(each["container"] == container and each["worker"] == worker for each in opened):
            return peer
    raise AssertionError(f"no client came to worker {worker}")


def attach(peer: socket.socket, address: str) -> None:
    """Says what attaches a receiver."""
    asked = Attach(
        name="in", handle=0, role=Role.RECEIVER, source=Source(address=address), target=Target()
    )
    peer.sendall(BEGIN + frame(0, encode(asked)))


def is_attached(peer: socket.socket) -> bool:
    """Returns whether the router attaches the link; otherwise it closes the connection."""
    peer.settimeout(40)
    octets = b""
    while b"\x00\x53\x12" not in octets:
        arrived = peer.recv(4096)
        if not arrived:
            return False
        octets += arrived
    return True


def is_over(peer: socket.socket) -> bool:
    """Reads to the end of the stream."""
    peer.settimeout(40)
    try:
        while peer.recv(4096):
            pass
    except ConnectionResetError:
        return True
    return True


def test_publishers_and_consumers_meet_at_the_home_of_their_queue(tmp_path: Path) -> None:
    with running_router(FILE, tmp_path) as router:
        port = int(address_of(router).rpartition(":")[2])
        clients = []
        for home in (1, 2):
            queue = address_at(home)
            for number in range(4):
                publisher = BasicSocket(port).open(1)
                publisher.publish(b"%d" % number, queue)
                publisher.rest(0.1)
                clients.append(publisher)
            consumer = BasicSocket(port).open(1)
            answer = consumer.ask(m.BasicConsume(queue=queue, no_ack=True))
            assert isinstance(answer, m.BasicConsumeOk)
            clients.append(consumer)
            taken = sorted(each.body for each in consumer.rest())
            assert taken == [b"%d" % number for number in range(4)]
        for client in clients:
            client.socket.close()
        assert lines(router, "connection.handed")
        assert not lines(router, "connection.kept")


@pytest.mark.parametrize("dies", ["home", "other"])
def test_a_worker_is_killed_while_a_client_is_held(dies: str, tmp_path: Path) -> None:
    with running_router(FILE, tmp_path) as router:
        peer = client_at(router, 1, "held")
        worker = processes(router)
        os.kill(worker[2], signal.SIGSTOP)
        attach(peer, address_at(2))
        time.sleep(0.3)  # less than it is held
        if dies == "home":
            kill(worker[2])
            router.wait_for("connection.kept")
            if not is_attached(peer):  # it has waited for the home, or was too early for that
                peer = client_at(router, 1, "again")
                attach(peer, address_at(2))
                assert is_attached(peer)
        else:
            kill(worker[1])
            router.wait_for("worker.ended")
            os.kill(worker[2], signal.SIGCONT)
            assert is_over(peer)
            again = client_at(router, 2, "again")
            attach(again, address_at(2))
            assert is_attached(again)
