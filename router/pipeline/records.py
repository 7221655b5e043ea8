"""Reads a ledger: its files, its records, its links, and the holes in its sequences."""

import datetime
from collections.abc import Sequence
from typing import Any, Final

import attrs

from router.errors import RouterError
from router.journal.block import OWN_WORKER
from router.journal.record import RecordKind
from router.pipeline.schema import LEDGER, PARTITIONS, spark_ddl

OPEN: Final = "-open.parquet"
"""Suffix of files that another file replaces later."""


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
        "*", F.url_decode(F.regexp_extract(path, "/router=([^/]+)/", 1)).alias("router")
    )


@attrs.frozen(kw_only=True)
class Link:
    """One end of a link, as a ledger names it.

    Attributes:
        key: of 64 bits, signed.
        router: the router that has this end.
        container: the peer's container-id.
        address: of the terminus.
        is_incoming: the router receives deliveries over it.
    """

    key: int
    router: str
    container: str
    name: str
    address: str
    is_incoming: bool


@attrs.frozen(kw_only=True)
class LedgerHole:
    """Records that a router wrote and that are missing from its ledger.

    Attributes:
        first: sequence number of the first missing record.
        last: sequence number of the last missing record.
        after_ns: time of the record before the hole; 0 if there is none.
        before_ns: time of the record after it; None if there is none.
    """

    router: str
    worker: int
    incarnation: int
    first: int
    last: int
    after_ns: int
    before_ns: int | None


@attrs.frozen(kw_only=True)
class Extent:
    """The extent of the records of one life of a worker.

    Attributes:
        following: sequence number that the next record will have.
        last_ns: time of the latest record.
    """

    router: str
    worker: int
    incarnation: int
    following: int
    last_ns: int


@attrs.frozen(kw_only=True)
class Survey:
    """Facts about records that are needed to judge their deliveries.

    Attributes:
        holes: missing records.
        extents: extent of each life, including those known before.
        links: links that the records name.
        unrecorded: deliveries that a router reported as unrecorded.
        records: number of records, without repeated links and marks.
        first_ns: time of the first record.
        last_ns: time of the last record.
    """

    holes: Sequence[LedgerHole] = ()
    extents: Sequence[Extent] = ()
    links: Sequence[Link] = ()
    unrecorded: int = 0
    records: int = 0
    first_ns: int | None = None
    last_ns: int | None = None


def survey_records(records: Any, known: Sequence[Extent] = ()) -> Survey:
    """Surveys links and sequence numbers: two passes over few columns, a third if there are holes.

    Records before the first one of each worker's oldest life do not count as missing, because the
    ledger begins there. A later life begins with number 1.

    Args:
        records: of the ledger.
        known: extent of each life before these records.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    links, unrecorded = _read_others(records)
    numbered = records.where(F.col("worker") != OWN_WORKER)
    is_mark = F.col("kind") == int(RecordKind.MARK)
    rows = (
        numbered.groupBy("router", "worker", "incarnation")
        .agg(
            F.sum(F.when(is_mark, 0).otherwise(1)).alias("count"),
            F.min("sequence").alias("first"),
            F.max(F.when(is_mark, F.col("sequence")).otherwise(F.col("sequence") + 1)).alias(
                "following"
            ),
            F.min(F.when(~is_mark, F.col("time_ns"))).alias("first_ns"),
            F.max(F.when(~is_mark, F.col("time_ns"))).alias("last_ns"),
        )
        .collect()
    )
    extents = {(each.router, each.worker, each.incarnation): each for each in known}
    oldest: dict[tuple[str, int], int] = {}
    for router, worker, life in [*extents, *((r.router, r.worker, r.incarnation) for r in rows)]:
        oldest[router, worker] = min(life, oldest.get((router, worker), life))
    holes: list[LedgerHole] = []
    for row in rows:
        name = (row.router, row.worker, row.incarnation)
        before = extents.get(name)
        begin = _begin(row, before, oldest[row.router, row.worker] == row.incarnation)
        extents[name] = Extent(
            router=row.router,
            worker=row.worker,
            incarnation=row.incarnation,
            following=max(row.following, begin),
            last_ns=max(row.last_ns or 0, 0 if before is None else before.last_ns),
        )
        if row.following > begin and row["count"] != row.following - begin:
            holes += _holes_of(numbered.where(~is_mark), name, begin, row.following)
    return Survey(
        holes=holes,
        extents=list(extents.values()),
        links=links,
        unrecorded=unrecorded,
        records=sum(row["count"] for row in rows),
        first_ns=min((row.first_ns for row in rows if row.first_ns), default=None),
        last_ns=max((row.last_ns for row in rows if row.last_ns), default=None),
    )


def _read_others(records: Any) -> tuple[list[Link], int]:
    """Reads links and counts unrecorded deliveries; such records are few and are all collected."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    is_link = F.col("kind") == int(RecordKind.LINK_ATTACHED)
    rows = (
        records.where(F.col("kind").isin(int(RecordKind.LINK_ATTACHED), int(RecordKind.GAP)))
        .where(~is_link | F.col("link_name").isNotNull())
        .groupBy("kind", "router", "incoming", "outgoing", "container", "link_name", "address")
        .agg(F.sum("message_octets").alias("unrecorded"))
        .collect()
    )
    links = [
        Link(
            key=row.incoming or row.outgoing,
            router=row.router,
            container=row.container or "",
            name=row.link_name or "",
            address=row.address or "",
            is_incoming=bool(row.incoming),
        )
        for row in rows
        if row.kind != RecordKind.GAP
    ]
    return links, sum(row.unrecorded for row in rows if row.kind == RecordKind.GAP)


def _begin(row: Any, known: Extent | None, is_oldest: bool) -> int:
    """Returns the sequence number with which a life's records should begin."""
    if known is not None:
        return known.following
    first: int = row.first
    return first if is_oldest else 1


def _holes_of(
    records: Any, life: tuple[str, int, int], begin: int, following: int
) -> list[LedgerHole]:
    from pyspark.sql import Window  # noqa: PLC0415  an extra
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    router, worker, incarnation = life
    order = Window.partitionBy("worker").orderBy("sequence")
    rows = (
        records.where(F.col("router") == router)
        .where((F.col("worker") == worker) & (F.col("incarnation") == incarnation))
        .select(
            "sequence",
            "time_ns",
            F.lag("sequence", 1, begin - 1).over(order).alias("before"),
            F.lag("time_ns", 1, 0).over(order).alias("after_ns"),
            F.lead("sequence").over(order).alias("next"),
        )
        .where((F.col("sequence") > F.col("before") + 1) | F.col("next").isNull())
        .orderBy("sequence")
        .collect()
    )
    found = [
        (row.before + 1, row.sequence - 1, row.after_ns, row.time_ns)
        for row in rows
        if row.sequence > row.before + 1
    ]
    if not rows:
        found.append((begin, following - 1, 0, None))
    elif rows[-1].sequence < following - 1:
        found.append((rows[-1].sequence + 1, following - 1, rows[-1].time_ns, None))
    return [
        LedgerHole(
            router=router,
            worker=worker,
            incarnation=incarnation,
            first=first,
            last=last,
            after_ns=after,
            before_ns=behind,
        )
        for first, last, after, behind in found
    ]
