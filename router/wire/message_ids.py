"""Message ids, by which a peer, or this router, recognizes a message.

An id is in ``message-id``, or under an application's name in the application properties or message
annotations, wherever a protocol keeps these: it is found through AMQP 1.0 sections.
"""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from router.errors import RouterError
from router.model.capabilities import Protocol
from router.wire import hub
from router.wire.v1_0.encoding import encode_value
from router.wire.v1_0.sections import (
    AnnotatedMessage,
    Properties,
    decode_message,
    encode_message,
    peek,
)

MESSAGE_ID: Final = "message-id"


def find_id(protocol: Protocol, payload: bytes, name: str) -> bytes | None:
    """Returns the octets of a message's id; None: it has none.

    Args:
        protocol: the payload's encoding.
        payload: a complete message; an invalid one has no id.
        name: ``message-id``, or the name of a property.
    """
    try:
        value = _find(protocol, payload, name)
    except RouterError:
        return None
    return None if value is None else encode_value(value)


def _find(protocol: Protocol, payload: bytes, name: str) -> Any:
    if protocol is Protocol.AMQP_1_0 and name == MESSAGE_ID:
        return peek(payload).message_id
    message = _sections(protocol, payload)
    if name == MESSAGE_ID:
        return message.properties.message_id if message.properties is not None else None
    return _named(message, name)


def _sections(protocol: Protocol, payload: bytes) -> AnnotatedMessage:
    if protocol is Protocol.AMQP_1_0:
        return decode_message(payload)
    return hub.to_sections(protocol, payload)


def _named(message: AnnotatedMessage, name: str) -> Any:
    for fields in (message.application_properties, message.message_annotations):
        if isinstance(fields, Mapping) and name in fields:
            return fields[name]
    return None


def give_id(
    protocol: Protocol, payload: bytes, name: str, key: bytes
) -> tuple[Protocol, bytes] | None:
    """Adds an id to a message that has none.

    Args:
        protocol: the payload's encoding.
        payload: a complete message.
        name: ``message-id``, or the name of an application property.
        key: of the delivery, constant over all attempts.

    Returns:
        the message with the id, and its encoding; None: it has one, or is invalid.
    """
    try:
        message = _sections(protocol, payload)
    except RouterError:
        return None
    value = key.hex()
    if name == MESSAGE_ID:
        properties = message.properties or Properties()
        if properties.message_id is not None:
            return None
        changed = attrs.evolve(message, properties=attrs.evolve(properties, message_id=value))
    else:
        if _named(message, name) is not None:
            return None
        fields = {**dict(message.application_properties or {}), name: value}
        changed = attrs.evolve(message, application_properties=fields)
    return Protocol.AMQP_1_0, encode_message(changed)
