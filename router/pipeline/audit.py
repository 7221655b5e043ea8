"""The audit: the verdict on every delivery in the ledgers of one or many routers.

    files -> records, each once -> hops -> (with those carried over) deliveries -> verdicts
          -> counts, latencies, offenders with their history -> what is carried on
    files -> coverage -> holes, reach of each ledger
    hops  -> handovers -> clocks, routers that do not share keys

Nothing depends on the order in which files come: coverage, hops and handovers are merged with
unions, sums, minima and maxima (``coverage``, ``hops``, ``clocks``), and verdicts are given with
all that is known then. With a *carry* directory a run reads only files that no earlier run has
read (``carry``).
"""

import datetime
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from router.journal.record import RecordKind
from router.pipeline.carry import (
    DAY_NS,
    HORIZON_DAYS,
    Carry,
    Generation,
    date_of,
    day_of,
    kept_lives,
    new_path,
    start_ns,
)
from router.pipeline.clocks import Clock, Handovers, clocks_of, merge_handovers
from router.pipeline.coverage import (
    LedgerHole,
    Life,
    LifeName,
    Reach,
    beginnings_of,
    flagging_in,
    holes_of,
    merge_lives,
    pieces_of,
    reaches_of,
    repeats_of,
    without_repeats,
)
from router.pipeline.deliveries import (
    FAILURES,
    LINGER_NS,
    VERDICTS,
    judge,
    merge,
    pair_table,
    router_table,
    to_state,
)
from router.pipeline.hops import KEY, merge_hops, to_hops
from router.pipeline.links import find_handovers, merge_links, no_links, read_links, with_ends
from router.pipeline.names import OPEN, merged_before
from router.pipeline.offenders import Offender, Told, tell
from router.pipeline.records import LedgerError, find_files, read_records
from router.pipeline.session import small_table
from router.pipeline.stories import iso
from router.pipeline.tally import Correction, Rate, Tally, count

GRACE_SECONDS: Final = 300.0
"""How late records of another router may arrive: segments are sealed after five minutes."""

_PERCENTILES: Final = (0.5, 0.9, 0.99, 0.999)
_ACCURACY: Final = 1000
_NANOSECONDS: Final = 1_000_000_000


@attrs.frozen(kw_only=True)
class Flow:
    """Deliveries of one address between two places.

    Attributes:
        address: of the incoming link, or the deliveries' own.
        source: container that sent them.
        target: container that accepted them.
        from_router: router that received them.
        to_router: router that delivered them.
        deliveries: their number.
        octets: octets of payload.
        milliseconds: latency from receipt to acceptance, at 50, 90, 99 and 99.9 percent.
    """

    address: str
    source: str
    target: str
    from_router: str
    to_router: str
    deliveries: int
    octets: int
    milliseconds: tuple[float, ...]


@attrs.frozen(kw_only=True)
class Audit:
    """Result of an audit.

    Attributes:
        verdicts: number of deliveries by final verdict.
        carried: number of deliveries by a verdict that may still change.
        totals: number of deliveries by verdict, over all runs with the same carry directory.
        corrected: verdicts of earlier runs that this one has changed.
        holes: records missing from the ledgers.
        reaches: how far each router's ledger reaches.
        unseen: routers that others handed deliveries to, or got some from, without a ledger.
        clocks: what was found out about each router's clock.
        too_late: files that are older than the horizon, and were not read.
        future: files with records of the far future.
        unrecorded: deliveries that routers reported as unrecorded.
    """

    routers: tuple[str, ...]
    files: int
    records: int
    since: str
    until: str
    verdicts: Mapping[str, int]
    carried: Mapping[str, int]
    flows: tuple[Flow, ...]
    rates: tuple[Rate, ...]
    offenders: tuple[Offender, ...]
    holes: tuple[LedgerHole, ...]
    totals: Mapping[str, int] = attrs.field(factory=dict)
    corrected: tuple[Correction, ...] = ()
    reaches: tuple[Reach, ...] = ()
    unseen: tuple[str, ...] = ()
    clocks: tuple[Clock, ...] = ()
    too_late: tuple[str, ...] = ()
    future: tuple[str, ...] = ()
    unrecorded: int = 0

    @property
    def failures(self) -> int:
        """Number of deliveries that were certainly lost or duplicated."""
        return sum(self.verdicts[name] + self.carried[name] for name in FAILURES)


def audit(
    spark: Any,
    ledgers: Sequence[str],
    *,
    since: datetime.date | None = None,
    until: datetime.date | None = None,
    carry: str | Path | None = None,
    grace_seconds: float = GRACE_SECONDS,
    horizon_days: int = HORIZON_DAYS,
    ended: Iterable[str] = (),
    deliveries_to: str | None = None,
    now_ns: int | None = None,
) -> Audit:
    """Judges every delivery.

    Args:
        spark: the session.
        ledgers: directories, as paths or URLs.
        since: first day.
        until: last day.
        carry: directory of the state that earlier runs stored and this one updates, as path or
            URL.
        grace_seconds: how much earlier than the end of the ledgers a delivery's last record must
            be before it is called lost.
        horizon_days: with ``carry``: how late files may come.
        ended: routers that have ended without recording it.
        deliveries_to: directory for one row per delivery that was judged; None: not written.
        now_ns: time, in nanoseconds since 1970; None: the clock's.

    Raises:
        LedgerError: there is no ledger, or it is empty.
    """
    now_ns = time.time_ns() if now_ns is None else now_ns
    place = None if carry is None else str(carry)
    run = _Run(spark, Carry.load(place), int(grace_seconds * _NANOSECONDS), now_ns, ended)
    before = run.before
    first = _first_day(before, since, horizon_days)
    files = find_files(spark, ledgers, first, until)
    too_late: list[str] = []
    merged: set[str] = set()
    if place is not None:
        seen = set(before.files)
        files = [file for file in files if file not in seen]
        merged = merged_before(files, seen)
        files = [file for file in files if file not in merged]
        too_late = [file for file in files if date_of(file).isoformat() < before.first_day]
        files = [file for file in files if file not in set(too_late)]
    if not files and not before.files:
        raise LedgerError("there is nothing in the ledger")
    run.judge(files)
    if place is not None:
        run.close(horizon_days)
    run.count()
    run.told = tell(
        run.named(),
        records=run.records,
        links=run.links,
        clocks=run.clocks,
        before=before,
        find_files=lambda first, last: find_files(spark, ledgers, first, last),
    )
    found = run.report(files, too_late, has_carry=place is not None)
    if deliveries_to is not None:
        run.deliveries.write.mode("overwrite").parquet(deliveries_to)
    if place is not None:
        read = [file for file in files if not file.endswith(OPEN)]  # the others may yet grow
        run.carry_on(place, [*read, *too_late, *sorted(merged)], horizon_days)
    run.release()
    return found


def named_deliveries(
    spark: Any,
    ledgers: Sequence[str],
    since: datetime.date | None = None,
    until: datetime.date | None = None,
) -> Any:
    """Returns one row for each delivery: ``STATE``, verdict, and the names of its places.

    Raises:
        LedgerError: there is no ledger, or it is empty.
    """
    files = find_files(spark, ledgers, since, until)
    if not files:
        raise LedgerError("there is nothing in the ledger")
    run = _Run(spark, Carry(), 0, time.time_ns(), ())
    run.judge(files)
    return run.named()


def _first_day(
    before: Carry, since: datetime.date | None, horizon_days: int
) -> datetime.date | None:
    """Returns the first day for which new files are searched, and reported if too late."""
    if not before.first_day:
        return since
    first = datetime.date.fromisoformat(before.first_day) - datetime.timedelta(days=horizon_days)
    return first if since is None else max(since, first)


_BROADCAST_MOST: Final = 100_000
"""Keys that each task gets, rather than that they and the others' rows are sorted."""

_FUTURE_NS: Final = DAY_NS
"""Records that are later than the audit by more than this are of the far future."""


class _Run:
    """One audit.

    Attributes:
        records: the new ones, each once; None: there are none.
        first_ns, last_ns: times of the first and the last new record.
        deliveries: judged, with ``verdict``, ``is_closed`` and ``was``: the verdict with which an
            earlier run closed it; null: it did not.
    """

    def __init__(
        self, spark: Any, before: Carry, grace_ns: int, now_ns: int, ended: Iterable[str]
    ) -> None:
        self.spark = spark
        self.before = before
        self.grace_ns = grace_ns
        self.future_ns = now_ns + _FUTURE_NS
        self.ended = tuple(sorted({*before.ended, *ended}))
        self.records: Any = None
        self.links: Any = no_links(spark)
        self.pieces: list[Life] = []
        self.lives: dict[LifeName, Life] = {}
        self.beginnings = {each.router: each for each in before.beginnings}
        self.reaches: dict[str, Reach] = {}
        self.holes: list[LedgerHole] = []
        self.handovers: dict[tuple[str, str], Handovers] = {}
        self.clocks: dict[str, Clock] = {}
        self.future: list[str] = []
        self.hops: Any = None
        self.was: Any = None
        self.deliveries: Any = None
        self.told = Told()
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.tally = Tally(groups=(), seconds=1)
        self._kept: list[Any] = []

    def judge(self, files: list[str]) -> None:
        """Reads new files and judges the deliveries of which they speak, and the open ones."""
        self._survey(files)
        self.hops = self._keep(self._hops(self._reopened_since()))
        shown = self._compare()
        if self.before.closed and self._has_other_strangers(shown):
            self.hops = self._keep(self._hops(0))
            shown = self._compare()
        self.handovers = merge_handovers(self.before.handovers, shown)
        self.clocks = clocks_of(self.reaches, self.handovers)
        state = to_state(
            self._with_ends(),
            router_table(self.spark, self.reaches, self.clocks),
            pair_table(self.spark, self.handovers.values()),
            self.grace_ns,
            self.ended,
        )
        deliveries = judge(merge(state)).join(self.was, list(KEY), "left")
        self.deliveries = self._keep(deliveries)

    def _survey(self, files: list[str]) -> None:
        """Finds out what the new files have, and what all ledgers together miss."""
        links = [self.spark.read.parquet(self.before.links)] if self.before.links else []
        known = merge_lives(self.before.lives)
        if files:
            records = read_records(self.spark, files)
            self.pieces, self.future = pieces_of(records, self.future_ns)
            self.records = without_repeats(records, repeats_of(self.pieces, known))
            links.append(read_links(self.records))
        for each in links:
            self.links = self.links.unionByName(each)
        self.links = self._keep(merge_links(self.links))
        self.lives = merge_lives(self.before.lives, self.pieces)
        self.beginnings = beginnings_of(self.lives.values(), self.before.beginnings)
        self.holes = holes_of(self.lives.values(), self.beginnings)
        self.reaches = reaches_of(self.lives.values(), self.beginnings, self.holes, self.ended)

    def _reopened_since(self) -> int | None:
        """Returns the time after which every closed delivery is judged again; None: none is.

        If more routers are known now, that is all of them. If records are missing of which earlier
        runs did not know, they may concern whatever was under way then, or came later; by the
        clock of one router, so a day is added. Files that are only late fill holes.
        """
        if self._knows_more_routers():
            return 0
        beginnings = {each.router: each for each in self.before.beginnings}
        known: dict[str, list[LedgerHole]] = {}
        for each in holes_of(merge_lives(self.before.lives).values(), beginnings):
            known.setdefault(each.router, []).append(each)
        times = [
            hole.after_ns
            for hole in self.holes
            if not any(hole.is_within(each) for each in known.get(hole.router, ()))
        ]
        return max(0, min(times) - DAY_NS) if times else None

    def _knows_more_routers(self) -> bool:
        is_same = flagging_in(self.before.lives) == flagging_in(self.lives.values())
        return not is_same or {each.router for each in self.before.beginnings} != set(
            self.beginnings
        )

    def _compare(self) -> list[Handovers]:
        return find_handovers(self._with_ends(), self.future_ns)

    def _with_ends(self) -> Any:
        return with_ends(self.hops, self.links, self.reaches, flagging_in(self.lives.values()))

    def _has_other_strangers(self, shown: list[Handovers]) -> bool:
        """Returns whether it is known now that two routers share keys, or do not."""
        before = {(e.sender, e.receiver): e.are_strangers for e in self.before.handovers}
        merged = merge_handovers(self.before.handovers, shown)
        return any(each.are_strangers != before.get(pair, False) for pair, each in merged.items())

    def _hops(self, since_ns: int | None) -> Any:
        """Merges new hops with those of open deliveries, and of closed ones that they speak of.

        Args:
            since_ns: closed deliveries with a record of that time or later are judged again, too.
        """
        from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

        nothing = small_table(self.spark, [], "key_high bigint, key_low bigint, was string")
        parts = [] if self.records is None else [to_hops(self.records)]
        opened = [self.spark.read.parquet(self.before.open)] if self.before.open else []
        self.was = nothing
        spoken_of = parts[0].select(*KEY) if parts else nothing.select(*KEY)
        closed = self._closed(spoken_of, since_ns)
        if closed is not None:
            for each in opened:
                closed = closed.join(each.select(*KEY).distinct(), list(KEY), "left_anti")
            closed = self._keep(closed)
            self.was = closed.groupBy(*KEY).agg(F.max("was").alias("was"))
            parts.append(closed.drop("was"))
        hops, *more = [*parts, *opened]
        for each in more:
            hops = hops.unionByName(each)
        return merge_hops(hops)

    def _closed(self, keys: Any, since_ns: int | None) -> Any:
        """Returns hops of closed deliveries as the latest run left them that judged them.

        Most runs read no more of the closed deliveries than their keys, and reopen none.

        Args:
            keys: of the deliveries.
            since_ns: and of those that have a record of that time or later; None: of no others.

        Returns:
            The hops, with ``was``; None: there are none.
        """
        from pyspark.sql import Window  # noqa: PLC0415  an extra
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        if not self.before.closed:
            return None
        closed = self.spark.read.parquet(*(each.path for each in self.before.closed))
        if since_ns is not None:
            later = closed.where(F.col("last_ns") >= since_ns)
            keys = keys.unionByName(later.select(*KEY))
        keys = keys.distinct()
        met = self._keep(closed.select(*KEY).join(keys, list(KEY), "left_semi").distinct())
        count = met.count()
        if count == 0:
            return None
        met = F.broadcast(met) if count <= _BROADCAST_MOST else met
        closed = closed.join(met, list(KEY), "left_semi")
        latest = F.max("run").over(Window.partitionBy(*KEY))
        return closed.withColumn("latest", latest).where("run = latest").drop("run", "latest")

    def close(self, horizon_days: int) -> None:
        """Closes deliveries that are older than the horizon, with the verdict that they have."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

        oldest_ns = self._oldest_ns(horizon_days)
        is_closed = F.col("is_closed") | (F.col("last_ns") < oldest_ns)
        self.deliveries = self.deliveries.withColumn("is_closed", is_closed)

    def _first_day(self, horizon_days: int) -> datetime.date:
        """Returns the first day within the horizon of the latest record."""
        latest_ns = max((each.reach_ns for each in self.reaches.values()), default=0)
        first = day_of(max(latest_ns, horizon_days * DAY_NS)) - datetime.timedelta(
            days=horizon_days
        )
        known = self.before.first_day
        return max(first, datetime.date.fromisoformat(known)) if known else first

    def _oldest_ns(self, horizon_days: int) -> int:
        """Returns the time of which state is kept: a day before the first of which files are."""
        return start_ns(self._first_day(horizon_days)) - LINGER_NS

    def carry_on(self, place: str, files: Sequence[str], horizon_days: int) -> None:
        """Stores the state for the next run."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

        oldest_ns, first = self._oldest_ns(horizon_days), self._first_day(horizon_days)
        run = self.before.runs + 1
        judged = self.deliveries.select(*KEY, "verdict", "is_closed")
        hops = self.hops.join(judged, list(KEY))
        opened, closed, links = (new_path(place, kind) for kind in ("open", "closed", "links"))
        left = hops.where("not is_closed").select(*self.hops.columns)
        left.coalesce(8).write.parquet(opened)
        ended = hops.where("is_closed").withColumn("was", F.col("verdict"))
        ended = ended.withColumn("run", F.lit(run)).select(*self.hops.columns, "was", "run")
        ended.coalesce(8).write.parquet(closed)
        generations = list(self.before.closed)
        last_ns = self.tally.last_closed_ns
        if last_ns is not None:
            generations.append(Generation(path=closed, number=run, last_ns=last_ns))
        kept_ns = oldest_ns - horizon_days * DAY_NS  # closed deliveries may be older than oldest_ns
        self._kept_links(left, kept_ns).coalesce(1).write.parquet(links)
        earliest = first - datetime.timedelta(days=horizon_days)
        Carry(
            runs=run,
            files=tuple(each for each in (*self.before.files, *files) if date_of(each) >= earliest),
            first_day=first.isoformat(),
            lives=kept_lives(self.lives, oldest_ns),
            beginnings=tuple(self.beginnings.values()),
            handovers=tuple(self.handovers.values()),
            ended=self.ended,
            totals=self.tally.totals(self.before.totals),
            open=opened,
            links=links,
            closed=tuple(each for each in generations if each.last_ns >= oldest_ns),
            stories=self.told.open,
        ).store(place)

    def _kept_links(self, left: Any, oldest_ns: int) -> Any:
        """Leaves out links that were not attached since a time and that no open hop names."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

        used = left.select(F.explode(F.array("incoming", "outgoing")).alias("link")).distinct()
        old = self.links.where(F.col("seen_ns") < oldest_ns)
        return self.links.where(F.col("seen_ns") >= oldest_ns).unionByName(
            old.join(used, "link", "left_semi")
        )

    def count(self) -> None:
        """Counts the deliveries."""
        islands = [each for piece in self.pieces if not piece.is_journal for each in piece.islands]
        self.first_ns = min((each.first_ns for each in islands), default=None)
        self.last_ns = max((each.reach_ns for each in self.pieces if each.reach_ns), default=None)
        self.tally = count(self.deliveries, self.first_ns, self.last_ns)

    def release(self) -> None:
        """Lets Spark forget what it kept."""
        for each in self._kept:
            each.unpersist()

    def _keep(self, table: Any) -> Any:
        from pyspark import StorageLevel  # noqa: PLC0415  an extra

        kept = table.persist(StorageLevel.DISK_ONLY)
        self._kept.append(kept)
        return kept

    def report(self, files: Sequence[str], too_late: Sequence[str], *, has_carry: bool) -> Audit:
        """Returns what was found."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

        tally = self.tally
        counts = {closed: tally.by_verdict(is_closed=closed) for closed in (True, False)}
        gaps = 0
        if self.records is not None:
            unrecorded = self.records.where(F.col("kind") == int(RecordKind.GAP))
            gaps = unrecorded.agg(F.sum("message_octets").alias("sum")).first()["sum"] or 0
        carried = counts[False] if has_carry else dict.fromkeys(VERDICTS, 0)
        return Audit(
            routers=tuple(sorted(self.reaches)),
            files=len(files),
            records=self._count_records(),
            since=iso(self.first_ns),
            until=iso(self.last_ns),
            verdicts=tally.newly_closed() if has_carry else _sum(counts),
            carried=carried,
            totals=_sum({True: tally.totals(self.before.totals), False: carried})
            if has_carry
            else _sum(counts),
            corrected=tally.corrections(),
            reaches=tuple(self.reaches[router] for router in sorted(self.reaches)),
            unseen=tuple(self._unseen()),
            clocks=tuple(self.clocks[router] for router in sorted(self.clocks)),
            too_late=tuple(too_late),
            future=tuple(self.future),
            flows=tuple(_flows(self.named())),
            rates=tally.rates(),
            offenders=self.told.offenders,
            holes=tuple(self.holes),
            unrecorded=gaps,
        )

    def _unseen(self) -> list[str]:
        """Returns the routers of which only other routers' ledgers speak."""
        pairs = [each for each in self.handovers.values() if each.is_trusting or each.is_trusted]
        return sorted(
            {name for each in pairs for name in (each.sender, each.receiver)} - self.reaches.keys()
        )

    def _count_records(self) -> int:
        """Counts the new records, each once."""
        known = merge_lives(self.before.lives)
        pieces = merge_lives(self.pieces)

        def count(life: Life | None) -> int:
            return 0 if life is None else sum(each.last - each.first + 1 for each in life.islands)

        return sum(
            count(self.lives[name]) - count(known.get(name))
            for name, piece in pieces.items()
            if not piece.is_journal
        )

    def named(self) -> Any:
        """Returns the deliveries with the names of their places, for reports."""
        return self._named(self.records)

    def _named(self, records: Any) -> Any:
        """Returns the deliveries with the names of their places."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

        places = self.links.withColumnRenamed("router", "at_router").dropDuplicates(["link"])

        def names_of(prefix: str) -> Any:
            return F.broadcast(
                places.select(
                    F.col("link").alias(f"{prefix}_link"),
                    F.col("container").alias(f"{prefix}_container"),
                    F.col("place").alias(f"{prefix}_place"),
                    F.col("at_router").alias(f"{prefix}_router"),
                )
            )

        reached = F.coalesce("target", "sent_to")
        named = self.deliveries.withColumn("reached", reached)
        named = named.join(names_of("source"), F.col("source") == F.col("source_link"), "left")
        named = named.join(names_of("target"), F.col("reached") == F.col("target_link"), "left")
        address = F.col("source_place")
        if records is not None:
            told = (
                records.where(F.col("kind") == int(RecordKind.RECEIVED))
                .where(F.col("address").isNotNull())
                .select(F.xxhash64("address").alias("told_key"), F.col("address").alias("told"))
                .distinct()
            )
            named = named.join(told, F.col("address_key") == F.col("told_key"), "left")
            address = F.coalesce("told", "source_place")
        return named.withColumn("route", F.coalesce(address, F.lit("")))


def _sum(counts: Mapping[bool, Mapping[str, int]]) -> dict[str, int]:
    return {name: sum(each[name] for each in counts.values()) for name in VERDICTS}


def _flows(named: Any) -> list[Flow]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    milliseconds = (F.col("accepted_ns") - F.col("taken_ns")) / 1_000_000
    places = ("route", "source_container", "target_container", "source_router", "target_router")
    rows = (
        named.where(F.col("accepted_ns").isNotNull() & F.col("taken_ns").isNotNull())
        .groupBy(*places)
        .agg(
            F.count(F.lit(1)).alias("deliveries"),
            F.sum("octets").alias("octets"),
            F.percentile_approx(milliseconds, list(_PERCENTILES), _ACCURACY).alias("milliseconds"),
        )
        .orderBy(F.desc("deliveries"))
        .limit(500)
        .collect()
    )
    return [
        Flow(
            address=row.route,
            source=row.source_container or "",
            target=row.target_container or "",
            from_router=row.source_router or "",
            to_router=row.target_router or "",
            deliveries=row.deliveries,
            octets=row.octets or 0,
            milliseconds=tuple(row.milliseconds),
        )
        for row in rows
    ]
