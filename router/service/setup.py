"""What belongs to a process as a whole, the router's or a worker's: set once, when it starts."""

import contextlib
import resource
import sys
from typing import Final

SWITCH_SECONDS: Final = 0.0002
"""Interpreter's switch interval: at its default a thread (name look-ups, reloads) waits for seconds
while traffic keeps the data plane busy."""


def prepare_process() -> None:
    """Lets threads take turns often, and takes all descriptors that the system allows."""
    sys.setswitchinterval(SWITCH_SECONDS)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
