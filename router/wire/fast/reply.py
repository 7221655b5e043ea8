"""Reply codes (RFC 011), and how they map to the error conditions of AMQP 1.0.

A fault ends what its level names (RFC 006 §2.2.10): a fault in a handle's command ends the handle,
one in a channel's the channel, and a command that is not allowed here, or cannot be decoded, the
connection (§3.2.10, §3.3.9, §3.5.17). Inside the engine a fault is a Python exception, raised where
it is found and caught in one place; none leaves it.
"""

import enum
from typing import Final

import attrs

from router.errors import RouterError
from router.model import condition as conditions
from router.model.condition import Condition
from router.model.outcome import (
    ACCEPTED,
    RELEASED,
    Accepted,
    DeliveryState,
    Modified,
    Rejected,
    Released,
)
from router.wire.fast.types import cut_short


class Reply(enum.IntEnum):
    """All reply codes."""

    OK = 200
    MESSAGE_NOT_FOUND = 310
    MESSAGE_TOO_LARGE = 311
    CLIENT_ACTIVE = 320
    SERVICE_NOT_VALID = 401
    PATH_NOT_VALID = 402
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    FRAMING_ERROR = 501
    SYNTAX_ERROR = 502
    NOT_VALID_NOW = 503
    CHANNEL_NOT_READY = 504
    HANDLE_NOT_READY = 505
    INSUFFICIENT_RESOURCES = 506
    FORBIDDEN_NOW = 507
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541
    CONTENTS_INVALID = 542


class Level(enum.Enum):
    """What a fault ends."""

    HANDLE = "handle"
    CHANNEL = "channel"
    CONNECTION = "connection"


_CONDITIONS: Final[dict[int, str]] = {
    Reply.MESSAGE_NOT_FOUND: conditions.NOT_FOUND,
    Reply.MESSAGE_TOO_LARGE: conditions.MESSAGE_SIZE_EXCEEDED,
    Reply.CLIENT_ACTIVE: conditions.RESOURCE_LOCKED,
    Reply.SERVICE_NOT_VALID: conditions.PRECONDITION_FAILED,
    Reply.PATH_NOT_VALID: conditions.NOT_FOUND,
    Reply.ACCESS_REFUSED: conditions.UNAUTHORIZED_ACCESS,
    Reply.NOT_FOUND: conditions.NOT_FOUND,
    Reply.FRAMING_ERROR: conditions.FRAMING_ERROR,
    Reply.SYNTAX_ERROR: conditions.INVALID_FIELD,
    Reply.NOT_VALID_NOW: conditions.ILLEGAL_STATE,
    Reply.CHANNEL_NOT_READY: conditions.ILLEGAL_STATE,
    Reply.HANDLE_NOT_READY: conditions.ILLEGAL_STATE,
    Reply.INSUFFICIENT_RESOURCES: conditions.RESOURCE_LIMIT_EXCEEDED,
    Reply.FORBIDDEN_NOW: conditions.DETACH_FORCED,
    Reply.NOT_IMPLEMENTED: conditions.NOT_IMPLEMENTED,
    Reply.INTERNAL_ERROR: conditions.INTERNAL_ERROR,
    Reply.CONTENTS_INVALID: conditions.DECODE_ERROR,
}
"""Reply code → error condition. Total over ``Reply`` but for 200, which is no error."""

_REPLIES: Final[dict[str, Reply]] = {
    conditions.NOT_FOUND: Reply.NOT_FOUND,
    conditions.RESOURCE_DELETED: Reply.NOT_FOUND,
    conditions.UNAUTHORIZED_ACCESS: Reply.ACCESS_REFUSED,
    conditions.MESSAGE_SIZE_EXCEEDED: Reply.MESSAGE_TOO_LARGE,
    conditions.RESOURCE_LOCKED: Reply.CLIENT_ACTIVE,
    conditions.STOLEN: Reply.CLIENT_ACTIVE,
    conditions.PRECONDITION_FAILED: Reply.SERVICE_NOT_VALID,
    conditions.FRAMING_ERROR: Reply.FRAMING_ERROR,
    conditions.INVALID_FIELD: Reply.SYNTAX_ERROR,
    conditions.DECODE_ERROR: Reply.CONTENTS_INVALID,
    conditions.ILLEGAL_STATE: Reply.NOT_VALID_NOW,
    conditions.RESOURCE_LIMIT_EXCEEDED: Reply.INSUFFICIENT_RESOURCES,
    conditions.NOT_ALLOWED: Reply.ACCESS_REFUSED,
    conditions.CONNECTION_FORCED: Reply.FORBIDDEN_NOW,
    conditions.CONNECTION_REDIRECT: Reply.FORBIDDEN_NOW,
    conditions.DETACH_FORCED: Reply.FORBIDDEN_NOW,
    conditions.NOT_IMPLEMENTED: Reply.NOT_IMPLEMENTED,
}
"""Error condition → reply code; the others become internal-error."""


@attrs.frozen
class PeerError(RouterError):
    """A peer's fault, or a request that cannot be met, which ends in a CLOSE.

    Attributes:
        code: the reply code.
        text: for people: names the object and the rule.
        level: what is ended.
    """

    code: Reply
    text: str
    level: Level = Level.HANDLE

    def __str__(self) -> str:
        return cut_short(self.text)


def condition_of(code: int, text: str, level: Level = Level.HANDLE) -> Condition | None:
    """Translates a peer's reply code, known or not; None: it is no error.

    What is forbidden for the time being may be tried again, as after an end that was forced.

    Args:
        code: reply code.
        text: reply text.
        level: what the peer has ended.
    """
    if code == Reply.OK:
        return None
    name = _CONDITIONS.get(code, conditions.INTERNAL_ERROR)
    if level is Level.CONNECTION and name == conditions.DETACH_FORCED:
        name = conditions.CONNECTION_FORCED
    return Condition(name, f"{code} {text}".rstrip())


def reply_of(condition: Condition | None) -> Reply:
    """Returns the code for the end of something; None: no error."""
    if condition is None:
        return Reply.OK
    return _REPLIES.get(condition.name, Reply.INTERNAL_ERROR)


def words_of(condition: Condition | None) -> str:
    """Describes a condition for a reply-text."""
    if condition is None:
        return ""
    return cut_short(condition.description or condition.name)


# --- outcomes of what a client sends (§3.5.15) ----------------------------------------------------


def reply_to_outcome(state: DeliveryState | None) -> tuple[Reply, str]:
    """Returns the HANDLE REPLY to the sender for the outcome of a delivery."""
    match state:
        case Accepted():
            return Reply.OK, ""
        case Rejected(error=None):
            return Reply.CONTENTS_INVALID, "rejected"
        case Rejected(error=error):
            code = reply_of(error)
            if code in (Reply.OK, Reply.FORBIDDEN_NOW):
                code = Reply.CONTENTS_INVALID
            return code, words_of(error)
        case _:
            return Reply.FORBIDDEN_NOW, "not accepted; it may be sent again"


def outcome_of_reply(code: int, text: str) -> DeliveryState:
    """Returns the outcome for a HANDLE REPLY."""
    if code == Reply.OK:
        return ACCEPTED
    if code == Reply.FORBIDDEN_NOW:
        return RELEASED
    return Rejected(condition_of(code, text))


# --- outcomes of what a client receives (§3.3.3, §3.5.7) ------------------------------------------


def is_acknowledged(state: DeliveryState | None) -> bool:
    """Returns whether an outcome is sent as CHANNEL ACK, rather than HANDLE UNGET.

    Released, modified and rejected messages are all returned: the protocol has no word for a
    message that must not come again, and an ACK would mean accepted. A message that is rejected
    again is ended by the link (``server_receiver``).
    """
    match state:
        case Released() | Modified() | Rejected():
            return False
        case _:
            return isinstance(state, Accepted)
