"""Format of the program's log, and its protection against floods.

Each line is an event, ``noun.past_verb``, with fields; fields that are None are left out. Lines go
to standard output, as JSON or, for a terminal, in columns. Tracebacks show code lines and never the
values of variables, which may contain payload and passwords. Names and texts of peers are escaped
in both forms (``router.model.log_values``), so no text can forge a line or control a terminal.

Theory of operation of the flood gate. Of lines of one *kind* (event, level, and the listener or
container that is concerned) ``BURST`` pass in a row; then the kind is suppressed until
``PERIOD_SECONDS`` after its first line. Suppressed lines are counted. The kind's next line carries
the count as ``suppressed``; if no line follows, ``overdue`` returns it, so no line vanishes
silently.

Lines that cannot be written, for example on a full disk, are lost and counted
(``router.journal.lines``).
"""

import logging
import sys
import time
from collections.abc import Callable
from typing import Any, Final, TextIO, cast

import attrs
import structlog
import trio

from router.journal.lines import LineWriter
from router.model.log_values import Line, show_columns, show_values

BURST: Final = 50
PERIOD_SECONDS: Final = 10.0

Kind = tuple[str, str, str]


@attrs.define(eq=False)
class _Log:
    """Destination of this process's lines; None: logging is not configured yet."""

    lines: LineWriter | None = None


_log = _Log()


@attrs.define
class _Gate:
    opened_at: float
    passed: int = 0
    suppressed: int = 0


@attrs.define(eq=False)
class FloodGate:
    """Passes a burst of lines of each kind and counts the rest; a structlog processor."""

    clock: Callable[[], float] = time.monotonic
    _gates: dict[Kind, _Gate] = attrs.field(factory=dict, init=False)

    def __call__(self, logger: Any, method: str, line: Line) -> Line:
        """Passes a line on.

        Raises:
            DropEvent: the line is suppressed.
        """
        kind = (
            str(line.get("event")),
            method,
            str(line.get("listener") or line.get("container")),
        )
        now = self.clock()
        gate = self._gates.get(kind)
        if gate is None or now - gate.opened_at >= PERIOD_SECONDS:
            if gate is not None and gate.suppressed:
                line["suppressed"] = gate.suppressed
            self._gates[kind] = gate = _Gate(now)
        if gate.passed == BURST:
            gate.suppressed += 1
            raise structlog.DropEvent
        gate.passed += 1
        return line

    def overdue(self) -> list[tuple[str, int]]:
        """Returns (event, number of suppressed lines) of the kinds whose period is over."""
        now = self.clock()
        over = [each for each in self._gates.items() if now - each[1].opened_at >= PERIOD_SECONDS]
        for kind, _ in over:
            del self._gates[kind]
        return [(kind[0], gate.suppressed) for kind, gate in over if gate.suppressed]


def _drop_nones(logger: Any, method: str, line: Line) -> Line:
    return {key: value for key, value in line.items() if value is not None}


def configure_logging(
    *,
    is_json: bool,
    level: str = "info",
    stream: TextIO | None = None,
    worker: int | None = None,
) -> FloodGate:
    """Sets the program's log up.

    Args:
        is_json: one JSON object a line; otherwise columns, in color on a terminal.
        level: least severity that is shown: debug, info, warning or error.
        stream: where to write; None: standard output.
        worker: worker number to include in each line; None: there is only one worker.

    Returns:
        The flood gate, whose ``overdue`` counts should be logged periodically.
    """
    lines = _log.lines = LineWriter(stream or sys.stdout, is_json=is_json)
    gate = FloodGate()
    renderers: list[Any] = [structlog.processors.JSONRenderer(default=str)]
    if not is_json:
        columns = structlog.dev.ConsoleRenderer(
            colors=lines.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
        renderers = [show_columns, columns]

    def add_worker(logger: Any, method: str, line: Line) -> Line:
        line.setdefault("worker", worker)
        return line

    structlog.configure(
        processors=[
            gate,
            add_worker,
            _drop_nones,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            show_values,
            *renderers,
        ],
        wrapper_class=_wrapper(level),
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, lines)),
    )
    return gate


def lost_lines() -> tuple[int, str | None]:
    """Returns how many lines this process could not write, and the cause while it persists."""
    lines = _log.lines
    return (0, None) if lines is None else (lines.lost, lines.trouble)


def set_log_level(level: str) -> None:
    """Shows lines of this severity and above from now on."""
    structlog.configure(wrapper_class=_wrapper(level))


def _wrapper(level: str) -> Any:
    return structlog.make_filtering_bound_logger(logging.getLevelName(level.upper()))


async def report_floods(gate: FloodGate) -> None:
    """Periodically logs the counts of suppressed lines, until cancelled."""
    log = structlog.get_logger()
    while True:
        await trio.sleep(PERIOD_SECONDS)
        for event, count in gate.overdue():
            log.warning("lines.suppressed", of=event, count=count)
