"""The journal's process: started, restarted and ended by the router.

Theory of operation. The router's first process owns the socket on which the journal's process
accepts, so workers that connect while no journal process runs are served by the next one. It also
owns the writing end of a pipe, the *lifeline*: when the router ends for any reason, the journal
sees the end of the pipe, reads what workers have sent, and ends.

After a router is killed its journal therefore lives a moment longer. The next router waits for it:
the state directory has a lock for the router and one for the journal, and each is released when its
process ends.

    state/lock              held by the router
    state/journal/          segments, snapshots, and the journal's own lock
    state/journal.socket    where workers connect
    state/segments/         segments that the journal no longer needs, until they are compacted

The message store (``router.journal.store``) is another journal, in ``state/messages`` and
``state/messages.socket``, if a route stores messages, or did so and some may be left.

The archive (``router.core.archive``) is a second, separate journal in ``state/archive`` and
``state/archive.socket``, if a route asks for it; it never releases a segment.
"""

import contextlib
import enum
import fcntl
import json
import os
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import structlog
import trio

from router.errors import RouterError
from router.journal.disk import Disk
from router.journal.holder import find_holder
from router.journal.lifeline import BEAT_SECONDS
from router.journal.log import DISK_FULL
from router.journal.postgres.handing_over import handed_over
from router.journal.postgres.lease import (
    FENCED,
    LEASE_NAME,
    Leader,
    LeaseFile,
)
from router.journal.replay import ReplayError, replay
from router.journal.segment import (
    NEWEST_NAME,
    ForeignFileError,
    SegmentScan,
    newest_octets,
    numbered,
    segment_name,
    snapshot_name,
)
from router.journal.unsettled import KEPT_GUARANTEES
from router.net.journal import short_path
from router.programs import command_of
from router.routes.route import Guarantee
from router.service.config import RouterConfig
from router.service.config.process import OldSegments
from router.service.elsewhere import note_begun, why_not_files, why_not_postgres
from router.service.lease import LeaseRecord, Sight, lease_record

RESPAWN_SECONDS: Final = 0.1
"""Pause between the end of one process and the start of the next."""

REFUSED_SECONDS: Final = 2.0
"""The pause if the process could not open the directory, which an operator has to repair."""


FENCED_REASON: Final = "another router of this id has taken the journal over; this one ends"

HOLDER_NAME: Final = "holder"
"""File that names this state directory among those of routers with the same id."""

_REFUSED: Final = 2  # exit code of a process that could not open the directory

LOCK_SECONDS: Final = 15.0
"""How long a router waits for its predecessor to end, in addition to the drain time."""

END_SECONDS: Final = 10.0
"""Time in which the journal's process has to end."""

_LOOK_SECONDS: Final = 0.05


@attrs.frozen
class JournalError(RouterError):
    """The state directory cannot be used."""

    directory: Path
    reason: str

    def __str__(self) -> str:
        return f"router.state: {self.directory}: {self.reason}"


class Store(enum.StrEnum):
    """A store that a process of its own writes."""

    JOURNAL = "journal"
    ARCHIVE = "archive"
    MESSAGES = "messages"

    def directory(self, config: RouterConfig) -> Path:
        """Returns the directory of the segments."""
        return config.router.state / self.value

    def socket(self, config: RouterConfig) -> Path:
        """Returns the path of the socket that workers connect to."""
        return config.router.state / f"{self.value}.socket"

    def lock(self, config: RouterConfig) -> Path:
        """Returns the path of the lock that the router holds as long as the process may run."""
        return config.router.state / ("lock" if self is Store.JOURNAL else f"{self.value}.lock")

    def is_needed(self, config: RouterConfig) -> bool:
        """Returns whether some route asks for this store."""
        if self is Store.ARCHIVE:
            return any(route.archive for route in config.table.routes)
        if self is Store.MESSAGES:
            is_stored = any(route.store is not None for route in config.table.routes)
            return is_stored or _has_segments(self.directory(config))
        return (
            is_on_postgres(config)
            or config.keeps_unsettled
            or any(
                route.guarantee is Guarantee.EXACTLY_ONCE or route.is_recorded
                for route in config.table.routes
            )
        )


def is_on_postgres(config: RouterConfig) -> bool:
    """Returns whether the journal is on PostgreSQL."""
    return config.router.journal.store is not None


def stores_on_postgres(config: RouterConfig) -> bool:
    """Returns whether what routes store is there, too."""
    stores = [route.store for route in config.table.routes if route.store is not None]
    return is_on_postgres(config) and any(store.in_journal for store in stores)


def why_elsewhere(config: RouterConfig, store: Store) -> str | None:
    """Returns why a store may not be used where the file says; None: it may, or is an archive."""
    if store is Store.ARCHIVE:
        return None
    directory = store.directory(config)
    is_there = is_on_postgres(config) if store is Store.JOURNAL else stores_on_postgres(config)
    return (why_not_postgres if is_there else why_not_files)(config, directory)


def _has_segments(directory: Path) -> bool:
    """Returns whether messages may be left from routes that stored them once."""
    return directory.is_dir() and bool(numbered(os.listdir(directory), "segment"))


def waits_for_predecessor(config: RouterConfig) -> bool:
    """Returns whether a process must have ended before another one can write what it writes."""
    return needs_journal(config) or Store.MESSAGES.is_needed(config)


def needs_journal(config: RouterConfig) -> bool:
    """Returns whether the configuration needs the journal."""
    return Store.JOURNAL.is_needed(config)


def remembering(config: RouterConfig) -> RouterConfig:
    """Returns a configuration that asks for the journal if the journal holds unsettled deliveries.

    Otherwise no worker would list the deliveries that routes of an earlier file left unsettled, and
    a route that is added again would not know of them. A journal that was moved away may hold some.
    """
    directory = journal_directory(config)
    if needs_journal(config):
        return config
    if why_not_files(config, directory) is None and not _holds_unsettled(directory):
        return config
    return attrs.evolve(config, keeps_unsettled=True)


def _holds_unsettled(directory: Path) -> bool:
    try:
        if not any(directory.iterdir()):
            return False
        deliveries = replay(directory).memory.deliveries.values()
    except FileNotFoundError:
        return False
    except (OSError, ReplayError) as error:
        structlog.get_logger().warning("journal.unreadable", reason=error)
        return True  # as far as can be known
    return any(each.guarantee in KEPT_GUARANTEES and each.is_open for each in deliveries)


def lease_path(config: RouterConfig) -> Path:
    """Returns the file in which workers see how long the lease holds."""
    return config.router.state / LEASE_NAME


def journal_directory(config: RouterConfig) -> Path:
    """Returns the directory of the journal's segments."""
    return Store.JOURNAL.directory(config)


def check_format(config: RouterConfig) -> None:
    """Checks that this version can read the journal, which another process may still be writing.

    Raises:
        OSError: a file cannot be read.
        ForeignFileError: this version cannot read the format.
    """
    for store in Store:
        directory = store.directory(config)
        names = os.listdir(directory) if directory.is_dir() else []
        for suffix, name_of in (("segment", segment_name), ("snapshot", snapshot_name)):
            for number in numbered(names, suffix)[-1:]:
                path = directory / name_of(number)
                if SegmentScan(Disk().read(path)).is_foreign:
                    raise ForeignFileError(path)


@attrs.define(eq=False)
class JournalKeeper:
    """Keeps the journal's process running.

    Attributes:
        config: with the state directory, and the drain time of a router that hands over to us.
        store: the store that the process writes.
        address: where peers reach this router, as ``Leader.address`` says.
        yields: this router has just been drained for its standby, which is to take the lease.
        lock_seconds: see ``LOCK_SECONDS``.
        trouble: why the store cannot be opened; None: it is open, or being opened.
        failing: why a journal on PostgreSQL that is open cannot write; None: it can.
        leads: set when this router has taken the lease.
        seconds: how long it then had watched the lease unchanged (``waited``), and how long its
            process took to open the journal (``opened``).
        fenced: set when another router has taken the lease, if this one then is its standby.
    """

    config: RouterConfig
    store: Store = Store.JOURNAL
    address: tuple[str | None, ...] = ()
    yields: bool = False
    lock_seconds: float = LOCK_SECONDS
    trouble: str | None = attrs.field(default=None, init=False)
    failing: str | None = attrs.field(default=None, init=False)
    leads: trio.Event = attrs.field(factory=trio.Event, init=False)
    seconds: Mapping[str, float] = attrs.field(factory=dict, init=False)
    fenced: trio.Event = attrs.field(factory=trio.Event, init=False)
    _sight: Sight | None = attrs.field(default=None, init=False)
    _lock: int = attrs.field(default=-1, init=False)
    _holder: str = attrs.field(default="", init=False)
    _lease: LeaseFile | None = attrs.field(default=None, init=False)
    _was_here: bool = attrs.field(default=False, init=False)
    _listener: socket.socket | None = attrs.field(default=None, init=False)
    _lifeline: int = attrs.field(default=-1, init=False)
    _is_ending: bool = attrs.field(default=False, init=False)
    _ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Runs the process, and restarts it whenever it ends, until ``end``.

        A full disk is no error, nor is a store's own directory that cannot be used: they are tried
        again until they can.

        Raises:
            JournalError: the state directory cannot be used.
        """
        try:
            if not await self._open():
                task_status.started()
                await self._try_again()
            else:
                task_status.started()
            while not self._is_ending and not self.fenced.is_set():
                seconds = await self._run_once()
                if not self._is_ending:
                    await trio.sleep(seconds)
        finally:
            self._close()
            self._ended.set()

    @property
    def lease(self) -> LeaseRecord | None:
        """Who leads; None: the journal is in files."""
        if self._lease is None:
            return None
        return lease_record(self._sight, self._lease, self.trouble, leads=self.leads.is_set())

    @property
    def leader(self) -> Leader | None:
        """Of a journal on PostgreSQL: who leads, as far as that is known."""
        return None if self._sight is None else self._sight.leader

    async def end(self) -> None:
        """Ends the process after it has read what workers sent; the workers have ended by now."""
        self._is_ending = True
        if self._lifeline < 0:
            return  # no process runs
        self._cut_lifeline()
        with trio.move_on_after(END_SECONDS):
            await self._ended.wait()

    async def _try_again(self) -> None:
        while not self._is_ending:
            await trio.sleep(REFUSED_SECONDS)
            if await self._open():
                return

    async def _open(self) -> bool:
        """Opens the state directory; returns whether its disk has room for that, and the store's
        directory in it can be used.

        Raises:
            JournalError: the state directory cannot.
        """
        directory = self.config.router.state
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._lock < 0:
                self._was_here = self.store.lock(self.config).exists()
                self._lock = os.open(
                    self.store.lock(self.config), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
                )
                await self._take_lock()
            if self._is_on_postgres:
                self._prepare_lease()
            else:
                self._refuse_other_store()
                if self._was_here and self.store is Store.JOURNAL:
                    self._look_for_segments()
            self._listener = _listen(self.store.socket(self.config))
        except OSError as error:
            reason = error.strerror or str(error)
            if error.errno not in DISK_FULL and not self._is_within(error.filename):
                raise JournalError(directory, reason) from error
            self._note_trouble(reason)
            return False
        self.trouble = None
        return True

    def _is_within(self, filename: object) -> bool:
        """Returns whether a file that could not be used is the store's directory, or in it."""
        return isinstance(filename, str | os.PathLike) and Path(filename).is_relative_to(
            self.store.directory(self.config)
        )

    @property
    def _is_on_postgres(self) -> bool:
        return self.store is Store.JOURNAL and is_on_postgres(self.config)

    @property
    def _is_beside_journal(self) -> bool:
        """Whether these are the messages, and they are on PostgreSQL."""
        return self.store is Store.MESSAGES and stores_on_postgres(self.config)

    def _refuse_other_store(self) -> None:
        """Checks that what this store holds is where the file says.

        Raises:
            JournalError: it is elsewhere, and a second one would begin here.
        """
        directory = self.store.directory(self.config)
        if (reason := why_elsewhere(self.config, self.store)) is not None:
            raise JournalError(directory, reason)

    def _prepare_lease(self) -> None:
        """Makes the files that say who this router is, and how long its lease holds.

        Raises:
            JournalError: there is a journal in files.
        """
        self._refuse_other_store()
        note_begun(self.config, self.store.directory(self.config), time.time_ns())
        LeaseFile.begin(lease_path(self.config))  # it was an earlier life's
        self._lease = LeaseFile(lease_path(self.config))
        path = self.config.router.state / HOLDER_NAME
        if not path.exists():
            path.write_text(f"{uuid.uuid4()}\n")
        self._holder = path.read_text().strip()

    def _note_trouble(self, reason: str) -> None:
        if reason != self.trouble:
            directory = str(self.store.directory(self.config))
            self._log.error(f"{self.store}.refused", error=reason, directory=directory)
        self.trouble = reason

    def _look_for_segments(self) -> None:
        """Reports a journal whose directory has vanished like one that misses a segment."""
        directory = self.store.directory(self.config)
        if directory.exists() and any(directory.iterdir()):
            return
        directory.mkdir(mode=0o700, exist_ok=True)
        (directory / NEWEST_NAME).write_bytes(newest_octets(1))

    async def _take_lock(self) -> None:
        seconds = self.config.router.drain_seconds + self.lock_seconds
        path, is_named = self.store.lock(self.config), False
        with trio.move_on_after(seconds):
            while True:
                try:
                    fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    holder = None if is_named else find_holder(path)
                    if holder is not None:
                        is_named = True
                        self._log.warning("journal.locked", holder=str(holder), seconds=seconds)
                    await trio.sleep(_LOOK_SECONDS)
                else:
                    return
        holder = find_holder(path)
        who = "" if holder is None else f": {holder}"
        raise JournalError(self.config.router.state, f"another router uses it{who}")

    async def _run_once(self) -> float:
        """Runs one process to its end; returns the pause before the next one."""
        if self._listener is None:
            try:
                self._listener = _listen(self.store.socket(self.config))
            except OSError as error:
                self._note_trouble(error.strerror or str(error))
                return REFUSED_SECONDS
        reading, self._lifeline = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._lifeline, False)
        told, telling = os.pipe2(os.O_CLOEXEC)
        descriptors = self._listener.fileno(), reading, telling
        try:
            process = await self._start_process(*descriptors)
        except BaseException:
            os.close(told)
            raise
        finally:
            os.close(reading)
            os.close(telling)
        self._log.info(f"{self.store}.started", process=process.pid)
        try:
            async with trio.open_nursery() as nursery:
                if self._is_on_postgres:
                    nursery.start_soon(self._beat)
                async with trio.lowlevel.FdStream(told) as reasons:
                    await self._learn_reason(reasons)
                code = await process.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._cut_lifeline()
        seconds = RESPAWN_SECONDS
        if code == FENCED and self._is_on_postgres and not self._is_ending:
            if not self.config.router.journal.standby:
                raise JournalError(self.config.router.state, FENCED_REASON)
            self.fenced.set()
            return 0.0
        if code == _REFUSED:
            seconds = REFUSED_SECONDS
            self._close_listener()  # so that workers learn that they need not wait
        elif not self._is_ending:
            self._log.error(f"{self.store}.ended", code=code, seconds=seconds)
        return seconds

    async def _beat(self) -> None:
        """Writes to the lifeline while this process works."""
        while self._lifeline >= 0:
            with contextlib.suppress(OSError):  # it has ended, or reads nothing
                os.write(self._lifeline, b".")
            await trio.sleep(BEAT_SECONDS)

    async def _learn_reason(self, reasons: trio.lowlevel.FdStream) -> None:
        """Reads why the process cannot open the directory; it closes the pipe if it can.

        On PostgreSQL it says in lines before who leads, or why that cannot be seen, and afterwards
        why it cannot write, until it ends.
        """
        octets = bytearray()
        while received := await reasons.receive_some():
            octets += received
            while octets.startswith(b"{") and b"\n" in octets:
                line, _, octets = octets.partition(b"\n")
                told = json.loads(line)
                if "failing" in told:
                    self.failing = told["failing"]
                else:
                    self._learn_leader(told)
        self.failing = None
        if octets:
            self._note_trouble(octets.decode(errors="replace"))
        else:
            self.trouble = None

    def _learn_leader(self, told: Mapping[str, Any]) -> None:
        """Records who leads, which a standby reports several times a second."""
        leader, trouble = told["leader"], told["trouble"]
        if leader is not None:
            self._sight = Sight(Leader.of(leader))
        if trouble is not None:
            self._note_trouble(trouble)
        elif leader is not None:
            self.trouble = None
        if told["leads"]:
            self.seconds, self.trouble = told["seconds"], None
            self.leads.set()

    async def _start_process(self, listener: int, lifeline: int, reasons: int) -> trio.Process:
        """Starts the process; hands it the URL of the store if it has any."""
        command = self._command(listener, lifeline, reasons)
        descriptors: tuple[int, ...] = (listener, lifeline, reasons)
        url = self.config.router.journal.store
        with contextlib.ExitStack() as stack:
            if url is not None and (self._is_on_postgres or self._is_beside_journal):
                store = stack.enter_context(handed_over(url.reveal()))
                command += ["--store-fd", str(store)]
                descriptors = (*descriptors, store)
            return await trio.lowlevel.open_process(
                command,
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # only the router handles a Ctrl-C at the terminal
            )

    def _command(self, listener: int, lifeline: int, reasons: int) -> list[str]:
        options = self.config.router.journal
        command = [
            *command_of("router.journal.process"),
            *("--router", self.config.router.id),
            *("--directory", str(self.store.directory(self.config))),
            *("--listen-fd", str(listener), "--lifeline-fd", str(lifeline)),
            *("--reason-fd", str(reasons)),
            *("--segment-octets", str(options.segment_octets)),
            *("--log-level", self.config.router.log_level.value),
            *("--log-format", self.config.router.log_format.value),
        ]
        if self._is_on_postgres:
            command += ["--holder", self._holder, "--lease", str(lease_path(self.config))]
            command += ["--address", json.dumps(self.address)]
            command += ["--standby"] if options.standby else []
            command += ["--yields"] if self.yields and not self.leads.is_set() else []
        if self.store is Store.MESSAGES:
            command += ["--messages", "--segment-octets", "0"]
            command += ["--lease", str(lease_path(self.config))] if self._is_beside_journal else []
        elif options.old_segments is OldSegments.KEEP or self.store is Store.ARCHIVE:
            command.append("--keep")
        elif self.config.router.compaction is not None:
            command += ["--archive", str(self.config.router.state / "segments")]
        return command

    def _cut_lifeline(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def _close(self) -> None:
        self._cut_lifeline()
        self._close_listener()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _close_listener(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()


def _listen(path: Path) -> socket.socket:
    """Listens at a path that only the owner may connect to.

    Raises:
        OSError: the directory is not writable.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        path.unlink(missing_ok=True)
        listener.bind(short_path(folder, path))
        path.chmod(0o600)
        listener.listen(64)
    except OSError:
        listener.close()
        raise
    finally:
        os.close(folder)
    return listener
