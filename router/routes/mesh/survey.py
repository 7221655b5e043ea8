"""What people see of a mesh: the links of this router, and all sites that it knows."""

import attrs

from router.routes.mesh.nouns import Role, RouterId


@attrs.frozen(kw_only=True)
class LinkState:
    """A link to a neighbor, connected or only configured.

    Attributes:
        router: the neighbor.
        cost: for what this router sends.
        is_up: both ends have heard each other.
        role: what the neighbor is.
        is_active: messages take it; an edge uses one of its uplinks at a time.
    """

    router: RouterId
    cost: int
    is_up: bool
    role: Role = Role.ROUTER
    is_active: bool = False


@attrs.frozen(kw_only=True)
class SiteState:
    """A router of the mesh.

    Attributes:
        router: its id.
        cost: of the way to it; None: there is none.
        hop: the neighbor on that way; empty: it is this router, or there is no way.
        links: its neighbors, each with the cost, as it says.
        prefixes: patterns that it serves.
        addresses: how many single addresses it serves beside these.
    """

    router: RouterId
    cost: int | None
    hop: str
    links: tuple[tuple[RouterId, int], ...]
    prefixes: tuple[str, ...]
    addresses: int


@attrs.frozen(kw_only=True)
class Survey:
    """The mesh as one router knows it.

    Attributes:
        router: which.
        links: to its neighbors.
        sites: all routers, this one too, by id.
        is_edge: the router is an edge: it knows no sites, and the links are its uplinks.
    """

    router: RouterId
    links: tuple[LinkState, ...]
    sites: tuple[SiteState, ...]
    is_edge: bool = False
