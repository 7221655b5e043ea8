"""The Python forms of AMQP 1.0's types (§1.6).

Decoding and encoding are inverse to each other: the type of the Python value is the
type on the wire, so a decoded value encodes to the same value again (in the shortest form, which
may differ from the received form)::

    null      None           ubyte    Ubyte        float       Float       binary    bytes
    boolean   bool           ushort   Ushort       double      float       string    str
    uuid      uuid.UUID      uint     Uint         decimal32   Decimal32   symbol    Symbol
    char      Char           ulong    Ulong        decimal64   Decimal64   list      list
    timestamp Timestamp      byte     Byte         decimal128  Decimal128  map       dict, Pairs
                             short    Short                                array     Array
                             int      Int                                  described Described
                             long     int

A map becomes a dict, unless a dict could not hold it: keys that cannot be hashed (list, map,
array, described), keys that Python takes for equal and AMQP does not (uint 1, long 1 and true;
symbol and string), and floating-point and uuid keys (NaN and -0.0; and uuids whose hashes all
collide are easily made, which would let a peer choose how long a map takes). Such a map becomes
``Pairs``, in order. Two identical keys are refused (§1.6.23), by their encoding.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import attrs

Octets: TypeAlias = bytes | bytearray | memoryview


class Ubyte(int):
    """8 bits, unsigned (§1.6.3)."""

    __slots__ = ()


class Ushort(int):
    """16 bits, unsigned (§1.6.4)."""

    __slots__ = ()


class Uint(int):
    """32 bits, unsigned (§1.6.5)."""

    __slots__ = ()


class Ulong(int):
    """64 bits, unsigned (§1.6.6)."""

    __slots__ = ()


class Byte(int):
    """8 bits, signed (§1.6.7)."""

    __slots__ = ()


class Short(int):
    """16 bits, signed (§1.6.8)."""

    __slots__ = ()


class Int(int):
    """32 bits, signed (§1.6.9)."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970 in UTC, 64 bits, signed (§1.6.17)."""

    __slots__ = ()


class Float(float):
    """IEEE 754 binary32 (§1.6.11).

    Attributes:
        octets: as received; kept only for a NaN, whose payload Python would change.
    """

    __slots__ = ("octets",)
    octets: bytes


class Char(str):
    """One Unicode character (§1.6.16)."""

    __slots__ = ()


class Symbol(str):
    """A name from a constrained domain, in ASCII (§1.6.21)."""

    __slots__ = ()


class Decimal32(bytes):
    """IEEE 754 decimal32, binary integer significand, as its 4 octets (§1.6.13)."""

    __slots__ = ()


class Decimal64(bytes):
    """IEEE 754 decimal64, binary integer significand, as its 8 octets (§1.6.14)."""

    __slots__ = ()


class Decimal128(bytes):
    """IEEE 754 decimal128, binary integer significand, as its 16 octets (§1.6.15)."""

    __slots__ = ()


class Pairs(tuple[tuple[Any, Any], ...]):
    """A map that no dict can hold, as its keys and values in order (see the module)."""

    __slots__ = ()

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Iterates over keys and values, as of a dict."""
        return iter(self)


@attrs.frozen
class Described:
    """A value with a descriptor, which tells what the value stands for (§1.1.2)."""

    descriptor: Any
    value: Any


def _as_tuple(items: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(items)


@attrs.frozen
class Array:
    """Values of one type (§1.6.24).

    Attributes:
        of: the Python form of the items' type, e.g. ``Symbol``; ``dict`` for maps.
        items: the items; without their descriptors if the array has any.
        descriptors: those of the element constructor, outermost first.
    """

    of: type
    items: tuple[Any, ...] = attrs.field(converter=_as_tuple)
    descriptors: tuple[Any, ...] = ()
