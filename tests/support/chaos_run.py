"""The chaos run: connections are cut, workers and the router are killed, its file is loaded again.

Two senders, two receivers, our own client, which resumes its links; every connection goes through
a relay that cuts it now and then. `router run` has two workers; one of them, or all of it, is
killed with SIGKILL now and then.
"""

import itertools
import random
from contextlib import AsyncExitStack
from pathlib import Path

import attrs
import trio

from tests.support.chaos import (
    START_SECONDS,
    Books,
    Client,
    MortalRouter,
    from_number,
    numbered,
    receiving,
    sending,
    watch,
)
from tests.support.cuttable import Cuttable, cuttable
from tests.support.rabbitmq import free_port

STALL_SECONDS = 2 * START_SECONDS
"""Longer than a start of the router, during which nothing moves."""
SETTLE_SECONDS = 1.0
"""For receivers to hear of the last settlements."""

CONFIG = """
router:
  id: chaos
  workers: 2
  admin: off
  log_format: json
  state: {state}
{more}
listeners:
  - bind: 127.0.0.1:{port}
routes:
  - address: orders
    guarantee: exactly-once
    unroutable: hold
"""


@attrs.define(eq=False, kw_only=True)
class ChaosRun:
    """One run.

    Attributes:
        seed: of all that chance decides.
        seconds: how long there is trouble.
        kills: how often the router is killed at least, however long that takes.
        deliveries: senders stop at so many; 0: when the trouble is over.
        more: lines for the section ``router`` of the file.
        books: what the clients know.
        code: with which the router ended.
    """

    folder: Path
    seed: int
    seconds: float
    kills: int = 0
    deliveries: int = 0
    more: str = ""
    books: Books = attrs.field(factory=Books, init=False)
    router: MortalRouter = attrs.field(init=False)
    clients: list[Client] = attrs.field(factory=list, init=False)
    relays: list[Cuttable] = attrs.field(factory=list, init=False)
    code: int | None = attrs.field(default=None, init=False)
    _is_over: bool = attrs.field(default=False, init=False)

    @property
    def state(self) -> Path:
        """The router's state directory."""
        return self.folder / "state"

    async def run(self) -> None:
        """Runs, and ends the router in good order."""
        chance = random.Random(self.seed)
        port = free_port()
        config = self.folder / "router.yaml"
        config.write_text(CONFIG.format(port=port, state=self.state, more=self.more))
        self.router = MortalRouter(config)
        async with trio.open_nursery() as nursery:
            await self.router.start(nursery)
            async with AsyncExitStack() as stack:
                self.relays = [await stack.enter_async_context(cuttable(port)) for _ in range(4)]
                senders, receivers = self._make_clients()
                async with trio.open_nursery() as running:
                    running.start_soon(watch, self._progress, STALL_SECONDS)
                    for receiver in receivers:
                        running.start_soon(receiver.run)
                    async with trio.open_nursery() as traffic:
                        for sender in senders:
                            traffic.start_soon(sender.run)
                        await self._make_trouble(chance, nursery)
                        self._is_over = True
                    await trio.sleep(SETTLE_SECONDS)
                    for receiver in receivers:
                        receiver.conversation.finish()
                    running.cancel_scope.cancel()
            self.code = await self.router.end()
            nursery.cancel_scope.cancel()

    def told(self) -> str:
        """Gives one line on what happened."""
        return (
            f"seed {self.seed}: {len(self.books.sent)} sent, {len(self.books.taken)} taken,"
            f" {self.router.kills} kills, {self.router.worker_kills} of workers,"
            f" {len(self.router.matching('config.reloaded'))} reloads,"
            f" {sum(relay.cuts for relay in self.relays)} cuts,"
            f" resumed {[c.machine.report.resumed for c in self.clients]},"
            f" resent {[c.machine.report.resent for c in self.clients]}"
        )

    def check(self) -> None:
        """Asserts that each delivery arrived once, and that nothing broke."""
        failed = self.router.matching('"level": "error"', "Traceback", "defect")
        failed = [line for line in failed if "worker.ended" not in line]
        assert not failed, failed[:5]
        assert self.code == 0
        books = self.books
        assert not books.lost, f"{len(books.lost)} lost: {sorted(books.lost)[:5]}"
        assert not books.duplicated, f"{len(books.duplicated)} duplicated"
        assert [c.machine.report.in_doubt for c in self.clients] == [0, 0, 0, 0]
        assert self.router.kills + self.router.worker_kills > 0

    def _make_clients(self) -> tuple[list[Client], list[Client]]:
        senders = [
            sending(
                f"sender-{index}",
                "orders",
                self.relays[index].port,
                numbered(self.books.count(self._until_over(index)), 50),
            )
            for index in range(2)
        ]
        receivers = [
            receiving(f"receiver-{index}", "orders", self.relays[2 + index].port, self.books.take)
            for index in range(2)
        ]
        self.clients = [*senders, *receivers]
        return senders, receivers

    def _until_over(self, first: int) -> "itertools.takewhile[int]":
        return itertools.takewhile(
            lambda _: (
                not self._is_over
                and (not self.deliveries or len(self.books.sent) < self.deliveries)
            ),
            from_number(first, 2),
        )

    def _progress(self) -> int:
        return sum(client.machine.report.progress for client in self.clients)

    async def _make_trouble(self, chance: random.Random, nursery: trio.Nursery) -> None:
        router = self.router
        text = router.config.read_text()
        until = trio.current_time() + self.seconds
        while trio.current_time() < until or router.kills < self.kills:
            await trio.sleep(chance.uniform(0.2, 1.5))
            dice = chance.random()
            if dice < 0.15:
                await router.kill()
                await trio.sleep(chance.uniform(0.0, 0.5))
                await router.start(nursery)
            elif dice < 0.3:
                router.kill_worker(chance.choice((1, 2)))
            elif dice < 0.4:
                router.config.write_text(text + chance.choice(("", "  - address: other\n")))
                router.reload()
            else:
                chance.choice(self.relays).cut()
