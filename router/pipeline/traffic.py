"""Traffic: who sends how much to whom, over time; as a report, and as a stream.

The report (``summarize``) is made from deliveries as the audit groups them. The stream (``follow``)
counts records by minute as their files arrive, without state per delivery: a watermark closes a
minute when the records of all routers are ten minutes further. The stream misses files that arrive
later than that; the report includes them.
"""

import datetime
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from router.journal.record import OutcomeCode, RecordFlag, RecordKind
from router.pipeline.audit import named_deliveries
from router.pipeline.records import ledger_schema

WATERMARK: Final = "10 minutes"
"""Twice the time that a segment may be open."""

TALKERS_MOST: Final = 20
CELLS_MOST: Final = 1000
SPANS_MOST: Final = 10_000
"""The latest of these are in a report, however long the history."""

CLOSED_FILES: Final = "*-????????.parquet"
"""Names of ledger files that no other file will replace."""

_PERCENTILES: Final = (0.5, 0.9, 0.99, 0.999)
_ACCURACY: Final = 1000


@attrs.frozen(kw_only=True)
class Cell:
    """Traffic from one place to another.

    Attributes:
        from_site: router that received it.
        to_site: router that delivered it; empty if none did.
        source: container that sent it.
        target: container that received it.
        deliveries: number received by the router.
        delivered: how many of these were accepted.
        octets: octets of payload.
        milliseconds: latency at 50, 90, 99 and 99.9 percent; empty if nothing was accepted.
    """

    from_site: str
    to_site: str
    source: str
    target: str
    address: str
    deliveries: int
    delivered: int
    octets: int
    milliseconds: tuple[float, ...]


@attrs.frozen(kw_only=True)
class Span:
    """Traffic of an address in one interval, which begins at ``start`` (UTC)."""

    start: str
    address: str
    deliveries: int
    octets: int


@attrs.frozen(kw_only=True)
class Talker:
    """A container, and the traffic that it sent or received."""

    container: str
    direction: str
    deliveries: int
    octets: int


@attrs.frozen(kw_only=True)
class Traffic:
    """Traffic of all ledgers: the largest cells, the latest spans, the top talkers."""

    seconds: int
    matrix: tuple[Cell, ...]
    spans: tuple[Span, ...]
    talkers: tuple[Talker, ...]


def summarize(
    spark: Any,
    ledgers: Sequence[str],
    *,
    since: datetime.date | None = None,
    until: datetime.date | None = None,
    seconds: int = 3600,
) -> Traffic:
    """Sums up the traffic in ledgers.

    Args:
        spark: the session.
        ledgers: directories, as paths or URLs.
        since: first day.
        until: last day.
        seconds: length of an interval.

    Raises:
        LedgerError: there is no ledger, or nothing in it.
    """
    from pyspark import StorageLevel  # noqa: PLC0415  an extra
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    deliveries = (
        named_deliveries(spark, ledgers, since, until)
        .where(F.col("taken_ns").isNotNull())
        .select(
            F.coalesce("source_router", F.lit("")).alias("from_site"),
            F.coalesce("target_router", F.lit("")).alias("to_site"),
            F.coalesce("source_container", F.lit("")).alias("source"),
            F.coalesce("target_container", F.lit("")).alias("target"),
            F.col("route").alias("address"),
            "octets",
            "taken_ns",
            ((F.col("accepted_ns") - F.col("taken_ns")) / 1_000_000).alias("milliseconds"),
        )
        .persist(StorageLevel.DISK_ONLY)
    )
    try:
        return Traffic(
            seconds=seconds,
            matrix=_matrix(deliveries),
            spans=_spans(deliveries, seconds),
            talkers=(*_talkers(deliveries, "source"), *_talkers(deliveries, "target")),
        )
    finally:
        deliveries.unpersist()


def _matrix(deliveries: Any) -> tuple[Cell, ...]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    rows = (
        deliveries.groupBy("from_site", "to_site", "source", "target", "address")
        .agg(
            F.count(F.lit(1)).alias("deliveries"),
            F.count("milliseconds").alias("delivered"),
            F.sum("octets").alias("octets"),
            F.percentile_approx("milliseconds", list(_PERCENTILES), _ACCURACY).alias("latency"),
        )
        .orderBy(F.desc("octets"), F.desc("deliveries"))
        .limit(CELLS_MOST)
        .collect()
    )
    return tuple(
        Cell(
            from_site=row.from_site,
            to_site=row.to_site,
            source=row.source,
            target=row.target,
            address=row.address,
            deliveries=row.deliveries,
            delivered=row.delivered,
            octets=row.octets or 0,
            milliseconds=tuple(row.latency or ()),
        )
        for row in rows
    )


def _spans(deliveries: Any, seconds: int) -> tuple[Span, ...]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    rows = (
        deliveries.groupBy(
            F.floor(F.col("taken_ns") / (seconds * 1_000_000_000)).alias("span"), "address"
        )
        .agg(F.count(F.lit(1)).alias("deliveries"), F.sum("octets").alias("octets"))
        .orderBy(F.desc("span"), F.desc("deliveries"), "address")
        .limit(SPANS_MOST)
        .collect()
    )
    return tuple(
        Span(
            start=datetime.datetime.fromtimestamp(row.span * seconds, datetime.UTC).isoformat(),
            address=row.address,
            deliveries=row.deliveries,
            octets=row.octets or 0,
        )
        for row in sorted(rows, key=lambda each: (each.span, each.address))
    )


def _talkers(deliveries: Any, side: str) -> tuple[Talker, ...]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    rows = (
        deliveries.groupBy(side)
        .agg(F.count(F.lit(1)).alias("deliveries"), F.sum("octets").alias("octets"))
        .orderBy(F.desc("octets"), F.desc("deliveries"))
        .limit(TALKERS_MOST)
        .collect()
    )
    direction = "sends" if side == "source" else "receives"
    return tuple(
        Talker(
            container=row[side],
            direction=direction,
            deliveries=row.deliveries,
            octets=row.octets or 0,
        )
        for row in rows
    )


# --- as it happens --------------------------------------------------------------------------------


def by_minute(records: Any) -> Any:
    """Counts the records of each minute and pair of links; batch or stream."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    def count(condition: Any) -> Any:
        return F.sum(F.when(condition, 1).otherwise(0))

    kind, outcome = F.col("kind"), F.col("outcome")
    is_outcome = kind == int(RecordKind.OUTCOME)
    is_new = F.col("flags").bitwiseAND(int(RecordFlag.RESUMED)) == 0
    is_received = (kind == int(RecordKind.RECEIVED)) & is_new
    return (
        records.where(kind < int(RecordKind.LINK_ATTACHED))
        .withWatermark("time", WATERMARK)
        .groupBy(F.window("time", "1 minute"), "router", "incoming", "outgoing")
        .agg(
            count(is_received).alias("received"),
            F.sum(F.when(is_received, F.col("message_octets")).otherwise(0)).alias("octets"),
            count(kind == int(RecordKind.SENT)).alias("sent"),
            count(is_outcome & (outcome == int(OutcomeCode.ACCEPTED))).alias("accepted"),
            count(is_outcome & (outcome == int(OutcomeCode.REJECTED))).alias("rejected"),
            count(kind == int(RecordKind.IN_DOUBT)).alias("in_doubt"),
        )
        .select(F.col("window.start").alias("minute"), "*")
        .drop("window")
    )


@attrs.frozen(kw_only=True)
class Alert:
    """A minute in which too many deliveries of a router were rejected or in doubt."""

    minute: str
    router: str
    received: int
    rejected: int
    in_doubt: int


def follow(
    spark: Any,
    ledger: str,
    *,
    checkpoint: str,
    out: str,
    alert: Callable[[Alert], None],
    bad_percent: float = 1.0,
    is_once: bool = False,
) -> Any:
    """Begins to count records as their files arrive in a ledger; returns the streaming query.

    Args:
        spark: the session.
        ledger: directory, as path or URL.
        checkpoint: the query's checkpoint directory.
        out: directory of the counts by minute, as Parquet.
        alert: called for each minute and router with ``bad_percent`` or more of the deliveries
            rejected or in doubt.
        bad_percent: percentage of the deliveries received in the minute.
        is_once: ends when all existing files have been read.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    minutes = by_minute(
        spark.readStream.schema(ledger_schema())
        .option("pathGlobFilter", CLOSED_FILES)
        .parquet(ledger)
    )

    def write(batch: Any, number: int) -> None:
        batch.persist()
        batch.write.mode("overwrite").parquet(f"{out}/batch={number}")
        bad = F.col("rejected") + F.col("in_doubt")
        for row in (
            batch.groupBy("minute", "router")
            .agg(*(F.sum(name).alias(name) for name in ("received", "rejected", "in_doubt")))
            .where(bad > 0)
            .where(bad * 100 >= F.col("received") * bad_percent)
            .orderBy("minute", "router")
            .collect()
        ):
            alert(
                Alert(
                    minute=row.minute.isoformat(),
                    router=row.router,
                    received=row.received,
                    rejected=row.rejected,
                    in_doubt=row.in_doubt,
                )
            )
        batch.unpersist()

    writer = minutes.writeStream.outputMode("append").option("checkpointLocation", checkpoint)
    trigger = {"availableNow": True} if is_once else {"processingTime": "10 seconds"}
    return writer.trigger(**trigger).foreachBatch(write).start()
