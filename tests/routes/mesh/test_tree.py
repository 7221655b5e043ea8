"""Trees are those of shortest paths, the same at all routers, over links that both ends name."""

from hypothesis import given
from hypothesis import strategies as st

from router.routes.mesh.nouns import RouterId
from router.routes.mesh.tree import STEP_ROUTERS, grow, prune
from tests.routes.mesh.simulator import name, true_tree

Claims = dict[RouterId, dict[RouterId, int]]

INFINITE = 1 << 40


@st.composite
def claims(draw: st.DrawFn, most: int = 8) -> Claims:
    size = draw(st.integers(1, most))
    names = [name(number) for number in range(size)]
    pairs = st.tuples(st.sampled_from(names), st.sampled_from(names), st.integers(1, 4))
    found: Claims = {one: {} for one in names}
    for one, other, cost in draw(st.lists(pairs, max_size=24)):
        if one != other:
            found[one][other] = cost
    return found


def distances(links: Claims, root: RouterId) -> dict[RouterId, int]:
    """As Bellman and Ford do it: slowly, and in other words."""
    found = dict.fromkeys(links, INFINITE) | {root: 0}
    for _ in links:
        for one, costs in links.items():
            for other, cost in costs.items():
                if one in links.get(other, {}):
                    found[other] = min(found[other], found[one] + cost)
    return {one: cost for one, cost in found.items() if cost < INFINITE}


@given(claims())
def test_costs_are_those_of_the_shortest_paths(links: Claims) -> None:
    root = name(0)
    tree = true_tree(links, root)
    assert tree.costs == distances(links, root)
    for router, parent in tree.parents.items():
        tied = [
            one
            for one, costs in links.items()
            if router in costs
            and one in links[router]
            and tree.costs.get(one, INFINITE) + costs[router] == tree.costs[router]
        ]
        assert parent == min(tied)
        at = router
        while tree.parents[at] != root:
            at = tree.parents[at]
        assert tree.hops[router] == at


@given(claims())
def test_next_hops_lead_there_without_a_loop(links: Claims) -> None:
    trees = {router: true_tree(links, router) for router in links}
    for start, tree in trees.items():
        for egress in tree.hops:
            at, passed = start, []
            while at != egress:
                assert at not in passed
                passed.append(at)
                at = trees[at].hops[egress]


@given(claims())
def test_a_multicast_reaches_each_router_of_the_tree_once(links: Claims) -> None:
    origin = name(0)
    whole = true_tree(links, origin)
    parts = {router: prune(true_tree(links, origin), router) for router in whole.costs}
    reached: list[RouterId] = []
    pending = [origin]
    while pending:
        at = pending.pop()
        reached.append(at)
        for hop in set(parts[at].behind.values()):
            assert parts[hop].parent == at
            pending.append(hop)
    assert sorted(reached) == sorted(whole.costs)


def test_a_link_that_one_end_denies_is_not_used_and_is_named() -> None:
    one, other, third = name(1), name(2), name(3)
    links: Claims = {one: {other: 1, third: 1}, other: {one: 1}, third: {}}
    tree = true_tree(links, one)
    assert tree.costs == {one: 0, other: 1}
    assert tree.denials == ((one, third),)


def test_a_large_tree_is_computed_in_steps() -> None:
    size = 5 * STEP_ROUTERS
    links: Claims = {name(at): {} for at in range(size)}
    for at in range(size):
        links[name(at)][name((at + 1) % size)] = 1
        links[name((at + 1) % size)][name(at)] = 1
    assert len(list(grow(links, name(0), 1))) == 5
