"""Dead letters: where a route's deliveries go that nobody can take.

They have a node of their own, which leads to the container that the route names and is known by
what their address is called there. Another worker may dial that container: then our link to that
worker names the address that the deliveries were sent to, and says by a property of its attach that
it brings dead letters; the other worker finds their node by the same table.
"""

from typing import Final

import attrs

from router.core.node import Direction, NodeKey
from router.routes.route import Distribution, Endpoint, Route, Unroutable
from router.routes.table import Match

DEAD_LETTERS: Final = "router:dead-letters"
"""Property of the attach of a link between workers: it brings dead letters of its target."""


def find_dead_letters(match: Match) -> tuple[NodeKey, Route] | None:
    """Returns the node of an address' dead letters, where they wait as long as it takes.

    Args:
        match: how the address was found.

    Returns:
        None: its route has no place for dead letters.
    """
    endpoint = match.route.dead_letter
    if endpoint is None:
        return None
    address = match.address_at(endpoint)
    route = attrs.evolve(
        match.route,
        from_=None,
        to=(Endpoint(endpoint.container, address),),
        distribution=Distribution.BALANCED,
        unroutable=Unroutable.HOLD,
        store=None,
        dead_letter=None,
        ttl_seconds=None,
    )
    return NodeKey(address, Direction.TOWARDS, endpoint.container), route
