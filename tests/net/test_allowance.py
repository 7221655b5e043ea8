"""The account that input which moves nothing is paid from."""

import pytest

from router.net.allowance import (
    MOST_SECONDS,
    PATIENCE_SECONDS,
    REST_SHARE,
    WORK_SHARE,
    Allowance,
    Talk,
)


def test_it_begins_full_and_holds_no_more() -> None:
    allowance = Allowance()
    allowance.rest(0.0)
    allowance.work(100.0)
    assert allowance.balance == MOST_SECONDS


def test_under_full_load_floods_get_what_work_earns() -> None:
    allowance = Allowance()
    now = talked = 0.0
    allowance.work(now)
    while now < 100.0:
        now += 0.005  # a turn of payload
        allowance.settle(now)
        if not allowance.is_empty:
            now += 0.001
            talked += 0.001
            allowance.spend(0.001)
    assert talked / (now - talked) == pytest.approx(WORK_SHARE, rel=0.05)


def test_beside_little_work_floods_leave_as_much_rest_as_they_take() -> None:
    allowance = Allowance()
    now = talked = 0.0
    while now < 100.0:
        allowance.work(now)
        while not allowance.is_empty:
            now += 0.001
            talked += 0.001
            allowance.spend(0.001)
        allowance.rest(now)
        now += allowance.wait_seconds
        allowance.settle(now)
        assert not allowance.is_empty
    assert talked / now == pytest.approx(REST_SHARE / (1 + REST_SHARE), abs=0.02)


def test_what_is_paid_does_not_earn() -> None:
    allowance = Allowance()
    allowance.work(0.0)
    allowance.spend(0.25)
    allowance.settle(0.25)
    assert allowance.balance == MOST_SECONDS - 0.25


def test_a_machine_that_stood_still_leaves_no_endless_debt() -> None:
    allowance = Allowance()
    allowance.spend(3600.0)
    assert allowance.wait_seconds <= 1.0


@pytest.mark.parametrize(
    ("seconds", "waits"), [(1.0, True), (2.0, True), (5.5, False), (1000.0, False)]
)
def test_a_long_talk_is_forgiven_in_time(seconds: float, waits: bool) -> None:
    talk = Talk()
    talk.add(1000.0, 1.0)
    assert talk.is_long
    talk.add(0.0, 1.0 + seconds)
    assert talk.is_long is waits


def test_little_talk_for_ever_is_never_long() -> None:
    talk = Talk()
    for second in range(1000):
        talk.add(PATIENCE_SECONDS / 2, float(second))
        assert not talk.is_long


def test_what_moves_payload_makes_up_for_long_talk_and_saves_nothing_up() -> None:
    talk = Talk()
    talk.add(10 * PATIENCE_SECONDS, 1.0)
    talk.add(-20 * PATIENCE_SECONDS, 1.0)
    assert not talk.is_long
    talk.add(1.5 * PATIENCE_SECONDS, 1.0)
    assert talk.is_long


def test_rest_between_pieces_of_work_earns_as_rest_does() -> None:
    allowance = Allowance()
    allowance.work(0.0)
    allowance.spend(0.3)
    allowance.settle(0.3)
    assert allowance.balance == pytest.approx(-0.2)
    allowance.rested(0.08)
    allowance.settle(0.46)
    assert allowance.balance == pytest.approx(-0.2 + 0.08 * REST_SHARE + 0.08 * WORK_SHARE)
    allowance.settle(0.62)
    assert allowance.balance == pytest.approx(-0.2 + 0.08 * REST_SHARE + 0.24 * WORK_SHARE)
