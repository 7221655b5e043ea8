"""Audits that carry their state beside merges: what was read before is not read again."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from router.pipeline.audit import audit
from router.pipeline.merging import merge
from tests.pipeline.test_compaction import files
from tests.pipeline.test_merging import LATER, SEGMENTS, plant

pytestmark = pytest.mark.long


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_merged_files_are_not_read_again_and_change_no_verdict(
    spark: Any, tmp_path: Path, scheme: str
) -> None:
    out, carry = plant(tmp_path), f"{scheme}{tmp_path}/carry"
    (late,) = [name for name in files(out) if "0000000000000003-" in name]
    shutil.move(out / late, tmp_path / "late.parquet")
    first = audit(spark, [f"{scheme}{out}"], carry=carry, grace_seconds=0)
    assert first.files == SEGMENTS - 1
    merge(str(out), LATER)
    again = audit(spark, [f"{scheme}{out}"], carry=carry, grace_seconds=0)
    assert (again.files, again.records, again.too_late) == (0, 0, ())
    assert again.totals == first.totals
    shutil.move(tmp_path / "late.parquet", out / late)
    merge(str(out), LATER)
    whole = audit(spark, [f"{scheme}{out}"], grace_seconds=0)
    last = audit(spark, [f"{scheme}{out}"], carry=carry, grace_seconds=0)
    assert last.files == 1, "it has records that are new"
    assert last.records == whole.records - first.records
    assert last.totals == whole.totals
    assert whole.totals["delivered-once"] == SEGMENTS * 10
    kept = {path.name.partition("-")[0] for path in (tmp_path / "carry").iterdir()}
    assert kept <= {"carried.json", "open", "closed", "links"}
