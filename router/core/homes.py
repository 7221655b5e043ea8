"""Homes: which worker keeps the links of an exactly-once address, with what is unsettled there.

Whoever comes back has to find its unsettled deliveries, whichever worker it is connected to. So
each exactly-once address has one *home*, a worker that every other can name without asking: senders
and receivers of the address meet there, and what they have unsettled is in its memory and its share
of the journal. The other workers lead links through to it (``passage``)::

    the address, or how its link is attached       home under ``first``   under ``all``
    direct route                                   the first worker       by the address
    no route any more (``routeless``)              the first worker       by the address
    bridge, of containers with bridges alone       the first worker       by the containers
    other route with a container, or a store       the first worker       the first worker
    link to the anonymous terminus                 the first worker       every worker

Under ``all`` a link to the anonymous terminus leads through to every home (``branches``), and each
delivery on it is kept at the home of its own address. What its address makes no exactly-once
delivery is for the first worker.

Containers that exactly-once routes connect are one *group*, which one worker dials: the home of all
addresses of these routes. A group may have its home anywhere if its routes are bridges: these have
hardly any senders but their containers, and a sender to a container may be one without an address.

By the address, or by the least name of a group, means by rendezvous: of all workers the one whose
hash with the address is greatest (Thaler, Ravishankar 1998). So addresses spread evenly, and when
the number of workers changes only those move whose home is new, or is gone: one of n + 1 when a
worker is added to n.

What is unsettled moves with its address. All links of an address have one home, and a delivery
belongs to one address. So nothing is ever split between two homes, and when a router is started
with other workers, each reads what is at its addresses from the journal that all of them share
(``inherits``), no matter which worker wrote it. The home of an address never changes while the
router runs: a reload that would change it is refused.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Final

import attrs

from router.core.reach import sibling_name
from router.core.terms import Terms, decode_terms
from router.journal.keys import LinkKey
from router.journal.unsettled import KEPT_GUARANTEES, LinkMemory, Unsettled
from router.routes.route import Guarantee, Route
from router.routes.table import RoutingTable

FIRST: Final = 1
"""The worker that dials the containers of exactly-once routes, and reads and writes the store."""

HERE: Final = "local"
"""The container of dead letters that come back here, on a connection of the first worker."""

_REMEMBERED: Final = 4096
"""Addresses whose home is remembered: asking costs 1 us for each worker."""


@attrs.frozen(slots=False)
class Homes:
    """Answers for one worker.

    Attributes:
        own: the worker's number, from 1.
        workers: how many the router has.
        are_spread: homes are at all workers.
        groups: names of the groups that may have theirs anywhere, by container.
    """

    own: int = FIRST
    workers: int = 1
    are_spread: bool = False
    groups: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def among(cls, workers: int, routes: Iterable[Route], *, own: int = FIRST) -> "Homes":
        """Returns the homes at all of so many workers."""
        return cls(own, workers, are_spread=True, groups=group(routes))

    @cached_property
    def is_only(self) -> bool:
        """Whether this worker is the home of everything."""
        return self.own == FIRST and not self.are_many

    @cached_property
    def are_many(self) -> bool:
        """Whether several workers are homes."""
        return self.are_spread and self.workers > 1

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all workers among siblings, this one's included."""
        return tuple(map(sibling_name, range(1, self.workers + 1)))

    @cached_property
    def has_any(self) -> bool:
        """Whether this worker is the home of anything."""
        return self.own == FIRST or self.are_spread

    def of(self, address: str | None, route: Route | None) -> int:
        """Returns the home of an address.

        Args:
            address: as it is called inside; None: the anonymous terminus.
            route: that the address takes; None: it has none.
        """
        if not self.are_spread or address is None:
            return FIRST
        if route is None or is_spread(route):
            return rendezvous(address, self.workers)
        return self.of_container(route.endpoints[0].container)

    def of_container(self, container: str) -> int:
        """Returns which worker dials a container of an exactly-once route."""
        name = self.groups.get(container)
        return FIRST if name is None else rendezvous(f"\0{name}", self.workers)

    def elsewhere(self, address: str | None, route: Route | None) -> str | None:
        """Returns the name of the sibling that is the home of an address; None: it is here."""
        home = self.of(address, route)
        return None if home == self.own else sibling_name(home)

    def inherits(
        self,
        deliveries: Iterable[Unsettled],
        links: Mapping[LinkKey, LinkMemory],
        table: RoutingTable,
    ) -> Iterator[Unsettled]:
        """Yields the deliveries that this worker has to take over after a restart.

        Those of exactly-once addresses go to the home of the address. The worker that wrote about
        the others takes them over, or the first, if there is none of that number: those that are
        only recorded, and those that a container of another route has brought to any worker.

        Args:
            deliveries: all that the journal knows.
            links: likewise.
            table: the routes.
        """
        known: dict[LinkKey, Terms] = {}
        for each in deliveries:
            memory = links.get(each.incoming)
            if memory is None or each.guarantee not in KEPT_GUARANTEES:
                home = self._successor_of(each.worker)
            else:
                terms = known.get(each.incoming)
                if terms is None:
                    terms = known[each.incoming] = decode_terms(memory.description.terminus)
                home = self._home_of(each, terms, table)
            if home == self.own:
                yield each

    def _home_of(self, unsettled: Unsettled, terms: Terms, table: RoutingTable) -> int:
        address = unsettled.address if terms.node is None else terms.node.address
        match = table.lookup(terms.dead_letters_of or address)
        route = None if match is None else match.route
        if terms.is_own and (route is None or is_spread(route) or not is_exact(route)):
            return self._successor_of(unsettled.worker)
        return self.of(address, route)

    def _successor_of(self, worker: int) -> int:
        return worker if 1 <= worker <= self.workers else FIRST


def is_spread(route: Route | None) -> bool:
    """Returns whether homes of a route are chosen by the address, if they are at all workers."""
    return route is None or not (route.endpoints or route.store is not None)


def group(routes: Iterable[Route]) -> dict[str, str]:
    """Returns, by container, the names of the groups that may have their homes anywhere."""
    members: dict[str, set[str]] = {}
    pinned = {HERE}
    for route in routes:
        names = {each.container for each in route.endpoints}
        if not names or not (is_exact(route) or route.store is not None):
            continue
        joined = names.union(*(members.get(name, ()) for name in names))
        members.update(dict.fromkeys(joined, joined))
        if route.store is not None or not route.is_bridge:
            pinned |= names
    return {name: min(found) for name, found in members.items() if pinned.isdisjoint(found)}


def is_exact(route: Route) -> bool:
    """Returns whether a route promises exactly-once."""
    return route.guarantee is Guarantee.EXACTLY_ONCE


@lru_cache(_REMEMBERED)
def rendezvous(address: str, workers: int) -> int:
    """Returns the worker, of so many, that is the home of an address."""
    octets = address.encode(errors="surrogatepass")
    return max(range(1, workers + 1), key=lambda worker: (_weight(octets, worker), worker))


def _weight(octets: bytes, worker: int) -> bytes:
    return blake2b(octets, digest_size=8, key=worker.to_bytes(4, "big")).digest()
