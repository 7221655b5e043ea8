"""How old the messages of a store are, and which of them are too old."""

from collections.abc import Collection

from router.journal.store.holdings import Holdings
from router.journal.store.indexes import INDEXES_KEPT, Indexes
from router.journal.store.order import Order
from router.journal.store.place import BEGINNING, Place
from router.journal.store.queues import QueueKey, RouteKey, StoredQueue, StoredRoute
from router.journal.store.reading import StoredMessage
from router.journal.store.taken import Taken


class Ages:
    """Asks the log for the ages of messages."""

    def __init__(self, holdings: Holdings, indexes: Indexes, order: Order, taken: Taken) -> None:
        """Shares what the store knows."""
        self._holdings = holdings
        self._indexes = indexes
        self._order = order
        self._taken = taken

    def is_overdue(self, message: StoredMessage, queue: StoredQueue, now_ns: int) -> bool:
        """Returns whether a message is late, or its own time to live has ended."""
        ends_ns = message.ttl_ends_ns
        return self.is_late(message.claim.place, message.time_ns, queue, now_ns) or (
            ends_ns is not None and ends_ns <= now_ns
        )

    def is_late(self, place: Place, time_ns: int, queue: StoredQueue, now_ns: int) -> bool:
        """Returns whether a message is older than its route allows, or was dropped."""
        route = self._holdings.routes[queue.route]
        age_ns = route.bounds.age_ns
        return place <= max(route.condemned, queue.condemned) or (
            age_ns is not None and time_ns + age_ns <= now_ns
        )

    def becomes_old_ns(self, key: RouteKey) -> int | None:
        """Returns when a message that no reader has may become too old; None: none will.

        That is no later than when the first one does.
        """
        route = self._holdings.routes.get(key)
        if route is None or route.bounds.age_ns is None or not route.messages:
            return None
        age_ns = route.bounds.age_ns
        earliest_ns = self.old_from_ns(route) + age_ns
        if earliest_ns > self._holdings.clock_ns:
            return earliest_ns
        oldest_ns = self.oldest_ns(key, is_waiting=True)
        return None if oldest_ns is None else oldest_ns + age_ns

    def old_from_ns(self, route: StoredRoute) -> int:
        """Returns a time before which no message came that is not known to be overdue or gone."""
        after = max(route.swept, route.first)
        segment = next(self._holdings.segments_from(after), None)
        return self._holdings.clock_ns if segment is None else segment.first_ns

    def oldest_ns(self, key: RouteKey, *, is_waiting: bool = False) -> int | None:
        """Returns when the oldest message of a route arrived; None: it has none.

        Args:
            key: of the route.
            is_waiting: the oldest one that no reader has.
        """
        route = self._holdings.routes.get(key)
        if route is None or not route.messages:
            return None
        is_first, held_up = True, [] if is_waiting else self._held_up(key)
        for entry, _ in self._order.entries(key, route.first):
            if is_first:
                route.first, is_first = Place(entry.place - 1), False
            if not (is_waiting and entry.place in self._taken):
                return min([entry.time_ns, *held_up])
        return min(held_up, default=None)

    def _held_up(self, route: RouteKey) -> list[int]:
        """Returns when the first messages came of segments that cannot be read, if of a route."""
        queues, segments = (
            self._holdings.queues,
            map(self._holdings.segments.get, self._indexes.unreadable),
        )
        return [
            segment.first_ns
            for segment in segments
            if segment is not None
            and segment.queues is not None
            and any(key in queues and queues[key].route == route for key in segment.queues)
        ]

    def oldest_of(self, keys: Collection[QueueKey]) -> dict[QueueKey, int]:
        """Returns when the oldest messages of queues arrived, of those that are found soon.

        No more than ``INDEXES_KEPT`` segments are looked at: others have to wait meanwhile.
        """
        found: dict[QueueKey, int] = {}
        looked = 0
        for segment in self._holdings.segments_from(BEGINNING):
            wanted = {key for key in keys if key not in found and segment.may_hold(key)}
            if not wanted:
                continue
            if looked == INDEXES_KEPT:
                break
            looked += 1
            index = self._indexes.of(segment)
            if index is None:
                keys = [key for key in keys if key not in wanted]
                continue
            for key in wanted:
                entries = index.entries(BEGINNING, key)
                first = next((each for each in entries if not self._order.is_gone(each)), None)
                if first is not None:
                    found[key] = first.time_ns
        return found
