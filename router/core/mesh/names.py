"""Names between routers of a mesh.

A neighbor's connection has a name like a configured container's, with a colon, which no configured
name contains. The connection of an edge to its hub is named after the edge at the hub, and after
the place that was dialed at the edge.
"""

from collections.abc import Mapping
from typing import Final

from router.links.attaches import ATTACH
from router.links.link import Connection, IncomingLink
from router.model.events import LinkAttached
from router.model.identity import LinkName
from router.model.ways import Chain
from router.routes.match import canonical, parse_pattern
from router.routes.mesh.nouns import DYNAMIC, RouterId, dynamic_prefix

CONTROL: Final = "$mesh"
"""Target of the links that carry the control plane; no route has it, and none but a neighbor."""

INGRESS: Final = "router:ingress"
EGRESS: Final = "router:egress"
"""Properties of the attach of a link between sites: the ends of its chain."""

VOUCHED: Final = "router:vouched"
"""Property of the attach of an exactly-once chain: the ingress has signed it (``chains``)."""

MESH_USER: Final = "\0mesh"
"""Identity of the far end of an exactly-once chain; no mechanism gives it to a client."""

FRAME_OCTETS_LEAST: Final = 1 << 16
"""Frames of this size every router takes from its neighbors: one of them has to hold the attach of
an exactly-once chain, with its unsettled map, at each hop."""

EDGE: Final = "router:edge"
"""Property of an edge's open."""

_ID_CHARACTERS: Final = 256
"""Most characters of a router's id, as the configuration bounds them."""

_SITE: Final = "mesh:"
_EDGE: Final = "edge:"


def site_name(router: str) -> str:
    """Returns the name by which a neighbor appears among containers."""
    return f"{_SITE}{router}"


def is_site_name(container: str | None) -> bool:
    """Returns whether a container's name is that of a neighbor."""
    return container is not None and container.startswith(_SITE)


def is_site(connection: Connection | None) -> bool:
    """Returns whether a connection leads to a neighbor of the mesh, or is an ingress there."""
    if connection is None:
        return False
    return connection.is_ingress or is_site_name(connection.configured)


def comes_by_mesh(incoming: IncomingLink) -> bool:
    """Returns whether deliveries of a link have passed the mesh, whether or not it is attached."""
    return incoming.key.user == MESH_USER or is_site(incoming.connection)


def edge_name(router: str) -> str:
    """Returns the name of a connection between an edge and its hub."""
    return f"{_EDGE}{router}"


def is_edge_name(container: str | None) -> bool:
    """Returns whether a name is that of a connection between an edge and its hub."""
    return container is not None and container.startswith(_EDGE)


def is_edge(connection: Connection | None) -> bool:
    """Returns whether a connection is one between an edge and its hub."""
    return connection is not None and is_edge_name(connection.configured)


def is_neighbor_name(container: str | None) -> bool:
    """Returns whether a container's name is that of a neighbor, an edge or a hub."""
    return is_site_name(container) or is_edge_name(container)


def is_neighbor(connection: Connection | None) -> bool:
    """Returns whether a connection leads to a neighbor, an edge or a hub."""
    return connection is not None and is_neighbor_name(connection.configured)


def router_named(container: str) -> RouterId:
    """Returns the id of a neighbor from its name."""
    return RouterId(container.removeprefix(_SITE).removeprefix(_EDGE))


def with_dynamic(router: str, advertise: tuple[str, ...]) -> tuple[str, ...]:
    """Returns what a site serves: as its file says, and the dynamic nodes made at it."""
    own = dynamic_prefix(router)
    known = {canonical(parse_pattern(text)) for text in advertise}
    return advertise if canonical(parse_pattern(own)) in known else (*advertise, own)


def maker_named(address: str) -> str | None:
    """Returns the router in the address of a dynamic node; None: it is no such address.

    The tokens of an address are separated by ``/`` or ``.``, which are the same.
    """
    router, is_dynamic, _ = as_dots(address).partition(f".{DYNAMIC}.")
    return router if is_dynamic else None


def as_dots(text: str) -> str:
    """Returns an address, or the id in it, with dots alone between its tokens."""
    return text.replace("/", ".")


def link_name(chain: Chain, address: str) -> LinkName:
    """Returns the name of the links of a chain for an address."""
    return LinkName(f"{chain.ingress}>{chain.egress}:{address}")


def is_exact(event: LinkAttached) -> bool:
    """Returns whether an attach between sites is that of an exactly-once chain: it is numbered."""
    return ATTACH in event.properties


def ending_chain(event: LinkAttached, router: str) -> Chain | None:
    """Returns the exactly-once chain of an attach, if it ends at a router."""
    chain = read_chain(event.properties)
    ends = chain is not None and chain.egress == router and is_exact(event)
    return chain if ends else None


def address_of(event: LinkAttached) -> str | None:
    """Returns the address that an attaching sender names; None: it names none."""
    address = getattr(event.target, "address", None)
    return address if isinstance(address, str) else None


def chain_properties(chain: Chain | None) -> dict[object, object]:
    """Returns the link properties that name a chain."""
    return {} if chain is None else {INGRESS: chain.ingress, EGRESS: chain.egress}


def read_chain(properties: Mapping[object, object]) -> Chain | None:
    """Returns the chain that the properties of an attach name; None: they name none."""
    ends = [properties.get(INGRESS), properties.get(EGRESS)]
    found = [end for end in ends if isinstance(end, str) and 0 < len(end) <= _ID_CHARACTERS]
    return Chain(*found) if len(found) == len(ends) else None
