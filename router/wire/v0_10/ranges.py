"""Sets of command-ids: ranges of serial numbers, never iterated by number (0-10 session).

On the wire a ``sequence-set`` is a size of 2 octets and pairs of 32-bit numbers, first and last.
Command-ids are serial numbers (RFC 1982); inside a session they are extended beyond 32 bits, so
that ordinary comparison orders them. ``unwrap`` finds the long form of a number near a known one.

A peer can name billions of numbers in sixteen octets; code that looks for its own numbers among
them intersects (``among``), at a cost in proportion to its own.
"""

import bisect
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from router.errors import DecodeError
from router.model.condition import INVALID_FIELD

Range: TypeAlias = tuple[int, int]
"""First and last number."""

Ranges: TypeAlias = tuple[Range, ...]
"""A set as on the wire, numbers of 32 bits."""

_PAIR: Final = struct.Struct(">II")
_MODULUS: Final = 1 << 32
_HALF: Final = 1 << 31

MAX_RANGES: Final = 0xFFFF // 8
"""Most pairs that a size of 2 octets can express."""


def unwrap(number: int, near: int) -> int:
    """Extends a 32-bit serial number to the value nearest to ``near``.

    Never below 0: there is no command before the first one.
    """
    distance = (number - near) & (_MODULUS - 1)
    found = near + (distance - _MODULUS if distance >= _HALF else distance)
    return found if found >= 0 else found + _MODULUS


def decode_ranges(octets: bytes, at: int, end: int) -> tuple[Ranges, int]:
    """Reads a set with its size.

    Raises:
        DecodeError: the size is no multiple of 8, or the set ends beyond ``end``; or the ranges are
        not
            ascending, which is a fault of the value (``amqp:invalid-field``).
    """
    if at + 2 > end:
        raise DecodeError(at, "the set ends beyond its octets")
    size = octets[at] << 8 | octets[at + 1]
    start, after = at + 2, at + 2 + size
    if size % 8 or after > end:
        raise DecodeError(at, f"a set of {size} octets")
    found = tuple(_PAIR.iter_unpack(octets[start:after]))
    before = found[0][0] - 1 if found else 0
    for first, last in found:
        is_behind = 0 < (first - before) % _MODULUS < _HALF
        if not is_behind or (last - first) % _MODULUS >= _HALF:
            raise DecodeError(at, f"the range {first}-{last} does not rise", INVALID_FIELD)
        before = last
    return found, after


def encode_ranges(ranges: Sequence[Range]) -> bytes:
    """Encodes a set with its size; numbers may be long ones."""
    pairs = [_PAIR.pack(first % _MODULUS, last % _MODULUS) for first, last in ranges[:MAX_RANGES]]
    return (8 * len(pairs)).to_bytes(2, "big") + b"".join(pairs)


def long_ranges(ranges: Ranges, near: int) -> list[Range]:
    """Extends the numbers of a peer's set; a reversed range is empty."""
    found = []
    for first, last in ranges:
        begin = unwrap(first, near)
        length = (last - first) & (_MODULUS - 1)
        if length < _HALF:
            found.append((begin, begin + length))
    return found


def ranges_of(numbers: Iterable[int]) -> list[Range]:
    """Joins ascending numbers into ranges."""
    found: list[Range] = []
    first = last = -2
    for number in numbers:
        if number == last + 1:
            last = number
            continue
        if last >= 0:
            found.append((first, last))
        first = last = number
    if last >= 0:
        found.append((first, last))
    return found


def among(ranges: Iterable[Range], numbers: Sequence[int]) -> Iterator[int]:
    """Yields those of ``numbers``, which are ascending, that are in a set."""
    for first, last in ranges:
        start = bisect.bisect_left(numbers, first)
        stop = bisect.bisect_right(numbers, last)
        yield from numbers[start:stop]


class RangeSet:
    """A growing set: ascending, disjoint ranges that are not adjacent.

    Attributes:
        ranges: the set, numbers in their long form.
    """

    __slots__ = ("ranges",)

    def __init__(self) -> None:
        self.ranges: list[Range] = []

    def __contains__(self, number: int) -> bool:
        at = bisect.bisect_right(self.ranges, (number, _MODULUS << 32)) - 1
        return at >= 0 and self.ranges[at][1] >= number

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def add(self, first: int, last: int) -> None:
        """Adds a range."""
        ranges = self.ranges
        if ranges and ranges[-1][1] + 1 == first:  # the common case
            ranges[-1] = (ranges[-1][0], last)
            return
        if not ranges or first > ranges[-1][1] + 1:
            ranges.append((first, last))
            return
        low = bisect.bisect_left(ranges, first - 1, key=_last)
        high = bisect.bisect_right(ranges, last + 1, key=_first)
        if low < high:
            first = min(first, ranges[low][0])
            last = max(last, ranges[high - 1][1])
        ranges[low:high] = [(first, last)]

    def remove(self, first: int, last: int) -> None:
        """Removes a range."""
        ranges = self.ranges
        low = bisect.bisect_left(ranges, first, key=_last)
        high = bisect.bisect_right(ranges, last, key=_first)
        if low >= high:
            return
        rest = []
        if ranges[low][0] < first:
            rest.append((ranges[low][0], first - 1))
        if ranges[high - 1][1] > last:
            rest.append((last + 1, ranges[high - 1][1]))
        ranges[low:high] = rest


def _first(each: Range) -> int:
    return each[0]


def _last(each: Range) -> int:
    return each[1]
