"""The type system of AMQP 0-10 and its octets.

The high half of a type's code gives the width, so a value of an unknown type can be carried, too::

    0_ 1 octet      3_ 8       6_ 64       9_ size(2) octets     d_ 9 octets
    1_ 2            4_ 16      7_ 128      a_ size(4) octets     f_ nothing
    2_ 4            5_ 32      8_ size(1)  c_ 5 octets

    map     size(4) count(4) { size(1) key  code(1) value }*
    list    size(4) count(4) { code(1) value }*
    array   size(4) code(1) count(4) { value }*        all three: nothing behind a size of 0
    struct  size(0, 1, 2 or 4) class(1) code(1) packing-flags fields

Python forms are those of ``router.wire.v1_0.types`` where the types are the same::

    boolean bool      int8 Byte    uint8 Ubyte    int16 Short   uint16 Ushort   int32 Int
    uint32  Uint      int64 int    uint64 Ulong   float Float   double float    char-utf32 Char
    datetime Seconds  uuid UUID    str8 str16 str               vbin8 vbin16 vbin32 bytes
    map dict          list list    array list     void None     bit True        others Exact

Strings and binaries do not keep the width of their size; arrays become lists. What may never
happen: octets make a decoder raise anything but ``DecodeError``, or cost more than in proportion to
their number.
"""

import math
import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import attrs

from router.errors import DecodeError, MisuseError
from router.model.text import decode_text, encode_text
from router.wire.v1_0.types import Byte, Char, Float, Int, Short, Ubyte, Uint, Ulong, Ushort

MAX_DEPTH: Final = 56
"""Most nested maps, lists and arrays; the protocol sets no bound, our stack does. Less than the 64
of ``router.wire.v1_0.types``, so that a translation of the deepest can be read again."""

MAX_ZERO_WIDTH_ITEMS: Final = 255
"""Most items of an array whose type has no octets: they cost the peer nothing."""

Table: TypeAlias = dict[str, Any]

BIN8, INT8, UINT8, CHAR, BOOLEAN = 0x00, 0x01, 0x02, 0x04, 0x08
INT16, UINT16 = 0x11, 0x12
INT32, UINT32, FLOAT, CHAR_UTF32 = 0x21, 0x22, 0x23, 0x27
INT64, UINT64, DOUBLE, DATETIME = 0x31, 0x32, 0x33, 0x38
UUID = 0x48
VBIN8, STR8_LATIN, STR8, STR8_UTF16 = 0x80, 0x84, 0x85, 0x86
VBIN16, STR16_LATIN, STR16, STR16_UTF16 = 0x90, 0x94, 0x95, 0x96
VBIN32, MAP, LIST, ARRAY, STRUCT32 = 0xA0, 0xA8, 0xA9, 0xAA, 0xAB
DEC32, DEC64, VOID, BIT = 0xC8, 0xD8, 0xF0, 0xF1

_FIXED_WIDTHS: Final = {
    **{high: 1 << high for high in range(8)},
    0xC: 5,
    0xD: 9,
    0xF: 0,
}
"""High half of a code → size of a value of fixed width."""

_SIZE_WIDTHS: Final = {0x8: 1, 0x9: 2, 0xA: 4}
"""High half of a code → octets of the size before a value."""


class Seconds(int):
    """A datetime: seconds since 1970 in UTC, 64 bits, unsigned."""

    __slots__ = ()


@attrs.frozen
class Exact:
    """A value of a type without a Python form of its own, kept exactly.

    Attributes:
        code: of its type.
        octets: the value, without its size.
    """

    code: int
    octets: bytes


# --- decoding -------------------------------------------------------------------------------------

_U16 = struct.Struct(">H").unpack_from
_U32 = struct.Struct(">I").unpack_from
_U64 = struct.Struct(">Q").unpack_from

Decoder: TypeAlias = Callable[[bytes, int, int, int], tuple[Any, int]]
"""Arguments: octets, offset, end, depth; returns the value and the offset after it."""


def _short(at: int) -> DecodeError:
    return DecodeError(at, "the value ends beyond its octets")


def sized(octets: bytes, at: int, end: int, width: int) -> tuple[int, int]:
    """Reads a size; returns start and end of the sized octets."""
    start = at + width
    if start > end:
        raise _short(at)
    after = start + int.from_bytes(octets[at:start], "big")
    if after > end:
        raise _short(at)
    return start, after


def _fixed(form: str, make: Callable[[Any], Any] | None = None) -> Decoder:
    unpacker = struct.Struct(">" + form)
    unpack, width = unpacker.unpack_from, unpacker.size

    def decode(octets: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
        after = at + width
        if after > end:
            raise _short(at)
        value = unpack(octets, at)[0]
        return (value if make is None else make(value)), after

    return decode


def _char(octets: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
    if at + 4 > end:
        raise _short(at)
    number: int = _U32(octets, at)[0]
    if number > 0x10FFFF or 0xD800 <= number < 0xE000:
        return Exact(CHAR_UTF32, octets[at : at + 4]), at + 4
    return Char(chr(number)), at + 4


def _float(octets: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
    if at + 4 > end:
        raise _short(at)
    value: float = struct.unpack_from(">f", octets, at)[0]
    if math.isnan(value):
        return Exact(FLOAT, octets[at : at + 4]), at + 4
    return Float(value), at + 4


def _uuid(octets: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
    if at + 16 > end:
        raise _short(at)
    return uuid.UUID(bytes=octets[at : at + 16]), at + 16


def _string(code: int, width: int) -> Decoder:
    def decode(octets: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
        start, after = sized(octets, at, end, width)
        found = octets[start:after]
        try:
            return found.decode(), after
        except UnicodeDecodeError:
            return Exact(code, found), after

    return decode


def _binary(width: int) -> Decoder:
    def decode(octets: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
        start, after = sized(octets, at, end, width)
        return octets[start:after], after

    return decode


def _exact(code: int) -> Decoder:
    size_width = _SIZE_WIDTHS.get(code >> 4)
    width = _FIXED_WIDTHS.get(code >> 4)

    def decode(octets: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
        if size_width is not None:
            start, after = sized(octets, at, end, size_width)
        elif width is not None:
            start, after = at, at + width
        else:
            raise DecodeError(at, f"type code {code:#04x} has no width")
        if after > end:
            raise _short(at)
        return Exact(code, octets[start:after]), after

    return decode


def _counted(octets: bytes, start: int, end: int) -> tuple[int, int]:
    """Reads the count of a map or list that is not empty."""
    if start + 4 > end:
        raise _short(start)
    return _U32(octets, start)[0], start + 4


def _deeper(at: int, depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise DecodeError(at, f"values are nested more than {MAX_DEPTH} deep")
    return depth + 1


def _map(octets: bytes, at: int, end: int, depth: int) -> tuple[Table, int]:
    depth = _deeper(at, depth)
    start, after = sized(octets, at, end, 4)
    found: Table = {}
    if start == after:
        return found, after
    count, here = _counted(octets, start, after)
    for _ in range(min(count, after - here)):
        key_start, key_end = sized(octets, here, after, 1)
        if key_end >= after:
            raise _short(key_end)
        value, here = _DECODERS[octets[key_end]](octets, key_end + 1, after, depth)
        found[decode_text(octets[key_start:key_end])] = value
        count -= 1
    return found, _check_end(count, here, after)


def _check_end(missing: int, here: int, end: int) -> int:
    if missing or here != end:
        raise DecodeError(here, "size and count do not agree")
    return end


def _list(octets: bytes, at: int, end: int, depth: int) -> tuple[list[Any], int]:
    depth = _deeper(at, depth)
    start, after = sized(octets, at, end, 4)
    found: list[Any] = []
    if start == after:
        return found, after
    count, here = _counted(octets, start, after)
    for _ in range(min(count, after - here)):
        if here >= after:
            raise _short(here)
        value, here = _DECODERS[octets[here]](octets, here + 1, after, depth)
        found.append(value)
        count -= 1
    return found, _check_end(count, here, after)


def _array(octets: bytes, at: int, end: int, depth: int) -> tuple[list[Any], int]:
    depth = _deeper(at, depth)
    start, after = sized(octets, at, end, 4)
    found: list[Any] = []
    if start == after:
        return found, after
    code = octets[start]
    count, here = _counted(octets, start + 1, after)
    width = _FIXED_WIDTHS.get(code >> 4, 1)
    most = MAX_ZERO_WIDTH_ITEMS if not width else (after - here) // width
    if count > most:
        raise DecodeError(here, f"an array of {count} items in {after - here} octets")
    decode = _DECODERS[code]
    for _ in range(count):
        value, here = decode(octets, here, after, depth)
        found.append(value)
    return found, _check_end(0, here, after)


_DECODERS: Final[list[Decoder]] = [_exact(code) for code in range(256)]
"""By type code."""

for _code, _decoder in {
    INT8: _fixed("b", Byte),
    UINT8: _fixed("B", Ubyte),
    BOOLEAN: _fixed("B", bool),
    INT16: _fixed("h", Short),
    UINT16: _fixed("H", Ushort),
    INT32: _fixed("i", Int),
    UINT32: _fixed("I", Uint),
    FLOAT: _float,
    CHAR_UTF32: _char,
    INT64: _fixed("q"),
    UINT64: _fixed("Q", Ulong),
    DOUBLE: _fixed("d"),
    DATETIME: _fixed("Q", Seconds),
    UUID: _uuid,
    VBIN8: _binary(1),
    STR8: _string(STR8, 1),
    VBIN16: _binary(2),
    STR16: _string(STR16, 2),
    VBIN32: _binary(4),
    MAP: _map,
    LIST: _list,
    ARRAY: _array,
    VOID: lambda octets, at, end, depth: (None, at),
    BIT: lambda octets, at, end, depth: (True, at),
}.items():
    _DECODERS[_code] = _decoder


def decode_typed(code: int, octets: bytes, at: int, end: int) -> tuple[Any, int]:
    """Reads a value of a type; returns it and the offset after it.

    Raises:
        DecodeError: it is invalid, or ends beyond ``end``.
    """
    return _DECODERS[code](octets, at, end, 0)


def decode_map(octets: bytes, at: int, end: int) -> tuple[Table, int]:
    """Reads a map with its size; of equal keys the last one is kept.

    Raises:
        DecodeError: it is invalid, or ends beyond ``end``.
    """
    return _map(octets, at, end, 0)


def decode_array(octets: bytes, at: int, end: int) -> tuple[list[Any], int]:
    """Reads an array with its size.

    Raises:
        DecodeError: it is invalid, or ends beyond ``end``.
    """
    return _array(octets, at, end, 0)


# --- encoding -------------------------------------------------------------------------------------

_pack_u16 = struct.Struct(">H").pack
_pack_u32 = struct.Struct(">I").pack


def with_size(octets: bytes, width: int) -> bytes:
    """Prefixes octets with their size.

    Raises:
        MisuseError: they are too many for it.
    """
    if len(octets) >> (8 * width):
        raise MisuseError(f"{len(octets)} octets behind a size of {width}")
    return len(octets).to_bytes(width, "big") + octets


def encode_str8(text: str) -> bytes:
    """Writes a string of at most 255 octets, or raises ``MisuseError``."""
    return with_size(encode_text(text), 1)


def encode_str16(text: str) -> bytes:
    """Writes a string of at most 65,535 octets, or raises ``MisuseError``."""
    return with_size(encode_text(text), 2)


def encode_map(table: Mapping[str, Any]) -> bytes:
    """Writes a map with its size.

    Raises:
        MisuseError: a key is longer than 255 octets, or a value has no type here.
    """
    parts = [_pack_u32(len(table))]
    for name, value in table.items():
        code, octets = encode_typed(value)
        parts += (encode_str8(name), bytes((code,)), octets)
    return with_size(b"".join(parts), 4)


def encode_list(items: list[Any]) -> bytes:
    """Writes a list with its size, or raises ``MisuseError`` as ``encode_map``."""
    parts = [_pack_u32(len(items))]
    for item in items:
        code, octets = encode_typed(item)
        parts += (bytes((code,)), octets)
    return with_size(b"".join(parts), 4)


def encode_array(code: int, items: list[bytes]) -> bytes:
    """Writes an array of encoded values of one type with its size."""
    return with_size(bytes((code,)) + _pack_u32(len(items)) + b"".join(items), 4)


def encode_exact(value: Exact) -> bytes:
    """Encodes a value as it was read, without its code."""
    width = _SIZE_WIDTHS.get(value.code >> 4)
    return value.octets if width is None else with_size(value.octets, width)


def _encode_str(value: str) -> tuple[int, bytes]:
    octets = encode_text(value)
    if len(octets) > 0xFFFF:
        return VBIN32, with_size(octets, 4)  # no string type is that long
    return STR16, _pack_u16(len(octets)) + octets


def _encode_bytes(value: bytes) -> tuple[int, bytes]:
    if len(value) > 0xFFFF:
        return VBIN32, with_size(value, 4)
    return VBIN16, _pack_u16(len(value)) + value


def _packed(code: int, form: str) -> Callable[[Any], tuple[int, bytes]]:
    pack = struct.Struct(">" + form).pack
    return lambda value: (code, pack(value))


_ENCODERS: Final[dict[type, Callable[[Any], tuple[int, bytes]]]] = {
    bool: lambda value: (BOOLEAN, b"\x01" if value else b"\x00"),
    Byte: _packed(INT8, "b"),
    Ubyte: _packed(UINT8, "B"),
    Short: _packed(INT16, "h"),
    Ushort: _packed(UINT16, "H"),
    Int: _packed(INT32, "i"),
    Uint: _packed(UINT32, "I"),
    int: _packed(INT64, "q"),
    Ulong: _packed(UINT64, "Q"),
    Float: _packed(FLOAT, "f"),
    float: _packed(DOUBLE, "d"),
    Char: lambda value: (CHAR_UTF32, _pack_u32(ord(value))),
    Seconds: _packed(DATETIME, "Q"),
    uuid.UUID: lambda value: (UUID, value.bytes),
    str: _encode_str,
    bytes: _encode_bytes,
    dict: lambda value: (MAP, encode_map(value)),
    list: lambda value: (LIST, encode_list(value)),
    type(None): lambda value: (VOID, b""),
    Exact: lambda value: (value.code, encode_exact(value)),
}


def encode_typed(value: Any) -> tuple[int, bytes]:
    """Chooses a type for a value, and encodes it; returns the type's code and the octets.

    Raises:
        MisuseError: the value has no type here, or does not fit it.
    """
    encode = _ENCODERS.get(type(value))
    if encode is None:
        raise MisuseError(f"{type(value).__name__} has no type in AMQP 0-10")
    try:
        return encode(value)
    except (struct.error, OverflowError) as error:
        raise MisuseError(f"{value!r}: {error}") from error
