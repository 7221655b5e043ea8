"""A lazy list of all routes of a router.

A configuration may have a hundred thousand routes. Workers report only the routes that have been
used; the empty record of an unused route is made here when it is read.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import overload

import attrs

from router.core.snapshot import RouteRecord
from router.core.survey import idle_record
from router.routes.route import Route
from router.routes.table import RoutingTable


@attrs.frozen(eq=False)
class RouteList(Sequence[RouteRecord]):
    """The routes of the table in its order, then other routes that were used.

    Attributes:
        used: records that workers have reported, by name.
        others: those of them that the table does not have: dynamic nodes, the anonymous terminus,
            and routes that a reload has removed and that still have links.
    """

    table: RoutingTable
    used: Mapping[str, RouteRecord]
    others: tuple[RouteRecord, ...]

    @classmethod
    def of(cls, table: RoutingTable, used: Iterable[RouteRecord]) -> "RouteList":
        """Makes the list from a table and the workers' records."""
        by_name = {record.name: record for record in used}
        others = tuple(each for each in by_name.values() if each.name not in table.by_name)
        return cls(table, by_name, others)

    def __len__(self) -> int:
        return len(self.table.routes) + len(self.others)

    @overload
    def __getitem__(self, index: int) -> RouteRecord: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[RouteRecord, ...]: ...
    def __getitem__(self, index: int | slice) -> RouteRecord | tuple[RouteRecord, ...]:
        places = range(len(self))[index]
        return self._at(places) if isinstance(places, int) else tuple(map(self._at, places))

    def __iter__(self) -> Iterator[RouteRecord]:
        return chain(map(self._record, self.table.routes), self.others)

    def _at(self, place: int) -> RouteRecord:
        routes = self.table.routes
        if place < len(routes):
            return self._record(routes[place])
        return self.others[place - len(routes)]

    def _record(self, route: Route) -> RouteRecord:
        return self.used.get(route.name) or idle_record(route)

    def find(self, name: str) -> RouteRecord | None:
        """Returns the route with a name; None: there is none."""
        route = self.table.by_name.get(name)
        return self.used.get(name) or (None if route is None else idle_record(route))

    def leading_to(self, containers: Iterable[str]) -> dict[str, None]:
        """Returns the names of the routes that pull from, or push to, any of some containers."""
        by_container = self.table.by_container if containers else {}
        return {route.name: None for name in containers for route in by_container.get(name, ())}

    def some(self, unused: int, first: Iterable[str] = ()) -> list[RouteRecord]:
        """Returns all used routes and ``unused`` of the others, in order.

        Args:
            unused: how many of the others.
            first: names of those of the others that are wanted before the rest.
        """
        routes = self.table.routes
        names = {*self.used, *islice((name for name in first if name not in self.used), unused)}
        left = unused - (len(names) - len(self.used))
        names.update(islice((each.name for each in routes if each.name not in names), left))
        if len(names) == len(self):
            return list(self)
        kept = [self._record(route) for route in routes if route.name in names]
        return [*kept, *self.others]

    def unused(self, most: int, is_wanted: Callable[[Route], bool]) -> list[RouteRecord]:
        """Returns the first routes that nothing has used and that are wanted, in order."""
        rest = (
            route for route in self.table.routes if route.name not in self.used and is_wanted(route)
        )
        return [idle_record(route) for route in islice(rest, most)]
