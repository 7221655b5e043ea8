"""Clocks are compared by what routers handed to each other."""

from hypothesis import given
from hypothesis import strategies as st

from router.pipeline.clocks import APART_NS, Handovers, clocks_of, merge_handovers


def shown(
    sender: str, receiver: str, most_ns: int | None = None, least_ns: int | None = None
) -> Handovers:
    return Handovers(
        sender=sender,
        receiver=receiver,
        has_sent=True,
        has_received=True,
        has_shared=True,
        most_ns=most_ns,
        least_ns=least_ns,
    )


@given(
    st.integers(-APART_NS, APART_NS),
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=1),
)
def test_the_offset_lies_within_the_bounds_that_transfers_and_outcomes_give(
    offset_ns: int, transits: list[tuple[int, int]]
) -> None:
    merged = merge_handovers(
        [shown("a", "b", offset_ns + there, offset_ns - back) for there, back in transits]
    )
    least, most = merged["a", "b"].offset_ns
    assert least <= offset_ns <= most
    clock = clocks_of(["a", "b"], merged)["b"]
    assert abs(clock.ahead_ns - offset_ns) <= clock.within_ns


def test_clocks_are_compared_over_other_routers() -> None:
    pairs = merge_handovers([shown("a", "b", 100, 80), shown("c", "b", 10, 4)])
    clocks = clocks_of(["a", "b", "c", "d"], pairs)
    assert (clocks["c"].reference, clocks["c"].ahead_ns, clocks["c"].within_ns) == ("a", 83, 13)
    assert (clocks["d"].reference, clocks["d"].ahead_ns) == ("d", 0)


def test_clocks_that_may_agree_are_taken_to_agree() -> None:
    clock = clocks_of(["a", "b"], merge_handovers([shown("a", "b", 10, -200)]))["b"]
    assert (clock.ahead_ns, clock.within_ns) == (0, 200)


def test_a_clock_that_was_set_meanwhile_may_be_anywhere_between() -> None:
    assert shown("a", "b", -500, 300).offset_ns == (-500, 300)


def test_clocks_of_which_nothing_is_known_may_be_an_hour_apart() -> None:
    assert Handovers(sender="a", receiver="b").offset_ns == (-APART_NS, APART_NS)


def test_routers_that_share_no_key_are_strangers_unless_both_trust_the_other() -> None:
    one = Handovers(sender="a", receiver="b", has_sent=True, is_trusting=True)
    other = Handovers(sender="a", receiver="b", has_received=True)
    assert not one.are_strangers
    assert one.merged(other).are_strangers
    trusted = Handovers(sender="a", receiver="b", has_received=True, is_trusted=True)
    assert not one.merged(trusted).are_strangers
    shared = Handovers(sender="a", receiver="b", has_shared=True)
    assert not one.merged(other).merged(shared).are_strangers
