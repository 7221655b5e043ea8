"""The backlog of a queue: waiting deliveries, their expiry and their limits.

Theory of operation. A message's expiry is computed when it is found waiting at the end of a turn
(``look``), so a message that goes straight to a consumer costs nothing, and the clock is that of
the turn: the engine's own clock stands still between calls. As with RabbitMQ's queues, expired
messages are removed when they reach the head of the queue.
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
"""Expiry of a delivery for which it has not been computed."""

Waiting: TypeAlias = tuple[Outlet, OutgoingDelivery, float]
"""A delivery in a queue, its outlet, and its expiry."""


class Backlog(deque[Waiting]):
    """The waiting deliveries of one queue, oldest first."""

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self._limits = limits

    @property
    def ends_at(self) -> float:
        """Expiry of the oldest delivery."""
        return self[0][2] if self else math.inf

    def look(self, now: float) -> None:
        """Computes the expiry of new deliveries, which are at either end of the backlog."""
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
        """Returns a delivery's expiry, by the queue's limit and by its own."""
        limit = self._limits.ttl_seconds
        ends_at = math.inf if limit is None else now + limit
        own = delivery.ttl_milliseconds
        if own is None:
            own = _ttl_of(delivery)
        return ends_at if own is None else min(ends_at, now + own / 1000)

    def take_ended(self, now: float) -> Iterator[tuple[Outlet, OutgoingDelivery]]:
        """Removes and yields expired deliveries at the head."""
        while self and NEW < self[0][2] <= now:
            outlet, delivery, _ = self.popleft()
            yield outlet, delivery

    @property
    def is_full(self) -> bool:
        """Whether the limits allow no more deliveries."""
        return self._is_beyond(len(self) + 1, self._count_octets())

    def take_surplus(self) -> Iterator[tuple[Outlet, OutgoingDelivery]]:
        """Removes and yields the oldest deliveries until the limits are met."""
        octets = self._count_octets()
        while self and self._is_beyond(len(self), octets):
            outlet, delivery, _ = self.popleft()
            octets -= len(delivery.payload)
            yield outlet, delivery

    def _count_octets(self) -> int:
        """Returns the octets of the backlog, if they are limited."""
        if self._limits.octets is None:
            return 0
        return sum(len(delivery.payload) for _, delivery, _ in self)

    def _is_beyond(self, count: int, octets: int) -> bool:
        limits = self._limits
        return (limits.length is not None and count > limits.length) or (
            limits.octets is not None and octets > limits.octets
        )


def _ttl_of(delivery: OutgoingDelivery) -> int | None:
    """Returns a message's ttl in milliseconds; None if it has none, or an invalid one."""
    try:
        return contents.ttl_in(
            hub.translate(delivery.payload, delivery.protocol, Protocol.AMQP_0_9_1)
        )
    except TranslationError:
        return None  # the consumer's side refuses it
