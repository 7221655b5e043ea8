"""The chaos run's own ledger, audited: the same counts as its receivers saw."""

import os
from pathlib import Path
from typing import Any

import pytest
import trio

from router.pipeline.audit import audit
from router.pipeline.compaction import compact
from tests.support.chaos_run import ChaosRun

SEED = int(os.environ.get("ROUTER_CHAOS_SEED", "1"))


def check(spark: Any, folder: Path, seconds: float, kills: int) -> None:
    """Runs, and compares what the receivers saw with what the ledger says."""
    ledger = folder / "ledger"
    kept = f"  compaction: {{directory: {ledger}, every_seconds: 1h}}"
    chaos = ChaosRun(folder=folder, seed=SEED, seconds=seconds, kills=kills, more=kept)
    trio.run(chaos.run)
    compact(chaos.state, ledger, removes=True)
    result = audit(spark, [str(ledger)], grace_seconds=0)
    verdicts = {name: count for name, count in result.verdicts.items() if count}
    taken = chaos.books.taken
    print(f"{chaos.told()}; {result.records} records in {result.files} files: {verdicts}")
    chaos.check()
    assert verdicts == {"delivered-once": sum(times == 1 for times in taken.values())}
    assert verdicts["delivered-once"] == len(chaos.books.sent)
    assert sum(flow.deliveries for flow in result.flows) == len(taken)
    assert {flow.source for flow in result.flows} <= {f"container-of-sender-{n}" for n in (0, 1)}
    assert {flow.target for flow in result.flows} <= {f"container-of-receiver-{n}" for n in (0, 1)}
    assert not result.holes


@pytest.mark.slow
def test_the_audit_of_a_short_run_says_what_its_receivers_saw(spark: Any, tmp_path: Path) -> None:
    check(spark, tmp_path, 4.0, 1)


@pytest.mark.slow
def test_the_audit_of_a_long_run_says_what_its_receivers_saw(spark: Any, tmp_path: Path) -> None:
    check(spark, tmp_path, 60.0, 4)
