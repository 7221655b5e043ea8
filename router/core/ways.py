"""Who can be reached through whom: what routers tell each other about the links between them.

A router may receive from another one that receives from it, or from a third that does. Each would
then give the other credit for what the other could take, and a delivery would go round and round.
So a router tells whoever sends to it, on the link itself, on which ways receivers are reached
through it, and credit is given for those alone.

Theory of operation. A way is the stops (``model.ways``) from a node on to one where somebody
receives who is no router. Each node knows its own: itself, if somebody like that receives from it;
and every way that a router which receives from it has told, behind its own stop. A way that comes
back to the node is none. So ways never go in circles, and end where nobody receives any more::

    dc1  ──▶  dc2  ──▶  receiver         dc2 tells dc1: (dc2)
      ▲         │                        dc2 tells whoever else sends to it: (dc2)
      └── dc3 ◀─┘                        dc3 has no way: dc2's leads to dc1, and dc1's to dc2

To each sender that is told which does not lead through the node that it sends from. Of several ways
to one place the shortest is told; to a sibling, which has senders of its own to leave out, the
shortest by each next stop. A sibling is told of all but other siblings' receivers; its ways begin
with the stop that both share. As long as nothing is told, the node itself is the way: between
workers that is the rule. So it is while receivers are about to attach: watchers of a pattern
(``Node.awaited``), or those of other workers (``Node.pending``).

What is told goes with the link's next flow (``AdvertiseWays``), before or with the credit that it
is about, so a sender that has credit knows for whom. What is under way when the ways change is
stopped by what the deliveries themselves say that they have passed (``forward``). They say it where
whoever receives may pass them on to routers, which is told, too: traffic that ends at the next
router is not burdened, and may take the express lane.
"""

from collections.abc import Iterable, Iterator

from router.core.credit import Granter
from router.core.lanes import Lanes
from router.core.node import Node, feed_of
from router.core.reach import (
    cost_of,
    is_end,
    is_sibling,
    sender_stop,
    stays_here,
    turns,
    ways_through,
)
from router.core.settle import Settler
from router.core.state import State
from router.links import life
from router.links.link import Connection, IncomingLink, OutgoingLink
from router.links.ways import has_gained, shortest
from router.model.commands import AdvertiseWays
from router.model.events import Event, WaysAdvertised
from router.model.ways import STOPS_MOST, Way, Ways
from router.routes.route import Distribution


class WayFinder:
    """Hears on which ways receivers are reached, and tells it on."""

    def __init__(self, state: State, settler: Settler, granter: Granter, lanes: Lanes) -> None:
        self._settler = settler
        self._registry = state.registry
        self._turn = state.turn
        self._granter = granter
        self._lanes = lanes
        self._changed: dict[Node, None] = {}

    def advertised(self, connection: Connection, event: Event) -> None:
        """Handles what a receiving peer has told."""
        assert isinstance(event, WaysAdvertised)
        link = connection.outgoing.get(event.link)
        node = None if link is None else self._registry.node_of(link)
        if link is None or node is None:
            return
        before = _told(node, link)
        link.ways, link.is_traced = event.ways, event.is_traced
        self._count_cost(node, link)
        node.look_at(link)
        node.measure()
        node.look_again()
        self._lanes.review_ways(node)
        if has_gained(before, event.ways):
            self._try_again(node, link)
        self._granter.receivers_changed(node)
        self._turn.touch(node)
        self._changed[node] = None

    def _try_again(self, node: Node, link: OutgoingLink) -> None:
        """Lets a router have again what it gave back: somebody there has not seen it."""
        assert link.link is not None
        for pairing in (*node.given_back, *node.hopeful, *self._settler.returned):
            if pairing.tried is not None and feed_of(pairing).node is node:
                life.try_again(pairing, link.link)

    def _count_cost(self, node: Node, link: OutgoingLink) -> None:
        """Counts the hops to the nearest receiver; where they matter, the lane wants all alike."""
        cost = cost_of(link)
        if cost != link.cost:
            link.cost = cost
            if node.route.distribution is Distribution.CLOSEST:
                self._lanes.demote(node)
                self._lanes.consider(node)

    def review(self) -> None:
        """Tells what has changed during the turn; to be called when it ends."""
        moved, fed = self._registry.moved, self._registry.fed
        if not (self._changed or moved or fed):
            return
        changed, self._changed = self._changed, {}
        changed.update(moved)
        changed.update(fed)
        for node in tuple(changed):
            if node.twin is not None:
                changed[node.twin] = None
        for node in changed:
            for incoming in node.feeds:
                if incoming.address is not None and incoming.link is not None:
                    self._tell(node, incoming)

    def _tell(self, node: Node, incoming: IncomingLink) -> None:
        connection = incoming.connection
        if connection is None or not connection.capabilities.traces:
            return
        ways = shortest(_ways_for(node, incoming), by_next=is_sibling(connection))
        if not (incoming.tally.released or incoming.tally.modified):  # nothing to be tried again
            ways = tuple(Way(way.stops) for way in ways)
        is_traced = _is_traced(node, incoming)
        known = (Way((node.stop,)),) if incoming.ways is None else incoming.ways
        if (ways, is_traced) != (known, incoming.is_traced):
            assert incoming.link is not None
            incoming.ways, incoming.is_traced = ways, is_traced
            self._turn.order(incoming, AdvertiseWays(incoming.link, ways, is_traced))


def _is_traced(node: Node, incoming: IncomingLink) -> bool:
    """Tells whether what a sender brings may go on to routers, from here or from other workers."""
    is_far = is_sibling(incoming.connection)
    goes_on = any(link.traces or (link.is_traced and not is_far) for link in node.outgoing)
    return goes_on or turns(node, incoming)


def _ways_for(node: Node, incoming: IncomingLink) -> Iterator[Way]:
    """Yields the ways from a node on which what a sender brings can reach a receiver."""
    is_far, sender = stays_here(node, incoming), sender_stop(incoming)
    is_expecting = node.awaited or node.returning or (node.pending and not is_far)
    if is_expecting or any(map(is_end, node.outgoing)):
        yield Way((node.stop,), node.gains)
    for link in node.outgoing:
        for way in () if is_far and is_sibling(link.connection) else _ways_by(node, link):
            if len(way.stops) <= STOPS_MOST and (sender is None or sender not in way.stops):
                yield way
    if node.twin is not None and turns(node, incoming):
        yield from _behind(node, _ways_for(node.twin, incoming))


def _ways_by(node: Node, link: OutgoingLink) -> Iterable[Way]:
    """Returns the ways from a node by a link to a router or a sibling."""
    if is_end(link):
        return ()
    told = _told(node, link)
    return told if is_sibling(link.connection) else _behind(node, told)


def _behind(node: Node, ways: Iterable[Way]) -> Iterator[Way]:
    """Yields the ways that lead from a node on, and do not come back to it."""
    for way in ways:
        if node.stop not in way.stops:
            yield Way((node.stop, *way.stops), way.gains)


def _told(node: Node, link: OutgoingLink) -> Ways:
    """Returns the ways behind a link to a router or a sibling, as far as that has told."""
    ways = ways_through(link)
    return (Way((node.stop,)),) if ways is None else ways
