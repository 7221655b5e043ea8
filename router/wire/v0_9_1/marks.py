"""Names under which one protocol carries parts that only the other has.

Two families, both restored by the router that reads them again:

- *Annotations* of AMQP 1.0 for what only 0-9-1 has: ``x-exchange`` and ``x-routing-key``, as
  RabbitMQ names them, ``x-basic-<property>`` for a property whose value its section cannot hold,
  and ``x-basic-headers``, a map of the headers that no section can hold.
- *Headers* of 0-9-1 for what only AMQP 1.0 has: ``x-amqp-…`` and a few names that others use.

A header is a mark only in exactly the form that ``from_sections`` writes, so that a message of
0-9-1 is restored unchanged after AMQP 1.0, even one with headers of the same names (look-alikes).
"""

from collections.abc import Callable
from typing import Any, Final

from router.model.text import encode_text, is_text
from router.wire.v0_9_1.content import Properties
from router.wire.v1_0.types import Symbol

# --- annotations ----------------------------------------------------------------------------------

EXCHANGE: Final = Symbol("x-exchange")
ROUTING_KEY: Final = Symbol("x-routing-key")
HEADERS: Final = Symbol("x-basic-headers")
DELIVERY_MODE: Final = Symbol("x-basic-delivery-mode")
EXPIRATION: Final = Symbol("x-basic-expiration")
TIMESTAMP: Final = Symbol("x-basic-timestamp")
TYPE: Final = Symbol("x-basic-type")
BASIC: Final = "x-basic-"

TEXT_PROPERTIES: Final = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "message_id",
    "app_id",
    "cluster_id",
)
"""Properties that become an annotation if they are not text, or not of the required kind."""

ANNOTATION_OF: Final = {name: Symbol(BASIC + name.replace("_", "-")) for name in TEXT_PROPERTIES}
"""Property → its annotation."""

RESERVED_ANNOTATIONS: Final = frozenset(
    {EXCHANGE, ROUTING_KEY, HEADERS, DELIVERY_MODE, EXPIRATION, TIMESTAMP, TYPE}
    | set(ANNOTATION_OF.values())
)

APP_ID: Final = "x-amqp-0-10.app-id"
"""Application property for app-id, which AMQP 1.0 lacks; Qpid's name for it."""

# --- headers --------------------------------------------------------------------------------------

DELIVERY_COUNT: Final = "x-delivery-count"
BODY: Final = "x-amqp-body"
FOOTER: Final = "x-amqp-footer"
ANNOTATIONS: Final = "x-amqp-annotations"
APPLICATION_PROPERTIES: Final = "x-amqp-application-properties"
TO: Final = "x-amqp-to"
SUBJECT: Final = "x-amqp-subject"
ABSOLUTE_EXPIRY_TIME: Final = "x-amqp-absolute-expiry-time"
CREATION_TIME: Final = "x-amqp-creation-time"
REPLY_TO_GROUP_ID: Final = "x-amqp-reply-to-group-id"
REPLY_TO: Final = "x-amqp-reply-to"
CONTENT_TYPE: Final = "x-amqp-content-type"
CONTENT_ENCODING: Final = "x-amqp-content-encoding"
USER_ID: Final = "x-amqp-user-id"
GROUP_ID: Final = "JMSXGroupID"
GROUP_SEQUENCE: Final = "JMSXGroupSeq"
MESSAGE_ID: Final = "x-message-id"
MESSAGE_ID_TYPE: Final = "x-message-id-type"
CORRELATION_ID: Final = "x-correlation-id"
CORRELATION_ID_TYPE: Final = "x-correlation-id-type"

TYPE_OF_SECTIONS: Final = "amqp-1.0"
"""RabbitMQ's ``type`` for a body that is encoded sections of AMQP 1.0."""

BODY_STRING: Final = "string"
BODY_PLAIN_STRING: Final = "string, text/plain"
BODY_BINARY: Final = "binary"
"""Values of ``x-amqp-body``: the body is that of an amqp-value section; with the second one the
content-type is ours."""

PLAIN_TEXT: Final = "text/plain"

_MAX_ULONG_DIGITS: Final = 20


def is_ulong_text(text: str | None) -> bool:
    """Returns whether ``text`` is an unsigned 64-bit number as this module writes it."""
    if not text or not text.isascii() or not text.isdigit() or len(text) > _MAX_ULONG_DIGITS:
        return False
    return int(text) < 1 << 64 and str(int(text)) == text


def _is_text(value: Any) -> bool:
    return type(value) is str and is_text(value)


def _is_long_text(value: Any) -> bool:
    return type(value) is str and is_text(value) and len(value.encode()) > 255


def _text(value: Any, properties: Properties) -> bool:
    return _is_text(value)


def _number(value: Any, properties: Properties) -> bool:
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _subject(value: Any, properties: Properties) -> bool:
    if properties.type is None:
        return _is_long_text(value) or bool(value == TYPE_OF_SECTIONS)
    return _is_text(value)


def _creation_time(value: Any, properties: Properties) -> bool:
    if not _number(value, properties):
        return False
    if value < 0:
        return properties.timestamp is None
    return bool(value % 1000) and properties.timestamp == value // 1000


def _long(name: str, *, ascii_only: bool = False) -> "_Test":
    def test(value: Any, properties: Properties) -> bool:
        if getattr(properties, name) is not None or not _is_long_text(value):
            return False
        return not ascii_only or value.isascii()

    return test


def _id(name: str) -> "_Test":
    def test(value: Any, properties: Properties) -> bool:
        if getattr(properties, name) is not None:
            return False
        return type(value) is bytes or _is_long_text(value)

    return test


def _id_type(name: str) -> "_Test":
    def test(value: Any, properties: Properties) -> bool:
        return value == "ulong" and is_ulong_text(getattr(properties, name))

    return test


def _body(value: Any, properties: Properties) -> bool:
    if properties.type == TYPE_OF_SECTIONS:
        return False
    if value == BODY_PLAIN_STRING:
        return properties.content_type == PLAIN_TEXT
    if value == BODY_STRING:
        return properties.content_type is not None or CONTENT_TYPE in (properties.headers or ())
    return bool(value == BODY_BINARY)


def _fields(value: Any, properties: Properties) -> bool:
    return type(value) is dict and bool(value) and all(name.isascii() for name in value)


def _annotations(value: Any, properties: Properties) -> bool:
    return _fields(value, properties) and all(needs_wrapping(name) for name in value)


def _application_properties(value: Any, properties: Properties) -> bool:
    if type(value) is not dict or not value:
        return False
    return all(name == APP_ID or is_look_alike(name) for name in value)


_Test = Callable[[Any, Properties], bool]

_TESTS: Final[dict[str, _Test]] = {
    ANNOTATIONS: _annotations,
    APPLICATION_PROPERTIES: _application_properties,
    FOOTER: _fields,
    BODY: _body,
    TO: _text,
    SUBJECT: _subject,
    ABSOLUTE_EXPIRY_TIME: _number,
    CREATION_TIME: _creation_time,
    REPLY_TO_GROUP_ID: _text,
    REPLY_TO: _long("reply_to"),
    CONTENT_TYPE: _long("content_type", ascii_only=True),
    CONTENT_ENCODING: _long("content_encoding", ascii_only=True),
    GROUP_ID: _text,
    MESSAGE_ID: _id("message_id"),
    MESSAGE_ID_TYPE: _id_type("message_id"),
    CORRELATION_ID: _id("correlation_id"),
    CORRELATION_ID_TYPE: _id_type("correlation_id"),
}
"""Header → whether its value is a mark, given the message's properties."""

_COUNTS: Final = frozenset({DELIVERY_COUNT, GROUP_SEQUENCE})
"""Headers whose number is accepted in any width; ``to_sections`` keeps the width."""


def is_mark(name: str, value: Any, properties: Properties) -> bool:
    """Returns whether a header represents something that only AMQP 1.0 has."""
    test = _TESTS.get(name)
    return test is not None and test(value, properties)


def is_look_alike(name: str) -> bool:
    """Returns whether a header that is no mark would be read as one, or as an annotation."""
    return (
        name in _TESTS
        or name in _COUNTS
        or name in RESERVED_ANNOTATIONS
        or (name.startswith(BASIC))
    )


def needs_wrapping(name: str) -> bool:
    """Returns whether an annotation cannot be a header of its own name."""
    if name in RESERVED_ANNOTATIONS:
        return False
    return not name.startswith("x-") or is_look_alike(name)


def count_of(value: Any) -> int | None:
    """Reads a header's number that fits AMQP 1.0's uint; None if it is none."""
    if isinstance(value, int) and type(value) is not bool and 0 <= value <= 0xFFFF_FFFF:
        return int(value)
    return None


def fits_shortstr(text: str) -> bool:
    """Returns whether ``text`` fits a short string."""
    return len(text) <= 63 or len(encode_text(text)) <= 255
