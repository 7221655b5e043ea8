"""Codes of errors (0-10 connection.close-code, execution.error-code), and AMQP 1.0's conditions.

A peer's fault ends one of two things: the session, by ``execution.exception`` and a detach, or the
connection, by ``connection.close``. Inside the engine both are Python exceptions, raised where the
fault is found and caught in one place; none leaves it.
"""

import enum
from typing import Final

import attrs

from router.errors import DecodeError, RouterError
from router.model import condition as conditions
from router.model.condition import Condition
from router.model.outcome import Rejected
from router.model.text import words

REJECTED: Final = "amqp-0-10:rejected"
"""Condition of a message that was refused for a reason without a name in AMQP 1.0."""


class CloseCode(enum.IntEnum):
    """Why a connection ends (connection.close-code)."""

    NORMAL = 200
    CONNECTION_FORCED = 320
    INVALID_PATH = 402
    FRAMING_ERROR = 501


class ErrorCode(enum.IntEnum):
    """Why a session ends (execution.error-code)."""

    UNAUTHORIZED_ACCESS = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    RESOURCE_DELETED = 408
    ILLEGAL_STATE = 409
    COMMAND_INVALID = 503
    RESOURCE_LIMIT_EXCEEDED = 506
    NOT_ALLOWED = 530
    ILLEGAL_ARGUMENT = 531
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541
    INVALID_ARGUMENT = 542


class RejectCode(enum.IntEnum):
    """Why a message is refused (message.reject-code)."""

    UNSPECIFIED = 0
    UNROUTABLE = 1
    IMMEDIATE = 2


class DetachCode(enum.IntEnum):
    """Why a session is detached (session.detach-code)."""

    NORMAL = 0
    SESSION_BUSY = 1
    TRANSPORT_BUSY = 2
    NOT_ATTACHED = 3
    UNKNOWN_IDS = 4


_CLOSE_CONDITIONS: Final[dict[int, str]] = {
    CloseCode.CONNECTION_FORCED: conditions.CONNECTION_FORCED,
    CloseCode.INVALID_PATH: conditions.NOT_FOUND,
    CloseCode.FRAMING_ERROR: conditions.FRAMING_ERROR,
}

_CLOSE_CODES: Final[dict[str, CloseCode]] = {
    conditions.NOT_FOUND: CloseCode.INVALID_PATH,
    conditions.FRAMING_ERROR: CloseCode.FRAMING_ERROR,
    conditions.DECODE_ERROR: CloseCode.FRAMING_ERROR,
}
"""Condition of a connection → close code; the others become connection-forced."""

_ERROR_CONDITIONS: Final[dict[int, str]] = {
    ErrorCode.UNAUTHORIZED_ACCESS: conditions.UNAUTHORIZED_ACCESS,
    ErrorCode.NOT_FOUND: conditions.NOT_FOUND,
    ErrorCode.RESOURCE_LOCKED: conditions.RESOURCE_LOCKED,
    ErrorCode.PRECONDITION_FAILED: conditions.PRECONDITION_FAILED,
    ErrorCode.RESOURCE_DELETED: conditions.RESOURCE_DELETED,
    ErrorCode.ILLEGAL_STATE: conditions.ILLEGAL_STATE,
    ErrorCode.COMMAND_INVALID: conditions.DECODE_ERROR,
    ErrorCode.RESOURCE_LIMIT_EXCEEDED: conditions.RESOURCE_LIMIT_EXCEEDED,
    ErrorCode.NOT_ALLOWED: conditions.NOT_ALLOWED,
    ErrorCode.ILLEGAL_ARGUMENT: conditions.INVALID_FIELD,
    ErrorCode.NOT_IMPLEMENTED: conditions.NOT_IMPLEMENTED,
    ErrorCode.INTERNAL_ERROR: conditions.INTERNAL_ERROR,
    ErrorCode.INVALID_ARGUMENT: conditions.INVALID_FIELD,
}
"""Error code → condition. Total over ``ErrorCode``."""

_ERROR_CODES: Final[dict[str, ErrorCode]] = {
    conditions.UNAUTHORIZED_ACCESS: ErrorCode.UNAUTHORIZED_ACCESS,
    conditions.NOT_FOUND: ErrorCode.NOT_FOUND,
    conditions.RESOURCE_LOCKED: ErrorCode.RESOURCE_LOCKED,
    conditions.STOLEN: ErrorCode.RESOURCE_LOCKED,
    conditions.PRECONDITION_FAILED: ErrorCode.PRECONDITION_FAILED,
    conditions.RESOURCE_DELETED: ErrorCode.RESOURCE_DELETED,
    conditions.DETACH_FORCED: ErrorCode.RESOURCE_DELETED,
    conditions.ILLEGAL_STATE: ErrorCode.ILLEGAL_STATE,
    conditions.RESOURCE_LIMIT_EXCEEDED: ErrorCode.RESOURCE_LIMIT_EXCEEDED,
    conditions.MESSAGE_SIZE_EXCEEDED: ErrorCode.RESOURCE_LIMIT_EXCEEDED,
    conditions.TRANSFER_LIMIT_EXCEEDED: ErrorCode.RESOURCE_LIMIT_EXCEEDED,
    conditions.NOT_ALLOWED: ErrorCode.NOT_ALLOWED,
    conditions.INVALID_FIELD: ErrorCode.ILLEGAL_ARGUMENT,
    conditions.DECODE_ERROR: ErrorCode.COMMAND_INVALID,
    conditions.NOT_IMPLEMENTED: ErrorCode.NOT_IMPLEMENTED,
    REJECTED: ErrorCode.PRECONDITION_FAILED,
}
"""Condition of a link → error code; the others become internal-error."""


@attrs.frozen
class ConnectionFaultError(RouterError):
    """A peer's fault that ends the connection."""

    code: CloseCode
    text: str

    def __str__(self) -> str:
        return self.text


@attrs.frozen
class SessionFaultError(RouterError):
    """A peer's fault, or a request that cannot be met, that ends a session.

    Attributes:
        text: for people: names the object and the rule.
        class_code, code: of the command at fault; 0 if none is.
        command: its command-id, in its long form; None if none is at fault.
    """

    error: ErrorCode
    text: str
    class_code: int = 0
    code: int = 0
    command: int | None = None

    def __str__(self) -> str:
        return self.text


def framing_error(text: str) -> ConnectionFaultError:
    """Returns the error for invalid frames, segments or controls."""
    return ConnectionFaultError(CloseCode.FRAMING_ERROR, text)


def close_condition(code: int | None, text: str | None) -> Condition | None:
    """Translates a peer's close into a condition; None: it was orderly."""
    if code in (None, CloseCode.NORMAL):
        return None
    assert code is not None
    name = _CLOSE_CONDITIONS.get(code, conditions.INTERNAL_ERROR)
    return Condition(name, f"{code} {text or ''}".rstrip())


def close_code(condition: Condition | None) -> CloseCode:
    """Returns the code for the end of a connection."""
    if condition is None:
        return CloseCode.NORMAL
    return _CLOSE_CODES.get(condition.name, CloseCode.CONNECTION_FORCED)


def error_condition(code: int | None, text: str | None) -> Condition:
    """Translates a peer's exception, known or not, into a condition."""
    name = _ERROR_CONDITIONS.get(code or 0, conditions.INTERNAL_ERROR)
    return Condition(name, f"{code} {text or ''}".rstrip())


def error_code(condition: Condition) -> ErrorCode:
    """Returns the code for the end of a link."""
    return _ERROR_CODES.get(condition.name, ErrorCode.INTERNAL_ERROR)


def rejection(code: int | None, text: str | None) -> Rejected:
    """Translates ``message.reject`` into an outcome."""
    if not code and not text:
        return Rejected()
    name = conditions.NOT_FOUND if code == RejectCode.UNROUTABLE else REJECTED
    return Rejected(Condition(name, text or f"rejected, code {code}"))


def decode_fault(error: DecodeError) -> SessionFaultError:
    """Returns the error for segments that cannot be decoded, or have values out of range."""
    is_readable = error.condition == conditions.INVALID_FIELD
    code = ErrorCode.ILLEGAL_ARGUMENT if is_readable else ErrorCode.COMMAND_INVALID
    return SessionFaultError(code, error.rule)


REJECT_CODES: Final = (None, *RejectCode)
"""Values of message.reject; Qpid's programs omit required fields."""

_MODES: Final = (None, 0, 1)


def check_modes(accept: int | None, acquire: int | None) -> None:
    """Refuses unknown values of accept-mode and acquire-mode.

    An absent mode is the first one: Qpid's client for Python sends none.

    Raises:
        SessionFaultError: one is out of range.
    """
    for name, mode in (("accept-mode", accept), ("acquire-mode", acquire)):
        if mode not in _MODES:
            raise SessionFaultError(ErrorCode.ILLEGAL_ARGUMENT, f"{name} {mode}")


def short_text(text: str, octets: int = 255) -> str:
    """Shortens a text to fit a string of the protocol."""
    return words(text).encode()[:octets].decode("utf-8", "ignore")
