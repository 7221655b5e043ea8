"""Rules about routes with ``store``."""

from collections.abc import Iterator

from router.routes.route import Guarantee
from router.service.config.problems import Problem
from router.service.config.routing import RouteEntry


def store_problems(entry: RouteEntry) -> Iterator[Problem]:
    """Yields what forbids that a route stores its messages."""
    store = entry.store
    if store is None or "store" in entry.where.broken:
        return
    here = entry.where.of("store")
    if not entry.to:
        yield Problem(here, "store: keeps messages for targets, and this route has no 'to'")
    if entry.dead_letter is None:
        problem = "store: what expires, is dropped or is rejected needs the key 'dead_letter'"
        yield Problem(here, f"{problem}, container/address")
    if entry.guarantee is not Guarantee.AT_LEAST_ONCE:
        problem = f"store: this version stores at-least-once alone, and not {entry.guarantee}"
        yield Problem(entry.where.of("guarantee"), problem)
    if entry.archive or entry.ledger:
        problem = "store: this version does not record stored messages; leave ledger and archive"
        yield Problem(here, f"{problem} out")
