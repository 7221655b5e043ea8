"""The classes whose methods carry messages: basic, file and stream, and their properties.

Each class has properties of its own, in an order of its own. Between engines a message has the
header of class basic (``router.wire.v0_9r1.content``), so that a published file can be received by
consumers of class basic, and the reverse. A property that basic lacks, a file's name, is a header
there, ``$filename``; properties that a class lacks are not sent to its consumers.

    basic   content-type content-encoding headers delivery-mode priority correlation-id reply-to
            expiration message-id timestamp type user-id app-id
    file    content-type content-encoding headers priority reply-to message-id filename timestamp
    stream  content-type content-encoding headers priority timestamp

Properties are moved as octets; only a file's name requires decoding the table of headers.
"""

from typing import Final

import attrs

from router.errors import DecodeError, MisuseError
from router.wire.v0_9_1 import content as contents
from router.wire.v0_9_1.types import encode_longstr, encode_shortstr, encode_table
from router.wire.v0_9r1 import optional as o
from router.wire.v0_9r1.content import HEAD
from router.wire.v0_9r1.methods import BASIC_CLASS
from router.wire.v0_9r1.tables import decode_fields

FILENAME: Final = "$filename"
"""Header for a file's name in class basic."""

_FILENAME_FIELD: Final = encode_shortstr(FILENAME) + b"S"
_MARK: Final = FILENAME.encode()

_FIXED: Final = {"delivery_mode": 1, "priority": 1, "timestamp": 8}
"""Size of the properties that are neither short strings nor the table."""


@attrs.frozen
class Kind:
    """One of these classes.

    Attributes:
        class_id: its number.
        mark: bits of a content's marks (``router.wire.v0_9_1.content``) for this class.
        properties: in the order of their flags, the highest bit first.
    """

    class_id: int
    mark: int
    properties: tuple[str, ...]


BASIC: Final = Kind(BASIC_CLASS, 0, tuple(contents.FLAGS)[:-1])
FILE: Final = Kind(
    o.FILE_CLASS,
    2,
    (
        "content_type",
        "content_encoding",
        "headers",
        "priority",
        "reply_to",
        "message_id",
        "filename",
        "timestamp",
    ),
)
STREAM: Final = Kind(
    o.STREAM_CLASS,
    4,
    ("content_type", "content_encoding", "headers", "priority", "timestamp"),
)

_OF_MARK: Final = {kind.mark: kind for kind in (BASIC, FILE, STREAM)}
_MARKS: Final = FILE.mark | STREAM.mark


def kind_of(content: bytes) -> Kind:
    """Returns the class with which a content was published."""
    return _OF_MARK[content[0] & _MARKS]


# --- properties as octets -------------------------------------------------------------------------


def _split(kind: Kind, properties: bytes) -> dict[str, bytes]:
    """Returns each property's octets, by name.

    Raises:
        DecodeError: flags or properties are invalid.
    """
    flags, at = contents.flags_of(properties, 0, len(properties))
    if flags & ((1 << (16 - len(kind.properties))) - 1):
        raise DecodeError(0, "content header: a property flag without a property is set")
    found: dict[str, bytes] = {}
    for place, name in enumerate(kind.properties):
        if not flags & 1 << (15 - place):
            continue
        after = at + _octets_of(name, properties, at)
        if after > len(properties):
            raise DecodeError(at, f"{name}: the property ends beyond its frame")
        found[name] = properties[at:after]
        at = after
    if at != len(properties):
        raise DecodeError(at, "content header: octets follow the last property")
    return found


def _octets_of(name: str, octets: bytes, at: int) -> int:
    fixed = _FIXED.get(name)
    if fixed is not None:
        return fixed
    if name == "headers":
        return 4 + int.from_bytes(octets[at : at + 4], "big")
    return 1 + int.from_bytes(octets[at : at + 1], "big")


def _join(kind: Kind, found: dict[str, bytes]) -> bytes:
    flags = 0
    parts = [b""]
    for place, name in enumerate(kind.properties):
        value = found.get(name)
        if value is not None:
            flags |= 1 << (15 - place)
            parts.append(value)
    parts[0] = flags.to_bytes(2, "big")
    return b"".join(parts)


def to_basic(kind: Kind, header: bytes) -> bytes:
    """Returns the header of a content of a class as encoded between engines.

    Args:
        kind: the class.
        header: of a content without children, as on the wire.

    Raises:
        DecodeError: its properties are invalid.
    """
    found = _split(kind, header[12:])
    filename = found.pop("filename", None)
    if filename is not None:
        field = _FILENAME_FIELD + encode_longstr(filename[1:])
        fields = field + found.get("headers", bytes(4))[4:]  # of two, the first one is kept
        found["headers"] = encode_longstr(fields)
    body_octets = HEAD.unpack_from(header)[2]
    return contents.encode_content_header(body_octets, _join(BASIC, found))


def from_basic(kind: Kind, header: bytes, body_octets: int) -> bytes:
    """Returns the header of a content for a class.

    Args:
        kind: the class.
        header: as encoded between engines.
        body_octets: size of the body.

    Raises:
        DecodeError: its properties are invalid.
    """
    found = _split(BASIC, header[12:])
    if kind is FILE and _MARK in found.get("headers", b""):
        _take_filename(found)
    return HEAD.pack(kind.class_id, 0, body_octets) + _join(kind, found)


def _take_filename(found: dict[str, bytes]) -> None:
    """Converts the header for a file's name to a property, if it fits."""
    octets = found["headers"]
    headers, _ = decode_fields(octets, 0, len(octets))
    name = headers.pop(FILENAME, None)
    if type(name) is not str:
        return
    try:
        found["filename"] = encode_shortstr(name)
    except MisuseError:
        return
    if headers:
        found["headers"] = encode_table(headers)
    else:
        del found["headers"]
