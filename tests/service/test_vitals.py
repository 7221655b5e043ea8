"""What a process tells of itself."""

import os

import trio
from trio.testing import MockClock

from router.service.vitals import LAG_BOUNDS_SECONDS, Meter


def test_the_process_is_described() -> None:
    vitals = Meter().vitals()
    assert vitals.process == os.getpid()
    assert vitals.resident_octets > 1 << 20
    assert vitals.cpu_seconds > 0
    assert vitals.uptime_seconds >= 0
    assert vitals.open_files >= 0


def test_lags_are_counted_by_bucket_and_the_worst_recent_one_is_told() -> None:
    meter = Meter()
    for lag in (0.0005, 0.002, 0.002, 3.0):
        meter.note_lag(lag)
    vitals = meter.vitals()
    assert vitals.lags == (1, 2, *[0] * (len(LAG_BOUNDS_SECONDS) - 2), 1)
    assert vitals.lag_sum_seconds == 3.0045
    assert vitals.lag_seconds == 3.0
    for _ in range(40):
        meter.note_lag(0.0)
    assert meter.vitals().lag_seconds == 0.0


async def test_the_meter_samples_the_loop(autojump_clock: MockClock) -> None:

    meter = Meter()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(meter.run)
        await trio.sleep(5.1)
        nursery.cancel_scope.cancel()
    assert sum(meter.vitals().lags) == 20
