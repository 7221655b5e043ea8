"""Ages of unsettled deliveries, without a visit of each of them.

Pairings have their arrival time, and a link keeps them in order of arrival, so the old end of its
map is enough. Deliveries on the express lane are only counted; for these each survey makes a
*mark*: how many had arrived by then. If ``n`` are unsettled they are assumed to be the last ``n``
that arrived, and each gets the age of the first mark that includes it. While outcomes arrive in
order that is a lower bound of the age; otherwise it is close to it.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import attrs

from router.core.snapshot import AGE_BOUNDS_SECONDS
from router.links.link import IncomingLink
from router.links.pairing import Pairing

AGES_MOST: Final = 1000
"""Most old deliveries that are examined on one link."""

MARKS_MOST: Final = 64
"""Most marks of one link; beyond this every other one is dropped."""


def count_ages(pairings: Iterable[Pairing], count: int, now: float, ages: list[int]) -> float:
    """Adds the ages of unsettled deliveries to a histogram; returns the greatest.

    Args:
        pairings: in order of arrival.
        count: how many there are.
        now: on the core's clock.
        ages: counts by bucket.
    """
    oldest = 0.0
    bucket = looked = 0
    for pairing in pairings:
        age = now - pairing.arrived
        oldest = max(oldest, age)
        bucket = bisect_left(AGE_BOUNDS_SECONDS, age)
        if bucket == 0 or looked == AGES_MOST:
            break  # the others are no older
        ages[bucket] += 1
        looked += 1
    ages[bucket] += count - looked
    return oldest


@attrs.frozen
class _Mark:
    at: float
    arrived: int


class LaneAges:
    """Marks of the links on the express lane."""

    def __init__(self) -> None:
        self._before: dict[IncomingLink, deque[_Mark]] = {}
        self._seen: dict[IncomingLink, deque[_Mark]] = {}

    def begin(self) -> None:
        """Begins a survey; links that the survey does not visit are forgotten."""
        self._before, self._seen = self._seen, {}

    def arrivals(self, link: IncomingLink, now: float) -> Callable[[int], float]:
        """Returns what tells when a delivery of a link arrived, by its place among all of them.

        It is the time of the first mark that includes the delivery, so it stays the same.
        """
        marks = self._seen.get(link) or self._before.get(link)
        if not marks:
            marks = self._seen[link] = deque()
        if not marks or marks[-1].arrived < link.tally.deliveries:
            marks.append(_Mark(now, link.tally.deliveries))
        places = [mark.arrived for mark in marks]
        times = [mark.at for mark in marks]
        return lambda place: times[min(bisect_left(places, place), len(times) - 1)]

    def count(self, link: IncomingLink, now: float, ages: list[int]) -> float:
        """Adds the ages of a link's deliveries on the lane to a histogram; returns the greatest.

        Args:
            link: with some unsettled on the lane.
            now: on the core's clock.
            ages: counts by bucket.
        """
        arrived, unsettled = link.tally.deliveries, link.lane_unsettled
        marks = self._before.get(link) or deque()
        self._seen[link] = marks
        settled = arrived - unsettled
        while marks and marks[0].arrived <= settled:
            marks.popleft()  # all deliveries that it includes are settled
        if not marks or marks[-1].arrived < arrived:
            marks.append(_Mark(now, arrived))
        if len(marks) > MARKS_MOST:
            self._seen[link] = marks = deque([*list(marks)[:-1:2], marks[-1]])
        counted = settled
        for mark in marks:
            ages[bisect_left(AGE_BOUNDS_SECONDS, now - mark.at)] += mark.arrived - counted
            counted = mark.arrived
        return now - marks[0].at
