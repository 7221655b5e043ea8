"""Strict reading of decoded AMQP values: whatever is wrong is named with the rule it breaks."""

from collections.abc import Sequence
from typing import Any, Final

import attrs

from router.errors import RouterError

ID_OCTETS_MOST: Final = 255
"""Octets of a router's id or an address: what the protocols before 1.0 can carry, too."""

U64: Final = (1 << 64) - 1
I63: Final = (1 << 63) - 1
"""The most that an AMQP long holds: numbers are longs on the wire."""


@attrs.frozen
class FieldError(RouterError):
    """A field breaks a rule.

    Attributes:
        field: which, e.g. ``hello.epoch``.
        rule: the rule.
    """

    field: str
    rule: str

    def __str__(self) -> str:
        return f"{self.field} {self.rule}"


def as_map(value: object, field: str) -> dict[Any, Any]:
    """Returns a map; its keys may be anything."""
    if not isinstance(value, dict):
        raise FieldError(field, f"is a map, not {_name(value)}")
    return value


def take(fields: dict[Any, Any], key: str, field: str) -> object:
    """Returns a field that must be there."""
    if key not in fields:
        raise FieldError(f"{field}.{key}", "is missing")
    value: object = fields[key]
    return value


def as_list(value: object, field: str, most: int) -> list[Any]:
    """Returns a list of at most some items."""
    if not isinstance(value, list):
        raise FieldError(field, f"is a list, not {_name(value)}")
    if len(value) > most:
        raise FieldError(field, f"has at most {most} items, not {len(value)}")
    return value


def as_row(value: object, field: str, width: int) -> Sequence[Any]:
    """Returns a list of at least some items; later versions may append to it."""
    if not isinstance(value, list):
        raise FieldError(field, f"is a list, not {_name(value)}")
    if len(value) < width:
        raise FieldError(field, f"has at least {width} items, not {len(value)}")
    return value


def as_number(value: object, field: str, least: int = 0, most: int = I63) -> int:
    """Returns a whole number within bounds."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise FieldError(field, f"is a whole number, not {_name(value)}")
    if not least <= value <= most:
        raise FieldError(field, f"is from {least} to {most}, not {int(value)}")
    return int(value)


def as_boolean(value: object, field: str) -> bool:
    """Returns a boolean."""
    if not isinstance(value, bool):
        raise FieldError(field, f"is a boolean, not {_name(value)}")
    return value


def as_octets(value: object, field: str, least: int, most: int) -> bytes:
    """Returns a binary whose size is within bounds."""
    if type(value) is not bytes:  # a decimal is a subclass
        raise FieldError(field, f"is a binary, not {_name(value)}")
    if not least <= len(value) <= most:
        raise FieldError(field, f"has {least} to {most} octets, not {len(value)}")
    return value


def as_digest(value: object, field: str) -> int:
    """Returns the number that a binary of 8 octets stands for."""
    return int.from_bytes(as_octets(value, field, 8, 8), "big")


def as_text(value: object, field: str, most: int = ID_OCTETS_MOST) -> str:
    """Returns a string that is neither empty, nor too long, nor has control characters."""
    if type(value) is not str:  # a symbol or a char is a subclass
        raise FieldError(field, f"is a string, not {_name(value)}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise FieldError(field, "is valid Unicode") from None
    if not 0 < size <= most:
        raise FieldError(field, f"has 1 to {most} octets, not {size}")
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in value):
        raise FieldError(field, "has no control characters")
    return value


def _name(value: object) -> str:
    return "null" if value is None else type(value).__name__.lower()
