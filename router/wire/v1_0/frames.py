"""Frames and protocol headers of AMQP 1.0 (§2.2, §2.3).

A frame::

    +0        +4     +5     +6        +8                +4*doff          +size
    | size(4) | doff | type | channel | extended header | body … payload |
                              (2)       ignored

The size counts everything from its own first octet. A frame without a body is a heartbeat. In a
SASL frame the channel octets are ignored.

A protocol header is the eight octets ``AMQP``, protocol id, major, minor, revision.
"""

import struct
from typing import Final

import attrs

from router.errors import DecodeError, MisuseError
from router.model.condition import FRAMING_ERROR
from router.wire.v1_0.types import Octets

AMQP: Final = 0
"""Frame type of AMQP frames (§2.3.2)."""

SASL: Final = 1
"""Frame type of SASL frames (§5.3.1)."""

HEADER_OCTETS: Final = 8
MIN_MAX_FRAME_OCTETS: Final = 512
"""The smallest max-frame-size that a peer may ask for, and the size of SASL frames (§2.8.19)."""

MAX_FRAME_OCTETS: Final = 0xFFFF_FFFF

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
TLS_HEADER: Final = b"AMQP\x02\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
"""Protocol headers (§2.2, §5.2.1, §5.3.2)."""

HEARTBEAT: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"
"""The empty frame on channel 0 (§2.4.5)."""

_HEADER = struct.Struct(">IBBH")
_pack_header = _HEADER.pack
_unpack_header = _HEADER.unpack_from


@attrs.frozen
class FrameHeader:
    """The fields of a frame header.

    Attributes:
        size: octets of the frame, header included.
        body: offset of the body in the octets read, after the extended header.
        end: offset of the octet after the frame.
        kind: ``AMQP`` or ``SASL``.
        channel: of an AMQP frame.
    """

    size: int
    body: int
    end: int
    kind: int
    channel: int


def frame(channel: int, body: bytes, payload: Octets = b"", kind: int = AMQP) -> bytes:
    """Builds a frame from a performative's octets and its payload (§2.3.1).

    Raises:
        MisuseError: if channel, kind or size do not fit their fields.
    """
    size = len(body) + len(payload) + 8
    try:
        header = _pack_header(size, 2, kind, channel)
    except struct.error as error:
        raise MisuseError(f"frame on channel {channel}: {error}") from error
    return b"".join((header, body, payload))


def read_frame_header(
    octets: Octets, offset: int, end: int, max_octets: int = MAX_FRAME_OCTETS
) -> FrameHeader | None:
    """Reads a frame's header (§2.3.1).

    Args:
        octets: the octets received.
        offset: where the frame begins.
        end: where the octets received end.
        max_octets: the largest frame that we accept; larger ones are refused at once.

    Returns:
        None if the header is not complete yet. Otherwise the header; the frame itself is complete
        if its ``end`` is not beyond ``end``.

    Raises:
        DecodeError: framing-error, if size, DOFF or type violate a rule.
    """
    if end - offset < HEADER_OCTETS:
        return None
    size, doff, kind, channel = _unpack_header(octets, offset)
    if size < HEADER_OCTETS:
        raise DecodeError(offset, f"frame size {size} is less than 8 (§2.3.1)", FRAMING_ERROR)
    if size > max_octets:
        rule = f"frame size {size} exceeds max-frame-size {max_octets} (§2.7.1)"
        raise DecodeError(offset, rule, FRAMING_ERROR)
    if doff < 2:
        raise DecodeError(offset + 4, f"DOFF {doff} is less than 2 (§2.3.1)", FRAMING_ERROR)
    if doff * 4 > size:
        rule = f"DOFF {doff} points beyond the frame's {size} octets (§2.3.1)"
        raise DecodeError(offset + 4, rule, FRAMING_ERROR)
    if kind > SASL:
        raise DecodeError(offset + 5, f"frame type {kind} is not known (§2.3.1)", FRAMING_ERROR)
    return FrameHeader(size, offset + doff * 4, offset + size, kind, channel)
