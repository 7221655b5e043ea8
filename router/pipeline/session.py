"""The Spark session of all jobs: local by default, or on a cluster by its master URL."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

LOCAL: Final = "local[*]"
MASTER_HELP: Final = (
    "Spark master to run on, as spark-submit has it: local[N], spark://HOST:PORT, yarn, k8s://…;"
    " default: that of spark-submit, or this machine."
)
_LOOPBACK: Final = "127.0.0.1"
_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",  # else a task for each file
}


@contextmanager
def spark_session(
    name: str, master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """Yields a session; ends it if it was made here.

    Args:
        name: of the application.
        master: URL of the cluster; None: that of spark-submit, or this machine.
        settings: of Spark, in addition to those of every job.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415  an extra

    before = SparkSession.getActiveSession()
    if before is not None:
        yield before
        return
    session = open_session(name, master, settings)
    try:
        yield session
    finally:
        session.stop()


def open_session(
    name: str, master: str | None = None, settings: Mapping[str, str] | None = None
) -> Any:
    """Opens a session; see ``spark_session``."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  an extra

    prepare_workers()
    where = master or _submitted_master() or LOCAL
    builder = SparkSession.builder.appName(name).master(where)
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    if where.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)  # avoids a warning about the host name
        builder = builder.config("spark.driver.bindAddress", _LOOPBACK)
        builder = builder.config("spark.driver.host", _LOOPBACK)
    if where.startswith("local["):
        builder = builder.config("spark.sql.shuffle.partitions", "8")
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def small_table(spark: Any, rows: Iterable[Sequence[Any]], columns: str) -> Any:
    """Returns a table of a few rows, which Spark keeps in its plan.

    ``createDataFrame`` of a list makes a job of it that runs Python on the executors, each time
    that the table is read.

    Args:
        spark: the session.
        rows: values in the order of the columns; structs as mappings.
        columns: names and types, as DDL.
    """
    import pyarrow as pa  # noqa: PLC0415  an extra
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415
    from pyspark.sql.types import StructType  # noqa: PLC0415

    schema = StructType.fromDDL(columns)
    arrow = to_arrow_schema(schema)
    named = [dict(zip(arrow.names, row, strict=True)) for row in rows]
    return spark.createDataFrame(pa.Table.from_pylist(named, schema=arrow), schema)


def _submitted_master() -> str | None:
    """Returns the master that spark-submit was given; None: this was started without it.

    ``SparkConf`` knows spark-submit's settings once there is a connection to its JVM.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415  an extra

    SparkContext._ensure_initialized()
    submitted: str | None = SparkConf().get("spark.master", None)
    return submitted


def prepare_workers() -> None:
    """Makes Spark's Python workers use this interpreter and this package.

    Otherwise they use the first ``python3`` on PATH.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    root = str(Path(__file__).resolve().parents[2])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, paths)])
