"""The long tier: ten million records, everything planted is found, and the cost is linear."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from router.pipeline.audit import audit
from tests.support.ledgers import plant, tally

SIZES = (100_000, 1_000_000, 10_000_000)
MICROSECONDS_MOST = 40.0
"""Of CPU per record at the largest size; some five times what was measured."""


def cpu_seconds(process: int) -> float:
    """Tells how much a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
def test_ten_million_records(spark: Any, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.codegen.wholeStage", "true")
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    spark.conf.set("spark.sql.shuffle.partitions", "16")
    machine = spark._jvm.java.lang.ProcessHandle.current().pid()
    costs = []
    for size in SIZES:
        truth = tally(plant(tmp_path / str(size), size))
        begin, began = cpu_seconds(machine), time.monotonic()
        result = audit(spark, [str(tmp_path / str(size))], grace_seconds=0)
        costs.append(cpu_seconds(machine) - begin)
        octets = sum(path.stat().st_size for path in (tmp_path / str(size)).rglob("*.parquet"))
        print(
            f"{result.records:>12,} records, {octets / result.records:.1f} octets each:"
            f" {costs[-1]:7.1f} s of CPU, {time.monotonic() - began:7.1f} s"
        )
        assert {name: count for name, count in result.verdicts.items() if count} == truth
    slope = (costs[2] - costs[1]) / (SIZES[2] - SIZES[1]) * 1e6
    print(f"{slope:.1f} us of CPU for each further record")
    assert slope < MICROSECONDS_MOST
