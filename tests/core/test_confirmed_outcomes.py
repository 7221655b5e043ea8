"""A receiver asks whether its outcomes are on record, and is answered when they are durable.

Engines ask for clients whose protocol confirms acknowledgments (``router.wire.recording``).
"""

import attrs

from router.model.capabilities import Capabilities, Protocol
from router.model.events import RecordAwaited
from router.model.outcome import MODIFIED_FAILED
from router.routes.route import InDoubt, Route
from tests.support.fleet import Fleet
from tests.support.journaled import EXACT, Journaled
from tests.support.play import AMQP, Play, ReceiverEnd, table

BASIC = Capabilities(protocol=Protocol.AMQP_0_9_1, names_itself=False, sends_ahead=True)
"""What a client of 0-9-1 can do, as far as it matters here."""


def meeting(play: Play, count: int = 3, capabilities: Capabilities = AMQP) -> ReceiverEnd:
    """A receiver with deliveries."""
    store = play.connect("store", capabilities=capabilities).attach_receiver(credit=10)
    shop = play.connect("shop").attach_sender()
    if isinstance(play, Journaled):
        play.flush()
    shop.send(*(b"%d" % number for number in range(count)))
    if isinstance(play, Journaled):
        play.flush()
    assert len(store.payloads) == count
    return store


def test_it_is_answered_when_its_outcomes_are_durable() -> None:
    play = Journaled(EXACT)
    store = meeting(play)
    store.accept()
    store.await_record()
    assert store.records_reported == 0
    play.hand_in()
    assert store.records_reported == 0
    play.flush()
    assert store.records_reported == 1


def test_what_was_answered_is_not_sent_again_after_a_crash_and_the_rest_is() -> None:
    play = Journaled(attrs.evolve(EXACT, in_doubt=InDoubt.RESEND))
    store = meeting(play, 4, capabilities=BASIC)
    first, second, third, _ = list(store.unsettled)
    store.accept(first, second)
    store.await_record()
    play.flush()
    assert store.records_reported == 1
    store.accept(third)
    store.await_record()
    assert store.records_reported == 1
    after = play.crash(keeps=play.durable)
    again = after.connect("again", capabilities=BASIC).attach_receiver(credit=10)
    after.flush()
    after.wait(after.settings.expiry_seconds + 1)
    after.flush()
    assert again.payloads == [b"2", b"3"]


def test_where_all_is_durable_it_is_answered_at_once() -> None:
    play = Journaled(EXACT)
    store = meeting(play)
    store.accept()
    play.flush()
    store.await_record()
    assert store.records_reported == 1


def test_on_other_routes_it_is_answered_at_once_whether_they_are_recorded_or_not() -> None:
    for play in (Play("orders"), Journaled(Route(address="orders", is_recorded=True))):
        store = meeting(play)
        store.accept()
        store.await_record()
        assert store.records_reported == 1


def test_what_others_do_meanwhile_is_not_waited_for() -> None:
    play = Journaled(EXACT)
    store = meeting(play)
    store.accept()
    play.flush()
    store.grant(0)
    play.connect("other", capabilities=BASIC).attach_sender().send(b"more", settled=True)
    store.await_record()
    assert store.records_reported == 1


def test_a_returned_delivery_is_an_outcome_too() -> None:
    play = Journaled(EXACT)
    store = meeting(play, 1)
    store.update(*store.unsettled, state=MODIFIED_FAILED)
    store.await_record()
    assert store.records_reported == 0
    play.flush()
    assert store.records_reported == 1


def test_an_answer_that_is_due_is_given_before_the_router_detaches_the_link() -> None:
    play = Journaled(EXACT)
    store = meeting(play)
    store.accept()
    store.await_record()
    play.carry_out(play.core.configure(table("others"), play.now))
    assert (store.records_reported, store.is_detached()) == (0, False)
    play.flush()
    assert (store.records_reported, store.is_detached()) == (1, True)


def test_a_link_that_has_ended_is_not_answered() -> None:
    play = Journaled(EXACT)
    store = meeting(play)
    store.accept()
    store.await_record()
    store.detach()
    play.flush()
    assert store.records_reported == 0
    store.peer.happens(RecordAwaited(store.link))
    assert store.records_reported == 0


# Through another worker


def fleet_with(workers: int = 2) -> tuple[Fleet, Journaled, ReceiverEnd]:
    """A receiver at the second worker, with deliveries of the first, which is the home."""
    fleet = Fleet(workers, EXACT, make=Journaled)
    first = fleet[1]
    assert isinstance(first, Journaled)
    store = fleet[2].connect("store").attach_receiver("orders", name="in", credit=10)
    fleet.settle()
    shop = fleet[1].connect("shop").attach_sender("orders", name="out")
    for _ in range(3):
        first.flush()
        fleet.settle()
    shop.send(b"0", b"1", b"2")
    for _ in range(3):
        first.flush()
        fleet.settle()
    assert store.payloads == [b"0", b"1", b"2"]
    return fleet, first, store


def test_at_another_worker_it_is_answered_when_they_are_durable_at_the_home() -> None:
    fleet, first, store = fleet_with()
    store.accept()
    store.await_record()
    assert store.records_reported == 0
    fleet.settle()
    assert store.records_reported == 0
    first.flush()
    fleet.settle()
    assert store.records_reported == 1


def test_the_home_that_dies_before_has_not_answered() -> None:
    fleet, first, store = fleet_with()
    store.accept()
    store.await_record()
    fleet.settle()
    fleet.cut(1, 2)
    first.flush()
    fleet.settle()
    assert store.records_reported == 0
    assert store.peer.closed is not None, "it hears that nobody knows"
