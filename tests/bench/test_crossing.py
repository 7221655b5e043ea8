"""The benchmark of crossings: deliveries cross where a case says so, or it fails."""

from typing import Any

import pytest

from tests.bench.crossing import BOTH, HOME, WAYS, Place, Way, crossing_us, measure_way, misplaced
from tests.bench.listed import ADMIN
from tests.bench.workers import Cost, serving

PLACE = Place(addresses=frozenset({"q.0"}), home=1, sends=2, takes=1)


def link(worker: int, connection: int, role: str, deliveries: int = 7) -> dict[str, Any]:
    """A link as the router lists it; ``role`` is the router's."""
    return {
        "worker": worker,
        "connection": connection,
        "role": role,
        "address": "q.0",
        "totals": {"deliveries": deliveries},
    }


CONNECTIONS = (
    {"worker": 1, "connection": 4, "configured": None},
    {"worker": 1, "connection": 3, "configured": "/2"},
    {"worker": 2, "connection": 3, "configured": "/1"},
)


def test_a_connection_is_so_many_workers_from_its_home() -> None:
    way = WAYS[4][BOTH]
    places = [
        (way.worker(home, 4, is_receiver=False), way.worker(home, 4, is_receiver=True))
        for home in (1, 2, 3, 4)
    ]
    assert places == [(2, 3), (3, 4), (4, 1), (1, 2)]
    for ways in WAYS.values():
        assert [each.crossings for each in ways.values()] == [0, 1, 1, 2]


def test_links_by_the_connections_that_were_asked_for_are_in_place() -> None:
    links = [link(1, 3, "receiver"), link(1, 4, "sender")]
    assert misplaced(PLACE, [*links, {**links[0], "address": "q.1"}], CONNECTIONS) == []


@pytest.mark.parametrize(
    ("links", "told"),
    [
        (
            [link(1, 4, "receiver"), link(1, 4, "sender")],
            "the sender of q.0 is connected to worker 1, not 2",
        ),
        (
            [link(1, 3, "receiver"), link(1, 3, "sender")],
            "the receiver of q.0 is connected to worker 2, not 1",
        ),
        (
            [link(1, 3, "receiver"), link(2, 3, "sender")],
            "the receiver of q.0 has its home at worker 2, not 1",
        ),
        (
            [link(1, 3, "receiver", 0), link(1, 4, "sender")],
            "the sender of q.0 has no deliveries",
        ),
        ([link(1, 3, "receiver")], "1 links are attached, not 2"),
    ],
)
def test_what_is_elsewhere_is_named(links: list[dict[str, Any]], told: str) -> None:
    assert misplaced(PLACE, links, CONNECTIONS) == [told]


def test_a_crossing_is_half_of_what_two_cost_beyond_a_delivery_at_home() -> None:
    def cost(all_us: float) -> Cost:
        return Cost(1e5, all_us, all_us, 1.0, 10.0, 0.5, 4096.0)

    found = {HOME: [cost(9.0), cost(8.0)], BOTH: [cost(20.0), cost(23.0)]}
    assert crossing_us(found) == 6.0


def test_deliveries_of_two_workers_cross_as_often_as_a_case_says() -> None:
    promise = "    guarantee: exactly-once\n"
    with serving(2, more=", homes: all", route=promise, admin=ADMIN) as router:
        for way in (Way(0, 0), Way(1, 1)):
            assert measure_way(router, 2, way, 0.2).all_us > 0


def test_a_router_that_leaves_connections_where_they_were_accepted_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROUTER_HANDING", "off")
    promise = "    guarantee: exactly-once\n"
    with (
        serving(2, more=", homes: all", route=promise, admin=ADMIN) as router,
        pytest.raises(RuntimeError, match="is connected to worker 2, not 1"),
    ):
        measure_way(router, 2, Way(0, 0), 0.2)
