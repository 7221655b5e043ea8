"""Pacing a sender: how much credit it may be granted if its rate of deliveries is limited.

A token bucket fills with time, up to one second's worth. Credit costs a token for each
delivery when it is granted, not when it is used, so a sender gains nothing by saving credit;
unused credit that is withdrawn returns its tokens.
"""

from typing import Final

import attrs

STEP_SECONDS: Final = 0.05
"""Each grant is worth at least this much, so that slow pacing does not send many flows of one
credit each."""


@attrs.define(eq=False)
class Pace:
    """The tokens of one connection.

    Attributes:
        per_second: deliveries that it may send.
    """

    per_second: int
    _tokens: float = attrs.field(init=False)
    _counted_at: float | None = attrs.field(default=None, init=False)

    @_tokens.default
    def _full(self) -> float:
        return float(self.per_second)

    def _count(self, now: float) -> None:
        if self._counted_at is not None:
            gained = max(0.0, now - self._counted_at) * self.per_second
            self._tokens = min(float(self.per_second), self._tokens + gained)
        self._counted_at = now

    def take(self, wanted: int, now: float) -> int:
        """Takes up to ``wanted`` tokens; none if there are too few for a step."""
        self._count(now)
        granted = min(wanted, int(self._tokens))
        if granted < self._step(wanted):
            return 0
        self._tokens -= granted
        return granted

    def give_back(self, unused: int, now: float) -> None:
        """Records credit that was withdrawn."""
        self._count(now)
        self._tokens = min(float(self.per_second), self._tokens + unused)

    def charge(self, sent: int, now: float) -> None:
        """Records deliveries that were sent with credit already withdrawn."""
        self._count(now)
        self._tokens -= sent

    def ready_at(self, wanted: int, now: float) -> float:
        """Returns when ``take`` will return tokens again."""
        self._count(now)
        missing = self._step(wanted) - self._tokens
        return now + max(0.0, missing / self.per_second) + 0.001

    def _step(self, wanted: int) -> int:
        return max(1, min(wanted, int(self.per_second * STEP_SECONDS)))
