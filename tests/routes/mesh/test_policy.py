"""What a router may advertise, judged by the receiver."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.routes.match import matches, parse_pattern
from router.routes.mesh.nouns import RouterId
from router.routes.mesh.policy import Policy, covers

TOKENS = ["a", "b", "*", "#"]
PATTERNS = [
    ".".join(tokens) for size in (1, 2, 3, 4) for tokens in itertools.product(TOKENS, repeat=size)
]
ADDRESSES = [
    ".".join(tokens)
    for size in range(1, 7)
    for tokens in itertools.product(["a", "b", "x"], repeat=size)
] + [""]


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ("dc2.#", "dc2.orders.#", True),
        ("dc2.#", "dc2", True),
        ("dc2.#", "#", False),
        ("dc2.#", "*.orders", False),
        ("dc2.*", "dc2.#", False),
        ("*.*.#", "x.#.x", True),
        ("#.x", "x.#.x", True),
        ("*.#", "#.*", True),
        ("*.#", "#", False),
        ("#", "#", True),
    ],
)
def test_a_pattern_covers_another(wide: str, narrow: str, expected: bool) -> None:
    assert covers(parse_pattern(wide), parse_pattern(narrow)) is expected


@given(st.sampled_from(PATTERNS), st.sampled_from(PATTERNS))
def test_covers_says_what_all_short_addresses_say(wide: str, narrow: str) -> None:
    one, other = parse_pattern(wide), parse_pattern(narrow)
    counterexample = any(
        matches(other, address) and not matches(one, address) for address in ADDRESSES
    )
    assert covers(one, other) is not counterexample


def test_a_comparison_that_would_take_long_is_given_up() -> None:
    wide = parse_pattern("#." + ".".join(["a.#"] * 20 + ["*"] * 40) + ".a")
    narrow = parse_pattern("#." + ".".join(["*.#"] * 20 + ["*"] * 60) + ".a")
    assert covers(wide, narrow) in (True, False)


def test_the_policy_of_a_router_comes_before_that_of_others() -> None:
    policy = Policy.parse({"dc2": ("dc2.#",)}, ("shared.#",))
    dc2, dc3 = RouterId("dc2"), RouterId("dc3")
    assert not isinstance(policy.judge_pattern(dc2, "dc2.orders.#"), str)
    assert policy.judge_pattern(dc2, "shared.x") == (
        "the policy does not let dc2 advertise 'shared.x'"
    )
    assert not isinstance(policy.judge_pattern(dc3, "shared.x"), str)
    assert policy.judge_pattern(dc3, "a*") == (
        "pattern 'a*' has a wildcard inside the token 'a*'; it stands alone, as in 'orders.*'"
    )
    assert policy.judge_address(dc2, "dc2.x") is None
    assert policy.judge_address(dc2, "dc3.x") is not None
