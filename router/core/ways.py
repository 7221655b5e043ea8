"""Ways: routers report to each other which receivers can be reached through them.

A router may receive from another one that receives from it, or from a third that does. Each would
then grant the other credit for the other's own receivers, and a delivery would circulate. So a
router reports to each of its senders, on the link itself, the ways on which receivers are reached
through it, and credit is granted for these alone.

Theory of operation. A way is the list of stops (``model.ways``) from a node to one with a receiver
that is not a router. Each node knows its own ways: itself, if it has such a receiver; and every way
that a receiving router has reported, prefixed by that router's stop. A way that returns to the node
does not count. So ways never form circles, and end where there are no receivers any more::

    dc1  ──▶  dc2  ──▶  receiver         dc2 reports to dc1: (dc2)
      ▲         │                        dc2 reports to its other senders: (dc2)
      └── dc3 ◀─┘                        dc3 has no way: dc2's leads to dc1, and dc1's to dc2

Each sender gets the ways that do not lead through the node from which it sends. Of several ways to
one stop the shortest is reported; to a sibling, which has senders of its own to exclude, the
shortest by each next stop. A sibling gets all ways except those to other siblings' receivers; its
ways begin with the stop that both share. While no ways have been reported, as is usual between
workers, the node itself is the way. The same holds while receivers are about to attach: watchers
of a pattern (``Node.awaited``), or receivers of other workers (``Node.pending``).

A way is *open* while receivers at its end grant credit. How much is told with the way, and only
that is passed on to senders, once for each end, as far as the links have it (``reach.width_for``).
Credit itself is told on links, not on ways, so in a ring each router has credit of the next one,
its own included. It would grow from round to round, and not end with the receivers' own: it would
stay, or be granted and asked back in a circle for ever. But what was granted at the end of a way is
told along the way, which is no circle. Each receiver's grant is rounded up to a power of two, so
that small changes need not be told. What only the express lane sees is not told, and counts as much
as the link has.

Ways are sent with the link's next flow (``AdvertiseWays``), before or with the credit that depends
on them, so a sender with credit knows which receivers it is for. A delivery that was sent before
the ways changed carries the list of stops that it has passed, and is not sent to them again
(``forward``). Deliveries carry this list where receivers may forward them to routers; the flow says
so, too. Deliveries that end at the next router carry none, and may take the express lane.

So may those that pass others on a chain of the mesh, or in a line of routers: at nodes that lead
*straight*, from one sender to one receiver. They go where the ways lead, which form no circle,
except while they change. A circle that has a beginning comes to a router that has two senders: that
router asks both for the stops, each of which asks the one before it. One without a beginning ends
when the credit is used up: no more is granted for ways that come back.
"""

from collections.abc import Iterable, Iterator

from router.core.credit import Granter
from router.core.lanes import Lanes
from router.core.node import Node
from router.core.reach import (
    cost_of,
    granted_by_ends,
    has_own_alone,
    is_end,
    is_out_of_reach,
    is_sibling,
    leads_straight,
    reported_ways,
    sender_stop,
    stays_here,
    turns,
)
from router.core.state import State
from router.links.link import Connection, IncomingLink, OutgoingLink
from router.links.ways import has_gained, shortest
from router.model.commands import AdvertiseWays
from router.model.events import Event, WaysAdvertised
from router.model.ways import STOPS_MOST, Way, Ways
from router.routes.route import Distribution


class WayFinder:
    """Receives the ways to receivers, and reports them to senders."""

    def __init__(self, state: State, granter: Granter, lanes: Lanes) -> None:
        self._registry = state.registry
        self._turn = state.turn
        self._granter = granter
        self._lanes = lanes
        self._changed: dict[Node, None] = {}

    def advertised(self, connection: Connection, event: Event) -> None:
        """Handles the ways that a receiving peer has advertised."""
        assert isinstance(event, WaysAdvertised)
        link = connection.outgoing.get(event.link)
        node = None if link is None else self._registry.node_of(link)
        if link is None or node is None:
            return
        before = reported_ways(node, link)
        is_same = event.ways == before and event.is_traced == link.is_traced
        link.ways, link.is_traced = event.ways, event.is_traced
        link.gained += has_gained(before, event.ways)  # it may have again what it returned
        self._count_cost(node, link)
        node.look_at(link)
        node.measure()
        node.look_again()
        self._lanes.review_ways(node)
        self._granter.receivers_changed(node)
        self._turn.touch(node)
        (self._registry.opened if is_same else self._changed)[node] = None

    def _count_cost(self, node: Node, link: OutgoingLink) -> None:
        """Counts the hops to the nearest receiver; the lane needs equal ones where they matter."""
        cost = cost_of(link)
        if cost != link.cost:
            link.cost = cost
            if node.route.distribution is Distribution.CLOSEST:
                self._lanes.demote(node)
                self._lanes.consider(node)

    def review(self) -> None:
        """Advertises the changes of the turn; called at its end."""
        moved, fed = self._registry.moved, self._registry.fed
        opened, self._registry.opened = self._registry.opened, {}
        if not (self._changed or moved or fed or opened):
            return
        changed, self._changed = self._changed, {}
        changed.update(moved)
        changed.update(fed)
        for node in (*changed, *(node.twin for node in changed if node.twin is not None)):
            self._report_all(node, may_gain=True)
            opened.pop(node, None)
        for node in (*opened, *(node.twin for node in opened if node.twin is not None)):
            self._report_all(node, may_gain=False)

    def _report_all(self, node: Node, *, may_gain: bool) -> None:
        for incoming in node.feeds:
            if incoming.address is not None and incoming.link is not None:
                self._report(node, incoming, may_gain=may_gain)

    def _report(self, node: Node, incoming: IncomingLink, *, may_gain: bool) -> None:
        """Advertises the ways for a sender, if they have changed.

        Args:
            node: the node.
            incoming: the sender.
            may_gain: there may be more receivers than before, which are worth another try; not if
                only their credit has changed.
        """
        connection = incoming.connection
        if connection is None or not connection.capabilities.traces:
            return
        known = (Way((node.stop,)),) if incoming.ways is None else incoming.ways
        ways = shortest(_ways_for(node, incoming), by_next=is_sibling(connection))
        if not (incoming.tally.released or incoming.tally.modified):  # nothing to send again
            ways = tuple(Way(way.stops, credit=way.credit) for way in ways)
        elif not may_gain:
            gains = {way.stops: way.gains for way in known}
            ways = tuple(Way(way.stops, gains.get(way.stops, 0), way.credit) for way in ways)
        if is_sibling(connection) and has_own_alone(ways):  # its credit says so
            ways = tuple(Way(way.stops, way.gains) for way in ways)
        is_traced = _is_traced(node, incoming)
        is_known = ways == known and _granted_on(ways) == _granted_on(known)
        if not is_known or is_traced != incoming.is_traced:
            assert incoming.link is not None
            incoming.ways, incoming.is_traced = ways, is_traced
            self._turn.order(incoming, AdvertiseWays(incoming.link, ways, is_traced))


def _granted_on(ways: Ways) -> list[int | None]:
    return [way.credit for way in ways]


def _is_traced(node: Node, incoming: IncomingLink) -> bool:
    """Returns whether this or another worker may send a sender's deliveries to routers."""
    if node.key.chain is not None or leads_straight(node):  # the next one says, but in a circle
        return len(node.feeds) > 1 or any(link.is_traced for link in node.outgoing)
    is_far = is_sibling(incoming.connection)
    goes_on = any(link.traces or (link.is_traced and not is_far) for link in node.outgoing)
    return goes_on or turns(node, incoming)


def _ways_for(node: Node, incoming: IncomingLink) -> Iterator[Way]:
    """Yields the ways from a node on which a sender's deliveries can reach a receiver."""
    is_far, sender = stays_here(node, incoming), sender_stop(incoming)
    is_expecting = node.awaited or node.returning or (node.pending and not is_far)
    if is_expecting or any(map(is_end, node.outgoing)):
        yield Way((node.stop,), node.gains, granted_by_ends(node))
    for link in node.outgoing:
        for way in () if is_out_of_reach(node, link, incoming, is_far) else _ways_by(node, link):
            if len(way.stops) <= STOPS_MOST and (sender is None or sender not in way.stops):
                yield way
    if node.twin is not None and turns(node, incoming):
        beyond = shortest(_ways_for(node.twin, incoming), by_next=True)  # all workers' as one
        yield from _behind(node, beyond)


def _ways_by(node: Node, link: OutgoingLink) -> Iterable[Way]:
    """Returns the ways from a node by a link to a router or a sibling."""
    if is_end(link):
        return ()
    ways = reported_ways(node, link)
    is_same_stop = is_sibling(link.connection) and link.chain is None
    return ways if is_same_stop else _behind(node, ways)


def _behind(node: Node, ways: Iterable[Way]) -> Iterator[Way]:
    """Yields the ways that continue from a node, and do not return to it."""
    for way in ways:
        if node.stop not in way.stops:
            yield Way((node.stop, *way.stops), way.gains, way.credit)
