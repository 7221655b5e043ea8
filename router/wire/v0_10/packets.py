"""Packets of streams: their properties as those of messages, and back (0-10 stream).

Between engines a packet is a message, so whoever subscribes to its queue hears it, and whoever
consumes it as a stream hears what was transferred. Each property of a packet has its home in a
message; what else a message says, consumers of streams are not told::

    content-type, content-encoding, headers     message-properties; headers: application-headers
    priority, timestamp                         delivery-properties
"""

from typing import Final

from router.errors import DecodeError, MisuseError
from router.wire.v0_10 import message as messages
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import decode_struct, encode_struct
from router.wire.v0_10.optional import StreamProperties
from router.wire.v0_10.types import with_size

_STREAM_PROPERTIES: Final = b"\x0a\x01"
"""Class and code."""

_NOTHING: Final = StreamProperties()
_UNDESCRIBED: Final = r.MessageProperties()


def read_properties(header: bytes) -> StreamProperties:
    """Reads a packet's header segment; one without properties has none.

    Raises:
        DecodeError: it breaks its format, or holds anything else.
    """
    found = _NOTHING
    for place, (at, start, after) in enumerate(messages.structs(header)):
        if place or not header.startswith(_STREAM_PROPERTIES, start):
            raise DecodeError(at, "the header of a packet is stream-properties, and nothing else")
        found = decode_struct(header, start, after)
    return found


def to_message(told: StreamProperties, key: str) -> bytes:
    """Makes the header segment that a packet has as a message.

    Args:
        told: its properties.
        key: the routing key that it is published with.

    Raises:
        MisuseError: a property does not fit its type.
    """
    delivery = r.DeliveryProperties(
        priority=told.priority, timestamp=told.timestamp, routing_key=key or None
    )
    described = r.MessageProperties(
        content_type=told.content_type,
        content_encoding=told.content_encoding,
        application_headers=told.headers,
    )
    return messages.write_header(
        None if delivery == r.DeliveryProperties() else delivery,
        None if described == _UNDESCRIBED else described,
    )


def from_message(header: bytes) -> tuple[bytes, str]:
    """Makes the header segment that a message has as a packet, and tells its exchange.

    Raises:
        DecodeError: it breaks its format.
    """
    delivery, described, _ = messages.read_header(header)
    told = StreamProperties(
        content_type=described.content_type,
        content_encoding=described.content_encoding,
        headers=described.application_headers,
        priority=delivery.priority,
        timestamp=delivery.timestamp,
    )
    try:
        return with_size(encode_struct(told), 4), delivery.exchange or ""
    except MisuseError as error:
        raise DecodeError(0, error.reason) from error
