"""Finds routes that would send a container's address back to itself, before any message moves.

Two kinds of cycle can be found in the configuration alone:

* bridges: ``from: east/a to: west/b`` and ``from: west/b to: east/a`` move a message for ever;
* a container that is this very router (its url is one of our listeners): a message that a route
  sends there arrives again and takes the route of its new address, perhaps the same one.

What brokers do with a message internally (bindings, forwarding of their own) is unknown here; the
trace annotation and the hop limit stop such loops.

The search walks places, which are (container, address) pairs. Every place leads to a few next
places; reaching a place again while it is still being followed is a loop.
"""

from collections.abc import Iterator, Mapping

import attrs

from router.routes.match import Wildcard
from router.routes.route import Endpoint, Route
from router.routes.table import RoutingTable

_SAMPLE_TOKEN = "*"


@attrs.frozen
class Place:
    """An address in a container."""

    container: str
    address: str

    def __str__(self) -> str:
        return f"{self.container}/{self.address}"


@attrs.frozen
class Loop:
    """A way from a place back to the same place.

    Attributes:
        places: the places in order; the last one leads to the first again.
        routes: the route of each step; report the loop at the first one.
    """

    places: tuple[Place, ...]
    routes: tuple[Route, ...]

    def __str__(self) -> str:
        return " -> ".join(map(str, (*self.places, self.places[0])))


def find_loops(
    table: RoutingTable,
    same_as: Mapping[str, str] | None = None,
    own: frozenset[str] = frozenset(),
) -> list[Loop]:
    """Finds every loop of a table once.

    Args:
        table: the routes.
        same_as: for containers with several names: name -> the first name of the same container.
            A name that is absent stands for itself.
        own: containers whose url leads to this router.

    Returns:
        The loops, in the order of the routes that they begin with.
    """
    steps = _Steps(table, same_as or {}, own)
    found: dict[frozenset[Place], Loop] = {}
    finished: set[Place] = set()
    for start in steps.starts():
        for loop in _loops_from(start, steps, finished):
            found.setdefault(frozenset(loop.places), loop)
    return list(found.values())


class _Steps:
    """Which places a place leads to."""

    def __init__(
        self, table: RoutingTable, same_as: Mapping[str, str], own: frozenset[str]
    ) -> None:
        self._table = table
        self._same_as = same_as
        self._own = own
        self._bridges: dict[Place, list[Route]] = {}
        for route in table.routes:
            if route.from_ is not None:
                place = self._source(route.from_, route)
                self._bridges.setdefault(place, []).append(route)

    def starts(self) -> Iterator[Place]:
        """Yields the first place of every route that sends anything to a container."""
        for route in self._table.routes:
            if route.from_ is not None:
                yield self._source(route.from_, route)
            else:
                yield from (place for _, place in self._targets(route, self._sample(route)))

    def after(self, place: Place) -> Iterator[tuple[Route, Place]]:
        """Yields each place that a message at ``place`` moves on to, and by which route."""
        for route in self._bridges.get(place, ()):
            yield from self._targets(route, route.address)
        if place.container in self._own:
            match = self._table.lookup(place.address)
            if match is not None:
                yield from self._targets(match.route, place.address)

    def _targets(self, route: Route, address: str) -> Iterator[tuple[Route, Place]]:
        match = self._table.lookup(address)
        if match is None or match.route is not route:
            return  # a more specific route takes the sample address
        for endpoint in route.to:
            yield route, self._place(endpoint.container, match.address_at(endpoint))

    def _source(self, endpoint: Endpoint, route: Route) -> Place:
        address = route.address if endpoint.address is None else endpoint.address
        return self._place(endpoint.container, address)

    def _place(self, container: str, address: str) -> Place:
        return Place(self._same_as.get(container, container), address)

    def _sample(self, route: Route) -> str:
        """Returns an address that the route's pattern matches."""
        tokens = self._table.pattern_of(route).tokens
        return ".".join(_SAMPLE_TOKEN if isinstance(t, Wildcard) else t for t in tokens)


def _loops_from(start: Place, steps: _Steps, finished: set[Place]) -> Iterator[Loop]:
    """Follows every way from ``start``, depth first, without recursion."""
    if start in finished:
        return
    way = {start: 0}  # place -> how many steps lead to it; in order
    taken: list[Route] = []
    pending = [steps.after(start)]
    while pending:
        step = next(pending[-1], None)
        if step is None:
            finished.add(way.popitem()[0])
            pending.pop()
            if taken:
                taken.pop()
            continue
        route, place = step
        if place in way:
            begin = way[place]
            yield Loop(tuple(way)[begin:], (*taken[begin:], route))
        elif place not in finished:
            way[place] = len(way)
            taken.append(route)
            pending.append(steps.after(place))
