"""The small family of errors that this program raises.

What a peer does wrong is never an exception by the time it leaves an engine: it is an event that
ends in ``ConnectionClosed(condition)``. ``DecodeError`` is how a codec tells its own engine.
"""

import attrs


class RouterError(Exception):
    """Anything that this program raises on purpose."""


@attrs.frozen
class DecodeError(RouterError):
    """Octets that break a rule of their protocol.

    Attributes:
        offset: where in the octets handed over, counted from 0.
        rule: the rule that was broken, in one phrase, naming the field where there is one.
        condition: the error condition that the protocol asks for, e.g. ``amqp:decode-error``.
    """

    offset: int
    rule: str
    condition: str = "amqp:decode-error"

    def __str__(self) -> str:
        return f"octet {self.offset}: {self.rule}"


@attrs.frozen
class TranslationError(RouterError):
    """A message that has no faithful form in another protocol.

    Attributes:
        field: the property, header or section that cannot be carried.
        reason: why, in one phrase.
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
