"""A set that costs little while it is empty."""

import sys

from router.model.sparse import SparseSet


def test_it_is_a_set_that_remembers_the_order() -> None:
    items: SparseSet[str] = SparseSet()
    assert not items
    for each in ("b", "a", "b"):
        items.add(each)
    assert list(items) == ["b", "a"]
    assert "a" in items
    items.discard("b")
    items.discard("never there")
    assert [*items] == ["a"]


def test_an_empty_one_takes_a_third_of_a_set() -> None:
    assert sys.getsizeof(SparseSet()) * 3 <= sys.getsizeof(set())
