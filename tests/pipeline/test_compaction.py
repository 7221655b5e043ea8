"""Segments become ledger files: every record once, under names that repeating does not change."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from router.cli.main import main
from router.journal.block import OWN_WORKER
from router.journal.disk import Disk
from router.journal.log import Log
from router.journal.reclaim import reclaim
from router.journal.record import LinkDescription, RecordFlag, RecordKind
from router.journal.segment import SegmentScan
from router.journal.writer import RecordWriter
from router.model.trace import Hop
from router.pipeline.compaction import CompactionError, compact
from router.pipeline.schema import LEDGER, NAMES, PARTITIONS, enumerations
from tests.support.journal import SECOND_NS, SOURCE, START_NS, TARGET, append, key, write_life

DAY_NS = 86_400 * SECOND_NS


def write_journal(
    state: Path, *lives: RecordWriter, router: str = "dc1", closes: bool = True
) -> None:
    """Puts what the writers have into the journal of ``state``, one segment a call."""
    log = Log(state / "journal", router, disk=Disk(), incarnation=START_NS, rotate_seconds=1e9)
    log.open(START_NS)
    for writer in lives:
        append(log, writer)
    log.commit(START_NS)
    if closes:
        log.close(START_NS)


def journal_rows(state: Path) -> list[tuple[object, ...]]:
    """Reads the deliveries' records as the journal's own code gives them."""
    rows: list[tuple[object, ...]] = []
    for path in sorted((state / "journal").glob("*.segment")):
        for record in SegmentScan(path.read_bytes()).records():
            if record.kind < RecordKind.LINK_ATTACHED:
                rows.append(
                    (
                        record.worker,
                        record.sequence,
                        int(record.kind),
                        record.time_ns,
                        record.key.hex(),
                        record.incoming,
                        record.outgoing,
                        record.outcome,
                        record.flags,
                        record.ttl_milliseconds,
                        record.tag,
                        record.address,
                    )
                )
    return rows


def ledger_rows(out: Path) -> list[tuple[object, ...]]:
    """Reads the same from the ledger."""
    rows: list[tuple[object, ...]] = []
    for path in sorted(out.glob("date=*/router=*/*.parquet")):
        for row in pq.ParquetFile(path).read().to_pylist():
            if row["kind"] < RecordKind.LINK_ATTACHED:
                key = (row["key_high"] % 2**64, row["key_low"] % 2**64)
                rows.append(
                    (
                        row["worker"],
                        row["sequence"],
                        row["kind"],
                        row["time_ns"],
                        f"{key[0]:016x}{key[1]:016x}",
                        row["incoming"] % 2**64,
                        row["outgoing"] % 2**64,
                        row["outcome"],
                        row["flags"],
                        row["ttl_milliseconds"],
                        row["tag"] or b"",
                        row["address"] or "",
                    )
                )
    return rows


def files(out: Path) -> list[str]:
    return sorted(str(path.relative_to(out)) for path in out.rglob("*.parquet"))


def test_the_ledger_holds_every_record_as_the_journal_reads_it(tmp_path: Path) -> None:
    writer = RecordWriter(worker=3, incarnation=START_NS)
    for number in range(3000):
        write_life(writer, number, payload=b"payload %d" % number)
    writer.received(
        START_NS, key(2**127 + 5), SOURCE, b"\xff\x00", address="prices/é", ttl_milliseconds=7
    )
    write_journal(tmp_path, writer)
    report = compact(tmp_path, tmp_path / "ledger")
    assert ledger_rows(tmp_path / "ledger") == journal_rows(tmp_path)
    assert (report.segments, report.rows, report.missing) == (1, 12003, 0)


def test_a_link_stands_where_a_segment_repeats_it_and_not_in_the_day_it_was_attached(
    tmp_path: Path,
) -> None:
    writer = RecordWriter(worker=0, incarnation=START_NS)
    link = LinkDescription(key=SOURCE, is_incoming=True, local="dc1", remote="dc2", name="orders")
    writer.link_attached(START_NS, link)
    write_life(writer, 1)
    write_journal(tmp_path, writer)
    later = START_NS + 9 * DAY_NS
    log = Log(tmp_path / "journal", "dc1", disk=Disk(), incarnation=later, rotate_seconds=1e9)
    log.open(later)
    log.close(later)
    compact(tmp_path, tmp_path / "ledger")
    assert len(files(tmp_path / "ledger")) == 2, "one for each segment"
    rows = pq.ParquetFile(tmp_path / "ledger" / files(tmp_path / "ledger")[-1]).read().to_pylist()
    links = [row for row in rows if row["kind"] == RecordKind.LINK_ATTACHED]
    assert [(row["time_ns"], row["link_name"]) for row in links] == [(later, "orders")]


def test_a_segment_over_midnight_names_its_links_in_the_file_of_each_day(tmp_path: Path) -> None:
    writer = RecordWriter(worker=0, incarnation=START_NS)
    for key_, name in ((SOURCE, "orders"), (TARGET, "copies")):
        link = LinkDescription(
            key=key_, is_incoming=key_ == SOURCE, local="dc1", remote="dc2", name=name
        )
        writer.link_attached(START_NS, link)
    for day in range(3):
        writer.received(START_NS + day * DAY_NS, key(day), SOURCE, b"", address="orders")
    write_journal(tmp_path, writer)
    compact(tmp_path, tmp_path / "ledger")
    parts = [
        pq.ParquetFile(tmp_path / "ledger" / file).read().to_pylist()
        for file in files(tmp_path / "ledger")
    ]
    assert len(parts) == 3
    links = [[row for row in part if row["kind"] == RecordKind.LINK_ATTACHED] for part in parts]
    midnight = START_NS // DAY_NS * DAY_NS
    for day, found in enumerate(links):
        begun = START_NS if day == 0 else midnight + day * DAY_NS
        assert [(row["time_ns"], row["link_name"]) for row in found] == [
            (begun, "orders"),
            (begun, "copies"),
        ]
        is_copy = [bool(row["flags"] & RecordFlag.COPY) and not row["sequence"] for row in found]
        assert is_copy == [day > 0] * 2
    numbers = [row["sequence"] for part in parts for row in part if row["worker"] != OWN_WORKER]
    assert sorted(filter(None, numbers)) == [1, 2, 3, 4, 5], "each record once"


def test_begin_and_end_of_a_segment_stand_in_the_ledger_with_its_number(tmp_path: Path) -> None:
    for number in range(2):
        writer = RecordWriter(worker=number, incarnation=START_NS)
        write_life(writer, number)
        write_journal(tmp_path, writer)
    compact(tmp_path, tmp_path / "ledger")
    found = [
        (row["kind"], row["sequence"], row["incoming"], row["worker"])
        for name in files(tmp_path / "ledger")
        for row in pq.ParquetFile(tmp_path / "ledger" / name).read().to_pylist()
        if row["kind_name"] in {"segment", "segment-end"}
    ]
    begun, ended = int(RecordKind.SEGMENT), int(RecordKind.SEGMENT_END)
    assert found == [
        *((begun, 1, 0, OWN_WORKER), (ended, 1, 0, OWN_WORKER)),
        *((begun, 2, 1, OWN_WORKER), (ended, 2, 0, OWN_WORKER)),
    ]


def test_repeating_changes_nothing(tmp_path: Path) -> None:
    writer = RecordWriter(worker=0, incarnation=START_NS)
    write_life(writer, 1)
    write_journal(tmp_path, writer)
    compact(tmp_path, tmp_path / "ledger")
    before = files(tmp_path / "ledger")
    write_life(writer, 2)
    write_journal(tmp_path, writer)
    second = compact(tmp_path, tmp_path / "ledger")
    assert second.segments == 1
    assert before == [name for name in files(tmp_path / "ledger") if name in before]
    assert ledger_rows(tmp_path / "ledger") == journal_rows(tmp_path)
    assert compact(tmp_path, tmp_path / "ledger").segments == 0


def test_a_run_that_was_killed_before_its_note_gives_the_same_files(tmp_path: Path) -> None:
    writer = RecordWriter(worker=0, incarnation=START_NS)
    write_life(writer, 1)
    write_journal(tmp_path, writer)
    compact(tmp_path, tmp_path / "ledger")
    before = {
        name: (tmp_path / "ledger" / name).read_bytes() for name in files(tmp_path / "ledger")
    }
    for note in (tmp_path / "compacted").rglob("*.json"):
        note.unlink()
    compact(tmp_path, tmp_path / "ledger")
    after = {name: (tmp_path / "ledger" / name).read_bytes() for name in files(tmp_path / "ledger")}
    assert after == before


def test_a_block_that_stands_in_two_segments_counts_once(tmp_path: Path) -> None:
    writer = RecordWriter(worker=0, incarnation=START_NS)
    write_life(writer, 1)
    block = writer.take_blocks()[0]

    class Again(RecordWriter):
        def take_blocks(self) -> list[object]:  # type: ignore[override]
            return [block]

    again = Again(worker=0, incarnation=START_NS)
    write_journal(tmp_path, again)
    write_journal(tmp_path, again)
    assert len(journal_rows(tmp_path)) == 8
    compact(tmp_path, tmp_path / "ledger")
    assert len(ledger_rows(tmp_path / "ledger")) == 4


def test_days_and_routers_have_directories_of_their_own(tmp_path: Path) -> None:
    writer = RecordWriter(worker=0, incarnation=START_NS)
    for day in (0, 1):
        writer.received(START_NS + day * DAY_NS, key(day), SOURCE, b"t")
    write_journal(tmp_path, writer, router="dc=1")
    compact(tmp_path, tmp_path / "ledger")
    folders = {Path(name).parent.as_posix() for name in files(tmp_path / "ledger")}
    assert folders == {"date=2025-11-13/router=dc%3D1", "date=2025-11-14/router=dc%3D1"}


def test_records_that_are_not_about_a_delivery_count_too(tmp_path: Path) -> None:
    writer = RecordWriter(worker=0, incarnation=START_NS)
    write_life(writer, 1)
    writer.worker_ended(START_NS)
    write_journal(tmp_path, writer)
    compact(tmp_path, tmp_path / "ledger")
    (path,) = (tmp_path / "ledger").glob("date=*/router=*/*.parquet")
    rows = pq.ParquetFile(path).read(columns=["kind", "worker", "sequence"]).to_pylist()
    sequence = sorted(row["sequence"] for row in rows if row["worker"] != OWN_WORKER)
    assert sequence == [1, 2, 3, 4, 5]
    assert {"kind": RecordKind.WORKER_ENDED, "worker": 0, "sequence": 5} in rows[:2]


def test_a_traced_delivery_is_named_by_its_key_and_address(tmp_path: Path) -> None:
    writer = RecordWriter(worker=0, incarnation=START_NS)
    hop = Hop(trace=b"t" * 16, span=b"s" * 8)
    writer.traced(START_NS, key(1), SOURCE, hop, guarantee=2, protocol=1, address="orders")
    write_life(writer, 1)
    write_journal(tmp_path, writer)
    compact(tmp_path, tmp_path / "ledger")
    (path,) = (tmp_path / "ledger").glob("date=*/router=*/*.parquet")
    rows = pq.ParquetFile(path).read().to_pylist()
    [traced] = [row for row in rows if row["kind"] == RecordKind.TRACED]
    assert (traced["kind_name"], traced["address"], traced["sequence"]) == ("traced", "orders", 1)
    assert {
        (row["key_high"], row["key_low"])
        for row in rows
        if row["kind"] <= RecordKind.TRACED and row["key_high"] | row["key_low"]
    } == {(traced["key_high"], traced["key_low"])}


def test_links_are_named(tmp_path: Path) -> None:
    writer = RecordWriter(worker=0, incarnation=START_NS)
    writer.link_attached(
        START_NS,
        LinkDescription(
            key=TARGET,
            is_incoming=False,
            local="dc1",
            remote="west",
            name="out",
            address="orders",
            identity="app",
        ),
    )
    write_life(writer, 1)
    write_journal(tmp_path, writer)
    compact(tmp_path, tmp_path / "ledger")
    (path,) = (tmp_path / "ledger").glob("date=*/router=*/*.parquet")
    links = [
        (row["container"], row["link_name"], row["address"], row["outgoing"], row["sequence"])
        for row in pq.ParquetFile(path).read().to_pylist()
        if row["kind"] == RecordKind.LINK_ATTACHED
    ]
    assert links == [("west", "out", "orders", TARGET, 1)]


def test_an_open_segment_waits_unless_it_is_asked_for(tmp_path: Path) -> None:
    writer = RecordWriter(worker=0, incarnation=START_NS)
    write_life(writer, 1)
    write_journal(tmp_path / "running", writer, closes=False)
    state, out = tmp_path / "killed", tmp_path / "ledger"
    shutil.copytree(tmp_path / "running", state)  # nobody holds its lock
    assert compact(state, out).files == []
    (name,) = compact(state, out, includes_open=True).files
    assert name.endswith("-open.parquet")
    write_journal(state, RecordWriter(worker=0, incarnation=START_NS + 1))  # seals it
    compact(state, out)
    assert len(ledger_rows(out)) == 4
    assert not any("-open" in name for name in files(out))


def test_what_the_journal_has_handed_over_is_removed_when_it_is_compacted(tmp_path: Path) -> None:
    writer = RecordWriter(worker=0, incarnation=START_NS)
    write_life(writer, 1)
    write_journal(tmp_path, writer)
    reclaim(tmp_path / "journal", 1, now_ns=START_NS, archive=tmp_path / "segments")
    write_life(writer, 2)
    write_journal(tmp_path, writer)
    report = compact(tmp_path, tmp_path / "ledger", removes=True)
    assert (report.removed, report.missing) == (1, 0)
    assert len(ledger_rows(tmp_path / "ledger")) == 8
    assert not list((tmp_path / "segments").glob("*.segment"))
    assert len(list((tmp_path / "journal").glob("*.segment"))) == 1


def test_a_directory_without_a_journal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CompactionError, match="no journal"):
        compact(tmp_path, tmp_path / "ledger")
    result = CliRunner().invoke(
        main, ["ledger", "compact", str(tmp_path), "--out", str(tmp_path / "ledger")]
    )
    assert result.exit_code == 1
    assert "no journal" in result.output


def test_the_command_compacts_and_every_column_says_what_it_is(tmp_path: Path) -> None:
    writer = RecordWriter(worker=0, incarnation=START_NS)
    write_life(writer, 1)
    write_journal(tmp_path, writer)
    arguments = ["ledger", "compact", str(tmp_path), "--out", str(tmp_path / "ledger")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("1 segments, 6 records in 1 files")
    told = CliRunner().invoke(main, ["ledger", "schema"]).output.splitlines()
    columns = (*PARTITIONS, *LEDGER, *NAMES)
    assert [line.split()[0] for line in told[: len(columns)]] == [each.name for each in columns]
    assert all(each.help for each in columns)
    codes = {tuple(line.split()) for line in told[len(columns) :]}
    assert ("kind_name", "3", "sent") in codes
    assert ("guarantee_name", "3", "exactly-once") in codes
    assert ("protocol_name", "2", "amqp-0-9-1") in codes
    file = pq.ParquetFile(next((tmp_path / "ledger").glob("date=*/router=*/*.parquet")))
    assert set(file.schema_arrow.names) == {each.name for each in (*LEDGER, *NAMES)}


def test_codes_stand_in_words_beside_the_numbers(tmp_path: Path) -> None:
    writer = RecordWriter(worker=0, incarnation=START_NS)
    write_life(writer, 1)
    write_journal(tmp_path, writer)
    compact(tmp_path, tmp_path / "ledger")
    (path,) = (tmp_path / "ledger").glob("date=*/router=*/*.parquet")
    table = pq.ParquetFile(path).read()
    words = enumerations()
    for row in table.to_pylist():
        assert row["kind_name"] == words["kind_name"][row["kind"]]
        assert row["outcome_name"] == words["outcome_name"].get(row["outcome"])
        assert row["protocol_name"] == words["protocol_name"].get(row["protocol"])
        flags = set((row["flag_names"] or "").split("+")) - {""}
        assert flags == {name for bit, name in words["flag_names"].items() if row["flags"] & bit}
    assert {"received", "sent", "outcome"} <= set(table["kind_name"].to_pylist())
    assert "accepted" in table["outcome_name"].to_pylist()


def test_a_ledger_has_nothing_but_parquet_files(tmp_path: Path) -> None:
    writer = RecordWriter(worker=0, incarnation=START_NS)
    write_life(writer, 1)
    write_journal(tmp_path, writer)
    out = tmp_path / "ledger"
    compact(tmp_path, out)
    files = [path for path in out.rglob("*") if path.is_file()]
    assert files
    assert {path.suffix for path in files} == {".parquet"}
    assert not (tmp_path / ".ledger.unfinished").exists()
    assert compact(tmp_path, out).segments == 0


def test_the_notes_of_a_former_version_are_read_and_moved(tmp_path: Path) -> None:
    writer = RecordWriter(worker=0, incarnation=START_NS)
    write_life(writer, 1)
    write_journal(tmp_path, writer)
    out = tmp_path / "ledger"
    compact(tmp_path, out)
    (note,) = (tmp_path / "compacted").rglob("*.json")
    (out / "_compacted").mkdir()
    (out / "_tmp").mkdir()
    (out / "_compacted/other.json").write_text('{"router": "another"}')
    note.rename(out / "_compacted" / note.name)
    assert compact(tmp_path, out).segments == 0
    assert note.exists()
    assert [path.name for path in (out / "_compacted").iterdir()] == ["other.json"], "not ours"
    (out / "_compacted/other.json").unlink()
    compact(tmp_path, out)
    assert not (out / "_compacted").exists()
    assert not (out / "_tmp").exists()
