"""Who gets what."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from router.routes.route import Endpoint, Guarantee, Route
from router.service.placement import Load, least_loaded, share_out


def bridge(source: str, target: str) -> Route:
    return Route(address=f"{source}.{target}", from_=Endpoint(source), to=(Endpoint(target),))


def test_the_least_loaded_worker_gets_the_next_socket_and_equals_take_turns() -> None:
    assert least_loaded([Load(1, 3, 9), Load(2, 2, 50), Load(3, 4, 0)]) == 2
    assert least_loaded([Load(1, 2, 7), Load(2, 2, 6)]) == 2
    assert least_loaded([Load(2, 0, 0), Load(1, 0, 0)]) == 1
    assert least_loaded([]) is None


def test_containers_that_are_bridged_stay_together_and_the_rest_is_shared_evenly() -> None:
    shared = share_out(["a", "b", "c", "d", "e"], [bridge("a", "b"), bridge("b", "c")], [1, 2], {})
    assert shared["a"] == shared["b"] == shared["c"]
    assert shared["d"] == shared["e"] != shared["a"]


def test_only_what_has_no_living_worker_moves() -> None:
    before = {"a": 1, "b": 2, "c": 3, "d": 2}
    after = share_out(["a", "b", "c", "d"], [], [1, 3], before)
    assert (after["a"], after["c"]) == (1, 3)
    assert {after["b"], after["d"]} == {1, 3}


def test_what_is_new_goes_to_whoever_has_least_and_what_is_gone_is_forgotten() -> None:
    assert share_out(["a", "c"], [], [1, 2], {"a": 1, "b": 2}) == {"a": 1, "c": 2}


def test_containers_of_exactly_once_routes_are_the_first_workers_dead_or_alive() -> None:
    exact = Route(
        address="orders",
        to=(Endpoint("a"),),
        dead_letter=Endpoint("b"),
        guarantee=Guarantee.EXACTLY_ONCE,
    )
    routes = [exact, bridge("b", "c")]
    for workers in ([1, 2], [2]):
        shared = share_out(["a", "b", "c", "d"], routes, workers, {"a": 2, "c": 2})
        assert shared == {"a": 1, "b": 1, "c": 1, "d": 2}


def test_containers_of_what_is_stored_are_the_first_workers_though_no_route_stores() -> None:
    plain = Route(address="telemetry", to=(Endpoint("b"),))
    for workers in ([1, 2], [2]):
        shared = share_out(["a", "b", "c"], [plain], workers, {"b": 2, "a": 2}, storing={"b"})
        assert (shared["a"], shared["b"]) == (2, 1)


def test_neighbors_of_the_mesh_are_the_first_workers_dead_or_alive() -> None:
    for workers in ([1, 2], [2]):
        shared = share_out(["mesh:dc2", "mesh:dc3", "a"], [], workers, {"mesh:dc2": 2})
        assert shared == {"mesh:dc2": 1, "mesh:dc3": 1, "a": 2}


NAMES = st.sampled_from("abcdefgh")


@given(
    st.sets(NAMES),
    st.lists(st.tuples(NAMES, NAMES)),
    st.sets(st.integers(1, 5), min_size=1),
    st.dictionaries(NAMES, st.integers(1, 5)),
)
def test_every_container_has_exactly_one_living_worker(
    containers: set[str],
    pairs: list[tuple[str, str]],
    workers: set[int],
    before: dict[str, int],
) -> None:
    routes = [bridge(*pair) for pair in pairs if containers.issuperset(pair)]
    shared = share_out(containers, routes, sorted(workers), before)
    assert set(shared) == containers
    assert set(shared.values()) <= workers
    for route in routes:
        assert len({shared[endpoint.container] for endpoint in route.endpoints}) == 1
    if not routes and not before:
        counts = Counter(shared.values())
        shares = [counts[worker] for worker in workers]
        assert max(shares) - min(shares) <= 1
