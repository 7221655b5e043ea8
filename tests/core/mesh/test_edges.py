"""Edges, the sidecars beside applications: what they send and receive goes over their hub."""

import itertools

import pytest

from router.model.outcome import ACCEPTED, Modified
from router.routes.route import Distribution, Route
from tests.core.mesh.test_chains import address_of, closest, got, send
from tests.support.sites import Line, Sites

LINE: list[Line] = [("hub1", "hub2", 10), ("hub2", "far", 10)]
EDGES = {"app": ("hub1", "hub2"), "other": ("hub1",)}


def town(*routes: Route | str, workers: int = 1, others: tuple[str, ...] = ("#",)) -> Sites:
    """Makes two hubs, a site behind the second, and two edges, which have dialed."""
    routes = routes or ("#",)
    served = {"far": ["far.#"], "hub1": ["hub1.#"], "hub2": ["hub2.#"]}
    sites = Sites(LINE, *routes, advertise=served, edges=EDGES, workers=workers, others=others)
    sites.dial("app", "hub1")
    sites.dial("app", "hub2")
    sites.dial("other", "hub1")
    sites.run(2.0)
    return sites


WORKERS = list(itertools.product((1, 2), (1, 2)))


@pytest.mark.parametrize(("near", "far"), WORKERS)
def test_an_edge_sends_over_its_hub_to_any_site_and_gets_the_outcome(near: int, far: int) -> None:
    sites = town(workers=2)
    receiver = sites.receiver("far", "far.orders", credit=4, worker=far)
    sender = sites.sender("app", "far.orders", worker=near)
    assert sender.credit == 4
    (number,) = send(sender, "one")
    sites.settle()
    assert got(receiver) == ["one"]
    assert sender.outcome(number) is None
    receiver.accept()
    sites.settle()
    assert sender.outcome(number) == (ACCEPTED, True)


@pytest.mark.parametrize(("near", "far"), WORKERS)
def test_receivers_at_an_edge_are_those_of_its_hub_s_site(near: int, far: int) -> None:
    sites = town(workers=2)
    receiver = sites.receiver("app", "orders", worker=far, credit=5)
    sites.run(1.0)
    for router in ("far", "hub1", "hub2", "other"):
        sender = sites.sender(router, "orders", worker=near)
        assert sender.credit == 5, router
        (number,) = send(sender, router)
        sites.settle()
        assert got(receiver)[-1] == router
        receiver.accept()
        receiver.grant(5)
        sites.settle()
        assert sender.outcome(number) == (ACCEPTED, True)
        sender.detach()
        sites.run(0.5)
    receiver.detach()
    sites.run(2.0)
    assert sites.sender("far", "orders", worker=near).credit == 0


def test_what_an_edge_sends_does_not_come_back_to_it_but_to_its_own_receivers() -> None:
    sites = town(closest())
    own = sites.receiver("app", "a", credit=1)
    far = sites.receiver("other", "a", credit=5)
    sender = sites.sender("app", "a")
    send(sender, "1", "2")
    sites.settle()
    assert (got(own), got(far)) == (["1"], ["2"])
    assert sites["app"].core.mesh.edge is not None


@pytest.mark.parametrize("workers", [1, 2])
def test_a_multicast_reaches_each_receiver_once(workers: int) -> None:
    sites = town(Route(address="#", distribution=Distribution.MULTICAST), workers=workers)
    receivers = [
        sites.receiver(router, "news", worker=worker)
        for router in ("app", "other", "hub1", "far")
        for worker in range(1, workers + 1)
    ]
    sites.run(1.0)
    for count, router in enumerate(("app", "hub1", "far"), 1):
        sender = sites.sender(router, "news", worker=workers)
        (number,) = send(sender, router)
        sites.settle()
        assert [got(receiver)[-1] for receiver in receivers] == [router] * len(receivers)
        assert {len(got(receiver)) for receiver in receivers} == {count}
        for receiver in receivers:
            receiver.accept()
        sites.settle()
        assert sender.outcome(number) == (ACCEPTED, True)


def test_a_reply_finds_the_edge_that_asked_without_an_announcement() -> None:
    sites = town()
    server = sites.receiver("far", "far.sum")
    client = sites["app"].connect("client")
    request = client.attach_sender("far.sum")
    sites.run(0.5)
    before = sites.transfers("hub2", "far")
    replies = client.attach_receiver(None, dynamic=True, credit=5)
    send(request, "1+1")
    sites.settle()
    assert got(server) == ["1+1"]
    answering = sites["far"].connect("server").attach_sender(None)
    send(answering, "2", address=address_of(replies))
    sites.settle()
    sites.run(0.5)
    assert got(replies) == ["2"]
    assert sites.transfers("hub2", "far") - before <= 4


def test_the_policy_of_the_hub_says_what_an_edge_may_serve_but_not_its_own_dynamic_nodes() -> None:
    sites = town(others=("far.#", "hub1.#", "hub2.#", "app.temp.#"))
    sites.receiver("app", "secret")
    sites.run(1.0)
    assert sites.sender("hub1", "secret").credit == 0
    assert "mesh.refused" in sites["hub1"].events()
    receiver = sites["app"].connect("client").attach_receiver(None, dynamic=True, credit=5)
    sites.run(1.0)
    assert sites.sender("far", address_of(receiver)).credit == 5


def test_when_the_active_uplink_is_lost_traffic_goes_over_the_next_one() -> None:
    sites = town()
    far = sites.receiver("far", "far.orders")
    here = sites.receiver("app", "orders")
    sender, back = sites.sender("app", "far.orders"), sites.sender("far", "orders")
    (first,) = send(sender, "out")
    (second,) = send(back, "in")
    sites.settle()
    assert sites["app"].core.mesh.edge is not None
    assert sites["app"].core.mesh.edge.active == "hub1"
    sites.cut("app", "hub1")
    sites.run(1.0)
    assert sites["app"].core.mesh.edge.active == "hub2"
    assert (got(far), got(here)) == (["out", "out"], ["in"])
    assert back.outcome(second) == (Modified(delivery_failed=True), True)  # its receiver was gone
    send(back, "in again")
    sites.settle()
    assert got(here)[-1] == "in again"
    for receiver in (far, here):
        receiver.accept()
    sites.settle()
    assert sender.outcome(first) == (ACCEPTED, True)
    sites.dial("app", "hub1")
    sites.run(2.0)
    assert sites["app"].core.mesh.edge.active == "hub2"  # not for nothing
    (third,) = send(sender, "again")
    sites.settle()
    assert got(far)[-1] == "again"
    assert third != first


def test_without_an_uplink_there_is_no_credit_and_what_is_open_waits() -> None:
    sites = town()
    far = sites.receiver("far", "far.orders")
    sender = sites.sender("app", "far.orders")
    (number,) = send(sender, "one")
    sites.settle()
    sites.cut("app", "hub1")
    sites.cut("app", "hub2")
    sites.run(5.0)
    assert sender.credit == 0
    assert sender.outcome(number) is None
    sites.dial("app", "hub2")
    sites.run(3.0)
    assert got(far) == ["one", "one"]
    far.accept()
    sites.settle()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_silence_counts_after_three_seconds() -> None:
    sites = town()
    far = sites.receiver("far", "far.orders")
    sender = sites.sender("app", "far.orders")
    sites.silence("app", "hub1")
    (number,) = send(sender, "one")
    sites.run(4.5)
    assert got(far) == ["one"]
    far.accept()
    sites.settle()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_a_router_that_is_no_edge_by_its_open_cannot_say_hello_as_one() -> None:
    sites = town()
    assert sites["hub1"].core.mesh.is_served("edge:app")
    assert not sites["hub1"].core.mesh.is_served("mesh:app")
    assert sites["app"].core.mesh.is_served("edge:hub1")
