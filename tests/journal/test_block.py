import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.journal.block import (
    BLOCK_OCTETS_LIMIT,
    HEADER,
    Block,
    BlockError,
    BlockFlag,
    Origin,
    open_block,
    seal_block,
)
from router.journal.record import ROW, RecordKind
from tests.support.journal import START_NS, new_writer, write_life


def sealed() -> bytes:
    writer = new_writer(worker=7, incarnation=0x0102030405060708)
    write_life(writer, 1)
    return writer.take_blocks()[0].octets


def test_a_block_has_the_octets_of_the_drawing() -> None:
    octets = seal_block(
        bytes(ROW.size), b"heap!", first_sequence=0x11, worker=0x21, incarnation=0x31, flags=0x02
    )
    assert octets[:4] == b"JBLK"
    assert octets[8:40].hex(" ", 8) == (
        "8000000005000000 1100000000000000 3100000000000000 2100020001000000"
    )
    assert octets[40 + 80 :] == b"heap!\0\0\0"
    assert int.from_bytes(octets[4:8], "little") == zlib.crc32(octets[8:])


def test_a_block_reads_back() -> None:
    octets = sealed()
    block = open_block(memoryview(b"????????" + octets + b"rest"), 8)
    assert block.octets == len(octets)
    assert block.origin == Origin(7, 0x0102030405060708)
    assert (block.first_sequence, block.last_sequence, block.row_count) == (1, 4, 4)
    assert [record.kind for record in block.records()] == [
        RecordKind.RECEIVED,
        RecordKind.SENT,
        RecordKind.OUTCOME,
        RecordKind.SETTLED,
    ]
    assert [record.sequence for record in block.records()] == [1, 2, 3, 4]


def test_the_journals_own_records_have_no_sequence_number() -> None:
    octets = seal_block(
        bytes(2 * ROW.size), b"", first_sequence=1, worker=1, incarnation=1, flags=BlockFlag.OWN
    )
    assert [record.sequence for record in open_block(memoryview(octets)).records()] == [0, 0]


def test_a_block_that_is_cut_anywhere_is_refused_as_short() -> None:
    octets = sealed()
    for length in range(len(octets)):
        with pytest.raises(BlockError) as refused:
            open_block(memoryview(octets[:length]))
        assert refused.value.is_short


def test_a_block_with_any_bit_flipped_is_refused() -> None:
    octets = bytearray(sealed())
    for bit in range(len(octets) * 8):
        octets[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BlockError):
            open_block(memoryview(octets))
        octets[bit // 8] ^= 1 << bit % 8
    assert open_block(memoryview(octets)).row_count == 4


@given(st.binary(max_size=200))
def test_no_octets_make_reading_a_block_fail_in_another_way(octets: bytes) -> None:
    for candidate in (octets, b"JBLK" + octets):
        try:
            block = open_block(memoryview(candidate))
        except BlockError:
            continue
        assert isinstance(block, Block)


def test_a_block_longer_than_the_limit_is_neither_made_nor_read() -> None:
    with pytest.raises(BlockError):
        seal_block(b"", bytes(BLOCK_OCTETS_LIMIT), first_sequence=1, worker=1, incarnation=1)
    header = HEADER.pack(b"JBLK", 0, 2 * BLOCK_OCTETS_LIMIT, 8, 1, START_NS, 1, 0, 0)
    with pytest.raises(BlockError) as refused:
        open_block(memoryview(header))
    assert not refused.value.is_short
