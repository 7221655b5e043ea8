"""Dismissing one connection without losing a delivery, while all the others go on.

From ``dismiss`` on its senders are drained and nothing new is sent to its receivers; deliveries
under way run to their outcome. When none is left, or after ``PATIENCE_SECONDS``, the connection is
closed with the reason. The remaining deliveries are recovered as after any lost connection.
"""

from typing import Final

from router.core.credit import Granter
from router.core.drain import rests
from router.core.lanes import Lanes
from router.core.state import State
from router.links.link import Connection, Link, OutgoingLink
from router.model.commands import CloseConnection
from router.model.condition import Condition
from router.model.identity import ConnectionId

PATIENCE_SECONDS: Final = 10.0
"""Time for receivers to send their outcomes; slower ones are not waited for."""

REVIEW_SECONDS: Final = 0.05


class Dismisser:
    """Drains and closes single connections."""

    def __init__(self, state: State, granter: Granter, lanes: Lanes) -> None:
        self._registry = state.registry
        self._turn = state.turn
        self._alarms = state.alarms
        self._granter = granter
        self._lanes = lanes

    def dismiss(self, identifier: ConnectionId, condition: Condition) -> None:
        """Begins to dismiss a connection; one that is gone or already leaving is ignored."""
        connection = self._registry.connections.get(identifier)
        if connection is None or connection.is_leaving:
            return
        connection.is_leaving = True
        for node in list(self._registry.nodes.values()):
            links: list[Link] = [*node.feeds, *node.outgoing]
            if node.is_express and any(link.connection is connection for link in links):
                self._lanes.demote(node)
        for incoming in connection.incoming.values():
            self._granter.withdraw(incoming)
        self._review(connection, condition, self._turn.now + PATIENCE_SECONDS)

    def _review(self, connection: Connection, condition: Condition, until: float) -> None:
        if connection.is_gone:
            return
        now = self._turn.now
        if now >= until or _is_at_rest(connection):
            self._turn.issue(connection.id, CloseConnection(condition))
        else:
            self._alarms.set(
                now + REVIEW_SECONDS, lambda: self._review(connection, condition, until)
            )


def _is_at_rest(connection: Connection) -> bool:
    return all(map(rests, connection.incoming.values())) and all(
        map(_has_answered, connection.outgoing.values())
    )


def _has_answered(link: OutgoingLink) -> bool:
    return not (link.unsettled or link.partial is not None or link.run)
