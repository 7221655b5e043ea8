"""Gives memory back to the system after a peak.

The C library keeps what has been freed, because it will be wanted again, and holes between what is
in use never go back by themselves. So a worker that once kept 300 MiB of payload for receivers that
took nothing would stay that large. Some time after a peak the library is asked to give back the
pages that hold nothing (``malloc_trim``): measured 12 ms for 250 MiB, in which no traffic moves, so
it happens only when much has gone and does not come back at once.
"""

import ctypes
from collections.abc import Callable
from typing import Final

import trio

STEP_OCTETS: Final = 64 << 20
"""So much less must be in use than at the peak."""

CONNECTION_OCTETS: Final = 12 << 10
"""What a connection takes, about."""

LOOK_SECONDS: Final = 1.0

LOOKS: Final = 10
"""How often in a row it must be so."""


def trim() -> None:
    """Has the C library give back what it does not use; nothing where it cannot."""
    release = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone
    if release is not None:
        release(0)


async def relieve(in_use: Callable[[], int], give_back: Callable[[], None] = trim) -> None:
    """Gives memory back whenever much less is in use than was, until cancelled.

    Args:
        in_use: returns the octets of payload and connections.
        give_back: does it.
    """
    peak = looks = 0
    while True:
        await trio.sleep(LOOK_SECONDS)
        octets = in_use()
        peak = max(peak, octets)
        looks = looks + 1 if octets <= peak - STEP_OCTETS else 0
        if looks == LOOKS:
            give_back()
            peak, looks = octets, 0
