"""A multicast between routers that name each other, in any order of what their engines say.

Both routers may have two workers, and receivers are at any of them. Octets are carried from one
engine to another in random order, so every worker acts upon what it knows so far.
"""

import random
from collections.abc import Sequence

import attrs
import pytest

from router.model.outcome import ACCEPTED
from router.routes.route import Distribution, Endpoint, Route
from tests.support.mesh import Mesh
from tests.support.play import ReceiverEnd, SenderEnd

BODY = b"\x00Su\xa0\x03%03d"
HERE = [Route(address="mc.#", distribution=Distribution.MULTICAST)]
PLACES = ("a", "b", "ab", "aa", "aab", "abb", "aabb")


def multicast(container: str) -> list[Route]:
    to = (Endpoint(container),)
    return [Route(address="mc.#", to=to, distribution=Distribution.MULTICAST)]


@attrs.define
class Crowd:
    """Receivers at random workers of two routers, and a sender."""

    chosen: random.Random
    mesh: Mesh
    receivers: list[ReceiverEnd]
    sender: SenderEnd
    sent: list[bytes] = attrs.field(factory=list)

    @classmethod
    def gather(cls, seed: str, workers: int, places: Sequence[str]) -> "Crowd":
        """Lets receivers attach and grant credit in some order, and the sender after them."""
        chosen = random.Random(seed)
        routes = {"a": multicast("b"), "b": multicast("a")}
        mesh = Mesh(routes, workers=workers, shift=chosen.randrange(4))
        receivers: list[ReceiverEnd] = []
        for router in chosen.sample(places, len(places)):
            peer = mesh[router][chosen.randint(1, workers)].connect(f"r{len(receivers)}")
            receivers.append(peer.attach_receiver("mc.k", credit=0))
            mesh.carry(chosen, chosen.choice((0, 2, 8)))
        for receiver in chosen.sample(receivers, len(receivers)):
            receiver.grant(100)
            mesh.carry(chosen, chosen.choice((0, 2, 8, 20)))
        mesh.settle()
        mesh.wait(1.5)
        sender = mesh["a"][chosen.randint(1, workers)].connect("s").attach_sender("mc.k")
        mesh.carry(chosen, chosen.choice((0, 20)))
        mesh.settle()
        mesh.wait(1.0)
        return cls(chosen, mesh, receivers, sender)

    def talk(self, rounds: int) -> None:
        """Sends, accepts and grants while octets are carried here and there."""
        chosen = self.chosen
        for _ in range(rounds):
            for _ in range(min(self.sender.credit, chosen.choice((1, 5)))):
                self.sent.append(BODY % len(self.sent))
                self.sender.send(self.sent[-1])
            self.mesh.carry(chosen, 10)
            for receiver in self.receivers:
                if receiver.unsettled and chosen.random() < 0.5:
                    receiver.accept()
            self.grant()

    def grant(self) -> None:
        """Lets receivers have credit again that have used it up, or nearly."""
        for receiver in self.receivers:
            if receiver.credit < 50:
                receiver.grant(100)

    def finish(self) -> None:
        """Lets everything come to its end."""
        for _ in range(20):
            self.mesh.settle()
            for receiver in self.receivers:
                if receiver.unsettled:
                    receiver.accept()
            self.grant()
            self.mesh.wait(1.0)
            if len(self.sender.told) == len(self.sent):
                return


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("places", PLACES)
def test_every_receiver_gets_each_accepted_message_once(places: str, workers: int) -> None:
    for seed in range(12):
        crowd = Crowd.gather(f"{places} {workers} {seed}", workers, places)
        assert crowd.sender.credit > 0, f"seed {seed}"
        crowd.talk(25)
        crowd.finish()
        outcomes = [told[-1] for told in crowd.sender.told.values()]
        assert outcomes == [(ACCEPTED, True)] * len(crowd.sent), f"seed {seed}"
        for receiver in crowd.receivers:
            assert receiver.payloads == crowd.sent, f"seed {seed}"


@pytest.mark.parametrize("places", [("a", "b"), ("a", "b", "b")])
def test_the_first_message_passes_no_receiver_at_another_worker_of_the_next_router(
    places: Sequence[str],
) -> None:
    for seed in range(16):
        chosen = random.Random(f"{places} {seed}")
        mesh = Mesh({"a": multicast("b"), "b": HERE}, workers=2, shift=chosen.randrange(4))
        receivers = [
            mesh[router][at % 2 + 1].connect(f"r{at}").attach_receiver("mc.k", credit=10)
            for at, router in enumerate(places)
        ]
        mesh.settle()
        sender = mesh["a"][chosen.randint(1, 2)].connect("s").attach_sender(None)
        sender.send(BODY % 0, address="mc.k")
        for _ in range(10):
            mesh.carry(chosen, 10)
        mesh.settle()
        mesh.wait(1.0)
        assert [each.payloads for each in receivers] == [[BODY % 0]] * len(receivers), f"{seed}"


def clique(size: int) -> dict[str, list[Route]]:
    names = [f"dc{number}" for number in range(1, size + 1)]
    return {
        name: [
            Route(
                address="mc.#",
                to=tuple(Endpoint(each) for each in names if each != name),
                distribution=Distribution.MULTICAST,
            )
        ]
        for name in names
    }


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("size", [3, 4, 5])
def test_where_all_routers_name_all_others_every_receiver_gets_one_copy(
    size: int, workers: int
) -> None:
    """Each is reached on as many ways as there are routers between."""
    chosen = random.Random(f"{size} {workers}")
    routes = clique(size)
    mesh = Mesh(routes, workers=workers, shift=chosen.randrange(4))
    ends = [(name, number) for name in routes for number in range(1, workers + 1)]
    senders = [mesh.sender(name, "mc.k", number) for name, number in ends]
    receivers: list[ReceiverEnd] = []
    for count in range(12):
        if len(receivers) < 5 or chosen.random() < 0.5:
            name, number = chosen.choice(ends)
            receivers.append(mesh.receiver(name, "mc.k", 100, number))
        else:
            receivers.pop(chosen.randrange(len(receivers))).detach()
        mesh.wait(1.0)
        before = [len(receiver.payloads) for receiver in receivers]
        sender = chosen.choice(senders)
        (number_sent,) = sender.send(BODY % count)
        for _ in range(2):
            mesh.settle()
            for receiver in receivers:
                if receiver.unsettled:
                    receiver.accept()
        copies = [len(each.payloads) - seen for each, seen in zip(receivers, before, strict=True)]
        assert copies == [1] * len(receivers)
        assert sender.outcome(number_sent) == (ACCEPTED, True)


@pytest.mark.parametrize(("size", "workers", "seed"), [(3, 2, 12), (3, 2, 5), (3, 3, 3), (4, 3, 9)])
def test_where_all_routers_name_all_others_nothing_is_released_while_receivers_come(
    size: int, workers: int, seed: int
) -> None:
    """Also what is led past the worker that would turn it, by credit of others than there."""
    chosen = random.Random(f"{size} {workers} {seed}")
    routes = clique(size)
    mesh = Mesh(routes, workers=workers, shift=chosen.randrange(4))
    ends = [(name, number) for name in routes for number in range(1, workers + 1)]
    receivers: list[ReceiverEnd] = []

    def come(credit: int) -> None:
        name, number = chosen.choice(ends)
        peer = mesh[name][number].connect(f"r{len(receivers)}")
        receivers.append(peer.attach_receiver("mc.k", credit=credit))

    def grant() -> None:
        for receiver in receivers:
            if receiver.credit < 5:
                receiver.grant(10)

    come(10)
    mesh.settle()
    mesh.wait(1.5)
    sender = mesh.sender(chosen.choice([*routes]), "mc.k", chosen.randint(1, workers))
    count = 0
    for _ in range(40):
        for _ in range(min(sender.credit, chosen.choice((0, 1, 5)))):
            sender.send(BODY % count)
            count += 1
        mesh.carry(chosen, chosen.choice((0, 3, 10)))
        if len(receivers) < 5 and chosen.random() < 0.3:
            come(chosen.choice((0, 5, 10)))
        for receiver in receivers:
            if receiver.unsettled and chosen.random() < 0.5:
                receiver.accept()
        grant()
        mesh.carry(chosen, chosen.choice((0, 3, 10)))
    for _ in range(count):
        mesh.settle()
        for receiver in receivers:
            if receiver.unsettled:
                receiver.accept()
        grant()
        mesh.wait(1.0)
        if len(sender.told) == count:
            break
    assert [told[-1] for told in sender.told.values()] == [(ACCEPTED, True)] * count
