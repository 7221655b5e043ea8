"""What all tests share: how hypothesis runs, which tier runs, brokers that take long to start."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support import peers, rabbitmq, tiers
from tests.support.memory import MemoryWatch
from tests.support.passed import Passed, not_again
from tests.support.rabbitmq import RabbitNode
from tests.support.rule_check import RuleCheck
from tests.support.telling import Telling
from tests.support.tiers import Tier, tier_of

# A machine busy with other tests makes any example slow: how long one takes says nothing here.
settings.register_profile(
    "router",
    deadline=None,
    derandomize=bool(os.environ.get("CI") or os.environ.get("ROUTER_TESTS_TELL")),
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("router")


# Hundreds of processes are started, each of which would compile hundreds of modules anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the choice of a tier."""
    parser.addoption(
        "--tier",
        choices=[str(tier) for tier in Tier],
        default=str(Tier.ALL),
        help="how much of the suite: quick (lower floors, no process is started), test (nothing "
        "that is marked long), all; default: all. With -m or a test's name: what is asked for.",
    )
    parser.addoption(
        "--not-again",
        action="store_true",
        help="leave out the tests of the router's floors that passed in the last whole run",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Runs from the root of the repository, wherever pytest was started."""
    os.chdir(config.rootpath)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what is not in front
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(RuleCheck(config))
    config.pluginmanager.register(MemoryWatch())
    if os.environ.get("ROUTER_TESTS_TELL") and not _is_worker(config):
        config.pluginmanager.register(Telling(config))
        config.pluginmanager.register(Passed(config))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Does not even import what the quick tier never has."""
    if tier_of(config) is Tier.QUICK and collection_path.parent == config.rootpath / "tests":
        return collection_path.name not in tiers.QUICK_FOLDERS or None
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Limits times, leaves out what the tier lacks, and has the longest groups begin."""
    for item in items:
        tiers.limit_time(item)
        if "rabbit_nodes" in getattr(item, "fixturenames", ()):
            assert tiers.group_of(item.nodeid) == tiers.RABBITMQ, f"{item.nodeid}: tiers.TOGETHER"
    is_asked_for = config.getoption("-m") or any("::" in argument for argument in config.args)
    chosen = [item for item in items if tiers.is_in(tier_of(config), item)]
    if config.getoption("--not-again"):
        chosen = not_again(config, chosen)
    if len(chosen) < len(items) and not is_asked_for:
        kept = {*chosen}
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = chosen
    if tier_of(config) is Tier.QUICK:
        for item in items:
            tiers.cap_examples(item)
    if _is_worker(config):
        items[:] = tiers.longest_first(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Sees to it that the quick tier stays one: from now on nothing starts a process."""
    if tier_of(session.config) is Tier.QUICK and session.items:
        sys.addaudithook(tiers.refuse_processes)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keeps together what shares a broker; where ``--dist`` asks for another way, that is it."""
    if config.getoption("dist") != "load":
        return None
    config.option.loadscopereorder = False
    return tiers.GroupScheduling(config, log)


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


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
