"""Runs ``reclaim`` beside the log, one at a time, whenever it is worthwhile."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from router.journal.reclaim import is_worthwhile

RETRY_SECONDS: Final = 30.0
"""After a run that failed: a full disk may have room again, and only a run can make more."""

_log = structlog.get_logger("router.journal")


class Reclaimer:
    """The child process that reclaims.

    Attributes:
        poll_seconds: how often it is looked at while one runs.
    """

    poll_seconds: Final = 0.25

    def __init__(
        self,
        directory: Path,
        *,
        archive: Path | None,
        retry_seconds: float = RETRY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts nothing yet.

        Args:
            directory: of the segments.
            archive: where segments go; None deletes them.
            retry_seconds: pause after a run that failed.
            clock: gives seconds.
        """
        self._directory = directory
        self._archive = archive
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._retry_at: float | None = None
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether a run is under way."""
        return self._child is not None

    @property
    def wait_seconds(self) -> float | None:
        """How long until ``step`` should be called though nothing was sealed; None: for ever."""
        if self._child is not None:
            return self.poll_seconds
        if self._retry_at is not None:
            return max(0.0, self._retry_at - self._clock())
        return None

    def step(self, through: int) -> None:
        """Handles the end of a run, and starts one if there is enough to reclaim.

        Args:
            through: number of the last segment that is written no more.
        """
        if self._child is not None:
            code = self._child.poll()
            if code is None:
                return
            self._child = None
            if code:
                self._failed(code=code)
                return
            _log.info("segments.reclaimed", through=through)
        self._retry_at = None
        try:
            if is_worthwhile(self._directory, through, has_archive=self._archive is not None):
                self._start(through)
        except OSError as error:
            self._failed(error=error)

    def abandon(self) -> None:
        """Ends a run under way; a later one repeats it."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def _start(self, through: int) -> None:
        command = [sys.executable, "-m", "router.journal.reclaim", str(self._directory)]
        command += ["--through", str(through)]
        if self._archive is not None:
            command += ["--archive", str(self._archive)]
        self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def _failed(self, **reason: object) -> None:
        _log.error("reclaim.failed", **reason, seconds=self._retry_seconds)
        self._retry_at = self._clock() + self._retry_seconds
