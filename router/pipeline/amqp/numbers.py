"""Numbers of attaches that outlive the process (``router.links.attaches``).

    attaches.json    the epoch, which is when this file was first written; the number drawn last

A number is durable before it is used. The process that draws numbers holds the directory's lock.
"""

import json
import time
from typing import Final

import attrs

from router.links.attaches import AttachNumber, next_epoch
from router.pipeline.amqp.wal import LogError
from router.pipeline.store import Store

_NAME: Final = "attaches.json"


@attrs.define(eq=False)
class DurableCount:
    """Draws the numbers of the link whose state is in ``store``."""

    store: Store

    def draw(self) -> AttachNumber:
        """Draws the next number; durable on return.

        Raises:
            LogError: the file is not of this version.
        """
        octets = self.store.read(_NAME)
        if octets is None:
            last = AttachNumber(next_epoch(None, time.time_ns()), 0)
        else:
            last = _read(octets)
        number = AttachNumber(last.epoch, last.n + 1)
        self.store.write(_NAME, json.dumps(number._asdict()).encode())
        return number


def _read(octets: bytes) -> AttachNumber:
    try:
        noted = json.loads(octets)
        if noted.keys() == {"epoch", "n"}:
            return AttachNumber(int(noted["epoch"]), int(noted["n"]))
    except (ValueError, TypeError, AttributeError):
        pass
    raise LogError(f"{_NAME} is not of this version: nothing was changed")
