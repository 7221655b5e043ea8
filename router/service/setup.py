"""Settings of a whole process, the router's or a worker's, made once when it starts."""

import contextlib
import resource
import sys
from typing import Final

SWITCH_SECONDS: Final = 0.0002
"""The interpreter's switch interval; with the default, a thread (name look-ups, reloads) waits for
seconds while traffic keeps the data plane busy."""


def prepare_process() -> None:
    """Shortens the switch interval and raises the descriptor limit to the system's maximum."""
    sys.setswitchinterval(SWITCH_SECONDS)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
