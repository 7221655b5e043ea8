"""How the deliveries of a route that pulls by a pattern are forwarded; see ``pulls``."""

from collections.abc import Mapping
from hashlib import blake2s
from typing import Final

from router.core.node import Direction, Node
from router.core.settings import ContainerTerms
from router.model.terminus import Role
from router.routes.match import has_wildcards
from router.routes.route import Endpoint, Route

NAME_OCTETS: Final = 200
"""Longest name of a subscription before its digest; brokers take 255."""

DIGEST_OCTETS: Final = 8


def scatters(route: Route, terms: Mapping[str, ContainerTerms]) -> bool:
    """Returns whether each delivery that a route pulls goes to the node of its own address."""
    if not route.pulls_many:
        return False
    if not route.is_bridge or route.store is not None:
        return True  # the store keeps the order of each address, and knows its messages by that
    named = (each.container for each in route.to if names_each(each))
    return any(name not in terms or not terms[name].takes_addresses for name in named)


def names_each(endpoint: Endpoint) -> bool:
    """Returns whether a target has a name of its own for each address of a pattern."""
    return endpoint.address is None or has_wildcards(endpoint.address)


def pulls_here(node: Node) -> bool:
    """Returns whether a node is the one to which its route's link from a container belongs."""
    route = node.route
    if route.from_ is None or node.key.direction is not Direction.MEETING:
        return False
    return not route.pulls_many or node.key.address == route.address


def is_spread(node: Node, endpoint: Endpoint, role: Role) -> bool:
    """Returns whether a link of ours carries deliveries for many addresses to its target."""
    is_pattern = node.route.pulls_many and node.key.address == node.route.address
    return role is Role.SENDER and is_pattern and names_each(endpoint)


def subscription_name(router_id: str, route: Route) -> str:
    """Returns the name of the queue that feeds a route, if it pulls from an exchange."""
    name = f"{router_id}.{route.name}"
    octets = name.encode(errors="surrogateescape")
    if len(octets) <= NAME_OCTETS:
        return name
    digest = blake2s(octets, digest_size=DIGEST_OCTETS).hexdigest()
    return f"{octets[:NAME_OCTETS].decode(errors='ignore')}.{digest}"
