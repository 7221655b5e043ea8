"""Runs ``reclaim`` beside the log, one at a time, whenever it is worthwhile."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import structlog

from router.journal.reclaim import is_worthwhile

_log = structlog.get_logger("router.journal")


class Reclaimer:
    """The child process that reclaims.

    Attributes:
        poll_seconds: how often ``step`` should be called while one runs.
    """

    poll_seconds: Final = 0.25

    def __init__(self, directory: Path, *, archive: Path | None) -> None:
        """Starts nothing yet.

        Args:
            directory: of the segments.
            archive: where segments go; None deletes them.
        """
        self._directory = directory
        self._archive = archive
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether a run is under way."""
        return self._child is not None

    def step(self, through: int) -> None:
        """Notes the end of a run, and begins one if there is enough to let go.

        Args:
            through: number of the last segment that is written no more.
        """
        if self._child is not None:
            code = self._child.poll()
            if code is None:
                return
            self._child = None
            if code:
                _log.error("reclaim.failed", code=code)
                return
            _log.info("segments.reclaimed", through=through)
        if is_worthwhile(self._directory, through, has_archive=self._archive is not None):
            self._start(through)

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
        try:
            self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        except OSError as error:
            _log.error("reclaim.failed", error=str(error))
