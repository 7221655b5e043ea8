"""The page for people: every figure is told in full, in units that people would take."""

import pytest

from router.pipeline.audit import Flow
from router.pipeline.report import latency_chart

SLOW = Flow(
    address="orders",
    source="shop",
    target="store",
    from_router="east",
    to_router="west",
    deliveries=20_000,
    octets=2_000_000,
    milliseconds=(65.8, 163.4, 18_700.0, 240_000.0),
)


def test_latencies_are_told_in_seconds_once_they_are_that_long() -> None:
    page = latency_chart([SLOW])
    assert "50 % 65.8 ms, 90 % 163 ms, 99 % 18.7 s, 99.9 % 240 s" in page


@pytest.mark.parametrize("label", ["10 ms", "100 ms", "1 s", "10 s", "100 s", "1,000 s"])
def test_the_axis_is_labeled_in_full(label: str) -> None:
    assert f">{label}</text>" in latency_chart([SLOW])
