"""`age` and `drop-oldest` while the target is away that has just been there.

It has granted credit, so messages have been asked for, and they wait at an inlet of the worker.
"""

import attrs
import pytest

from router.journal.store.queues import Bounds, Full
from router.routes.route import Endpoint, Guarantee, InDoubt, Storing
from tests.net.store.test_exactly_once import LIMITS, ROUTE
from tests.support.journal import START_NS, FakeDisk
from tests.support.journaled import Journaled
from tests.support.play import Peer
from tests.support.store_peer import StoreHost, StorePeer

CREDIT = 1000
AGED = Bounds(age_ns=5_000_000_000)
DROPPING = Bounds(messages=10, full=Full.DROP_OLDEST)


class Stage:
    """A router with a stored route whose dead letters go where nobody receives yet."""

    def __init__(self, guarantee: Guarantee, bounds: Bounds, *, always: bool = True) -> None:
        is_exact = guarantee is Guarantee.EXACTLY_ONCE
        route = attrs.evolve(
            ROUTE,
            guarantee=guarantee,
            in_doubt=InDoubt.HOLD if is_exact else ROUTE.in_doubt,
            store=Storing(always=always),
            dead_letter=Endpoint("attic", "gone"),
        )
        self.play = Journaled(route, settings=attrs.evolve(LIMITS, link_credit=CREDIT))
        self.host = StoreHost.begun(FakeDisk(), START_NS, START_NS)
        life = START_NS + 1
        self.store = StorePeer.connected(self.play, self.host, life, route, bounds=bounds)
        self.work()
        self.target = self.reach("target")
        self.sender = self.play.connect("broker").attach_sender(name="in", second=False)
        self.work()

    def work(self) -> None:
        """The journal and the store do all that they can."""
        for _ in range(6):
            self.play.flush()
            self.store.settle()
        self.play.flush()

    def reach(self, container: str) -> Peer:
        """The router reaches a container, which receives what there is."""
        peer = self.play.dial(container)
        self.work()
        self.receive(peer)
        return peer

    def receive(self, peer: Peer) -> None:
        """A container grants credit wherever it is asked."""
        while peer.asked:
            peer.answer_receiver(credit=CREDIT)
            self.work()

    def lose_target(self) -> None:
        """The connection is lost after the target has received and accepted one message."""
        self.send("id=first")
        self.receive(self.target)
        for end in self.target.receives.values():
            end.accept(*(each.number for each in end.received))
        self.work()
        self.target.lose()
        self.work()

    def send(self, *payloads: str) -> None:
        """Messages are sent, each with the credit that there is."""
        for payload in payloads:
            if self.sender.credit:
                self.sender.send(payload)
                self.work()

    def wait(self, seconds: int) -> None:
        """Time passes."""
        for _ in range(seconds):
            self.play.wait(1.0)
            self.work()

    @property
    def dead(self) -> int:
        """Returns how many dead letters wait."""
        return sum(each.dead for each in self.store.engine.inlets.delays().values())


def got(peer: Peer) -> list[bytes]:
    """Returns what a container has received."""
    return [body for end in peer.receives.values() for body in end.payloads]


def bodies(first: int, end: int) -> list[bytes]:
    """Returns messages by their numbers."""
    return [f"id={number}".encode() for number in range(first, end)]


GUARANTEES = pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE])
ALWAYS = pytest.mark.parametrize("always", [True, False])


@GUARANTEES
@ALWAYS
def test_what_becomes_too_old_meanwhile_is_a_dead_letter(
    guarantee: Guarantee, always: bool
) -> None:
    stage = Stage(guarantee, AGED, always=always)
    stage.lose_target()
    stage.send(*(body.decode() for body in bodies(0, 40)))
    assert stage.dead == 0
    stage.wait(15)
    assert stage.dead == 40
    assert got(stage.reach("target")) == []
    assert got(stage.reach("attic")) == bodies(0, 40)


@GUARANTEES
def test_what_is_too_old_when_the_target_comes_is_not_sent_to_it(guarantee: Guarantee) -> None:
    stage = Stage(guarantee, AGED)
    stage.lose_target()
    stage.send("id=0")
    stage.play.wait(5.0)  # no survey in between
    assert got(stage.reach("target")) == []
    assert got(stage.reach("attic")) == bodies(0, 1)


@GUARANTEES
@ALWAYS
def test_the_oldest_are_dropped_meanwhile(guarantee: Guarantee, always: bool) -> None:
    stage = Stage(guarantee, DROPPING, always=always)
    stage.lose_target()
    stage.send(*(body.decode() for body in bodies(0, 12)))
    assert stage.dead == 2
    assert got(stage.reach("target")) == bodies(2, 12)
    assert got(stage.reach("attic")) == bodies(0, 2)


@GUARANTEES
def test_what_was_dropped_or_became_too_old_meanwhile_is_not_replayed(
    guarantee: Guarantee,
) -> None:
    stage = Stage(guarantee, DROPPING)
    stage.lose_target()
    stage.send(*(body.decode() for body in bodies(0, 12)))
    assert stage.store.engine.inlets.replay(None, None) == (0, 0)
    assert stage.dead == 2


def test_more_are_dropped_than_dead_letters_are_asked_for_at_once() -> None:
    stage = Stage(Guarantee.EXACTLY_ONCE, attrs.evolve(DROPPING, messages=500))
    stage.lose_target()
    stage.send(*(body.decode() for body in bodies(0, 620)))
    assert stage.dead == 120
    assert got(stage.reach("target")) == bodies(120, 620)


def test_what_is_in_doubt_at_the_target_is_not_dropped() -> None:
    stage = Stage(Guarantee.EXACTLY_ONCE, DROPPING)
    stage.send("id=first")
    stage.receive(stage.target)
    assert got(stage.target) == [b"id=first"]
    stage.target.lose()
    stage.send(*(body.decode() for body in bodies(0, 12)))
    assert stage.dead == 2, "three are above the bound, and one of them is in doubt"
    assert got(stage.reach("target")) == bodies(2, 12)
    assert got(stage.reach("attic")) == bodies(0, 2)
