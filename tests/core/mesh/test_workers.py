"""Several workers at each site: one has the mesh, and clients of all of them use it."""

import itertools

import pytest

from router.core.lanes import _fits_ways
from router.core.node import NodeKey
from router.model.outcome import ACCEPTED
from router.routes.route import Distribution, Route
from tests.core.mesh.test_chains import LINE, SERVED, address_of, closest, got, send
from tests.support.sites import Sites

PAIR = [("dc1", "dc2", 10)]
EITHER = list(itertools.product((1, 2), (1, 2)))


@pytest.mark.parametrize(("near", "far"), EITHER)
def test_senders_and_receivers_are_at_any_worker(near: int, far: int) -> None:
    sites = Sites(LINE, "orders.#", advertise=SERVED, workers=2)
    receiver = sites.receiver("dc5", "orders.eu", worker=far, credit=3)
    sender = sites.sender("dc1", "orders.eu", worker=near)
    assert sender.credit == 3
    (number,) = send(sender, "one")
    sites.settle()
    assert got(receiver) == ["one"]
    assert sender.outcome(number) is None
    receiver.accept()
    sites.settle()
    assert sender.outcome(number) == (ACCEPTED, True)
    receiver.detach()
    sites.run(2.0)
    assert sender.credit == 0


@pytest.mark.parametrize(("near", "far"), EITHER)
def test_an_address_under_no_prefix_is_found_while_some_worker_has_receivers(
    near: int, far: int
) -> None:
    sites = Sites(LINE, "#", workers=2)
    sender = sites.sender("dc1", "a.b", worker=near)
    assert sender.credit == 0
    receiver = sites.receiver("dc3", "a.b", worker=far)
    sites.run(1.0)
    assert sender.credit == 10
    receiver.detach()
    sites.run(2.0)
    assert sender.credit == 0


def test_all_workers_use_one_chain_beyond_the_first_hop() -> None:
    sites = Sites(LINE, "orders.#", advertise=SERVED, workers=3)
    receiver = sites.receiver("dc5", "orders.eu", worker=2, credit=9)
    senders = [sites.sender("dc1", "orders.eu", worker=number) for number in (1, 2, 3)]
    numbers = [send(sender, str(number)) for number, sender in enumerate(senders)]
    sites.settle()
    assert sorted(got(receiver)) == ["0", "1", "2"]
    receiver.accept()
    sites.settle()
    for sender, (number,) in zip(senders, numbers, strict=True):
        assert sender.outcome(number) == (ACCEPTED, True)
    listed = sites["dc4"].core.mesh.connections
    assert len(listed) == 2
    attached = sites["dc4"].core._registry.attached.values()
    names = [str(link.key.name) for link in attached]
    assert names.count("dc1>dc5:orders.eu") == 2  # one comes, one goes on


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_multicast_reaches_each_receiver_of_all_sites_once(workers: int) -> None:
    route = Route(address="prices.#", distribution=Distribution.MULTICAST)
    sites = Sites(LINE, route, workers=workers)
    every = list(range(1, workers + 1))
    receivers = [
        sites.receiver(router, "prices.eu", worker=worker)
        for router in ("dc1", "dc2", "dc4", "dc5")
        for worker in every
    ]
    sites.run(1.0)
    for worker in every:
        sender = sites.sender("dc1", "prices.eu", worker=worker)
        before = sites.transfers("dc3", "dc4")
        (number,) = send(sender, f"from {worker}")
        sites.settle()
        assert [got(receiver)[-1:] for receiver in receivers] == [[f"from {worker}"]] * len(
            receivers
        )
        assert {len(got(receiver)) for receiver in receivers} == {worker}
        assert sites.transfers("dc3", "dc4") - before == 2  # a copy for each egress
        for receiver in receivers:
            receiver.accept()
        sites.settle()
        assert sender.outcome(number) == (ACCEPTED, True)


@pytest.mark.parametrize(("near", "far"), EITHER)
def test_a_request_and_its_reply_cross_sites(near: int, far: int) -> None:
    sites = Sites(LINE, "#", workers=2, advertise={"dc5": ["services.#"]})
    server = sites.receiver("dc5", "services.sum", worker=far)
    client = sites.worker("dc1", near).connect("client")
    replies = client.attach_receiver(None, dynamic=True, credit=5)
    sites.run(0.5)
    address = address_of(replies)
    request = client.attach_sender("services.sum")
    sites.run(0.5)
    send(request, "1+1")
    sites.settle()
    assert got(server) == ["1+1"]
    for place, worker in (("known", far), ("relayed", 3 - far)):
        answering = sites.worker("dc5", worker).connect(f"server-{place}")
        reply = answering.attach_sender(address if place == "known" else None)
        sites.run(0.5)
        send(reply, place, address=None if place == "known" else address)
        sites.run(1.0)
        assert got(replies)[-1] == place
    assert len(got(replies)) == 2


def test_closest_prefers_the_site_s_receivers_at_whichever_worker() -> None:
    sites = Sites(LINE, closest(), workers=2)
    far = sites.receiver("dc2", "a", worker=2)
    other, own = (
        sites.receiver("dc1", "a", credit=1, worker=2),
        sites.receiver("dc1", "a", credit=1, worker=1),
    )
    sender = sites.sender("dc1", "a", worker=1)
    send(sender, "1")
    sites.settle()
    send(sender, "2")
    sites.settle()
    send(sender, "3")
    sites.settle()
    assert (got(own), got(other), got(far)) == (["1"], ["2"], ["3"])


def test_what_enters_at_another_worker_leaves_the_site_there_alone() -> None:
    """A worker's deliveries go to each site on a chain of its own, never by another worker's."""
    sites = Sites(PAIR, "#", workers=2)
    here = sites.receiver("dc1", "a", worker=1, credit=5)
    there = sites.receiver("dc2", "a", worker=2, credit=5)
    sites.sender("dc1", "a", worker=1)  # so that the first worker has a chain of its own
    sender = sites.sender("dc1", "a", worker=2)
    assert sender.credit == 10
    numbers = send(sender, *map(str, range(10)))
    sites.settle()
    assert sorted([*got(here), *got(there)]) == sorted(map(str, range(10)))
    assert len(got(here)) == 5
    for receiver in (here, there):
        receiver.accept()
    sites.settle()
    assert {sender.outcome(number) for number in numbers} == {(ACCEPTED, True)}


def test_the_lane_would_send_what_another_worker_sends_here_to_other_sites() -> None:
    """It sends what any sender of a node sends to any receiver; so it has no such node."""
    sites = Sites(PAIR, "#", workers=2)
    sites.receiver("dc1", "a", worker=1)
    sites.receiver("dc2", "a")
    sites.sender("dc1", "a", worker=1)
    node = sites["dc1"].core._registry.nodes[NodeKey("a")]
    assert any(link.chain is not None for link in node.outgoing)
    fits = [_fits_ways(node)]
    other = sites.sender("dc1", "a", worker=2)
    fits.append(_fits_ways(node))
    other.detach()
    sites.run(40.0)  # the link between the workers lingers
    fits.append(_fits_ways(node))
    assert fits == [True, False, True]


@pytest.mark.parametrize("worker", [1, 2])
def test_a_cut_behind_the_site_sends_again_by_another_way(worker: int) -> None:
    ring = [*LINE, ("dc5", "dc1", 50)]
    sites = Sites(ring, "orders.#", advertise=SERVED, workers=2)
    receiver = sites.receiver("dc5", "orders.eu", worker=2)
    sender = sites.sender("dc1", "orders.eu", worker=worker)
    (first,) = send(sender, "one")
    sites.settle()
    sites.cut("dc3", "dc4")
    sites.run(1.0)
    (second,) = send(sender, "two")
    sites.settle()
    assert got(receiver) == ["one", "one", "two"]
    receiver.accept()
    sites.settle()
    assert [sender.outcome(number) for number in (first, second)] == [(ACCEPTED, True)] * 2


@pytest.mark.parametrize("worker", [1, 2])
def test_a_site_that_cannot_be_reached_takes_no_credit_and_what_is_open_waits(worker: int) -> None:
    sites = Sites(LINE, "orders.#", advertise=SERVED, workers=2)
    receiver = sites.receiver("dc5", "orders.eu", worker=2)
    sender = sites.sender("dc1", "orders.eu", worker=worker)
    (number,) = send(sender, "one")
    sites.settle()
    sites.cut("dc4", "dc5")
    sites.run(10.0)
    assert sender.credit == 0
    assert sender.outcome(number) is None
    sites.dial("dc4", "dc5")
    sites.run(3.0)
    assert got(receiver) == ["one", "one"]
    receiver.accept()
    sites.settle()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_what_is_open_waits_for_the_worker_that_has_the_mesh() -> None:
    sites = Sites(PAIR, "orders.#", advertise={"dc2": ["orders.#"]}, workers=2)
    receiver = sites.receiver("dc2", "orders.eu", worker=2)
    sender = sites.sender("dc1", "orders.eu", worker=2)
    (first,) = send(sender, "one")
    sites.settle()
    assert got(receiver) == ["one"]
    sites.kill_home("dc1")
    sites.run(2.0)
    assert sender.outcome(first) is None
    assert sender.credit == 0
    sites.revive_home("dc1", 2)
    sites.run(1.0)
    assert sender.outcome(first) is None
    sites.dial("dc1", "dc2")
    sites.run(20.0)
    assert got(receiver) == ["one", "one"]
    receiver.accept()
    sites.settle()
    assert sender.outcome(first) == (ACCEPTED, True)
    assert sender.credit > 0
    (second,) = send(sender, "two")
    sites.settle()
    assert got(receiver)[-1] == "two"
    assert second != first


def test_what_the_first_worker_s_next_life_does_not_report_is_forgotten() -> None:
    sites = Sites(PAIR, "orders.#", advertise={"dc2": ["orders.#"]}, workers=2)
    sites.receiver("dc2", "orders.eu", worker=2)
    sender = sites.sender("dc1", "orders.eu", worker=2)
    assert sender.credit == 10
    sites.kill_home("dc1")
    sites.revive_home("dc1", 2)
    sites.run(10.0)
    known = sites.worker("dc1", 2).core._parts.reported_paths
    assert known.paths is not None
    assert "dc2" in known.paths.tree.costs
    sites.run(10.0)
    assert "dc2" not in known.paths.tree.costs
    assert known.paths.index.best("orders.eu") == ()


@pytest.mark.parametrize("worker", [1, 2])
def test_the_other_worker_at_the_egress_may_die(worker: int) -> None:
    sites = Sites(PAIR, "orders.#", advertise={"dc2": ["orders.#"]}, workers=2)
    receiver = sites.receiver("dc2", "orders.eu", worker=2)
    sender = sites.sender("dc1", "orders.eu", worker=worker)
    (first,) = send(sender, "one")
    sites.settle()
    assert got(receiver) == ["one"]
    other = sites.receiver("dc2", "orders.eu", worker=1)
    sites.fleets["dc2"].cut(1, 2)
    sites.run(1.0)
    assert got(other) == ["one"]
    other.accept()
    sites.settle()
    assert sender.outcome(first) == (ACCEPTED, True)
