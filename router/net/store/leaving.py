"""Messages that leave the store: said to be gone, and gone when that is durable."""

import bisect
from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import NamedTuple

from router.journal.store.client import StoreClient
from router.journal.store.place import Place
from router.journal.store.queues import Claim
from router.model.identity import DeliveryNumber, LinkId


class Settling(NamedTuple):
    """A delivery that is settled with the core when a record is durable."""

    sequence: int
    link: LinkId
    number: DeliveryNumber


class Leaving:
    """What has left, and is not known to be durable.

    Attributes:
        going: messages that are gone as soon as their records are durable: the number of the
            record, the message, and its outcome.
    """

    def __init__(self, client: StoreClient, clock_ns: Callable[[], int]) -> None:
        """Begins with nothing.

        Args:
            client: takes the records.
            clock_ns: nanoseconds since 1970.
        """
        self.going: list[tuple[int, Claim, int]] = []
        self._client = client
        self._clock_ns = clock_ns
        self._settling: deque[Settling] = deque()

    def forward(self, claims: Sequence[Claim], outcome: int) -> int:
        """Has the store forget messages; returns the number of the last record."""
        last = self._client.records.forwarded(self._clock_ns(), claims, outcome)
        first = last + 1 - len(claims)
        self.going += zip(range(first, last + 1), claims, repeat(outcome), strict=False)
        return last

    def is_going(self, place: Place) -> bool:
        """Returns whether it is not durable yet that a message is gone."""
        return any(claim.place == place for _, claim, _ in self.going)

    def settle(self, sequence: int, link: LinkId, number: DeliveryNumber) -> None:
        """Has a delivery settled when a record is durable."""
        self._settling.append(Settling(sequence, link, number))

    def durable(self, sequence: int) -> tuple[int, dict[LinkId, list[DeliveryNumber]]]:
        """Records up to which record everything is durable.

        Returns:
            How many messages are gone, and the deliveries that are settled now.
        """
        count = bisect.bisect_right(self.going, sequence, key=lambda each: each[0])
        del self.going[:count]
        settled: dict[LinkId, list[DeliveryNumber]] = {}
        while self._settling and self._settling[0].sequence <= sequence:
            _, link, number = self._settling.popleft()
            settled.setdefault(link, []).append(number)
        return count, settled
