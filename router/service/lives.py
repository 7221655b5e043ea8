"""The lives of a worker: its process may die, and another one takes its place."""

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
