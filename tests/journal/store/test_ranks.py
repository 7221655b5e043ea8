"""The ranks of stored messages: elders go before all others, whatever the priorities."""

import pytest

from router.journal.store.queues import priority_of, rank_of
from router.model.delivery import Elder

MANY = [0, 4, 9, 30, 31, 126, 127, 255]
"""Priorities."""


@pytest.mark.parametrize("elder", Elder)
def test_a_greater_priority_has_no_lower_rank(elder: Elder) -> None:
    ranks = [rank_of(priority, elder) for priority in MANY]
    assert ranks == sorted(ranks)
    assert len(set(ranks[:4])) == 4
    assert 0 <= ranks[0] <= ranks[-1] <= 255
    assert [priority_of(rank) for rank in ranks[:4]] == MANY[:4]


@pytest.mark.parametrize("lower", MANY)
@pytest.mark.parametrize("priority", MANY)
def test_what_is_older_goes_first_whatever_the_priorities(priority: int, lower: int) -> None:
    ranks = [rank_of(priority, elder) for elder in reversed(Elder)]
    others = [rank_of(lower, elder) for elder in reversed(Elder)]
    assert all(rank > other for rank, other in zip(ranks, others[1:], strict=False))
