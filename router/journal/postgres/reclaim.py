"""Reclaims in the store on PostgreSQL, as a process of its own; see ``router.journal.reclaim``."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from router.journal.postgres.handing_over import handed_over, take_over
from router.journal.postgres.storage import PostgresStorage
from router.journal.reclaim import NICENESS, is_worthwhile, reclaim_from
from router.journal.reclaimer import Reclaimer
from router.model.log_values import reason_of
from router.programs import command_of

FIRST_SECONDS: Final = 2.0
"""After the start, by when the workers have restored what was left."""

FIRST_OCTETS: Final = 1 << 20
"""Of segments of earlier leaders: less is read within a few hundredths of a second."""


class PostgresReclaimer(Reclaimer):
    """The child process that reclaims; it also decides whether that is worthwhile."""

    def __init__(self, url: str, router: str, *, archive: Path | None, segment_octets: int) -> None:
        """Starts nothing yet.

        Args:
            url: of the store.
            router: id of the router.
            archive: where old segments become files; None: they are dropped.
            segment_octets: size of a segment; a few of them are worth a run.
        """
        super().__init__(Path(), archive=archive, segment_octets=segment_octets)
        self._url = url
        self._router = router
        self._looked_through = 0
        self._asked_octets = self._least_octets
        self._first_at: float | None = self._clock() + FIRST_SECONDS

    @property
    def wait_seconds(self) -> float | None:
        """How long until ``step`` should be called though nothing was sealed; None: for ever."""
        if self._first_at is None:
            return super().wait_seconds
        return max(0.0, self._first_at - self._clock())

    def step(self, through: int, *, is_disk_full: bool = False) -> None:
        """Handles the end of a run, and starts one if there is enough to reclaim."""
        if self._first_at is not None and self._clock() < self._first_at and not is_disk_full:
            return
        super().step(through, is_disk_full=is_disk_full)
        self._first_at = None

    def _is_worthwhile(self, through: int, least_octets: int) -> bool:
        """Returns whether to look; the process that is then started looks what there is.

        What earlier leaders wrote is worth a run sooner: a standby that is started from now on has
        to read what is left, and its peers would wait for that at the next takeover.
        """
        is_news = through > self._looked_through or least_octets < self._asked_octets
        self._looked_through = through
        is_first = self._first_at is not None
        self._asked_octets = min(least_octets, FIRST_OCTETS) if is_first else least_octets
        return is_news

    def _failed(self, **reason: object) -> None:
        self._looked_through = 0
        super()._failed(**reason)

    def _command(self, through: int) -> list[str]:
        command = command_of("router.journal.postgres.reclaim")
        command += ["--router", self._router, "--through", str(through)]
        return [*command, "--least-octets", str(self._asked_octets)]

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        with handed_over(self._url) as url:
            return subprocess.Popen(
                [*command, "--store-fd", str(url)],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(url,),
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Reclaims once if it is worthwhile; returns 0 if all is done, 1 if the store failed."""
    parser = argparse.ArgumentParser(prog="python -m router.journal.postgres.reclaim")
    parser.add_argument("--router", required=True, help="id of the router")
    parser.add_argument("--through", type=int, required=True, help="last segment to let go")
    parser.add_argument("--archive", type=Path, help="where segments go; default: dropped")
    parser.add_argument("--least-octets", type=int, default=0, help="not worth a run")
    parser.add_argument("--store-fd", type=int, required=True, help="pipe with the store's URL")
    options = parser.parse_args(arguments)
    os.nice(NICENESS)
    storage = PostgresStorage(take_over(options.store_fd), options.router)
    try:
        if is_worthwhile(storage, options.through, least_octets=options.least_octets):
            reclaim_from(storage, options.through, now_ns=time.time_ns(), archive=options.archive)
    except OSError as error:
        print(reason_of(error), file=sys.stderr)  # noqa: T201 - its parent logs it
        return 1
    finally:
        storage.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
