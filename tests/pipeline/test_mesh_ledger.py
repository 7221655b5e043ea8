"""The ledgers of five sites, audited together: the same counts as their receivers saw.

``ROUTER_MESH_FAULTS`` and ``ROUTER_MESH_DELIVERIES`` make the run longer.
"""

import os
from pathlib import Path
from typing import Any

import pytest
import trio

from router.pipeline.audit import audit
from router.pipeline.compaction import compact
from tests.support.mesh_run import NAMES, MeshRun

pytestmark = [pytest.mark.slow, pytest.mark.timeout(8 * 3600)]

FAULTS = int(os.environ.get("ROUTER_MESH_FAULTS", "20"))
DELIVERIES = int(os.environ.get("ROUTER_MESH_DELIVERIES", "20000"))
SEED = int(os.environ.get("ROUTER_MESH_SEED", "1"))


def test_the_audit_of_five_sites_says_what_their_receivers_saw(spark: Any, tmp_path: Path) -> None:
    run = MeshRun(
        folder=tmp_path,
        seed=SEED,
        faults=FAULTS,
        deliveries=DELIVERIES,
        more=f"  compaction: {{{{directory: {tmp_path}/ledger-{{name}}, every_seconds: 1h}}}}",
        tell=lambda line: print(line, flush=True),
    )
    trio.run(run.run)
    print(run.told(), flush=True)
    run.check()
    ledgers = [tmp_path / f"ledger-{name}" for name in NAMES]
    for name, ledger in zip(NAMES, ledgers, strict=True):
        compact(run.state(name), ledger, removes=True)
    result = audit(spark, [str(ledger) for ledger in ledgers if ledger.exists()], grace_seconds=0)
    verdicts = {name: count for name, count in result.verdicts.items() if count}
    print(f"{result.records} records in {result.files} files: {verdicts}", flush=True)
    assert verdicts == {"delivered-once": len(run.books.sent)}
    assert not result.holes
