"""What the tests of the pipeline share: the extra, and one Spark session for all of them."""

import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.peers import need_spark

HAS_EXTRA = importlib.util.find_spec("pyarrow") is not None
collect_ignore_glob = [] if HAS_EXTRA or os.environ.get("CI") == "true" else ["test_*.py"]


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
