"""Work in slices: nothing that others cause makes this router busy for more than 2 ms at once.

Machines do what may be long as generators that yield the units they have used (one is some 10
microseconds). Work is done in the order in which it came; what is left when a slice is used up
waits for the next call, and the machine's deadline is at once.
"""

from collections import deque
from collections.abc import Iterator

import attrs


@attrs.define(eq=False)
class Work:
    """What is still to be done, in order."""

    _waiting: deque[Iterator[int]] = attrs.field(factory=deque, init=False)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, work: Iterator[int]) -> None:
        """Adds work behind all other."""
        self._waiting.append(work)

    def run(self, units: int) -> int:
        """Works until a number of units is used, or nothing is left.

        Returns:
            The units that are left; negative or 0: the slice is used up.
        """
        while units > 0 and self._waiting:
            try:
                units -= next(self._waiting[0])
            except StopIteration:
                self._waiting.popleft()
        return units
