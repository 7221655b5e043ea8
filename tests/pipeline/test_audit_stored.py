"""The audit of at-least-once routes with ``store``: whatever is lost when, it accuses nobody."""

from collections import Counter
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from router.pipeline.audit import audit
from tests.support.ledgers import START_NS
from tests.support.stored_lives import StoredLife

pytestmark = pytest.mark.long

LIVES = 60
_SIGN = 1 << 64


class Judged(NamedTuple):
    """What the audit says of a message, and what is so.

    Attributes:
        may: how often a receiver may have processed it.
        surely: how often it has accepted it.
        is_multicast: each target is to get it.
    """

    verdict: str
    may: int
    surely: int
    is_multicast: bool


@pytest.fixture(scope="module")
def judged(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Judged]:
    """The verdict on each message, and the truth."""
    folder = tmp_path_factory.mktemp("lives")
    lives = [StoredLife(seed).run() for seed in range(LIVES)]
    known = {
        key: (life.copies(life.may, message), life.copies(life.surely, message), life.is_multicast)
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
    return [Judged(verdicts[key], *truth) for key, truth in known.items()]


def test_what_is_called_delivered_once_nobody_may_have_processed_twice(
    judged: list[Judged],
) -> None:
    found = [each for each in judged if each.verdict == "delivered-once"]
    assert len(found) > 500
    assert {(each.may, each.surely) for each in found} == {(1, 1)}


def test_what_is_called_duplicated_a_target_has_accepted_twice(judged: list[Judged]) -> None:
    found = [each.surely for each in judged if each.verdict == "duplicated"]
    assert len(found) > 10
    assert min(found) > 1


def test_nothing_is_called_lost_and_what_is_open_or_given_back_no_target_has_accepted(
    judged: list[Judged],
) -> None:
    """A multicast is open as long as nothing tells how it ended at one of its targets."""
    verdicts = Counter(each.verdict for each in judged)
    assert {*verdicts} == {"delivered-once", "duplicated", "in-doubt", "open", "released"}, verdicts
    accepted = [each for each in judged if each.verdict in ("open", "released") and each.surely]
    assert all(each.is_multicast and each.verdict == "open" for each in accepted)
