"""Going over from passing through to storing and back, whatever happens in between.

The core, the store's engine and a log stand back to back; targets, senders and the store come and
go, grant credit, accept and return as they like:

NoLoss: when all is well again, everything that was sent has been accepted.
NoDouble: what a target has accepted is not sent again, unless the store was lost meanwhile.
Fifo: a target is sent the messages of one sender for the first time in the order of their sending.
      A target that is deaf has not read what it was sent, and never will if it is lost then.
Kept: what a target returns is sent again before anything later that it was not sent yet.
"""

import itertools

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from router.model.identity import DeliveryNumber
from router.model.outcome import MODIFIED_FAILED, RELEASED
from router.net.store.unfinished import NOTHING
from router.routes.route import Endpoint, Route, Storing
from router.routes.table import RoutingTable
from tests.support.journal import START_NS, FakeDisk
from tests.support.play import AMQP, RESUMING, Peer, Play, ReceiverEnd, SenderEnd
from tests.support.store_peer import StoreHost, StorePeer, crashed

ROUTE = Route(
    address="telemetry.#",
    to=(Endpoint("cloud"),),
    store=Storing(),
    dead_letter=Endpoint("cloud", "dead"),
)
ADDRESSES = ["telemetry.a", "telemetry.b"]


class Passing(RuleBasedStateMachine):
    """One node of the core for each address, and its surroundings."""

    loses_store = False
    resumes = False

    @initialize()
    def begin(self) -> None:
        self.route = ROUTE
        self.play = Play(ROUTE)
        self.disk = FakeDisk()
        self.lives = itertools.count(1)
        self.store: StorePeer | None = None
        self.unfinished = NOTHING
        self.cloud: Peer | None = None
        self.client = self.play.connect("client")
        self.senders = {
            (name, address): self.client.attach_sender(address, name=f"{name}-{address}")
            for name in "xy"
            for address in ADDRESSES
        }
        self.counts = dict.fromkeys(self.senders, 0)
        self.first: dict[tuple[str, str], int] = dict.fromkeys(self.senders, 0)
        self.owed: dict[tuple[str, str], set[int]] = {key: set() for key in self.senders}
        self.seen: dict[int, int] = {}
        self.numbers: dict[bytes, tuple[SenderEnd, DeliveryNumber]] = {}
        self.accepted: set[bytes] = set()
        self.store_losses = 0
        self.is_deaf = False

    # Senders

    @rule(who=st.sampled_from("xy"), of=st.sampled_from(ADDRESSES), most=st.integers(1, 4))
    def send(self, who: str, of: str, most: int) -> None:
        sender = self.senders[who, of]
        count = min(most, sender.credit)
        if count > 0:
            before = self.counts[who, of]
            bodies = [f"{who} {of} {before + n + 1}" for n in range(count)]
            numbers = sender.send(*bodies)
            self.numbers |= {b.encode(): (sender, n) for b, n in zip(bodies, numbers, strict=True)}
            self.counts[who, of] += count
        self.look()

    # The target

    @rule()
    def target_comes(self) -> None:
        if self.cloud is None:
            self.cloud = self.play.dial("cloud", capabilities=RESUMING if self.resumes else AMQP)
        while self.cloud.asked:
            self.cloud.answer_receiver(credit=3)
        self.look()

    @rule()
    def target_goes(self) -> None:
        if self.cloud is not None:
            self.look()
            self.cloud.lose()
            self.cloud = None
        self.is_deaf = False
        self.look()

    @rule(is_deaf=st.booleans())
    def target_stalls(self, is_deaf: bool) -> None:
        self.is_deaf = is_deaf
        self.look()

    @rule(credit=st.integers(0, 6))
    def target_grants(self, credit: int) -> None:
        for end in self.ends():
            end.grant(credit)
        self.look()

    @rule(which=st.integers(0, 3), most=st.integers(1, 4))
    def target_accepts(self, which: int, most: int) -> None:
        ends = self.ends()
        if ends and not self.is_deaf:
            end = ends[which % len(ends)]
            for number in list(end.unsettled)[:most]:
                self.accepted.add(end.bodies[number])
                end.accept(number)
        self.look()

    @rule(which=st.integers(0, 3), most=st.integers(1, 4))
    def target_returns(self, which: int, most: int) -> None:
        ends = self.ends()
        if ends and not self.is_deaf:
            end = ends[which % len(ends)]
            for number in list(end.unsettled)[:most]:
                self.owe(end.bodies[number])
                end.update(number, state=RELEASED, settled=True)
        self.look()

    def owe(self, body: bytes) -> None:
        """Records that a target returns a message, which keeps its place."""
        who, of, number = body.decode().split()
        self.owed[who, of].add(int(number))

    def given_back(self) -> set[bytes]:
        """Returns what senders were told to be released or to have failed: where nothing stores."""
        found = set()
        for body, (sender, number) in self.numbers.items():
            told = sender.outcome(number)
            if told is not None and told[0] in (RELEASED, MODIFIED_FAILED):
                found.add(body)
        return found

    def ends(self) -> list[ReceiverEnd]:
        """Returns the links to the target."""
        return [] if self.cloud is None else list(self.cloud.receives.values())

    # The store

    @rule()
    def store_comes(self) -> None:
        if self.store is not None:
            return
        life = START_NS + next(self.lives)
        now_ns = START_NS + int(self.play.now * 1e9)
        host = StoreHost.begun(self.disk, life, now_ns)
        self.store = StorePeer.connected(self.play, host, life, self.route, self.unfinished)

    @precondition(lambda self: self.loses_store)
    @rule()
    def store_goes(self) -> None:
        if self.store is None:
            return
        self.unfinished = self.store.engine.unfinished
        store, self.store = self.store, None
        self.store_losses += 1
        self.disk = crashed(store.host, self.store_losses)
        store.lose()
        self.look()

    @rule()
    def store_is_written(self) -> None:
        if self.store is not None:
            self.store.hand_in()
        self.look()

    @rule()
    def store_is_durable(self) -> None:
        if self.store is not None:
            self.store.hand_in()
            self.store.commit()
        self.look()

    @rule()
    def store_answers(self) -> None:
        if self.store is not None:
            self.store.give()
            self.store.tick()
        self.look()

    @rule()
    def store_works(self) -> None:
        self.settle()
        self.look()

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0, 8.0]))
    def time_passes(self, seconds: float) -> None:
        self.play.wait(seconds)
        if self.store is not None:
            self.store.tick()
        self.look()

    @rule(storing=st.sampled_from([Storing(), Storing(always=True), None]))
    def reload(self, storing: Storing | None) -> None:
        dead_letter = None if storing is None else ROUTE.dead_letter
        self.route = attrs.evolve(ROUTE, store=storing, dead_letter=dead_letter)
        self.play.carry_out(self.play.core.configure(RoutingTable([self.route]), self.play.now))
        if self.store is not None:
            self.store.follow(self.route)
        self.look()

    def settle(self) -> None:
        """Lets the store do all that it can."""
        if self.store is not None:
            self.store.settle()

    # What must hold

    def look(self) -> None:
        """Holds what the target was sent to the rules."""
        if self.cloud is None or self.is_deaf:
            return
        for end in self.ends():
            if end.attach is not None and end.attach.target.address == "dead":  # type: ignore[union-attr]
                raise AssertionError("nothing is dead here")
            start = self.seen.get(end.link, 0)
            if start < len(end.received):
                for body in self.given_back():
                    who, of, text = body.decode().split()
                    self.owed[who, of].discard(int(text))
            for delivery in end.received[start:]:
                who, of, text = delivery.payload.decode().split()
                number = int(text)
                if number > self.first[who, of]:
                    assert number == self.first[who, of] + 1, "it overtakes"
                    assert not self.owed[who, of], "it overtakes what was returned"
                    self.first[who, of] = number
                self.owed[who, of].discard(number)
                if not self.store_losses:
                    assert delivery.payload not in self.accepted, "it was accepted before"
            self.seen[end.link] = len(end.received)

    def teardown(self) -> None:
        """All is well again, and everything arrives."""
        if not hasattr(self, "play"):
            return
        self.target_stalls(False)
        self.reload(Storing())
        for _ in range(120):
            self.store_comes()
            self.target_comes()
            self.settle()
            self.target_takes_all()
            self.time_passes(1.0)
            if self.is_done():
                break
        sent = {
            f"{who} {of} {n + 1}".encode()
            for (who, of), count in self.counts.items()
            for n in range(count)
        }
        sent -= self.given_back()
        assert sent <= self.accepted, sorted(sent - self.accepted)
        for sender in self.senders.values():
            assert not sender.unsettled
        self.check_passing()

    def target_takes_all(self) -> None:
        """The target accepts what it was sent, and grants credit."""
        self.look()
        for end in self.ends():
            for number in list(end.unsettled):
                self.accepted.add(end.bodies[number])
                end.accept(number)
            end.grant(50)
        self.look()

    def is_done(self) -> bool:
        """Whether every message has its outcome and the target has all of them."""
        if any(sender.unsettled for sender in self.senders.values()):
            return False
        sent = self.numbers.keys() - self.given_back()
        return sent <= self.accepted and not any(end.unsettled for end in self.ends())

    def check_passing(self) -> None:
        """The target takes messages past the store again.

        If the store was lost it may still send what the target had accepted before, and what the
        target has not answered counts as stored.
        """
        for _ in range(15):
            self.settle()
            self.target_comes()
            self.target_takes_all()
            self.play.wait(1.0)
        store = self.store
        assert store is not None
        for sender in self.senders.values():
            self.pass_by(sender)

    def pass_by(self, sender: SenderEnd) -> None:
        assert sender.credit > 0
        sender.send("z last 1")
        passed = [end for end in self.ends() if b"z last 1" in end.payloads[-1:]]
        assert passed, "it was stored though nothing is"
        passed[0].accept()
        passed[0].received.pop()
        passed[0].grant(50)


class PassingThroughStoreLosses(Passing):
    """The same, while the store's process comes and goes, too."""

    loses_store = True


class PassingToResumers(Passing):
    """The same, with a target that resumes its links."""

    resumes = True


@pytest.mark.parametrize("machine", [Passing, PassingToResumers])
def test_nothing_overtakes_a_message_that_is_stored_as_its_target_comes(
    machine: type[Passing],
) -> None:
    state = machine()
    state.begin()
    state.store_comes()
    state.store_is_durable()
    state.store_is_durable()
    state.store_answers()
    state.send(who="x", of="telemetry.a", most=1)
    state.target_comes()
    state.store_is_durable()  # the target takes messages, and the inlet is attached in this turn
    state.send(who="x", of="telemetry.a", most=1)
    state.teardown()


def test_messages_pass_by_again_after_what_a_lost_store_sends_twice() -> None:
    state = PassingThroughStoreLosses()
    state.begin()
    state.store_comes()
    state.store_works()
    state.send(who="x", of="telemetry.a", most=3)
    state.store_is_durable()
    state.target_comes()
    state.store_works()  # the target has been sent all of it
    state.store_goes()
    state.store_comes()
    state.teardown()  # it accepts that, is sent it again, and accepts it again
    assert [end.payloads.count(b"x telemetry.a 3") for end in state.ends()].count(2) == 1


def test_senders_of_a_route_that_stores_no_more_hear_what_became_of_their_messages() -> None:
    state = PassingThroughStoreLosses()
    state.begin()
    state.reload(storing=None)
    state.store_comes()
    state.target_comes()
    state.time_passes(seconds=0.1)
    state.send(who="x", of="telemetry.a", most=1)
    state.target_goes()
    state.target_comes()
    state.target_returns(which=0, most=1)
    state.target_returns(which=1, most=1)
    state.teardown()
    assert state.given_back() == {b"x telemetry.a 1"}


@pytest.mark.parametrize("machine", [Passing, PassingToResumers])
def test_what_a_lost_target_never_read_goes_before_what_was_stored_meanwhile(
    machine: type[Passing],
) -> None:
    state = machine()
    state.begin()
    state.store_comes()
    state.target_comes()
    state.store_works()
    state.target_stalls(is_deaf=True)
    state.send(who="x", of="telemetry.a", most=3)
    state.target_grants(credit=0)
    for _ in range(3):
        state.time_passes(seconds=8.0)  # it answers nothing, so others are stored
    state.send(who="x", of="telemetry.a", most=4)
    state.store_works()
    state.target_grants(credit=2)
    state.store_works()  # it is sent some of these, and the store has read the others
    state.target_goes()
    state.store_works()
    state.target_comes()
    state.store_works()
    assert state.ends()
    state.teardown()


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("seconds", [0.1, 8.0])
@pytest.mark.parametrize("machine", [Passing, PassingToResumers])
def test_what_a_target_returns_goes_first_though_its_route_stores_no_more(
    machine: type[Passing], seconds: float, times: int
) -> None:
    state = machine()
    state.begin()
    state.store_comes()
    state.target_comes()
    state.store_works()
    state.send(who="x", of="telemetry.a", most=3)
    for _ in range(3):
        state.time_passes(seconds=8.0)  # it answers nothing, so others are stored
    state.send(who="x", of="telemetry.a", most=4)
    state.store_works()
    state.reload(None)
    state.store_works()
    for _ in range(times):
        state.time_passes(seconds=seconds)
        state.target_returns(which=0, most=4)
        state.target_grants(credit=3)
    for _ in range(20):
        state.store_works()
        state.target_comes()
        state.target_takes_all()
        state.time_passes(1.0)
    assert not state.given_back()
    assert state.is_done()


@pytest.mark.parametrize("machine", [Passing, PassingToResumers])
def test_a_sender_whose_whole_credit_is_at_a_silent_target_gets_more_for_the_store(
    machine: type[Passing],
) -> None:
    state = machine()
    state.begin()
    state.store_comes()
    state.target_comes()
    state.store_works()
    sender, other = state.senders["x", "telemetry.a"], state.senders["x", "telemetry.b"]
    state.target_grants(credit=sender.credit)
    state.target_stalls(is_deaf=True)
    for _ in range(0, sender.credit, 4):
        state.send(who="x", of="telemetry.a", most=4)
    assert not sender.credit
    for _ in range(4):
        state.time_passes(seconds=3.0)
    assert sender.credit > 0
    before = len(sender.unsettled)
    state.send(who="x", of="telemetry.a", most=4)
    state.store_works()
    assert len(sender.unsettled) == before, "these are stored"
    assert other.credit > 0
    state.teardown()


_SETTINGS = settings(max_examples=20, stateful_step_count=40, deadline=None)
TestPassing = Passing.TestCase
TestPassing.settings = _SETTINGS
TestPassingThroughStoreLosses = PassingThroughStoreLosses.TestCase
TestPassingThroughStoreLosses.settings = _SETTINGS
TestPassingToResumers = PassingToResumers.TestCase
TestPassingToResumers.settings = _SETTINGS
