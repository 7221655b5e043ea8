"""How memory is collected in a worker.

Traffic makes no cycles: what a delivery leaves behind goes by reference counting, at once. Links
and connections do leave cycles when they end, for state and machine know each other. The cyclic
collector would find those, but by its own rules it walks every standing connection again and again
(20 ms for 3,000 of them, 50-270 ms for 10,000, measured), and what it counts is mostly traffic.

So it is left to walk what is young, which is cheap; what stands after start-up is out of its sight;
and everything is walked only when the process has grown so much that it may be worth it. Real
growth costs a walk for each such step, which amounts to little; garbage never exceeds the step.

Reading a configuration makes objects without end and no cycles; to walk them all again and again
took 40 % of the time that a table of 100,000 routes needs.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import trio

THRESHOLDS: Final = (10_000, 3, 100_000)
"""Allocations beyond frees until the youngest generation is walked; how many such walks until the
next generation is; and, never in practice, how many of those until everything is."""

STEP_OCTETS: Final = 16 << 20
STEP_SHARE: Final = 0.25
"""Everything is walked when the process has grown by both of these since it last was."""

LOOK_SECONDS: Final = 1.0

_STATISTICS: Final = Path("/proc/self/statm")
_PAGE_OCTETS: Final = 4096


@contextmanager
def at_rest() -> Iterator[None]:
    """Collects nothing for the length of a ``with`` block."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def settle() -> None:
    """Takes what start-up made out of the collector's sight, and lets it work seldom."""
    gc.collect()
    gc.freeze()
    if _STATISTICS.exists():  # else nobody would see the process grow
        gc.set_threshold(*THRESHOLDS)


def resident_octets() -> int:
    """Returns how much memory the process has; 0 where the system does not say."""
    try:
        return int(_STATISTICS.read_bytes().split()[1]) * _PAGE_OCTETS
    except OSError:
        return 0


async def sweep(measure: Callable[[], int] = resident_octets) -> None:
    """Walks everything whenever the process has grown by a step; for ever."""
    before = measure()
    while True:
        await trio.sleep(LOOK_SECONDS)
        if measure() - before >= max(STEP_OCTETS, before * STEP_SHARE):
            gc.collect()
            before = measure()
