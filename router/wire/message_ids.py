"""The ids that messages carry: by them a peer, or this router, knows a message again.

An id stands in ``message-id``, or under a name of the application's among application properties
or message annotations, wherever a protocol keeps these: it is looked for through AMQP 1.0 sections.
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
    """Returns the octets of the id that a message carries; None: it carries none.

    Args:
        protocol: whose encoding the payload is in.
        payload: a whole message; one that is broken carries no id.
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
    """Returns a message an id if it has none.

    Args:
        protocol: whose encoding the payload is in.
        payload: a whole message.
        name: ``message-id``, or the name of an application property.
        key: of the delivery, which is the same whenever it is sent.

    Returns:
        The message with the id, and its encoding; None: it has one, or cannot be read.
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
