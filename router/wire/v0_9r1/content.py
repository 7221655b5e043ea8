"""Contents (draft 0.9r1, "Content Framing", "Structured Content").

A content header, in its frame::

    class(2)=6 weight(2) body-size(8) flags(2) properties

``weight`` is the number of child contents, each of which is a content of its own; they follow the
header and precede the body, to any depth::

    [header weight=2] [header weight=0 [body]] [header weight=1 [header weight=0]] [body]

Between engines a message has 0-9-1's form (``router.wire.v0_9_1.content``), with its header's class
and weight as in 0-9-1. The properties of class basic are the same except the last, which the draft
lacks. Child contents become one string among the headers, ``$children``, so that they pass through
every protocol with headers, and are frames again at the next peer of this one::

    children:  { octets(4) header children body }*

where ``header`` gives, by weight and body-size, how many children and how much of a body follow.
"""

import struct
from typing import Final

import attrs

from router.errors import DecodeError
from router.model.text import decode_text, encode_text
from router.wire.v0_9_1 import content as contents
from router.wire.v0_9_1.content import FLAGS, Properties
from router.wire.v0_9r1.framing import FRAMING, FrameType
from router.wire.v0_9r1.methods import BASIC_CLASS
from router.wire.v0_9r1.tables import CHILDREN, decode_fields, encode_table, narrow, widen

MAX_DEPTH: Final = 16
"""Most nested contents; the specification sets no bound, our stack does."""

HEAD: Final = struct.Struct(">HHQ")
"""Class, weight and body size."""

HEADER_OCTETS: Final = contents.HEADER_OCTETS

_SIZE: Final = struct.Struct(">I")
_HEADERS: Final = FLAGS["headers"]
_CLUSTER_ID: Final = FLAGS["cluster_id"]
_MARK: Final = CHILDREN.encode()


@attrs.frozen
class Content:
    """A content as on the wire.

    Attributes:
        header: the payload of its header frame.
    """

    header: bytes
    children: "tuple[Content, ...]"
    body: bytes


# --- headers --------------------------------------------------------------------------------------


def read_properties(header: bytes) -> Properties:
    """Decodes the properties of a header, with the exact values of richer tables.

    Raises:
        DecodeError: names the invalid property.
    """
    found = contents.decode_properties(header, 12, len(header), decode_fields)
    if found.cluster_id is not None:
        raise DecodeError(12, "content header: a property flag without a property is set")
    if found.headers is not None:
        found.headers = widen(found.headers)
    return found


def write_properties(properties: Properties) -> bytes:
    """Encodes properties; values without a form in the draft are added in another form.

    Raises:
        MisuseError: a property does not fit its type.
    """
    if properties.headers is not None:
        properties = attrs.evolve(properties, headers=narrow(properties.headers))
        encode_table(properties.headers or {})
    return contents.encode_properties(properties)


def is_plain(header: bytes) -> bool:
    """Returns whether 0-9-1 and the draft would encode a header alike."""
    return not (header[12] << 8 | header[13]) & (_HEADERS | _CLUSTER_ID)


# --- children -------------------------------------------------------------------------------------


def fold(root: Content) -> bytes:
    """Builds the header of a message between engines, children included.

    Raises:
        DecodeError: the properties of a content with children, or of one of these, are invalid.
    """
    _, weight, body_octets = HEAD.unpack_from(root.header)
    if not weight:
        properties = contents.plain_header(root.header)[12:]
        return contents.encode_content_header(body_octets, properties)
    found = contents.decode_properties(root.header, 12, len(root.header), decode_fields)
    headers = dict(found.headers or {})
    headers.pop(CHILDREN, None)
    for child in root.children:
        _check(child)
    headers[CHILDREN] = decode_text(b"".join(map(_pack, root.children)))
    found.headers = headers
    return contents.encode_content_header(body_octets, contents.encode_properties(found))


def _check(content: Content) -> None:
    """Checks that the properties of a content, and of those in it, are valid."""
    contents.decode_properties(content.header, 12, len(content.header), decode_fields)
    for child in content.children:
        _check(child)


def unfold(header: bytes, body: bytes) -> Content:
    """Extracts the children from a message's header; invalid ones stay there."""
    properties = header[12:]
    children: tuple[Content, ...] = ()
    if _MARK in properties:
        children, properties = _take_children(properties)
    return Content(HEAD.pack(BASIC_CLASS, len(children), len(body)) + properties, children, body)


def _take_children(properties: bytes) -> tuple[tuple[Content, ...], bytes]:
    try:
        found = contents.decode_properties(properties, 0, len(properties), decode_fields)
        headers = dict(found.headers or {})
        packed = headers.pop(CHILDREN, None)
        if type(packed) is not str:
            return (), properties
        children = unpack(encode_text(packed))
    except DecodeError:
        return (), properties
    found.headers = headers or None
    return children, contents.encode_properties(found)


def _pack(content: Content) -> bytes:
    header = content.header
    return b"".join((_SIZE.pack(len(header)), header, *map(_pack, content.children), content.body))


def unpack(octets: bytes) -> tuple[Content, ...]:
    """Decodes children as encoded between engines.

    Raises:
        DecodeError: they are invalid, or nested too deep.
    """
    found = []
    at = 0
    while at < len(octets):
        child, at = _unpack(octets, at, 1)
        found.append(child)
    if len(found) > 0xFFFF:
        raise DecodeError(0, "more children than a weight can count")
    return tuple(found)


def _unpack(octets: bytes, at: int, depth: int) -> tuple[Content, int]:
    if depth > MAX_DEPTH:
        raise DecodeError(at, f"contents are nested more than {MAX_DEPTH} deep")
    start = at + _SIZE.size
    if start > len(octets):
        raise DecodeError(at, "a child content ends before its header")
    end = start + _SIZE.unpack_from(octets, at)[0]
    if end > len(octets) or end - start < HEADER_OCTETS:
        raise DecodeError(at, "a child content has no header")
    header = octets[start:end]
    class_id, weight, body_octets = HEAD.unpack_from(header)
    if class_id != BASIC_CLASS:
        raise DecodeError(start, f"a child content of class {class_id}")
    children = []
    for _ in range(weight):
        child, end = _unpack(octets, end, depth + 1)
        children.append(child)
    after = end + body_octets
    if after > len(octets):
        raise DecodeError(end, "a child content is shorter than its body")
    return Content(header, tuple(children), octets[end:after]), after


# --- frames ---------------------------------------------------------------------------------------


def frames(channel: int, content: Content, frame_max: int) -> bytes:
    """Encodes the frames of a content, in chunks that fit ``frame_max``."""
    if not content.children:
        return FRAMING.content_frames(channel, content.header, content.body, frame_max)
    parts = [FRAMING.frame(FrameType.HEADER, channel, content.header)]
    parts += (frames(channel, child, frame_max) for child in content.children)
    parts += FRAMING.body_frames(channel, content.body, frame_max)
    return b"".join(parts)


def largest_header(content: Content) -> int:
    """Returns the size of the largest header of a content and its children."""
    return max(len(content.header), *(largest_header(child) for child in content.children), 0)
