"""What the tests of the pipeline share: the extra, and one Spark session for all of them."""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.peers import need_spark

HAS_EXTRA = importlib.util.find_spec("pyarrow") is not None


class LeftOut(pytest.File):
    """A file that cannot be imported without the extra: one item that says so stands for it."""

    def collect(self) -> list[pytest.Item]:
        """Returns that item."""
        return [WantOfSpark.from_parent(self, name="without_the_extra")]


class WantOfSpark(pytest.Item):
    """Skips itself with the command that brings the extra."""

    obj = staticmethod(need_spark)
    """What plugins that look at every test's function find, as on pytest's own items."""

    def runtest(self) -> None:
        """Looks for the extra."""
        need_spark()


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> LeftOut | None:
    """Leaves files out where pyarrow is missing, and has them counted; CI misses nothing."""
    if HAS_EXTRA or os.environ.get("CI") == "true":
        return None
    return LeftOut.from_parent(parent, path=module_path)


@pytest.fixture(autouse=True, scope="session")
def extra() -> None:
    """CI has it; elsewhere these tests are skipped without it."""
    need_spark()


@pytest.fixture(scope="package")
def spark(extra: None) -> Iterator[Any]:
    """One session for all tests: small, and quick to start."""
    from router.pipeline.session import open_session

    session = open_session(
        "tests",
        "local[2]",
        {
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": "false",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    yield session
    session.stop()
