"""Strings and field tables (0-9-1 §4.2.5), with the type letters that brokers actually use.

A field table is a long string of entries, an array one of values::

    table:  octets(4)  { name: size(1) octets | letter(1) value }*
    array:  octets(4)  { letter(1) value }*

The letters of the specification and those on the wire have differed for long (errata item 3). The
letters read and written here; Python forms are those of ``router.wire.v1_0.types`` where the types
are the same::

    t boolean  bool       b int8   Byte     s U int16  Short     I int32  Int      l L int64  int
                          B uint8  Ubyte    u   uint16 Ushort    i uint32 Uint
    f binary32 Float      d binary64 float  D decimal  TableDecimal
    S octets   str        x octets bytes    T seconds  Seconds
    A array    list       F table  dict     V nothing  None

``U`` and ``L`` are the specification's letters for what implementations write as ``s`` and ``l``.
The specification's unsigned ``l`` and its short string ``s`` exist nowhere and are never written:
an unsigned number of 64 bits whose top bit is set is written as ``S``, in decimal digits.

Strings are names, carried or words, as ``router.model.text`` defines. Those in tables are carried:
they become ``str`` with lone surrogates for octets that are not UTF-8, so that the same octets are
written again; only a translation checks them.

What may never happen: octets make a decoder raise anything but ``DecodeError``.
"""

import math
import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import attrs

from router.errors import DecodeError, MisuseError
from router.model.text import decode_name, encode_text, words
from router.wire.v1_0.types import Byte, Float, Int, Short, Ubyte, Uint, Ushort

MAX_DEPTH: Final = 56
"""Most nested tables and arrays; AMQP sets no bound, our stack does. Less than the 64 of
``router.wire.v1_0.types``, so that a translation of the deepest can be read again."""

Table: TypeAlias = dict[str, Any]


class Seconds(int):
    """A timestamp: seconds since 1970 in UTC, 64 bits, unsigned (§4.2.5.4)."""

    __slots__ = ()


@attrs.frozen
class TableDecimal:
    """A decimal: ``unscaled`` divided by 10 to the power of ``scale`` (§4.2.5.2).

    Attributes:
        scale: decimal places, 0 to 255.
        unscaled: 32 bits, signed, as brokers read it.
    """

    scale: int
    unscaled: int


def decode_shortstr(octets: bytes, at: int, end: int) -> tuple[str, int]:
    """Reads a short string that is carried, and returns it with the offset after it.

    Raises:
        DecodeError: if it ends beyond ``end``.
    """
    if at >= end:
        raise _short(at)
    after = at + 1 + octets[at]
    if after > end:
        raise _short(at)
    return str(octets[at + 1 : after], "utf-8", "surrogateescape"), after


def decode_short_name(octets: bytes, at: int, end: int) -> tuple[str, int]:
    """Reads a short string that is a name, and returns it with the offset after it.

    Raises:
        DecodeError: if it ends beyond ``end``, is not UTF-8, or has a zero octet (§4.2.5.3).
    """
    if at >= end:
        raise _short(at)
    after = at + 1 + octets[at]
    if after > end:
        raise _short(at)
    if (zero := octets.find(b"\0", at + 1, after)) >= 0:
        raise DecodeError(zero, "a short string holds a zero octet")
    return decode_name(octets[at + 1 : after], at + 1), after


def decode_short_words(octets: bytes, at: int, end: int) -> tuple[str, int]:
    """Reads a short string for people, and returns it with the offset after it.

    Raises:
        DecodeError: if it ends beyond ``end``.
    """
    text, after = decode_shortstr(octets, at, end)
    return words(text), after


def encode_shortstr(text: str) -> bytes:
    """Writes a short string.

    Raises:
        MisuseError: if it is longer than 255 octets.
    """
    octets = encode_text(text)
    if len(octets) > 255:
        raise MisuseError(f"a short string of {len(octets)} octets")
    return bytes((len(octets),)) + octets


def decode_longstr(octets: bytes, at: int, end: int) -> tuple[bytes, int]:
    """Reads a long string's octets and returns them with the offset after it.

    Raises:
        DecodeError: if it ends beyond ``end``.
    """
    start, after = _sized(octets, at, end)
    return octets[start:after], after


def encode_longstr(octets: bytes) -> bytes:
    """Writes a long string."""
    return _pack_size(len(octets)) + octets


# --- decoding -------------------------------------------------------------------------------------

_U32 = struct.Struct(">I").unpack_from
_DECIMAL = struct.Struct(">Bi").unpack_from


def _short(at: int) -> DecodeError:
    return DecodeError(at, "a value ends beyond the octets that hold it")


def _sized(octets: bytes, at: int, end: int) -> tuple[int, int]:
    start = at + 4
    if start > end:
        raise _short(at)
    after: int = start + _U32(octets, at)[0]
    if after > end:
        raise DecodeError(at, "a size exceeds the octets that are there")
    return start, after


def _text_value(octets: bytes, at: int, end: int, depth: int) -> tuple[str, int]:
    start, after = _sized(octets, at, end)
    return str(octets[start:after], "utf-8", "surrogateescape"), after


def _octets_value(octets: bytes, at: int, end: int, depth: int) -> tuple[bytes, int]:
    start, after = _sized(octets, at, end)
    return octets[start:after], after


def _void_value(octets: bytes, at: int, end: int, depth: int) -> tuple[None, int]:
    return None, at


def _float_value(octets: bytes, at: int, end: int, depth: int) -> tuple[Float, int]:
    after = at + 4
    if after > end:
        raise _short(at)
    value = Float(struct.unpack_from(">f", octets, at)[0])
    if math.isnan(value):
        value.octets = octets[at:after]
    return value, after


def _decimal_value(octets: bytes, at: int, end: int, depth: int) -> tuple[TableDecimal, int]:
    after = at + 5
    if after > end:
        raise _short(at)
    return TableDecimal(*_DECIMAL(octets, at)), after


def _number(kind: str, form: Callable[[Any], Any]) -> "_Decoder":
    reader = struct.Struct(">" + kind)
    unpack, width = reader.unpack_from, reader.size

    def decode(octets: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
        after = at + width
        if after > end:
            raise _short(at)
        return form(unpack(octets, at)[0]), after

    return decode


def _unknown(letter: int) -> "_Decoder":
    def decode(octets: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
        raise DecodeError(at - 1, f"no field table type has the letter {chr(letter)!r}")

    return decode


_TableDecoder: TypeAlias = Callable[[bytes, int, int], tuple[Table, int]]

_Decoder: TypeAlias = Callable[[bytes, int, int, int], tuple[Any, int]]
"""Arguments: the octets, the offset of the value after its letter, their end, and the depth."""

_LETTERS: Final[dict[str, _Decoder]] = {
    "t": _number("B", bool),
    "b": _number("b", Byte),
    "B": _number("B", Ubyte),
    "s": _number("h", Short),
    "U": _number("h", Short),
    "u": _number("H", Ushort),
    "I": _number("i", Int),
    "i": _number("I", Uint),
    "l": _number("q", int),
    "L": _number("q", int),
    "f": _float_value,
    "d": _number("d", float),
    "D": _decimal_value,
    "S": _text_value,
    "x": _octets_value,
    "T": _number("Q", Seconds),
    "V": _void_value,
}
"""Letter → decoder of values that contain no others."""


def table_decoder(letters: str, *, first_wins: bool = False) -> "_TableDecoder":
    """Returns the function that reads field tables of one version of the protocol.

    The function takes the octets that hold the table, the offset of its size, and the end of the
    available octets; it returns the table and the offset after it, and raises ``DecodeError`` if
    the octets are not a field table.

    Args:
        letters: the types of this version.
        first_wins: of a repeated name the first value is kept; else the last.
    """
    decoders = [_unknown(letter) for letter in range(256)]

    def read_array(octets: bytes, at: int, end: int, depth: int) -> tuple[list[Any], int]:
        if depth >= MAX_DEPTH:
            raise DecodeError(at, f"tables are nested more than {MAX_DEPTH} deep")
        at, after = _sized(octets, at, end)
        items = []
        while at < after:
            item, at = decoders[octets[at]](octets, at + 1, after, depth + 1)
            items.append(item)
        return items, after

    def read_table(octets: bytes, at: int, end: int, depth: int = 0) -> tuple[Table, int]:
        if depth >= MAX_DEPTH:
            raise DecodeError(at, f"tables are nested more than {MAX_DEPTH} deep")
        at, after = _sized(octets, at, end)
        table: Table = {}
        depth += 1
        while at < after:
            start = at + 1
            at = start + octets[at]
            if at >= after:
                raise _short(start - 1)
            name = str(octets[start:at], "utf-8", "surrogateescape")
            value, at = decoders[octets[at]](octets, at + 1, after, depth)
            if not first_wins or name not in table:
                table[name] = value
        return table, after

    known: dict[str, _Decoder] = {**_LETTERS, "A": read_array, "F": read_table}
    for letter in letters:
        decoders[ord(letter)] = known[letter]
    return read_table


decode_table: Final = table_decoder("tbBsUuIilLfdDSxTAFV")
"""Reads a field table. Of a repeated name the last value is kept; the specification leaves that
open (§4.2.5.5)."""


# --- encoding -------------------------------------------------------------------------------------

_pack_size = struct.Struct(">I").pack


def _packer(letter: str, kind: str) -> Callable[[Any], bytes]:
    pack = struct.Struct(">c" + kind).pack
    prefix = letter.encode()

    def encode(value: Any) -> bytes:
        return pack(prefix, value)

    return encode


_PACK_LONG = struct.Struct(">cq").pack


def _encode_long(value: int) -> bytes:
    if -(1 << 63) <= value < 1 << 63:
        return _PACK_LONG(b"l", value)
    return b"S" + encode_longstr(b"%d" % value)


def _encode_float(value: Float) -> bytes:
    if math.isnan(value) and hasattr(value, "octets"):
        return b"f" + value.octets
    return struct.pack(">cf", b"f", value)


def _encode_array(value: list[Any]) -> bytes:
    return b"A" + encode_longstr(b"".join([encode_field(item) for item in value]))


_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    bool: lambda value: b"t\x01" if value else b"t\x00",
    Byte: _packer("b", "b"),
    Ubyte: _packer("B", "B"),
    Short: _packer("s", "h"),
    Ushort: _packer("u", "H"),
    Int: _packer("I", "i"),
    Uint: _packer("i", "I"),
    int: _encode_long,
    Float: _encode_float,
    float: _packer("d", "d"),
    TableDecimal: lambda value: struct.pack(">cBi", b"D", value.scale, value.unscaled),
    str: lambda value: b"S" + encode_longstr(encode_text(value)),
    bytes: lambda value: b"x" + encode_longstr(value),
    Seconds: _packer("T", "Q"),
    list: _encode_array,
    dict: lambda value: b"F" + encode_table(value),
    type(None): lambda value: b"V",
}
"""Python form → encoder of letter and value."""


def encode_field(value: Any) -> bytes:
    """Writes one value of a table or array, its letter first.

    Raises:
        MisuseError: if the value has none of the Python forms, or is out of its form's range.
    """
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        raise MisuseError(f"{type(value).__name__} has no field table type")
    try:
        return encoder(value)
    except (struct.error, OverflowError) as error:
        raise MisuseError(f"{type(value).__name__} cannot be encoded: {error}") from error


def encode_table(table: Table) -> bytes:
    """Writes a field table, its size first.

    Raises:
        MisuseError: if a name is longer than 255 octets, or as of ``encode_field``.
    """
    parts = [encode_shortstr(name) + encode_field(value) for name, value in table.items()]
    return encode_longstr(b"".join(parts))


@attrs.frozen
class TableFormat:
    """The field tables of one version of the protocol.

    Attributes:
        decode: made by ``table_decoder``.
        encode: raises ``MisuseError`` for a value that this version has no type for.
    """

    decode: _TableDecoder
    encode: Callable[[Table], bytes]


TABLES: Final = TableFormat(decode_table, encode_table)
