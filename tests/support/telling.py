"""Says at once what fails and what takes long, for logs that may be cut off before the summary."""

from typing import Final

import pytest

SLOW_SECONDS: Final = 60.0


class Telling:
    """Writes a line for each phase of a test that failed, or that took a minute or more."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tells of one phase of one test."""
        if not report.failed and report.duration < SLOW_SECONDS:
            return
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            word = "failed" if report.failed else "passed"
            line = f"{report.nodeid} ({report.when}) {word} after {report.duration:.0f} s"
            terminal.write_line(f"\n{line}")  # behind the dots of a line that is not full
