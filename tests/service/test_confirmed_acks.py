"""What confirms an acknowledgment on an exactly-once route is sent when the outcome is on disk.

So what a client has been told that counts never comes again, whatever is killed right after that.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from router.wire.v0_9_1 import methods as m
from tests.support.basic_socket import BasicSocket
from tests.support.confirmed import PROTOCOLS, Committing
from tests.support.ports import free_port
from tests.support.running import RunningRouter, running_router
from tests.support.workers import kill, lines, processes

pytestmark = pytest.mark.long

CONFIG: Final = """\
router: {{id: confirmed, workers: {workers}, admin: off, log_format: json, state: {state}}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
routes:
  - {{address: orders.#, guarantee: exactly-once, in_doubt: resend}}
  - {{address: plain.#}}
"""
STAY: Final = {"ROUTER_HANDING": "off"}
"""A client stays at the worker that accepted it, wherever the home of its links is."""

KEY: Final = "orders.a"
SILENCE_SECONDS: Final = 1.0
HOME: Final = 1


class Shop(BasicSocket):
    """Publishes."""

    def send_all(self, bodies: list[bytes]) -> None:
        method = m.BasicPublish(exchange="", routing_key=KEY)
        self.write(b"".join(self.content(method, body) for body in bodies))


@contextmanager
def at_worker(
    router: RunningRouter, number: int, protocol: str, port: int, prefetch: int
) -> Iterator[Committing]:
    """A consumer at a worker; of two connections one after the other each is at another one."""
    found: list[Committing] = []
    while True:
        before = len(lines(router, "connection.opened"))
        found.append(PROTOCOLS[protocol](port, KEY))
        deadline = time.monotonic() + 30
        while len(opened := lines(router, "connection.opened")) == before:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if opened[-1].get("worker", HOME) == number:
            break
        assert len(found) < 8
    for other in found[:-1]:
        other.close()
    try:
        yield found[-1].begin(prefetch)
    finally:
        found[-1].close()


def journal_of(router: RunningRouter) -> int:
    (line,) = lines(router, "journal.started")
    return int(str(line["process"]))


@contextmanager
def stopped(process: int) -> Iterator[None]:
    """Stops a process for the length of a block."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def kill_all(router: RunningRouter) -> None:
    """Ends every process of a router with SIGKILL: the journal's, the supervisor, the workers."""
    workers = processes(router)
    kill(journal_of(router))
    router.kill()
    for process in workers.values():
        with suppress(ProcessLookupError):
            kill(process)


def bring_elsewhere(port: int) -> None:
    """Brings a message over a route that promises less."""
    with BasicSocket(port) as other:
        other.open(1)
        other.ask(m.BasicConsume(queue="plain.a", no_ack=True))
        other.publish(b"plain", "plain.a")
        assert other.bodies(1) == [b"plain"]


def rest(client: Committing, last: bytes) -> list[bytes]:
    """Takes messages up to the last one, acknowledging each."""
    found: list[bytes] = []
    while last not in found:
        found += client.take(1)
        client.commit()
        assert client.is_confirmed()
    return found


@pytest.mark.parametrize("halted", ["home", "journal"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_was_confirmed_never_comes_again(tmp_path: Path, protocol: str, halted: str) -> None:
    workers = 2 if halted == "home" else 1
    port = free_port()
    config = CONFIG.format(workers=workers, port=port, state=tmp_path / "state")
    with running_router(config, tmp_path, STAY) as router, ExitStack() as stack:
        shop = stack.enter_context(Shop(port)).open(1)
        client = stack.enter_context(at_worker(router, workers, protocol, port, 10))
        shop.send_all([b"%d" % number for number in range(20)])
        assert client.take(5) == [b"%d" % number for number in range(5)]
        client.commit()
        assert client.is_confirmed()
        assert client.take(5) == [b"%d" % number for number in range(5, 10)]
        process = journal_of(router) if halted == "journal" else processes(router)[HOME]
        with stopped(process):
            client.commit()
            assert not client.is_confirmed(SILENCE_SECONDS), "nobody has it on disk"
            if halted == "journal":
                bring_elsewhere(port)
        assert client.is_confirmed()
        kill_all(router)
    with running_router(config, tmp_path, STAY) as router, ExitStack() as stack:
        shop = stack.enter_context(Shop(port)).open(1)
        client = stack.enter_context(at_worker(router, workers, protocol, port, 10))
        shop.send_all([b"last"])
        assert sorted(rest(client, b"last")[:-1]) == sorted(
            b"%d" % number for number in range(10, 20)
        )
        assert router.stop() == 0


ROUNDS: Final = 5
BATCH: Final = 20


@pytest.mark.parametrize("protocol", ["0-9-1", "0-10", "fast"])
def test_a_worker_that_is_killed_again_and_again_brings_nothing_again(
    tmp_path: Path, protocol: str
) -> None:
    port = free_port()
    config = CONFIG.format(workers=2, port=port, state=tmp_path / "state")
    confirmed: list[bytes] = []
    unknown: set[bytes] = set()
    with running_router(config, tmp_path, STAY) as router:
        for turn in range(ROUNDS):
            bodies = [b"%d-%d" % (turn, number) for number in range(3 * BATCH)]
            with ExitStack() as stack:
                shop = stack.enter_context(Shop(port)).open(1)
                client = stack.enter_context(at_worker(router, 2, protocol, port, BATCH))
                shop.send_all(bodies)
                for _ in range(3):
                    taken = client.take(BATCH)
                    assert not set(taken) & set(confirmed), "confirmed, and here again"
                    client.commit()
                    if client.is_confirmed():
                        confirmed += taken
                    else:
                        unknown |= set(taken)
                started = len(lines(router, "worker.started"))
                kill(processes(router)[HOME])
            deadline = time.monotonic() + 60
            while len(lines(router, "worker.started")) == started or len(processes(router)) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        with ExitStack() as stack:
            shop = stack.enter_context(Shop(port)).open(1)
            client = stack.enter_context(at_worker(router, 2, protocol, port, BATCH))
            shop.send_all([b"last"])
            left = rest(client, b"last")[:-1]
        assert not set(left) & set(confirmed)
        assert len(confirmed) == len(set(confirmed))
        assert router.stop() == 0
