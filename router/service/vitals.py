"""Vital signs of a worker's process: memory, processor time, and the lag of its event loop.

Lag is measured by sleeping: a task that asked to be woken after ``PERIOD_SECONDS`` measures how
much later it ran. Anything that keeps the loop busy, such as a long turn of the data plane or a
slow answer to an operator, shows up as lag.
"""

import os
import resource
import time
from bisect import bisect_left
from collections import deque
from pathlib import Path
from typing import Final

import attrs
import trio

from router.service.log import lost_lines

PERIOD_SECONDS: Final = 0.25

RECENT_SECONDS: Final = 10.0
"""Period for which the worst lag is reported."""

LAG_BOUNDS_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
"""Upper bounds of the lag histogram's buckets; one more bucket counts longer lags."""

_PAGE_OCTETS: Final = resource.getpagesize()


@attrs.frozen(kw_only=True)
class Vitals:
    """Facts about one process.

    Attributes:
        process: its id.
        uptime_seconds: since the meter was made.
        cpu_seconds: processor time of all its threads, user and system.
        open_files: number of descriptors; 0: unknown.
        lag_seconds: the worst lag of the last ``RECENT_SECONDS``.
        lags: number of lags in each bucket of ``LAG_BOUNDS_SECONDS``.
        lag_sum_seconds: sum of all lags.
        lost_lines: log lines that could not be written.
        log_trouble: why the last line could not be written; None: it was written.
    """

    process: int
    uptime_seconds: float
    cpu_seconds: float
    resident_octets: int
    open_files: int
    lag_seconds: float
    lags: tuple[int, ...]
    lag_sum_seconds: float
    lost_lines: int = 0
    log_trouble: str | None = None


@attrs.define(eq=False)
class Meter:
    """Measures the process in which it runs."""

    _began: float = attrs.field(factory=time.monotonic, init=False)
    _lags: list[int] = attrs.field(factory=lambda: [0] * (len(LAG_BOUNDS_SECONDS) + 1), init=False)
    _sum: float = attrs.field(default=0.0, init=False)
    _recent: deque[float] = attrs.field(
        factory=lambda: deque(maxlen=round(RECENT_SECONDS / PERIOD_SECONDS)), init=False
    )

    async def run(self) -> None:
        """Measures the event loop's lag, until cancelled."""
        while True:
            due = trio.current_time() + PERIOD_SECONDS
            await trio.sleep_until(due)
            self.note_lag(trio.current_time() - due)

    def note_lag(self, seconds: float) -> None:
        """Counts a lag."""
        lag = max(0.0, seconds)
        self._lags[bisect_left(LAG_BOUNDS_SECONDS, lag)] += 1
        self._sum += lag
        self._recent.append(lag)

    def vitals(self) -> Vitals:
        """Returns the current values."""
        lost, trouble = lost_lines()
        return Vitals(
            process=os.getpid(),
            uptime_seconds=time.monotonic() - self._began,
            cpu_seconds=time.process_time(),
            resident_octets=_resident_octets(),
            open_files=_open_files(),
            lag_seconds=max(self._recent, default=0.0),
            lags=tuple(self._lags),
            lag_sum_seconds=self._sum,
            lost_lines=lost,
            log_trouble=trouble,
        )


def _resident_octets() -> int:
    """Returns the resident memory; without /proc, its maximum so far."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_OCTETS
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _open_files() -> int:
    """Returns the number of open descriptors; 0 where the system does not report it cheaply."""
    try:
        return os.stat("/proc/self/fd").st_size  # Linux 6.2 and later
    except OSError:
        return 0
