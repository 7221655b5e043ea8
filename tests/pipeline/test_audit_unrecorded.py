"""Routers whose routes to the next are not recorded: the next one's records are judged."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from router.journal.record import OutcomeCode, RecordFlag, RecordKind
from tests.pipeline.test_audit_late import HANDED_ON
from tests.pipeline.test_audit_strangers import OWN_KEYS, verdicts
from tests.support.ledger_cases import NEVER, Case, Placed

pytestmark = pytest.mark.long

PLANTED = {"far": "lost", "far, second receiver": "duplicated"}
"""What happens at the second router to deliveries of these fates here."""


def case_of_two() -> Case:
    """Gives a network of two routers all of whose files come at once."""
    cases = (Case(number=number, chance=random.Random(f"mirror/{number}")) for number in range(199))
    found = next(
        case
        for case in cases
        if len(case.names) == 2
        and not case.missing
        and {"far, second receiver", "far, to both", "refused", "twice far"} < fates_of(case)
    )
    found.files = [attrs.evolve(file, round=0) for file in found.files]
    return found


def fates_of(case: Case) -> set[str]:
    return {each.fate for each in case.deliveries.values()}


def rows_of(case: Case, hop: int) -> Iterator[dict[str, Any]]:
    """Gives the records of a router, each once: copies of files share them."""
    files = [file for file in case.files if case.names[hop] in file.path]
    yield from {id(row): row for file in files for row in file.rows}.values()


def unrecorded(case: Case) -> None:
    """Has the first router record other deliveries than those that it hands on."""
    for row in rows_of(case, 0):
        if "key_low" in row:
            row["key_low"] += OWN_KEYS
        if row.get("container") == case.names[1] and row["flags"] & RecordFlag.ROUTER:
            row |= {"container": "someone", "link_name": "else", "flags": int(RecordFlag.COPY)}


def plant(case: Case) -> None:
    """Has the second router lose and double deliveries."""
    kinds = RecordKind
    for row in rows_of(case, 1):
        known = case.deliveries.get(row.get("key_low", -1))
        fate = known.fate if known else ""
        if fate == "far" and row["kind"] == kinds.SENT:
            row |= {"kind": int(kinds.OUTCOME), "outcome": int(OutcomeCode.ACCEPTED), "outgoing": 0}
        elif fate == "far" and row["kind"] == kinds.OUTCOME and row["outgoing"]:
            row |= {"kind": int(kinds.SETTLED), "outcome": 0, "outgoing": 0}
        elif fate == "far, second receiver" and row["outcome"] == OutcomeCode.RELEASED:
            row["outcome"] = int(OutcomeCode.ACCEPTED)


@pytest.fixture(params=["records other routes", "has no ledger"])
def case(request: pytest.FixtureRequest) -> Case:
    """A network whose first router does not record what it hands on."""
    found = case_of_two()
    if request.param == "has no ledger":
        found.files = [left_out(file, found) for file in found.files]
    else:
        unrecorded(found)
    return found


def left_out(file: Placed, case: Case) -> Placed:
    return attrs.evolve(file, round=NEVER) if case.names[0] in file.path else file


def test_what_it_hands_on_is_judged_by_the_records_of_the_next(
    spark: Any, tmp_path: Path, case: Case
) -> None:
    found = verdicts(spark, case, tmp_path)
    known = {
        key: each for key, each in case.deliveries.items() if each.fate in (*HANDED_ON, "twice far")
    }
    assert len(known) > 5
    assert {key: found[key] for key in known} == {key: each.verdict for key, each in known.items()}


def test_what_the_next_loses_or_doubles_is_found(spark: Any, tmp_path: Path, case: Case) -> None:
    plant(case)
    found = verdicts(spark, case, tmp_path)
    known = {key: each for key, each in case.deliveries.items() if each.fate in HANDED_ON}
    assert {each.fate for each in known.values()} >= set(PLANTED)
    assert {key: found[key] for key in known} == {
        key: PLANTED.get(each.fate, each.verdict) for key, each in known.items()
    }
