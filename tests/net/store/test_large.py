"""Large messages on stored routes: whole, octet by octet, whoever is killed amid their records."""

import itertools
import random

import attrs
import pytest

from router.journal.block import open_block
from router.journal.record import RecordKind
from router.model.outcome import ACCEPTED, RELEASED, Rejected
from router.model.trace import Sampling
from router.routes.route import Route
from router.wire.trace_context import PARENT
from router.wire.v1_0.sections import AnnotatedMessage, encode_message, replace_annotations
from tests.net.store.test_exactly_once import LIMITS, ROUTE
from tests.support.journal import START_NS, FakeDisk
from tests.support.journaled import Journaled
from tests.support.play import ReceiverEnd, SenderEnd
from tests.support.store_peer import StoreHost, StorePeer, crashed

TRACED = attrs.evolve(ROUTE, tracing=Sampling.SENDER, is_recorded=True)
CONTEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
BODY = random.Random(1).randbytes(3_333_333)
MESSAGE = encode_message(AnnotatedMessage(application_properties={PARENT: CONTEXT}, data=[BODY]))
RECORDS = 4
"""Of one such message in a journal."""

ROUTES = pytest.mark.parametrize("route", [ROUTE, TRACED])


class Stage:
    """A router with a store, and a sender."""

    def __init__(self, route: Route, *, reads_files: bool) -> None:
        self.route = route
        self.play = Journaled(route, settings=LIMITS)
        self.host = StoreHost.begun(FakeDisk(), START_NS, START_NS)
        self.lives = itertools.count(2 if reads_files else 1, 2)
        self.connect()
        self.sender = self.attach()

    def attach(self, unsettled: dict[bytes, None] | None = None) -> SenderEnd:
        """The sender attaches."""
        known = None if unsettled is None else dict(unsettled)
        peer = self.play.connect("west")
        end = peer.attach_sender(name="out", second=True, unsettled=known)  # type: ignore[arg-type]
        self.work()
        return end

    def connect(self) -> None:
        """The worker connects to the store."""
        life = START_NS + next(self.lives)
        self.store = StorePeer.connected(self.play, self.host, life, self.route)
        self.work()

    def work(self) -> None:
        """The journal and the store do all that they can."""
        for _ in range(3):
            self.play.flush()
            self.store.settle()
        self.play.flush()

    def stores(self) -> None:
        """The sender sends the message, and it is stored."""
        (number,) = self.sender.send(MESSAGE)
        self.work()
        assert self.sender.outcome(number) == (ACCEPTED, False)
        self.sender.settle(number)
        self.work()

    @property
    def is_empty(self) -> bool:
        """Whether the store has no message, and names none."""
        holdings = self.host.log.store.holdings
        return not (holdings.unsettled or any(each.messages for each in holdings.queues.values()))

    def crash(self, kept: int, *, kills_store: int | None = None) -> None:
        """The worker is killed amid the records of what it has received last.

        Args:
            kept: so many of them are there; more than RECORDS: everything is.
            kills_store: the machine stops, too; seed of what is left on the store's disk.
        """
        self.store.is_deaf = True
        self.store.hand_in()
        self.play.hand_in()
        first = [
            block.first_sequence + row
            for block in (open_block(memoryview(each.octets)) for each in self.play.blocks)
            if block.origin.incarnation == self.play.writer.incarnation
            for row, record in enumerate(block.records())
            if record.kind is RecordKind.RECEIVED
        ][-1]
        if kills_store is None:
            self.store.leave()
        else:
            disk = crashed(self.host, kills_store)
            self.host = StoreHost.begun(disk, START_NS + next(self.lives), START_NS)
        self.play = self.play.crash(keeps=None if kept > RECORDS else first + kept - 1)
        self.connect()

    def target(self, seconds: float = 1.0) -> list[ReceiverEnd]:
        """The target comes; gives its links."""
        self.play.wait(seconds)
        peer = self.play.dial("target")
        while peer.asked:
            peer.answer_receiver(credit=5)
        self.work()
        return list(peer.receives.values())


def arrived(ends: list[ReceiverEnd]) -> list[bool]:
    """Says of each message whether it arrived as it was sent, but for the hops' context."""
    return [replace_annotations(payload, {}) == MESSAGE for end in ends for payload in end.payloads]


@ROUTES
@pytest.mark.parametrize("kept", range(RECORDS + 1))
@pytest.mark.parametrize("reads_files", [True, False])
def test_a_worker_that_is_killed_amid_what_the_store_sends_is_sent_all_of_it(
    route: Route, kept: int, reads_files: bool
) -> None:
    stage = Stage(route, reads_files=reads_files)
    stage.stores()
    stage.play.wait(1.0)
    peer = stage.play.dial("target")
    while peer.asked:
        peer.answer_receiver(credit=5)
    for _ in range(3):
        stage.store.settle()
    stage.crash(kept)
    ends = stage.target()
    assert arrived(ends) == [True]
    for end in ends:
        end.accept()
    stage.work()
    assert not stage.play.remembered()
    assert stage.is_empty


@ROUTES
@pytest.mark.parametrize("kept", range(1, RECORDS + 2))
@pytest.mark.parametrize("seed", [None, 1, 2, 3, 4, 5])
def test_a_worker_that_is_killed_amid_what_its_sender_sends_stores_all_of_it(
    route: Route, kept: int, seed: int | None
) -> None:
    stage = Stage(route, reads_files=True)
    (number,) = stage.sender.send(MESSAGE)
    tag = stage.sender.unsettled[number]
    if kept > RECORDS:
        stage.play.flush()
    stage.crash(kept, kills_store=seed)
    back = stage.attach({tag: None})
    assert back.attach is not None
    if tag in (back.attach.unsettled or {}):
        again = back.delivery(b"", tag=tag, resume=True)
        back.peer.happens(back.run([again]))
    else:
        again = back.delivery(MESSAGE, tag=tag)
        back.peer.happens(back.run([again]))
    stage.work()
    back.settle(again.number)
    stage.work()
    ends = stage.target()
    assert arrived(ends) == [True]
    for end in ends:
        end.accept()
    stage.work()
    assert stage.is_empty


@ROUTES
@pytest.mark.parametrize("reads_files", [True, False])
def test_what_is_given_back_rejected_and_replayed_stays_as_it_was(
    route: Route, reads_files: bool
) -> None:
    stage = Stage(route, reads_files=reads_files)
    stage.stores()
    ends = stage.target()
    assert arrived(ends) == [True]
    for state in (RELEASED, Rejected()):
        (end,) = [each for each in ends if each.unsettled]
        end.update(*end.unsettled, state=state)
        stage.work()
        stage.play.wait(2.0)
        stage.work()
    assert arrived(ends) == [True, True, True]
    (dead,) = [each for each in ends if each.unsettled]
    dead.update(*dead.unsettled, state=RELEASED)
    stage.work()
    stage.store.engine.inlets.replay(None, None)
    stage.work()
    assert arrived(ends) == [True, True, True, True]
