"""Conversion of header values between the types of 0-10 and those of AMQP 1.0.

Most forms are the same Python values on both sides (``router.wire.v0_10.types``). This module has
the differences; the table for people is in docs/translation-0-10.md.
"""

import decimal
import uuid
from typing import Any, Final

from router.errors import TranslationError
from router.model.text import decode_text, encode_text, is_text
from router.wire.v0_10.types import (
    CHAR,
    DEC32,
    DEC64,
    FLOAT,
    MAX_DEPTH,
    STR8_LATIN,
    STR8_UTF16,
    STR16_LATIN,
    STR16_UTF16,
    Exact,
    Seconds,
    Table,
)
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
    decode_value,
)

MAX_TIMESTAMP_SECONDS: Final = ((1 << 63) - 1) // 1000
"""The last second that AMQP 1.0's timestamp of milliseconds can hold."""

_SAME: Final = frozenset(
    {bool, Byte, Ubyte, Short, Ushort, Int, Uint, int, Ulong, float, bytes, type(None)}
    | {Char, uuid.UUID}
)
"""Forms that both sides share, value by value."""


def to_v1_0(value: Any) -> Any:
    """Converts a value to AMQP 1.0's form; every value has one."""
    kind = type(value)
    if kind in _SAME or kind is Float:
        return value
    if kind is str:
        return value if is_text(value) else encode_text(value)
    if kind is Seconds:
        return Timestamp(value * 1000) if value <= MAX_TIMESTAMP_SECONDS else Ulong(value)
    if kind is list:
        return [to_v1_0(item) for item in value]
    if kind is dict:
        return {to_v1_0(name): to_v1_0(item) for name, item in value.items()}
    assert kind is Exact
    return _exact_to_v1_0(value)


def _exact_to_v1_0(value: Exact) -> Any:
    octets = value.octets
    match value.code:
        case _ if value.code == CHAR:
            return Char(octets.decode("latin-1"))
        case _ if value.code in (STR8_LATIN, STR16_LATIN):
            return octets.decode("iso-8859-15")
        case _ if value.code in (STR8_UTF16, STR16_UTF16):
            try:
                return octets.decode("utf-16-be")
            except UnicodeDecodeError:
                return octets
        case _ if value.code == FLOAT:
            return decode_value(b"\x72" + octets)[0]
        case _ if value.code in (DEC32, DEC64):
            exponent = -octets[0]
            number = int.from_bytes(octets[1:], "big", signed=True)
            digits = tuple(map(int, str(abs(number))))
            return str(decimal.Decimal((int(number < 0), digits, exponent)))
        case _:
            return octets


def from_v1_0(value: Any, field: str, depth: int = 1) -> Any:
    """Converts a value of AMQP 1.0 to a form of 0-10.

    Args:
        value: the value.
        field: its place, for the error.
        depth: number of enclosing maps and lists.

    Raises:
        TranslationError: a key inside it is longer than 255 octets, two keys inside it become one
            name, or it is nested too deep.
    """
    kind = type(value)
    if kind in _SAME or kind is str:
        return value
    converter = _FROM_V1_0.get(kind)
    if converter is not None:
        return converter(value)
    if depth >= MAX_DEPTH:
        raise TranslationError(field, f"values are nested more than {MAX_DEPTH} deep")
    if kind is list or kind is tuple:
        return [from_v1_0(item, field, depth + 1) for item in value]
    if kind is Array:
        return _array(value, field, depth)
    if kind is Described:
        return {
            "descriptor": from_v1_0(value.descriptor, field, depth + 1),
            "value": from_v1_0(value.value, field, depth + 1),
        }
    if kind is dict or kind is Pairs:
        return table_from_v1_0(value, field, depth)
    raise TranslationError(field, f"{kind.__name__} has no type in AMQP 0-10")


def _array(value: Array, field: str, depth: int) -> Any:
    items = [from_v1_0(item, field, depth + 1) for item in value.items]
    if not value.descriptors:
        return items
    return {
        "descriptors": [from_v1_0(one, field, depth + 1) for one in value.descriptors],
        "items": items,
    }


def table_from_v1_0(value: Any, field: str, depth: int = 1) -> Table:
    """Converts a map to one of 0-10; keys that are no names become the text of their value.

    Raises:
        TranslationError: as of ``from_v1_0``.
    """
    table: Table = {}
    for key, item in value.items():
        name = name_from_v1_0(key, field)
        if name in table:
            raise TranslationError(field, f"two keys become the one name {name!r}")
        table[name] = from_v1_0(item, f"{field}[{name[:40]}]", depth + 1)
    return table


def name_from_v1_0(key: Any, field: str) -> str:
    """Converts a map's key to one of 0-10.

    Raises:
        TranslationError: it is longer than 255 octets.
    """
    if isinstance(key, str):
        name = str(key)
    elif type(key) is bytes:
        name = decode_text(key)
    else:
        plain = from_v1_0(key, field)
        name = plain if isinstance(plain, str) else repr(plain)
    if len(encode_text(name)) > 255:
        raise TranslationError(field, f"the name {name[:40]!r}… is longer than 255 octets")
    return name


def _from_timestamp(value: int) -> Any:
    return Seconds(value // 1000) if value >= 0 else int(value)


def _from_float(value: Float) -> Any:
    octets = getattr(value, "octets", None)
    return value if octets is None else Exact(FLOAT, bytes(octets))


# --- decimals: IEEE 754-2008 §3.5.2, binary integer significand -----------------------------------

_EXPONENT_BIAS: Final = {4: 101, 8: 398, 16: 6176}
_EXPONENT_BITS: Final = {4: 8, 8: 10, 16: 14}
_DIGITS: Final = {4: 7, 8: 16, 16: 34}


def _from_decimal(octets: bytes) -> str:
    """Returns a decimal of AMQP 1.0 as text; 0-10's have no exponents."""
    width = len(octets)
    bits = int.from_bytes(octets, "big")
    total, exponent_bits = width * 8, _EXPONENT_BITS[width]
    sign = bits >> total - 1
    combination = bits >> total - 6 & 0x1F
    if combination >= 0x1E:
        return "NaN" if combination == 0x1F else "-Infinity" if sign else "Infinity"
    digits_bits = total - 1 - exponent_bits
    coefficient = bits & (1 << digits_bits) - 1
    if combination >> 3 == 3:
        digits_bits -= 2
        coefficient = bits & (1 << digits_bits) - 1 | 1 << digits_bits + 2
    if coefficient >= 10 ** _DIGITS[width]:
        coefficient = 0  # beyond the precision: read as zero
    exponent = (bits >> digits_bits & (1 << exponent_bits) - 1) - _EXPONENT_BIAS[width]
    return str(decimal.Decimal((sign, decimal.Decimal(coefficient).as_tuple().digits, exponent)))


_FROM_V1_0: Final[dict[type, Any]] = {
    Timestamp: _from_timestamp,
    Symbol: str,
    Float: _from_float,
    Decimal32: _from_decimal,
    Decimal64: _from_decimal,
    Decimal128: _from_decimal,
}
"""Forms that only AMQP 1.0 has → the nearest of 0-10."""
