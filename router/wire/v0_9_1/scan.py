"""Reads runs of contents of three frames each, which are nearly all that a peer sends.

It has no rules of its own: a run ends, and is left to the general path, at the first frame that is
not exactly a method frame of the requested kind, a content header's and, unless the body is empty,
one body frame. Each function has a compiled twin.
"""

import struct
from typing import Final

from router.wire.v0_9_1.content import BASIC_CLASS, FLAGS, HEADER_OCTETS, MORE_FLAGS
from router.wire.v0_9_1.framing import BODY, END_OCTET, FRAME, HEADER, METHOD
from router.wire.v0_9_1.names import DIRECT_REPLIES
from router.wire.v0_9_1.passing import is_sound
from router.wire.v0_9_1.types import encode_shortstr

_CONTENT_HEAD: Final = struct.Struct(">BHIHHQH").unpack_from
"""Frame header, class, weight, body size and first flags of a content header's frame."""
_CONTENT_HEAD_OCTETS: Final = 21

_EXPIRATION: Final = FLAGS["expiration"]
_REPLY_TO: Final = FLAGS["reply_to"]
_DIRECT_REPLIES: Final = encode_shortstr(DIRECT_REPLIES)
_PUBLISHED_LOOKED_AT: Final = _EXPIRATION | FLAGS["user_id"]
"""Properties of a publish that must be read before it is handed on."""


def scan_publishes(
    octets: bytes, at: int, end: int, *, method: bytes, prefix: bytes, limit: int, body_limit: int
) -> tuple[list[bytes], int]:
    """Reads publishes with the same method frame, and without properties that must be read.

    Their properties are validated all the same, for the later readers.

    Args:
        octets: frames.
        at: offset of the first frame.
        end: end of the received octets.
        method: the method frame.
        prefix: first octets of the contents (``content.content_prefix``).
        limit: octets of the largest payload of a frame.
        body_limit: octets of the largest body.

    Returns:
        their contents, and the offset where it stopped.
    """
    contents: list[bytes] = []
    number = method[1] << 8 | method[2]
    lead, width, content_head, body = _NOTHING_KNOWN
    while at < end:
        if not octets.startswith(lead, at):
            if not octets.startswith(method, at):
                break
            known = _look_at(
                octets, at, at + len(method), end, number=number, limit=limit, prefix=prefix
            )
            if known is None or known[3] > body_limit:
                break
            lead, width, content_head, body = known
        body_start = at + width
        body_end = body_start + body
        if body_end >= end or octets[body_end] != END_OCTET:
            break
        contents.append(content_head + octets[body_start:body_end])
        at = body_end + 1
    return contents, at


def scan_deliveries(
    octets: bytes, at: int, end: int, *, head: bytes, number: int, limit: int
) -> tuple[list[tuple[int, bytes, bool]], int]:
    """Reads deliveries to one consumer.

    Args:
        octets: frames.
        at: offset of the first frame.
        end: end of the received octets.
        head: first octets of the payload of their method frames, up to the delivery tag.
        number: their channel.
        limit: octets of the largest payload of a frame.

    Returns:
        tag and content of each, and whether its ttl or earlier attempts must be read; and the
        offset where it stopped.
    """
    found: list[tuple[int, bytes, bool]] = []
    start = bytes((METHOD, number >> 8, number & 255))
    tag_at = 7 + len(head)
    while octets.startswith(start, at) and octets.startswith(head, at + 7):
        method_end = at + 7 + int.from_bytes(octets[at + 3 : at + 7], "big")
        header = method_end + 1
        if end - header <= _CONTENT_HEAD_OCTETS or method_end < at + tag_at + 11:
            break
        kind, its_number, size, class_id, weight, body, flags = _CONTENT_HEAD(octets, header)
        header_end = header + 7 + size
        body_end = header_end + 8 + body if body else header_end
        if (
            kind != HEADER
            or its_number != number
            or class_id != BASIC_CLASS
            or weight
            or not HEADER_OCTETS <= size <= limit
            or flags & MORE_FLAGS
            or method_end - at - 7 > limit
            or body > limit
            or body_end >= end
            or octets[method_end] != END_OCTET
            or octets[header_end] != END_OCTET
            or octets[body_end] != END_OCTET
            or (body and FRAME.unpack_from(octets, header_end + 1) != (BODY, number, body))
        ):
            break
        route = octets[at + tag_at + 9 : method_end]
        key_at = 1 + route[0]
        if key_at >= len(route) or key_at + 1 + route[key_at] != len(route):
            break
        redelivered = octets[at + tag_at + 8] & 1
        content = b"".join(
            (
                b"\x01" if redelivered else b"\x00",
                route,
                octets[header + 7 : header_end],
                octets[header_end + 8 : body_end] if body else b"",
            )
        )
        tag = int.from_bytes(octets[at + tag_at : at + tag_at + 8], "big")
        found.append((tag, content, bool(redelivered or flags & _EXPIRATION)))
        at = body_end + 1
    return found, at


_Known = tuple[bytes, int, bytes, int]
"""All of a publish up to its body, which the next one may repeat: method frame, header frame and
head of the body's frame; the offset of the body in it; the content's prefix; size of the body.
Without a body it ends, and the body begins, at the header frame's last octet."""

_NOTHING_KNOWN: Final[_Known] = (b"\0", 0, b"", 0)
"""No frame begins with type 0."""


def _look_at(
    octets: bytes, at: int, start: int, end: int, *, number: int, limit: int, prefix: bytes
) -> _Known | None:
    """Parses one publish, whose content header's frame is at ``start``; None: leave it."""
    if end - start <= _CONTENT_HEAD_OCTETS:
        return None
    kind, its_number, size, class_id, weight, body, flags = _CONTENT_HEAD(octets, start)
    header_end = start + 7 + size
    if (
        kind != HEADER
        or its_number != number
        or class_id != BASIC_CLASS
        or weight
        or not HEADER_OCTETS <= size <= limit
        or header_end >= end
        or octets[header_end] != END_OCTET
        or flags & _PUBLISHED_LOOKED_AT
        or not is_sound(octets[start + 7 : header_end])
        or (flags & _REPLY_TO and _DIRECT_REPLIES in octets[start + 7 : header_end])
    ):
        return None
    content_head = prefix + octets[start + 7 : header_end]
    if not body:
        return octets[at : header_end + 1], header_end - at, content_head, 0
    body_start = header_end + 8
    if body_start > end or FRAME.unpack_from(octets, header_end + 1) != (BODY, number, body):
        return None
    return octets[at:body_start], body_start - at, content_head, body
