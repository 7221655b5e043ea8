"""A segment that has gone missing is noticed: the first, the last, any between, the only one."""

import errno
import random

import pytest

from router.journal.log import Log
from router.journal.reclaim import reclaim
from router.journal.replay import Replayed, replay
from router.journal.segment import NEWEST_NAME, newest_octets, read_newest, segment_name
from router.journal.writer import RecordWriter
from tests.support.journal import (
    DIRECTORY,
    SECOND_NS,
    SOURCE,
    START_NS,
    CrashError,
    FakeDisk,
    Fault,
    append,
    key,
    new_log,
    new_writer,
    write_life,
)

SEGMENTS = 4
OCTETS = 8 << 10


def journal(segments: int = SEGMENTS) -> tuple[FakeDisk, Log, RecordWriter]:
    """A journal of some segments; a delivery waits in each, which nothing else speaks of."""
    disk = FakeDisk()
    log = new_log(disk, segment_octets=OCTETS, reserve_octets=4 << 10)
    log.open(START_NS)
    writer = new_writer()
    number = 0
    waiting = 0
    while log.number < segments or waiting < segments:
        if waiting < log.number:
            waiting += 1
            writer.received(START_NS, key(1_000_000 + waiting), SOURCE, b"tag", payload=b"payload")
        number += 1
        write_life(writer, number, payload=bytes(200))
        append(log, writer)
        assert log.commit(START_NS + number)
    return disk, log, writer


def read(disk: FakeDisk) -> Replayed:
    return replay(DIRECTORY, disk=disk)


def lose(disk: FakeDisk, *numbers: int) -> None:
    for number in numbers:
        disk.remove(DIRECTORY / segment_name(number))
    disk.sync_directory(DIRECTORY)


def begin_again(disk: FakeDisk) -> Log:
    """The next life of the journal's process."""
    log = new_log(disk, segment_octets=OCTETS, reserve_octets=4 << 10)
    log.open(START_NS + SECOND_NS)
    return log


def test_a_whole_journal_misses_nothing() -> None:
    disk, log, _ = journal()
    assert read(disk).gaps == []
    log.close(START_NS + SECOND_NS)
    assert read(disk).gaps == []
    log = begin_again(disk)
    writer = new_writer(incarnation=START_NS + SECOND_NS)
    writer.worker_ended(START_NS + SECOND_NS)
    append(log, writer)
    assert log.commit(START_NS + 2 * SECOND_NS)
    assert read(disk).gaps == []


@pytest.mark.parametrize("number", range(1, SEGMENTS + 1))
@pytest.mark.parametrize("lives", [1, 2])
def test_any_one_that_is_gone_is_told_of_now_and_in_the_next_lives(number: int, lives: int) -> None:
    disk, log, _ = journal()
    log.close(START_NS + SECOND_NS)
    lose(disk, number)
    assert read(disk).chain.missing == [number]
    for _ in range(lives):
        begin_again(disk).close(START_NS + SECOND_NS)
        assert read(disk).chain.missing == [number]
        assert f"segment {number} is missing" in read(disk).gaps


def test_what_it_may_have_concerned_is_clouded_and_nothing_that_came_later() -> None:
    for number in range(1, SEGMENTS + 1):
        disk, log, _ = journal()
        log.close(START_NS + SECOND_NS)
        before = read(disk).memory.deliveries
        assert not any(each.clouded for each in before.values())
        lose(disk, number)
        after = read(disk).memory.deliveries
        waiting = {name: each for name, each in after.items() if name in before}
        known = dict(enumerate(before, start=1))
        for place, name in known.items():
            if place != number:
                assert waiting[name].clouded is (place < number)


def test_the_only_one_is_told_of_too() -> None:
    disk, log, _ = journal(1)
    log.close(START_NS + SECOND_NS)
    lose(disk, 1)
    assert read(disk).gaps == ["segment 1 is missing"]
    log = begin_again(disk)
    assert log.number == 2
    assert read(disk).gaps == ["segment 1 is missing"]


def test_several_that_are_gone_are_named_as_far_as_those_that_are_left_can_tell() -> None:
    disk, log, _ = journal()
    log.close(START_NS + SECOND_NS)
    lose(disk, 2, 3)
    assert read(disk).chain.missing == [3]
    lose(disk, 1, 4)
    assert read(disk).chain.missing == [4]


def test_a_snapshot_stands_for_what_is_before_it() -> None:
    disk, log, _ = journal()
    log.close(START_NS + SECOND_NS)
    lose(disk, 2)
    begin_again(disk)
    assert not reclaim(DIRECTORY, 4, now_ns=START_NS, disk=disk).is_whole
    assert read(disk).gaps == []
    assert reclaim(DIRECTORY, 5, now_ns=START_NS, disk=disk).is_whole
    assert read(disk).gaps == []


def test_a_number_that_was_skipped_is_no_segment_that_is_missing() -> None:
    disk, log, writer = journal(1)
    disk.faults.append(Fault("create", errno.ENOSPC, times=3))
    now = START_NS
    while log.number < SEGMENTS + 3:
        now += 2 * SECOND_NS
        write_life(writer, now, payload=bytes(200))
        append(log, writer)
        log.commit(now)
    numbers = [path.name for path in disk.paths if path.suffix == ".segment"]
    assert len(numbers) < log.number
    assert read(disk).gaps == []
    log.close(now)
    assert read(disk).gaps == []


def test_a_disk_that_cannot_tell_which_is_the_newest_has_the_others_missed_all_the_same() -> None:
    disk, log, _ = journal()
    log.close(START_NS + SECOND_NS)
    disk.remove(DIRECTORY / NEWEST_NAME)
    assert read(disk).gaps == []
    lose(disk, 1)
    assert read(disk).chain.missing == [1]
    disk.put(DIRECTORY / NEWEST_NAME, b"no number")
    assert read(disk).chain.missing == [1]
    assert read_newest(newest_octets(12)) == 12


@pytest.mark.parametrize("seed", range(4))
def test_no_crash_of_the_machine_makes_a_segment_seem_to_be_missing(seed: int) -> None:
    draw = random.Random(seed)
    steps = journal()[0].operations
    for crash_at in range(0, steps, 3):
        disk = FakeDisk()
        disk.crash_at = crash_at
        with pytest.raises(CrashError):
            run_until(disk)
        after = disk.crashed(draw)
        begin_again(after)
        assert read(after).chain.missing == []


def run_until(disk: FakeDisk) -> None:
    """Writes until the disk stops."""
    log = new_log(disk, segment_octets=OCTETS, reserve_octets=4 << 10)
    log.open(START_NS)
    writer = new_writer()
    for number in range(10_000):
        write_life(writer, number, payload=bytes(200))
        append(log, writer)
        log.commit(START_NS + number)
        if number % 20 == 19 and log.number > 2:
            reclaim(DIRECTORY, log.number - 1, now_ns=START_NS, disk=disk)


def cut_end(disk: FakeDisk, number: int) -> None:
    """Cuts a segment to its half, durably."""
    path = DIRECTORY / segment_name(number)
    disk.put(path, disk.content(path)[: len(disk.content(path)) // 2])


@pytest.mark.parametrize("begins_again", [0, 1, 2])
def test_what_a_journal_that_was_closed_in_order_lacks_at_its_end_is_told(
    begins_again: int,
) -> None:
    """HoleIsSeen: what may have been sent of it is in doubt; a kill could have left a torn tail."""
    disk, log, _ = journal()
    log.close(START_NS + SECOND_NS)
    known = read(disk)
    assert known.gaps == []
    cut_end(disk, known.last_segment)
    for _ in range(begins_again):  # it cuts the file at its last whole block, and seals it
        begin_again(disk).close(START_NS + SECOND_NS)
    found = read(disk)
    (gap,) = found.gaps
    assert gap.endswith(f"octets of {segment_name(known.last_segment)} cannot be read")
    assert found.unsettled
    assert all(each.clouded for each in found.unsettled)


def test_a_torn_tail_behind_what_was_closed_in_order_is_no_gap() -> None:
    disk, log, writer = journal(1)
    log.close(START_NS + SECOND_NS)
    log = begin_again(disk)
    writer = new_writer(incarnation=START_NS + SECOND_NS)
    write_life(writer, 5000)
    append(log, writer)
    assert log.commit(START_NS + SECOND_NS)
    left = disk.crashed(random.Random(1))
    path = DIRECTORY / segment_name(log.number)
    whole = left.content(path).rstrip(b"\0")
    left.put(path, whole + bytes(-len(whole) % 8) + b"torn")
    assert read(left).gaps == []
    assert read(left).torn_octets
    begin_again(left)
    assert read(left).gaps == []


def test_what_was_cut_is_told_no_more_when_a_snapshot_stands_for_it() -> None:
    disk, log, _ = journal()
    log.close(START_NS + SECOND_NS)
    last = read(disk).last_segment
    cut_end(disk, last)
    begin_again(disk)
    assert not reclaim(DIRECTORY, last, now_ns=START_NS + SECOND_NS, disk=disk).is_whole
    assert read(disk).gaps == []
    assert all(each.clouded for each in read(disk).unsettled)
