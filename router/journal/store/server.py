"""Serves a message store's log to workers: the journal's server, and a desk that answers asks."""

import contextlib
import os
import socket
import time

import structlog

from router.journal.block import Block
from router.journal.protocol import Health, Refusal
from router.journal.record import RecordError
from router.journal.segment import segment_name
from router.journal.server import GRACE_SECONDS, Connection, JournalServer, RefusalError, Stage
from router.journal.store.desk import Desk
from router.journal.store.log import StoreLog

_log = structlog.get_logger("router.journal")


class StoreServer(JournalServer):
    """Serves workers until the lifeline closes or SIGTERM; see ``JournalServer``."""

    def __init__(
        self,
        listener: socket.socket,
        log: StoreLog,
        *,
        lifeline: int | None = None,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        """Makes a server of an open log."""
        super().__init__(listener, log, lifeline=lifeline, grace_seconds=grace_seconds)
        self._store = log.store
        self._desk = Desk(log.store)
        self._reported_losses = 0

    def _asked(self, connection: Connection, block: Block) -> None:
        try:
            self._desk.asked(connection.origin, block)
        except RecordError as error:
            raise RefusalError(Refusal.BROKEN_BLOCK) from error

    def _answers(self, connection: Connection) -> memoryview:
        return self._desk.output(connection.origin, time.time_ns())

    def _close(self, connection: Connection) -> None:
        if connection.stage is Stage.SERVING:
            self._desk.lost(connection.origin)
        super()._close(connection)

    def _timeout(self) -> float | None:
        seconds, deadline_ns = super()._timeout(), self._desk.deadline_ns()
        if deadline_ns is None:
            return seconds
        due = max(0.0, (deadline_ns - time.time_ns()) / 1e9)
        return due if seconds is None else min(seconds, due)

    def _tell_health(self) -> None:
        log = self._journal
        if log.health is Health.WRITING:
            _log.info("messages.moving", octets=log.pending_octets)
        else:
            health, reason = log.health.name.lower(), os.strerror(log.errno)
            _log.error("messages.stuck", health=health, reason=reason, octets=log.pending_octets)

    def _commit(self) -> None:
        self._store.look_again(time.time_ns())  # also while nobody is connected
        super()._commit()

    def _tell_unreadable(self) -> None:
        """Logs which segments cannot be read, and which can be again."""
        for number, reason in self._store.unreadable.take_news():
            segment, messages = segment_name(number), self._store.holdings.waiting_in(number)
            if not self._store.has_files:
                continue  # that the database is away is said elsewhere, once
            if reason is None:
                _log.info("store.readable", segment=segment, messages=messages)
            else:
                _log.error("store.unreadable", segment=segment, reason=reason, messages=messages)

    def _reclaim(self) -> None:
        with contextlib.suppress(OSError):  # another time: the disk is looked at elsewhere
            self._store.remove_done()
        self._tell_unreadable()
        for loss in self._store.losses[self._reported_losses :]:
            _log.error("store.incomplete", loss=loss)
        self._reported_losses = len(self._store.losses)
