import pytest

from router.routes.match import PatternError, capture, parse_pattern
from router.routes.rewrite import check_rename, rename


@pytest.mark.parametrize(
    ("pattern", "target", "address", "expected"),
    [
        ("orders.eu", "orders.europe", "orders.eu", "orders.europe"),
        ("orders.*", "europe.*.new", "orders.eu", "europe.eu.new"),
        ("orders.#", "archive.#", "orders.a/b", "archive.a/b"),
        ("orders.#", "archive.#", "orders", "archive"),
        ("orders.#", "#.archive", "orders", "archive"),
        ("orders.#", "#", "orders", ""),
        ("orders.#", "everything", "orders.eu.1", "everything"),
        ("*.x.*.#", "#/*/*", "a.x.b.c.d", "c.d/a/b"),
        ("*.#.*", "*.*", "a.b.c", "a.c"),
        ("*", "/queues/*", "a", "/queues/a"),
    ],
)
def test_wildcards_of_the_target_take_what_the_pattern_captured(
    pattern: str, target: str, address: str, expected: str
) -> None:
    parsed = parse_pattern(pattern)
    captured = capture(parsed, address)
    assert captured is not None
    check_rename(parsed, target)
    assert rename(parsed, captured, target) == expected


@pytest.mark.parametrize(
    ("pattern", "target"),
    [("orders.eu", "x.*"), ("orders.*", "x.*.*"), ("orders.*", "x.#"), ("a.*", "job#1")],
)
def test_target_that_cannot_be_filled_is_refused(pattern: str, target: str) -> None:
    with pytest.raises(PatternError):
        check_rename(parse_pattern(pattern), target)
