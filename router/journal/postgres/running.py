"""What the journal's process runs if its store is on PostgreSQL; see ``router.journal.process``."""

import argparse
import contextlib
import json
import os
import selectors
import socket
import time
from functools import partial
from typing import Final

import structlog

from router.journal.lifeline import Lifeline
from router.journal.log import SEGMENT_OCTETS
from router.journal.postgres.disk import PostgresDisk
from router.journal.postgres.failing import Pauses
from router.journal.postgres.handing_over import take_over
from router.journal.postgres.lease import FENCED, Leader, LeaseFile, boot_ns
from router.journal.postgres.log import FencedError, PostgresLog
from router.journal.postgres.mark import Mark
from router.journal.postgres.readers import Readers
from router.journal.postgres.reclaim import PostgresReclaimer
from router.journal.postgres.server import PostgresServer
from router.journal.postgres.storage import StoreError
from router.journal.postgres.watch import LOOK_SECONDS, Watch
from router.journal.storage import Opened
from router.journal.store.log import StoreLog
from router.journal.store.store import STORE_SEGMENT_OCTETS

_log = structlog.get_logger("router.journal")

AHEAD_SECONDS: Final = 1.0
"""Between two looks at what the leader has written."""

LEASE_LOOK_SECONDS: Final = 0.02

__all__ = [
    "FENCED",
    "FencedError",
    "Readers",
    "log_of",
    "message_log_of",
    "open_log",
    "server_of",
    "take_over",
]


def log_of(options: argparse.Namespace) -> PostgresLog:
    """Makes the log, closed."""
    return PostgresLog(
        options.store_url,
        options.router,
        incarnation=time.time_ns(),
        holder=options.holder,
        lease=LeaseFile(options.lease),
        mark=Mark(options.lease.parent, options.router),
        address=options.address,
        segment_octets=options.segment_octets or SEGMENT_OCTETS,
        rotate_seconds=options.rotate_seconds,
        retry_seconds=options.retry_seconds,
    )


def open_log(options: argparse.Namespace, log: PostgresLog, readers: Readers) -> Opened | None:
    """Opens the log when the lease is free, and reports who leads meanwhile.

    Until then it prepares what can be prepared. Workers of a router that is no standby, or that led
    a moment ago, run meanwhile, and are turned away. If another router has led since this one did,
    that ends this one.

    Returns:
        None: the supervisor has ended before.

    Raises:
        FencedError: another router led since this one's last lease.
        ForeignFileError: a later version has written the journal.
    """
    with contextlib.ExitStack() as stack:
        waiting = None
        is_standby = options.standby and not LeaseFile(options.lease).epoch
        if not is_standby and options.listen_fd is not None:
            waiting = stack.enter_context(socket.socket(fileno=os.dup(options.listen_fd)))
            waiting.setblocking(False)
        return _open_when_free(options, log, readers, waiting, is_standby=is_standby)


def _share_login_key(options: argparse.Namespace, log: PostgresLog) -> None:
    try:
        log.share_login_key(options.lease.parent)
    except OSError as error:
        _log.warning("login_key.unshared", reason=error.strerror or str(error))


def _open_when_free(
    options: argparse.Namespace,
    log: PostgresLog,
    readers: Readers,
    waiting: socket.socket | None,
    *,
    is_standby: bool,
) -> Opened | None:
    report = partial(_report, options)
    ahead_at, last = 0.0, LeaseFile(options.lease).epoch
    pauses = Pauses(int(LOOK_SECONDS * 1e9))

    def look(leader: Leader | None, trouble: str | None) -> None:
        nonlocal ahead_at
        if leader is not None and last and leader.epoch != last:
            raise FencedError
        is_free = leader is not None and watch.is_free(leader)
        if leader is not None and not is_free:
            pauses.worked()
            trouble = trouble if is_standby else str(leader)
        if pauses.since_ns is None or not is_free:  # else what was wrong is still wrong
            report(leader, trouble)
        is_led = leader is not None and leader.age_seconds < AHEAD_SECONDS
        if is_led and time.monotonic() > ahead_at:
            with contextlib.suppress(OSError):  # the log connects later, and says what is wrong
                log.prepare()
                log.share_login_key(options.lease.parent)
            ahead_at = time.monotonic() + AHEAD_SECONDS

    watch = Watch(
        options.store_url,
        options.router,
        options.holder,
        report=look,
        lifeline=None if options.lifeline_fd is None else Lifeline(options.lifeline_fd, boot_ns()),
        yields=options.yields,
        turned_away=waiting,
        mark=Mark(options.lease.parent, options.router),
    )
    with contextlib.suppress(OSError):  # it is started when it is needed
        readers.prepare()
    try:
        while (leader := watch.run()) is not None:
            waited_seconds, began = watch.unchanged_seconds(leader), time.monotonic()
            try:
                opened = log.open(time.time_ns(), leader)
            except BlockingIOError:
                if watch.rest():
                    break
            except StoreError as error:
                report(None, error.strerror)
                if watch.rest(pauses.failed(boot_ns())):
                    break
            else:
                opened_seconds = time.monotonic() - began
                report(log.leader, None, leads=True, waited=waited_seconds, opened=opened_seconds)
                _share_login_key(options, log)
                return opened
    finally:
        watch.close()
    return None


def _report(
    options: argparse.Namespace,
    leader: Leader | None,
    trouble: str | None,
    *,
    leads: bool = False,
    **seconds: float,
) -> None:
    """Tells the supervisor who leads, or why that cannot be seen.

    Args:
        options: of the command line.
        leader: who leads, if that is known.
        trouble: why it is not.
        leads: this router does.
        seconds: which part of the takeover has lasted how long.
    """
    if options.reason_fd is not None:
        text = None if leader is None else leader.text
        told = {"leader": text, "trouble": trouble, "leads": leads, "seconds": seconds}
        os.write(options.reason_fd, f"{json.dumps(told)}\n".encode())


def message_log_of(options: argparse.Namespace) -> StoreLog | None:
    """Makes the log of the message store, closed, when this router has the lease.

    Returns:
        None: the supervisor has ended before.
    """
    epoch = _wait_for_lease(LeaseFile(options.lease), options.lifeline_fd)
    if epoch is None:
        return None
    return StoreLog(
        options.directory,
        options.router,
        disk=PostgresDisk(options.store_url, options.router, epoch),
        incarnation=time.time_ns(),
        segment_octets=options.segment_octets or STORE_SEGMENT_OCTETS,
        rotate_seconds=options.rotate_seconds,
        retry_seconds=options.retry_seconds,
    )


def _wait_for_lease(lease: LeaseFile, lifeline: int | None) -> int | None:
    """Waits until the journal's process has taken the lease; returns its epoch."""
    with selectors.DefaultSelector() as selector:
        if lifeline is not None:
            selector.register(lifeline, selectors.EVENT_READ)
        while not lease.is_held:
            if selector.select(LEASE_LOOK_SECONDS) and not os.read(lifeline or 0, 4096):
                return None
    return lease.epoch


def server_of(
    options: argparse.Namespace, listener: socket.socket, log: PostgresLog, readers: Readers
) -> PostgresServer:
    """Makes the server of an open log."""
    reclaimer = None
    if not options.keep:
        reclaimer = PostgresReclaimer(
            options.store_url,
            options.router,
            archive=options.archive,
            segment_octets=options.segment_octets or SEGMENT_OCTETS,
        )
    return PostgresServer(
        listener,
        log,
        readers=readers,
        lifeline=options.lifeline_fd,
        reclaimer=reclaimer,
        beats=options.standby,
        reasons=options.reason_fd,
        grace_seconds=options.grace_seconds,
    )
