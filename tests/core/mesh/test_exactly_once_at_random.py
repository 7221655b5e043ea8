"""Exactly once whatever happens on the way: cuts, silence and crashes at random, on the real cores.

Senders at two ingresses and receivers at two egresses, with three transits between them. Journals
become durable late, connections vanish or fall silent, and routers crash, one soon after the
other. At any time no message was processed twice; once all are back every one was processed, and
no journal remembers any.
"""

import collections
import itertools
from collections.abc import Sequence

import attrs
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from router.model.identity import LinkName
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, RELEASED, Outcome
from tests.core.test_exactly_once import Receiver, Sender
from tests.support.exact_sites import EXACT, ExactSites
from tests.support.play import Play
from tests.support.sites import Line

pytestmark = pytest.mark.thorough

LINKS: list[Line] = [
    ("in1", "m1", 10),
    ("in1", "m2", 15),
    ("in2", "m2", 10),
    ("m1", "m3", 10),
    ("m2", "m3", 10),
    ("m1", "out1", 20),
    ("m3", "out1", 10),
    ("m3", "out2", 10),
    ("m2", "out2", 30),
]
NAMES = sorted({end for one, other, _ in LINKS for end in (one, other)})
DATA = b"\x00Su\xa0"
SERVED = {"out1": ["orders.#"], "out2": ["orders.#"]}


class Paths(RuleBasedStateMachine):
    """Clients come to any of the workers that a router has; the last one keeps their address."""

    workers = 1

    def __init__(self) -> None:
        super().__init__()
        self.sites = ExactSites(LINKS, EXACT, advertise=SERVED, workers=self.workers)
        self.messages = itertools.count(1)
        self.senders = [
            Sender(self.place(name, at), f"to-{name}", False)
            for at, name in enumerate(("in1", "in2"))
        ]
        self.receivers = [
            Receiver(self.place(name, at), f"from-{name}", False)
            for at, name in enumerate(("out1", "out2"))
        ]
        for client in self.clients():
            client.attach()
            self.sites.run(1.0)

    def place(self, name: str, at: int) -> Play:
        return self.sites.worker(name, 1 + at % self.workers)

    def clients(self) -> Sequence[Sender | Receiver]:
        return [*self.receivers, *self.senders]

    @rule(which=st.integers(0, 1), count=st.integers(1, 3))
    def send(self, which: int, count: int) -> None:
        for _ in range(count):
            self.senders[which].send(next(self.messages))

    @rule(which=st.integers(0, 1))
    def sender_works(self, which: int) -> None:
        sender = self.senders[which]
        sender.look()
        sender.go_on()
        sender.settle()

    @rule(which=st.integers(0, 1), count=st.integers(1, 4))
    def receiver_works(self, which: int, count: int) -> None:
        for _ in range(count):
            self.receivers[which].look()
        self.receivers[which].answer()
        self.receivers[which].listen()
        self.receivers[which].renew()

    @rule(which=st.integers(0, 1), says=st.sampled_from([ACCEPTED, RELEASED, MODIFIED_FAILED]))
    def receiver_decides(self, which: int, says: Outcome) -> None:
        self.receivers[which].says = says

    @rule()
    def octets_travel(self) -> None:
        self.sites.settle()

    @rule(is_prompt=st.booleans())
    def disks_are(self, is_prompt: bool) -> None:
        """Prompt or slow; what is slow waits for ``a_disk_is_done``."""
        self.sites.flushes = is_prompt

    @rule(which=st.integers(0, len(NAMES) - 1))
    def a_disk_is_done(self, which: int) -> None:
        self.sites.flush(NAMES[which])

    @rule(seconds=st.sampled_from([0.05, 0.3, 1.0, 4.0]))
    def time_passes(self, seconds: float) -> None:
        self.sites.run(seconds)

    @rule(which=st.integers(0, len(LINKS) - 1))
    def a_line_is_cut(self, which: int) -> None:
        one, other, _ = LINKS[which]
        if self.sites.is_connected(one, other):
            self.sites.cut(one, other)

    @rule(which=st.integers(0, len(LINKS) - 1))
    def a_line_falls_silent(self, which: int) -> None:
        one, other, _ = LINKS[which]
        if self.sites.is_connected(one, other):
            self.sites.silence(one, other)

    @rule(which=st.integers(0, len(LINKS) - 1))
    def a_line_comes_back(self, which: int) -> None:
        one, other, _ = LINKS[which]
        if not self.sites.is_connected(one, other):
            self.sites.dial(one, other)

    @rule(which=st.integers(0, len(NAMES) - 1), worker=st.integers(0, 1), is_back=st.booleans())
    def a_worker_crashes(self, which: int, worker: int, is_back: bool) -> None:
        name, number = NAMES[which], 1 + worker % self.workers
        before = self.sites.worker(name, number)
        after = self.sites.crash(name, number)
        for client in self.clients():
            if client.play is before:
                client.play, client.peer, client.is_cut = after, None, True
            elif client.peer is not None and client.peer.closed is not None:
                client.is_cut = True  # its link's home is gone
        if is_back:
            self.sites.come_back(name)

    @rule(back=st.integers(0, 30), by=st.integers(0, 5))
    def an_attach_of_the_past_arrives(self, back: int, by: int) -> None:
        """It was held up, and comes over whichever neighbor."""
        past = self.sites.chain_attaches
        if not past:
            return
        egress, attach = past[-1 - back % len(past)]
        joints = [
            joint
            for wire in self.sites.wires
            for end, joint in zip(wire.ends, wire.joints, strict=True)
            if egress in wire.ends and end != egress
        ]
        if joints:
            joint = joints[by % len(joints)]
            link = joint.play.next_link()
            name = LinkName(f"late-{link}")
            joint.engine.execute(attrs.evolve(attach, link=link, name=name))

    @rule(which=st.integers(0, 3))
    def a_client_is_cut(self, which: int) -> None:
        self.clients()[which].cut()

    @rule(which=st.integers(0, 3), is_noticed=st.booleans())
    def a_client_comes_back(self, which: int, is_noticed: bool) -> None:
        client = self.clients()[which]
        if client.is_cut:
            if is_noticed:
                client.lose()
            client.attach()

    def processed(self) -> collections.Counter[bytes]:
        """Counts how often each message was processed, by its body without a header."""
        total: collections.Counter[bytes] = collections.Counter()
        for receiver in self.receivers:
            for payload, times in (+receiver.processed).items():
                total[payload[payload.index(DATA) :]] += times
        return total

    @invariant()
    def nothing_was_processed_twice(self) -> None:
        assert all(times == 1 for times in self.processed().values())

    def teardown(self) -> None:
        sites = self.sites
        sites.flushes = True
        for wire in [wire for wire in sites.wires if wire.is_silent]:
            if wire in sites.wires:
                sites.cut(*wire.ends)
        for receiver in self.receivers:
            receiver.says = ACCEPTED
        for _ in range(60):
            for name in sites.plays:
                sites.come_back(name)
            for client in self.clients():
                client.attach_again()
                if client.is_cut:
                    client.attach()
            for receiver in self.receivers:
                receiver.catch_up()
            for sender in self.senders:
                sender.catch_up()
            sites.run(0.5)
        self.nothing_was_processed_twice()
        sent = set().union(*(sender.sent for sender in self.senders))
        assert set(self.processed()) == sent
        assert all(not client.unsettled for client in self.clients())
        assert {body for sender in self.senders for body in sender.accepted} == sent
        for name in sites.plays:
            assert not sites.remembered(name), name


class PathsOfHomes(Paths):
    """The worker that has the neighbors is another than the one that keeps the address."""

    workers = 2


class PathsWithSurplus(Paths):
    """Both senders have used all that both receivers have granted each of them."""

    def __init__(self) -> None:
        super().__init__()
        for sender in self.senders:
            for _ in range(8):
                sender.send(next(self.messages))
        self.sites.settle()

    @rule(which=st.integers(0, 1))
    def one_receiver_works_for_a_while(self, which: int) -> None:
        for _ in range(12):
            self.receiver_works(which, 4)
            self.sender_works(0)
            self.sender_works(1)
            self.sites.run(0.3)


TestPaths = Paths.TestCase
TestPathsOfHomes = PathsOfHomes.TestCase
TestPathsWithSurplus = PathsWithSurplus.TestCase
TestPaths.settings = TestPathsOfHomes.settings = TestPathsWithSurplus.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
