"""Serves the log to workers: they send blocks, and one flush makes a group of blocks durable.

    loop:   wait for sockets -> read each ready one once -> commit -> reply to each worker

No timer delays a commit: while one commit runs, the next group gathers in the sockets. The code is
synchronous, because a journal waits for its only slow operation, the flush, anyway. A message store
has more to do: its log flushes in a thread (``flusher``), and the next group gathers in memory
while it reads and answers.

A connection:

    OPENING  -- HELLO, worker free -->  WAITING  -- nothing of it pending -->  SERVING
       |        (its earlier connection is at its end)                     |
       '-- anything wrong: refusal, closed --------------------------------'

In WAITING the server reads the predecessor's socket to its end and makes the predecessor's records
durable before it replies to the successor, so that a worker's successor finds everything that its
predecessor wrote in the segments. It does not wait for the records of other workers: on a full disk
these stay pending, and each worker writes and restores a share of its own.

While the disk is full or fails, received blocks are kept and tried again. Beyond a budget the
sockets are not read, so the workers keep the rest and their own budgets fill: credit stops, nothing
is lost. A worker that does not read its replies costs memory for one reply.

The server ends when the lifeline, a pipe whose other end the supervisor holds, is closed, or on
SIGTERM: it accepts no more workers, reads the connected ones to their end within a grace period,
commits and seals.
"""

import contextlib
import enum
import os
import selectors
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Final

import attrs
import structlog

from router.journal.block import (
    OWN_WORKER,
    Block,
    BlockError,
    BlockFlag,
    Origin,
    open_block,
)
from router.journal.protocol import REFUSED, REPLY, Health, Refusal, is_hello
from router.journal.reclaimer import Reclaimer
from router.journal.storage import BlockLog

RECEIVE_OCTETS: Final = 1 << 20
"""Octets read from one worker in one turn."""

PENDING_OCTETS: Final = 32 << 20
"""While more than this waits for the disk, no socket is read."""

GRACE_SECONDS: Final = 5.0
"""How long workers may still send records when the journal is about to end."""

WAIT_SECONDS: Final = 3600.0
"""Longest wait for the sockets; the system cannot wait for months, which an age may be."""

_ACCEPTED_AT_ONCE: Final = 64
_LOG: Final = "log"
"""Marks descriptors of the log among those of the selector."""

_ASKS: Final = BlockFlag.ASKS.value

NOBODY: Final = Origin(OWN_WORKER, 0)
"""Origin of a connection that has not said HELLO; no worker has this number."""

Octets = bytes | memoryview

_log = structlog.get_logger("router.journal")


class Stage(enum.Enum):
    """See the drawing of the module."""

    OPENING = "opening"
    WAITING = "waiting"
    SERVING = "serving"


@attrs.define(eq=False)
class Connection:
    """One worker's connection.

    Attributes:
        socket: non-blocking.
        stage: see the drawing of the module.
        origin: who writes, from HELLO on.
        first_sequence: the first record that the worker still has, from HELLO on.
        partial: octets of a block that is not whole yet.
        reported: durable sequence number and health of the last reply.
        unsent: rest of a reply that the socket did not take.
        is_deaf: the worker closed its end; octets that it sent before are still to be read.
    """

    socket: socket.socket
    stage: Stage = Stage.OPENING
    origin: Origin = NOBODY
    first_sequence: int = 1
    partial: bytes = b""
    reported: tuple[int, int, int] | None = None
    unsent: Octets = b""
    is_deaf: bool = False


class RefusalError(Exception):
    """The connection must be refused and closed."""

    def __init__(self, refusal: Refusal, number: int = 0) -> None:
        super().__init__(refusal.name)
        self.refusal = refusal
        self.number = number


class JournalServer:
    """Serves workers until the lifeline closes or SIGTERM."""

    def __init__(
        self,
        listener: socket.socket,
        log: BlockLog,
        *,
        lifeline: int | None = None,
        reclaimer: Reclaimer | None = None,
        grace_seconds: float = GRACE_SECONDS,
        pending_octets: int = PENDING_OCTETS,
    ) -> None:
        """Makes a server of an open log.

        Args:
            listener: bound and listening Unix stream socket.
            log: opened.
            lifeline: descriptor that reads end-of-file when the supervisor is gone.
            reclaimer: removes old segments; None: all are kept.
            grace_seconds: see the module.
            pending_octets: while more than this waits for the disk, no socket is read.
        """
        self._listener = listener
        self._journal = log
        self._lifeline = lifeline
        self._reclaimer = reclaimer
        self._grace_seconds = grace_seconds
        self._pending_limit = pending_octets
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, Connection] = {}
        self._buffer = memoryview(bytearray(RECEIVE_OCTETS))
        self._is_reading = True
        self._end_at: float | None = None
        self._health = Health.WRITING  # what is wrong from the beginning is news
        self._clock_ns = time.time_ns() - time.monotonic_ns()
        self._log_waits: Mapping[int, int] = {}
        self._is_log_ready = True
        self._seen = (-1, False)  # whatever was left by the last life may be worth a run

    def run(self) -> bool:
        """Serves until the end; returns whether all received records are durable."""
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        if self._lifeline is not None:
            self._selector.register(self._lifeline, selectors.EVENT_READ)
        with _signals_to_socket() as waker:
            self._selector.register(waker, selectors.EVENT_READ)
            while not self._is_finished():
                self._turn(waker)
        for connection in list(self._connections.values()):
            self._close(connection)
        is_durable = self._journal.close(self._now_ns())
        if self._reclaimer is not None:
            self._reclaimer.abandon()
        self._selector.close()
        return is_durable

    def _now_ns(self) -> int:
        """Returns nanoseconds since 1970 that never step back, even if the clock does."""
        return time.monotonic_ns() + self._clock_ns

    def _turn(self, waker: socket.socket) -> None:
        seconds = self._timeout()
        for key, events in self._selector.select(
            None if seconds is None else min(seconds, WAIT_SECONDS)
        ):
            if key.data is _LOG:
                self._is_log_ready = True
            elif key.fileobj is self._listener:
                if self._end_at is None:  # else it was closed in this very turn
                    self._accept()
            elif key.fd == self._lifeline:
                if not self._read_lifeline():
                    self._begin_end(key.fileobj)
            elif key.fileobj is waker:
                self._begin_end(key.fileobj)
            else:
                self._serve(self._connections[key.fd], events)
        self._commit()
        if self._journal.waits is not self._log_waits:
            self._watch_log()
        self._welcome_waiting()
        for connection in list(self._connections.values()):
            if connection.stage is Stage.SERVING:
                self._report(connection)
                self._answer(connection)
        self._reclaim()

    def _read_lifeline(self) -> bool:
        """Returns whether the supervisor still lives."""
        assert self._lifeline is not None
        return bool(os.read(self._lifeline, 1))

    def _timeout(self) -> float | None:
        """Seconds until something is due though no socket is ready; None for never."""
        due: list[float] = []
        deadline_ns = self._journal.deadline_ns
        if deadline_ns is not None:
            due.append((deadline_ns - self._now_ns()) / 1e9)
        if self._end_at is not None:
            due.append(self._end_at - time.monotonic())
        if self._reclaimer is not None and self._reclaimer.wait_seconds is not None:
            due.append(self._reclaimer.wait_seconds)
        return max(0.0, min(due)) if due else None

    def _is_finished(self) -> bool:
        if self._end_at is None:
            return False
        return not self._connections or time.monotonic() >= self._end_at

    def _begin_end(self, source: object) -> None:
        """Records that the supervisor is gone, or that SIGTERM arrived."""
        if self._lifeline is not None and source == self._lifeline:
            self._selector.unregister(self._lifeline)
        elif isinstance(source, socket.socket):
            source.recv(64)
        if self._end_at is None:
            self._end_at = time.monotonic() + self._grace_seconds
            self._selector.unregister(self._listener)
            self._listener.close()

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, _address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                _log.warning("connection.failed", error=error)
                return
            accepted.setblocking(False)
            connection = self._connections[accepted.fileno()] = Connection(accepted)
            self._watch(connection)

    def _watch(self, connection: Connection) -> None:
        """Registers the connection's awaited events with the selector."""
        events = selectors.EVENT_READ if self._is_reading else 0
        if connection.unsent:
            events |= selectors.EVENT_WRITE
        is_known = connection.socket in self._selector.get_map()
        if events and is_known:
            self._selector.modify(connection.socket, events)
        elif events:
            self._selector.register(connection.socket, events)
        elif is_known:
            self._selector.unregister(connection.socket)

    def _watch_log(self) -> None:
        """Registers what the log waits for with the selector; files wait for nothing."""
        for descriptor in self._log_waits:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(descriptor)
        self._log_waits = self._journal.waits  # one may be another socket of the same number
        for descriptor, events in self._log_waits.items():
            self._selector.register(descriptor, events, _LOG)

    def _close(self, connection: Connection) -> None:
        if connection.socket in self._selector.get_map():
            self._selector.unregister(connection.socket)
        del self._connections[connection.socket.fileno()]
        connection.socket.close()

    def _serve(self, connection: Connection, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._send(connection, connection.unsent)
        if not events & selectors.EVENT_READ:
            return
        try:
            count = connection.socket.recv_into(self._buffer)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            count = 0
        if not count:
            self._close(connection)
            return
        try:
            self._receive(connection, connection.partial + self._buffer[:count])
        except RefusalError as error:
            self._refuse(connection, error)

    def _receive(self, connection: Connection, octets: bytes) -> None:
        """Removes all whole blocks from ``octets`` and appends them.

        Raises:
            RefusalError: a block is malformed or out of sequence.
        """
        position = 0
        view = memoryview(octets)
        if connection.stage is Stage.OPENING:
            hello = next_block(view, 0)
            if hello is None:
                connection.partial = octets
                return
            self._greet(connection, hello)
            position = hello.octets
        accepted_from = position
        blocks: list[Block] = []
        expected = self._journal.appended.get(connection.origin, 1)
        while (block := next_block(view, position)) is not None:
            start, position = position, position + block.octets
            if connection.stage is not Stage.SERVING:
                raise RefusalError(Refusal.NO_HELLO)
            if block.flags & _ASKS:
                if blocks:
                    self._journal.append(octets[accepted_from:start], blocks)
                self._asked(connection, block)
                accepted_from, blocks = position, []
                continue
            if block.origin != connection.origin or is_hello(block) or not block.row_count:
                raise RefusalError(Refusal.BROKEN_BLOCK)
            if block.last_sequence < expected and not blocks:
                accepted_from = position  # it had been received before the connection was lost
                continue
            if block.first_sequence != expected:
                raise RefusalError(Refusal.GAP)
            expected = block.last_sequence + 1
            blocks.append(block)
        if blocks:
            self._journal.append(octets[accepted_from:position], blocks)
        connection.partial = octets[position:]

    def _asked(self, connection: Connection, block: Block) -> None:
        """Handles what a worker asks of a message store, which a journal is not.

        Raises:
            RefusalError: it is not answered here.
        """
        raise RefusalError(Refusal.BROKEN_BLOCK)

    def _answers(self, connection: Connection) -> Octets:
        """Returns what else to send to a worker that has taken everything so far."""
        return b""

    def _greet(self, connection: Connection, hello: Block) -> None:
        if not is_hello(hello):
            raise RefusalError(Refusal.NO_HELLO)
        if bytes(hello.heap) != self._journal.router.encode():
            raise RefusalError(Refusal.WRONG_ROUTER)
        if hello.origin.worker == OWN_WORKER:
            raise RefusalError(Refusal.BROKEN_BLOCK)
        connection.origin = hello.origin
        connection.first_sequence = hello.first_sequence
        connection.stage = Stage.WAITING

    def _welcome_waiting(self) -> None:
        """Admits workers whose predecessors have ended, once all their records are durable."""
        waiting = [c for c in self._connections.values() if c.stage is Stage.WAITING]
        for connection in waiting:
            worker = connection.origin.worker
            others = [
                other
                for other in self._connections.values()
                if other is not connection and other.origin.worker == worker
            ]
            if any(other.stage is Stage.SERVING for other in others):
                continue
            if self._journal.has_pending(worker):
                continue
            try:
                self._welcome(connection)
            except RefusalError as error:
                self._refuse(connection, error)

    def _welcome(self, connection: Connection) -> None:
        origin, appended = connection.origin, self._journal.appended
        newest = max((o.incarnation for o in appended if o.worker == origin.worker), default=0)
        if newest > origin.incarnation:
            raise RefusalError(Refusal.OLD_INCARNATION, newest)
        known = self._journal.durable.get(origin, 1) - 1  # nothing is pending
        if known < connection.first_sequence - 1:
            _log.error(
                "ledger.broken",
                worker=origin.worker,
                incarnation=origin.incarnation,
                first_missing=known + 1,
                last_missing=connection.first_sequence - 1,
            )
        self._journal.admit(origin, connection.first_sequence)
        connection.stage = Stage.SERVING
        self._report(connection, known)

    def _commit(self) -> None:
        journal, now_ns = self._journal, self._now_ns()
        deadline_ns = journal.deadline_ns
        is_due = deadline_ns is not None and now_ns >= deadline_ns
        if journal.pending_octets or is_due or self._is_log_ready:
            self._is_log_ready = False
            journal.commit(now_ns)
        self._note_health()
        is_reading = journal.pending_octets <= self._pending_limit
        if is_reading != self._is_reading:
            self._is_reading = is_reading
            for connection in self._connections.values():
                self._watch(connection)

    def _note_health(self) -> None:
        if self._journal.health is not self._health:
            self._health = self._journal.health
            self._tell_health()

    def _tell_health(self) -> None:
        """Logs that the disk takes records again, or does not."""
        journal = self._journal
        if journal.health is Health.WRITING:
            _log.info("journal.recovered")
        else:
            _log.error("journal.failed", health=journal.health.name, errno=journal.errno)

    def _report(self, connection: Connection, durable: int | None = None) -> None:
        """Sends a worker its durable sequence number, if it does not know it."""
        journal = self._journal
        if durable is None:
            durable = journal.durable[connection.origin] - 1
        news = (journal.health, journal.errno, durable)
        if news != connection.reported and not connection.unsent and not connection.is_deaf:
            connection.reported = news
            self._send(connection, REPLY.pack(*news))

    def _answer(self, connection: Connection) -> None:
        while not (connection.unsent or connection.is_deaf):
            octets = self._answers(connection)
            if not octets:
                return
            self._send(connection, octets)

    def _send(self, connection: Connection, octets: Octets) -> None:
        was_unsent = bool(connection.unsent)
        try:
            sent = connection.socket.send(octets)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            connection.is_deaf = True
            sent = len(octets)
        connection.unsent = memoryview(octets)[sent:] if sent < len(octets) else b""
        if was_unsent != bool(connection.unsent):
            self._watch(connection)

    def _refuse(self, connection: Connection, error: RefusalError) -> None:
        _log.error(
            "worker.refused",
            worker=connection.origin.worker,
            incarnation=connection.origin.incarnation,
            reason=error.refusal.name,
        )
        with contextlib.suppress(OSError):
            connection.socket.send(REPLY.pack(REFUSED, error.refusal, error.number))
        self._close(connection)

    def _reclaim(self) -> None:
        if self._reclaimer is None:
            return
        is_disk_full = self._journal.health is Health.DISK_FULL
        is_due = self._reclaimer.is_running or self._reclaimer.wait_seconds == 0.0
        seen = (self._journal.sealed, is_disk_full)
        if self._seen != seen or is_due:
            self._seen = seen
            self._reclaimer.step(self._journal.number - 1, is_disk_full=is_disk_full)


def next_block(octets: memoryview, position: int) -> Block | None:
    """Opens the block at ``position``; None if it is not whole yet.

    Raises:
        RefusalError: no block stands there.
    """
    if position == len(octets):
        return None
    try:
        return open_block(octets, position)
    except BlockError as error:
        if error.is_short:
            return None
        raise RefusalError(Refusal.BROKEN_BLOCK) from error


@contextlib.contextmanager
def _signals_to_socket() -> Iterator[socket.socket]:
    """Makes SIGTERM readable on a socket; the terminal's SIGINT is the supervisor's."""
    readable, writable = socket.socketpair()
    readable.setblocking(False)
    writable.setblocking(False)
    old_term = signal.signal(signal.SIGTERM, lambda *_: None)
    old_int = signal.signal(signal.SIGINT, signal.SIG_IGN)
    old_wakeup = signal.set_wakeup_fd(writable.fileno(), warn_on_full_buffer=False)
    try:
        yield readable
    finally:
        signal.set_wakeup_fd(old_wakeup)
        signal.signal(signal.SIGTERM, old_term)
        signal.signal(signal.SIGINT, old_int)
        readable.close()
        writable.close()
