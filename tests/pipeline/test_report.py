"""The page for people: every figure is told in full, in units that people would take."""

import attrs
import pytest

from router.pipeline.audit import Audit, Flow
from router.pipeline.clocks import Clock
from router.pipeline.coverage import Reach
from router.pipeline.offenders import Offender
from router.pipeline.report import latency_chart, render
from router.pipeline.stories import Event, iso
from router.pipeline.tally import Correction

SLOW = Flow(
    address="orders",
    source="shop",
    target="store",
    from_router="east",
    to_router="west",
    deliveries=20_000,
    octets=2_000_000,
    milliseconds=(65.8, 163.4, 18_700.0, 240_000.0),
)


def test_latencies_are_told_in_seconds_once_they_are_that_long() -> None:
    page = latency_chart([SLOW])
    assert "50 % 65.8 ms, 90 % 163 ms, 99 % 18.7 s, 99.9 % 240 s" in page


@pytest.mark.parametrize("label", ["10 ms", "100 ms", "1 s", "10 s", "100 s", "1,000 s"])
def test_the_axis_is_labeled_in_full(label: str) -> None:
    assert f">{label}</text>" in latency_chart([SLOW])


HOUR_NS = 3600 * 10**9
NOON_NS = 1_763_035_200 * 10**9


def event(router: str, minutes: float, sequence: int, text: str) -> Event:
    at = NOON_NS + round(minutes * 60e9)
    return Event(
        at=iso(at),
        time_ns=at,
        router=router,
        worker=0,
        incarnation=1,
        sequence=sequence,
        text=text,
    )


def reach(router: str, hours: int, **more: bool) -> Reach:
    return Reach(
        router=router,
        begun_ns=NOON_NS,
        reach_ns=NOON_NS + hours * HOUR_NS,
        has_ended=more.get("has_ended", False),
        is_declared=more.get("is_declared", False),
        holes=((NOON_NS + HOUR_NS, None),) if more.get("is_declared") else (),
    )


FOUND = Audit(
    routers=("east", "west"),
    files=7,
    records=12_345,
    since=iso(NOON_NS),
    until=iso(NOON_NS + 3 * HOUR_NS),
    verdicts={"delivered-once": 990, "lost": 1, "duplicated": 0},
    carried={"lost": 0, "duplicated": 0, "open": 9},
    totals={"delivered-once": 1990, "lost": 1, "open": 9},
    flows=(SLOW,),
    rates=(),
    offenders=(
        Offender(
            key="ab" * 16,
            verdict="lost",
            address="orders",
            history=(
                event("east", 0, 1, "received <- shop (orders)"),
                event("east", 1, 2, "sent <- shop (orders) -> west (orders)"),
                event("west", 31.5, 8, "received <- east (orders)"),
            ),
        ),
    ),
    holes=(),
    corrected=(Correction(before="ledger-gap", after="lost", deliveries=1),),
    reaches=(reach("east", 3), reach("north", 2, has_ended=True),
             reach("west", 2, is_declared=True)),
    unseen=("south",),
    clocks=(
        Clock(router="east", reference="east", ahead_ns=0, within_ns=0),
        Clock(router="west", reference="east", ahead_ns=HOUR_NS // 2, within_ns=10**9),
    ),
    too_late=("/ledger/date=2025-10-01/router=west/old.parquet",),
    future=("/ledger/date=2036-01-01/router=west/mad.parquet",),
)  # fmt: skip


@pytest.mark.parametrize(
    "told",
    [
        "reaches to",
        "<td>2025-11-13 15:00:00<td>not ended<td>reference",
        "<td>2025-11-13 14:00:00<td>ended<td>not compared",
        "<td>said to have ended",
        "+1,800.000 s from east, within 1.000 s",
        "<td>south<td><td class=bad>no ledger of it was read",
        "date=2025-10-01",
        "date=2036-01-01",
    ],
)
def test_the_page_says_how_far_ledgers_reach_before_any_verdict(told: str) -> None:
    before, _, after = render(FOUND).partition("<h2>Verdicts</h2>")
    assert told in before
    assert "ost or dup" not in before
    assert "as far as the ledgers reach" not in before
    assert "Lost or duplicated: 1 delivery." in after


def test_the_page_says_what_may_change_and_what_was_corrected() -> None:
    page = render(FOUND)
    assert "judged again next time: 9 open" in page
    assert "<td>ledger-gap<td>lost<td class=n>1</tr>" in page
    assert "All runs together: 1,990 delivered-once, 1 lost, 9 open" in page


def test_a_story_is_told_in_one_time_with_a_column_for_each_router() -> None:
    page = render(FOUND)
    assert "<th>time at east<th>east<th>west</tr>" in page
    row = page[page.index("<tr><td class=t>2025-11-13 12:01:30") :].partition("</tr>")[0]
    assert "<td><td>received &lt;- east (orders)" in row
    assert "2025-11-13 12:31:30.000000 by its own clock" in row


def test_an_offender_without_records_says_so() -> None:
    bare = attrs.evolve(FOUND.offenders[0], history=())
    assert "no longer there" in render(attrs.evolve(FOUND, offenders=(bare,)))
