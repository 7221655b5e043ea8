"""Field tables (draft 0.9r1, "Field Tables"), and how they carry richer ones.

The draft has five types: ``S`` octets, ``I`` int32, ``D`` decimal, ``T`` seconds, ``F`` table. A
name begins with a letter, ``$`` or ``#``, continues with these, digits and underlines, and has at
most 128 characters. Of two fields with one name the first is kept.

Theory of operation. Between engines a table has 0-9-1's forms (``router.wire.v0_9_1.types``). A
value
without a form here is sent twice: under its own name in the nearest type that programs can read,
and exactly, with all others that have no such form or no valid name, in one string under
``$router``, a field table of 0-9-1. When restored, an exact value is used as long as its readable
twin is unchanged; so a peer that changes a header changes it.

    when sent                                when received
    {n: True, x-y: 1, s: "a"}      ->        {n: I 1, s: S a, $router: S <n: t 1, x-y: l 1>}
"""

import re
from typing import Any, Final

from router.errors import DecodeError, MisuseError
from router.model.text import decode_text, encode_text
from router.wire.v0_9_1 import types
from router.wire.v0_9_1.types import Seconds, Table, TableDecimal, TableFormat, table_decoder
from router.wire.v1_0.types import Byte, Float, Int, Short, Ubyte, Uint, Ushort

EXACT: Final = "$router"
"""Field with the values that the others cannot hold."""

CHILDREN: Final = "$children"
"""Header for child contents between engines (``router.wire.v0_9r1.content``)."""

_NAME: Final = re.compile(r"[A-Za-z$#][A-Za-z0-9_$#]{0,127}")

_INTEGERS: Final = (bool, Byte, Ubyte, Short, Ushort, Uint, int)

_NOTHING: Final = object()
"""Marks a value without a readable form."""

decode_fields: Final = table_decoder("SIDTF", first_wins=True)
"""Reads a field table with any names."""


def decode_table(octets: bytes, at: int, end: int) -> tuple[Table, int]:
    """Reads a field table of a method and returns it with the offset after it.

    Raises:
        DecodeError: the octets are not a field table, or a name in it is invalid.
    """
    table, after = decode_fields(octets, at, end)
    name = _unlawful(table)
    if name is not None:
        raise DecodeError(at, f"the field name {name[:40]!r} is not lawful")
    return table, after


def _unlawful(table: Table) -> str | None:
    for name, value in table.items():
        if not _NAME.fullmatch(name):
            return name
        inner = _unlawful(value) if type(value) is dict else None
        if inner is not None:
            return inner
    return None


def encode_table(table: Table) -> bytes:
    """Writes a field table whose values have the five types' forms.

    Raises:
        MisuseError: it has others, or an invalid name.
    """
    _check(table)
    return types.encode_table(table)


def _check(table: Table) -> None:
    for name, value in table.items():
        if not _NAME.fullmatch(name):
            raise MisuseError(f"the field name {name[:40]!r} is not lawful")
        if type(value) is dict:
            _check(value)
        elif type(value) not in (str, Int, TableDecimal, Seconds):
            raise MisuseError(f"{type(value).__name__} has no field table type")


TABLES: Final = TableFormat(decode_table, encode_table)


# --- richer tables --------------------------------------------------------------------------------


def narrow(table: Table) -> Table:
    """Converts a table in 0-9-1's forms to one that can be sent."""
    made: Table = {}
    exact: Table = {}
    for name, value in table.items():
        readable = _readable_field(name, value)
        if readable is not _NOTHING:
            made[name] = readable
        is_octets = name == CHILDREN and type(value) in (str, bytes)
        if not is_octets and not _is_same(readable, value):
            exact[name] = value
    if exact:
        made[EXACT] = decode_text(types.encode_table(exact))
    return made


def widen(table: Table) -> Table:
    """Reverses ``narrow`` for a table from a peer."""
    exact = _exact(table.get(EXACT))
    if exact is None:
        return table
    made = {name: value for name, value in table.items() if name != EXACT}
    for name, value in exact.items():
        readable = _readable_field(name, value)
        if readable is _NOTHING or (name in made and _is_same(readable, made[name])):
            made[name] = value
    return made


def _exact(value: Any) -> Table | None:
    if type(value) is not str:
        return None
    octets = encode_text(value)
    try:
        table, after = types.decode_table(octets, 0, len(octets))
    except DecodeError:
        return None
    return table if after == len(octets) and table else None


def _readable_field(name: str, value: Any) -> Any:
    if name == EXACT or not _NAME.fullmatch(name):
        return _NOTHING
    return _readable(value)


def _readable(value: Any) -> Any:
    kind = type(value)
    if kind in (str, Int, TableDecimal, Seconds):
        return value
    if kind is bytes:
        return decode_text(value)
    if kind in _INTEGERS:
        return Int(value) if -(1 << 31) <= value < 1 << 31 else str(int(value))
    if kind in (float, Float):
        return repr(float(value))
    if kind is dict:
        fields = {name: _readable_field(name, item) for name, item in value.items()}
        return {name: item for name, item in fields.items() if item is not _NOTHING}
    return _NOTHING


def _is_same(one: Any, other: Any) -> bool:
    """Returns whether two values are the same octets on the wire."""
    if one is _NOTHING or type(one) is not type(other):
        return False
    return types.encode_field(one) == types.encode_field(other)
