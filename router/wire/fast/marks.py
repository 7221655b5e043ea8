"""Names under which one protocol carries parts that only the other has.

Headers of AMQP/Fast, for parts that only AMQP 1.0 has, begin with ``x-amqp-``; annotations of AMQP
1.0, for parts that only AMQP/Fast has, with ``x-fast-``. A header table has four kinds of values,
so
a part without an exact form there is written twice: approximately in the table, for readers of the
header, and exactly in ``x-amqp-sections``, which has those parts in AMQP 1.0's own encoding and
from which the router restores them.
"""

from typing import Final

from router.wire.fast.message import DELIVERY_COUNT, TTL
from router.wire.v1_0.types import Symbol

# --- headers --------------------------------------------------------------------------------------

TO: Final = "x-amqp-to"
SUBJECT: Final = "x-amqp-subject"
REPLY_TO: Final = "x-amqp-reply-to"
CORRELATION_ID: Final = "x-amqp-correlation-id"
USER_ID: Final = "x-amqp-user-id"
CREATION_TIME: Final = "x-amqp-creation-time"
GROUP_ID: Final = "x-amqp-group-id"
GROUP_SEQUENCE: Final = "x-amqp-group-sequence"
REPLY_TO_GROUP_ID: Final = "x-amqp-reply-to-group-id"
BODY: Final = "x-amqp-body"
SECTIONS: Final = "x-amqp-sections"

TEXTS: Final = {
    "to": TO,
    "subject": SUBJECT,
    "reply_to": REPLY_TO,
    "group_id": GROUP_ID,
    "reply_to_group_id": REPLY_TO_GROUP_ID,
}
"""Field of the properties section → header, where both are text."""

RESERVED: Final = frozenset(
    {
        *TEXTS.values(),
        CORRELATION_ID,
        USER_ID,
        CREATION_TIME,
        GROUP_SEQUENCE,
        BODY,
        SECTIONS,
        TTL,
        DELIVERY_COUNT,
    }
)
"""Reserved headers; an application property of such a name is in ``SECTIONS``."""

BODY_STRING: Final = b"string"
BODY_PLAIN_STRING: Final = b"string, text/plain"
BODY_BINARY: Final = b"binary"
BODY_SECTIONS: Final = b"sections"
"""Values of ``BODY``: the body is that of an amqp-value section, a string (with the second one the
mime-type is ours) or a binary; or it is the encoded body sections."""

PLAIN_TEXT: Final = "text/plain"

# --- annotations ----------------------------------------------------------------------------------

DESTINATION: Final = Symbol("x-fast-destination")
MIME_TYPE: Final = Symbol("x-fast-mime-type")
ENCODING: Final = Symbol("x-fast-encoding")
HEADERS: Final = Symbol("x-fast-headers")
"""A map: headers of reserved names without their reserved meaning."""

ANNOTATIONS: Final = frozenset({DESTINATION, MIME_TYPE, ENCODING, HEADERS})
