"""Frames (RFC 006 §2.2.4, §3.1.1).

A frame is a size and that many octets, the last of which is 0xCE. The size has two forms::

    size(2), 0 to 0xFFFE              command 0xCE
    0xFFFF size(4), 0xFFFF and more   command 0xCE

The size includes the end octet but not itself. Either form may hold any size; the short one is
written wherever it fits. Message octets are outside of frames: they follow HANDLE SEND, HANDLE
NOTIFY and HANDLE PREPARE, as many as its fragment-size says, without a size or end of their own.
"""

import struct
from typing import Final

from router.wire.fast.commands import Command, encode_command

START: Final = b"\x80\x01"
"""The first octets of a client: protocol-id 128, protocol-version 1 (§3.2.2)."""

PROTOCOL_ID: Final = 128
VERSION: Final = 1

END: Final = b"\xce"
END_OCTET: Final = 0xCE

LONG_SIZE: Final = 0xFFFF
"""Marks that a size of four octets follows."""

FIRST_FRAME_MAX: Final = 4096
"""Octets of the largest frame before CONNECTION TUNE (§3.2.3-5)."""

MIN_FRAME_MAX: Final = 1024
"""The smallest frame-max that may be requested (§3.2.5)."""

SIZE: Final = struct.Struct(">H")
LONG: Final = struct.Struct(">HI")


def frame(command: Command) -> bytes:
    """Encodes the frame of a command."""
    return frame_of(encode_command(command))


def frame_of(octets: bytes) -> bytes:
    """Builds the frame of an encoded command."""
    size = len(octets) + 1
    if size < LONG_SIZE:
        return SIZE.pack(size) + octets + END
    return LONG.pack(LONG_SIZE, size) + octets + END
