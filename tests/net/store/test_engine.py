"""The engine of the message store, with a log in memory behind it."""

import random
from typing import Any

import pytest

from router.journal.store.looking import Drop
from router.journal.store.queues import Bounds, Claim, Full
from router.model.commands import (
    CloseConnection,
    DetachLink,
    GrantCredit,
    RefuseLink,
    UpdateDeliveries,
)
from router.model.condition import NOT_FOUND, Condition
from router.model.events import (
    ConnectionClosed,
    ConnectionOpened,
    CreditReturned,
    DeliveriesUpdated,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import LinkId
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, RELEASED, Rejected
from router.net.store.engine import SURVEY_SECONDS
from router.net.store.fetching import WINDOW
from router.net.store.inlet import Delays
from router.net.store.inlets import OVERDUE_WINDOW
from router.net.store.links import REFUSED_SECONDS
from router.net.store.outcomes import ATTEMPTS, PAUSE_LIMIT_SECONDS, PAUSE_SECONDS
from router.net.store.room import WINDOW as SHELF_WINDOW
from router.wire.v1_0.sections import AnnotatedMessage, Header, encode_message
from tests.support.journal import FakeDisk
from tests.support.shelved import KEY, SHELF, Shelved


def test_the_connection_opens_when_the_store_has_let_it_in() -> None:
    shelved = Shelved()
    assert isinstance(shelved.events[0], ConnectionOpened)


@pytest.mark.parametrize(
    "later",
    [{}, {"is_stored": False}, {"route": "telemetry.*"}, {"route": "other", "is_stored": False}],
    ids=["as-before", "stores-no-more", "renamed", "renamed-and-stores-no-more"],
)
def test_the_connection_opens_with_a_link_for_each_address_that_is_stored(
    later: dict[str, Any],
) -> None:
    """The core takes what has none for empty from then on."""
    addresses = ["telemetry.a", "telemetry.b"]
    first = Shelved()
    for number, address in enumerate(addresses):
        link = LinkId(SHELF + number)
        first.attach(link, address)
        first.put(1 + number, link=link)
    second = Shelved(first.disk.crashed(random.Random(1)), life=1, **later)
    opened, *attached = second.opening
    assert isinstance(opened, ConnectionOpened)
    links = [each for each in attached if isinstance(each, LinkAttached)]
    assert sorted(each.name.rpartition(":")[2] for each in links) == addresses


def test_a_connection_that_ends_before_the_store_has_told_all_never_opened() -> None:
    first = Shelved()
    first.attach()
    first.put(1, 3)
    second = Shelved(first.disk.crashed(random.Random(1)), life=1, rounds=1)
    assert second.opening == []
    (closed,) = second.engine.receive_eof(second.seconds)
    assert isinstance(closed, ConnectionClosed)


def test_a_message_is_accepted_when_it_is_durable_and_not_before() -> None:
    shelved = Shelved()
    shelved.attach()
    assert shelved.credit() == SHELF_WINDOW
    shelved.is_committing = False
    shelved.put(1, 3)
    assert shelved.accepted() == []
    shelved.is_committing = True
    shelved.commit()
    assert shelved.accepted() == [1, 2, 3]
    assert shelved.credit() == SHELF_WINDOW


def test_messages_are_sent_in_their_order_within_credit() -> None:
    shelved = Shelved()
    shelved.attach()
    shelved.put(1, 10)
    link = shelved.answer(3)
    assert shelved.sent(link) == [1, 2, 3]
    shelved.order(GrantCredit(link, 4))
    assert shelved.sent(link) == [1, 2, 3, 4, 5, 6, 7]


def test_what_was_accepted_is_gone_and_the_link_ends_with_the_last_message() -> None:
    shelved = Shelved()
    shelved.attach()
    shelved.put(1, 5)
    link = shelved.answer(100)
    shelved.accept_all(link)
    assert shelved.messages == 0
    assert LinkDetached(link, True) in shelved.events
    shelved.put(6)
    assert shelved.sent(shelved.answer(100)) == [6]


def test_what_is_released_is_sent_again_after_a_pause_before_all_behind_it() -> None:
    shelved = Shelved()
    shelved.attach()
    shelved.put(1, 6)
    link = shelved.answer(3)
    shelved.outcome(link, RELEASED, 1, 2, 3)
    shelved.order(GrantCredit(link, 10))
    assert shelved.sent(link) == [1, 2, 3]
    shelved.wait(1.0)
    assert shelved.sent(link) == [1, 2, 3, 1, 2, 3, 4, 5, 6]


def test_a_target_that_keeps_releasing_is_asked_less_and_less_often() -> None:
    shelved = Shelved()
    shelved.attach()
    shelved.put(1)
    link = shelved.answer(1)
    for _ in range(8):
        count = len(shelved.sent(link))
        shelved.order(GrantCredit(link, 1))
        shelved.outcome(link, RELEASED, 1)
        shelved.order(GrantCredit(link, 1))
        assert len(shelved.sent(link)) == count
        shelved.wait(PAUSE_LIMIT_SECONDS)
        assert len(shelved.sent(link)) == count + 1


def test_what_is_rejected_or_fails_too_often_is_a_dead_letter() -> None:
    shelved = Shelved()
    shelved.attach()
    shelved.put(1, 2)
    link = shelved.answer(100)
    shelved.outcome(link, Rejected(), 1)
    for attempt in range(ATTEMPTS):
        assert shelved.received(link)[-1].delivery_count == attempt
        name = shelved.received(link)[-1].number
        shelved.order(shelved.update(link, MODIFIED_FAILED, name))
        shelved.wait(PAUSE_LIMIT_SECONDS)
    dead = shelved.answer(10, is_dead=True)
    assert shelved.sent(dead) == [1, 2]
    shelved.accept_all(dead)
    assert shelved.messages == 0


def test_what_is_too_old_is_a_dead_letter_without_being_asked_for() -> None:
    shelved = Shelved(bounds=Bounds(age_ns=10_000_000_000))
    shelved.attach()
    shelved.put(1, 100)
    shelved.wait(20.0)
    dead = shelved.answer(1000, is_dead=True)
    shelved.accept_all(dead)
    assert shelved.sent(dead) == [*range(1, OVERDUE_WINDOW + 1)]
    rest = shelved.answer(1000, is_dead=True)
    shelved.accept_all(rest)
    assert shelved.sent(rest) == [*range(OVERDUE_WINDOW + 1, 101)]
    assert shelved.messages == 0


def test_what_is_dropped_as_the_oldest_is_a_dead_letter() -> None:
    shelved = Shelved(bounds=Bounds(messages=40, full=Full.DROP_OLDEST))
    shelved.attach()
    shelved.put(1, 45)
    dead = shelved.answer(1000, is_dead=True)
    assert shelved.sent(dead) == [1, 2, 3, 4, 5]


def test_a_full_route_gets_no_credit_until_there_is_room() -> None:
    shelved = Shelved(bounds=Bounds(messages=8))
    shelved.attach()
    assert shelved.credit() == 8
    shelved.put(1, 8)
    assert shelved.credit() == 0
    link = shelved.answer(100)
    shelved.outcome(link, ACCEPTED, 1, 2)
    assert shelved.credit() == 2


def test_credit_that_the_core_wants_back_is_returned() -> None:
    shelved = Shelved()
    shelved.attach()
    shelved.put(1)
    link = shelved.answer(0)
    shelved.order(GrantCredit(link, 0, drain=True))
    assert CreditReturned(link, 0) in shelved.events


def test_an_inlet_that_is_refused_is_attached_again_and_nothing_is_lost() -> None:
    shelved = Shelved()
    shelved.attach()
    shelved.put(1, 3)
    first = shelved.inlets()["telemetry.a", False]
    shelved.order(RefuseLink(first, Condition(NOT_FOUND, "no route")))
    shelved.wait(REFUSED_SECONDS)
    link = shelved.answer(10)
    assert link != first
    assert shelved.sent(link) == [1, 2, 3]
    shelved.order(DetachLink(link, True))
    shelved.wait(REFUSED_SECONDS)
    again = shelved.answer(10)
    assert shelved.sent(again) == [1, 2, 3]


def test_the_time_to_live_counts_from_arrival() -> None:
    shelved = Shelved()
    shelved.attach()
    shelved.put(1, ttl_milliseconds=5000)
    shelved.wait(2.0)
    (message,) = shelved.received(shelved.answer(1))
    assert message.ttl_milliseconds == 3000


def test_no_more_is_asked_for_than_a_window() -> None:
    shelved = Shelved()
    shelved.attach()
    for first in range(0, 1000, 500):
        shelved.put(first, 500)
    link = shelved.answer(1000)
    assert len(shelved.sent(link)) == 1000
    assert shelved.log.store.taken == 1000
    assert WINDOW < 1000


def test_what_was_forwarded_and_not_durable_is_said_again_and_not_sent_again() -> None:
    first = Shelved()
    first.attach()
    first.put(1, 3)
    link = first.answer(2)
    names = [each.number for each in first.received(link)]
    first.engine.execute(first.update(link, ACCEPTED, *names))  # and the process ends
    second = Shelved(first.disk.crashed(random.Random(1)), life=1, before=first)
    assert second.sent(second.answer(10)) == [3]


def test_what_a_route_stored_once_is_sent_though_it_stores_no_more() -> None:
    first = Shelved()
    first.attach()
    first.put(1, 3)
    second = Shelved(first.disk.crashed(random.Random(1)), life=1, is_stored=False)
    assert second.sent(second.answer(10)) == [1, 2, 3]


def test_after_the_end_of_the_connection_nothing_is_attached() -> None:
    shelved = Shelved(FakeDisk())
    shelved.engine.execute(CloseConnection())
    assert shelved.engine.finished
    assert SHELF not in [each.link for each in shelved.events if isinstance(each, LinkDetached)]


def test_the_pace_of_a_route_is_known_from_the_second_survey_on() -> None:
    shelved = Shelved()
    shelved.attach()
    shelved.put(1, 30)
    assert shelved.engine.paces.of(KEY) is None
    link = shelved.answer(10)
    shelved.wait(SURVEY_SECONDS)
    shelved.accept_all(link)
    shelved.wait(SURVEY_SECONDS)
    stored, forwarded = shelved.engine.paces.of(KEY) or (0.0, 0.0)
    assert (stored, forwarded) == (30 / (2 * SURVEY_SECONDS), 10 / (2 * SURVEY_SECONDS))
    for _ in range(10):
        shelved.wait(SURVEY_SECONDS)
    assert shelved.engine.paces.of(KEY) == (0.0, 0.0)


def test_a_route_says_which_addresses_rest_and_how_many_dead_letters_wait() -> None:
    shelved = Shelved()
    shelved.attach()
    shelved.put(1, 4)
    link = shelved.answer(4)
    assert shelved.engine.inlets.delays() == {}
    shelved.outcome(link, Rejected(), 1, 2)
    assert shelved.engine.inlets.delays() == {KEY: Delays(dead=2)}
    shelved.outcome(link, RELEASED, 3)
    until = shelved.seconds + PAUSE_SECONDS
    assert shelved.engine.inlets.delays() == {
        KEY: Delays(dead=2, resting=1, failures=1, rests_until=until)
    }
    shelved.wait(PAUSE_SECONDS)
    shelved.accept_all(shelved.answer(10, is_dead=True))
    assert shelved.engine.inlets.delays() == {}


def test_messages_of_a_higher_priority_are_sent_first_and_each_priority_in_order() -> None:
    shelved = Shelved()
    shelved.attach()
    shelved.put(1, 3)
    shelved.put(4, 2, head=priority(9))
    shelved.put(6, 2, head=priority(0))
    link = shelved.answer(2)
    assert shelved.sent(link) == [4, 5]
    shelved.outcome(link, RELEASED, 4)
    shelved.put(8, 1, head=priority(9))
    shelved.wait(1.5)
    shelved.order(GrantCredit(link, 100))
    assert shelved.sent(link)[2:] == [4, 8, 1, 2, 3, 6, 7]
    shelved.accept_all(link)
    assert shelved.messages == 0
    assert LinkDetached(link, True) in shelved.events


def priority(value: int) -> bytes:
    """Returns what stands before the body of a message of a priority."""
    return encode_message(AnnotatedMessage(header=Header(priority=value))) + b"\x00\x53\x75\xa0\x08"


def drop(shelved: Shelved, most: int, *, forgets: bool = False) -> None:
    """Somebody drops the oldest messages."""
    until_ns = shelved.now_ns + 1
    ask = Drop(route=KEY, address=None, until_ns=until_ns, most=most, forgets=forgets)
    *found, _ = shelved.ask_as_operator(ask)
    claims = [each for each in found if isinstance(each, Claim)]
    if claims:
        shelved.forget(claims)
    shelved.exchange()


def test_asks_behind_records_are_to_be_sent_when_the_records_have_been() -> None:
    """Whoever sends goes by ``output_octets`` between two writes."""
    shelved = Shelved()
    shelved.attach()
    shelved.put(1, 20)
    link = shelved.answer(5)
    shelved.engine.execute(
        UpdateDeliveries(link, [each.number for each in shelved.received(link)], ACCEPTED, True)
    )
    shelved.engine.execute(GrantCredit(link, 5))
    shelved.engine.handle_deadline(shelved.seconds)
    records = shelved.engine.data_to_send()
    assert records
    shelved.engine.bytes_sent(len(records))
    assert shelved.engine.output_octets
    asks = shelved.engine.data_to_send()
    assert asks
    shelved.engine.bytes_sent(len(asks))
    assert not shelved.engine.output_octets


def test_what_is_behind_messages_that_are_too_old_is_sent_though_there_is_little_credit() -> None:
    shelved = Shelved()
    shelved.attach()
    shelved.put(1, 10, ttl_milliseconds=1000)
    shelved.put(11, 10)
    shelved.wait(10.0)
    link = shelved.answer(5)
    shelved.wait(1.0)
    assert shelved.sent(link) == [*range(11, 16)]
    shelved.answer(100, is_dead=True)
    shelved.wait(1.0)
    assert shelved.sent(shelved.inlets()["telemetry.a", True]) == [*range(1, 11)]


def test_what_is_behind_messages_that_somebody_dropped_is_sent_though_there_is_little_credit() -> (
    None
):
    shelved = Shelved()
    shelved.attach()
    shelved.put(1, 100)
    link = shelved.answer(5)
    assert shelved.sent(link) == [*range(1, 6)]
    drop(shelved, 20)
    shelved.accept_all(link)
    shelved.order(GrantCredit(link, 5))
    shelved.wait(1.0)
    assert shelved.sent(link)[5:] == [*range(21, 26)]


def test_what_somebody_drops_while_its_target_returns_it_is_a_dead_letter() -> None:
    shelved = Shelved()
    shelved.attach()
    shelved.put(1, 5)
    link = shelved.answer(2)
    shelved.outcome(link, RELEASED, 1)
    drop(shelved, 3)
    shelved.outcome(link, RELEASED, 2)
    shelved.wait(PAUSE_LIMIT_SECONDS)
    dead = shelved.answer(10, is_dead=True)
    assert sorted(shelved.sent(dead)) == [1, 2, 3]
    shelved.order(GrantCredit(link, 10))
    assert shelved.sent(link) == [1, 2, 4, 5]
    shelved.accept_all(dead)
    shelved.accept_all(link)
    assert shelved.messages == 0


def test_what_somebody_has_dropped_is_not_replayed() -> None:
    shelved = Shelved()
    shelved.attach()
    shelved.put(1, 5)
    link = shelved.answer(3)
    shelved.outcome(link, RELEASED, 1)  # waits here
    shelved.outcome(link, Rejected(), 3)  # is a dead letter already
    drop(shelved, 3)
    shelved.outcome(link, RELEASED, 2)  # was at the target meanwhile
    assert shelved.engine.inlets.delays()[KEY].dead == 3
    assert shelved.engine.inlets.replay(None, None)[1] == 0
    shelved.order(GrantCredit(link, 10))
    assert shelved.sent(link) == [1, 2, 3, 4, 5]
    assert sorted(shelved.sent(shelved.answer(10, is_dead=True))) == [1, 2, 3]


def test_a_dead_letter_that_is_dropped_on_its_way_and_comes_back_is_not_replayed() -> None:
    shelved = Shelved()
    shelved.attach()
    shelved.put(1, 2)
    link = shelved.answer(2)
    shelved.outcome(link, Rejected(), 1)
    dead = shelved.answer(10, is_dead=True)
    drop(shelved, 1)
    shelved.outcome(dead, RELEASED, 1)
    assert shelved.engine.inlets.replay(None, None)[1] == 0
    assert shelved.sent(link) == [1, 2]


def test_what_is_dropped_while_its_target_has_it_is_dropped_if_its_link_ends_as_well() -> None:
    shelved = Shelved()
    shelved.attach()
    shelved.put(1, 4)
    link = shelved.answer(3)
    drop(shelved, 2)
    shelved.order(DetachLink(link, True))
    shelved.wait(REFUSED_SECONDS)
    assert sorted(shelved.sent(shelved.answer(10, is_dead=True))) == [1, 2]
    assert shelved.sent(shelved.answer(10)) == [3, 4]


def test_what_is_accepted_after_all_is_no_dead_letter() -> None:
    shelved = Shelved()
    shelved.attach()
    shelved.put(1, 2)
    link = shelved.answer(1)
    drop(shelved, 1)
    shelved.outcome(link, ACCEPTED, 1)
    assert shelved.messages == 1
    assert shelved.engine.inlets.delays() == {}


def test_what_somebody_forgets_is_gone_and_sent_to_nobody() -> None:
    shelved = Shelved()
    shelved.attach()
    shelved.put(1, 6)
    link = shelved.answer(3)
    shelved.outcome(link, RELEASED, 1)
    shelved.outcome(link, Rejected(), 2)
    drop(shelved, 4, forgets=True)
    assert shelved.messages == 2
    shelved.outcome(link, RELEASED, 3)
    shelved.wait(PAUSE_LIMIT_SECONDS)
    shelved.order(GrantCredit(link, 10))
    assert shelved.sent(link) == [1, 2, 3, 5, 6]
    assert shelved.engine.inlets.delays() == {}
    shelved.accept_all(link)
    assert shelved.messages == 0


def test_what_rests_and_what_was_rejected_is_tried_at_once_when_somebody_wants_it() -> None:
    shelved = Shelved(bounds=Bounds(age_ns=10_000_000_000))
    shelved.attach()
    shelved.put(1, 1)
    shelved.wait(9.0)
    shelved.put(2, 3)
    shelved.wait(2.0)  # the first one is too old now
    link = shelved.answer(2)
    shelved.outcome(link, Rejected(), 2)
    shelved.outcome(link, RELEASED, 3)
    assert shelved.engine.inlets.delays()[KEY].dead == 2
    assert shelved.engine.inlets.replay(KEY, b"elsewhere") == (0, 0)
    assert shelved.engine.inlets.replay(KEY, None) == (1, 1)
    shelved.order(GrantCredit(link, 10))
    assert shelved.sent(link) == [2, 3, 2, 3, 4]
    assert shelved.sent(shelved.answer(10, is_dead=True)) == [1]


def test_the_core_learns_of_the_stored_address_before_its_message_is_accepted() -> None:
    shelved = Shelved()
    shelved.attach()
    shelved.is_committing = False
    shelved.put(1)
    assert shelved.inlets() == {}
    shelved.is_committing = True
    shelved.commit()
    kinds = [type(each) for each in shelved.events]
    inlet = next(
        number
        for number, each in enumerate(shelved.events)
        if isinstance(each, LinkAttached) and not each.is_answer
    )
    assert inlet < kinds.index(DeliveriesUpdated)


def test_an_address_is_attached_though_the_link_that_brought_its_message_has_ended() -> None:
    shelved = Shelved()
    shelved.attach()
    shelved.is_committing = False
    shelved.put(1)
    shelved.order(DetachLink(SHELF, True))
    shelved.is_committing = True
    shelved.log.commit(shelved.now_ns)
    shelved._say_durable()
    assert list(shelved.inlets()) == [("telemetry.a", False)]
    assert shelved.accepted() == []


def test_nobody_waits_for_an_address_of_which_dead_letters_alone_are_left() -> None:
    shelved = Shelved()
    shelved.attach()
    shelved.put(1, 5)
    link = shelved.answer(100)
    shelved.outcome(link, Rejected(), 2, 4)
    assert LinkDetached(link, True) not in shelved.events
    shelved.outcome(link, ACCEPTED, 1, 3, 5)
    assert LinkDetached(link, True) in shelved.events
    assert shelved.messages == 2
    shelved.put(6, 3)
    again = shelved.answer(100)
    assert shelved.sent(again) == [6, 7, 8]
    shelved.outcome(again, ACCEPTED, 6, 7, 8)
    assert LinkDetached(again, True) in shelved.events
    dead = shelved.answer(100, is_dead=True)
    assert shelved.sent(dead) == [2, 4]
    shelved.accept_all(dead)
    assert shelved.messages == 0
    shelved.put(9)
    assert shelved.sent(shelved.answer(100)) == [9]


def test_dead_letters_that_are_revived_are_sent_though_their_address_was_quiet() -> None:
    shelved = Shelved()
    shelved.attach()
    shelved.put(1, 2)
    link = shelved.answer(100)
    shelved.outcome(link, Rejected(), 1, 2)
    assert LinkDetached(link, True) in shelved.events
    assert shelved.engine.inlets.replay(None, None) == (0, 2)
    shelved.wait(0.0)
    again = shelved.answer(100)
    assert shelved.sent(again) == [1, 2]
    shelved.accept_all(again)
    assert shelved.messages == 0


@pytest.mark.parametrize("octets", [1, 7, 100, 1000, 5000])
def test_answers_may_come_in_any_pieces(octets: int) -> None:
    whole, pieces = Shelved(), Shelved()
    for shelved in (whole, pieces):
        shelved.attach()
        shelved.put(1, 60)
    pieces.piece_octets = octets
    for shelved in (whole, pieces):
        link = shelved.answer(100)
        shelved.accept_all(link)
        assert shelved.sent(link) == [*range(1, 61)]
        assert shelved.messages == 0


def test_what_a_route_stored_under_another_name_is_sent_first() -> None:
    earlier = Shelved()
    earlier.attach()
    earlier.put(1, 3)
    later = Shelved(earlier.disk.crashed(random.Random(1)), life=1, route="telemetry.*")
    later.attach()
    link = later.answer(10)
    assert later.sent(link) == [1, 2, 3]
    assert later.credit() > 0  # it is answered when the log has told of the earlier ones
    later.put(4, 2)
    newer = later.answer(10)
    assert later.sent(newer) == []
    later.accept_all(link)
    assert later.sent(newer) == [4, 5]
