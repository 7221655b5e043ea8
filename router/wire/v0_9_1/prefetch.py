"""How much a consumer has room for: 0-9-1's prefetch."""

from typing import Final

import attrs

UNBOUNDED_ROOM: Final = 1000
"""Room of a consumer that set no prefetch: what is under way to it is bounded by this alone, and
what it may leave unacknowledged by nothing."""


@attrs.define(eq=False)
class Window:
    """A prefetch: how many deliveries may be unacknowledged.

    Attributes:
        limit: 0: no limit.
        used: deliveries not acknowledged.
    """

    limit: int = 0
    used: int = 0

    @property
    def room(self) -> int:
        """How many more may go out."""
        return self.limit - self.used if self.limit else UNBOUNDED_ROOM
