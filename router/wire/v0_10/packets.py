"""Properties of streams' packets and of files, to and from those of messages (0-10).

Between engines both are messages, so that any subscriber of the queue can receive them, and a
consumer of files or streams receives what was transferred. Each property is mapped to one of a
message; other properties of a message are not sent to consumers of files and streams::

    content-type, content-encoding              message-properties
    headers                                     message-properties, application-headers
    priority, timestamp                         delivery-properties
    reply-to                                    message-properties; exchange/key, or a key alone
    message-id, filename                        the headers x-amqp-message-id, $filename

A message-id is text here and a uuid in a message, so it becomes a header, which AMQP 1.0 uses as
the message-id. A cluster-id concerns one broker alone, and is dropped.
"""

from typing import Any, Final

from router.errors import DecodeError, MisuseError
from router.model.condition import INVALID_FIELD
from router.model.text import encode_text
from router.wire.v0_10 import marks, restore
from router.wire.v0_10 import message as messages
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import decode_struct, encode_struct
from router.wire.v0_10.optional import FILE_CLASS, STREAM_CLASS, FileProperties, StreamProperties
from router.wire.v0_10.types import with_size

FILENAME: Final = "$filename"
"""Header for a file's name, as in the draft 0.9r1."""

_KINDS: Final[dict[int, tuple[Any, str]]] = {
    FILE_CLASS: (FileProperties(), "file"),
    STREAM_CLASS: (StreamProperties(), "packet"),
}


def read_properties(kind: int, header: bytes) -> Any:
    """Reads a file's or packet's header segment; None if it has no properties.

    Args:
        kind: its class.
        header: the segment.

    Raises:
        DecodeError: it is invalid, or has other structs.
    """
    found, name = _KINDS[kind]
    for place, (at, start, after) in enumerate(messages.structs(header)):
        if place or header[start : start + 2] != bytes((kind, 1)):
            rule = f"the header of a {name} is its properties, and nothing else"
            raise DecodeError(at, rule, INVALID_FIELD)
        found = decode_struct(header, start, after)
    return found


def to_message(properties: FileProperties | StreamProperties, key: str | None = None) -> bytes:
    """Encodes the header segment of a file or packet as a message.

    Args:
        properties: its properties.
        key: the routing key that it is published with.

    Raises:
        MisuseError: a property does not fit its type.
    """
    headers = dict(properties.headers or {})
    reply_to = None
    if isinstance(properties, FileProperties):
        for name, value in (
            (marks.MESSAGE_ID, properties.message_id),
            (FILENAME, properties.filename),
        ):
            if value is not None:
                headers[name] = value
        reply_to = None if properties.reply_to is None else restore.reply_to_of(properties.reply_to)
    delivery = r.DeliveryProperties(
        priority=properties.priority, timestamp=properties.timestamp, routing_key=key or None
    )
    described = r.MessageProperties(
        reply_to=reply_to,
        content_type=properties.content_type,
        content_encoding=properties.content_encoding,
        application_headers=headers or None,
    )
    return messages.write_header(
        None if delivery == r.DeliveryProperties() else delivery,
        None if described == r.MessageProperties() else described,
    )


def from_message(kind: int, header: bytes) -> tuple[bytes, r.DeliveryProperties]:
    """Encodes the header segment of a message as a file or packet.

    Args:
        kind: the class.
        header: the message's.

    Returns:
        the segment, and the message's delivery-properties.

    Raises:
        DecodeError: it is invalid.
    """
    delivery, described, _ = messages.read_header(header)
    properties: dict[str, Any] = {
        "content_type": described.content_type,
        "content_encoding": described.content_encoding,
        "headers": described.application_headers,
        "priority": delivery.priority,
        "timestamp": delivery.timestamp,
    }
    if kind == FILE_CLASS:
        headers = dict(described.application_headers or {})
        message_id = _take(headers, marks.MESSAGE_ID)
        if message_id is None and described.message_id is not None:
            message_id = str(described.message_id)
        properties["filename"] = _take(headers, FILENAME)
        properties["message_id"] = message_id
        properties["reply_to"] = _address(described.reply_to)
        properties["headers"] = headers or None
    made = FileProperties(**properties) if kind == FILE_CLASS else StreamProperties(**properties)
    try:
        return with_size(encode_struct(made), 4), delivery
    except MisuseError as error:
        raise DecodeError(0, error.reason) from error


def _take(headers: dict[str, Any], name: str) -> str | None:
    """Removes and returns a header that fits a property."""
    value = headers.get(name)
    if type(value) is not str or len(encode_text(value)) > 255:
        return None
    del headers[name]
    return value


def _address(reply_to: r.ReplyTo | None) -> str | None:
    """Returns a reply-to as text; None: there is none, or it is too long."""
    if reply_to is None:
        return None
    parts = [each for each in (reply_to.exchange, reply_to.routing_key) if each is not None]
    text = "/".join(parts)
    return text if parts and len(encode_text(text)) <= 255 else None
