"""What was carried, between whom, when; in a batch and as files arrive."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from router.cli.main import main
from router.pipeline.traffic import summarize
from tests.support.ledgers import EAST, STORIES, WEST, plant

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ledger")


@pytest.fixture(scope="module")
def planted(ledger: Path) -> list[Any]:
    return plant(ledger, 5_000, has_gap=False)


def test_the_matrix_holds_every_delivery_once(spark: Any, ledger: Path, planted: list[Any]) -> None:
    traffic = summarize(spark, [str(ledger)], seconds=600)
    taken = sum(each.count for each in planted if each.verdict != "continued")
    assert sum(cell.deliveries for cell in traffic.matrix) == taken
    assert sum(cell.octets for cell in traffic.matrix) == 100 * taken
    across = next(cell for cell in traffic.matrix if cell.to_site == WEST)
    assert (across.from_site, across.source, across.target) == (EAST, "shop", "store-c")
    stories = {"over two routers", "settled on send over two routers"}
    over = sum(each.count for each in planted if each.story in stories)
    assert (across.deliveries, across.delivered) == (over, over)
    assert across.milliseconds[0] == 4
    assert sum(span.deliveries for span in traffic.spans) == taken
    assert len(traffic.spans) in (6, 7)
    assert traffic.talkers[0].container == "shop"
    assert {talker.direction for talker in traffic.talkers} == {"sends", "receives"}


def test_minutes_are_counted_as_files_arrive_and_bad_ones_are_told(
    spark: Any, ledger: Path, planted: list[Any], tmp_path: Path
) -> None:
    told = CliRunner().invoke(
        main,
        [
            *("traffic", str(ledger), "--follow", "--once", "--alert", "1"),
            *("--out", str(tmp_path / "minutes"), "--checkpoint", str(tmp_path / "checkpoint")),
        ],
    )
    assert told.exit_code == 0, told.output
    minutes = pq.read_table(tmp_path / "minutes").to_pylist()
    received = sum(row["received"] for row in minutes if row["router"] == EAST)
    taken = sum(each.count for each in planted if each.verdict != "continued")
    assert 0.7 * taken < received < taken, "the last ten minutes wait for the watermark"
    alerts = [json.loads(line) for line in told.output.splitlines() if "traffic.alert" in line]
    assert alerts
    assert all(each["rejected"] + each["in_doubt"] > 0 for each in alerts)
    assert STORIES["refused"].verdict == "rejected"
