"""Turning: what comes from a router and would only go back to it goes to those who receive here.

A route to a container has two nodes at each address: what local senders bring goes *towards* the
container, and what local receivers get is *pulled* from it; they meet over there. Two routers whose
routes name each other have no such place: each sends on to the other, and both have receivers. So
what a router brings turns at the node towards it, and goes on at the node that pulls from it::

    sender at dc1 ──▶ towards dc2 ──▶ │ dc2: towards dc1 ─ turns ─▶ pulled from dc1 ──▶ receivers
                                      │                                           └──▶ dc1's pull

A delivery turns where whoever receives here has credit, if the route leads back to the router that
it came from, and in any case if it was wherever the route leads. What local senders bring never
turns, nor does anything where the route leads to somebody who is no router: their place to meet is
there. What has turned has passed both nodes, so it turns once.

A multicast turns only at the worker that dials a container of the route (``reach.turns``); another
worker that a router brings it to hands it to that one. What is pulled there goes on to all workers
with receivers, and so does what has turned, whichever worker it came by.
"""

from router.core.node import Direction, Feed, Node, is_able
from router.core.reach import are_back, leads_to, receivers_for, router_of, turns
from router.core.registry import Registry
from router.core.state import State
from router.links.pairing import Pairing


class Turner:
    """Takes deliveries from nodes towards containers to those that pull from them."""

    def __init__(self, state: State) -> None:
        self._registry: Registry = state.registry
        self._turn = state.turn

    def review(self, node: Node) -> None:
        """Looks at a node, or the one it stands beside, before anything is sent on from it."""
        twin = node.twin
        if twin is None:
            return
        if node.key.direction is Direction.PULL:
            node, twin = twin, node
        for feed in tuple(node.rotation):
            if turns(node, feed.incoming):
                self._review(node, twin, feed)

    def _review(self, node: Node, twin: Node, feed: Feed) -> None:
        receivers = receivers_for(twin, feed.incoming)
        if not receivers:
            return
        room = sum(link.credit for link in receivers if is_able(link))
        room -= sum(len(each.waiting) for each in twin.rotation)
        for pairing in tuple(feed.waiting):
            hops = pairing.delivery.hops
            if not hops or twin.stop in hops:
                continue
            is_at_end = are_back(node.outgoing, hops)
            is_returning = room > 0 and leads_to(node, router_of(hops[-1]))
            if is_at_end or is_returning:
                self._take_over(node, twin, feed, pairing)
                room -= 1

    def _take_over(self, node: Node, twin: Node, feed: Feed, pairing: Pairing) -> None:
        node.withdraw(feed, pairing)
        pairing.delivery.hops = (*pairing.delivery.hops, node.stop)
        same = (each for each in twin.rotation if each.incoming is feed.incoming)
        pairing.queue = queue = next(same, None) or Feed(feed.incoming, twin)
        twin.put(queue, pairing)
        if pairing.tried is not None:
            twin.given_back[pairing] = None
        self._turn.review_credit(feed.incoming)
        self._turn.touch(twin)
