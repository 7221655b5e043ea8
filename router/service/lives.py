"""The lives of a worker: its process may die, and another one takes its place."""

from typing import Final

import attrs


@attrs.frozen(kw_only=True)
class WorkerLives:
    """What became of the processes of one worker.

    Attributes:
        worker: its number.
        is_up: its process serves.
        ends: how many of its processes have ended before their time.
        ended_at: when the last of them did, in seconds since 1970; None: none has.
        reason: why it did.
    """

    worker: int
    is_up: bool
    ends: int = 0
    ended_at: float | None = None
    reason: str | None = None


@attrs.frozen
class WaitingClients:
    """Accepted connections that no worker can be given yet.

    Attributes:
        connections: how many.
        seconds: how long the first of them has waited.
    """

    connections: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        noun = "connection waits" if self.connections == 1 else "connections wait"
        return f"{self.connections} accepted {noun} for a worker"


NONE_WAIT: Final = WaitingClients()
