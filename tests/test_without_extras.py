"""The suite is collected where only `requirements-dev.lock` is installed: no file needs an extra.

CI begins with such an environment. This finds out in any other, which has the extras' modules
looked for in vain.
"""

import os
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

COLLECT = """
import sys
from importlib.machinery import PathFinder

import pytest

missing = set(sys.argv[1].split(","))


class Bare(PathFinder):
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        is_missing = fullname.partition(".")[0] in missing
        return None if is_missing else super().find_spec(fullname, path, target)


sys.meta_path[:] = [Bare if each is PathFinder else each for each in sys.meta_path]
sys.exit(pytest.main(["--collect-only", "-qq", "-n", "0", "-p", "no:cacheprovider", "tests"]))
"""


def locked(name: str) -> set[str]:
    """Distributions of a lock file, their names as PyPI normalizes them."""
    lines = (ROOT / name).read_text().splitlines()
    return {
        re.sub(r"[-_.]+", "-", match[1]).lower()
        for line in lines
        if (match := re.match(r"([\w.-]+)==", line))
    }


def modules_of_extras() -> list[str]:
    """Modules installed here that a bare environment lacks."""
    extras = locked("requirements-all.lock") - locked("requirements-dev.lock")
    return sorted(
        module
        for module, names in packages_distributions().items()
        if {re.sub(r"[-_.]+", "-", each).lower() for each in names} <= extras
    )


@pytest.mark.long
def test_every_test_file_can_be_imported_without_the_extras() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    for name in [each for each in environment if each.startswith("PYTEST_")]:
        del environment[name]
    done = subprocess.run(
        [sys.executable, "-c", COLLECT, ",".join(modules_of_extras())],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
