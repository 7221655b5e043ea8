import contextlib
import struct
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import DecodeError, MisuseError
from router.model.text import decode_text, encode_text
from router.wire.v0_9_1.types import (
    MAX_DEPTH,
    Seconds,
    TableDecimal,
    decode_longstr,
    decode_shortstr,
    decode_table,
    encode_field,
    encode_longstr,
    encode_shortstr,
    encode_table,
)
from router.wire.v1_0.types import Byte, Float, Int, Short, Ubyte, Uint, Ulong, Ushort
from tests.support.amqp_values import mutated, same
from tests.support.basic_messages import odd_texts, tables, texts


def table_of(entry: bytes) -> bytes:
    """A table with one entry named ``k``."""
    return struct.pack(">I", len(entry) + 2) + b"\x01k" + entry


def read(entry: bytes) -> Any:
    octets = table_of(entry)
    table, after = decode_table(octets, 0, len(octets))
    assert after == len(octets)
    return table["k"]


LETTERS = [
    (b"t\x01", True),
    (b"t\x00", False),
    (b"b\xff", Byte(-1)),
    (b"B\xff", Ubyte(255)),
    (b"s\xff\xfe", Short(-2)),
    (b"u\xff\xfe", Ushort(65534)),
    (b"I\xff\xff\xff\xff", Int(-1)),
    (b"i\xff\xff\xff\xff", Uint(0xFFFFFFFF)),
    (b"l\xff\xff\xff\xff\xff\xff\xff\xfe", -2),
    (b"f\x3f\xc0\x00\x00", Float(1.5)),
    (b"d\x3f\xf8\x00\x00\x00\x00\x00\x00", 1.5),
    (b"D\x02\xff\xff\xff\x85", TableDecimal(2, -123)),
    (b"S\x00\x00\x00\x02\xc3\xa9", "é"),
    (b"x\x00\x00\x00\x02\xc3\xa9", b"\xc3\xa9"),
    (b"T\x00\x00\x00\x00\x65\x00\x00\x00", Seconds(0x65000000)),
    (b"A\x00\x00\x00\x03Vt\x01", [None, True]),
    (b"F\x00\x00\x00\x04\x01at\x01", {"a": True}),
    (b"V", None),
]


@pytest.mark.parametrize(("octets", "value"), LETTERS)
def test_each_letter_is_read_and_written_as_brokers_do(octets: bytes, value: Any) -> None:
    assert same(read(octets), value)
    assert encode_field(value) == octets


def test_the_letters_of_the_text_for_int16_and_int64_are_read_but_not_written() -> None:
    assert same(read(b"U\xff\xfe"), Short(-2))
    assert same(read(b"L" + b"\xff" * 8), -1)


def test_an_unsigned_number_beyond_int64_is_written_as_digits_never_as_l() -> None:
    assert encode_field(1 << 63) == b"S\x00\x00\x00\x139223372036854775808"
    assert encode_field((1 << 63) - 1)[:1] == b"l"
    assert encode_field(-(1 << 63))[:1] == b"l"
    assert encode_field(-(1 << 63) - 1)[:1] == b"S"


def test_octets_that_are_no_utf_8_come_out_as_they_went_in() -> None:
    value = read(b"S\x00\x00\x00\x03a\xff\xfe")
    assert encode_field(value) == b"S\x00\x00\x00\x03a\xff\xfe"
    assert encode_text(decode_text(b"\x80\xed\xa0\x80")) == b"\x80\xed\xa0\x80"


def test_a_nan_keeps_its_payload() -> None:
    octets = b"f\x7f\xa0\x00\x01"
    assert encode_field(read(octets)) == octets


@pytest.mark.parametrize("letter", sorted(set(range(256)) - set(b"tbBsUuIilLfdDSxTAFV")))
def test_any_other_letter_is_refused(letter: int) -> None:
    with pytest.raises(DecodeError, match="letter"):
        read(bytes([letter]) + bytes(12))


@given(tables)
def test_a_table_comes_back_as_it_was(table: dict[str, Any]) -> None:
    octets = encode_table(table)
    again, after = decode_table(b"##" + octets + b"##", 2, len(octets) + 2)
    assert after == len(octets) + 2
    assert same(again, table)


@given(tables.map(encode_table).flatmap(lambda octets: mutated(st.just(octets))))
def test_broken_tables_raise_nothing_but_decode_errors(octets: bytes) -> None:
    with contextlib.suppress(DecodeError):
        table, after = decode_table(octets, 0, len(octets))
        assert after <= len(octets)
        encode_table(table)


@given(st.binary(max_size=64))
def test_random_octets_raise_nothing_but_decode_errors(octets: bytes) -> None:
    with contextlib.suppress(DecodeError):
        decode_table(struct.pack(">I", len(octets)) + octets, 0, len(octets) + 4)


@given(tables)
def test_a_table_that_is_cut_anywhere_is_refused(table: dict[str, Any]) -> None:
    octets = encode_table(table)
    for end in range(len(octets)):
        with pytest.raises(DecodeError):
            decode_table(octets, 0, end)
        with pytest.raises(DecodeError):
            decode_table(octets[:end], 0, end)


def nested(depth: int, letter: bytes, name: bytes) -> bytes:
    octets = b""
    for _ in range(depth):
        octets = struct.pack(">I", len(octets)) + octets
        octets = name + letter + octets
    return struct.pack(">I", len(octets)) + octets


def test_nesting_is_bounded() -> None:
    fits = nested(MAX_DEPTH - 1, b"F", b"\x01a")
    decode_table(fits, 0, len(fits))
    deep = nested(MAX_DEPTH, b"F", b"\x01a")
    with pytest.raises(DecodeError, match="nested"):
        decode_table(deep, 0, len(deep))
    arrays = b"\x01a" + nested(5000, b"A", b"").join([b"A", b""])
    with pytest.raises(DecodeError, match="nested"):
        decode_table(struct.pack(">I", len(arrays)) + arrays, 0, len(arrays) + 4)


def test_a_table_costs_memory_and_time_in_proportion_to_its_octets() -> None:
    voids = table_of(b"A" + struct.pack(">I", 100_000) + b"V" * 100_000)
    tracemalloc.start()
    started = time.process_time()
    decode_table(voids, 0, len(voids))
    seconds = time.process_time() - started
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 * len(voids)
    assert seconds < 2


@given(texts.filter(lambda text: len(text.encode()) <= 255) | odd_texts)
def test_short_strings_come_back_as_they_were(text: str) -> None:
    octets = encode_shortstr(text)
    assert decode_shortstr(octets, 0, len(octets)) == (text, len(octets))
    for end in range(len(octets)):
        with pytest.raises(DecodeError):
            decode_shortstr(octets, 0, end)


def test_a_short_string_has_room_for_255_octets_and_no_more() -> None:
    assert len(encode_shortstr("x" * 255)) == 256
    with pytest.raises(MisuseError, match="256"):
        encode_shortstr("é" * 128)


def test_long_strings_come_back_as_they_were() -> None:
    octets = encode_longstr(b"abc")
    assert decode_longstr(b"#" + octets, 1, 8) == (b"abc", 8)
    with pytest.raises(DecodeError):
        decode_longstr(octets, 0, 6)


def test_values_without_a_letter_are_our_own_misuse() -> None:
    for value in (Ulong(1), object(), {1}):
        with pytest.raises(MisuseError):
            encode_field(value)
    with pytest.raises(MisuseError):
        encode_field(Byte(200))
    with pytest.raises(MisuseError):
        encode_field(Seconds(-1))
    with pytest.raises(MisuseError):
        encode_table({"x" * 256: None})
