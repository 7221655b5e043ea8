"""Says at once what fails and what takes long, for logs that may be cut off before the summary."""

from typing import Final

import pytest

from tests.support.memory import GROWN, TOLD_OCTETS

SLOW_SECONDS: Final = 60.0


class Telling:
    """Writes a line for what failed, took a minute or more, or made its process grow by much."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tells of one phase of one test."""
        if report.failed or report.duration >= SLOW_SECONDS:
            word = "failed" if report.failed else "passed"
            self._tell(f"{report.nodeid} ({report.when}) {word} after {report.duration:.0f} s")
        grown = dict(report.user_properties).get(GROWN, 0)
        if isinstance(grown, int) and grown >= TOLD_OCTETS:
            self._tell(f"{report.nodeid} made its process grow by {grown >> 20} MiB")

    def _tell(self, line: str) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.write_line(f"\n{line}")  # behind the dots of a line that is not full
