"""Links from brokers that hold messages beyond the credit of their receivers.

A broker counts what is returned to it as an attempt, and may dead-letter it. So what is held
outlasts a pause of the receivers. But others may be waiting for it: if nobody has granted credit
for ``HOLD_SECONDS``, it goes back.
"""

import math
from typing import Final, Protocol

import attrs

HOLD_SECONDS: Final = 5.0


class Holder(Protocol):
    """A link that holds messages."""

    def release_held(self) -> None:
        """Returns what is held, unless there is credit for it now."""


@attrs.define(eq=False)
class Holding:
    """The links of a connection that hold messages without credit, and until when."""

    _until: dict[Holder, float] = attrs.field(factory=dict, init=False)

    def watch(self, link: Holder, now: float, *, waits: bool) -> None:
        """Records whether a link holds messages for which there is no credit."""
        if waits:
            self._until.setdefault(link, now + HOLD_SECONDS)
        else:
            self._until.pop(link, None)

    def deadline(self, other: float | None) -> float | None:
        """Returns the earlier one of another deadline and the own one; None: there is none."""
        own = min(self._until.values(), default=math.inf)
        if other is not None:
            own = min(own, other)
        return None if own == math.inf else own

    def on_time(self, now: float) -> None:
        """Has links return what they hold, if it is time."""
        for link in [link for link, until in self._until.items() if until <= now]:
            del self._until[link]
            link.release_held()
