"""The address that a message was sent to, kept in the message while it waits somewhere else.

A message that goes to its route's fallback (``core.fallback``) carries its own address in a message
annotation, ``x-opt-router-address``. The bare message stays as it is (§3.2); in the protocols
before 1.0 the annotation is a header of that name. When the router pulls the message back it takes
the annotation out again. A message of 0-9-1 or 0-10 was published to the fallback's queue
meanwhile; it gets exchange and routing key of its own address instead.
"""

from collections.abc import Mapping
from typing import Final

from router.errors import RouterError
from router.model.capabilities import Protocol
from router.wire import hub
from router.wire.v1_0.sections import (
    AnnotatedMessage,
    Peek,
    encode_message,
    peek,
    replace_annotations,
)
from router.wire.v1_0.types import Symbol

ADDRESS_ANNOTATION: Final = Symbol("x-opt-router-address")

_EXCHANGE: Final = Symbol("x-exchange")
_ROUTING_KEY: Final = Symbol("x-routing-key")
"""Annotations of where a message of 0-9-1 or 0-10 was published; see ``marks`` of these."""


def with_address(protocol: Protocol, payload: bytes, address: str) -> tuple[Protocol, bytes]:
    """Returns a complete message that carries its own address, and its encoding.

    An invalid message, and one without a form in AMQP 1.0, is returned unchanged.
    """
    try:
        octets = hub.translate(payload, protocol, Protocol.AMQP_1_0)
        annotations = peek(octets).message_annotations
        if not isinstance(annotations, Mapping):
            return protocol, payload
        made = replace_annotations(octets, {**annotations, ADDRESS_ANNOTATION: address})
    except RouterError:
        return protocol, payload
    return Protocol.AMQP_1_0, made


def address_in(protocol: Protocol, payload: bytes) -> str | None:
    """Returns the address that a message carries; None: it carries none.

    Args:
        protocol: the payload's encoding.
        payload: a message, or a first part of it; of other protocols than 1.0, a complete one.
    """
    try:
        if protocol is Protocol.AMQP_1_0:
            return _annotated(peek(payload, partial=True))
        return _annotated(hub.to_sections(protocol, payload))
    except RouterError:
        return None


def without_address(protocol: Protocol, payload: bytes, address: str) -> tuple[Protocol, bytes]:
    """Returns a complete message without the annotation, as it was sent to an address."""
    try:
        if protocol is not Protocol.AMQP_1_0:
            message = hub.to_sections(protocol, payload)
            message.message_annotations = _as_published(message.message_annotations, address)
            return Protocol.AMQP_1_0, encode_message(message)
        annotations = peek(payload).message_annotations
        if not isinstance(annotations, Mapping):
            return protocol, payload
        kept = {key: item for key, item in annotations.items() if key != ADDRESS_ANNOTATION}
        return protocol, replace_annotations(payload, kept)
    except RouterError:
        return protocol, payload


def _annotated(message: Peek | AnnotatedMessage) -> str | None:
    annotations = message.message_annotations
    if not isinstance(annotations, Mapping):
        return None
    address = annotations.get(ADDRESS_ANNOTATION)
    return str(address) if isinstance(address, str) else None


def _as_published(annotations: object, address: str) -> dict[object, object] | None:
    """Returns annotations in which exchange and routing key are those of an address."""
    if not isinstance(annotations, Mapping):
        return None
    kept = {key: item for key, item in annotations.items() if key != ADDRESS_ANNOTATION}
    if _EXCHANGE in kept or _ROUTING_KEY in kept:
        exchange, slash, key = address.partition("/")
        kept[_EXCHANGE], kept[_ROUTING_KEY] = (exchange, key) if slash else ("", address)
        if not slash:
            del kept[_EXCHANGE]
    return kept or None
