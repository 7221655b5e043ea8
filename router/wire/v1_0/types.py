"""The type system of AMQP 1.0 and its octets (part 1).

A value on the wire is a constructor and its octets. The high half of a constructor's format code
gives the size of the value, the low half its type::

    4_ nothing          7_ 4 octets         a_ size(1) octets        c_ size(1) count(1) items
    5_ 1 octet          8_ 8 octets         b_ size(4) octets        d_ size(4) count(4) items
    6_ 2 octets         9_ 16 octets        e_ size(1) count(1) constructor, items without it
    00 descriptor, constructor              f_ size(4) count(4) constructor, items without it

The Python forms of the values are in ``forms``, the encoding to octets in ``encoding``; both are
re-exported here.

What may never happen: octets make ``decode_value`` raise anything but ``DecodeError``, or use time
or memory out of proportion to their number. Hence nesting is bounded, a count is checked against
the available octets before anything is created, and the zero-width items, of which an array can
have billions, are bounded and shared.
"""

import math
import struct
import uuid
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from router.errors import DecodeError
from router.wire.v1_0.encoding import (
    compound,
    encode_binary,
    encode_items,
    encode_string,
    encode_symbol,
    encode_value,
)
from router.wire.v1_0.forms import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Octets,
    Pairs,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)

__all__ = [
    "MAX_DEPTH",
    "MAX_ZERO_WIDTH_ITEMS",
    "MAX_ZERO_WIDTH_LISTS",
    "Array",
    "Byte",
    "Char",
    "Decimal32",
    "Decimal64",
    "Decimal128",
    "Described",
    "Float",
    "Int",
    "Octets",
    "Pairs",
    "Short",
    "Symbol",
    "Timestamp",
    "Ubyte",
    "Uint",
    "Ulong",
    "Ushort",
    "compound",
    "compound_bounds",
    "decode_value",
    "encode_binary",
    "encode_items",
    "encode_string",
    "encode_symbol",
    "encode_value",
    "skip_value",
]

MAX_DEPTH: Final = 64
"""Most nested compound values, arrays and descriptors; AMQP sets no bound, our stack does."""

MAX_ZERO_WIDTH_ITEMS: Final = 255
"""Most items of an array whose constructor leaves them no octets: they cost the peer nothing."""

MAX_ZERO_WIDTH_LISTS: Final = 16
"""The same where each item is a Python object of its own (list0)."""


Decoder: TypeAlias = Callable[[Octets, int, int, int], tuple[Any, int]]
"""Arguments: the octets, the offset of the value after its format code, their end, the depth."""

_U16 = struct.Struct(">H").unpack_from
_U32 = struct.Struct(">I").unpack_from
_U64 = struct.Struct(">Q").unpack_from
_F32 = struct.Struct(">f").unpack_from

_UBYTES = tuple(Ubyte(number) for number in range(256))
_SMALL_UINTS = tuple(Uint(number) for number in range(256))
_SMALL_ULONGS = tuple(Ulong(number) for number in range(256))

_WIDTHS: Final = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}
"""High half of a format code → octets of a fixed-width value (§1.2.1)."""

_DICT_KEYS: Final = frozenset(
    {str, Symbol, bytes, type(None), bool, int, Ubyte, Ushort, Uint, Ulong, Byte, Short, Int}
    | {Timestamp, Char, Decimal32, Decimal64, Decimal128}
)
"""Key types that a dict holds faithfully and at a cost that no peer can choose."""


def _short(at: int) -> DecodeError:
    return DecodeError(at, "the value ends beyond the octets that hold it")


def _fixed(unpacker: Callable[[Octets, int], tuple[Any, ...]], width: int, form: Any) -> Decoder:
    def decode(octets: Octets, at: int, end: int, depth: int) -> tuple[Any, int]:
        after = at + width
        if after > end:
            raise _short(at)
        return form(unpacker(octets, at)[0]), after

    return decode


def _plain(unpacker: Callable[[Octets, int], tuple[Any, ...]], width: int) -> Decoder:
    def decode(octets: Octets, at: int, end: int, depth: int) -> tuple[Any, int]:
        after = at + width
        if after > end:
            raise _short(at)
        return unpacker(octets, at)[0], after

    return decode


def _constant(value: Any) -> Decoder:
    def decode(octets: Octets, at: int, end: int, depth: int) -> tuple[Any, int]:
        return value, at

    return decode


def _interned(values: tuple[Any, ...]) -> Decoder:
    def decode(octets: Octets, at: int, end: int, depth: int) -> tuple[Any, int]:
        if at >= end:
            raise _short(at)
        return values[octets[at]], at + 1

    return decode


def _octet_string(width: int, form: Any) -> Decoder:
    def decode(octets: Octets, at: int, end: int, depth: int) -> tuple[Any, int]:
        after = at + width
        if after > end:
            raise _short(at)
        return form(octets[at:after]), after

    return decode


def _variable(size_width: int, form: Callable[[Octets, int], Any]) -> Decoder:
    def decode(octets: Octets, at: int, end: int, depth: int) -> tuple[Any, int]:
        start = at + size_width
        if start > end:
            raise _short(at)
        after = start + (octets[at] if size_width == 1 else _U32(octets, at)[0])
        if after > end:
            raise DecodeError(at, "the size exceeds the octets that are there")
        return form(octets[start:after], start), after

    return decode


def _binary(octets: Octets, at: int) -> bytes:
    return bytes(octets)


def _string(octets: Octets, at: int) -> str:
    try:
        return str(octets, "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(at + error.start, "a string is not valid UTF-8 (§1.6.20)") from None


def _symbol(octets: Octets, at: int) -> Symbol:
    try:
        return Symbol(octets, "ascii")
    except UnicodeDecodeError as error:
        raise DecodeError(at + error.start, "a symbol is not ASCII (§1.6.21)") from None


def _boolean(octets: Octets, at: int, end: int, depth: int) -> tuple[bool, int]:
    if at >= end:
        raise _short(at)
    octet = octets[at]
    if octet > 1:
        raise DecodeError(at, "a boolean's octet is neither 0 nor 1 (§1.6.2)")
    return octet == 1, at + 1


def _char(octets: Octets, at: int, end: int, depth: int) -> tuple[Char, int]:
    if at + 4 > end:
        raise _short(at)
    code_point = _U32(octets, at)[0]
    if code_point > 0x10FFFF or 0xD800 <= code_point <= 0xDFFF:
        raise DecodeError(at, "a char is no Unicode character (§1.6.16)")
    return Char(chr(code_point)), at + 4


def _float(octets: Octets, at: int, end: int, depth: int) -> tuple[Float, int]:
    if at + 4 > end:
        raise _short(at)
    value = Float(_F32(octets, at)[0])
    if math.isnan(value):
        value.octets = bytes(octets[at : at + 4])
    return value, at + 4


def _uuid(octets: Octets, at: int, end: int, depth: int) -> tuple[uuid.UUID, int]:
    if at + 16 > end:
        raise _short(at)
    return uuid.UUID(bytes=bytes(octets[at : at + 16])), at + 16


def _list0(octets: Octets, at: int, end: int, depth: int) -> tuple[list[Any], int]:
    return [], at


def compound_bounds(octets: Octets, code: int, at: int, end: int) -> tuple[int, int, int]:
    """Reads size and count of a compound value or array, and checks both (§1.2.3, §1.2.4).

    Args:
        octets: the buffer that holds the value.
        code: its format code, 0xc0 or above.
        at: offset of the octet after the format code.
        end: end of the available octets.

    Returns:
        count, offset of the first item, offset after the last one.

    Raises:
        DecodeError: if the size does not fit, or leaves no octets for the count.
    """
    if code & 0x10:
        start = at + 8
        if start > end:
            raise _short(at)
        size, count = _U32(octets, at)[0], _U32(octets, at + 4)[0]
        limit = at + 4 + size
    else:
        start = at + 2
        if start > end:
            raise _short(at)
        size, count = octets[at], octets[at + 1]
        limit = at + 1 + size
    if limit > end:
        raise DecodeError(at, "the size exceeds the octets that are there")
    if limit < start:
        raise DecodeError(at, "the size leaves no room for the count")
    return count, start, limit


def _items(octets: Octets, code: int, at: int, end: int, depth: int) -> tuple[list[Any], int]:
    count, at, limit = compound_bounds(octets, code, at, end)
    if count > limit - at:
        raise DecodeError(at, "the count exceeds the octets that are there")
    if depth >= MAX_DEPTH:
        raise DecodeError(at, f"values are nested more than {MAX_DEPTH} deep")
    depth += 1
    items = []
    for _ in range(count):
        if at >= limit:
            raise _short(at)
        item, at = _DECODERS[octets[at]](octets, at + 1, limit, depth)
        items.append(item)
    if at != limit:
        raise DecodeError(at, "the items end before the size says")
    return items, limit


def _list(code: int) -> Decoder:
    def decode(octets: Octets, at: int, end: int, depth: int) -> tuple[list[Any], int]:
        return _items(octets, code, at, end, depth)

    return decode


def _map(code: int) -> Decoder:
    def decode(octets: Octets, at: int, end: int, depth: int) -> tuple[Any, int]:
        items, after = _items(octets, code, at, end, depth)
        return _mapping(items, at), after

    return decode


def _mapping(items: list[Any], at: int) -> "dict[Any, Any] | Pairs":
    if len(items) & 1:
        raise DecodeError(at, "a map has a key without a value (§1.6.23)")
    keys = items[::2]
    if _DICT_KEYS.issuperset(map(type, keys)):
        mapping = dict(zip(keys, items[1::2], strict=True))
        if len(mapping) == len(keys):
            return mapping
    if len({encode_value(key) for key in keys}) != len(keys):
        raise DecodeError(at, "a map has the same key twice (§1.6.23)")
    return Pairs(zip(keys, items[1::2], strict=True))


def _array(code: int) -> Decoder:
    def decode(octets: Octets, at: int, end: int, depth: int) -> tuple[Array, int]:
        count, at, limit = compound_bounds(octets, code, at, end)
        if depth >= MAX_DEPTH:
            raise DecodeError(at, f"values are nested more than {MAX_DEPTH} deep")
        descriptors: list[Any] = []
        while at < limit and octets[at] == 0:
            if depth + len(descriptors) >= MAX_DEPTH:
                raise DecodeError(at, f"descriptors are nested more than {MAX_DEPTH} deep")
            descriptor, at = _described_part(octets, at + 1, limit, depth + len(descriptors) + 1)
            descriptors.append(descriptor)
        if at >= limit:
            raise DecodeError(at, "an array has no element constructor (§1.2.4)")
        element = octets[at]
        form = _FORMS.get(element)
        if form is None:
            raise DecodeError(at, f"format code 0x{element:02x} is not known")
        items, at = _elements(octets, at, limit, depth + 1, count)
        if at != limit:
            raise DecodeError(at, "the items end before the size says")
        return Array(form, items, tuple(descriptors)), limit

    return decode


def _elements(
    octets: Octets, at: int, limit: int, depth: int, count: int
) -> tuple[tuple[Any, ...], int]:
    element = octets[at]
    at += 1
    if element < 0x50:
        bound = MAX_ZERO_WIDTH_LISTS if element == 0x45 else MAX_ZERO_WIDTH_ITEMS
        if count > bound:
            raise DecodeError(at, f"an array has more than {bound} items of zero width")
        if element == 0x45:
            return tuple([] for _ in range(count)), at
        return _repeats(element)[count], at
    if count * _LEAST_WIDTHS[element >> 4] > limit - at:
        raise DecodeError(at, "the count exceeds the octets that are there")
    decoder = _DECODERS[element]
    items = []
    for _ in range(count):
        item, at = decoder(octets, at, limit, depth)
        items.append(item)
    return tuple(items), at


_LEAST_WIDTHS: Final = {**_WIDTHS, 0xA: 1, 0xB: 4, 0xC: 2, 0xD: 8, 0xE: 3, 0xF: 9}
"""High half of a format code → least octets of a value after its constructor."""

_REPEATS: dict[int, tuple[tuple[Any, ...], ...]] = {}


def _repeats(element: int) -> tuple[tuple[Any, ...], ...]:
    """Returns all tuples of one constant up to the bound, created once and shared."""
    repeats = _REPEATS.get(element)
    if repeats is None:
        value = _DECODERS[element](b"", 0, 0, 0)[0]
        repeats = tuple((value,) * count for count in range(MAX_ZERO_WIDTH_ITEMS + 1))
        _REPEATS[element] = repeats
    return repeats


def _described_part(octets: Octets, at: int, end: int, depth: int) -> tuple[Any, int]:
    if at >= end:
        raise _short(at)
    return _DECODERS[octets[at]](octets, at + 1, end, depth)


def _described(octets: Octets, at: int, end: int, depth: int) -> tuple[Described, int]:
    if depth >= MAX_DEPTH:
        raise DecodeError(at, f"values are nested more than {MAX_DEPTH} deep")
    descriptor, at = _described_part(octets, at, end, depth + 1)
    value, at = _described_part(octets, at, end, depth + 1)
    return Described(descriptor, value), at


def _unknown(code: int) -> Decoder:
    def decode(octets: Octets, at: int, end: int, depth: int) -> tuple[Any, int]:
        raise DecodeError(at - 1, f"format code 0x{code:02x} is not known")

    return decode


def _integers(kind: str, width: int, form: Any) -> Decoder:
    unpacker = struct.Struct(">" + kind).unpack_from
    return _plain(unpacker, width) if form is int else _fixed(unpacker, width, form)


_CONSTRUCTORS: Final[dict[int, tuple[type, Decoder]]] = {
    0x40: (type(None), _constant(None)),
    0x41: (bool, _constant(True)),
    0x42: (bool, _constant(False)),
    0x43: (Uint, _constant(_SMALL_UINTS[0])),
    0x44: (Ulong, _constant(_SMALL_ULONGS[0])),
    0x45: (list, _list0),
    0x50: (Ubyte, _interned(_UBYTES)),
    0x51: (Byte, _integers("b", 1, Byte)),
    0x52: (Uint, _interned(_SMALL_UINTS)),
    0x53: (Ulong, _interned(_SMALL_ULONGS)),
    0x54: (Int, _integers("b", 1, Int)),
    0x55: (int, _integers("b", 1, int)),
    0x56: (bool, _boolean),
    0x60: (Ushort, _integers("H", 2, Ushort)),
    0x61: (Short, _integers("h", 2, Short)),
    0x70: (Uint, _integers("I", 4, Uint)),
    0x71: (Int, _integers("i", 4, Int)),
    0x72: (Float, _float),
    0x73: (Char, _char),
    0x74: (Decimal32, _octet_string(4, Decimal32)),
    0x80: (Ulong, _integers("Q", 8, Ulong)),
    0x81: (int, _integers("q", 8, int)),
    0x82: (float, _plain(struct.Struct(">d").unpack_from, 8)),
    0x83: (Timestamp, _integers("q", 8, Timestamp)),
    0x84: (Decimal64, _octet_string(8, Decimal64)),
    0x94: (Decimal128, _octet_string(16, Decimal128)),
    0x98: (uuid.UUID, _uuid),
    0xA0: (bytes, _variable(1, _binary)),
    0xA1: (str, _variable(1, _string)),
    0xA3: (Symbol, _variable(1, _symbol)),
    0xB0: (bytes, _variable(4, _binary)),
    0xB1: (str, _variable(4, _string)),
    0xB3: (Symbol, _variable(4, _symbol)),
    0xC0: (list, _list(0xC0)),
    0xC1: (dict, _map(0xC1)),
    0xD0: (list, _list(0xD0)),
    0xD1: (dict, _map(0xD1)),
    0xE0: (Array, _array(0xE0)),
    0xF0: (Array, _array(0xF0)),
}
"""Format code → Python form and decoder (§1.6)."""

_FORMS: Final = {code: form for code, (form, _) in _CONSTRUCTORS.items()}

_DECODERS: Final[tuple[Decoder, ...]] = (
    _described,
    *(
        _CONSTRUCTORS[code][1] if code in _CONSTRUCTORS else _unknown(code)
        for code in range(1, 256)
    ),
)


def decode_value(octets: Octets, offset: int = 0, end: int | None = None) -> tuple[Any, int]:
    """Decodes one value (§1.6).

    Args:
        octets: the buffer that holds the value.
        offset: where the value's constructor begins.
        end: end of the available octets; default: all.

    Returns:
        the value in its Python form, and the offset of the octet after it.

    Raises:
        DecodeError: if the octets are not a valid value.
    """
    if end is None:
        end = len(octets)
    if offset >= end:
        raise _short(offset)
    return _DECODERS[octets[offset]](octets, offset + 1, end, 0)


def skip_value(octets: Octets, offset: int, end: int, depth: int = 0) -> int:
    """Returns the end of one value by its constructor, without decoding its content (§1.2).

    Args:
        octets: the buffer that holds the value.
        offset: where the value's constructor begins.
        end: end of the available octets.
        depth: how many descriptors enclose the value.

    Returns:
        the offset of the octet after the value.

    Raises:
        DecodeError: if the constructor is unknown or the value ends beyond ``end``.
    """
    at = offset
    while at < end:
        code = octets[at]
        at += 1
        if code == 0:
            depth += 1
            if depth > MAX_DEPTH:
                raise DecodeError(at, f"descriptors are nested more than {MAX_DEPTH} deep")
            at = skip_value(octets, at, end, depth)
            continue
        if code not in _FORMS:
            raise DecodeError(at - 1, f"format code 0x{code:02x} is not known")
        kind = code >> 4
        if kind < 0xA:
            at += _WIDTHS[kind]
        elif kind >= 0xC:
            at = compound_bounds(octets, code, at, end)[2]
        elif kind == 0xA:
            if at >= end:
                raise _short(at)
            at += 1 + octets[at]
        else:
            if at + 4 > end:
                raise _short(at)
            at += 4 + _U32(octets, at)[0]
        if at > end:
            raise DecodeError(offset, "the value ends beyond the octets that hold it")
        return at
    raise _short(at)
