"""Messages: their encoding between engines, and their properties.

Between engines a message is one string of octets, the *content*, which is
``ReceivedDelivery.payload`` for this protocol::

    exchange(str8) size(4) header-segment body

The header segment is a sequence of structs, each after its size of 4 octets: delivery-properties,
which a broker may change, and message-properties, which nobody changes; others are carried
unchanged. It may be empty. The exchange at the start is the destination of a client's transfer; in
a delivered message the delivery-properties have the exchange, and the one at the start is empty.
"""

import struct
from collections.abc import Iterator
from typing import Any, Final

import attrs

from router.errors import DecodeError
from router.model.condition import INVALID_FIELD
from router.model.text import decode_text, is_text
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import decode_struct, encode_struct
from router.wire.v0_10.types import sized, with_size

PERSISTENT: Final = 2
NON_PERSISTENT: Final = 1
"""Values of delivery-mode."""

MAX_PRIORITY: Final = 9

DELIVERY_PROPERTIES: Final = b"\x04\x01"
FRAGMENT_PROPERTIES: Final = b"\x04\x02"
MESSAGE_PROPERTIES: Final = b"\x04\x03"
"""Class and code."""

_CODES_OCTETS: Final = 2
"""Smallest struct (0-10 struct32)."""

_U32 = struct.Struct(">I").unpack_from


_KNOWN_LIMIT: Final = 256
"""Most cached delivery-properties; beyond it the cache is cleared."""

_HAS_USER_ID: Final = 0x40
"""The packing flag of user-id, in the first octet of those of message-properties."""

_BEFORE_USER_ID: Final = ((4, 2), (8, 2), (16, 1), (32, 1))
"""Packing flag and size octets of correlation-id, reply-to, content-type and -encoding."""

_known: dict[bytes, r.DeliveryProperties] = {}


@attrs.frozen
class Layout:
    """The offsets in a content.

    Attributes:
        exchange: the exchange at the start.
        header_at: offset of the header segment.
        body_at: offset of the body.
    """

    exchange: str
    header_at: int
    body_at: int


@attrs.define
class Message:
    """A content, split into its parts.

    Attributes:
        others: structs of the header segment of other kinds, with their sizes.
    """

    exchange: str = ""
    delivery: r.DeliveryProperties = attrs.field(factory=r.DeliveryProperties)
    message: r.MessageProperties = attrs.field(factory=r.MessageProperties)
    others: bytes = b""
    body: bytes = b""


def make_content(exchange: bytes, header: bytes, body: bytes) -> bytes:
    """Assembles a content; ``exchange`` is at most 255 octets."""
    return b"".join(
        (bytes((len(exchange),)), exchange, len(header).to_bytes(4, "big"), header, body)
    )


def content_layout(content: bytes) -> Layout:
    """Finds the parts of a content.

    Raises:
        DecodeError: it is not a content.
    """
    start, after = sized(content, 0, len(content), 1)
    header_at, body_at = sized(content, after, len(content), 4)
    return Layout(decode_text(content[start:after]), header_at, body_at)


def structs(header: bytes) -> Iterator[tuple[int, int, int]]:
    """Yields the structs of a header segment: offset, class, and end of each.

    Raises:
        DecodeError: the sizes do not match.
    """
    at, end = 0, len(header)
    while at < end:
        start, after = sized(header, at, end, 4)
        if after - start < _CODES_OCTETS:
            raise DecodeError(at, "a struct has a class code and a struct code")
        yield at, start, after
        at = after


def read_header(header: bytes) -> tuple[r.DeliveryProperties, r.MessageProperties, bytes]:
    """Reads a header segment: both kinds of properties, empty if absent, and the other structs.

    Raises:
        DecodeError: it is invalid; names the property.
    """
    delivery, message, others = r.DeliveryProperties(), r.MessageProperties(), []
    for at, start, after in structs(header):
        head = header[start : start + 2]
        if head == DELIVERY_PROPERTIES:
            delivery = _delivery_properties(header[start:after])
        elif head == MESSAGE_PROPERTIES:
            message = decode_struct(header, start, after)
        else:
            others.append(header[at:after])
    return delivery, message, b"".join(others)


def delivery_properties(header: bytes) -> r.DeliveryProperties | None:
    """Reads the delivery-properties alone; None: there are none.

    Raises:
        DecodeError: they, or the sizes of the structs, are invalid.
    """
    for _, start, after in structs(header):
        if header.startswith(DELIVERY_PROPERTIES, start):
            return _delivery_properties(header[start:after])
    return None


def front_end(header: bytes, user: bytes | None) -> int:
    """Returns the end of the part of a client's header segment that decides where a message goes.

    That is its delivery-properties, if they are the first struct, and message-properties, whose
    user-id is allowed, are the only other one; 0: the complete segment has to be read.

    Args:
        header: the segment.
        user: the only user-id that the client may send; None: any.
    """
    size = len(header)
    if header[4:6] != DELIVERY_PROPERTIES:
        return 0
    end = 4 + int.from_bytes(header[:4], "big")
    if end == size:
        return end
    is_plain = (
        size > end + 6
        and header[end + 4 : end + 6] == MESSAGE_PROPERTIES
        and end + 4 + int.from_bytes(header[end : end + 4], "big") == size
        and (
            user is None
            or not header[end + 6] & _HAS_USER_ID
            or _user_id(header, end + 8, header[end + 6]) == user
        )
    )
    return end if is_plain else 0


def _user_id(octets: bytes, at: int, flags: int) -> bytes:
    """Returns the user-id of message-properties with one; if invalid, none.

    Args:
        octets: what holds them.
        at: offset of their fields.
        flags: the first octet of their packing flags.
    """
    at += 8 * (flags & 1) + 16 * (flags >> 1 & 1)  # content-length, message-id
    for flag, width in _BEFORE_USER_ID:
        if flags & flag:
            at += width + int.from_bytes(octets[at : at + width], "big")
    start = at + 2
    return octets[start : start + int.from_bytes(octets[at:start], "big")]


def _delivery_properties(octets: bytes) -> r.DeliveryProperties:
    """Reads delivery-properties; a stream of messages has few different ones."""
    found = _known.get(octets)
    if found is None:
        found = decode_struct(octets, 0, len(octets))
        if len(_known) >= _KNOWN_LIMIT:
            _known.clear()
        _known[octets] = found
    return found


def write_header(
    delivery: r.DeliveryProperties | None, message: r.MessageProperties | None, others: bytes = b""
) -> bytes:
    """Encodes a header segment; properties that are None are omitted.

    Raises:
        MisuseError: a property does not fit its type.
    """
    parts = [with_size(encode_struct(each), 4) for each in (delivery, message) if each is not None]
    return b"".join((*parts, others))


def replace_delivery_properties(header: bytes, delivery: r.DeliveryProperties) -> bytes:
    """Returns a header segment with other delivery-properties, else unchanged.

    Raises:
        DecodeError: the sizes of the structs do not match.
    """
    encoded = with_size(encode_struct(delivery), 4)
    rest = [
        header[at:after]
        for at, start, after in structs(header)
        if not header.startswith(DELIVERY_PROPERTIES, start)
    ]
    return b"".join((encoded, *rest))


def read_content(content: bytes) -> Message:
    """Splits a content into its parts.

    Raises:
        DecodeError: it is invalid.
    """
    layout = content_layout(content)
    delivery, message, others = read_header(content[layout.header_at : layout.body_at])
    return Message(layout.exchange, delivery, message, others, content[layout.body_at :])


def redelivered(content: bytes) -> bytes:
    """Returns a valid content with redelivered set."""
    layout = content_layout(content)
    header = content[layout.header_at : layout.body_at]
    properties = delivery_properties(header) or r.DeliveryProperties()
    header = replace_delivery_properties(header, attrs.evolve(properties, redelivered=True))
    exchange = content[1 : layout.header_at - 4]
    return make_content(exchange, header, content[layout.body_at :])


def with_ttl(content: bytes, ttl: int) -> bytes:
    """Returns a valid content with another ttl, in milliseconds."""
    layout = content_layout(content)
    header = content[layout.header_at : layout.body_at]
    properties = delivery_properties(header) or r.DeliveryProperties()
    header = replace_delivery_properties(header, attrs.evolve(properties, ttl=ttl))
    exchange = content[1 : layout.header_at - 4]
    return make_content(exchange, header, content[layout.body_at :])


def milliseconds_left(delivery: r.DeliveryProperties) -> int | None:
    """Returns the remaining time to live from the ttl; None: no limit."""
    ttl = delivery.ttl
    return None if ttl is None else min(ttl, 0xFFFF_FFFF)


def is_fragment(header: bytes) -> bool:
    """Returns whether a transfer is a part of a message (message.fragment-properties).

    Raises:
        DecodeError: the header segment is invalid.
    """
    if FRAGMENT_PROPERTIES not in header:
        return False
    for _, start, after in structs(header):
        if header.startswith(FRAGMENT_PROPERTIES, start):
            properties = decode_struct(header, start, after)
            return not (properties.first and properties.last)
    return False


def routing_of(header: bytes) -> tuple[str, Any]:
    """Returns the routing key and the delivery-properties of a client's transfer.

    Raises:
        DecodeError: they are invalid, a struct occurs twice, or the routing key is not UTF-8.
    """
    kinds = [header[start : start + 2] for _, start, _ in structs(header)]
    if len(set(kinds)) < len(kinds):
        raise DecodeError(0, "a header has a struct of each kind once", INVALID_FIELD)
    found = delivery_properties(header)
    key = "" if found is None else found.routing_key or ""
    if not is_text(key):
        rule = "DeliveryProperties.routing_key: a name is not UTF-8"
        raise DecodeError(0, rule, INVALID_FIELD)
    return key, found
