"""Looks at files in a thread, for callers that must not wait for a disk that hangs.

An answer that comes at once is returned at once. Otherwise the caller goes on with what it knows:
the same look is asked about again with each later call, and no other begins meanwhile. So a disk
that does not answer costs its callers one short wait, and one thread. What was answered late was
read some time before it is asked for, so then the files are looked at once more.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Final, Generic, TypeVar

import attrs
import structlog
import trio

PATIENCE_SECONDS: Final = 0.1
"""How long a caller waits for the first answer; none waits any more until it has come."""

UNANSWERED_SECONDS: Final = 1.0
"""After that long it is said that files do not answer."""

Found = TypeVar("Found")


@attrs.define(eq=False)
class Looker(Generic[Found]):
    """Looks at the files of one purpose.

    Attributes:
        files: which ones, for people.
    """

    files: str
    clock: Callable[[], float] = time.monotonic
    _pending: "Future[Found] | None" = attrs.field(default=None, init=False)
    _began: float = attrs.field(default=0.0, init=False)
    _is_late: bool = attrs.field(default=False, init=False)
    _is_said: bool = attrs.field(default=False, init=False)
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    def look(self, read: Callable[[], Found]) -> Found | None:
        """Returns what a look has found; None: there is no answer yet.

        Args:
            read: called in a thread, unless an earlier look has no answer yet.

        Raises:
            Exception: what the look has raised.
        """
        if self._pending is None:
            self._pending, self._began = self._begin(read), self.clock()
        pending = self._pending
        wait([pending], 0 if self._is_late else PATIENCE_SECONDS)
        if not pending.done():
            self._note_lateness()
            return None
        was_late = self._is_late
        self._end()
        newer = self.look(read) if was_late else None
        return pending.result() if newer is None else newer

    @staticmethod
    def _begin(read: Callable[[], Found]) -> "Future[Found]":
        pending: Future[Found] = Future()

        def deliver(result: Any) -> None:
            try:
                pending.set_result(result.unwrap())
            except Exception as error:  # noqa: BLE001  whoever looks is told
                pending.set_exception(error)

        trio.lowlevel.start_thread_soon(read, deliver)
        return pending

    def _note_lateness(self) -> None:
        self._is_late = True
        if not self._is_said and self.clock() - self._began >= UNANSWERED_SECONDS:
            self._is_said = True
            self._log.warning("file.unanswered", file=self.files)

    def _end(self) -> None:
        if self._is_said:
            seconds = round(self.clock() - self._began, 1)
            self._log.info("file.answered", file=self.files, seconds=seconds)
        self._pending, self._is_late, self._is_said = None, False, False
