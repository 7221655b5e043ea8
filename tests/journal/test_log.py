import errno
import random
import threading
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.journal.block import BlockFlag, Origin
from router.journal.flusher import Flusher
from router.journal.keys import LinkKey
from router.journal.log import Log
from router.journal.protocol import Health
from router.journal.record import LinkDescription, Record, RecordFlag, RecordKind
from router.journal.replay import replay
from router.journal.segment import (
    ForeignFileError,
    SegmentScan,
    Tail,
    segment_name,
    snapshot_name,
)
from router.journal.sequence import SequenceFollower
from tests.support.journal import (
    DIRECTORY,
    SECOND_NS,
    START_NS,
    TARGET,
    CrashError,
    FakeDisk,
    Fault,
    HeldFlusher,
    append,
    new_log,
    new_writer,
    write_life,
)

ONE = Origin(1, START_NS)


def opened(disk: FakeDisk, *, segment_octets: int = 1 << 20, reserve_octets: int = 32 << 10) -> Log:
    log = new_log(disk, segment_octets=segment_octets, reserve_octets=reserve_octets)
    log.open(START_NS)
    return log


def tail(disk: FakeDisk, number: int) -> Tail:
    """Tells how a segment ends."""
    scan = SegmentScan(disk.content(DIRECTORY / segment_name(number)))
    for _ in scan.blocks():
        pass
    return scan.tail


def ledger(disk: FakeDisk) -> list[Record]:
    """Gives the workers' records of all segments."""
    return [
        record
        for path in disk.paths
        if path.suffix == ".segment"
        for record in SegmentScan(disk.content(path)).records()
        if record.sequence
    ]


def sequences(disk: FakeDisk) -> list[int]:
    return [record.sequence for record in ledger(disk)]


def test_everything_appended_since_the_last_commit_becomes_durable_with_one_flush() -> None:
    disk = FakeDisk()
    log = opened(disk)
    writers = [new_writer(worker) for worker in (1, 2, 3)]
    for number in range(5):
        for writer in writers:
            write_life(writer, number)
            append(log, writer)
    assert log.durable == {}
    before = disk.operations
    assert log.commit(START_NS)
    newest = 4  # the segment's first commit makes the file of that name, writes and flushes it
    assert disk.operations == before + newest + 2  # a write and a flush
    assert log.durable == {Origin(worker, START_NS): 21 for worker in (1, 2, 3)}
    assert log.pending_octets == 0
    before = disk.operations
    for writer in writers:
        write_life(writer, 5)
        append(log, writer)
    assert log.commit(START_NS)
    assert disk.operations == before + 2


def flushing_apart(disk: FakeDisk) -> tuple[Log, HeldFlusher]:
    """Gives an open log that flushes while it goes on."""
    flusher = HeldFlusher()
    log = new_log(disk, flusher=flusher)
    log.open(START_NS)
    return log, flusher


def test_what_is_appended_while_a_flush_is_under_way_waits_for_the_next() -> None:
    disk, writer = FakeDisk(), new_writer()
    log, flusher = flushing_apart(disk)
    write_life(writer, 0)
    append(log, writer)
    assert not log.commit(START_NS)
    write_life(writer, 1)
    append(log, writer)
    assert not log.commit(START_NS)
    assert log.durable == {}
    assert log.deadline_ns is None
    flusher.is_held = False
    assert not log.commit(START_NS)
    assert log.durable == {ONE: 5}
    assert log.pending_octets > 0
    assert flusher.is_busy()
    flusher.is_held = False
    assert log.commit(START_NS)
    assert log.durable == {ONE: 9}
    assert log.pending_octets == 0
    assert sequences(disk) == list(range(1, 9))
    assert not flusher.is_busy()
    assert log.commit(START_NS)


def test_a_flush_apart_that_fails_gives_the_segment_up_and_all_goes_to_the_next() -> None:
    disk, writer = FakeDisk(), new_writer()
    log, flusher = flushing_apart(disk)
    write_life(writer, 0)
    append(log, writer)
    log.commit(START_NS)
    write_life(writer, 1)
    append(log, writer)
    disk.faults.append(Fault("flush", errno.EIO))
    flusher.is_held = False
    assert not log.commit(START_NS)
    assert (log.health, log.errno) == (Health.IO_ERROR, errno.EIO)
    assert log.durable == {}
    assert log.deadline_ns == START_NS + SECOND_NS
    assert not log.commit(START_NS + SECOND_NS)
    flusher.is_held = False
    assert log.commit(START_NS + SECOND_NS)
    assert (log.health, log.errno) == (Health.WRITING, 0)
    assert log.durable == {ONE: 9}
    assert sequences(disk) == list(range(1, 9))


def test_a_log_that_is_closed_waits_for_its_flush_and_makes_the_rest_durable() -> None:
    disk, writer = FakeDisk(), new_writer()
    log, _ = flushing_apart(disk)
    write_life(writer, 0)
    append(log, writer)
    log.commit(START_NS)
    write_life(writer, 1)
    append(log, writer)
    assert log.close(START_NS)
    assert sequences(disk) == list(range(1, 9))
    assert tail(disk, 1) is Tail.SEALED


def test_a_flusher_flushes_in_a_thread_and_says_what_went_wrong() -> None:
    flusher, flushed = Flusher(), []
    try:
        assert not flusher.take()
        flusher.start(lambda: flushed.append(threading.current_thread()))
        flusher.wait()
        assert flusher.take()
        assert flushed != [threading.current_thread()]

        def fail() -> None:
            raise OSError(errno.EIO, "the disk is broken")

        flusher.start(fail)
        flusher.wait()
        with pytest.raises(OSError, match="broken"):
            flusher.take()
        assert not flusher.take()
    finally:
        flusher.close()


def test_a_commit_of_nothing_touches_nothing() -> None:
    disk = FakeDisk()
    log = opened(disk)
    before = disk.operations
    assert log.commit(START_NS)
    assert disk.operations == before
    assert log.deadline_ns is None


def test_a_full_segment_is_sealed_and_the_next_goes_on_without_a_gap() -> None:
    disk = FakeDisk()
    log = opened(disk, segment_octets=4096, reserve_octets=1024)
    writer = new_writer()
    for number in range(100):
        write_life(writer, number)
        append(log, writer)
        assert log.commit(START_NS)
    assert log.number > 10
    assert log.sealed == log.number - 1
    assert sequences(disk) == [*range(1, 401)]
    tails = [tail(disk, number) for number in range(1, log.number + 1)]
    assert tails == [Tail.SEALED] * log.sealed + [Tail.OPEN]
    assert max(len(disk.content(path)) for path in disk.paths[:-1]) <= 4096


def test_a_group_larger_than_a_segment_gets_a_segment_of_its_own() -> None:
    disk = FakeDisk()
    log = opened(disk, segment_octets=4096)
    writer = new_writer()
    write_life(writer, 0, payload=bytes(20_000))
    append(log, writer)
    assert log.commit(START_NS)
    write_life(writer, 1)
    append(log, writer)
    assert log.commit(START_NS)
    assert log.number == 2
    assert sequences(disk) == [*range(1, 9)]


def test_a_quiet_log_seals_an_old_segment_but_not_an_empty_one() -> None:
    disk = FakeDisk()
    log = opened(disk)
    writer = new_writer()
    write_life(writer, 0)
    append(log, writer)
    log.commit(START_NS + 5)
    assert log.deadline_ns == START_NS + 300 * SECOND_NS
    sealed = []
    for age_ns in (300 * SECOND_NS - 1, 300 * SECOND_NS, 900 * SECOND_NS):
        log.commit(START_NS + age_ns)
        sealed.append((log.sealed, log.deadline_ns is None))
    assert sealed == [(0, False), (1, True), (1, True)]


def test_each_segment_names_the_links_that_live_and_no_others() -> None:
    disk = FakeDisk()
    log = opened(disk)
    writer = new_writer()
    kept = LinkDescription(key=TARGET, is_incoming=False, local="dc1", remote="b", name="l")
    gone = LinkDescription(key=TARGET + 1, is_incoming=True, local="dc1", remote="c", name="m")  # type: ignore[arg-type]
    writer.link_attached(START_NS, kept)
    writer.link_attached(START_NS, gone)
    writer.link_expired(START_NS, incoming=gone.key)
    append(log, writer)
    log.commit(START_NS)
    log.commit(START_NS + 300 * SECOND_NS)
    (copy,) = [
        record
        for record in SegmentScan(disk.content(DIRECTORY / segment_name(2))).records()
        if record.kind is RecordKind.LINK_ATTACHED
    ]
    assert (copy.outgoing, copy.body) == (TARGET, kept.encoded())


def test_each_segment_says_which_links_lead_to_trusted_routers() -> None:
    disk = FakeDisk()
    log = opened(disk)
    writer = new_writer()
    link = LinkDescription(
        key=TARGET, is_incoming=False, local="dc1", remote="dc2", name="l", is_router=True
    )
    writer.link_attached(START_NS, link)
    append(log, writer)
    log.commit(START_NS)
    log.commit(START_NS + 300 * SECOND_NS)
    links = [
        record
        for number in (1, 2)
        for record in SegmentScan(disk.content(DIRECTORY / segment_name(number))).records()
        if record.kind is RecordKind.LINK_ATTACHED
    ]
    assert [record.flags for record in links] == [
        RecordFlag.ROUTER,
        RecordFlag.ROUTER | RecordFlag.COPY,
    ]


def test_two_logs_never_write_one_directory() -> None:
    disk = FakeDisk()
    log = opened(disk)
    with pytest.raises(BlockingIOError):
        opened(disk)
    log.close(START_NS)
    opened(disk)


def test_a_new_life_goes_on_where_the_last_one_stopped() -> None:
    disk = FakeDisk()
    log = opened(disk)
    writer = new_writer()
    link = LinkDescription(key=TARGET, is_incoming=False, local="dc1", remote="b", name="l")
    writer.link_attached(START_NS, link)
    write_life(writer, 0)
    append(log, writer)
    log.commit(START_NS)
    after = disk.crashed(random.Random(1))
    again = opened(after)
    assert again.durable == {ONE: 6}
    assert again.number == 2
    heads = [r.kind for r in SegmentScan(after.content(DIRECTORY / segment_name(2))).records()]
    assert heads == [RecordKind.SEGMENT, RecordKind.MARK, RecordKind.LINK_ATTACHED]
    assert tail(after, 1) is Tail.SEALED


def test_it_tells_whose_the_journal_was() -> None:
    disk = FakeDisk()
    assert new_log(disk).open(START_NS).router is None
    again = disk.crashed(random.Random(1))
    log = new_log(again)
    assert log.open(START_NS + 1).router in {None, "dc1"}, "its head was not durable yet"
    write_life(writer := new_writer(), 0)
    append(log, writer)
    log.commit(START_NS + 1)
    assert new_log(again.crashed(random.Random(2))).open(START_NS + 2).router == "dc1"


def test_a_later_life_of_a_worker_replaces_its_mark() -> None:
    log = opened(FakeDisk())
    log.admit(ONE, 1)
    log.admit(Origin(2, 7), 1)
    log.admit(Origin(1, START_NS + 1), 1)
    assert log.appended == {Origin(2, 7): 1, Origin(1, START_NS + 1): 1}


def test_records_that_a_worker_no_longer_has_leave_a_gap_that_is_admitted() -> None:
    log = opened(FakeDisk())
    log.admit(ONE, 100)
    assert log.appended == log.durable == {ONE: 100}


# ------------------------------------------------------------------ a full disk


def test_on_a_full_disk_commits_go_on_in_the_reserve_while_the_health_warns() -> None:
    disk = FakeDisk()
    log = opened(disk, reserve_octets=8192)
    disk.capacity_octets = sum(len(disk.content(path)) for path in disk.paths) + 3000
    writer = new_writer()
    number = 0
    while log.health is Health.WRITING:
        write_life(writer, number)
        append(log, writer)
        assert log.commit(START_NS)
        number += 1
    assert (log.health, log.errno) == (Health.DISK_FULL, errno.ENOSPC)
    healths = set()
    for turn in range(5):  # half of the reserve is still there
        write_life(writer, number + turn)
        append(log, writer)
        assert log.commit(START_NS + turn * SECOND_NS)
        healths.add(log.health)
    assert healths == {Health.DISK_FULL}


def test_a_full_disk_loses_nothing_and_recovers_when_there_is_room() -> None:
    disk = FakeDisk()
    log = opened(disk, reserve_octets=4096)
    disk.capacity_octets = sum(len(disk.content(path)) for path in disk.paths)
    writer = new_writer()
    for number in range(100):
        write_life(writer, number)
        append(log, writer)
        log.commit(START_NS)
    assert (log.health, log.errno) == (Health.DISK_FULL, errno.ENOSPC)
    assert 0 < log.durable[ONE] < 401
    pending = log.pending_octets
    assert pending
    durable = sequences(disk)
    assert durable == [*range(1, log.durable[ONE])]

    assert log.deadline_ns == START_NS + SECOND_NS
    before = disk.operations
    assert not log.commit(START_NS + SECOND_NS - 1)
    assert disk.operations == before, "no try before the pause is over"
    assert not log.commit(START_NS + SECOND_NS)
    assert log.pending_octets == pending

    disk.capacity_octets = None
    assert log.commit(START_NS + 2 * SECOND_NS)
    assert (log.health, log.errno) == (Health.WRITING, 0)
    assert sequences(disk) == [*range(1, 401)]


def test_a_log_that_cannot_begin_a_segment_on_a_full_disk_goes_on_in_the_old_one() -> None:
    disk = FakeDisk()
    log = opened(disk, segment_octets=4096, reserve_octets=2048)
    disk.capacity_octets = sum(len(disk.content(path)) for path in disk.paths) + 1500
    writer = new_writer()
    for number in range(20):
        write_life(writer, number)
        append(log, writer)
        log.commit(START_NS)
    assert log.health is Health.DISK_FULL
    assert sequences(disk) == [*range(1, log.durable[ONE])]
    disk.capacity_octets = None
    assert log.commit(START_NS + SECOND_NS)
    assert sequences(disk) == [*range(1, 81)]
    assert replay(DIRECTORY, disk=disk).holes == []


def test_a_log_that_opens_on_a_full_disk_keeps_what_comes_until_there_is_room() -> None:
    disk = FakeDisk()
    disk.capacity_octets = 100
    log = opened(disk)
    assert log.health is Health.DISK_FULL
    writer = new_writer()
    write_life(writer, 0)
    append(log, writer)
    assert not log.commit(START_NS + SECOND_NS)
    assert disk.paths == []
    disk.capacity_octets = None
    assert log.commit(START_NS + 2 * SECOND_NS)
    assert sequences(disk) == [1, 2, 3, 4]


def test_a_file_that_may_not_grow_is_followed_by_another() -> None:
    disk = FakeDisk()
    log = opened(disk, reserve_octets=1024)
    disk.file_octets = 6000
    writer = new_writer()
    for number in range(50):
        write_life(writer, number)
        append(log, writer)
        assert log.commit(START_NS)
    assert log.health is Health.WRITING
    assert log.number > 4
    assert sequences(disk) == [*range(1, 201)]


# ------------------------------------------------------------------ a failing disk


@pytest.mark.thorough
@pytest.mark.parametrize("cuts", [True, False], ids=["cuts", "cannot cut"])
@pytest.mark.parametrize("operation", ["write", "flush", "create", "sync_directory", "truncate"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("after", range(6))
def test_a_disk_that_fails_and_heals_loses_nothing_and_says_nothing_untrue(
    operation: str, code: int, after: int, *, cuts: bool
) -> None:
    """ToldIsDurable, ReadOnce."""
    disk = FakeDisk()
    if not cuts:
        disk.faults.append(Fault("truncate", errno.EIO, times=1000))
    disk.faults.append(Fault(operation, code, after=after, times=3))
    log = opened(disk, segment_octets=3000, reserve_octets=1024)
    writer = new_writer()
    now_ns = START_NS
    for number in range(20):
        write_life(writer, number)
        append(log, writer)
        log.commit(now_ns)
        durable = log.durable.get(ONE, 1)
        survivors = disk.crashed(random.Random(number))
        assert set(range(1, durable)) <= set(sequences(survivors))
        now_ns += SECOND_NS
    assert log.commit(now_ns)
    assert log.health is Health.WRITING
    assert log.durable[ONE] == 81
    replayed = replay(DIRECTORY, disk=disk)
    assert replayed.holes == []
    assert replayed.follower.expected == {ONE: 81}
    assert read_once(disk) == {ONE: [*range(1, 81)]}
    assert replayed.memory.deliveries == {}


def test_after_a_failed_flush_nothing_is_believed_to_be_written() -> None:
    """FailedFlushIsFinal."""
    disk = FakeDisk()
    log = opened(disk)
    writer = new_writer()
    write_life(writer, 0)
    append(log, writer)
    disk.faults.append(Fault("flush", errno.EIO))
    assert not log.commit(START_NS)
    assert (log.health, log.errno, log.durable) == (Health.IO_ERROR, errno.EIO, {})
    assert log.commit(START_NS + SECOND_NS)
    assert log.number == 2, "the segment whose flush failed is given up"
    read = [r.sequence for r in SegmentScan(disk.content(DIRECTORY / segment_name(2))).records()]
    assert [sequence for sequence in read if sequence] == [1, 2, 3, 4]


def test_a_segment_that_can_no_longer_be_written_is_given_up_for_another() -> None:
    disk = FakeDisk()
    log = opened(disk)
    disk.spoil(DIRECTORY / segment_name(1))
    writer = new_writer()
    write_life(writer, 0)
    append(log, writer)
    assert not log.commit(START_NS)
    assert log.commit(START_NS + SECOND_NS)
    assert (log.number, sequences(disk)) == (2, [1, 2, 3, 4])


# ------------------------------------------------------------------ crashes


def read_once(disk: FakeDisk) -> dict[Origin, list[int]]:
    """Gives the sequence numbers of each origin, leaving out what was read before."""
    follower, read = SequenceFollower(), dict[Origin, list[int]]()
    for path in disk.paths:
        for _, block in SegmentScan(disk.content(path)).blocks():
            if follower.is_new(block) and not block.flags & BlockFlag.OWN:
                read.setdefault(block.origin, []).extend(
                    range(block.first_sequence, block.last_sequence + 1)
                )
    return read


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    crash_at=st.integers(0, 120),
    lives=st.integers(1, 3),
    segment_octets=st.sampled_from([2000, 5000, 1 << 20]),
    is_failing=st.booleans(),
)
def test_whatever_is_called_durable_survives_any_crash_in_order_and_once(
    seed: int, crash_at: int, lives: int, segment_octets: int, *, is_failing: bool
) -> None:
    """ToldIsDurable, PrefixSurvives, ReadOnce."""
    draw = random.Random(seed)
    disk = FakeDisk()
    told: dict[Origin, int] = {}
    for life in range(lives):
        incarnation = START_NS + life
        if is_failing:
            operation = draw.choice(["write", "flush", "create"])
            code = draw.choice([errno.EIO, errno.ENOSPC])
            disk.faults.append(Fault(operation, code, after=draw.randrange(9), times=2))
            disk.faults.append(Fault("truncate", errno.EIO, times=draw.choice([0, 9])))
            disk.failed_flush_keeps = draw.random() < 0.5
        disk.crash_at = disk.operations + crash_at
        log = new_log(
            disk, incarnation=incarnation, segment_octets=segment_octets, reserve_octets=1024
        )
        writers = [new_writer(worker, incarnation) for worker in (1, 2)]
        now_ns = START_NS
        try:
            log.open(now_ns)
            for writer in writers:
                log.admit(Origin(writer.worker, incarnation), 1)
            for number in range(30):
                writer = draw.choice(writers)
                write_life(writer, number, payload=bytes(draw.choice([0, 0, 900])))
                append(log, writer)
                if draw.random() < 0.6:
                    now_ns += SECOND_NS
                    log.commit(now_ns)
                    told.update(log.durable)
        except CrashError:
            pass
        disk = disk.crashed(draw)
        follower = replay(DIRECTORY, disk=disk).follower
        assert follower.holes == []
        read = read_once(disk)
        assert all(numbers == [*range(1, len(numbers) + 1)] for numbers in read.values())
        for origin, durable in told.items():
            if origin.incarnation == incarnation:
                assert follower.expected.get(origin, 1) >= durable


@pytest.mark.parametrize("operations", range(3, 11))
def test_a_head_that_was_never_flushed_is_no_damage(operations: int) -> None:
    """Its octets become durable with the first commit: a crash in that one may tear both."""
    disk = FakeDisk()
    log = opened(disk)
    writer = new_writer()
    for number in range(40):
        key = LinkKey(TARGET + number)
        name = f"a link with a long name, {number}"
        link = LinkDescription(key=key, is_incoming=False, local="dc1", remote="b", name=name)
        writer.link_attached(START_NS, link)
    append(log, writer)
    log.commit(START_NS)
    write_life(writer, 0)
    append(log, writer)
    disk.crash_at = disk.operations + operations
    with suppress(CrashError):
        log.commit(START_NS + 300 * SECOND_NS)  # begins a segment
    for seed in range(40):
        replayed = replay(DIRECTORY, disk=disk.crashed(random.Random(seed)))
        assert (replayed.damage, replayed.holes) == ([], [])


@pytest.mark.parametrize("is_like_ours", [False, True])
@pytest.mark.parametrize("name", [segment_name(7), snapshot_name(7)])
def test_files_of_another_format_are_neither_written_behind_nor_removed(
    name: str, is_like_ours: bool
) -> None:
    """A later version wrote them: what they hold must be there for it to read.

    It may have left blocks as they are, and changed what their records mean.
    """
    disk = FakeDisk()
    log = opened(disk)
    log.close(START_NS)
    ours = disk.content(DIRECTORY / segment_name(1))
    later = b"AMQPJNL2" + (ours[8:] if is_like_ours else bytes(range(256)) * 64)
    disk.put(DIRECTORY / name, later)
    before = disk.paths
    with pytest.raises(ForeignFileError, match=name):
        new_log(disk).open(START_NS + 1)
    assert disk.paths == before
    assert disk.content(DIRECTORY / name) == later
    disk.remove(DIRECTORY / name)
    new_log(disk).open(START_NS + 2)
