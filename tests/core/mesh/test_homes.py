"""Exactly-once between sites whose addresses have homes at all workers; one has the neighbors."""

import itertools

import attrs
import pytest

from router.core.homes import rendezvous
from router.links.attaches import ATTACH
from router.model.commands import RefuseLink
from router.model.condition import STOLEN, UNAUTHORIZED_ACCESS
from router.model.events import LinkAttached
from router.routes.mesh.nouns import RouterId
from router.routes.mesh.paths import Order, Unreachable
from tests.core.mesh.test_exactly_once import (
    DIAMOND,
    LINE,
    PAIR,
    SERVED,
    World,
    chain_attach,
    leave_a_cut_path,
)
from tests.core.test_exactly_once import Receiver, Sender
from tests.support.exact_sites import EXACT, ExactSites
from tests.support.fleet import Joint
from tests.support.sites import Line

ADDRESS = "orders"
"""That of all clients here."""

WORKERS = 3
HOME = rendezvous(ADDRESS, WORKERS)
PLACES = list(itertools.product((1, HOME, 3), (1, HOME, 3)))


class WorldOfHomes(World):
    """A sender at a worker of dc1, and a receiver at one of dc5."""

    def __init__(self, links: list[Line], near: int = 1, far: int = 1) -> None:
        self.sites = ExactSites(links, EXACT, advertise=SERVED, workers=WORKERS)
        self.receiver = Receiver(self.sites.worker("dc5", far), "receiver", False)
        self.sender = Sender(self.sites.worker("dc1", near), "sender", False)
        self.receiver.attach()
        self.sites.run(1.0)
        self.sender.attach()
        self.sites.run(1.0)

    def crash_worker(self, name: str, number: int) -> None:
        """Kills one worker, with the connections of its clients."""
        before = self.sites.worker(name, number)
        after = self.sites.crash(name, number)
        for client in (self.receiver, self.sender):
            if client.play is before:
                client.play, client.peer, client.is_cut = after, None, True
            elif client.peer is not None and client.peer.closed is not None:
                client.is_cut = True  # its link's home is gone
        for other in self.sites.costs[name]:
            if number == 1:
                self.sites.dial(name, other)


def attach_by_neighbor(world: World, event: LinkAttached) -> Joint:
    """Has the neighbor dc4 attach a link at dc5; gives dc5's end of that connection."""
    wire = world.sites.wire("dc4", "dc5")
    end = wire.joints[wire.ends.index("dc5")]
    end.play.carry_out(end.play.core.handle(end.id, [event], end.play.now))
    return end


def test_the_home_is_neither_the_first_worker_nor_the_last() -> None:
    assert HOME == 2


@pytest.mark.parametrize(("near", "far"), PLACES)
def test_deliveries_pass_wherever_clients_are(near: int, far: int) -> None:
    world = WorldOfHomes(LINE, near, far)
    world.send(1, 2)
    world.work()
    world.send(3)
    world.check(3)


def test_only_the_homes_remember() -> None:
    world = WorldOfHomes(PAIR)
    world.send(1)
    remembered = {
        (name, number): len(play.remembered())
        for name in ("dc1", "dc5")
        for number, play in enumerate(world.sites.journals(name), 1)
        if play.remembered()
    }
    assert remembered == {("dc1", HOME): 1, ("dc5", HOME): 1}
    world.check(1)


def test_a_cut_path_is_left_for_another() -> None:
    leave_a_cut_path(WorldOfHomes(DIAMOND))


def test_a_better_path_is_taken_while_the_other_stands() -> None:
    world = WorldOfHomes(DIAMOND)
    world.sites.cut("dc2", "dc4")
    world.work()
    world.send(1)
    assert world.sites.transfers("dc3", "dc5") > 0
    world.sites.dial("dc2", "dc4")
    world.sites.run(3.0)
    before = world.sites.transfers("dc2", "dc4")
    world.send(2)
    assert world.sites.transfers("dc2", "dc4") > before
    world.check(2)


@pytest.mark.parametrize("number", range(1, WORKERS + 1))
@pytest.mark.parametrize("name", ["dc1", "dc4", "dc5"])
def test_any_worker_may_die(name: str, number: int) -> None:
    world = WorldOfHomes(LINE, near=1, far=3)
    world.send(1, 2, 3)
    world.receiver.look()
    world.receiver.answer()
    world.crash_worker(name, number)
    world.sites.run(3.0)
    world.work()
    world.send(4)
    world.check(4)


@pytest.mark.parametrize(("added", "name"), [(1, UNAUTHORIZED_ACCESS), (0, STOLEN)])
def test_attaches_that_the_ingress_has_not_signed_or_signed_long_ago_are_refused(
    added: int, name: str
) -> None:
    world = WorldOfHomes(LINE)
    world.send(1)
    event = chain_attach(world)
    number = [*event.properties[ATTACH]]  # type: ignore[misc]
    number[1] += added
    properties = {**event.properties, ATTACH: number}
    neighbor = attach_by_neighbor(world, attrs.evolve(event, properties=properties))
    world.sites.settle()
    refused = [each for each in neighbor.commands if isinstance(each, RefuseLink)]
    assert [each.condition.name for each in refused] == [name]
    world.check(1)


def test_a_chain_that_waits_for_its_way_makes_its_ingress_no_receiver() -> None:
    world = WorldOfHomes(LINE)
    world.send(1)
    world.sites.cut("dc4", "dc5")
    world.sites.run(3.0)
    mesh = world.sites["dc4"].core.mesh.mesh
    assert mesh is not None
    assert mesh.paths.find(ADDRESS, Order.CLOSEST) == Unreachable((RouterId("dc5"),))
