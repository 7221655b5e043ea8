"""Key ``store`` of a route, and the rules about it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs

from router.routes.match import has_wildcards
from router.routes.route import Guarantee, Storing, WhenFull
from router.service.config.kinds import OrWord
from router.service.config.options import Placed, option
from router.service.config.problems import Problem
from router.service.config.scalars import Flag, Octets, OneOf, Seconds, Whole

if TYPE_CHECKING:
    from router.service.config.process import Router
    from router.service.config.routing import RouteEntry


@attrs.frozen(kw_only=True)
class Store(Placed):
    """How messages of a route are stored before they are forwarded."""

    octets: int | None = option(
        OrWord(Octets(1)),
        default=None,
        help="most octets that are stored for the route, with some 100 a message for its record",
    )
    messages: int | None = option(
        OrWord(Whole(1, 2**40)),
        default=None,
        unit="messages",
        help="most messages that are stored for the route",
    )
    age: float | None = option(
        OrWord(Seconds(0.001)),
        default=None,
        help="messages that have been stored for longer go to dead_letter",
    )
    full: WhenFull = option(
        OneOf(WhenFull),
        default=WhenFull.REFUSE,
        help="at octets or messages: refuse: senders get no credit and wait; drop-oldest: the"
        " oldest messages go to dead_letter",
    )
    always: bool = option(
        Flag(),
        default=False,
        help="store messages also while the target takes them; must be true in this version",
    )

    def as_storing(self) -> Storing:
        """Returns the rules as the rest of the program uses them."""
        return Storing(
            octets=self.octets, messages=self.messages, age_seconds=self.age, full=self.full
        )


def store_problems(entry: "RouteEntry", router: "Router") -> Iterator[Problem]:
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
