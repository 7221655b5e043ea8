"""Counts rejected deliveries by route, and keeps who rejected the last one and why.

A receiver rejects a delivery, or the router one that it can send to no receiver. Each is counted
once: rejections by another worker of this router are counted there. A publisher without confirms
receives no outcome, so operators have to see them: the first rejection of a route is a line in the
log, and those that follow within ``PAUSE_SECONDS`` are counted in one line at their end.
"""

from functools import partial
from typing import Final

import attrs

from router.core.alarms import Alarms
from router.core.node import feed_of
from router.core.notices import Notices
from router.core.reach import is_sibling
from router.core.retired import route_name
from router.core.snapshot import ANONYMOUS, DYNAMIC, Rejection
from router.core.turn import Turn
from router.links.link import Link, OutgoingLink
from router.links.pairing import Pairing
from router.model.outcome import DeliveryState, Rejected

PAUSE_SECONDS: Final = 10.0
"""Least time between two lines in the log about one route."""


@attrs.define(eq=False)
class _RouteSum:
    """The rejections of one route.

    Attributes:
        count: since the worker was started.
        logged: how many of them are in the log.
        is_quiet: a line was written lately; an alarm is set.
        at: time of the last one.
    """

    count: int = 0
    untold: int = 0
    logged: int = 0
    is_quiet: bool = False
    at: float = 0.0
    peer: str = ""
    link: str = ""
    address: str = ""
    reason: str = ""
    by_router: bool = False


class Rejections:
    """Counts rejections, and writes them to the log."""

    def __init__(self, turn: Turn, notices: Notices, alarms: Alarms) -> None:
        self._turn = turn
        self._notices = notices
        self._alarms = alarms
        self._routes: dict[str, _RouteSum] = {}

    def by_peer(self, link: OutgoingLink, outcome: DeliveryState | None, count: int = 1) -> None:
        """Counts deliveries that a receiver has rejected; ignores other outcomes.

        Args:
            link: that they were sent on.
            outcome: the receiver's.
            count: how many deliveries have it.
        """
        if isinstance(outcome, Rejected) and not is_sibling(link.connection):
            self._add(route_name(link), link, outcome, count, link.address, by_router=False)

    def by_router(self, pairing: Pairing, outcome: DeliveryState | None) -> None:
        """Counts a delivery if the router itself rejects it."""
        if isinstance(outcome, Rejected):
            node, incoming = feed_of(pairing).node, pairing.incoming
            name = DYNAMIC if node.is_dynamic else node.route.name
            if not node.key.address:
                name = ANONYMOUS  # no route takes it; see relay
            address = pairing.delivery.address or incoming.address
            self._add(name, incoming, outcome, 1, address, by_router=True)

    def untold(self, pairing: Pairing) -> None:
        """Records that the sender of a rejected delivery has settled it: it gets no outcome."""
        node = feed_of(pairing).node
        found = self._routes.get(DYNAMIC if node.is_dynamic else node.route.name)
        if found is not None:
            found.untold += 1

    def _add(
        self,
        name: str,
        link: Link,
        outcome: Rejected,
        count: int,
        address: str | None,
        *,
        by_router: bool,
    ) -> None:
        found = self._routes.get(name)
        if found is None:
            found = self._routes[name] = _RouteSum()
        configured = None if link.connection is None else link.connection.configured
        found.count += count
        found.at = self._turn.now
        found.peer = configured or str(link.key.container)
        found.link = str(link.key.name)
        found.address = "" if address is None else str(address)
        found.reason = "" if outcome.error is None else str(outcome.error)
        found.by_router = by_router
        if not found.is_quiet:
            self._log(name, found)

    def _log(self, name: str, found: _RouteSum) -> None:
        found.is_quiet = found.count > found.logged
        if not found.is_quiet:
            return
        self._notices.warn(
            "delivery.rejected",
            route=name,
            container=found.peer,
            link=found.link,
            address=found.address or None,
            condition=found.reason or None,
            by="router" if found.by_router else "peer",
            count=found.count - found.logged,
        )
        found.logged = found.count
        self._alarms.set(self._turn.now + PAUSE_SECONDS, partial(self._log, name, found))

    def names(self) -> list[str]:
        """Returns the names of the routes with rejections."""
        return list(self._routes)

    def of(self, name: str, now: float) -> Rejection | None:
        """Returns the record of a route; None: nothing was rejected."""
        found = self._routes.get(name)
        if found is None:
            return None
        return Rejection(
            count=found.count,
            seconds=max(0.0, now - found.at),
            reason=found.reason,
            peer=found.peer,
            address=found.address,
            by_router=found.by_router,
            untold=min(found.untold, found.count),
        )
