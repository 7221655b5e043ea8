"""How far each router's ledger reaches, and what is missing from it.

The records of one life of a worker are numbered from 1 without a gap, so the numbers that were
read say exactly which records are missing, in whatever order the files came and however often.
What was read is kept as *islands*, runs of numbers; merging islands is a union of sets, so it does
not matter in how many runs the files were read. A MARK says which number a life had reached.

    first       island        hole      island           following
      |=======================|.........|================|.........>
                              after_ns  before_ns

The head of a segment has a MARK for each worker's latest life alone, so nothing is known of the end
of a life that crashed in a segment that is missing, and nothing at all of one that lay within it.
So a router has one life more, that of its journal: each segment's SEGMENT and SEGMENT_END are two
records of it, of which the first says which segment was before.

All times here are of one router's clock.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from router.journal.block import OWN_WORKER
from router.journal.record import RecordKind
from router.pipeline.session import small_table

LifeName = tuple[str, int, int]
"""Router, worker, incarnation."""

JOURNAL: Final = (OWN_WORKER, 0)
"""Worker and incarnation of the life whose records are begin and end of each segment."""

_BUCKET_BITS: Final = 16
"""Records of a life are counted in buckets of so many bits, each by one task."""

_SPANS_MOST: Final = 100
"""Spans of one router; further ones are joined to the last."""

_BEHIND_NS: Final = 1_000_000_000
"""How much later than it was made a worker's record may come to the journal."""


@attrs.frozen
class Island:
    """A run of records that were read.

    Attributes:
        first, last: sequence numbers.
        first_ns, last_ns: times of these two.
    """

    first: int
    last: int
    first_ns: int
    last_ns: int


@attrs.frozen
class LedgerHole:
    """Records that a router wrote and that are missing from its ledger, or segments (``JOURNAL``).

    Attributes:
        first: sequence number of the first missing record, or the first segment's.
        last: sequence number of the last missing record, or the last segment's.
        after_ns: time of the record before the hole, or the start of that life.
        before_ns: time of the record after it; None if there is none.
    """

    router: str
    worker: int
    incarnation: int
    first: int
    last: int
    after_ns: int
    before_ns: int | None

    @property
    def is_of_segments(self) -> bool:
        """Whether segments are missing."""
        return (self.worker, self.incarnation) == JOURNAL

    def is_within(self, other: "LedgerHole") -> bool:
        """Returns whether another hole misses all that this one does, and lasts as long."""
        name = (self.router, self.worker, self.incarnation)
        outlasts = other.before_ns is None or (
            self.before_ns is not None and self.before_ns <= other.before_ns
        )
        return (
            name == (other.router, other.worker, other.incarnation)
            and other.first <= self.first
            and self.last <= other.last
            and other.after_ns <= self.after_ns
            and outlasts
        )


@attrs.frozen(kw_only=True)
class Life:
    """What was read of one life of a worker.

    Attributes:
        islands: in order, apart from each other.
        following: number of the next record, as the latest MARK has it; 0: none was read.
        marked_ns: time of that MARK.
        ended: number of its last record, WORKER_ENDED; 0: not read.
        reach_ns: time of the latest record, without those of the far future.
    """

    router: str
    worker: int
    incarnation: int
    islands: tuple[Island, ...] = ()
    following: int = 0
    marked_ns: int = 0
    ended: int = 0
    reach_ns: int = 0

    @property
    def name(self) -> LifeName:
        """Names the life."""
        return (self.router, self.worker, self.incarnation)

    @property
    def is_journal(self) -> bool:
        """Whether it is that of the router's journal."""
        return (self.worker, self.incarnation) == JOURNAL

    @property
    def last_ns(self) -> int:
        """Time of the latest record or MARK."""
        return max((each.last_ns for each in self.islands), default=self.marked_ns)

    @property
    def begun_ns(self) -> int:
        """Time of the first record, or of the MARK if there is none."""
        return self.islands[0].first_ns if self.islands else self.marked_ns

    @property
    def has_ended(self) -> bool:
        """Whether the worker ended in good order, as far as was read."""
        last = self.islands[-1].last if self.islands else 0
        return 0 < self.ended == last and self.following <= last + 1

    def merged(self, other: "Life") -> "Life":
        """Returns what was read of the life in either."""
        later = max(self, other, key=lambda each: (each.following, each.marked_ns))
        return attrs.evolve(
            self,
            islands=tuple(union((*self.islands, *other.islands))),
            following=later.following,
            marked_ns=later.marked_ns,
            ended=max(self.ended, other.ended),
            reach_ns=max(self.reach_ns, other.reach_ns),
        )


def union(islands: Iterable[Island]) -> list[Island]:
    """Joins islands that touch or overlap."""
    found: list[Island] = []
    for each in sorted(islands, key=lambda island: (island.first, island.last)):
        if not found or each.first > found[-1].last + 1:
            found.append(each)
        elif each.last > found[-1].last:
            found[-1] = attrs.evolve(found[-1], last=each.last, last_ns=each.last_ns)
    return found


def merge_lives(*sources: Iterable[Life]) -> dict[LifeName, Life]:
    """Merges what was read of each life."""
    lives: dict[LifeName, Life] = {}
    for life in itertools.chain(*sources):
        known = lives.get(life.name)
        lives[life.name] = life if known is None else known.merged(life)
    return lives


def flagging_in(lives: Iterable[Life]) -> set[str]:
    """Returns the routers whose records have the flag ROUTER where a peer is one.

    The version that has that flag has segments in the ledger, too.
    """
    return {life.router for life in lives if life.is_journal}


@attrs.frozen(kw_only=True)
class Beginning:
    """Where a router's ledger begins; lives that are forgotten count as well.

    Attributes:
        begun_ns: time of its first record.
        oldest: the oldest life of each worker; it alone may begin with a number other than 1.
    """

    router: str
    begun_ns: int
    oldest: Mapping[int, int]


def beginnings_of(lives: Iterable[Life], known: Iterable[Beginning] = ()) -> dict[str, Beginning]:
    """Returns the beginning of each router's ledger."""
    found = {each.router: each for each in known}
    for life in lives:
        begun_ns = life.begun_ns
        before = found.get(life.router)
        oldest = {} if before is None else dict(before.oldest)
        oldest[life.worker] = min(life.incarnation, oldest.get(life.worker, life.incarnation))
        found[life.router] = Beginning(
            router=life.router,
            begun_ns=begun_ns if before is None else min(begun_ns, before.begun_ns),
            oldest=oldest,
        )
    return found


def holes_of(lives: Iterable[Life], beginnings: Mapping[str, Beginning]) -> list[LedgerHole]:
    """Finds the missing records, by their numbers alone."""
    return [
        LedgerHole(*life.name, first, last, after_ns, before_ns)
        for life in sorted(lives, key=lambda each: each.name)
        for first, last, after_ns, before_ns in (
            _missing_segments(life)
            if life.is_journal
            else _holes(life, beginnings[life.router].oldest[life.worker] == life.incarnation)
        )
    ]


def _missing_segments(journal: Life) -> Iterable[tuple[int, int, int, int | None]]:
    """Finds missing segments; a journal that was begun anew, from 1, misses none before it."""
    for one, other in itertools.pairwise(journal.islands):
        after_ns = one.last_ns - _BEHIND_NS
        if after_ns <= other.first_ns:
            yield one.last // 2 + 1, other.first // 2, after_ns, other.first_ns


def _holes(life: Life, is_oldest: bool) -> Iterable[tuple[int, int, int, int | None]]:
    islands = life.islands
    if islands and islands[0].first > 1 and not is_oldest:
        yield 1, islands[0].first - 1, life.incarnation, islands[0].first_ns
    for one, other in itertools.pairwise(islands):
        yield one.last + 1, other.first - 1, one.last_ns, other.first_ns
    last = islands[-1].last if islands else 0
    if life.following > last + 1 and (islands or not is_oldest):
        after_ns = islands[-1].last_ns if islands else life.incarnation
        yield last + 1, life.following - 1, after_ns, life.marked_ns


@attrs.frozen(kw_only=True)
class Reach:
    """How far a router's ledger reaches.

    Attributes:
        reach_ns: time of its latest record, without those of the far future.
        has_ended: all its workers ended in good order, and nothing was read that is later.
        is_declared: somebody said that it has ended.
        begun_ns: time of its first record.
        holes: spans in which records are missing, from and to; None: to the end.
    """

    router: str
    begun_ns: int
    reach_ns: int
    has_ended: bool
    is_declared: bool
    holes: tuple[tuple[int, int | None], ...]


def reaches_of(
    lives: Iterable[Life],
    beginnings: Mapping[str, Beginning],
    holes: Sequence[LedgerHole],
    declared: Iterable[str] = (),
) -> dict[str, Reach]:
    """Returns how far each router's ledger reaches."""
    latest: dict[tuple[str, int], Life] = {}
    reach: dict[str, int] = dict.fromkeys(beginnings, 0)
    for life in lives:
        if life.is_journal:
            continue
        place = (life.router, life.worker)
        if place not in latest or life.incarnation > latest[place].incarnation:
            latest[place] = life
        reach[life.router] = max(reach[life.router], life.reach_ns)
    ended = dict.fromkeys(beginnings, True)
    for (router, _), life in latest.items():
        ended[router] = ended[router] and life.has_ended
    spans: dict[str, list[tuple[int, int | None]]] = {router: [] for router in beginnings}
    for hole in holes:
        before_ns = hole.before_ns
        ends = None if before_ns is None else max(hole.after_ns, before_ns)
        spans[hole.router].append((min(hole.after_ns, before_ns or hole.after_ns), ends))
    declared = set(declared)
    found = {}
    for router, beginning in beginnings.items():
        has_ended = ended[router] and any(place[0] == router for place in latest)
        if router in declared and not has_ended:
            spans[router].append((reach[router], None))
        found[router] = Reach(
            router=router,
            begun_ns=beginning.begun_ns,
            reach_ns=reach[router],
            has_ended=has_ended,
            is_declared=router in declared,
            holes=tuple(_joined(spans[router])),
        )
    return found


def _joined(spans: Iterable[tuple[int, int | None]]) -> list[tuple[int, int | None]]:
    """Joins spans that touch."""
    found: list[tuple[int, int | None]] = []
    for after, before in sorted(spans, key=lambda span: span[0]):
        last = found[-1] if found else None
        if last is None or (last[1] is not None and after > last[1] and len(found) < _SPANS_MOST):
            found.append((after, before))
        else:
            is_endless = last[1] is None or before is None
            found[-1] = (last[0], None if is_endless else max(last[1] or 0, before or 0))
    return found


@attrs.frozen
class Repeat:
    """Records that are there more than once.

    Attributes:
        is_known: an earlier run has read them; otherwise two files of this run have them.
    """

    router: str
    worker: int
    incarnation: int
    first: int
    last: int
    is_known: bool


def repeats_of(pieces: Iterable[Life], known: Mapping[LifeName, Life]) -> list[Repeat]:
    """Finds the records that were read before, or that several files have.

    Args:
        pieces: what each new file has of each life.
        known: what earlier runs have read.
    """
    islands: dict[LifeName, list[Island]] = {}
    for piece in pieces:
        if not piece.is_journal:
            islands.setdefault(piece.name, []).extend(piece.islands)
    repeats = []
    for name, found in islands.items():
        before = known[name].islands if name in known else ()
        for first, last in _common(union(found), before):
            repeats.append(Repeat(*name, first, last, True))
        for first, last in _doubled(found):
            repeats.append(Repeat(*name, first, last, False))
    return repeats


def _common(some: Sequence[Island], others: Sequence[Island]) -> Iterable[tuple[int, int]]:
    for one in some:
        for other in others:
            first, last = max(one.first, other.first), min(one.last, other.last)
            if first <= last:
                yield first, last


def _doubled(islands: Iterable[Island]) -> list[tuple[int, int]]:
    """Returns the numbers that two islands have, as runs apart from each other."""
    found: list[Island] = []
    end = 0
    for each in sorted(islands, key=lambda island: (island.first, island.last)):
        if each.first <= end:
            found.append(Island(each.first, min(end, each.last), 0, 0))
        end = max(end, each.last)
    return [(each.first, each.last) for each in union(found)]


def pieces_of(records: Any, future_ns: int) -> tuple[list[Life], list[str]]:
    """Reads which records the files have: islands of each life, marks, ends.

    Args:
        records: with the column ``file``.
        future_ns: what is later than this says nothing about how far a ledger reaches.

    Returns:
        What each file has of each life, and the files with records of the far future.
    """
    lives = [*_read_islands(records, future_ns), *_read_marks(records), *_read_segments(records)]
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    late = records.where(F.col("time_ns") > future_ns).select("file").distinct().collect()
    return lives, sorted(row.file for row in late)


def segment_begun(number: int, previous: int, at_ns: int) -> Island:
    """Returns what the head of a segment shows; numbers between the two were given to none."""
    return Island(2 * previous + 1, 2 * number - 1, at_ns, at_ns)


def segment_ended(number: int, at_ns: int) -> Island:
    """Returns what the end of a segment shows."""
    return Island(2 * number, 2 * number, at_ns, at_ns)


def _read_segments(records: Any) -> list[Life]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    kinds = (int(RecordKind.SEGMENT), int(RecordKind.SEGMENT_END))
    rows = (
        records.where(F.col("kind").isin(*kinds))
        .select("router", "kind", "sequence", "incoming", "time_ns")
        .collect()
    )
    worker, incarnation = JOURNAL
    return [
        Life(
            router=row.router,
            worker=worker,
            incarnation=incarnation,
            islands=(
                segment_begun(row.sequence, row.incoming, row.time_ns)
                if row.kind == kinds[0]
                else segment_ended(row.sequence, row.time_ns),
            ),
        )
        for row in rows
    ]


def _read_islands(records: Any, future_ns: int) -> list[Life]:
    from pyspark.sql import Window  # noqa: PLC0415  an extra
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    place = ("file", "router", "worker", "incarnation", "bucket")
    sequence, at = F.col("sequence"), F.col("time_ns")
    counts = (
        F.min("sequence").alias("first"),
        F.max("sequence").alias("last"),
        F.min_by("time_ns", "sequence").alias("first_ns"),
        F.max_by("time_ns", "sequence").alias("last_ns"),
        F.count(F.lit(1)).alias("count"),
        F.sum("sequence").alias("total"),
        F.max(F.when(at <= future_ns, at)).alias("reach_ns"),
        F.max(F.when(F.col("kind") == int(RecordKind.WORKER_ENDED), sequence)).alias("ended"),
    )
    numbered = (
        records.where((sequence > 0) & (F.col("kind") != int(RecordKind.MARK)))
        .where(F.col("worker") != OWN_WORKER)
        .withColumn("bucket", F.shiftright(sequence, _BUCKET_BITS))
    )
    buckets = numbered.groupBy(*place).agg(*counts).persist()
    is_whole = (F.col("last") - F.col("first") + 1 == F.col("count")) & (
        F.col("total") * 2 == (F.col("first") + F.col("last")) * F.col("count")
    )
    rows = buckets.where(is_whole).collect()
    broken = buckets.where(~is_whole).select(*place)
    if not broken.isEmpty():
        order = Window.partitionBy(*place).orderBy("sequence")
        apart = (
            numbered.join(F.broadcast(broken), list(place), "left_semi")
            .dropDuplicates([*place, "sequence"])
            .withColumn("island", sequence - F.row_number().over(order))
        )
        rows += apart.groupBy(*place, "island").agg(*counts).collect()
    buckets.unpersist()
    lives: dict[tuple[str, LifeName], Life] = {}
    for row in sorted(rows, key=lambda each: each.first):
        name = (row.router, row.worker, row.incarnation)
        piece = Life(
            router=row.router,
            worker=row.worker,
            incarnation=row.incarnation,
            islands=(Island(row.first, row.last, row.first_ns, row.last_ns),),
            ended=row.ended or 0,
            reach_ns=row.reach_ns or 0,
        )
        before = lives.get((row.file, name))
        lives[row.file, name] = piece if before is None else before.merged(piece)
    return list(lives.values())


def _read_marks(records: Any) -> list[Life]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    rows = (
        records.where((F.col("kind") == int(RecordKind.MARK)) & (F.col("worker") != OWN_WORKER))
        .groupBy("router", "worker", "incarnation")
        .agg(
            F.max("sequence").alias("following"),
            F.max_by("time_ns", "sequence").alias("marked_ns"),
        )
        .collect()
    )
    return [Life(**row.asDict()) for row in rows]


def without_repeats(records: Any, repeats: Sequence[Repeat]) -> Any:
    """Leaves each record once, and none that was read before."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    if not repeats:
        return records
    life = ("router", "worker", "incarnation")
    ranges = F.broadcast(
        small_table(
            records.sparkSession,
            [attrs.astuple(each) for each in repeats],
            "r string, w int, i bigint, first bigint, last bigint, is_known boolean",
        )
    )
    is_numbered = (F.col("sequence") > 0) & (F.col("kind") != int(RecordKind.MARK))
    is_in = (
        is_numbered
        & (F.col("router") == F.col("r"))
        & (F.col("worker") == F.col("w"))
        & (F.col("incarnation") == F.col("i"))
        & F.col("sequence").between(F.col("first"), F.col("last"))
    )
    new = records.join(ranges.where("is_known"), is_in, "left_anti")
    doubled = ranges.where("not is_known")
    return new.join(doubled, is_in, "left_anti").unionByName(
        new.join(doubled, is_in, "left_semi").dropDuplicates([*life, "sequence"])
    )
