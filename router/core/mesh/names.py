"""Names between routers of a mesh.

A neighbor's connection has a name like a configured container's, with a colon, which no configured
name contains.
"""

from typing import Final

from router.links.link import Connection
from router.routes.mesh.nouns import RouterId

CONTROL: Final = "$mesh"
"""Target of the links that carry the control plane; no route has it, and none but a neighbor."""

_SITE: Final = "mesh:"


def site_name(router: str) -> str:
    """Returns the name by which a neighbor appears among containers."""
    return f"{_SITE}{router}"


def is_site_name(container: str | None) -> bool:
    """Returns whether a container's name is that of a neighbor."""
    return container is not None and container.startswith(_SITE)


def is_site(connection: Connection | None) -> bool:
    """Returns whether a connection leads to a neighbor of the mesh."""
    return connection is not None and is_site_name(connection.configured)


def router_named(container: str) -> RouterId:
    """Returns the id of a neighbor from its name."""
    return RouterId(container.removeprefix(_SITE))
