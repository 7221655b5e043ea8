"""Shared by ``router send`` and ``router receive``: dialing, signals, output."""

import os
import secrets
import signal
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
import click
import trio
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from router import __version__
from router.cli.output import TEXT, print_json, print_lines
from router.cli.place import Place, open_stream, other_place, read_place
from router.links.attaches import DrawNumber, LifeCount, no_number
from router.model.capabilities import Protocol
from router.model.identity import LinkId
from router.net.client.conversation import Conversation, Dialing, UnreachableError
from router.net.client.course import Course
from router.net.client.receiver import ReceivingLink
from router.net.client.report import Report
from router.net.client.sender import SendingLink
from router.net.diversion import DiversionPolicy
from router.routes.route import Guarantee
from router.service.advice import command_link_advice
from router.wire.engine import Engine, EngineSettings
from router.wire.mechanisms import MechanismClient
from router.wire.protocols import PROTOCOLS, vhost_to_ask_for

FAILED: Final = 1
LOOK_SECONDS: Final = 0.1
"""How often progress is checked."""

SILENT_SECONDS: Final = 10.0
"""Silence after which a peer is given up: when it hangs, its kernel keeps its connections open."""

STILL_SECONDS: Final = 2.0
"""Time without progress after which the reason is printed."""

Command = TypeVar("Command", bound=Callable[..., Any])


def client_options(command: Command) -> Command:
    """Adds the arguments and options that both commands have."""
    decorators = (
        click.argument("url", callback=read_place),
        click.argument("address", type=TEXT),
        click.option(
            "--settle",
            type=click.Choice([str(each) for each in Guarantee]),
            default=str(Guarantee.AT_LEAST_ONCE),
            show_default=True,
            help="Guarantee: how often a message may arrive, and thus how it is settled.",
        ),
        click.option(
            "--protocol",
            type=click.Choice([str(each) for each in PROTOCOLS]),
            default=str(Protocol.AMQP_1_0),
            show_default=True,
            help="Protocol. amqp-1.0 and amqp-0-10 resume what a lost connection left"
            " unsettled; over the others it is sent again.",
        ),
        click.option(
            "--wait",
            metavar="SECONDS",
            type=click.FloatRange(min=0),
            default=10.0,
            show_default=True,
            help="How long to dial, or dial again, before giving up.",
        ),
        click.option(
            "--timeout",
            metavar="SECONDS",
            type=click.FloatRange(min=0, min_open=True),
            help="Give up after this time without any progress; default: never.",
        ),
        click.option(
            "--failover",
            type=click.Choice(["obey", "ignore"]),
            default="obey",
            show_default=True,
            help="Whether places that the peer names are dialed, in a redirect or when the"
            " connection is lost: with TLS if URL has it, and never otherwise.",
        ),
        click.option(
            "--failover-host",
            "failover_hosts",
            metavar="HOST",
            multiple=True,
            help="Host to which the peer may lead beside that of URL, with the same login: a name,"
            " *.domain or *; may be repeated; default: none.",
        ),
        click.option(
            "--ca",
            metavar="FILE",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Authorities (PEM) to trust for amqps; default: the system's.",
        ),
        click.option(
            "--name",
            metavar="TEXT",
            type=TEXT,
            help="Name of the link, the same to resume it; default: a new one each time.",
        ),
        click.option(
            "--json", "as_json", is_flag=True, help="Print the result as JSON; default: one line."
        ),
    )
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def link_name(verb: str) -> str:
    """Returns a link name that no other link of this machine has."""
    return f"router-{verb}-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def count_attaches(name: str | None) -> DrawNumber:
    """Returns a counter for the attaches of a link with a generated name.

    A link whose name was given may belong to other processes before and after this one, and no
    state of it is kept, so its attaches have no numbers.
    """
    return LifeCount(time.time_ns()).draw if name is None else no_number


@attrs.define(eq=False, kw_only=True)
class Errand:
    """One run of a link machine for a command at a terminal.

    Attributes:
        verb: the command's name.
        address: what the link is attached to.
        expected: number of deliveries after which it is done; None: it runs until interrupted.
        moved: returns the number of completed deliveries in ``report``.
        waits_for: returns why there is no progress; None: the reason is unknown.
        beside: runs beside the conversation, until that ends.
        is_whole: returns whether ``expected`` is all that there is, so that doing it is enough.
    """

    verb: str
    place: Place
    protocol: Protocol
    machine: SendingLink | ReceivingLink
    container: str
    address: str
    expected: int | None
    moved: Callable[[Report], int]
    patience_seconds: float
    timeout_seconds: float | None
    ca: Path | None = None
    failover: DiversionPolicy
    waits_for: Callable[[], str | None] = lambda: None
    beside: Callable[[Conversation], Awaitable[None]] | None = None
    is_whole: Callable[[], bool] = lambda: True
    seconds: float = attrs.field(default=0.0, init=False)
    error: str | None = attrs.field(default=None, init=False)
    advice: str | None = attrs.field(default=None, init=False)
    _memory: dict[str, object] = attrs.field(factory=dict, init=False)
    _course: Course[Place] = attrs.field(init=False)
    _reported: tuple[str, int] | None = attrs.field(default=None, init=False)
    was_stopped: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._course = Course(
            home=self.place,
            address=self.address,
            divert=lambda other: other_place(self.place, other, self.failover),
            report=self._report_course,
        )

    def run(self) -> None:
        """Runs until the machine is done, a signal comes, or time runs out."""
        trio.run(self._run)
        failure = self.machine.failure
        if failure is not None and self.error is None:
            self.error = str(failure)
            self.advice = command_link_advice(self.error, self.address)

    @property
    def is_complete(self) -> bool:
        """Whether all expected deliveries were completed."""
        if self.error is not None or not self.is_whole():
            return False
        return self.expected is None or self.moved(self.machine.report) >= self.expected

    # --- running ----------------------------------------------------------------------------------

    async def _run(self) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            await self._converse(signals)

    async def _converse(self, signals: AsyncIterator[int]) -> None:
        context = None
        if self.place.is_tls:
            context = ssl.create_default_context(cafile=self.ca and str(self.ca))
        dialing = Dialing(
            dial=lambda: self._dial(context),
            course=self._course,
            make_engine=self._make_engine,
            patience_seconds=self.patience_seconds,
            on_lost=self._report_lost,
        )
        conversation = Conversation(dialing, self.machine)
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_signals, signals, conversation)
            nursery.start_soon(self._watch_progress, conversation)
            if self.beside is not None:
                nursery.start_soon(self.beside, conversation)
            try:
                await conversation.run()
            except UnreachableError as error:
                self.error = f"{self._course.here}: {error}"
                self.advice = self._course.here.advice(str(error))
            nursery.cancel_scope.cancel()
        self.seconds = trio.current_time() - began

    async def _dial(self, context: ssl.SSLContext | None) -> trio.abc.Stream:
        """Connects to the place that the course has chosen."""
        self.machine.aim(self._course.address_here)
        return await open_stream(self._course.here, context)

    def _make_engine(self, link_ids: Iterator[LinkId]) -> Engine:
        place = self._course.here
        settings = EngineSettings(
            is_server=False,
            container=self.container,
            link_ids=link_ids,
            hostname=vhost_to_ask_for(self.protocol, place.vhost, place.hostname),
            sasl_client=lambda: MechanismClient(user=place.user, password=place.password),
            properties={"version": __version__},
            memory=self._memory,
            idle_seconds=SILENT_SECONDS,
        )
        return PROTOCOLS[self.protocol].make(settings, None)

    def _report_lost(self, reason: str) -> None:
        if (reason, self.machine.report.connections) == self._reported:
            return
        self._reported = reason, self.machine.report.connections
        print_lines(f"router {self.verb}: {self._course.here}: {reason}; dialing again", err=True)

    def _report_course(self, text: str) -> None:
        print_lines(f"router {self.verb}: {self._course.here}: {text}", err=True)

    async def _watch_signals(self, signals: AsyncIterator[int], conversation: Conversation) -> None:
        async for _ in signals:
            if self.was_stopped:
                raise KeyboardInterrupt
            self.was_stopped = True
            conversation.finish()

    async def _watch_progress(self, conversation: Conversation) -> None:
        report = self.machine.report
        with _bar(self.verb, self.expected) as show:
            seen, seen_at = report.progress, trio.current_time()
            is_reported = False
            while True:
                await trio.sleep(LOOK_SECONDS)
                show(self.moved(report), self.expected)
                now = trio.current_time()
                if report.progress != seen:
                    seen, seen_at = report.progress, now
                elif now - seen_at >= STILL_SECONDS and not is_reported:
                    is_reported = self._report_why()
                limit = self.timeout_seconds
                if limit is not None and now - seen_at >= limit and not conversation.is_finishing:
                    self._time_out(limit)
                    conversation.finish()

    def _time_out(self, limit: float) -> None:
        if self.expected is not None or not self.is_whole():
            why = self.waits_for()
            self.error = f"no progress for {limit:g} s" + (f": {why}" if why else "")

    def _report_why(self) -> bool:
        why = self.waits_for()
        if why is not None:
            print_lines(f"router {self.verb}: {why}", err=True)
        return why is not None

    # --- the account ------------------------------------------------------------------------------

    def conclude(self, as_json: bool, *, err: bool = False) -> None:
        """Prints the outcomes of the deliveries; exits with an error if not all are good.

        Args:
            as_json: prints JSON.
            err: to standard error, because messages went to standard output.
        """
        report = self.machine.report
        if as_json:
            print_json(self._facts(report), err=err)
        else:
            print_lines(self._line(report), err=err)
        for container, number in report.in_doubt_with.items():
            may = f"whether {container} has {number:,} of them"
            print_lines(f"router {self.verb}: nobody can tell any more {may}", err=True)
        if self.error is not None:
            print_lines(f"router {self.verb}: {self.error}", err=True)
        if self.advice is not None:
            print_lines(f"router {self.verb}: {self.advice}", err=True)
        if not self.is_complete:
            raise SystemExit(FAILED)

    @property
    def _rate(self) -> float:
        return self.moved(self.machine.report) / self.seconds if self.seconds else 0.0

    def _facts(self, report: Report) -> dict[str, object]:
        facts: dict[str, object] = attrs.asdict(report)
        facts["outcomes"] = dict(report.outcomes)
        facts["in_doubt_with"] = dict(report.in_doubt_with)
        facts["seconds"] = round(self.seconds, 6)
        facts["messages_per_second"] = round(self._rate, 1)
        facts["error"] = self.error
        facts["advice"] = self.advice
        return facts

    def _line(self, report: Report) -> str:
        counts: list[tuple[str, int]] = [
            ("sent", report.sent),
            ("received", report.received),
            *sorted(report.outcomes.items()),
            ("sent again", report.resent),
            ("resumed", report.resumed),
            ("repeated", report.repeated),
            ("in doubt", report.in_doubt),
        ]
        counted = ", ".join(f"{name} {number:,}" for name, number in counts if number)
        connections = f" over {report.connections} connections" if report.connections > 1 else ""
        return (
            f"{counted or 'nothing'} in {self.seconds:.2f} s ({self._rate:,.0f} msg/s){connections}"
        )


@attrs.define(eq=False)
class _bar:  # noqa: N801  a context manager, used like a function
    """A progress bar on standard error, if that is a terminal."""

    verb: str
    expected: int | None
    _progress: Progress | None = attrs.field(default=None, init=False)

    def __enter__(self) -> Callable[[int, int | None], None]:
        if not sys.stderr.isatty():
            return lambda moved, expected: None
        progress = self._progress = Progress(
            TextColumn(self.verb),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]} msg/s"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        task = progress.add_task(self.verb, total=self.expected, rate="-")
        progress.start()

        def show(moved: int, expected: int | None) -> None:
            speed = progress.tasks[task].speed
            rate = "-" if speed is None else f"{speed:,.0f}"
            progress.update(task, completed=moved, total=expected, rate=rate)

        return show

    def __exit__(self, *error: object) -> None:
        if self._progress is not None:
            self._progress.stop()
