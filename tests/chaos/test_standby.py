"""Two routers with one journal on PostgreSQL take turns while exactly-once deliveries go through.

PostgreSQL has a synchronous standby, and TLS. ``TAKEOVERS`` and ``DELIVERIES`` of the environment
make the run longer; the issue of this feature asks for 200 and 100,000. The clients dial both
machines in turn. Connections to the one that does not lead any more are cut when the other one
leads, as whoever moves an address does.
"""

import contextlib
import itertools
import json
import os
import signal
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
from click.testing import CliRunner

from router.cli.main import main
from tests.support.chaos import Books, numbered, receiving, sending
from tests.support.cuttable import Cuttable, cuttable
from tests.support.ports import free_port
from tests.support.postgres import Replicated, replicated_servers
from tests.support.running import RunningRouter, running_router
from tests.support.workers import lines

TAKEOVERS = int(os.environ.get("TAKEOVERS", "5"))
DELIVERIES = int(os.environ.get("DELIVERIES", "3000"))
STOPPED_SECONDS = 10.0
PATIENCE_SECONDS = 240.0

CONFIG = """
router:
  id: dc1
  workers: {workers}
  state: {state}
  admin: off
  log_format: json
  journal: {{store: "{url}", standby: true}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
routes: [{{address: orders, guarantee: exactly-once, unroutable: hold}}]
"""

pytestmark = [pytest.mark.long, pytest.mark.processes, pytest.mark.timeout(7200)]


@attrs.define(eq=False)
class Machine:
    """One of the two machines: a router, and its ways to both database servers."""

    folder: Path
    ways: tuple[Cuttable, Cuttable]
    authorities: Path
    workers: int
    address: Cuttable
    port: int = attrs.field(factory=free_port)
    router: RunningRouter = attrs.field(init=False)
    _block: contextlib.ExitStack = attrs.field(factory=contextlib.ExitStack, init=False)

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{way.port}" for way in self.ways)
        options = f"sslmode=verify-ca&sslrootcert={self.authorities}"
        return f"postgresql://postgres@{hosts}/postgres?{options}"

    @property
    def config(self) -> str:
        return CONFIG.format(
            state=self.folder / "state", url=self.url, port=self.port, workers=self.workers
        )

    async def start(self) -> None:
        def begin() -> RunningRouter:
            running = running_router(self.config, self.folder, until="standby.began")
            return self._block.enter_context(running)

        self.router = await trio.to_thread.run_sync(begin)

    async def end(self) -> None:
        await trio.to_thread.run_sync(self._block.close)

    @property
    def led_at(self) -> str:
        """When it last began to lead; empty: it does not."""
        if self.router.process.poll() is not None:
            return ""
        led = lines(self.router, "standby.ended")
        return str(led[-1]["timestamp"]) if led else ""

    def kill(self) -> None:
        """Ends everything at once, as the loss of the machine does."""
        journal = int(str(lines(self.router, "journal.started")[-1]["process"]))
        os.kill(journal, signal.SIGSTOP)
        self.router.kill()
        os.kill(journal, signal.SIGKILL)

    def cut(self, is_cut: bool) -> None:
        for way in self.ways:
            way.refuse = is_cut
            if is_cut:
                way.cut()


@attrs.define(eq=False)
class Town:
    """Both machines, and the database servers.

    Attributes:
        seconds: without service, of each fault.
    """

    servers: Replicated
    machines: tuple[Machine, Machine]
    books: Books = attrs.field(factory=Books)
    seconds: list[float] = attrs.field(factory=list)

    @property
    def leader(self) -> Machine:
        return max(self.machines, key=lambda each: each.led_at)

    @property
    def other(self) -> Machine:
        return min(self.machines, key=lambda each: each.led_at)

    async def follow_the_leader(self) -> None:
        known = ""
        while True:
            led_at = self.leader.led_at
            if led_at > known:
                known = led_at
                self.other.address.cut()
            await trio.sleep(0.02)

    async def until(self, is_so: Callable[[], bool], what: str) -> None:
        with trio.move_on_after(PATIENCE_SECONDS) as patience:
            while not is_so():
                await trio.sleep(0.01)
        assert not patience.cancelled_caught, what

    async def until_served(self, leader: Machine | None) -> None:
        """Waits for a delivery after a fault; ``leader``: by another machine than this one."""
        began = time.monotonic()
        if leader is not None:
            await self.until(lambda: self.leader is not leader, "the other one leads")
        count = len(self.books.taken)
        await self.until(lambda: len(self.books.taken) > count, "deliveries go through")
        self._note(time.monotonic() - began)

    def _note(self, seconds: float) -> None:
        self.seconds.append(seconds)
        led = lines(self.leader.router, "standby.ended")
        replayed = lines(self.leader.router, "journal.replayed")
        parts = {k: v for k, v in led[-1].items() if k.endswith("seconds")} if led else {}
        replay = replayed[-1]["seconds"] if replayed else None
        print(json.dumps({"without_service": round(seconds, 2), **parts, "replay": replay}))

    async def until_more(self, deliveries: int) -> None:
        """Waits until some more deliveries have gone through."""
        count = len(self.books.taken) + deliveries
        await self.until(lambda: len(self.books.taken) > count, "deliveries go through")

    # The faults

    async def lose_the_machine(self) -> None:
        leader = self.leader
        leader.kill()
        await self.until_served(leader)
        await leader.end()
        await leader.start()

    async def kill_the_router(self) -> None:
        leader = self.leader
        leader.router.kill()
        await self.until_served(leader)
        await leader.end()
        await leader.start()

    async def stop_the_router(self) -> None:
        leader = self.leader
        until = trio.current_time() + STOPPED_SECONDS
        leader.router.process.send_signal(signal.SIGSTOP)
        await self.until_served(leader)
        await trio.sleep_until(until)
        await self._come_back(leader, lambda: leader.router.process.send_signal(signal.SIGCONT))

    async def cut_the_database(self) -> None:
        leader = self.leader
        leader.cut(True)
        await self.until_served(leader)
        await self._come_back(leader, lambda: leader.cut(False))

    async def lose_the_primary(self) -> None:
        async with trio.open_nursery() as nursery:
            began = time.monotonic()
            nursery.start_soon(trio.to_thread.run_sync, self.servers.fail_over)
            await self.until(lambda: self.servers.has_failed_over, "the standby is promoted")
            await self.until_more(0)
            self._note(time.monotonic() - began)
        self.servers.has_failed_over = False

    async def _come_back(self, machine: Machine, heal: Callable[[], None]) -> None:
        """Waits until a machine that was taken over knows it, and is a standby."""
        count = len(lines(machine.router, "standby.fenced"))
        began = len(lines(machine.router, "standby.began"))
        heal()
        await self.until(
            lambda: (
                len(lines(machine.router, "standby.fenced")) > count
                and len(lines(machine.router, "standby.began")) > began
            ),
            "it is a standby",
        )


@asynccontextmanager
async def town(folder: Path, workers: int) -> AsyncIterator[Town]:
    with replicated_servers(folder) as servers:
        ports = (servers.primary.port, servers.standby.port)
        async with contextlib.AsyncExitStack() as stack:
            machines = []
            for name in ("a", "b"):
                (folder / name).mkdir()
                first = await stack.enter_async_context(cuttable(ports[0]))
                second = await stack.enter_async_context(cuttable(ports[1]))
                ways, authorities = (first, second), servers.authorities
                address = await stack.enter_async_context(cuttable(0))
                machine = Machine(folder / name, ways, authorities, workers, address)
                address.target_port = machine.port
                machines.append(machine)
            file = folder / "init.yaml"
            file.write_text(machines[0].config)
            done = await trio.to_thread.run_sync(
                lambda: CliRunner().invoke(main, ["journal", "init", str(file)])
            )
            assert done.exit_code == 0, done.output
            for machine in machines:
                await machine.start()
            try:
                yield Town(servers, (machines[0], machines[1]))
            finally:
                with trio.CancelScope(shield=True):
                    for machine in machines:
                        machine.router.process.send_signal(signal.SIGCONT)
                        await machine.end()


def faults(running: Town) -> Iterator[Callable[[], Awaitable[None]]]:
    yield from itertools.cycle(
        (
            running.lose_the_machine,
            running.stop_the_router,
            running.cut_the_database,
            running.kill_the_router,
            running.lose_the_primary,
        )
    )


@pytest.mark.parametrize("workers", [1, 2])
async def test_takeovers_lose_and_double_nothing(tmp_path: Path, workers: int) -> None:
    async with town(tmp_path, workers) as running, trio.open_nursery() as nursery:
        books = running.books
        is_over = False

        def supply() -> Iterator[bytes]:
            """Sends as many as are wanted, and goes on until the last takeover."""
            for number in itertools.count():
                if is_over and number >= DELIVERIES:
                    return
                yield from numbered(books.count(iter([number])), 128)

        nursery.start_soon(running.follow_the_leader)
        await running.until(lambda: bool(running.leader.led_at), "one leads")
        first, second = (each.address.port for each in running.machines)
        receiver = receiving("receiver", "orders", first, books.take, others=(second,))
        sender = sending("sender", "orders", first, supply(), window=100, others=(second,))
        nursery.start_soon(receiver.run)
        async with trio.open_nursery() as traffic:
            traffic.start_soon(sender.run)
            for fault in itertools.islice(faults(running), TAKEOVERS):
                await running.until_more(50)
                await fault()
            is_over = True
        await running.until(lambda: not books.lost, f"lost: {len(books.lost)}")
        nursery.cancel_scope.cancel()
    assert not books.duplicated
    found = sorted(running.seconds)
    figures = {
        "workers": workers,
        "takeovers": len(found),
        "deliveries": len(books.taken),
        "p50_seconds": round(statistics.median(found), 2),
        "p99_seconds": round(found[min(len(found) - 1, int(len(found) * 0.99))], 2),
    }
    print(json.dumps(figures))
