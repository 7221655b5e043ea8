"""Targets that forget, and ``in_doubt: hold``: random losses, crashes and reloads, and a person.

What a target has processed whose word was lost is in doubt. Nothing may be processed twice, and no
sender may be told that a message did not arrive which did; in the end each message has arrived, was
given back to its sender, or is listed.
"""

import collections
import itertools

import attrs
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from router.core.listing import Filter
from router.core.resolve import Decision
from router.core.settings import CoreSettings
from router.model.condition import NOT_IMPLEMENTED, Condition
from router.model.identity import DeliveryTag
from router.model.outcome import ACCEPTED, DeliveryState
from router.routes.route import Endpoint, Guarantee, InDoubt, Route
from tests.core.test_exactly_once import FOREVER, Sender
from tests.support.journaled import Journaled
from tests.support.play import Peer, ReceiverEnd, table

pytestmark = pytest.mark.thorough

HOLD = Route(
    address="orders",
    to=(Endpoint("target"),),
    guarantee=Guarantee.EXACTLY_ONCE,
    in_doubt=InDoubt.HOLD,
)
EXPIRING = attrs.evolve(HOLD, ttl_seconds=30.0)
GONE = "other"


@attrs.define(eq=False)
class Source(Sender):
    """Settles whatever it is told, and sends nothing a second time."""

    told: dict[bytes, list[DeliveryState]] = attrs.field(factory=dict)

    def conclude(self, tag: DeliveryTag, outcome: DeliveryState) -> None:
        del self.unsettled[tag]
        self.told.setdefault(self.bodies[tag], []).append(outcome)


@attrs.define(eq=False)
class ForgetfulTarget:
    """A container that keeps nothing over its connections, and says so, by words or by silence."""

    processed: collections.Counter[bytes] = attrs.field(factory=collections.Counter)
    peer: Peer | None = None
    end: ReceiverEnd | None = None
    looked_at: int = 0
    refuses: bool = True

    def come(self, play: Journaled, *, refuses: bool = True) -> None:
        self.refuses = refuses
        self.lose()
        self.peer = play.dial("target")
        self.attach()

    def attach(self) -> None:
        """Answers what the router asks for, if it asks."""
        if self.peer is None or self.peer.is_lost or not self.peer.asked:
            return
        if self.refuses and next(iter(self.peer.asked.values())).unsettled:
            self.peer.refuse(Condition(NOT_IMPLEMENTED))
            return
        self.end, self.looked_at = self.peer.answer_receiver(credit=3), 0

    def work(self, *, answers: bool) -> None:
        end = self.end
        if end is None or not end.is_live():
            return
        for delivery in end.received[self.looked_at :]:
            self.looked_at += 1
            self.processed[delivery.payload] += 1
        if answers:
            end.accept()
            end.grant(3)

    def lose(self) -> None:
        if self.peer is not None and not self.peer.is_lost:
            self.peer.lose()
        self.peer = self.end = None


class Held(RuleBasedStateMachine):
    routes: tuple[Route | str, ...] = (HOLD, attrs.evolve(HOLD, stall_seconds=70.0), EXPIRING)

    def __init__(self) -> None:
        super().__init__()
        limits = CoreSettings(router_id="dc1", link_credit=4, expiry_seconds=FOREVER)
        self.play = Journaled(HOLD, settings=limits)
        self.messages = itertools.count(1)
        self.target = ForgetfulTarget()
        self.target.come(self.play)
        self.source = Source(self.play, "source", False)
        self.source.attach()
        self.discarded: set[bytes] = set()

    @rule(count=st.integers(1, 3))
    def send(self, count: int) -> None:
        for _ in range(count):
            self.source.send(next(self.messages))

    @rule()
    def source_works(self) -> None:
        self.source.look()
        self.source.settle()
        self.source.go_on()

    @rule(answers=st.booleans())
    def target_works(self, answers: bool) -> None:
        self.target.work(answers=answers)

    @rule(refuses=st.booleans())
    def target_comes(self, refuses: bool) -> None:
        self.target.come(self.play, refuses=refuses)

    @rule()
    def target_is_lost(self) -> None:
        self.target.lose()

    @rule()
    def target_closes_its_link(self) -> None:
        if self.target.end is not None and self.target.end.is_live():
            self.target.end.detach(closed=True)

    @rule(noticed=st.booleans())
    def source_comes_again(self, noticed: bool) -> None:
        if noticed:
            self.source.lose()
        self.source.attach()

    @rule()
    def flush(self) -> None:
        self.play.flush()

    @rule(which=st.integers(0, 2))
    def reload(self, which: int) -> None:
        self.play.routes = (self.routes[which % len(self.routes)],)
        self.play.carry_out(self.play.core.configure(table(*self.play.routes), self.play.now))

    @rule(times=st.integers(1, 2))
    def crash(self, times: int) -> None:
        for _ in range(times):
            self.play = self.play.crash()
        self.target.peer = self.target.end = None
        self.source.play, self.source.peer, self.source.is_cut = self.play, None, True

    @rule(seconds=st.sampled_from([1.0, 15.0, 100.0]))
    def wait(self, seconds: float) -> None:
        self.play.wait(seconds)
        self.target.attach()

    def doubts(self) -> list[str]:
        page = self.play.core.lister.deliveries(Filter(in_doubt=True), 999, None, self.play.now)
        return [each.tag for each in page.deliveries]

    @rule(which=st.integers(0, 9))
    def person(self, which: int) -> None:
        """Looks at the target, and says what is true."""
        listed = self.doubts()
        if not listed:
            return
        tag = DeliveryTag(bytes.fromhex(listed[which % len(listed)]))
        has_it = self.target.processed[self.source.bodies[tag]] > 0
        if self.target.end is not None and self.target.end.is_live():
            self.target.work(answers=False)  # nothing is on its way to it unseen
            has_it = self.target.processed[self.source.bodies[tag]] > 0
        decision = Decision.ACCEPT if has_it else Decision.RESEND
        _, orders = self.play.core.resolve(tag, None, decision, self.play.now)
        self.play.carry_out(orders)

    @invariant()
    def nothing_is_processed_twice(self) -> None:
        assert all(times == 1 for times in self.target.processed.values())

    @invariant()
    def no_sender_is_told_an_untruth(self) -> None:
        for body, outcomes in self.source.told.items():
            assert len(outcomes) == 1, "SettleOnce"
            assert (outcomes[0] == ACCEPTED) is (self.target.processed[body] == 1)

    def teardown(self) -> None:
        for _ in range(8):
            self.play.flush()
            if self.source.is_cut or self.source.peer is None:
                self.source.attach()
            self.source.attach_again()
            if self.target.end is None or not self.target.end.is_live():
                self.target.come(self.play)
            self.play.wait(70)
            self.target.attach()
            for _ in range(20):
                self.play.flush()
                self.target.work(answers=True)
                self.play.flush()
                self.source_works()
        self.nothing_is_processed_twice()
        self.no_sender_is_told_an_untruth()
        open_tags = {tag.hex() for tag in self.source.unsettled}
        assert open_tags <= set(self.doubts()), "neither answered nor listed"


Held.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
TestHeld = Held.TestCase
