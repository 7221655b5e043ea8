"""Pausing routes at an operator's request.

A paused route drains its senders' credit and forwards nothing; deliveries that arrive nevertheless
wait here. Outcomes of deliveries already sent are handled as usual, and a delivery of which parts
have been sent is completed. Nothing is detached and nothing is lost, and the pause outlives
reloads.
"""

from router.core.credit import Granter
from router.core.lanes import Lanes
from router.core.node import Node
from router.core.state import State


class Pauser:
    """Pauses and resumes routes by name."""

    def __init__(self, state: State, granter: Granter, lanes: Lanes) -> None:
        self._turn = state.turn
        self._registry = state.registry
        self._granter = granter
        self._lanes = lanes

    def knows(self, route: str) -> bool:
        """Returns whether there is a route of that name."""
        return route in self._registry.table.by_name

    def pause(self, route: str) -> None:
        """Pauses a route; pausing it again has no effect."""
        self._registry.paused.add(route)
        for node in self._nodes(route):
            self._lanes.demote(node)
            node.pause(True)
            self._granter.receivers_changed(node)

    def resume(self, route: str) -> None:
        """Resumes a route."""
        self._registry.paused.discard(route)
        for node in self._nodes(route):
            node.pause(False)
            self._granter.review_senders(node)
            self._turn.touch(node)

    def _nodes(self, route: str) -> list[Node]:
        nodes = self._registry.nodes.values()
        return [node for node in nodes if node.match is not None and node.route.name == route]
