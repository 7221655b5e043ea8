"""Whatever comes when: audits that carry their state come to what one audit of everything does."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from router.pipeline.audit import Audit, audit
from tests.support.ledger_cases import (
    FAULTS,
    INNOCENT,
    NOW_NS,
    ROUNDS,
    Case,
    Delivery,
    bring,
    make_cases,
)

pytestmark = pytest.mark.long

CASES = int(os.environ.get("ROUTER_AUDIT_CASES", "20"))
SEED = int(os.environ.get("ROUTER_AUDIT_SEED", "1"))
GRACE_SECONDS = 60.0
FAILED = ("lost", "duplicated")


def verdicts_in(directory: Path) -> dict[int, str]:
    rows = pq.read_table(directory, columns=["key_low", "verdict"]).to_pylist()
    assert len({row["key_low"] for row in rows}) == len(rows), "one row for each delivery"
    return {row["key_low"]: row["verdict"] for row in rows}


class Rounds:
    """Runs of the audit with one carry directory, and one of everything at the end."""

    def __init__(self, spark: Any, folder: Path, cases: list[Case]) -> None:
        self.known: dict[int, Delivery] = {}
        for case in cases:
            self.known |= case.deliveries
        self.carried: dict[int, str] = {}
        self.accused: list[tuple[int, str, Delivery]] = []
        self.audits: list[Audit] = []
        ledger, out = folder / "ledger", folder / "deliveries"
        for number in range(ROUNDS):
            bring(cases, ledger, number)
            self.audits.append(
                audit(
                    spark,
                    [str(ledger)],
                    carry=folder / "carry",
                    grace_seconds=GRACE_SECONDS,
                    deliveries_to=str(out),
                    now_ns=NOW_NS,
                )
            )
            found = verdicts_in(out)
            self.carried |= found
            self.accused += [
                (number, verdict, self.known[key])
                for key, verdict in found.items()
                if verdict in FAILED and self.known[key].verdict in INNOCENT
            ]
        self.full = audit(
            spark,
            [str(ledger)],
            grace_seconds=GRACE_SECONDS,
            deliveries_to=str(out),
            now_ns=NOW_NS,
        )
        self.whole = verdicts_in(out)


@pytest.fixture(scope="module")
def rounds(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Rounds:
    return Rounds(spark, tmp_path_factory.mktemp("rounds"), make_cases(CASES, SEED))


def test_the_verdicts_are_those_of_one_audit_of_everything(rounds: Rounds) -> None:
    different = [
        (rounds.known[key], verdict, rounds.carried.get(key))
        for key, verdict in rounds.whole.items()
        if rounds.carried.get(key) != verdict
    ]
    assert not different
    assert rounds.carried.keys() == rounds.whole.keys()


def test_the_totals_of_all_runs_are_those_of_one_audit_of_everything(rounds: Rounds) -> None:
    assert rounds.audits[-1].totals == rounds.full.totals
    assert rounds.full.totals == {
        name: list(rounds.whole.values()).count(name) for name in rounds.full.totals
    }


def test_no_innocent_delivery_is_lost_or_duplicated_in_any_run(rounds: Rounds) -> None:
    assert not rounds.accused


def test_every_planted_fault_is_found_where_no_file_is_missing(rounds: Rounds) -> None:
    wrong = [
        (each, rounds.whole.get(key))
        for key, each in rounds.known.items()
        if each.is_whole and rounds.whole.get(key) != each.verdict
    ]
    assert not wrong
    assert {each.fate for each in rounds.known.values() if each.is_whole} >= set(FAULTS)


def test_a_fault_whose_records_are_missing_is_no_certain_delivery(rounds: Rounds) -> None:
    judged = Counter(
        rounds.whole.get(key, "unknown")
        for key, each in rounds.known.items()
        if each.verdict == "lost" and not each.is_whole
    )
    assert judged["lost"] > 0
    assert not judged["delivered-once"] + judged["duplicated"]


def test_files_of_the_far_future_are_reported(rounds: Rounds) -> None:
    assert rounds.full.future
    assert all("/date=2036" in file for file in rounds.full.future)


def test_clocks_are_told_by_what_routers_handed_over(rounds: Rounds) -> None:
    ahead = max(abs(each.ahead_ns) for each in rounds.full.clocks)
    assert 600 * 10**9 < ahead <= 3600 * 10**9 + 10**9
    assert all(flow.milliseconds[0] >= 0 for flow in rounds.full.flows)
