"""Protocol headers and frames (0-9-1 §4.2.2-4.2.7).

A frame::

    type(1) channel(2) size(4) payload end(1)=0xCE

``size`` counts the payload alone; frame-max counts all of it, so a frame has room for frame-max
less 8 octets. Only bodies are split; methods and content headers must fit one frame. A heartbeat
is a whole frame of type 8 on channel 0 without payload (errata items 12 and 29).
"""

import struct
from collections.abc import Iterator
from typing import Final

import attrs

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8

END: Final = b"\xce"
END_OCTET: Final = 0xCE

FRAME: Final = struct.Struct(">BHI")
OVERHEAD_OCTETS: Final = 8
"""Octets of a frame besides its payload."""

MIN_FRAME_MAX: Final = 4096
"""The frame size that every peer accepts, also before a limit is negotiated (frame-min-size)."""

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
PROTOCOL_HEADER_0_9: Final = b"AMQP\x01\x01\x00\x09"
PROTOCOL_HEADER_0_8: Final = b"AMQP\x01\x01\x08\x00"
PROTOCOL_HEADER_0_8_AS_PRINTED: Final = b"AMQP\x01\x01\x09\x01"
"""Header of some clients of 0-8; the same octets are the header of the draft 0-9 revision 1, so
``router.wire.detect`` decides between them."""


@attrs.frozen
class Framing:
    """The frame format of one version of the protocol.

    Attributes:
        head: packs type, channel and payload size, the beginning of a frame.
        counts_overhead: the negotiated frame-max limits complete frames; else their payloads.
        head_octets: size of ``head``.
        overhead_octets: octets of a frame that are not its payload.
        heartbeat: the complete frame.
    """

    head: struct.Struct
    counts_overhead: bool = True
    head_octets: int = attrs.field(init=False)
    overhead_octets: int = attrs.field(init=False)
    heartbeat: bytes = attrs.field(init=False)

    @head_octets.default
    def _count_head(self) -> int:
        return self.head.size

    @overhead_octets.default
    def _count_overhead(self) -> int:
        return self.head.size + len(END)

    @heartbeat.default
    def _make_heartbeat(self) -> bytes:
        return self.frame(HEARTBEAT, 0, b"")

    def frame(self, kind: int, channel: int, payload: bytes) -> bytes:
        """Encodes a frame."""
        return self.head.pack(kind, channel, len(payload)) + payload + END

    def content_frames(self, channel: int, header: bytes, body: bytes, frame_max: int) -> bytes:
        """Encodes the frames of a content header and its body, in chunks that fit ``frame_max``."""
        size = len(body)
        max_payload_octets = frame_max - self.overhead_octets
        pack = self.head.pack
        if size <= max_payload_octets:
            head = pack(HEADER, channel, len(header))
            if not size:
                return head + header + END
            return b"".join((head, header, END, pack(BODY, channel, size), body, END))
        parts = [pack(HEADER, channel, len(header)), header, END]
        parts += self.body_frames(channel, body, frame_max)
        return b"".join(parts)

    def body_frames(self, channel: int, body: bytes, frame_max: int) -> Iterator[bytes]:
        """Yields the frames of a body, in chunks that fit ``frame_max``; none if it is empty."""
        max_payload_octets = frame_max - self.overhead_octets
        for start in range(0, len(body), max_payload_octets):
            yield self.frame(BODY, channel, body[start : start + max_payload_octets])


FRAMING: Final = Framing(FRAME)
frame: Final = FRAMING.frame
content_frames: Final = FRAMING.content_frames
