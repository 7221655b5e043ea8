"""A router's core, with its connections and several workers, as one of a thousand sites."""

import gc
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from router.at_rest import at_rest
from router.core import uplinks
from router.core.mesh import sites, ways
from router.core.mesh.control import Control
from router.core.mesh.reports import PathReporter
from router.core.node import NodeKey
from router.core.uplink import Uplink
from router.routes.mesh.events import MessageReceived, NeighborConnected, Reconfigured
from router.routes.mesh.nouns import (
    Body,
    Carried,
    Entries,
    Hello,
    Key,
    Kind,
    Links,
    Prefixes,
    RouterId,
    Version,
)
from router.routes.mesh.policy import Policy
from router.routes.route import Distribution, Route
from tests.routes.mesh.simulator import forge
from tests.support.sites import Sites

PATTERNS = 10
"""Of a site."""


class Crowd:
    """dc1 is a neighbor of dc2, which tells it what others say that are not there.

    Attributes:
        links: of the others, each with its cost.
    """

    def __init__(self, size: int, workers: int) -> None:
        self.chance = random.Random(1)
        self.names = [RouterId(f"site-{number:04}.example") for number in range(size)]
        self.links: dict[RouterId, dict[RouterId, int]] = {name: {} for name in self.names}
        for at, one in enumerate(self.names):
            for other in (self.names[(at + 1) % size], *self.chance.sample(self.names, 2)):
                if one != other:
                    cost = self.chance.randint(1, 20)
                    self.links[one][other] = self.links[other][one] = cost
        self.near = self.names[:3]
        for name in self.near:
            self.links[name][RouterId("dc2")] = 10
        self.sequences = dict.fromkeys(self.names, 0)
        self.sent = 0
        self.sites = Sites([("dc1", "dc2", 10)], "#", workers=workers)
        self.tells = self.sites["dc2"].core.mesh
        costs = dict.fromkeys((RouterId("dc1"), *self.near), 10)
        self.tells.tell(Reconfigured(costs=costs, advertise=(), policy=Policy.parse({})))
        for name in self.near:
            self.tells.tell(NeighborConnected(name))
        self.run(0.5)

    @property
    def hears(self) -> Control:
        return self.sites["dc1"].core.mesh

    def run(self, seconds: float) -> None:
        """Lets time pass; those who are not there say hello."""
        while seconds > 0:
            assert self.tells.mesh is not None
            digest = self.tells.mesh._flood.database.digest
            for name in self.near:
                hello = Hello(router=name, epoch=1, heard=1, digest=digest)
                self.tells.tell(MessageReceived(name, hello))
            self.sites.run(min(seconds, 0.5))
            seconds -= 0.5

    def join(self) -> None:
        """Has all say their links and prefixes."""
        for number, name in enumerate(self.names):
            served = tuple(f"{name}.service-{each}.#" for each in range(PATTERNS))
            self.say(name, {Kind.LINKS: Links(self.links[name]), Kind.PREFIXES: Prefixes(served)})
            if number % 50 == 0:
                self.run(0.2)
        self.run(1.0)

    def change(self) -> None:
        """Has one of them change the cost of a link."""
        name = self.chance.choice(self.names)
        self.links[name][self.chance.choice(list(self.links[name]))] = self.chance.randint(1, 20)
        self.say(name, {Kind.LINKS: Links(self.links[name])})
        self.run(0.3)

    def say(self, name: RouterId, bodies: dict[Kind, Body]) -> None:
        carried = []
        for kind, body in bodies.items():
            self.sequences[name] += 1
            version = Version(1, self.sequences[name])
            carried.append(Carried(forge(Key(name, kind, 0), version, body, name)))
        self.sent += 1
        self.tells.tell(MessageReceived(self.near[0], Entries(self.sent, tuple(carried))))

    def known(self, worker: int) -> tuple[dict[RouterId, int], dict[RouterId, RouterId]]:
        """Returns the costs and next hops that a worker of dc1 goes by."""
        ways = self.sites.worker("dc1", worker).core._parts.reach.sites
        assert ways is not None
        paths = ways.find_paths()
        assert paths is not None
        return dict(paths.tree.costs), dict(paths.tree.hops)


@contextmanager
def timed(control: Control) -> Iterator[list[float]]:
    """Measures each slice of a router's work, in seconds of the thread."""
    slices: list[float] = []

    def measured(whole: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *arguments: Any) -> Any:
            begun = time.thread_time()
            result = whole(self, *arguments)
            if getattr(self, "_control", self) is control:
                slices.append(time.thread_time() - begun)
            return result

        return call

    gc.collect()
    with (
        at_rest(),
        patch.object(Control, "tell", measured(Control.tell)),
        patch.object(Control, "_due", measured(Control._due)),
        patch.object(sites.Sites, "_ask_again", measured(sites.Sites._ask_again)),
        patch.object(PathReporter, "_report", measured(PathReporter._report)),
    ):
        yield slices


@pytest.mark.thorough
def test_the_other_workers_are_told_of_all_sites_in_slices() -> None:
    crowd = Crowd(250, workers=2)
    crowd.join()
    assert len(crowd.known(1)[0]) == 252
    assert crowd.known(2) == crowd.known(1)
    for _ in range(5):
        crowd.change()
        assert crowd.known(2) == crowd.known(1)
    sender = crowd.sites.sender("dc1", f"{crowd.names[9]}.service-1.x", worker=2)
    assert sender.credit == 0
    crowd.sites.run(5.0)  # those who are not there are silent
    assert len(crowd.known(1)[1]) == 1
    assert crowd.known(2) == crowd.known(1)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_no_slice_of_a_router_among_a_thousand_is_above_two_milliseconds(workers: int) -> None:
    """On an idle machine, with senders to 100 of them."""
    crowd = Crowd(998, workers)
    with timed(crowd.hears) as slices:
        crowd.join()
        print(f"join: {len(slices)} slices, the longest {max(slices) * 1e3:.2f} ms")
        assert max(slices) <= 0.002
    for name in crowd.names[:100]:
        crowd.sites.worker("dc1", workers).connect("sender").attach_sender(f"{name}.service-1.x")
    crowd.run(1.0)
    with timed(crowd.hears) as slices:
        for _ in range(30):
            crowd.change()
        print(f"change: {len(slices)} slices, the longest {max(slices) * 1e3:.2f} ms")
        assert max(slices) <= 0.002
    assert len(crowd.known(workers)[1]) == 999


def test_what_a_change_costs_a_multicast_does_not_rise_with_the_square_of_its_sites(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site_names = [RouterId(f"site-{number}") for number in range(1_000)]
    monkeypatch.setattr(ways, "_egresses", lambda *_: ((name, "dc2") for name in site_names))
    route = Route(address="a", distribution=Distribution.MULTICAST)
    dc1 = Sites([("dc1", "dc2", 10)], route)["dc1"]
    dc1.connect("x").attach_sender("a")
    compared = []

    def is_same(old: Uplink, fresh: Uplink) -> bool:
        compared.append(old)
        return old.name == fresh.name

    monkeypatch.setattr(uplinks, "is_same", is_same)
    node = dc1.core._registry.nodes[NodeKey("a")]
    before = dc1.core._uplinks.of(node)
    dc1.core._uplinks.refit(node)
    assert dc1.core._uplinks.of(node) == before
    assert len(compared) == len(before) == len(site_names)
