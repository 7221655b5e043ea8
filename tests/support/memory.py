"""The memory of a process that runs tests: who makes it grow, and whether it is still collected.

Thousands of tests share a process. One that left the collector off had all others after it keep
their garbage, some hundreds of megabytes; one that fills the disk of a test with megabytes of zeros
leaves holes in the heap that glibc does not give back.
"""

import gc
from collections.abc import Iterator
from typing import Final

import attrs
import pytest

from router.service.garbage import resident_octets

GROWN: Final = "grown_octets"
"""User property of a report: by how much more memory the process has after a test than before."""

TOLD_OCTETS: Final = 64 << 20
"""A test that makes its process grow by so much or more is named in the log."""


@attrs.frozen
class Collecting:
    """How the collector is set."""

    enabled: bool
    thresholds: tuple[int, ...]
    frozen: int

    @classmethod
    def now(cls) -> "Collecting":
        """Returns how it is set now."""
        return cls(gc.isenabled(), gc.get_threshold(), gc.get_freeze_count())

    def restore(self) -> None:
        """Sets it so again; what was frozen before stays frozen, and whatever else is collected."""
        if not self.frozen:
            gc.unfreeze()
        gc.set_threshold(*self.thresholds)
        (gc.enable if self.enabled else gc.disable)()


@attrs.define(eq=False)
class MemoryWatch:
    """Fails a test that leaves the collector otherwise than it was; records what a test takes."""

    _collecting: Collecting = attrs.field(factory=Collecting.now, init=False)
    _resident_octets: int = attrs.field(default=0, init=False)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Looks before the test and its fixtures."""
        self._collecting = Collecting.now()
        self._resident_octets = resident_octets()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        """Looks behind the test and its fixtures."""
        yield
        item.user_properties.append((GROWN, resident_octets() - self._resident_octets))
        left = Collecting.now()
        if left != self._collecting:
            self._collecting.restore()
            pytest.fail(f"the test left the collector as {left}: it was {self._collecting}")
