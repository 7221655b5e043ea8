"""What a reload would do, or does: the differences between two configurations, with effects.

A rehearsal changes nothing. It knows the configuration in force and the one in the file; how much
is affected (links, unsettled deliveries) it reads from the routes' records; where a route's pattern
has wildcards, from its links, whose addresses other routes may take.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from router.core.listing import LinkRecord
from router.core.snapshot import RouteRecord
from router.model.terminus import Role
from router.routes.match import parse_pattern
from router.routes.route import Guarantee, Route
from router.service.config import RouterConfig
from router.service.difference import Change, Difference, compare

FindRecord = Callable[[str], RouteRecord | None]
"""Returns the record of the route in force that has a name; None: nothing has used it."""

ListLinks = Callable[[str], Awaitable[Sequence[LinkRecord] | None]]
"""Lists the links of the route in force that has a name; None: there are too many."""

Links = Mapping[str, Sequence[LinkRecord] | None]
"""Links by the name of their route, as ``ListLinks`` lists them."""

KEPT: Final = "kept until there is a route again"
"""Ends what is foreseen of unsettled deliveries; a reload knows it itself (``Difference.kept``)."""

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


def divided(old: RouterConfig, new: RouterConfig, find: FindRecord) -> Iterator[str]:
    """Yields the routes in force of whose addresses each may go another way.

    They are those with wildcards that are gone or work the other way round, and are in use.
    """
    after = {route.address: route for route in new.routes}
    for route in old.routes:
        new_route = after.get(route.address)
        if new_route is not None and _is_one_way(new_route) is _is_one_way(route):
            continue
        if parse_pattern(route.address).is_literal:
            continue
        record = find(route.name)
        if record is not None and (record.addresses or record.suspended):
            yield route.name


def rehearse(
    old: RouterConfig, new: RouterConfig, find: FindRecord, links: Links
) -> tuple[Difference, ...]:
    """Lists what a reload would change, with the effects of each change.

    Args:
        old: the configuration in force.
        new: the one in the file.
        find: finds records of the routes of ``old``.
        links: of the routes that are ``divided``.
    """
    before = {route.address: route for route in old.routes}
    after = {route.address: route for route in new.routes}
    found = []
    for each in compare(old, new):
        name = each.name or ""
        effects: Iterator[str] = iter(each.effects)
        if each.section == "routes":
            known = _Known(old, new, find, links)
            effects = _route_effects(before.get(name), after.get(name), known)
        elif each.section == "containers":
            effects = iter((_CONTAINER_EFFECTS[each.change],))
        elif each.section == "listeners":
            effects = iter((_LISTENER_EFFECTS[each.change],))
        elif each.section == "policy":
            effects = _policy_effects(old, new)
        found.append(attrs.evolve(each, effects=tuple(effects)))
    return tuple(found)


def _policy_effects(old: RouterConfig, new: RouterConfig) -> Iterator[str]:
    if new.policy.rules:
        yield "links that the rules do not allow any more are detached"
    elif old.policy.rules:
        yield "there are no rules any more: everything is allowed to everybody"


@attrs.frozen
class _Known:
    """What is known of the two configurations and of the routes in force."""

    old: RouterConfig
    new: RouterConfig
    find: FindRecord
    links: Links


@attrs.define
class _Detached:
    """How many links and deliveries of a route have no route any more."""

    senders: int = 0
    receivers: int = 0
    unsettled: int = 0


def _route_effects(old: Route | None, new: Route | None, known: _Known) -> Iterator[str]:
    if old is None and new is not None:
        yield from _succession(new, known.old, "takes this address from route")
    if old is not None and (new is None or _is_one_way(old) is not _is_one_way(new)):
        if parse_pattern(old.address).is_literal:
            yield from _end_of_address(old, new, known)
        else:
            yield from _end_of_pattern(old, known)
    ends_before, ends_after = _ends(old), _ends(new)
    yield from (f"link {end} ends" for end in ends_before if end not in ends_after)
    yield from (f"link {end} is new" for end in ends_after if end not in ends_before)


def _end_of_address(old: Route, new: Route | None, known: _Known) -> Iterator[str]:
    successor = None if new is not None else _taker(old, known.new)
    if successor is None or _is_one_way(old) is not _is_one_way(successor):
        yield from _all_detached(old, known.find(old.name))
    else:
        yield f"route '{successor.name}' takes this address; its links stay attached"


def _end_of_pattern(old: Route, known: _Known) -> Iterator[str]:
    """Describes what becomes of the addresses in use, each of which is looked up by itself."""
    links = known.links.get(old.name, ())
    if links is None:
        told = _all_detached(old, known.find(old.name))
        yield from (f"unless other routes take its addresses, {each}" for each in told)
        return
    detached, taken = _Detached(), dict[str, int]()
    for link in links:
        match = None if link.address is None else known.new.table.lookup(link.address)
        is_attached = link.link is not None and link.configured is None
        if match is not None and _is_one_way(match.route) is _is_one_way(old):
            taken[match.route.name] = taken.get(match.route.name, 0) + is_attached
        elif link.role is Role.RECEIVER:
            detached.senders += is_attached
            detached.unsettled += link.unsettled
        else:
            detached.receivers += is_attached
    yield from _detachments(old, detached)
    for name, count in taken.items():
        stay = "; 1 link stays attached" if count == 1 else f"; {count} links stay attached"
        yield f"route '{name}' takes addresses of it{stay if count else ''}"


def _all_detached(route: Route, record: RouteRecord | None) -> Iterator[str]:
    if record is not None:
        counts = _Detached(record.senders, record.receivers, record.incoming_unsettled)
        yield from _detachments(route, counts)


def _detachments(route: Route, detached: _Detached) -> Iterator[str]:
    """Describes what becomes of links and deliveries whose route is no more."""
    links = [
        f"{count} {noun}" if count == 1 else f"{count} {noun}s"
        for count, noun in ((detached.senders, "sender"), (detached.receivers, "receiver"))
        if count
    ]
    if links:
        is_one = detached.senders + detached.receivers == 1
        yield f"{' and '.join(links)} {'is' if is_one else 'are'} detached"
    count = detached.unsettled
    if count and route.guarantee is Guarantee.EXACTLY_ONCE:
        deliveries = (
            "1 unsettled delivery is" if count == 1 else f"{count} unsettled deliveries are"
        )
        yield f"{deliveries} {KEPT}"


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
