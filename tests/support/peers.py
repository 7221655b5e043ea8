"""Real brokers and clients: found, or the test says why it cannot run.

CI installs all of them, so there a missing one fails the test (``CI=true``); elsewhere it skips it.
"""

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from tests.support import rabbitmq

NODE_MODULES = Path("tests/interop/node/node_modules")
C_EXAMPLES = Path("/usr/share/proton/examples/c")


def miss(peer: str) -> NoReturn:
    """Skips the test for want of a real peer; in CI fails it."""
    reason = f"{peer} is not installed (.ci/run installs it)"
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must not skip: {reason}")
    pytest.skip(reason)


def need_rabbitmq() -> None:
    """Wants RabbitMQ from Debian."""
    if not rabbitmq.is_installed():
        miss("rabbitmq-server")


def need_python(module: str) -> None:
    """Wants a Python package, by the name it is imported by."""
    if module not in sys.modules and importlib.util.find_spec(module) is None:
        miss(f"the Python package of {module}")


def need_node(package: str) -> None:
    """Wants Node and an npm package."""
    if shutil.which("node") is None:
        miss("Node")
    if not (NODE_MODULES / package).is_dir():
        miss(f"the npm package {package} (npm install --prefix tests/interop/node)")


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
        miss("Java")
