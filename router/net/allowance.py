"""Limits the share of a worker's time that goes to input that moves no payload.

Theory of operation. Frames that open, attach, grant and query are *talk*: every connection begins
with a few of them, thousands are a flood, and single frames of both look alike. So no connection is
classified. Talk is paid from one account for all connections, which earns while the worker is idle
and, much less, while it moves payload. While the account is empty, the connections that have
talked most wait, and go on in turns. Payload, and connections that have talked little, never wait.
New connections are paid from the same account.

So all floods together get about half of the idle time, and under full load a seventeenth of all
time, however many connections they use.
"""

from typing import Final

import attrs

REST_SHARE: Final = 1.0
"""Earned per second of rest: a flood leaves as much time idle as it takes, so that a machine
that is busy with other things gives the worker its turn at once when payload comes."""

WORK_SHARE: Final = 1 / 16
"""Earned per second of other work: leaves 94 % of a worker's throughput to what moves payload."""

MOST_SECONDS: Final = 0.1
"""Kept, at most: some thousands of attaches in a row, as when a large client comes back."""

DEBT_SECONDS: Final = 0.5
"""Owed, at most: a longer measured time means that the machine was suspended."""

PATIENCE_SECONDS: Final = 0.003
"""Talk of one connection before it waits: several times what it takes to open and attach."""

FORGIVEN_SHARE: Final = 0.1
"""Of a connection's talk, per second gone by: who talks less than this never waits."""

LONGEST_SECONDS: Final = 0.5
"""Remembered of a connection's talk: it is forgiven after five seconds at most."""


@attrs.define(eq=False)
class Allowance:
    """The account; times are seconds on one clock.

    Attributes:
        balance: what there is; below zero: overdrawn.
    """

    balance: float = MOST_SECONDS
    _at: float = attrs.field(default=0.0, init=False)
    _spent: float = attrs.field(default=0.0, init=False)
    _rested: float = attrs.field(default=0.0, init=False)
    _is_resting: bool = attrs.field(default=False, init=False)

    def spend(self, seconds: float) -> None:
        """Pays."""
        self.balance = max(self.balance - seconds, -DEBT_SECONDS)
        self._spent += seconds

    def rest(self, now: float) -> None:
        """Records that the worker has nothing to do from now on."""
        self.settle(now)
        self._is_resting = True

    def work(self, now: float) -> None:
        """Records that the worker is at work from now on."""
        self.settle(now)
        self._is_resting = False

    def rested(self, seconds: float) -> None:
        """Records that the worker has rested for a while, though it is at work."""
        self._rested += seconds

    def settle(self, now: float) -> None:
        """Earns for the time since the last call."""
        passed = now - self._at - self._spent
        rest = passed if self._is_resting else min(passed, self._rested)
        self._at, self._spent, self._rested = now, 0.0, 0.0
        if passed > 0:
            earned = rest * REST_SHARE + (passed - rest) * WORK_SHARE
            self.balance = min(MOST_SECONDS, self.balance + earned)

    @property
    def is_empty(self) -> bool:
        """Whether those who have talked much wait."""
        return self.balance <= 0

    @property
    def wait_seconds(self) -> float:
        """How long it takes, if the worker rests, until there is something again."""
        return max(0.0, -self.balance / REST_SHARE) + _LEAST_WAIT_SECONDS


_LEAST_WAIT_SECONDS: Final = 0.0005
"""Or a flood would be let on for some microseconds at a time."""


@attrs.define(eq=False)
class Talk:
    """What one connection has talked.

    Attributes:
        seconds: time used, less what was forgiven.
    """

    seconds: float = 0.0
    _at: float = attrs.field(default=0.0, init=False)

    def add(self, seconds: float, now: float) -> None:
        """Adds talk of a connection; negative if its payload moved enough to make up for it."""
        forgiven = (now - self._at) * FORGIVEN_SHARE
        left = max(0.0, self.seconds - forgiven)
        self.seconds = min(max(0.0, left + seconds), LONGEST_SECONDS)
        self._at = now

    @property
    def is_long(self) -> bool:
        """Whether it waits while the account is empty; as of the last ``add``."""
        return self.seconds > PATIENCE_SECONDS
