"""Routers that broke a rule: each is named, at most once a minute for each rule."""

from typing import Final

import attrs

from router.routes.mesh.events import RouterRefused
from router.routes.mesh.nouns import RouterId

PAUSE_SECONDS: Final = 60.0
KINDS_MOST: Final = 1_024
"""Different ones that are counted; beyond, the oldest is forgotten."""


@attrs.define(eq=False)
class Refusals:
    """Counts what was refused."""

    _known: dict[tuple[RouterId, RouterId, str], tuple[float, int]] = attrs.field(
        factory=dict, init=False
    )

    def name(self, router: RouterId, via: RouterId, rule: str, now: float) -> list[RouterRefused]:
        """Records that a router broke a rule; returns what is to be reported."""
        key = (router, via, rule)
        reported_at, times = self._known.pop(key, (-PAUSE_SECONDS, 0))
        times += 1
        is_due = now - reported_at >= PAUSE_SECONDS
        self._known[key] = (now, 0) if is_due else (reported_at, times)
        if len(self._known) > KINDS_MOST:
            del self._known[next(iter(self._known))]
        return [RouterRefused(router, via, rule, times)] if is_due else []
