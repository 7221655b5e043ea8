"""Serves the log on PostgreSQL: its connections are among the sockets, and workers may read.

A worker never connects to the database. To restore what its earlier life left, it connects to the
journal's socket once more and says that it wants to read (``remote``); that connection is handed to
a process of its own (``readers``), so neither reading nor a slow database holds up the records of
others.
"""

import contextlib
import json
import os
import socket

import structlog

from router.journal.lifeline import Lifeline
from router.journal.postgres.lease import boot_ns
from router.journal.postgres.log import PostgresLog
from router.journal.postgres.readers import Readers
from router.journal.postgres.remote import is_question
from router.journal.protocol import Refusal
from router.journal.reclaimer import Reclaimer
from router.journal.server import (
    GRACE_SECONDS,
    Connection,
    JournalServer,
    RefusalError,
    Stage,
    next_block,
)

_log = structlog.get_logger("router.journal")


class PostgresServer(JournalServer):
    """Serves workers until the lifeline closes, SIGTERM, or the end of the lease."""

    def __init__(
        self,
        listener: socket.socket,
        log: PostgresLog,
        *,
        readers: Readers,
        lifeline: int | None = None,
        reclaimer: Reclaimer | None = None,
        beats: bool = False,
        reasons: int | None = None,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        """Makes a server of an open log; see ``JournalServer``.

        With ``beats`` the supervisor writes to the lifeline while it works. ``readers`` serve
        workers that read. ``reasons`` is a pipe on which the supervisor hears why nothing can be
        written.
        """
        super().__init__(
            listener, log, lifeline=lifeline, reclaimer=reclaimer, grace_seconds=grace_seconds
        )
        self._postgres = log
        self._life = None if lifeline is None else Lifeline(lifeline, boot_ns())
        if beats:
            log.lifeline = self._life
        self._readers = readers
        self._reasons = reasons
        self._told: str | None = None
        self._logged: set[str] = set()

    def _read_lifeline(self) -> bool:
        assert self._life is not None
        return self._life.read(boot_ns())

    def _timeout(self) -> float | None:
        due = super()._timeout()
        seconds = self._postgres.wait_seconds
        return seconds if due is None else min(due, seconds)

    def _commit(self) -> None:
        self._is_log_ready = True  # a turn is rare, and a lease is renewed by time
        super()._commit()
        self._readers.reap()

    def _note_health(self) -> None:
        """Logs each reason once until the journal can write again; tells the supervisor each."""
        log = self._postgres
        if log.trouble == self._told:
            return
        self._told = reason = log.trouble
        if reason is None:
            self._logged.clear()
            _log.info("journal.recovered")
        elif reason not in self._logged:
            self._logged.add(reason)
            _log.error("journal.failed", health=log.health.name, errno=log.errno, reason=reason)
        if self._reasons is not None:
            with contextlib.suppress(OSError):  # the supervisor has ended
                os.write(self._reasons, f"{json.dumps({'failing': reason})}\n".encode())

    def _receive(self, connection: Connection, octets: bytes) -> None:
        if connection.stage is Stage.OPENING:
            hello = next_block(memoryview(octets), 0)
            if hello is not None and is_question(hello):
                if bytes(hello.heap) != self._journal.router.encode():
                    raise RefusalError(Refusal.WRONG_ROUTER)
                self._read_for(connection)
                return
        super()._receive(connection, octets)

    def _read_for(self, connection: Connection) -> None:
        descriptor = os.dup(connection.socket.fileno())
        self._close(connection)
        try:
            self._readers.hand_over(descriptor, self._postgres.epoch, self._postgres.first)
        finally:
            os.close(descriptor)
