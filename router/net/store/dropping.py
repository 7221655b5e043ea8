"""What must not go to its target any more: it is too old, or was dropped.

The store tells of what it has itself; this is about what waits here or is lent. A message is too
old by its route or by its time to live, is dropped as the oldest of too many, or by a person. It
becomes a dead letter, or is forgotten if the person says so.
"""

from collections.abc import Callable

from router.journal.store.looking import Sentence
from router.journal.store.place import BEGINNING, Place
from router.journal.store.queues import UNBOUNDED, RouteKey
from router.journal.store.reading import StoredMessage
from router.net.store.burials import Burials, Cause
from router.net.store.fetching import Fetching
from router.net.store.inlet import Inlet, Roll
from router.net.store.links import InletLinks
from router.net.store.overdue import Overdue


class Dropping:
    """Makes dead letters of what waits.

    Attributes:
        overdue: what makes messages overdue that wait here.
    """

    def __init__(
        self,
        clock_ns: Callable[[], int],
        *,
        roll: Roll,
        fetching: Fetching,
        links: InletLinks,
        burials: Burials,
    ) -> None:
        """Begins with nothing.

        Args:
            clock_ns: nanoseconds since 1970.
            roll: all inlets.
            fetching: what is lent.
            links: of the inlets.
            burials: dead letters that wait.
        """
        self.overdue = Overdue(clock_ns)
        self._roll = roll
        self._fetching = fetching
        self._links = links
        self._burials = burials

    def dropped_oldest(self, route: RouteKey, place: Place) -> None:
        """Records up to where a route has dropped its messages as the oldest."""
        if place > self.overdue.condemned.get(route, BEGINNING):
            self.overdue.condemned[route] = place
            for inlet in self._roll.chosen(route, None):
                first = self._fetching.lending.first(inlet)
                if first is not None and first <= place:
                    self._fetching.recall(inlet)
            self.bury_overdue(route)

    def recall_stale(self) -> None:
        """Gives back what waits here for long, so that the store finds out what becomes too old."""
        for inlet in self._fetching.lending.stale():
            if self.overdue.bounds.get(inlet.name.route, UNBOUNDED).age_ns is not None:
                self._fetching.recall(inlet)

    def bury_overdue(self, route: RouteKey | None = None) -> None:
        """Makes dead letters of what has become overdue here, of a route or of all."""
        for inlet in self._roll.chosen(route, None):
            if self.bury_late(inlet):
                self._links.close_idle(inlet)

    def bury_late(self, inlet: Inlet) -> bool:
        """Makes dead letters of what waits and is overdue; returns whether there was any."""
        if inlet.name.is_dead or not inlet.waiting:
            return False
        inlet.waiting, late = self.overdue.among(inlet.name.route, inlet.waiting)
        for message in late:
            self._roll.attempts.pop(message.claim.place, None)
            cause = self.cause(inlet.name.route, message)
            self._burials.bury(self._links.of(inlet.name.twin), message, cause)
        return bool(late)

    def cause(self, route: RouteKey, message: StoredMessage) -> Cause:
        """Returns why a message is overdue."""
        return Cause.EXPIRED if self.overdue.is_late(route, message) else Cause.DROPPED

    def drop(self, sentence: Sentence) -> None:
        """Handles that somebody has dropped messages, some of which may be here."""
        for inlet in self._roll.chosen(sentence.route, sentence.address):
            inlet.sentence, inlet.elders = sentence, 0
            self.drop_waiting(inlet, sentence)
            self._fetching.recall(inlet, gone=sentence.place if sentence.forgets else BEGINNING)
            self._links.close_idle(inlet)

    def drop_waiting(self, inlet: Inlet, sentence: Sentence) -> None:
        """Drops what waits at an inlet, of that which a person has dropped."""
        for message in inlet.take_until(sentence.place):
            stays = self.drop_one(inlet, message, sentence)
            if stays is not None:
                inlet.put_back(stays)

    def drop_one(
        self, inlet: Inlet, message: StoredMessage, sentence: Sentence
    ) -> StoredMessage | None:
        """Forgets a message, or makes a dead letter of it, for good; returns it if it was one."""
        self._roll.attempts.pop(message.claim.place, None)
        if sentence.forgets:
            if inlet.name.is_dead:
                self._burials.unbury(message, inlet.name.route)
            return None
        dropped = message._replace(is_overdue=True)
        if inlet.name.is_dead:
            return dropped
        self._burials.bury(self._links.of(inlet.name.twin), dropped, Cause.DROPPED)
        return None
