"""Stories of single deliveries: what each router recorded of them, in order, for people.

Only offenders have one, and only so many events of it, so a story is collected whatever the size of
the ledgers. Of a delivery that began in an earlier run, the first run that lists it reads the files
of its days once more; what it found is carried on (``carry``) as long as the delivery is open.
"""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from router.journal.record import OutcomeCode, RecordFlag, RecordKind, Resolution
from router.pipeline.clocks import Clock
from router.pipeline.hops import KEY
from router.pipeline.session import small_table

DeliveryName = tuple[int, int]
"""Both halves of the key."""

EVENTS_MOST: Final = 200
"""Events of one story: the first half and the last half of these."""

_NANOSECONDS: Final = 1_000_000_000


@attrs.frozen(kw_only=True)
class Event:
    """One record of a delivery.

    Attributes:
        at: time by the router's own clock, ISO 8601, UTC.
        time_ns: the same, in nanoseconds since 1970.
        text: what happened, and with which peer.
    """

    at: str
    time_ns: int
    router: str
    worker: int
    incarnation: int
    sequence: int
    text: str


@attrs.frozen(kw_only=True)
class Story:
    """The events of a delivery, oldest first."""

    key_high: int
    key_low: int
    events: tuple[Event, ...]

    @property
    def name(self) -> DeliveryName:
        """Names the delivery."""
        return (self.key_high, self.key_low)


def read_stories(records: Any, links: Any, names: Sequence[DeliveryName]) -> list[Story]:
    """Reads the events of deliveries.

    Args:
        records: of any deliveries.
        links: the links' names, see ``router.pipeline.links``.
        names: of the deliveries.
    """
    from pyspark.sql import Window  # noqa: PLC0415  an extra
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    keys = small_table(records.sparkSession, names, "key_high bigint, key_low bigint")
    chosen = records.join(F.broadcast(keys), list(KEY), "left_semi").dropDuplicates(
        ["router", "worker", "incarnation", "sequence"]
    )
    from_first, from_last = (
        F.row_number().over(Window.partitionBy(*KEY).orderBy(order, "sequence"))
        for order in (F.asc("time_ns"), F.desc("time_ns"))
    )
    half = EVENTS_MOST // 2
    chosen = chosen.withColumn("from_first", from_first).withColumn("from_last", from_last)
    chosen = chosen.where((F.col("from_first") <= half) | (F.col("from_last") <= half))
    for side in ("incoming", "outgoing"):
        ends = links.select(
            F.col("link").alias(side),
            "router",
            F.struct("container", "place").alias(f"{side}_end"),
        )
        chosen = chosen.join(ends, [side, "router"], "left")
    found: dict[DeliveryName, list[Event]] = {}
    for row in chosen.collect():
        found.setdefault((row.key_high, row.key_low), []).append(_event(row))
    return [
        Story(key_high=name[0], key_low=name[1], events=tuple(events))
        for name, events in found.items()
    ]


def merge_stories(*sources: Iterable[Story]) -> dict[DeliveryName, Story]:
    """Merges the events of each delivery; each record counts once."""
    found: dict[DeliveryName, dict[tuple[str, int, int, int], Event]] = {}
    for source in sources:
        for story in source:
            events = found.setdefault(story.name, {})
            for each in story.events:
                events[each.router, each.worker, each.incarnation, each.sequence] = each
    return {
        name: Story(
            key_high=name[0],
            key_low=name[1],
            events=tuple(sorted(events.values(), key=lambda each: each.time_ns)),
        )
        for name, events in found.items()
    }


def in_order(story: Story, clocks: Mapping[str, Clock]) -> tuple[Event, ...]:
    """Returns the events as they followed each other, over the clocks of several routers."""

    def order(event: Event) -> tuple[int, str, int, int, int]:
        clock = clocks.get(event.router)
        corrected_ns = event.time_ns - (clock.ahead_ns if clock else 0)
        return (corrected_ns, event.router, event.worker, event.incarnation, event.sequence)

    return tuple(sorted(story.events, key=order))


def _event(row: Any) -> Event:
    return Event(
        at=iso(row.time_ns),
        time_ns=row.time_ns,
        router=row.router,
        worker=row.worker,
        incarnation=row.incarnation,
        sequence=row.sequence,
        text=_text(row),
    )


def _text(record: Any) -> str:
    """Describes a record: its kind, outcome, flags, and the peers at its links."""
    words = [_word(RecordKind, record.kind)]
    if record.outcome:
        words.append(
            _word(Resolution if record.kind == RecordKind.RESOLVED else OutcomeCode, record.outcome)
        )
    words += [
        str(flag.name).lower().replace("_", "-") for flag in RecordFlag if record.flags & flag
    ]
    words += [
        f"{arrow} {_peer(key, end)}"
        for arrow, key, end in (
            ("<-", record.incoming, record.incoming_end),
            ("->", record.outgoing, record.outgoing_end),
        )
        if key
    ]
    return " ".join(words)


def _peer(key: int, end: Any) -> str:
    if end is None:
        return f"{key % 2**64:016x}"
    return f"{end.container} ({end.place})" if end.place else str(end.container)


def _word(kind: Any, number: int) -> str:
    try:
        return str(kind(number).name).lower().replace("_", "-")
    except ValueError:
        return str(number)


def iso(time_ns: int | None) -> str:
    """Formats a time; None: an empty string."""
    if time_ns is None:
        return ""
    moment = datetime.datetime.fromtimestamp(time_ns // _NANOSECONDS, datetime.UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ns % _NANOSECONDS // 1000:06d}Z"
