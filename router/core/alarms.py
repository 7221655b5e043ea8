"""Alarms: actions to run at a given time."""

import heapq
import itertools
from collections.abc import Callable

import attrs


@attrs.define(eq=False)
class Alarm:
    """An action to run at a time; ``action`` None: it has run, or was cancelled."""

    at: float
    action: Callable[[], None] | None


class Alarms:
    """Alarms, earliest first; alarms for the same time run in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Alarm]] = []
        self._order = itertools.count()
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def set(self, at: float, action: Callable[[], None]) -> Alarm:
        """Sets an alarm that runs ``action`` at the time ``at``."""
        alarm = Alarm(at, action)
        heapq.heappush(self._heap, (at, next(self._order), alarm))
        return alarm

    def cancel(self, alarm: Alarm | None) -> None:
        """Cancels an alarm; one that has already run, or None, is ignored."""
        if alarm is None or alarm.action is None:
            return
        alarm.action = None
        self._cancelled += 1
        if self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].action is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    @property
    def deadline(self) -> float | None:
        """The time of the earliest alarm; None: there is none."""
        self._drop_cancelled()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> Callable[[], None] | None:
        """Returns the next action whose time has come, and forgets it; None: there is none."""
        self._drop_cancelled()
        if not self._heap or self._heap[0][0] > now:
            return None
        alarm = heapq.heappop(self._heap)[2]
        action, alarm.action = alarm.action, None
        return action

    def _drop_cancelled(self) -> None:
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
            self._cancelled -= 1
