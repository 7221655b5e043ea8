"""Counts what a message store holds: segments, queues and routes. No file is read here.

    stored      a message became durable          counted at its segment, queue and route
    forwarded   it has left, whatever became      uncounted once, however often it is said
                of it
    unsettled   its sender, which promises        named until the sender has settled it, whether the
                exactly-once, has not settled it  message is still here or not

A message is known by its ``Claim``: its place, and what has to be uncounted when it goes. So a
message may go although its segment is not at hand.
"""

from collections.abc import Iterable, Iterator

from router.journal.keys import LinkKey
from router.journal.store.gone import GoneRun
from router.journal.store.index import Unsettled
from router.journal.store.place import BEGINNING, Place, place_of, position_of, segment_of
from router.journal.store.queues import (
    Claim,
    QueueKey,
    RouteKey,
    StoredQueue,
    StoredRoute,
    queue_key,
)
from router.journal.store.segments import StoredSegment
from router.model.identity import DeliveryKey

Counts = tuple[dict[QueueKey, tuple[int, int]], dict[RouteKey, tuple[int, int, int, int]]]
"""Of queues: messages and octets; of routes besides: those that were dropped as the oldest."""


class Holdings:
    """The counts of a message store.

    Attributes:
        segments: by number, ascending.
        queues: those with messages, and some that had.
        routes: those with messages, with bounds, or that had messages.
        clouded: messages before this place may have been forwarded, though no record says so:
            records were lost.
        clock_ns: the time when it was looked at last; it goes back if the machine's clock does.
        unsettled: deliveries that are durable here and not settled by their senders, by link.
    """

    def __init__(self) -> None:
        self.segments: dict[int, StoredSegment] = {}
        self.queues: dict[QueueKey, StoredQueue] = {}
        self.routes: dict[RouteKey, StoredRoute] = {}
        self.clouded = BEGINNING
        self.clock_ns = 0
        self.unsettled: dict[LinkKey, dict[DeliveryKey, None]] = {}

    def become(self, other: "Holdings") -> None:
        """Replaces all counts by others, which are not used any more."""
        self.segments, self.queues, self.routes = other.segments, other.queues, other.routes
        self.clouded, self.clock_ns, self.unsettled = other.clouded, other.clock_ns, other.unsettled

    def tick(self, now_ns: int) -> None:
        """Records what time it is.

        Messages bear the time of the machine's clock, so ages are counted by it as it stands: if
        it was ahead and was set right, newcomers are as young as they are.
        """
        self.clock_ns = now_ns

    def segment(self, number: int) -> StoredSegment:
        """Returns a segment, which may be new; then it is the last one."""
        known = self.segments.get(number)
        if known is None:
            known = self.segments[number] = StoredSegment(number=number)
        return known

    def route(self, key: RouteKey) -> StoredRoute:
        """Returns a route, which may be new."""
        known = self.routes.get(key)
        if known is None:
            known = self.routes[key] = StoredRoute(key=key)
        return known

    def queue(
        self, route: RouteKey, address: bytes, priority: int, *, behind: Place = BEGINNING
    ) -> StoredQueue:
        """Returns a queue, which may be new; then it has no messages up to ``behind``."""
        key = queue_key(route, address, priority)
        known = self.queues.get(key)
        if known is None:
            known = self.queues[key] = StoredQueue(
                key=key, route=route, address=address, priority=priority, read=behind
            )
            self.route(route)
        return known

    def stored(self, queue: StoredQueue, place: Place, octets: int, time_ns: int) -> None:
        """Counts a message that is durable."""
        self.segment(segment_of(place)).hold(queue.key, time_ns)
        self.count(queue, place, octets)
        self.routes[queue.route].came += 1

    def stored_run(self, queue: StoredQueue, count: int, octets: int) -> None:
        """Counts messages of a queue that are durable now, except at their segment.

        They stand behind all others, so behind those that were dropped as the oldest, too.

        Args:
            queue: of the messages.
            count: how many.
            octets: of their records, in all.
        """
        queue.messages += count
        queue.octets += octets
        route = self.routes[queue.route]
        route.messages += count
        route.octets += octets
        route.came += count

    def unsettle(self, delivery: Unsettled) -> None:
        """Records that a delivery is durable, and its sender is to settle it."""
        self.unsettled.setdefault(delivery.link, {})[delivery.key] = None

    def settle(self, delivery: Unsettled) -> None:
        """Records that a sender has settled a delivery."""
        known = self.unsettled.get(delivery.link)
        if known is not None:
            known.pop(delivery.key, None)
            if not known:
                del self.unsettled[delivery.link]

    def count(self, queue: StoredQueue, place: Place, octets: int) -> None:
        """Counts a message at its queue and route."""
        queue.messages += 1
        queue.octets += octets
        self.routes[queue.route].stored(place, octets)

    def forwarded(self, claim: Claim) -> bool:
        """Uncounts a message; returns whether it was still there."""
        segment = self.segments.get(segment_of(claim.place))
        if segment is None or not segment.mark_gone(position_of(claim.place)):
            return False
        queue = self.queues.get(claim.queue)
        if queue is not None:
            queue.messages -= 1
            queue.octets -= claim.octets
            self.routes[queue.route].forwarded(claim.place, claim.octets)
        return True

    def forwarded_run(self, runs: Iterable[GoneRun]) -> bool:
        """Uncounts messages; returns whether a segment has none left."""
        is_done = False
        for run in runs:
            segment, queue = self.segments.get(run.segment), self.queues.get(run.queue)
            if segment is None:
                continue
            route = None if queue is None else self.routes[queue.route]
            if queue is None or route is None:
                segment.mark_run(run.positions, run.octets)
            elif route.condemned_messages:  # it matters which ones are gone
                for place, octets in zip(run.places, run.octets, strict=True):
                    self.forwarded(Claim(place, run.queue, octets))
            else:
                count, octets = segment.mark_run(run.positions, run.octets)
                queue.messages -= count
                queue.octets -= octets
                route.forwarded_run(count, octets)
            is_done |= segment.is_done
        return is_done

    def forget_empty(self) -> None:
        """Forgets queues and routes without messages."""
        for queue in [each for each in self.queues.values() if not each.messages]:
            del self.queues[queue.key]
        for route in [each for each in self.routes.values() if not each.messages]:
            if route.bounds.are_unset:
                del self.routes[route.key]

    def segments_from(self, place: Place) -> Iterator[StoredSegment]:
        """Yields the segments with messages at or behind a place, oldest first."""
        first = segment_of(place)
        known = self.segments.get(first)
        if known is not None and not known.is_done:  # mostly whoever asks needs no other one
            yield known
            first += 1
        for segment in list(self.segments.values()):
            if segment.number >= first and not segment.is_done:
                yield segment

    def waiting_in(self, number: int) -> int:
        """Returns how many messages of a segment are not gone."""
        segment = self.segments.get(number)
        return 0 if segment is None else segment.stored - segment.gone

    def cloud(self) -> None:
        """Records that records are missing that may have concerned any message held now."""
        last = max(self.segments, default=0)
        self.clouded = max(self.clouded, place_of(last + 1, 0))

    def counts(self) -> Counts:
        """Returns how many messages queues and routes have, and their octets."""
        return (
            {each.key: (each.messages, each.octets) for each in self.queues.values()},
            {
                each.key: (
                    each.messages, each.octets, each.condemned_messages, each.condemned_octets
                )
                for each in self.routes.values()
            },
        )  # fmt: skip

    def restore_counts(self, counts: Counts) -> None:
        """Has queues and routes count as they did, when ``counts`` was called."""
        for queue, of_queue in counts[0].items():
            self.queues[queue].messages, self.queues[queue].octets = of_queue
        for key, of_route in counts[1].items():
            route = self.routes[key]
            route.messages, route.octets, *dropped = of_route
            route.condemned_messages, route.condemned_octets = dropped

    def clear_counts(self) -> None:
        """Forgets how many messages queues and routes have, to count them anew."""
        for queue in self.queues.values():
            queue.messages = queue.octets = 0
        for route in self.routes.values():
            route.messages = route.octets = 0
            route.condemned_messages = route.condemned_octets = 0
