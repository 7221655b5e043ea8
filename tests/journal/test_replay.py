import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.journal.block import Origin
from router.journal.disk import Disk
from router.journal.log import Log
from router.journal.memory import Memory
from router.journal.reclaim import reclaim
from router.journal.record import LinkDescription, RecordFlag
from router.journal.replay import Replayed, ReplayError, replay
from router.journal.segment import SegmentScan, segment_name, snapshot_name
from router.journal.sequence import Hole
from router.journal.writer import RecordWriter
from tests.support.journal import (
    DIRECTORY,
    SOURCE,
    START_NS,
    TARGET,
    FakeDisk,
    append,
    key,
    new_log,
    new_writer,
    remembered,
    write_life,
)


def random_step(writer: RecordWriter, draw: random.Random, now_ns: int) -> None:
    """Writes one record about one of a few deliveries."""
    place = now_ns, key(draw.randrange(4)), SOURCE
    match draw.randrange(6):
        case 0:
            writer.received(*place, b"tag", payload=draw.choice([None, b"payload"]))
        case 1:
            writer.sent(*place, TARGET, b"out")
        case 2:
            writer.outcome(*place, TARGET, 0x24, flags=draw.choice([0, RecordFlag.SETTLED]))
        case 3:
            writer.settled(*place)
        case 4:
            writer.settled(*place, TARGET)
        case _:
            writer.in_doubt(*place, TARGET)


def log_of_random_records(seed: int, *, commits: int) -> tuple[bytes, list[tuple[int, Memory]]]:
    """Gives a segment, and after each of its blocks where it ends and what is unsettled then."""
    draw, disk = random.Random(seed), FakeDisk()
    log = new_log(disk)
    log.open(START_NS)
    writer = new_writer()
    for number in range(commits):
        for _ in range(draw.randint(1, 4)):
            random_step(writer, draw, START_NS + number)
        append(log, writer)
        assert log.commit(START_NS)
    octets = disk.content(DIRECTORY / segment_name(1))
    ends = [offset + block.octets for offset, block in SegmentScan(octets).blocks()]
    return octets, [(end, remembered(octets[:end])) for end in (0, *ends)]


def replayed(octets: bytes) -> Replayed:
    """Replays a journal of one segment."""
    disk = FakeDisk()
    disk.put(DIRECTORY / segment_name(1), octets)
    return replay(DIRECTORY, disk=disk)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(6))
def test_a_journal_cut_at_any_octet_gives_exactly_what_was_whole(seed: int) -> None:
    """PrefixSurvives, NothingRevived, NothingForgotten."""
    octets, memories = log_of_random_records(seed, commits=8)
    for length in range(memories[-1][0] + 1):
        whole = max(end for end, _ in memories if end <= length)
        read = replayed(octets[:length])
        assert read.memory.deliveries == dict(memories)[whole].deliveries
        assert (read.holes, read.damage) == ([], [])


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(6))
def test_a_flipped_bit_revives_and_forgets_nothing_unless_the_replay_says_so(seed: int) -> None:
    """DurableIsNotTorn, NothingRevived, NothingForgotten."""
    octets, memories = log_of_random_records(seed, commits=8)
    end, truth = memories[-1]
    last_commit = memories[-3][0]
    for position in range(end):
        flipped = bytearray(octets)
        flipped[position] ^= 1 << position % 8
        read = replayed(bytes(flipped))
        if position >= last_commit:
            assert read.torn_octets, "the last commit is torn, like one that was never durable"
            assert read.memory.deliveries == dict(memories)[last_commit].deliveries
            continue
        assert read.damage
        believed = {p: d for p, d in read.memory.deliveries.items() if not d.clouded}
        assert believed.items() <= truth.deliveries.items()


def test_a_missing_block_clouds_what_its_worker_had_open_and_nothing_else() -> None:
    """HoleIsSeen."""
    disk = FakeDisk()
    log = new_log(disk)
    log.open(START_NS)
    one, two = new_writer(1), new_writer(2)
    for writer in (one, two):
        writer.received(START_NS, key(writer.worker), SOURCE, b"t")
        append(log, writer)
    one.settled(START_NS, key(1), SOURCE)
    one.take_blocks()  # these never arrive
    log.admit(Origin(1, START_NS), 3)
    one.received(START_NS, key(3), SOURCE, b"t")
    append(log, one)
    log.commit(START_NS)
    read = replay(DIRECTORY, disk=disk)
    assert read.holes == [Hole(origin=Origin(1, START_NS), first=2, last=2)]
    clouded = {d.key: d.clouded for d in read.memory.deliveries.values()}
    assert clouded == {key(1): True, key(2): False, key(3): False}


def test_a_missing_segment_is_a_hole() -> None:
    disk = FakeDisk()
    log = new_log(disk, segment_octets=2048, reserve_octets=512)
    log.open(START_NS)
    writer = new_writer()
    for number in range(20):
        write_life(writer, number)
        append(log, writer)
        log.commit(START_NS)
    disk.remove(DIRECTORY / segment_name(3))
    read = replay(DIRECTORY, disk=disk)
    assert len(read.holes) == 1
    assert read.holes[0].origin == Origin(1, START_NS)


def test_a_snapshot_that_is_cut_anywhere_clouds_what_is_left_of_it() -> None:
    """DurableIsNotTorn: it had its name only when all of it was on disk."""
    disk = FakeDisk()
    log = new_log(disk, segment_octets=2048, reserve_octets=512)
    log.open(START_NS)
    writer = new_writer()
    for number in range(20):
        writer.received(START_NS, key(number), SOURCE, b"t", payload=b"held")
        append(log, writer)
        log.commit(START_NS)
    reclaim(DIRECTORY, log.number - 1, now_ns=START_NS, disk=disk)
    path = DIRECTORY / snapshot_name(log.number - 1)
    whole = disk.content(path)
    assert not replay(DIRECTORY, disk=disk).damage
    later = remembered(disk.content(DIRECTORY / segment_name(log.number))).deliveries
    for end in range(0, len(whole), 8):
        for octets in {whole[:end], whole[:end] + bytes(len(whole) - end)} - {whole}:
            disk.put(path, octets)
            read = replay(DIRECTORY, disk=disk)
            assert read.damage or read.holes
            clouded = [place for place, each in read.memory.deliveries.items() if each.clouded]
            assert set(clouded) == set(read.memory.deliveries) - set(later)


def test_a_successor_gets_what_its_predecessor_had_oldest_first() -> None:
    disk = FakeDisk()
    log = new_log(disk)
    log.open(START_NS)
    writers = [new_writer(1), new_writer(2)]
    for age, number in enumerate((3, 1, 2)):
        for writer in writers:
            place = key(10 * writer.worker + number), SOURCE
            writer.received(START_NS + number, *place, b"%d" % age)
    link = LinkDescription(key=TARGET, is_incoming=False, local="dc1", remote="b", name="l")
    writers[1].link_attached(START_NS, link)
    for writer in writers:
        append(log, writer)
    log.commit(START_NS)
    read = replay(DIRECTORY, disk=disk)
    ages = [each.tag for each in read.unsettled if each.worker == 2]
    assert ages == [b"0", b"1", b"2"]  # as they were recorded, whatever their clock said
    links = read.memory.links.values()
    assert [(memory.worker, memory.description) for memory in links] == [(2, link)]


def test_a_directory_that_is_missing_is_an_error_and_an_empty_one_is_not(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replay(tmp_path / "missing")
    assert replay(tmp_path).segments == 0


class VanishingDisk(FakeDisk):
    """Files are listed once more than they can be read."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def read(self, path: Path) -> bytes:
        if self.times:
            self.times -= 1
            raise FileNotFoundError(path)
        return super().read(path)


def test_files_that_vanish_while_they_are_read_make_it_begin_again() -> None:
    disk = VanishingDisk(times=3)
    disk.put(DIRECTORY / segment_name(1), b"")
    assert replay(DIRECTORY, disk=disk).segments == 1
    disk.times = 1000
    with pytest.raises(ReplayError):
        replay(DIRECTORY, disk=disk)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400), st.binary(max_size=400))
def test_no_octets_in_the_files_make_a_replay_fail(first: bytes, second: bytes) -> None:
    disk = FakeDisk()
    disk.put(DIRECTORY / segment_name(1), first)
    disk.put(DIRECTORY / segment_name(2), b"AMQPJNL1" + second)
    assert replay(DIRECTORY, disk=disk).memory.deliveries == {}


def test_a_real_directory_reads_as_it_was_written(tmp_path: Path) -> None:
    log = Log(tmp_path, "dc1", disk=Disk(), incarnation=START_NS, segment_octets=4096)
    log.open(START_NS)
    writer = new_writer()
    for number in range(50):
        write_life(writer, number, payload=b"payload")
        append(log, writer)
        assert log.commit(START_NS)
    writer.received(START_NS, key(100), SOURCE, b"t", payload=b"held")
    append(log, writer)
    assert log.commit(START_NS)
    for is_open in (True, False):
        read = replay(tmp_path)
        assert [d.payload for d in read.memory.deliveries.values()] == [b"held"]
        assert (read.holes, read.damage, read.torn_octets) == ([], [], 0)
        assert read.segments == log.number
        if is_open:
            log.close(START_NS)
