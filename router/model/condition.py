"""Error conditions: why a connection, session, link or delivery ended (§2.8.14-18)."""

from collections.abc import Mapping
from typing import Final

import attrs

from router.model.text import words


@attrs.frozen
class Condition:
    """The ``error`` of AMQP 1.0 (§2.8.14).

    Attributes:
        name: symbolic name, one of the constants below or a peer's own.
        description: for people; never parsed. Octets that are not UTF-8 are escaped (``words``).
        info: further facts, keyed by symbol; values in AMQP types.
    """

    name: str
    description: str | None = attrs.field(default=None, converter=attrs.converters.optional(words))
    info: Mapping[object, object] | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.description}" if self.description else self.name


NO_REASON: Final = "the peer gave no reason"
"""What people read where a peer ends or refuses something without an error, as it may."""

# amqp-error (§2.8.15)
INTERNAL_ERROR: Final = "amqp:internal-error"
NOT_FOUND: Final = "amqp:not-found"
UNAUTHORIZED_ACCESS: Final = "amqp:unauthorized-access"
DECODE_ERROR: Final = "amqp:decode-error"
RESOURCE_LIMIT_EXCEEDED: Final = "amqp:resource-limit-exceeded"
NOT_ALLOWED: Final = "amqp:not-allowed"
INVALID_FIELD: Final = "amqp:invalid-field"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
RESOURCE_LOCKED: Final = "amqp:resource-locked"
PRECONDITION_FAILED: Final = "amqp:precondition-failed"
RESOURCE_DELETED: Final = "amqp:resource-deleted"
ILLEGAL_STATE: Final = "amqp:illegal-state"
FRAME_SIZE_TOO_SMALL: Final = "amqp:frame-size-too-small"

# connection-error (§2.8.16)
CONNECTION_FORCED: Final = "amqp:connection:forced"
FRAMING_ERROR: Final = "amqp:connection:framing-error"
CONNECTION_REDIRECT: Final = "amqp:connection:redirect"

# session-error (§2.8.17)
WINDOW_VIOLATION: Final = "amqp:session:window-violation"
ERRANT_LINK: Final = "amqp:session:errant-link"
HANDLE_IN_USE: Final = "amqp:session:handle-in-use"
UNATTACHED_HANDLE: Final = "amqp:session:unattached-handle"

# link-error (§2.8.18)
DETACH_FORCED: Final = "amqp:link:detach-forced"
TRANSFER_LIMIT_EXCEEDED: Final = "amqp:link:transfer-limit-exceeded"
MESSAGE_SIZE_EXCEEDED: Final = "amqp:link:message-size-exceeded"
LINK_REDIRECT: Final = "amqp:link:redirect"
STOLEN: Final = "amqp:link:stolen"

# transaction-error (§4.5.8)
TRANSACTION_UNKNOWN_ID: Final = "amqp:transaction:unknown-id"
