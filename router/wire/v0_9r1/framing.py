"""Protocol header and frames (draft 0.9r1, "Protocol Header", "General Frame Format").

A frame::

    type(1) cycle(1) channel(2) size(4) payload end(1)=0xCE

``cycle`` counts the frames of a peer that fails connections over; a peer that does not sends 0, and
so do we. What comes in it is never looked at. ``size`` counts the payload alone. The document
bounds once "frames" and once "the frame payload" by the agreed size: what we send keeps to the
first reading, what we take to the second.

The grammar gives the content header's class and weight an octet each and a heartbeat no size; the
drawings, the limits and the other versions say two octets and a whole frame, and so do we.
"""

import enum
import struct
from typing import Final

from router.wire.v0_9_1.framing import Framing

PROTOCOL_HEADER: Final = b"AMQP\x01\x01\x09\x01"

VERSION: Final = (9, 1)
"""As ``connection.start`` tells it: the header's last two octets."""


class FrameType(enum.IntEnum):
    """Types of frames; any other one ends the connection without a word."""

    METHOD = 1
    HEADER = 2
    BODY = 3
    OOB_METHOD = 4
    OOB_HEADER = 5
    OOB_BODY = 6
    TRACE = 7
    HEARTBEAT = 8


OUT_OF_BAND: Final = frozenset({FrameType.OOB_METHOD, FrameType.OOB_HEADER, FrameType.OOB_BODY})
"""Frames whose payload travels elsewhere, by a transport that nobody has agreed upon here."""

FRAMING: Final = Framing(struct.Struct(">BxHI"), counts_overhead=False)
