"""Credit between routers that name each other: everywhere, of nobody twice, and worth something."""

import random
from collections.abc import Mapping, Sequence
from functools import partial

import attrs
import pytest

from router.model.outcome import ACCEPTED
from router.routes.route import Distribution, Guarantee, Route
from tests.core.test_mesh import FORMS, pull, sent, to
from tests.support.kernel import needs_kernel
from tests.support.mesh import Mesh
from tests.support.play import ReceiverEnd, SenderEnd

Routes = Mapping[str, Sequence[Route]]

ROUND = ["a ring", "a ring of four", "a ring that pulls", "all with all"]


@pytest.mark.parametrize("worker", [1, 2])
@pytest.mark.parametrize("place", ["dc1", "dc2", "dc3"])
@pytest.mark.parametrize("form", ROUND)
def test_senders_everywhere_have_credit_of_the_one_worker_whose_receiver_grants_any(
    form: str, place: str, worker: int
) -> None:
    """A router's ways tell of the receivers at all of its workers, wherever a message turns."""
    town = Town(FORMS[form], workers=2, seed=0)
    for name, number in town.ends:
        town.come(name, number, 0)
    receiver = town.at(place, worker)
    receiver.grant(8)
    town.mesh.settle()
    assert [sender.credit for sender in town.senders] == [8] * len(town.senders)
    for sender in town.senders:
        town.send(sender)


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("accepts", [0, 1])
@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize("early", ["dc1", "dc2", "both"])
def test_a_sender_has_no_credit_of_receivers_that_it_is_not_led_to_yet(
    early: str, place: int, shift: int, accepts: int, late: int
) -> None:
    """What a router pulls through a worker of ours is for what turns there; the sender's does not.

    The news of a receiver come on two connections. Those on the one by which the messages go may
    come later.
    """
    mesh = Mesh(FORMS["each names the other"], workers=2, shift=shift, accepts=accepts)
    for name in ("dc1", "dc2") if early == "both" else (early,):
        before = mesh.receiver(name, "dc2.x")
        first = mesh.sender("dc1", "dc2.x", place)
        first.send(b"\x00Su\xa0\x01x")
        mesh.settle()
        before.accept()
        mesh.settle()
        for end in (first, before):
            end.peer.close()
            mesh.settle()
    sender = mesh.sender("dc1", "dc2.x", place)
    assert sender.credit == 0
    receiver = mesh["dc2"][1].connect("receiver").attach_receiver("dc2.x", credit=10)
    mesh.settle_but_one(late)
    sender.send(*[b"\x00Su\xa0\x01x"] * sender.credit)
    mesh.settle_but_one(late)
    assert not sender.told
    mesh.settle()
    sender.send(*[b"\x00Su\xa0\x01x"] * sender.credit)
    mesh.settle()
    receiver.accept()
    mesh.settle()
    assert [told[-1] for told in sender.told.values()] == [(ACCEPTED, True)] * 10


@needs_kernel
@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize("shift", [0, 1])
def test_nor_has_one_on_the_express_lane(shift: int, place: int) -> None:
    mesh = Mesh(FORMS["each names the other"], workers=2, shift=shift, accepts=0, express="cython")
    client = mesh.client("dc1", place)
    before = mesh.receiver("dc2", "dc2.x")
    sender = client.connect("sender").attach_sender("dc2.x")
    mesh.settle()
    sender.send(b"\x00Su\xa0\x01x")
    mesh.settle()
    before.accept()
    mesh.settle()
    before.peer.close()
    mesh.settle()
    mesh.wait(2.0)
    assert sender.credit == 0
    receiver = mesh["dc2"][1].connect("receiver").attach_receiver("dc2.x", credit=10)
    mesh.settle_but_one(0)
    assert sender.credit == 0
    mesh.settle()
    assert sender.credit == 10
    sender.send(*[b"\x00Su\xa0\x01x"] * 10)
    mesh.settle()
    receiver.accept()
    mesh.settle()
    assert [told[-1] for told in sender.told.values()] == [(ACCEPTED, True)] * 11


def multicasts(form: str) -> Routes:
    return {
        name: [attrs.evolve(route, distribution=Distribution.MULTICAST) for route in own]
        for name, own in FORMS[form].items()
    }


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize("side", ["dc1", "dc2"])
@pytest.mark.parametrize("form", ["each has its own", "each names the other"])
def test_nor_has_the_sender_of_a_multicast(
    form: str, side: str, place: int, shift: int, late: int
) -> None:
    mesh = Mesh(multicasts(form), workers=2, shift=shift, accepts=0)
    sender = mesh.sender("dc1", "dc2.x", place)
    assert sender.credit == 0
    receiver = mesh[side][1].connect("receiver").attach_receiver("dc2.x", credit=10)
    for settle in (partial(mesh.settle_but_one, late), mesh.settle):
        settle()
        sender.send(*[b"\x00Su\xa0\x01x"] * min(5, sender.credit))
        settle()
        if receiver.unsettled:
            receiver.accept()
        settle()
        assert [told[-1] for told in sender.told.values()] == [(ACCEPTED, True)] * len(
            receiver.payloads
        )
    assert receiver.payloads


@pytest.mark.parametrize("form", ["each has its own", "each names the other"])
def test_a_multicast_sent_without_credit_waits_while_only_a_turn_elsewhere_leads_to_receivers(
    form: str,
) -> None:
    mesh = Mesh(multicasts(form), workers=2, shift=0, accepts=0)
    mesh.sender("dc1", "dc2.x", 2)
    sender = mesh["dc1"][2].connect("other").attach_sender(None)
    receiver = mesh["dc1"][1].connect("receiver").attach_receiver("dc2.x", credit=10)
    mesh.settle_but_one(0)
    sender.send(b"\x00Su\xa0\x01x", address="dc2.x")
    mesh.settle_but_one(0)
    assert not sender.told
    mesh.settle()
    receiver.accept()
    mesh.settle()
    assert [told[-1] for told in sender.told.values()] == [(ACCEPTED, True)]


def ring(size: int, *, is_pulled: bool) -> Routes:
    names = [f"dc{number}" for number in range(1, size + 1)]
    after = dict(zip(names, [*names[1:], names[0]], strict=True))
    return {name: [pull(after[name]) if is_pulled else to("dc2.#", after[name])] for name in names}


def clique(size: int) -> Routes:
    names = [f"dc{number}" for number in range(1, size + 1)]
    return {name: [to("dc2.#", *(each for each in names if each != name))] for name in names}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("size", [3, 4, 5, 6])
@pytest.mark.parametrize("form", ["ring", "ring that pulls", "clique"])
def test_no_sender_has_more_credit_than_receivers_have_granted_however_many_routers_there_are(
    form: str, size: int, workers: int
) -> None:
    """Routers tell each other what was granted where; none counts what it was told of its own."""
    routes = clique(size) if form == "clique" else ring(size, is_pulled=form != "ring")
    town = Town(routes, workers=workers, seed=size)
    for name, number in town.ends:
        if town.chosen.random() < 0.7:
            town.come(name, number, 0)
    most = dict.fromkeys(range(len(town.receivers)), 0)
    for _ in range(10):
        for place in town.chosen.sample(list(most), len(most) // 2):
            granted = town.chosen.choice((0, 1, 2, 4, 8))
            town.receivers[place].grant(granted)
            most[place] = max(most[place], granted)
            town.mesh.settle()
        is_open = any(receiver.credit for receiver in town.receivers)
        assert [sender.credit > 0 for sender in town.senders] == [is_open] * len(town.senders)
        assert max(sender.credit for sender in town.senders) <= sum(most.values())
    for receiver in town.receivers:
        receiver.grant(0)
    town.mesh.settle()
    assert not any(sender.credit for sender in town.senders)
    town.receivers[0].grant(5)
    town.mesh.settle()
    assert max(sender.credit for sender in town.senders) <= 8, "rounded up to a power of two"


class Town:
    """Routers with a sender at each worker; receivers grant as much again after each message."""

    def __init__(self, routes: Routes, *, workers: int, seed: int) -> None:
        self.chosen = random.Random(f"{[*routes]} {workers} {seed}")
        self.mesh = Mesh(routes, workers=workers, shift=self.chosen.randrange(4))
        self.ends = [(name, number) for name in routes for number in range(1, workers + 1)]
        self.senders = [self.mesh.sender(name, "dc2.x", number) for name, number in self.ends]
        self.receivers: list[ReceiverEnd] = []
        self._places: list[tuple[str, int]] = []
        self._count = 0

    def come(self, name: str, number: int, credit: int) -> None:
        """Attaches a receiver at a worker."""
        receiver = self.mesh.receiver(name, "dc2.x", credit, number)
        self.receivers.append(receiver)
        self._places.append((name, number))

    def at(self, name: str, number: int) -> ReceiverEnd:
        """Returns the receiver at a worker."""
        return self.receivers[self._places.index((name, number))]

    def change(self) -> None:
        """Has a receiver come, go, or grant another credit, perhaps none."""
        step = self.chosen.random()
        if step < 0.2 or not self.receivers:
            self.come(*self.chosen.choice(self.ends), self.chosen.choice((0, 5)))
        elif step < 0.3 or len(self.receivers) > 6:
            gone = self.chosen.randrange(len(self.receivers))
            del self._places[gone]
            self.receivers.pop(gone).detach()
        else:
            self.chosen.choice(self.receivers).grant(self.chosen.choice((0, 0, 1, 5)))
        self.mesh.settle()

    def send(self, sender: SenderEnd) -> None:
        """Sends a message, which has to arrive at once."""
        granted = [receiver.credit for receiver in self.receivers]
        (number,) = sent(sender, self._count % 250, 1)
        self._count += 1
        for _ in range(2):
            self.mesh.settle()
            for receiver, credit in zip(self.receivers, granted, strict=True):
                if receiver.unsettled:
                    receiver.accept()
                if receiver.credit != credit:
                    receiver.grant(credit)
        assert sender.outcome(number) == (ACCEPTED, True)


KINDS: Mapping[str, Mapping[str, object]] = {
    "balanced": {},
    "closest": {"distribution": Distribution.CLOSEST},
    "exactly-once": {"guarantee": Guarantee.EXACTLY_ONCE},
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("form", FORMS)
def test_what_is_sent_arrives_at_once_while_a_receiver_anywhere_has_credit(
    form: str, workers: int, kind: str
) -> None:
    """No message goes where the open ways of others lead, and its own do not."""
    changes = KINDS[kind]
    routes = {
        name: [attrs.evolve(route, **changes) for route in own]  # type: ignore[arg-type]
        for name, own in FORMS[form].items()
    }
    town = Town(routes, workers=workers, seed=len(kind))
    for _ in range(30):
        town.change()
        is_open = any(receiver.credit for receiver in town.receivers)
        assert [sender.credit > 0 for sender in town.senders] == [is_open] * len(town.senders)
        if is_open:
            town.send(town.chosen.choice(town.senders))
