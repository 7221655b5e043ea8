"""Every order of events and every crash point, for one and two deliveries; see INVARIANTS.md."""

from typing import Any

import pytest

from router.journal.record import Resolution
from router.links.recovery import SendAnew
from tests.support.attach_model import (
    BOTH_OUTCOMES,
    Forgets,
    Numbers,
    Receiving,
    Sending,
    World,
)
from tests.support.attach_model import Rules as AttachRules
from tests.support.attach_model import explore as explore_late
from tests.support.journal_model import Explored, Rules, Safety, TargetKind, Violation, explore

pytestmark = pytest.mark.long

KINDS = pytest.mark.parametrize("target", list(TargetKind), ids=lambda target: target.value)


def is_as_promised(explored: Explored, target: TargetKind) -> bool:
    """Tells whether the search met what is peculiar to ``target``, and nothing else."""
    return (bool(explored.held), bool(explored.resent)) == (
        target is TargetKind.NEITHER_HOLD,
        target is TargetKind.NEITHER_RESEND,
    )


@KINDS
@pytest.mark.parametrize(("crashes", "cuts"), [(2, 1), (1, 2)])
def test_one_delivery_is_neither_lost_nor_doubled_nor_settled_twice(
    target: TargetKind, crashes: int, cuts: int
) -> None:
    explored = explore(Rules(target=target, crashes=crashes, cuts=cuts))
    assert explored.rests
    assert is_as_promised(explored, target)


@KINDS
@pytest.mark.parametrize(("crashes", "cuts"), [(1, 0), (0, 1)])
def test_two_deliveries_are_neither_lost_nor_doubled_nor_settled_twice(
    target: TargetKind, crashes: int, cuts: int
) -> None:
    explored = explore(Rules(target=target, deliveries=2, crashes=crashes, cuts=cuts))
    assert explored.states > 5000
    assert is_as_promised(explored, target)


@pytest.mark.slow
@KINDS
def test_two_deliveries_a_crash_and_a_cut_in_any_order(target: TargetKind) -> None:
    explored = explore(Rules(target=target, deliveries=2, crashes=1, cuts=1))
    assert explored.states > 40_000
    assert is_as_promised(explored, target)


@KINDS
def test_a_killed_worker_needs_its_records_handed_in_and_not_durable(target: TargetKind) -> None:
    explored = explore(
        Rules(
            target=target,
            crash_keeps=Safety.HANDED_IN,
            send_when=Safety.HANDED_IN,
            answer_when=Safety.HANDED_IN,
            crashes=2,
        )
    )
    assert is_as_promised(explored, target)


@pytest.mark.parametrize("person", [Resolution.ACCEPT, Resolution.SEND_AGAIN])
def test_a_person_ends_the_doubt_and_nothing_stays_held(person: Resolution) -> None:
    for deliveries, crashes, cuts in ((1, 2, 1), (2, 1, 0)):
        explored = explore(
            Rules(
                target=TargetKind.NEITHER_HOLD,
                person=person,
                deliveries=deliveries,
                crashes=crashes,
                cuts=cuts,
            )
        )
        assert explored.held == 0
        assert bool(explored.resent) == (person is Resolution.SEND_AGAIN)


def test_without_misfortune_no_target_acts_twice() -> None:
    for target in TargetKind:
        explored = explore(Rules(target=target, deliveries=2, crashes=0, cuts=0))
        assert (explored.held, explored.resent) == (0, 0)


# Each rule is there for something: without it, the search finds what it prevents.

MACHINE, WORKER = Safety.DURABLE, Safety.HANDED_IN


@pytest.mark.parametrize(
    ("target", "crash_keeps", "send_when", "invariant"),
    [
        (TargetKind.RESUMES, MACHINE, Safety.HANDED_IN, "NoDuplicate"),
        (TargetKind.RESUMES, MACHINE, Safety.APPENDED, "NoDuplicate"),
        (TargetKind.RESUMES, WORKER, Safety.APPENDED, "NoDuplicate"),
        (TargetKind.NEITHER_HOLD, MACHINE, Safety.HANDED_IN, "NoDuplicate"),
        (TargetKind.NEITHER_HOLD, MACHINE, Safety.APPENDED, "NoDuplicate"),
        (TargetKind.NEITHER_HOLD, WORKER, Safety.APPENDED, "NoDuplicate"),
    ],
)
def test_without_durable_before_send_a_delivery_is_doubled(
    target: TargetKind, crash_keeps: Safety, send_when: Safety, invariant: str
) -> None:
    with pytest.raises(Violation) as found:
        explore(Rules(target=target, crash_keeps=crash_keeps, send_when=send_when))
    assert found.value.invariant == invariant


@pytest.mark.parametrize("send_when", [Safety.HANDED_IN, Safety.APPENDED])
def test_a_target_that_deduplicates_needs_no_durable_before_send(send_when: Safety) -> None:
    explored = explore(
        Rules(target=TargetKind.DEDUPLICATES, send_when=send_when, crashes=2, cuts=1)
    )
    assert explored.resent == 0


@KINDS
@pytest.mark.parametrize("answer_when", [Safety.HANDED_IN, Safety.APPENDED])
def test_without_outcome_before_answer_what_the_source_heard_is_in_doubt_again(
    target: TargetKind, answer_when: Safety
) -> None:
    with pytest.raises(Violation) as found:
        explore(Rules(target=target, answer_when=answer_when))
    assert found.value.invariant == "OutcomeBeforeAnswer"


def test_a_target_may_be_settled_with_as_soon_as_its_outcome_is_durable() -> None:
    for settle_when in (Safety.DURABLE, None):
        rules = Rules(target=TargetKind.RESUMES, settle_when=settle_when, crashes=2, cuts=1)
        assert explore(rules).resent == 0


@pytest.mark.parametrize("settle_when", [Safety.HANDED_IN, Safety.APPENDED])
def test_without_outcome_before_settle_a_delivery_is_doubled(settle_when: Safety) -> None:
    with pytest.raises(Violation) as found:
        explore(Rules(target=TargetKind.RESUMES, settle_when=settle_when))
    assert found.value.invariant == "NoDuplicate"


@pytest.mark.parametrize(
    ("target", "crash_keeps", "invariant"),
    [
        (TargetKind.RESUMES, MACHINE, "SettleOnce"),
        (TargetKind.NEITHER_HOLD, WORKER, "NoDuplicate"),
    ],
)
def test_without_settle_second_an_answer_that_is_lost_is_lost_for_good(
    target: TargetKind, crash_keeps: Safety, invariant: str
) -> None:
    with pytest.raises(Violation) as found:
        explore(Rules(target=target, crash_keeps=crash_keeps, waits_for_source=False))
    assert found.value.invariant == invariant


# Attaches that arrive late: see ``tests/support/attach_model`` and ``router/links/attaches``.

WORLDS = pytest.mark.parametrize("world", [Sending, Receiving])
AT_ONCE, SPOKEN_TO = Forgets.AT_ONCE, Forgets.SPOKEN_TO


def explore_attaches(
    world: type[World],
    bounds: tuple[int, int, int, int],
    **rules: Any,
) -> int:
    """Explores; ``bounds``: deliveries, attaches, crashes of the home and of the dialer.

    Returns:
        How many states there were. Some of them have every delivery ended.
    """
    deliveries, attaches, home, dialer = bounds
    explored = explore_late(
        world(
            AttachRules(
                deliveries=deliveries,
                attaches=attaches,
                home_crashes=home,
                dialer_crashes=dialer,
                **rules,
            )
        )
    )
    assert explored.rests
    return explored.states


def found_by(world: type[World], bounds: tuple[int, int, int, int], **rules: Any) -> str:
    """Names the invariant that the search finds broken."""
    with pytest.raises(Violation) as found:
        explore_attaches(world, bounds, **rules)
    return found.value.invariant


@WORLDS
@pytest.mark.parametrize("bounds", [(1, 3, 1, 1), (2, 3, 1, 0)])
def test_forgetting_only_when_spoken_to_is_enough_without_numbers(
    world: type[World], bounds: tuple[int, int, int, int]
) -> None:
    assert explore_attaches(world, bounds) > 5_000


@WORLDS
@pytest.mark.parametrize("bounds", [(1, 3, 1, 1), (2, 3, 1, 0)])
def test_numbers_that_are_durable_at_both_ends_are_enough_alone(
    world: type[World], bounds: tuple[int, int, int, int]
) -> None:
    assert explore_attaches(world, bounds, forgets=AT_ONCE, numbers=Numbers.DURABLE) > 3_000


@WORLDS
def test_both_together_lose_and_double_nothing(world: type[World]) -> None:
    assert explore_attaches(world, (1, 3, 1, 1), numbers=Numbers.DURABLE) > 5_000


@WORLDS
@pytest.mark.parametrize("numbers", [Numbers.NONE, Numbers.DURABLE])
def test_deliveries_in_parts_end_with_the_outcome_that_they_were_given(
    world: type[World], numbers: Numbers
) -> None:
    rules: dict[str, Any] = {"parts": 2, "outcomes": BOTH_OUTCOMES, "numbers": numbers}
    assert explore_attaches(world, (1, 3, 1, 0), **rules) > 3_000


@pytest.mark.parametrize("forgets", [AT_ONCE, SPOKEN_TO])
def test_a_process_that_was_taken_over_is_shut_out_by_the_epoch(forgets: Forgets) -> None:
    rules: dict[str, Any] = {"numbers": Numbers.DURABLE, "has_standby": True, "forgets": forgets}
    assert explore_attaches(Sending, (1, 3, 0, 0), **rules) > 10_000


def test_an_outcome_of_a_tag_that_was_given_out_anew_is_not_taken_for_the_old_ones() -> None:
    assert explore_attaches(Receiving, (2, 3, 0, 0), shares_tags=True) > 5_000


@pytest.mark.slow
@WORLDS
@pytest.mark.parametrize(
    ("bounds", "rules"),
    [
        ((1, 4, 2, 1), {}),
        ((1, 4, 2, 1), {"numbers": Numbers.DURABLE}),
        ((2, 3, 1, 1), {}),
        ((2, 4, 0, 0), {"numbers": Numbers.DURABLE, "forgets": AT_ONCE}),
        ((2, 3, 1, 0), {"parts": 2}),
    ],
)
def test_more_of_everything_loses_and_doubles_nothing(
    world: type[World], bounds: tuple[int, int, int, int], rules: dict[str, Any]
) -> None:
    assert explore_attaches(world, bounds, **rules) > 10_000


@pytest.mark.slow
def test_more_of_everything_with_a_standby() -> None:
    rules: dict[str, Any] = {"numbers": Numbers.DURABLE, "has_standby": True}
    assert explore_attaches(Sending, (1, 3, 1, 1), **rules) > 100_000


# Each rule is there for something: without it, the search finds what it prevents.


@WORLDS
@pytest.mark.parametrize(
    "numbers", [Numbers.NONE, Numbers.LOST_BY_HOME, Numbers.LOST_BY_DIALER], ids=lambda n: n.value
)
def test_forgetting_at_once_doubles_unless_numbers_are_durable_at_both_ends(
    world: type[World], numbers: Numbers
) -> None:
    assert found_by(world, (1, 3, 1, 1), forgets=AT_ONCE, numbers=numbers) == "NoDuplicate"


@WORLDS
def test_what_was_pipelined_behind_an_attach_is_no_proof(world: type[World]) -> None:
    assert found_by(world, (1, 3, 0, 0), forgets=Forgets.ANY_FRAME) == "NoDuplicate"


def test_what_a_map_lacks_must_go_to_nobody_else_before_its_receiver_is_heard() -> None:
    assert found_by(Receiving, (1, 3, 0, 0), sends_elsewhere=True) == "NoDuplicate"


def test_what_is_at_a_lost_receiver_must_go_to_nobody_else_without_a_newer_map() -> None:
    bounds = (1, 3, 1, 0)
    assert found_by(Receiving, bounds, numbers=Numbers.DURABLE, rebinds=True) == "NoDuplicate"


def test_nobody_in_between_may_attach_by_itself() -> None:
    assert found_by(Sending, (1, 3, 0, 0), numbers=Numbers.DURABLE, replays=True) == "NoDuplicate"


@pytest.mark.parametrize("numbers", [Numbers.NONE, Numbers.LOCAL], ids=lambda n: n.value)
def test_without_an_epoch_a_process_that_was_taken_over_doubles(numbers: Numbers) -> None:
    """Also where nothing is forgotten unheard: it is heard, and knows less than the other."""
    assert found_by(Sending, (1, 3, 0, 0), numbers=numbers, has_standby=True) == "NoDuplicate"


def test_believing_a_late_outcome_loses_the_delivery_that_has_the_tag_now() -> None:
    found = found_by(Receiving, (2, 3, 0, 0), forgets=AT_ONCE, shares_tags=True)
    assert found in ("NoLoss", "NoDuplicate")


@pytest.mark.parametrize(
    ("world", "name", "mutation", "rules"),
    [
        (Sending, "is_late", lambda *_: False, {"forgets": AT_ONCE}),
        (Sending, "is_late", lambda *_: True, {}),
        (Sending, "lacking", lambda *_: [], {}),
        (Sending, "resume", lambda *_: SendAnew(), {}),
        (Receiving, "is_late", lambda *_: False, {"forgets": AT_ONCE}),
        (Receiving, "may_be_done_unconfirmed", lambda *_: True, {}),
        (Receiving, "resume", lambda *_: SendAnew(), {}),
    ],
)
def test_the_search_drives_the_rules_that_the_router_goes_by(
    monkeypatch: pytest.MonkeyPatch,
    world: type[World],
    name: str,
    mutation: Any,
    rules: dict[str, Any],
) -> None:
    monkeypatch.setattr(f"tests.support.attach_model.{name}", mutation)
    with pytest.raises((Violation, AssertionError)):
        explore_attaches(world, (1, 3, 1, 1), numbers=Numbers.DURABLE, **rules)
