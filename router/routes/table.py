"""The routing table: all routes of a configuration, and the look-up of the one for an address.

A table never changes; a reload makes a new one, and ``difference`` compares the two.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final

import attrs

from router.routes.match import (
    SLICE_PATTERNS,
    Pattern,
    PatternTree,
    canonical,
    capture,
    describe_advantage,
    parse_pattern,
)
from router.routes.rewrite import rename
from router.routes.route import Endpoint, Guarantee, Route
from router.routes.vhost import outside, vhost_of

REMEMBERED_LOOKUPS: Final = 4096
"""Results cached for addresses that only wildcards match; the oldest is dropped for a new one."""

REMEMBERED_CHARACTERS: Final = 256
"""Longer addresses are looked up anew each time, so that peers cannot fill memory with them."""


@attrs.frozen
class Match:
    """The route that an address takes.

    It does not refer to its table, which remembers it: that ends when it is replaced, without the
    cyclic collector.

    Attributes:
        address: the address that was looked up.
        route: the winner.
    """

    address: str
    route: Route
    _pattern: Pattern = attrs.field(eq=False, repr=False)

    @property
    def captured(self) -> tuple[str, ...]:
        """What each wildcard of the route's pattern stands for, in order."""
        captured = capture(self._pattern, self.address)
        assert captured is not None, "the tree and the captures disagree"
        return captured

    def address_at(self, endpoint: Endpoint) -> str:
        """Returns the name of the address in the container of one of the route's endpoints."""
        if endpoint.address is None:
            return outside(self.address)
        return rename(self._pattern, self.captured, endpoint.address)


@attrs.frozen
class Beaten:
    """A route that matches too and did not win, and why not."""

    route: Route
    reason: str


@attrs.frozen
class Explanation:
    """The explanation of one lookup.

    Attributes:
        match: the winner; None if nothing matches.
        rule: why it won, in one line.
        beaten: what else matches, the most specific first.
    """

    address: str
    match: Match | None
    rule: str
    beaten: tuple[Beaten, ...] = ()


class RoutingTable:
    """All routes, found by address.

    Attributes:
        routes: in the order in which they were given.
        by_name: the same by their names; with the table, because traffic would wait for it later.
        vhosts: virtual hosts that have routes of their own.
        has_exact: some route promises exactly-once.
    """

    def __init__(self, routes: Iterable[Route] = ()) -> None:
        """Builds the table.

        Raises:
            PatternError: an address is no pattern, or two of them are equal.
        """
        for _ in self._build(tuple(routes)):
            pass

    @classmethod
    def in_slices(cls, routes: Iterable[Route]) -> Generator[None, None, "RoutingTable"]:
        """Builds a table, and yields now and then so that other work can be done.

        Raises:
            PatternError: as the constructor does.
        """
        table = cls.__new__(cls)
        yield from table._build(tuple(routes))
        return table

    def _build(self, routes: tuple[Route, ...]) -> Generator[None, None, None]:
        by_name: dict[str, Route] = {}
        vhosts = {""}
        self.routes: tuple[Route, ...] = routes
        self.by_name: Mapping[str, Route] = by_name
        self._remembered: dict[str, Match | None] = {}
        self._patterns: list[Pattern] = []
        self._index: dict[int, int] = {}
        self._has_unavailable = False
        self.has_exact = False
        for first in range(0, len(routes), SLICE_PATTERNS):
            for index, route in enumerate(routes[first : first + SLICE_PATTERNS], first):
                self._patterns.append(parse_pattern(route.address))
                self._index[id(route)] = index
                self._has_unavailable |= route.is_unavailable
                self.has_exact |= route.guarantee is Guarantee.EXACTLY_ONCE
                by_name[route.name] = route
                vhosts.add(route.vhost)
            yield
        self.vhosts = frozenset(vhosts - {""})
        self._tree = yield from PatternTree.in_slices(self._patterns)

    def lookup(self, address: str) -> Match | None:
        """Returns the route that an address takes; None: there is none, or it is unavailable."""
        try:
            return self._remembered[address]
        except KeyError:
            pass
        match = self._look_up(address)
        if len(address) <= REMEMBERED_CHARACTERS:
            if len(self._remembered) >= REMEMBERED_LOOKUPS:
                del self._remembered[next(iter(self._remembered))]
            self._remembered[address] = match
        return match

    def _look_up(self, address: str) -> Match | None:
        index = self._tree.find(address)
        if index is None or self.routes[index].vhost != vhost_of(address):
            return None
        if self.routes[index].is_unavailable:
            return None
        return Match(address, self.routes[index], self._patterns[index])

    def is_unavailable(self, address: str) -> bool:
        """Returns whether a route says that an address does not exist."""
        index = self._tree.find(address) if self._has_unavailable else None
        return index is not None and self.routes[index].is_unavailable

    def explain(self, address: str) -> Explanation:
        """Returns the route of an address, the rule that decided, and the routes that lost."""
        found = self._tree.find_all(address)
        if not found:
            return Explanation(address, None, "no route's address matches")
        winner, *others = found
        pattern = self._patterns[winner]
        beaten = tuple(
            Beaten(self.routes[other], describe_advantage(pattern, self._patterns[other]))
            for other in others
        )
        match = Match(address, self.routes[winner], pattern)
        return Explanation(address, match, _rule(pattern, beaten), beaten)

    @cached_property
    def by_container(self) -> Mapping[str, tuple[Route, ...]]:
        """The routes that pull from, or push to, a container, computed at the first call."""
        found: dict[str, dict[Route, None]] = {}
        for route in self.routes:
            for endpoint in (*route.to, *filter(None, (route.from_, route.fallback))):
                found.setdefault(endpoint.container, {})[route] = None
        return {name: tuple(routes) for name, routes in found.items()}

    def pattern_of(self, route: Route) -> Pattern:
        """Returns the parsed address of a route of this table."""
        return self._patterns[self._index[id(route)]]


def _rule(pattern: Pattern, beaten: Sequence[Beaten]) -> str:
    if not beaten:
        return f"'{pattern}' is the only route that matches"
    rule = f"'{pattern}' wins over '{beaten[0].route.address}': {beaten[0].reason}"
    more = len(beaten) - 1
    return f"{rule} (and over {more} more)" if more else rule


@attrs.frozen
class Difference:
    """The changes of a reload. Two routes are the same if they match the same addresses.

    Attributes:
        changed: pairs of the old and the new form.
    """

    added: tuple[Route, ...]
    removed: tuple[Route, ...]
    changed: tuple[tuple[Route, Route], ...]
    unchanged: tuple[Route, ...]

    @property
    def is_empty(self) -> bool:
        """Whether both tables do the same."""
        return not (self.added or self.removed or self.changed)


def difference(old: RoutingTable, new: RoutingTable) -> Difference:
    """Compares two tables, each list in the order of the table that its routes come from."""
    before = {canonical(old.pattern_of(route)): route for route in old.routes}
    after = {canonical(new.pattern_of(route)): route for route in new.routes}
    kept = [(before[key], route) for key, route in after.items() if key in before]
    return Difference(
        added=tuple(route for key, route in after.items() if key not in before),
        removed=tuple(route for key, route in before.items() if key not in after),
        changed=tuple((was, now) for was, now in kept if was != now),
        unchanged=tuple(now for was, now in kept if was == now),
    )
