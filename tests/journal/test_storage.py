"""What every store of a journal must do; ``router.journal.storage`` is the interface."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from router.journal.block import Origin
from router.journal.files import FileStorage
from router.journal.log import Log
from router.journal.protocol import Health
from router.journal.reclaim import is_worthwhile, reclaim_from
from router.journal.record import LinkDescription
from router.journal.replay import Replayed, replay, replay_from
from router.journal.segment import SegmentScan, Tail, numbered, segment_name, snapshot_name
from router.journal.storage import BlockLog
from router.journal.writer import RecordWriter
from tests.support.journal import (
    SECOND_NS,
    SOURCE,
    START_NS,
    TARGET,
    append,
    key,
    new_writer,
    write_life,
)
from tests.support.storages import KINDS, ROUTER, Files, StoreUnderTest, commit, store_under_test

ONE, TWO = Origin(1, START_NS), Origin(2, START_NS)
LATER_NS = START_NS + 3600 * SECOND_NS

pytestmark = pytest.mark.processes


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreUnderTest]:
    with store_under_test(request.param, tmp_path) as store:
        yield store


def opened(store: StoreUnderTest, *, incarnation: int = START_NS) -> BlockLog:
    log = store.new_log(incarnation=incarnation)
    log.open(incarnation)
    return log


def busy(log: BlockLog, deliveries: int = 120) -> None:
    """Writes a dozen segments of two workers; every tenth delivery stays unsettled."""
    writers = [new_writer(1), new_writer(2)]
    for writer in writers:
        log.admit(Origin(writer.worker, START_NS), 1)
    link = LinkDescription(key=TARGET, is_incoming=False, local="dc1", remote="b", name="l")
    writers[0].link_attached(START_NS, link)
    for number in range(deliveries):
        life(writers[number % 2], number)
        append(log, writers[number % 2])
        commit(log)


def life(writer: RecordWriter, number: int) -> None:
    if number % 10:
        write_life(writer, number, payload=bytes(1000))
    else:
        writer.received(START_NS, key(number), SOURCE, b"t", payload=b"held %d" % number)
        writer.sent(START_NS, key(number), SOURCE, TARGET, b"o")


def same(one: Replayed, other: Replayed) -> bool:
    return (
        one.memory.deliveries == other.memory.deliveries
        and one.memory.links == other.memory.links
        and one.follower.expected == other.follower.expected
        and one.gaps == other.gaps == []
    )


def segments(store: StoreUnderTest) -> list[int]:
    return numbered(store.storage().names(), "segment")


def test_what_is_committed_is_durable_and_replayed(store: StoreUnderTest) -> None:
    log = opened(store)
    assert log.health is Health.WRITING
    writer = new_writer()
    log.admit(ONE, 1)
    life(writer, 0)
    append(log, writer)
    assert log.appended[ONE] == 3
    assert log.durable[ONE] == 1
    assert log.has_pending(1)
    assert not log.has_pending(2)
    commit(log)
    assert log.durable[ONE] == 3
    assert not log.has_pending(1)
    assert not log.pending_octets
    read = replay_from(store.storage())
    assert [each.key for each in read.memory.deliveries.values()] == [key(0)]
    assert read.follower.expected == {ONE: 3}
    assert log.close(START_NS)


def test_a_killed_writer_leaves_what_was_durable_to_the_next_one(store: StoreUnderTest) -> None:
    log = opened(store)
    busy(log, 33)
    before = replay_from(store.storage())
    assert len(before.memory.deliveries) == 4
    lost = new_writer(3)
    life(lost, 40)
    append(log, lost)
    store.kill(log)
    following = store.new_log(incarnation=LATER_NS)
    found = following.open(LATER_NS)
    assert found.router == ROUTER
    assert found.segments == log.number
    assert not found.damage
    assert following.durable[ONE] == before.follower.expected[ONE]
    assert following.number > log.number
    assert same(before, replay_from(store.storage()))
    writer = new_writer(1, LATER_NS)
    following.admit(Origin(1, LATER_NS), 1)
    life(writer, 50)
    append(following, writer)
    commit(following, LATER_NS)
    after = replay_from(store.storage())
    assert set(after.memory.deliveries) > set(before.memory.deliveries)
    assert after.follower.expected == {Origin(1, LATER_NS): 3, TWO: before.follower.expected[TWO]}
    assert following.close(LATER_NS)


def test_segments_follow_each_other_without_a_hole(store: StoreUnderTest) -> None:
    log = opened(store)
    busy(log)
    assert log.sealed > 5
    assert segments(store) == [*range(1, log.number + 1)]
    give_up_at = time.monotonic() + 30
    while store.storage().newest() < log.number and time.monotonic() < give_up_at:
        log.commit(START_NS)
    assert store.storage().newest() == log.number
    read = replay_from(store.storage())
    assert not read.gaps
    assert read.segments == log.number
    for number in segments(store)[:-1]:
        scan = SegmentScan(store.storage().read(segment_name(number)))
        assert all(scan.records())
        assert scan.tail is Tail.SEALED
    assert log.close(START_NS)


def test_a_quiet_segment_is_sealed_when_it_is_old(store: StoreUnderTest) -> None:
    log = opened(store)
    idle_ns = log.deadline_ns
    assert idle_ns is None
    writer = new_writer()
    log.admit(ONE, 1)
    life(writer, 0)
    append(log, writer)
    give_up_at = time.monotonic() + 30
    commit(log)
    while (due_ns := log.deadline_ns) is None:  # a segment is sealed when the next one is made
        assert time.monotonic() < give_up_at
        log.commit(START_NS)
    before = log.sealed
    commit(log, due_ns + 1)
    assert (before, log.sealed) == (0, 1)
    assert log.close(due_ns + 1)


def test_a_reclaimed_store_replays_to_the_same(store: StoreUnderTest) -> None:
    log = opened(store)
    busy(log)
    storage, through = store.storage(), log.number - 1
    before = replay_from(storage)
    assert is_worthwhile(storage, through, least_octets=0)
    done = reclaim_from(storage, through, now_ns=LATER_NS)
    assert done.snapshot == through
    assert done.segments == (*range(1, log.number),)
    assert done.is_whole
    assert numbered(storage.names(), "snapshot") == [through]
    assert segments(store) == [log.number]
    assert same(before, replay_from(storage))
    assert reclaim_from(storage, through, now_ns=LATER_NS).snapshot is None
    busy_more = new_writer(4)
    log.admit(Origin(4, START_NS), 1)
    for number in range(200, 260):
        life(busy_more, number)
        append(log, busy_more)
        commit(log)
    before = replay_from(storage)
    reclaim_from(storage, log.number - 1, now_ns=LATER_NS)
    assert numbered(storage.names(), "snapshot") == [log.number - 1]
    assert same(before, replay_from(storage))
    assert log.close(START_NS)


def test_what_is_read_after_a_reclaim_and_a_new_writer_is_the_same(store: StoreUnderTest) -> None:
    log = opened(store)
    busy(log)
    before = replay_from(store.storage())
    reclaim_from(store.storage(), log.number - 1, now_ns=LATER_NS)
    store.kill(log)
    following = opened(store, incarnation=LATER_NS)
    assert following.durable == before.follower.expected
    assert same(before, replay_from(store.storage()))
    assert following.close(LATER_NS)


def test_segments_for_the_pipeline_become_files(store: StoreUnderTest, tmp_path: Path) -> None:
    log = opened(store)
    busy(log)
    archive, through = tmp_path / "archive", log.number - 1
    expected = replay_from(store.storage(), through=through)
    reclaim_from(store.storage(), through, now_ns=LATER_NS, archive=archive)
    assert numbered([path.name for path in archive.iterdir()], "segment") == [*range(1, log.number)]
    assert same(expected, replay(archive))
    assert log.close(START_NS)


def test_one_process_reclaims_at_a_time(store: StoreUnderTest) -> None:
    log = opened(store)
    busy(log)
    with store.storage().lock(), pytest.raises(BlockingIOError):
        reclaim_from(store.storage(), 1, now_ns=LATER_NS)
    assert reclaim_from(store.storage(), 1, now_ns=LATER_NS).segments == (1,)
    assert log.close(START_NS)


def test_a_segment_that_is_gone_is_not_found(store: StoreUnderTest) -> None:
    log = opened(store)
    busy(log)
    storage = store.storage()
    storage.let_go(2, None)
    with pytest.raises(FileNotFoundError):
        storage.read(segment_name(2))
    with pytest.raises(FileNotFoundError):
        storage.read(snapshot_name(2))
    assert "missing" in replay_from(storage).gaps[0]
    assert log.close(START_NS)


def test_a_second_writer_is_refused(store: StoreUnderTest) -> None:
    log = opened(store)
    with pytest.raises(OSError):
        opened(store, incarnation=LATER_NS)
    assert log.close(START_NS)
    assert opened(store, incarnation=LATER_NS).close(LATER_NS)


def test_the_same_records_in_any_store_replay_to_the_same_as_in_files(
    store: StoreUnderTest, tmp_path: Path
) -> None:
    files = Files(tmp_path / "reference")
    for each in (store, files):
        log = opened(each)
        busy(log)
        assert log.close(START_NS)
    assert same(replay_from(files.storage()), replay_from(store.storage()))


def test_files_are_a_log_and_a_storage(tmp_path: Path) -> None:
    log: BlockLog = Files(tmp_path).new_log()
    assert isinstance(log, Log)
    assert FileStorage(tmp_path).title("x") == str(tmp_path / "x")
