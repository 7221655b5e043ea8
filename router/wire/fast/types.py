"""Strings and field tables (RFC 006 §3.1.1).

A short string has a length of one octet, is UTF-8 and has no zero octet; a long string has a length
of *two* octets and any content. A field table is a long string of entries::

    table:  octets(2)  { name: size(1) octets | letter(1) value }*

The specification of 0.7c0 leaves a table's content open; the next revision, 0.7d0, defines it, so
it is *inferred* here. Its letters, with their Python forms::

    S long string    bytes        I signed, 32 bits     int
    D decimal        TableDecimal T seconds, 32 bits    Seconds

Of two entries of one name the first one is kept (0.8a2).

Short strings of commands are names (``router.model.text``); in the head of a message they are
carried, and in a server's text about a message. What may never happen: octets make a decoder raise
anything but ``DecodeError``.
"""

import struct
from collections.abc import Callable
from typing import Final, TypeAlias

import attrs

from router.errors import DecodeError, MisuseError
from router.model.text import decode_name, decode_text, encode_text, words

MAX_LONG_OCTETS: Final = 0xFFFF
"""Largest size of a long string, and so of a table."""


class Seconds(int):
    """A time: seconds since 1970 in UTC, 32 bits, unsigned."""

    __slots__ = ()


@attrs.frozen
class TableDecimal:
    """A decimal: ``unscaled`` divided by 10 to the power of ``scale``.

    Attributes:
        scale: decimal places, 0 to 255.
        unscaled: 32 bits, signed.
    """

    scale: int
    unscaled: int


TableValue: TypeAlias = bytes | int | TableDecimal | Seconds
Table: TypeAlias = dict[str, TableValue]

ReadShort: TypeAlias = Callable[[bytes, int, int], tuple[str, int]]
"""Reads a short string and returns it with the offset after it."""

_DECIMAL: Final = struct.Struct(">Bi")
_INT: Final = struct.Struct(">i")


def _cut(at: int) -> DecodeError:
    return DecodeError(at, "a field ends beyond its frame (§3.1.1)")


def decode_short(octets: bytes, at: int, end: int) -> tuple[str, int]:
    """Reads a short string and returns it with the offset after it.

    Raises:
        DecodeError: it ends beyond ``end``, is not UTF-8, or has a zero octet.
    """
    after = _end_of_short(octets, at, end)
    text = decode_name(octets[at + 1 : after], at + 1)
    if "\0" in text:
        raise DecodeError(at, "a short string holds a zero octet (§3.1.1)")
    return text, after


def decode_carried(octets: bytes, at: int, end: int) -> tuple[str, int]:
    """Reads a short string with any content, and returns it with the offset after it.

    Raises:
        DecodeError: it ends beyond ``end``.
    """
    after = _end_of_short(octets, at, end)
    return decode_text(octets[at + 1 : after]), after


def decode_words(octets: bytes, at: int, end: int) -> tuple[str, int]:
    """Reads a short string for people, and returns it with the offset after it.

    Raises:
        DecodeError: it ends beyond ``end``.
    """
    text, after = decode_carried(octets, at, end)
    return words(text), after


def _end_of_short(octets: bytes, at: int, end: int) -> int:
    if at >= end:
        raise _cut(at)
    after = at + 1 + octets[at]
    if after > end:
        raise _cut(at)
    return after


def fits_short(text: str) -> bool:
    """Returns whether a text fits a short string."""
    if "\0" in text:
        return False
    if len(text) <= 63:
        return True
    return len(text) <= 255 and len(text.encode()) <= 255


def encode_short(text: str) -> bytes:
    """Writes a short string.

    Raises:
        MisuseError: it does not fit.
    """
    octets = encode_text(text)
    if len(octets) > 255 or b"\0" in octets:
        raise MisuseError(f"a short string of {len(octets)} octets, or with a zero octet")
    return bytes((len(octets),)) + octets


def encode_carried(text: str) -> bytes:
    """Writes a short string that was read by ``decode_carried``."""
    octets = encode_text(text)
    return bytes((len(octets),)) + octets


def cut_short(text: str) -> str:
    """Shortens a text for people to fit a short string."""
    return words(text).replace("\0", " ").encode()[:255].decode("utf-8", "ignore")


def decode_long(octets: bytes, at: int, end: int) -> tuple[bytes, int]:
    """Reads a long string and returns it with the offset after it.

    Raises:
        DecodeError: it ends beyond ``end``.
    """
    if at + 2 > end:
        raise _cut(at)
    after = at + 2 + (octets[at] << 8 | octets[at + 1])
    if after > end:
        raise _cut(at)
    return octets[at + 2 : after], after


def encode_long(octets: bytes) -> bytes:
    """Writes a long string.

    Raises:
        MisuseError: it is longer than 65,535 octets.
    """
    if len(octets) > MAX_LONG_OCTETS:
        raise MisuseError(f"a long string of {len(octets)} octets")
    return len(octets).to_bytes(2, "big") + octets


def decode_table(
    octets: bytes, at: int, end: int, read_name: ReadShort = decode_short
) -> tuple[Table, int]:
    """Reads a field table and returns it with the offset after it.

    Args:
        octets: the buffer that holds it.
        at: the offset where it begins.
        end: end of the available octets.
        read_name: reads the names of its entries.

    Raises:
        DecodeError: it, or an entry, ends beyond its bounds, or a letter is unknown.
    """
    if at + 2 > end:
        raise _cut(at)
    start = at + 2
    stop = start + (octets[at] << 8 | octets[at + 1])
    if stop > end:
        raise _cut(at)
    table: Table = {}
    while start < stop:
        name, start = read_name(octets, start, stop)
        value, start = _decode_value(octets, start, stop)
        table.setdefault(name, value)
    return table, stop


def _decode_value(octets: bytes, at: int, end: int) -> tuple[TableValue, int]:
    if at >= end:
        raise _cut(at)
    letter = octets[at]
    at += 1
    if letter == 0x53:  # S
        return decode_long(octets, at, end)
    width = _WIDTHS.get(letter)
    if width is None:
        raise DecodeError(at - 1, f"a table has no letter {letter:#04x} (0.7d0)")
    after = at + width
    if after > end:
        raise _cut(at)
    if letter == 0x49:  # I
        return _INT.unpack_from(octets, at)[0], after
    if letter == 0x54:  # T
        return Seconds(int.from_bytes(octets[at:after], "big")), after
    return TableDecimal(*_DECIMAL.unpack_from(octets, at)), after


_WIDTHS: Final = {0x49: 4, 0x54: 4, 0x44: 5}
"""Letter → octets of its value, for I, T and D."""


def encode_table(table: Table) -> bytes:
    """Writes a field table.

    Raises:
        MisuseError: it is larger than 65,535 octets, or a name or value does not fit.
    """
    parts = []
    for name, value in table.items():
        parts.append(encode_short(name))
        parts.append(_encode_value(value))
    return encode_long(b"".join(parts))


def _encode_value(value: TableValue) -> bytes:
    if isinstance(value, bytes):
        return b"S" + encode_long(value)
    if isinstance(value, TableDecimal):
        return b"D" + _DECIMAL.pack(value.scale, value.unscaled)
    if isinstance(value, Seconds):
        return b"T" + value.to_bytes(4, "big")
    if not -(1 << 31) <= value < 1 << 31:
        raise MisuseError(f"{value} does not fit the letter I")
    return b"I" + _INT.pack(value)
