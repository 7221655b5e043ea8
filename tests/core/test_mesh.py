"""Routers that name each other: nothing is lost, doubled or sent in circles."""

import itertools
import random
from collections import Counter
from collections.abc import Mapping, Sequence

import attrs
import pytest

from router.core.lanes import REST_SECONDS
from router.core.node import Node
from router.model.capabilities import Capabilities, Protocol
from router.model.events import WaysAdvertised
from router.model.identity import DeliveryNumber
from router.model.outcome import ACCEPTED, RELEASED
from router.model.ways import NODE, Way
from router.routes.route import Distribution, Endpoint, Guarantee, Route
from tests.support.kernel import needs_kernel
from tests.support.mesh import Mesh
from tests.support.play import Play, ReceiverEnd, SenderEnd

COUNT = 20


def to(address: str, *containers: str) -> Route:
    return Route(address=address, to=tuple(map(Endpoint, containers)))


def pull(container: str) -> Route:
    return Route(address="dc2.x", from_=Endpoint(container, "dc2.x"))


FORMS: Mapping[str, Mapping[str, Sequence[Route]]] = {
    "each has its own": {
        "dc1": [Route(address="dc1.#"), to("dc2.#", "dc2")],
        "dc2": [Route(address="dc2.#"), to("dc1.#", "dc1")],
    },
    "each names the other": {"dc1": [to("dc2.#", "dc2")], "dc2": [to("dc2.#", "dc1")]},
    "each pulls from the other": {"dc1": [pull("dc2")], "dc2": [pull("dc1")]},
    "a ring": {
        "dc1": [to("dc2.#", "dc2")],
        "dc2": [to("dc2.#", "dc3")],
        "dc3": [to("dc2.#", "dc1")],
    },
    "a ring of four": {
        "dc1": [to("dc2.#", "dc2")],
        "dc2": [to("dc2.#", "dc3")],
        "dc3": [to("dc2.#", "dc4")],
        "dc4": [to("dc2.#", "dc1")],
    },
    "a ring of five": {
        "dc1": [to("dc2.#", "dc2")],
        "dc2": [to("dc2.#", "dc3")],
        "dc3": [to("dc2.#", "dc4")],
        "dc4": [to("dc2.#", "dc5")],
        "dc5": [to("dc2.#", "dc1")],
    },
    "a ring that pulls": {"dc1": [pull("dc2")], "dc2": [pull("dc3")], "dc3": [pull("dc1")]},
    "all with all": {
        "dc1": [to("dc2.#", "dc2", "dc3")],
        "dc2": [to("dc2.#", "dc1", "dc3")],
        "dc3": [to("dc2.#", "dc1", "dc2")],
    },
}


def sent(sender: SenderEnd, first: int, count: int) -> list[DeliveryNumber]:
    return [sender.send(b"\x00Su\xa0\x01%c" % number)[0] for number in range(first, first + count)]


def taken(receivers: Sequence[ReceiverEnd]) -> Counter[bytes]:
    return Counter(payload for receiver in receivers for payload in receiver.payloads)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("places", [("dc1",), ("dc2",), ("dc1", "dc2")])
@pytest.mark.parametrize("form", FORMS)
def test_every_message_comes_once_wherever_its_receivers_are(
    form: str, places: tuple[str, ...], workers: int
) -> None:
    mesh = Mesh(FORMS[form], workers=workers)
    receivers = [mesh.receiver(place, "dc2.x", credit=100, worker=workers) for place in places]
    sender = mesh.sender("dc1", "dc2.x")
    before = mesh.transfers()
    numbers = sent(sender, 0, COUNT)
    mesh.settle()
    assert set(taken(receivers).values()) == {1}
    assert len(taken(receivers)) == COUNT
    for receiver in receivers:
        receiver.accept()
    mesh.settle()
    assert [sender.outcome(number) for number in numbers] == [(ACCEPTED, True)] * COUNT
    assert mesh.transfers() - before <= 2 * COUNT * len(mesh.routers), "once round, and back"


@pytest.mark.parametrize("worker", [1, 2, 3])
@pytest.mark.parametrize("place", ["dc1", "dc2"])
@pytest.mark.parametrize("form", FORMS)
def test_a_receiver_at_any_of_three_workers_gets_every_message_once(
    form: str, place: str, worker: int
) -> None:
    mesh = Mesh(FORMS[form], workers=3)
    receiver = mesh.receiver(place, "dc2.x", credit=100, worker=worker)
    sender = mesh.sender("dc1", "dc2.x", worker=worker % 3 + 1)
    assert sender.credit >= COUNT
    numbers = sent(sender, 0, COUNT)
    mesh.settle()
    assert taken([receiver]) == {b"\x00Su\xa0\x01%c" % number: 1 for number in range(COUNT)}
    receiver.accept()
    mesh.settle()
    assert [sender.outcome(number) for number in numbers] == [(ACCEPTED, True)] * COUNT


@pytest.mark.parametrize("place", ["dc1", "dc2"])
@pytest.mark.parametrize("form", FORMS)
def test_what_nobody_receives_waits_and_goes_to_the_first_who_comes(form: str, place: str) -> None:
    mesh = Mesh(FORMS[form])
    sender = mesh.sender("dc1", "dc2.x")
    assert sender.credit == 0
    anonymous = mesh["dc1"][1].connect("anonymous").attach_sender(None)
    (waiting,) = anonymous.send(b"\x00Su\xa0\x01w", address="dc2.x")
    mesh.settle()
    assert anonymous.outcome(waiting) is None
    receiver = mesh.receiver(place, "dc2.x", credit=100)
    sent(sender, 0, 10)
    mesh.settle()
    receiver.accept()
    mesh.settle()
    assert anonymous.outcome(waiting) == (ACCEPTED, True)
    assert sorted(taken([receiver]).values()) == [1] * 11
    receiver.detach()
    mesh.settle()
    assert sender.credit == 0


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("places", [("dc3",), ("dc1", "dc3"), ("dc1", "dc2", "dc3")])
@pytest.mark.parametrize("form", ["a ring", "a ring of four", "all with all"])
def test_senders_have_no_credit_any_more_when_all_receivers_have_taken_theirs_back(
    form: str, places: tuple[str, ...], workers: int
) -> None:
    """Each router of a ring has credit of the next one, and would grant it for ever."""
    mesh = Mesh(FORMS[form], workers=workers)
    receivers = [mesh.receiver(place, "dc2.x", credit=100) for place in places]
    senders = [mesh.sender(name, "dc2.x") for name in FORMS[form]]
    assert all(sender.credit for sender in senders)
    for receiver in receivers:
        receiver.grant(0)
        mesh.settle()
    assert [sender.credit for sender in senders] == [0] * len(senders)
    receivers[0].grant(100)
    mesh.settle()
    assert all(sender.credit for sender in senders)


@pytest.mark.parametrize("places", [("dc3",), ("dc1", "dc3"), ("dc1", "dc2", "dc3")])
@pytest.mark.parametrize("form", ["a ring", "a ring of four", "a ring of five", "all with all"])
def test_the_one_receiver_that_grants_credit_again_gets_what_anybody_sends(
    form: str, places: tuple[str, ...]
) -> None:
    mesh = Mesh(FORMS[form])
    receivers = [mesh.receiver(place, "dc2.x", credit=0) for place in places]
    senders = [mesh.sender(name, "dc2.x") for name in FORMS[form]]
    assert not any(sender.credit for sender in senders)
    for _ in range(2):
        receivers[0].grant(100)
        mesh.settle()
        numbers = [sent(sender, count, 1)[0] for count, sender in enumerate(senders)]
        mesh.settle()
        receivers[0].accept()
        receivers[0].grant(0)
        mesh.settle()
        outcomes = [s.outcome(number) for s, number in zip(senders, numbers, strict=True)]
        assert outcomes == [(ACCEPTED, True)] * len(senders)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("first", [0, 1])
def test_a_multicast_is_sent_whoever_of_its_receivers_has_credit_first(
    first: int, workers: int
) -> None:
    form = FORMS["each names the other"]
    routes = {
        name: [attrs.evolve(each, distribution=Distribution.MULTICAST) for each in own]
        for name, own in form.items()
    }
    mesh = Mesh(routes, workers=workers)
    receivers = [mesh.receiver(place, "dc2.x", credit=0) for place in ("dc1", "dc2")]
    receivers[first].grant(100)
    mesh.settle()
    receivers[1 - first].grant(100)
    mesh.settle()
    sender = mesh.sender("dc1", "dc2.x")
    assert sender.credit > 0, "neither router waits for the other's receivers in order to say so"
    numbers = sent(sender, 0, COUNT)
    mesh.settle()
    assert [len(receiver.payloads) for receiver in receivers] == [COUNT, COUNT]
    for receiver in receivers:
        receiver.accept()
    mesh.settle()
    assert [sender.outcome(number) for number in numbers] == [(ACCEPTED, True)] * COUNT


class Walk:
    """Routers that dial each other, and receivers and senders that come and go, at random."""

    def __init__(self, form: str, seed: int, express: str = "off") -> None:
        self.chosen = chosen = random.Random(f"{form} {seed}")
        self.workers = chosen.choice((1, 1, 2, 3))
        routes = FORMS[form]
        if chosen.random() < 0.4:
            guarantee = chosen.choice((Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE))
            other = {"guarantee": guarantee, "distribution": Distribution.CLOSEST}
            routes = {
                name: [attrs.evolve(each, **other) for each in own]  # type: ignore[arg-type]
                for name, own in routes.items()
            }
        self.names = list(routes)
        self.mesh = Mesh(
            routes,
            workers=self.workers,
            shift=chosen.randrange(4),
            dials=False,
            is_trusted=chosen.random() < 0.5,
            express=express,
        )
        self.receivers: list[ReceiverEnd] = []
        self.gone: list[ReceiverEnd] = []
        self.senders: list[SenderEnd] = []
        self.outcomes: list[tuple[SenderEnd, DeliveryNumber]] = []

    def step(self) -> None:
        """Does one thing."""
        chosen, step = self.chosen, self.chosen.random()
        if self.mesh.to_dial and step < 0.25:
            self.mesh.dial()
        elif step < 0.4 and len(self.receivers) < 4:
            self.come()
        elif step < 0.48 and self.receivers:
            self._go()
        elif step < 0.58 and len(self.senders) < 3:
            worker = chosen.randint(1, self.workers)
            self.senders.append(self.mesh.sender(chosen.choice(self.names), "dc2.x", worker))
        elif step < 0.8 and self.senders:
            self._send()
        elif step < 0.97 and self.receivers:
            self._receive(chosen.choice(self.receivers))
        else:
            self.mesh.wait(chosen.choice((0.1, 1.0, 40.0)))
        if chosen.random() < 0.7:
            self.mesh.settle()

    def come(self) -> None:
        """Attaches another receiver."""
        worker, credit = self.chosen.randint(1, self.workers), self.chosen.choice((0, 3, 10, 100))
        receiver = self.mesh.receiver(self.chosen.choice(self.names), "dc2.x", credit, worker)
        self.receivers.append(receiver)

    def _go(self) -> None:
        receiver = self.receivers.pop(self.chosen.randrange(len(self.receivers)))
        self.gone.append(receiver)
        for _ in range(2):
            if receiver.unsettled:
                receiver.accept()
            self.mesh.settle()
        receiver.detach()

    def _send(self) -> None:
        sender = self.chosen.choice(self.senders)
        count = min(sender.credit, self.chosen.randint(1, 8), 250 - len(self.outcomes))
        for number in sent(sender, len(self.outcomes), max(0, count)):
            self.outcomes.append((sender, number))

    def _receive(self, receiver: ReceiverEnd) -> None:
        if receiver.unsettled and self.chosen.random() < 0.5:
            receiver.accept(*self.chosen.sample(list(receiver.unsettled), 1))
        else:
            receiver.grant(max(receiver.credit, self.chosen.choice((1, 5, 20, 100))))

    def finish(self) -> None:
        """Lets all dial, and whoever receives take everything."""
        while self.mesh.to_dial:
            self.mesh.dial()
        if not self.receivers:
            self.come()
        for _ in range(100):
            for receiver in self.receivers:
                if receiver.credit < 50:
                    receiver.grant(200)
            self.mesh.settle()
            for receiver in self.receivers:
                if receiver.unsettled:
                    receiver.accept()
            self.mesh.wait(1.0)
            if all(sender.outcome(number) for sender, number in self.outcomes):
                return


EXPRESS = ["off", pytest.param("cython", marks=needs_kernel)]


@pytest.mark.parametrize("express", EXPRESS)
def test_a_ring_of_four_settles_while_what_is_granted_and_asked_back_follows_itself(
    express: str,
) -> None:
    take_a_walk("a ring of four", 27, express)


@pytest.mark.thorough
@pytest.mark.parametrize("express", EXPRESS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(6))
def test_messages_come_once_while_receivers_and_routers_come_and_go(
    form: str, seed: int, express: str
) -> None:
    take_a_walk(form, seed, express)


def take_a_walk(form: str, seed: int, express: str) -> None:
    walk = Walk(form, seed, express)
    for _ in range(60):
        walk.step()
    walk.finish()
    told = Counter(sender.outcome(number) for sender, number in walk.outcomes)
    assert set(told) <= {(ACCEPTED, True), (RELEASED, True)}
    everything = taken([*walk.receivers, *walk.gone])
    assert set(everything.values()) <= {1}
    assert told[ACCEPTED, True] == len(everything)
    assert walk.mesh.transfers() <= max(6, 2 * len(walk.names)) * max(1, len(walk.outcomes))
    late = [
        walk.mesh.sender(name, "dc2.x", worker + 1)
        for name in walk.names
        for worker in range(walk.workers)
    ]
    walk.mesh.wait(1.0)
    assert all(sender.credit for sender in late), "somebody can be reached from everywhere"


# A line of routers, on the express lane

LINE: Mapping[str, Sequence[Route]] = {
    "dc1": [to("dc9.#", "dc2")],
    "dc2": [to("dc9.#", "dc3")],
    "dc3": [to("dc9.#", "dc4")],
    "dc4": [Route(address="dc9.#")],
}


def node_of(mesh: Mesh, router: str) -> Node:
    """The node of the address at a router's only worker."""
    nodes = mesh[router][1].core._registry.nodes.values()
    (node,) = (each for each in nodes if each.outgoing)
    return node


def on_the_lane(mesh: Mesh) -> list[str]:
    return [name for name in mesh.routers if node_of(mesh, name).is_express]


@needs_kernel
@pytest.mark.parametrize("is_trusted", [True, False])
def test_routers_between_two_others_are_on_the_lane_and_deliveries_carry_no_stops(
    is_trusted: bool,
) -> None:
    mesh = Mesh(LINE, express="cython", is_trusted=is_trusted)
    receiver = mesh.receiver("dc4", "dc9.x", credit=100)
    sender = mesh.sender("dc1", "dc9.x")
    assert on_the_lane(mesh) == ["dc2", "dc3"]  # the ends of this test are no engines
    assert not any(link.is_traced for name in LINE for link in node_of(mesh, name).outgoing)
    numbers = sent(sender, 0, COUNT)
    mesh.settle()
    assert taken([receiver]) == {b"\x00Su\xa0\x01%c" % number: 1 for number in range(COUNT)}
    receiver.accept()
    mesh.settle()
    assert [sender.outcome(number) for number in numbers] == [(ACCEPTED, True)] * COUNT


@needs_kernel
def test_a_router_with_another_sender_leaves_the_lane_and_asks_for_stops() -> None:
    """There a circle may begin."""
    mesh = Mesh(LINE, express="cython")
    receiver = mesh.receiver("dc4", "dc9.x", credit=100)
    sender = mesh.sender("dc1", "dc9.x")
    other = mesh.sender("dc2", "dc9.x")
    assert on_the_lane(mesh) == ["dc3"]
    traced = [link.is_traced for name in LINE for link in node_of(mesh, name).outgoing]
    assert traced == [True, False, False, False]
    numbers = [*sent(sender, 0, 1), *sent(other, 1, 1)]
    mesh.settle()
    receiver.accept()
    mesh.settle()
    assert sender.outcome(numbers[0]) == other.outcome(numbers[1]) == (ACCEPTED, True)
    other.detach()
    mesh.wait(2 * REST_SECONDS)
    sent(sender, 2, 1)
    mesh.settle()
    assert on_the_lane(mesh) == ["dc2", "dc3"]
    assert not node_of(mesh, "dc1").outgoing[0].is_traced
    assert len(receiver.payloads) == 3


def told_as_receivers_go(express: str) -> list[object]:
    """What a sender is told at one end of the line while receivers come and go at the other."""
    mesh = Mesh(LINE, express=express)
    first = mesh.receiver("dc4", "dc9.x", credit=5)
    sender = mesh.sender("dc1", "dc9.x")
    numbers = sent(sender, 0, 5)
    mesh.settle()
    assert on_the_lane(mesh) == ([] if express == "off" else ["dc2", "dc3"])
    first.accept(*list(first.unsettled)[:2])
    first.detach()
    mesh.settle()
    without = sender.credit
    second = mesh.receiver("dc4", "dc9.x", credit=100)
    numbers += sent(sender, 5, 5)
    mesh.settle()
    second.update(*list(second.unsettled)[:2], state=RELEASED)
    second.accept()
    mesh.wait(2 * REST_SECONDS)
    numbers += sent(sender, 10, 5)
    mesh.settle()
    second.accept()
    mesh.settle()
    told = [sender.outcome(number) for number in numbers]
    return [without, *told, *first.payloads, *second.payloads]


@needs_kernel
def test_a_line_tells_its_senders_the_same_on_the_lane_as_off_it() -> None:
    told = told_as_receivers_go("cython")
    assert told == told_as_receivers_go("off")
    assert told[0] == 0, "nobody receives"
    assert told.count((ACCEPTED, True)) >= 10


# One router, and what its neighbors tell it

ROUTER = Capabilities(
    protocol=Protocol.AMQP_1_0, is_router=True, is_neighbor=True, resumes_links=True
)


def neighbor(play: Play, name: str, *ways: Way, credit: int = 9) -> ReceiverEnd:
    """A router that receives, and has told on which ways receivers are reached through it."""
    peer = play.connect(name, capabilities=ROUTER)
    receiver = peer.attach_receiver("orders", credit=credit, properties={NODE: f"{name}#1"})
    peer.happens(WaysAdvertised(receiver.link, ways, True))
    return receiver


def test_balanced_sends_nothing_to_a_router_behind_which_nobody_receives_but_us() -> None:
    play = Play("orders")
    far = neighbor(play, "dc2")
    near = play.connect("r").attach_receiver("orders", credit=9)
    play.connect("s").attach_sender("orders").send(*"123456")
    assert (len(near.payloads), len(far.payloads)) == (6, 0)
    far.peer.happens(WaysAdvertised(far.link, (Way(("dc2#1",)),), True))
    play.connect("s").attach_sender("orders").send(*"12")
    assert len(far.payloads) > 0


def test_a_router_that_gave_a_delivery_back_is_tried_again_when_it_has_gained_a_receiver() -> None:
    play = Play("orders")
    far = neighbor(play, "dc2", Way(("dc2#1",), 1))
    play.connect("r").attach_receiver("orders")  # and has no credit yet
    sender = play.connect("s").attach_sender("orders")
    (number,) = sender.send("x")
    far.update(*far.unsettled, state=RELEASED)
    far.grant(9)
    far.peer.happens(WaysAdvertised(far.link, (Way(("dc2#1",), 1),), True))
    assert len(far.payloads) == 1
    assert sender.outcome(number) is None
    far.peer.happens(WaysAdvertised(far.link, (Way(("dc2#1",), 2),), True))
    assert len(far.payloads) == 2
    far.accept()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_what_a_router_brings_does_not_go_back_to_it() -> None:
    play = Play("orders")
    back, on = neighbor(play, "dc2", Way(("dc2#1",))), neighbor(play, "dc3", Way(("dc3#1",)))
    sender = back.peer.attach_sender("orders", properties={NODE: "dc2#1"})
    assert sender.credit == 9, "dc3's alone"
    sender.send(*"123", hops=("dc2#1",))
    assert (len(back.payloads), len(on.payloads)) == (0, 3)


def test_closest_counts_the_hops_to_whoever_receives_behind_another_router() -> None:
    play = Play(Route(address="orders", distribution=Distribution.CLOSEST))
    far = neighbor(play, "dc3", Way(("dc3#1", "dc4#1")), credit=3)
    next_door = neighbor(play, "dc2", Way(("dc2#1",)), credit=3)
    here = play.connect("r").attach_receiver("orders", credit=3)
    sender = play.connect("s").attach_sender("orders")
    sender.send(*"123")
    assert [len(each.payloads) for each in (here, next_door, far)] == [3, 0, 0]
    sender.send(*"456")
    assert [len(each.payloads) for each in (here, next_door, far)] == [3, 3, 0]
    sender.send(*"789")
    assert [len(each.payloads) for each in (here, next_door, far)] == [3, 3, 3]


@pytest.mark.parametrize("how", ["releases", "leaves"])
@pytest.mark.parametrize(
    ("form", "shift", "accepts"),
    [
        ("each names the other", 0, 0),
        ("each names the other", 0, 1),
        ("each names the other", 1, 1),
        ("a ring", 0, 1),
    ],
)
def test_what_some_have_returned_goes_to_the_receiver_that_is_there_all_the_time(
    form: str, shift: int, accepts: int, how: str
) -> None:
    """Wherever both are, and where a message would turn: it is offered on both sides."""
    names = list(FORMS[form])
    places = [(name, worker) for name in (names[0], names[-1]) for worker in (1, 2)]
    for stays, goes, sends in itertools.product(places, places, places):
        mesh = Mesh(FORMS[form], workers=2, shift=shift, accepts=accepts)
        steady = mesh.receiver(stays[0], "dc2.x", 0, stays[1])
        other = mesh.receiver(goes[0], "dc2.x", 5, goes[1])
        source = mesh.sender(sends[0], "dc2.x", sends[1])
        sent(source, 0, 3)
        mesh.settle()
        assert len(other.unsettled) == 3, (stays, goes, sends)
        if how == "releases":
            other.update(*other.unsettled, state=RELEASED)
        else:
            other.detach()
        mesh.settle()
        mesh.wait(2.0)
        assert not source.told, (stays, goes, sends)
        steady.grant(5)
        for _ in range(3):
            mesh.settle()
            for receiver in (steady, other):  # it may be offered once more
                if receiver.unsettled:
                    receiver.accept()
            mesh.wait(1.0)
        assert [told[-1] for told in source.told.values()] == [(ACCEPTED, True)] * 3
