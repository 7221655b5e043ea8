"""Exactly-once routes with ``store`` that trace: a hop for each custody of a message."""

import attrs
import pytest

from router.journal.block import open_block
from router.journal.record import OutcomeCode
from router.model.outcome import ACCEPTED, RELEASED
from router.model.trace import Sampling
from router.pipeline.spans import Passing, Spans
from router.wire.trace_context import read
from router.wire.v1_0.sections import AnnotatedMessage, encode_message, peek
from tests.net.store.test_exactly_once import LIMITS, ROUTE
from tests.support.journal import START_NS, FakeDisk
from tests.support.journaled import Journaled
from tests.support.play import ReceiverEnd
from tests.support.store_peer import StoreHost, StorePeer

TRACED = attrs.evolve(ROUTE, tracing=Sampling.SENDER)
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
MESSAGE = encode_message(
    AnnotatedMessage(application_properties={"traceparent": f"00-{TRACE}-{SPAN}-01"}, data=[b"x"])
)


class Stage:
    """A router with a store, whose sender has sent a message."""

    def __init__(self) -> None:
        self.play = Journaled(TRACED, settings=LIMITS)
        self.host = StoreHost.begun(FakeDisk(), START_NS, START_NS)
        self.lives = 0
        self.connect()
        sender = self.play.connect("west").attach_sender(second=True)
        self.work()
        (number,) = sender.send(MESSAGE)
        self.work()
        assert sender.outcome(number) == (ACCEPTED, False)
        sender.settle(number)
        self.work()

    def connect(self) -> None:
        """The worker connects to the store."""
        self.lives += 1
        self.store = StorePeer.connected(self.play, self.host, START_NS + self.lives, TRACED)
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

    def target(self) -> ReceiverEnd:
        """The target comes; gives the link on which it has received the message."""
        self.play.wait(1.0)
        peer = self.play.dial("target")
        while peer.asked:
            peer.answer_receiver(credit=5)
        self.work()
        (end,) = [each for each in peer.receives.values() if each.received]
        return end

    @property
    def hops(self) -> list[Passing]:
        """What an exporter makes of the journal."""
        self.play.hand_in()
        spans = Spans()
        for sealed in self.play.blocks:
            spans.take(open_block(memoryview(sealed.octets)))
        spans.finish()
        return sorted([*spans.done, *spans.open.values()], key=lambda each: each.received_ns)


@pytest.mark.parametrize("crashes", [False, True])
def test_each_custody_is_a_hop_and_the_second_one_begins_as_the_message_leaves_the_store(
    crashes: bool,
) -> None:
    stage = Stage()
    (first,) = stage.hops
    assert first.hop.parent.hex() == SPAN
    assert first.is_complete
    assert [each.remote for each in first.attempts] == ["dc1/message-store"]
    if crashes:
        stage.crash()
    stage.play.wait(60.0)
    stage.work()
    end = stage.target()
    end.accept()
    stage.work()
    _, second = stage.hops
    assert (second.remote, second.key) == ("dc1/message-store", first.key)
    assert second.hop.trace.hex() == TRACE
    assert second.hop.parent == first.hop.span
    assert second.hop.creator.hex() == TRACE + SPAN
    assert second.received_ns >= first.attempts[0].ended_ns
    assert [each.remote for each in second.attempts] == ["target-id"]
    assert second.is_complete
    context = read(peek(end.payloads[0]).message_annotations)
    assert context is not None
    assert context.span == second.hop.span


def test_what_is_given_back_and_sent_again_is_another_hop() -> None:
    stage = Stage()
    end = stage.target()
    end.update(end.last.number, state=RELEASED)
    stage.work()
    stage.play.wait(2.0)
    stage.work()
    end.accept()
    stage.work()
    first, second, third = stage.hops
    assert len({each.hop.span for each in (first, second, third)}) == 3
    assert second.hop.parent == third.hop.parent == first.hop.span
    assert second.is_complete
    assert third.is_complete
    assert len(end.payloads) == 2


def test_what_its_target_resumes_stays_in_its_hop() -> None:
    stage = Stage()
    end = stage.target()
    stage.crash()
    peer = stage.play.dial("target")
    while peer.asked:
        asked = next(iter(peer.asked.values()))
        has_it = asked.name == end.name
        back = peer.answer(unsettled={end.last.tag: None} if has_it else {})
        assert isinstance(back, ReceiverEnd)
        back.grant(5)
    stage.work()
    (again,) = [each for each in peer.receives.values() if each.received]
    assert again.last.resume
    again.accept()
    stage.work()
    _, second = stage.hops
    assert second.is_complete
    assert [each.outcome for each in second.attempts] == [OutcomeCode.ACCEPTED]
