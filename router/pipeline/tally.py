"""Counts of judged deliveries: by verdict, over time, and against what earlier runs came to."""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from router.pipeline.deliveries import VERDICTS
from router.pipeline.stories import iso

_NANOSECONDS: Final = 1_000_000_000

_SPANS: Final = (1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 86_400, 30 * 86_400, 10**9)
"""Seconds of one span of time in a chart ..."""
_SPANS_MOST: Final = 200
"""... and how many it may have."""


@attrs.frozen(kw_only=True)
class Rate:
    """Deliveries received in one interval.

    Attributes:
        start: ISO 8601, UTC.
        seconds: its length.
        verdicts: deliveries received in it, by verdict.
    """

    start: str
    seconds: int
    verdicts: Mapping[str, int]


@attrs.frozen(kw_only=True)
class Correction:
    """Deliveries that an earlier run gave a verdict that later files contradict."""

    before: str
    after: str
    deliveries: int


@attrs.frozen(kw_only=True)
class Group:
    """Deliveries that are counted together.

    Attributes:
        span: number of the interval in which they were taken in; None: they were not.
        was: verdict with which an earlier run closed them; None: none did.
        last_ns: time of their last record.
    """

    span: int | None
    verdict: str
    is_closed: bool
    was: str | None
    count: int
    last_ns: int


@attrs.frozen(kw_only=True)
class Tally:
    """All deliveries of a run, in groups.

    Attributes:
        seconds: length of an interval.
    """

    groups: tuple[Group, ...]
    seconds: int

    def by_verdict(self, *, is_closed: bool) -> dict[str, int]:
        """Counts those that are closed, or those that are not."""
        counts = dict.fromkeys(VERDICTS, 0)
        for each in self.groups:
            if each.is_closed == is_closed:
                counts[each.verdict] += each.count
        return counts

    def newly_closed(self) -> dict[str, int]:
        """Counts those that are closed with a verdict that no earlier run gave them."""
        counts = dict.fromkeys(VERDICTS, 0)
        for each in self.groups:
            if each.is_closed and each.was != each.verdict:
                counts[each.verdict] += each.count
        return counts

    def totals(self, before: Mapping[str, int]) -> dict[str, int]:
        """Counts the closed deliveries of all runs.

        Args:
            before: the same, as the run before this one left it.
        """
        totals = {name: before.get(name, 0) for name in VERDICTS}
        for each in self.groups:
            if each.was is not None:
                totals[each.was] -= each.count
            if each.is_closed:
                totals[each.verdict] += each.count
        return totals

    def corrections(self) -> tuple[Correction, ...]:
        """Returns the verdicts of earlier runs that have changed."""
        changed: dict[tuple[str, str], int] = {}
        for each in self.groups:
            if each.was is not None and each.was != each.verdict:
                change = (each.was, each.verdict)
                changed[change] = changed.get(change, 0) + each.count
        return tuple(
            Correction(before=before, after=after, deliveries=changed[before, after])
            for before, after in sorted(changed)
        )

    def rates(self) -> tuple[Rate, ...]:
        """Counts those that were taken in, by time."""
        spans: dict[int, dict[str, int]] = {}
        for each in self.groups:
            if each.span is not None:
                verdicts = spans.setdefault(each.span, {})
                verdicts[each.verdict] = verdicts.get(each.verdict, 0) + each.count
        return tuple(
            Rate(
                start=iso(span * self.seconds * _NANOSECONDS),
                seconds=self.seconds,
                verdicts=spans[span],
            )
            for span in sorted(spans)
        )

    @property
    def last_closed_ns(self) -> int | None:
        """Time of the last record of those that are closed."""
        return max((each.last_ns for each in self.groups if each.is_closed), default=None)


def count(deliveries: Any, first_ns: int | None, last_ns: int | None) -> Tally:
    """Counts deliveries, in at most some two hundred intervals.

    Args:
        deliveries: with ``verdict``, ``is_closed`` and ``was``.
        first_ns: time of the first new record; what is earlier counts as then.
        last_ns: time of the last one.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    length = ((last_ns or 0) - (first_ns or 0)) / _NANOSECONDS
    seconds = next(each for each in _SPANS if length / each <= _SPANS_MOST)
    taken_ns = F.greatest("taken_ns", F.lit(first_ns or 0))
    span = F.floor(taken_ns / (seconds * _NANOSECONDS))
    rows = (
        deliveries.groupBy(
            F.when(F.col("taken_ns").isNotNull(), span).alias("span"),
            "verdict",
            "is_closed",
            "was",
        )
        .agg(F.count(F.lit(1)).alias("count"), F.max("last_ns").alias("last_ns"))
        .collect()
    )
    return Tally(groups=tuple(Group(**row.asDict()) for row in rows), seconds=seconds)
