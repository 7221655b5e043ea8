"""Exactly once through two routers, of which the near one stores, with faults back to back.

Four senders at the near router, four receivers at the far one, each on one link that begins once.
Connections are cut, workers, the store and both routers are killed, some with logs that stood still
while connections were cut, and what a crash may leave of the last commit is written behind the logs
of a router that was killed.

``ROUTER_STORED_DELIVERIES`` and ``ROUTER_STORED_FAULTS`` say how many, ``ROUTER_STORED_SEED``
which, ``ROUTER_STORED_WORKERS`` how many workers the near router has. With
``ROUTER_STORED_LEDGER=1`` both routers keep a ledger, and ``router audit`` judges it in the end.
After ``ROUTER_STORED_SECONDS`` there are no more faults, and no more is sent than was by then.
What bounds the run is how long routers take to start: a fault follows when the one before it is
over and something has arrived.

Order: a receiver takes the deliveries of a sender in the order of their sending. One that the far
router has given back, because its receivers were gone, may come behind those that were on their way
to it by then; the near router counts these in its log.
"""

import contextlib
import json
import math
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from router.model.delivery import ReceivedDelivery
from router.model.outcome import DeliveryState
from router.net.client.conversation import UnreachableError
from tests.support import peers
from tests.support.chaos import Books, Client, number_of, numbered, receiving, sending
from tests.support.cuttable import Cuttable, cuttable
from tests.support.mortal import MortalRouter
from tests.support.ports import free_port
from tests.support.torn import tear

DELIVERIES = int(os.environ.get("ROUTER_STORED_DELIVERIES", "1000000"))
FAULTS = int(os.environ.get("ROUTER_STORED_FAULTS", "1000"))
SEED = int(os.environ.get("ROUTER_STORED_SEED", "1"))
SECONDS = float(os.environ.get("ROUTER_STORED_SECONDS", "inf"))
WORKERS = int(os.environ.get("ROUTER_STORED_WORKERS", "2"))
WITH_LEDGER = os.environ.get("ROUTER_STORED_LEDGER") == "1"

LINKS = 4
WINDOW = 200
ARRIVALS = 100
"""Deliveries that arrive between two faults, unless ``PAUSE_SECONDS`` pass first."""

PAUSE_SECONDS = 1.0
STALL_SECONDS = 0.5
"""Long enough for clients to come back, and too short for anybody to give a log up."""

REST_SECONDS = 600.0
GONE_SECONDS = 60.0
TOLD_EACH = 50

LEDGER = "  compaction: {{directory: {folder}/ledger, every_seconds: 1m}}\n"

NEAR = """
router:
  id: near
  workers: {workers}
  admin: off
  state: near-state
  log_format: json
{ledger}\
listeners: [{{bind: "127.0.0.1:{near}"}}]
containers:
  cloud: {{url: "amqp://127.0.0.1:{relay}", retry_limit_seconds: 1s, is_router: true}}
routes:
  - address: telemetry.#
    to: cloud
    guarantee: exactly-once
    store: {{always: {always}}}
    dead_letter: cloud/dead
"""

FAR = """
router:
  id: far
  workers: 1
  admin: off
  state: far-state
  log_format: json
{ledger}\
listeners: [{{bind: "127.0.0.1:{far}"}}]
routes:
  - address: telemetry.#
    guarantee: exactly-once
  - address: dead
"""


@attrs.define(eq=False)
class Run:
    """The routers, the relays, the clients and the account.

    Attributes:
        done: faults by kind.
        torn: logs that were left with a part of a commit.
        late: deliveries that came behind a later one of their sender, by the fault before.
        late_at: the same, by address.
        dead: what came as dead letters.
    """

    folder: Path
    always: bool
    deliveries: int
    faults: int
    books: Books = attrs.field(factory=Books)
    dead: Books = attrs.field(factory=Books)
    done: Counter[str] = attrs.field(factory=Counter)
    torn: int = 0
    late: Counter[str] = attrs.field(factory=Counter)
    late_at: Counter[str] = attrs.field(factory=Counter)
    begun: float = attrs.field(factory=time.monotonic)
    near: MortalRouter = attrs.field(init=False)
    far: MortalRouter = attrs.field(init=False)
    relays: list[Cuttable] = attrs.field(factory=list, init=False)
    nursery: trio.Nursery = attrs.field(init=False)
    _senders: list[Client] = attrs.field(factory=list, init=False)
    _latest: str = attrs.field(default="", init=False)
    _last: dict[int, int] = attrs.field(factory=dict, init=False)
    _chance: random.Random = attrs.field(factory=lambda: random.Random(SEED), init=False)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Both routers and all clients run for the length of the block."""
        near, far = free_port(), free_port()
        async with AsyncExitStack() as stack:
            self.relays = [await stack.enter_async_context(cuttable(p)) for p in (far, near, far)]
            between, to_near, to_far = self.relays
            places = {
                "near": near,
                "far": far,
                "relay": between.port,
                "workers": WORKERS,
                "always": str(self.always).lower(),
                "ledger": LEDGER.format(folder=self.folder) if WITH_LEDGER else "",
            }
            for name, text in (("near", NEAR), ("far", FAR)):
                (self.folder / f"{name}.yaml").write_text(text.format(**places))
            self.near = MortalRouter(self.folder / "near.yaml")
            self.far = MortalRouter(self.folder / "far.yaml")
            self.nursery = await stack.enter_async_context(trio.open_nursery())
            await self.near.start(self.nursery)
            await self.far.start(self.nursery)
            for link in range(LINKS):
                address = f"telemetry.{link}"
                supply = self._supply(link)
                self._senders.append(sending(address, address, to_near.port, supply, window=WINDOW))
                self.nursery.start_soon(self._senders[-1].run)
                receiver = receiving(f"to {address}", address, to_far.port, self._take)
                self.nursery.start_soon(receiver.run)
            self.nursery.start_soon(self._bury, to_far.port)
            yield
            await self.near.kill()
            await self.far.kill()
            self.nursery.cancel_scope.cancel()

    def _supply(self, link: int) -> Iterator[bytes | None]:
        """Yields a sender's messages, so many with each fault that they end with the last one."""
        for number in range(link, self.deliveries, LINKS):
            while number * self.faults > (self.done.total() + 1) * self.deliveries:
                if self.is_over:
                    return
                yield None
            self.books.sent.add(number)
            yield from numbered(iter((number,)), 100)

    async def _bury(self, port: int) -> None:
        """Receives dead letters; there are none, which must not tire it."""
        while True:
            with contextlib.suppress(UnreachableError):
                await receiving("dead", "dead", port, self.dead.take).run()

    def _take(self, delivery: ReceivedDelivery) -> DeliveryState:
        number = number_of(delivery)
        link = number % LINKS
        if number < self._last.get(link, -1):
            self.late[self._latest] += 1
            self.late_at[f"telemetry.{link}"] += 1
        self._last[link] = max(number, self._last.get(link, -1))
        return self.books.take(delivery)

    @property
    def is_over(self) -> bool:
        """Returns whether there are no more faults."""
        return self.done.total() >= self.faults or time.monotonic() > self.begun + SECONDS

    # --- faults -----------------------------------------------------------------------------------

    async def disturb(self) -> None:
        """Does one thing after another; the cheap ones more often."""
        kinds: dict[Callable[[], Awaitable[None]], int] = {
            self._cut: 8,
            self._first_worker: 4,
            self._second_worker: 3,
            self._store: 5,
            self._router: 1,
            self._target: 1,
            self._stalled_router: 1,
            self._stalled_target: 1,
        }
        round_of: list[Callable[[], Awaitable[None]]] = []
        while not self.is_over:
            if not round_of:
                round_of = [kind for kind, times in kinds.items() for _ in range(times)]
                self._chance.shuffle(round_of)
            kind = round_of.pop()
            self._latest = kind.__name__.strip("_")
            await kind()
            self.done[self._latest] += 1
            await self._go_on()
            if not self.done.total() % TOLD_EACH:
                print(self, flush=True)

    async def _go_on(self) -> None:
        known = len(self.books.taken)
        for sender in self._senders:
            sender.conversation.wake()
        with trio.move_on_after(PAUSE_SECONDS):
            while len(self.books.taken) < known + ARRIVALS:
                await trio.sleep(0.01)

    async def _cut(self) -> None:
        for relay in self.relays:
            if self._chance.random() < 0.6:
                relay.cut()

    async def _first_worker(self) -> None:
        self.near.kill_worker(1)

    async def _second_worker(self) -> None:
        self.near.kill_worker(WORKERS)

    async def _store(self) -> None:
        _kill_all(_logs_of(self.near, "messages"))

    async def _router(self) -> None:
        await self._kill(self.near, "near-state/messages", "near-state/journal")

    async def _target(self) -> None:
        await self._kill(self.far, "far-state/journal")

    async def _stalled_router(self) -> None:
        await self._stall(self.near)
        await self._router()

    async def _stalled_target(self) -> None:
        await self._stall(self.far)
        await self._target()

    async def _stall(self, router: MortalRouter) -> None:
        """Stops a router's logs, and cuts connections, which come back before anything is flushed.

        What a peer forgets then, the router must still know when it has been killed.
        """
        for name in ("messages", "journal"):
            for process in _logs_of(router, name):
                with contextlib.suppress(ProcessLookupError):  # killed before, and on its way out
                    os.kill(process, signal.SIGSTOP)
        await self._cut()
        await trio.sleep(STALL_SECONDS)

    async def _kill(self, router: MortalRouter, *logs: str) -> None:
        """Kills a router and its logs at once, as a machine that fails does."""
        processes = [each for name in ("messages", "journal") for each in _logs_of(router, name)]
        _kill_all([router.life.process.pid, *processes])
        await router.kill()
        with trio.fail_after(GONE_SECONDS):
            while any(map(_is_there, processes)):
                await trio.sleep(0.01)
        for log in logs:
            if self._chance.random() < 0.7:
                self.torn += tear(self.folder / log, self._chance)
        await router.start(self.nursery)

    # --- the account ------------------------------------------------------------------------------

    async def rest(self) -> None:
        """Waits until all senders are done and everything has arrived, or for as long as may be."""
        with trio.move_on_after(REST_SECONDS):
            while not self.is_answered or self.books.lost:
                for sender in self._senders:
                    sender.conversation.wake()
                await trio.sleep(0.5)
        print(self)

    @property
    def is_answered(self) -> bool:
        """Returns whether senders have heard the outcome of all they sent."""
        return all(each.machine.is_done for each in self._senders)

    @property
    def given_back(self) -> Counter[str]:
        """Deliveries that the near router was given back, by address."""
        found: Counter[str] = Counter()
        for line in self.near.matching('"store.returned"'):
            told = json.loads(line)
            found[told["address"]] += told["count"]
        return found

    @property
    def in_doubt(self) -> int:
        """Deliveries that a sender cannot know the outcome of."""
        return sum(each.machine.report.in_doubt for each in self._senders)

    def __str__(self) -> str:
        books = self.books
        return (
            f"{time.monotonic() - self.begun:,.0f} s: sent {len(books.sent):,}, received"
            f" {len(books.taken):,}, twice {sum(books.taken.values()) - len(books.taken)},"
            f" late {dict(self.late)} of {self.given_back.total()} given back,"
            f" dead {len(self.dead.taken)}, in doubt {self.in_doubt};"
            f" {self.done.total()} faults {dict(self.done)}, {self.torn} torn tails"
        )


def _logs_of(router: MortalRouter, name: str) -> list[int]:
    """Returns the process of a log of a router, as it said last."""
    started = [line for line in router.life.lines if f'"{name}.started"' in line]
    return [json.loads(line)["process"] for line in started[-1:]]


def _kill_all(processes: Iterable[int]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def _is_there(process: int) -> bool:
    """Returns whether a process runs; one that has ended and was not waited for does not."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def _carry_out(folder: Path, *, always: bool, deliveries: int, faults: int) -> None:
    if WITH_LEDGER:
        peers.need_spark()
    run = Run(folder, always, deliveries, faults)
    async with run.serving():
        await run.disturb()
        await run.rest()
        assert run.is_answered
        assert (len(run.books.lost), len(run.books.duplicated)) == (0, 0)
        assert (len(run.dead.taken), run.in_doubt) == (0, 0)
        assert run.late_at <= run.given_back, "something has overtaken what was not given back"
        assert len(run.books.sent) == deliveries or math.isfinite(SECONDS)
        if WITH_LEDGER:
            assert (await run.near.end(), await run.far.end()) == (0, 0)
    if WITH_LEDGER:
        await _audit(folder, len(run.books.sent), run.given_back.total())


async def _audit(folder: Path, deliveries: int, given_back: int) -> None:
    """Has ``router audit`` judge what both routers have on record.

    What the far router has given back on one link, and got again on another, is released there.
    """
    ledger, out = str(folder / "ledger"), folder / "audit"
    program = (sys.executable, "-m", "router")
    for state in ("near-state", "far-state"):
        compact = ("ledger", "compact", str(folder / state), "--out", ledger, "--open")
        await trio.run_process([*program, *compact])
    judge = ("audit", ledger, "--grace", "0", "--out", str(out), "--master", "local[1]")
    await trio.run_process([*program, *judge])
    told = json.loads((out / "audit.json").read_text())
    print(json.dumps(told.get("verdicts", told), indent=1))
    once = told["verdicts"].pop("delivered-once")
    assert told["verdicts"].pop("released") <= given_back
    assert (once, set(told["verdicts"].values())) == (2 * deliveries, {0})  # one of each router


@pytest.mark.long
async def test_what_a_router_stores_arrives_once_whatever_is_killed_or_torn(tmp_path: Path) -> None:
    await _carry_out(tmp_path, always=False, deliveries=6_000, faults=24)


@pytest.mark.slow
@pytest.mark.parametrize("always", [True, False], ids=["always", "while-away"])
async def test_a_million_deliveries_through_a_thousand_faults(tmp_path: Path, always: bool) -> None:
    await _carry_out(tmp_path, always=always, deliveries=DELIVERIES, faults=FAULTS)
