"""The index of prefixes finds what the table of routes would find, and changes in place."""

import random

from hypothesis import given
from hypothesis import strategies as st

from router.routes.match import PatternTree, canonical, matches, parse_pattern
from router.routes.mesh.nouns import RouterId
from router.routes.mesh.prefixes import Index

TOKENS = st.sampled_from(["a", "b", "*", "#"])
PATTERNS = st.lists(TOKENS, min_size=1, max_size=4).map(".".join)
ADDRESSES = st.lists(st.sampled_from(["a", "b", "c"]), max_size=5).map(".".join)
SITES = st.sampled_from([RouterId("dc1"), RouterId("dc2"), RouterId("dc3")])


@given(st.lists(st.tuples(PATTERNS, SITES), max_size=12), st.lists(ADDRESSES, max_size=5))
def test_the_index_finds_what_the_tree_of_routes_finds(
    said: list[tuple[str, RouterId]], addresses: list[str]
) -> None:
    index = Index()
    sites: dict[object, set[RouterId]] = {}
    parsed = {}
    for text, site in said:
        pattern = parse_pattern(text)
        index.add_pattern(pattern, site)
        parsed[canonical(pattern)] = pattern
        sites.setdefault(canonical(pattern), set()).add(site)
    order = sorted(parsed.values(), key=lambda one: ".".join(map(str, canonical(one))))
    tree = PatternTree(order)
    for address in addresses:
        found = tree.find(address)
        every = {site for one in order if matches(one, address) for site in sites[canonical(one)]}
        assert set(index.every(address)) == every
        if found is None:
            assert index.best(address) == ()
        else:
            best = parse_pattern(order[found].text)
            rivals = [sites[canonical(one)] for one in order if matches(one, address)]
            assert set(index.best(address)) in rivals
            if "#" not in best.text:
                assert set(index.best(address)) == sites[canonical(best)]


@given(st.lists(st.tuples(PATTERNS, SITES), max_size=12), st.randoms())
def test_what_is_added_and_removed_leaves_nothing(
    said: list[tuple[str, RouterId]], order: random.Random
) -> None:
    index = Index()
    for text, site in said:
        index.add_pattern(parse_pattern(text), site)
        index.add_address(text, site)
    shuffled = said[:]
    order.shuffle(shuffled)
    for text, site in shuffled:
        index.remove_pattern(parse_pattern(text), site)
        index.remove_address(text, site)
    assert not index._root.children
    assert not index._singles


def test_the_most_specific_pattern_wins_and_a_single_address_before_all() -> None:
    index = Index()
    dc1, dc2, dc3 = RouterId("dc1"), RouterId("dc2"), RouterId("dc3")
    index.add_pattern(parse_pattern("orders.#"), dc1)
    index.add_pattern(parse_pattern("orders.*"), dc2)
    assert index.best("orders.eu") == (dc2,)
    assert index.best("orders.eu.de") == (dc1,)
    index.add_address("orders/eu", dc3)
    assert index.best("orders.eu") == (dc3,)
    assert index.every("orders.eu") == (dc1, dc2, dc3)
    index.add_pattern(parse_pattern("orders.eu"), dc1)
    assert index.best("orders.eu") == (dc1, dc3)
    index.remove_address("orders.eu", dc3)
    assert index.best("orders.eu") == (dc1,)
    assert index.best("other") == ()


def test_what_a_site_does_not_serve_can_be_removed() -> None:
    index = Index()
    index.remove_pattern(parse_pattern("a.b"), RouterId("dc1"))
    index.remove_address("a.b", RouterId("dc1"))
    assert index.every("a.b") == ()
    assert index.every("a." * 3000) == ()
