"""One worker, as its supervisor sees it: starts, instructs and restarts its process.

Theory of operation. A member has any number of *lives*, one process after the other::

    STARTING ── it serves ──▶ UP ── its process ends ──▶ DOWN ── a pause ──▶ STARTING
        └────── its process ends, or it cannot serve ────▶ DOWN

A process that is STARTING first prepares its configuration, and serves when it *may begin*: the
processes of a standby wait for that until their router leads.

A member that is UP becomes *open* to sockets once it knows the addresses that its siblings know;
before that its clients could not reach addresses that only siblings know.

A *retired* member's process is ending and is not started again.

Pauses double from one short life to the next; a life of ``STABLE_SECONDS`` resets them. The next
process is started only after the previous one has been waited for, so the two never overlap.

Sockets go through a queue in the supervisor: a worker that is busy for a moment must not delay the
accepting of connections for others, and sockets still queued when its process dies go to another
worker.
"""

import contextlib
import enum
import random
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import attrs
import structlog
import trio

from router.core.passage import HOME_WAIT_SECONDS
from router.errors import RouterError
from router.links.backoff import pause_seconds
from router.programs import command_of
from router.service import errands
from router.service.channel import Channel, ChannelError, Question, Result, send_socket
from router.service.errands import Duty, WorkerReport
from router.service.lives import WorkerLives
from router.service.placement import Load

STABLE_SECONDS: Final = 60.0
"""A life of this length resets the pauses."""

PAUSE_SECONDS: Final = 0.1
PAUSE_LIMIT_SECONDS: Final = HOME_WAIT_SECONDS / 2
"""How long links of exactly-once routes wait for the worker that keeps them: it has been restarted
once by then, and has as much time again to come up."""

BEGIN_SECONDS: Final = 60.0
"""Time in which a new process has to serve: reading a hundred thousand routes takes some 20 s."""

GONE_SECONDS: Final = 1.0
"""How long a process whose channel has ended may take to end, too."""


class Stage(enum.Enum):
    """State of a member."""

    STARTING = "starting"
    UP = "up"
    DOWN = "down"


@attrs.frozen
class Parcel:
    """A socket on its way to a worker.

    Attributes:
        purpose: its description for the worker.
        listener: that accepted it; None: it leads to a sibling, and no other worker can use it.
        source: the peer's IP address, if it has one.
    """

    purpose: dict[str, object]
    sock: socket.socket
    listener: str | None = None
    source: str | None = None


@attrs.define(eq=False)
class Door:
    """A way by which sockets are passed to the process of a worker, in their order.

    Attributes:
        parcels: not passed yet.
    """

    parcels: deque[Parcel] = attrs.field(factory=deque, init=False)
    _sock: socket.socket = attrs.field(init=False)
    _has_parcels: trio.Event = attrs.field(factory=trio.Event, init=False)

    def make(self) -> socket.socket:
        """Makes the door of a new process, and returns the process's end."""
        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sock.setblocking(False)
        return theirs

    def close(self) -> None:
        """Ends the door of a process that is gone; the parcels stay."""
        self._sock.close()

    def give(self, parcel: Parcel) -> None:
        """Appends a parcel."""
        self.parcels.append(parcel)
        self._has_parcels.set()

    async def run(self) -> None:
        """Passes parcels until the process is gone, or until cancelled."""
        while True:
            while self.parcels:
                parcel = self.parcels[0]
                try:
                    send_socket(self._sock, parcel.purpose, parcel.sock)
                except (BlockingIOError, InterruptedError):
                    await trio.lowlevel.wait_writable(self._sock)
                    continue
                except OSError:
                    return  # the process is gone
                self.parcels.popleft()
                parcel.sock.close()
            self._has_parcels = trio.Event()
            await self._has_parcels.wait()


@attrs.define(eq=False, kw_only=True)
class Member:
    """One worker.

    Attributes:
        number: the worker's, from 1.
        duty: returns the first instructions to a new process.
        came_up: called whenever a process has begun to serve.
        fared: called after each report of a process.
        went_down: called when a process that served is gone, with the parcels it did not receive.
        error: why the last process failed to come up.
        report: the last report of the process.
        channel: to the current or last process.
        is_open: sockets may be given to it.
        is_retired: its process is not started again.
        may_begin: set when its processes are to serve.
    """

    number: int
    duty: Callable[[], Duty]
    came_up: Callable[["Member"], None]
    fared: Callable[["Member"], None]
    went_down: Callable[["Member", list[Parcel]], None]
    stage: Stage = attrs.field(default=Stage.DOWN, init=False)
    error: str | None = attrs.field(default=None, init=False)
    express: str = attrs.field(default="off", init=False)
    report: WorkerReport = attrs.field(factory=WorkerReport, init=False)
    channel: Channel = attrs.field(init=False)
    is_open: bool = attrs.field(default=False, init=False)
    is_retired: bool = attrs.field(default=False, init=False)
    may_begin: trio.Event = attrs.field(factory=trio.Event, init=False)
    _doors: Door = attrs.field(factory=Door, init=False)
    _joints: Door = attrs.field(factory=Door, init=False)
    _process: trio.Process | None = attrs.field(default=None, init=False)
    _underway: deque[str | None] = attrs.field(factory=deque, init=False)
    _handed: int = attrs.field(default=0, init=False)
    _ends: int = attrs.field(default=0, init=False)
    _ended_at: float | None = attrs.field(default=None, init=False)
    _end_reason: str | None = attrs.field(default=None, init=False)
    _failures: int = attrs.field(default=0, init=False)
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    @property
    def is_up(self) -> bool:
        """Whether the process serves."""
        return self.stage is Stage.UP

    @property
    def has_claim(self) -> bool:
        """Whether it may own containers: it serves, or is starting for the first time."""
        return not self.is_retired and (self.is_up or self._failures == 0)

    @property
    def load(self) -> Load:
        """Its load; sockets handed over and not yet reported count as connections."""
        underway = len(self._underway)
        return Load(self.number, self.report.connections + underway, self._handed)

    def count_from(self, source: str | None) -> int:
        """Returns how many connections it has from an IP address, if these are limited."""
        if source is None:
            return 0
        return self.report.sources.get(source, 0) + self._underway.count(source)

    @property
    def lives(self) -> WorkerLives:
        """What became of its processes."""
        return WorkerLives(
            worker=self.number,
            is_up=self.is_up,
            ends=self._ends,
            ended_at=self._ended_at,
            reason=self._end_reason,
        )

    async def run(self) -> None:
        """Keeps a process alive until the member is retired."""
        while not self.is_retired:
            began = trio.current_time()
            await self._live()
            await self._rest(trio.current_time() - began)

    async def _rest(self, lasted_seconds: float) -> None:
        """Pauses between two lives."""
        if self.is_retired:
            return
        if lasted_seconds >= STABLE_SECONDS:
            self._failures = 1
        seconds = pause_seconds(self._failures, PAUSE_SECONDS, PAUSE_LIMIT_SECONDS, random.random)
        await trio.sleep(seconds)

    async def _live(self) -> None:
        """Starts a process, converses with it, and returns when it is gone."""
        self.stage = Stage.STARTING
        self.report = WorkerReport()
        self._underway.clear()
        self._process = process = await self._spawn()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.channel.run)
                nursery.start_soon(self._doors.run)
                nursery.start_soon(self._joints.run)
                nursery.start_soon(self._begin)
                code = await process.wait()
                nursery.cancel_scope.cancel()
        finally:
            self.kill()  # if the worker is still alive, the supervisor is ending
            self._doors.close()
            self._joints.close()
        self._process = None
        reason = self.error or _describe_end(code)
        log = self._log.info if self.is_retired else self._log.error
        log("worker.ended", worker=self.number, process=process.pid, reason=reason)
        if not self.is_retired:
            self._ends += 1
            self._ended_at, self._end_reason = time.time(), reason
        was_up, self.stage = self.is_up, Stage.DOWN
        self.is_open = False
        self._failures += 1
        parcels = [*self._joints.parcels, *self._doors.parcels]
        self._joints.parcels.clear()
        self._doors.parcels.clear()
        if was_up or parcels:
            self.went_down(self, parcels)

    async def _spawn(self) -> trio.Process:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        doors, joints = self._doors.make(), self._joints.make()
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        self.channel = Channel(
            stream=stream, hears={errands.REPORT: (WorkerReport, self._keep_report)}
        )
        with theirs, doors, joints:
            command = command_of("router.service.worker_program")
            for name, sock in (("--channel", theirs), ("--doors", doors), ("--joints", joints)):
                command += [name, str(sock.fileno())]
            return await trio.lowlevel.open_process(
                command,
                pass_fds=(theirs.fileno(), doors.fileno(), joints.fileno()),
                stdin=subprocess.DEVNULL,
                preexec_fn=_ignore_signals,
            )

    async def _begin(self) -> None:
        self.error = None
        try:
            with trio.fail_after(BEGIN_SECONDS):
                await self.channel.ask(errands.GET_READY, self.duty())
            await self.may_begin.wait()
            with trio.fail_after(BEGIN_SECONDS):
                self.express = await self.channel.ask(errands.BEGIN, self.duty())
        except trio.TooSlowError:
            self.error = f"it did not serve within {BEGIN_SECONDS:g} s"
        except ChannelError as error:
            await trio.sleep(GONE_SECONDS)  # cancelled if the process has ended: its code says more
            self.error = str(error)
        except RouterError as error:
            self.error = str(error)
        else:
            if self.stage is Stage.STARTING:
                self.stage = Stage.UP
                assert self._process is not None
                self._log.info("worker.started", worker=self.number, process=self._process.pid)
                self.came_up(self)
            return
        self.kill()

    def _keep_report(self, report: WorkerReport) -> None:
        for _ in range(min(report.taken - self.report.taken, len(self._underway))):
            self._underway.popleft()
        self.report = report
        self.fared(self)

    # Operations of the supervisor

    def give(self, parcel: Parcel) -> None:
        """Hands a socket over; the member owns it from now on."""
        if parcel.listener is None:
            self._joints.give(parcel)
            return
        self._underway.append(parcel.source)
        self._handed += 1
        self._doors.give(parcel)

    async def ask(self, question: Question[Result], *arguments: object) -> Result:
        """Asks the process a question, like ``Channel.ask``."""
        return await self.channel.ask(question, *arguments)

    async def dismiss(self) -> None:
        """Lets the drained process end, and waits for it."""
        self.channel.close()
        if self._process is not None:
            await self._process.wait()

    def kill(self) -> None:
        """Ends the process at once."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)


def _ignore_signals() -> None:
    """Ignores, in the new process, the signals that only the supervisor handles."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _describe_end(code: int) -> str:
    if code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"
