"""Whatever happens to a mesh, when it is quiet again all routers know the same and are right."""

import attrs
import pytest

from router.routes.mesh.events import EpochRaised, LinkChanged
from router.routes.mesh.paths import Order
from tests.routes.mesh.simulator import Simulator, mesh_of, name


def settled(simulator: Simulator, seconds: float = 8.0) -> None:
    """Lets time go by, and asserts that all routers are right."""
    simulator.run(seconds)
    assert simulator.wrong() == []
    assert simulator.loops() == []
    assert len(simulator.digests()) == 1


def test_routers_that_meet_know_all_others() -> None:
    simulator = mesh_of(8, 3, octets=True)
    settled(simulator, 2.0)
    assert simulator.refused() == []
    found = simulator.nodes[name(1)].mesh.paths.find("r0007.orders", Order.CLOSEST)
    assert "r0007" in str(found)


def test_a_cut_is_known_to_all_within_two_seconds() -> None:
    simulator = mesh_of(12, 3, seed=3)
    settled(simulator)
    for link in list(simulator.links.values())[:5]:
        simulator.cut(link)
        settled(simulator, 2.0)
        simulator.mend(link)
        settled(simulator, 2.0)


def test_a_change_crosses_a_link_three_times_at_most() -> None:
    simulator = mesh_of(20, 5, seed=4)
    settled(simulator)
    for link in list(simulator.links.values())[:5]:
        simulator.messages.clear()
        simulator.cut(link)  # two changes: both ends say so
        settled(simulator, 2.0)
        assert max(simulator.messages.values()) <= 2 * 3
        simulator.mend(link)
        settled(simulator, 4.0)


def test_silence_is_noticed_within_three_seconds() -> None:
    simulator = mesh_of(6, 2, seed=5)
    settled(simulator)
    link = next(iter(simulator.links.values()))
    link.is_silent = True
    began = simulator.now
    assert simulator.run(10.0, lambda: not simulator.wrong())
    assert 1.5 < simulator.now - began < 3.0


def test_a_restarted_router_replaces_what_it_said_in_its_earlier_life() -> None:
    simulator = mesh_of(6, 3, seed=6)
    settled(simulator)
    node = simulator.nodes[name(2)]
    node.settings = attrs.evolve(node.settings, advertise=("other.#",))
    simulator.restart(name(2))
    settled(simulator)
    paths = simulator.nodes[name(4)].mesh.paths
    assert "r0002" in str(paths.find("other.x", Order.CLOSEST))
    assert "r0002" not in str(paths.find("r0002.x", Order.CLOSEST))


@pytest.mark.parametrize("epoch", [1, 3, 5])
def test_a_router_that_forgot_its_epoch_outlives_its_earlier_life(epoch: int) -> None:
    simulator = mesh_of(5, 2, seed=7)
    settled(simulator)
    for _ in range(4):
        simulator.restart(name(3))
        settled(simulator, 4.0)
    simulator.restart(name(3), epoch)
    settled(simulator, 20.0)
    raised = simulator.nodes[name(3)].of(EpochRaised)
    assert raised == ([EpochRaised(6)] if epoch <= 5 else [])
    assert simulator.refused() == []


def test_routers_that_were_paused_do_not_take_their_own_sleep_for_silence() -> None:
    simulator = mesh_of(3, 2, seed=8)
    settled(simulator)
    for router, node in simulator.nodes.items():
        node.orders.clear()
        simulator.pause(router)
    simulator.run(60.0)
    for router in simulator.nodes:
        simulator.resume(router)
    settled(simulator)
    assert all(node.of(LinkChanged) == [] for node in simulator.nodes.values())


def test_a_router_that_was_paused_alone_comes_back() -> None:
    simulator = mesh_of(6, 3, seed=8)
    settled(simulator)
    simulator.pause(name(1))
    simulator.run(30.0)
    others = [router for router in simulator.nodes if router != name(1)]
    assert simulator.wrong(others) != []  # the connections are there, as far as the kernels know
    assert all(name(1) not in simulator.nodes[one].mesh.paths.tree.costs for one in others)
    simulator.resume(name(1))
    settled(simulator, 20.0)
