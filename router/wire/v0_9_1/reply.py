"""Reply codes (0-9-1 §1.2), and how they map to the error conditions of AMQP 1.0.

A *channel exception* (soft error) ends one channel with ``channel.close``; a *connection
exception* (hard error) ends the connection with ``connection.close``. Inside the engine both
are Python exceptions, raised where the fault is found and caught in one place; none leaves it.
"""

import enum
from typing import Final

import attrs

from router.errors import RouterError
from router.model import condition as conditions
from router.model.condition import Condition
from router.model.text import words


class Reply(enum.IntEnum):
    """Reply codes that close a channel or connection, or come with ``basic.return``."""

    SUCCESS = 200
    NOT_DELIVERED = 310  # of the versions before 0-9-1
    CONTENT_TOO_LARGE = 311
    NO_ROUTE = 312
    NO_CONSUMERS = 313
    CONNECTION_FORCED = 320
    INVALID_PATH = 402
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    FRAME_ERROR = 501
    SYNTAX_ERROR = 502
    COMMAND_INVALID = 503
    CHANNEL_ERROR = 504
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    NOT_ALLOWED = 530
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541


HARD_ERRORS: Final = frozenset(
    {
        Reply.CONNECTION_FORCED,
        Reply.INVALID_PATH,
        Reply.FRAME_ERROR,
        Reply.SYNTAX_ERROR,
        Reply.COMMAND_INVALID,
        Reply.CHANNEL_ERROR,
        Reply.UNEXPECTED_FRAME,
        Reply.RESOURCE_ERROR,
        Reply.NOT_ALLOWED,
        Reply.NOT_IMPLEMENTED,
        Reply.INTERNAL_ERROR,
    }
)
"""Codes that end the connection; the others end a channel."""

_CONDITIONS: Final[dict[int, str]] = {
    Reply.NOT_DELIVERED: conditions.PRECONDITION_FAILED,
    Reply.CONTENT_TOO_LARGE: conditions.MESSAGE_SIZE_EXCEEDED,
    Reply.NO_ROUTE: conditions.NOT_FOUND,
    Reply.NO_CONSUMERS: conditions.NOT_FOUND,
    Reply.CONNECTION_FORCED: conditions.CONNECTION_FORCED,
    Reply.INVALID_PATH: conditions.NOT_FOUND,
    Reply.ACCESS_REFUSED: conditions.UNAUTHORIZED_ACCESS,
    Reply.NOT_FOUND: conditions.NOT_FOUND,
    Reply.RESOURCE_LOCKED: conditions.RESOURCE_LOCKED,
    Reply.PRECONDITION_FAILED: conditions.PRECONDITION_FAILED,
    Reply.FRAME_ERROR: conditions.FRAMING_ERROR,
    Reply.SYNTAX_ERROR: conditions.DECODE_ERROR,
    Reply.COMMAND_INVALID: conditions.ILLEGAL_STATE,
    Reply.CHANNEL_ERROR: conditions.ILLEGAL_STATE,
    Reply.UNEXPECTED_FRAME: conditions.FRAMING_ERROR,
    Reply.RESOURCE_ERROR: conditions.RESOURCE_LIMIT_EXCEEDED,
    Reply.NOT_ALLOWED: conditions.NOT_ALLOWED,
    Reply.NOT_IMPLEMENTED: conditions.NOT_IMPLEMENTED,
    Reply.INTERNAL_ERROR: conditions.INTERNAL_ERROR,
}
"""Reply code → error condition. Total over ``Reply`` but for success, which is no error."""

_CHANNEL_REPLIES: Final[dict[str, Reply]] = {
    conditions.NOT_FOUND: Reply.NOT_FOUND,
    conditions.UNAUTHORIZED_ACCESS: Reply.ACCESS_REFUSED,
    conditions.NOT_ALLOWED: Reply.ACCESS_REFUSED,
    conditions.RESOURCE_LOCKED: Reply.RESOURCE_LOCKED,
    conditions.STOLEN: Reply.RESOURCE_LOCKED,
    conditions.RESOURCE_DELETED: Reply.NOT_FOUND,
    conditions.MESSAGE_SIZE_EXCEEDED: Reply.CONTENT_TOO_LARGE,
}
"""Error condition of a link → soft reply code; the others become precondition-failed."""

_CONNECTION_REPLIES: Final[dict[str, Reply]] = {
    conditions.CONNECTION_FORCED: Reply.CONNECTION_FORCED,
    conditions.CONNECTION_REDIRECT: Reply.CONNECTION_FORCED,
    conditions.NOT_FOUND: Reply.INVALID_PATH,
    conditions.FRAMING_ERROR: Reply.FRAME_ERROR,
    conditions.DECODE_ERROR: Reply.SYNTAX_ERROR,
    conditions.ILLEGAL_STATE: Reply.COMMAND_INVALID,
    conditions.RESOURCE_LIMIT_EXCEEDED: Reply.RESOURCE_ERROR,
    conditions.NOT_ALLOWED: Reply.NOT_ALLOWED,
    conditions.UNAUTHORIZED_ACCESS: Reply.NOT_ALLOWED,
    conditions.NOT_IMPLEMENTED: Reply.NOT_IMPLEMENTED,
}
"""Error condition of a connection → hard reply code; the others become internal-error."""


@attrs.frozen
class PeerError(RouterError):
    """A peer's fault, or a request that cannot be met, which ends in a ``close``.

    Attributes:
        code: the reply code; whether it is hard decides what is closed.
        text: for people: names the object and the rule.
        class_id, method_id: the method at fault; 0 if none is.
    """

    code: Reply
    text: str
    class_id: int = 0
    method_id: int = 0

    def __str__(self) -> str:
        return reply_text(self.code, self.text)


class BrokenStreamError(PeerError):
    """The peer's octets are not frames: no close is sent (§4.2.3)."""


def reply_text(code: Reply, text: str) -> str:
    """Formats a close text as brokers do (``NOT_FOUND - …``), within the 255 octets allowed."""
    return words(f"{code.name} - {text}").encode()[:255].decode("utf-8", "ignore")


def condition_of(code: int, text: str) -> Condition:
    """Translates a peer's reply code, known or not, into an error condition."""
    return Condition(_CONDITIONS.get(code, conditions.INTERNAL_ERROR), f"{code} {text}".rstrip())


def channel_reply(condition: Condition | None) -> Reply:
    """Returns the soft code for the end of a link."""
    if condition is None:
        return Reply.PRECONDITION_FAILED
    return _CHANNEL_REPLIES.get(condition.name, Reply.PRECONDITION_FAILED)


def connection_reply(condition: Condition | None) -> Reply:
    """Returns the hard code for the end of a connection; success if it is orderly."""
    if condition is None:
        return Reply.SUCCESS
    return _CONNECTION_REPLIES.get(condition.name, Reply.INTERNAL_ERROR)
