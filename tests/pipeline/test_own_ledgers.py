"""Routers under faults, and the audit of their own ledgers: it says what the receiver saw."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import trio

from router.journal.segment import numbered
from router.pipeline.audit import audit
from router.pipeline.demo import move


def test_the_audit_says_what_the_receiver_saw(spark: Any, tmp_path: Path) -> None:
    account = trio.run(move, tmp_path, 2000, 6)
    assert account.kills == 2
    result = audit(spark, [str(tmp_path / "ledger")], grace_seconds=0)
    verdicts = {name: count for name, count in result.verdicts.items() if count}
    assert verdicts == {"delivered-once": account.once}
    assert account.once == account.sent == account.accepted == len(account.taken)
    assert result.routers == ("east", "west")
    assert not result.holes
    (flow,) = result.flows
    assert (flow.address, flow.source, flow.from_router) == ("orders", "demo-sender", "east")
    assert (flow.target, flow.to_router) == ("demo-receiver", "west")


def test_a_running_router_keeps_its_ledger_and_lets_segments_go(tmp_path: Path) -> None:
    account = trio.run(move, tmp_path, 200, 0)
    for router in ("east", "west"):
        rows = [
            pq.ParquetFile(path).metadata.num_rows
            for path in (tmp_path / "ledger").glob(f"date=*/router={router}/*.parquet")
        ]
        assert sum(rows) >= 4 * account.sent
        handed_over = tmp_path / router / "segments"
        assert not handed_over.exists() or not numbered(
            [path.name for path in handed_over.iterdir()], "segment"
        )
