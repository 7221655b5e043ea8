"""Signals to a router that come while nothing receives them: before it runs, and between two lives.

Trio's receiver is open while a life of the router runs (``run``), and puts back what was there
before. So what stands here are the handlers of the rest of the time: they keep each signal for the
next receiver. Without them SIGTERM and SIGHUP would end the process at once.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

HANDLED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""The signals that a router acts upon."""


@contextmanager
def kept() -> Iterator[list[int]]:
    """Keeps the signals that come during the block in a list, from which a receiver takes them."""
    waiting: list[int] = []
    former = {
        number: signal.signal(number, lambda number, frame: waiting.append(number))
        for number in HANDLED
    }
    try:
        yield waiting
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
