"""Positions in a message, as ``received`` states them (§3.4.1): a section, and an octet in it.

A message is a run of sections, each a described value (§1.3, §3.2)::

    +------+------------------+-------------------------+
    | 0x00 | descriptor value | the section's own value |        octet 0 is the first of these
    +------+------------------+-------------------------+

The size of a value follows from its constructor's upper half: no octets (0x4), 1, 2, 4, 8 or 16
(0x5 to 0x9), or as many as a size of one (0xA, 0xC, 0xE) or four octets (0xB, 0xD, 0xF) says.
"""

from typing import Final

from router.links.recovery import START
from router.model.outcome import Received

_FIXED: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_SIZE_OCTETS: Final = {0xA: 1, 0xC: 1, 0xE: 1, 0xB: 4, 0xD: 4, 0xF: 4}
_DESCRIBED: Final = 0x00


def position_at_end(payload: bytes) -> Received:
    """Returns the first position of a message that is behind ``payload``, its beginning.

    A payload that is no AMQP 1.0 message has no sections: then nothing of it counts as received.
    """
    section, start = 0, 0
    while start < len(payload):
        end = _end_of_value(payload, start)
        if end is None:
            return START
        if end > len(payload):
            return Received(section, len(payload) - start)
        section, start = section + 1, end
    return Received(section, 0)


def octets_before(payload: bytes, position: Received) -> int | None:
    """Returns how many octets of a message lie before a position; None: it has no such position."""
    start = 0
    for _ in range(position.section_number):
        end = _end_of_value(payload, start)
        if end is None or end > len(payload):
            return None
        start = end
    octets = start + position.section_offset
    return octets if octets <= len(payload) else None


def _end_of_value(octets: bytes, start: int) -> int | None:
    """Returns where a value ends (behind the octets if it is incomplete); None: it is no value."""
    if start >= len(octets):
        return start + 1
    constructor = octets[start]
    if constructor == _DESCRIBED:
        descriptor = _end_of_value(octets, start + 1)
        return None if descriptor is None else _end_of_value(octets, descriptor)
    kind = constructor >> 4
    if kind in _FIXED:
        return start + 1 + _FIXED[kind]
    width = _SIZE_OCTETS.get(kind)
    if width is None:
        return None
    size = octets[start + 1 : start + 1 + width]
    if len(size) < width:
        return len(octets) + 1
    return start + 1 + width + int.from_bytes(size, "big")
