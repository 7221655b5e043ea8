"""Encoding: from Python forms to octets, in the shortest form (§1.6).

Of several constructors that can hold a value, the shortest is used: zero width, then one octet,
then the full width; lists and maps likewise by their size. Items of an array share one constructor,
the narrowest that fits all of them, but none of zero width: see ``_encode_elements``.
"""

import math
import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from router.errors import MisuseError
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

Encoder: TypeAlias = Callable[[Any], bytes]

_PACK_BYTE = struct.Struct(">Bb").pack
_PACK_U8 = struct.Struct(">BB").pack
_PACK_U32 = struct.Struct(">BI").pack
_PACK_COMPOUND8 = struct.Struct(">BBB").pack
_PACK_COMPOUND32 = struct.Struct(">BII").pack


def _packer(code: int, kind: str) -> Encoder:
    pack = struct.Struct(">B" + kind).pack

    def encode(value: Any) -> bytes:
        return pack(code, value)

    return encode


def _unsigned(zero: bytes, small: int, code: int, kind: str) -> Encoder:
    pack = struct.Struct(">B" + kind).pack

    def encode(value: int) -> bytes:
        if value == 0:
            return zero
        return _PACK_U8(small, value) if 0 < value < 256 else pack(code, value)

    return encode


def _signed(small: int, code: int, kind: str) -> Encoder:
    pack = struct.Struct(">B" + kind).pack

    def encode(value: int) -> bytes:
        return _PACK_BYTE(small, value) if -129 < value < 128 else pack(code, value)

    return encode


def _sized(code: int, octets: bytes) -> bytes:
    """Prefixes ``octets`` with a variable-width constructor; ``code`` is the one-octet form."""
    size = len(octets)
    if size < 256:
        return _PACK_U8(code, size) + octets
    return _PACK_U32(code + 0x10, size) + octets


def encode_binary(value: Octets) -> bytes:
    """Encodes a binary (§1.6.19)."""
    return _sized(0xA0, bytes(value))


def encode_string(value: str) -> bytes:
    """Encodes a string (§1.6.20)."""
    return _sized(0xA1, value.encode())


def encode_symbol(value: str) -> bytes:
    """Encodes a symbol (§1.6.21)."""
    return _sized(0xA3, value.encode("ascii"))


def _decimal(code: int, width: int) -> Encoder:
    prefix = bytes([code])

    def encode(value: bytes) -> bytes:
        if len(value) != width:
            raise ValueError(f"a decimal of {width} octets has {len(value)}")
        return prefix + value

    return encode


def _encode_float(value: Float) -> bytes:
    if math.isnan(value) and hasattr(value, "octets"):
        return b"\x72" + value.octets
    return struct.pack(">Bf", 0x72, value)


def _encode_char(value: str) -> bytes:
    octets = value.encode("utf-32-be")
    if len(octets) != 4:
        raise ValueError("a char is one character")
    return b"\x73" + octets


def compound(code: int, count: int, items: bytes) -> bytes:
    """Prefixes encoded items with the shortest constructor, size and count (§1.2.3).

    Args:
        code: the constructor with sizes of one octet: 0xc0 list, 0xc1 map, 0xe0 array.
        count: how many items there are.
        items: their octets; of an array, preceded by the element constructor.
    """
    size = len(items)
    if size < 255 and count < 256:
        return _PACK_COMPOUND8(code, size + 1, count) + items
    return _PACK_COMPOUND32(code + 0x10, size + 4, count) + items


def encode_items(items: list[bytes]) -> bytes:
    """Encodes a list whose items are already encoded (§1.6.22)."""
    return compound(0xC0, len(items), b"".join(items)) if items else b"\x45"


def _encode_list(value: list[Any]) -> bytes:
    return encode_items([encode_value(item) for item in value])


def _encode_map(value: Mapping[Any, Any] | Pairs) -> bytes:
    parts = []
    for key, item in value.items():
        parts.append(encode_value(key))
        parts.append(encode_value(item))
    return compound(0xC1, len(parts), b"".join(parts))


def _encode_described(value: Described) -> bytes:
    return b"\x00" + encode_value(value.descriptor) + encode_value(value.value)


def _encode_array(value: Array) -> bytes:
    descriptors = b"".join(b"\x00" + encode_value(one) for one in value.descriptors)
    element, items = _encode_elements(value.of, value.items)
    return compound(0xE0, len(value.items), b"".join([descriptors, element, *items]))


def _encode_elements(of: type, items: tuple[Any, ...]) -> tuple[bytes, list[bytes]]:
    """Returns the narrowest constructor that fits all items, and their octets without it.

    Constructors of zero width are used only for null, which has no other: some peers limit such
    arrays or do not support them.
    """
    if of is type(None):
        return b"\x40", []
    wide = _WIDE_ELEMENTS.get(of)
    if wide is None:
        if of not in _ENCODERS:
            raise ValueError(f"an array cannot hold {of.__name__}")
        code = _ENCODERS[of](_SPECIMENS[of])[:1]
        return code, [_ENCODERS[of](item)[1:] for item in items]
    narrow_code, wide_code, split = wide
    narrow, broad = split
    bodies = [narrow(item) for item in items]
    if None not in bodies:
        return narrow_code, [body for body in bodies if body is not None]
    return wide_code, [broad(item) for item in items]


def _numbers(narrow: str, wide: str) -> Any:
    small, large = struct.Struct(">" + narrow), struct.Struct(">" + wide)
    least, most = (0, 255) if narrow == "B" else (-128, 127)
    return (
        lambda value: small.pack(value) if least <= value <= most else None,
        large.pack,
    )


def _strings(encoder: Encoder) -> Any:
    def narrow(value: Any) -> bytes | None:
        octets = encoder(value)
        return octets[1:] if octets[0] < 0xB0 else None

    def broad(value: Any) -> bytes:
        octets = encoder(value)
        if octets[0] >= 0xB0:
            return octets[1:]
        return octets[1].to_bytes(4, "big") + octets[2:]

    return narrow, broad


def _compounds(encoder: Encoder) -> Any:
    def narrow(value: Any) -> bytes | None:
        octets = encoder(value)
        if octets == b"\x45":
            return b"\x01\x00"
        return octets[1:] if octets[0] & 0x10 == 0 else None

    def broad(value: Any) -> bytes:
        octets = encoder(value)
        if octets == b"\x45":
            return b"\x00\x00\x00\x04\x00\x00\x00\x00"
        if octets[0] & 0x10:
            return octets[1:]
        return struct.pack(">II", octets[1] + 3, octets[2]) + octets[3:]

    return narrow, broad


_ENCODERS: Final[dict[type, Encoder]] = {
    type(None): lambda value: b"\x40",
    bool: lambda value: b"\x41" if value else b"\x42",
    Ubyte: _packer(0x50, "B"),
    Ushort: _packer(0x60, "H"),
    Uint: _unsigned(b"\x43", 0x52, 0x70, "I"),
    Ulong: _unsigned(b"\x44", 0x53, 0x80, "Q"),
    Byte: _packer(0x51, "b"),
    Short: _packer(0x61, "h"),
    Int: _signed(0x54, 0x71, "i"),
    int: _signed(0x55, 0x81, "q"),
    Float: _encode_float,
    float: _packer(0x82, "d"),
    Decimal32: _decimal(0x74, 4),
    Decimal64: _decimal(0x84, 8),
    Decimal128: _decimal(0x94, 16),
    Char: _encode_char,
    Timestamp: _packer(0x83, "q"),
    uuid.UUID: lambda value: b"\x98" + value.bytes,
    bytes: encode_binary,
    bytearray: encode_binary,
    memoryview: encode_binary,
    str: encode_string,
    Symbol: encode_symbol,
    list: _encode_list,
    tuple: _encode_list,
    dict: _encode_map,
    Pairs: _encode_map,
    Array: _encode_array,
    Described: _encode_described,
}
"""Python form → encoder; tuple, bytearray and memoryview are accepted too."""

_SPECIMENS: Final[dict[type, Any]] = {
    Ubyte: 0,
    Ushort: 0,
    Byte: 0,
    Short: 0,
    Float: Float(0),
    float: 0.0,
    Decimal32: bytes(4),
    Decimal64: bytes(8),
    Decimal128: bytes(16),
    Char: "0",
    Timestamp: 0,
    uuid.UUID: uuid.UUID(int=0),
}
"""Types with a single constructor → any value of them, from which the constructor is read."""

_WIDE_ELEMENTS: Final[dict[type, tuple[bytes, bytes, Any]]] = {
    bool: (b"\x56", b"\x56", (lambda value: b"\x01" if value else b"\x00", None)),
    Uint: (b"\x52", b"\x70", _numbers("B", "I")),
    Ulong: (b"\x53", b"\x80", _numbers("B", "Q")),
    Int: (b"\x54", b"\x71", _numbers("b", "i")),
    int: (b"\x55", b"\x81", _numbers("b", "q")),
    bytes: (b"\xa0", b"\xb0", _strings(encode_binary)),
    str: (b"\xa1", b"\xb1", _strings(encode_string)),
    Symbol: (b"\xa3", b"\xb3", _strings(encode_symbol)),
    list: (b"\xc0", b"\xd0", _compounds(_encode_list)),
    dict: (b"\xc1", b"\xd1", _compounds(_encode_map)),
    Array: (b"\xe0", b"\xf0", _compounds(_encode_array)),
}
"""Python form → narrow and wide element constructor, and the octets of an item with either."""


def encode_value(value: Any) -> bytes:
    """Encodes one value in its shortest form (§1.6).

    Subclasses of the Python forms, such as enumerations of ints, encode as the form they extend.

    Raises:
        MisuseError: if the value has no AMQP type or is out of its type's range.
    """
    encoder = _ENCODERS.get(type(value)) or _encoder_of_base(type(value))
    try:
        return encoder(value)
    except (struct.error, ValueError, TypeError, OverflowError) as error:
        raise MisuseError(f"{type(value).__name__} cannot be encoded: {error}") from error


def _encoder_of_base(kind: type) -> Encoder:
    for base in kind.__mro__:
        if base in _ENCODERS:
            return _ENCODERS[base]
    if issubclass(kind, Mapping):
        return _encode_map
    raise MisuseError(f"{kind.__name__} has no AMQP type")
