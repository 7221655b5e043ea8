"""Names under which one protocol carries parts that only the other has.

Two families, both restored by the router that reads them again:

- *Annotations* of AMQP 1.0 for what only 0-10 has: ``x-exchange`` and ``x-routing-key``, and
  ``x-amqp-0-10.<property>`` for a property whose value its section cannot hold, or that its section
  would not give back. ``x-amqp-0-10.headers`` is a map of the headers that no section can hold.
- *Headers* of 0-10 for what only AMQP 1.0 has: ``x-amqp-…`` and a few names that others use. Types
  of values are kept: an id that is no uuid is the header of its own type.

A header is a mark only in a form that ``from_sections`` writes, so that a message of 0-10 is
restored unchanged after AMQP 1.0, even one with headers of the same names (look-alikes).
"""

import uuid
from collections.abc import Callable
from typing import Any, Final

from router.wire.v1_0.types import Symbol, Ulong

# --- annotations ----------------------------------------------------------------------------------

PREFIX: Final = "x-amqp-0-10."

EXCHANGE: Final = Symbol("x-exchange")
ROUTING_KEY: Final = Symbol("x-routing-key")
HEADERS: Final = Symbol(PREFIX + "headers")


def annotation_of(name: str) -> Symbol:
    """Returns the annotation of a property, which is given with underscores."""
    return Symbol(PREFIX + name.replace("_", "-"))


PROPERTIES: Final = (
    "priority",
    "delivery_mode",
    "ttl",
    "timestamp",
    "expiration",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    "app_id",
    "others",
)
"""Properties that may become annotations."""

ANNOTATIONS_KEPT: Final = frozenset(
    {EXCHANGE, ROUTING_KEY, HEADERS, *(annotation_of(name) for name in PROPERTIES)}
)

# --- headers --------------------------------------------------------------------------------------

SUBJECT: Final = "qpid.subject"
APP_ID: Final = "x-amqp-0-10.app-id"
"""Application property for app-id, as Qpid has it."""
GROUP_ID: Final = "JMSXGroupID"
GROUP_SEQUENCE: Final = "JMSXGroupSeq"
DELIVERY_COUNT: Final = "x-delivery-count"
USER_ID: Final = "x-amqp-user-id"
MESSAGE_ID: Final = "x-amqp-message-id"
CORRELATION_ID: Final = "x-amqp-correlation-id"
TO: Final = "x-amqp-to"
REPLY_TO: Final = "x-amqp-reply-to"
REPLY_TO_GROUP_ID: Final = "x-amqp-reply-to-group-id"
ABSOLUTE_EXPIRY_TIME: Final = "x-amqp-absolute-expiry-time"
CREATION_TIME: Final = "x-amqp-creation-time"
CONTENT_TYPE: Final = "x-amqp-content-type"
CONTENT_ENCODING: Final = "x-amqp-content-encoding"
PRIORITY: Final = "x-amqp-priority"
BODY: Final = "x-amqp-body"
ANNOTATIONS: Final = "x-amqp-annotations"
APPLICATION_PROPERTIES: Final = "x-amqp-application-properties"
FOOTER: Final = "x-amqp-footer"

BODY_STRING: Final = "string"
BODY_PLAIN_STRING: Final = "string, text/plain"
BODY_BINARY: Final = "binary"
BODY_SECTIONS: Final = "sections"

PLAIN_TEXT: Final = "text/plain"
MAP_TYPE: Final = "amqp/map"
LIST_TYPE: Final = "amqp/list"
"""Content types of bodies that Qpid's programs encode as a map or list of 0-10."""


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_number(value: Any) -> bool:
    return type(value) is int


def _is_id(value: Any) -> bool:
    return type(value) in (str, bytes, Ulong)


def _is_any_id(value: Any) -> bool:
    return type(value) is uuid.UUID or _is_id(value)


def _is_long_ascii(value: Any) -> bool:
    return type(value) is str and value.isascii() and len(value) > 255


def _is_fields(value: Any) -> bool:
    return type(value) is dict and bool(value)


def _is_body(value: Any) -> bool:
    return value in (BODY_STRING, BODY_PLAIN_STRING, BODY_BINARY, BODY_SECTIONS)


def _is_small(value: Any) -> bool:
    return type(value) is int and 9 < value <= 255


_TESTS: Final[dict[str, Callable[[Any], bool]]] = {
    SUBJECT: _is_text,
    GROUP_ID: _is_text,
    GROUP_SEQUENCE: lambda value: count_of(value) is not None,
    MESSAGE_ID: _is_id,
    CORRELATION_ID: _is_any_id,
    TO: _is_text,
    REPLY_TO: _is_text,
    REPLY_TO_GROUP_ID: _is_text,
    ABSOLUTE_EXPIRY_TIME: _is_number,
    CREATION_TIME: _is_number,
    CONTENT_TYPE: _is_long_ascii,
    CONTENT_ENCODING: _is_long_ascii,
    PRIORITY: _is_small,
    BODY: _is_body,
    ANNOTATIONS: _is_fields,
    APPLICATION_PROPERTIES: _is_fields,
    FOOTER: _is_fields,
}
"""Header → whether its value is a mark. ``to_sections`` also checks it against the properties."""


def is_mark(name: str, value: Any) -> bool:
    """Returns whether a header represents something that only AMQP 1.0 has."""
    test = _TESTS.get(name)
    return test is not None and test(value)


def is_reserved(name: str) -> bool:
    """Returns whether a header of this name is a mark, or would be read as one."""
    own = (DELIVERY_COUNT, EXCHANGE, ROUTING_KEY)
    return name in _TESTS or name in own or name.startswith(PREFIX)


def count_of(value: Any) -> int | None:
    """Reads a header's number that fits AMQP 1.0's uint; None if it is none."""
    if isinstance(value, int) and type(value) is not bool and 0 <= value <= 0xFFFF_FFFF:
        return int(value)
    return None
