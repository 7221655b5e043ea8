"""The pipe by which a process of the journal knows that its supervisor lives.

The supervisor holds the writing end. When it ends for any reason, the pipe reads as closed. A
supervisor that may be replaced by a standby also *beats*: it writes an octet four times a second.
One that is stopped or hangs does not, and its journal's process lets the lease run out: whoever
cannot serve is not to lead.
"""

import os
from typing import Final

BEAT_SECONDS: Final = 0.25
BEATEN_SECONDS: Final = 0.75
"""After so long without a beat the lease is renewed no more; it holds for two seconds from then."""

_OCTETS: Final = 4096


class Lifeline:
    """The reading end.

    Attributes:
        descriptor: of the pipe, readable when the supervisor beats or has ended.
        beaten_ns: CLOCK_BOOTTIME of the last beat, or of the start.
    """

    def __init__(self, descriptor: int, now_ns: int) -> None:
        self.descriptor = descriptor
        self.beaten_ns = now_ns

    def read(self, now_ns: int) -> bool:
        """Reads what has come; returns whether the supervisor still lives."""
        if not os.read(self.descriptor, _OCTETS):
            return False
        self.beaten_ns = now_ns
        return True

    def is_beaten(self, now_ns: int) -> bool:
        """Returns whether the supervisor has beaten lately."""
        return now_ns - self.beaten_ns < BEATEN_SECONDS * 1_000_000_000
