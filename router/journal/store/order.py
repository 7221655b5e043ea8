"""What a message store holds, in the order in which it is read."""

import heapq
from collections.abc import Generator, Iterator

from router.journal.store.holdings import Holdings
from router.journal.store.index import Entry
from router.journal.store.indexes import Indexes
from router.journal.store.place import Place, position_of, segment_of
from router.journal.store.queues import QueueKey, RouteKey, StoredQueue
from router.journal.store.taken import Taken


class Order:
    """Finds the messages of queues and routes; nothing is taken here."""

    def __init__(self, holdings: Holdings, indexes: Indexes, taken: Taken) -> None:
        """Shares what the store knows."""
        self._holdings = holdings
        self._indexes = indexes
        self._taken = taken

    def waiting(self, queue: StoredQueue) -> Generator[Entry, None, None]:
        """Yields what of a queue is neither taken nor gone; it counts as read then.

        It ends where the disk does not give the next one.
        """
        while queue.returned:
            segment = self._holdings.segments.get(segment_of(queue.returned[0]))
            index = None if segment is None else self._indexes.of(segment)
            if segment is not None and index is None:
                return
            place = heapq.heappop(queue.returned)
            entry = None if index is None else index.at(place)
            if entry is not None and self._is_waiting(entry):
                yield entry
        for segment in self._holdings.segments_from(queue.read):
            if not segment.may_hold(queue.key):
                continue
            index = self._indexes.of(segment)
            if index is None:
                return
            for entry in index.entries(queue.read, queue.key):
                queue.read = entry.place
                if self._is_waiting(entry):
                    yield entry

    def entries(
        self, route: RouteKey | None, after: Place, *, passes: bool = True
    ) -> Iterator[tuple[Entry, StoredQueue]]:
        """Yields what a route, or any, has stored behind a place, oldest first, taken or not.

        Args:
            route: of the messages; None: any.
            after: they stand behind it.
            passes: go on behind a segment that cannot be read, with queues that have nothing there.
        """
        queues = self._holdings.queues
        waiting = self._waiting_before(after)
        if waiting is None:
            return
        for segment in self._holdings.segments_from(after):
            if segment.queues is not None and not any(
                key in queues and route in (None, queues[key].route) for key in segment.queues
            ):
                continue
            index = self._indexes.of(segment)
            for entry in () if index is None else index.entries(after):
                queue = queues.get(entry.queue)
                if queue is None or route not in (None, queue.route) or entry.queue in waiting:
                    continue
                if not self.is_gone(entry):
                    yield entry, queue
            if segment.number in self._indexes.unreadable or index is None:  # perhaps only since
                if not passes or segment.queues is None:
                    return
                waiting |= segment.queues

    def _waiting_before(self, place: Place) -> set[QueueKey] | None:
        """Returns the queues that wait for segments before that of a place; None: all may."""
        found: set[QueueKey] = set()
        for number in self._indexes.unreadable:
            segment = self._holdings.segments.get(number)
            if segment is None or number >= segment_of(place):
                continue
            if segment.queues is None:
                return None
            found |= segment.queues
        return found

    def _is_waiting(self, entry: Entry) -> bool:
        return entry.place not in self._taken and not self.is_gone(entry)

    def is_gone(self, entry: Entry) -> bool:
        """Returns whether a message has left."""
        segment = self._holdings.segments.get(segment_of(entry.place))
        return segment is None or segment.is_gone(position_of(entry.place))
