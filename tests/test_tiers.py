"""A run shared out among workers does and says what a run of one process does and says."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import tiers
from tests.support.tiers import Tier

SUITE = """
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies

HERE = Path(__file__).parent

@pytest.mark.parametrize("number", range(3))
def test_passes(number): (HERE / f"{os.getpid()}").touch()

@pytest.mark.long
def test_takes_minutes(): pass

@pytest.mark.slow
def test_takes_hours(): raise AssertionError

def test_says_when(): assert (HERE / "good").exists(), "not yet"

def test_has_no_peer(): pytest.skip("left out: a broker is not installed: buy one")

def test_starts_a_process(): subprocess.run([sys.executable, "-c", ""])

@settings(max_examples=200)
@given(strategies.integers())
def test_tries(number):
    with (HERE / "tried").open("a") as file: file.write(".")
"""

PLUGIN = """
from tests.rules import tables

tables.named_tests = lambda: frozenset({named!r})
"""

HEAVY = """
import gc

kept = []

def test_leaves_the_collector_off(): gc.disable()

def test_comes_after(): assert gc.isenabled()

def test_keeps_much(): kept.append(b"x" * (80 << 20))
"""

INI = """
[pytest]
testpaths = tests
addopts = -q -p no:schemathesis --import-mode=importlib
markers =
    long: minutes
    slow: hours
    processes: starts some
    thorough: seconds
"""


class Suite:
    """A suite of a few tests under the rules of ours."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "tests" / "core"
        self.folder.mkdir(parents=True)
        (root / "pytest.ini").write_text(INI)
        (self.folder / "test_some.py").write_text(SUITE)
        (self.folder / "test_more.py").write_text("def test_passes(): pass\n")
        (self.folder / "good").touch()
        self.name("test_passes")

    def name(self, *tests: str) -> None:
        """Has the tables of rules name these tests of the first file."""
        named = [f"tests/core/test_some.py::{test}" for test in tests]
        (self.root / "named.py").write_text(PLUGIN.format(named=named))

    def run(self, *arguments: str) -> tuple[int, str]:
        """Returns the exit code, and what was printed."""
        plugins = ("-p", "tests.conftest", "-p", "named")
        command = [sys.executable, "-m", "pytest", *plugins, *arguments]
        done = subprocess.run(
            command,
            cwd=self.root,
            env={"PYTHONPATH": str(Path.cwd()), "PATH": "/usr/bin:/bin", "ROUTER_TESTS_TELL": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


@pytest.fixture(params=["one process", "two workers"])
def workers(request: pytest.FixtureRequest) -> str:
    return "-n0" if request.param == "one process" else "-n2"


def test_a_whole_run_counts_what_was_left_out_and_wants_what_is_named(
    suite: Suite, workers: str
) -> None:
    suite.name("test_passes", "test_takes_minutes", "test_has_no_peer")
    code, said = suite.run(workers)
    assert code == 0, said
    assert "1 left out, a broker is not installed: buy one" in said
    suite.name("test_passes", "test_gone")
    code, said = suite.run(workers)
    assert code == 1
    assert "a rule of tests/rules names it: tests/core/test_some.py::test_gone" in said


def test_what_is_named_may_be_in_a_larger_tier(suite: Suite, workers: str) -> None:
    suite.name("test_passes", "test_takes_minutes")
    code, said = suite.run(workers, "--tier", "test")
    assert code == 0, said
    assert "test_takes_minutes" not in said


def test_what_failed_is_named_and_is_run_again_alone(suite: Suite, workers: str) -> None:
    (suite.folder / "good").unlink()
    code, said = suite.run(workers)
    assert code == 1
    assert "FAILED tests/core/test_some.py::test_says_when - AssertionError: not yet" in said
    kept = json.loads((suite.root / ".pytest_cache/v/cache/lastfailed").read_text())
    assert list(kept) == ["tests/core/test_some.py::test_says_when"]
    (suite.folder / "good").touch()
    code, said = suite.run("--last-failed", "--last-failed-no-failures", "none")
    assert code == 0, said
    assert "1 passed" in said


def test_what_has_passed_of_the_floors_is_not_run_again(suite: Suite, workers: str) -> None:
    """Not in a larger run after it, nor what failed and passed when it was run once more."""
    for folder in ("service", "interop"):
        path = suite.root / "tests" / folder
        path.mkdir()
        (path / f"test_{folder}.py").write_text("def test_passes(): pass\n")
    (suite.folder / "good").unlink()
    code, said = suite.run(workers, "--tier", "test")
    assert code == 1, said
    (suite.folder / "good").touch()
    suite.run("--last-failed", "--last-failed-no-failures", "none")
    code, said = suite.run(workers, "--not-again")
    assert code == 0, said
    assert "2 passed" in said, "one that takes minutes, and one of no floor"
    assert "1 skipped" in said


def test_a_suite_that_keeps_nothing_remembers_nothing_of_what_has_passed(suite: Suite) -> None:
    code, said = suite.run("-p", "no:cacheprovider", "--collect-only", "--not-again")
    assert code == 0, said


def test_a_file_stays_with_one_worker(suite: Suite) -> None:
    suite.run("-n2")
    processes = [path for path in suite.folder.iterdir() if path.name.isdigit()]
    assert len(processes) == 1


def test_the_quick_tier_tries_few_examples_and_starts_no_process(
    suite: Suite, workers: str
) -> None:
    code, said = suite.run(workers, "--tier", "quick")
    assert code == 1
    assert "1 failed" in said
    assert "mark the test with pytest.mark.processes" in said
    assert len((suite.folder / "tried").read_text()) <= tiers.QUICK_EXAMPLES


def test_who_leaves_the_collector_off_fails_and_who_keeps_much_is_named(
    suite: Suite, workers: str
) -> None:
    (suite.folder / "test_heavy.py").write_text(HEAVY)
    code, said = suite.run(workers, "tests/core/test_heavy.py")
    assert code == 1
    assert "3 passed, 1 error" in said
    assert "ERROR tests/core/test_heavy.py::test_leaves_the_collector_off" in said
    told = [line for line in said.splitlines() if "made its process grow" in line]
    assert [line.split()[0] for line in told] == ["tests/core/test_heavy.py::test_keeps_much"]


def test_every_group_that_is_listed_is_there() -> None:
    listed = [*tiers.TOGETHER, *tiers.APART, *tiers.LONGEST]
    paths = [Path(name) for name in listed if name.startswith("tests/")]
    assert [str(path) for path in paths if not path.exists()] == []
    shared = set(tiers.TOGETHER.values())
    assert [n for n in tiers.LONGEST if not n.startswith("tests/") and n not in shared] == []


def test_a_larger_tier_leaves_out_no_more() -> None:
    quick, test, everything = (set(tiers.LEFT_OUT[tier]) for tier in Tier)
    assert everything < test < quick
