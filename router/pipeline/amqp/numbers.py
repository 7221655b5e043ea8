"""Numbers of attaches that outlive the process (``router.links.attaches``).

    attaches.json    the epoch, which is when this file was first written; the number drawn last

A number is durable before it is used. The process that draws numbers holds the directory's lock.
"""

import contextlib
import json
import time
from pathlib import Path

import attrs

from router.links.attaches import AttachNumber, next_epoch
from router.pipeline.amqp.wal import LogError, write_json


@attrs.define(eq=False)
class DurableCount:
    """Draws the numbers of the link whose state is in ``directory``."""

    directory: Path

    def draw(self) -> AttachNumber:
        """Draws the next number; durable on return.

        Raises:
            LogError: the file is not of this version.
        """
        path = self.directory / "attaches.json"
        last = AttachNumber(next_epoch(None, time.time_ns()), 0)
        with contextlib.suppress(FileNotFoundError):
            last = _read(path)
        number = AttachNumber(last.epoch, last.n + 1)
        write_json(path, number._asdict())
        return number


def _read(path: Path) -> AttachNumber:
    try:
        noted = json.loads(path.read_bytes())
        if noted.keys() == {"epoch", "n"}:
            return AttachNumber(int(noted["epoch"]), int(noted["n"]))
    except (ValueError, TypeError, AttributeError):
        pass
    raise LogError(f"{path} is not of this version: nothing was changed")
