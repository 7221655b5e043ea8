from collections.abc import Sequence

import pytest

from router.journal.block import Origin, seal_block
from router.journal.keys import LinkKey
from router.journal.record import ROW, Record, RecordFlag, RecordKind
from router.journal.segment import (
    Damage,
    LinkRow,
    SegmentScan,
    Tail,
    numbered,
    own_block,
    segment_head,
    segment_header,
    segment_name,
    snapshot_name,
)
from router.journal.sequence import SequenceFollower
from tests.support.journal import (
    DIRECTORY,
    SOURCE,
    START_NS,
    FakeDisk,
    append,
    key,
    new_log,
    new_writer,
    write_life,
)

COMMITS = 6


def segment_of_commits(*, sealed: bool, payload: bytes | None = None) -> bytes:
    """Gives a segment of six commits of two deliveries each, by one worker."""
    disk = FakeDisk()
    log = new_log(disk)
    log.open(START_NS)
    writer = new_writer()
    for commit in range(COMMITS):
        write_life(writer, 2 * commit, payload=payload)
        write_life(writer, 2 * commit + 1, payload=payload)
        append(log, writer)
        assert log.commit(START_NS)
    if sealed:
        log.close(START_NS)
    return disk.content(DIRECTORY / segment_name(1))


def ledger(scan: SegmentScan) -> list[Record]:
    """Gives the records that are not the journal's own."""
    return [record for record in scan.records() if record.sequence]


def offsets(octets: bytes) -> list[tuple[int, int]]:
    """Gives where the workers' blocks begin and end."""
    return [
        (offset, offset + block.octets)
        for offset, block in SegmentScan(octets).blocks()
        if block.origin.worker == 1
    ]


def cut(octets: bytes, length: int) -> bytes:
    """Gives what is left if only so many octets reached the disk, zeros standing behind them."""
    return octets[:length] + bytes(len(octets) - length)


def test_a_sealed_segment_reads_whole() -> None:
    scan = SegmentScan(segment_of_commits(sealed=True))
    assert len(ledger(scan)) == 8 * COMMITS
    assert (scan.tail, scan.torn_octets, scan.damage) == (Tail.SEALED, 0, [])
    assert scan.end == len(scan.octets)


def test_an_open_segment_reads_whole_and_ends_in_zeros() -> None:
    scan = SegmentScan(segment_of_commits(sealed=False))
    assert len(ledger(scan)) == 8 * COMMITS
    assert (scan.tail, scan.torn_octets, scan.damage) == (Tail.OPEN, 0, [])
    assert scan.end < len(scan.octets)


def test_each_commit_begins_with_a_fence_that_tells_what_was_durable_before() -> None:
    octets = segment_of_commits(sealed=False)
    fences = [
        (offset, record.message_octets)
        for offset, block in SegmentScan(octets).blocks()
        for record in block.records()
        if record.kind is RecordKind.FENCE
    ]
    assert len(fences) == COMMITS
    (_, first), *others = fences
    assert first == 0, "its own commit makes the head durable"
    assert all(offset == durable for offset, durable in others)


def test_a_head_tells_the_router_the_marks_and_the_links() -> None:
    link = LinkRow(time_ns=5, incoming=SOURCE, outgoing=LinkKey(0), body=b"body")
    head = segment_head(
        number=12,
        router="dc1",
        incarnation=3,
        time_ns=START_NS,
        marks={Origin(1, 7): 100, Origin(2, 8): 200},
        links=[link],
    )
    told = [
        (record.kind, record.incoming, record.outgoing, record.message_octets, record.body)
        for record in SegmentScan(segment_header(0) + head).records()
    ]
    assert told == [
        (RecordKind.SEGMENT, 0, 0, 12, b"dc1"),
        (RecordKind.MARK, 1, 7, 100, b""),
        (RecordKind.MARK, 2, 8, 200, b""),
        (RecordKind.LINK_ATTACHED, SOURCE, 0, 0, b"body"),
    ]
    assert [r.flags for r in SegmentScan(segment_header(0) + head).records()][-1] == RecordFlag.COPY


@pytest.mark.thorough
def test_an_open_segment_cut_at_any_octet_gives_the_commits_before_and_is_no_damage() -> None:
    """PrefixSurvives."""
    octets = segment_of_commits(sealed=False)
    whole = ledger(SegmentScan(octets))
    ends = offsets(octets)
    for length in range(offsets(octets)[-1][1] + 1):
        for left in (octets[:length], cut(octets, length)):
            scan = SegmentScan(left)
            kept = ledger(scan)
            assert kept == whole[: len(kept)]
            assert len(kept) >= 8 * sum(end <= length for _, end in ends)
            assert not scan.damage
            assert scan.tail is not Tail.SEALED
        assert len(ledger(SegmentScan(octets[:length]))) == 8 * sum(
            end <= length for _, end in ends
        )


@pytest.mark.thorough
@pytest.mark.parametrize("sealed", [True, False])
def test_no_flipped_bit_goes_unseen_or_costs_more_than_its_block(*, sealed: bool) -> None:
    """DurableIsNotTorn."""
    octets = segment_of_commits(sealed=sealed)
    whole = ledger(SegmentScan(octets))
    blocks = offsets(octets)
    last_commit = max(
        record.message_octets
        for record in SegmentScan(octets).records()
        if record.kind is RecordKind.FENCE
    )
    for position in range(blocks[-1][1]):
        flipped = bytearray(octets)
        flipped[position] ^= 1 << position % 8
        scan = SegmentScan(bytes(flipped))
        kept = ledger(scan)
        if position >= last_commit and not sealed:
            assert kept == whole[:-8]  # as if it had never reached the disk
            assert (scan.tail, scan.damage) == (Tail.TORN, [])
            continue
        hit = [index for index, (start, end) in enumerate(blocks) if start <= position < end]
        lost = range(8 * hit[0], 8 * hit[0] + 8) if hit else range(0)
        assert kept == [record for index, record in enumerate(whole) if index not in lost]
        assert len(scan.damage) == 1
        assert scan.torn_octets == 0


def test_damage_before_the_seal_is_never_taken_for_a_torn_tail() -> None:
    octets = segment_of_commits(sealed=True)
    start, end = offsets(octets)[-1]
    damaged = octets[:start] + bytes(end - start) + octets[end:]
    scan = SegmentScan(damaged)
    assert len(ledger(scan)) == 8 * (COMMITS - 1)
    assert scan.damage == [Damage(start, end - start)]
    assert scan.tail is Tail.SEALED


def test_a_last_commit_that_reached_the_disk_in_parts_is_cut_at_its_first_bad_block() -> None:
    """PrefixSurvives."""
    disk = FakeDisk()
    log = new_log(disk)
    log.open(START_NS)
    one, two = new_writer(1), new_writer(2)
    for number in range(2):
        write_life(one, number)
        append(log, one)
        write_life(two, number)
        append(log, two)
        log.commit(START_NS)
    octets = disk.content(DIRECTORY / segment_name(1))
    start, end = offsets(octets)[-1]
    torn = octets[:start] + bytes(end - start) + octets[end:]
    scan = SegmentScan(torn)
    assert [(record.worker, record.sequence) for record in ledger(scan)] == [
        *((1, sequence) for sequence in range(1, 5)),
        *((2, sequence) for sequence in range(1, 5)),
    ]
    assert (scan.tail, scan.end, scan.damage) == (Tail.TORN, start, [])


def forged_settlement(number: int) -> bytes:
    """Gives a block such as an attacker might hide in a payload: it settles what it did not."""
    row = ROW.pack(
        RecordKind.SETTLED, 0, 0, 0, 0, 0, START_NS, key(number), SOURCE, 0, 0, 0, 0, 0, 0, 0, 0
    )
    return seal_block(row, b"", first_sequence=1000, worker=1, incarnation=START_NS + 1)


def test_a_block_inside_of_a_damaged_payload_is_not_believed() -> None:
    forged = forged_settlement(1)
    payload = b"".join(bytes(pad) + forged for pad in range(8))
    octets = segment_of_commits(sealed=False, payload=payload)
    assert octets.count(forged) == 2 * COMMITS * 8
    start, end = offsets(octets)[2]
    for position in range(start, end):
        flipped = bytearray(octets)
        flipped[position] ^= 0x80
        incarnations = {record.incarnation for record in ledger(SegmentScan(bytes(flipped)))}
        assert incarnations == {START_NS}


def test_a_block_of_another_segment_is_not_believed() -> None:
    octets, other = segment_of_commits(sealed=False), segment_of_commits(sealed=False)
    start, end = offsets(octets)[1]
    mixed = octets[:start] + other[start:end] + octets[end:]
    scan = SegmentScan(mixed)
    assert len(ledger(scan)) == 8 * (COMMITS - 1)
    assert scan.damage == [Damage(start, end - start)]


def test_octets_that_are_no_segment_give_no_records() -> None:
    for octets in (b"", bytes(4096), b"some other file\n" * 100, segment_header(5)):
        scan = SegmentScan(octets)
        assert list(scan.records()) == []
        assert scan.tail is not Tail.SEALED


def test_names_sort_as_their_numbers_and_others_are_passed_over() -> None:
    names = [segment_name(10), segment_name(9), snapshot_name(9), "lock", "9.segment", "x.segment"]
    assert numbered(names, "segment") == [9, 10]
    assert numbered(names, "snapshot") == [9]
    assert sorted(names[:2]) == [segment_name(9), segment_name(10)]


def follow(blocks: Sequence[tuple[int, int, int, int]]) -> SequenceFollower:
    """Follows blocks given as worker, incarnation, first sequence number, number of rows."""
    follower = SequenceFollower()
    for worker, incarnation, first, rows in blocks:
        octets = seal_block(
            bytes(rows * ROW.size),
            b"",
            first_sequence=first,
            worker=worker,
            incarnation=incarnation,
        )
        scan = SegmentScan(segment_header(0) + octets)
        for _, block in scan.blocks():
            follower.is_new(block)
    return follower


def test_a_gap_in_a_sequence_is_a_hole_and_a_repetition_is_none() -> None:
    """HoleIsSeen, ReadOnce."""
    follower = follow([(1, 5, 1, 3), (2, 5, 1, 2), (1, 5, 1, 3), (1, 5, 6, 1), (2, 5, 3, 1)])
    assert [(hole.origin, hole.first, hole.last) for hole in follower.holes] == [
        (Origin(1, 5), 4, 5)
    ]
    assert follower.expected == {Origin(1, 5): 7, Origin(2, 5): 4}


def test_a_new_life_of_a_worker_counts_from_one() -> None:
    follower = follow([(1, 5, 1, 3), (1, 9, 1, 2)])
    assert follower.holes == []
    assert follower.expected == {Origin(1, 9): 3}
    assert [(hole.first, hole.last) for hole in follow([(1, 5, 4, 1)]).holes] == [(1, 3)]


def test_a_mark_beyond_what_was_read_is_a_hole() -> None:
    """HoleIsSeen."""
    follower = follow([(1, 5, 1, 3)])
    head = segment_head(
        number=2, router="dc1", incarnation=1, time_ns=1, marks={Origin(1, 5): 10}, links=[]
    )
    for _, block in SegmentScan(segment_header(0) + head).blocks():
        follower.is_new(block)
    assert [(hole.first, hole.last) for hole in follower.holes] == [(4, 9)]


def test_an_own_block_is_as_long_as_a_seal() -> None:
    assert len(own_block(RecordKind.FENCE, 1, 1, durable_octets=5)) == len(
        own_block(RecordKind.SEGMENT_END, 1, 1)
    )
