"""Numbers of attaches, and what may be done about a map that may be old."""

import pytest

from router.links.attaches import (
    ATTACH,
    AttachNumber,
    LifeCount,
    is_late,
    lacking,
    may_be_done_unconfirmed,
    next_epoch,
    properties_of,
    read_number,
)
from router.links.recovery import ABSENT, Absent, SendAnew, resume
from router.model.outcome import ACCEPTED, REJECTED, DeliveryState, Received


def test_a_number_is_read_as_it_was_written() -> None:
    number = AttachNumber(1 << 60, 7)
    assert read_number(properties_of(number)) == number
    assert properties_of(None) == {}
    assert read_number({}) is None
    assert read_number({ATTACH: None}) is None


@pytest.mark.parametrize(
    "value", [1, [], [1], [1, 2, 3], [1, -2], [True, 1], ["1", 2], [1, 1 << 64]]
)
def test_nothing_else_is_a_number(value: object) -> None:
    with pytest.raises(ValueError, match="two unsigned integers"):
        read_number({ATTACH: value})


@pytest.mark.parametrize(
    ("number", "greatest", "expected"),
    [
        ((7, 1), (7, 2), True),
        ((6, 9), (7, 1), True),
        ((7, 2), (7, 2), False),
        ((7, 3), (7, 2), False),
        ((8, 1), (7, 9), False),
        (None, (7, 9), False),
        ((1, 1), None, False),
    ],
)
def test_only_a_lower_number_is_late(
    number: tuple[int, int] | None, greatest: tuple[int, int] | None, expected: bool
) -> None:
    told = None if number is None else AttachNumber(*number)
    seen = None if greatest is None else AttachNumber(*greatest)
    assert is_late(told, seen) is expected


@pytest.mark.parametrize(("last", "now", "epoch"), [(None, 5, 5), (4, 5, 5), (5, 5, 6), (9, 5, 10)])
def test_a_new_epoch_is_greater_though_the_clock_was_set_back(
    last: int | None, now: int, epoch: int
) -> None:
    assert next_epoch(last, now) == epoch


def test_a_process_counts_from_its_beginning() -> None:
    count = LifeCount(5)
    assert [count.draw(), count.draw()] == [(5, 1), (5, 2)]


def test_what_a_map_lacks() -> None:
    assert lacking(["a", "b"], {"b": None}) == ["a"]
    assert lacking(["a", "b"], None) == ["a", "b"]


PART = Received(0, 9)
STATES = [None, PART, ACCEPTED]


@pytest.mark.parametrize("theirs", [ABSENT, None, Received(0, 4), PART, ACCEPTED, REJECTED])
@pytest.mark.parametrize("ours", STATES)
def test_nothing_is_done_unconfirmed_that_ends_a_delivery(
    ours: DeliveryState | None, theirs: DeliveryState | Absent | None
) -> None:
    """By the number of the table's rows (``recovery``): 1 5 4 2 6 12 13 send, the others end."""
    action = resume(ours, theirs)
    rows: dict[tuple[DeliveryState | None, DeliveryState | Absent | None], int] = {
        (None, ABSENT): 1,
        (PART, ABSENT): 5,
        (None, None): 4,
        (None, Received(0, 4)): 2,
        (None, PART): 2,
        (PART, PART): 6,
        (ACCEPTED, ACCEPTED): 12,
        (ACCEPTED, REJECTED): 13,
    }
    assert may_be_done_unconfirmed(ours, action) is ((ours, theirs) in rows)
    assert isinstance(action, SendAnew) is (rows.get((ours, theirs)) in (1, 5))
