"""``router run`` a second time on the same state directory: the new process takes the place."""

import contextlib
import http.client
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import attrs
import pytest
import trio

from router.model.identity import LinkName
from router.net.client.receiver import ReceivingLink
from router.net.client.sender import SendingLink
from router.routes.route import Guarantee
from router.service.handover import SOCKET_NAME
from tests.support.chaos import Books, Client, numbered
from tests.support.ports import free_port
from tests.support.running import RunningRouter, running_router
from tests.support.workers import greet, lines

pytestmark = pytest.mark.long

FILE = """
router:
  id: one-router
  workers: {workers}
  admin: {admin}
  probes: {probes}
  state: state
  log_format: json
  drain_seconds: {drain_seconds}
listeners:
  - bind: 127.0.0.1:{port}
routes:
  - address: orders
    guarantee: {guarantee}
    unroutable: hold
"""

LEAST, ONCE = Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE
PROMISES = pytest.mark.parametrize("guarantee", [LEAST, ONCE])


@attrs.define(eq=False, kw_only=True)
class Place:
    """A file, which processes run one after the other."""

    folder: Path
    workers: int = 1
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    drain_seconds: int = 20
    port: int = attrs.field(factory=free_port)
    admin_port: int = attrs.field(factory=free_port)
    probe_port: int = attrs.field(factory=free_port)

    @property
    def admin(self) -> str:
        return f"127.0.0.1:{self.admin_port}"

    @property
    def probes(self) -> str:
        return f"127.0.0.1:{self.probe_port}"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def file(self) -> str:
        return FILE.format(
            workers=self.workers,
            admin=self.admin,
            probes=self.probes,
            port=self.port,
            guarantee=self.guarantee.value,
            drain_seconds=f"{self.drain_seconds}s",
        )

    def run(
        self,
        file: str | None = None,
        until: str = "router.ready",
        environment: Mapping[str, str] | None = None,
    ) -> AbstractContextManager[RunningRouter]:
        return running_router(file or self.file, self.folder, environment, until=until)

    def probe(self) -> int:
        """Asks both doors whether the router is ready; a refused connection fails."""
        statuses = {self._probe(port) for port in (self.admin_port, self.probe_port)}
        return max(statuses)

    def _probe(self, port: int) -> int:
        asking = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            asking.request("GET", "/readyz", headers={"Connection": "close"})
            return asking.getresponse().status
        finally:
            asking.close()

    def check_service(self) -> None:
        """Wants peers and probes answered."""
        greet(self.address, "somebody").close()
        assert self.probe() == 200


@pytest.mark.long
@pytest.mark.parametrize(("workers", "guarantee"), [(1, LEAST), (2, ONCE)])
def test_an_idle_router_is_taken_over_again_and_again(
    tmp_path: Path, workers: int, guarantee: Guarantee
) -> None:
    place = Place(folder=tmp_path, workers=workers, guarantee=guarantee)
    with ExitStack() as stack:
        before = stack.enter_context(place.run())
        for _ in range(2):
            after = stack.enter_context(place.run())
            assert before.process.wait(60) == 0
            place.check_service()
            before = after


@attrs.define(eq=False)
class Traffic:
    """Two senders and two receivers that carry on from one process to the next, and count."""

    place: Place
    books: Books = attrs.field(factory=Books)
    clients: list[Client] = attrs.field(factory=list)
    is_over: bool = False

    def _supply(self, first: int) -> Iterator[int]:
        for number in itertools.count(first, 2):
            if self.is_over:
                return
            yield number

    def _make(self) -> tuple[list[Client], list[Client]]:
        guarantee, port = self.place.guarantee, self.place.port
        senders = [
            Client(
                SendingLink(
                    name=LinkName(f"sender-{index}"),
                    address="orders",
                    supply=numbered(self.books.count(self._supply(index)), 50),
                    guarantee=guarantee,
                    window=200,
                ),
                port,
            )
            for index in range(2)
        ]
        receivers = [
            Client(
                ReceivingLink(
                    name=LinkName(f"receiver-{index}"),
                    address="orders",
                    take=self.books.take,
                    guarantee=guarantee,
                    window=200,
                ),
                port,
            )
            for index in range(2)
        ]
        return senders, receivers

    async def flows(self) -> None:
        """Returns when some thousand more have arrived."""
        before = len(self.books.taken)
        with trio.fail_after(120):
            while len(self.books.taken) < before + 1000:
                await trio.sleep(0.02)

    async def run(self, during: Callable[[], Awaitable[None]]) -> None:
        """Lets traffic flow before, during and after something, and to its end."""
        senders, receivers = self._make()
        async with trio.open_nursery() as running:
            for receiver in receivers:
                running.start_soon(receiver.run)
            async with trio.open_nursery() as sending_:
                for sender in senders:
                    sending_.start_soon(sender.run)
                await during()
                self.is_over = True
            await trio.sleep(1)  # for receivers to hear of the last settlements
            for receiver in receivers:
                receiver.conversation.finish()
        self.clients = [*senders, *receivers]

    def check(self) -> None:
        """Wants everything that was sent received; where that is promised, once."""
        assert not self.books.lost
        assert len(self.books.sent) > 3000
        if self.place.guarantee is ONCE:
            assert not self.books.duplicated
            assert [client.machine.report.in_doubt for client in self.clients] == [0, 0, 0, 0]


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.long)])
@PROMISES
async def test_traffic_goes_on_from_the_first_process_to_the_second_and_to_the_third(
    tmp_path: Path, workers: int, guarantee: Guarantee
) -> None:
    place = Place(folder=tmp_path, workers=workers, guarantee=guarantee)
    traffic = Traffic(place)
    in_thread = trio.to_thread.run_sync
    with ExitStack() as stack:

        async def take_over_twice() -> None:
            before = first
            for _ in range(2):
                await traffic.flows()
                after = await in_thread(stack.enter_context, place.run())
                assert await in_thread(before.process.wait, 120) == 0
                before = after
            await traffic.flows()
            await in_thread(place.check_service)

        first = stack.enter_context(place.run())
        await traffic.run(take_over_twice)
    traffic.check()


@pytest.mark.long
@PROMISES
async def test_probes_and_peers_are_answered_at_every_moment(
    tmp_path: Path, guarantee: Guarantee
) -> None:
    place = Place(folder=tmp_path, guarantee=guarantee)
    in_thread = trio.to_thread.run_sync
    probes = 0
    with ExitStack() as stack:
        before = stack.enter_context(place.run())
        async with trio.open_nursery() as nursery:

            async def probe() -> None:
                nonlocal probes
                while True:
                    await in_thread(place.probe)
                    probes += 1
                    peer = await in_thread(socket.create_connection, ("127.0.0.1", place.port))
                    peer.close()
                    await trio.sleep(0.01)

            nursery.start_soon(probe)
            await in_thread(stack.enter_context, place.run())
            assert await in_thread(before.process.wait, 60) == 0
            nursery.cancel_scope.cancel()
    assert probes > 3


def test_one_that_is_started_while_another_takes_over_is_the_next(tmp_path: Path) -> None:
    place = Place(folder=tmp_path, guarantee=ONCE)
    with ExitStack() as stack:
        first = stack.enter_context(place.run())
        lingering = greet(place.address, "lingers")  # and keeps the first from ending at once
        second = stack.enter_context(place.run(until="handover.taken"))
        third = stack.enter_context(place.run())
        assert first.process.wait(60) == second.process.wait(60) == 0
        assert lines(third, "handover.taken")[0]["process"] == second.process.pid
        place.check_service()
        lingering.close()


@PROMISES
def test_several_that_are_started_at_the_same_moment_take_over_one_after_the_other(
    tmp_path: Path, guarantee: Guarantee
) -> None:
    place = Place(folder=tmp_path, guarantee=guarantee, drain_seconds=2)
    with ExitStack() as stack, ThreadPoolExecutor() as threads:
        first = stack.enter_context(place.run())
        runs = [running_router(tmp_path / "router.yaml", tmp_path) for _ in range(3)]
        others = list(threads.map(lambda run: run.__enter__(), runs))
        for run in runs:
            stack.push(run)
        everybody = [first, *others]
        while len([each for each in everybody if each.process.poll() is None]) > 1:
            time.sleep(0.05)
        assert [each.process.poll() for each in everybody].count(0) == 3
        place.check_service()


@PROMISES
def test_the_service_manager_hears_of_another_main_process_and_of_no_end(
    tmp_path: Path, guarantee: Guarantee
) -> None:
    place = Place(folder=tmp_path, guarantee=guarantee)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        with place.run(environment=environment) as old, place.run(environment=environment) as new:
            assert old.process.wait(60) == 0
            heard: list[str] = []
            with contextlib.suppress(BlockingIOError):
                while True:
                    heard += manager.recv(4096).decode().splitlines()
    first, second = (f"MAINPID={each.process.pid}" for each in (old, new))
    # the second is the main process before the first ends, or the manager would end the service
    assert heard == ["READY=1", first, second, "READY=1", second]


# What fails


@pytest.mark.long
@pytest.mark.parametrize(
    ("guarantee", "what"),
    [(LEAST, "listener"), (ONCE, "listener"), (ONCE, "admin"), (ONCE, "probes")],
)
def test_a_successor_that_cannot_have_an_address_ends_and_the_old_one_serves(
    tmp_path: Path, guarantee: Guarantee, what: str
) -> None:
    place = Place(folder=tmp_path, guarantee=guarantee)
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        place.run() as old,
    ):
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        bad = (
            place.file.replace("\nroutes:", f"\n  - bind: {address}\nroutes:")
            if what == "listener"
            else place.file.replace(place.admin if what == "admin" else place.probes, address)
        )
        with place.run(bad, until="router.failed") as new:
            assert new.process.wait(30) == 1
        assert "Address already in use" in str(lines(new, "router.failed")[0]["reason"])
        place.check_service()
        assert not lines(old, "router.draining")
        with place.run():
            assert old.process.wait(60) == 0
            place.check_service()


@pytest.mark.long
@PROMISES
def test_a_successor_that_is_killed_before_it_serves_changes_nothing(
    tmp_path: Path, guarantee: Guarantee
) -> None:
    place = Place(folder=tmp_path, workers=2, guarantee=guarantee)
    with place.run() as old:
        with place.run(until="handover.taken") as new:
            new.kill()
        old.wait_for("handover.ended")
        if lines(old, "handover.ended")[0]["completed"]:  # it waited for the end already
            old.wait_for("handover.deserted")
            old.wait_for("router.ready", since=_after(old, "handover.deserted"))
        place.check_service()
        with place.run():
            assert old.process.wait(60) == 0
            place.check_service()


@pytest.mark.long
@pytest.mark.parametrize(("workers", "end"), [(1, signal.SIGTERM), (2, signal.SIGKILL)])
async def test_a_router_whose_successor_ends_while_it_waits_serves_again_and_loses_nothing(
    tmp_path: Path, workers: int, end: signal.Signals
) -> None:
    place = Place(folder=tmp_path, workers=workers, guarantee=ONCE)
    traffic = Traffic(place)
    in_thread = trio.to_thread.run_sync
    with ExitStack() as stack:

        async def desert() -> None:
            await traffic.flows()
            lingering = await in_thread(greet, place.address, "lingers")
            new = await in_thread(stack.enter_context, place.run(until="handover.taken"))
            await in_thread(old.wait_for, "router.draining")
            new.process.send_signal(end)
            assert await in_thread(new.process.wait, 10) == (0 if end is signal.SIGTERM else -9)
            await in_thread(old.wait_for, "handover.deserted")
            lingering.close()
            await traffic.flows()
            await in_thread(place.check_service)
            await in_thread(stack.enter_context, place.run())
            assert await in_thread(old.process.wait, 120) == 0
            await traffic.flows()

        old = stack.enter_context(place.run())
        await traffic.run(desert)
    traffic.check()


def _after(router: RunningRouter, event: str) -> int:
    """The number of lines up to and with the first that tells of an event."""
    return next(number for number, line in enumerate(router.log, 1) if event in line)


def test_a_journal_that_the_successor_cannot_read_stays_with_the_old_process(
    tmp_path: Path,
) -> None:
    place = Place(folder=tmp_path, guarantee=ONCE)
    with place.run():
        later = tmp_path / "state" / "journal" / "0000000000009999.segment"
        later.write_bytes(b"AMQPJNL9" + bytes(range(256)))
        with place.run(until="router.failed") as new:
            assert new.process.wait(30) == 1
        assert "is not of the format" in str(lines(new, "router.failed")[0]["reason"])
        place.check_service()
        later.unlink()


@pytest.mark.long
def test_the_path_of_a_unix_listener_outlives_a_takeover_that_fails(tmp_path: Path) -> None:
    place = Place(folder=tmp_path)
    path = tmp_path / "amqp.sock"
    file = place.file.replace("\nroutes:", f"\n  - bind: unix:{path}\nroutes:")
    with socket.create_server(("127.0.0.1", 0)) as taken, place.run(file) as old:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        bad = file.replace("\nroutes:", f"\n  - bind: {address}\nroutes:")
        with place.run(bad, until="router.failed") as new:
            assert new.process.wait(30) == 1
        _dial(path)
        with place.run(file):
            assert old.process.wait(60) == 0
            _dial(path)
    assert not path.exists()


def _dial(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.connect(str(path))


# Other versions

VERSION_1 = """
import fcntl, os, socket, sys, time
state, port, admin_port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.makedirs(state, mode=0o700)
lock = os.open(state + "/lock", os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
listening = socket.create_server(("127.0.0.1", port))
admin = socket.create_server(("127.0.0.1", admin_port))
door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
door.bind(state + "/handover.sock")
door.listen(1)
print("up", flush=True)
pair, _ = door.accept()
for packet, sock in zip(sys.argv[4:], (listening, door)):
    socket.send_fds(pair, [packet.encode()], [sock.fileno()])
assert pair.recv(64) == b"ready"
os.unlink(state + "/handover.sock")
pair.close()  # too early; it drains now
listening.close()
time.sleep(2)
"""


PACKETS = pytest.mark.parametrize(
    "end", ['{"end": true}', '{"end": true, "router": "one-router"}'], ids=["unnamed", "named"]
)
"""The last packet, as two earlier versions sent it."""


@pytest.mark.long
@PACKETS
@PROMISES
def test_a_router_of_the_first_format_is_taken_over_when_it_has_really_ended(
    tmp_path: Path, guarantee: Guarantee, end: str
) -> None:
    place = Place(folder=tmp_path, guarantee=guarantee)
    state, ports = str(tmp_path / "state"), (str(place.port), str(place.admin_port))
    packets = ('{"listener": "127.0.0.1:0"}', end)
    with subprocess.Popen(
        [sys.executable, "-c", VERSION_1, state, *ports, *packets], stdout=subprocess.PIPE
    ) as old:
        assert old.stdout is not None
        assert old.stdout.readline() == b"up\n"
        with place.run() as new:
            if guarantee is ONCE:
                assert old.poll() is not None
            assert old.wait(30) == 0
            greet(place.address, "somebody").close()
            new.wait_for("admin.opened")
            place.check_service()


def test_a_successor_of_the_first_format_sees_the_end_of_the_stream_with_the_end_of_the_process(
    tmp_path: Path,
) -> None:
    place = Place(folder=tmp_path, guarantee=ONCE)
    with place.run() as old, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as pair:
        pair.settimeout(60)
        pair.connect(str(tmp_path / "state" / SOCKET_NAME))
        purposes: list[dict[str, object]] = []
        while not purposes or "end" not in purposes[-1]:
            octets, descriptors, _, _ = socket.recv_fds(pair, 4096, 1)
            purposes.append(json.loads(octets))
            for each in descriptors:
                os.close(each)
        assert [*map(list, purposes)] == [["listener"], ["end", "router", "config", "format"]]
        pair.send(b"ready")
        assert pair.recv(64) == b""
        assert old.process.wait(5) == 0


def test_a_state_directory_of_a_long_name_is_taken_over_too(tmp_path: Path) -> None:
    place = Place(folder=tmp_path / ("long" * 25))
    place.folder.mkdir()
    with place.run() as old, place.run():
        assert old.process.wait(60) == 0
        place.check_service()
