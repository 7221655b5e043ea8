"""Where a node's deliveries may go over the mesh: the answers of ``routes.mesh.paths`` as uplinks.

Chains. Deliveries from one site to another pass a *chain* of links: one link at each hop, for each
ingress, egress and address. A router between is a *transit*: it has a node of its own for each
chain (direction ``TRANSIT``), with one incoming and one outgoing link, so it grants its sender what
its receiver grants, and keeps no more than a session's window. So a receiver that is slow, or
stops, holds up its own chains alone.

The ingress chooses the egress. A node of a direct route has an uplink to each site that serves its
address, beside the links to the site's own receivers; the distribution chooses among those with
credit. ``closest`` compares the cost of the ways; ``balanced`` adds it to the load, as so many
deliveries. At a transit the chain names the egress, and only the next hop is chosen there.

Edges. To a hub an edge is a router with receivers of its own, and to the edge the hub is one that
has all others: links between them are those of two routers that name each other, with ways and
stops instead of chains. What an edge sends enters the mesh at its hub.

What came over the mesh to its egress stays at this site (``reach.is_out_of_reach``).

An exactly-once route has one link to each egress, and transits have no node of it (``chains``).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import attrs

from router.core.mesh.names import as_dots, edge_name, maker_named, site_name
from router.core.node import Direction, Node
from router.links.link import OutgoingLink
from router.model.ways import Chain
from router.routes.mesh.bodies import Notary
from router.routes.mesh.edge import Edge
from router.routes.mesh.nouns import RouterId
from router.routes.mesh.paths import (
    Multicast,
    Nobody,
    Order,
    Paths,
    Through,
    Unreachable,
    Ways,
)
from router.routes.route import Distribution, Endpoint, LinkTerms, Route
from router.routes.vhost import is_reserved

EGRESSES_MOST: Final = 16
"""Sites to which a node has uplinks if one receiver gets each delivery: the nearest."""

_OWN: Final = "$"
"""Begins addresses of the router's own, such as the management node's."""


@attrs.define(eq=False)
class SiteWays:
    """Answers for the nodes of one worker.

    Attributes:
        router: this router's id.
        find_paths: returns the paths of the mesh; None: there is no mesh.
        find_notary: returns who signs for this router; None: there is no mesh.
        find_place: returns the worker that has the connections to other sites; None: this one.
        find_edge: returns the machine of an edge; None: this router is none.
        edges: by address, the names of the edges of this router that have receivers.
    """

    router: RouterId
    find_paths: Callable[[], Paths | None]
    find_place: Callable[[], str | None]
    find_edge: Callable[[], Edge | None]
    find_notary: Callable[[], Notary | None]
    edges: dict[str, dict[str, None]] = attrs.field(factory=dict, init=False)

    def ends(self, node: Node) -> Iterator[Endpoint]:
        """Yields the first hop of each way that a node's deliveries may take to another site."""
        paths, edge = self.find_paths(), self.find_edge()
        if node.is_exact:
            if is_shared(node):
                yield from self._exact_ends(paths, node)
            return
        if edge is not None and is_shared(node):
            yield Endpoint(edge_name(edge.active or edge.preferred))
        if paths is None:
            return
        for name in self.edges.get(node.key.address, ()) if is_shared(node) else ():
            yield Endpoint(name)
        if node.key.chain is not None:
            way = paths.hop_to(RouterId(node.key.chain.egress))
            if way is not None and site_name(way.hop) not in _sources(node):
                yield self._end(paths, way.hop, node.key.chain)
        elif is_shared(node):
            maker = maker_named(node.key.address)
            is_made = maker is not None and self.knows(maker)
            for egress, hop in _egresses(paths, node, self.router):
                if not is_made or as_dots(egress) == maker:
                    yield self._end(paths, hop, Chain(self.router, egress))

    def _end(self, paths: Paths, hop: str, chain: Chain) -> Endpoint:
        """Returns the first hop of a chain, from this worker.

        An egress that cannot be reached is its own hop: a container that is away (``_nearest``).
        """
        is_reached = chain.egress in paths.tree.hops
        place = self.find_place() if is_reached else None
        return Endpoint(place or site_name(hop), terms=LinkTerms(chain=chain))

    def _exact_ends(self, paths: Paths | None, node: Node) -> Iterator[Endpoint]:
        """Yields the sites themselves: those that serve a node's address, and where it is bound.

        A link to each is one link, whichever its next hop is at present (``hop_to``).
        """
        egresses: dict[str, None] = {}
        if paths is not None:
            egresses.update((egress, None) for egress, _ in _egresses(paths, node, self.router))
        links = (
            *node.outgoing,
            *(each for each in node.returning if isinstance(each, OutgoingLink)),
        )
        for link in links:
            if link.chain is not None and (link.unsettled or link.adrift):
                egresses[link.chain.egress] = None
        for egress in egresses:
            chain = Chain(self.router, RouterId(egress))
            yield Endpoint(site_name(egress), terms=LinkTerms(chain=chain))

    def hop_to(self, egress: str) -> str | None:
        """Returns the name of the neighbor by which a site is reached; None: there is none.

        For a worker that has no neighbors it is the worker that has them.
        """
        paths = self.find_paths()
        way = None if paths is None else paths.hop_to(RouterId(egress))
        return None if way is None else self.find_place() or site_name(way.hop)

    def missed_by(self, node: Node) -> tuple[RouterId, ...]:
        """Returns the sites that serve a multicast's address, and that no way leads to."""
        paths = self.find_paths()
        if paths is None or not (node.is_multicast and is_shared(node)):
            return ()
        found = paths.branches(node.key.address, self.router, None)
        return found.unreachable if isinstance(found, Multicast) else ()

    def serves(self, address: str) -> bool:
        """Returns whether some site, this one included, has advertised an address."""
        paths = self.find_paths()
        if paths is None or not is_sharable(address):
            return False
        return not isinstance(paths.find(address, Order.CLOSEST), Nobody)

    def knows(self, router: str) -> bool:
        """Returns whether a router of the mesh has an id, with ``/`` and ``.`` as the same."""
        paths = self.find_paths()
        known = () if paths is None else paths.tree.costs
        return any(as_dots(each) == router for each in known)

    def cost_to(self, egress: str) -> int:
        """Returns the cost of the way to a site; 0: there is none at present."""
        paths = self.find_paths()
        return 0 if paths is None else paths.tree.costs.get(RouterId(egress), 0)


def _sources(node: Node) -> set[str | None]:
    """Returns the names of the neighbors that send to a node; a chain does not lead back to one."""
    found = (incoming.connection for incoming in node.feeds)
    return {connection.configured for connection in found if connection is not None}


def _egresses(paths: Paths, node: Node, own: RouterId) -> Iterator[tuple[RouterId, str]]:
    """Yields the sites that serve a node's address, the nearest first, and the hop to each."""
    if node.is_multicast:
        found = paths.branches(node.key.address, own, None)
        branches: Mapping[RouterId, tuple[RouterId, ...]] = (
            found.branches if isinstance(found, Multicast) else {}
        )
        for hop, egresses in branches.items():
            for egress in egresses:
                yield egress, hop
        return
    yield from _nearest(paths, node)


def _nearest(paths: Paths, node: Node) -> Iterator[tuple[RouterId, str]]:
    """Yields the nearest sites that serve a node's address, and the hop to each.

    If none of them can be reached, each is its own next hop: what is unsettled waits for it, as for
    a container that is away, and goes on as soon as there is a way again.
    """
    is_closest = node.route.distribution is Distribution.CLOSEST
    answer = paths.find(node.key.address, Order.CLOSEST if is_closest else Order.BALANCED)
    match answer:
        case Unreachable(egresses):
            for egress in egresses[:EGRESSES_MOST]:
                yield egress, egress
        case Ways(ways):
            far = [way for way in ways if way.through is Through.ROUTER]
            for way in far[:EGRESSES_MOST]:
                yield way.egress, way.hop
        case Nobody():
            pass


def is_shared(node: Node) -> bool:
    """Returns whether a node's address is shared with other sites: a direct route's, or none's."""
    is_meeting = node.key.direction is Direction.MEETING
    return is_meeting and is_shared_route(node.key.address, node.route)


def is_shared_route(address: str, route: Route) -> bool:
    """Returns whether addresses of a route are shared with other sites."""
    return is_sharable(address) and is_direct(route)


def is_direct(route: Route) -> bool:
    """Returns whether a route has no container at either end."""
    return route.from_ is None and not route.to


def is_sharable(address: str) -> bool:
    """Returns whether other sites may know of an address."""
    return not (is_reserved(address) or address.startswith(_OWN))
