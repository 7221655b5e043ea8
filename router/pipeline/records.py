"""Reads a ledger: its files and its records."""

import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from router.errors import RouterError
from router.pipeline.schema import LEDGER, PARTITIONS, spark_ddl


class LedgerError(RouterError):
    """There is no ledger, or it has no records of the requested time."""


def ledger_schema() -> Any:
    """Returns the schema of the records, partition columns last."""
    from pyspark.sql.types import StructType  # noqa: PLC0415  an extra

    return StructType.fromDDL(spark_ddl((*LEDGER, *PARTITIONS)))


def find_files(
    spark: Any,
    ledgers: Sequence[str],
    since: datetime.date | None = None,
    until: datetime.date | None = None,
) -> list[str]:
    """Finds the files of ledgers, on whatever file system Spark knows, sorted.

    Args:
        spark: the session.
        ledgers: directories, as paths or URLs.
        since: first day wanted.
        until: last day wanted.

    Raises:
        LedgerError: a directory does not exist.
    """
    jvm, configuration = spark._jvm, spark._jsc.hadoopConfiguration()
    found: set[str] = set()
    for ledger in ledgers:
        path = jvm.org.apache.hadoop.fs.Path(ledger)
        system = path.getFileSystem(configuration)
        if not system.exists(path):
            raise LedgerError(f"{ledger}: no ledger here")
        if system.getScheme() == "file":
            root = system.makeQualified(path)
            names = _local_files(root.toUri().getPath(), since, until)
            found.update(f"{root.toString()}/{name}" for name in names)
            continue
        for day in system.listStatus(path):
            name = day.getPath().getName()
            if not name.startswith("date=") or not _is_wanted(name[5:], since, until):
                continue
            files = system.listFiles(day.getPath(), True)
            while files.hasNext():
                file = files.next().getPath().toString()
                if file.endswith(".parquet"):
                    found.add(file)
    return sorted(found)


def _local_files(
    ledger: str, since: datetime.date | None, until: datetime.date | None
) -> Iterator[str]:
    """Yields the files below a directory of this machine; Hadoop starts ``ls`` for each file."""
    root = Path(ledger)
    for day in root.glob("date=*"):
        if _is_wanted(day.name[5:], since, until):
            for file in day.rglob("*.parquet"):
                yield str(file.relative_to(root))


def _is_wanted(day: str, since: datetime.date | None, until: datetime.date | None) -> bool:
    date = datetime.date.fromisoformat(day)
    return (since is None or date >= since) and (until is None or date <= until)


def read_records(spark: Any, files: Sequence[str]) -> Any:
    """Reads records; ``date`` and ``router`` come from the files' paths.

    The files are not listed by Spark, which would list a ledger of years to read one day of it.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra
    from pyspark.sql.types import StructType  # noqa: PLC0415

    records = spark.read.schema(StructType.fromDDL(spark_ddl(LEDGER))).parquet(*files)
    path = F.col("_metadata.file_path")
    return records.select(
        "*",
        F.url_decode(F.regexp_extract(path, "/router=([^/]+)/", 1)).alias("router"),
        path.alias("file"),
    )
