import contextlib
import struct
import time
import tracemalloc
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import DecodeError, MisuseError
from router.wire.v1_0.types import (
    MAX_DEPTH,
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Pairs,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
    decode_value,
    encode_value,
    skip_value,
)
from tests.support.amqp_values import mutated, same, values, values_and_forms

ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
LONG = b"x" * 256

# Value, its shortest octets, and every other legal form.
FORMS: list[tuple[Any, str, list[str]]] = [
    (None, "40", []),
    (True, "41", ["5601"]),
    (False, "42", ["5600"]),
    (Ubyte(0), "5000", []),
    (Ubyte(255), "50ff", []),
    (Ushort(0xABCD), "60abcd", []),
    (Uint(0), "43", ["5200", "7000000000"]),
    (Uint(255), "52ff", ["70000000ff"]),
    (Uint(256), "7000000100", []),
    (Uint(2**32 - 1), "70ffffffff", []),
    (Ulong(0), "44", ["5300", "800000000000000000"]),
    (Ulong(255), "53ff", ["8000000000000000ff"]),
    (Ulong(2**64 - 1), "80ffffffffffffffff", []),
    (Byte(-128), "5180", []),
    (Short(-32768), "618000", []),
    (Int(-128), "5480", ["71ffffff80"]),
    (Int(-129), "71ffffff7f", []),
    (Int(127), "547f", ["710000007f"]),
    (Int(128), "7100000080", []),
    (-128, "5580", ["81ffffffffffffff80"]),
    (2**63 - 1, "817fffffffffffffff", []),
    (-129, "81ffffffffffffff7f", []),
    (Float(1.5), "723fc00000", []),
    (Float(-0.0), "7280000000", []),
    (1.5, "823ff8000000000000", []),
    (float("-inf"), "82fff0000000000000", []),
    (Decimal32(b"\x01\x02\x03\x04"), "7401020304", []),
    (Decimal64(bytes(range(8))), "840001020304050607", []),
    (Decimal128(bytes(range(16))), "94000102030405060708090a0b0c0d0e0f", []),
    (Char("\U0010ffff"), "730010ffff", []),
    (Timestamp(1311704463521), "830000013167adb8a1", []),
    (Timestamp(-1), "83ffffffffffffffff", []),
    (ID, "9800112233445566778899aabbccddeeff", []),
    (b"", "a000", ["b000000000"]),
    (b"\x01", "a00101", ["b00000000101"]),
    (LONG, "b000000100" + LONG.hex(), []),
    ("é", "a102c3a9", ["b100000002c3a9"]),
    ("x" * 256, "b100000100" + LONG.hex(), []),
    (Symbol("a"), "a30161", ["b30000000161"]),
    (Symbol("x" * 256), "b300000100" + LONG.hex(), []),
    ([], "45", ["c00100", "d00000000400000000"]),
    ([None, [True]], "c00602" + "40" + "c0020141", ["d000000009" + "00000002" + "40" + "c0020141"]),
    ({}, "c10100", ["d10000000400000000"]),
    ({Symbol("k"): Ubyte(1)}, "c10602a3016b5001", ["d10000000900000002a3016b5001"]),
    (Array(Symbol, []), "e00200a3", ["f00000000500000000a3"]),
    (
        Array(Symbol, [Symbol("a"), Symbol("b")]),
        "e00602a301610162",
        ["f00000000900000002a301610162", "e00c02b30000000161" + "0000000162"],
    ),
    (Array(Uint, [Uint(1), Uint(256)]), "e00a02" + "70" + "00000001" + "00000100", []),
    (Array(bool, [True, False]), "e00402560100", []),
    (Array(bool, [True, True]), "e00402560101", ["e0020241"]),
    (Array(type(None), [None, None]), "e0020240", []),
    (Array(Uint, [Uint(0)] * 2), "e00402520000", ["e0020243", "e00a027000000000" + "00000000"]),
    (Array(list, [[], [None]]), "e00702c00100020140", []),
    (Array(Array, [Array(Ubyte, [Ubyte(7)])]), "e00601e003015007", []),
    (
        Array(Ubyte, [Ubyte(7)], (Ulong(1), Symbol("d"))),
        "e00a01" + "005301" + "00a30164" + "5007",
        [],
    ),
    (Described(Ulong(0x24), []), "00532445", ["0080000000000000002445", "005324c00100"]),
    (Described("URL", "x"), "00a10355524ca10178", []),
    (Described(Described(Ulong(1), Ulong(2)), None), "000053015302" + "40", []),
]


@pytest.mark.parametrize(("value", "shortest", "others"), FORMS)
def test_each_type_is_written_in_its_shortest_form_and_read_in_every_form(
    value: Any, shortest: str, others: list[str]
) -> None:
    assert encode_value(value).hex() == shortest
    for form in (shortest, *others):
        octets = bytes.fromhex(form)
        decoded, after = decode_value(octets)
        assert same(decoded, value)
        assert after == len(octets)


def test_a_float_that_is_not_a_number_keeps_its_payload() -> None:
    for octets in ("727f800001", "72ffc12345", "827ff0000000000001", "82fff8000000012345"):
        value, _ = decode_value(bytes.fromhex(octets))
        assert encode_value(value).hex() == octets


@given(values)
def test_encoding_and_decoding_are_inverse(value: Any) -> None:
    octets = encode_value(value)
    decoded, after = decode_value(octets)
    assert same(decoded, value)
    assert after == len(octets)
    assert encode_value(decoded) == octets


def holds_an_array(value: Any) -> bool:
    """Arrays are written with no zero-width constructor but null's: not always the shortest."""
    if isinstance(value, Described):
        return holds_an_array([value.descriptor, value.value])
    if isinstance(value, (dict, Pairs)):
        return holds_an_array([part for pair in value.items() for part in pair])
    return isinstance(value, Array) or (isinstance(value, list) and any(map(holds_an_array, value)))


@given(values_and_forms())
def test_every_legal_form_decodes_to_the_value_and_none_is_shorter(case: tuple[Any, bytes]) -> None:
    value, octets = case
    decoded, after = decode_value(octets)
    assert same(decoded, value)
    assert after == len(octets)
    assert holds_an_array(value) or len(encode_value(value)) <= len(octets)


@given(values_and_forms(), st.binary(max_size=5), st.binary(max_size=5))
def test_octets_around_a_value_and_their_kind_make_no_difference(
    case: tuple[Any, bytes], before: bytes, behind: bytes
) -> None:
    value, octets = case
    whole = before + octets + behind
    start, end = len(before), len(before) + len(octets)
    for kind in (bytes, bytearray, memoryview):
        decoded, after = decode_value(kind(whole), start, len(whole))
        assert same(decoded, value)
        assert after == end
        assert skip_value(kind(whole), start, len(whole)) == end


@given(values_and_forms())
def test_no_value_ends_before_its_last_octet(case: tuple[Any, bytes]) -> None:
    _, octets = case
    for end in range(len(octets)):
        with pytest.raises(DecodeError):
            decode_value(octets, 0, end)
        with pytest.raises(DecodeError):
            skip_value(octets, 0, end)


def only_a_decode_error(octets: bytes) -> None:
    try:
        value, after = decode_value(octets)
    except DecodeError:
        with contextlib.suppress(DecodeError):
            assert skip_value(octets, 0, len(octets)) <= len(octets)
        return
    assert after <= len(octets)
    assert skip_value(octets, 0, len(octets)) == after
    assert same(decode_value(encode_value(value))[0], value)


@given(st.binary(max_size=80))
@settings(max_examples=500)
def test_random_octets_raise_nothing_but_decode_errors(octets: bytes) -> None:
    only_a_decode_error(octets)


@given(mutated(values_and_forms().map(lambda case: case[1])))
@settings(max_examples=500)
def test_damaged_values_raise_nothing_but_decode_errors(octets: bytes) -> None:
    only_a_decode_error(octets)


def in_lists(depth: int) -> bytes:
    octets = b"\x40"
    for _ in range(depth):
        octets = b"\xd0" + struct.pack(">II", len(octets) + 4, 1) + octets
    return octets


def in_maps(depth: int) -> bytes:
    octets = b"\x40"
    for _ in range(depth):
        octets = b"\xd1" + struct.pack(">II", len(octets) + 5, 2) + octets + b"\x40"
    return octets


def in_arrays(depth: int) -> bytes:
    octets = b"\x40"
    for level in range(depth):
        element = b"\x40" if level == 0 else b"\xf0" + octets[1:]
        octets = b"\xf0" + struct.pack(">II", len(element) + 4, 1) + element
    return octets


def in_descriptors(depth: int) -> bytes:
    return b"\x00" * depth + b"\x40" * (depth + 1)


def as_values(depth: int) -> bytes:
    return b"\x00\x40" * depth + b"\x40"


def in_array_descriptors(depth: int) -> bytes:
    octets = b"\x00\x43" * depth + b"\x40"
    return b"\xf0" + struct.pack(">II", len(octets) + 4, 0) + octets


@pytest.mark.parametrize(
    "nest", [in_lists, in_maps, in_arrays, in_descriptors, as_values, in_array_descriptors]
)
def test_nesting_is_read_up_to_the_bound_and_refused_beyond(nest: Any) -> None:
    octets = nest(MAX_DEPTH - 1)
    value, after = decode_value(octets)
    assert after == len(octets)
    assert same(decode_value(encode_value(value))[0], value)
    for depth in (MAX_DEPTH + 1, 5000):
        with pytest.raises(DecodeError, match="nested"):
            decode_value(nest(depth))


def test_skipping_bounds_the_descriptors_of_descriptors() -> None:
    with pytest.raises(DecodeError, match="nested"):
        skip_value(b"\x00" * 5000, 0, 5000)
    with pytest.raises(DecodeError, match="nested"):
        skip_value(as_values(5000), 0, 10001)


@pytest.mark.parametrize(
    "octets",
    [
        "f000000005ffffffff40",  # 2^32 nulls
        "f000000005ffffffff41",
        "f000000005ffffffff43",
        "f000000005ffffffff45",
        "f000000005ffffffff50",
        "f000000008ffffffff00534240",
        "e002ff45",  # 255 lists of no octets
        "f0000000050000010040",  # 256 nulls
        "d000000004ffffffff",
        "d000000008ffffffff40404040",
        "d100000004fffffffe",
        "b0ffffffff",
        "b1fffffffe40",
        "d0ffffffff0000000040",
        "c0ffff40",
        "c002ff40",
        "e003ff5000",
    ],
)
def test_a_count_or_size_beyond_the_octets_is_refused_at_no_cost(octets: str) -> None:
    lying = bytes.fromhex(octets)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            decode_value(lying)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "item",
    [
        "40",
        "45",
        "43",
        "41",
        "c10100",
        "e0020040",
        "e002ff40",
        "e002ff43",
        "e0021045",
        "005345a000",
    ],
)
def test_memory_grows_in_proportion_to_the_octets(item: str) -> None:
    decode_value(bytes.fromhex(item))  # whatever is made once
    items = bytes.fromhex(item) * 2000
    octets = b"\xd0" + struct.pack(">II", len(items) + 4, 2000) + items
    tracemalloc.start()
    try:
        value, _ = decode_value(octets)
        assert len(value) == 2000
        assert tracemalloc.get_traced_memory()[1] < 400 * len(octets)
    finally:
        tracemalloc.stop()


def test_keys_whose_hashes_a_peer_can_choose_do_not_make_a_map_slow() -> None:
    modulus = 2**61 - 1
    keys = [uuid.UUID(int=modulus * number) for number in range(30_000)]
    assert len({hash(key) for key in keys}) == 1
    items = b"".join(b"\x98" + key.bytes + b"\x40" for key in keys)
    started = time.process_time()
    value, _ = decode_value(b"\xd1" + struct.pack(">II", len(items) + 4, len(keys) * 2) + items)
    assert time.process_time() - started < 5
    assert type(value) is Pairs
    assert [key for key, _ in value.items()] == keys


@pytest.mark.parametrize(
    "pairs",
    [
        [(Uint(1), "a"), (1, "b")],
        [(True, "a"), (Ubyte(1), "b")],
        [(Symbol("k"), 1), ("k", 2)],
        [(0.0, 1), (-0.0, 2)],
        [([1], 1), ([2], 2)],
        [({Symbol("a"): 1}, 1)],
        [(Described(Ulong(1), [1]), 1)],
        [(ID, None)],
    ],
)
def test_a_map_that_no_dict_can_hold_keeps_its_pairs_in_order(pairs: list[tuple[Any, Any]]) -> None:
    value, _ = decode_value(encode_value(Pairs(pairs)))
    assert same(value, Pairs(pairs))


@pytest.mark.parametrize(
    "key", ["40", "a30161", "43", "45", "98" + "00" * 16, "827ff8000000000000"]
)
def test_a_map_with_the_same_key_twice_is_refused(key: str) -> None:
    items = bytes.fromhex(key + "41" + key + "42")
    with pytest.raises(DecodeError, match="same key twice"):
        decode_value(bytes([0xC1, len(items) + 1, 4]) + items)


def test_the_same_key_in_another_form_is_the_same_key() -> None:
    with pytest.raises(DecodeError, match="same key twice"):
        decode_value(bytes.fromhex("c10604" + "4341" + "520041"))
    with pytest.raises(DecodeError, match="same key twice"):
        decode_value(bytes.fromhex("c10704" + "4541" + "c0010041"))


@pytest.mark.parametrize(
    ("octets", "rule"),
    [
        ("", "ends beyond"),
        ("46", "0x46 is not known"),
        ("ff", "0xff is not known"),
        ("5602", "neither 0 nor 1"),
        ("7300110000", "no Unicode character"),
        ("730000d800", "no Unicode character"),
        ("a102c328", "not valid UTF-8"),
        ("a103eda080", "not valid UTF-8"),
        ("a30180", "not ASCII"),
        ("c1020140", "without a value"),
        ("c0030140" + "40", "end before the size"),
        ("c00301a105", "exceeds the octets|ends beyond"),
        ("c00000", "no room for the count"),
        ("e0010050", "no element constructor"),
        ("e003004645", "0x46 is not known"),
        ("e003020050", "ends beyond|not known|exceeds"),
        ("e00401500102", "end before the size"),
    ],
)
def test_broken_octets_are_refused_by_name(octets: str, rule: str) -> None:
    with pytest.raises(DecodeError, match=rule):
        decode_value(bytes.fromhex(octets))


@pytest.mark.parametrize(
    "value",
    [
        Uint(2**32),
        Uint(-1),
        Ubyte(256),
        Byte(128),
        2**63,
        Char("ab"),
        Char("\ud800"),
        Symbol("é"),
        "\udc00",
        Decimal32(b"12345"),
        object(),
        [object()],
        {Symbol("k"): 1j},
        Array(object, []),
        Array(Uint, [2**32]),
    ],
)
def test_what_has_no_octets_is_our_own_misuse(value: Any) -> None:
    with pytest.raises(MisuseError):
        encode_value(value)
