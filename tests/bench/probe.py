"""Runs the router with a probe inside: ``python -m tests.bench.probe run CONFIG``.

The probe is one Trio task that sleeps 10 ms at a time and notes how late it wakes: what any other
task of the worker would feel. On SIGUSR1 it writes what it noted, and how long a full garbage
collection takes, as one line of JSON on standard output, and begins anew.
"""

import gc
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import trio

SLEEP_SECONDS = 0.01


class Probe:
    """Notes how late it wakes."""

    def __init__(self) -> None:
        self._overshoots: list[float] = []

    async def sleep(self) -> None:
        while True:
            due = time.perf_counter() + SLEEP_SECONDS
            await trio.sleep(SLEEP_SECONDS)
            self._overshoots.append(time.perf_counter() - due)

    async def report(self) -> None:
        with trio.open_signal_receiver(signal.SIGUSR1) as signals:
            async for _ in signals:
                overshoots = sorted(self._overshoots)
                before = time.perf_counter()
                gc.collect()
                after = time.perf_counter()
                count = len(overshoots)
                noted = {
                    "timer_p50_us": overshoots[count // 2] * 1e6 if count else 0,
                    "timer_p99_us": overshoots[count * 99 // 100] * 1e6 if count else 0,
                    "collection_us": (after - before) * 1e6,
                }
                print(json.dumps(noted), flush=True)
                self._overshoots.clear()


_run = trio.run


def run_probed(main: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
    """Does what ``trio.run`` does, with a probe beside."""

    async def both() -> Any:
        probe = Probe()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(probe.sleep)
            nursery.start_soon(probe.report)
            result = await main(*args)
            nursery.cancel_scope.cancel()
        return result

    return _run(both, **options)


if __name__ == "__main__":
    from router.cli.main import main

    trio.run = run_probed  # type: ignore[assignment]
    main(sys.argv[1:])
