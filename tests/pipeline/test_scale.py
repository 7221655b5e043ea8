"""The long tier: ten million records, everything planted is found, and the cost is linear."""

import os
import time
from pathlib import Path
from typing import Any

import attrs
import pytest

from router.pipeline.audit import Audit, audit
from tests.support.ledgers import plant, tally

SIZES = (100_000, 1_000_000, 10_000_000)
DAYS = 10
DAY_RECORDS = 200_000
MICROSECONDS_MOST = 40.0
"""Of CPU per record at the largest size; some five times what was measured."""


@attrs.frozen
class Cost:
    """What an audit has used.

    Attributes:
        cpu_seconds: of Spark's JVM.
        resident_octets: the most that it ever had in memory.
        shuffle_octets: written by one stage for another.
    """

    records: int
    cpu_seconds: float
    seconds: float
    resident_octets: int
    shuffle_octets: int

    def __str__(self) -> str:
        return (
            f"{self.records:>12,} records: {self.cpu_seconds:7.1f} s of CPU,"
            f" {self.seconds:7.1f} s, {self.resident_octets / 2**20:6,.0f} MiB resident,"
            f" {self.shuffle_octets / 1e6:8.1f} MB shuffled"
        )


class Meter:
    """Measures audits in a session."""

    def __init__(self, spark: Any) -> None:
        spark.conf.set("spark.sql.codegen.wholeStage", "true")
        spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
        spark.conf.set("spark.sql.shuffle.partitions", "16")
        self.spark = spark
        self._proc = Path(f"/proc/{spark._jvm.java.lang.ProcessHandle.current().pid()}")

    def audit(self, ledger: Path, **options: Any) -> tuple[Audit, Cost]:
        """Audits a ledger, and tells the cost."""
        cpu, shuffled, began = self._cpu_seconds(), self._shuffled(), time.monotonic()
        result = audit(self.spark, [str(ledger)], grace_seconds=0, **options)
        cost = Cost(
            result.records,
            self._cpu_seconds() - cpu,
            time.monotonic() - began,
            self._resident(),
            self._shuffled() - shuffled,
        )
        print(cost, flush=True)
        return result, cost

    def _cpu_seconds(self) -> float:
        fields = (self._proc / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _resident(self) -> int:
        lines = (self._proc / "status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

    def _shuffled(self) -> int:
        executors = self.spark._jsc.sc().statusStore().executorList(True)
        return sum(executors.apply(n).totalShuffleWrite() for n in range(executors.length()))


@pytest.mark.slow
def test_ten_million_records(spark: Any, tmp_path: Path) -> None:
    meter, costs = Meter(spark), []
    for size in SIZES:
        ledger = tmp_path / str(size)
        truth = tally(plant(ledger, size))
        result, cost = meter.audit(ledger)
        costs.append(cost)
        assert {name: count for name, count in result.verdicts.items() if count} == truth
    slope = (costs[2].cpu_seconds - costs[1].cpu_seconds) / (SIZES[2] - SIZES[1]) * 1e6
    print(f"{slope:.1f} us of CPU for each further record")
    assert slope < MICROSECONDS_MOST


@pytest.mark.slow
def test_the_tenth_day_costs_what_the_first_ones_did(spark: Any, tmp_path: Path) -> None:
    meter, costs = Meter(spark), []
    for day in range(DAYS):
        truth = tally(plant(tmp_path / "ledger", DAY_RECORDS, day=day))
        result, cost = meter.audit(tmp_path / "ledger", carry=tmp_path / "carry")
        costs.append(cost)
        so_far = {name: count * (day + 1) for name, count in truth.items()}
        assert {name: count for name, count in result.totals.items() if count} == so_far
        assert result.records == costs[0].records
    first, last = costs[1:4], costs[-3:]
    assert max(c.shuffle_octets for c in last) < 1.5 * min(c.shuffle_octets for c in first)
    assert min(c.cpu_seconds for c in last) < 2 * max(c.cpu_seconds for c in first)
