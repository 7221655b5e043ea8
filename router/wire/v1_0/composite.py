"""Composite types: described lists whose fields have names, and one codec for all (§1.4).

A composite on the wire is a descriptor and a list; the list's items are the fields in order::

    00 | 53 code | c0 size count | field 0 | field 1 | …

A composite is a table here: its code, its record and its ``Field`` rows. ``decode_fields`` and
``encode_composite`` read the table; nothing else knows a field. Rules that hold for every row:

- an absent or null field takes its default, or is refused if mandatory;
- a field that has its default is sent as null, and trailing nulls are not sent;
- a field of type multiple is null, one value or an array of them, and a tuple in the record;
- fields beyond the last known one are refused.

Octets that are not valid AMQP are ``amqp:decode-error``; values that the field's type does not
allow are ``amqp:invalid-field`` (§2.8.15).
"""

import enum
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import attrs

from router.errors import DecodeError, MisuseError
from router.model.condition import INVALID_FIELD
from router.wire.v1_0.types import (
    Array,
    Octets,
    Pairs,
    Symbol,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
    compound_bounds,
    decode_value,
    encode_items,
    encode_value,
)

Reader: TypeAlias = Callable[[Octets, int, int], tuple[Any, int]]
Writer: TypeAlias = Callable[[Any], bytes]

_NULL: Final = 0x40


@attrs.frozen
class Kind:
    """The type of a field.

    Attributes:
        name: the specification's name.
        read: from octets, offset and end returns the record's form and the offset after it.
        write: the inverse, in shortest form.
    """

    name: str
    read: Reader
    write: Writer


@attrs.frozen
class Field:
    """One row of a composite's table.

    Attributes:
        name: the specification's name.
        kind: its type.
        mandatory: null is refused.
        default: what null stands for; () for a field that is multiple.
        attribute: its name in the record; default: ``name`` with underscores.
    """

    name: str
    kind: Kind
    mandatory: bool = False
    default: Any = None
    attribute: str = attrs.field(
        default=attrs.Factory(lambda self: self.name.replace("-", "_"), takes_self=True)
    )


@attrs.frozen(eq=False)
class Composite:
    """A composite type.

    Attributes:
        name: the specification's name.
        code: numeric descriptor.
        record: the class of its values, called with every field by attribute.
        fields: its rows in order.
        symbol: symbolic descriptor.
        prefix: the octets of its descriptor, as sent.
    """

    name: str
    code: int
    record: Callable[..., Any]
    fields: tuple[Field, ...]
    symbol: str = attrs.field(
        default=attrs.Factory(lambda self: f"amqp:{self.name}:list", takes_self=True)
    )
    prefix: bytes = attrs.field(init=False)

    @prefix.default
    def _descriptor_octets(self) -> bytes:
        return b"\x00" + encode_value(Ulong(self.code))


def _invalid(at: int, rule: str) -> DecodeError:
    return DecodeError(at, rule, INVALID_FIELD)


# --- kinds of fields ------------------------------------------------------------------------------


def _of_form(name: str, form: type, load: Callable[[Any], Any], dump: Callable[[Any], Any]) -> Kind:
    def read(octets: Octets, at: int, end: int) -> tuple[Any, int]:
        value, after = decode_value(octets, at, end)
        if type(value) is not form:
            raise _invalid(at, f"is no {name}")
        return load(value), after

    def write(value: Any) -> bytes:
        return encode_value(dump(value))

    return Kind(name, read, write)


def _as_is(value: Any) -> Any:
    return value


BOOLEAN: Final = _of_form("boolean", bool, _as_is, bool)
UBYTE: Final = _of_form("ubyte", Ubyte, int, Ubyte)
USHORT: Final = _of_form("ushort", Ushort, int, Ushort)
UINT: Final = _of_form("uint", Uint, int, Uint)
ULONG: Final = _of_form("ulong", Ulong, int, Ulong)
BINARY: Final = _of_form("binary", bytes, _as_is, bytes)
STRING: Final = _of_form("string", str, _as_is, str)
SYMBOL: Final = _of_form("symbol", Symbol, str, Symbol)
ADDRESS: Final = STRING
"""§3.2.12: of the addresses that a field ``address`` may hold, only strings are defined."""


def one_of(name: str, choices: type[enum.Enum], base: Kind) -> Kind:
    """Makes the kind of a restricted type whose values are enumerated (§1.4)."""

    def read(octets: Octets, at: int, end: int) -> tuple[Any, int]:
        value, after = base.read(octets, at, end)
        try:
            return choices(value), after
        except ValueError:
            raise _invalid(at, f"{value!r} is no {name}") from None

    def write(choice: Any) -> bytes:
        return base.write(choices(choice).value)

    return Kind(name, read, write)


def _symbol_key(key: Any) -> Any:
    return Symbol(key) if type(key) is str else key


def encode_fields(value: Mapping[Any, Any] | Pairs) -> bytes:
    """Encodes a map whose keys are symbols (§2.8.13); keys may be given as str."""
    if isinstance(value, Pairs):
        return encode_value(value)
    return encode_value({_symbol_key(key): item for key, item in value.items()})


def _read_fields(octets: Octets, at: int, end: int) -> tuple[Any, int]:
    value, after = decode_value(octets, at, end)
    if type(value) is not dict:
        raise _invalid(at, "is no map with symbols for keys")
    return value, after


FIELDS: Final = Kind("fields", _read_fields, encode_fields)
"""``fields``, ``node-properties`` and ``filter-set``. Some peers use strings as keys, or ulongs in
annotations, so keys of a dict are not checked."""


def _read_symbols(octets: Octets, at: int, end: int) -> tuple[Any, int]:
    value, after = decode_value(octets, at, end)
    if type(value) is Symbol:
        return (str(value),), after
    if type(value) is Array and value.of is Symbol and not value.descriptors:
        return tuple(map(str, value.items)), after
    raise _invalid(at, "is neither a symbol nor an array of symbols")


def _write_symbols(value: Any) -> bytes:
    return encode_value(Array(Symbol, [Symbol(name) for name in value]))


SYMBOLS: Final = Kind("symbol, multiple", _read_symbols, _write_symbols)


def composite(*tables: Composite) -> Kind:
    """Makes the kind of a field that holds one of these composites."""
    by_descriptor = descriptor_index(*tables)
    by_record = {table.record: table for table in tables}
    name = " or ".join(table.name for table in tables)

    def read(octets: Octets, at: int, end: int) -> tuple[Any, int]:
        descriptor, start = decode_descriptor(octets, at, end)
        table = by_descriptor.get(descriptor)
        if table is None:
            raise _invalid(at, f"is no {name}")
        return decode_fields(table, octets, start, end)

    def write(value: Any) -> bytes:
        table = by_record.get(type(value))
        if table is None:
            raise MisuseError(f"{type(value).__name__} is no {name}")
        return encode_composite(table, value)

    return Kind(name, read, write)


# --- the codec ------------------------------------------------------------------------------------


def descriptor_index(*tables: Composite) -> dict[Any, Composite]:
    """Indexes composites by both of their descriptors, as ``decode_descriptor`` returns them.

    Symbols equal strs and ulongs equal ints in Python, so the keys include the wire type.
    """
    index: dict[Any, Composite] = {table.code: table for table in tables}
    index.update((table.symbol, table) for table in tables)
    return index


def decode_descriptor(octets: Octets, at: int, end: int) -> tuple[int | str | None, int]:
    """Reads the descriptor of a described value (§1.1.2).

    Returns:
        the code of a numeric descriptor, the name of a symbolic one, or None for a reserved one;
        and the offset of the value's constructor.

    Raises:
        DecodeError: if the value is not described (invalid-field) or broken.
    """
    if at >= end:
        raise DecodeError(at, "the value ends beyond the octets that hold it")
    if octets[at] != 0:
        raise _invalid(at, "is not described")
    if at + 2 < end and octets[at + 1] == 0x53:
        return octets[at + 2], at + 3
    descriptor, after = decode_value(octets, at + 1, end)
    if type(descriptor) is Ulong:
        return int(descriptor), after
    if type(descriptor) is Symbol:
        return str(descriptor), after
    return None, after


def list_bounds(octets: Octets, at: int, end: int) -> tuple[int, int, int]:
    """Reads the list constructor of a composite: count, first item, end of the items."""
    if at >= end:
        raise DecodeError(at, "the value ends beyond the octets that hold it")
    code = octets[at]
    if code == 0x45:
        return 0, at + 1, at + 1
    if code in (0xC0, 0xD0):
        return compound_bounds(octets, code, at + 1, end)
    raise _invalid(at, "a composite is not a list (§1.4)")


def decode_fields(table: Composite, octets: Octets, at: int, end: int) -> tuple[Any, int]:
    """Decodes a composite from its list constructor on (§1.4).

    Args:
        table: which composite.
        octets: the buffer that holds it.
        at: offset of the list's constructor, after the descriptor.
        end: end of the available octets.

    Returns:
        the record, and the offset of the octet after it.

    Raises:
        DecodeError: naming composite and field.
    """
    count, at, limit = list_bounds(octets, at, end)
    if count > len(table.fields):
        rule = f"{table.name} has {count} fields, {len(table.fields)} are known"
        raise _invalid(at, rule)
    values = {}
    for index, field in enumerate(table.fields):
        if index >= count:
            value = None
        elif at >= limit:
            raise DecodeError(at, f"{table.name}.{field.name}: the list ends before it")
        elif octets[at] == _NULL:
            value = None
            at += 1
        else:
            try:
                value, at = field.kind.read(octets, at, limit)
            except DecodeError as error:
                rule = f"{table.name}.{field.name}: {error.rule}"
                raise DecodeError(error.offset, rule, error.condition) from None
        if value is None or value == ():
            if field.mandatory:  # an empty array counts as null (§1.4)
                raise _invalid(at, f"{table.name}.{field.name} is mandatory")
            value = field.default
        values[field.attribute] = value
    if at != limit:
        raise DecodeError(at, f"{table.name}: the fields end before the size says")
    return table.record(**values), limit


def encode_composite(table: Composite, record: Any) -> bytes:
    """Encodes a record in shortest form, descriptor included (§1.4).

    Raises:
        MisuseError: if a mandatory field is None or a value does not fit its type.
    """
    items: list[bytes] = []
    filled = 0
    for field in table.fields:
        value = getattr(record, field.attribute)
        if value is None or (not field.mandatory and value == field.default):
            if field.mandatory:
                raise MisuseError(f"{table.name}.{field.name} is mandatory")
            items.append(b"\x40")
            continue
        try:
            items.append(field.kind.write(value))
        except (struct.error, ValueError, TypeError) as error:
            raise MisuseError(f"{table.name}.{field.name}: {error}") from error
        filled = len(items)
    return table.prefix + encode_items(items[:filled])
