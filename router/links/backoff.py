"""Pauses between attempts: exponential, jittered, for ever."""

from collections.abc import Callable


def pause_seconds(
    failures: int, first_seconds: float, limit_seconds: float, random: Callable[[], float]
) -> float:
    """Returns how long to wait before the next attempt.

    Args:
        failures: in a row, 1 or more.
        first_seconds: the pause after one failure, jitter aside.
        limit_seconds: no pause is longer.
        random: returns numbers from 0 up to 1. The pause lies that far within the upper half of
            its range, so that peers that failed together do not all retry together.
    """
    whole = min(limit_seconds, first_seconds * 2.0 ** min(failures - 1, 32))
    return whole * (0.5 + random() / 2)
