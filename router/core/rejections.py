"""What was rejected, route by route: how often, last by whom, and why.

A receiver rejects what it was sent, or the router what no receiver can be sent. Either is counted
once: what another worker of this router rejects is counted there. Who publishes without confirms
hears of neither, so people must: the first rejection of a route is a line of the log, and what
follows within ``TOLD_SECONDS`` is told in one more when they are over.
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

TOLD_SECONDS: Final = 10.0
"""At most one line of the log in this time for one route."""


@attrs.define(eq=False)
class _RouteSum:
    """The rejections of one route.

    Attributes:
        count: since the worker was started.
        told: how many of them the log has.
        is_quiet: a line was written lately; an alarm is set.
        at: time of the last one.
    """

    count: int = 0
    told: int = 0
    is_quiet: bool = False
    at: float = 0.0
    peer: str = ""
    link: str = ""
    address: str = ""
    reason: str = ""
    by_router: bool = False


class Rejections:
    """Counts rejections, and has the log tell of them."""

    def __init__(self, turn: Turn, notices: Notices, alarms: Alarms) -> None:
        self._turn = turn
        self._notices = notices
        self._alarms = alarms
        self._routes: dict[str, _RouteSum] = {}

    def by_peer(self, link: OutgoingLink, outcome: DeliveryState | None, count: int = 1) -> None:
        """Counts deliveries that a receiver has rejected; other outcomes are none of its concern.

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
            self._tell(name, found)

    def _tell(self, name: str, found: _RouteSum) -> None:
        found.is_quiet = found.count > found.told
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
            count=found.count - found.told,
        )
        found.told = found.count
        self._alarms.set(self._turn.now + TOLD_SECONDS, partial(self._tell, name, found))

    def names(self) -> list[str]:
        """Returns the names of the routes of which something was rejected."""
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
        )
