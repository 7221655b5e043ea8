"""Conversion of header values between field tables and AMQP 1.0's type system.

Most forms are the same Python values on both sides (``router.wire.v0_9_1.types``). This module has
the differences; the table for people is in docs/translation-0-9-1.md.
"""

import decimal
import uuid
from typing import Any, Final

from router.errors import TranslationError
from router.model.text import decode_text, encode_text, is_text
from router.wire.v0_9_1.types import MAX_DEPTH, Seconds, Table, TableDecimal
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
)

MAX_TIMESTAMP_SECONDS: Final = ((1 << 63) - 1) // 1000
"""The last second that AMQP 1.0's timestamp of milliseconds can hold."""

_SAME: Final = frozenset(
    {bool, Byte, Ubyte, Short, Ushort, Int, Uint, int, Float, float, bytes, type(None)}
)
"""Forms that both sides share, value by value."""


def to_v1_0(value: Any) -> Any:
    """Converts a field table's value to AMQP 1.0's form; every value has one."""
    kind = type(value)
    if kind in _SAME:
        return value
    if kind is str:
        return value if is_text(value) else encode_text(value)
    if kind is Seconds:
        if value <= MAX_TIMESTAMP_SECONDS:
            return Timestamp(value * 1000)
        return Ulong(value)
    if kind is TableDecimal:
        return decimal64_of(value)
    if kind is list:
        return [to_v1_0(item) for item in value]
    return {to_v1_0(name): to_v1_0(item) for name, item in value.items()}


def from_v1_0(value: Any, field: str, depth: int = 1) -> Any:
    """Converts a value of AMQP 1.0 to a field table's form.

    Args:
        value: the value.
        field: its place, for the error.
        depth: number of enclosing tables and arrays.

    Raises:
        TranslationError: a name inside it is longer than 255 octets, two keys inside it become
            one name, or it is nested too deep.
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
    raise TranslationError(field, f"{kind.__name__} has no field table type")


def _array(value: Array, field: str, depth: int) -> Any:
    items = [from_v1_0(item, field, depth + 1) for item in value.items]
    if not value.descriptors:
        return items
    return {
        "descriptors": [from_v1_0(one, field, depth + 1) for one in value.descriptors],
        "items": items,
    }


def table_from_v1_0(value: "dict[Any, Any] | Pairs", field: str, depth: int = 1) -> Table:
    """Converts a map to a field table; keys that are no names become the text of their value.

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
    """Converts a map's key to a name of a field table.

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


# --- numbers --------------------------------------------------------------------------------------


def _from_ulong(value: int) -> Any:
    # RabbitMQ reads "l" as signed, so a larger number must not be written as one.
    return int(value) if value < 1 << 63 else str(int(value))


def _from_timestamp(value: int) -> Any:
    return Seconds(value // 1000) if value >= 0 else int(value)


# --- decimals: IEEE 754-2008 §3.5.2, binary integer significand -----------------------------------

_EXPONENT_BIAS: Final = {4: 101, 8: 398, 16: 6176}
_EXPONENT_BITS: Final = {4: 8, 8: 10, 16: 14}


def decimal64_of(value: TableDecimal) -> Decimal64:
    """Encodes a table's decimal exactly: 10 digits and 255 places always fit decimal64."""
    sign = 1 if value.unscaled < 0 else 0
    exponent = _EXPONENT_BIAS[8] - value.scale
    return Decimal64((sign << 63 | exponent << 53 | abs(value.unscaled)).to_bytes(8, "big"))


def _from_decimal(octets: bytes) -> Any:
    """Reads a decimal of AMQP 1.0; as text where a table's decimal cannot hold it exactly."""
    width = len(octets)
    bits = int.from_bytes(octets, "big")
    total, exponent_bits = width * 8, _EXPONENT_BITS[width]
    sign = bits >> total - 1
    combination = bits >> total - 6 & 0x1F
    if combination >= 0x1E:
        if combination == 0x1E:
            return "-Infinity" if sign else "Infinity"
        return "NaN"
    digits_bits = total - 1 - exponent_bits
    if combination >> 3 == 3:
        digits_bits -= 2
        coefficient = bits & (1 << digits_bits) - 1 | 1 << digits_bits + 2
        if width == 16 or coefficient >= 10 ** {4: 7, 8: 16}[width]:
            coefficient = 0  # beyond the precision: IEEE 754-2008 §3.5.2 reads it as zero
    else:
        coefficient = bits & (1 << digits_bits) - 1
        if width == 16 and coefficient >= 10**34:
            coefficient = 0
    exponent = (bits >> digits_bits & (1 << exponent_bits) - 1) - _EXPONENT_BIAS[width]
    signed = -coefficient if sign else coefficient
    if -255 <= exponent <= 0 and -(1 << 31) <= signed < 1 << 31 and (coefficient or not sign):
        return TableDecimal(-exponent, signed)
    return str(decimal.Decimal((sign, decimal.Decimal(coefficient).as_tuple().digits, exponent)))


_FROM_V1_0: Final[dict[type, Any]] = {
    Ulong: _from_ulong,
    Timestamp: _from_timestamp,
    Symbol: str,
    Char: str,
    uuid.UUID: lambda value: value.urn,
    Decimal32: _from_decimal,
    Decimal64: _from_decimal,
    Decimal128: _from_decimal,
}
"""Forms that only AMQP 1.0 has → the nearest of a field table."""
