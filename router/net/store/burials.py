"""Dead letters that wait here, overdue messages that the store was asked for, and why they are."""

import enum
from collections import Counter
from typing import Final

from router.journal.store.asks import Flow
from router.journal.store.client import StoreClient
from router.journal.store.place import Place
from router.journal.store.queues import RouteKey
from router.journal.store.reading import StoredMessage
from router.net.store.inlet import Inlet, Roll

BACKLOG: Final = 1000
"""Dead letters of one route that wait here; while there are more, it is asked for nothing."""


class Cause(enum.StrEnum):
    """Why a message has become a dead letter."""

    REJECTED = "rejected"  # or undeliverable, or failed too often
    EXPIRED = (
        "expired"  # its time to live has ended, or it is older than the route's messages may be
    )
    DROPPED = "dropped"  # as the oldest of too many, or by a person


Deaths = dict[RouteKey, Counter[Cause]]
"""How many messages of each route have become dead letters, by cause."""


class Burials:
    """Counts dead letters.

    Attributes:
        deaths: counts what has become a dead letter.
        waiting: dead letters that wait, by route.
    """

    def __init__(self, client: StoreClient, roll: Roll, deaths: Deaths) -> None:
        """Begins without a dead letter.

        Args:
            client: is asked for more overdue messages.
            roll: all inlets.
            deaths: what earlier connections have counted.
        """
        self.deaths = deaths
        self.waiting: dict[RouteKey, int] = {}
        self._client = client
        self._roll = roll
        self._swept: set[Place] = set()

    def is_enough(self, route: RouteKey) -> bool:
        """Returns whether so many dead letters wait that the route is asked for nothing."""
        return self.waiting.get(route, 0) > BACKLOG

    def bury(self, inlet: Inlet, message: StoredMessage, cause: Cause) -> None:
        """Puts a message to the dead letters of an inlet."""
        self.deaths.setdefault(inlet.name.route, Counter())[cause] += 1
        self.add(inlet)
        inlet.put_back(message)
        self._roll.stir(inlet)

    def add(self, inlet: Inlet, count: int = 1) -> None:
        """Counts what waits at an inlet, if that is one of dead letters."""
        if inlet.name.is_dead:
            self.waiting[inlet.name.route] = self.waiting.get(inlet.name.route, 0) + count

    def unbury(self, message: StoredMessage, route: RouteKey) -> None:
        """Records that a message is no dead letter any more."""
        self.waiting[route] -= 1
        if self.waiting[route] == BACKLOG:  # the route was asked for nothing meanwhile
            self._roll.stir_route(route)
        self.was_swept(message.claim.place, route)

    def sweep(self, place: Place) -> None:
        """Records that an overdue message has come that was asked for as such."""
        self._swept.add(place)

    @property
    def has_swept(self) -> bool:
        """Whether any overdue message is here that was asked for as such."""
        return bool(self._swept)

    def was_swept(self, place: Place, route: RouteKey) -> None:
        """Asks for another overdue message, if one of these has ended."""
        if place in self._swept:
            self._swept.discard(place)
            self._client.ask(Flow(route, None, 1))
