"""Values of AMQP 1.0 for hypothesis, and an encoder that picks any legal form of them.

The encoder is written apart from the program's own: it follows the format codes' table and knows
nothing of the shortest form.
"""

import math
import struct
import uuid
from typing import Any

from hypothesis import strategies as st

from router.wire.v1_0.types import (
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
    encode_value,
)

_INTEGERS: dict[type, tuple[int, bool]] = {
    Ubyte: (8, False),
    Ushort: (16, False),
    Uint: (32, False),
    Ulong: (64, False),
    Byte: (8, True),
    Short: (16, True),
    Int: (32, True),
    int: (64, True),
    Timestamp: (64, True),
}


def _integers(form: type) -> st.SearchStrategy[Any]:
    bits, signed = _INTEGERS[form]
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    edges = [
        n for n in (least, most, -129, -128, -1, 0, 1, 127, 128, 255, 256) if least <= n <= most
    ]
    numbers: st.SearchStrategy[int] = st.sampled_from(edges) | st.integers(least, most)
    return numbers.map(form)


@st.composite
def _floats(draw: st.DrawFn) -> Float:
    octets = draw(st.binary(min_size=4, max_size=4))
    value = Float(struct.unpack(">f", octets)[0])
    if math.isnan(value):
        value.octets = octets
    return value


LEAVES: dict[type, st.SearchStrategy[Any]] = {
    type(None): st.none(),
    bool: st.booleans(),
    **{form: _integers(form) for form in _INTEGERS},
    Float: _floats(),
    float: st.floats(),
    Decimal32: st.binary(min_size=4, max_size=4).map(Decimal32),
    Decimal64: st.binary(min_size=8, max_size=8).map(Decimal64),
    Decimal128: st.binary(min_size=16, max_size=16).map(Decimal128),
    Char: st.characters(exclude_categories=["Cs"]).map(Char),
    uuid.UUID: st.uuids(),
    bytes: st.binary(max_size=12) | st.binary(min_size=250, max_size=260),
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    | st.integers(250, 260).map(lambda size: "é" * size),
    Symbol: (
        st.text(st.characters(max_codepoint=127), max_size=12)
        | st.integers(250, 260).map(lambda size: "s" * size)
    ).map(Symbol),
}


def _opaque(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Hides a strategy's parts, which hypothesis would print by the megabyte."""

    @st.composite
    def drawn(draw: st.DrawFn) -> Any:
        return draw(strategy)

    return drawn()


leaves = _opaque(st.one_of(*LEAVES.values()))
_NO_DICT_KEYS = (Float, float, uuid.UUID)
_dict_keys = _opaque(st.one_of(*(LEAVES[form] for form in LEAVES if form not in _NO_DICT_KEYS)))


def _pairs(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Pairs]:
    odd_keys = LEAVES[uuid.UUID] | LEAVES[float] | st.lists(children, max_size=2)
    return st.lists(
        st.tuples(odd_keys, children),
        min_size=1,
        max_size=4,
        unique_by=lambda pair: encode_value(pair[0]),
    ).map(Pairs)


@st.composite
def _arrays(draw: st.DrawFn, children: st.SearchStrategy[Any]) -> Array:
    descriptors = draw(st.lists(LEAVES[Symbol] | LEAVES[Ulong], max_size=2))
    of = draw(st.sampled_from([*LEAVES, list, dict]))
    element: st.SearchStrategy[Any]
    if of is list:
        element = st.lists(children, max_size=3)
    elif of is dict:
        element = st.dictionaries(LEAVES[Symbol], children, max_size=3)
    else:
        element = LEAVES[of]
    items = draw(st.lists(element, max_size=4))
    inner = Array(of, items, tuple(descriptors))
    return Array(Array, [inner] * draw(st.integers(0, 2))) if draw(st.booleans()) else inner


def _nest(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    children = _opaque(inner)
    return st.one_of(
        st.lists(children, max_size=5),
        st.dictionaries(_dict_keys, children, max_size=4),
        _pairs(children),
        _arrays(children),
        st.builds(Described, LEAVES[Symbol] | LEAVES[Ulong] | children, children),
    )


def _nested(depth: int) -> st.SearchStrategy[Any]:
    return leaves | _nest(_nested(depth - 1)) if depth else leaves


values = _nested(3)
small_values = _nested(1)


def same(left: Any, right: Any) -> bool:
    """Whether two values are one on the wire: equal, of equal types, NaN included."""
    if type(left) is not type(right):
        return False
    if isinstance(left, Float):
        if math.isnan(left):
            return bool(left.octets == right.octets)
        return struct.pack(">f", left) == struct.pack(">f", right)
    if isinstance(left, float):
        return struct.pack(">d", left) == struct.pack(">d", right)
    if isinstance(left, (list, Pairs, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, Described):
        return same(left.descriptor, right.descriptor) and same(left.value, right.value)
    if isinstance(left, Array):
        return (
            left.of is right.of
            and same(left.items, right.items)
            and same(left.descriptors, right.descriptors)
        )
    return bool(left == right)


# --- any legal form -------------------------------------------------------------------------------


def _bodies(value: Any, of: type, draw: st.DrawFn) -> dict[int, bytes]:
    """All legal format codes of a value → its octets behind the code."""
    if of is type(None):
        return {0x40: b""}
    if of is bool:
        return {0x41 if value else 0x42: b"", 0x56: bytes([value])}
    if of in _INTEGERS:
        return _integer_bodies(value, of)
    if of is Float:
        return {0x72: value.octets if math.isnan(value) else struct.pack(">f", value)}
    fixed = {Decimal32: 0x74, Decimal64: 0x84, Decimal128: 0x94}
    if of in fixed:
        return {fixed[of]: bytes(value)}
    if of is float:
        return {0x82: struct.pack(">d", value)}
    if of is Char:
        return {0x73: struct.pack(">I", ord(value))}
    if of is uuid.UUID:
        return {0x98: value.bytes}
    if of in (bytes, str, Symbol):
        octets = value if of is bytes else value.encode()
        low = {bytes: 0xA0, str: 0xA1, Symbol: 0xA3}[of]
        forms = {low + 0x10: struct.pack(">I", len(octets)) + octets}
        if len(octets) < 256:
            forms[low] = bytes([len(octets)]) + octets
        return forms
    if of is Array:
        return _sized(0xE0, len(value.items), _array_items(value, draw))
    items = value if of is list else [part for pair in value.items() for part in pair]
    forms = _sized(
        0xC0 if of is list else 0xC1, len(items), b"".join(any_form(item, draw) for item in items)
    )
    if of is list and not items:
        forms[0x45] = b""
    return forms


def _integer_bodies(value: int, of: type) -> dict[int, bytes]:
    bits, signed = _INTEGERS[of]
    wide = {
        Ubyte: 0x50,
        Ushort: 0x60,
        Uint: 0x70,
        Ulong: 0x80,
        Byte: 0x51,
        Short: 0x61,
        Int: 0x71,
        int: 0x81,
        Timestamp: 0x83,
    }[of]
    forms = {wide: int(value).to_bytes(bits // 8, "big", signed=signed)}
    small = {Uint: 0x52, Ulong: 0x53, Int: 0x54, int: 0x55}.get(of)
    if small is not None and (-128 <= value < 128 if signed else value < 256):
        forms[small] = int(value).to_bytes(1, "big", signed=signed)
    if value == 0 and of in (Uint, Ulong):
        forms[0x43 if of is Uint else 0x44] = b""
    return forms


def _sized(code: int, count: int, octets: bytes) -> dict[int, bytes]:
    forms = {code + 0x10: struct.pack(">II", len(octets) + 4, count) + octets}
    if len(octets) < 255 and count < 256:
        forms[code] = bytes([len(octets) + 1, count]) + octets
    return forms


_CODES: dict[type, list[int]] = {
    type(None): [0x40],
    bool: [0x41, 0x42, 0x56],
    Ubyte: [0x50],
    Ushort: [0x60],
    Uint: [0x43, 0x52, 0x70],
    Ulong: [0x44, 0x53, 0x80],
    Byte: [0x51],
    Short: [0x61],
    Int: [0x54, 0x71],
    int: [0x55, 0x81],
    Float: [0x72],
    float: [0x82],
    Decimal32: [0x74],
    Decimal64: [0x84],
    Decimal128: [0x94],
    Char: [0x73],
    Timestamp: [0x83],
    uuid.UUID: [0x98],
    bytes: [0xA0, 0xB0],
    str: [0xA1, 0xB1],
    Symbol: [0xA3, 0xB3],
    list: [0x45, 0xC0, 0xD0],
    dict: [0xC1, 0xD1],
    Array: [0xE0, 0xF0],
}
"""Every format code (§1.6)."""


def _array_items(array: Array, draw: st.DrawFn) -> bytes:
    descriptors = b"".join(b"\x00" + any_form(one, draw) for one in array.descriptors)
    choices = [_bodies(item, array.of, draw) for item in array.items]
    if not choices:
        return descriptors + bytes([draw(st.sampled_from(_CODES[array.of]))])
    common = sorted(set.intersection(*(set(choice) for choice in choices)))
    code = draw(st.sampled_from(common))
    return descriptors + bytes([code]) + b"".join(choice[code] for choice in choices)


def any_form(value: Any, draw: st.DrawFn) -> bytes:
    """Encodes a value, each part of it in a legal form drawn at random."""
    if isinstance(value, Described):
        return b"\x00" + any_form(value.descriptor, draw) + any_form(value.value, draw)
    of = dict if isinstance(value, (dict, Pairs)) else type(value)
    forms = _bodies(value, of, draw)
    code = draw(st.sampled_from(sorted(forms)))
    return bytes([code]) + forms[code]


@st.composite
def values_and_forms(draw: st.DrawFn, source: st.SearchStrategy[Any] = values) -> tuple[Any, bytes]:
    """A value and some legal octets of it."""
    value = draw(source)
    return value, any_form(value, draw)


@st.composite
def mutated(draw: st.DrawFn, source: st.SearchStrategy[bytes]) -> bytes:
    """Octets with some changed, cut out, put in, or cut off."""
    octets = bytearray(draw(source))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(octets)))
        match draw(st.sampled_from(["set", "cut", "put", "end"])):
            case "set" if at < len(octets):
                octets[at] = draw(st.integers(0, 255) | st.sampled_from([0, 0x40, 0x7F, 0x80, 255]))
            case "cut":
                del octets[at : at + draw(st.integers(1, 4))]
            case "put":
                octets[at:at] = draw(st.binary(min_size=1, max_size=8))
            case _:
                del octets[at:]
    return bytes(octets)
