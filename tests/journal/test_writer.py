from random import Random

import pytest

from router.journal import block_writer, bulk
from router.journal.block import Block, BlockFlag, open_block
from router.journal.block_writer import BLOCK_ROWS
from router.journal.keys import NO_LINK, DeliveryKeys, LinkKey, delivery_key
from router.journal.record import (
    ROW,
    LinkDescription,
    Record,
    RecordError,
    RecordFlag,
    RecordKind,
    Resolution,
)
from router.journal.writer import PART_OCTETS, RecordWriter
from router.model.identity import ContainerId, DeliveryTag, LinkName
from tests.support.journal import SOURCE, START_NS, TARGET, key, new_writer, write_life


def blocks(writer: RecordWriter) -> list[Block]:
    return [open_block(memoryview(sealed.octets)) for sealed in writer.take_blocks()]


def records(writer: RecordWriter) -> list[Record]:
    return [record for block in blocks(writer) for record in block.records()]


def test_each_record_says_what_it_was_told() -> None:
    writer = new_writer(worker=3, incarnation=8)
    writer.received(
        START_NS,
        key(1),
        SOURCE,
        b"tag",
        guarantee=3,
        protocol=2,
        flags=RecordFlag.RESUMED,
        address="orders.eu",
        payload=b"payload",
        message_octets=7,
        message_format=1,
        delivery_count=4,
        ttl_milliseconds=60_000,
    )
    writer.sent(
        START_NS + 1, key(1), SOURCE, TARGET, b"out", address="orders.europe", delivery_count=5
    )
    writer.outcome(
        START_NS + 2, key(1), SOURCE, TARGET, 0x27, flags=RecordFlag.DELIVERY_FAILED, state=b"\0S'"
    )
    writer.settled(START_NS + 3, key(1), SOURCE, TARGET, outcome=0x27)
    assert records(writer) == [
        Record(
            sequence=1,
            worker=3,
            incarnation=8,
            kind=RecordKind.RECEIVED,
            time_ns=START_NS,
            flags=RecordFlag.RESUMED | RecordFlag.HELD,
            guarantee=3,
            protocol=2,
            key=key(1),
            incoming=SOURCE,
            message_octets=7,
            message_format=1,
            delivery_count=4,
            ttl_milliseconds=60_000,
            tag=b"tag",
            address="orders.eu",
            body=b"payload",
        ),
        Record(
            sequence=2,
            worker=3,
            incarnation=8,
            kind=RecordKind.SENT,
            time_ns=START_NS + 1,
            key=key(1),
            incoming=SOURCE,
            outgoing=TARGET,
            delivery_count=5,
            tag=b"out",
            address="orders.europe",
        ),
        Record(
            sequence=3,
            worker=3,
            incarnation=8,
            kind=RecordKind.OUTCOME,
            time_ns=START_NS + 2,
            key=key(1),
            incoming=SOURCE,
            outgoing=TARGET,
            outcome=0x27,
            flags=RecordFlag.DELIVERY_FAILED,
            body=b"\0S'",
        ),
        Record(
            sequence=4,
            worker=3,
            incarnation=8,
            kind=RecordKind.SETTLED,
            time_ns=START_NS + 3,
            key=key(1),
            incoming=SOURCE,
            outgoing=TARGET,
            outcome=0x27,
        ),
    ]


def test_the_rare_records_say_what_they_were_told() -> None:
    writer = new_writer()
    link = LinkDescription(key=TARGET, is_incoming=False, local="dc1", remote="b", name="l")
    writer.in_doubt(START_NS, key(1), SOURCE, TARGET)
    writer.resolved(START_NS, key(1), SOURCE, TARGET, Resolution.SEND_AGAIN, by_person=True)
    writer.link_attached(START_NS, link)
    writer.link_suspended(START_NS, outgoing=TARGET)
    writer.link_expired(START_NS, outgoing=TARGET)
    writer.worker_ended(START_NS)
    told = [
        (record.kind, record.incoming, record.outgoing, record.outcome, record.flags)
        for record in records(writer)
    ]
    assert told == [
        (RecordKind.IN_DOUBT, SOURCE, TARGET, 0, 0),
        (RecordKind.RESOLVED, SOURCE, TARGET, Resolution.SEND_AGAIN, RecordFlag.BY_PERSON),
        (RecordKind.LINK_ATTACHED, NO_LINK, TARGET, 0, 0),
        (RecordKind.LINK_SUSPENDED, NO_LINK, TARGET, 0, 0),
        (RecordKind.LINK_EXPIRED, NO_LINK, TARGET, 0, 0),
        (RecordKind.WORKER_ENDED, NO_LINK, NO_LINK, 0, 0),
    ]


def test_sequence_numbers_have_no_gap_over_blocks_of_every_kind() -> None:
    writer = new_writer()
    returned = []
    for number in range(1000):
        write_life(writer, number)
        returned.append(writer.next_sequence - 1)
    run = bytes(5 * ROW.size)
    assert writer.append_rows(run) == 4005
    assert writer.settled(START_NS, key(1), SOURCE) == 4006
    expected = 1
    for block in blocks(writer):
        assert block.first_sequence == expected
        assert block.row_count <= BLOCK_ROWS
        expected = block.last_sequence + 1
    assert expected == 4007
    assert returned[:3] == [4, 8, 12]


def test_a_long_payload_becomes_parts_and_the_number_of_the_last() -> None:
    writer = new_writer()
    payload = bytes(range(256)) * (PART_OCTETS // 256) * 2 + b"end"
    assert writer.received(START_NS, key(1), SOURCE, b"t", payload=payload) == 3
    read = records(writer)
    assert [record.kind for record in read] == [
        RecordKind.RECEIVED,
        RecordKind.PART,
        RecordKind.PART,
    ]
    assert [bool(record.flags & RecordFlag.MORE) for record in read] == [True, True, False]
    assert b"".join(record.body for record in read) == payload
    assert [record.message_octets for record in read[1:]] == [PART_OCTETS, 2 * PART_OCTETS]


@pytest.mark.parametrize("octets", [0, 1, PART_OCTETS - 1, PART_OCTETS])
def test_a_payload_of_one_part_is_one_record(octets: int) -> None:
    writer = new_writer()
    assert writer.received(START_NS, key(1), SOURCE, b"t", payload=bytes(octets)) == 1
    (record,) = records(writer)
    assert record.flags == RecordFlag.HELD
    assert len(record.body) == octets


def test_a_delivery_that_streams_in_says_more_until_its_last_part() -> None:
    writer = new_writer()
    writer.received(START_NS, key(1), SOURCE, b"t", payload=b"a", flags=RecordFlag.MORE)
    writer.part(START_NS, key(1), SOURCE, b"b", more=True, offset=1)
    writer.part(START_NS, key(1), SOURCE, b"c", more=False, offset=2)
    read = records(writer)
    assert [(record.body, bool(record.flags & RecordFlag.MORE)) for record in read] == [
        (b"a", True),
        (b"b", True),
        (b"c", False),
    ]
    assert [record.message_octets for record in read[1:]] == [1, 2]
    assert all(record.flags & RecordFlag.PLACED for record in read[1:])


def test_only_blocks_with_links_coming_and_going_say_that_they_define() -> None:
    writer = new_writer()
    write_life(writer, 1)
    (plain,) = blocks(writer)
    writer.link_expired(START_NS, outgoing=LinkKey(1))
    (defining,) = blocks(writer)
    write_life(writer, 2)
    (after,) = blocks(writer)
    assert [block.flags for block in (plain, defining, after)] == [0, BlockFlag.DEFINES, 0]


def test_a_state_too_long_to_keep_is_left_out_and_the_outcome_stands() -> None:
    writer = new_writer()
    writer.outcome(START_NS, key(1), SOURCE, TARGET, 0x25, state=bytes(PART_OCTETS + 1))
    (record,) = records(writer)
    assert (record.outcome, record.body) == (0x25, b"")


def test_an_address_too_long_for_its_length_is_refused_and_nothing_is_written() -> None:
    writer = new_writer()
    with pytest.raises(RecordError):
        writer.received(START_NS, key(1), SOURCE, b"t", address="a" * 70_000)
    assert writer.next_sequence == 1
    assert writer.take_blocks() == []


def test_blocks_stay_far_below_their_limit_whatever_the_payloads() -> None:
    writer = new_writer()
    for number in range(40):
        writer.received(START_NS, key(number), SOURCE, b"t", payload=bytes(PART_OCTETS))
        writer.outcome(START_NS, key(number), SOURCE, TARGET, 0x25, state=bytes(PART_OCTETS))
    assert max(block.octets for block in blocks(writer)) < 3 * PART_OCTETS


def test_a_links_deliveries_get_the_same_keys_from_either_maker() -> None:
    container, link = ContainerId("east"), LinkName("orders")
    names = DeliveryKeys(container, link)
    for tag, arrival in ((b"", 0), (b"a", 1), (b"a" * 32, 2**64 - 1)):
        made = names.name(DeliveryTag(tag), arrival)
        assert made == delivery_key(container, link, DeliveryTag(tag), arrival)


def test_runs_read_back_as_the_same_records_one_by_one() -> None:
    """Also where a run goes over the end of a block, or is larger than one may be."""
    keys = [key(number) for number in range(BLOCK_ROWS + 700)]
    tags = [b"t" * (1 + number % 5) for number in range(len(keys))]
    payloads = [b"p" * (number % 7) for number in range(len(keys))]
    payloads[3] = bytes(2 * PART_OCTETS + 1)
    alone, runs = new_writer(), new_writer()
    for each, tag, payload in zip(keys, tags, payloads, strict=True):
        alone.received(
            START_NS,
            each,
            SOURCE,
            tag,
            guarantee=3,
            protocol=1,
            payload=payload,
            message_octets=len(payload),
        )
    for each, tag in zip(keys, tags, strict=True):
        alone.sent(START_NS, each, SOURCE, TARGET, tag, guarantee=3, flags=1)
    for each in keys:
        alone.outcome(START_NS, each, SOURCE, TARGET, 0x25, flags=1, state=b"why")
    for each in keys:
        alone.settled(START_NS, each, SOURCE, TARGET)
    runs.received_run(START_NS, SOURCE, keys, tags, payloads, guarantee=3, protocol=1)
    runs.sent_run(START_NS, SOURCE, TARGET, keys, tags, guarantee=3, flags=1)
    runs.outcome_run(START_NS, SOURCE, TARGET, keys, 0x25, flags=1, state=b"why")
    assert runs.settled_run(START_NS, SOURCE, TARGET, keys) == alone.next_sequence - 1
    assert records(runs) == records(alone)


def test_a_run_whose_payloads_are_not_held_tells_their_sizes() -> None:
    writer = new_writer()
    writer.received_run(
        START_NS, SOURCE, [key(1), key(2)], [b"a", b"bc"], [b"12", b"3"], is_held=False
    )
    first, second = records(writer)
    assert (first.tag, first.body, first.message_octets) == (b"a", b"", 2)
    assert (second.tag, second.body, second.message_octets) == (b"bc", b"", 1)
    assert not first.flags & RecordFlag.HELD


def _runs(seed: int) -> list[bytes]:
    """Writes random runs; gives the blocks."""
    dice, made = Random(seed), new_writer()
    for _ in range(10):
        count = dice.choice([1, 3, 50, 700])
        keys = [key(dice.randrange(1 << 30)) for _ in range(count)]
        tags = [bytes(dice.choice([0, 4, 32])) for _ in range(count)]
        sizes = dice.choice([[7], [0, 1, 100], [2000, 1 << 17]])
        payloads: list[bytes] = [bytes(dice.choice(sizes)) for _ in range(count)]
        match dice.randrange(5):
            case 0:
                is_held = dice.random() < 0.7
                few = slice(9)
                made.received_run(
                    START_NS, SOURCE, keys[few], tags[few], payloads[few], is_held=is_held
                )
            case 1:
                made.sent_run(START_NS, SOURCE, TARGET, keys, tags, guarantee=3, flags=1)
            case 2:
                state = dice.choice([b"", b"a state"])
                made.outcome_run(START_NS, SOURCE, TARGET, keys, 0x24, flags=1, state=state)
            case 3:
                made.settled_run(START_NS, SOURCE, NO_LINK, keys)
            case _:
                made.sent_run(START_NS, SOURCE, TARGET, tuple(keys), tuple(tags))
    return [block.octets for block in made.take_blocks()]


@pytest.mark.skipif(bulk.shortcuts is None, reason="nothing was compiled")
@pytest.mark.parametrize("seed", range(12))
def test_runs_are_written_alike_with_the_shortcut_and_without(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = _runs(seed)
    monkeypatch.setattr(block_writer, "shortcuts", None)
    assert _runs(seed) == short
