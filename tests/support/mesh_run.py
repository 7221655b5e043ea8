"""A run of five routers as processes, with exactly-once traffic while paths and routers are lost.

The lines between the routers lead through relays, which reset connections and refuse new ones.
Routers are killed with SIGKILL and stopped with SIGSTOP, and so are single workers. Senders are at
``dc1`` and ``dc2``, and receivers at ``dc4`` and ``dc5``; ``dc3`` is transit, and each of the
others may be::

    dc1 ── dc3 ── dc5        dc1 ── dc2, dc2 ── dc3, dc3 ── dc4, dc4 ── dc5, dc2 ── dc4
"""

import itertools
import math
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from enum import Enum
from pathlib import Path
from typing import Final

import attrs
import trio

from router.routes.route import Guarantee
from tests.support.chaos import Books, Client, from_number, numbered, receiving, sending, watch
from tests.support.cuttable import Cuttable, cuttable
from tests.support.mesh_certificates import Authority
from tests.support.mortal import START_SECONDS, MortalRouter
from tests.support.ports import free_port

NAMES: Final = ("dc1", "dc2", "dc3", "dc4", "dc5")

LINES: Final = (
    ("dc1", "dc3", 10),
    ("dc3", "dc5", 10),
    ("dc1", "dc2", 10),
    ("dc2", "dc3", 10),
    ("dc3", "dc4", 10),
    ("dc4", "dc5", 10),
    ("dc2", "dc4", 25),
)

SENDERS: Final = ("dc1", "dc2")
RECEIVERS: Final = ("dc4", "dc5")

STALL_SECONDS = 4 * START_SECONDS
SETTLE_SECONDS = 3.0

CONFIG = """
router:
  id: {name}
  workers: {workers}
  admin: off
  log_format: json
  drain_seconds: 5s
  state: {state}
{more}
listeners:
  - bind: 127.0.0.1:{port}
mesh:
  listen: 127.0.0.1:{mesh}
  links: {{{links}}}
  tls: {{cert: {pem}, key: {key}, ca: {ca}}}
  advertise: [{served}]
routes:
  - {{address: "orders.#", guarantee: {guarantee}, unroutable: hold}}
"""


class Fault(Enum):
    """What happens."""

    CUT = "path cuts"
    PARTITION = "partitions"
    PAUSE = "pauses"
    KILL_INGRESS = "kills of ingress"
    KILL_EGRESS = "kills of egress"
    KILL_TRANSIT = "kills of transit"
    KILL_WORKER = "kills of a worker"


WEIGHTS: Final = {
    Fault.CUT: 60,
    Fault.PARTITION: 10,
    Fault.PAUSE: 10,
    Fault.KILL_INGRESS: 6,
    Fault.KILL_EGRESS: 6,
    Fault.KILL_TRANSIT: 8,
    Fault.KILL_WORKER: 20,
}
"""How often each; the last of routers with several workers alone."""


@attrs.define(eq=False)
class Line:
    """A line between two routers: the first one dials, through the relay."""

    ends: tuple[str, str]
    relay: Cuttable


@attrs.define(eq=False, kw_only=True)
class MeshRun:
    """One run.

    Attributes:
        seed: of all that chance decides.
        faults: how many happen; each kind once in any case.
        deliveries: trouble goes on until senders have begun so many.
        workers: how many each router has.
        guarantee: of the routes and the clients.
        pause_seconds: between two faults, at most.
        most_seconds: trouble goes on for so long at most.
        address: that senders and receivers have.
        more: lines for the section ``router`` of each file, with ``{name}`` for the router's id.
        tell: told of each fault as it begins.
        books: what the clients know.
    """

    folder: Path
    seed: int
    faults: int = 12
    deliveries: int = 0
    workers: int = 1
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    pause_seconds: float = 1.5
    most_seconds: float = math.inf
    address: str = "orders.eu"
    more: str = ""
    tell: Callable[[str], None] = lambda line: None
    books: Books = attrs.field(factory=Books, init=False)
    routers: dict[str, MortalRouter] = attrs.field(factory=dict, init=False)
    lines: list[Line] = attrs.field(factory=list, init=False)
    clients: list[Client] = attrs.field(factory=list, init=False)
    counts: dict[Fault, int] = attrs.field(init=False)
    codes: list[int] = attrs.field(factory=list, init=False)
    _ports: dict[str, int] = attrs.field(factory=dict, init=False)
    _is_over: bool = attrs.field(default=False, init=False)
    _begun: float = attrs.field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        kinds = [fault for fault in Fault if self.workers > 1 or fault is not Fault.KILL_WORKER]
        self.counts = dict.fromkeys(kinds, 0)

    def state(self, name: str) -> Path:
        """Returns the state directory of a router."""
        return self.folder / name / "state"

    async def run(self) -> None:
        """Runs, and ends all routers in good order."""
        async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
            await self._make_routers(stack)
            async with trio.open_nursery() as starting:
                for router in self.routers.values():
                    starting.start_soon(router.start, nursery)
            senders, receivers = self._make_clients()
            async with trio.open_nursery() as running:
                running.start_soon(watch, self._progress, STALL_SECONDS)
                for receiver in receivers:
                    running.start_soon(receiver.run)
                async with trio.open_nursery() as traffic:
                    for sender in senders:
                        traffic.start_soon(sender.run)
                    await self._make_trouble(nursery)
                    self._is_over = True
                await trio.sleep(SETTLE_SECONDS)
                for receiver in receivers:
                    receiver.conversation.finish()
                running.cancel_scope.cancel()
            for router in self.routers.values():
                self.codes.append(await router.end())
            nursery.cancel_scope.cancel()

    async def _make_routers(self, stack: AsyncExitStack) -> None:
        """Writes the files; opens the relays."""
        authority = Authority(self.folder)
        mesh = {name: free_port() for name in NAMES}
        links: dict[str, list[str]] = {name: [] for name in NAMES}
        for one, other, cost in LINES:
            relay = await stack.enter_async_context(cuttable(mesh[other]))
            self.lines.append(Line((one, other), relay))
            links[one].append(f'{other}: {{host: "127.0.0.1:{relay.port}", cost: {cost}}}')
        for name in NAMES:
            folder = self.folder / name
            folder.mkdir()
            self._ports[name] = free_port()
            pem = authority.issue(name)
            config = folder / "router.yaml"
            text = CONFIG.format(
                name=name,
                workers=self.workers,
                guarantee=self.guarantee.value,
                state=self.state(name),
                more=self.more.format(name=name),
                port=self._ports[name],
                mesh=mesh[name],
                links=", ".join(links[name]),
                pem=pem,
                key=pem.with_suffix(".key"),
                ca=authority.pem,
                served='"orders.#"' if name in RECEIVERS else "",
            )
            config.write_text(text)
            self.routers[name] = MortalRouter(config)

    # --- what came of it --------------------------------------------------------------------------

    def told(self) -> str:
        """Gives the figures, in a few lines."""
        books, reports = self.books, [client.machine.report for client in self.clients]
        return "\n".join(
            [
                f"seed {self.seed}: {len(books.sent)} sent, {len(books.taken)} taken,"
                f" {len(books.duplicated)} doubled, {len(books.lost)} lost,"
                f" {sum(report.in_doubt for report in reports)} in doubt,"
                f" {self.given_back} given back",
                ", ".join(f"{count} {fault.value}" for fault, count in self.counts.items()),
                f"connections {[report.connections for report in reports]},"
                f" resumed {[report.resumed for report in reports]},"
                f" resent {[report.resent for report in reports]}",
            ]
        )

    @property
    def given_back(self) -> int:
        """How many deliveries had another outcome than accepted: their senders know."""
        outcomes = sum((client.machine.report.outcomes for client in self.clients), Counter[str]())
        return outcomes.total() - outcomes["accepted"]

    def check(self) -> None:
        """Asserts that each delivery arrived (once), that everything happened and nothing broke."""
        for name, router in self.routers.items():
            failed = router.complaints()
            assert not failed, "\n".join([name, *failed[:5]])
        assert set(self.codes) == {0}
        books = self.books
        assert all(self.counts.values()), self.counts
        lost = f"{len(books.lost)} lost: {sorted(books.lost)[:5]}"
        if self.guarantee is not Guarantee.EXACTLY_ONCE:
            assert len(books.lost) <= self.given_back, lost
            return
        assert not books.lost, lost
        assert not books.duplicated, f"{len(books.duplicated)} duplicated"
        assert [client.machine.report.in_doubt for client in self.clients] == [0, 0, 0, 0]

    # --- clients ----------------------------------------------------------------------------------

    def _make_clients(self) -> tuple[list[Client], list[Client]]:
        senders = [
            sending(
                f"sender-{name}",
                self.address,
                self._ports[name],
                numbered(self.books.count(self._until_over(index)), 50),
                guarantee=self.guarantee,
            )
            for index, name in enumerate(SENDERS)
        ]
        receivers = [
            receiving(
                f"receiver-{name}",
                self.address,
                self._ports[name],
                self.books.take,
                guarantee=self.guarantee,
            )
            for name in RECEIVERS
        ]
        self.clients = [*senders, *receivers]
        return senders, receivers

    def _until_over(self, first: int) -> "itertools.takewhile[int]":
        return itertools.takewhile(lambda _: not self._is_over, from_number(first, 2))

    def _progress(self) -> int:
        return sum(client.machine.report.progress for client in self.clients)

    # --- trouble ----------------------------------------------------------------------------------

    async def _make_trouble(self, nursery: trio.Nursery) -> None:
        chance = random.Random(self.seed)
        self._begun = trio.current_time()
        kinds = list(self.counts)
        weights = [WEIGHTS[fault] for fault in kinds]
        due = chance.sample(kinds, len(kinds))
        while due or not self._is_enough():
            await trio.sleep(chance.uniform(0.2, self.pause_seconds))
            fault = due.pop() if due else chance.choices(kinds, weights)[0]
            passed = trio.current_time() - self._begun
            self.tell(f"{passed:.1f} s, {len(self.books.taken)} taken: {fault.value}")
            await self._happen(fault, chance, nursery)
            self.counts[fault] += 1

    def _is_enough(self) -> bool:
        happened = sum(self.counts.values())
        if trio.current_time() - self._begun >= self.most_seconds:
            return True
        return happened >= self.faults and len(self.books.sent) >= self.deliveries

    async def _happen(self, fault: Fault, chance: random.Random, nursery: trio.Nursery) -> None:
        match fault:
            case Fault.CUT:
                chance.choice(self.lines).relay.cut()
            case Fault.PARTITION:
                await self._part(chance)
            case Fault.PAUSE:
                await self._pause(self.routers[chance.choice(NAMES)], chance.uniform(0.5, 5.0))
            case Fault.KILL_INGRESS:
                await self._kill(chance.choice(SENDERS), chance, nursery)
            case Fault.KILL_EGRESS:
                await self._kill(chance.choice(RECEIVERS), chance, nursery)
            case Fault.KILL_TRANSIT:
                await self._kill("dc3", chance, nursery)
            case Fault.KILL_WORKER:
                router = self.routers[chance.choice(NAMES)]
                router.kill_worker(chance.randint(1, self.workers))

    async def _part(self, chance: random.Random) -> None:
        """Separates some sites from the others, for a while."""
        island = set(chance.sample(NAMES, chance.randint(1, 2)))
        cut = [line for line in self.lines if len(island.intersection(line.ends)) == 1]
        for line in cut:
            line.relay.refuse = True
            line.relay.cut()
        await trio.sleep(chance.uniform(0.5, 4.0))
        for line in cut:
            line.relay.refuse = False

    async def _pause(self, router: MortalRouter, seconds: float) -> None:
        """Stops all processes of a router, which wake up later and go on with what they knew."""
        ids = [router.life.process.pid, *router.life.workers.values()]
        for process in ids:
            os.kill(process, signal.SIGSTOP)
        await trio.sleep(seconds)
        for process in ids:
            os.kill(process, signal.SIGCONT)

    async def _kill(self, name: str, chance: random.Random, nursery: trio.Nursery) -> None:
        router = self.routers[name]
        await router.kill()
        await trio.sleep(chance.uniform(0.0, 1.0))
        await router.start(nursery)
