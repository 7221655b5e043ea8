"""What the journal's process runs if its store is on PostgreSQL; see ``router.journal.process``."""

import argparse
import json
import os
import socket
import time

from router.journal.lifeline import Lifeline
from router.journal.log import SEGMENT_OCTETS
from router.journal.postgres.lease import FENCED, URL_VARIABLE, Leader, LeaseFile, boot_ns
from router.journal.postgres.log import FencedError, PostgresLog
from router.journal.postgres.reclaim import PostgresReclaimer
from router.journal.postgres.server import PostgresServer
from router.journal.postgres.storage import StoreError
from router.journal.postgres.watch import Watch
from router.journal.storage import Opened

__all__ = ["FENCED", "FencedError", "log_of", "open_log", "server_of"]


def log_of(options: argparse.Namespace) -> PostgresLog:
    """Makes the log, closed."""
    return PostgresLog(
        os.environ[URL_VARIABLE],
        options.router,
        incarnation=time.time_ns(),
        holder=options.holder,
        lease=LeaseFile(options.lease),
        address=options.address,
        segment_octets=options.segment_octets or SEGMENT_OCTETS,
        rotate_seconds=options.rotate_seconds,
        retry_seconds=options.retry_seconds,
    )


def open_log(options: argparse.Namespace, log: PostgresLog) -> Opened | None:
    """Opens the log; a standby waits until it may, and reports who leads meanwhile.

    A process of a router that led a moment ago does not wait: either it has the lease, or another
    router does, which ends this one.

    Returns:
        None: the supervisor has ended before.

    Raises:
        FencedError: another router led since this one's last lease.
        OSError, ForeignFileError: it cannot be opened, and this is no standby.
    """

    def report(leader: Leader | None, trouble: str | None, *, leads: bool = False) -> None:
        if options.reason_fd is not None:
            text = None if leader is None else leader.text
            told = {"leader": text, "trouble": trouble, "leads": leads}
            os.write(options.reason_fd, f"{json.dumps(told)}\n".encode())

    watch = Watch(
        os.environ[URL_VARIABLE],
        options.router,
        options.holder,
        report=report,
        lifeline=None if options.lifeline_fd is None else Lifeline(options.lifeline_fd, boot_ns()),
        yields=options.yields,
    )
    waits = options.standby and not LeaseFile(options.lease).epoch
    while True:
        if waits and not watch.run():
            return None
        try:
            opened = log.open(time.time_ns())
        except (BlockingIOError, StoreError) as error:
            if not waits:
                raise
            if not isinstance(error, BlockingIOError):
                report(None, error.strerror)
            if watch.rest():
                return None
        else:
            report(log.leader, None, leads=True)
            return opened


def server_of(
    options: argparse.Namespace, listener: socket.socket, log: PostgresLog
) -> PostgresServer:
    """Makes the server of an open log."""
    reclaimer = None
    if not options.keep:
        reclaimer = PostgresReclaimer(
            options.router,
            archive=options.archive,
            segment_octets=options.segment_octets or SEGMENT_OCTETS,
        )
    return PostgresServer(
        listener,
        log,
        lifeline=options.lifeline_fd,
        reclaimer=reclaimer,
        beats=options.standby,
        grace_seconds=options.grace_seconds,
    )
