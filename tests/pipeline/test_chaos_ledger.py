"""The chaos run's own ledger, audited: the same counts as its receivers saw.

The longest run has a million deliveries, or ``ROUTER_CHAOS_DELIVERIES``; it takes some minutes, and
tells its figures. Its ledger is read by `router audit`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from router.pipeline.audit import audit
from router.pipeline.compaction import compact
from tests.support.chaos_run import ChaosRun

pytestmark = pytest.mark.long

SEED = int(os.environ.get("ROUTER_CHAOS_SEED", "1"))
MILLION = int(os.environ.get("ROUTER_CHAOS_DELIVERIES", "1000000"))


def kept_in(ledger: Path) -> str:
    """The router compacts nothing by itself: the test does, at the end."""
    return f"  compaction: {{directory: {ledger}, every_seconds: 1h}}"


def check(spark: Any, folder: Path, seconds: float, kills: int) -> None:
    """Runs, and compares what the receivers saw with what the ledger says."""
    ledger = folder / "ledger"
    chaos = ChaosRun(folder=folder, seed=SEED, seconds=seconds, kills=kills, more=kept_in(ledger))
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


@pytest.mark.slow
def test_a_million_deliveries_arrive_once_and_the_audit_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = tmp_path / "ledger"
    chaos = ChaosRun(
        folder=tmp_path,
        seed=SEED,
        seconds=0,
        deliveries=MILLION,
        pause_seconds=0.7,
        more=kept_in(ledger),
        tell=lambda line: print(line, flush=True),
    )
    trio.run(chaos.run)
    with capsys.disabled():
        print(f"\n{chaos.told()}", flush=True)
    chaos.check()
    compact(chaos.state, ledger, removes=True)
    result = audited(ledger)
    verdicts = {name: count for name, count in result["verdicts"].items() if count}
    with capsys.disabled():
        print(f"audit: {result['records']} records in {result['files']} files: {verdicts}")
    assert len(chaos.books.taken) >= MILLION
    assert verdicts == {"delivered-once": len(chaos.books.taken)}
    assert sum(flow["deliveries"] for flow in result["flows"]) == len(chaos.books.taken)
    assert not result["holes"]


def audited(ledger: Path) -> dict[str, Any]:
    """What `router audit` prints; it fails if anything was lost or duplicated."""
    command = [sys.executable, "-m", "router", "audit", str(ledger), "--grace", "0", "--json"]
    found: dict[str, Any] = json.loads(
        subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    )
    return found
