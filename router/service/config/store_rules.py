"""Rules about routes with ``store``."""

from collections.abc import Iterator

from router.routes.match import has_wildcards
from router.routes.route import Guarantee
from router.service.config.problems import Problem
from router.service.config.process import Router
from router.service.config.routing import RouteEntry


def store_problems(entry: RouteEntry, router: Router) -> Iterator[Problem]:
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
    if not store.always:
        problem = "store: this version stores every message of a route; write always: true"
        yield Problem(store.where.of("always"), problem)
    if entry.guarantee is not Guarantee.AT_LEAST_ONCE:
        problem = f"store: this version stores at-least-once alone, and not {entry.guarantee}"
        yield Problem(entry.where.of("guarantee"), problem)
    if entry.from_ is not None and has_wildcards(entry.address):
        problem = "store: this version does not store what is pulled by a pattern"
        yield Problem(here, f"{problem}; name one address")
    if entry.archive or entry.ledger:
        problem = "store: this version does not record stored messages; leave ledger and archive"
        yield Problem(here, f"{problem} out")
    if router.workers != 1:
        problem = "store: this version stores with one worker; write workers: 1 in router"
        yield Problem(here, problem)
