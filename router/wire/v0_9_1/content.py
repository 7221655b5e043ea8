"""Messages: the properties of class basic, and the encoding of messages between engines.

A content header, inside a header frame (0-9-1 §4.2.6.1)::

    class(2)=60 weight(2)=0 body-size(8) flags(2) properties

The highest bit of ``flags`` stands for the first property; values follow in order, without tags,
for the bits that are set. Bit 0 announces a further word of flags, before the first value; this
class has 14 properties, so bit 1 and all other bits of such words are unused. Further words are
read, and dropped as soon as a content has arrived (``plain_header``): later code never sees any.

Between engines a message is one string of octets, the *content*, which is
``ReceivedDelivery.payload`` for this protocol::

    marks(1) exchange(shortstr) routing-key(shortstr) content-header body

``marks`` bit 0: redelivered. The content header is as received, so its body-size gives, counted
from the end, the start of the body. Nothing before the header is part of the message: an engine of
this protocol writes exchange and routing key anew where it must, and header and body are the same
octets at the far end. A content is always complete: its header has the body's size, so no part of
it could be sent on before a peer of another protocol has announced its size.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

import attrs

from router.errors import DecodeError
from router.wire.v0_9_1.types import (
    Seconds,
    Table,
    decode_shortstr,
    decode_table,
    encode_shortstr,
    encode_table,
)

BASIC_CLASS: Final = 60

PERSISTENT: Final = 2
"""Value of delivery-mode for persistent messages."""

REDELIVERED: Final = 1
"""Bit of a content's marks."""

_HEADER = struct.Struct(">HHQH")
HEADER_OCTETS: Final = _HEADER.size
"""The content header up to its first word of flags, inclusive."""


@attrs.define(kw_only=True)
class Properties:
    """Properties of class basic (0-9-1 §1.8.3); None where absent.

    Attributes:
        expiration: milliseconds to live, in decimal digits, as RabbitMQ reads it.
        timestamp: seconds since 1970.
        cluster_id: reserved since 0-9-1, still sent by older clients.
    """

    content_type: str | None = None
    content_encoding: str | None = None
    headers: Table | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: Seconds | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


FLAGS: Final[dict[str, int]] = {
    name: 1 << (15 - place) for place, name in enumerate(attrs.fields_dict(Properties))
}
"""Property → its bit in the word of flags."""

_KNOWN_FLAGS: Final = sum(FLAGS.values())

MORE_FLAGS: Final = 1
"""Bit of a word of flags: another one follows."""

_UNKNOWN_FLAG: Final = "content header: a property flag without a property is set"

_Reader = Callable[[bytes, int, int], tuple[Any, int]]


def _octet(octets: bytes, at: int, end: int) -> tuple[int, int]:
    if at >= end:
        raise DecodeError(at, "the property ends beyond its frame")
    return octets[at], at + 1


def _seconds(octets: bytes, at: int, end: int) -> tuple[Seconds, int]:
    if at + 8 > end:
        raise DecodeError(at, "the property ends beyond its frame")
    return Seconds.from_bytes(octets[at : at + 8], "big"), at + 8


_READERS: Final[dict[str, _Reader]] = dict.fromkeys(FLAGS, decode_shortstr) | {
    "headers": decode_table,
    "delivery_mode": _octet,
    "priority": _octet,
    "timestamp": _seconds,
}

_WRITERS: Final[dict[str, Callable[[Any], bytes]]] = dict.fromkeys(FLAGS, encode_shortstr) | {
    "headers": encode_table,
    "delivery_mode": lambda value: bytes((value,)),
    "priority": lambda value: bytes((value,)),
    "timestamp": struct.Struct(">Q").pack,
}

_ROWS: Final = tuple((flag, name, _READERS[name]) for name, flag in FLAGS.items())

_PRESENT: dict[int, tuple[tuple[str, _Reader], ...]] = {}
"""Word of flags → the properties that follow it; filled on use, at most 2^14 entries."""


def _present(flags: int, at: int) -> tuple[tuple[str, _Reader], ...]:
    present = _PRESENT.get(flags)
    if present is None:
        if flags & ~_KNOWN_FLAGS:
            raise DecodeError(at, _UNKNOWN_FLAG)
        present = tuple((name, reader) for flag, name, reader in _ROWS if flags & flag)
        _PRESENT[flags] = present
    return present


def flags_of(octets: bytes, at: int, end: int) -> tuple[int, int]:
    """Reads all words of flags (0-9-1 §4.2.6.1); returns the first, and the offset of the values.

    Raises:
        DecodeError: they do not end, or a further one announces a property.
    """
    if at + 2 > end:
        raise DecodeError(at, "content header: too short for the property flags")
    flags = word = octets[at] << 8 | octets[at + 1]
    place = at + 2
    while word & MORE_FLAGS:
        if place + 2 > end:
            raise DecodeError(place, "content header: its property flags do not end")
        word = octets[place] << 8 | octets[place + 1]
        if word & ~MORE_FLAGS:
            raise DecodeError(place, _UNKNOWN_FLAG)
        place += 2
    return flags & ~MORE_FLAGS, place


def plain_header(header: bytes) -> bytes:
    """Returns the content header with a single word of flags; an invalid one is unchanged."""
    if not header[13] & MORE_FLAGS:
        return header
    try:
        flags, place = flags_of(header, 12, len(header))
    except DecodeError:
        return header
    return header[:12] + flags.to_bytes(2, "big") + header[place:]


def decode_properties(
    octets: bytes, at: int, end: int, read_headers: _Reader = decode_table
) -> Properties:
    """Decodes flags and properties.

    Args:
        octets: the buffer that holds the content header.
        at: offset of the word of flags.
        end: end of the content header.
        read_headers: reads the table of headers.

    Raises:
        DecodeError: names the invalid property.
    """
    flags, place = flags_of(octets, at, end)
    properties = Properties()
    for name, own_reader in _present(flags, at):
        reader = read_headers if own_reader is decode_table else own_reader
        try:
            value, place = reader(octets, place, end)
        except DecodeError as error:
            raise DecodeError(error.offset, f"{name}: {error.rule}") from None
        setattr(properties, name, value)
    if place != end:
        raise DecodeError(place, "content header: octets follow the last property")
    return properties


def encode_properties(properties: Properties) -> bytes:
    """Encodes flags and properties.

    Raises:
        MisuseError: a property does not fit its type.
    """
    flags = 0
    parts = [b""]
    for name, flag in FLAGS.items():
        value = getattr(properties, name)
        if value is not None:
            flags |= flag
            parts.append(_WRITERS[name](value))
    parts[0] = flags.to_bytes(2, "big")
    return b"".join(parts)


def encode_content_header(body_octets: int, properties: bytes) -> bytes:
    """Encodes a content header around encoded flags and properties."""
    return struct.pack(">HHQ", BASIC_CLASS, 0, body_octets) + properties


@attrs.define(eq=False)
class ContentLayout:
    """The offsets in a content; created per message, so not frozen, but used as a value.

    Attributes:
        redelivered: whether there was an earlier attempt.
        route_end: offset after the routing key; the content header begins here.
        body_start: offset after the content header.
        body_octets: size of the body.
        flags: the word of property flags.
    """

    redelivered: bool
    route_end: int
    body_start: int
    body_octets: int
    flags: int


def content_prefix(exchange: bytes, routing_key: bytes, *, redelivered: bool = False) -> bytes:
    """Encodes the octets before the content header; the names are octets, at most 255 each."""
    return b"".join(
        (
            b"\x01" if redelivered else b"\x00",
            bytes((len(exchange),)),
            exchange,
            bytes((len(routing_key),)),
            routing_key,
        )
    )


def content_route(content: bytes) -> tuple[bytes, bytes]:
    """Reads exchange and routing key of a content, as octets."""
    key_at = 2 + content[1]
    return content[2:key_at], content[key_at + 1 : key_at + 1 + content[key_at]]


def content_layout(content: bytes) -> ContentLayout:
    """Finds the parts of a content; checks sizes, not properties.

    Raises:
        DecodeError: if the octets are not a content.
    """
    size = len(content)
    if size < 3:
        raise DecodeError(0, "a content ends before its routing key")
    key_at = 2 + content[1]
    if key_at >= size:
        raise DecodeError(1, "a content ends before its routing key")
    route_end = key_at + 1 + content[key_at]
    if route_end + HEADER_OCTETS > size:
        raise DecodeError(route_end, "a content ends before its properties")
    class_id, _, body_octets, flags = _HEADER.unpack_from(content, route_end)
    if class_id != BASIC_CLASS:
        raise DecodeError(route_end, f"content of class {class_id}, which is not basic")
    body_start = size - body_octets
    if body_start < route_end + HEADER_OCTETS:
        raise DecodeError(route_end, "a content is shorter than its body")
    return ContentLayout(bool(content[0] & REDELIVERED), route_end, body_start, body_octets, flags)


def properties_of(content: bytes, layout: ContentLayout) -> Properties:
    """Decodes the properties of a content whose layout is known.

    Raises:
        DecodeError: names the invalid property.
    """
    return decode_properties(content, layout.route_end + 12, layout.body_start)


def header_properties(header: bytes) -> Properties:
    """Decodes the properties of a content header.

    Raises:
        DecodeError: names the invalid property.
    """
    return decode_properties(header, 12, len(header))


def ttl_in(content: bytes) -> int | None:
    """Reads the ttl of a content in milliseconds; None if it has none, or is invalid."""
    try:
        layout = content_layout(content)
        if not layout.flags & FLAGS["expiration"]:
            return None
        return ttl_of(properties_of(content, layout))
    except DecodeError:
        return None


def ttl_of(properties: Properties) -> int | None:
    """Reads ``expiration`` in milliseconds, as RabbitMQ does; None if absent or not a number."""
    text = properties.expiration
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 10:
        return None
    return min(int(text), 0xFFFF_FFFF)
