"""Which tests a run takes, and how it shares them out among its workers.

There are four tiers, each with a target of the Makefile: quick < test < all < slow. A test says by
a marker when it is in none but the larger ones; without a marker it is in all.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling


class Tier(StrEnum):
    """How much of the suite a run takes; what is marked ``slow`` or ``installed`` is in none."""

    QUICK = "quick"
    TEST = "test"
    ALL = "all"


ASKED_FOR: Final = ("slow", "installed")
"""Markers of tests that only run when they are asked for with ``-m`` or by name."""

LEFT_OUT: Final = {
    Tier.QUICK: ("long", "processes", "thorough", *ASKED_FOR),
    Tier.TEST: ("long", *ASKED_FOR),
    Tier.ALL: ASKED_FOR,
}

QUICK_FOLDERS: Final = ("model", "routes", "links", "wire", "core", "journal")
"""Folders of ``tests`` whose tests need no other process: one for each of the lower floors."""

STARTS: Final = frozenset({"subprocess.Popen", "os.fork", "os.posix_spawn", "os.system"})
"""Audit events of Python that mean another process."""


def tier_of(config: pytest.Config) -> Tier:
    """Returns how much of the suite runs."""
    return Tier(config.getoption("--tier"))


def is_in(tier: Tier, item: pytest.Item) -> bool:
    """Returns whether a tier has a test."""
    return not any(map(item.get_closest_marker, LEFT_OUT[tier]))


SECONDS_ALLOWED: Final = {"slow": 0, "installed": 1800, "long": 900}
"""Limits on time of what is marked, in seconds; 0: none. Others have the one in pyproject.toml."""


def limit_time(item: pytest.Item) -> None:
    """Gives what may run long the limit of its marker, if neither it nor --timeout has one."""
    asked = item.config.getoption("timeout", None)
    if item.get_closest_marker("timeout") is None and asked is None:
        for name, seconds in SECONDS_ALLOWED.items():
            if item.get_closest_marker(name) is not None:
                item.add_marker(pytest.mark.timeout(seconds))
                return


def refuse_processes(event: str, _: object) -> None:
    """Fails what starts a process; an audit hook of the tier that has none.

    Raises:
        RuntimeError: a process is about to start.
    """
    if event in STARTS:
        raise RuntimeError(f"{event} in `make quick`: mark the test with pytest.mark.processes")


QUICK_EXAMPLES: Final = 20
"""How many examples hypothesis tries for a test of the quick tier, however many the test asks."""


def cap_examples(item: pytest.Item) -> None:
    """Makes hypothesis try no more than a few examples for this test."""
    case = getattr(item, "cls", None)
    holder, name = (case, "settings") if case else (getattr(item, "obj", None), _SETTINGS)
    asked = getattr(holder, name, None)
    if isinstance(asked, settings) and asked.max_examples > QUICK_EXAMPLES:
        setattr(holder, name, settings(asked, max_examples=QUICK_EXAMPLES))


_SETTINGS: Final = "_hypothesis_internal_use_settings"
"""Where hypothesis keeps the settings of a test; it has no public way to lower a test's own."""

RABBITMQ: Final = "RabbitMQ"

TOGETHER: Final = {
    "tests/interop/test_bridge_0_9_1.py": RABBITMQ,
    "tests/interop/test_rabbitmq_shovel.py": RABBITMQ,
    "tests/interop/test_rabbitmq_polls.py": RABBITMQ,
    "tests/interop/test_rabbitmq_away.py": RABBITMQ,
    "tests/interop/test_rabbitmq_bridge.py": RABBITMQ,
    "tests/interop/test_rabbitmq_check.py": RABBITMQ,
    "tests/interop/test_rabbitmq_exchanges.py": RABBITMQ,
    "tests/interop/test_rabbitmq_fallback.py": RABBITMQ,
    "tests/interop/test_rabbitmq_streams.py": RABBITMQ,
    "tests/interop/test_fallback_matrix.py": RABBITMQ,
    "tests/interop/test_basic_tools.py": RABBITMQ,
    "tests/interop/test_rabbitmq_0_9_1.py": RABBITMQ,
    "tests/chaos/test_stored.py": RABBITMQ,
    "tests/interop/test_websocket.py": RABBITMQ,
    "tests/chaos/test_rabbitmq.py": RABBITMQ,
    "tests/pipeline": "Spark",
    "tests/rules/v0_9_1": "a router for the rules of 0-9-1",
}
"""File or folder → what its tests share, so that one worker runs them; else a file is a group."""

APART: Final = frozenset({"tests/service/test_takeover.py", "tests/service/test_kept.py"})
"""Files whose tests share nothing and last long: each of them is a group of its own."""

LONGEST: Final[Sequence[str]] = (
    "Spark",
    RABBITMQ,
    "tests/examples/test_examples.py",
    "tests/service/admin/test_endpoint.py",
    "tests/service/test_takeover.py",
    "tests/service/test_supervisor.py",
    "tests/service/test_kept.py",
    "tests/service/test_late_attaches.py",
    "tests/cli/test_client.py",
    "a router for the rules of 0-9-1",
    "tests/chaos/test_mutated_conversations.py",
    "tests/service/test_neighbours.py",
    "tests/chaos/test_exactly_once.py",
    "tests/interop/test_basic_workers.py",
    "tests/service/admin/test_console.py",
    "tests/journal/test_explorer.py",
    "tests/core/test_foreign_names.py",
    "tests/rules/fast/test_fast.py",
)
"""Groups that begin first, so that no worker is left alone with one at the end."""


def group_of(nodeid: str) -> str:
    """Returns the group that a test is in: one worker runs a group, in order."""
    file, _, test = nodeid.partition("::")
    folder = file.rpartition("/")[0]
    if file in APART:
        return f"{file}::{test}"
    return TOGETHER.get(file) or TOGETHER.get(folder) or file


def longest_first(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Returns the tests, the groups that last long before the others."""
    ranks = {group: rank for rank, group in enumerate(LONGEST)}

    def rank(item: pytest.Item) -> int:
        group = group_of(item.nodeid)
        return ranks.get(group, ranks.get(group.partition("::")[0], len(ranks)))

    return sorted(items, key=rank)


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each worker that is about to run out of tests the next group."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
