"""Who makes room where more come to the admin endpoint than it has connections for.

Theory of operation. A connection *waits* while no request of it is under way: before the first is
complete, and between two. Whoever means harm, or has forgotten his connection, waits; a probe has
asked before anybody else can come. So a newcomer takes the place of whoever has waited longest,
among those from its own source where that has too many, else among all. If nobody waits, the place
of the longest request goes that is open to anybody and takes longer than those do. Requests that
were *admitted*, by a token or because only this machine can ask, keep their places; if nothing else
is left the newcomer is turned away.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import attrs

OPEN_SECONDS: Final = 1.0
"""Longer than an answer takes that is open to anybody, and that is read."""

VISIT: Final = "router.visit"
"""Key under which a request's scope has its connection."""


@attrs.define(eq=False)
class Visit:
    """One connection.

    Attributes:
        source: where it comes from, as limits count it; None: a Unix socket.
        since: when it began to wait, or its requests began.
        requests: under way.
        admitted: of these, how many were.
    """

    source: str | None
    since: float
    requests: int = 0
    admitted: int = 0

    @contextmanager
    def asking(self, now: float) -> Iterator["Request"]:
        """A request, for the length of the block."""
        if not self.requests:
            self.since = now
        self.requests += 1
        request = Request(self)
        try:
            yield request
        finally:
            self.requests -= 1
            self.admitted -= request.is_admitted


@attrs.define(eq=False)
class Request:
    """One request of a connection."""

    visit: Visit
    is_admitted: bool = False

    def admit(self) -> None:
        """Records that whoever asks may."""
        if not self.is_admitted:
            self.is_admitted = True
            self.visit.admitted += 1


@attrs.frozen
class Room:
    """How many connections there may be.

    Attributes:
        most: at a time.
        most_of_source: of these, from one source.
    """

    most: int
    most_of_source: int

    def is_free(self, visits: Iterable[Visit], source: str | None) -> bool:
        """Returns whether somebody may come in without anybody leaving."""
        return not self._rivals(list(visits), source)

    def find_victim(self, visits: Iterable[Visit], source: str | None, now: float) -> Visit | None:
        """Finds whose place a newcomer takes where nothing is free; None: nobody's."""
        rivals = [each for each in self._rivals(list(visits), source) if _may_go(each, now)]
        return min(rivals, key=lambda each: (each.requests > 0, each.since), default=None)

    def _rivals(self, visits: list[Visit], source: str | None) -> list[Visit]:
        own = [each for each in visits if source is not None and each.source == source]
        if len(own) >= self.most_of_source:
            return own
        return visits if len(visits) >= self.most else []


def _may_go(visit: Visit, now: float) -> bool:
    if visit.admitted:
        return False
    return not visit.requests or now - visit.since > OPEN_SECONDS
