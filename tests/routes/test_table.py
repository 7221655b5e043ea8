import gc
import weakref

import pytest

from router.model.steps import Steps
from router.routes.match import SLICE_PATTERNS, PatternError
from router.routes.route import Distribution, Endpoint, Position, Route
from router.routes.table import REMEMBERED_LOOKUPS, RoutingTable, difference


def table(*addresses: str) -> RoutingTable:
    return RoutingTable(Route(address=address) for address in addresses)


def test_lookup_gives_the_route_and_what_its_wildcards_stand_for() -> None:
    match = table("orders.*.#", "#").lookup("orders.eu.1/2")
    assert match is not None
    assert match.route.address == "orders.*.#"
    assert match.captured == ("eu", "1/2")


def test_lookup_of_an_unknown_address_gives_nothing() -> None:
    assert table("orders.*").lookup("prices.gold") is None


def test_lookups_are_remembered_within_a_bound() -> None:
    routes = table("orders.*")
    for number in range(REMEMBERED_LOOKUPS * 2):
        assert routes.lookup(f"orders.{number}") is not None
    assert len(routes._remembered) == REMEMBERED_LOOKUPS
    assert routes.lookup("orders.7") is routes.lookup("orders.7")


def test_long_addresses_are_not_remembered() -> None:
    routes = table("#")
    assert routes.lookup("a" * 300) is not None
    assert not routes._remembered


def test_match_names_the_address_at_the_other_end() -> None:
    route = Route(address="orders.*", to=(Endpoint("east"), Endpoint("west", "eu.*")))
    match = RoutingTable([route]).lookup("orders.a")
    assert match is not None
    assert [match.address_at(endpoint) for endpoint in route.to] == ["orders.a", "eu.a"]


def test_rule_says_why_the_winner_won() -> None:
    explanation = table("orders.#", "orders.eu", "orders.*", "#").explain("orders.eu")
    assert explanation.rule == (
        "'orders.eu' wins over 'orders.*': literal 'eu' before '*' at token 2 (and over 2 more)"
    )
    alone = table("orders.#").explain("orders")
    assert alone.rule == "'orders.#' is the only route that matches"


def test_a_table_that_has_been_used_is_freed_without_the_collector() -> None:
    used = table("orders.#", "a.b")
    for address in ("orders.1", "a.b", "nowhere"):
        used.lookup(address)
        used.explain(address)
    kept = used.lookup("orders.1")
    assert kept is not None
    gone = weakref.ref(used)
    gc.disable()
    try:
        del used
        assert gone() is None
    finally:
        gc.enable()
    assert kept.captured == ("1",)


def test_explanation_lists_what_was_beaten_in_order() -> None:
    explanation = table("#", "a.#", "a.*").explain("a.b")
    assert explanation.match is not None
    assert [beaten.route.address for beaten in explanation.beaten] == ["a.#", "#"]
    assert explanation.beaten[1].reason == "literal 'a' before '#' at token 1"


def test_explanation_of_an_unknown_address_has_no_match() -> None:
    explanation = table("a").explain("b")
    assert explanation.match is None
    assert explanation.rule == "no route's address matches"


def test_equal_addresses_are_refused() -> None:
    with pytest.raises(PatternError):
        table("a.b", "a/b")


def test_difference_sorts_routes_by_what_became_of_them() -> None:
    here = Position("router.yaml", 1, 1)
    old = RoutingTable([Route(address="a"), Route(address="b.#"), Route(address="c")])
    changed = Route(address="b.#.#", distribution=Distribution.MULTICAST)
    new = RoutingTable([Route(address="d"), changed, Route(address="a", position=here)])
    became = difference(old, new)
    assert [route.address for route in became.added] == ["d"]
    assert [route.address for route in became.removed] == ["c"]
    assert became.changed == ((old.routes[1], changed),)
    assert became.unchanged == (new.routes[2],)
    assert not became.is_empty


def test_moving_a_route_within_the_file_changes_nothing() -> None:
    old = RoutingTable([Route(address="a"), Route(address="b")])
    new = RoutingTable([Route(address="b"), Route(address="a")])
    assert difference(old, new).is_empty


def test_a_table_is_built_in_slices_that_do_not_grow_with_it() -> None:
    routes = [Route(address=f"a.{number}") for number in range(5000)]
    steps = Steps(RoutingTable.in_slices(routes))
    assert sum(1 for _ in steps) >= 3 * len(routes) / SLICE_PATTERNS
    made = steps.result
    assert made.by_name["a.4999"] is routes[4999]
    match = made.lookup("a.7")
    assert match is not None
    assert match.route is routes[7]
