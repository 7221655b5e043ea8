"""Reclaims in the store on PostgreSQL, as a process of its own; see ``router.journal.reclaim``."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from router.journal.postgres.handing_over import handed_over, take_over
from router.journal.postgres.storage import PostgresStorage
from router.journal.reclaim import NICENESS, is_worthwhile, reclaim_from
from router.journal.reclaimer import Reclaimer
from router.model.log_values import reason_of


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

    def _is_worthwhile(self, through: int, least_octets: int) -> bool:
        is_news = through > self._looked_through
        self._looked_through = through
        return is_news

    def _failed(self, **reason: object) -> None:
        self._looked_through = 0
        super()._failed(**reason)

    def _command(self, through: int) -> list[str]:
        command = [sys.executable, "-m", "router.journal.postgres.reclaim"]
        command += ["--router", self._router, "--through", str(through)]
        return [*command, "--least-octets", str(self._least_octets)]

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        with handed_over(self._url) as url:
            return subprocess.Popen(
                [*command, "--store-fd", str(url)], stdin=subprocess.DEVNULL, pass_fds=(url,)
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
        print(f"reclaim: {reason_of(error)}", file=sys.stderr)  # noqa: T201 - its parent logs it
        return 1
    finally:
        storage.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
