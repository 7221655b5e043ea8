"""Routers under faults, and the audit of their own ledgers: it says what the receiver saw."""

from pathlib import Path
from typing import Any

import pytest
import trio

from router.journal.segment import numbered
from router.pipeline.audit import audit
from router.pipeline.demo import move

pytestmark = pytest.mark.long


def test_the_audit_says_what_the_receiver_saw(spark: Any, tmp_path: Path) -> None:
    account = trio.run(move, tmp_path, 2000, 3)
    assert (account.kills, account.cuts) == (1, 2)
    result = audit(spark, [str(tmp_path / "ledger")], grace_seconds=0)
    verdicts = {name: count for name, count in result.verdicts.items() if count}
    assert verdicts == {"delivered-once": account.once}
    assert account.once == account.sent == account.accepted == len(account.taken)
    assert result.routers == ("east", "west")
    assert not result.holes
    (flow,) = result.flows
    assert (flow.address, flow.source, flow.from_router) == ("orders", "demo-sender", "east")
    assert (flow.target, flow.to_router) == ("demo-receiver", "west")
    logs = [tmp_path / f"{router}.log" for router in result.routers]
    assert any(log_lines(log, "ledger.compacted") for log in logs), "they kept it themselves"
    for router in result.routers:
        handed_over = tmp_path / router / "segments"
        names = [path.name for path in handed_over.iterdir()] if handed_over.exists() else []
        assert not numbered(names, "segment")


def log_lines(path: Path, event: str) -> list[str]:
    return [line for line in path.read_text().splitlines() if event in line]
