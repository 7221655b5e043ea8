"""The ends of connections, a share of each turn: many that end at once hold nobody else up.

When a connection ends, what is unsettled on its links goes back to senders or to other receivers,
which takes the core some microseconds for each delivery. A proxy that is restarted ends a thousand
connections at the same moment. Those for which a turn has no time wait, unwatched, in their order;
to the core they are still there, but congested, so that what others leave does not go to them.
"""

from collections.abc import Callable
from typing import Final

import attrs

from router.net.connection import Connection

END_SECONDS: Final = 0.004
"""What ends may take of a turn; the one that begins within that time is not cut."""


@attrs.define(eq=False)
class Endings:
    """Ends connections, or has them wait.

    Attributes:
        clock: seconds, on the scale of all deadlines.
        end: ends a connection whose stream has ended or, for the reason given, failed.
        postpone: stops watching the connection's socket; ``work_off`` is to be called soon.
    """

    clock: Callable[[], float]
    end: Callable[[Connection, str | None], None]
    postpone: Callable[[Connection], None]
    _spent_seconds: float = attrs.field(default=0.0, init=False)
    _waiting: dict[Connection, str | None] = attrs.field(factory=dict, init=False)

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def hear(self, connection: Connection, failure: str | None) -> None:
        """Ends a connection now or in its turn; ``failure``: None if the stream just ended."""
        if connection in self._waiting:
            return
        if self._waiting or self._spent_seconds >= END_SECONDS:
            self._waiting[connection] = failure
            self.postpone(connection)
        else:
            self._end(connection, failure)

    def work_off(self) -> bool:
        """Begins the share of another turn; returns whether any waited."""
        self._spent_seconds = 0.0
        waited = bool(self._waiting)
        while self._waiting and self._spent_seconds < END_SECONDS:
            connection = next(iter(self._waiting))
            self._end(connection, self._waiting.pop(connection))
        return waited

    def forget(self, connection: Connection) -> None:
        """Drops the end of a connection that ends, or leaves, for another reason."""
        self._waiting.pop(connection, None)

    def _end(self, connection: Connection, failure: str | None) -> None:
        began = self.clock()
        self.end(connection, failure)
        self._spent_seconds += self.clock() - began
