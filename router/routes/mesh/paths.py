"""The one question of the data plane: which next hops, at which cost, may this delivery take?

Siblings, edges and other sites are answered alike (``Way``). Who serves an address is found in two
places: the site's own receivers, at this worker, at siblings or behind edges, and the index of what
sites have announced.

closest, balanced
    The sites of the most specific pattern (``routes.match``; a single address is the most
    specific), and the site's own receivers. They come in the order of cost, for balanced of cost
    and told load; the ingress chooses the first, writes it down and sticks to it. Where this site
    serves the prefix and has no receiver, it comes last: the delivery would wait here.

multicast
    The sites of *all* patterns that match, along the tree of the site where the message entered.
    What comes from another neighbor than that tree's parent is dropped. A tree is computed when it
    is first asked for, and kept for this topology.

partition
    If no way leads to any egress of an address, the answer is ``Unreachable`` and names them: the
    caller grants no credit and holds what is bound. A less specific pattern does not stand in: it
    would deliver to somebody else.

Hop limit and trace
    A delivery carries the routers that it has passed. It is released, never rejected, at a router
    that it has passed before, and after ``HOPS_MOST`` routers (``may_pass``). So loops that exist
    while trees change end; when all routers have the same link states there are none (``tree``).
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import attrs

from router.routes.mesh.nouns import RouterId
from router.routes.mesh.prefixes import Index
from router.routes.mesh.site import Site
from router.routes.mesh.tree import Branches, Tree

HOPS_MOST: Final = 32
"""Routers that a delivery may pass. A thousand routers with 6 links each are 6 hops wide."""

SIBLING_COST: Final = 1
"""As in ``core.reach``."""

EDGE_COST: Final = 2
"""An edge is behind a connection of its own."""

TREES_MOST: Final = 256
"""Trees of other origins that are kept: some 50 octets for each router that is behind this one."""

EDGE_PLACE: Final = "edge:"
"""How the place of an edge's receivers begins; the rest is its id."""


class Through(enum.Enum):
    """What a next hop is."""

    HERE = "here"
    SIBLING = "sibling"
    EDGE = "edge"
    ROUTER = "router"


@attrs.frozen(kw_only=True)
class Way:
    """One way that a delivery may take.

    Attributes:
        egress: the site that has the receivers.
        through: what the next hop is.
        hop: its name: the sibling's, the edge's, the neighbor's; empty: this worker.
        place: the sibling that has the connection to the hop; empty: this worker.
        cost: to the egress.
        load: what the egress has told.
    """

    egress: RouterId
    through: Through
    hop: str
    place: str = ""
    cost: int = 0
    load: int = 0


@attrs.frozen
class Ways:
    """Somebody serves the address.

    Attributes:
        ways: the best first.
    """

    ways: tuple[Way, ...]


@attrs.frozen
class Unreachable:
    """The sites that serve the address cannot be reached."""

    egresses: tuple[RouterId, ...]


@attrs.frozen
class Nobody:
    """No site serves the address."""


Answer: TypeAlias = Ways | Unreachable | Nobody


@attrs.frozen
class Multicast:
    """Where a multicast goes from here.

    Attributes:
        local: the site's own receivers.
        branches: neighbor → the egresses behind it.
        unreachable: egresses to which the tree does not lead; only told at the origin.
    """

    local: tuple[Way, ...]
    branches: Mapping[RouterId, tuple[RouterId, ...]]
    unreachable: tuple[RouterId, ...] = ()


@attrs.frozen
class Dropped:
    """A multicast did not come on the tree of its origin."""

    rule: str


@attrs.frozen
class Pending:
    """The tree of the origin is being computed; ``TreeReady`` follows."""

    origin: RouterId


class Order(enum.Enum):
    """How ways to receivers of one delivery are compared."""

    CLOSEST = "closest"
    BALANCED = "balanced"


def may_pass(router: RouterId, passed: Sequence[str]) -> str | None:
    """Returns why a router releases a delivery that has passed others; None: it may pass."""
    if router in passed:
        return f"the delivery has passed {router} before"
    if len(passed) >= HOPS_MOST:
        return f"the delivery has passed {HOPS_MOST} routers"
    return None


@attrs.define(eq=False)
class Paths:
    """Answers the question for one router. The mesh keeps it up to date; the data plane reads it.

    Attributes:
        site: the router's own.
        index: what all sites have announced, this one among them.
        tree: the router's own tree.
        ask_tree: has the tree of another origin computed.
    """

    site: Site
    index: Index
    tree: Tree
    ask_tree: Callable[[RouterId], None]
    _trees: dict[RouterId, Branches] = attrs.field(factory=dict, init=False)
    _loads: dict[tuple[RouterId, str], int] = attrs.field(factory=dict, init=False)
    _held_at: dict[RouterId, str] = attrs.field(factory=dict, init=False)

    def find(self, address: str, order: Order) -> Answer:
        """Answers for a delivery that one receiver gets."""
        own = self.site.router
        sites = dict.fromkeys(self.index.best(address))
        serves = own in sites
        sites.pop(own, None)
        local = self._local(address)
        if not (local or sites or serves):
            return Nobody()
        ways = [*local, *(self._way(site, address) for site in sites if site in self.tree.hops)]
        if order is Order.BALANCED:
            ways.sort(key=lambda way: (way.cost + way.load, way.cost, way.egress, way.hop))
        else:
            ways.sort(key=lambda way: (way.cost, way.egress, way.hop))
        if not local and serves:
            ways.append(Way(egress=own, through=Through.HERE, hop=""))
        return Ways(tuple(ways)) if ways else Unreachable(tuple(sites))

    def branches(
        self, address: str, origin: RouterId, came_from: RouterId | None
    ) -> Multicast | Dropped | Pending:
        """Answers for a multicast.

        Args:
            address: its address.
            origin: the router where it entered the mesh.
            came_from: the neighbor that sent it; None: it enters here.
        """
        own, sites = self.site.router, self.index.every(address)
        hops: Mapping[RouterId, RouterId]
        if origin == own:
            if came_from is not None:
                return Dropped(f"it came back from {came_from}")
            hops = self.tree.hops
            unreachable = tuple(site for site in sites if site not in hops and site != own)
        else:
            tree = self._trees.get(origin)
            if tree is None or tree.topology != self.tree.topology:
                self.ask_tree(origin)
                return Pending(origin)
            if came_from != tree.parent:
                return Dropped(f"it came from {came_from}; the tree of {origin} has {tree.parent}")
            hops, unreachable = tree.behind, ()
        found: dict[RouterId, tuple[RouterId, ...]] = {}
        for site in sites:
            hop = hops.get(site)
            if hop is not None:
                found[hop] = (*found.get(hop, ()), site)
        return Multicast(self._local(address), found, unreachable)

    def hop_to(self, egress: RouterId, address: str = "") -> Way | None:
        """Returns the way to an egress that was chosen already, as transit needs it."""
        return self._way(egress, address) if egress in self.tree.hops else None

    def publish(self, tree: Tree) -> None:
        """Takes over the router's own tree; other trees are void."""
        self.tree = tree
        self._trees.clear()

    def publish_branches(self, tree: Branches) -> None:
        """Takes over the tree of another origin."""
        if len(self._trees) >= TREES_MOST:
            del self._trees[next(iter(self._trees))]
        self._trees[tree.origin] = tree

    def tell_load(self, egress: RouterId, address: str, load: int) -> None:
        """Records the load of an egress for an address; 0 forgets it."""
        if load:
            self._loads[egress, address] = load
        else:
            self._loads.pop((egress, address), None)

    def forget_loads(self, egress: RouterId) -> None:
        """Forgets what an egress that is gone has told."""
        for key in [key for key in self._loads if key[0] == egress]:
            del self._loads[key]

    def hold_at(self, neighbor: RouterId, place: str) -> None:
        """Records which worker has the connection to a neighbor."""
        self._held_at[neighbor] = place

    def _way(self, site: RouterId, address: str) -> Way:
        hop = self.tree.hops[site]
        return Way(
            egress=site,
            through=Through.ROUTER,
            hop=hop,
            place=self._held_at.get(hop, ""),
            cost=self.tree.costs[site],
            load=self._loads.get((site, address), 0),
        )

    def _local(self, address: str) -> tuple[Way, ...]:
        return tuple(self._local_way(place, load) for place, load in self.site.places(address))

    def _local_way(self, place: str, load: int) -> Way:
        own = self.site.router
        if place.startswith(EDGE_PLACE):
            edge = RouterId(place.removeprefix(EDGE_PLACE))
            at = self._held_at.get(edge, "")
            return Way(
                egress=own, through=Through.EDGE, hop=edge, place=at, cost=EDGE_COST, load=load
            )
        if place:
            return Way(egress=own, through=Through.SIBLING, hop=place, cost=SIBLING_COST, load=load)
        return Way(egress=own, through=Through.HERE, hop="", load=load)
