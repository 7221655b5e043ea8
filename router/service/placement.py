"""Placement: a socket goes to the least loaded worker, a container to exactly one worker.

Both rules are functions of plain values, so every case can be tested without a process.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import attrs

from router.core.homes import FIRST, Homes
from router.core.mesh.names import is_neighbor_name
from router.routes.route import Guarantee, Route
from router.service.config import RouterConfig
from router.service.config.here import LOCAL
from router.service.config.process import HomeScope

HOME: Final = FIRST
"""The worker that dials the containers of exactly-once routes, and keeps links (``core.homes``).

So it does for routes with a store, as it is the one that reads and writes the message store.

Their unsettled deliveries are in its memory and its share of the journal: when it dies no other
worker can continue them, but its next life does.
"""


FIRST_ALONE: Final = Homes()

MESH_HOME: Final = 1
"""The worker with the control plane of the mesh and the connections to other sites."""


@attrs.frozen
class Load:
    """A worker's load, by which sockets are placed.

    Attributes:
        worker: its number.
        connections: its connections, including sockets handed to it and not accepted yet.
        handed: sockets ever handed to it, so that equally loaded workers take turns.
    """

    worker: int
    connections: int
    handed: int


def find_homes(config: RouterConfig, workers: int, *, own: int = FIRST) -> Homes:
    """Returns the homes of exactly-once routes, as one of so many workers knows them."""
    if config.router.homes is HomeScope.ALL:
        return Homes.among(workers, config.table.routes, own=own)
    return Homes(own, workers)


def least_loaded(loads: Iterable[Load]) -> int | None:
    """Returns the number of the worker with the fewest connections; None: there is no worker."""
    order = min(loads, key=lambda load: (load.connections, load.handed, load.worker), default=None)
    return None if order is None else order.worker


def share_out(
    containers: Collection[str],
    routes: Sequence[Route],
    workers: Sequence[int],
    before: Mapping[str, int],
    homes: Homes = FIRST_ALONE,
    *,
    storing: Collection[str] = (),
) -> dict[str, int]:
    """Assigns each container to one worker.

    Containers that are bridged to each other go to the same worker, so that bridged messages do
    not cross between workers. Those of exactly-once routes, and of routes with a store, always
    belong to the home of these, dead or alive, and the neighbors of the mesh to the first worker. A
    container keeps its worker while that is alive: connections are not moved to balance the load.
    So it is with those to which stored messages go: newcomers would pass these by elsewhere.

    Args:
        containers: all containers of the configuration.
        routes: all routes of the configuration.
        workers: the workers that are alive, at least one.
        before: the assignment until now.
        homes: of exactly-once routes.
        storing: containers to which messages go that may be stored, whatever routes store now.
    """
    shared = dict.fromkeys(filter(is_neighbor_name, containers), MESH_HOME)
    counts = dict.fromkeys(workers, 0)
    if MESH_HOME in counts:
        counts[MESH_HOME] += len(shared)
    others = [name for name in containers if name not in shared]
    groups = sorted(_bridged(others, routes), key=lambda group: (-len(group), group))
    unplaced = []
    kept_home = {
        endpoint.container
        for route in routes
        if route.guarantee is Guarantee.EXACTLY_ONCE or route.store is not None
        for endpoint in (*route.endpoints, route.dead_letter)
        if endpoint is not None
    }.union(storing)
    for group in groups:
        at_home = {name: homes.of_container(name) for name in group if name in kept_home}
        if at_home:
            home = min(at_home.values())
            placed = {name: at_home.get(name, home) for name in group}
            shared.update(placed)
            for worker in placed.values():
                if worker in counts:
                    counts[worker] += 1
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
    """Groups the containers that bridges connect."""
    group_of = {name: [name] for name in sorted(containers)}
    for route in routes:
        if not route.is_bridge:
            continue
        ends = [each.container for each in route.endpoints]
        first, *others = [name for name in ends if name != LOCAL]  # dead letters need no bridge
        for other in others:
            one, two = group_of[first], group_of[other]
            if one is not two:
                one += two
                for name in two:
                    group_of[name] = one
    return [sorted(group) for group in {id(group): group for group in group_of.values()}.values()]
