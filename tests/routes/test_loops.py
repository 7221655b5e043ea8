from router.routes.loops import Loop, find_loops
from router.routes.route import Endpoint, Route
from router.routes.table import RoutingTable


def endpoint(text: str) -> Endpoint:
    container, _, address = text.partition("/")
    return Endpoint(container, address or None)


def route(address: str, from_: str | None = None, to: str = "") -> Route:
    return Route(
        address=address,
        from_=endpoint(from_) if from_ else None,
        to=tuple(map(endpoint, to.split())),
    )


def loops(
    *routes: Route, same_as: dict[str, str] | None = None, own: frozenset[str] = frozenset()
) -> list[Loop]:
    return find_loops(RoutingTable(routes), same_as, own)


def test_bridges_one_way_are_no_loop() -> None:
    assert loops(route("a", "east", "west"), route("b", "west", "east")) == []


def test_bridge_and_bridge_back_is_a_loop() -> None:
    (found,) = loops(route("there", "east/a", "west/b"), route("back", "west/b", "east/a"))
    assert str(found) == "east/a -> west/b -> east/a"
    assert [each.address for each in found.routes] == ["there", "back"]


def test_long_way_round_is_a_loop() -> None:
    (found,) = loops(
        route("x", "a/1", "b/1"), route("y", "b/1", "c/1 d/1"), route("z", "d/1", "a/1")
    )
    assert str(found) == "a/1 -> b/1 -> d/1 -> a/1"


def test_bridge_into_its_own_source_is_a_loop() -> None:
    (found,) = loops(route("a", "east", "east west"))
    assert str(found) == "east/a -> east/a"


def test_one_container_under_two_names_is_seen_through() -> None:
    back = route("back", "west/b", "twin/a")
    there = route("there", "east/a", "west/b")
    assert loops(there, back) == []
    (found,) = loops(there, back, same_as={"twin": "east"})
    assert str(found) == "east/a -> west/b -> east/a"


def test_route_into_this_very_router_is_a_loop() -> None:
    (found,) = loops(route("orders.#", to="me"), own=frozenset(["me"]))
    assert found.places[0].container == "me"


def test_renaming_on_the_way_through_this_router_ends_the_loop() -> None:
    renamed = route("orders.*", to="me/done.*")
    assert loops(renamed, route("done.*", to="east"), own=frozenset(["me"])) == []


def test_loop_over_this_router_and_a_broker_is_found() -> None:
    (found,) = loops(route("in", "east/a", "me/x"), route("x", to="east/a"), own=frozenset(["me"]))
    assert str(found) == "east/a -> me/x -> east/a"


def test_each_loop_is_reported_once() -> None:
    found = loops(
        route("1", "a/x", "b/x"),
        route("2", "b/x", "a/x"),
        route("3", "c/x", "a/x"),
        route("4", "d/x", "d/x"),
    )
    assert sorted(map(str, found)) == ["a/x -> b/x -> a/x", "d/x -> d/x"]


def test_long_chain_needs_no_recursion() -> None:
    chain = [route(f"r{n}", f"c{n}/a", f"c{n + 1}/a") for n in range(5000)]
    assert loops(*chain) == []
    assert len(loops(*chain, route("back", "c5000/a", "c0/a"))) == 1
