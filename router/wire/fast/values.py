"""Conversion of header values between field tables and AMQP 1.0's type system."""

import uuid
from typing import Any, Final

from router.wire.fast.types import MAX_LONG_OCTETS, Seconds, TableDecimal, TableValue
from router.wire.v1_0.types import Char, Decimal64, Int, Symbol, Timestamp

_EXPONENT_BIAS: Final = 398
_DIGITS: Final = (1 << 53) - 1


def to_v1_0(value: TableValue) -> Any:
    """Converts a table's value to AMQP 1.0's form; every value has one."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if isinstance(value, Seconds):
        return Timestamp(value * 1000)
    if isinstance(value, TableDecimal):
        return decimal64_of(value)
    return Int(value)


def decimal64_of(value: TableDecimal) -> Decimal64:
    """Encodes a table's decimal exactly (IEEE 754-2008 §3.5.2, binary significand)."""
    sign = 1 if value.unscaled < 0 else 0
    exponent = _EXPONENT_BIAS - value.scale
    return Decimal64((sign << 63 | exponent << 53 | abs(value.unscaled)).to_bytes(8, "big"))


def _from_decimal64(value: Decimal64) -> TableDecimal | None:
    bits = int.from_bytes(value, "big")
    if bits >> 61 & 3 == 3:
        return None
    scale = _EXPONENT_BIAS - (bits >> 53 & 0x3FF)
    unscaled = bits & _DIGITS
    if not 0 <= scale <= 255 or unscaled >= 1 << 31:
        return None
    found = TableDecimal(scale, -unscaled if bits >> 63 else unscaled)
    return found if decimal64_of(found) == value else None


def from_v1_0(value: Any) -> tuple[TableValue | None, bool]:
    """Converts a value of AMQP 1.0 to a table's.

    Returns:
        the nearest value, None if there is none; and whether ``to_v1_0`` restores the original.
    """
    kind = type(value)
    if kind is str:
        return _fitting(value.encode()), True
    if kind is Int:
        return int(value), True
    if kind is Timestamp:
        seconds, rest = divmod(int(value), 1000)
        if 0 <= seconds < 1 << 32:
            return Seconds(seconds), not rest
        return str(int(value)).encode(), False
    if kind is Decimal64:
        found = _from_decimal64(value)
        return found, found is not None
    if kind is bytes:
        return _fitting(value), type(to_v1_0(value)) is bytes
    return _near(value), False


def _near(value: Any) -> TableValue | None:
    """Returns an approximate value, for people and for programs that read text."""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, int):
        return int(value) if -(1 << 31) <= value < 1 << 31 else str(int(value)).encode()
    if isinstance(value, float):
        return repr(float(value)).encode()
    if isinstance(value, Symbol | Char):
        return _fitting(str(value).encode())
    if isinstance(value, uuid.UUID):
        return value.urn.encode()
    return None


def _fitting(octets: bytes) -> bytes | None:
    return octets if len(octets) <= MAX_LONG_OCTETS else None
