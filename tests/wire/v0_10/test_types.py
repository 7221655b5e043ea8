"""Types, ranges and the table of 0-10, octet by octet."""

import contextlib
import uuid
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import DecodeError, MisuseError
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import (
    COMMANDS,
    CONTROLS,
    STRUCTS,
    decode_command_head,
    decode_control,
    decode_struct,
    encode_command,
    encode_control,
    encode_struct,
)
from router.wire.v0_10.ranges import (
    RangeSet,
    decode_ranges,
    encode_ranges,
    long_ranges,
    ranges_of,
    unwrap,
)
from router.wire.v0_10.types import (
    MAX_DEPTH,
    Exact,
    Seconds,
    decode_array,
    decode_map,
    decode_typed,
    encode_map,
    encode_typed,
)
from router.wire.v1_0.types import Byte, Char, Float, Int, Short, Ubyte, Uint, Ulong, Ushort
from tests.support.messages_0_10 import tables, values

OCTETS: list[tuple[Any, int, str]] = [
    (Byte(-1), 0x01, "ff"),
    (Ubyte(255), 0x02, "ff"),
    (True, 0x08, "01"),
    (Short(-2), 0x11, "fffe"),
    (Ushort(258), 0x12, "0102"),
    (Int(-2), 0x21, "fffffffe"),
    (Uint(1), 0x22, "00000001"),
    (Float(1.5), 0x23, "3fc00000"),
    (Char("€"), 0x27, "000020ac"),
    (-2, 0x31, "fffffffffffffffe"),
    (Ulong(1), 0x32, "0000000000000001"),
    (1.5, 0x33, "3ff8000000000000"),
    (Seconds(1), 0x38, "0000000000000001"),
    (uuid.UUID(int=1), 0x48, "00000000000000000000000000000001"),
    ("é", 0x95, "0002c3a9"),
    (b"ab", 0x90, "00026162"),
    ({"a": True}, 0xA8, "00000008 00000001 01 61 08 01"),
    ([None, True], 0xA9, "00000007 00000002 f0 08 01"),
    (None, 0xF0, ""),
    (Exact(0x00, b"\x07"), 0x00, "07"),
    (Exact(0x84, b"\xe9"), 0x84, "01e9"),
    (Exact(0xAB, b"\x04\x01"), 0xAB, "000000020401"),
    (Exact(0xC8, b"\x02\0\0\0\x07"), 0xC8, "0200000007"),
    (Exact(0xD8, bytes(9)), 0xD8, "00" * 9),
]


@pytest.mark.parametrize(("value", "code", "octets"), OCTETS)
def test_a_value_is_these_octets(value: Any, code: int, octets: str) -> None:
    expected = bytes.fromhex(octets)
    assert encode_typed(value) == (code, expected)
    found, end = decode_typed(code, expected, 0, len(expected))
    assert (found, end) == (value, len(expected))
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("code", "octets", "value"),
    [
        (0x80, "0161", b"a"),
        (0x85, "0161", "a"),
        (0xA0, "0000000161", b"a"),
        (0xAA, "0000000b 95 00000002 000161 000162", ["a", "b"]),
        (0xAA, "00000000", []),
        (0xA8, "00000000", {}),
        (0xA9, "00000000", []),
        (0xF1, "", True),
        (0x7F, "00" * 128, Exact(0x7F, bytes(128))),
        (0x95, "0001ff", Exact(0x95, b"\xff")),
        (0x23, "7fc00001", Exact(0x23, b"\x7f\xc0\0\x01")),
    ],
)
def test_other_octets_are_read_too(code: int, octets: str, value: Any) -> None:
    raw = bytes.fromhex(octets)
    assert decode_typed(code, raw, 0, len(raw)) == (value, len(raw))


@given(tables)
def test_maps_come_back(table: dict[str, Any]) -> None:
    octets = encode_map(table)
    assert decode_map(octets, 0, len(octets)) == (table, len(octets))


@given(values)
def test_values_come_back(value: Any) -> None:
    code, octets = encode_typed(value)
    assert decode_typed(code, octets, 0, len(octets)) == (value, len(octets))


@given(st.integers(0, 255), st.binary(max_size=60))
def test_random_octets_are_values_or_refused(code: int, octets: bytes) -> None:
    with contextlib.suppress(DecodeError):
        decode_typed(code, octets, 0, len(octets))


def test_nesting_is_bounded_and_nothing_is_made_of_a_count_alone() -> None:
    deep = b"\0\0\0\0"
    for _ in range(MAX_DEPTH + 1):
        deep = len(deep + b"\0\0\0\1\xa9").to_bytes(4, "big") + b"\0\0\0\1\xa9" + deep
    with pytest.raises(DecodeError, match="nested"):
        decode_typed(0xA9, deep, 0, len(deep))
    with pytest.raises(DecodeError, match="4294967295 items"):
        decode_array(b"\0\0\0\5\xf0\xff\xff\xff\xff", 0, 9)
    with pytest.raises(DecodeError):
        decode_map(b"\0\0\0\4\xff\xff\xff\xff", 0, 8)


def test_what_fits_no_type_is_our_own_mistake() -> None:
    for value in (1 << 63, object(), {"n" * 256: 1}):
        with pytest.raises(MisuseError):
            encode_typed(value)


# --- sets of commands -----------------------------------------------------------------------------


def test_a_set_is_these_octets() -> None:
    assert encode_ranges([(1, 3), (0xFFFF_FFFF, (1 << 32) + 1)]) == bytes.fromhex(
        "0010 00000001 00000003 ffffffff 00000001"
    )
    octets = bytes.fromhex("0008 ffffffff 00000001")
    assert decode_ranges(octets, 0, 10) == (((0xFFFF_FFFF, 1),), 10)
    assert long_ranges(((0xFFFF_FFFF, 1),), 1 << 32) == [((1 << 32) - 1, (1 << 32) + 1)]
    assert long_ranges(((5, 4),), 0) == []
    with pytest.raises(DecodeError):
        decode_ranges(b"\0\7" + bytes(7), 0, 9)


@given(st.integers(0, 1 << 40), st.integers(-(1 << 31) + 1, (1 << 31) - 1))
def test_a_number_is_counted_on_from_one_that_is_near(near: int, distance: int) -> None:
    number = near + distance
    if number >= 0:
        assert unwrap(number & 0xFFFF_FFFF, near) == number


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 9))))
def test_a_range_set_is_a_set(steps: list[tuple[bool, int, int]]) -> None:
    ranges, model = RangeSet(), set[int]()
    for adds, first, length in steps:
        numbers = range(first, first + length + 1)
        if adds:
            ranges.add(first, first + length)
            model.update(numbers)
        else:
            ranges.remove(first, first + length)
            model.difference_update(numbers)
        assert ranges.ranges == ranges_of(sorted(model))
        assert [number in ranges for number in range(55)] == [
            number in model for number in range(55)
        ]


# --- the table ------------------------------------------------------------------------------------


def test_packing_flags_begin_with_the_first_field_in_the_lowest_bit() -> None:
    tune = r.ConnectionTune(channel_max=1, heartbeat_max=2)
    assert encode_control(tune) == bytes.fromhex("0105 0900 0001 0002")
    subscribe = r.MessageSubscribe(queue="q", accept_mode=0, exclusive=True, resume_ttl=1)
    assert encode_command(subscribe, sync=True) == bytes.fromhex(
        "0407 0101 5500 0171 00 0000000000000001"
    )
    late = r.DeliveryProperties(exchange="e", routing_key="k", redelivered=True)
    assert encode_struct(late) == bytes.fromhex("0401 0403 0165 016b")


@pytest.mark.parametrize("spec", [*CONTROLS, *COMMANDS, *STRUCTS], ids=lambda s: s.record.__name__)
def test_every_record_comes_back_empty_and_full(spec: Any) -> None:
    samples = {
        "bit": True,
        "uint8": 1,
        "uint16": 2,
        "uint32": 3,
        "uint64": 4,
        "datetime": Seconds(5),
        "str8": "é",
        "str16": "six",
        "words8": "no",
        "words16": "never",
        "vbin16": b"7",
        "vbin32": b"8",
        "map": {"a": 1},
        "array": ["a", "b"],
        "commands": ((1, 2), (4, 4)),
        "uuid": uuid.UUID(int=9),
        "reply-to": r.ReplyTo("x", "k"),
    }
    import typing

    hints = typing.get_type_hints(spec.record, include_extras=True)
    full = spec.record(
        **{
            each.name: samples[hints[each.name].__metadata__[0]]
            for each in attrs.fields(spec.record)
        }
    )
    for record in (spec.record(), full):
        if spec in CONTROLS:
            found = decode_control(encode_control(record))
            assert found is not None
            assert found[1] == record
        elif spec in COMMANDS:
            octets = encode_command(record)
            head = decode_command_head(octets)
            assert head.row is not None
            assert head.row.decode(octets, head.fields_at, len(octets)) == record
        elif spec.class_code:
            octets = encode_struct(record)
            assert decode_struct(octets, 0, len(octets)) == record


@pytest.mark.parametrize(
    "octets",
    [
        "01",
        "0105 00",
        "0105 0100 00",
        "0105 1000",
        "0105 0000 00",
        "0101 0200 00000005 f0 ffffffff",
    ],
)
def test_controls_that_break_their_format_are_refused(octets: str) -> None:
    with pytest.raises(DecodeError):
        decode_control(bytes.fromhex(octets))
