"""Patience: that messages are gone is told the store many at a time, or after a moment.

A turn of the store's process, with its flush, costs as much as some hundred messages. A worker that
is killed sends again, on at-least-once routes, what it has not told.
"""

from typing import Final

import attrs

HOLD_SECONDS: Final = 0.01
"""What is held waits no longer."""

HOLD_MESSAGES: Final = 4096
"""So many messages are worth a turn."""


@attrs.define(eq=False)
class Patience:
    """When to go on with what is held.

    Attributes:
        is_untimed: something is held, and the time is not known yet: ``is_over`` is due.
        until: when to go on; None: nothing is held, or it is untimed.
        is_over: it has waited long enough.
    """

    is_untimed: bool = False
    until: float | None = None
    is_over: bool = False

    def holds(self, messages: int) -> bool:
        """Returns whether it waits to be told that so many messages are gone."""
        if not messages or messages >= HOLD_MESSAGES or self.is_over:
            self.is_untimed, self.until, self.is_over = False, None, False
            return False
        self.is_untimed |= self.until is None
        return True

    def look(self, now: float) -> None:
        """Finds out whether what is held has waited long enough; begins to wait otherwise."""
        if self.is_untimed:
            self.is_untimed, self.until = False, now + HOLD_SECONDS
        self.is_over |= self.until is not None and now >= self.until
