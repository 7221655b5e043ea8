"""Routers that do not trust each other, and clients with a router's name: each judged by itself."""

import random
from pathlib import Path
from typing import Any

import attrs
import pyarrow.parquet as pq
import pytest

from router.journal.record import RecordFlag, RecordKind
from router.pipeline.audit import audit
from tests.pipeline.test_audit_late import HANDED_ON
from tests.support.ledger_cases import NOW_NS, Case, Placed, bring

pytestmark = pytest.mark.long

OWN_KEYS = 500
"""Added to a delivery's key by a router that does not take over the other's."""


def case_of_two() -> Case:
    """Gives a network of two routers all of whose files come at once."""
    cases = (Case(number=number, chance=random.Random(f"two/{number}")) for number in range(99))
    found = next(case for case in cases if len(case.names) == 2 and not case.missing)
    found.files = [attrs.evolve(file, round=0) for file in found.files]
    return found


def untrusting(file: Placed, case: Case) -> Placed:
    """Gives a file of the second router as it writes it if it does not trust the first."""
    if case.names[1] not in file.path:
        return file
    return attrs.evolve(file, rows=[_untrusting(row) for row in file.rows])


def _untrusting(row: dict[str, Any]) -> dict[str, Any]:
    if "key_low" in row:
        return {**row, "key_low": row["key_low"] + OWN_KEYS}
    if row["kind"] == RecordKind.LINK_ATTACHED:
        return {**row, "flags": row["flags"] & ~int(RecordFlag.ROUTER)}
    return row


def verdicts(spark: Any, case: Case, folder: Path) -> dict[int, str]:
    bring([case], folder / "ledger", 0)
    out = folder / "deliveries"
    audit(spark, [str(folder / "ledger")], grace_seconds=60, deliveries_to=str(out), now_ns=NOW_NS)
    rows = pq.read_table(out, columns=["key_low", "verdict"]).to_pylist()
    return {row["key_low"]: row["verdict"] for row in rows}


def test_a_router_that_is_trusted_and_does_not_trust_has_deliveries_of_its_own(
    spark: Any, tmp_path: Path
) -> None:
    case = case_of_two()
    case.files = [untrusting(file, case) for file in case.files]
    found = verdicts(spark, case, tmp_path)
    handed_on = [key for key, each in case.deliveries.items() if each.fate in HANDED_ON]
    assert len(handed_on) > 3
    assert {found[key] for key in handed_on} == {"delivered-once"}
    assert {found[key + OWN_KEYS] for key in handed_on} == {"delivered-once"}


def test_what_a_router_accepts_on_a_link_that_it_does_not_record_is_not_lost(
    spark: Any, tmp_path: Path
) -> None:
    case = case_of_two()
    case.files = [untrusting(file, case) for file in case.files]
    for file in case.files:
        for row in file.rows:
            if case.names[1] in file.path and row.get("container") == case.names[0]:
                row |= {"container": "someone", "link_name": "else"}
    found = verdicts(spark, case, tmp_path)
    handed_on = [key for key, each in case.deliveries.items() if each.fate in HANDED_ON]
    judged = {found[key] for key in handed_on}
    assert judged == {"ledger-gap", "open"}, (
        "open: clocks that were not compared may be an hour apart"
    )
    assert {found[key + OWN_KEYS] for key in handed_on} == {"delivered-once"}


@pytest.mark.parametrize("own", [0, 1])
def test_a_client_with_the_name_of_a_router_is_a_client(
    spark: Any, tmp_path: Path, own: int
) -> None:
    case = case_of_two()
    for file in case.files:
        for row in file.rows:
            if row["kind"] == RecordKind.LINK_ATTACHED and not row["flags"] & RecordFlag.ROUTER:
                row["container"] = case.names[own]
    found = verdicts(spark, case, tmp_path)
    assert found == {key: each.verdict for key, each in case.deliveries.items()}
