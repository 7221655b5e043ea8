"""Watches: receivers of a pattern get the addresses of the pattern that have senders.

A receiver is attached to one address. Where one subscription covers many addresses, the protocol's
engine watches a pattern here (``AddressesWatched``) and attaches to each matching address that gets
a sender. Deliveries of that sender meanwhile wait for the watchers (``Node.awaited``); otherwise
the first message would miss one. They wait until the watchers have attached, or report that no
attach is left (``AddressesReached``), at most as long as attaching may take. When an address loses
its last sender, and no deliveries of it are queued, the engine is informed too and detaches its
link, so links do not accumulate.
A watch is answered when all workers know of it, like the attach of a multicast's receiver
(``announce``): by then the workers with senders have attached here, and the answer includes their
addresses.

Only addresses where senders and receivers meet count; from a route to a container one can receive
only address by address.
"""

from functools import partial

import attrs

from router.core.alarms import Alarm
from router.core.bounds import Bounds
from router.core.credit import Granter
from router.core.network import PATIENCE_SECONDS, PATTERN, Network
from router.core.node import Direction, Node
from router.core.policy import Operation
from router.core.state import State
from router.links.link import Connection
from router.model.commands import AddressesChanged, RefuseLink
from router.model.condition import INVALID_FIELD, NOT_FOUND, Condition
from router.model.events import AddressesReached, AddressesWatched, Event
from router.model.identity import LinkId
from router.routes.match import (
    Pattern,
    PatternError,
    PatternTree,
    canonical,
    matches,
    overlaps,
    parse_pattern,
)
from router.routes.vhost import inside, is_reserved, outside


@attrs.define(eq=False)
class _Watch:
    """One peer's subscription to a pattern.

    Attributes:
        alarm: ends the wait for siblings that do not know the watch yet; None: it is answered.
        reported: internal addresses that the peer knows to have senders.
        changes: reported at the end of the turn: address → whether it has senders.
    """

    connection: Connection
    link: LinkId
    pattern: Pattern
    alarm: Alarm | None
    reported: set[str] = attrs.field(factory=set)
    changes: dict[str, bool] = attrs.field(factory=dict)

    def saw(self, node: Node, is_theirs: bool) -> bool:
        """Records whether a node has senders; returns whether that is new to the peer.

        Args:
            node: the node.
            is_theirs: the peer may receive from it.
        """
        address, is_fed = node.key.address, _has_deliveries(node) and is_theirs
        if is_fed is (address in self.reported):
            return False
        (self.reported.add if is_fed else self.reported.discard)(address)
        self.changes[address] = is_fed
        return True


class Watchers:
    """The watches of all peers."""

    def __init__(self, state: State, network: Network, granter: Granter, bounds: Bounds) -> None:
        self._registry = state.registry
        self._turn = state.turn
        self._alarms = state.alarms
        self._network = network
        self._granter = granter
        self._bounds = bounds
        self._expected: dict[Node, dict[_Watch, Alarm]] = {}
        self._watches: dict[LinkId, _Watch] = {}
        self._unanswered: dict[LinkId, _Watch] = {}
        self._tree: PatternTree | None = None
        self._in_tree: list[list[_Watch]] = []

    def begin(self, connection: Connection, event: Event) -> None:
        """Answers a peer that begins to watch."""
        assert isinstance(event, AddressesWatched)
        refusal: Condition | None
        try:
            pattern = parse_pattern(inside(connection.vhost, event.pattern))
            asked = parse_pattern(event.pattern)
            denial = self._bounds.pattern_denial(connection, Operation.RECEIVE, asked)
            refusal = denial or self._refusal(event.pattern, pattern)
        except PatternError as error:
            refusal = Condition(INVALID_FIELD, str(error))
        if refusal is not None:
            self._turn.order_connection(connection, RefuseLink(event.link, refusal))
            return
        self._network.claim((PATTERN, pattern.text))
        alarm = self._alarms.set(self._turn.now + PATIENCE_SECONDS, lambda: None)
        watch = _Watch(connection, event.link, pattern, alarm)
        self._watches[event.link] = self._unanswered[event.link] = watch
        self._tree = None

    def _refusal(self, name: str, pattern: Pattern) -> Condition | None:
        if is_reserved(name):
            return Condition(NOT_FOUND, f"no route for addresses like '{name}'")
        for route in self._registry.table.routes:
            if route.is_bridge or route.to:
                continue
            if overlaps(parse_pattern(route.address), pattern):
                return None
        return Condition(NOT_FOUND, f"no route on which receivers meet senders of '{name}'")

    def reached(self, connection: Connection, event: Event) -> None:
        """Ends the wait for a peer that has attached to all addresses reported to it."""
        assert isinstance(event, AddressesReached)
        watch = self._watches.get(event.link)
        if watch is None:
            return
        for node in [node for node, watches in self._expected.items() if watch in watches]:
            if node.key.address in watch.reported and node.key.address not in watch.changes:
                self._expect_no_more(node, watch)

    def end(self, link: LinkId) -> bool:
        """Ends a watch; returns False if the link is no watch."""
        watch = self._watches.pop(link, None)
        if watch is None:
            return False
        self._unanswered.pop(link, None)
        self._alarms.cancel(watch.alarm)
        for node in [node for node, watches in self._expected.items() if watch in watches]:
            self._expect_no_more(node, watch)
        self._network.unclaim((PATTERN, watch.pattern.text))
        self._tree = None
        return True

    def connection_lost(self, connection: Connection) -> None:
        """Ends the watches of a connection."""
        for watch in [each for each in self._watches.values() if each.connection is connection]:
            self.end(watch.link)

    def expect(self) -> None:
        """Makes deliveries wait for watchers not informed yet; call before they are forwarded.

        Watchers that have attached since are not awaited.
        """
        for node in [node for node in self._registry.moved if node in self._expected]:
            connections = {link.connection for link in node.outgoing}
            for watch in list(self._expected[node]):
                if watch.connection in connections:
                    self._expect_no_more(node, watch)
        if not self._watches:
            return
        for node in self._registry.fed:
            if _is_watchable(node):
                for watch in self._watching(node.key.address):
                    if watch.alarm is None and node.key.address not in watch.reported:
                        if self._is_theirs(watch, node):
                            self._expect(node, watch)

    def _expect(self, node: Node, watch: _Watch) -> None:
        give_up = partial(self._expect_no_more, node, watch)
        alarm = self._alarms.set(self._turn.now + PATIENCE_SECONDS, give_up)
        self._expected.setdefault(node, {})[watch] = alarm
        node.awaited.add(watch)

    def _expect_no_more(self, node: Node, watch: _Watch) -> None:
        watches = self._expected[node]
        self._alarms.cancel(watches.pop(watch))
        if not watches:
            del self._expected[node]
        node.awaited.discard(watch)
        self._registry.moved[node] = None
        self._turn.touch(node)
        self._granter.receivers_changed(node)

    def review(self) -> None:
        """Reports addresses that got or lost senders; called at the end of a turn."""
        fed, self._registry.fed = self._registry.fed, {}
        if not self._watches:
            return
        changed: dict[_Watch, None] = {}
        for node in fed:
            if _may_meet(node):
                for watch in self._watching(node.key.address):
                    if watch.alarm is None and watch.saw(node, self._is_theirs(watch, node)):
                        changed[watch] = None
        for watch in changed:
            self._report(watch)
        for watch in list(self._unanswered.values()):
            self._answer(watch)

    def _answer(self, watch: _Watch) -> None:
        """Answers a watch once every sibling knows it, or when the wait for them ends."""
        assert watch.alarm is not None
        is_late = watch.alarm.action is None
        if not (is_late or self._network.is_known((PATTERN, watch.pattern.text))):
            return
        del self._unanswered[watch.link]
        self._alarms.cancel(watch.alarm)
        watch.alarm = None
        for node in self._registry.nodes.values():
            if (
                _has_deliveries(node)
                and _may_meet(node)
                and matches(watch.pattern, node.key.address)
            ):
                watch.saw(node, self._is_theirs(watch, node))
        self._report(watch)

    def _is_theirs(self, watch: _Watch, node: Node) -> bool:
        """Returns whether a peer may receive from a node of the pattern that it watches."""
        denial = self._bounds.denial(watch.connection, Operation.RECEIVE, node.key.address)
        return denial is None

    def _watching(self, address: str) -> list[_Watch]:
        """Returns the watches that match an address."""
        if self._tree is None:
            equal: dict[object, list[_Watch]] = {}
            for watch in self._watches.values():
                equal.setdefault(canonical(watch.pattern), []).append(watch)
            self._in_tree = list(equal.values())
            self._tree = PatternTree(watches[0].pattern for watches in self._in_tree)
        found = self._tree.find_all(address)
        return [watch for index in found for watch in self._in_tree[index]]

    def _report(self, watch: _Watch) -> None:
        changes, watch.changes = watch.changes, {}
        come = tuple(outside(address) for address, is_fed in changes.items() if is_fed)
        gone = tuple(outside(address) for address, is_fed in changes.items() if not is_fed)
        self._turn.order_connection(watch.connection, AddressesChanged(watch.link, come, gone))


def _has_deliveries(node: Node) -> bool:
    """Returns whether a node has senders, or deliveries that senders have left behind."""
    return bool(node.feeds or node.rotation)


def _is_watchable(node: Node) -> bool:
    """Returns whether watchers are to be informed of a node."""
    return _has_deliveries(node) and _may_meet(node)


def _may_meet(node: Node) -> bool:
    """Returns whether receivers meet senders at a node."""
    return node.key.direction is Direction.MEETING and not (node.route.is_bridge or node.route.to)
