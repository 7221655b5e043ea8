"""Chooses the connection to close when the admin endpoint has reached its limit of connections.

Theory of operation. A connection *waits* while no request of it is under way: before its first
request is complete, and between two requests. Idle and malicious connections wait; a probe sends
its request at once. So a new connection replaces the one that has waited longest: among those of
its own source if that has too many, otherwise among all. If no connection waits, it replaces the
one whose request needs no authorization and has run longest, beyond the time that such requests
take. Requests that were *admitted*, by a token or because only this machine can connect, are never
interrupted; if nothing else is left the new connection is refused.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import attrs

OPEN_SECONDS: Final = 1.0
"""Longer than any answer takes that needs no authorization, if the peer reads it."""

VISIT: Final = "router.visit"
"""Key under which a request's scope has its connection."""


@attrs.define(eq=False)
class Visit:
    """One connection.

    Attributes:
        source: its origin, as limits count it; None: a Unix socket.
        since: when it began to wait, or when its requests began.
        requests: number of requests under way.
        admitted: how many of these were admitted.
    """

    source: str | None
    since: float
    requests: int = 0
    admitted: int = 0

    @contextmanager
    def asking(self, now: float) -> Iterator["Request"]:
        """Counts a request as under way for the length of the block."""
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
        """Records that the request is authorized."""
        if not self.is_admitted:
            self.is_admitted = True
            self.visit.admitted += 1


@attrs.frozen
class Crowd:
    """Limits on the number of open connections.

    Attributes:
        most: connections at a time.
        most_of_source: how many of these may come from one source.
    """

    most: int
    most_of_source: int

    def is_free(self, visits: Iterable[Visit], source: str | None) -> bool:
        """Returns whether a connection from a source fits without closing another."""
        return not self._rivals(list(visits), source)

    def find_victim(self, visits: Iterable[Visit], source: str | None, now: float) -> Visit | None:
        """Returns the connection that a new one replaces; None: the new one is refused."""
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
