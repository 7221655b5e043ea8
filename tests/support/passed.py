"""What has passed before in the same clone, so that a second, larger run can leave it out.

CI runs the suite twice: as a newcomer does, and with extras and peers. The router's floors import
an extra only where a file asks for one, and tests of that are left out of the first run. So what
passed of them there would do so in the second.
"""

from collections.abc import Iterable
from typing import Final

import pytest

from tests.support.tiers import QUICK_FOLDERS

ONCE: Final = {*QUICK_FOLDERS, "net", "rules", "service", "cli"}
"""Folders of ``tests``, one for each floor of the router and one for the rules of all protocols."""

KEPT: Final = "router/passed"
"""Key in pytest's cache of the names of the tests that passed in the last run."""


class Passed:
    """Keeps the names of what passes; a plugin of the process that decides how a run ends.

    Where pytest has no cache (``-p no:cacheprovider``), nothing is kept.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._names: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes note of one test."""
        if report.when == "call" and report.passed:
            self._names.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Keeps the names in pytest's cache; beside others if what failed is run once more."""
        if _has_cache(self._config):
            before = _known(self._config) if self._config.getoption("lf") else []
            self._config.cache.set(KEPT, [*before, *self._names])


def not_again(config: pytest.Config, items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Returns tests without those of the router's floors that passed in the last run."""
    passed = {name for name in _known(config) if name.split("/")[1] in ONCE}
    return [item for item in items if item.nodeid not in passed]


def _known(config: pytest.Config) -> list[str]:
    names: list[str] = config.cache.get(KEPT, []) if _has_cache(config) else []
    return names


def _has_cache(config: pytest.Config) -> bool:
    return config.pluginmanager.hasplugin("cacheprovider")
