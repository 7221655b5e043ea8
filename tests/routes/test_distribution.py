import itertools
from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.model.condition import Condition
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    MODIFIED_UNDELIVERABLE,
    REJECTED,
    RELEASED,
    Modified,
    Outcome,
    Rejected,
)
from router.routes.distribution import merge_outcomes
from router.routes.route import Distribution
from tests.support.balanced import balanced, choose, closest, multicast


@attrs.define(kw_only=True)
class Link:
    name: str = ""
    credit: int = 10
    unsettled: int = 0
    last_used: int = 0
    cost: int = 0
    elsewhere: int = 0
    receivers: int = 1

    @property
    def load(self) -> int:
        return (self.unsettled + self.elsewhere) // self.receivers


links = st.lists(
    st.builds(
        Link,
        credit=st.integers(-1, 2),
        unsettled=st.integers(0, 2),
        last_used=st.integers(0, 3),
        cost=st.integers(0, 2),
        elsewhere=st.integers(0, 2),
        receivers=st.integers(1, 3),
    ),
    max_size=6,
)


def test_balanced_prefers_the_fewest_unsettled() -> None:
    few, many = Link(unsettled=1, last_used=9), Link(unsettled=2)
    assert balanced([many, few]) is few


def test_balanced_takes_a_link_to_several_receivers_for_as_many() -> None:
    near, far = Link(unsettled=4), Link(unsettled=7, elsewhere=2, receivers=3)
    assert balanced([near, far]) is far
    far.elsewhere = 8
    assert balanced([near, far]) is near


def test_balanced_leaves_out_links_without_credit() -> None:
    dry, able = Link(credit=0), Link(unsettled=99)
    assert balanced([dry, able]) is able
    assert balanced([dry]) is None


def test_balanced_ties_go_to_the_least_recently_used() -> None:
    three = [Link(name=name) for name in "abc"]
    served = []
    for turn in range(1, 7):
        chosen = balanced(three)
        assert chosen is not None
        chosen.last_used = turn
        served.append(chosen.name)
    assert "".join(served) == "abcabc"


@given(links)
def test_balanced_is_the_smallest_key_in_order(candidates: list[Link]) -> None:
    able = [each for each in candidates if each.credit > 0]
    expected = min(able, key=lambda each: (each.load, each.last_used), default=None)
    assert balanced(candidates) is expected


@given(links)
def test_closest_is_the_smallest_key_in_order(candidates: list[Link]) -> None:
    able = [each for each in candidates if each.credit > 0]
    key = [(each.cost, each.load, each.last_used) for each in able]
    expected = able[key.index(min(key))] if able else None
    assert closest(candidates) is expected


def test_multicast_waits_for_the_slowest() -> None:
    ready, dry = Link(), Link(credit=0)
    assert multicast([ready, ready]) == [ready, ready]
    assert not multicast([ready, dry])


@pytest.mark.parametrize(
    ("distribution", "chosen"),
    [
        (Distribution.BALANCED, ["far"]),
        (Distribution.CLOSEST, ["near"]),
        (Distribution.MULTICAST, ["near", "far"]),
    ],
)
def test_choice_follows_the_distribution(distribution: Distribution, chosen: list[str]) -> None:
    candidates = [Link(name="near", unsettled=5), Link(name="far", cost=1)]
    assert [each.name for each in choose(distribution, candidates)] == chosen
    assert not choose(distribution, [])


BY_RANK: Sequence[tuple[Outcome, ...]] = (
    (REJECTED, Rejected(Condition("amqp:not-found"))),
    (ACCEPTED,),
    (MODIFIED_FAILED, MODIFIED_UNDELIVERABLE),
    (RELEASED,),
)


@given(st.lists(st.sampled_from([outcome for rank in BY_RANK for outcome in rank]), min_size=1))
def test_worst_news_wins_among_multicast_outcomes(outcomes: list[Outcome]) -> None:
    kinds = [type(rank[0]) for rank in BY_RANK]
    present = min(kinds.index(type(outcome)) for outcome in outcomes)
    assert type(merge_outcomes(outcomes)) is kinds[present]


def test_first_rejection_gives_the_error() -> None:
    first, second = Rejected(Condition("a")), Rejected(Condition("b"))
    assert merge_outcomes([ACCEPTED, first, second]) is first


def test_no_outcome_at_all_is_released() -> None:
    assert merge_outcomes([]) == RELEASED


def test_modified_outcomes_are_joined() -> None:
    first = Modified(undeliverable_here=True, message_annotations={"x": 1, "y": 1})
    second = Modified(delivery_failed=True, undeliverable_here=True, message_annotations={"y": 2})
    joined = Modified(True, True, {"x": 1, "y": 2})
    assert merge_outcomes([first, second]) == joined
    three: list[Outcome] = [first, second, RELEASED]
    for outcomes in itertools.permutations(three):
        merged = merge_outcomes(outcomes)
        assert isinstance(merged, Modified)
        assert merged.delivery_failed
        assert not merged.undeliverable_here
