"""Routers whose clock a test sets, as somebody sets that of a machine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

_MODULE: Final = """
import time
from pathlib import Path

real_ns, real = time.time_ns, time.time

def ahead_seconds():
    try:
        return float(Path({place!r}).read_text() or 0)
    except OSError:
        return 0.0

time.time_ns = lambda: real_ns() + int(ahead_seconds() * 1e9)
time.time = lambda: real() + ahead_seconds()
"""
"""A ``sitecustomize`` by which a file says how much later it is."""


@attrs.define(eq=False)
class ClockSet:
    """A clock for the routers that are started with ``environment``.

    Attributes:
        folder: of its own.
    """

    folder: Path

    def __attrs_post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        text = _MODULE.format(place=str(self._place))
        (self.folder / "sitecustomize.py").write_text(text)

    @property
    def environment(self) -> Mapping[str, str]:
        """What a router needs to have this clock."""
        return {"PYTHONPATH": str(self.folder)}

    @property
    def _place(self) -> Path:
        return self.folder / "ahead"

    def set(self, seconds: float) -> None:
        """Sets the clock so much ahead of the machine's, or back."""
        written = self._place.with_suffix(".new")
        written.write_text(str(seconds))
        written.replace(self._place)
