"""Counts of deliveries: those of one run, and of all runs together."""

from router.pipeline.tally import Correction, Group, Tally

TALLY = Tally(
    groups=(
        Group(span=2, verdict="delivered-once", is_closed=True, was=None, count=90, last_ns=50),
        Group(span=3, verdict="delivered-once", is_closed=True, was=None, count=9, last_ns=70),
        Group(span=3, verdict="open", is_closed=False, was=None, count=4, last_ns=90),
        Group(
            span=None,
            verdict="delivered-once",
            is_closed=True,
            was="delivered-once",
            count=5,
            last_ns=80,
        ),
        Group(span=2, verdict="delivered-once", is_closed=True, was="lost", count=2, last_ns=10),
        Group(span=2, verdict="open", is_closed=False, was="lost", count=1, last_ns=10),
    ),
    seconds=60,
)


def some(counts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


def test_closed_and_open_deliveries_are_counted_apart() -> None:
    assert some(TALLY.by_verdict(is_closed=True)) == {"delivered-once": 106}
    assert some(TALLY.by_verdict(is_closed=False)) == {"open": 5}


def test_a_verdict_that_is_confirmed_does_not_count_again() -> None:
    assert some(TALLY.newly_closed()) == {"delivered-once": 101}


def test_a_verdict_that_is_corrected_leaves_the_totals_of_all_runs() -> None:
    totals = TALLY.totals({"delivered-once": 1000, "lost": 3})
    assert some(totals) == {"delivered-once": 1101}
    assert TALLY.corrections() == (
        Correction(before="lost", after="delivered-once", deliveries=2),
        Correction(before="lost", after="open", deliveries=1),
    )


def test_rates_count_what_was_taken_in_by_time() -> None:
    first, second = TALLY.rates()
    assert (first.start, first.verdicts) == (
        "1970-01-01T00:02:00.000000Z",
        {"delivered-once": 92, "open": 1},
    )
    assert second.verdicts == {"delivered-once": 9, "open": 4}


def test_the_last_record_of_closed_deliveries_is_known() -> None:
    assert TALLY.last_closed_ns == 80
    assert Tally(groups=(), seconds=1).last_closed_ns is None
