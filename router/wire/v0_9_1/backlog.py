"""The line of deliveries that wait in a queue, and which of them must go.

Theory of operation. When a message's time ends is worked out when it is found waiting at the end of
a turn (``look``), so what goes straight on to a consumer costs nothing, and the clock is that of
the turn: the engine's own stands still between calls. As with RabbitMQ's queues, what has ended
goes when it stands at the head of the line.
"""

import math
from collections import deque
from collections.abc import Iterator
from typing import Final, TypeAlias

from router.errors import TranslationError
from router.model.capabilities import Protocol
from router.model.delivery import OutgoingDelivery
from router.wire import hub
from router.wire.v0_9_1 import content as contents
from router.wire.v0_9_1.limits import Limits
from router.wire.v0_9_1.outlets import Outlet

NEW: Final = -1.0
"""The time of what nobody has looked at."""

Waiting: TypeAlias = tuple[Outlet, OutgoingDelivery, float]
"""A delivery in a queue, with the link that brought it and when its time ends."""


class Backlog(deque[Waiting]):
    """What waits in one queue, the oldest first."""

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self._limits = limits

    @property
    def ends_at(self) -> float:
        """When the time of the oldest ends."""
        return self[0][2] if self else math.inf

    def look(self, now: float) -> None:
        """Works out when the time of what is new ends; that is at either end of the line."""
        fresh = []
        while self and self[-1][2] == NEW:
            outlet, delivery, _ = self.pop()
            fresh.append((outlet, delivery, self._end_of(delivery, now)))
        self.extend(reversed(fresh))
        fresh = []
        while self and self[0][2] == NEW:
            outlet, delivery, _ = self.popleft()
            fresh.append((outlet, delivery, self._end_of(delivery, now)))
        self.extendleft(reversed(fresh))

    def _end_of(self, delivery: OutgoingDelivery, now: float) -> float:
        """Returns when a delivery's time ends, by the queue's limit and by its own."""
        limit = self._limits.ttl_seconds
        ends_at = math.inf if limit is None else now + limit
        own = delivery.ttl_milliseconds
        if own is None:
            own = _ttl_of(delivery)
        return ends_at if own is None else min(ends_at, now + own / 1000)

    def take_ended(self, now: float) -> Iterator[tuple[Outlet, OutgoingDelivery]]:
        """Takes out what stands at the head and whose time has ended."""
        while self and NEW < self[0][2] <= now:
            outlet, delivery, _ = self.popleft()
            yield outlet, delivery

    @property
    def is_full(self) -> bool:
        """Whether nothing more may wait."""
        return self._is_beyond(len(self) + 1, self._count_octets())

    def take_surplus(self) -> Iterator[tuple[Outlet, OutgoingDelivery]]:
        """Takes out the oldest until no more are here than may wait."""
        octets = self._count_octets()
        while self and self._is_beyond(len(self), octets):
            outlet, delivery, _ = self.popleft()
            octets -= len(delivery.payload)
            yield outlet, delivery

    def _count_octets(self) -> int:
        """Counts what waits, if that is limited."""
        if self._limits.octets is None:
            return 0
        return sum(len(delivery.payload) for _, delivery, _ in self)

    def _is_beyond(self, count: int, octets: int) -> bool:
        limits = self._limits
        return (limits.length is not None and count > limits.length) or (
            limits.octets is not None and octets > limits.octets
        )


def _ttl_of(delivery: OutgoingDelivery) -> int | None:
    """Reads a message's time to live in milliseconds; None if it has none that can be read."""
    try:
        return contents.ttl_in(
            hub.translate(delivery.payload, delivery.protocol, Protocol.AMQP_0_9_1)
        )
    except TranslationError:
        return None  # whoever it is sent to finds out
