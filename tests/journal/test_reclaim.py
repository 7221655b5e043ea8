import errno
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from router.journal import ending
from router.journal.disk import Disk
from router.journal.files import FileStorage
from router.journal.log import Log
from router.journal.reclaim import is_worthwhile, reclaim
from router.journal.reclaimer import RETRY_SECONDS, Reclaimer
from router.journal.record import LinkDescription, OutcomeCode, RecordFlag
from router.journal.replay import Replayed, replay
from router.journal.segment import NEWEST_NAME, numbered, segment_name, snapshot_name
from router.journal.writer import PART_OCTETS
from tests.support.journal import (
    DIRECTORY,
    SOURCE,
    START_NS,
    TARGET,
    CrashError,
    FakeDisk,
    Fault,
    append,
    key,
    new_log,
    new_writer,
    write_life,
)

ARCHIVE = Path("/archive")
ELSEWHERE = Path("/elsewhere/archive")


def busy_journal() -> tuple[FakeDisk, Log]:
    """Gives a journal of a dozen segments; every tenth delivery stays unsettled."""
    disk = FakeDisk()
    log = new_log(disk, segment_octets=4096, reserve_octets=1024)
    log.open(START_NS)
    writers = [new_writer(1), new_writer(2)]
    link = LinkDescription(key=TARGET, is_incoming=False, local="dc1", remote="b", name="l")
    writers[0].link_attached(START_NS, link)
    for number in range(60):
        writer = writers[number % 2]
        if number % 10:
            write_life(writer, number)
        else:
            writer.received(START_NS, key(number), SOURCE, b"t", payload=b"held %d" % number)
            writer.sent(START_NS, key(number), SOURCE, TARGET, b"o")
        append(log, writer)
        assert log.commit(START_NS)
    return disk, log


def same(one: Replayed, other: Replayed) -> bool:
    return (
        one.memory.deliveries == other.memory.deliveries
        and one.memory.links == other.memory.links
        and one.follower.expected == other.follower.expected
        and one.holes == other.holes == []
        and one.damage == other.damage == []
    )


def names(disk: FakeDisk, directory: Path = DIRECTORY) -> list[str]:
    return sorted(name for name in disk.names(directory) if name not in {NEWEST_NAME, ending.NAME})


def test_a_snapshot_stands_for_the_segments_that_go() -> None:
    disk, log = busy_journal()
    before = replay(DIRECTORY, disk=disk)
    done = reclaim(DIRECTORY, log.number - 1, now_ns=START_NS, disk=disk)
    assert done.snapshot == log.number - 1
    assert done.segments == tuple(range(1, log.number))
    assert done.is_whole
    assert names(disk) == [snapshot_name(log.number - 1), segment_name(log.number)]
    after = replay(DIRECTORY, disk=disk)
    assert same(before, after)
    assert len(after.memory.deliveries) == 6
    assert {d.worker for d in after.unsettled} == {1}


def test_reclaiming_again_and_again_forgets_nothing() -> None:
    disk, log = busy_journal()
    before = replay(DIRECTORY, disk=disk)
    for through in range(1, log.number):
        reclaim(DIRECTORY, through, now_ns=START_NS, disk=disk)
        assert same(before, replay(DIRECTORY, disk=disk))
    assert names(disk) == [snapshot_name(log.number - 1), segment_name(log.number)]
    assert reclaim(DIRECTORY, log.number - 1, now_ns=START_NS, disk=disk).snapshot is None


def test_the_log_goes_on_behind_a_snapshot() -> None:
    disk, log = busy_journal()
    reclaim(DIRECTORY, log.number - 1, now_ns=START_NS, disk=disk)
    log.close(START_NS)
    reclaim(DIRECTORY, log.number, now_ns=START_NS, disk=disk)
    assert names(disk) == [snapshot_name(log.number)]
    after = new_log(disk)
    after.open(START_NS)
    assert after.number == log.number + 1


@pytest.mark.parametrize("archive", [ARCHIVE, ELSEWHERE])
def test_segments_are_handed_to_the_pipeline_unchanged(archive: Path) -> None:
    disk, log = busy_journal()
    contents = {n: disk.content(DIRECTORY / segment_name(n)) for n in range(1, log.number)}
    reclaim(DIRECTORY, log.number - 1, now_ns=START_NS, archive=archive, disk=disk)
    assert names(disk, archive) == [segment_name(n) for n in contents]
    assert all(disk.content(archive / segment_name(n)) == contents[n] for n in contents)


@pytest.mark.thorough
@pytest.mark.parametrize("archive", [None, ARCHIVE, ELSEWHERE])
def test_a_crash_at_any_step_of_a_reclaim_forgets_and_revives_nothing(
    archive: Path | None,
) -> None:
    """SnapshotStands."""
    disk, log = busy_journal()
    whole = replay(DIRECTORY, disk=disk)
    reclaim(DIRECTORY, log.number - 1, now_ns=START_NS, archive=archive, disk=disk)
    steps = disk.operations
    for seed in range(3):
        for crash_at in range(steps):
            disk, log = busy_journal()
            begun = disk.operations
            if begun + crash_at >= steps:
                break
            disk.crash_at = begun + crash_at
            with pytest.raises(CrashError):
                reclaim(DIRECTORY, log.number - 1, now_ns=START_NS, archive=archive, disk=disk)
            after = disk.crashed(random.Random(seed))
            assert same(whole, replay(DIRECTORY, disk=after))
            reclaim(DIRECTORY, log.number - 1, now_ns=START_NS, archive=archive, disk=after)
            assert same(whole, replay(DIRECTORY, disk=after))
            assert names(after) == [snapshot_name(log.number - 1), segment_name(log.number)]
            if archive is not None:
                assert names(after, archive) == [segment_name(n) for n in range(1, log.number)]


def test_two_runs_never_meet() -> None:
    disk, log = busy_journal()
    disk.lock(DIRECTORY / "reclaim.lock")
    with pytest.raises(BlockingIOError):
        reclaim(DIRECTORY, log.number - 1, now_ns=START_NS, disk=disk)


def test_a_cloud_stays_over_a_delivery_when_the_hole_itself_is_gone() -> None:
    disk, log = busy_journal()
    disk.remove(DIRECTORY / segment_name(4))
    clouded = {d.key for d in replay(DIRECTORY, disk=disk).memory.deliveries.values() if d.clouded}
    assert clouded
    done = reclaim(DIRECTORY, log.number - 1, now_ns=START_NS, disk=disk)
    assert not done.is_whole
    after = replay(DIRECTORY, disk=disk)
    assert {d.key for d in after.memory.deliveries.values() if d.clouded} == clouded


def write_real_journal(directory: Path, *, held_octets: int) -> Log:
    log = Log(directory, "dc1", disk=Disk(), incarnation=START_NS, segment_octets=64 << 10)
    log.open(START_NS)
    writer = new_writer()
    writer.received(START_NS, key(9999), SOURCE, b"t", payload=bytes(held_octets))
    for number in range(1000):
        write_life(writer, number)
        if number % 50 == 0:
            append(log, writer)
            assert log.commit(START_NS)
    append(log, writer)
    assert log.commit(START_NS)
    return log


def test_it_is_worthwhile_when_enough_is_closed_or_the_pipeline_waits(tmp_path: Path) -> None:
    log = write_real_journal(tmp_path, held_octets=0)
    assert not is_worthwhile(FileStorage(tmp_path), log.number - 1, least_octets=1 << 20)
    assert is_worthwhile(FileStorage(tmp_path), log.number - 1, least_octets=0)
    assert not is_worthwhile(FileStorage(tmp_path), 0, least_octets=0)
    (tmp_path / segment_name(0)).touch()
    with (tmp_path / segment_name(0)).open("r+b") as file:
        file.truncate((1 << 20) + 1)
    assert is_worthwhile(FileStorage(tmp_path), log.number - 1, least_octets=1 << 20)


def test_a_large_snapshot_is_not_written_for_a_little_log(tmp_path: Path) -> None:
    log = write_real_journal(tmp_path, held_octets=4 * PART_OCTETS)
    reclaim(tmp_path, log.number - 1, now_ns=START_NS)
    (tmp_path / segment_name(log.number - 1)).write_bytes(bytes(PART_OCTETS))
    assert not is_worthwhile(FileStorage(tmp_path), log.number - 1, least_octets=0)
    (tmp_path / segment_name(log.number - 1)).write_bytes(bytes(3 * PART_OCTETS))
    assert is_worthwhile(FileStorage(tmp_path), log.number - 1, least_octets=0)


@pytest.mark.processes
@pytest.mark.parametrize("is_disk_full", [False, True])
def test_small_segments_and_a_full_disk_are_worth_a_run(tmp_path: Path, is_disk_full: bool) -> None:
    log = write_real_journal(tmp_path, held_octets=0)
    closed = sum((tmp_path / segment_name(n)).stat().st_size for n in range(1, log.number))
    octets = closed if is_disk_full else closed // 3
    reclaimer = Reclaimer(tmp_path, archive=None, segment_octets=octets)
    reclaimer.step(log.number - 1, is_disk_full=is_disk_full)
    give_up_at = time.monotonic() + 60
    assert reclaimer.wait_seconds == reclaimer.poll_seconds
    while reclaimer.is_running and time.monotonic() < give_up_at:
        reclaimer.step(log.number - 1)
    assert not (tmp_path / segment_name(log.number - 1)).exists()


@pytest.mark.processes
def test_it_runs_as_a_process_of_its_own(tmp_path: Path) -> None:
    journal, archive = tmp_path / "journal", tmp_path / "archive"
    log = write_real_journal(journal, held_octets=100)
    before = replay(journal)
    command = [sys.executable, "-m", "router.journal.reclaim", str(journal)]
    command += ["--through", str(log.number - 1), "--archive", str(archive)]
    assert subprocess.run(command, check=False).returncode == 0
    assert same(before, replay(journal))
    archived = numbered([path.name for path in archive.iterdir()], "segment")
    assert archived == [*range(1, log.number)]
    command[3] = str(tmp_path / "missing")
    failed = subprocess.run(command, check=False, capture_output=True, text=True)
    assert failed.returncode == 1
    assert "missing" in failed.stderr


@pytest.mark.processes
def test_the_log_lets_it_run_beside_and_hears_when_it_is_done(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    log = write_real_journal(journal, held_octets=100)
    before = replay(journal)
    reclaimer = Reclaimer(journal, archive=tmp_path / "archive")
    was_running: list[bool] = []
    give_up_at = time.monotonic() + 30
    while was_running[-2:] != [True, False] and time.monotonic() < give_up_at:
        reclaimer.step(log.number - 1)
        was_running.append(reclaimer.is_running)
        assert same(before, replay(journal)), "whoever reads meanwhile sees the same"
    assert was_running[-2:] == [True, False]
    assert was_running[0]
    assert (journal / snapshot_name(log.number - 1)).exists()


@pytest.mark.processes
def test_a_run_that_failed_is_repeated_after_a_while_though_nothing_more_is_sealed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A log that has no room seals nothing, and only a run can make room."""
    journal = tmp_path / "journal"
    log = write_real_journal(journal, held_octets=100)
    now = 1000.0
    reclaimer = Reclaimer(journal, archive=tmp_path / "archive", clock=lambda: now)
    lock = Disk().lock(journal / "reclaim.lock")

    def run() -> list[float | None]:
        waits = [reclaimer.wait_seconds]
        reclaimer.step(log.number - 1)
        waits.append(reclaimer.wait_seconds)
        give_up_at = time.monotonic() + 60
        while reclaimer.is_running and time.monotonic() < give_up_at:
            reclaimer.step(log.number - 1)
        return [*waits, reclaimer.wait_seconds]

    with capture_logs() as lines:
        assert run() == [None, reclaimer.poll_seconds, RETRY_SECONDS]
    assert [line["event"] for line in lines] == ["reclaim.failed"]
    assert "another run" in lines[0]["error"]
    assert capfd.readouterr().err == ""
    Disk().close(lock)
    now += RETRY_SECONDS
    assert run() == [0.0, reclaimer.poll_seconds, None]
    assert (journal / snapshot_name(log.number - 1)).exists()


def test_a_directory_that_cannot_be_read_does_not_end_the_log(tmp_path: Path) -> None:
    reclaimer = Reclaimer(tmp_path / "gone", archive=None)
    reclaimer.step(7)
    assert not reclaimer.is_running
    assert reclaimer.wait_seconds


@pytest.mark.parametrize("is_settled", [False, True])
def test_a_full_disk_has_room_for_a_snapshot_of_what_was_answered(is_settled: bool) -> None:
    """What is only kept to recognize repeats takes no room for its payload, time and again."""
    disk, writer = FakeDisk(), new_writer()
    log = new_log(disk, reserve_octets=1024)
    log.open(START_NS)
    flags = RecordFlag.SETTLED if is_settled else RecordFlag(0)
    for turn in range(3):
        for number in range(turn * 100, turn * 100 + 100):
            place = START_NS, key(number), SOURCE
            writer.received(*place, b"t", payload=bytes(20_000), message_octets=20_000)
            writer.sent(*place, TARGET, b"o")
            writer.outcome(*place, TARGET, OutcomeCode.ACCEPTED, flags=flags)
            append(log, writer)
            assert log.commit(START_NS)
        used = sum(len(disk.content(DIRECTORY / name)) for name in disk.names(DIRECTORY))
        disk.capacity_octets = used + (128 << 10)
        done = reclaim(DIRECTORY, log.number - 1, now_ns=START_NS, disk=disk)
        assert done.deliveries > 90 * turn
        disk.capacity_octets = None
    assert len(replay(DIRECTORY, disk=disk).memory.deliveries) == 300


@pytest.mark.parametrize("operation", ["write", "flush", "rename", "sync_directory", "create"])
@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EIO])
def test_a_reclaim_that_fails_leaves_nothing_behind_that_takes_room(
    operation: str, reason: int
) -> None:
    disk, log = busy_journal()
    whole, before = replay(DIRECTORY, disk=disk), names(disk)
    disk.faults = [Fault(operation, reason)]
    with pytest.raises(OSError, match=operation):
        reclaim(DIRECTORY, log.number - 1, now_ns=START_NS, disk=disk)
    if operation in {"write", "flush", "create", "rename"}:
        assert names(disk) == before
    assert same(whole, replay(DIRECTORY, disk=disk))
    reclaim(DIRECTORY, log.number - 1, now_ns=START_NS, disk=disk)
    assert same(whole, replay(DIRECTORY, disk=disk))
