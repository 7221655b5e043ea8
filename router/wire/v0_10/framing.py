"""Protocol header, frames, segments and assemblies (0-10 §4).

No public text has the frame header; its layout is that of Qpid's brokers and clients, which agree.

A frame::

    flags(1) segment-type(1) size(2) 0(1) track(1) channel(2) 0(4) payload

``size`` counts the complete frame. The low half of ``flags``: 8 first segment, 4 last segment of an
assembly; 2 first frame, 1 last frame of a segment; its high quarter is the version of frames, 0.
The low half of ``track`` is the track: 0 controls, 1 commands.

An assembly is one control, or one command with the header and body segments that follow it; a
segment is split into frames if it does not fit one. Assemblies of different channels, and a control
and a command of one channel, may be interleaved.
"""

import struct
from typing import Final

PROTOCOL_HEADER: Final = b"AMQP\x01\x01\x00\x0a"

FRAME: Final = struct.Struct(">BBHBBH4x")
FRAME_OCTETS: Final = FRAME.size
"""Octets of a frame besides its payload."""

MIN_FRAME_MAX: Final = 4096
"""The frame size that every peer accepts, also before negotiation (MIN-MAX-FRAME-SIZE)."""

MAX_FRAME_MAX: Final = 0xFFFF
"""The greatest size that two octets can express."""

FIRST_SEGMENT, LAST_SEGMENT, FIRST_FRAME, LAST_FRAME = 8, 4, 2, 1
WHOLE: Final = FIRST_SEGMENT | LAST_SEGMENT | FIRST_FRAME | LAST_FRAME
"""Flags of an assembly that is one frame."""

CONTROL, COMMAND, HEADER, BODY = 0, 1, 2, 3
"""Segment types; the first two are tracks as well."""


def whole_frame(kind: int, channel: int, payload: bytes) -> bytes:
    """Encodes a control, or a command without content, that fits one frame."""
    return FRAME.pack(WHOLE, kind, FRAME_OCTETS + len(payload), 0, kind, channel) + payload


def segment_frames(
    flags: int, kind: int, track: int, channel: int, payload: bytes, *, frame_max: int
) -> list[bytes]:
    """Encodes the frames of a segment.

    Args:
        flags: first and last segment.
        kind: of the segment.
        track: 0 or 1.
        channel: its channel.
        payload: the complete segment.
        frame_max: octets of the largest frame that the peer accepts.
    """
    max_payload_octets = frame_max - FRAME_OCTETS
    size = len(payload)
    if size <= max_payload_octets:
        flags |= FIRST_FRAME | LAST_FRAME
        return [FRAME.pack(flags, kind, FRAME_OCTETS + size, 0, track, channel), payload]
    parts = []
    for start in range(0, size, max_payload_octets):
        chunk = payload[start : start + max_payload_octets]
        marks = flags | (FIRST_FRAME if not start else 0)
        if start + max_payload_octets >= size:
            marks |= LAST_FRAME
        parts.append(FRAME.pack(marks, kind, FRAME_OCTETS + len(chunk), 0, track, channel))
        parts.append(chunk)
    return parts


def assembly(
    kind: int, channel: int, head: bytes, frame_max: int, content: tuple[bytes, bytes] | None = None
) -> bytes:
    """Encodes the frames of a control or command, and of its content, header and body, if any.

    An empty body is sent as a segment, too, so that the peer does not wait for one.
    """
    if content is None:
        if len(head) <= frame_max - FRAME_OCTETS:
            return whole_frame(kind, channel, head)
        flags = FIRST_SEGMENT | LAST_SEGMENT
        return b"".join(segment_frames(flags, kind, kind, channel, head, frame_max=frame_max))
    header, body = content
    parts = segment_frames(FIRST_SEGMENT, kind, kind, channel, head, frame_max=frame_max)
    parts += segment_frames(0, HEADER, kind, channel, header, frame_max=frame_max)
    parts += segment_frames(LAST_SEGMENT, BODY, kind, channel, body, frame_max=frame_max)
    return b"".join(parts)
