"""What can be reached through whom: by what other workers, and later other routers, have told.

Plain look-ups; ``network`` keeps them up to date, and ``uplink`` asks them where a node's links
are to lead. A sibling is named like a configured container, after its worker's number and behind a
slash, which no name in a configuration contains.
"""

from collections.abc import Iterable, Iterator

import attrs

from router.core.node import Direction, Maker, Node
from router.links.link import Connection, IncomingLink, OutgoingLink
from router.model.terminus import Role
from router.routes.match import Pattern, PatternTree, canonical, parse_pattern
from router.routes.route import Endpoint

SIBLING_COST = 1
"""Of a hop to another worker of this router."""

Leg = tuple[Endpoint, Role]
"""Where a link of ours leads to, and our role on it."""


def sibling_name(worker: int) -> str:
    """Names another worker where names of containers stand."""
    return f"/{worker}"


def is_sibling_name(container: str | None) -> bool:
    """Tells whether a name of a container is that of another worker."""
    return container is not None and container.startswith("/")


def is_sibling(connection: Connection | None) -> bool:
    """Tells whether a connection leads to another worker."""
    return connection is not None and is_sibling_name(connection.configured)


def receivers_for(node: Node, incoming: IncomingLink) -> list[OutgoingLink]:
    """Gives those who may be sent what comes by a link: what came from a sibling stays here."""
    if not is_sibling(incoming.connection):
        return node.outgoing
    return [link for link in node.outgoing if not is_sibling(link.connection)]


def width_for(node: Node, incoming: IncomingLink) -> int:
    """Gives ``Node.width`` as far as it holds for a sender."""
    if not is_sibling(incoming.connection):
        return node.width
    widths = [link.width for link in receivers_for(node, incoming)]
    return min(widths, default=0) if node.is_multicast else sum(widths)


def can_send_for(node: Node, incoming: IncomingLink) -> bool:
    """Tells whether some receiver has credit for what a sender brings (multicast: every one)."""
    if not is_sibling(incoming.connection):
        return node.can_send
    credits = [link.credit > 0 for link in receivers_for(node, incoming)]
    if node.is_multicast:
        return bool(credits) and all(credits) and not node.awaited
    return any(credits)


@attrs.define(eq=False)
class Reach:
    """Who can be reached where.

    Attributes:
        owned: configured containers that this worker dials; None: all.
        receivers: by address, the siblings that receive from it, each with its cost.
        containers: by name, the siblings that it is connected to, each with its cost.
        identities: by name, the siblings where they have connections, each with one more than that.
        made: by address, the sibling at which a dynamic node was made that has not ended.
        counts: by address, the siblings with several receivers, each with one more than these.
        loads: by address, the siblings at whose receivers others' deliveries are unsettled, each
            with one more than these.
        patterns: by pattern, the siblings that receive from all that is sent to of it.
        makers: by address of a dynamic node of a sibling's, who made it.
    """

    owned: frozenset[str] | None = None
    receivers: dict[str, dict[str, int]] = attrs.field(factory=dict, init=False)
    containers: dict[str, dict[str, int]] = attrs.field(factory=dict, init=False)
    identities: dict[str, dict[str, int]] = attrs.field(factory=dict, init=False)
    made: dict[str, dict[str, int]] = attrs.field(factory=dict, init=False)
    counts: dict[str, dict[str, int]] = attrs.field(factory=dict, init=False)
    loads: dict[str, dict[str, int]] = attrs.field(factory=dict, init=False)
    patterns: dict[str, dict[str, int]] = attrs.field(factory=dict, init=False)
    makers: dict[str, Maker] = attrs.field(factory=dict, init=False)
    _tree: tuple[PatternTree, list[dict[str, int]]] | None = attrs.field(default=None, init=False)

    def owns(self, container: str) -> bool:
        """Tells whether this worker dials a container."""
        return self.owned is None or container in self.owned

    def legs(self, node: Node, wanted: Iterable[Leg]) -> list[Leg]:
        """Gives where a node's links lead, seen from this worker.

        Containers that are another's to dial are reached through it; while they are not connected
        there they are waited for like any that is away. A container that feeds a route is its
        owner's concern alone: the owner finds the receivers, wherever they are.

        Args:
            node: the node.
            wanted: where its route leads.
        """
        legs = dict.fromkeys(self._towards_containers(node, wanted))
        if node.key.direction is Direction.MEETING and not node.route.is_bridge:
            for sibling in self.receivers.get(node.key.address, ()):
                legs[Endpoint(sibling), Role.SENDER] = None
            for sibling in self._watching(node):
                legs[Endpoint(sibling), Role.SENDER] = None
        return list(legs)

    def know_maker(self, address: str, maker: Maker | None) -> None:
        """Records who made a dynamic node of another worker's; None: it has ended."""
        if maker is None:
            self.makers.pop(address, None)
        else:
            self.makers[address] = maker

    def connections_of(self, identity: str) -> int:
        """Tells how many connections an identity has at other workers, if that is limited."""
        known = self.identities.get(identity)
        return sum(count - SIBLING_COST for count in known.values()) if known else 0

    def weigh(self, link: OutgoingLink, address: str) -> None:
        """Notes down who receives by a link to a sibling, and what they have of others."""
        assert link.connection is not None
        sibling = link.connection.configured
        assert sibling is not None
        told = self.counts.get(address, {}).get(sibling, 1 + SIBLING_COST)
        link.receivers = max(1, told - SIBLING_COST)
        told = self.loads.get(address, {}).get(sibling, SIBLING_COST)
        link.elsewhere = told - SIBLING_COST

    def patterns_changed(self) -> None:
        """Takes note that ``patterns`` has other keys now."""
        self._tree = None

    def _watching(self, node: Node) -> Iterator[str]:
        """Gives the siblings that receive from a node by a pattern."""
        if not self.patterns or node.route.to:
            return
        if self._tree is None:
            equal: dict[object, tuple[Pattern, dict[str, int]]] = {}
            for text, ways in self.patterns.items():
                pattern = parse_pattern(text)
                equal.setdefault(canonical(pattern), (pattern, {}))[1].update(ways)
            tree = PatternTree(pattern for pattern, _ in equal.values())
            self._tree = tree, [ways for _, ways in equal.values()]
        tree, ways_of = self._tree
        for index in tree.find_all(node.key.address):
            yield from ways_of[index]

    def _towards_containers(self, node: Node, wanted: Iterable[Leg]) -> Iterator[Leg]:
        feeds = node.key.direction is Direction.MEETING
        for endpoint, role in wanted:
            if self.owns(endpoint.container):
                yield endpoint, role
            elif not (feeds and role is Role.RECEIVER):
                known = self.containers.get(endpoint.container)
                yield (Endpoint(min(known, key=known.__getitem__)) if known else endpoint), role
