"""Homes: which worker keeps the links of an exactly-once address, with what is unsettled there.

Whoever comes back has to find its unsettled deliveries, whichever worker it is connected to. So
each exactly-once address has one *home*, a worker that every other can name without asking: senders
and receivers of the address meet there, and what they have unsettled is in its memory and its share
of the journal. The other workers lead links through to it (``passage``)::

    the address, or how its link is attached       home under ``first``   under ``all``
    direct route                                   the first worker       by the address
    no route any more (``routeless``)              the first worker       by the address
    route with a container, or a store             the first worker       the first worker
    link of ours to a container                    the first worker       the first worker
    link to the anonymous terminus                 the first worker       the first worker

By the address means by rendezvous: of all workers the one whose hash with the address is greatest
(Thaler, Ravishankar 1998). So addresses spread evenly, and when the number of workers changes only
those move whose home is new, or is gone: one of n + 1 when a worker is added to n.

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
from router.routes.route import Route
from router.routes.table import RoutingTable

FIRST: Final = 1
"""The worker that dials the containers of exactly-once routes, and reads and writes the store."""

_REMEMBERED: Final = 4096
"""Addresses whose home is remembered: asking costs 1 us for each worker."""


@attrs.frozen(slots=False)
class Homes:
    """Answers for one worker.

    Attributes:
        own: the worker's number, from 1.
        workers: how many the router has.
        are_spread: addresses of direct routes have homes at all workers.
    """

    own: int = FIRST
    workers: int = 1
    are_spread: bool = False

    @property
    def is_only(self) -> bool:
        """Whether this worker is the home of everything."""
        return self.own == FIRST and not (self.are_spread and self.workers > 1)

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
        if not self.are_spread or address is None or not is_spread(route):
            return FIRST
        return rendezvous(address, self.workers)

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

        Those of exactly-once addresses go to the home of the address. The others are only recorded:
        the worker that wrote them takes them over, or the first, if there is none of that number.

        Args:
            deliveries: all that the journal knows.
            links: likewise.
            table: the routes.
        """
        known: dict[LinkKey, Terms] = {}
        for each in deliveries:
            memory = links.get(each.incoming)
            if memory is None or each.guarantee not in KEPT_GUARANTEES:
                home = each.worker if 1 <= each.worker <= self.workers else FIRST
            else:
                terms = known.get(each.incoming)
                if terms is None:
                    terms = known[each.incoming] = decode_terms(memory.description.terminus)
                home = self._home_of(each, terms, table)
            if home == self.own:
                yield each

    def _home_of(self, unsettled: Unsettled, terms: Terms, table: RoutingTable) -> int:
        if terms.is_own or terms.dead_letters_of is not None:
            return FIRST
        address = unsettled.address if terms.node is None else terms.node.address
        match = table.lookup(address)
        return self.of(address, None if match is None else match.route)


def is_spread(route: Route | None) -> bool:
    """Returns whether addresses of a route may have homes at all workers."""
    return route is None or not (route.endpoints or route.store is not None)


@lru_cache(_REMEMBERED)
def rendezvous(address: str, workers: int) -> int:
    """Returns the worker, of so many, that is the home of an address."""
    octets = address.encode(errors="surrogatepass")
    return max(range(1, workers + 1), key=lambda worker: (_weight(octets, worker), worker))


def _weight(octets: bytes, worker: int) -> bytes:
    return blake2b(octets, digest_size=8, key=worker.to_bytes(4, "big")).digest()
