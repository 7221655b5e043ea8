"""Failed logins are answered later each time, and guessing at once on many connections is held."""

from router.net.attempts import (
    FIRST_SECONDS,
    FORGET_SECONDS,
    LONGEST_SECONDS,
    SOURCES_MOST,
    WAITING_MOST,
    Attempts,
)


def test_each_failure_is_answered_twice_as_late_up_to_a_limit() -> None:
    attempts = Attempts()
    pauses = [attempts.failed("a", 0.0) for _ in range(40)]
    assert pauses[:3] == [FIRST_SECONDS, 2 * FIRST_SECONDS, 4 * FIRST_SECONDS]
    assert pauses[-1] == LONGEST_SECONDS
    assert attempts.count("a") == 40


def test_sources_do_not_suffer_for_each_other() -> None:
    attempts = Attempts()
    for _ in range(20):
        attempts.failed("a", 0.0)
    assert attempts.failed("b", 0.0) == FIRST_SECONDS
    assert attempts.refusal("b", 0.0) is None


def test_a_source_begins_anew_after_a_while() -> None:
    attempts = Attempts()
    for _ in range(5):
        attempts.failed("a", 0.0)
    later = FORGET_SECONDS + 1
    assert attempts.failed("a", later) == later + FIRST_SECONDS


def test_a_source_is_not_served_while_too_many_answers_wait() -> None:
    attempts = Attempts()
    for _ in range(WAITING_MOST + 10):
        attempts.failed("a", 0.0)
    refusal = attempts.refusal("a", 0.0)
    assert refusal is not None
    assert "from a wait" in refusal
    assert attempts.refusal("a", LONGEST_SECONDS) is None


def test_no_more_sources_are_remembered_than_fit() -> None:
    attempts = Attempts()
    for number in range(SOURCES_MOST + 1):
        attempts.failed(str(number), float(number) / 1000)
    assert attempts.count("0") == 0
    assert attempts.count("1") == 1


def test_the_worst_sources_of_late_are_told_first_and_the_total_never_falls() -> None:
    attempts = Attempts()
    for source, count in (("a", 1), ("b", 3), ("c", 2)):
        for _ in range(count):
            attempts.failed(source, 0.0)
    attempts.failed("late", 200.0)
    assert attempts.recent(2, 200.0) == [("b", 3), ("c", 2)]
    assert attempts.recent(9, FORGET_SECONDS + 1) == [("late", 1)]
    assert attempts.total == 7
