"""A route that holds what nobody receives holds it at the ingress, whatever its egresses answer."""

import random
from typing import Final

import attrs
import pytest

from router.core.settings import CoreSettings
from router.model.capabilities import Capabilities
from router.model.identity import DeliveryNumber
from router.model.outcome import ACCEPTED
from router.routes.route import Distribution, Guarantee, Route, Unroutable
from tests.support.exact_sites import ExactSites
from tests.support.play import AMQP, Play, ReceiverEnd, SenderEnd
from tests.support.sites import Line, Sites

LINE: Final[list[Line]] = [("dc1", "dc2", 10), ("dc2", "dc3", 10)]
TRIANGLE: Final[list[Line]] = [*LINE, ("dc1", "dc3", 10)]
SMALL: Final = b"\x00Su\xa0\x01x"
LARGE: Final = b"\x00Su\xb0\x00\x02\x00\x00"
PART: Final = bytes(1 << 16)
HOLD: Final = Route(address="orders.#", unroutable=Unroutable.HOLD)

TRUSTED: Final = attrs.evolve(AMQP, is_router=True, resumes_links=True)
"""A client of ours that the policy trusts: it is no router, though its keys are believed."""


class Walk:
    """Receivers that come and go at two sites, or three, and senders at the first."""

    def __init__(self, seed: int, guarantee: Guarantee) -> None:
        self.chosen = chosen = random.Random(seed)
        self.workers = chosen.choice((1, 1, 2))
        self.places = chosen.choice((("dc2", "dc3"), ("dc3",), ("dc1", "dc2", "dc3")))
        hold = attrs.evolve(
            HOLD,
            guarantee=guarantee,
            distribution=chosen.choice((Distribution.BALANCED, Distribution.CLOSEST)),
        )
        policy = chosen.choice((Unroutable.HOLD, Unroutable.RELEASE, Unroutable.REJECT))
        there = [attrs.evolve(hold, unroutable=policy)]
        kind = type("Walked", (ExactSites,), {"express": chosen.choice(("off", "cython"))})
        self.sites: Sites = kind(
            chosen.choice((LINE, TRIANGLE)),
            own_routes={"dc1": [hold], "dc2": there, "dc3": there},
            advertise=chosen.choice((None, {"dc2": ["orders.#"], "dc3": ["orders.#"]})),
            workers=self.workers,
        )
        self.receivers: list[ReceiverEnd] = []
        self.senders: list[SenderEnd] = []
        self.sent: list[tuple[SenderEnd, DeliveryNumber]] = []
        self.came = 0

    def step(self) -> None:
        """Does one thing."""
        chosen, step = self.chosen, self.chosen.random()
        if step < 0.2 and len(self.receivers) < 4:
            self.come(chosen.choice((0, 3, 10, 50)))
        elif step < 0.3 and self.receivers:
            self.go(self.receivers.pop(chosen.randrange(len(self.receivers))))
        elif step < 0.4 and len(self.senders) < 3:
            peer = self._worker("dc1").connect(f"sender {len(self.senders)}")
            self.senders.append(peer.attach_sender("orders.x"))
        elif step < 0.7 and self.senders:
            self.send(chosen.choice(self.senders))
        elif step < 0.95 and self.receivers:
            self.receive(chosen.choice(self.receivers))
        if chosen.random() < 0.6:
            self.sites.run(chosen.choice((0.0, 0.01, 0.05, 0.3, 2.0, 12.0)))

    def _worker(self, place: str) -> Play:
        return self.sites.worker(place, self.chosen.randint(1, self.workers))

    def come(self, credit: int) -> None:
        self.came += 1
        peer = self._worker(self.chosen.choice(self.places)).connect(f"receiver {self.came}")
        self.receivers.append(peer.attach_receiver("orders.x", credit=credit))

    def go(self, receiver: ReceiverEnd) -> None:
        """Has a receiver leave, with or without a word, and with or without outcomes."""
        if self.chosen.random() < 0.3:
            receiver.accept()
        if self.chosen.random() < 0.5:
            receiver.peer.lose()
        else:
            receiver.detach()

    def send(self, sender: SenderEnd) -> None:
        for _ in range(min(sender.credit, self.chosen.choice((1, 5, 30)))):
            if self.chosen.random() < 0.1:
                (number,) = sender.send(LARGE + PART, more=True)
                sender.go_on(PART, more=False)
            else:
                (number,) = sender.send(SMALL)
            self.sent.append((sender, number))

    def receive(self, receiver: ReceiverEnd) -> None:
        some = list(receiver.unsettled)[: self.chosen.choice((1, 5, 100))]
        receiver.update(*some, state=ACCEPTED)
        if receiver.credit < 5:
            receiver.grant(self.chosen.choice((5, 20)))

    def outcomes(self) -> set[object]:
        """Gives what senders have been told so far."""
        told = (sender.outcome(number) for sender, number in self.sent)
        return {outcome[0] for outcome in told if outcome is not None}


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE])
@pytest.mark.parametrize("seed", [*range(12), 25])
def test_senders_hear_of_nothing_but_acceptance_while_receivers_come_and_go(
    seed: int, guarantee: Guarantee
) -> None:
    walk = Walk(seed, guarantee)
    for _ in range(60):
        walk.step()
        assert walk.outcomes() <= {ACCEPTED}
    while walk.receivers:
        walk.go(walk.receivers.pop())
    walk.sites.run(1.0)
    before = len(walk.sent)
    walk.come(10_000)
    walk.sites.run(3.0)
    walk.receivers[0].accept()
    walk.sites.run(3.0)
    assert walk.outcomes() <= {ACCEPTED}
    waiting = sum(sender.outcome(number) is None for sender, number in walk.sent)
    assert before == len(walk.sent)
    if guarantee is Guarantee.AT_LEAST_ONCE:
        assert not waiting, "what is in doubt is sent again"


@pytest.mark.parametrize("capabilities", [AMQP, TRUSTED], ids=["client", "trusted client"])
def test_what_an_egress_without_receivers_returns_waits_at_the_ingress(
    capabilities: Capabilities,
) -> None:
    sites = Sites(LINE, HOLD)
    first = sites.receiver("dc3", "orders.x", credit=5)
    one, other = (
        sites["dc1"].connect(name, capabilities=capabilities).attach_sender("orders.x")
        for name in ("one", "other")
    )
    sites.run(0.5)
    sent = [(each, number) for each in (one, other) for number in each.send(*[SMALL] * 5)]
    sites.run(0.5)
    assert len(first.payloads) == 5, "the rest waits at the egress"
    first.detach()
    sites.run(15.0)
    crossed = sites.transfers("dc1", "dc2")
    sites.run(15.0)
    assert [sender.outcome(number) for sender, number in sent] == [None] * 10
    second = sites.receiver("dc2", "orders.x", credit=10)
    sites.run(0.5)
    second.accept()
    sites.run(0.5)
    assert [sender.outcome(number) for sender, number in sent] == [(ACCEPTED, True)] * 10
    assert sites.transfers("dc1", "dc2") - crossed < 40, "nothing went to and fro meanwhile"


@pytest.mark.parametrize("distribution", [Distribution.BALANCED, Distribution.CLOSEST])
def test_a_site_that_had_new_receivers_while_a_delivery_was_elsewhere_may_have_it_again(
    distribution: Distribution,
) -> None:
    hold = attrs.evolve(HOLD, distribution=distribution)
    sites = Sites(TRIANGLE, hold, advertise={"dc2": ["orders.#"], "dc3": ["orders.#"]})
    one = sites.receiver("dc2", "orders.x", credit=5)
    sender = sites.sender("dc1", "orders.x")
    sent = sender.send(*[SMALL] * 5)
    other = sites.receiver("dc3", "orders.x", credit=5)
    one.peer.lose()
    sites.run(0.5)
    assert len(other.payloads) == 5, "the first site has returned what it had"
    sites.receiver("dc2", "orders.x", credit=2)
    other.peer.lose()
    sites.run(0.5)
    assert [sender.outcome(number) for number in sent] == [None] * 5
    last = sites.receiver("dc3", "orders.x", credit=5)
    assert len(last.payloads) == 3
    last.accept()
    sites.run(0.5)
    assert [sender.outcome(number) for number in sent].count((ACCEPTED, True)) == 3


@pytest.mark.parametrize("express", ["off", "cython"])
def test_what_comes_to_a_transit_behind_which_nobody_receives_any_more_goes_elsewhere(
    express: str,
) -> None:
    kind = type("Walked", (Sites,), {"express": express})
    sites: Sites = kind(LINE, HOLD, advertise={"dc3": ["orders.#"]})
    first = sites.receiver("dc3", "orders.x", credit=5)
    sender = sites.sender("dc1", "orders.x")
    sites.slow("dc1", "dc2", 2.0)
    first.detach()
    sites.run(1.0)
    sent = sender.send(*[SMALL] * 5)
    sites.run(2.0)
    second = sites.receiver("dc2", "orders.x", credit=5)
    assert len(second.payloads) == 5
    second.accept()
    sites.run(0.5)
    assert [sender.outcome(number) for number in sent] == [(ACCEPTED, True)] * 5


def test_a_trusted_client_is_no_router_that_could_have_other_receivers() -> None:
    play = Play(HOLD, settings=CoreSettings(router_id="dc1"))
    receiver = play.connect("receiver").attach_receiver("orders.x", credit=2)
    sender = play.connect("sender", capabilities=TRUSTED).attach_sender("orders.x")
    numbers = sender.send(SMALL, SMALL)
    receiver.detach()
    play.wait(15.0)
    assert [sender.outcome(number) for number in numbers] == [None, None]
