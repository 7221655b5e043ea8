"""What the tests of the pipeline share: the extra, and one Spark session for all of them."""

import importlib.util
import os

import pytest

from tests.support.peers import need_spark

HAS_EXTRA = importlib.util.find_spec("pyarrow") is not None
collect_ignore_glob = [] if HAS_EXTRA or os.environ.get("CI") == "true" else ["test_*.py"]


@pytest.fixture(autouse=True, scope="session")
def extra() -> None:
    """CI has it; elsewhere these tests are skipped without it."""
    need_spark()
