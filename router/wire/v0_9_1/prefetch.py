"""The capacity of a consumer: 0-9-1's prefetch (basic.qos)."""

from typing import Final

import attrs

UNBOUNDED_CAPACITY: Final = 1000
"""Capacity of a consumer without a prefetch: bounds the deliveries under way to it.

The number of deliveries that it may leave unacknowledged is not bounded.
"""


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
    def capacity(self) -> int:
        """Number of deliveries that may still be sent."""
        return self.limit - self.used if self.limit else UNBOUNDED_CAPACITY
