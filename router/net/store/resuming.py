"""Deliveries that the core has of earlier attachments, on exactly-once routes (§2.6.13).

The store does not write down what it has sent, so an attach of an inlet says that everything may be
unsettled, and the map of the core's answer says what is::

    AttachLink --map--> held --RECALL--> RECALLED: resumed, as sent
                                    '--> GONE:     resumed settled

What is held is sent on no other link. So nothing of an address is sent before the core has answered
for its messages and for its dead letters, and nothing new before what is held was resumed.

What of that comes back was read out of its turn: the store may have messages that go before it, as
the target had returned them before. So it is given back to the store, and read again in its turn
(``Fetching.begin_again``).
"""

from collections.abc import Sequence

from router.journal.store.asks import Recall
from router.journal.store.client import StoreClient
from router.journal.store.place import Place
from router.journal.store.reading import StoredMessage
from router.net.store.burials import Burials
from router.net.store.inlet import Inlet, Name, Roll
from router.net.store.leaving import Leaving


class Resuming:
    """Finds out what became of what the core still has.

    Attributes:
        met: inlets of which the core has said what it has.
    """

    def __init__(self, client: StoreClient, roll: Roll, leaving: Leaving, burials: Burials) -> None:
        """Begins with nothing.

        Args:
            client: asks the store for messages by their places.
            roll: all inlets.
            leaving: what is not known to be gone durably.
            burials: counts dead letters.
        """
        self.met: set[Name] = set()
        self._client = client
        self._roll = roll
        self._leaving = leaving
        self._burials = burials

    def meet(self, inlet: Inlet, places: Sequence[Place]) -> None:
        """Finds out what became of messages that the core has of earlier attachments."""
        self.met.add(inlet.name)
        going = {claim.place for claim, _ in self._leaving.going}
        inlet.held = dict.fromkeys(places)
        for place in places:
            if place in going:
                inlet.held[place] = "gone"  # the core's outcome has been written down
            elif not self._take_held(inlet, place):
                self._client.ask(Recall(inlet.name.route, place))
        self.stir_both(inlet.name)

    def _take_held(self, inlet: Inlet, place: Place) -> bool:
        """Takes a message that is here, and that the core has, out of those that wait."""
        for other in (inlet, self._roll.by_name.get(inlet.name.twin)):
            for message in () if other is None else other.waiting:
                if other is not None and message.claim.place == place:
                    other.waiting.remove(message)
                    self._burials.add(other, -1)
                    self.hold(inlet, message)
                    return True
        return False

    def hold(self, inlet: Inlet, message: StoredMessage) -> None:
        """Keeps a message until it is resumed."""
        self._burials.add(inlet)
        inlet.held[message.claim.place] = message

    def holder(self, name: Name, place: Place) -> Inlet | None:
        """Returns the inlet on which a message must be resumed; None: on none."""
        for each in (name, name.twin):
            inlet = self._roll.by_name.get(each)
            if inlet is not None and place in inlet.held:
                return inlet
        return None

    def is_clear(self, name: Name) -> bool:
        """Returns whether the core has said what it has of an address and its dead letters."""
        for each in (name, name.twin):
            inlet = self._roll.by_name.get(each)
            if not (each in self.met if inlet is None else inlet.is_attached):
                return False
        return True

    def stir_both(self, name: Name) -> None:
        """Has an address and its dead letters looked at soon."""
        for each in (name, name.twin):
            if each in self._roll.by_name:
                self._roll.stir(self._roll.by_name[each])

    def is_gone(self, place: Place) -> None:
        """Records that the store does not have a message that was recalled."""
        for inlet in self._roll.by_name.values():
            if place in inlet.held and inlet.held[place] is None:
                inlet.held[place] = "gone"
                self._roll.stir(inlet)
