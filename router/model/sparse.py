"""A set that is nearly always empty."""

from typing import TypeVar

Item = TypeVar("Item")


class SparseSet(dict[Item, None]):
    """A set of which each link, session or node has one, though few ever use it.

    While it is empty it takes 64 octets, an empty ``set`` 216. It remembers the order of its items.
    """

    __slots__ = ()

    def add(self, item: Item) -> None:
        """Adds an item, unless it is there."""
        self[item] = None

    def discard(self, item: Item) -> None:
        """Removes an item, if it is there."""
        self.pop(item, None)
