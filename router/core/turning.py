"""Turning: deliveries from a router that only lead back to it go to the receivers here.

A route to a container has two nodes at each address: deliveries of local senders go *towards* the
container, and local receivers get deliveries *pulled* from it; the two meet at the container. Two
routers whose routes name each other have no such meeting point: each forwards to the other, and
both have receivers. So a delivery from a router turns at the node towards it, and continues at the
node that pulls from it::

    sender at dc1 ──▶ towards dc2 ──▶ │ dc2: towards dc1 ─ turns ─▶ pulled from dc1 ──▶ receivers
                                      │                                           └──▶ dc1's pull

A delivery turns if the receivers here have credit and the route leads back to the router that it
came from, or on no open way to receivers past where it has been; and in any case if it has been at
every stop to which the route leads, or leads from here: from one worker to a second one, and not on
to a third. Deliveries of local senders never turn, so they have no credit
for ways on which another worker turns what comes from routers (``reach``), and their multicasts
pass such ways by; nor do any where the route leads to a container that is no router: that is their
meeting point. A delivery that has turned has passed both nodes, so it turns once. The worker that
receives it turns it if it has receivers; otherwise the one that dials the other router does, from
where it may go to receivers at any third worker.
A multicast turns only at the worker that dials a container of the route (``reach.turns``); any
other worker that receives it from a router hands it to that one. Messages pulled there go on to all
workers with receivers, and so do turned ones, whichever worker received them.

What all receivers on one side have returned goes over to the other one, if it may have it there
(``goes_over``): it turns though nobody grants credit yet, or what has turned goes on to another
worker, as if it had not. So nothing is given back that a receiver here, or behind another worker,
has not been offered. It goes over no more often than receivers on both sides are left to be tried.
"""

from router.core.forward import may_take
from router.core.node import Direction, Feed, Node, feed_of, in_custody, is_able
from router.core.reach import are_back, leads_on, leads_to, receivers_for, router_of, turns
from router.core.registry import Registry
from router.core.state import State
from router.links.pairing import Pairing
from router.model.ways import Stop


class Turner:
    """Moves deliveries from nodes towards containers to nodes that pull from them."""

    def __init__(self, state: State) -> None:
        self._registry: Registry = state.registry
        self._turn = state.turn

    def review(self, node: Node) -> None:
        """Reviews a node, or its counterpart, before any of its deliveries is forwarded."""
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
        credit = sum(link.credit for link in receivers if is_able(link))
        credit -= sum(len(each.waiting) for each in twin.rotation)
        onward = receivers_for(node, feed.incoming)
        for pairing in tuple(feed.waiting):
            hops = pairing.delivery.hops
            if not hops or twin.stop in hops:
                continue
            is_at_end = are_back(node.outgoing, hops) or are_back(onward, hops)
            if credit > 0 and not is_at_end:
                is_at_end = leads_to(node, router_of(hops[-1])) or not leads_on(node, hops)
            if is_at_end and _may_be_taken(twin, pairing, (*hops, node.stop)):
                self._take_over(node, twin, feed, pairing)
                credit -= 1

    def _take_over(self, node: Node, twin: Node, feed: Feed, pairing: Pairing) -> None:
        node.withdraw(feed, pairing)
        _move(twin, pairing, (*pairing.delivery.hops, node.stop))
        twin.put(feed_of(pairing), pairing)
        if pairing.tried is not None:
            twin.given_back[pairing] = None
        self._turn.review_credit(feed.incoming)
        self._turn.touch(twin)

    def goes_over(self, node: Node, pairing: Pairing) -> bool:
        """Queues a delivery that is about to be given back on the other side of its turn.

        Args:
            node: where it was, in no queue any more.
            pairing: the delivery.

        Returns:
            whether it may be taken there.
        """
        twin, incoming, hops = node.twin, pairing.incoming, pairing.delivery.hops
        if twin is None or not hops or node.is_multicast or in_custody(pairing):
            return False
        if turns(node, incoming) and twin.stop not in hops:
            hops = (*hops, node.stop)
        elif incoming in twin.feeds and turns(twin, incoming) and hops[-1] == twin.stop:
            hops = hops[:-1]
        else:
            return False
        if not _may_be_taken(twin, pairing, hops):
            return False
        _move(twin, pairing, hops)
        twin.put_back(feed_of(pairing), [pairing])
        self._turn.touch(twin)
        return True


def _move(node: Node, pairing: Pairing, hops: tuple[Stop, ...]) -> None:
    """Has a delivery belong to a queue of another node, after some stops."""
    incoming = pairing.incoming
    same = (each for each in node.rotation if each.incoming is incoming)
    pairing.queue = next(same, None) or Feed(incoming, node)
    pairing.delivery.hops = hops


def _may_be_taken(node: Node, pairing: Pairing, hops: tuple[Stop, ...]) -> bool:
    """Returns whether a receiver of a node may be sent a delivery, now or later."""
    queue, before = pairing.queue, pairing.delivery.hops
    _move(node, pairing, hops)
    receivers = receivers_for(node, pairing.incoming)
    is_taken = any(link.ways != () and may_take(link, pairing) for link in receivers)
    pairing.queue, pairing.delivery.hops = queue, before
    return is_taken
