"""The small family of errors that this program raises.

A peer's error never leaves an engine as an exception: the engine turns it into events that end in
``ConnectionClosed(condition)``. A codec raises ``DecodeError`` for its own engine to handle.
"""

import attrs


class RouterError(Exception):
    """Anything that this program raises on purpose."""


@attrs.frozen
class DecodeError(RouterError):
    """Octets that break a rule of their protocol.

    Attributes:
        offset: the position of the error in the input, counted from 0.
        rule: the broken rule, in one phrase that names the field if there is one.
        condition: the error condition that the protocol asks for, e.g. ``amqp:decode-error``.
    """

    offset: int
    rule: str
    condition: str = "amqp:decode-error"

    def __str__(self) -> str:
        return f"octet {self.offset}: {self.rule}"


@attrs.frozen
class TranslationError(RouterError):
    """A message cannot be translated faithfully to another protocol.

    Attributes:
        field: the property, header or section that cannot be carried.
        reason: why not, in one phrase.
    """

    field: str
    reason: str

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}"


@attrs.frozen
class MisuseError(RouterError):
    """A caller inside this program broke an interface; always a defect of ours."""

    reason: str

    def __str__(self) -> str:
        return self.reason


def reason_of(error: Exception) -> str:
    """Returns why something failed, as a person reads it: without the number of an OSError."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
