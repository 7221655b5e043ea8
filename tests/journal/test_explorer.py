"""Every order of events and every crash point, for one and two deliveries; see INVARIANTS.md."""

import pytest

from router.journal.record import Resolution
from tests.support.journal_model import Explored, Rules, Safety, TargetKind, Violation, explore

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
