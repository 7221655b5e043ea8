"""A router whose ledger comes late: its deliveries are open, then missing, then known."""

import random
from typing import Any

import attrs
import pytest

from router.pipeline.audit import Audit, audit
from router.pipeline.carry import DAY_NS, day_of
from router.pipeline.names import OPEN
from tests.support.ledger_cases import NEVER, NOW_NS, Case, Placed, bring

pytestmark = pytest.mark.long

LATE, OLD = 2, 3
HANDED_ON = ("far", "far, waiting", "far, in doubt first", "far, second receiver", "far, to both")


def chosen_case() -> Case:
    """Gives a network of two routers, of which no file is missing, and that loses a delivery."""
    cases = (Case(number=number, chance=random.Random(f"late/{number}")) for number in range(99))
    return next(
        case
        for case in cases
        if len(case.names) == 2
        and not case.missing
        and not any(file.path.endswith(OPEN) for file in case.files)
        and "lost far" in {each.fate for each in case.deliveries.values()}
    )


def delayed(file: Placed, case: Case) -> Placed:
    """Gives a file with the first round of its router: the second router's come late."""
    if file.path.endswith("-copy.parquet") or file.path.startswith("date=2036"):
        return attrs.evolve(file, round=NEVER)
    return attrs.evolve(file, round=LATE if case.names[1] in file.path else 0)


def old(file: Placed) -> Placed:
    """Gives a file of other deliveries of another life, ten days before."""
    shift = 10 * DAY_NS
    rows = [
        {
            **row,
            "time_ns": row["time_ns"] - shift,
            "incarnation": row.get("incarnation", 0) - shift,
            "key_low": row.get("key_low", 0) + 500,
        }
        for row in file.rows
    ]
    name = file.path.partition("/")[2].replace("-00000000", "-00000001")
    day = day_of(rows[-1]["time_ns"])
    return Placed(path=f"date={day}/{name}", round=OLD, rows=rows)


@pytest.fixture(scope="module")
def case() -> Case:
    found = chosen_case()
    found.files = [delayed(file, found) for file in found.files]
    found.files += [old(file) for file in found.files if file.round == LATE]
    return found


@pytest.fixture(scope="module")
def audits(spark: Any, case: Case, tmp_path_factory: pytest.TempPathFactory) -> list[Audit]:
    folder = tmp_path_factory.mktemp("late")
    found = []
    for number in range(OLD + 1):
        bring([case], folder / "ledger", number)
        found.append(
            audit(
                spark,
                [str(folder / "ledger")],
                carry=folder / "carry",
                grace_seconds=60,
                ended=[case.names[1]] if number == 1 else [],
                now_ns=NOW_NS,
            )
        )
    return found


def handed_on(case: Case) -> int:
    """Counts the innocent deliveries that the second router delivered."""
    return sum(each.fate in HANDED_ON for each in case.deliveries.values())


def test_what_was_handed_to_a_router_is_open_until_its_ledger_comes(
    audits: list[Audit], case: Case
) -> None:
    lost = sum(each.fate == "lost near" for each in case.deliveries.values())
    assert audits[0].totals["lost"] == lost
    assert audits[0].carried["open"] >= handed_on(case)


def test_it_is_a_ledger_gap_once_somebody_says_that_the_router_has_ended(
    audits: list[Audit], case: Case
) -> None:
    assert audits[1].carried["ledger-gap"] >= handed_on(case)
    assert audits[1].totals["lost"] == audits[0].totals["lost"]


def test_it_is_known_when_the_ledger_comes_after_all(audits: list[Audit], case: Case) -> None:
    truth = [each.verdict for each in case.deliveries.values() if each.fate != "future"]
    assert {name: count for name, count in audits[2].totals.items() if count} == {
        verdict: truth.count(verdict) for verdict in set(truth)
    }


def test_the_story_of_an_offender_goes_back_to_earlier_runs(
    audits: list[Audit], case: Case
) -> None:
    key = next(key for key, each in case.deliveries.items() if each.fate == "lost far")
    gap, lost = (
        next(each for each in found.offenders if int(each.key[16:], 16) == key)
        for found in audits[1:3]
    )
    near, far = case.names
    assert (gap.verdict, lost.verdict) == ("ledger-gap", "lost")
    assert {each.router for each in gap.history} == {near}
    told = [(each.router, each.text.partition(" <-")[0]) for each in lost.history]
    assert told == [
        (near, "received"),
        (near, "sent"),
        (far, "received"),
        (far, "settled"),
        (near, "outcome accepted settled"),
        (near, "settled"),
    ]
    assert lost.history[0].text == f"received <- {case.clients['in']} (orders)"
    assert lost.history[1].text.endswith(f"-> {far} (orders)")


def test_files_beyond_the_horizon_are_reported_and_accuse_nobody(
    audits: list[Audit], case: Case
) -> None:
    assert len(audits[OLD].too_late) == sum(file.round == OLD for file in case.files)
    assert audits[OLD].files == 0
    assert audits[OLD].totals == audits[2].totals
