"""A thousand routers in simulated time: a cut, and 10^5 addresses under 10^3 prefixes.

``python -m tests.routes.mesh.thousand [ROUTERS]`` prints one JSON object. So that it takes minutes
and not hours, the routers begin with what flooding would have told them (``boot``).
"""

import gc
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from router.at_rest import at_rest
from router.routes.mesh.events import AddressAttached, AddressDetached
from router.routes.mesh.mesh import Mesh
from router.routes.mesh.nouns import AnyBody, Entry
from tests.routes.mesh.simulator import Simulator, mesh_of, true_tree

STEP_SECONDS = 0.05


def boot(simulator: Simulator) -> None:
    """Brings all links up and gives every router what every other one says of itself."""
    simulator.floods = False
    simulator.run(0.5)
    meshes = [node.mesh for node in simulator.nodes.values()]
    said: list[tuple[Entry, AnyBody]] = []
    for mesh in meshes:
        for entry in mesh._flood.database.of(mesh._router):
            body = mesh._notary.open(entry)
            said.append((entry, body))  # type: ignore[arg-type]
    for mesh in meshes:
        _learn(mesh, said, simulator.now)
    simulator.run(0.5)
    for mesh in meshes:
        for neighbor in mesh._neighbors.values():
            neighbor.sent = neighbor.received = 0
    simulator.floods = True
    simulator.run(1.5)


def _learn(mesh: Mesh, said: list[tuple[Entry, AnyBody]], now: float) -> None:
    for entry, body in said:
        if entry.key.origin != mesh._router:
            for _ in mesh._flood.keep(entry, body, None, now):
                pass
    for neighbor in mesh._neighbors.values():
        neighbor.outbox.clear()


def converge(simulator: Simulator, most: float) -> float | None:
    """Returns after how many simulated seconds all trees are right; None: not by then."""
    claims = simulator.true_claims()
    true = {router: true_tree(claims, router) for router in simulator.nodes}
    began = simulator.now
    while simulator.now - began < most:
        simulator.run(STEP_SECONDS)
        if all(
            node.mesh.paths.tree.costs == true[router].costs
            and node.mesh.paths.tree.hops == true[router].hops
            for router, node in simulator.nodes.items()
        ):
            return simulator.now - began
    return None


@contextmanager
def uncollected() -> Iterator[None]:
    """Keeps the collector out of what is measured, which is the routers' work alone."""
    gc.collect()
    with at_rest():
        yield


def measure(size: int = 1_000) -> dict[str, object]:
    """Runs the routers and returns the figures."""
    simulator = mesh_of(size, 6, seed=1, measure=True)
    boot(simulator)
    wrong = len(simulator.wrong())
    simulator.slices.clear()
    simulator.messages.clear()
    link = list(simulator.links.values())[-1]
    with uncollected():
        simulator.cut(link)
        seconds = converge(simulator, 4.0)
    slices = sorted(simulator.slices)
    figures: dict[str, object] = {
        "routers": size,
        "links": len(simulator.links),
        "wrong_before": wrong,
        "databases": len(simulator.digests()),
        "seconds_after_a_cut": None if seconds is None else round(seconds, 2),
        "changes": 2,
        "messages_of_the_busiest_link_per_change": max(simulator.messages.values()) / 2,
        "messages_per_link_and_change": round(
            sum(simulator.messages.values()) / 2 / len(simulator.links), 2
        ),
        "slices": len(slices),
        "longest_slice_ms": round(slices[-1] * 1e3, 2),
        "p9999_slice_ms": round(slices[int(len(slices) * 0.9999)] * 1e3, 2),
    }
    figures |= addresses(simulator, 100)
    return figures


def addresses(simulator: Simulator, each: int) -> dict[str, object]:
    """Attaches and detaches addresses under the prefix of each site; counts what is said of it."""
    simulator.run(1.0)
    simulator.messages.clear()
    for make in (AddressAttached, AddressDetached):
        for router in simulator.nodes:
            for number in range(each):
                simulator.tell(router, make(f"{router}.queue.{number}"))
        simulator.run(0.5)
    return {
        "addresses": each * len(simulator.nodes),
        "messages_for_addresses": sum(simulator.messages.values()),
    }


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000)))
