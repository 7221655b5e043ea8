"""Random meshes under random events: when it is quiet, all trees are those of the true links."""

import random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from router.routes.mesh.nouns import RouterId
from router.routes.mesh.paths import Order, Ways
from tests.routes.mesh.simulator import Simulator, mesh_of

EVENTS = ["cut", "mend", "silence", "restart", "pause", "resume", "lose", "nothing"]

QUIET_SECONDS = 45.0
"""Silence is noticed in 3 s; what was lost is found by comparing digests, with pauses."""


def happen(simulator: Simulator, event: str, rng: random.Random) -> None:
    link = rng.choice(list(simulator.links.values()))
    router = rng.choice(list(simulator.nodes))
    match event:
        case "cut":
            simulator.cut(link)
        case "mend":
            simulator.mend(link)
        case "silence":
            link.is_silent = True
        case "restart":
            simulator.restart(router)
        case "pause":
            simulator.pause(router)
        case "resume":
            simulator.resume(router)
        case "lose":
            link.loss = 0.2
    simulator.run(rng.choice([0.0, 0.01, 0.1, 1.0, 5.0]))


def calm(simulator: Simulator) -> None:
    """Ends all trouble except cuts, and waits."""
    for router in simulator.nodes:
        simulator.resume(router)
    for link in simulator.links.values():
        link.loss = 0.0
        if link.is_silent:
            simulator.mend(link)
    simulator.run(QUIET_SECONDS)


def parts(simulator: Simulator) -> list[set[RouterId]]:
    """Returns the routers that can reach each other."""
    found: list[set[RouterId]] = []
    claims = simulator.true_claims()
    for start in simulator.nodes:
        if not any(start in part for part in found):
            part, pending = {start}, [start]
            while pending:
                fresh = claims[pending.pop()].keys() - part
                part |= fresh
                pending += fresh
            found.append(part)
    return found


def check(simulator: Simulator) -> None:
    """Asserts what holds when it is quiet."""
    assert simulator.wrong() == []
    assert simulator.loops() == []
    assert [order for _, order in simulator.refused()] == []
    for part in parts(simulator):
        assert len({simulator.nodes[one].mesh._flood.database.digest for one in part}) == 1
        for one in part:
            for other in part:
                paths = simulator.nodes[one].mesh.paths
                assert isinstance(paths.find(f"{other}.x", Order.CLOSEST), Ways)


@settings(max_examples=12, deadline=None)
@given(
    st.integers(2, 8),
    st.integers(2, 4),
    st.integers(0, 1 << 30),
    st.lists(st.sampled_from(EVENTS), max_size=12),
)
@example(size=7, degree=2, seed=345, events=["mend", "cut", "cut", "pause", "cut", "cut"])
def test_after_any_events_all_trees_are_those_of_the_true_links(
    size: int, degree: int, seed: int, events: list[str]
) -> None:
    simulator = mesh_of(size, degree, seed)
    simulator.steps_most = 50_000
    simulator.run(1.0)
    for event in events:
        happen(simulator, event, simulator.random)
    calm(simulator)
    check(simulator)


@settings(max_examples=10, deadline=None)
@given(st.integers(3, 12), st.integers(2, 5), st.integers(0, 1 << 30))
def test_a_change_crosses_each_link_three_times_at_most(size: int, degree: int, seed: int) -> None:
    simulator = mesh_of(size, degree, seed)
    simulator.run(8.0)
    simulator.messages.clear()
    simulator.cut(simulator.random.choice(list(simulator.links.values())))
    simulator.run(2.0)
    assert simulator.wrong() == []
    assert max(simulator.messages.values(), default=0) <= 2 * 3  # both ends say it
