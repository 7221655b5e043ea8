"""Rules about the homes of exactly-once routes (``router.core.homes``)."""

from collections.abc import Mapping

from router.core.homes import group, is_exact, is_spread
from router.routes.match import overlaps, parse_pattern
from router.routes.route import Route
from router.routes.table import RoutingTable


def moved(old: RoutingTable, new: RoutingTable) -> tuple[Route, Route] | None:
    """Returns a route by whose change an address would get another home.

    Returns:
        That route, and one that keeps addresses of it at the first worker; None: there is none.
    """
    before, groups_before = _by_address(old), group(old.routes)
    after, groups_after = _by_address(new), group(new.routes)
    changed = [
        before.get(address) or after[address]
        for address in (*before, *(each for each in after if each not in before))
        if _place_of(before.get(address), groups_before)
        != _place_of(after.get(address), groups_after)
    ]
    if not changed:
        return None
    kept = [
        route
        for route in (*before.values(), *after.values())
        if is_exact(route) and not is_spread(route)
    ]
    pairs = ((one, other) for one in changed for other in kept)
    return next((pair for pair in pairs if are_overlapping(*pair)), None)


def are_overlapping(one: Route, other: Route) -> bool:
    """Returns whether some address matches the patterns of both."""
    return overlaps(parse_pattern(one.address), parse_pattern(other.address))


def _by_address(table: RoutingTable) -> dict[str, Route]:
    return {route.address: route for route in table.routes}


def _place_of(route: Route | None, groups: Mapping[str, str]) -> tuple[object, ...] | None:
    if route is None:
        return None
    group_name = None if is_spread(route) else groups.get(route.endpoints[0].container)
    return is_exact(route), is_spread(route), group_name if is_exact(route) else None
