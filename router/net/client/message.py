"""The messages that the client sends: a number, a body, and the sections before it."""

from collections.abc import Iterator
from itertools import count as counting
from typing import Final

import attrs

from router.errors import DecodeError, TranslationError
from router.model.capabilities import Protocol
from router.wire import hub
from router.wire.v1_0.sections import (
    AnnotatedMessage,
    Properties,
    encode_message,
    peek,
)

PLAIN: Final = AnnotatedMessage()
"""The head of a message without any section before its body."""


def numbered(body: bytes, count: int | None, head: AnnotatedMessage = PLAIN) -> Iterator[bytes]:
    """Encodes messages with one and the same body in a data section, numbered by message-id.

    The number is a string: RabbitMQ 3 breaks the connection of an AMQP 0-9-1 consumer to which it
    delivers a message whose id came as a ulong.

    Args:
        body: octets of each.
        count: how many; None: without end.
        head: sections before the body; a message-id in it stands instead of the number.
    """
    tail = encode_message(AnnotatedMessage(data=[body]))
    properties = head.properties or Properties()
    for number in counting() if count is None else range(count):
        if properties.message_id is None:
            own = attrs.evolve(properties, message_id=str(number))
        else:
            own = properties
        yield encode_message(attrs.evolve(head, properties=own)) + tail


def number_of(payload: bytes) -> int | None:
    """Returns a message's number; None: its message-id is none of ours."""
    try:
        message_id = peek(payload).properties.message_id
    except DecodeError:
        return None
    if not isinstance(message_id, str) or not (message_id.isascii() and message_id.isdigit()):
        return None
    return int(message_id)


def body_text(payload: bytes, protocol: Protocol = Protocol.AMQP_1_0) -> str:
    """Returns a message's body for people; octets that are no text as escapes.

    Args:
        payload: the message.
        protocol: whose encoding it is in.
    """
    try:
        message = hub.to_sections(protocol, payload)
    except TranslationError:
        return payload.decode(errors="backslashreplace")
    if message.data:
        return b"".join(message.data).decode(errors="backslashreplace")
    if message.sequences:
        return "\n".join(str(each) for each in message.sequences)
    return str(message.value) if isinstance(message.value, str) else repr(message.value)
