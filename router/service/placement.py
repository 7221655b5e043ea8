"""Who gets what: sockets go to the least loaded worker, containers to exactly one.

Both are functions of plain values, so that every case can be tested without a process.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import attrs

from router.routes.route import Guarantee, Route

HOME: Final = 1
"""The worker that keeps the links of exactly-once routes, and dials their containers.

What is unsettled on them is in its memory and its share of the journal: when it dies nobody else
can go on with it, and its next life does.
"""


@attrs.frozen
class Load:
    """What counts when a socket is placed.

    Attributes:
        worker: its number.
        connections: that it has, or has been handed and not taken yet.
        handed: sockets that it was ever handed, so that equals take turns.
    """

    worker: int
    connections: int
    handed: int


def least_loaded(loads: Iterable[Load]) -> int | None:
    """Returns the worker with the fewest connections; None: there is no worker."""
    order = min(loads, key=lambda load: (load.connections, load.handed, load.worker), default=None)
    return None if order is None else order.worker


def share_out(
    containers: Collection[str],
    routes: Sequence[Route],
    workers: Sequence[int],
    before: Mapping[str, int],
) -> dict[str, int]:
    """Assigns each container one worker.

    Containers that are bridged to each other go to the same worker, so that what is bridged does
    not cross to another. Those of exactly-once routes are the first worker's, dead or alive.
    Whoever has a living worker keeps it: connections are not moved for the sake of evenness.

    Args:
        containers: all of the configuration.
        routes: of the configuration.
        workers: those that are alive, at least one.
        before: how it was shared out until now.
    """
    shared: dict[str, int] = {}
    counts = dict.fromkeys(workers, 0)
    groups = sorted(_bridged(containers, routes), key=lambda group: (-len(group), group))
    unplaced = []
    exact = {
        endpoint.container
        for route in routes
        if route.guarantee is Guarantee.EXACTLY_ONCE
        for endpoint in (*route.endpoints, route.dead_letter)
        if endpoint is not None
    }
    for group in groups:
        if not exact.isdisjoint(group):
            shared.update(dict.fromkeys(group, HOME))
            if HOME in counts:
                counts[HOME] += len(group)
            continue
        kept = next((before[each] for each in group if before.get(each) in counts), None)
        if kept is None:
            unplaced.append(group)
        else:
            shared.update(dict.fromkeys(group, kept))
            counts[kept] += len(group)
    for group in unplaced:
        chosen = min(counts, key=lambda worker: (counts[worker], worker))
        shared.update(dict.fromkeys(group, chosen))
        counts[chosen] += len(group)
    return shared


def _bridged(containers: Collection[str], routes: Sequence[Route]) -> list[list[str]]:
    """Groups containers that bridges connect."""
    group_of = {name: [name] for name in sorted(containers)}
    for route in routes:
        if not route.is_bridge:
            continue
        first, *others = [each.container for each in route.endpoints]
        for other in others:
            one, two = group_of[first], group_of[other]
            if one is not two:
                one += two
                for name in two:
                    group_of[name] = one
    return [sorted(group) for group in {id(group): group for group in group_of.values()}.values()]
