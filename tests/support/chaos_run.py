"""The chaos run: everything that may happen to two senders, two receivers and their router happens.

The clients are our own, which resume their links; one of each kind numbers its attaches, the other
does not. Every connection goes through a relay that cuts it, or holds up what its client says until
that client has gone on. `router run` has two workers; one of them, or all of it, is killed with
SIGKILL; its file is loaded again; another process takes its place, and is killed at that, or kills.
"""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from enum import Enum
from pathlib import Path
from typing import Final

import attrs
import trio

from router.links.attaches import LifeCount, no_number
from router.net.handing import VARIABLE
from tests.support.addressed import addressed
from tests.support.chaos import Books, Client, from_number, numbered, receiving, sending, watch
from tests.support.holdable import holdable
from tests.support.mortal import START_SECONDS, MortalRouter
from tests.support.ports import free_port
from tests.support.trouble import Way

STALL_SECONDS = 2 * START_SECONDS
"""Longer than a start of the router, during which nothing moves."""
SETTLE_SECONDS = 1.0
"""For receivers to hear of the last settlements."""
TAKEOVER_SECONDS = 2.5
"""Within which a takeover is disturbed; on a quiet machine it takes about as long."""

CONFIG = """
router:
  id: chaos
  workers: {workers}
  admin: off
  log_format: json
  drain_seconds: 5s
  state: {state}
{more}
listeners:
  - bind: 127.0.0.1:{port}
routes:
  - address: orders.#
    guarantee: exactly-once
    unroutable: hold
"""


class Fault(Enum):
    """What happens."""

    CUT = "cuts"
    KILL = "kills"
    WORKER_KILL = "kills of workers"
    RELOAD = "reloads"
    TAKEOVER = "takeovers"
    BROKEN_TAKEOVER = "broken takeovers"
    LATE_ATTACH = "held-up attaches"
    LATE_OTHER = "held-up others"


WEIGHTS: Final = {
    Fault.CUT: 36,
    Fault.KILL: 10,
    Fault.WORKER_KILL: 12,
    Fault.RELOAD: 10,
    Fault.TAKEOVER: 6,
    Fault.BROKEN_TAKEOVER: 4,
    Fault.LATE_ATTACH: 16,
    Fault.LATE_OTHER: 6,
}
"""How often each, of a hundred."""


@attrs.define(eq=False, kw_only=True)
class ChaosRun:
    """One run.

    Attributes:
        seed: of all that chance decides.
        seconds: how long there is trouble, at least; each fault happens once in any case.
        kills: how often the router is killed at least, however long that takes.
        deliveries: trouble goes on until senders have begun so many; 0: for ``seconds``.
        pause_seconds: between two faults, at most.
        addresses: of the first sender and receiver, and of the second.
        is_anonymous: the senders attach to no address, and each message has one of these.
        sizes: what a killed router's file may say of its workers when it is started again.
        more: lines for the section ``router`` of the file.
        tell: told of each fault as it begins.
        books: what the clients know.
        code: with which the router ended.
    """

    folder: Path
    seed: int
    seconds: float
    kills: int = 0
    deliveries: int = 0
    pause_seconds: float = 1.5
    addresses: Sequence[str] = ("orders", "orders")
    is_anonymous: bool = False
    sizes: Sequence[str] = ("2",)
    more: str = ""
    tell: Callable[[str], None] = lambda line: None
    books: Books = attrs.field(factory=Books, init=False)
    router: MortalRouter = attrs.field(init=False)
    clients: list[Client] = attrs.field(factory=list, init=False)
    ways: list[Way] = attrs.field(factory=list, init=False)
    code: int | None = attrs.field(default=None, init=False)
    _is_over: bool = attrs.field(default=False, init=False)
    _port: int = attrs.field(default=0, init=False)
    _begun: float = attrs.field(default=0.0, init=False)

    @property
    def state(self) -> Path:
        """The router's state directory."""
        return self.folder / "state"

    async def run(self) -> None:
        """Runs, and ends the router in good order."""
        self._port = port = free_port()
        config = self.folder / "router.yaml"
        config.write_text(self._text(port, self.sizes[0]))
        self.router = MortalRouter(config)
        async with trio.open_nursery() as nursery:
            await self.router.start(nursery)
            async with AsyncExitStack() as stack:
                self.ways = [Way(await stack.enter_async_context(holdable(port))) for _ in range(4)]
                senders, receivers = self._make_clients()
                async with trio.open_nursery() as running:
                    running.start_soon(watch, self._progress, STALL_SECONDS)
                    for receiver in receivers:
                        running.start_soon(receiver.run)
                    await self._send(senders, nursery)
                    await trio.sleep(SETTLE_SECONDS)
                    for receiver in receivers:
                        receiver.conversation.finish()
                    running.cancel_scope.cancel()
            self.code = await self.router.end()
            nursery.cancel_scope.cancel()

    def _text(self, port: int, workers: str) -> str:
        return CONFIG.format(port=port, state=self.state, more=self.more, workers=workers)

    async def _send(self, senders: list[Client], nursery: trio.Nursery) -> None:
        """Lets the senders send, with trouble, until all is settled."""
        async with trio.open_nursery() as lateness:
            async with trio.open_nursery() as traffic:
                for sender in senders:
                    traffic.start_soon(sender.run)
                await self._make_trouble(nursery, lateness)
                self._is_over = True
            lateness.cancel_scope.cancel()  # clients that have done dial no more
        for way in self.ways:
            way.release()

    # --- what came of it --------------------------------------------------------------------------

    def counts(self) -> dict[Fault, int]:
        """Counts what happened."""
        router, ways = self.router, self.ways
        return {
            Fault.CUT: sum(way.cuts for way in ways),
            Fault.KILL: router.kills,
            Fault.WORKER_KILL: router.worker_kills,
            Fault.RELOAD: len(router.matching('"config.reloaded"')),
            Fault.TAKEOVER: router.takeovers,
            Fault.BROKEN_TAKEOVER: router.broken_takeovers,
            Fault.LATE_ATTACH: sum(way.late_attaches for way in ways),
            Fault.LATE_OTHER: sum(way.late_others for way in ways),
        }

    def told(self) -> str:
        """Gives the figures, in a few lines."""
        books, reports = self.books, [client.machine.report for client in self.clients]
        refused = len(self.router.matching("link.late"))
        return "\n".join(
            [
                f"seed {self.seed}: {len(books.sent)} sent, {len(books.taken)} taken,"
                f" {len(books.duplicated)} doubled, {len(books.lost)} lost,"
                f" {sum(report.in_doubt for report in reports)} in doubt",
                ", ".join(f"{count} {fault.value}" for fault, count in self.counts().items()),
                f"links stolen {[client.stolen for client in self.clients]},"
                f" {refused} attaches refused,"
                f" connections {[report.connections for report in reports]},"
                f" resumed {[report.resumed for report in reports]},"
                f" resent {[report.resent for report in reports]}",
            ]
        )

    def check(self) -> None:
        """Asserts that each delivery arrived once, that everything happened and nothing broke."""
        failed = self.router.complaints()
        assert not failed, "\n".join(failed[:5])
        assert self.code == 0
        assert set(self.router.codes) <= {0}
        books = self.books
        assert not books.lost, f"{len(books.lost)} lost: {sorted(books.lost)[:5]}"
        assert not books.duplicated, f"{len(books.duplicated)} duplicated"
        assert [c.machine.report.in_doubt for c in self.clients] == [0, 0, 0, 0]
        assert all(self.counts().values()), self.counts()
        assert not any(client.stolen for client in self.clients[1::2]), (
            "their attaches are numbered"
        )

    # --- clients ----------------------------------------------------------------------------------

    def _make_clients(self) -> tuple[list[Client], list[Client]]:
        senders = [
            sending(
                f"sender-{index}",
                None if self.is_anonymous else self.addresses[index],
                self.ways[index].port,
                self._messages(index),
                draw_number=LifeCount(1).draw if index else no_number,
            )
            for index in range(2)
        ]
        receivers = [
            receiving(
                f"receiver-{index}",
                self.addresses[index],
                self.ways[2 + index].port,
                self.books.take,
                draw_number=LifeCount(1).draw if index else no_number,
            )
            for index in range(2)
        ]
        self.clients = [*senders, *receivers]
        return senders, receivers

    def _messages(self, index: int) -> Iterator[bytes]:
        messages = numbered(self.books.count(self._until_over(index)), 50)
        return addressed(messages, self.addresses) if self.is_anonymous else messages

    def _until_over(self, first: int) -> "itertools.takewhile[int]":
        return itertools.takewhile(lambda _: not self._is_over, from_number(first, 2))

    def _progress(self) -> int:
        return sum(client.machine.report.progress for client in self.clients)

    # --- trouble ----------------------------------------------------------------------------------

    async def _make_trouble(self, nursery: trio.Nursery, lateness: trio.Nursery) -> None:
        chance = random.Random(self.seed)
        self._begun = trio.current_time()
        due = chance.sample(list(Fault), len(Fault))
        while due or not self._is_enough():
            await trio.sleep(chance.uniform(0.2, self.pause_seconds))
            if due:
                fault = due[-1]
                before = self.counts()[fault]
                await self._happen(fault, chance, nursery)
                if self.counts()[fault] > before:
                    due.pop()
            else:
                [fault] = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
                if fault in {Fault.LATE_ATTACH, Fault.LATE_OTHER}:
                    own = random.Random(chance.random())
                    lateness.start_soon(self._happen, fault, own, nursery)
                else:
                    await self._happen(fault, chance, nursery)

    def _is_enough(self) -> bool:
        if self.router.kills < self.kills or len(self.books.sent) < self.deliveries:
            return False
        return bool(self.deliveries) or self._passed() >= self.seconds

    def _passed(self) -> float:
        return trio.current_time() - self._begun

    async def _happen(self, fault: Fault, chance: random.Random, nursery: trio.Nursery) -> None:
        router, way = self.router, chance.choice(self.ways)
        self.tell(f"{self._passed():.1f} s, {len(self.books.taken)} taken: {fault.value}")
        match fault:
            case Fault.CUT:
                way.cut()
            case Fault.KILL:
                await router.kill()
                await trio.sleep(chance.uniform(0.0, 0.5))
                router.config.write_text(self._text(self._port, chance.choice(self.sizes)))
                router.environment = {VARIABLE: chance.choice(["on", "off"])}
                await router.start(nursery)
            case Fault.WORKER_KILL:
                router.kill_worker(chance.choice(sorted(router.life.workers) or [1]))
            case Fault.RELOAD:
                await self._reload(chance)
            case Fault.TAKEOVER:
                async with trio.open_nursery() as both:
                    both.start_soon(router.take_over, nursery)
                    await trio.sleep(chance.uniform(0.0, TAKEOVER_SECONDS))
                    way.cut()
            case Fault.BROKEN_TAKEOVER:
                after = chance.uniform(0.0, TAKEOVER_SECONDS)
                await router.break_takeover(nursery, after, kills_new=chance.random() < 0.5)
            case Fault.LATE_ATTACH:
                await way.hold_up_attach(chance)
            case Fault.LATE_OTHER:
                await way.hold_up_stream(chance)

    async def _reload(self, chance: random.Random) -> None:
        router, other = self.router, "  - address: other\n"
        text = router.config.read_text().replace(other, "")
        since = len(router.life.lines)
        router.config.write_text(text + chance.choice(("", other)))
        router.reload()
        with trio.move_on_after(5):
            await router.life.said('"config.reloaded"', since)
