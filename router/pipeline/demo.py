"""``make pipeline-demo``: runs two routers under faults, and audits their deliveries.

    sender -> relay -> router east -> relay -> router west -> relay -> receiver

Connections are cut and a router is killed at random while messages pass. Both routers write their
ledger to one directory. The audit's result is compared with the counts of sender and receiver.
"""

import argparse
import functools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
import trio

from router.errors import RouterError
from router.model.delivery import ReceivedDelivery
from router.model.identity import LinkId, LinkName
from router.model.outcome import ACCEPTED, DeliveryState
from router.net.client.conversation import Conversation, Dialing
from router.net.client.message import number_of, numbered
from router.net.client.receiver import ReceivingLink
from router.net.client.relay import Relay
from router.net.client.sender import SendingLink
from router.pipeline.compaction import compact
from router.pipeline.extra import need_spark
from router.programs import command_of
from router.routes.route import Guarantee
from router.wire.engine import EngineSettings
from router.wire.mechanisms import MechanismClient
from router.wire.v1_0.engine import Engine10

START_SECONDS: Final = 60.0
PATIENCE_SECONDS: Final = 120.0
STALL_SECONDS: Final = 180.0
"""Time without a message after which the demo fails."""

DRAIN_SECONDS: Final = 60.0
SETTLE_SECONDS: Final = 1.0
TELL_SECONDS: Final = 10.0
"""How often the demo says what it waits for."""

_ROUTER: Final = """\
router: {{id: {name}, workers: 1, admin: off, log_format: json, drain_seconds: 2s,
         state: {folder}/{name},
         compaction: {{directory: {folder}/ledger, every_seconds: 5s}}}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
"""
_EAST: Final = """\
containers: {{west: {{url: "amqp://127.0.0.1:{port}", is_router: true, retry_limit_seconds: 1s}}}}
routes: [{{address: orders, to: west, guarantee: exactly-once}}]
"""
_WEST: Final = """\
routes: [{address: orders, guarantee: exactly-once, unroutable: hold}]
policy: {rules: [{name: all, send: ["#"], receive: ["#"], is_router: true}]}
"""
"""Without the rule west would not trust the delivery keys that east assigns."""


class DemoError(RouterError):
    """The demo cannot go on."""


@attrs.define(eq=False)
class Account:
    """The counts of sender and receiver.

    Attributes:
        sent: number of messages sent.
        accepted: number of accepted outcomes that reached the sender.
        taken: how often the receiver accepted each message.
        kills: how often a router was killed.
        cuts: how often connections were cut.
    """

    sent: int = 0
    accepted: int = 0
    taken: Counter[int] = attrs.field(factory=Counter)
    kills: int = 0
    cuts: int = 0

    def take(self, delivery: ReceivedDelivery) -> DeliveryState:
        """Counts a received message and accepts it."""
        number = number_of(delivery.payload)
        self.taken[-1 if number is None else number] += 1
        return ACCEPTED

    @property
    def once(self) -> int:
        """Number of messages received exactly once."""
        return sum(times == 1 for times in self.taken.values())


@attrs.define(eq=False)
class Wait:
    """Says what the demo waits for, if that takes long.

    Attributes:
        say: prints a line.
        clock: returns the time, in seconds.
        what: what it waits for; called each time, so that it can count.
    """

    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    what: Callable[[], str] = attrs.field(default=lambda: "", init=False)
    _since: float = attrs.field(init=False)
    _told: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._since = self._told = self.clock()

    def begin(self, what: str | Callable[[], str]) -> None:
        """Begins to wait for something else."""
        self.what = what if callable(what) else lambda: what
        self._since = self._told = self.clock()

    def tell(self) -> None:
        """Says it, but not more often than each ten seconds."""
        now = self.clock()
        if now - self._told >= TELL_SECONDS:
            self._told = now
            self.say(f"  waiting for {now - self._since:,.0f} s: {self.what()}")

    async def run(self) -> None:
        """Says it until cancelled."""
        while True:
            await trio.sleep(1)
            self.tell()


@attrs.define(eq=False)
class _Router:
    """A ``router run`` process that can be killed and restarted."""

    config: Path
    process: trio.Process | None = None

    async def start(self) -> None:
        """Starts the router and waits until it accepts connections."""
        log = self.config.with_suffix(".log")
        before = log.stat().st_size if log.exists() else 0
        with log.open("ab") as file:
            self.process = await trio.lowlevel.open_process(
                [*command_of("router"), "run", str(self.config)],
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        with trio.fail_after(START_SECONDS):
            while b"router.ready" not in log.read_bytes()[before:]:
                if self.process.poll() is not None:
                    raise RuntimeError(log.read_bytes()[before:].decode(errors="replace"))
                await trio.sleep(0.05)

    async def kill(self) -> None:
        """Ends the router with SIGKILL."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    async def end(self) -> None:
        """Drains the router, and kills it if that takes too long."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        with trio.move_on_after(DRAIN_SECONDS):
            await self.process.wait()
        if self.process.returncode is None:
            await self.kill()


async def move(
    folder: Path,
    count: int,
    faults: int,
    seed: int = 1,
    say: Callable[[str], None] = lambda told: None,
) -> Account:
    """Moves messages through two routers under faults; leaves their ledger in ``folder``.

    Args:
        folder: directory for all files.
        count: number of messages.
        faults: number of faults, spread over the messages; every third one kills a router.
        seed: of the random order of faults.
        say: called with each fault, and with what is waited for if that takes long.

    Raises:
        DemoError: a link failed, or there is no progress.
    """
    chance, account, wait = random.Random(seed), Account(), Wait(say)
    ports = _free_port(), _free_port()
    between = Relay(ports[1])

    def supply() -> Iterator[bytes]:
        for payload in numbered(b"x" * 100, count):
            account.sent += 1
            yield payload

    async def converse(machine: SendingLink | ReceivingLink, relay: Relay) -> None:
        await Conversation(_dialing(machine, relay), machine).run()
        if machine.failure is not None:
            raise DemoError(f"{machine.name}: {machine.failure}")

    receiver = ReceivingLink(
        name=LinkName("demo-receiver"),
        address="orders",
        take=account.take,
        guarantee=Guarantee.EXACTLY_ONCE,
    )
    sender = SendingLink(
        name=LinkName("demo-sender"),
        address="orders",
        supply=supply(),
        guarantee=Guarantee.EXACTLY_ONCE,
        window=200,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait.run)
        await nursery.start(between.run)
        routers = _write_configs(folder, ports, between.port)
        try:
            for router in routers:
                wait.begin(f"router {router.config.stem} to start")
                await router.start()
            near, far = Relay(ports[0]), Relay(ports[1])
            await nursery.start(near.run)
            await nursery.start(far.run)
            places = {near: "sender - east", between: "east - west", far: "west - receiver"}
            nursery.start_soon(converse, receiver, far)
            nursery.start_soon(_watch, account)
            async with trio.open_nursery() as traffic:
                traffic.start_soon(converse, sender, near)
                await _cause_faults(
                    _Faults(routers=routers, cuts=places, chance=chance),
                    account,
                    count,
                    faults,
                    wait,
                )
                wait.begin(
                    lambda: (
                        f"{len(account.taken):,} of {count:,} messages received, and the"
                        " outcomes of all to come back"
                    )
                )
            await trio.sleep(SETTLE_SECONDS)
            account.accepted = sender.report.outcomes["accepted"]
            nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                say("  the routers end")
                for router in routers:
                    if router.process is not None:
                        await router.end()
    say("  what is left of their journals becomes a ledger")
    for router in routers:  # on a busy machine they may not finish the compaction themselves
        compact(router.config.with_suffix(""), folder / "ledger", removes=True)
    return account


@attrs.frozen(kw_only=True)
class _Faults:
    """What can fail.

    Attributes:
        cuts: connections, and their names.
        chance: chooses.
    """

    routers: Sequence[_Router]
    cuts: Mapping[Relay, str]
    chance: random.Random


async def _cause_faults(
    what: _Faults, account: Account, count: int, faults: int, wait: Wait
) -> None:
    """Cuts connections and kills routers while messages pass."""
    for fault in range(faults):
        wait.begin(lambda: f"{len(account.taken):,} of {count:,} messages received")
        while len(account.taken) < count * (fault + 1) // (faults + 1):
            await trio.sleep(0.005)
        if fault % 3 == 2:
            router = what.chance.choice(what.routers)
            await router.kill()
            account.kills += 1
            wait.say(f"  {len(account.taken):,} received: {router.config.stem} killed")
            wait.begin(f"router {router.config.stem} to start again")
            await router.start()
        else:
            cut = what.chance.choice(tuple(what.cuts))
            cut.cut()
            account.cuts += 1
            wait.say(f"  {len(account.taken):,} received: {what.cuts[cut]} cut")


async def _watch(account: Account) -> None:
    """Fails when there is no progress."""
    before = -1
    while before != (now := len(account.taken)):
        before = now
        await trio.sleep(STALL_SECONDS)
    raise DemoError(f"nothing has come for {STALL_SECONDS:g} s, after {now:,} messages")


def _write_configs(folder: Path, ports: tuple[int, int], relayed: int) -> tuple[_Router, _Router]:
    texts = {
        "east": _ROUTER.format(name="east", folder=folder, port=ports[0])
        + _EAST.format(port=relayed),
        "west": _ROUTER.format(name="west", folder=folder, port=ports[1]) + _WEST,
    }
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    return _Router(folder / "east.yaml"), _Router(folder / "west.yaml")


def _dialing(machine: SendingLink | ReceivingLink, relay: Relay) -> Dialing:
    async def dial() -> trio.abc.Stream:
        return await trio.open_tcp_stream("127.0.0.1", relay.port)

    def make_engine(link_ids: Iterator[LinkId]) -> Engine10:
        return Engine10(
            EngineSettings(
                is_server=False,
                container=machine.name,
                link_ids=link_ids,
                hostname="localhost",
                sasl_client=MechanismClient,
            )
        )

    return Dialing(dial=dial, make_engine=make_engine, patience_seconds=PATIENCE_SECONDS)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo; returns 0 if the audit agrees with sender and receiver."""
    parser = argparse.ArgumentParser(prog="python -m router.pipeline.demo", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="messages; default: 20000")
    parser.add_argument("--faults", type=int, default=12, help="default: 12; each third one kills")
    parser.add_argument("--out", type=Path, default=Path("pipeline-demo"), help="for the report")
    parser.add_argument("--master", help="Spark master; default: this machine")
    options = parser.parse_args(arguments)
    try:
        need_spark()
        return _show(options)
    except* RouterError as errors:
        say(f"pipeline-demo: {_first_of(errors)}")
    return 1


def _show(options: argparse.Namespace) -> int:
    told = options.out / "audit.json"
    told.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="pipeline-demo-") as folder:
        say("two routers, one sender, one receiver; connections are cut and routers killed")
        run = functools.partial(move, Path(folder), options.count, options.faults, say=say)
        account = trio.run(run)
        say(
            f"sent {account.sent:,}, accepted {account.accepted:,}, received once {account.once:,},"
            f" {account.cuts} cuts, {account.kills} kills"
        )
        files = sum(1 for _ in Path(folder, "ledger").rglob("*.parquet"))
        say(f"the audit of both ledgers, {files} files, on Spark:")
        command = [*command_of("router"), "audit", f"{folder}/ledger"]
        command += ["--grace", "0", "--out", str(options.out), "--html"]
        command += ["--master", options.master] if options.master else []
        code = _run(command, "Java to start, and Spark to read, group and judge")
    if not told.exists():
        say(f"pipeline-demo: the audit ended with {code}")
        return 1
    verdicts = json.loads(told.read_text())["verdicts"]
    is_same = verdicts["delivered-once"] == account.once == account.accepted == account.sent
    say(f"the report: {options.out / 'audit.html'}")
    say("audit and receiver agree" if is_same else "AUDIT AND RECEIVER DISAGREE")
    return 0 if is_same and code == 0 else 1


def _run(command: Sequence[str], what: str) -> int:
    """Runs a program, and says what it does if that takes long."""
    wait = Wait(say)
    wait.begin(what)
    with subprocess.Popen(command) as process:
        while True:
            try:
                return process.wait(1)
            except subprocess.TimeoutExpired:
                wait.tell()


def _first_of(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def say(text: str) -> None:
    """Prints a line."""
    print(text, flush=True)  # noqa: T201  a program for people


if __name__ == "__main__":
    sys.exit(main())
