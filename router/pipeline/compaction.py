"""Compaction: segments of a journal become Parquet files of the ledger (``schema``).

    1  read the sealed segments in order; a record found in two segments counts once
    2  write the rows of each day to temporary files beside LEDGER, in .LEDGER.unfinished, and
       flush them
    3  rename each file to its final name, which depends on the segment alone
    4  record in STATE/compacted that the segment is done, and the position of each origin
    5  remove the segment, if requested and if the journal has handed it over

After a crash between two steps, repeating the compaction repairs everything: the same segment
gives the same files. The ledger has nothing but Parquet files, so that every reader of Parquet can
be given the folder. The segment that is still being written is skipped unless requested; its file
is named ``-open`` and is removed once the sealed segment is compacted.

Earlier versions recorded in LEDGER/_compacted what is done; that is read, and moved.
"""

import contextlib
import datetime
import hashlib
import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from router.errors import RouterError
from router.journal.block import HEADER, Block, BlockFlag, Origin
from router.journal.disk import Disk
from router.journal.keys import LinkKey
from router.journal.record import (
    DELIVERY_KINDS,
    NO_TTL,
    ROW,
    RecordError,
    RecordFlag,
    RecordKind,
    heap_strings,
    link_from_record,
)
from router.journal.segment import (
    ForeignFileError,
    SegmentScan,
    Tail,
    mark_of_row,
    numbered,
    segment_name,
)
from router.journal.sequence import SequenceFollower
from router.pipeline.schema import DICTIONARIES, FORMAT, LEDGER, arrow_schema, with_names
from router.pipeline.tree import Tree

HANDED_OVER: Final = "segments"
"""Directory in the router's state for segments that the journal no longer needs."""

JOURNAL: Final = "journal"
DONE: Final = "compacted"
FORMER_DONE: Final = "_compacted"
FORMER_ASIDE: Final = "_tmp"
LOCK: Final = "compaction.lock"

_KEY: Final = struct.Struct(">qq")
_DAY_NS: Final = 86_400 * 1_000_000_000
_EPOCH: Final = datetime.date(1970, 1, 1)
_ROWS: Final = np.dtype(
    [
        ("kind", "u1"),
        ("outcome", "u1"),
        ("guarantee", "u1"),
        ("protocol", "u1"),
        ("flags", "<u2"),
        ("address_octets", "<u2"),
        ("time_ns", "<i8"),
        ("key_high", ">i8"),
        ("key_low", ">i8"),
        ("incoming", "<i8"),
        ("outgoing", "<i8"),
        ("message_octets", "<i8"),
        ("message_format", "<u4"),
        ("delivery_count", "<u4"),
        ("ttl", "<u4"),
        ("tag_octets", "<u4"),
        ("heap_offset", "<u4"),
        ("heap_octets", "<u4"),
    ]
)
"""A row as ``router.journal.record`` draws it; keys of links with the sign that Parquet wants."""

assert _ROWS.itemsize == ROW.size
_DELIVERY_KINDS: Final = np.array(sorted(DELIVERY_KINDS), dtype=np.uint8)


class CompactionError(RouterError):
    """A segment cannot be compacted, or another compaction is under way."""


@attrs.define(kw_only=True)
class Compacted:
    """Result of one run.

    Attributes:
        segments: number of segments read.
        rows: number of rows added to the ledger.
        files: the files written.
        missing: number of records missing, by their sequence numbers.
        damaged_octets: durable octets that cannot be read.
        removed: segments that were removed.
    """

    segments: int = 0
    rows: int = 0
    files: list[str] = attrs.Factory(list)
    missing: int = 0
    damaged_octets: int = 0
    removed: int = 0


def compact(
    state: Path,
    out: str | Path,
    *,
    includes_open: bool = False,
    removes: bool = False,
    disk: Disk | None = None,
) -> Compacted:
    """Makes ledger files of the segments of one router.

    Args:
        state: state directory of the router, or a directory of segments.
        out: the ledger, as path or URL (``store``); made if it does not exist.
        includes_open: also compacts the unsealed segment, of a router that was killed.
        removes: removes segments that the journal has handed over, once they are compacted.
        disk: the operating system's disk, or a test's.

    Raises:
        CompactionError: another run is under way, or there is no journal.
        OSError: the disk failed; run it again.
    """
    disk = disk or Disk()
    segments = _find(state)
    ledger = Tree.open(str(out))
    try:
        lock = disk.lock(state / LOCK)
    except BlockingIOError as error:
        raise CompactionError(f"{state}: another compaction is under way") from error
    try:
        compaction = _Compaction(ledger, disk, includes_open, _notes_of(state, ledger))
        for path in segments:
            if compaction.take(path) and removes and path.parent.name == HANDED_OVER:
                disk.remove(path)
                compaction.report.removed += 1
        compaction.leave()
        return compaction.report
    finally:
        disk.close(lock)


def _notes_of(state: Path, ledger: Tree) -> Path:
    """Returns the directory that records what of a router's state a ledger has."""
    name = hashlib.sha256(os.fsencode(ledger.path or ledger.root)).hexdigest()[:16]
    return state / DONE / name


def _find(state: Path) -> list[Path]:
    """Finds the segments of a router, oldest first.

    Raises:
        CompactionError: there is no directory of segments.
    """
    directories = [path for path in (state / HANDED_OVER, state / JOURNAL) if path.is_dir()]
    if not directories and state.is_dir() and numbered(os.listdir(state), "segment"):
        directories = [state]
    if not directories:
        raise CompactionError(f"{state}: no journal here")
    found: dict[int, Path] = {}
    for directory in reversed(directories):
        for number in numbered(os.listdir(directory), "segment"):
            found[number] = directory / segment_name(number)
    return [found[number] for number in sorted(found)]


@attrs.define(eq=False)
class _Compaction:
    """One run."""

    out: Tree
    disk: Disk
    includes_open: bool
    notes: Path
    report: Compacted = attrs.field(factory=Compacted, init=False)
    _routers: set[str] = attrs.field(factory=set, init=False)
    _follower: SequenceFollower = attrs.field(factory=SequenceFollower, init=False)

    def take(self, path: Path) -> bool:
        """Compacts one segment; returns whether the ledger has all of it.

        Raises:
            CompactionError: another version wrote it.
        """
        try:
            octets = self.disk.read(path)
        except FileNotFoundError:
            return False  # the journal has just moved it; the next run finds it at its new place
        scan = SegmentScan(octets)
        if scan.is_foreign:
            raise CompactionError(str(ForeignFileError(path)))
        name = f"{path.stem}-{scan.salt:08x}"
        known = self._known(name)
        if known is not None:
            self._follow(known)
            return True
        content = _Content(octets)
        for position, block in scan.blocks():
            content.take(position, block, self._follower)
        is_sealed = scan.tail is Tail.SEALED
        if content.router is None or not (is_sealed or self.includes_open):
            return False
        files = self._store(name if is_sealed else f"{name}-open", content)
        if is_sealed:
            self._note(name, content, sum(each.octets for each in scan.damage))
            for file in files:
                self.out.remove(file.replace(f"{name}.", f"{name}-open."))
        self.report.segments += 1
        self.report.missing += sum(each.last - each.first + 1 for each in self._follower.holes)
        self._follower.holes.clear()
        self.report.damaged_octets += sum(each.octets for each in scan.damage)
        return is_sealed

    def leave(self) -> None:
        """Removes the directories that are empty now, and the notes of segments that are gone."""
        if self.out.path is not None:
            former = self.out.path / FORMER_DONE
            for path in former.glob("*.json"):
                if json.loads(path.read_bytes())["router"] in self._routers:
                    path.unlink()
            for directory in (former, self.out.path / FORMER_ASIDE):
                with contextlib.suppress(OSError):
                    directory.rmdir()
        self._aside.leave()

    @property
    def _aside(self) -> Tree:
        """Directory of unfinished files: on the ledger's file system, and not in the ledger."""
        return self.out.aside()

    def _known(self, name: str) -> Mapping[str, Any] | None:
        """Returns the entry of a segment that has been compacted before."""
        places = [self.notes / f"{name}.json"]
        former = None
        if self.out.path is not None:
            former = self.out.path / FORMER_DONE / f"{name}.json"
            places.append(former)
        for path in places:
            with contextlib.suppress(FileNotFoundError):
                noted: Mapping[str, Any] = json.loads(path.read_bytes())
                if path is former:
                    self._write_note(name, noted)
                    path.unlink()
                self._routers.add(noted["router"])
                return noted
        return None

    def _follow(self, noted: Mapping[str, Any]) -> None:
        """Advances the positions past a segment that need not be read."""
        self._follower.expected = {
            Origin(worker, incarnation): following
            for worker, incarnation, following in noted["expected"]
        }

    def _store(self, name: str, content: "_Content") -> list[str]:
        """Writes the files of a segment; returns their names in the ledger."""
        files: list[tuple[str, str]] = []
        router = partition_value(content.router or "")
        for date, tables in content.tables():
            unfinished = f"{router}-{date}-{name}"
            with self._aside.writing(unfinished) as file:
                _write(file, tables, {"format": FORMAT, "segment": name})
            files.append((unfinished, f"date={date}/router={router}/{name}.parquet"))
            self.report.rows += sum(table.num_rows for table in tables)
        for unfinished, final in files:
            self.out.place(self._aside, unfinished, final)
            self.report.files.append(final)
        return [final for _, final in files]

    def _note(self, name: str, content: "_Content", damaged_octets: int) -> None:
        noted = {
            "router": content.router,
            "expected": [[*origin, number] for origin, number in self._follower.expected.items()],
            "holes": [[*each.origin, each.first, each.last] for each in self._follower.holes],
            "damaged_octets": damaged_octets,
        }
        self._routers.add(content.router or "")
        self._write_note(name, noted)

    def _write_note(self, name: str, noted: Mapping[str, Any]) -> None:
        self.disk.make_directory(self.notes)
        aside = self.notes / f"{name}.unfinished"
        with aside.open("w") as file:
            json.dump(noted, file)
            file.flush()
            os.fsync(file.fileno())
        self.disk.rename(aside, self.notes / f"{name}.json")
        self.disk.sync_directory(self.notes)


class _Content:
    """The rows of one segment, column by column.

    Attributes:
        router: id of the router; None until the segment's head has been read.
    """

    def __init__(self, octets: bytes) -> None:
        self.router: str | None = None
        self._number = 0
        self._begun_ns = 0
        self._octets = np.frombuffer(octets, dtype=np.uint8)
        self._rows: list[Any] = []
        self._numbers: list[tuple[int, int, int, int, int]] = []
        self._others: list[dict[str, Any]] = []

    def take(self, position: int, block: Block, follower: SequenceFollower) -> None:
        """Handles the block at ``position``."""
        is_own = bool(block.flags & BlockFlag.OWN)
        if not follower.is_new(block):
            return
        rows = np.frombuffer(block.rows, dtype=_ROWS)
        if is_own or not np.isin(rows["kind"], _DELIVERY_KINDS).all():
            self._take_others(block, is_own)
        if is_own:
            return
        heap = position + HEADER.size + block.row_count * ROW.size
        self._rows.append(rows)
        origin = block.origin
        self._numbers.append(
            (len(rows), origin.worker, origin.incarnation, block.first_sequence, heap)
        )

    def _take_others(self, block: Block, is_own: bool) -> None:
        """Handles the rows that are not about a delivery, one by one: there are few."""
        for index, row in enumerate(block.unpacked_rows()):
            kind = row[0]
            facts: dict[str, Any] = {
                "kind": kind,
                "flags": row[4],
                "time_ns": row[6],
                "worker": block.origin.worker,
                "incarnation": block.origin.incarnation,
                "sequence": 0 if is_own else block.first_sequence + index,
                "incoming": _signed(row[8]),
                "outgoing": _signed(row[9]),
                "message_octets": row[10],
            }
            if kind == RecordKind.SEGMENT:
                self.router = heap_strings(row, block.heap)[2].decode()
                self._begun_ns, self._number = row[6], row[10]
                if self._number:  # an earlier version did not write it
                    self._others.append({**facts, "sequence": self._number, "message_octets": 0})
            elif kind == RecordKind.SEGMENT_END and self._number:
                self._others.append({**facts, "sequence": self._number, "message_octets": 0})
            elif kind == RecordKind.MARK:
                origin, following = mark_of_row(row)
                facts |= {"incoming": 0, "outgoing": 0, "message_octets": 0, "sequence": following}
                facts |= {"worker": origin.worker, "incarnation": origin.incarnation}
                self._others.append(facts)
            elif kind == RecordKind.LINK_ATTACHED:
                with contextlib.suppress(RecordError):
                    link = link_from_record(
                        LinkKey(row[8]), LinkKey(row[9]), heap_strings(row, block.heap)[2]
                    )
                    if is_own:  # it is attached now, whenever that was
                        facts["time_ns"] = max(row[6], self._begun_ns)
                    facts |= {
                        "link_name": link.name,
                        "container": link.remote,
                        "local": link.local,
                        "identity": link.identity or None,
                        "address": link.address or None,
                    }
                self._others.append(facts)
            elif kind == RecordKind.TRACED:
                high, low = _KEY.unpack(row[7])
                facts |= {"key_high": high, "key_low": low, "guarantee": row[2], "protocol": row[3]}
                with contextlib.suppress(RecordError):
                    facts["address"] = heap_strings(row, block.heap)[1] or None
                self._others.append(facts)
            elif not is_own and kind not in DELIVERY_KINDS:
                self._others.append(facts)

    def tables(self) -> Iterator[tuple[datetime.date, list[Any]]]:
        """Yields, for each day, the rows that are not about deliveries, then those that are."""
        deliveries = self._delivery_table()
        times = np.array([each["time_ns"] for each in self._others], dtype=np.int64)
        days = np.unique(np.concatenate([times, np.asarray(deliveries["time_ns"])]) // _DAY_NS)
        others = self._other_table([*self._others, *self._repeated_links(days[1:])])
        for day in days:
            date = _EPOCH + datetime.timedelta(days=int(day))
            found = []
            for table in (others, deliveries):
                mask = np.asarray(table["time_ns"]) // _DAY_NS == day
                if mask.any():
                    found.append(table if mask.all() else table.filter(pa.array(mask)))
            yield date, found

    def _repeated_links(self, days: Iterable[int]) -> Iterator[dict[str, Any]]:
        """Yields the links of earlier days for each later one, as each segment begins with them.

        Without their names, whoever reads a later day alone takes links between routers for links
        to clients.
        """
        for day in days:
            begun_ns = int(day) * _DAY_NS
            earlier = {
                (each["incoming"], each["outgoing"]): each
                for each in self._others
                if each["kind"] == RecordKind.LINK_ATTACHED and each["time_ns"] < begun_ns
            }
            for each in earlier.values():
                flags = each["flags"] | int(RecordFlag.COPY)
                yield {**each, "flags": flags, "time_ns": begun_ns, "sequence": 0}

    def _other_table(self, facts: Sequence[dict[str, Any]]) -> Any:
        schema = arrow_schema(LEDGER)
        blank: dict[str, Any] = {field.name: None if field.nullable else 0 for field in schema}
        rows = [{**blank, **each, "time": each["time_ns"] // 1000} for each in facts]
        return pa.Table.from_pylist(rows, schema=schema)

    def _delivery_table(self) -> Any:
        schema = arrow_schema(LEDGER)
        if not self._rows:
            return schema.empty_table()
        rows = np.concatenate(self._rows)
        counts, workers, lives, firsts, heaps = (
            np.array(each, dtype=np.int64) for each in zip(*self._numbers, strict=True)
        )
        starts = np.repeat(np.cumsum(counts) - counts, counts)
        sequence = np.arange(len(rows)) - starts + np.repeat(firsts, counts)
        tag_starts = np.repeat(heaps, counts) + rows["heap_offset"]
        tag_octets = rows["tag_octets"].astype(np.int64)
        ttl = rows["ttl"].astype(np.int64)
        columns = {
            "time": rows["time_ns"] // 1000,
            "worker": np.repeat(workers, counts),
            "incarnation": np.repeat(lives, counts),
            "sequence": sequence,
            "key_high": rows["key_high"].astype("<i8"),
            "key_low": rows["key_low"].astype("<i8"),
            "ttl_milliseconds": pa.array(ttl, mask=ttl == NO_TTL),
            "tag": self._strings(tag_starts, tag_octets),
            "address": self._strings(tag_starts + tag_octets, rows["address_octets"]).cast(
                pa.string()
            ),
        }
        for name in ("link_name", "container", "local", "identity"):
            columns[name] = pa.nulls(len(rows), pa.string())
        arrays = []
        for field in schema:
            column = columns.get(field.name)
            array = pa.array(np.ascontiguousarray(rows[field.name]) if column is None else column)
            arrays.append(array.cast(field.type))
        table = pa.Table.from_arrays(arrays, schema=schema)
        return table.filter(pa.array(np.isin(rows["kind"], _DELIVERY_KINDS)))

    def _strings(self, starts: Any, lengths: Any) -> Any:
        """Cuts strings out of the segment, without a loop; empty ones are null."""
        lengths = lengths.astype(np.int64)
        ends = np.cumsum(lengths)
        places = np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1])
        offsets = np.concatenate(([0], ends)).astype(np.int32)
        is_there = lengths > 0
        return pa.Array.from_buffers(
            pa.binary(),
            len(lengths),
            [
                pa.py_buffer(np.packbits(is_there, bitorder="little")),
                pa.py_buffer(offsets),
                pa.py_buffer(self._octets[places]),
            ],
        )


def partition_value(router: str) -> str:
    """Returns a router id as written in a path; Spark decodes it."""
    return quote(router, safe="~@+,;()!$& ")


def _signed(number: int) -> int:
    """Returns the signed number with the same 64 bits."""
    return number - (1 << 64) if number >= 1 << 63 else number


def _write(file: Any, tables: list[Any], noted: Mapping[str, str]) -> None:
    tables = [with_names(table) for table in tables]
    schema = tables[0].schema.with_metadata(
        {f"router.ledger.{name}": value for name, value in noted.items()}
    )
    with pq.ParquetWriter(
        file, schema, compression="zstd", use_dictionary=list(DICTIONARIES)
    ) as writer:
        for table in tables:
            writer.write_table(table)
