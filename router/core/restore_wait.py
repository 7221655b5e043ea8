"""Attaches that wait until the journal has returned what was unsettled.

A worker usually restores its share of the journal before the first connection opens. If the journal
cannot be opened, because its disk is full or a process that does not end holds its lock, the worker
serves nevertheless: routes that need no journal work. On exactly-once routes a link that is
attached too early would not find its unsettled deliveries, and what its peer sends again would not
be recognized. So the attaches of peers to such routes, and the later events of these links, are
kept until the state is restored, and uplinks of such routes are not attached (``Uplinks``).

A link to the anonymous terminus waits too, if any route promises exactly-once: its deliveries may
be for that route.

    attach -- restored, or the route needs no journal --> handled at once
        | neither
        v
     waiting -- restored --> handled, with its later events, in their order
"""

from typing import Final

from router.core.homes import Homes
from router.core.reach import is_sibling
from router.core.state import State
from router.core.stored import is_store
from router.links.link import Connection
from router.model.events import Event, LinkAttached
from router.model.identity import LinkId
from router.model.terminus import Role, Source, Target
from router.routes.route import Guarantee
from router.routes.vhost import inside

_NO_LINK: Final = LinkId(-1)

_SWEEP_AT: Final = 1024
"""Events that wait before those of connections that have ended are looked for and dropped."""


class RestoreWait:
    """Keeps the events of links that need the journal's unsettled deliveries."""

    def __init__(self, state: State, homes: Homes) -> None:
        self._ledger = state.ledger
        self._registry = state.registry
        self._is_home = homes.has_any
        self._links: set[LinkId] = set()
        self._waiting: list[tuple[Connection, Event]] = []
        self._sweep_at = _SWEEP_AT

    def holds(self, connection: Connection, event: Event) -> bool:
        """Keeps an event that has to wait and returns True; False: handle the event now."""
        if not (self._ledger.is_restoring and self._is_home):
            return False
        link = getattr(event, "link", _NO_LINK)
        if link not in self._links:
            if not isinstance(event, LinkAttached) or event.is_answer:
                return False
            if not self._needs_journal(connection, event):
                return False
            self._links.add(link)
        self._waiting.append((connection, event))
        if len(self._waiting) >= self._sweep_at:
            self._sweep()
        return True

    def _sweep(self) -> None:
        """Drops the events of connections that have ended: peers may dial again for hours."""
        self._waiting = [each for each in self._waiting if not each[0].is_gone]
        self._links = {getattr(event, "link", _NO_LINK) for _, event in self._waiting}
        self._sweep_at = max(_SWEEP_AT, 2 * len(self._waiting))

    def take(self) -> list[tuple[Connection, Event]]:
        """Removes and returns the events that waited, in order."""
        waiting, self._waiting = self._waiting, []
        self._links.clear()
        return waiting

    def _needs_journal(self, connection: Connection, event: LinkAttached) -> bool:
        terminus = event.target if event.role is Role.RECEIVER else event.source
        if not isinstance(terminus, Target | Source) or terminus.dynamic:
            return False
        if is_store(connection):  # whether or not there is a route for what it brings
            return True
        if terminus.address is None:  # each message has its own
            is_sender = event.role is Role.RECEIVER and not is_sibling(connection)
            return is_sender and self._registry.table.has_exact
        address = inside(connection.vhost, terminus.address)
        match = self._registry.table.lookup(address)
        return match is not None and match.route.guarantee is Guarantee.EXACTLY_ONCE
