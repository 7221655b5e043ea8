"""Pauses between attempts: bounded, jittered downwards by at most half, for ever."""

from hypothesis import given
from hypothesis import strategies as st

from router.links.backoff import pause_seconds


@given(
    failures=st.integers(1, 10**9),
    first=st.floats(0.01, 5),
    limit=st.floats(0.01, 60),
    drawn=st.floats(0, 1, exclude_max=True),
)
def test_every_pause_doubles_up_to_the_limit_and_keeps_at_least_half_of_it(
    failures: int, first: float, limit: float, drawn: float
) -> None:
    whole = min(limit, first * 2.0 ** min(failures - 1, 64))
    assert whole / 2 <= pause_seconds(failures, first, limit, lambda: drawn) <= whole
