"""Garbage collection in a worker.

Deliveries create no cycles: reference counting frees their objects at once. Links and connections
leave cycles when they end, because state and machine refer to each other. With Python's default
thresholds the cyclic collector would free those cycles, but would also walk every open connection
again and again (measured: 20 ms for 3,000 of them, 50-270 ms for 10,000), because traffic drives
its counters.

Therefore only the youngest generation is collected as usual, which is cheap; objects that exist
after start-up are frozen; and a full collection runs only when the process has grown by a step that
makes it worthwhile. Real growth costs one full collection for each step; garbage never exceeds the
step.

A configuration that replaces another one is real growth, too: to walk a table of 100,000 routes
took 0.6 s, in which no traffic moved. So while a large one is made nothing is collected, and it is
frozen when it has been made (``exchange``). It has no cycles: the one that it replaces is freed at
once, frozen or not.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import trio

from router.at_rest import at_rest

THRESHOLDS: Final = (10_000, 3, 100_000)
"""Thresholds of ``gc.set_threshold``: net allocations before the youngest generation is collected,
collections of it before the next one is, and, out of reach in practice, before a full one."""

STEP_OCTETS: Final = 16 << 20
STEP_SHARE: Final = 0.25
"""A full collection runs when the process has grown by both of these since the last one."""

LOOK_SECONDS: Final = 1.0

LARGE_OCTETS: Final = 256 << 10
"""Of a configuration that is frozen: some 10,000 routes, which it would take 50 ms to walk."""

_STATISTICS: Final = Path("/proc/self/statm")
_PAGE_OCTETS: Final = 4096


def settle() -> None:
    """Freezes the objects made during start-up, and sets the collector's thresholds."""
    gc.collect()
    gc.freeze()
    if _STATISTICS.exists():  # otherwise the growth of the process cannot be seen
        gc.set_threshold(*THRESHOLDS)


_exchanges = 0


@contextmanager
def exchange(octets: int) -> Iterator[None]:
    """Makes a configuration within a ``with`` block; freezes it if it is large and no error comes.

    What has come about since the last freeze is walked first: garbage among it would be kept.
    """
    global _exchanges  # noqa: PLW0603  the collector is the process's, too
    if octets < LARGE_OCTETS:
        yield
        return
    gc.collect()
    _exchanges += 1
    try:
        with at_rest():
            yield
            gc.freeze()
    finally:
        _exchanges += 1


def resident_octets() -> int:
    """Returns the resident memory of the process; 0 where the system does not report it."""
    try:
        return int(_STATISTICS.read_bytes().split()[1]) * _PAGE_OCTETS
    except OSError:
        return 0


async def sweep(measure: Callable[[], int] = resident_octets) -> None:
    """Runs a full collection whenever the process has grown by a step, until cancelled."""
    before, exchanges = measure(), _exchanges
    while True:
        await trio.sleep(LOOK_SECONDS)
        if exchanges != _exchanges or exchanges % 2:  # one is under way, or over
            before, exchanges = measure(), _exchanges
        elif measure() - before >= max(STEP_OCTETS, before * STEP_SHARE):
            gc.collect()
            before = measure()
