"""The engine of the message store, with a log in memory behind it."""

import random

from router.journal.store.queues import Bounds, Full
from router.model.commands import CloseConnection, DetachLink, GrantCredit, RefuseLink
from router.model.condition import NOT_FOUND, Condition
from router.model.events import ConnectionOpened, CreditReturned, LinkDetached
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, RELEASED, Rejected
from router.net.store.inlets import (
    ATTEMPTS,
    OVERDUE_WINDOW,
    PAUSE_LIMIT_SECONDS,
    REFUSED_SECONDS,
    WINDOW,
)
from router.net.store.shelves import WINDOW as SHELF_WINDOW
from tests.support.journal import FakeDisk
from tests.support.shelved import SHELF, Shelved


def test_the_connection_opens_when_the_store_has_let_it_in() -> None:
    shelved = Shelved()
    assert isinstance(shelved.events[0], ConnectionOpened)


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
    assert shelved.credit() == 2
    shelved.put(1, 8)
    assert shelved.credit() == 0
    link = shelved.answer(100)
    shelved.outcome(link, ACCEPTED, 1)
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
