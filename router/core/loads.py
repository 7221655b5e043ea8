"""The load of other workers' receivers, so that "fewest unsettled" holds over all workers.

A link to a sibling stands for all receivers that an address has there. This worker knows how many
deliveries it has sent them itself; only the sibling knows how many others have. So for an address
with senders here and receivers there the sibling advertises two numbers: how many receivers there
are (``network``), and how many deliveries are unsettled at them that did not come from here. With
both numbers the balanced rule treats the link as several receivers with an average load
(``routes.distribution``).

The advertised number of others' deliveries is a *standing* load: the lesser of two samples, so that
a short burst changes nothing. Samples are ``LOOK_SECONDS`` apart while loads change, and further
apart the longer they do not. A sample visits at most ``LINKS_MOST`` links; the others follow with
the next one.
"""

from collections import deque
from typing import Final

import attrs

from router.core.alarms import Alarm
from router.core.lanes import Lanes
from router.core.network import Network
from router.core.node import Direction, Node
from router.core.reach import is_sibling
from router.core.state import State

LOOK_SECONDS: Final = 0.1
LOOK_LIMIT_SECONDS: Final = 1.0

LINKS_MOST: Final = 500
"""Most links examined at a time: about a millisecond's work."""


@attrs.define(eq=False)
class Loads:
    """Measures the load of this worker's receivers, and reports it to siblings that send here.

    Attributes:
        _seen: for the nodes that siblings send to, the others' unsettled deliveries at the last
            look.
        _order: the same nodes; the first is examined next.
    """

    _state: State
    _network: Network
    _lanes: Lanes
    _seen: dict[Node, dict[str, int]] = attrs.field(factory=dict, init=False)
    _order: deque[Node] = attrs.field(factory=deque, init=False)
    _alarm: Alarm | None = attrs.field(default=None, init=False)
    _pause_seconds: float = attrs.field(default=LOOK_SECONDS, init=False)

    def review(self) -> None:
        """Records senders that have come and gone; to be called when a turn ends."""
        if not self._network.has_siblings and not self._seen:
            return
        for node in self._state.registry.fed:
            is_known, is_shared = node in self._seen, _is_shared(node)
            if is_shared and not is_known:
                self._seen[node] = {}
                self._order.append(node)
            elif is_known and not is_shared:
                self._order.remove(node)
                for sibling in self._seen.pop(node):
                    self._network.report_load(sibling, node.key.address, 0)
        if self._seen and self._alarm is None:
            self._pause_seconds = LOOK_SECONDS
            self._set_alarm()

    def _set_alarm(self) -> None:
        at = self._state.turn.now + self._pause_seconds
        self._alarm = self._state.alarms.set(at, self._look)

    def _look(self) -> None:
        self._alarm = None
        left, is_news = LINKS_MOST, False
        for _ in range(len(self._order)):
            node = self._order[0]
            self._order.rotate(-1)
            is_news |= self._look_at(node)
            left -= len(node.outgoing) + len(node.feeds)
            if left <= 0:
                break
        if self._seen:
            longer = min(LOOK_LIMIT_SECONDS, self._pause_seconds * 2)
            self._pause_seconds = LOOK_SECONDS if is_news else longer
            self._set_alarm()

    def _look_at(self, node: Node) -> bool:
        """Examines one node; returns whether its load has changed."""
        unsettled = self._lanes.unsettled
        here = (each for each in node.outgoing if each.chain is None)
        total = sum(unsettled(link) for link in here if not is_sibling(link.connection))
        before, now = self._seen[node], dict[str, int]()
        is_news = False
        for link in node.feeds:
            if not is_sibling(link.connection):
                continue
            assert link.connection is not None
            assert link.connection.configured is not None
            name = link.connection.configured
            now[name] = max(0, total - unsettled(link))
            standing = min(now[name], before.get(name, 0))
            is_news |= now[name] != before.get(name, 0)
            is_news |= self._network.report_load(name, node.key.address, standing)
        self._seen[node] = now
        return is_news


def _is_shared(node: Node) -> bool:
    """Returns whether siblings send to a node, and choose between its receivers and others."""
    return (
        node.key.direction is Direction.MEETING
        and not node.is_multicast
        and any(is_sibling(link.connection) for link in node.feeds)
    )
