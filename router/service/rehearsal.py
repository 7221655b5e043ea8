"""What a reload would do: the differences between two configurations, each with its effects.

A rehearsal changes nothing. It knows the configuration in force and the one in the file; how much
is affected (links, unsettled deliveries) it reads from the routes' records.
"""

from collections.abc import Callable, Iterator
from typing import Final

import attrs

from router.core.snapshot import RouteRecord
from router.routes.match import parse_pattern
from router.routes.route import Guarantee, Route
from router.service.config import RouterConfig
from router.service.difference import Change, Difference, compare

FindRecord = Callable[[str], RouteRecord | None]
"""Returns the record of the route in force that has a name; None: nothing has used it."""

_CONTAINER_EFFECTS: Final = {
    Change.ADDED: "it is dialed",
    Change.REMOVED: "its connection is closed",
    Change.CHANGED: "its connection is closed and dialed anew; its links are attached again",
}
_LISTENER_EFFECTS: Final = {
    Change.ADDED: "it is opened",
    Change.REMOVED: "it is closed; the connections that it has accepted stay",
    Change.CHANGED: "it applies to new connections; those that stand stay as they are",
}


def rehearse(old: RouterConfig, new: RouterConfig, find: FindRecord) -> tuple[Difference, ...]:
    """Lists what a reload would change, with the effects of each change.

    Args:
        old: the configuration in force.
        new: the one in the file.
        find: finds records of the routes of ``old``.
    """
    before = {route.address: route for route in old.routes}
    after = {route.address: route for route in new.routes}
    found = []
    for each in compare(old, new):
        name = each.name or ""
        effects: Iterator[str] = iter(each.effects)
        if each.section == "routes":
            effects = _route_effects(before.get(name), after.get(name), old, new, find)
        elif each.section == "containers":
            effects = iter((_CONTAINER_EFFECTS[each.change],))
        elif each.section == "listeners":
            effects = iter((_LISTENER_EFFECTS[each.change],))
        found.append(attrs.evolve(each, effects=tuple(effects)))
    return tuple(found)


def _route_effects(
    old: Route | None,
    new: Route | None,
    old_config: RouterConfig,
    new_config: RouterConfig,
    find: FindRecord,
) -> Iterator[str]:
    if old is None and new is not None:
        yield from _succession(new, old_config, "takes this address from route")
    if old is not None and (new is None or _is_one_way(old) is not _is_one_way(new)):
        successor = None if new is not None else _taker(old, new_config)
        if successor is None or _is_one_way(old) is not _is_one_way(successor):
            yield from _detachments(old, find(old.name))
        elif successor is not None:
            yield f"route '{successor.name}' takes this address; its links stay attached"
    ends_before, ends_after = _ends(old), _ends(new)
    yield from (f"link {end} ends" for end in ends_before if end not in ends_after)
    yield from (f"link {end} is new" for end in ends_after if end not in ends_before)


def _detachments(route: Route, record: RouteRecord | None) -> Iterator[str]:
    """Describes what becomes of the links and deliveries of a route that is no more."""
    if record is None:
        return
    links = [
        f"{count} {noun}" if count == 1 else f"{count} {noun}s"
        for count, noun in ((record.senders, "sender"), (record.receivers, "receiver"))
        if count
    ]
    if links:
        is_one = record.senders + record.receivers == 1
        yield f"{' and '.join(links)} {'is' if is_one else 'are'} detached"
    count = record.incoming_unsettled
    if count and route.guarantee is Guarantee.EXACTLY_ONCE:
        deliveries = (
            "1 unsettled delivery is" if count == 1 else f"{count} unsettled deliveries are"
        )
        yield f"{deliveries} kept until there is a route again"


def _succession(route: Route, config: RouterConfig, words: str) -> Iterator[str]:
    other = _taker(route, config)
    if other is not None:
        yield f"{words} '{other.name}'"


def _taker(route: Route, config: RouterConfig) -> Route | None:
    """Returns the route that takes a route's address in a configuration, if that is one address."""
    if not parse_pattern(route.address).is_literal:
        return None
    match = config.table.lookup(route.address)
    return None if match is None else match.route


def _is_one_way(route: Route) -> bool:
    """Returns whether messages of local senders go to containers (``core.reload``)."""
    return bool(route.to) and not route.is_bridge


def _ends(route: Route | None) -> list[str]:
    """Returns the ends of a route's links to containers, as the file words them."""
    if route is None:
        return []
    source = [] if route.from_ is None else [f"from {route.from_}"]
    return source + [f"to {each}" for each in route.to]
