"""Turns: the store takes nothing of an address for a moment, so that it becomes empty.

Only on routes whose messages pass an empty store by. An address that never became empty would
store messages for ever, though its target takes them as fast as they come.
"""

from collections.abc import Collection
from typing import Final

from router.journal.store.queues import RouteKey
from router.net.store.inlet import Inlet

TURN_MOST: Final = 500
"""An address with at most so many messages is about to become empty, if its target takes them."""

TURN_SECONDS: Final = 2.0
"""So long the store then takes no more of it; and so recently must the target have accepted."""

TURN_PAUSE_SECONDS: Final = 8.0
"""So long it takes them again if the address did not become empty: its target is slow."""


class Turns:
    """The addresses that are about to become empty.

    Attributes:
        count: how often one has begun, or ended, to become empty.
        passing: routes whose messages pass the store by if it is empty.
    """

    def __init__(self) -> None:
        """Begins without a turn."""
        self.count = 0
        self.passing: Collection[RouteKey] = ()
        self._turning: dict[Inlet, None] = {}

    def begin(self, inlet: Inlet, now: float) -> None:
        """Lets an address become empty that nearly is, if its target takes what it is sent."""
        name = inlet.name
        if name.is_dead or name.route not in self.passing or inlet.turns_until is not None:
            return
        if inlet.depth > TURN_MOST:
            return
        is_taken = now - inlet.accepted_at < TURN_SECONDS and not inlet.pauses
        if is_taken and now >= inlet.turns_again:
            inlet.turns_until = now + TURN_SECONDS
            self._turning[inlet] = None
            self.count += 1

    def end(self, inlet: Inlet) -> None:
        """The store takes messages of an address again."""
        if self._turning.pop(inlet, inlet) is None:
            inlet.turns_until = None
            self.count += 1

    def review(self, now: float) -> None:
        """Ends the turns that did not empty their address."""
        for inlet in tuple(self._turning):
            if inlet.turns_until is not None and inlet.turns_until <= now:
                self.end(inlet)
                inlet.turns_again = now + TURN_PAUSE_SECONDS

    def deadlines(self) -> list[float]:
        """Returns when ``review`` has something to do."""
        return [each.turns_until for each in self._turning if each.turns_until is not None]
