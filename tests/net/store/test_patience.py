"""What is held goes on after a moment, and only then."""

from router.net.store.patience import HOLD_SECONDS, Patience


def test_nothing_is_over_while_nothing_is_held() -> None:
    patience = Patience()
    assert not patience.is_over(100.0)
    assert (patience.is_untimed, patience.until) == (False, None)


def test_what_is_held_waits_from_the_first_call_that_knows_the_time() -> None:
    patience = Patience()
    patience.hold()
    assert (patience.is_untimed, patience.until) == (True, None)
    assert not patience.is_over(100.0)
    patience.hold()  # more of it does not make it wait longer
    assert (patience.is_untimed, patience.until) == (False, 100.0 + HOLD_SECONDS)
    assert not patience.is_over(100.0 + HOLD_SECONDS / 2)
    assert patience.is_over(100.0 + HOLD_SECONDS)
    assert not patience.is_over(200.0)


def test_what_is_held_after_that_waits_anew() -> None:
    patience = Patience()
    patience.hold()
    patience.is_over(100.0)
    assert patience.is_over(101.0)
    patience.hold()
    assert not patience.is_over(102.0)
    assert patience.until == 102.0 + HOLD_SECONDS
