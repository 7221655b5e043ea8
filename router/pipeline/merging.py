"""Merging: a day's small files of the ledger become large ones, and old days go.

    LEDGER/date=2026-03-31/router=dc1/0000000000000042-9c0d1f2e.parquet
                                      0000000000000043-9c0d1f2e.parquet
       -> 0000000000000042-0000000000000043-5f0c6b1d2e3a4c5f-merged.parquet
          |                |                '- hash of the names of the files it was made from
          '- first and last number of these files

    1  write each merged file to .LEDGER.unfinished, and read its number of rows back
    2  record in .LEDGER.unfinished/plan.json which files it replaces
    3  wait until no audit reads the ledger (``leases``), and keep new ones waiting
    4  move the merged files to their places, remove those that they replace, and the plan

A run that dies after the second step is completed by the next one. Between the moves of step 4 a
record may be there twice, which audits notice: they count a record once by its number.

The name tells an audit with ``--carry`` that it has read all of the file before, so that it is not
read again. Only days are merged that ended a while ago, so that all of their segments are there;
files that come later are merged with the rest when there are enough of them. ``-open`` files are
left alone, because a sealed one will replace them.
"""

import datetime
import json
import re
import uuid
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from router.errors import RouterError
from router.journal.record import DELIVERY_KINDS
from router.pipeline.leases import merging, replacing
from router.pipeline.names import MERGED, OPEN, merged_name
from router.pipeline.schema import DICTIONARIES, FORMAT, LEDGER, arrow_schema, with_names
from router.pipeline.tree import File, Tree

FULL_OCTETS: Final = 256 << 20
"""Size that a merged file should have."""

OLDER_DAYS: Final = 2
PATIENCE_SECONDS: Final = 600.0
ROWS: Final = 1 << 20
"""Rows of one row group, which are in memory at a time."""

_PLAN: Final = "plan.json"
_DAY: Final = re.compile(r"date=([0-9]{4}-[0-9]{2}-[0-9]{2})")


class MergeError(RouterError):
    """The ledger cannot be merged."""


@attrs.define(kw_only=True)
class Merged:
    """Result of one run.

    Attributes:
        merged: number of files that were replaced.
        files: the files that replace them.
        rows: their rows.
        removed: number of files of days that are not kept.
    """

    merged: int = 0
    files: list[str] = attrs.Factory(list)
    rows: int = 0
    removed: int = 0


@attrs.frozen(kw_only=True)
class _Plan:
    """What a run replaces.

    Attributes:
        moves: name of each unfinished file, and its place in the ledger.
        removes: files of the ledger that go.
    """

    moves: dict[str, str]
    removes: list[str]


def merge(
    ledger: str,
    today: datetime.date,
    *,
    older_days: int = OLDER_DAYS,
    keep_days: int | None = None,
    full_octets: int = FULL_OCTETS,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Merged:
    """Merges the files of each day and router.

    Args:
        ledger: its directory, as path or URL.
        today: the day, UTC.
        older_days: how many days ago a day must have ended to be merged.
        keep_days: older days are removed; None: all are kept.
        full_octets: size that a merged file should have; a file of half that size stays.
        patience_seconds: how long to wait for audits that read the ledger.

    Raises:
        MergeError: there is no ledger, or a file cannot be read.
        InUseError: it is being read, or merged, all the time.
    """
    tree = Tree.open(ledger)
    if not tree.exists():
        raise MergeError(f"{ledger}: no ledger here")
    aside = tree.aside()
    with merging(aside):
        _complete(tree, aside, patience_seconds)
        report, moves, removes = Merged(), {}, []
        for folder in tree.folders():
            found = _DAY.fullmatch(folder)
            if found is None:
                continue
            age_days = (today - datetime.date.fromisoformat(found[1])).days
            files = [file for file in tree.files(folder) if file.name.endswith(".parquet")]
            if keep_days is not None and age_days > keep_days:
                removes += [file.name for file in files]
                report.removed += len(files)
            elif age_days > older_days:
                for group in _groups(files, full_octets):
                    name, unfinished, rows = _write(tree, aside, group)
                    moves[unfinished] = name
                    removes += [file.name for file in group]
                    report.files.append(name)
                    report.merged += len(group)
                    report.rows += rows
        if moves or removes:
            plan = _Plan(moves=moves, removes=removes)
            aside.store().write(_PLAN, json.dumps(attrs.asdict(plan)).encode())
            _complete(tree, aside, patience_seconds)
        return report


def _complete(tree: Tree, aside: Tree, patience_seconds: float) -> None:
    """Does what a plan says, if there is one; drops unfinished files without a plan."""
    store = aside.store()
    octets = store.read(_PLAN)
    if octets is None:
        for name in store.sizes():
            if name.endswith(MERGED):
                store.remove(name)
        return
    plan = _Plan(**json.loads(octets))
    with replacing(aside, patience_seconds):
        for unfinished, name in plan.moves.items():
            if aside.has(unfinished):
                tree.place(aside, unfinished, name)
            elif not tree.has(name):
                raise MergeError(f"{name} has gone before it was in its place")
        for name in plan.removes:
            tree.remove(name)
        store.remove(_PLAN)


def _groups(files: Sequence[File], full_octets: int) -> Iterator[list[File]]:
    """Yields files of one router, without a gap between them, that are to become one."""
    group: list[File] = []
    for file in files:
        folder, _, name = file.name.rpartition("/")
        if name.endswith(OPEN):
            continue
        is_full = file.octets >= full_octets // 2
        is_other = bool(group) and not group[0].name.startswith(f"{folder}/")
        octets = sum(each.octets for each in group) + file.octets
        if is_full or is_other or octets > full_octets:
            if len(group) > 1:
                yield group
            group = []
        if not is_full:
            group.append(file)
    if len(group) > 1:
        yield group


def _write(tree: Tree, aside: Tree, group: Sequence[File]) -> tuple[str, str, int]:
    """Writes the merged file of a group; returns its name, its unfinished one, and its rows."""
    segments = sorted({segment for file in group for segment in _segments(tree, file)})
    folder = group[0].name.rpartition("/")[0]
    final = f"{folder}/{merged_name(segments)}"
    unfinished = f"{uuid.uuid4().hex}{MERGED}"
    noted = {"format": FORMAT, "segments": json.dumps(segments)}
    blank = with_names(arrow_schema(LEDGER).empty_table()).schema
    schema = blank.with_metadata({f"router.ledger.{name}": text for name, text in noted.items()})
    with (
        aside.writing(unfinished) as file,
        pq.ParquetWriter(
            file, schema, compression="zstd", use_dictionary=list(DICTIONARIES)
        ) as writer,
    ):
        for is_delivery in (False, True):
            for table in _gathered(_tables(tree, group, is_delivery)):
                writer.write_table(with_names(table))
    with aside.reading(unfinished) as file:
        rows: int = pq.ParquetFile(file).metadata.num_rows
    if rows != sum(_rows(tree, each) for each in group):
        raise MergeError(f"{final} has {rows} rows, and its parts have not")
    return final, unfinished, rows


def _segments(tree: Tree, file: File) -> Collection[str]:
    """Returns the names of the segments of which a file was made."""
    with tree.reading(file.name) as stream:
        noted = pq.ParquetFile(stream).schema_arrow.metadata or {}
    octets = noted.get(b"router.ledger.segments")
    if octets is not None:
        found: list[str] = json.loads(octets)
        return found
    return [file.name.rpartition("/")[2][: -len(".parquet")]]


def _rows(tree: Tree, file: File) -> int:
    with tree.reading(file.name) as stream:
        rows: int = pq.ParquetFile(stream).metadata.num_rows
    return rows


def _tables(tree: Tree, group: Sequence[File], is_delivery: bool) -> Iterator[Any]:
    """Yields the rows of a group that are about deliveries, or those that are not."""
    schema = arrow_schema(LEDGER)
    kinds = pa.array(sorted(DELIVERY_KINDS), pa.int16())
    for each in group:
        with tree.reading(each.name) as stream:
            file = pq.ParquetFile(stream)
            there = [name for name in schema.names if name in file.schema_arrow.names]
            for number in range(file.num_row_groups):
                table = file.read_row_group(number, columns=there)
                mask = pc.is_in(table["kind"], value_set=kinds)
                table = table.filter(mask if is_delivery else pc.invert(mask))
                if table.num_rows:
                    yield pa.concat_tables(
                        [schema.empty_table(), table], promote_options="default"
                    ).cast(schema)


def _gathered(tables: Iterator[Any]) -> Iterator[Any]:
    """Joins tables to such as make a row group."""
    waiting: list[Any] = []
    for table in tables:
        waiting.append(table)
        if sum(each.num_rows for each in waiting) >= ROWS:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)
