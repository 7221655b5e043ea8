"""Events of one turn, in order, with neighbors joined into runs.

Consecutive deliveries on one link become one event, and so do equal updates; an event per delivery
would cost more than the delivery. Only the last event is extended, so the order of the octets is
preserved.
"""

from collections.abc import Sequence

from router.model.delivery import ReceivedDelivery
from router.model.events import DeliveriesReceived, DeliveriesUpdated, Event
from router.model.identity import DeliveryNumber, LinkId
from router.model.outcome import DeliveryState


class Runs:
    """Collects the events of a turn.

    Attributes:
        events: the collected events.
    """

    __slots__ = ("_highest", "_link", "_received", "_settled", "_state", "_updated", "events")

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._link: LinkId | None = None
        self._received: list[ReceivedDelivery] | None = None
        self._updated: list[DeliveryNumber] | None = None
        self._state: DeliveryState | None = None
        self._settled = False
        self._highest = -1

    def add(self, event: Event) -> None:
        """Adds an event; the run before it has ended."""
        self.events.append(event)
        self._received = None
        self._updated = None

    def receive(self, link: LinkId, delivery: ReceivedDelivery) -> None:
        """Adds a delivery to the run of its link."""
        if self._received is not None and self._link == link:
            self._received.append(delivery)
            return
        run = [delivery]
        self.add(DeliveriesReceived(link, run))
        self._link = link
        self._received = run

    def receive_all(self, link: LinkId, deliveries: list[ReceivedDelivery]) -> None:
        """Adds deliveries to the run of their link; takes ownership of the list."""
        if self._received is not None and self._link == link:
            self._received.extend(deliveries)
            return
        self.add(DeliveriesReceived(link, deliveries))
        self._link = link
        self._received = deliveries

    def update(
        self,
        link: LinkId,
        numbers: Sequence[DeliveryNumber],
        state: DeliveryState | None,
        settled: bool,
    ) -> None:
        """Adds numbers to the run of their link, if state and settlement are the same.

        A peer may repeat what it does not settle (§2.7.6); a number is in a run once.
        """
        if (
            self._updated is not None
            and self._link == link
            and self._settled is settled
            and (self._state is state or self._state == state)
            and (settled or min(numbers, default=-1) > self._highest)
        ):
            self._updated.extend(numbers)
            if not settled:
                self._highest = max(numbers)
            return
        run = list(numbers)
        self.add(DeliveriesUpdated(link, run, state, settled))
        self._link = link
        self._updated = run
        self._state = state
        self._settled = settled
        if not settled:
            self._highest = max(run, default=-1)

    def take(self) -> list[Event]:
        """Returns the collected events and starts anew."""
        if not self.events:
            return []
        events, self.events = self.events, []
        self._received = None
        self._updated = None
        return events
