"""The audit: the verdict on every delivery in the ledgers of one or many routers.

    files -> records -> links, holes -> rows of STATE, and those carried over -> one grouping
          -> verdicts -> counts, latencies, offenders with their history -> what is carried on

With a *carry* directory a run reads only files that no earlier run has read, and what was still
open then; ``audited.json`` there names them, and is replaced last, so a run that died is repeated.
"""

import contextlib
import datetime
import json
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from router.journal.record import OutcomeCode, RecordFlag, RecordKind, Resolution
from router.pipeline.deliveries import (
    FAILURES,
    KEY,
    LINGER_NS,
    OFFENDERS,
    VERDICTS,
    judge,
    merge,
    to_state,
)
from router.pipeline.records import (
    OPEN,
    Extent,
    LedgerError,
    LedgerHole,
    Link,
    Survey,
    find_files,
    read_records,
    survey_records,
)

GRACE_SECONDS: Final = 300.0
"""How late records of another router may arrive: segments are sealed after five minutes."""

SILENT_NS: Final = 3600 * 1_000_000_000
"""A router whose ledger ends this long before the others' has ended; the audit does not wait for
it."""

OFFENDERS_MOST: Final = 1000
"""Offenders that are listed with their history; all are counted."""

_PERCENTILES: Final = (0.5, 0.9, 0.99, 0.999)
_ACCURACY: Final = 1000
_KEPT_DAYS: Final = 7
"""Files more than this many days older than the latest are no longer searched for."""

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
class Offender:
    """A delivery that was not delivered exactly once, or whose verdict is unknown.

    Attributes:
        key: 32 hexadecimal digits.
        history: its records in the files that were read, oldest first.
    """

    key: str
    verdict: str
    address: str
    history: tuple[str, ...]


@attrs.frozen(kw_only=True)
class Rate:
    """Deliveries received in one interval.

    Attributes:
        start: ISO 8601, UTC.
        seconds: its length.
        verdicts: deliveries received in it, by verdict.
    """

    start: str
    seconds: int
    verdicts: Mapping[str, int]


@attrs.frozen(kw_only=True)
class Audit:
    """Result of an audit.

    Attributes:
        verdicts: number of deliveries by final verdict.
        carried: number of deliveries by a verdict that may still change.
        holes: records missing from the ledgers.
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
    unrecorded: int = 0

    @property
    def failures(self) -> int:
        """Number of deliveries that were certainly lost or duplicated."""
        return sum(self.verdicts[name] + self.carried[name] for name in FAILURES)


@attrs.frozen(kw_only=True)
class Carry:
    """State that one run leaves for the next.

    Attributes:
        files: files that need not be read again.
        routers: ids in the order of their bits.
        state: directory of the rows of open deliveries; empty if there are none.
    """

    files: tuple[str, ...] = ()
    routers: tuple[str, ...] = ()
    extents: tuple[Extent, ...] = ()
    links: tuple[Link, ...] = ()
    holes: tuple[LedgerHole, ...] = ()
    state: str = ""

    @classmethod
    def load(cls, directory: Path | None) -> "Carry":
        """Reads the state that the last run stored."""
        if directory is None:
            return cls()
        with contextlib.suppress(FileNotFoundError):
            noted = json.loads((directory / "audited.json").read_bytes())
            return cls(
                files=tuple(noted["files"]),
                routers=tuple(noted["routers"]),
                extents=tuple(Extent(**each) for each in noted["extents"]),
                links=tuple(Link(**each) for each in noted["links"]),
                holes=tuple(LedgerHole(**each) for each in noted["holes"]),
                state=noted["state"],
            )
        return cls()

    def store(self, directory: Path) -> None:
        """Replaces the stored state."""
        aside = directory / "audited.json.unfinished"
        with aside.open("w") as file:
            json.dump(attrs.asdict(self), file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(directory / "audited.json")
        for old in directory.resolve().glob("state-*"):
            if old != Path(self.state):
                shutil.rmtree(old)


def audit(
    spark: Any,
    ledgers: Sequence[str],
    *,
    since: datetime.date | None = None,
    until: datetime.date | None = None,
    carry: Path | None = None,
    grace_seconds: float = GRACE_SECONDS,
    deliveries_to: str | None = None,
) -> Audit:
    """Judges every delivery.

    Args:
        spark: the session.
        ledgers: directories, as paths or URLs.
        since: first day.
        until: last day.
        carry: directory of the state that earlier runs stored and this one updates.
        grace_seconds: how much earlier than the end of the ledgers a delivery's last record must
            be before it is called lost.
        deliveries_to: directory for one row per delivery; None: not written.

    Raises:
        LedgerError: there is no ledger, or it is empty.
    """
    run = _Run(spark, carry, int(grace_seconds * _NANOSECONDS))
    files = find_files(spark, ledgers, _first_day(run.before, since), until)
    if carry is not None:
        seen = set(run.before.files)
        files = [file for file in files if file not in seen and not file.endswith(OPEN)]
    if not files and not run.before.files:
        raise LedgerError("there is nothing in the ledger")
    found = run.audit(files)
    if deliveries_to is not None:
        run.deliveries.write.mode("overwrite").parquet(deliveries_to)
    run.carry_on()
    run.deliveries.unpersist()
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
    return _Run(spark, None, 0).named(files)


def _first_day(before: Carry, since: datetime.date | None) -> datetime.date | None:
    """Returns the first day for which new files may appear."""
    latest = max((_date_of(file) for file in before.files), default=None)
    if latest is None:
        return since
    earliest = latest - datetime.timedelta(days=_KEPT_DAYS)
    return earliest if since is None else max(since, earliest)


def _date_of(file: str) -> datetime.date:
    return datetime.date.fromisoformat(file.rpartition("/date=")[2][:10])


class _Run:
    """One audit."""

    def __init__(self, spark: Any, carry: Path | None, grace_ns: int) -> None:
        self.spark = spark
        self.carry = carry
        self.before = Carry.load(carry)
        self.grace_ns = grace_ns
        self.deliveries: Any = None
        self.after = self.before

    def audit(self, files: list[str]) -> Audit:
        from pyspark import StorageLevel  # noqa: PLC0415  an extra

        records = read_records(self.spark, files) if files else None
        survey = Survey() if records is None else survey_records(records, self.before.extents)
        links = list(dict.fromkeys((*self.before.links, *survey.links)))
        extents = survey.extents or self.before.extents
        routers = [*self.before.routers]
        routers += sorted({each.router for each in extents} - set(routers))
        horizon = _horizon(extents, self.grace_ns)
        recent = [each for each in self.before.holes if each.after_ns > horizon - LINGER_NS]
        joints = joints_of(links, routers)
        if records is not None:
            joints = without_strangers(records, links, joints)
        self.deliveries = judge(
            merge(self._state(records, routers, joints)),
            holes=[*recent, *survey.holes],
            routers=routers,
            horizon_ns=horizon,
            grace_ns=self.grace_ns,
        ).persist(StorageLevel.DISK_ONLY)
        self.after = Carry(
            files=tuple(_kept([*self.before.files, *files])),
            routers=tuple(routers),
            extents=tuple(extents),
            links=tuple(links),
            holes=(*recent, *survey.holes),
        )
        named = self._named(records, links)
        counts, rates = self._counts(survey.first_ns, survey.last_ns)
        return Audit(
            routers=tuple(routers),
            files=len(files),
            records=survey.records,
            since=_iso(survey.first_ns),
            until=_iso(survey.last_ns),
            verdicts=_sum(counts) if self.carry is None else counts[True],
            carried=dict.fromkeys(VERDICTS, 0) if self.carry is None else counts[False],
            flows=tuple(_flows(named)),
            rates=tuple(rates),
            offenders=tuple(_offenders(named, records)),
            holes=tuple(survey.holes),
            unrecorded=survey.unrecorded,
        )

    def named(self, files: list[str]) -> Any:
        """Returns the deliveries with the names of their places, for reports; see ``audit``."""
        records = read_records(self.spark, files)
        survey = survey_records(records)
        routers = sorted({each.router for each in survey.extents})
        joints = joints_of(survey.links, routers)
        joints = without_strangers(records, survey.links, joints)
        state = merge(to_state(records, routers, joints))
        self.deliveries = judge(state, routers=routers, horizon_ns=_horizon(survey.extents, 0))
        return self._named(records, survey.links)

    def _state(self, records: Any, routers: Sequence[str], joints: Mapping[int, str]) -> Any:
        state = None if records is None else to_state(records, routers, joints)
        if not self.before.state:
            return state
        carried = self.spark.read.parquet(self.before.state)
        return carried if state is None else state.unionByName(carried)

    def carry_on(self) -> None:
        """Stores the open deliveries for the next run, if a carry directory is given."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

        if self.carry is None:
            return
        self.carry.mkdir(parents=True, exist_ok=True)
        state = self.carry.resolve() / f"state-{secrets.token_hex(8)}"
        left = self.deliveries.where(~F.col("is_closed")).drop("verdict", "is_closed")
        left.coalesce(8).write.parquet(str(state))
        attrs.evolve(self.after, state=str(state)).store(self.carry)

    def _counts(
        self, first_ns: int | None, last_ns: int | None
    ) -> tuple[dict[bool, dict[str, int]], list[Rate]]:
        """Counts deliveries by verdict, and over time in at most some two hundred intervals."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

        length = ((last_ns or 0) - (first_ns or 0)) / _NANOSECONDS
        seconds = next(each for each in _SPANS if length / each <= _SPANS_MOST)
        taken_ns = F.greatest("taken_ns", F.lit(first_ns or 0))
        span = F.floor(taken_ns / (seconds * _NANOSECONDS))
        counts = {closed: dict.fromkeys(VERDICTS, 0) for closed in (True, False)}
        spans: dict[int, dict[str, int]] = {}
        for row in (
            self.deliveries.groupBy(
                F.when(F.col("taken_ns").isNotNull(), span).alias("span"), "verdict", "is_closed"
            )
            .count()
            .collect()
        ):
            counts[row.is_closed][row.verdict] += row["count"]
            if row.span is not None:
                verdicts = spans.setdefault(row.span, {})
                verdicts[row.verdict] = verdicts.get(row.verdict, 0) + row["count"]
        return counts, [
            Rate(start=_iso(span * seconds * _NANOSECONDS), seconds=seconds, verdicts=spans[span])
            for span in sorted(spans)
        ]

    def _named(self, records: Any, links: Sequence[Link]) -> Any:
        """Returns the deliveries with the names of their places."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

        places = self.spark.createDataFrame(
            [(each.key, each.container, each.address, each.router) for each in links],
            "link bigint, container string, place string, at_router string",
        ).dropDuplicates(["link"])

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


_SPANS: Final = (1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 86_400, 30 * 86_400, 10**9)
"""Seconds of one span of time in a chart ..."""
_SPANS_MOST: Final = 200
"""... and how many it may have."""


def joints_of(links: Sequence[Link], routers: Sequence[str]) -> dict[int, str]:
    """Finds the inner links: their peer is a router with a ledger here, or a worker of one."""
    known = set(routers)
    return {
        link.key: link.container.partition("/")[0]
        for link in links
        if link.container.partition("/")[0] in known
    }


def without_strangers(
    records: Any, links: Sequence[Link], joints: Mapping[int, str]
) -> dict[int, str]:
    """Leaves out links between routers of which one does not trust the other's delivery keys.

    Over such a link a delivery gets a new key, so the audit treats it as two deliveries. Such links
    are recognized by a sample of what they received: none of it was sent under the same key.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    pairs: dict[tuple[str, str], tuple[set[int], set[int]]] = {}
    for link in links:
        other = joints.get(link.key)
        if other is not None and other != link.router:
            pair = (other, link.router) if link.is_incoming else (link.router, other)
            pairs.setdefault(pair, (set(), set()))[link.is_incoming].add(link.key)
    left = dict(joints)
    for sending, receiving in pairs.values():
        sent = records.where(
            (F.col("kind") == int(RecordKind.SENT)) & F.col("outgoing").isin(*sending)
        )
        came = records.where(
            (F.col("kind") == int(RecordKind.RECEIVED)) & F.col("incoming").isin(*receiving)
        )
        sample = came.select(*KEY).limit(_SAMPLE).persist()
        if not sample.isEmpty() and not sent.isEmpty():
            same = sent.select(*KEY).join(F.broadcast(sample), list(KEY), "left_semi")
            if same.isEmpty():
                for key in (*sending, *receiving):
                    left.pop(key, None)
        sample.unpersist()
    return left


_SAMPLE: Final = 1000


def _horizon(extents: Sequence[Extent], grace_ns: int) -> int:
    """Returns the time up to which the ledgers of all routers are complete."""
    latest: dict[str, int] = {}
    for each in extents:
        latest[each.router] = max(each.last_ns, latest.get(each.router, 0))
    newest = max(latest.values(), default=0)
    return min((at for at in latest.values() if newest - at < max(SILENT_NS, grace_ns)), default=0)


def _kept(files: list[str]) -> list[str]:
    latest = max(map(_date_of, files))
    earliest = latest - datetime.timedelta(days=_KEPT_DAYS)
    return [file for file in files if _date_of(file) >= earliest]


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


def _offenders(named: Any, records: Any) -> list[Offender]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    order = F.array_position(F.array(*map(F.lit, OFFENDERS)), F.col("verdict"))
    found = (
        named.where(F.col("verdict").isin(*OFFENDERS))
        .orderBy(order, "begun_ns")
        .limit(OFFENDERS_MOST)
        .select(*KEY, "verdict", "route")
        .collect()
    )
    if not found:
        return []
    history: dict[tuple[int, int], list[str]] = {}
    if records is not None:
        keys = records.sparkSession.createDataFrame(
            [(row.key_high, row.key_low) for row in found], "key_high bigint, key_low bigint"
        )
        for record in (
            records.join(F.broadcast(keys), list(KEY), "left_semi").orderBy("time_ns").collect()
        ):
            history.setdefault((record.key_high, record.key_low), []).append(_line(record))
    return [
        Offender(
            key=f"{row.key_high % 2**64:016x}{row.key_low % 2**64:016x}",
            verdict=row.verdict,
            address=row.route,
            history=tuple(history.get((row.key_high, row.key_low), ())),
        )
        for row in found
    ]


def _line(record: Any) -> str:
    """Formats a record for people."""
    names = [_name(RecordKind, record.kind)]
    if record.outcome:
        names.append(
            _name(Resolution if record.kind == RecordKind.RESOLVED else OutcomeCode, record.outcome)
        )
    names += [
        str(flag.name).lower().replace("_", "-") for flag in RecordFlag if record.flags & flag
    ]
    links = [
        f"{arrow} {key % 2**64:016x}"
        for arrow, key in (("<-", record.incoming), ("->", record.outgoing))
        if key
    ]
    place = f"{record.router}/{record.worker} #{record.sequence}"
    return f"{_iso(record.time_ns)} {place} {' '.join(names)} {' '.join(links)}"


def _name(kind: Any, number: int) -> str:
    try:
        return str(kind(number).name).lower().replace("_", "-")
    except ValueError:
        return str(number)


def _iso(time_ns: int | None) -> str:
    if time_ns is None:
        return ""
    moment = datetime.datetime.fromtimestamp(time_ns // _NANOSECONDS, datetime.UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ns % _NANOSECONDS // 1000:06d}Z"
