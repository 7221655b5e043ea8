"""The benchmark of hops: which routers messages pass, and what a hop is."""

import pytest
import yaml

from tests.bench.hops import (
    SITES,
    WINDOWS,
    Passed,
    astray,
    configuration,
    growth,
    hop_us,
    least,
    line,
    measure_line,
)

FOUND = {
    0: Passed(3e6, (0.3,)),
    1: Passed(2e6, (0.3, 0.2)),
    3: Passed(1e6, (0.3, 0.2, 0.2, 0.2)),
}


def test_each_router_of_the_line_dials_the_next_and_serves_addresses_of_its_own() -> None:
    ports = {site: 10_000 + at for at, site in enumerate(SITES)}
    meshes = [yaml.safe_load(configuration(site, ports))["mesh"] for site in SITES]
    dialed = [[each["host"] for each in mesh["links"].values()] for mesh in meshes]
    assert dialed == [["127.0.0.1:10001"], ["127.0.0.1:10002"], ["127.0.0.1:10003"], []]
    assert [mesh["advertise"] for mesh in meshes] == [["a.#"], ["b.#"], ["c.#"], ["d.#"]]


def test_a_hop_is_what_all_routers_cost_beyond_one_that_is_alone() -> None:
    assert hop_us(FOUND, 1) == pytest.approx(0.2)
    assert hop_us(FOUND, 3) == pytest.approx(0.2)
    assert growth(FOUND) == pytest.approx(1.0)


def test_the_run_counts_that_took_the_least_time() -> None:
    assert least([FOUND[3], FOUND[0], FOUND[1]]) is FOUND[0]


def test_a_router_that_messages_should_have_passed_is_named() -> None:
    assert astray((110, 105, 5, 5), 1, 100) == []
    assert astray((110, 99, 5, 11), 2, 100) == [
        "b has received 99 octets of 100",
        "c has received 5 octets of 100",
        "d has received 11 octets, and is not on the way",
    ]


def test_messages_pass_the_routers_between_and_no_others() -> None:
    with line() as routers:
        for guarantee in WINDOWS:
            for hops in (0, 3):
                passed = measure_line(routers, hops, guarantee, 0.2)
                assert len(passed.each_us) == hops + 1
                assert passed.rate > 0
