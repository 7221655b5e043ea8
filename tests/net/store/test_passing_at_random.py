"""Going over from passing through to storing and back, whatever happens in between.

The core, the store's engine and a log stand back to back; targets, senders and the store come and
go, grant credit, accept and return as they like:

NoLoss: when all is well again, everything that was sent has been accepted.
NoDouble: what a target has accepted is not sent again, unless the store was lost meanwhile.
Fifo: a target is sent the messages of one sender for the first time in the order of their sending.
"""

import itertools
import random

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from router.core.dead_letters import DEAD_LETTERS
from router.core.stored import STORE, STORED
from router.journal.block import BlockFlag, Origin, open_block
from router.journal.protocol import REPLY, is_hello
from router.journal.store.client import StoreClient
from router.journal.store.desk import Desk
from router.journal.store.log import StoreLog
from router.journal.store.queues import Bounds, route_key
from router.model.commands import Command
from router.model.events import ConnectionClosed, Event
from router.model.identity import ConnectionId
from router.model.outcome import RELEASED
from router.net.store.engine import StoreEngine
from router.routes.route import Endpoint, Route, Storing
from router.routes.table import RoutingTable
from tests.support.journal import DIRECTORY, START_NS, FakeDisk
from tests.support.play import AMQP, RESUMING, Peer, Play, ReceiverEnd, SenderEnd

ROUTE = Route(
    address="telemetry.#",
    to=(Endpoint("cloud"),),
    store=Storing(),
    dead_letter=Endpoint("cloud", "dead"),
)
ADDRESSES = ["telemetry.a", "telemetry.b"]


@attrs.define(eq=False)
class StorePeer:
    """A connection to the store: its engine, and the process behind it.

    Attributes:
        is_busy: something may be handed to or fro.
    """

    play: Play
    id: ConnectionId
    engine: StoreEngine
    log: StoreLog
    desk: Desk
    origin: Origin
    is_lost: bool = False

    def execute(self, command: Command) -> None:
        self.engine.execute(command)

    def now_ns(self) -> int:
        return START_NS + int(self.play.now * 1e9)

    def happens(self, events: list[Event]) -> None:
        if events:
            self.play.carry_out(self.play.core.handle(self.id, events, self.play.now))

    def hand_in(self) -> bool:
        """Gives the process what the engine has written."""
        octets = b""
        while view := self.engine.data_to_send():
            octets += bytes(view)
            self.engine.bytes_sent(len(view))
        view, at = memoryview(octets), 0
        while at < len(view):
            block = open_block(view, at)
            if is_hello(block):
                self.log.admit(self.origin, 1)
                self.commit()
            elif block.flags & BlockFlag.ASKS:
                self.desk.asked(self.origin, block)
            else:
                self.log.append(octets[at : at + block.octets], [block])
            at += block.octets
        return bool(octets)

    def commit(self) -> None:
        """The process makes durable what it was given."""
        self.log.commit(self.now_ns())
        durable = self.log.durable[self.origin] - 1
        reply = REPLY.pack(self.log.health, self.log.errno, durable)
        self.happens(self.engine.receive_data(reply, self.play.now))

    def give(self) -> bool:
        """The engine gets what the process answers."""
        octets = self.desk.output(self.origin, self.now_ns())
        if octets:
            self.happens(self.engine.receive_data(octets, self.play.now))
        return bool(octets)

    def tick(self) -> None:
        deadline = self.engine.deadline
        if deadline is not None and deadline <= self.play.now:
            self.happens(self.engine.handle_deadline(self.play.now))


class Passing(RuleBasedStateMachine):
    """One node of the core for each address, and its surroundings."""

    loses_store = False
    resumes = False

    @initialize()
    def begin(self) -> None:
        self.play = Play(ROUTE)
        self.disk = FakeDisk()
        self.lives = itertools.count(1)
        self.store: StorePeer | None = None
        self.going: list[object] = []
        self.cloud: Peer | None = None
        self.client = self.play.connect("client")
        self.senders = {
            (name, address): self.client.attach_sender(address, name=f"{name}-{address}")
            for name in "xy"
            for address in ADDRESSES
        }
        self.counts = dict.fromkeys(self.senders, 0)
        self.first: dict[tuple[str, str], int] = dict.fromkeys(self.senders, 0)
        self.seen: dict[int, int] = {}
        self.accepted: set[bytes] = set()
        self.store_losses = 0

    # Senders

    @rule(who=st.sampled_from("xy"), of=st.sampled_from(ADDRESSES), most=st.integers(1, 4))
    def send(self, who: str, of: str, most: int) -> None:
        sender = self.senders[who, of]
        count = min(most, sender.credit)
        if count > 0:
            before = self.counts[who, of]
            sender.send(*(f"{who} {of} {before + n + 1}" for n in range(count)))
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
        self.look()

    @rule(credit=st.integers(0, 6))
    def target_grants(self, credit: int) -> None:
        for end in self.ends():
            end.grant(credit)
        self.look()

    @rule(which=st.integers(0, 3), most=st.integers(1, 4))
    def target_accepts(self, which: int, most: int) -> None:
        ends = self.ends()
        if ends:
            end = ends[which % len(ends)]
            for number in list(end.unsettled)[:most]:
                self.accepted.add(end.bodies[number])
                end.accept(number)
        self.look()

    @rule(which=st.integers(0, 3), most=st.integers(1, 4))
    def target_returns(self, which: int, most: int) -> None:
        ends = self.ends()
        if ends:
            end = ends[which % len(ends)]
            for number in list(end.unsettled)[:most]:
                end.update(number, state=RELEASED, settled=True)
        self.look()

    def ends(self) -> list[ReceiverEnd]:
        """Returns the links to the target."""
        return [] if self.cloud is None else list(self.cloud.receives.values())

    # The store

    @rule()
    def store_comes(self) -> None:
        if self.store is not None:
            return
        life = START_NS + next(self.lives)
        log = StoreLog(DIRECTORY, "dc1", disk=self.disk, incarnation=life)
        id_ = ConnectionId(1000 + life - START_NS)
        engine = StoreEngine(
            StoreClient(router="dc1", worker=1, incarnation=life),
            link_ids=self.play.link_ids,
            clock_ns=lambda: START_NS + int(self.play.now * 1e9),
            stored_property=STORED,
            dead_property=DEAD_LETTERS,
            going=self.going,  # type: ignore[arg-type]
        )
        log.open(START_NS + int(self.play.now * 1e9))
        key = route_key(ROUTE.name)
        engine.follow({key: Bounds()}, (key,), (key,))
        self.store = StorePeer(self.play, id_, engine, log, Desk(log.store), Origin(1, life))
        self.play.peers[id_] = self.store  # type: ignore[assignment]
        self.play.core.dialed(id_, STORE)

    @precondition(lambda self: self.loses_store)
    @rule()
    def store_goes(self) -> None:
        if self.store is None:
            return
        self.going = list(self.store.engine.going)
        self.store.is_lost = True
        store, self.store = self.store, None
        self.store_losses += 1
        self.disk = self.disk.crashed(random.Random(self.store_losses))
        self.play.carry_out(self.play.core.handle(store.id, [ConnectionClosed()], self.play.now))
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

    @rule(always=st.booleans())
    def reload(self, always: bool) -> None:
        route = attrs.evolve(ROUTE, store=Storing(always=always))
        self.play.carry_out(self.play.core.configure(RoutingTable([route]), self.play.now))
        self.look()

    def settle(self) -> None:
        """Lets the store do all that it can."""
        for _ in range(40):
            if self.store is None:
                return
            is_busy = self.store.hand_in()
            if is_busy:
                self.store.commit()
            is_busy |= self.store.give()
            self.store.tick()
            if not is_busy:
                return

    # What must hold

    def look(self) -> None:
        """Holds what the target was sent to the rules."""
        if self.cloud is None:
            return
        for end in self.ends():
            if end.attach is not None and end.attach.target.address == "dead":  # type: ignore[union-attr]
                raise AssertionError("nothing is dead here")
            start = self.seen.get(end.link, 0)
            for delivery in end.received[start:]:
                who, of, text = delivery.payload.decode().split()
                number = int(text)
                if number > self.first[who, of]:
                    assert number == self.first[who, of] + 1, "it overtakes"
                    self.first[who, of] = number
                if not self.store_losses:
                    assert delivery.payload not in self.accepted, "it was accepted before"
            self.seen[end.link] = len(end.received)

    def teardown(self) -> None:
        """All is well again, and everything arrives."""
        if not hasattr(self, "play"):
            return
        self.reload(False)
        for _ in range(120):
            self.store_comes()
            self.target_comes()
            self.settle()
            self.look()
            for end in self.ends():
                for number in list(end.unsettled):
                    self.accepted.add(end.bodies[number])
                    end.accept(number)
                end.grant(50)
            self.look()
            self.time_passes(1.0)
            if self.is_done():
                break
        sent = {
            f"{who} {of} {n + 1}".encode()
            for (who, of), count in self.counts.items()
            for n in range(count)
        }
        assert sent <= self.accepted, sorted(sent - self.accepted)
        for sender in self.senders.values():
            assert not sender.unsettled
        self.check_passing()

    def is_done(self) -> bool:
        """Whether every message has its outcome and the target has all of them."""
        if any(sender.unsettled for sender in self.senders.values()):
            return False
        return len(self.accepted) == sum(self.counts.values()) and not any(
            end.unsettled for end in self.ends()
        )

    def check_passing(self) -> None:
        """The target takes messages past the store again."""
        for _ in range(15):
            self.settle()
            self.target_comes()
            for end in self.ends():
                end.grant(50)
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


_SETTINGS = settings(max_examples=20, stateful_step_count=40, deadline=None)
TestPassing = Passing.TestCase
TestPassing.settings = _SETTINGS
TestPassingThroughStoreLosses = PassingThroughStoreLosses.TestCase
TestPassingThroughStoreLosses.settings = _SETTINGS
TestPassingToResumers = PassingToResumers.TestCase
TestPassingToResumers.settings = _SETTINGS
