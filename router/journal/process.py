"""The journal's process: the log, served to workers over a Unix socket, and nothing else.

The supervisor starts it as ``python -m router.journal.process``, keeps the listening socket and
the writing end of the lifeline, and restarts it if it dies: the workers connect to the same
socket and hand in again the records that are not durable. Its log lines are part of the router's
log: on standard output, in the same form.
"""

import argparse
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TextIO, cast

import structlog

from router.errors import reason_of
from router.journal.disk import Disk
from router.journal.flusher import Flusher
from router.journal.holder import find_holder
from router.journal.lines import LineWriter, hold_standard_streams
from router.journal.log import (
    LOCK_NAME,
    RETRY_SECONDS,
    ROTATE_SECONDS,
    SEGMENT_OCTETS,
    SEGMENT_SHARE,
    Log,
)
from router.journal.reclaimer import Reclaimer
from router.journal.segment import ForeignFileError
from router.journal.server import GRACE_SECONDS, JournalServer
from router.journal.storage import BlockLog, Opened
from router.journal.store.log import SPARE_OCTETS, StoreLog
from router.journal.store.server import StoreServer
from router.journal.store.store import (
    STORE_RESERVE_SEGMENTS,
    STORE_SEGMENT_OCTETS,
    STORE_SEGMENT_SHARE,
)
from router.model.log_values import show_columns, show_values

_LEAST_OCTETS: Final = 1 << 20
"""Of a segment, on whatever disk."""

_READ: Final = frozenset({".segment", ".snapshot"})
"""Suffixes of files that must be read before the journal is open."""

_log = structlog.get_logger("router.journal")


def bind(path: Path) -> socket.socket:
    """Listens at ``path``, readable and writable by the owner alone.

    Raises:
        OSError: the path is too long for a Unix socket, or its directory is not writable.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path.unlink(missing_ok=True)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(64)
    return listener


def warn_of_another_name(written_by: str | None, router: str) -> None:
    """Warns that the journal belongs to another router: containers do not know our links."""
    if written_by not in {None, router}:
        _log.error(
            "journal.renamed",
            written_by=written_by,
            router=router,
            effect="containers do not know the links of this router: what is unsettled is in"
            " doubt, and what they bring again is not recognized; set router.id",
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the journal's process; the supervisor starts it as ``-m router.journal.process``.

    Returns:
        0 if all received records are durable, 1 if not, 2 if the journal cannot be opened.
    """
    options = _parser().parse_args(arguments)
    hold_standard_streams()
    _configure_log(options.log_level, options.log_format)
    if options.lease is not None:
        return _run_postgres(options)
    return _run_files(options, _log_of(options, time.time_ns()))


def _run_files(options: argparse.Namespace, log: Log) -> int:
    """Runs a store of files, or of what is used like files."""
    return _run(
        options, log, partial(_server_of, options, log=log), partial(log.open, log.incarnation)
    )


def _run_postgres(options: argparse.Namespace) -> int:
    """Runs the store on PostgreSQL, whose driver only then must be installed."""
    from router.journal.postgres.running import (  # noqa: PLC0415
        FENCED,
        FencedError,
        Readers,
        log_of,
        message_log_of,
        open_log,
        server_of,
        take_over,
    )

    options.store_url = take_over(options.store_fd)
    try:
        if options.messages:
            messages = message_log_of(options)
            return 0 if messages is None else _run_files(options, messages)
        log, readers = log_of(options), Readers(options.store_url, options.router)
        return _run(
            options,
            log,
            partial(server_of, options, log=log, readers=readers),
            partial(open_log, options, log, readers),
        )
    except FencedError as error:
        _log.error("journal.fenced", reason=str(error))
        return FENCED


def _run(
    options: argparse.Namespace,
    log: BlockLog,
    server_of: Callable[[socket.socket], JournalServer],
    open_log: Callable[[], Opened | None],
) -> int:
    """Opens the log, and serves it to its end."""
    try:
        opened = open_log()
        if opened is None:
            return 0
        listener = (
            bind(options.listen)
            if options.listen is not None
            else socket.socket(fileno=options.listen_fd)
        )
    except (OSError, ForeignFileError) as error:
        reason = _describe(error, None if options.lease else options.directory)
        if options.reason_fd is None:
            _log.error("journal.refused", error=reason, directory=str(options.directory))
        else:
            os.write(options.reason_fd, reason.encode())
        return 2
    if options.reason_fd is not None and options.holder is None:
        os.close(options.reason_fd)  # on PostgreSQL there is more to say
    _log.info(
        "journal.opened",
        segments=opened.segments,
        cut_octets=opened.cut_octets,
        damage=opened.damage,
        health=log.health,
    )
    warn_of_another_name(opened.router, options.router)
    is_durable = server_of(listener).run()
    _log.info(
        "journal.closed", octets=log.written_octets, commits=log.commits, is_durable=is_durable
    )
    return 0 if is_durable else 1


def _describe(error: OSError | ForeignFileError, directory: Path | None) -> str:
    """Returns why the journal cannot be opened; names the file, or who holds its lock."""
    if isinstance(error, OSError) and error.filename and directory is not None:
        path = Path(error.filename)
        if path.parent == directory and path.suffix in _READ:
            return f"{path.name}: {reason_of(error)}"
    if not isinstance(error, BlockingIOError) or directory is None:
        return reason_of(error)
    return f"it is locked by {find_holder(directory / LOCK_NAME) or 'another process'}"


def _log_of(options: argparse.Namespace, now_ns: int) -> Log:
    make: Callable[..., Log] = Log
    if options.messages:  # it answers while it flushes; a journal has nothing else to do
        reserve_octets = STORE_RESERVE_SEGMENTS * _segment_octets(options)
        make = partial(
            StoreLog,
            flusher=Flusher(),
            spare_octets=SPARE_OCTETS,
            reserve_octets=reserve_octets,
        )
    return make(
        options.directory,
        options.router,
        disk=Disk(),
        incarnation=now_ns,
        segment_octets=_segment_octets(options),
        rotate_seconds=options.rotate_seconds,
        retry_seconds=options.retry_seconds,
    )


def _segment_octets(options: argparse.Namespace) -> int:
    """Returns the size of a segment: as asked for, but smaller on a small disk."""
    if options.messages:
        most, share = options.segment_octets or STORE_SEGMENT_OCTETS, STORE_SEGMENT_SHARE
    else:
        most, share = options.segment_octets or SEGMENT_OCTETS, SEGMENT_SHARE
    place = options.directory
    while not place.exists() and place != place.parent:
        place = place.parent
    room = Disk().room(place)
    return most if room is None or not room[1] else min(most, max(_LEAST_OCTETS, room[1] // share))


def _server_of(options: argparse.Namespace, listener: socket.socket, log: Log) -> JournalServer:
    lifeline, grace_seconds = options.lifeline_fd, options.grace_seconds
    if isinstance(log, StoreLog):
        return StoreServer(listener, log, lifeline=lifeline, grace_seconds=grace_seconds)
    reclaimer = None
    if not options.keep:
        reclaimer = Reclaimer(
            options.directory,
            archive=options.archive,
            segment_octets=_segment_octets(options),
        )
    return JournalServer(
        listener, log, lifeline=lifeline, reclaimer=reclaimer, grace_seconds=grace_seconds
    )


def _configure_log(level: str, form: str) -> None:
    """Sets the log up as the rest of the router has it.

    Args:
        level: least severity that is shown.
        form: json, console, or auto: console on a terminal.
    """
    is_terminal = LineWriter(sys.stdout, is_json=False).isatty()
    is_console = form == "console" or (form == "auto" and is_terminal)
    renderers: list[Any] = [structlog.processors.JSONRenderer()]
    if is_console:
        renderers = [show_columns, structlog.dev.ConsoleRenderer(colors=is_terminal)]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            show_values,
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.WriteLoggerFactory(
            cast(TextIO, LineWriter(sys.stdout, is_json=not is_console))
        ),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m router.journal.process")
    parser.add_argument("--directory", type=Path, required=True, help="of the segments")
    parser.add_argument("--router", required=True, help="id of the router")
    listening = parser.add_mutually_exclusive_group(required=True)
    listening.add_argument("--listen", type=Path, help="path of the Unix socket to make")
    listening.add_argument("--listen-fd", type=int, help="descriptor of a listening Unix socket")
    parser.add_argument("--lifeline-fd", type=int, help="pipe that ends with the supervisor")
    parser.add_argument(
        "--reason-fd", type=int, help="pipe for why it cannot be opened; default: the log"
    )
    letting_go = parser.add_mutually_exclusive_group()
    letting_go.add_argument("--archive", type=Path, help="where old segments go; default: deleted")
    letting_go.add_argument("--keep", action="store_true", help="never let a segment go")
    letting_go.add_argument(
        "--messages", action="store_true", help="keep messages, and give them to workers that ask"
    )
    postgres = parser.add_argument_group("on PostgreSQL")
    postgres.add_argument("--store-fd", type=int, help="pipe with the URL of the database")
    postgres.add_argument("--holder", help="names this router among those of the same id")
    postgres.add_argument("--lease", type=Path, help="file in which workers see the lease")
    postgres.add_argument("--address", default="[]", help="where peers reach this router, in JSON")
    postgres.add_argument("--standby", action="store_true", help="wait for the lease")
    postgres.add_argument(
        "--yields", action="store_true", help="leave a lease that was released here to others"
    )
    parser.add_argument("--segment-octets", type=int, default=0, help="0: the usual size")
    parser.add_argument("--rotate-seconds", type=float, default=ROTATE_SECONDS)
    parser.add_argument("--retry-seconds", type=float, default=RETRY_SECONDS)
    parser.add_argument("--grace-seconds", type=float, default=GRACE_SECONDS)
    levels = ("debug", "info", "warning", "error")
    parser.add_argument("--log-level", choices=levels, default="info")
    parser.add_argument("--log-format", choices=("auto", "console", "json"), default="auto")
    return parser


if __name__ == "__main__":
    sys.exit(main())
