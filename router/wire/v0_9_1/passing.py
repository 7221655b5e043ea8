"""Passing contents on unchanged: their frames, without decoding properties.

Each function has a compiled twin.
"""

from typing import Final

from router.errors import DecodeError
from router.wire.v0_9_1 import content as contents
from router.wire.v0_9_1.content import HEADER_OCTETS, MORE_FLAGS
from router.wire.v0_9_1.framing import OVERHEAD_OCTETS, content_frames

_KNOWN_LIMIT: Final = 1024
"""Cached words of properties that are valid, so that a stream of similar messages is checked
once."""

_known: set[bytes] = set()


def is_sound(header: bytes) -> bool:
    """Returns whether a content header's properties are valid and have one word of flags."""
    if len(header) < HEADER_OCTETS or header[13] & MORE_FLAGS:
        return False
    octets = header[12:]
    if octets in _known:
        return True
    try:
        contents.header_properties(header)
    except DecodeError:
        return False
    if len(_known) >= _KNOWN_LIMIT:
        _known.clear()
    _known.add(octets)
    return True


def pass_on(
    content: bytes, *, method: bytes, max_payload_octets: int, refused: int
) -> bytes | None:
    """Encodes the frames of an unchanged content.

    Args:
        content: in the format of ``router.wire.v0_9_1.content``.
        method: the preceding method frame; the frames have its channel.
        max_payload_octets: size of the largest payload of a frame.
        refused: flags of properties that need a change.

    Returns:
        a method frame, a header frame and, unless the body is empty, a body frame; None: it is
        invalid, does not fit, or has a refused property.
    """
    try:
        layout = contents.content_layout(content)
    except DecodeError:
        return None
    header = content[layout.route_end : layout.body_start]
    if (
        layout.flags & refused
        or len(header) > max_payload_octets
        or layout.body_octets > max_payload_octets
    ):
        return None
    if not is_sound(header):
        return None
    channel = method[1] << 8 | method[2]
    body = content[layout.body_start :]
    return method + content_frames(channel, header, body, max_payload_octets + OVERHEAD_OCTETS)
