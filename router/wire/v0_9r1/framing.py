"""Protocol header and frames (draft 0.9r1, "Protocol Header", "General Frame Format").

A frame::

    type(1) cycle(1) channel(2) size(4) payload end(1)=0xCE

``cycle`` counts the frames of a peer that supports fail-over; others send 0, and so do we. A
received value is ignored. ``size`` counts the payload alone. The specification limits once "frames"
and once "the frame payload" to the negotiated size: our output follows the first reading, our input
limit the second.

The grammar gives the content header's class and weight one octet each and a heartbeat no size; the
drawings, the limits and the other versions say two octets and a complete frame, and so do we.
"""

import enum
import struct
from typing import Final

from router.wire.v0_9_1.framing import Framing

PROTOCOL_HEADER: Final = b"AMQP\x01\x01\x09\x01"

VERSION: Final = (9, 1)
"""In ``connection.start``: the header's last two octets."""


class FrameType(enum.IntEnum):
    """Types of frames; any other one ends the connection at once."""

    METHOD = 1
    HEADER = 2
    BODY = 3
    OOB_METHOD = 4
    OOB_HEADER = 5
    OOB_BODY = 6
    TRACE = 7
    HEARTBEAT = 8


OUT_OF_BAND: Final = frozenset({FrameType.OOB_METHOD, FrameType.OOB_HEADER, FrameType.OOB_BODY})
"""Frames whose payload uses another transport, which is not supported."""

FRAMING: Final = Framing(struct.Struct(">BxHI"), counts_overhead=False)
