"""Shortest paths over what routers say of their links: Dijkstra's algorithm, in steps.

An edge counts only if both of its ends name each other, so a router cannot draw traffic by
claiming links that it does not have. Its cost is what the end that sends says. Of several shortest
paths to a router the one whose last router has the lowest id counts: all routers with the same link
states compute the same tree of an origin, which a multicast relies on. Costs are 1 or more, so the
cost to the egress falls with each hop, and next hops of equal link states make no loop.
"""

import heapq
from collections.abc import Generator, Mapping
from typing import Final, TypeAlias

import attrs

from router.routes.mesh.nouns import RouterId

STEP_ROUTERS: Final = 64
"""Routers settled between two yields: a third of a millisecond where each has 6 links."""

Claims: TypeAlias = Mapping[RouterId, Mapping[RouterId, int]]
"""Router → its neighbors, each with the cost, as it says."""

Denial: TypeAlias = tuple[RouterId, RouterId]
"""A router, and the neighbor that it names and that does not name it."""


@attrs.frozen(kw_only=True)
class Tree:
    """The shortest paths from one router.

    Attributes:
        root: the router.
        topology: counts the own trees of the router that computed it.
        costs: every router that is reached → cost.
        parents: → the router before it; not of the root.
        hops: → the neighbor of the root on the path; not of the root.
        denials: links that one end alone claims.
    """

    root: RouterId
    topology: int
    costs: Mapping[RouterId, int]
    parents: Mapping[RouterId, RouterId]
    hops: Mapping[RouterId, RouterId]
    denials: tuple[Denial, ...] = ()


@attrs.frozen(kw_only=True)
class Branches:
    """The part of an origin's tree that one router needs: who is behind which of its neighbors.

    Attributes:
        origin: the root of the tree.
        topology: as in ``Tree``.
        parent: the neighbor from which messages of the origin come; None: none do.
        behind: router → the neighbor on the way to it; only those to which the tree leads past
            this router.
    """

    origin: RouterId
    topology: int
    parent: RouterId | None
    behind: Mapping[RouterId, RouterId]


def grow(claims: Claims, root: RouterId, topology: int) -> Generator[None, None, Tree]:
    """Computes the tree of a router; yields after each step.

    Args:
        claims: not changed meanwhile.
        root: the router.
        topology: the number that the tree gets.
    """
    costs: dict[RouterId, int] = {}
    parents: dict[RouterId, RouterId] = {}
    hops: dict[RouterId, RouterId] = {}
    denials: list[Denial] = []
    best: dict[RouterId, int] = {root: 0}
    pending = [(0, root)]
    nothing: Mapping[RouterId, int] = {}
    while pending:
        cost, router = heapq.heappop(pending)
        if router in costs:
            continue
        costs[router] = cost
        if router != root:
            parent = parents[router]
            hops[router] = router if parent == root else hops[parent]
        for neighbor, length in claims.get(router, nothing).items():
            if router not in claims.get(neighbor, nothing):
                denials.append((router, neighbor))
                continue
            reached = cost + length
            known = best.get(neighbor)
            if known is None or reached < known:
                best[neighbor] = reached
                parents[neighbor] = router
                heapq.heappush(pending, (reached, neighbor))
            elif reached == known and neighbor not in costs and router < parents[neighbor]:
                parents[neighbor] = router
        if len(costs) % STEP_ROUTERS == 0:
            yield
    return Tree(
        root=root,
        topology=topology,
        costs=costs,
        parents=parents,
        hops=hops,
        denials=tuple(denials),
    )


def prune(tree: Tree, router: RouterId) -> Branches:
    """Returns the part of an origin's tree that a router needs."""
    behind: dict[RouterId, RouterId] = {}
    for one in tree.costs:  # in the order of cost, so a parent comes first
        parent = tree.parents.get(one)
        if parent == router:
            behind[one] = one
        elif parent in behind:
            behind[one] = behind[parent]
    parent = tree.parents.get(router)
    return Branches(origin=tree.root, topology=tree.topology, parent=parent, behind=behind)
