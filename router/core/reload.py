"""Reloading: a new routing table takes the place of the old one, and only the difference acts.

Every node asks the new table which route its address takes now, because a new route can take
addresses from one that has not changed itself.

    no route any more, or one that works the other way round    its links are detached, with the
                                                                reason; peers attach anew; what is
                                                                unsettled and promised exactly
                                                                once waits (``routeless``)
    a route again                                               what waits there goes on
    another route, or the same one changed                      the node follows its new rules and
                                                                ends; its links stay attached; what
                                                                is in doubt is not held any more if
                                                                these say so
    the same route                                              nothing
"""

from router.core.dead_letters import find_dead_letters
from router.core.detach import Detacher
from router.core.lanes import Lanes
from router.core.node import Direction, Node
from router.core.resume import Resumer
from router.core.routeless import Routeless
from router.core.state import State
from router.core.uplinks import Uplinks
from router.model.condition import NOT_ALLOWED, Condition
from router.routes.route import Route
from router.routes.table import Match, RoutingTable


class Reloader:
    """Puts new routing tables into force."""

    def __init__(
        self,
        state: State,
        detacher: Detacher,
        resumer: Resumer,
        *,
        uplinks: Uplinks,
        lanes: Lanes,
        routeless: Routeless,
    ) -> None:
        self._registry = state.registry
        self._turn = state.turn
        self._notices = state.notices
        self._detacher = detacher
        self._resumer = resumer
        self._uplinks = uplinks
        self._lanes = lanes
        self._routeless = routeless

    def configure(self, table: RoutingTable) -> None:
        """Puts a table into force."""
        self._registry.table = table
        self._routeless.kept = {}
        for link in self._registry.held:
            self._turn.leave(self._registry.enter(link))
        for node in list(self._registry.nodes.values()):
            if node.key.direction is Direction.FALLBACK:
                continue  # ``fallback`` knows what it serves
            if node.key.container is not None:
                self._follow_dead_letters(node, table)
            elif node.match is not None:
                self._follow(node, table.lookup(node.key.address))
            elif node.is_routeless:
                self._go_on(node, table.lookup(node.key.address))
        for route in table.routes:
            if route.from_ is not None:  # there may be very many others
                self._uplinks.follow(route, table.lookup(route.address))

    def _follow(self, node: Node, match: Match | None) -> None:
        if match is None or not _suits(node, match.route):
            self._routeless.end(node)
            if node.is_routeless:
                self._go_on(node, match)
            return
        was, node.match = node.route, match
        if match.route == was:
            node.route = match.route  # equal, but for its position in the file
            self._uplinks.refit(node)
            return
        self._notices.add("node.changed", address=node.key.address)
        self._lanes.demote(node)
        node.follow(match.route)
        self._detacher.review_doubts(node)
        self._resumer.review_doubts(node)
        if match.route.is_bridge:
            self._end_local_receivers(node)
        self._uplinks.refit(node)
        self._turn.touch(node)
        self._turn.review_credits(node.feeds)

    def _go_on(self, node: Node, match: Match | None) -> None:
        if match is not None:
            self._routeless.go_on(node, match, suits=_suits(node, match.route))

    @staticmethod
    def _follow_dead_letters(node: Node, table: RoutingTable) -> None:
        """Delivers dead letters that are already queued, wherever new ones go."""
        match = None if node.match is None else table.lookup(node.match.address)
        place = None if match is None else find_dead_letters(match)
        if place is not None and place[0] == node.key:
            node.match = match

    def _end_local_receivers(self, node: Node) -> None:
        reason = Condition(NOT_ALLOWED, f"'{node.key.address}' is bridged now ({node.route})")
        for link in list(node.outgoing):
            if not self._uplinks.owns(link):
                self._detacher.detach(link, reason)


def _suits(node: Node, route: Route) -> bool:
    """Returns whether a route works the way round that a node does."""
    if node.key.direction is Direction.STORED:
        return bool(route.to)
    is_one_way = bool(route.to) and not route.is_bridge
    return is_one_way is (node.key.direction is not Direction.MEETING)
