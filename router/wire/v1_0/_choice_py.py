"""Who gets a lane's next delivery in the pure twin: the balanced rule of ``routes.distribution``.

Links to which something may be sent lie in a heap, with whoever is next at its top. One that turns
out not to be able leaves it until something has happened that may help: its own flow, or, if it is
*stuck* for want of window or room, what the lane is told of then. Far links have a heap of their
own, for some deliveries pass them over. A link whose numbers have changed is put into the heap
anew; its older entries count no more.
"""

from collections.abc import Iterator
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import Any

from router.wire.v1_0.state import LinkState

Entry = tuple[int, int, int, LinkState]
"""Load, turn of the last delivery, number among those that joined, link."""


class Ability(Enum):
    """Whether a link can be sent a payload now."""

    ABLE = "able"
    DRY = "no credit: until its flow"
    STUCK = "no window, no room in the output: the lane will be told"
    ASIDE = "not this delivery, or not in the middle of another"


class Choice:
    """The outgoing links of one lane, by who is next.

    Attributes:
        links: in the order of their coming.
    """

    __slots__ = ("_far", "_joins", "_lane", "_near", "_stuck", "links")

    def __init__(self, lane: Any) -> None:
        self._lane = lane
        self._near: list[Entry] = []
        self._far: list[Entry] = []
        self._stuck: list[LinkState] = []
        self._joins = 0
        self.links: list[LinkState] = []

    def add(self, link: LinkState) -> None:
        """Lets a link take part."""
        self._joins += 1
        link.joined = self._joins
        self.links.append(link)
        self._begin()

    def remove(self, link: LinkState) -> None:
        """Lets a link take part no more."""
        self.links.remove(link)
        link.entry = None
        link.is_stuck = False
        self._begin()

    def _begin(self) -> None:
        """Ranks all anew; one that is alone needs no rank."""
        self._near, self._far, self._stuck = [], [], []
        for link in self.links:
            link.entry = None
            link.is_stuck = False
            if len(self.links) > 1:
                self._rank(link)

    def _rank(self, link: LinkState) -> None:
        heap = self._far if link.is_far else self._near
        load = (link.unsettled + link.elsewhere) // link.receivers
        link.entry = entry = (load, link.last_used, link.joined, link)
        if len(heap) > 4 * len(self.links) + 16:
            heap[:] = [each for each in heap if each[3].entry is each]
            heapify(heap)
        heappush(heap, entry)

    def changed(self, link: LinkState) -> None:
        """Takes note that a link has been sent something, settled something, or was weighed."""
        if link.entry is not None:
            self._rank(link)

    def opened(self, link: LinkState) -> None:
        """Takes note that a link's flow has come."""
        if link.entry is None and not link.is_stuck and len(self.links) > 1:
            self._rank(link)

    def readmit(self) -> None:
        """Lets those take part again that were stuck."""
        stuck, self._stuck = self._stuck, []
        for link in stuck:
            link.is_stuck = False
            self._rank(link)

    def choose(self, source: LinkState, octets: int) -> LinkState | None:
        """Chooses who gets a link's next delivery; None: nobody can be sent it."""
        if len(self.links) == 1:
            (link,) = self.links
            is_open = not (link.is_far and source.is_far)
            return link if is_open and self.look_at(link, octets) is Ability.ABLE else None
        best = self._first_able(self._near, octets)
        if self._far and not source.is_far:
            other = self._first_able(self._far, octets)
            if best is None or (other is not None and other.entry < best.entry):
                best = other
        return best

    def _first_able(self, heap: list[Entry], octets: int) -> LinkState | None:
        """Gives the first of a heap that can be sent a payload; those before it leave it."""
        found: LinkState | None = None
        aside: list[LinkState] = []
        while heap:
            entry = heap[0]
            link = entry[3]
            if link.entry is not entry:
                heappop(heap)
                continue
            ability = self.look_at(link, octets)
            if ability is Ability.ABLE:
                found = link
                break
            heappop(heap)
            link.entry = None
            if ability is Ability.STUCK:
                link.is_stuck = True
                self._stuck.append(link)
            elif ability is Ability.ASIDE:
                aside.append(link)
        for link in aside:
            self._rank(link)
        return found

    def room_for(self, source: LinkState) -> int:
        """Tells how many deliveries those have credit for that can be sent what a link brings."""
        return sum(
            link.credit
            for link in self._candidates(source)
            if self.look_at(link, 1) is Ability.ABLE
        )

    def _candidates(self, source: LinkState) -> Iterator[LinkState]:
        if len(self.links) == 1:
            if not (self.links[0].is_far and source.is_far):
                yield self.links[0]
            return
        for heap in (self._near,) if source.is_far else (self._near, self._far):
            yield from [entry[3] for entry in heap if entry[3].entry is entry]

    def look_at(self, link: LinkState, octets: int) -> Ability:
        """Tells whether a link can be sent a payload now, and if not, why.

        If only room is missing, it sees to the lane's being told of it.
        """
        if link.credit <= 0 or not link.is_open:
            return Ability.DRY
        if link.in_progress:
            return Ability.ASIDE
        session = link.session
        window = session.remote_incoming_window
        if window <= 0 or octets > window * link.frame_octets:
            blocked = session.rings.blocked
            ability = Ability.STUCK if window <= 0 else Ability.ASIDE
        elif session.output.congested:
            blocked = session.output.blocked
            ability = Ability.STUCK
        else:
            return Ability.ABLE
        if self._lane not in blocked:
            blocked.append(self._lane)
        return ability
