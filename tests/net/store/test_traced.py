"""Routes with ``store`` that trace: a hop for each custody of a message."""

import attrs
import pytest

from router.journal.block import open_block
from router.journal.record import OutcomeCode
from router.model.outcome import ACCEPTED, RELEASED
from router.model.trace import Sampling
from router.pipeline.spans import Passing, Spans
from router.routes.route import Guarantee, Route
from router.wire.trace_context import read
from router.wire.v1_0.sections import AnnotatedMessage, encode_message, peek
from tests.net.store.test_exactly_once import LIMITS, ROUTE
from tests.support.journal import START_NS, FakeDisk
from tests.support.journaled import Journaled
from tests.support.play import ReceiverEnd
from tests.support.store_peer import StoreHost, StorePeer

TRACED = attrs.evolve(ROUTE, tracing=Sampling.SENDER, is_recorded=True)
AT_LEAST_ONCE = attrs.evolve(TRACED, guarantee=Guarantee.AT_LEAST_ONCE)
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
MESSAGE = encode_message(
    AnnotatedMessage(application_properties={"traceparent": f"00-{TRACE}-{SPAN}-01"}, data=[b"x"])
)


class Stage:
    """A router with a store, whose sender has sent a message."""

    def __init__(self, route: Route = TRACED, *, is_cut: bool = False) -> None:
        """Begins.

        Args:
            route: that is stored.
            is_cut: the connection to the store is lost before it says that it has the message.
        """
        self.route = route
        self.play = Journaled(route, settings=LIMITS)
        self.host = StoreHost.begun(FakeDisk(), START_NS, START_NS)
        self.lives = 0
        self.connect()
        is_exact = route.guarantee is Guarantee.EXACTLY_ONCE
        sender = self.play.connect("west").attach_sender(second=is_exact)
        self.work()
        (number,) = sender.send(MESSAGE)
        if is_cut:
            self.play.flush()
            self.store.hand_in()
            self.store.leave()
            self.store.lose()
            self.connect()
        self.work()
        assert sender.outcome(number) == (ACCEPTED, not is_exact)
        if is_exact:
            sender.settle(number)
            self.work()

    def connect(self) -> None:
        """The worker connects to the store."""
        self.lives += 1
        self.store = StorePeer.connected(self.play, self.host, START_NS + self.lives, self.route)
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


ROUTES = pytest.mark.parametrize("route", [TRACED, AT_LEAST_ONCE])


@ROUTES
@pytest.mark.parametrize("crashes", [False, True])
def test_each_custody_is_a_hop_and_the_second_one_begins_as_the_message_leaves_the_store(
    route: Route, crashes: bool
) -> None:
    stage = Stage(route)
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


@ROUTES
def test_what_is_given_back_and_sent_again_is_another_hop(route: Route) -> None:
    stage = Stage(route)
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


def test_of_at_least_once_what_a_killed_worker_had_sent_ends_and_leaves_again_as_another_hop() -> (
    None
):
    stage = Stage(AT_LEAST_ONCE)
    stage.target()
    stage.crash()
    stage.target().accept()
    stage.work()
    first, second, third = stage.hops
    assert (second.key, third.key) == (first.key, first.key)
    assert second.hop.span != third.hop.span
    assert [each.is_unfinished for each in (first, second, third)] == [False, True, False]
    assert third.is_complete


def test_what_may_be_in_the_store_twice_has_an_attempt_for_each_time_that_it_is_sent() -> None:
    stage = Stage(AT_LEAST_ONCE, is_cut=True)
    end = stage.target()
    assert len(end.payloads) == 2
    end.accept()
    stage.work()
    first, second = stage.hops
    assert [each.remote for each in first.attempts] == ["dc1/message-store"] * 2
    assert [each.outcome for each in first.attempts] == [OutcomeCode.NONE, OutcomeCode.ACCEPTED]
    assert [each.outcome for each in second.attempts] == [OutcomeCode.ACCEPTED] * 2
    assert second.is_complete
