"""Keeps unsettled deliveries of exactly-once addresses whose route was removed from the file.

Theory of operation. A reload that removes the route of such an address must not end its unsettled
deliveries: a receiver may have some of them, and they would be sent again if the router and the
peers forgot them. So the node stays, *routeless*, with all of them::

    sender that resumes, with unsettled deliveries   suspended without a time limit
    sender that redelivers                           ended: it sends again what has no outcome
    receiver with unsettled deliveries               suspended without a time limit: in doubt
    our links to containers                          likewise, and not attached again
    queued deliveries                                stay in the queue
    other links                                      ended

No peer can attach there: there is no route. Its deliveries are listed, an operator may resolve
those in doubt, and the journal keeps them over restarts (``restore``). When a table has a route for
the address again, the node follows it, or hands its deliveries to the nodes of a route of the other
direction; from then on the links' times run as if their peers had just been lost.
"""

from functools import partial

from router.core.attach import Attacher, Place
from router.core.detach import Detacher
from router.core.node import Direction, Node, feed_of
from router.core.resume import Resumer
from router.core.retired import node_of
from router.core.settle import trunk_of
from router.core.state import State
from router.core.suspend import Suspender, agreed
from router.core.uplinks import Uplinks
from router.links.expiry import NEVER_EXPIRES, End, seconds_left
from router.links.link import IncomingLink, Link, OutgoingLink, is_away
from router.links.pairing import Pairing
from router.model.condition import RESOURCE_DELETED, Condition
from router.model.terminus import Role
from router.routes.route import Distribution, Guarantee, InDoubt, Route, Unroutable
from router.routes.table import Match


class Routeless:
    """Keeps what is unsettled at addresses without a route.

    Attributes:
        kept: number of unsettled deliveries that the last reload left routeless, by route pattern.
    """

    def __init__(
        self,
        state: State,
        detacher: Detacher,
        suspender: Suspender,
        resumer: Resumer,
        *,
        uplinks: Uplinks,
        attacher: Attacher,
    ) -> None:
        self._settings = state.settings
        self._registry = state.registry
        self._turn = state.turn
        self._alarms = state.alarms
        self._notices = state.notices
        self._detacher = detacher
        self._suspender = suspender
        self._resumer = resumer
        self._uplinks = uplinks
        self._attacher = attacher
        self._own: dict[Node, list[Link]] = {}
        self._patient: set[Node] = set()
        self.kept: dict[str, int] = {}

    def end(self, node: Node) -> None:
        """Ends a node without a place in the new table; what must not be forgotten is kept."""
        unsettled = len(self._unsettled(node))
        self._notices.add("node.ended", address=node.key.address, unsettled=unsettled or None)
        keeps = node.is_exact and unsettled > 0
        if keeps:
            pattern = node.route.address
            self.kept[pattern] = self.kept.get(pattern, 0) + unsettled
            self._own[node] = self._uplinks.suspend(node)
            node.match = None
            node.follow(route_without(node.key.address, node.route))
        else:
            self._uplinks.remove(node)
        reason = Condition(RESOURCE_DELETED, f"no route for '{node.key.address}' any more")
        links: list[Link] = [*node.outgoing, *node.feeds]
        for link in links:
            self._end_link(node, link, reason, keeps=keeps)
        for link in self._absent(node) if keeps else ():
            self._suspender.keep(link)
        self._turn.touch(node)
        self._turn.leave(node)

    def _end_link(self, node: Node, link: Link, reason: Condition, *, keeps: bool) -> None:
        if isinstance(link, IncomingLink) and link.is_relayed:
            self._detacher.close_feed(node, link)
        elif link.address is None:
            return
        elif keeps and _is_kept(link) and not is_away(link):
            is_resumed = seconds_left(agreed(link), End.CONNECTION) > 0
            self._detacher.detach(link, reason, closed=not is_resumed, keeping=NEVER_EXPIRES)
        elif not (keeps and _is_kept(link)):
            self._detacher.detach(link, reason)

    def _unsettled(self, node: Node) -> set[Pairing]:
        """Returns the deliveries that are unsettled or queued at a node."""
        found = {trunk_of(pairing) for feed in node.rotation for pairing in feed.waiting}
        anonymous = (
            link
            for connection in self._registry.parties
            for link in connection.incoming.values()
            if link.is_relayed
        )
        for link in (*node.feeds, *node.outgoing, *self._absent(node), *anonymous):
            for pairing in (*link.unsettled.values(), *link.adrift.values()):
                if feed_of(pairing).node is node:
                    found.add(trunk_of(pairing))
        return found

    def _absent(self, node: Node) -> list[Link]:
        """Returns the links of a node whose peers are away."""
        return [link for link in self._registry.absent() if node_of(link) is node]

    # A route is back

    def restored(self, node: Node, link: Link) -> None:
        """Records that a link of a routeless node was ours, to a container, before a restart."""
        self._own.setdefault(node, []).append(link)

    def go_on(self, node: Node, match: Match, *, suits: bool) -> None:
        """Resumes forwarding at a node whose address has a route again.

        Args:
            node: without a route.
            match: of its address in the new table.
            suits: the route has the direction of the node.
        """
        address, unsettled = node.key.address, len(self._unsettled(node))
        self._notices.add("node.continued", address=address, unsettled=unsettled or None)
        own, absent = self._own.pop(node, []), self._absent(node)
        self._uplinks.remove(node)  # it had none: those of its route are made anew
        if suits:
            node.match = match
            node.follow(match.route)
            self.wait_for_receivers(node)
        else:
            self._hand_over(node)
        for link in absent:
            if link not in own:
                self._suspender.restart(link, self._detacher.expire)
        for link in own:
            self._uplinks.restored(node_of(link) or node, link)
        self._detacher.review_doubts(node)
        self._resumer.review_doubts(node)
        self._uplinks.used(node)
        self._turn.touch(node)
        self._turn.leave(node)

    def _hand_over(self, node: Node) -> None:
        """Hands a node's deliveries to the nodes that its address leads to now."""
        source = self._find(node, Role.RECEIVER)
        target = self._find(node, Role.SENDER)
        if source is not None:
            for feed in {*node.feeds.values(), *node.rotation}:
                self._registry.move(feed, source)
        for link in self._absent(node):
            if isinstance(link, OutgoingLink) and target is not None:
                link.group = target
                if link in node.returning:
                    node.returning.discard(link)
                    target.returning.add(link)
        if source is not None:
            self.wait_for_receivers(source)
            self._uplinks.used(source)
            self._turn.touch(source)

    def _find(self, node: Node, role: Role) -> Node | None:
        place = self._attacher.find(node.key.address, role)
        if not isinstance(place, Place):
            return None
        return self._registry.node(place.key, place.route, place.match)

    def wait_for_receivers(self, node: Node) -> None:
        """Gives a node's receivers time to return before its queued deliveries are given up.

        Its containers are waited for anyway (``uplinks``), which is all that the message store
        wants: what they return goes back there at once.
        """
        is_stored = node.key.direction is Direction.STORED
        if is_stored or not node.rotation or node in self._patient:
            return
        self._patient.add(node)
        node.returning.add(self)
        at = self._turn.now + self._settings.failover_seconds
        self._alarms.set(at, partial(self._give_up, node))

    def _give_up(self, node: Node) -> None:
        self._patient.discard(node)
        node.returning.discard(self)
        self._turn.touch(node)


def route_without(address: str, was: Route | None = None) -> Route:
    """Returns a route for an exactly-once address that has none: all deliveries wait."""
    return Route(
        address=address,
        guarantee=Guarantee.EXACTLY_ONCE,
        distribution=Distribution.BALANCED if was is None else was.distribution,
        in_doubt=InDoubt.HOLD,
        unroutable=Unroutable.HOLD,
    )


def _is_kept(link: Link) -> bool:
    """Returns whether a link has unsettled deliveries that no peer would send again."""
    if isinstance(link, IncomingLink) and not link.settles_second:
        return False
    return bool(link.unsettled or link.adrift)
