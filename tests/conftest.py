"""What all tests share: how hypothesis runs, which tier runs, brokers that take long to start."""

import os
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.rules import tables
from tests.support import peers, rabbitmq
from tests.support.rabbitmq import RabbitNode

# A machine busy with other tests makes any example slow: how long one takes says nothing here.
settings.register_profile(
    "router", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("router")

ASKED_FOR = ("slow", "installed")
"""Markers of tests that plain ``pytest`` leaves out."""


SHOWN = pytest.StashKey[set[str]]()
"""The tests that passed, or were left out for want of a peer, as ``file.py::test_name``."""


def pytest_configure(config: pytest.Config) -> None:
    """Runs from the root of the repository, wherever pytest was started."""
    os.chdir(config.rootpath)
    config.stash[SHOWN] = set()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what only runs when it is asked for with ``-m`` or by name."""
    if config.getoption("-m") or any("::" in argument for argument in config.args):
        return
    left_out = [item for item in items if any(map(item.get_closest_marker, ASKED_FOR))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not any(map(item.get_closest_marker, ASKED_FOR))]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Notes that a test passed."""
    report = yield
    is_left_out = report.skipped and peers.is_left_out(str(report.longrepr))
    if is_left_out or (report.passed and report.when == "call"):
        item.config.stash[SHOWN].add(item.nodeid.partition("[")[0])
    return report


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A whole run fails if it left out a test that is to show a rule of a specification."""
    if exitstatus == pytest.ExitCode.OK and unshown_rules(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def unshown_rules(config: pytest.Config) -> list[str]:
    """Returns the tests that the tables of rules name and that a run of the whole suite lacked."""
    is_whole = config.args_source is config.ArgsSource.TESTPATHS and not any(
        map(config.getoption, ("-m", "-k", "--last-failed", "--collect-only"))
    )
    shown = config.stash[SHOWN]
    return sorted(tables.named_tests() - shown) if is_whole else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Counts in the last lines what was left out, with the command that brings what is missing."""
    skipped = terminalreporter.stats.get("skipped", [])
    lines = peers.left_out(report.longrepr[2] for report in skipped)
    for line in lines:
        terminalreporter.write_line(line)
    for test in unshown_rules(terminalreporter.config):
        terminalreporter.write_line(
            f"did not run and pass, though a rule of tests/rules names it: {test}"
        )


@pytest.fixture(scope="session")
def rabbit_nodes(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[RabbitNode, RabbitNode]]:
    """Two RabbitMQ nodes, east and west, for the whole run; both start at once."""
    peers.need_rabbitmq()
    folder = tmp_path_factory.mktemp("rabbitmq")
    with rabbitmq.running_all(folder, "east", "west") as nodes:
        east, west = nodes
        yield east, west


@pytest.fixture(scope="session")
def rabbit_node(rabbit_nodes: tuple[RabbitNode, RabbitNode]) -> RabbitNode:
    """One RabbitMQ node for the whole run."""
    return rabbit_nodes[0]
