"""The ledgers of five sites, audited together: the same counts as their receivers saw.

``ROUTER_MESH_FAULTS`` and ``ROUTER_MESH_DELIVERIES`` make the run longer.
"""

import os
from collections.abc import Iterator
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
SECONDS = float(os.environ.get("ROUTER_MESH_SECONDS", "inf"))
SEED = int(os.environ.get("ROUTER_MESH_SEED", "1"))


@pytest.fixture
def compiled(spark: Any) -> Iterator[Any]:
    """The session compiles plans meanwhile: millions of records pay for that."""
    names = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")
    before = {name: spark.conf.get(name) for name in names}
    for name, value in zip(names, ("true", "FALLBACK"), strict=True):
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


def test_the_audit_of_five_sites_says_what_their_receivers_saw(
    compiled: Any, tmp_path: Path
) -> None:
    run = MeshRun(
        folder=tmp_path,
        seed=SEED,
        faults=FAULTS,
        most_seconds=SECONDS,
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
    result = audit(
        compiled, [str(ledger) for ledger in ledgers if ledger.exists()], grace_seconds=0
    )
    verdicts = {name: count for name, count in result.verdicts.items() if count}
    print(f"{result.records} records in {result.files} files: {verdicts}", flush=True)
    assert verdicts == {"delivered-once": len(run.books.sent)}
    assert not result.holes
