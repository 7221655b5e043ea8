"""Deadlines of many connections in one heap.

Theory of operation. A machine reports its next deadline, which moves with nearly every octet: a
heartbeat is due half an interval after the *last* one. Moving a heap entry each time would cost
more than the traffic, so an entry is only ever moved forward in time when it fires too early:

- ``remind(item, when)`` is kept only if it is earlier than what is already kept for the item;
- ``due(now)`` hands out items whose entry has come; the caller asks the item for its true
  deadline, does what is due, and calls ``remind`` again.

An entry that was replaced by an earlier one, or whose item was forgotten, stays in the heap as a
husk without an item; husks are removed when they outnumber the other entries.
"""

import heapq
import itertools
import math
from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar

import attrs

Item = TypeVar("Item")

_SWEEP_AT_LEAST: Final = 64
_HUSK: Final = object()

Entry = list[Any]
"""[when, serial, item]; serials are unique, so items are never compared."""


@attrs.define(eq=False)
class Timers(Generic[Item]):
    """Reminders, at most one live one for each item, which must be hashable."""

    _heap: list[Entry] = attrs.field(factory=list, init=False)
    _live: dict[Item, Entry] = attrs.field(factory=dict, init=False)
    _serials: Iterator[int] = attrs.field(factory=itertools.count, init=False)

    @property
    def next_due(self) -> float:
        """When the next reminder comes; infinity if none is kept. Husks may make it early."""
        return float(self._heap[0][0]) if self._heap else math.inf

    def remind(self, item: Item, when: float) -> bool:
        """Keeps a reminder; false: an earlier one for the item is kept already."""
        kept = self._live.get(item)
        if kept is not None:
            if kept[0] <= when:
                return False
            kept[2] = _HUSK
        self._live[item] = entry = [when, next(self._serials), item]
        heapq.heappush(self._heap, entry)
        if len(self._heap) > _SWEEP_AT_LEAST + 2 * len(self._live):
            self._heap = list(self._live.values())
            heapq.heapify(self._heap)
        return True

    def forget(self, item: Item) -> None:
        """Drops the item's reminder, if it has one."""
        entry = self._live.pop(item, None)
        if entry is not None:
            entry[2] = _HUSK

    def due(self, now: float) -> list[Item]:
        """Removes and returns the items whose reminder is due, earliest first."""
        items: list[Item] = []
        while self._heap and self._heap[0][0] <= now:
            item = heapq.heappop(self._heap)[2]
            if item is not _HUSK:
                del self._live[item]
                items.append(item)
        return items
