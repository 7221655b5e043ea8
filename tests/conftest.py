"""What all tests share: how hypothesis runs, which tier runs, brokers that take long to start."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support import peers, rabbitmq
from tests.support.rabbitmq import RabbitNode

# A machine busy with other tests makes any example slow: how long one takes says nothing here.
settings.register_profile(
    "router", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("router")

ASKED_FOR = ("slow", "installed")
"""Markers of tests that plain ``pytest`` leaves out."""


def pytest_configure(config: pytest.Config) -> None:
    """Runs from the root of the repository, wherever pytest was started."""
    os.chdir(config.rootpath)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what only runs when it is asked for with ``-m`` or by name."""
    if config.getoption("-m") or any("::" in argument for argument in config.args):
        return
    left_out = [item for item in items if any(map(item.get_closest_marker, ASKED_FOR))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not any(map(item.get_closest_marker, ASKED_FOR))]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Counts in the last lines what was left out, with the command that brings what is missing."""
    skipped = terminalreporter.stats.get("skipped", [])
    lines = peers.left_out(report.longrepr[2] for report in skipped)
    for line in lines:
        terminalreporter.write_line(line)


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
