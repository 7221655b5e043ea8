"""Real brokers and clients: found, or the test says why it cannot run.

CI installs all of them, so there a missing one fails the test (``CI=true``). Elsewhere the test is
left out, and the last lines of the run count what was, with the command that brings it.
"""

import importlib.util
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NoReturn

import pytest

from tests.support import rabbitmq

NODE_MODULES = Path("tests/interop/node/node_modules")
C_EXAMPLES = Path("/usr/share/proton/examples/c")


PYTHON_EXTRAS: Final = ".venv/bin/pip install --require-hashes -r requirements-all.lock"
NODE_PACKAGES: Final = "npm install --prefix tests/interop/node"

_LEFT_OUT: Final = "left out: "


def miss(peer: str, command: str | None = None) -> NoReturn:
    """Skips the test for want of a real peer; in CI fails it.

    Args:
        peer: what is missing; a Debian package, if ``command`` is None.
        command: what installs it.
    """
    reason = f"{peer} is not installed: {command or f'apt-get install {peer}'}"
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must not skip: {reason}")
    leave_out(reason)


def leave_out(reason: str) -> NoReturn:
    """Skips the test, in CI too; the last lines count it.

    Args:
        reason: what is missing, and the command that brings it.
    """
    pytest.skip(_LEFT_OUT + reason)


def is_left_out(reason: str) -> bool:
    """Returns whether a test was skipped by ``miss``."""
    return _LEFT_OUT in reason


def left_out(reasons: Iterable[str]) -> list[str]:
    """Returns a line for each missing peer: how many tests it cost, and what brings it.

    Args:
        reasons: why tests were skipped; others than those of ``miss`` do not count.
    """
    counted = Counter(reason.partition(_LEFT_OUT)[2] for reason in reasons if is_left_out(reason))
    return [f"{tests:5} left out, {reason}" for reason, tests in counted.most_common()]


def need_rabbitmq() -> None:
    """Wants RabbitMQ from Debian."""
    if not rabbitmq.is_installed():
        miss("rabbitmq-server")


def need_python(module: str) -> None:
    """Wants a Python package, by the name it is imported by."""
    if not has_python(module):
        miss(f"the Python package of {module}", PYTHON_EXTRAS)


def has_python(module: str) -> bool:
    """Returns whether a module can be imported; its parent packages may be missing, too."""
    if module in sys.modules:
        return True
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is not installed
        return False


def need_node(package: str) -> None:
    """Wants Node and an npm package."""
    if shutil.which("node") is None:
        miss("nodejs")
    if not (NODE_MODULES / package).is_dir():
        miss(f"the npm package {package}", NODE_PACKAGES)


def need_program(name: str, package: str | None = None) -> None:
    """Wants a program; its Debian package, if that has another name."""
    if shutil.which(name) is None:
        miss(name, package and f"apt-get install {package}")


def need_c_examples() -> None:
    """Wants the C examples of Qpid Proton and what compiles them."""
    if not (C_EXAMPLES / "send.c").exists():
        miss("libqpid-proton11-dev-examples")
    for tool in ("gcc", "pkg-config"):
        if shutil.which(tool) is None:
            miss(tool)


def need_spark() -> None:
    """Wants the extra ``router[spark]`` and a Java runtime."""
    for module in ("pyspark", "pyarrow", "pandas"):
        need_python(module)
    if shutil.which("java") is None:
        miss("default-jre-headless")
