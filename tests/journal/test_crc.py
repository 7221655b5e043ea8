"""The compiled CRC-32 is zlib's."""

import random
import zlib

import pytest

from router.journal.bulk import shortcuts

pytestmark = pytest.mark.skipif(shortcuts is None, reason="the shortcuts were not built")


@pytest.mark.parametrize("seed", range(4))
def test_the_crc_is_zlibs_whatever_the_octets_and_their_length(seed: int) -> None:
    assert shortcuts is not None
    draw = random.Random(seed)
    lengths = [*range(600), *(draw.randrange(1 << 20) for _ in range(20))]
    for length in lengths:
        octets, before = draw.randbytes(length), draw.getrandbits(32)
        assert shortcuts.crc32(octets) == zlib.crc32(octets)
        assert shortcuts.crc32(octets, before) == zlib.crc32(octets, before)


def test_octets_are_read_from_any_buffer_and_wherever_they_begin() -> None:
    assert shortcuts is not None
    room = bytearray(random.Random(1).randbytes(5000))
    for begin in range(40):
        part = memoryview(room)[begin : 5000 - begin // 2]
        assert shortcuts.crc32(part) == zlib.crc32(part)
    quads = memoryview(room).cast("Q")
    assert shortcuts.crc32(quads) == zlib.crc32(quads)
    assert shortcuts.crc32(room) == zlib.crc32(room)


def test_the_parts_of_a_block_come_to_its_crc() -> None:
    assert shortcuts is not None
    octets = random.Random(2).randbytes(3000)
    value = 0
    for begin in range(0, 3000, 700):
        value = shortcuts.crc32(octets[begin : begin + 700], value)
    assert value == zlib.crc32(octets)
