"""Each rule of exactly-once through the store is taken away once: a test of it must then fail."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

import pytest

from router.journal.store import state
from router.journal.store.asks import AskUnsettled
from router.journal.store.holdings import Holdings
from router.journal.store.index import Unsettled
from router.journal.store.reading import StoredMessage
from router.model.events import DeliveriesUpdated
from router.model.identity import DeliveryNumber
from router.model.outcome import ACCEPTED
from router.net.store.inlet import Inlet
from router.net.store.leaving import Leaving
from router.net.store.outcomes import Outcomes
from router.net.store.resuming import Resuming
from router.net.store.shelves import Shelf, Shelves
from tests.journal.store import test_store
from tests.net.store import test_exact_engine as engine


@contextmanager
def names_are_forgotten_at_once() -> Iterator[None]:
    with patch.object(Holdings, "unsettle", lambda self, delivery: None):
        yield


@contextmanager
def names_are_kept_for_ever() -> Iterator[None]:
    def settle(self: Holdings, delivery: Unsettled) -> None:
        pass

    with patch.object(Holdings, "settle", settle):
        yield


@contextmanager
def the_state_of_a_segment_does_not_have_the_names() -> Iterator[None]:
    whole = state.encode_state

    def encode(holdings: Holdings) -> bytes:
        with patch.object(holdings, "unsettled", {}):
            return whole(holdings)

    with patch.object(state, "encode_state", encode):
        yield


@contextmanager
def the_log_is_asked_too_early() -> Iterator[None]:
    def ask(self: Shelves, sequence: int) -> None:
        for asked in self._unanswered.values():
            if asked.name is not None and not asked.is_asked:
                asked.is_asked = True
                self._client.ask(AskUnsettled(asked.name))

    with patch.object(Shelves, "_ask_unsettled", ask):
        yield


@contextmanager
def what_the_core_has_settled_stays() -> Iterator[None]:
    def settle(self: Shelves, shelf: Shelf, keys: object) -> None:
        pass

    with patch.object(Shelves, "_settle", settle):
        yield


@contextmanager
def outcomes_are_settled_before_they_are_durable() -> Iterator[None]:
    whole = Outcomes._gone

    def gone(self: Outcomes, inlet: Inlet, message: StoredMessage) -> int:
        sequence = whole(self, inlet, message)
        self._emit(DeliveriesUpdated(inlet.link, [DeliveryNumber(0)], ACCEPTED, True))
        return sequence

    with patch.object(Outcomes, "_gone", gone):
        yield


@contextmanager
def an_inlet_says_that_nothing_is_unsettled() -> Iterator[None]:
    with patch.object(Resuming, "meet", lambda self, inlet, places: self.met.add(inlet.name)):
        yield


@contextmanager
def dead_letters_do_not_wait() -> Iterator[None]:
    with patch.object(Resuming, "is_clear", lambda self, name: True):
        yield


@contextmanager
def what_is_held_goes_where_it_is_read() -> Iterator[None]:
    with patch.object(Resuming, "holder", lambda self, name, place: None):
        yield


@contextmanager
def what_is_going_counts_as_gone() -> Iterator[None]:
    with patch.object(Leaving, "is_going", lambda self, place: False):
        yield


PAIRS: list[tuple[Callable[[], AbstractContextManager[None]], Callable[[], None]]] = [
    (
        names_are_forgotten_at_once,
        engine.test_a_link_that_comes_back_hears_what_is_here_and_what_is_not,
    ),
    (
        names_are_kept_for_ever,
        engine.test_what_is_durable_is_accepted_and_named_until_the_core_has_settled_it,
    ),
    (
        the_state_of_a_segment_does_not_have_the_names,
        test_store.test_what_is_unsettled_is_known_though_its_segment_is_gone,
    ),
    (
        the_log_is_asked_too_early,
        engine.test_the_log_is_asked_when_what_came_before_is_durable,
    ),
    (
        what_the_core_has_settled_stays,
        engine.test_a_link_that_comes_back_hears_what_is_here_and_what_is_not,
    ),
    (
        outcomes_are_settled_before_they_are_durable,
        engine.test_an_outcome_is_settled_with_the_core_when_it_is_durable_that_the_message_is_gone,
    ),
    (
        an_inlet_says_that_nothing_is_unsettled,
        engine.test_what_the_core_has_is_resumed_and_not_sent_again,
    ),
    (
        dead_letters_do_not_wait,
        engine.test_nothing_is_sent_before_the_core_has_answered_for_the_dead_letters_too,
    ),
    (
        what_is_held_goes_where_it_is_read,
        engine.test_what_the_core_has_is_resumed_and_not_sent_again,
    ),
    (
        what_is_going_counts_as_gone,
        engine.test_what_is_about_to_be_gone_is_resumed_when_that_is_durable,
    ),
]


@pytest.mark.parametrize(("mutation", "test"), PAIRS)
def test_a_rule_that_is_taken_away_is_missed(
    mutation: Callable[[], AbstractContextManager[None]], test: Callable[[], None]
) -> None:
    test()
    with mutation(), pytest.raises((AssertionError, KeyError, ValueError)):
        test()
