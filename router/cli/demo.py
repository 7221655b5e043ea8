"""``router demo``: exactly-once transfer on this machine, without further installation.

A router of two workers, a container that sends and one that receives. Each of the two containers
reaches the router through a relay in this process, and loses its connection once in the middle of
traffic. Messages are numbered and counted independently of what client and router report.
"""

import contextlib
import json
import secrets
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final

import attrs
import click
import trio

from router.model.delivery import ReceivedDelivery
from router.model.identity import LinkId, LinkName
from router.model.outcome import ACCEPTED, DeliveryState
from router.net.client.conversation import Conversation, Dialing, UnreachableError
from router.net.client.message import number_of, numbered
from router.net.client.receiver import ReceivingLink
from router.net.client.relay import Relay
from router.net.client.sender import SendingLink
from router.programs import command_of
from router.routes.route import Guarantee
from router.wire.engine import EngineSettings
from router.wire.mechanisms import MechanismClient
from router.wire.v1_0.engine import Engine10

FAILED: Final = 1
ADDRESS: Final = "demo.orders"
CREDIT: Final = 500
START_SECONDS: Final = 60.0
STALL_SECONDS: Final = 10.0
"""Time without progress after which the demo fails."""

CONFIG: Final = """\
router: {id: demo, workers: 2, admin: off, log_format: json}
listeners:
  - bind: 127.0.0.1:0
routes:
  - address: demo.#
    guarantee: exactly-once
"""


class DemoError(Exception):
    """The demo cannot go on."""


@attrs.define(eq=False)
class Account:
    """The two containers' account of the messages, by their numbers.

    Attributes:
        times: how often the receiver accepted each message.
    """

    expected: int
    times: dict[int, int] = attrs.field(factory=dict)

    def take(self, delivery: ReceivedDelivery) -> DeliveryState:
        """Counts a received message and accepts it."""
        number = number_of(delivery.payload)
        if number is not None:
            self.times[number] = self.times.get(number, 0) + 1
        return ACCEPTED

    @property
    def received(self) -> int:
        """Number of different messages received."""
        return len(self.times)

    @property
    def lost(self) -> int:
        """Number of messages never received."""
        return self.expected - self.received

    @property
    def duplicated(self) -> int:
        """Number of messages received again."""
        return sum(self.times.values()) - self.received


@attrs.define(eq=False)
class RouterProcess:
    """A router process for the demo."""

    process: trio.Process
    log: list[str] = attrs.field(factory=list)
    port: int = 0
    _is_ready: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def read_log(self) -> None:
        """Reads the log until the process ends."""
        assert self.process.stdout is not None
        rest = b""
        async for octets in self.process.stdout:
            *lines, rest = (rest + octets).split(b"\n")
            for line in lines:
                self._read(line.decode(errors="replace"))
        self._is_ready.set()

    def _read(self, line: str) -> None:
        self.log.append(line)
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            if entry.get("event") == "listener.opened" and entry["addresses"]:
                self.port = int(entry["addresses"][0].rpartition(":")[2])
            elif entry.get("event") == "router.ready":
                self._is_ready.set()

    async def ready(self) -> None:
        """Waits until it accepts connections."""
        with trio.move_on_after(START_SECONDS):
            await self._is_ready.wait()
        if not self.port:
            raise DemoError("the router did not start:\n" + "\n".join(self.log[-20:]))

    async def end(self) -> int:
        """Drains the router; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return await self.process.wait()


@contextlib.asynccontextmanager
async def _running_router(folder: Path) -> AsyncIterator[RouterProcess]:
    config = folder / "router.yaml"
    config.write_text(CONFIG)
    process = await trio.lowlevel.open_process(
        [*command_of("router"), "run", str(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    router = RouterProcess(process)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(router.read_log)
            await router.ready()
            yield router
            nursery.cancel_scope.cancel()
    finally:
        if process.returncode is None:
            process.kill()


@attrs.define(eq=False, kw_only=True)
class Demo:
    """One run.

    Attributes:
        say: prints a line.
    """

    count: int
    size: int
    say: Callable[[str], None]
    account: Account = attrs.field(init=False)
    sender: SendingLink = attrs.field(init=False)
    receiver: ReceivingLink = attrs.field(init=False)
    began: float = attrs.field(default=0.0, init=False)
    traffic_seconds: float = attrs.field(default=0.0, init=False)
    exit_code: int | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.account = Account(self.count)
        run = secrets.token_hex(4)
        self.sender = SendingLink(
            name=LinkName(f"demo-sender-{run}"),
            address=ADDRESS,
            supply=numbered(b"x" * self.size, self.count),
            guarantee=Guarantee.EXACTLY_ONCE,
        )
        self.receiver = ReceivingLink(
            name=LinkName(f"demo-receiver-{run}"),
            address=ADDRESS,
            take=self.account.take,
            guarantee=Guarantee.EXACTLY_ONCE,
            window=CREDIT,
            count=self.count,
        )

    async def run(self) -> None:
        """Runs the router and the traffic.

        Raises:
            DemoError: the router did not start, or the traffic stopped.
        """
        self.began = trio.current_time()
        with tempfile.TemporaryDirectory(prefix="router-demo-") as folder:
            async with _running_router(Path(folder)) as router:
                self._say(f"the router accepts on 127.0.0.1:{router.port}")
                began = trio.current_time()
                await self._move(router.port)
                self.traffic_seconds = trio.current_time() - began
                self._say("all is settled; the router drains and ends")
                self.exit_code = await router.end()

    def _say(self, text: str) -> None:
        self.say(f"{trio.current_time() - self.began:7.2f} s  {text}")

    async def _move(self, port: int) -> None:
        """Moves all messages, cutting each side's connection once."""
        relays = Relay(port), Relay(port)
        async with trio.open_nursery() as nursery:
            for relay in relays:
                await nursery.start(relay.run)
            nursery.start_soon(self._cut, relays[0], self.count // 3, "sender")
            nursery.start_soon(self._cut, relays[1], self.count * 2 // 3, "receiver")
            nursery.start_soon(self._watch)
            async with trio.open_nursery() as traffic:
                traffic.start_soon(self._converse, self.receiver, relays[1].port, "receiver")
                traffic.start_soon(self._converse, self.sender, relays[0].port, "sender")
            nursery.cancel_scope.cancel()

    async def _converse(self, machine: SendingLink | ReceivingLink, port: int, who: str) -> None:
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

        async def dial() -> trio.abc.Stream:
            return await trio.open_tcp_stream("127.0.0.1", port)

        conversation = Conversation(
            Dialing(
                dial=dial,
                make_engine=make_engine,
                on_lost=lambda reason: self._say(f"the {who} lost it ({reason}) and dials again"),
            ),
            machine,
        )
        try:
            await conversation.run()
        except UnreachableError as error:
            raise DemoError(f"the {who} cannot reach the router: {error}") from None
        if machine.failure is not None:
            raise DemoError(f"the {who}'s link failed: {machine.failure}")

    async def _cut(self, relay: Relay, after: int, who: str) -> None:
        """Cuts a connection once so many messages have been received."""
        while self.account.received < after:
            await trio.sleep(0.002)
        self._say(
            f"the {who}'s connection is cut, {self.account.received:,} messages having arrived"
        )
        relay.cut()

    async def _watch(self) -> None:
        """Fails the demo when there is no progress."""
        while True:
            before = self.sender.report.progress, self.receiver.report.progress
            await trio.sleep(STALL_SECONDS)
            if before == (self.sender.report.progress, self.receiver.report.progress):
                raise DemoError(f"nothing has moved for {STALL_SECONDS:g} s")


@click.command("demo")
@click.option(
    "--count",
    metavar="MESSAGES",
    type=click.IntRange(min=100),
    default=20_000,
    show_default=True,
    help="How many messages to move.",
)
@click.option(
    "--size",
    metavar="OCTETS",
    type=click.IntRange(min=0, max=1 << 20),
    default=100,
    show_default=True,
    help="Size of each body.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the account as JSON; default: lines.")
def command(count: int, size: int, as_json: bool) -> None:
    """Move messages through a router on this machine, exactly once, cutting connections meanwhile.

    Starts a router, a container that sends and one that receives, cuts each one's
    connection in the middle, and prints what was sent, received, lost and duplicated. Exits with 0
    if nothing was lost or duplicated; else with 1.
    """
    demo = Demo(count=count, size=size, say=_silence if as_json else click.echo)
    demo.say(
        f"One router, one container that sends {count:,} messages, one that receives them."
        "\nGuarantee: exactly once. Each container loses its connection once.\n"
    )
    problem = _run(demo)
    if as_json:
        click.echo(json.dumps({**_facts(demo), "error": problem}))
    else:
        _print_account(demo)
    if problem is not None:
        click.echo(f"router demo: {problem}", err=True)
    if problem is not None or not is_good(demo):
        raise SystemExit(FAILED)


def _silence(text: str) -> None:
    """Prints nothing."""


def _run(demo: Demo) -> str | None:
    """Runs the demo; returns what went wrong."""
    try:
        trio.run(demo.run)
    except DemoError as error:
        return str(error)
    except BaseExceptionGroup as group:
        known, other = group.split(DemoError)
        if known is None or other is not None:
            raise
        return "; ".join(str(error) for error in _leaves(known))
    return None


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def is_good(demo: Demo) -> bool:
    """Returns whether every message was received exactly once."""
    report = demo.sender.report
    return (
        report.outcomes == {"accepted": demo.count}
        and demo.account.lost == demo.account.duplicated == report.in_doubt == 0
        and demo.exit_code == 0
    )


def _facts(demo: Demo) -> dict[str, int | float]:
    sender, receiver, account = demo.sender.report, demo.receiver.report, demo.account
    return {
        "sent": sender.sent,
        "accepted": sender.outcomes["accepted"],
        "received": account.received,
        "lost": account.lost,
        "duplicated": account.duplicated,
        "in_doubt": sender.in_doubt,
        "resumed_by_sender": sender.resumed,
        "resumed_to_receiver": receiver.repeated,
        "connections": sender.connections + receiver.connections,
        "seconds": round(demo.traffic_seconds, 3),
    }


_REMARKS: Final = {
    "sent": "",
    "accepted": "outcomes that came back to the sender",
    "received": "different messages that reached the receiver",
    "lost": "sent and never received",
    "duplicated": "received more than once",
    "in_doubt": "it is not known whether they arrived",
    "resumed_by_sender": "unsettled when its connection was cut, known to the router",
    "resumed_to_receiver": "unsettled when its connection was cut, recognized",
    "connections": "of both containers",
}
_TO_BE_ZERO: Final = ("lost", "duplicated", "in_doubt")


def _print_account(demo: Demo) -> None:
    """Prints the counts of messages by their outcome."""
    facts = _facts(demo)
    demo.say("")
    for name, remark in _REMARKS.items():
        value = f"{facts[name]:>10,}"
        if name in _TO_BE_ZERO:
            value = click.style(value, fg="red" if facts[name] else "green", bold=True)
        demo.say(f"  {name.replace('_', ' '):<20}{value}   {remark}".rstrip())
    if is_good(demo):
        seconds = demo.traffic_seconds
        demo.say(
            f"\nNothing lost, nothing duplicated. {demo.count:,} messages in {seconds:.1f} s,"
            f" {demo.count / seconds:,.0f} a second."
        )
