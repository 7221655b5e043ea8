"""Places: where the record of a stored message stands in the log.

    bit  63                        32                         0
         +--------------------------+--------------------------+
         | number of the segment    | octet of the row in it   |
         +--------------------------+--------------------------+

Places grow in the order of writing, so a queue is read in the order of its places. A place is also
the name of its message: damage elsewhere never moves it to another message.
"""

import struct
from array import array
from typing import Final, NewType, cast

from router.journal.block import HEADER
from router.journal.bulk import shortcuts
from router.journal.record import ROW

Place = NewType("Place", int)
"""64 bits, as drawn above."""

BEGINNING: Final = Place(0)
"""Before every message."""

_POSITION_BITS: Final = 32
_POSITIONS: Final = (1 << _POSITION_BITS) - 1


def place_of(segment: int, position: int) -> Place:
    """Names the message whose row begins at octet ``position`` of a segment."""
    return Place(segment << _POSITION_BITS | position)


def places_of(segment: int, positions: "bytes | array[int]") -> list[Place]:
    """Names messages of a segment, whose rows begin at ``positions``, u32 each."""
    if shortcuts is not None:
        return cast(list[Place], shortcuts.place_list(positions, segment))
    return [place_of(segment, each) for each in memoryview(positions).cast("B").cast("I")]


def place_octets(segment: int, positions: bytes) -> bytes:
    """Names messages likewise, u64 each."""
    if shortcuts is not None:
        return shortcuts.place_octets(positions, segment)
    places = places_of(segment, positions)
    return struct.pack(f"<{len(places)}Q", *places)


def segment_of(place: Place) -> int:
    """Returns the number of the segment."""
    return place >> _POSITION_BITS


def position_of(place: Place) -> int:
    """Returns the octet of the row in its segment."""
    return place & _POSITIONS


def row_position(block_offset: int, row: int) -> int:
    """Returns the octet of a segment at which row number ``row`` of a block begins."""
    return block_offset + HEADER.size + row * ROW.size
