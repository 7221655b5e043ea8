"""What waits beside a receiver without credit goes to idle ones at other workers and sites."""

import collections
from collections.abc import Sequence

import attrs
import pytest

from router.core.stored import STORE
from router.core.surplus import RETURNS_MOST
from router.model.commands import RecallDeliveries, ReportWaiting, UpdateDeliveries
from router.model.outcome import ACCEPTED, RELEASED, UNSENT
from router.routes.route import Distribution, Endpoint, Route, Storing
from tests.core.mesh.test_chains import got, send
from tests.core.test_exactly_once import Receiver, Sender
from tests.support.exact_sites import EXACT, ExactSites
from tests.support.fleet import Fleet, Joint
from tests.support.kernel import MODES
from tests.support.mesh import Mesh
from tests.support.play import AMQP, Play, ReceiverEnd, SenderEnd
from tests.support.sites import Line, Sites

RING: list[Line] = [
    ("dc1", "dc2", 10),
    ("dc2", "dc3", 10),
    ("dc3", "dc4", 10),
    ("dc4", "dc5", 10),
    ("dc5", "dc1", 10),
]
ORDERS = Route(address="orders.#")
KINDS = [ORDERS, attrs.evolve(ORDERS, distribution=Distribution.CLOSEST)]
SOON = 3.0
"""Seconds within which it goes elsewhere: two looks and two reports."""


def bodies(first: int, count: int) -> list[str]:
    return [f"{number:03}" for number in range(first, first + count)]


def pass_time(fleet: Fleet | Mesh, seconds: float) -> None:
    """Lets time pass, and octets with it."""
    for _ in range(round(seconds * 20)):
        fleet.wait(0.05)


def said(joints: Sequence[Joint], kind: type) -> list[object]:
    """Gives what cores have ordered engines to tell others."""
    return [each for joint in joints for each in joint.commands if isinstance(each, kind)]


class Pair:
    """Two workers: a receiver with three messages and no credit at the second; at the first nobody.

    As many wait at the second, sent by the first.
    """

    def __init__(self, route: Route = ORDERS, *, is_settled: bool = False) -> None:
        self.fleet = Fleet(2, route)
        self.busy = self.fleet[2].connect("busy").attach_receiver("orders.eu", credit=3)
        self.fleet.settle()
        self.near = self.sender(1)
        self.far = self.sender(2)
        send(self.far, *bodies(0, 3))
        self.numbers = send(self.near, *bodies(3, 3), settled=is_settled)
        self.fleet.settle()
        assert got(self.busy) == bodies(0, 3)

    def sender(self, worker: int) -> SenderEnd:
        sender = self.fleet[worker].connect(f"sender-{worker}").attach_sender("orders.eu")
        self.fleet.settle()
        assert sender.credit == 3
        return sender

    def idle(self, credit: int = 10) -> ReceiverEnd:
        """Attaches a receiver at the first worker."""
        idle = self.fleet[1].connect("idle").attach_receiver("orders.eu", credit=credit)
        self.fleet.settle()
        return idle

    @property
    def joints(self) -> list[Joint]:
        return [joint for pair in self.fleet.joints.values() for joint in pair]

    def said(self, kind: type) -> int:
        return len(said(self.joints, kind))


@pytest.mark.parametrize("route", KINDS)
def test_what_waits_at_another_worker_goes_to_an_idle_receiver_here(route: Route) -> None:
    pair = Pair(route)
    idle = pair.idle()
    assert got(idle) == []
    pass_time(pair.fleet, SOON)
    assert got(idle) == bodies(3, 3)
    idle.accept()
    pair.busy.accept()
    pair.fleet.settle()
    assert [pair.near.outcome(number) for number in pair.numbers] == [(ACCEPTED, True)] * 3
    pair.busy.grant(10)
    idle.grant(20)
    pass_time(pair.fleet, 10 * SOON)
    assert (len(got(pair.busy)), len(got(idle))) == (3, 3), "nothing is left behind"
    assert (pair.said(ReportWaiting), pair.said(RecallDeliveries)) == (1, 1)


def test_no_more_is_recalled_than_others_have_credit_for_and_the_last_come_first() -> None:
    pair = Pair()
    idle = pair.idle(credit=1)
    pass_time(pair.fleet, 4 * SOON)
    assert got(idle) == bodies(5, 1)
    pair.busy.accept()
    pair.busy.grant(3)
    pair.fleet.settle()
    assert got(pair.busy) == bodies(0, 5)


def test_credit_that_is_left_is_asked_back_and_the_receiver_takes_part_again() -> None:
    fleet = Fleet(2, ORDERS)
    busy = fleet[2].connect("busy").attach_receiver("orders.eu", credit=10)
    fleet.settle()
    near, far = (fleet[each].connect("s").attach_sender("orders.eu") for each in (1, 2))
    fleet.settle()
    send(far, *bodies(0, 10))
    send(near, *bodies(10, 3))
    fleet.settle()
    idle = fleet[1].connect("idle").attach_receiver("orders.eu", credit=10)
    fleet.settle()
    pass_time(fleet, SOON)
    assert got(idle) == bodies(10, 3)
    send(near, *bodies(13, 8))
    fleet.settle()
    assert got(idle) == bodies(10, 10)
    idle.grant(1)
    fleet.settle()
    assert got(idle) == bodies(10, 11), "the last one has waited here"
    idle.accept()
    busy.accept()
    busy.grant(10)
    fleet.settle()
    send(near, *bodies(21, 10))
    fleet.settle()
    assert got(busy) == [*bodies(0, 10), *bodies(21, 10)]


def test_credit_that_is_granted_anew_at_once_is_not_taken_for_what_was_asked_back() -> None:
    """What waits is too large for the one with credit, so there is some again in the same turn."""
    fleet = Fleet(2, ORDERS)
    busy = fleet[2].connect("busy").attach_receiver("orders.eu", credit=1)
    small = fleet[2].connect("small").attach_receiver("orders.eu", credit=10, max_message_octets=20)
    fleet.settle()
    near = fleet[1].connect("near").attach_sender("orders.eu")
    fleet.settle()
    send(near, *(each * 20 for each in bodies(0, 4)))
    fleet.settle()
    assert (len(got(busy)), got(small)) == (1, [])
    small.grant(6)  # with the busy one's that is as much as the sender has left
    fleet.settle()
    idle = fleet[1].connect("idle").attach_receiver("orders.eu", credit=3)
    fleet.settle()
    pass_time(fleet, SOON)
    assert got(idle)
    idle.detach()
    fleet.settle()
    send(near, *bodies(4, 5))
    fleet.settle()
    assert got(small) == bodies(4, 5)


def test_among_receivers_that_all_lack_credit_nothing_goes_to_and_fro() -> None:
    """Their workers have granted the sender more than it has used."""
    fleet = Fleet(3, ORDERS)
    for each in (2, 3):
        fleet[each].connect("busy").attach_receiver("orders.eu", credit=10)
    fleet.settle()
    near, *others = (fleet[each].connect("s").attach_sender("orders.eu") for each in (1, 2, 3))
    fleet.settle()
    for other in others:
        send(other, *bodies(100, 20))
    send(near, *bodies(0, 6))
    fleet.settle()
    pass_time(fleet, 10.0)
    joints = [joint for pair in fleet.joints.values() for joint in pair]
    assert said(joints, ReportWaiting)
    assert len(said(joints, RecallDeliveries)) <= 2, "until that credit has been asked back"


def test_nothing_is_recalled_while_nobody_else_has_credit() -> None:
    pair = Pair()
    idle = pair.idle(credit=0)
    pass_time(pair.fleet, 20.0)
    assert pair.said(RecallDeliveries) == 0
    assert 10 <= pair.said(ReportWaiting) <= 21, "one a second"
    idle.grant(3)
    pass_time(pair.fleet, SOON)
    assert got(idle) == bodies(3, 3)


@pytest.mark.parametrize(("pace", "is_told"), [(40, False), (1, True)])
def test_receivers_that_keep_up_are_not_told_of(pace: int, is_told: bool) -> None:
    """Up to a hundred wait at any time; all of them go within a second, or in half a minute."""
    fleet = Fleet(3, ORDERS)
    busy = fleet[2].connect("busy").attach_receiver("orders.eu", credit=100)
    fleet.settle()
    senders = [fleet[each].connect("s").attach_sender("orders.eu") for each in (1, 3)]
    fleet.settle()
    for number in range(40):
        for sender in senders:
            send(sender, *bodies(number, sender.credit))
        for delivery in tuple(busy.unsettled)[:pace]:
            busy.accept(delivery)
        busy.grant(100 - len(busy.unsettled))
        pass_time(fleet, 0.25)
    joints = [joint for pair in fleet.joints.values() for joint in pair]
    assert bool(said(joints, ReportWaiting)) is is_told


def test_what_a_receiver_has_had_is_not_recalled() -> None:
    """It has released one of two: that one, and what stands before it, stays there."""
    pair = Pair()
    second = pair.fleet[2].connect("second").attach_receiver("orders.eu", credit=0)
    pair.busy.accept()
    pair.busy.grant(1)
    pair.fleet.settle()
    (number,) = pair.busy.unsettled
    pair.busy.update(number, state=RELEASED)
    idle = pair.idle()
    pass_time(pair.fleet, SOON)
    assert got(idle) == bodies(4, 2)
    second.grant(1)
    pair.fleet.settle()
    assert got(second) == bodies(3, 1)


def test_what_its_sender_has_settled_goes_elsewhere_too_and_is_not_dropped() -> None:
    pair = Pair(is_settled=True)
    idle = pair.idle()
    pass_time(pair.fleet, SOON)
    assert got(idle) == bodies(3, 3)
    idle.accept()
    pair.fleet.settle()
    pass_time(pair.fleet, SOON)
    assert not pair.near.unsettled


def test_a_route_that_an_operator_has_paused_returns_nothing() -> None:
    pair = Pair()
    idle = pair.idle()
    worker = pair.fleet[2]
    worker.carry_out(worker.core.pause("orders.#", worker.now))
    pass_time(pair.fleet, 2 * SOON)
    assert got(idle) == []
    worker.carry_out(worker.core.resume("orders.#", worker.now))
    pass_time(pair.fleet, SOON)
    assert got(idle) == bodies(3, 3)


def test_a_multicast_waits_for_each_receiver_where_it_is() -> None:
    route = attrs.evolve(ORDERS, distribution=Distribution.MULTICAST)
    fleet = Fleet(2, route)
    busy = fleet[2].connect("busy").attach_receiver("orders.eu", credit=3)
    idle = fleet[1].connect("idle").attach_receiver("orders.eu", credit=10)
    fleet.settle()
    senders = [fleet[each].connect("s").attach_sender("orders.eu") for each in (1, 2)]
    fleet.settle()
    for sender in senders:
        send(sender, *bodies(0, sender.credit))
    pass_time(fleet, 2 * SOON)
    joints = [joint for pair in fleet.joints.values() for joint in pair]
    assert not said(joints, RecallDeliveries)
    assert len(got(busy)) == 3
    assert idle.credit < 10


def test_a_delivery_is_recalled_a_few_times_at_most() -> None:
    """Whenever it comes back somebody else has used the credit of both receivers."""
    fleet = Fleet(2, KINDS[1])
    busy = fleet[2].connect("busy").attach_receiver("orders.eu", credit=1)
    fleet.settle()
    near, far = (fleet[each].connect("s").attach_sender("orders.eu") for each in (1, 2))
    fleet.settle()
    send(far, "far")
    send(near, "moved")
    fleet.settle()
    idle = fleet[1].connect("idle").attach_receiver("orders.eu", credit=0)
    other = fleet[1].connect("other").attach_sender("orders.eu")
    fleet.settle()
    joints = [joint for pair in fleet.joints.values() for joint in pair]
    for _ in range(RETURNS_MOST):
        idle.grant(1)
        before = len(said(joints, RecallDeliveries))
        for _ in range(60):  # until the first worker has been told, and has recalled it
            fleet[1].wait(0.1)
            fleet[2].wait(0.1)
            fleet.carry(2, 1)
            if len(said(joints, RecallDeliveries)) > before:
                break
        send(other, "thief")
        fleet.settle()
        idle.accept()
        busy.accept()
        busy.grant(1)
        send(far, "far")
        fleet.settle()
        assert "moved" not in (*got(idle), *got(busy))
    assert len(said(joints, RecallDeliveries)) == RETURNS_MOST
    idle.grant(1)
    pass_time(fleet, 2 * SOON)
    assert got(idle)[-1] == "thief"
    busy.accept()
    busy.grant(1)
    assert got(busy)[-1] == "moved"


def test_a_router_that_returns_without_end_is_believed_a_few_times() -> None:
    play = Play("orders")
    sender = play.connect().attach_sender()
    router = play.connect("dc2", capabilities=attrs.evolve(AMQP, is_neighbor=True, is_router=True))
    receiver = router.attach_receiver(credit=10)
    (number,) = sender.send("1")
    for _ in range(RETURNS_MOST):
        receiver.update(*receiver.unsettled, state=UNSENT)
        assert receiver.unsettled
    receiver.update(*receiver.unsettled, state=UNSENT)
    assert not receiver.unsettled
    assert sender.outcome(number) == (RELEASED, True)


def test_a_client_cannot_say_that_it_was_not_sent_what_it_was() -> None:
    play = Play("orders")
    sender = play.connect().attach_sender()
    receiver = play.connect().attach_receiver(credit=10)
    (number,) = sender.send("1")
    receiver.update(*receiver.unsettled, state=UNSENT)
    assert not receiver.unsettled
    assert sender.outcome(number) == (UNSENT, True)


# Between sites


def ring_surplus(sites: Sites, worker: int = 1) -> tuple[list[SenderEnd], ReceiverEnd, ReceiverEnd]:
    """Has two ingresses send all that a slow and a fast receiver grant each, at once."""
    slow = sites.receiver("dc2", "orders.eu", 10, worker)
    fast = sites.receiver("dc4", "orders.eu", 10, worker)
    sites.run(1.0)
    senders = [sites.sender(name, "orders.eu", worker) for name in ("dc1", "dc3")]
    sites.run(1.0)
    assert [sender.credit for sender in senders] == [20, 20]
    for place, sender in enumerate(senders):
        send(sender, *bodies(100 * place, 20))
    return senders, slow, fast


def drain_fast(sites: Sites, fast: ReceiverEnd, seconds: float) -> None:
    """Has the fast receiver accept what it gets, and grant ten."""
    for _ in range(int(seconds * 10)):
        if fast.unsettled:
            fast.accept()
        if fast.credit < 10:
            fast.grant(10)
        sites.run(0.1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("route", KINDS)
def test_in_a_ring_of_sites_the_fast_receiver_gets_what_the_slow_one_cannot_take(
    route: Route, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sites, "express", mode)
    sites = Sites(RING, route)
    senders, slow, fast = ring_surplus(sites)
    drain_fast(sites, fast, 4.0)
    assert (len(got(slow)), len(got(fast))) == (10, 30), "nothing waits for the slow one"
    assert sorted(got(slow) + got(fast)) == [*bodies(0, 20), *bodies(100, 20)]
    slow.accept()
    sites.run(0.1)
    assert not any(sender.unsettled for sender in senders)
    assert {told[-1] for sender in senders for told in sender.told.values()} == {(ACCEPTED, True)}
    slow.grant(10)
    sites.run(1.0)
    assert [sender.credit for sender in senders] == [20, 20], "it takes part again"
    for sender in senders:
        send(sender, *bodies(500, 20))
    sites.run(0.1)
    assert len(got(slow)) == 20


@pytest.mark.parametrize("worker", [1, 2])
def test_it_passes_the_workers_of_both_sites(worker: int) -> None:
    sites = Sites(RING, ORDERS, workers=2)
    senders, slow, fast = ring_surplus(sites, worker)
    drain_fast(sites, fast, 1.2)  # without another report on the way
    assert (len(got(slow)), len(got(fast))) == (10, 30)
    slow.accept()
    sites.run(0.1)
    assert not any(sender.unsettled for sender in senders)


def exact_ring(workers: int = 1) -> tuple[ExactSites, list[SenderEnd], ReceiverEnd, ReceiverEnd]:
    sites = ExactSites(RING, EXACT, workers=workers)
    senders, slow, fast = ring_surplus(sites)
    return sites, senders, slow, fast


@pytest.mark.parametrize("workers", [1, 2])
def test_exactly_once_it_leaves_the_egress_that_has_released_it(workers: int) -> None:
    sites, senders, slow, fast = exact_ring(workers)
    drain_fast(sites, fast, 6.0)
    assert (len(got(slow)), len(got(fast))) == (10, 30)
    assert sorted(got(slow) + got(fast)) == [*bodies(0, 20), *bodies(100, 20)]
    slow.accept()
    sites.run(1.0)
    assert not any(sender.unsettled for sender in senders)
    assert not any(sites.remembered(name) for name in ("dc2", "dc4", "dc5"))


class ExactWorld:
    """Two ingresses have sent all that a slow and a fast receiver grant each, exactly once."""

    def __init__(self) -> None:
        self.sites = ExactSites(RING, EXACT)
        self.slow, self.fast = (
            Receiver(self.sites[name], f"from-{name}", False) for name in ("dc2", "dc4")
        )
        self.senders = [Sender(self.sites[name], f"to-{name}", False) for name in ("dc1", "dc3")]
        self.clients = [self.slow, self.fast, *self.senders]
        for client in self.clients:
            client.attach()
            self.sites.run(1.0)
        for place, sender in enumerate(self.senders):
            for number in range(8):
                sender.send(100 * place + number)
        self.sites.settle()

    def ordered(self, state: object, kind: type) -> bool:
        """Returns whether a router has ordered an update of such a state, or such a command."""
        orders = (order for play in self.sites.plays.values() for _, order in play.orders)
        return any(
            isinstance(order, kind) and (state is None or getattr(order, "state", None) == state)
            for order in orders
        )

    def work(self, *receivers: Receiver, seconds: float = 0.1) -> None:
        for client in self.clients:
            if client.is_cut:
                client.attach()
        for receiver in receivers:
            receiver.catch_up()
        for sender in self.senders:
            sender.go_on()
            sender.look()
            sender.settle()
        self.sites.run(seconds)

    def crash(self, name: str) -> None:
        after = self.sites.crash(name)
        for client in self.clients:
            if client.play.settings.router_id == name:
                client.play, client.peer, client.is_cut = after, None, True
        self.sites.run(1.0)
        self.sites.come_back(name)

    def processed(self) -> collections.Counter[bytes]:
        return self.slow.processed + self.fast.processed


@pytest.mark.parametrize("is_flushed", [True, False])
@pytest.mark.parametrize("moment", [RecallDeliveries, UpdateDeliveries])
@pytest.mark.parametrize("name", ["dc1", "dc3", "dc2"])
def test_exactly_once_holds_if_either_end_crashes_while_it_is_returned(
    name: str, moment: type, is_flushed: bool
) -> None:
    world = ExactWorld()
    state = UNSENT if moment is UpdateDeliveries else None
    for _ in range(200):
        if world.ordered(state, moment):
            break
        world.work(world.fast, seconds=0.05)
        if not is_flushed and world.sites.flushes and world.ordered(None, ReportWaiting):
            world.sites.flushes = False  # what follows is not durable when it crashes
    assert world.ordered(state, moment)
    world.crash(name)
    world.sites.flushes = True
    for _ in range(60):
        world.work(world.slow, world.fast, seconds=0.2)
    processed = world.processed()
    assert all(times == 1 for times in processed.values())
    assert set(processed) == {body for sender in world.senders for body in sender.sent}
    assert len(processed) == 16
    assert not any(world.sites.remembered(name) for name in world.sites.plays)


def test_between_routers_that_name_each_other_it_goes_to_the_idle_one() -> None:
    routes = {
        "dc1": [Route(address="dc2.#", to=(Endpoint("dc2"), Endpoint("dc3")))],
        "dc2": [Route(address="dc2.#")],
        "dc3": [Route(address="dc2.#")],
    }
    mesh = Mesh(routes)
    slow = mesh.receiver("dc2", "dc2.x", 3)
    local = mesh.sender("dc2", "dc2.x")
    sender = mesh.sender("dc1", "dc2.x")
    assert (local.credit, sender.credit) == (3, 3)
    send(local, *bodies(0, 3))
    send(sender, *bodies(3, 3))
    mesh.settle()
    idle = mesh.receiver("dc3", "dc2.x", 10)
    pass_time(mesh, SOON)
    assert got(slow) == bodies(0, 3)
    assert got(idle) == bodies(3, 3)


def test_what_is_read_from_the_store_goes_to_the_other_target() -> None:
    route = Route(
        address="telemetry.#",
        to=(Endpoint("east"), Endpoint("west")),
        store=Storing(always=True),
        dead_letter=Endpoint("east", "dead"),
    )
    fleet = Fleet(3, route, owned=[[STORE], ["east"], ["west"]])
    store, east, west = fleet[1].dial(STORE), fleet[2].dial("east"), fleet[3].dial("west")
    fleet.settle()
    inlet = store.attach_sender("telemetry.a")
    fleet.settle()
    slow = east.answer_receiver("telemetry.a", credit=4)
    fleet.settle()
    assert inlet.credit == 4
    numbers = send(inlet, *bodies(0, 4))
    slow.grant(0)  # while they are on their way to the second worker
    fleet.settle()
    assert got(slow) == []
    fast = west.answer_receiver("telemetry.a", credit=10)
    fleet.settle()
    pass_time(fleet, SOON)
    assert got(fast) == bodies(0, 4)
    fast.accept()
    fleet.settle()
    assert [inlet.outcome(number) for number in numbers] == [(ACCEPTED, True)] * 4
