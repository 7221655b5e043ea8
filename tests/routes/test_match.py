import time
from functools import cmp_to_key

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.routes.match import (
    MAX_ADDRESS_CHARACTERS,
    Pattern,
    PatternError,
    PatternTree,
    Wildcard,
    capture,
    describe_advantage,
    equal_patterns,
    parse_pattern,
)


def tree(*patterns: str) -> PatternTree:
    return PatternTree([parse_pattern(pattern) for pattern in patterns])


def winner(address: str, *patterns: str) -> str | None:
    index = tree(*patterns).find(address)
    return None if index is None else patterns[index]


# The naive matcher: the contract's sentences, word by word, with no thought of cost.


def naively_matches(pattern: list[str], address: list[str]) -> bool:
    if not pattern:
        return not address
    head, *rest = pattern
    if head == "#":
        return any(naively_matches(rest, address[n:]) for n in range(len(address) + 1))
    return bool(address) and head in ("*", address[0]) and naively_matches(rest, address[1:])


def naively_compare(first: str, second: str) -> int:
    ours, theirs = tokens(first), tokens(second)
    for place in range(max(len(ours), len(theirs)) + 1):
        kinds = [naive_kind(each, place) for each in (ours, theirs)]
        if kinds[0] != kinds[1]:
            return kinds[0] - kinds[1]
    return 0


def naive_kind(pattern: list[str], place: int) -> int:
    if place >= len(pattern):
        return 2
    return {"*": 1, "#": 3}.get(pattern[place], 0)


def tokens(text: str) -> list[str]:
    return text.replace("/", ".").split(".") if text else []


def naive_order(address: str, patterns: list[str]) -> list[str]:
    matching = [p for p in patterns if naively_matches(tokens(p), tokens(address))]
    return sorted(matching, key=cmp_to_key(naively_compare))


token = st.sampled_from(["a", "b", "c", ""])
separator = st.sampled_from([".", "/"])


def joined(parts: list[str], separators: list[str]) -> str:
    return "".join(s + p for s, p in zip(separators, parts, strict=False))[1:]


addresses = st.builds(
    joined, st.lists(token, max_size=7), st.lists(separator, min_size=7, max_size=7)
)
pattern_texts = st.builds(
    joined,
    st.lists(st.sampled_from(["a", "b", "", "*", "#", "#"]), min_size=1, max_size=6),
    st.lists(separator, min_size=6, max_size=6),
).filter(bool)


def without_equals(texts: list[str]) -> list[str]:
    repeated = {second for _, second in equal_patterns([parse_pattern(text) for text in texts])}
    return [text for index, text in enumerate(texts) if index not in repeated]


@settings(max_examples=600, deadline=None)
@given(st.lists(pattern_texts, max_size=12).map(without_equals), st.lists(addresses, min_size=1))
def test_tree_finds_what_the_naive_matcher_finds(texts: list[str], looked_up: list[str]) -> None:
    found = PatternTree([parse_pattern(text) for text in texts])
    for address in looked_up:
        expected = naive_order(address, texts)
        assert [texts[index] for index in found.find_all(address)] == expected
        index = found.find(address)
        assert (None if index is None else texts[index]) == (expected[0] if expected else None)


@settings(max_examples=600, deadline=None)
@given(pattern_texts, addresses.filter(lambda address: "" not in tokens(address)))
def test_captures_put_back_into_the_pattern_give_the_address(text: str, address: str) -> None:
    pattern = parse_pattern(text)
    captured = capture(pattern, address)
    assert (captured is not None) == naively_matches(tokens(text), tokens(address))
    if captured is None:
        return
    remaining = iter(captured)
    rebuilt: list[str] = []
    for each in pattern.tokens:
        if each is Wildcard.MANY:
            rebuilt += tokens(next(remaining))
        else:
            rebuilt.append(next(remaining) if each is Wildcard.ONE else str(each))
    assert rebuilt == tokens(address)
    assert next(remaining, None) is None


@settings(max_examples=300, deadline=None)
@given(pattern_texts, pattern_texts, st.lists(addresses, min_size=20, max_size=40))
def test_equal_patterns_match_the_same_addresses(
    first: str, second: str, looked_up: list[str]
) -> None:
    if equal_patterns([parse_pattern(first), parse_pattern(second)]):
        for address in looked_up:
            assert naively_matches(tokens(first), tokens(address)) == naively_matches(
                tokens(second), tokens(address)
            )


@pytest.mark.parametrize(
    ("address", "patterns", "expected"),
    [
        ("orders.eu", ("orders.#", "orders.*", "orders.eu"), "orders.eu"),
        ("orders.us", ("orders.#", "orders.*", "orders.eu"), "orders.*"),
        ("orders.us.1", ("orders.#", "orders.*", "orders.eu"), "orders.#"),
        ("orders", ("orders.#", "#"), "orders.#"),
        ("", ("#", "*"), "#"),
        ("x", ("#", "*"), "*"),
        ("a.b", ("*.b", "a.*"), "a.*"),
        ("a.b", ("*.b", "a.#"), "a.#"),
        ("a.b.c", ("*.b.c", "#.c"), "*.b.c"),
        ("a", ("a.#", "a"), "a"),
        ("x.a", ("*.a.#", "*.a"), "*.a"),
        ("a.x.b", ("a.#", "a.#.b"), "a.#.b"),
        ("a/b", ("a.b",), "a.b"),
        ("a.b", ("a/*",), "a/*"),
        ("/queues/orders", ("/queues/*", "#"), "/queues/*"),
        ("a.b", ("a", "b", "*", "a.b.*"), None),
    ],
)
def test_most_specific_pattern_wins(
    address: str, patterns: tuple[str, ...], expected: str | None
) -> None:
    assert winner(address, *patterns) == expected
    assert winner(address, *reversed(patterns)) == expected


def test_equally_specific_patterns_go_by_the_order_of_writing() -> None:
    assert winner("b.a", "#.a.#", "#.b.#") == "#.a.#"
    assert winner("b.a", "#.b.#", "#.a.#") == "#.b.#"


@pytest.mark.parametrize(
    ("first", "second"),
    [("a.b", "a.b"), ("a.b", "a/b"), ("#.*", "*.#"), ("a.#.#", "a.#"), ("#.*.*", "*.#.*")],
)
def test_equal_patterns_are_refused(first: str, second: str) -> None:
    with pytest.raises(PatternError, match="equals"):
        tree(first, second)


@pytest.mark.parametrize("text", ["", "a*", "a.b#", "x" * (MAX_ADDRESS_CHARACTERS + 1)])
def test_bad_patterns_are_refused(text: str) -> None:
    with pytest.raises(PatternError):
        parse_pattern(text)


@pytest.mark.parametrize(
    ("pattern", "address", "captured"),
    [
        ("orders.*", "orders.eu", ("eu",)),
        ("orders.#", "orders.a/b.c", ("a/b.c",)),
        ("orders.#", "orders", ("",)),
        ("#.x.#", "a.x.b.x.c", ("a", "b.x.c")),
        ("#.*", "a.b.c", ("a.b", "c")),
        ("a.b", "a.b", ()),
        ("a.b", "a.c", None),
        ("#.a.b", "a", None),
    ],
)
def test_wildcards_capture(pattern: str, address: str, captured: tuple[str, ...] | None) -> None:
    assert capture(parse_pattern(pattern), address) == captured


@pytest.mark.parametrize("user", ["#", "*", "a.#", "alice.smith"])
def test_user_name_in_a_pattern_is_literal_text(user: str) -> None:
    pattern = parse_pattern("replies.${user}.*", user=user)
    mine = PatternTree([pattern])
    assert mine.find(f"replies.{user}.1") == 0
    assert mine.find("replies.bob.1") is None
    assert capture(pattern, f"replies.{user}.1") == ("1",)


def test_advantage_is_told_in_words() -> None:
    first, second = parse_pattern("orders.eu"), parse_pattern("orders.*")
    assert describe_advantage(first, second) == "literal 'eu' before '*' at token 2"
    assert describe_advantage(parse_pattern("a"), parse_pattern("a.#")) == (
        "the end before '#' at token 2"
    )


def seconds_for(found: PatternTree, address: str) -> float:
    begin = time.process_time()
    found.find(address)
    found.find_all(address)
    return time.process_time() - begin


@pytest.mark.parametrize(
    "address",
    [
        ".".join(["a"] * 2000),
        ".".join(["a", "b"] * 1000),
        "." * 4000,
        "a." * 1999 + "b",
    ],
)
def test_hostile_address_costs_no_more_than_tokens_times_nodes(address: str) -> None:
    deep = [".".join(["#", "a"] * depth) + ".z" for depth in range(1, 60)]
    deep += [".".join(["#", "*", "b"] * depth) + ".z" for depth in range(1, 40)]
    found = tree(*deep)
    assert found.find(address) is None
    # An exponential search would not end at all; the bound has a hundredfold margin.
    assert seconds_for(found, address) < 5


def test_capture_of_a_hostile_address_is_quick() -> None:
    pattern = parse_pattern(".".join(["#", "a"] * 100) + ".z")
    begin = time.process_time()
    assert capture(pattern, ".".join(["a"] * 2000)) is None
    assert time.process_time() - begin < 5


def test_overlong_address_matches_nothing() -> None:
    everything = tree("#")
    assert everything.find("a" * MAX_ADDRESS_CHARACTERS) == 0
    assert everything.find("a" * (MAX_ADDRESS_CHARACTERS + 1)) is None
    assert everything.find_all("a" * (MAX_ADDRESS_CHARACTERS + 1)) == []


class CountingNodes(PatternTree):
    """Counts how many nodes a search has visited."""

    def visited(self, address: str) -> int:
        import sys

        count = 0

        def trace(frame: object, event: str, argument: object) -> None:
            nonlocal count
            count += event == "c_call" and getattr(argument, "__name__", "") == "pop"

        sys.setprofile(trace)
        try:
            self.find(address)
        finally:
            sys.setprofile(None)
        return count


def test_work_of_a_search_is_flat_in_the_number_of_routes() -> None:
    def visits(routes: int) -> int:
        patterns = [f"region{n % 97}.site{n}.*.#" for n in range(routes)]
        many = CountingNodes([parse_pattern(p) for p in (*patterns, "region1.*.alarms", "#")])
        return many.visited("region1.site1.temperature.now")

    assert visits(10) == visits(10_000)


def test_pattern_shows_its_text() -> None:
    assert str(Pattern("a.*", ("a", Wildcard.ONE))) == "a.*"
