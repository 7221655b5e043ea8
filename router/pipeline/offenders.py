"""Offenders: deliveries that were not delivered once, or of which that is unknown, each explained.

Their stories come from the records of this run, from what earlier runs carried on, and, of
deliveries that this run lists first although they began in an earlier one, from the files of their
days, which are read again.
"""

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from router.pipeline.carry import DAY_NS, Carry, date_of, day_of
from router.pipeline.clocks import Clock
from router.pipeline.deliveries import OFFENDERS
from router.pipeline.hops import KEY
from router.pipeline.records import read_records
from router.pipeline.session import small_table
from router.pipeline.stories import Event, Story, in_order, merge_stories, read_stories

OFFENDERS_MOST: Final = 1000
"""Offenders that are listed with their history; all are counted."""

_DAYS_MOST: Final = 100
"""Days of one delivery whose files are read again for its story."""

FindFiles = Callable[[datetime.date, datetime.date], list[str]]
"""Finds the ledgers' files from one day to another."""


@attrs.frozen(kw_only=True)
class Offender:
    """A delivery that was not delivered exactly once, or whose verdict is unknown.

    Attributes:
        key: 32 hexadecimal digits.
        history: what the routers recorded of it, in the order in which it happened.
    """

    key: str
    verdict: str
    address: str
    history: tuple[Event, ...]


@attrs.frozen(kw_only=True)
class Told:
    """What is listed.

    Attributes:
        offenders: the worst first.
        open: stories of those that are judged again.
    """

    offenders: tuple[Offender, ...] = ()
    open: tuple[Story, ...] = ()


def tell(
    named: Any,
    *,
    records: Any,
    links: Any,
    clocks: Mapping[str, Clock],
    before: Carry,
    find_files: FindFiles,
) -> Told:
    """Lists offenders with their stories.

    Args:
        named: deliveries with verdicts and the names of their places.
        records: of this run; None: there are none.
        links: the links' names.
        clocks: of the routers.
        before: what earlier runs left.
        find_files: finds the ledgers' files.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    order = F.array_position(F.array(*map(F.lit, OFFENDERS)), F.col("verdict"))
    rows = (
        named.where(F.col("verdict").isin(*OFFENDERS))
        .orderBy(order, "begun_ns")
        .limit(OFFENDERS_MOST)
        .select(*KEY, "verdict", "route", "is_closed", "was", "begun_ns", "last_ns")
        .collect()
    )
    if not rows:
        return Told()
    known = {story.name: story for story in before.stories}
    sources: list[Sequence[Story]] = [before.stories]
    older = _begun_before(named.sparkSession, rows, known, before)
    if older:
        files = _files_of(older, find_files)
        if files:
            read = read_records(named.sparkSession, files)
            sources.append(read_stories(read, links, _names(older)))
    if records is not None:
        sources.append(read_stories(records, links, _names(rows)))
    found = merge_stories(*sources)
    stories = [
        found.get(name, Story(key_high=name[0], key_low=name[1], events=()))
        for name in _names(rows)
    ]
    return Told(
        offenders=tuple(
            Offender(
                key=f"{row.key_high % 2**64:016x}{row.key_low % 2**64:016x}",
                verdict=row.verdict,
                address=row.route,
                history=in_order(story, clocks),
            )
            for row, story in zip(rows, stories, strict=True)
        ),
        open=tuple(story for row, story in zip(rows, stories, strict=True) if not row.is_closed),
    )


def _names(rows: Sequence[Any]) -> list[tuple[int, int]]:
    return [(row.key_high, row.key_low) for row in rows]


def _begun_before(
    spark: Any, rows: Sequence[Any], known: Mapping[tuple[int, int], Story], before: Carry
) -> list[Any]:
    """Returns the deliveries that began in an earlier run, without those whose story is known."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    unknown = [row for row in rows if (row.key_high, row.key_low) not in known]
    opened: set[tuple[int, int]] = set()
    if before.open and unknown:
        keys = small_table(spark, _names(unknown), "key_high bigint, key_low bigint")
        left = spark.read.parquet(before.open).select(*KEY)
        same = left.join(F.broadcast(keys), list(KEY), "left_semi").distinct().collect()
        opened = set(_names(same))
    return [row for row in unknown if row.was is not None or (row.key_high, row.key_low) in opened]


def _files_of(rows: Sequence[Any], find_files: FindFiles) -> list[str]:
    """Finds the files of the days of deliveries, whatever they are named by now."""
    days: set[datetime.date] = set()
    for row in rows:
        first, last = day_of(row.begun_ns - DAY_NS), day_of(row.last_ns + DAY_NS)
        length = min((last - first).days, _DAYS_MOST)
        days |= {first + datetime.timedelta(days=count) for count in range(length + 1)}
    return [file for file in find_files(min(days), max(days)) if date_of(file) in days]
