"""What exactly-once waits for: one delivery at a time, beside the disk's fdatasync in the same run.

A delivery at window 1 needs two flushes, one after the other: RECEIVED and SENT before the receiver
sees it, and its OUTCOME before the sender does. What else is recorded (SETTLED, twice) is in the
block of the next delivery. So a router that took no time would forward one delivery in the time of
two flushes; ``of_two_flushes`` is how near this one comes to that.
"""

import os
import statistics
import tempfile
import time
from pathlib import Path

from tests.bench import subjects
from tests.bench.cases import CASES
from tests.bench.measure import Conditions, Figures, run_load

CASE = next(case for case in CASES if case.name == "exactly-once, window 1")

FLUSHED_OCTETS = (616, 240)
"""What the journal writes for a delivery of 100 octets, by turns: a fence and the records."""

ZEROED_OCTETS = 1 << 20
FLUSHES = 100


def measure_exact(conditions: Conditions) -> Figures:
    """Measures deliveries at window 1 and, between two runs each time, the flushes they need.

    Returns:
        ``deliveries_per_second``; ``flush_us``: of fdatasync; ``of_two_flushes``: the time of two
        of them as a part of the time that a delivery takes.
    """
    rates, flushes = [], []
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        with subjects.router(CASE, conditions.subject_core, directory) as router:
            for _ in range(conditions.runs):
                flushes.append(flush_us(directory))
                rates.append(run_load(router, conditions)["messages_per_second"])
            flushes.append(flush_us(directory))
    rate, flush = statistics.median(rates), statistics.fmean(flushes)
    return {
        "deliveries_per_second": rate,
        "flush_us": flush,
        "of_two_flushes": 2 * flush * rate / 1e6,
    }


def flush_us(directory: Path) -> float:
    """Measures fdatasync of what the journal writes, into a file that is filled with zeros."""
    file = os.open(directory / "flushed", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    seconds, offset = 0.0, 0
    try:
        os.pwrite(file, bytes(ZEROED_OCTETS), 0)
        os.fsync(file)
        for number in range(FLUSHES):
            block = b"x" * FLUSHED_OCTETS[number % len(FLUSHED_OCTETS)]
            start = time.perf_counter()
            os.pwrite(file, block, offset)
            os.fdatasync(file)
            seconds += time.perf_counter() - start
            offset += len(block)
    finally:
        os.close(file)
    return seconds / FLUSHES * 1e6
