"""Every order of events between two sites and the ones between: see ``tests/support/chain_model``.

``core/mesh/chains.py`` has the rules. For each there is a test in which it is broken, and something
is lost, doubled, or told twice.
"""

from typing import Any

import pytest

from router.model.outcome import ACCEPTED, REJECTED, RELEASED
from tests.support.attach_model import explore
from tests.support.chain_model import Paths, Rules
from tests.support.journal_model import Violation

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(3600)]

OUTCOMES = (ACCEPTED, REJECTED, RELEASED)


@pytest.mark.parametrize(
    "misfortunes",
    [
        {"cuts": 1},
        {"egress_crashes": 1},
        {"ingress_crashes": 1},
        {"attaches": 2, "cuts": 1, "egress_crashes": 1, "ingress_crashes": 1},
        {"attaches": 2, "cuts": 1, "outcomes": OUTCOMES, "parts": 2},
        {"attaches": 2, "has_standby": True, "cuts": 1},
        {"attaches": 2, "deliveries": 2},
    ],
    ids=str,
)
def test_no_delivery_is_lost_or_doubled_and_each_ends_or_is_in_doubt(
    misfortunes: dict[str, Any],
) -> None:
    explored = explore(Paths(Rules(**misfortunes)))
    assert explored.rests > 0, "nothing comes through"
    assert explored.states > 100


@pytest.mark.slow
@pytest.mark.parametrize(
    "misfortunes",
    [
        {"attaches": 4, "cuts": 1, "egress_crashes": 1, "ingress_crashes": 1},
        {"cuts": 1, "egress_crashes": 1, "outcomes": OUTCOMES, "parts": 2},
        {"attaches": 4, "has_standby": True, "egress_crashes": 1},
        {"deliveries": 2, "cuts": 1, "ingress_crashes": 1},
    ],
    ids=str,
)
def test_the_same_with_more_of_everything(misfortunes: dict[str, Any]) -> None:
    assert explore(Paths(Rules(**misfortunes))).rests > 0


@pytest.mark.parametrize(
    ("broken", "misfortunes", "invariant"),
    [
        ("numbers_attaches", {}, "NoDuplicate"),
        ("keeps_number", {"egress_crashes": 1}, "NoDuplicate"),
        ("raises_epoch", {"has_standby": True}, "NoDuplicate"),
        ("binds", {"ingress_crashes": 1, "attaches": 2}, "NoDuplicate"),
        ("waits_for_answer", {}, "SettleOnce"),
        ("detaches_older", {}, "NoDuplicate"),
        ("settles_last", {"attaches": 2}, "NoDuplicate"),
        ("never_expires", {"cuts": 1, "attaches": 2}, "NoDuplicate"),
        ("waits_for_egress", {"cuts": 1, "attaches": 2}, "NoDuplicate"),
        ("transit_is_dumb", {"cuts": 1}, "NoDuplicate"),
        ("believes_present_answer", {}, "SettleOnce"),
    ],
)
def test_each_rule_is_needed(broken: str, misfortunes: dict[str, Any], invariant: str) -> None:
    with pytest.raises(Violation, match=invariant):
        explore(Paths(Rules(**(misfortunes | {broken: False}))))
