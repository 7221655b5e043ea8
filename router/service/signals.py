"""Signals to a router that come while nothing receives them: before it runs, and between two lives.

Trio's receiver is open while a life of the router runs (``run``), and puts back what was there
before. So what stands here are the handlers of the rest of the time: they keep each signal for the
next receiver. Without them SIGTERM and SIGHUP would end the process at once.

While the router reads its file and makes its workers, which takes seconds if there are very many
routes, nothing runs that a drain could finish. A signal to end is then obeyed at once (``obeyed``).
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

HANDLED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""The signals that a router acts upon."""

TO_END: Final = (signal.SIGTERM, signal.SIGINT)


class Kept(list[int]):
    """Signals that have come and that nobody has received.

    Attributes:
        is_obeyed: one to end is not only kept, but ends the program with 0.
    """

    is_obeyed = False

    def take(self, number: int, frame: FrameType | None) -> None:
        """Handles a signal."""
        self.append(number)
        self.look()

    def look(self) -> None:
        """Ends the program if it was told to."""
        if self.is_obeyed and any(number in TO_END for number in self):
            raise SystemExit(0)

    @contextmanager
    def obeyed(self) -> Iterator[None]:
        """Ends the program, within the block, as soon as a signal to end has come."""
        self.is_obeyed = True
        try:
            self.look()
            yield
        finally:
            self.is_obeyed = False


@contextmanager
def kept() -> Iterator[Kept]:
    """Keeps the signals that come during the block in a list, from which a receiver takes them."""
    waiting = Kept()
    former = {number: signal.signal(number, waiting.take) for number in HANDLED}
    try:
        yield waiting
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
