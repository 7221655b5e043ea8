"""The audit of at-least-once routes with ``store``: whatever is lost when, it accuses nobody."""

from collections import Counter
from typing import Any

import pyarrow.parquet as pq
import pytest

from router.pipeline.audit import audit
from tests.support.ledgers import START_NS
from tests.support.stored_lives import StoredLife

pytestmark = pytest.mark.long

LIVES = 60
_SIGN = 1 << 64


@pytest.fixture(scope="module")
def judged(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, int, int]]:
    """The verdict on each message, how often it may have been processed, and how often it was."""
    folder = tmp_path_factory.mktemp("lives")
    lives = [StoredLife(seed).run() for seed in range(LIVES)]
    known = {
        key: (life.copies(life.may, message), life.copies(life.surely, message))
        for life in lives
        for key, message in life.ledger(folder / "ledger").items()
    }
    audit(
        spark,
        [str(folder / "ledger")],
        grace_seconds=0,
        deliveries_to=str(folder / "deliveries"),
        now_ns=START_NS,
    )
    columns = ["key_high", "key_low", "verdict"]
    rows = pq.read_table(folder / "deliveries", columns=columns).to_pylist()
    verdicts = {(row["key_high"], row["key_low"]): row["verdict"] for row in rows}
    assert verdicts.keys() == known.keys()
    return [(verdicts[key], *counts) for key, counts in known.items()]


def test_what_is_called_delivered_once_nobody_may_have_processed_twice(
    judged: list[tuple[str, int, int]],
) -> None:
    found = [(may, surely) for verdict, may, surely in judged if verdict == "delivered-once"]
    assert len(found) > 500
    assert {*found} == {(1, 1)}


def test_what_is_called_duplicated_a_target_has_accepted_twice(
    judged: list[tuple[str, int, int]],
) -> None:
    found = [surely for verdict, _, surely in judged if verdict == "duplicated"]
    assert len(found) > 10
    assert min(found) > 1


def test_nothing_is_called_lost_and_what_is_open_or_given_back_no_target_has_accepted(
    judged: list[tuple[str, int, int]],
) -> None:
    verdicts = Counter(verdict for verdict, _, _ in judged)
    assert {*verdicts} == {"delivered-once", "duplicated", "in-doubt", "open", "released"}, verdicts
    assert not [each for each in judged if each[0] in ("open", "released") and each[2]]
