"""The express lane's kernel against the general path of engine and core, which is the reference."""

import pytest

from tests.support.kernel import needs_kernel
from tests.support.lane_conversations import Kind, converse

pytestmark = needs_kernel

KINDS: tuple[Kind, ...] = ("lines", "fans", "crowds")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", range(12))
def test_peers_hear_the_same_whether_deliveries_go_by_the_lane_or_not(
    kind: Kind, block: int
) -> None:
    carried = sum(converse(seed, 60, kind) for seed in range(block * 4, block * 4 + 4))
    assert carried > 0, "the lane was not tried"


def test_what_passes_the_lane_twice_in_a_turn_goes_back_in_its_order() -> None:
    """Two batches that the core judged, then some on the lane; the receiver gives all back."""
    assert converse(1186, 150, "lines") > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", range(10))
def test_peers_hear_the_same_in_many_long_conversations(kind: Kind, block: int) -> None:
    for seed in range(1000 + block * 50, 1050 + block * 50):
        converse(seed, 150, kind)
