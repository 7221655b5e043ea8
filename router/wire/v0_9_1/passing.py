"""Contents that leave as they came: their frames, made without a look at what they say.

Each function has a compiled twin.
"""

from typing import Final

from router.errors import DecodeError
from router.wire.v0_9_1 import content as contents
from router.wire.v0_9_1.content import HEADER_OCTETS, MORE_FLAGS
from router.wire.v0_9_1.framing import OVERHEAD_OCTETS, content_frames

_KNOWN_LIMIT: Final = 1024
"""Words of properties that were found sound and are remembered, so that a stream of messages alike
is looked at once."""

_known: set[bytes] = set()


def is_sound(header: bytes) -> bool:
    """Tells whether the properties of a content header keep to their format, in its usual form."""
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
    """Makes the frames of a content that leaves as it is.

    Args:
        content: as ``router.wire.v0_9_1.content`` draws it.
        method: the method frame that goes before; its channel is theirs.
        max_payload_octets: size of the largest payload of a frame.
        refused: flags of properties with which it may not leave as it is.

    Returns:
        a method frame, a header frame and, unless the body is empty, a body frame; None: it is
        broken, does not fit into that, or has a property that is refused.
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
