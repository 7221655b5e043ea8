"""Whether a run showed what it is to show: the tests that the tables of rules name ran and passed.

A plugin of the process that decides how the run ends. Workers report each test to it, and at their
end what the tier left out.
"""

from typing import Any

import attrs
import pytest

from tests.rules import tables
from tests.support import peers
from tests.support.tiers import Tier, tier_of

_LATER = "left to a larger tier"


def name_of(nodeid: str) -> str:
    """Returns ``file.py::test_name``, without parameters."""
    return nodeid.partition("[")[0]


@attrs.define(eq=False)
class RuleCheck:
    """Fails a run of a whole tier that lacked a test which is to show a rule.

    Attributes:
        shown: the tests that passed, or were left out for want of a peer.
        later: the tests that the tier leaves to a larger one.
    """

    config: pytest.Config
    shown: set[str] = attrs.field(factory=set, init=False)
    later: set[str] = attrs.field(factory=set, init=False)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Records what the tier left out."""
        self.later.update(name_of(item.nodeid) for item in items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Records that a test passed, here or at a worker."""
        is_left_out = report.skipped and peers.is_left_out(str(report.longrepr))
        if is_left_out or (report.passed and report.when == "call"):
            self.shown.add(name_of(report.nodeid))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Records what the tier left out at a worker, which knows all tests."""
        self.later.update(getattr(node, "workeroutput", {}).get(_LATER, ()))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Decides how the run ends; a worker says what it knows."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_LATER] = sorted(self.later)
        elif exitstatus == pytest.ExitCode.OK and self.unshown():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Counts in the last lines what was left out, with the command that brings it."""
        skipped = terminalreporter.stats.get("skipped", [])
        for line in peers.left_out(report.longrepr[2] for report in skipped):
            terminalreporter.write_line(line)
        for test in self.unshown():
            terminalreporter.write_line(
                f"did not run and pass, though a rule of tests/rules names it: {test}"
            )

    def unshown(self) -> list[str]:
        """Returns the named tests that a run of a whole tier lacked; what is later is not."""
        narrowed = ("-m", "-k", "--last-failed", "--collect-only")
        is_whole = (
            self.config.args_source is self.config.ArgsSource.TESTPATHS
            and tier_of(self.config) is not Tier.QUICK
            and not any(self.config.getoption(option, None) for option in narrowed)
        )
        return sorted(tables.named_tests() - self.shown - self.later) if is_whole else []
