"""Numbers of attaches (``links.attaches``): the greatest that each link has shown, and our own.

The peers' numbers are kept with their links, and as durably (``terms``). Here they outlive the
links for a while: a late attach that arrives when its link is gone would do no harm, but deliveries
sent on it would be lost.

Ours are drawn for all links of this worker from one count, so they rise for each of them::

    epoch     since when this journal counts; it is put on record with the first draw
    next      the number that comes next
    limit     numbers below it may have been used, as the journal says; the next life begins there

A number goes out when the record that covers it is durable. ``BLOCK`` numbers are covered at a
time, so that an attach rarely waits.
"""

from collections.abc import Callable
from typing import Final
from typing import Protocol as Interface

from router.links.attaches import AttachNumber, next_epoch
from router.links.link import LinkKey

KEPT_LINKS: Final = 4096
"""Links whose numbers are kept though nothing else is left of them."""

BLOCK: Final = 256


class Numbers:
    """The greatest numbers that peers have shown."""

    def __init__(self, is_there: Callable[[LinkKey], bool]) -> None:
        """Begins without numbers.

        Args:
            is_there: returns whether a link is attached or suspended: its number must be kept.
        """
        self._is_there = is_there
        self._greatest: dict[LinkKey, AttachNumber] = {}
        self._sweep_at = 2 * KEPT_LINKS

    def greatest(self, key: LinkKey) -> AttachNumber | None:
        """Returns the greatest number of a link."""
        return self._greatest.get(key)

    def note(self, key: LinkKey, number: AttachNumber | None) -> None:
        """Records the number of an attach that is accepted now, or was in an earlier life."""
        known = self._greatest.pop(key, None)
        if number is None or (known is not None and known > number):
            number = known
        if number is None:
            return
        self._greatest[key] = number
        if len(self._greatest) >= self._sweep_at:
            self._sweep()

    def _sweep(self) -> None:
        """Forgets the oldest numbers of links that are gone."""
        gone = [key for key in self._greatest if not self._is_there(key)]
        for key in gone[: max(0, len(gone) - KEPT_LINKS)]:
            del self._greatest[key]
        self._sweep_at = max(2 * KEPT_LINKS, 2 * len(self._greatest))


class NumberRecords(Interface):
    """The part of the journal that this module uses."""

    def numbers(self, time_ns: int, epoch: int, limit: int) -> int:
        """Records that numbers below a limit may be used; returns the record's sequence number."""


class Count:
    """Draws our own numbers.

    Attributes:
        sequence: of the record that covers what was drawn.
    """

    def __init__(self) -> None:
        self.sequence = 0
        self._epoch: int | None = None
        self._next = 1
        self._limit = 1

    def restore(self, epoch: int, limit: int) -> None:
        """Continues after the numbers that earlier lives may have used."""
        self._epoch, self._next, self._limit = epoch, limit, limit

    def draw(self, records: NumberRecords, now_ns: int) -> AttachNumber:
        """Draws a number; it must not be seen before the record ``sequence`` is durable."""
        if self._epoch is None:
            self._epoch = next_epoch(None, now_ns)
        if self._next >= self._limit:
            self._limit = self._next + BLOCK
            self.sequence = records.numbers(now_ns, self._epoch, self._limit)
        number = AttachNumber(self._epoch, self._next)
        self._next += 1
        return number
