"""Runs ``reclaim`` beside the log, one at a time, whenever it is worthwhile."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from router.journal.files import FileStorage
from router.journal.log import SEGMENT_OCTETS
from router.journal.reclaim import WORTHWHILE_SEGMENTS, is_worthwhile
from router.programs import command_of

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
        segment_octets: int = SEGMENT_OCTETS,
        retry_seconds: float = RETRY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts nothing yet.

        Args:
            directory: of the segments.
            archive: where segments go; None deletes them.
            segment_octets: size of a segment; a few of them are worth a run.
            retry_seconds: pause after a run that failed.
            clock: gives seconds.
        """
        self._directory = directory
        self._archive = archive
        self._least_octets = 0 if archive is not None else WORTHWHILE_SEGMENTS * segment_octets
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

    def step(self, through: int, *, is_disk_full: bool = False) -> None:
        """Handles the end of a run, and starts one if there is enough to reclaim.

        Args:
            through: number of the last segment that is no longer written.
            is_disk_full: whatever can be reclaimed is worth a run.
        """
        if self._child is not None:
            child, code = self._child, self._child.poll()
            if code is None:
                return
            self._child = None
            reason = _last_line(child)
            if code:
                self._failed(code=code, error=reason)
                return
            _log.info("segments.reclaimed", through=through)
        self._retry_at = None
        try:
            least = 0 if is_disk_full else self._least_octets
            if self._is_worthwhile(through, least):
                self._start(through)
        except OSError as error:
            self._failed(error=error)

    def abandon(self) -> None:
        """Ends a run under way; a later one repeats it."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def _is_worthwhile(self, through: int, least_octets: int) -> bool:
        return is_worthwhile(FileStorage(self._directory), through, least_octets=least_octets)

    def _command(self, through: int) -> list[str]:
        command = [*command_of("router.journal.reclaim"), str(self._directory)]
        return [*command, "--through", str(through)]

    def _start(self, through: int) -> None:
        command = self._command(through)
        if self._archive is not None:
            command += ["--archive", str(self._archive)]
        self._child = self._spawn(command)

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def _failed(self, **reason: object) -> None:
        _log.error("reclaim.failed", **reason, seconds=self._retry_seconds)
        self._retry_at = self._clock() + self._retry_seconds


def _last_line(child: subprocess.Popen[bytes]) -> str | None:
    """Returns why a run that has ended has failed, in its own words; None: it says nothing."""
    assert child.stderr is not None
    with child.stderr:
        lines = child.stderr.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), None)
