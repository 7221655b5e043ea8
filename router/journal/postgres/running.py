"""What the journal's process runs if its store is on PostgreSQL; see ``router.journal.process``."""

import argparse
import os
import socket
import time

from router.journal.log import SEGMENT_OCTETS
from router.journal.postgres.lease import FENCED, URL_VARIABLE, LeaseFile
from router.journal.postgres.log import FencedError, PostgresLog
from router.journal.postgres.reclaim import PostgresReclaimer
from router.journal.postgres.server import PostgresServer

__all__ = ["FENCED", "FencedError", "log_of", "server_of"]


def log_of(options: argparse.Namespace) -> PostgresLog:
    """Makes the log, closed."""
    return PostgresLog(
        os.environ[URL_VARIABLE],
        options.router,
        incarnation=time.time_ns(),
        holder=options.holder,
        lease=LeaseFile(options.lease),
        segment_octets=options.segment_octets or SEGMENT_OCTETS,
        rotate_seconds=options.rotate_seconds,
        retry_seconds=options.retry_seconds,
    )


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
        grace_seconds=options.grace_seconds,
    )
