"""Patience: a turn of worker and store is taken when it moves many messages, or after a moment.

Each turn costs as much as some hundred messages. So what the express lane has noted is left where
it is, and more messages of an address are not asked for, while its target still has at least as
many as it could be sent now: it does not run dry meanwhile. A target that settles nothing for
longer, though it grants credit, is sent more after ``HOLD_SECONDS``.
"""

from typing import Final

import attrs

HOLD_SECONDS: Final = 0.005
"""What is held waits no longer; a worker that is killed sends that much again."""


@attrs.define(eq=False)
class Patience:
    """When to go on with what is held.

    Attributes:
        is_untimed: something is held, and the time is not known yet: ``begin`` is due.
        until: when to go on; None: nothing is held, or it is untimed.
    """

    is_untimed: bool = False
    until: float | None = None

    def hold(self) -> None:
        """Records that something is held."""
        self.is_untimed |= self.until is None

    def is_over(self, now: float) -> bool:
        """Returns, once, whether what is held has waited long enough; begins to wait otherwise."""
        if self.is_untimed:
            self.is_untimed, self.until = False, now + HOLD_SECONDS
        if self.until is None or now < self.until:
            return False
        self.until = None
        return True
