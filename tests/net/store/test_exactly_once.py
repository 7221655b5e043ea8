"""Exactly once through the message store, whoever is killed, cut off or away when.

Senders that resume, a target that resumes, the core with a journal, the store's engine and its
process stand back to back. What may happen at any step: a connection is cut; the worker is killed,
with the last records of its journal if nobody has seen what followed from them; the store's process
is killed, and what it has written since its last flush is torn; the machine stops, which is both.

NoDouble: no message is processed twice.
NoLoss: when all is well again every message has been processed, and every sender knows.
Settled: nobody has anything unsettled then, and the store is empty and names nothing.
"""

import collections
import itertools
from collections.abc import Iterator

import attrs
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from router.core.settings import CoreSettings
from router.journal.store.queues import UNBOUNDED
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, RELEASED, Outcome, Rejected
from router.net.store.unfinished import NOTHING
from router.routes.route import Endpoint, Guarantee, Route, Storing
from tests.core.test_exactly_once import FOREVER, Receiver, Sender
from tests.support.journal import START_NS, FakeDisk
from tests.support.journaled import Journaled
from tests.support.play import Peer, Play
from tests.support.store_peer import StoreHost, StorePeer, crashed

ROUTE = Route(
    address="orders",
    to=(Endpoint("target"),),
    guarantee=Guarantee.EXACTLY_ONCE,
    store=Storing(always=True),
    dead_letter=Endpoint("target", "dead"),
)
LIMITS = CoreSettings(
    router_id="dc1", link_credit=4, expiry_seconds=FOREVER, failover_seconds=FOREVER
)


class Target:
    """A container that remembers each link of the router by its name, over all connections."""

    def __init__(self, play: Play, name: str = "target") -> None:
        self.play = play
        self.name = name
        self.peer: Peer | None = None
        self.links: dict[str, Receiver] = {}
        self.says: Outcome = ACCEPTED

    def come(self) -> None:
        """The router reaches it."""
        if self.peer is None:
            self.peer = self.play.dial(self.name)
        self.answer()

    def answer(self) -> None:
        """Answers all attaches of the router."""
        peer = self.peer
        while peer is not None and peer.asked:
            asked = next(iter(peer.asked.values()))
            link = self.links.setdefault(asked.name, Receiver(self.play, self.name, True))
            link.play, link.peer, link.is_cut = self.play, peer, False
            link.attach_by(peer)

    def go(self) -> None:
        """The connection is lost."""
        if self.peer is not None:
            self.peer.lose()
        self.forget_connection()

    def forget_connection(self) -> None:
        """Nothing passes from here on."""
        self.peer = None
        for link in self.links.values():
            link.peer, link.is_cut = None, True

    def live(self) -> Iterator[tuple[str, Receiver]]:
        """Yields the links that are attached."""
        for name, link in self.links.items():
            if link.end is not None and not link.is_cut and link.end.is_live():
                link.says = ACCEPTED if "!>" in name else self.says
                yield name, link


class Stored(RuleBasedStateMachine):
    """One address of a stored route, and its surroundings."""

    route = ROUTE
    make_sender = Sender
    bounds = UNBOUNDED

    @initialize()
    def begin(self) -> None:
        self.play = Journaled(self.route, settings=LIMITS)
        self.play.keep_store(self.play.now)
        self.disk = FakeDisk()
        self.lives = itertools.count(1)
        self.messages = itertools.count(1)
        self.host: StoreHost | None = None
        self.store: StorePeer | None = None
        self.unfinished = NOTHING
        self.target = Target(self.play)
        self.senders = [self.make_sender(self.play, name, False) for name in ("a", "b")]
        for sender in self.senders:
            sender.attach()

    # Senders

    @rule(which=st.integers(0, 1), count=st.integers(1, 3))
    def send(self, which: int, count: int) -> None:
        for _ in range(count):
            self.senders[which].send(next(self.messages))

    @rule(which=st.integers(0, 1))
    def sender_looks(self, which: int) -> None:
        self.senders[which].look()
        self.senders[which].go_on()

    @rule(which=st.integers(0, 1))
    def sender_settles(self, which: int) -> None:
        self.senders[which].settle()

    @rule(which=st.integers(0, 1))
    def sender_is_cut_off(self, which: int) -> None:
        self.senders[which].cut()

    @rule(which=st.integers(0, 1))
    def sender_comes_back(self, which: int) -> None:
        if self.senders[which].is_cut:
            self.senders[which].attach()

    # The target

    @rule()
    def target_comes(self) -> None:
        self.target.come()

    @rule()
    def target_goes(self) -> None:
        self.target.go()

    @rule(count=st.integers(1, 4))
    def target_looks(self, count: int) -> None:
        for _, link in self.target.live():
            for _ in range(count):
                link.look()

    @rule()
    def target_answers(self) -> None:
        for _, link in self.target.live():
            link.answer()

    @rule()
    def target_listens(self) -> None:
        for _, link in self.target.live():
            link.listen()
            link.renew()

    # The router

    @rule()
    def journal_is_durable(self) -> None:
        self.play.flush()

    @rule()
    def store_comes(self) -> None:
        if self.store is not None:
            return
        life = START_NS + next(self.lives)
        if self.host is None:
            self.host = StoreHost.begun(self.disk, life, self.now_ns(), 2000)
        self.store = StorePeer.connected(
            self.play, self.host, life, self.route, self.unfinished, bounds=self.bounds
        )

    @rule()
    def store_is_written(self) -> None:
        if self.store is not None:
            self.store.hand_in()

    @rule()
    def store_is_durable(self) -> None:
        if self.store is not None:
            self.store.hand_in()
            self.store.commit()

    @rule()
    def store_answers(self) -> None:
        if self.store is not None:
            self.store.give()
            self.store.tick()

    @rule()
    def store_works(self) -> None:
        if self.store is not None:
            self.store.settle()
            self.clean()

    @rule(seconds=st.sampled_from([0.1, 1.0, 6.0]))
    def time_passes(self, seconds: float) -> None:
        self.play.wait(seconds)
        if self.store is not None:
            self.store.tick()

    @rule()
    def everybody_works(self) -> None:
        self.work()

    # What goes wrong

    @rule(arrives=st.booleans())
    def store_is_cut_off(self, arrives: bool) -> None:
        """The connection is lost; what the worker has written may still arrive."""
        if self.store is None:
            return
        store, self.store = self.store, None
        self.unfinished = store.engine.unfinished
        if arrives:
            store.hand_in()
        store.leave()
        store.lose()

    @rule(seed=st.integers(0, 1000))
    def store_is_killed(self, seed: int) -> None:
        """Its process, or its disk's machine: what was not flushed may be torn."""
        self.kill_store(seed)
        if self.store is not None:
            store, self.store = self.store, None
            self.unfinished = store.engine.unfinished
            store.lose()

    @rule(arrives=st.booleans(), lost=st.integers(0, 20))
    def worker_is_killed(self, arrives: bool, lost: int) -> None:
        if self.store is not None and self.host is not None:
            if arrives:
                self.hand_over()
            self.store.leave()
        self.kill_worker(lost)

    @rule(seed=st.integers(0, 1000), lost=st.integers(0, 20))
    def machine_stops(self, seed: int, lost: int) -> None:
        self.kill_store(seed)
        self.kill_worker(lost)

    def kill_store(self, seed: int) -> None:
        if self.host is not None:
            self.disk, self.host = crashed(self.host, seed), None

    def kill_worker(self, lost: int) -> None:
        self.store, self.unfinished = None, NOTHING
        self.play.hand_in()
        last = self.play.writer.next_sequence - 1
        self.play = self.play.crash(keeps=max(self.play.durable, last - lost))
        for sender in self.senders:
            sender.play, sender.peer, sender.is_cut = self.play, None, True
        self.target.play = self.play
        self.target.forget_connection()

    def hand_over(self) -> None:
        """What the worker has written arrives, and it reads no answer any more."""
        assert self.store is not None
        self.store.is_deaf = True
        self.store.hand_in()

    # What must hold

    @invariant()
    def nothing_was_processed_twice(self) -> None:
        if hasattr(self, "target"):
            assert all(times == 1 for times in self.processed().values())

    def processed(self) -> collections.Counter[bytes]:
        """Counts what the target has processed, as a message or as a dead letter."""
        found = (link.processed for link in self.target.links.values())
        return sum(found, collections.Counter())

    def now_ns(self) -> int:
        return START_NS + int(self.play.now * 1e9)

    def clean(self) -> None:
        """Segments go as they do in the process."""
        if self.host is not None:
            self.host.log.store.remove_done()

    def work(self) -> None:
        """Everybody does what there is to do, once."""
        self.store_comes()
        self.target.come()
        for sender in self.senders:
            if sender.is_cut:
                sender.attach()
        self.play.flush()
        self.store_works()
        for _, link in self.target.live():
            link.renew()
        self.target_looks(count=1)
        self.target_answers()
        for _, link in self.target.live():
            link.listen()
        for sender in self.senders:
            sender.catch_up()

    def teardown(self) -> None:
        if not hasattr(self, "target"):
            return
        self.target.says = ACCEPTED
        for _ in range(150):
            self.work()
            self.time_passes(1.0)
            if self.is_done():
                break
        self.nothing_was_processed_twice()
        sent = set().union(*(sender.sent for sender in self.senders))
        assert {*self.processed()} == sent
        assert {body for sender in self.senders for body in sender.accepted} == sent
        assert not any(each.unsettled for each in (*self.senders, *self.target.links.values()))
        assert self.host is not None
        holdings = self.host.log.store.holdings
        assert not any(queue.messages for queue in holdings.queues.values())
        assert holdings.unsettled == {}
        assert self.play.core._registry.process.used == 0

    def is_done(self) -> bool:
        """Whether nothing is under way any more."""
        parties = (*self.senders, *self.target.links.values())
        if self.host is None or any(each.unsettled for each in parties):
            return False
        holdings = self.host.log.store.holdings
        return not (holdings.unsettled or any(each.messages for each in holdings.queues.values()))


class StoredAndReturned(Stored):
    """The target does not accept everything; what it rejects is a dead letter."""

    @rule(says=st.sampled_from([ACCEPTED, RELEASED, MODIFIED_FAILED, Rejected()]))
    def target_decides(self, says: Outcome) -> None:
        self.target.says = says


class PassingThrough(Stored):
    """The store has only what the target cannot take; a rejection on the way past it is told."""

    route = attrs.evolve(ROUTE, store=Storing())

    @rule(says=st.sampled_from([ACCEPTED, RELEASED, MODIFIED_FAILED]))
    def target_decides(self, says: Outcome) -> None:
        self.target.says = says


pytestmark = pytest.mark.thorough

_SETTINGS = settings(
    max_examples=25,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestStored = Stored.TestCase
TestStored.settings = _SETTINGS
TestStoredAndReturned = StoredAndReturned.TestCase
TestStoredAndReturned.settings = _SETTINGS
TestPassingThrough = PassingThrough.TestCase
TestPassingThrough.settings = _SETTINGS
