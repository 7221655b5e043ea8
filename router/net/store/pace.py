"""How fast routes are stored and forwarded: from what the store says of each, now and then."""

from collections import deque
from typing import Final, NamedTuple

from router.journal.store.asks import RouteNews
from router.journal.store.queues import RouteKey

SPAN_SECONDS: Final = 15.0
"""Rates are means of about so long."""


class Sample(NamedTuple):
    """What the store has counted at a time."""

    at: float
    came: int
    left: int


class Paces:
    """Samples of the last seconds, by route."""

    def __init__(self) -> None:
        """Begins without a sample."""
        self._samples: dict[RouteKey, deque[Sample]] = {}

    def note(self, news: RouteNews, now: float) -> None:
        """Keeps what the store says of a route."""
        samples = self._samples.setdefault(news.route, deque())
        samples.append(Sample(now, news.came, news.left))
        while len(samples) > 2 and samples[1].at <= now - SPAN_SECONDS:
            samples.popleft()

    def of(self, route: RouteKey) -> tuple[float, float] | None:
        """Returns messages stored and forwarded a second; None: not known yet."""
        samples = self._samples.get(route)
        if not samples or samples[-1].at <= samples[0].at:
            return None
        first, last = samples[0], samples[-1]
        seconds = last.at - first.at
        return (last.came - first.came) / seconds, (last.left - first.left) / seconds

    def keep(self, routes: "dict[RouteKey, RouteNews]") -> None:
        """Forgets all routes but some."""
        self._samples = {key: each for key, each in self._samples.items() if key in routes}
