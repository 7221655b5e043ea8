"""What was read of a ledger, and what is missing, whatever came when."""

import random

from hypothesis import given
from hypothesis import strategies as st

from router.pipeline.coverage import (
    JOURNAL,
    Island,
    LedgerHole,
    Life,
    beginnings_of,
    holes_of,
    merge_lives,
    reaches_of,
    repeats_of,
    segment_begun,
    segment_ended,
    union,
)

SECOND = 10**9
BORN = 1000 * SECOND


def island(first: int, last: int) -> Island:
    """Record n of a life is written in second n of it."""
    return Island(first, last, BORN + first * SECOND, BORN + last * SECOND)


def life(*islands: tuple[int, int], born: int = BORN, ended: int = 0, worker: int = 1) -> Life:
    found = tuple(island(*each) for each in islands)
    return Life(
        router="east",
        worker=worker,
        incarnation=born,
        islands=found,
        ended=ended,
        reach_ns=max((each.last_ns for each in found), default=0),
    )


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 8)), max_size=12), st.randoms())
def test_islands_are_the_union_of_what_was_read_in_any_order(
    pieces: list[tuple[int, int]], chance: random.Random
) -> None:
    runs = [(first, first + more) for first, more in pieces]
    shuffled = list(runs)
    chance.shuffle(shuffled)
    read = {number for first, last in runs for number in range(first, last + 1)}
    found = union(island(*each) for each in runs)
    assert found == union(island(*each) for each in shuffled)
    assert [n for each in found for n in range(each.first, each.last + 1)] == sorted(read)
    one_by_one = merge_lives(*([life(each)] for each in shuffled)).values()
    assert [each.islands for each in one_by_one] == ([tuple(found)] if found else [])


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 8)), max_size=8))
def test_a_number_is_repeated_if_two_files_have_it_or_an_earlier_run_read_it(
    pieces: list[tuple[int, int]],
) -> None:
    runs = [(first, first + more) for first, more in pieces]
    known = merge_lives([life((5, 9), (20, 22))])
    before = {*range(5, 10), *range(20, 23)}
    numbers = [number for first, last in runs for number in range(first, last + 1)]
    repeats = repeats_of([life(each) for each in runs], known)

    def repeated(*, is_known: bool) -> set[int]:
        return {
            number
            for each in repeats
            if each.is_known is is_known
            for number in range(each.first, each.last + 1)
        }

    assert repeated(is_known=True) == before & set(numbers)
    assert repeated(is_known=False) == {n for n in numbers if numbers.count(n) > 1}


def holes(*lives: Life) -> list[tuple[int, int, int, int | None]]:
    merged = merge_lives(lives)
    found = holes_of(merged.values(), beginnings_of(merged.values()))
    return [(each.first, each.last, each.after_ns, each.before_ns) for each in found]


def test_a_hole_lies_between_the_times_of_the_records_around_it() -> None:
    assert holes(life((1, 4), (9, 12))) == [(5, 8, BORN + 4 * SECOND, BORN + 9 * SECOND)]


def test_what_files_have_left_of_a_hole_lies_within_it_and_no_other_hole_does() -> None:
    def found(*islands: tuple[int, int], worker: int = 1) -> list[LedgerHole]:
        merged = merge_lives([life(*islands, worker=worker)])
        return holes_of(merged.values(), beginnings_of(merged.values()))

    (known,) = found((1, 4), (9, 12))
    left = found((1, 4), (6, 6), (9, 12))
    assert len(left) == 2
    assert all(each.is_within(known) for each in (known, *left))
    assert not any(known.is_within(each) for each in left)
    assert not any(each.is_within(known) for each in found((1, 3), (9, 12)))
    assert not any(each.is_within(known) for each in found((1, 4), (9, 12), worker=2))
    assert not any(each.is_within(known) for each in found((1, 4), (9, 12), (15, 15))[1:])


def test_the_oldest_life_of_a_worker_may_begin_anywhere_and_later_ones_with_1() -> None:
    later = BORN + 20 * SECOND
    assert not holes(life((7, 9)))
    found = holes(life((7, 9)), life((3, 4), born=later))
    assert found == [(1, 2, later, BORN + 3 * SECOND)]


def test_a_mark_shows_what_is_missing_at_the_end() -> None:
    mark = Life(router="east", worker=1, incarnation=BORN, following=8, marked_ns=BORN + 60)
    assert holes(life((1, 5)), mark) == [(6, 7, BORN + 5 * SECOND, BORN + 60)]
    assert not holes(life((1, 7)), mark)


def journal(*segments: tuple[int, int, int], missing: Island | None = None) -> Life:
    """Gives segments by number, number of the one before, and the second in which each begins."""
    worker, incarnation = JOURNAL
    parts = [
        Life(router="east", worker=worker, incarnation=incarnation, islands=(part,))
        for number, previous, at in segments
        for part in (
            segment_begun(number, previous, at * SECOND),
            segment_ended(number, (at + 9) * SECOND),
        )
        if part != missing
    ]
    return merge_lives(parts)["east", worker, incarnation]


def test_what_a_missing_segment_had_lies_between_those_around_it() -> None:
    assert not holes(journal((3, 0, 30), (4, 3, 40), (5, 4, 50)))
    found = holes(journal((6, 5, 60), (3, 2, 30), (7, 6, 70)))
    assert found == [(4, 5, 38 * SECOND, 60 * SECOND)]


def test_half_of_a_segment_over_midnight_is_missed_like_a_whole_one() -> None:
    segments = (3, 2, 30), (4, 3, 40), (5, 4, 50)
    first = journal(*segments, missing=segment_begun(4, 3, 40 * SECOND))
    second = journal(*segments, missing=segment_ended(4, 49 * SECOND))
    assert holes(first) == [(4, 4, 38 * SECOND, 49 * SECOND)]
    assert holes(second) == [(4, 4, 39 * SECOND, 50 * SECOND)]


def test_numbers_of_segments_that_were_never_begun_miss_nothing() -> None:
    assert not holes(journal((3, 2, 30), (9, 3, 90)))


def test_a_journal_that_was_begun_anew_misses_nothing_between_its_ends() -> None:
    assert not holes(journal((50, 49, 500), (51, 50, 510), (1, 0, 600), (2, 1, 610)))


def reach(*lives: Life, declared: tuple[str, ...] = ()) -> tuple[bool, int, int]:
    merged = merge_lives(lives)
    begun = beginnings_of(merged.values())
    missing = holes_of(merged.values(), begun)
    found = reaches_of(merged.values(), begun, missing, declared)["east"]
    return found.has_ended, found.reach_ns, len(found.holes)


def test_a_router_has_ended_when_each_worker_wrote_its_last_record() -> None:
    two = life((1, 5), worker=2, ended=5)
    assert reach(life((1, 4), ended=4), two)[0]
    assert not reach(life((1, 4)), two)[0]
    assert not reach(life((1, 4), ended=4), two, life((1, 1), born=BORN + 30 * SECOND))[0]


def test_a_router_that_is_declared_ended_misses_what_comes_after_its_ledger() -> None:
    assert reach(life((1, 4)), declared=("east",)) == (False, BORN + 4 * SECOND, 1)
    assert reach(life((1, 4), ended=4), declared=("east",)) == (True, BORN + 4 * SECOND, 0)
