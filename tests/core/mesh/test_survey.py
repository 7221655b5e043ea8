"""What people see of a mesh: links, sites, and the ways to an address."""

import pytest

from router.routes.route import Distribution, Guarantee, Route
from router.service.control import MeshRecord, MeshWayRecord, mesh_record
from tests.support.sites import Line, Sites, unreachable

LINE: list[Line] = [("dc1", "dc2", 10), ("dc2", "dc3", 5)]


def record(sites: Sites, address: str | None = None) -> MeshRecord:
    mesh = sites["dc1"].core.mesh.mesh
    assert mesh is not None
    return mesh_record(mesh, address)


def test_the_survey_names_links_sites_and_what_they_serve() -> None:
    sites = Sites(LINE, "#", advertise={"dc3": ["dc3.#", "orders"]})
    sites.receiver("dc2", "prices")
    sites.run(1.0)
    found = record(sites)
    assert [(link.router, link.cost, link.is_up) for link in found.links] == [("dc2", 10, True)]
    assert [(site.router, site.cost, site.hop) for site in found.sites] == [
        ("dc1", 0, ""),
        ("dc2", 10, "dc2"),
        ("dc3", 15, "dc2"),
    ]
    own, second, third = found.sites
    assert own.links == (("dc2", 10),)
    assert (second.prefixes, second.addresses) == (("dc2.temp.#",), 1)
    assert (third.prefixes, third.addresses) == (
        ("dc3.#", "dc3.temp.#", "orders"),
        0,
    )


def test_the_ways_to_an_address_are_those_that_messages_take() -> None:
    sites = Sites(LINE, "#", advertise={"dc2": ["a"], "dc3": ["a"]})
    sites.receiver("dc1", "a")
    assert record(sites, "a").ways == (
        MeshWayRecord(egress="dc1", hop="", cost=0),
        MeshWayRecord(egress="dc2", hop="dc2", cost=10),
        MeshWayRecord(egress="dc3", hop="dc2", cost=15),
    )
    assert record(sites, "b").ways == ()
    assert record(sites).ways == ()


def test_a_neighbor_that_is_configured_and_not_connected_is_shown_as_down() -> None:
    sites = Sites(LINE, "#")
    sites.cut("dc1", "dc2")
    sites.run(1.0)
    links = [(link.router, link.cost, link.is_up) for link in record(sites).links]
    assert links == [("dc2", 10, False)]


def test_a_site_that_is_not_reached_is_still_shown() -> None:
    sites = Sites(LINE, "#", advertise={"dc3": ["a"]})
    sites.cut("dc2", "dc3")
    sites.run(0.5)
    assert record(sites, "a").ways == (MeshWayRecord(egress="dc3", hop="", cost=None),)
    assert [site.cost for site in record(sites).sites] == [0, 10, None]


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE])
@pytest.mark.parametrize("worker", [1, 2])
def test_a_site_that_a_multicast_misses_is_counted(worker: int, guarantee: Guarantee) -> None:
    route = Route(address="#", distribution=Distribution.MULTICAST, guarantee=guarantee)
    sites = Sites(LINE, route, advertise={"dc2": ["a"], "dc3": ["a"]}, workers=2)
    near, far = sites.receiver("dc2", "a"), sites.receiver("dc3", "a")
    source = sites.sender("dc1", "a", worker=worker)
    is_exact = guarantee is Guarantee.EXACTLY_ONCE  # it is kept by the first worker
    asked = sites.worker("dc1", 1 if is_exact else worker)
    counts = [unreachable(asked)]
    sites.cut("dc2", "dc3")
    sites.run(3.0)
    counts.append(unreachable(asked))
    source.send("x")
    sites.run(1.0)
    assert (near.payloads, far.payloads) == ([] if is_exact else [b"x"], []), "without a journal"
    sites.dial("dc2", "dc3")
    sites.run(2.0)
    assert [*counts, unreachable(asked)] == [0, 1, 0]


@pytest.mark.parametrize("worker", [1, 2])
def test_addresses_whose_messages_have_no_way_are_counted(worker: int) -> None:
    sites = Sites(LINE, "#", advertise={"dc3": ["a"]}, workers=2)
    sites.receiver("dc3", "a")
    sites.receiver("dc2", "b")
    sites.sender("dc1", "a", worker=worker)
    sites.sender("dc1", "b", worker=worker)
    assert unreachable(sites.worker("dc1", worker)) == 0
    sites.cut("dc2", "dc3")
    sites.run(1.0)
    assert unreachable(sites.worker("dc1", worker)) == 1
    assert unreachable(sites["dc2"]) == 0, "in transit"
    sites.dial("dc2", "dc3")
    sites.run(2.0)
    assert unreachable(sites.worker("dc1", worker)) == 0
