"""A router that stores at least once, killed while it forwards, and the audit of its ledger."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from router.pipeline.audit import audit
from router.pipeline.compaction import compact
from tests.service.test_stored_routes import NEAR, Places, books_grew, until
from tests.support.chaos import Books, receiving
from tests.support.running import router_beside

pytestmark = pytest.mark.long

COUNT = 1000
PATIENCE_SECONDS = 240
RECORDED = NEAR.replace("admin: off", "admin: off, ledger: all")


async def run(places: Places, books: Books) -> None:
    """Stores while the target is away, and is killed twice while it forwards."""
    async with places.running("near", RECORDED):
        await places.send("telemetry.a", 0, COUNT, books)
    async with places.target_runs(), trio.open_nursery() as nursery:
        receiver = receiving("receiver", "telemetry.a", places.far, books.take, window=20)
        nursery.start_soon(receiver.run)
        for part in (1, 2):
            async with router_beside(places.filled(RECORDED), places.folder / "near") as near:
                await until(partial(books_grew, books, part * COUNT // 4))
                near.kill()
        async with places.running("near", RECORDED):
            await places.send("telemetry.a", COUNT, COUNT, books)
            await until(partial(books_grew, books, 2 * COUNT - 1))
        nursery.cancel_scope.cancel()


def test_the_audit_of_a_store_says_what_its_target_saw(spark: Any, tmp_path: Path) -> None:
    places, books = Places(tmp_path), Books()

    async def main() -> None:
        with trio.fail_after(PATIENCE_SECONDS):
            await run(places, books)

    trio.run(main)
    compact(tmp_path / "near-state", tmp_path / "ledger", removes=True)
    result = audit(spark, [str(tmp_path / "ledger")], grace_seconds=0)
    verdicts = {name: count for name, count in result.verdicts.items() if count}
    print(f"{verdicts}, and {len(books.duplicated)} came twice")
    assert not books.lost
    assert {*verdicts} <= {"delivered-once", "in-doubt", "duplicated"}
    assert sum(verdicts.values()) == 2 * COUNT
    twice = len(books.duplicated)
    assert verdicts.get("duplicated", 0) <= twice <= 2 * COUNT - verdicts["delivered-once"]
    assert verdicts["delivered-once"] > COUNT, "what was not on its way as it was killed came once"
