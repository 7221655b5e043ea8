"""What was planted in ledgers is found, all of it, and nothing else is."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import attrs
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from router.cli.main import main
from router.pipeline.audit import Audit, audit
from tests.support.ledgers import EAST, HOLE, WEST, plant, tally

pytestmark = pytest.mark.long


def counted(verdicts: Any) -> dict[str, int]:
    return {name: count for name, count in verdicts.items() if count}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ledger")


@pytest.fixture(scope="module")
def planted(ledger: Path) -> list[Any]:
    return plant(ledger, 10_000)


@pytest.fixture(scope="module")
def result(spark: Any, ledger: Path, planted: list[Any]) -> Audit:
    return audit(
        spark, [str(ledger)], grace_seconds=0, deliveries_to=str(ledger.parent / "deliveries")
    )


def test_everything_planted_is_found_and_nothing_else(result: Audit, planted: list[Any]) -> None:
    assert counted(result.verdicts) == tally(planted)
    assert result.failures == tally(planted)["lost"] + tally(planted)["duplicated"]


def test_every_delivery_gets_the_verdict_of_its_story(
    result: Audit, planted: list[Any], ledger: Path
) -> None:
    rows = pq.read_table(ledger.parent / "deliveries", columns=["key_low", "verdict"]).to_pylist()
    verdict_of = {row["key_low"]: row["verdict"] for row in rows}
    wrong = [
        (each.story, each.verdict, got)
        for each in planted
        for number in range(each.first, each.first + each.count)
        if (got := verdict_of.pop(number)) != each.verdict
    ]
    assert not wrong
    assert not verdict_of


def test_missing_records_are_named(result: Audit, planted: list[Any]) -> None:
    missing = next(each.count for each in planted if each.story == HOLE)
    (hole,) = result.holes
    assert (hole.router, hole.last - hole.first + 1) == (EAST, missing)


def test_offenders_come_with_their_history(result: Audit) -> None:
    twice = next(each for each in result.offenders if each.verdict == "duplicated")
    assert re.fullmatch("[0-9a-f]{32}", twice.key)
    assert "received" in twice.history[0].text
    assert sum("outcome accepted" in event.text for event in twice.history) >= 2
    assert {each.verdict for each in result.offenders} == {
        "lost",
        "duplicated",
        "in-doubt",
        "ledger-gap",
    }


def test_latencies_are_told_by_route_and_places(result: Audit) -> None:
    places = {(f.address, f.source, f.from_router, f.target, f.to_router) for f in result.flows}
    assert ("orders", "shop", EAST, "store-a", EAST) in places
    straight = next(f for f in result.flows if f.to_router == EAST and f.target == "store-a")
    assert straight.milliseconds[0] == 2
    assert straight.octets == 100 * straight.deliveries
    assert result.routers == (EAST, WEST)


def test_a_second_audit_reads_only_what_is_new_and_comes_to_the_same(
    spark: Any, tmp_path: Path, ledger: Path, planted: list[Any]
) -> None:
    growing, carry = tmp_path / "ledger", tmp_path / "carry"
    verdicts: dict[str, int] = {}
    read = 0
    result = None
    for number in ("[12]", "[34]"):
        for path in sorted(ledger.glob(f"date=*/router=*/{'0' * 15}{number}-*.parquet")):
            copy = growing / path.relative_to(ledger)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
        result = audit(spark, [str(growing)], carry=carry, grace_seconds=1)
        assert result.files == 4
        read += result.records
        for name, count in result.verdicts.items():
            verdicts[name] = verdicts.get(name, 0) + count
    result = audit(spark, [str(growing)], carry=carry, grace_seconds=0)
    assert result.files == 0
    for name in result.verdicts:
        verdicts[name] += result.verdicts[name] + result.carried[name]
    assert counted(verdicts) == tally(planted)
    assert result.carried["open"] + result.carried["in-doubt"] > 0
    rows = sum(pq.ParquetFile(path).metadata.num_rows for path in ledger.rglob("*.parquet"))
    assert read == rows - 8, "all but the names of the eight links"


def test_routers_that_do_not_share_keys_have_deliveries_of_their_own(
    spark: Any, tmp_path: Path
) -> None:
    from tests.support import ledgers

    story = ledgers.STORIES["over two routers"]
    halves = {
        router: attrs.evolve(story, share=1.0, steps=[s for s in story.steps if s[1] == router])
        for router in (EAST, WEST)
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledgers, "STORIES", halves)
        plant(tmp_path, 800, has_gap=False)
    result = audit(spark, [str(tmp_path)], grace_seconds=0)
    assert counted(result.verdicts) == {"delivered-once": 200}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["audit", *arguments])


def test_the_command_ends_with_1_when_something_was_lost_and_writes_the_report(
    spark: Any, ledger: Path, planted: list[Any], tmp_path: Path
) -> None:
    told = run(str(ledger), "--grace", "0", "--out", str(tmp_path / "out"), "--html")
    assert told.exit_code == 1, told.output
    truth = tally(planted)
    assert re.search(rf"^  lost +{truth['lost']}$", told.output, re.MULTILINE)
    assert json.loads((tmp_path / "out/audit.json").read_text())["verdicts"]["lost"]
    page = (tmp_path / "out/audit.html").read_text()
    assert page.count("<svg") == 4
    assert "store-b" in page
    assert not re.search(r"(src|href)=|@import|url\(", page), "it needs no network"


def test_the_command_ends_with_0_when_all_is_well(spark: Any, tmp_path: Path) -> None:
    from tests.support import ledgers

    good = {"plain": attrs.evolve(ledgers.STORIES["plain"], share=1.0)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledgers, "STORIES", good)
        plant(tmp_path, 100, has_gap=False)
    told = run(str(tmp_path), "--json")
    assert told.exit_code == 0, told.output
    assert counted(json.loads(told.output)["verdicts"]) == {"delivered-once": 25}


def test_days_can_be_chosen_and_a_ledger_without_them_is_refused(
    spark: Any, ledger: Path, planted: list[Any], tmp_path: Path
) -> None:
    assert run(str(ledger), "--until", "2020-01-01").exit_code == 1
    assert "nothing in the ledger" in run(str(ledger), "--since", "2030-01-01").output
    assert "no ledger here" in run(f"file:{tmp_path}/none").output
