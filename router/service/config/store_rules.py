"""Rules about routes with ``store``."""

from collections.abc import Iterable, Iterator

from router.routes.route import Guarantee
from router.service.config.problems import Problem
from router.service.config.process import Journal
from router.service.config.routing import RouteEntry
from router.service.config.storing import StoredIn


def place_problems(entries: Iterable[RouteEntry], journal: Journal) -> Iterator[Problem]:
    """Yields which routes store elsewhere than the first one: a router has one message store."""
    stores = [each.store for each in entries if each.store is not None]
    if journal.store is None:
        return  # it is the same place
    for store in stores[1:]:
        if store.in_ is not stores[0].in_:
            problem = f"in: {store.in_}: the first route with store has in: {stores[0].in_}"
            yield Problem(store.where.of("in"), f"{problem}, and a router has one message store")


def store_problems(entry: RouteEntry, journal: Journal) -> Iterator[Problem]:
    """Yields what forbids that a route stores its messages.

    A journal on PostgreSQL goes with whoever takes the router over. If the store stayed, who has
    one and not the other would send what is in doubt a second time.
    """
    store = entry.store
    if store is None or "store" in entry.where.broken:
        return
    here = entry.where.of("store")
    if not entry.to:
        problem = "store: keeps messages for targets, and this route has no 'to'"
        advice = "for receivers, also at other sites of a mesh, write the address of a direct route"
        how = "behind a container whose url is a listener of this router"
        yield Problem(here, f"{problem}; {advice}, {how}")
    if entry.dead_letter is None:
        problem = "store: what expires, is dropped or is rejected needs the key 'dead_letter'"
        yield Problem(here, f"{problem}, container/address")
    if entry.guarantee is Guarantee.AT_MOST_ONCE:
        problem = "store: keeps what must not be lost, and at-most-once may lose it"
        yield Problem(entry.where.of("guarantee"), problem)
    is_apart = journal.store is not None and store.in_ is StoredIn.FILES
    if entry.guarantee is Guarantee.EXACTLY_ONCE and is_apart:
        problem = "store: exactly-once needs the messages beside the journal, on PostgreSQL"
        yield Problem(entry.where.of("guarantee"), f"{problem}: write in: journal in store")
