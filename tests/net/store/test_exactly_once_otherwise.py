"""Exactly once through the message store with peers that do not resume their links."""

import attrs

from router.model.outcome import ACCEPTED
from router.routes.route import InDoubt
from tests.net.store.test_exactly_once import LIMITS, ROUTE
from tests.support.journal import START_NS, FakeDisk
from tests.support.journaled import Journaled
from tests.support.play import SenderEnd
from tests.support.store_peer import StoreHost, StorePeer

HELD = attrs.evolve(ROUTE, in_doubt=InDoubt.HOLD)


class Stage:
    """A router, and the process of its store, which outlives it."""

    def __init__(self) -> None:
        self.play = Journaled(HELD, settings=LIMITS)
        self.host = StoreHost.begun(FakeDisk(), START_NS, START_NS)
        self.lives = 0
        self.connect()

    def connect(self) -> None:
        """The worker connects to the store."""
        self.lives += 1
        self.store = StorePeer.connected(self.play, self.host, START_NS + self.lives, HELD)
        self.work()

    def work(self) -> None:
        """The journal and the store do all that they can."""
        for _ in range(3):
            self.play.flush()
            self.store.settle()
        self.play.flush()

    def crash(self) -> None:
        """The worker is killed; what it has written for the store arrives."""
        self.store.is_deaf = True
        self.store.hand_in()
        self.store.leave()
        self.play = self.play.crash()
        self.connect()

    def sender(self) -> SenderEnd:
        """A sender of a protocol that settles first."""
        end = self.play.connect("broker").attach_sender(name="in", second=False)
        self.work()
        return end

    @property
    def stored(self) -> int:
        """Returns how many messages are stored."""
        return sum(each.messages for each in self.host.log.store.holdings.queues.values())


def test_a_message_that_is_sent_again_by_its_id_is_stored_once() -> None:
    stage = Stage()
    sender = stage.sender()
    sender.send("id=7 a")
    stage.play.flush()  # the store has it now, and nobody has heard
    stage.crash()
    assert stage.stored == 1
    again = stage.sender()
    (number,) = again.send("id=7 a")
    stage.work()
    assert again.outcome(number) == (ACCEPTED, True)
    assert stage.stored == 1
    (other,) = again.send("id=8 b")
    stage.work()
    assert (again.outcome(other), stage.stored) == ((ACCEPTED, True), 2)
    assert stage.host.log.store.holdings.unsettled == {}


def test_what_is_in_doubt_at_a_target_is_neither_sent_again_nor_a_dead_letter() -> None:
    stage = Stage()
    stage.sender().send("id=1 a", "id=2 b")
    stage.work()
    cloud = stage.play.dial("target")
    while cloud.asked:
        cloud.answer_receiver(credit=1)
    stage.work()
    (end,) = [each for each in cloud.receives.values() if each.received]
    assert end.payloads == [b"id=1 a"]
    cloud.lose()
    later: list[bytes] = []
    for _ in range(2):
        stage.crash()
        stage.play.wait(60.0)
        stage.work()
        cloud = stage.play.dial("target")
        while cloud.asked:
            cloud.answer_receiver(credit=5)
        stage.work()
        later += [body for each in cloud.receives.values() for body in each.payloads]
        cloud.lose()
    assert later == [b"id=2 b"], "the other is in doubt, and waits for a person"
    assert stage.stored == 2
