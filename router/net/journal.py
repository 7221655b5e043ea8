"""The journal's socket among those of the data plane.

Theory of operation. ``flush`` hands in the records of the core's turn before anything is sent on
any connection (**HandedInBeforeFlush**). The journal's replies about durability are read like
any input, and release the orders that waited for them. Both happen in the data plane's turns:
nothing is awaited in between.

A task of its own, ``run``, connects the socket. Without a connection, or while the journal
cannot write, the core is told that the journal is *stuck*, and grants no credit for deliveries that
would have to be recorded. The ``JournalClient`` keeps records that are not durable meanwhile, and
hands them in again later; nothing is lost while this process lives.
"""

import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final
from typing import Protocol as Interface

import attrs
import structlog
import trio

from router.journal.client import ClientState, JournalClient, JournalReplyError
from router.journal.protocol import Health
from router.net.poller import READABLE, WRITABLE, Poller
from router.net.switchboard import Order

RECEIVE_OCTETS: Final = 4096
"""Of replies, 16 octets each."""

PAUSE_SECONDS: Final = 0.05
"""Between two tries to connect; the process that listens starts within some tenths of a second."""

BEHIND_SECONDS: Final = 60.0
"""It is logged no more often that the journal falls behind: a replay does that many times."""

UNANSWERED: Final = "its process does not answer"
"""Trouble of a journal that has not admitted this worker."""

UNRENEWED: Final = "the lease of this router was not renewed in its database"
"""Trouble of a journal that another router may lead by now; its process knows why."""


class Lease(Interface):
    """How long this router may act as the leader; see ``router.journal.postgres.lease``."""

    @property
    def is_held(self) -> bool:
        """Whether it may now."""


class Core(Interface):
    """What is asked of ``router.core.core.Core``."""

    def durable(self, sequence: int, now: float) -> Iterable[Order]:
        """Returns the orders that waited for the records up to ``sequence``."""

    def journal_stuck(self, is_stuck: bool, now: float) -> Iterable[Order]:
        """Records that nothing can be written down, or that it can again."""


@attrs.define(eq=False, kw_only=True)
class JournalPort:
    """A worker's connection to the journal's process.

    Attributes:
        client: of the journal.
        name: for the log: ``journal`` or ``archive``.
        path: of the journal's socket.
        core: informed of what is durable.
        carry_out: takes the orders that follow.
        poller: of the data plane.
        clock: of the data plane.
        lease: of a journal that another router may take over; None: nobody can.
        cut: ends connections that carry exactly-once links, at once: the lease is not held.
        descriptor: of the socket; -1: there is none.
        is_stuck: the state last reported to the core.
        is_absent: no process accepts workers: the last connection failed, or ended unanswered.
        unread: why what earlier lives have written cannot be read; None: it can, or was not tried.
    """

    client: JournalClient
    path: Path
    core: Core
    carry_out: Callable[[Iterable[Order]], None]
    poller: Poller
    clock: Callable[[], float]
    name: str = "journal"
    lease: Lease | None = None
    cut: Callable[[], None] | None = None
    descriptor: int = attrs.field(default=-1, init=False)
    is_stuck: bool = attrs.field(default=False, init=False)
    is_absent: bool = attrs.field(default=False, init=False)
    unread: str | None = attrs.field(default=None, init=False)
    _socket: socket.socket | None = attrs.field(default=None, init=False)
    _interest: int = attrs.field(default=READABLE, init=False)
    _is_behind: bool = attrs.field(default=False, init=False)
    _is_silent: bool = attrs.field(default=False, init=False)
    _silent_until: float = attrs.field(default=float("-inf"), init=False)
    _lost: trio.Event = attrs.field(factory=trio.Event, init=False)
    _news: trio.Event = attrs.field(factory=trio.Event, init=False)
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    async def run(self) -> None:
        """Keeps connected until cancelled."""
        try:
            while self.client.state is not ClientState.REFUSED:
                if self._connect():
                    await self._lost.wait()
                else:
                    await trio.sleep(PAUSE_SECONDS)
        finally:
            self._drop()

    async def wait_open(self) -> None:
        """Returns when the journal has let this worker in."""
        while self.client.state is not ClientState.OPEN:
            await self._news.wait()

    async def wait_answer(self) -> None:
        """Returns when the journal has let this worker in, or no process accepts workers."""
        while self.client.state is not ClientState.OPEN and not self.is_absent:
            await self._news.wait()

    async def wait_durable(self) -> None:
        """Returns when everything on record is durable."""
        while self.client.durable_sequence < self.client.appended_sequence:
            self.flush()
            await self._news.wait()

    @property
    def is_admitted(self) -> bool:
        """Whether the journal has let this worker in."""
        return self.client.state is ClientState.OPEN

    @property
    def trouble(self) -> str | None:
        """Why nothing can be written down; None: it can."""
        client = self.client
        if client.health is Health.AWAY or self._is_fenced:
            return UNRENEWED
        if client.disk_trouble is not None:
            return client.disk_trouble
        if client.refusal is not None:
            return f"it refuses this worker: {client.refusal.name.lower()}"
        if client.state is not ClientState.OPEN:
            return UNANSWERED
        if self.unread is not None:
            return self.unread
        return "it is slower than the incoming records" if client.is_over_budget else None

    # Called by the data plane

    def flush(self) -> None:
        """Sends the collected records to the journal; without the lease, cuts first."""
        if self.lease is not None:
            self.check_lease()
        sock = self._socket
        if sock is None:
            return
        client, interest = self.client, READABLE
        while octets := client.data_to_send():
            try:
                client.bytes_sent(sock.send(octets))
            except (BlockingIOError, InterruptedError):
                interest |= WRITABLE
                break
            except OSError as error:
                self._lose(error.strerror or str(error))
                return
        if interest != self._interest:
            self._interest = interest
            self.poller.change(self.descriptor, interest)
        if client.is_over_budget is not self.is_stuck:
            self._judge()

    def check_lease(self) -> None:
        """Ends what another router may carry by now, before anything is sent there."""
        if self._is_fenced:
            if not self.is_stuck:
                self._judge()
            if self.cut is not None:
                self.cut()
        elif self.is_stuck:
            self._judge()

    @property
    def _is_fenced(self) -> bool:
        return self.lease is not None and not self.lease.is_held

    def ready(self) -> None:
        """Reads what the journal says."""
        sock = self._socket
        if sock is None:
            return
        try:
            octets = sock.recv(RECEIVE_OCTETS)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error.strerror or str(error))
            return
        if not octets:
            self._lose("the journal has closed the connection")
            return
        try:
            durable = self.client.receive_data(octets)
        except JournalReplyError as error:
            self._lose(str(error))
            return
        self.is_absent = False
        orders = self.core.durable(durable, self.clock())
        if orders:
            self.carry_out(orders)
        self._judge()
        self._tell_news()

    # Connecting

    def _connect(self) -> bool:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connect_unix(sock, self.path)
        except OSError:
            sock.close()
            self._note_absent()
            self._judge()
            return False
        sock.setblocking(False)
        self._socket, self.descriptor, self._interest = sock, sock.fileno(), READABLE
        self._lost = trio.Event()
        self.client.connection_made()
        self.poller.add(self.descriptor, READABLE)
        self.flush()
        return True

    def _lose(self, reason: str) -> None:
        if self.client.state is ClientState.GREETING:
            self._note_absent()
        else:
            self._log.warning(f"{self.name}.lost", reason=reason)
        self._drop()
        self._judge()
        self._tell_news()

    def _drop(self) -> None:
        sock, self._socket = self._socket, None
        if sock is None:
            return
        self.poller.remove(self.descriptor)
        self.descriptor = -1
        sock.close()
        if self.client.state is not ClientState.REFUSED:
            self.client.connection_lost()
        self._lost.set()

    def _note_absent(self) -> None:
        self.is_absent = True
        self._tell_news()

    def _tell_news(self) -> None:
        self._news.set()
        self._news = trio.Event()

    def _judge(self) -> None:
        """Reports to the core and the log when the journal gets stuck or moves again."""
        client = self.client
        is_writing = client.state is ClientState.OPEN and client.health is Health.WRITING
        is_failing = not is_writing or self._is_fenced
        is_stuck = client.is_over_budget or is_failing
        if is_stuck is self.is_stuck and not (is_failing and self._is_behind):
            return
        was_stuck, self.is_stuck = self.is_stuck, is_stuck
        self._is_behind = is_stuck and not is_failing
        if is_failing:
            self._tell_stuck()
        elif is_stuck:
            self._tell_behind()
        elif not self._is_silent:
            self._log.info(f"{self.name}.moving", octets=client.waiting_octets)
        if is_stuck is not was_stuck:
            self.carry_out(self.core.journal_stuck(is_stuck, self.clock()))

    def _tell_stuck(self) -> None:
        client, self._is_silent = self.client, False
        self._log.error(
            f"{self.name}.stuck",
            state=client.state.value,
            health=client.health.name.lower(),
            reason=os.strerror(client.errno) if client.errno else None,
            refusal=None if client.refusal is None else client.refusal.name.lower(),
            octets=client.waiting_octets,
        )

    def _tell_behind(self) -> None:
        """Logs that the journal is slower than the records: a burst passes, and may soon recur."""
        now = self.clock()
        self._is_silent = now < self._silent_until
        if not self._is_silent:
            self._silent_until = now + BEHIND_SECONDS
            self._log.warning(f"{self.name}.behind", octets=self.client.waiting_octets)


def connect_unix(sock: socket.socket, path: Path) -> None:
    """Connects a socket to a path of any length.

    Raises:
        OSError: no process listens there.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sock.connect(short_path(folder, path))
    finally:
        os.close(folder)


def short_path(folder: int, path: Path) -> str:
    """Returns a path within a folder that fits a socket's address: that takes 108 octets.

    Args:
        folder: descriptor of the directory that ``path`` is in.
        path: of the socket.
    """
    if len(os.fsencode(path)) < 100:
        return str(path)
    return f"/proc/self/fd/{folder}/{path.name}"
