"""``router run``: runs the workers, their listeners and the admin endpoint in the foreground.

Theory of operation. A single worker runs in this process; several workers are processes of their
own, which this one supervises. This module treats both alike (``crew``).

SIGTERM and SIGINT begin the drain; a second one ends everything at once, and the first one does
while the file is read and nothing runs yet. SIGHUP reloads the file: an invalid file changes
nothing and its problems are logged; a valid one is applied and every difference is logged. Signals
are handled while the file is read: a drain leaves it, and a reload that is asked for meanwhile
follows.
The admin endpoint offers drain and reload as well; it is up before the listeners are, so that
probes are answered from the first moment. The exit code is 0 after a drain,
1 if the router failed or was ended at once, 2 if the file was invalid at the start.

If a router with the same id runs on the state directory, this process replaces it (``handover``),
after it has tried everything that can be tried while the other one serves. Later it may itself be
replaced. If its successor waits for this process to end but ends first, this process begins another
*life*, with the same configuration and the same sockets.

With ``router.journal.standby`` each life begins as a standby (``standby``), and serves from the
time at which this router has the lease. If another router takes the lease, the life ends at once,
and the next one begins as that router's standby.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import structlog
import trio

from router import __version__
from router.errors import RouterError, reason_of
from router.journal.lines import LineWriter, hold_standard_streams
from router.net.listener import Listeners, Listening
from router.net.tls_stream import why_slower
from router.routes.route import Position
from router.routes.table import RoutingTable
from router.service import garbage
from router.service.admin.keeper import AdminKeeper
from router.service.assembly import assemble, named_listeners, share
from router.service.books import Books
from router.service.certificates import TlsRecord
from router.service.config import ConfigError, Problem, RouterConfig
from router.service.config.process import LogFormat, LogLevel
from router.service.control import Control
from router.service.credentials import tls_sections
from router.service.crew import Crew, Soloist
from router.service.durations import show_seconds
from router.service.fleet import ListenerRecord, ReloadReport, RouterControl, SilentError
from router.service.handover import Handover, Takeover
from router.service.journal import (
    JournalKeeper,
    check_format,
    needs_journal,
    remembering,
    waits_for_predecessor,
)
from router.service.lives import WaitingClients, WorkerLives
from router.service.log import FloodGate, configure_logging, report_floods, set_log_level
from router.service.management.agent import ManagementAgent
from router.service.notify import Notifier, inherited_sockets
from router.service.predecessor import find_predecessor
from router.service.rehearsal import FindRecord, ListLinks
from router.service.reloading import DRAINING, Load, Reloader, binds
from router.service.setup import prepare_process
from router.service.signals import HANDLED, Kept
from router.service.standby import Patience, addresses, standby_of, turn_peers_away
from router.service.supervisor import Supervisor
from router.service.worker import make_worker
from router.wire.v1_0 import express

DONE: Final = 0
FAILED: Final = 1
BAD_CONFIGURATION: Final = 2

_LOOK_SECONDS: Final = 0.05

FENCED_EFFECT: Final = "every connection is closed; this router waits as the standby of the other"

STANDBY_KEEPS: Final = (
    "this router is a standby, and keeps the file that it was started with: start it anew, or send"
    " it SIGHUP, and it reads its file as soon as it leads"
)

HANDSHAKE_SECONDS: Final = 0.5
"""Delay between the end of accepting and the drain when another process replaces this one."""


def run(load: Load, wait_for: Sequence[str], signals: Kept) -> int:
    """Runs the router until it is told to end; returns the exit code.

    Args:
        load: loads the configuration, now and at each reload.
        wait_for: containers that must be connected before the router reports itself ready, in
            addition to those that the file requires.
        signals: those that have come so far, and come while no life receives them (``signals``).

    Raises:
        ConfigError: the file is invalid, or lacks a container of ``wait_for``.
    """
    with signals.obeyed():
        made = _prepare(load, wait_for)
    if made is None:
        return BAD_CONFIGURATION
    config, crew, gate, is_json = made
    log = structlog.get_logger()
    prepare_process()
    notifier = Notifier.of(os.environ)
    inherited = _Kept(inherited_sockets(os.environ))
    life = _Steering(crew, config, load, gate, wait_for, notifier, inherited)
    try:
        while True:
            trio.run(life.run, signals)
            kept = life.take_kept()
            if kept is None:
                return life.exit_code
            if not kept.is_standby:
                log.warning(
                    "handover.deserted", reason="the process that was taking over has ended"
                )
            crew = _make_crew(life.config, is_json)
            life = _Steering(crew, life.config, load, gate, wait_for, notifier, kept, life.is_stale)
    except Exception:
        log.exception("router.failed")
        return FAILED


def _prepare(
    load: Load, wait_for: Sequence[str]
) -> tuple[RouterConfig, Crew, FloodGate, bool] | None:
    """Reads the file, and makes what it asks for, of which nothing runs yet.

    Returns:
        the configuration; its crew; the gate of the log; whether the log is JSON. None: the
        configuration is unusable, as the log says.

    Raises:
        ConfigError: as ``run``.
    """
    config = load()
    unknown = [name for name in wait_for if name not in config.containers]
    if unknown:
        problem = f"--wait-for: there is no container {unknown[0]!r}"
        raise ConfigError([Problem(Position(config.file, 1, 1), problem)])
    options = config.router
    hold_standard_streams()
    is_json = options.log_format is LogFormat.JSON or (
        options.log_format is LogFormat.AUTO and not LineWriter(sys.stdout, is_json=True).isatty()
    )
    gate = configure_logging(is_json=is_json, level=options.log_level.value)
    log = structlog.get_logger()
    config = remembering(config)
    try:
        return config, _make_crew(config, is_json), gate, is_json
    except RouterError as error:
        log.error("router.failed", reason=str(error))
        return None


def _make_crew(config: RouterConfig, is_json: bool) -> Crew:
    """Makes the crew for a configuration.

    Raises:
        TlsError, MisuseError: the configuration is unusable.
    """
    if config.router.workers == 1:
        return Soloist(make_worker(config))
    assemble(config, share(config))  # an unusable configuration fails before anything is started
    return Supervisor(config, is_json)


@attrs.define(eq=False)
class _Kept:
    """Sockets of the listeners and the admin endpoint that already listen when a life begins.

    Attributes:
        is_standby: the last life has ended because another router leads, or is to lead.
        yields: it was drained for its standby.
    """

    listeners: list[socket.socket]
    admin: list[socket.socket] = attrs.field(factory=list)
    is_standby: bool = False
    yields: bool = False


@attrs.define(eq=False)
class _Steering:
    """The workers and the listeners of a router.

    Attributes:
        is_stale: the file is to be reloaded as soon as the router serves, in the next life if not
            in this one.
        books: what is written down beside serving.
    """

    crew: Crew
    config: RouterConfig
    load: Load
    gate: FloodGate
    wait_for: Sequence[str]
    notifier: Notifier
    inherited: _Kept
    is_stale: bool = False
    exit_code: int = FAILED
    awaits_restart: Sequence[str] = attrs.field(default=(), init=False)
    is_draining: bool = attrs.field(default=False, init=False)
    started_at: float = attrs.field(factory=time.time, init=False)
    books: Books = attrs.field(factory=Books, init=False)
    _began: float = attrs.field(factory=time.monotonic, init=False)
    _level: LogLevel = attrs.field(init=False)
    _listeners: Listeners = attrs.field(init=False)
    _admin: AdminKeeper = attrs.field(init=False)
    _handover: Handover = attrs.field(init=False)
    _reloader: Reloader = attrs.field(init=False)
    _control: RouterControl = attrs.field(init=False)
    _nursery: trio.Nursery = attrs.field(init=False)
    _beginning: str = attrs.field(default="it begins to serve", init=False)
    _coming: Crew | None = attrs.field(default=None, init=False)
    _is_standby: bool = attrs.field(default=False, init=False)
    _patience: Patience | None = attrs.field(default=None, init=False)
    _is_serving: bool = attrs.field(default=False, init=False)
    _yields: bool = attrs.field(default=False, init=False)
    _is_leaving: bool = attrs.field(default=False, init=False)
    _is_ending: bool = attrs.field(default=False, init=False)
    _is_reload_due: bool = attrs.field(default=False, init=False)
    _reloads: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _kept: _Kept | None = attrs.field(default=None, init=False)
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    async def run(self, early: list[int]) -> int:
        """Runs until drained, ended or failed; returns the exit code.

        Args:
            early: signals that have come before, which are taken from there.
        """
        config = self.config
        self._log.info(
            "router.started",
            id=config.router.id,
            version=__version__,
            config=config.file,
            workers=config.router.workers,
        )
        async with trio.open_nursery() as nursery:
            with trio.open_signal_receiver(*HANDLED) as signals:
                nursery.start_soon(report_floods, self.gate)
                nursery.start_soon(garbage.sweep)
                self._nursery = nursery
                self._level = config.router.log_level
                nursery.start_soon(self.notifier.watch)
                self._listeners = Listeners(
                    self._admit,
                    nursery,
                    inherited=self.inherited.listeners,
                    ready=self._wait_for_capacity,
                )
                self._reloader = Reloader(self, self.load, self._listeners, self.notifier)
                self._control = control = RouterControl(self, self._controls)
                self._admin = AdminKeeper(config.router, control, nursery, self.inherited.admin)
                self._handover = Handover(
                    state=config.router.state,
                    router=config.router.id,
                    config=os.path.abspath(config.file),
                    sockets=self._named_sockets,
                    admin=lambda: self._admin.sockets,
                    leave=self._leave,
                )
                nursery.start_soon(self._begin, control)
                while early:
                    await self._take_signal(early.pop(0))
                async for number in signals:
                    await self._take_signal(number)
        return self.exit_code

    # The crew is another one while this router is a standby.

    def _admit(self, sock: socket.socket, listener: str) -> None:
        self.crew.admit(sock, listener)

    async def _wait_for_capacity(self) -> None:
        while self._holds_connections():
            await trio.sleep(_LOOK_SECONDS / 5)
        await self.crew.wait_for_capacity()

    def _holds_connections(self) -> bool:
        """Whether peers wait: nobody leads, but this router may soon, or is about to begin."""
        return self._patience is not None and self._patience.holds(trio.current_time())

    def _controls(self) -> Sequence[Control]:
        return self.crew.controls()

    def take_kept(self) -> _Kept | None:
        """Returns the sockets for the next life in this process; None: there is no next life.

        A signal to end may have come when this life was already ending for the next one.
        """
        kept, self._kept = self._kept, None
        if kept is None or not self._is_ending:
            return kept
        for each in (*kept.listeners, *kept.admin):
            each.close()
        self.exit_code = DONE
        return None

    async def _take_signal(self, number: int) -> None:
        """Handles a signal."""
        if number == signal.SIGHUP:
            self.is_stale = not self._is_serving or self._yields
            if not self.is_stale:
                self._ask_reload()
        elif self._is_ending:
            self._log.warning("router.ended", reason="second signal to end")
            self._kept = None
            self._nursery.cancel_scope.cancel()
        else:
            self.drain()

    def _ask_reload(self) -> None:
        """Has the file reloaded, once more if that is under way: it may have been read before."""
        is_asked, self._is_reload_due = self._is_reload_due, True
        if not is_asked:
            self._nursery.start_soon(self._reload_due)

    async def _reload_due(self) -> None:
        async with self._reloads:
            self._is_reload_due = False
            report = await self._control.reload()
            self.is_stale = report.refusal is not None  # another life may follow

    async def _begin(self, control: RouterControl) -> None:
        """Begins to serve; ends the router on failure."""
        try:
            await self._start(self.config)
        except (OSError, RouterError) as error:
            self._log.error("router.failed", reason=reason_of(error))
            self._nursery.cancel_scope.cancel()
            return
        self._is_serving = True
        self._handover.begin()
        if self.config.router.management:
            self._nursery.start_soon(ManagementAgent(control, self.crew.admit).run)
        self._nursery.start_soon(self._tell_ready)
        if self._is_ending:
            self._drain_once()
        elif self.is_stale:
            self.is_stale = False
            self._ask_reload()

    async def _start(self, config: RouterConfig) -> None:
        """Starts to serve, replacing the process that runs on the state directory, if any.

        Raises:
            OSError, RouterError: a resource is unavailable.
        """
        takeover = await find_predecessor(config, self._listeners)
        if takeover is not None:
            await self._succeed(takeover, config)
        else:
            self._await_successor()
            await self._admin.open(is_held=False)
            self._admin.serve()
            if config.router.journal.standby:
                await self._lead(config, await self._listeners.open(binds(config)))
            else:
                await self._start_crew(config)
                await self._listeners.configure(binds(config))
        self._listeners.drop_inherited()

    async def _succeed(self, takeover: Takeover, config: RouterConfig) -> None:
        """Replaces another process.

        Raises:
            OSError, RouterError: a resource is unavailable; everything that can be tried while the
                other process serves is tried before that process leaves.
        """
        self._listeners.inherited += takeover.sockets
        self._admin.inherited += takeover.admin
        opened = await self._listeners.open(binds(config))
        await self._admin.open(is_held=takeover.keeps_admin)
        if waits_for_predecessor(config):
            await trio.to_thread.run_sync(check_format, config)
            self.notifier.succeeding()
            takeover.begin_to_wait()
            self._beginning = (
                f"it takes the place of process {takeover.process}, and waits until that has"
                f" drained, for {show_seconds(config.router.drain_seconds)} at most"
            )
            self._await_successor()
            self._admin.serve()
            await takeover.wait_for_end()
            if config.router.journal.standby:
                await self._lead(config, opened)
                return
            await self._start_crew(config)
            self._listeners.serve(binds(config), opened)
        else:
            await self._start_crew(config)
            self._listeners.serve(binds(config), opened)
            self.notifier.succeeding()
            takeover.complete()
            self._await_successor()
            self._admin.serve()

    async def _lead(self, config: RouterConfig, opened: Mapping[str, Listening]) -> None:
        """Waits as a standby until this router has the lease, then starts the workers.

        Raises:
            OSError, RouterError: a resource is unavailable.
        """
        serving, journal = self.crew, JournalKeeper(config, yields=self.inherited.yields)
        self.crew = standby = standby_of(config, lambda: journal.leader)
        turning_away = await self._nursery.start(turn_peers_away, standby)
        await serving.warm(self._nursery)
        self._patience = Patience(journal)
        self._listeners.serve(binds(config), opened)
        self._listeners.drop_inherited()
        journal.address = addresses(config, self._port_of)
        await self.books.keep_journal(journal, self._nursery)
        self._nursery.start_soon(self._watch_lease, journal)
        self._be_standby()
        await journal.leads.wait()
        if self.is_draining:
            await trio.sleep_forever()  # the drain ends this life
        began = trio.current_time()
        self._is_standby = False
        await self._start_crew(config, serving)
        self.crew, self._patience = serving, None
        parts = {**journal.seconds, "started": trio.current_time() - began}
        self._log.info(
            "standby.ended",
            seconds=round(sum(parts.values()), 3),
            **{f"{name}_seconds": round(seconds, 3) for name, seconds in parts.items()},
        )
        await standby.drain()
        turning_away.cancel()

    def _be_standby(self) -> None:
        """Reports that this router waits, which is all that a service manager can wait for."""
        self._is_standby = True
        garbage.settle()  # what it takes then is not taken when peers wait
        self._handover.begin()
        self.notifier.ready()
        self._log.info("standby.began", id=self.id, listeners=self._listeners.addresses)
        if self._is_ending:
            self._drain_once()

    def _port_of(self, listener: str) -> int | None:
        sockets = [each for name, each in self._listeners.sockets() if name == listener]
        return next(
            (each.getsockname()[1] for each in sockets if each.family != socket.AF_UNIX), None
        )

    async def _watch_lease(self, journal: JournalKeeper) -> None:
        """Ends this life when another router has the lease."""
        await journal.fenced.wait()
        if not self._is_ending and not self._is_leaving and self._kept is None:
            self._kept = self._dup_sockets(is_standby=True)
        self._log.error("standby.fenced", effect=FENCED_EFFECT)
        self._listeners.close(is_shared=True)
        self._admin.leave()
        self._nursery.cancel_scope.cancel()

    def _named_sockets(self) -> list[tuple[str, socket.socket]]:
        """Returns the sockets of the listeners, also while they are kept for the next life."""
        if self._kept is not None:
            return [("", each) for each in self._kept.listeners]
        return self._listeners.sockets()

    def _dup_sockets(self, *, is_standby: bool = False) -> _Kept:
        """Returns the open sockets for another life."""
        listening = [each.dup() for _, each in self._listeners.sockets()]
        admin = [each.dup() for each in self._admin.sockets]
        return _Kept(listening, admin, is_standby=is_standby, yields=self._yields)

    async def _start_crew(self, config: RouterConfig, crew: Crew | None = None) -> None:
        """Starts the workers and listeners.

        Raises:
            RouterError: they cannot be started.
        """
        self._coming = coming = crew or self.crew
        reads = "reads its journal and " if needs_journal(config) else ""
        self._beginning = f"it {reads}starts its workers"
        await self.books.begin(config, self._nursery)
        await coming.start(self._nursery)

    def _await_successor(self) -> None:
        """Listens for successors on the state directory; they are answered once this one serves.

        If several processes are started at once, each therefore takes over from the previous one.
        """
        try:
            self._handover.open()
        except OSError as error:
            self._log.info("handover.unavailable", reason=reason_of(error))
        else:
            self._nursery.start_soon(self._handover.run)

    def _leave(self) -> None:
        """Drains because a successor accepts connections, now or when this process has ended.

        In the second case this process keeps the sockets until it ends.
        """
        self._is_leaving = True
        if self._handover.is_waited_for and self._kept is None:
            self._kept = self._dup_sockets()
        self._listeners.close(is_shared=True)
        self._admin.leave()
        self._nursery.start_soon(self._drain_soon)

    async def _drain_soon(self) -> None:
        """Drains after a delay for the last accepted connections: a drain cuts handshakes."""
        await trio.sleep(HANDSHAKE_SECONDS)
        self._drain_once()

    async def _tell_ready(self) -> None:
        garbage.settle()
        while not self.crew.connected_containers.issuperset(self.required_containers):
            await trio.sleep(_LOOK_SECONDS)
        self.notifier.ready()
        self._log.info(
            "router.ready",
            id=self.id,
            listeners=self._listeners.addresses,
            admin=self._admin.addresses,
            probes=self._admin.probe_addresses,
            containers=sorted(self.crew.connected_containers),
            express=self.crew.express,
            process=os.getpid(),
        )
        if not express.is_built():
            self._log.warning("express.slower", reason=express.SLOWER)
        slower = why_slower()
        if slower is not None and _has_tls(self.config):
            self._log.warning("tls.slower", reason=slower)
        if any(True for _ in tls_sections(self.config)):
            await self._tell_certificates()

    async def _tell_certificates(self) -> None:
        """Logs which certificates in use will not be valid before long, once workers answer."""
        while not self.is_draining:
            try:
                await self._control.tell_certificates()
            except SilentError:
                await trio.sleep(_LOOK_SECONDS)
            else:
                return

    # The interface ``Steering`` of the admin endpoint

    @property
    def id(self) -> str:
        """The router's container-id."""
        return self.config.router.id

    @property
    def uptime_seconds(self) -> float:
        """Time since the router was started, however its clock was set since."""
        return time.monotonic() - self._began

    @property
    def required_containers(self) -> Sequence[str]:
        """Names of the containers without which the router is not ready."""
        return (*self.config.router.wait_for, *self.wait_for)

    @property
    def is_standby(self) -> bool:
        """Whether this router waits until it may lead, or has the lease and does not serve yet."""
        return self._is_standby or self._patience is not None

    @property
    def tls(self) -> TlsRecord:
        """The certificates of the admin endpoint; workers know those of their connections."""
        return TlsRecord.of(self._admin.contexts)

    @property
    def lives(self) -> Sequence[WorkerLives]:
        """What became of the workers' processes; none: the only worker is this process."""
        return self.crew.lives

    @property
    def waiting(self) -> WaitingClients:
        """Accepted connections that wait for a worker which is being started."""
        return self.crew.waiting

    @property
    def table(self) -> RoutingTable:
        """The routes of the configuration, and the management route."""
        return self.config.table

    @property
    def log_level(self) -> LogLevel:
        """The least severity that is logged."""
        return self._level

    @log_level.setter
    def log_level(self, level: LogLevel) -> None:
        self._level = level
        set_log_level(level.value)
        self._nursery.start_soon(self.crew.set_log_level, level.value)
        self._log.info("log.changed", level=level.value)

    def listeners(self) -> tuple[ListenerRecord, ...]:
        """Returns the listeners and their addresses."""
        named = named_listeners(self.config)
        return tuple(
            ListenerRecord(
                name=name,
                addresses=tuple(self._listeners.addresses_of(name)),
                protocols=tuple(protocol.value for protocol in listener.protocols),
                has_tls=listener.tls is not None,
            )
            for name, listener in named.items()
        )

    def why_no_worker(self) -> str:
        """Says what the router does while it has no worker that serves."""
        if self.is_draining:
            return "it is draining, and its workers have ended"
        ended = [each for each in self.lives if each.ended_at is not None]
        if not ended:
            return self._beginning
        last = max(ended, key=lambda each: each.ended_at or 0.0)
        ended_last = f"worker {last.worker} ended last: {last.reason}"
        waits = f"; {self.waiting}" if self.waiting.connections else ""
        return f"all its workers have died, and are started again; {ended_last}{waits}"

    def why_no_handover(self) -> str | None:
        """Returns why the lease cannot be left to a standby; None: it can, or this is under way."""
        if not self.config.router.journal.standby:
            return "there is no standby: router.journal.standby is not set"
        if self._is_standby:
            return "this router does not lead: it is a standby"
        if self._is_ending:
            return "this router does not become a standby: it ends"
        if self._is_leaving:
            return "this router does not become a standby: a new process takes its place"
        return None if self._is_serving else "this router has not begun to serve"

    def drain(self, *, to_standby: bool = False) -> None:
        """Starts to drain the router; further calls have no effect, save that to end prevails.

        Args:
            to_standby: the next life then begins, and leaves the lease to another router; without
                effect if there is a reason against it (``why_no_handover``).
        """
        if to_standby:
            if self.why_no_handover() is None:
                self._yields = True
                self._drain_once()
            return
        self._is_ending = True
        coming = self._coming  # what it has to finish it finishes once it serves, if it ever does
        if self._is_serving or self._is_standby:
            self._drain_once()
        elif coming is None or any(each.ends for each in coming.lives):
            self._log.warning("router.ended", reason="signal to end before it served")
            self.exit_code = DONE
            self._admin.leave()  # another process may have the same sockets, and go on
            self._nursery.cancel_scope.cancel()

    def _drain_once(self) -> None:
        if not self.is_draining:
            self.is_draining = True
            self._nursery.start_soon(self._drain, self._nursery.cancel_scope)

    async def _drain(self, everything: trio.CancelScope) -> None:
        self._log.info("router.draining", connections=self.crew.connection_count)
        with trio.move_on_after(self.config.router.drain_seconds):
            await self._reloader.end()
        if not self._is_leaving and not self._yields:  # otherwise the service goes on
            self.notifier.stopping()
        if self._yields:
            self._kept = self._dup_sockets(is_standby=True)
        self._listeners.close(is_shared=self._yields)
        is_done = await self.crew.drain()
        await self.books.end()
        if not self._handover.is_waited_for:
            await self.books.compact(self.config)
        self._log.info("router.drained", unfinished=not is_done)
        if self._yields:
            self._admin.leave()
        if not self._goes_on:
            self._kept = None
        self.exit_code = DONE
        everything.cancel()

    @property
    def _goes_on(self) -> bool:
        """Whether another life follows the drain of this one."""
        if self._is_ending:
            return False
        return self._handover.is_deserted if self._is_leaving else self._yields

    async def reload(self, find: FindRecord, list_links: ListLinks) -> ReloadReport:
        """Reloads the file and applies it if it is valid."""
        return await self._reloader.reload(find, list_links)

    async def rehearse(self, find: FindRecord, list_links: ListLinks) -> ReloadReport:
        """Reads the file and reports what a reload would change; changes nothing."""
        return await self._reloader.rehearse(find, list_links)

    # The interface ``Life`` of a reload

    def why_no_reload(self) -> str | None:
        """Returns why the file cannot be reloaded now; None: it can."""
        if self.is_draining or self._is_leaving:
            return DRAINING
        if self._is_standby:
            return STANDBY_KEEPS
        return None if self._is_serving else "the router has not begun to serve"

    async def keep_books(self, config: RouterConfig) -> None:
        """Starts the processes of journal and message store if some route asks for them.

        Raises:
            JournalError: the directory of one of them cannot be used.
        """
        await self.books.begin(config, self._nursery)


def _has_tls(config: RouterConfig) -> bool:
    """Returns whether any listener or container is configured with TLS."""
    if any(each.tls is not None for each in config.listeners):
        return True
    return any(url.is_tls for each in config.containers.values() for url in each.url)
