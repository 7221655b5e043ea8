"""A day's small files become large ones, whatever dies meanwhile, and beside whoever reads."""

import datetime
import shutil
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pandas
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyarrow import fs

from router.cli.main import main
from router.journal.record import DELIVERY_KINDS, LinkDescription
from router.journal.writer import RecordWriter
from router.pipeline import leases, merging
from router.pipeline.compaction import compact
from router.pipeline.leases import InUseError, reading
from router.pipeline.merging import MergeError, merge
from router.pipeline.names import merged_before
from router.pipeline.records import LedgerError
from router.pipeline.store import RemoteStore
from router.pipeline.tree import Tree
from tests.pipeline.test_compaction import files, ledger_rows, write_journal
from tests.support.journal import START_NS, TARGET, write_life

DAY = datetime.date(2025, 11, 13)
LATER = DAY + datetime.timedelta(days=10)
SEGMENTS = 5


def plant(tmp_path: Path, *, router: str = "dc1", first: int = 0) -> Path:
    """Makes a ledger of one day with a file for each of five segments."""
    out = tmp_path / "ledger"
    writer = RecordWriter(worker=0, incarnation=START_NS)
    for number in range(SEGMENTS):
        writer.link_attached(
            START_NS,
            LinkDescription(
                key=TARGET,
                is_incoming=False,
                local=router,
                remote="west",
                name=f"out-{number}",
                address="orders",
                identity="app",
            ),
        )
        for each in range(10):
            write_life(writer, first + number * 10 + each)
        write_journal(tmp_path / router, writer, router=router)
    compact(tmp_path / router, out)
    return out


def all_rows(out: Path) -> list[str]:
    return sorted(
        repr(row) for path in out.glob("*/*/*") for row in pq.ParquetFile(path).read().to_pylist()
    )


def test_the_files_of_a_day_become_one_with_the_same_rows(tmp_path: Path) -> None:
    out = plant(tmp_path)
    before, deliveries = all_rows(out), sorted(ledger_rows(out), key=repr)
    report = merge(str(out), LATER)
    assert (report.merged, report.rows, report.files) == (SEGMENTS, len(before), files(out))
    assert all_rows(out) == before
    assert sorted(ledger_rows(out), key=repr) == deliveries
    assert merge(str(out), LATER).merged == 0, "there is only one file now"
    assert not (tmp_path / ".ledger.unfinished").exists()
    assert compact(tmp_path / "dc1", out).segments == 0


def test_what_is_not_about_a_delivery_still_comes_first(tmp_path: Path) -> None:
    out = plant(tmp_path)
    merge(str(out), LATER)
    (path,) = out.glob("*/*/*")
    file = pq.ParquetFile(path)
    kinds = file.read(columns=["kind"])["kind"].to_pylist()
    is_delivery = [kind in DELIVERY_KINDS for kind in kinds]
    assert is_delivery == sorted(is_delivery)
    assert file.num_row_groups == 2
    assert 0 < sum(is_delivery) < len(kinds)


def test_young_days_and_files_of_other_routers_and_open_ones_are_left_apart(tmp_path: Path) -> None:
    out = plant(tmp_path)
    plant(tmp_path, router="dc2", first=100)
    before = files(out)
    assert merge(str(out), DAY + datetime.timedelta(days=2)).merged == 0
    assert files(out) == before
    opened = out / before[0].replace(".parquet", "-open.parquet")
    shutil.copy(out / before[0], opened)
    assert merge(str(out), LATER).merged == 2 * SEGMENTS
    assert opened.exists()
    assert len(files(out)) == 3


def test_files_that_come_later_are_merged_with_the_rest(tmp_path: Path) -> None:
    out = plant(tmp_path)
    (late,) = [name for name in files(out) if "0000000000000003-" in name]
    shutil.move(out / late, tmp_path / "late.parquet")
    merge(str(out), LATER)
    shutil.move(tmp_path / "late.parquet", out / late)
    before = all_rows(out)
    assert merge(str(out), LATER).merged == 2
    assert all_rows(out) == before
    assert len(files(out)) == 1


def test_large_files_stay_and_groups_do_not_reach_over_them(tmp_path: Path) -> None:
    out = plant(tmp_path)
    names = files(out)
    sizes = {name: (out / name).stat().st_size for name in names}
    full = 2 * max(sizes.values()) + 1
    merge(str(out), LATER, full_octets=full)
    assert len(files(out)) == 3, "two, two and one"
    assert all(name.endswith(("-merged.parquet", names[-1][-20:])) for name in files(out))


def test_days_that_are_not_kept_are_removed_with_their_directories(tmp_path: Path) -> None:
    out = plant(tmp_path)
    report = merge(str(out), LATER, keep_days=10)
    assert report.removed == 0
    report = merge(str(out), LATER, keep_days=9)
    assert report.removed == 1
    assert list(out.iterdir()) == []


def test_a_merged_file_is_known_to_whoever_has_read_its_parts(tmp_path: Path) -> None:
    out = plant(tmp_path)
    seen = [f"file:{out}/{name}" for name in files(out)]
    merge(str(out), LATER)
    merged = [f"file:{out}/{name}" for name in files(out)]
    assert merged_before(merged, seen) == set(merged)
    assert merged_before(merged, seen[1:]) == set()
    assert merged_before(merged, [*seen, seen[2].replace(".parquet", "-open.parquet")])
    assert merged_before(seen, merged) == set()


class DiesError(Exception):
    """The process was killed."""


@pytest.mark.parametrize("moment", range(1 + 1 + SEGMENTS))
def test_a_run_that_died_is_completed_by_the_next(
    tmp_path: Path, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dies before the plan is begun, before the move, before each removal."""
    out = plant(tmp_path)
    before = all_rows(out)
    steps = iter(range(100))

    def step() -> None:
        if next(steps) == moment:
            raise DiesError

    place, remove = Tree.place, Tree.remove

    def dying_place(self: Tree, aside: Tree, unfinished: str, name: str) -> None:
        step()
        place(self, aside, unfinished, name)

    def dying_remove(self: Tree, name: str) -> None:
        step()
        remove(self, name)

    complete = merging._complete

    def dying_complete(tree: Tree, aside: Tree, patience_seconds: float) -> None:
        if aside.has("plan.json"):
            step()
        complete(tree, aside, patience_seconds)

    with monkeypatch.context() as patch:
        patch.setattr(Tree, "place", dying_place)
        patch.setattr(Tree, "remove", dying_remove)
        patch.setattr(merging, "_complete", dying_complete)
        with pytest.raises(DiesError):
            merge(str(out), LATER)
    assert set(before) <= set(all_rows(out)), "nothing is missing in between"
    merge(str(out), LATER)
    assert all_rows(out) == before
    assert len(files(out)) == 1
    assert not (tmp_path / ".ledger.unfinished").exists()


def test_nothing_is_replaced_while_somebody_reads(tmp_path: Path) -> None:
    out = plant(tmp_path)
    before = files(out)
    with reading([str(out)]):
        with pytest.raises(InUseError, match="reading"):
            merge(str(out), LATER, patience_seconds=0)
        assert files(out) == before
    assert merge(str(out), LATER).merged == 0, "the plan was completed"
    assert len(files(out)) == 1


@pytest.mark.parametrize(
    ("command", "job"),
    [("audit", "router.pipeline.audit.audit"), ("traffic", "router.pipeline.traffic.summarize")],
)
def test_audits_and_reports_say_that_they_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, job: str
) -> None:
    out = plant(tmp_path)

    def reads(*_: object, **__: object) -> None:
        with pytest.raises(InUseError, match="reading"):
            merge(str(out), LATER, patience_seconds=0)
        raise LedgerError("that was all")

    monkeypatch.setattr(f"router.cli.{command}.spark_session", lambda *_: nullcontext())
    monkeypatch.setattr(job, reads)
    result = CliRunner().invoke(main, [command, str(out)])
    assert "that was all" in result.output
    merge(str(out), LATER, patience_seconds=0)
    assert len(files(out)) == 1


def test_readers_wait_while_files_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = plant(tmp_path)
    found: list[int] = []
    waits, goes_on = threading.Event(), threading.Event()

    def poll(_: float) -> None:
        waits.set()
        assert goes_on.wait(30)

    clock = SimpleNamespace(sleep=poll, monotonic=time.monotonic)
    monkeypatch.setattr("router.pipeline.leases.time", clock)  # other threads have the real one

    def read() -> None:
        with reading([str(out)]):
            found.append(len(files(out)))

    thread = threading.Thread(target=read)
    aside = Tree.open(str(out)).aside()
    with leases.replacing(aside, 0):
        thread.start()
        assert waits.wait(30)
        assert found == []
    goes_on.set()
    thread.join(30)
    assert found == [SEGMENTS]


def test_a_reader_that_died_is_waited_for_no_longer_than_ten_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = plant(tmp_path)
    aside = tmp_path / ".ledger.unfinished"
    aside.mkdir()
    (aside / "reader-1").touch()
    with pytest.raises(InUseError):
        merge(str(out), LATER, patience_seconds=0)
    monkeypatch.setattr(leases, "STALE_SECONDS", 0.0)
    merge(str(out), LATER, patience_seconds=0)
    assert len(files(out)) == 1


def test_another_merge_is_refused(tmp_path: Path) -> None:
    out = plant(tmp_path)
    aside = Tree.open(str(out)).aside()
    with leases.merging(aside), pytest.raises(InUseError, match="another merge"):
        merge(str(out), LATER)


def test_a_ledger_that_cannot_be_written_beside_is_read_all_the_same(tmp_path: Path) -> None:
    with reading(["gopher://x/y", str(tmp_path / "nothing/here")]):
        pass


def test_there_has_to_be_a_ledger(tmp_path: Path) -> None:
    with pytest.raises(MergeError, match="no ledger"):
        merge(str(tmp_path / "none"), LATER)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Gives a URL whose file system PyArrow has to be asked for."""
    system = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())

    def opened(url: str) -> RemoteStore:
        return RemoteStore(system, url.removeprefix("far://"))

    monkeypatch.setattr(RemoteStore, "open", opened)
    return "far://bucket/ledger"


def test_a_ledger_may_be_on_another_file_system(tmp_path: Path, elsewhere: str) -> None:
    plant(tmp_path)
    shutil.rmtree(tmp_path / "dc1/compacted")
    compact(tmp_path / "dc1", elsewhere)
    there = tmp_path / "bucket/ledger"
    assert files(there) == files(tmp_path / "ledger")
    assert compact(tmp_path / "dc1", elsewhere).segments == 0
    before = all_rows(there)
    assert merge(elsewhere, LATER).merged == SEGMENTS
    assert all_rows(there) == before
    assert len(files(there)) == 1


def test_pandas_and_arrow_read_the_ledger_by_its_folder(tmp_path: Path) -> None:
    out = plant(tmp_path)
    plant(tmp_path, router="dc2", first=100)
    for _ in ("small files", "merged ones"):
        table = pandas.read_parquet(out, columns=["router", "kind_name", "outcome_name", "address"])
        counts = table.groupby(["router", "kind_name"], observed=True).size()
        assert counts["dc1", "received"] == counts["dc2", "received"] == SEGMENTS * 10
        dataset = pyarrow.dataset.dataset(out, format="parquet", partitioning="hive")
        assert dataset.count_rows() == len(all_rows(out))
        assert str(dataset.schema.field("kind_name").type).startswith(("string", "dictionary"))
        merge(str(out), LATER)


def test_the_command_merges(tmp_path: Path) -> None:
    out = plant(tmp_path)
    result = CliRunner().invoke(main, ["ledger", "merge", str(out)])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("5 files merged to 1, ")
    missing = CliRunner().invoke(main, ["ledger", "merge", str(tmp_path / "none")])
    assert missing.exit_code == 1
    assert "no ledger here" in missing.output
