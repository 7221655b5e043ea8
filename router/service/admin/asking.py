"""Parameters and bodies of requests, and their strict validation.

A body is an attrs class like a view; ``bounded`` gives a field its bounds, which the OpenAPI
document lists and the reader enforces.
"""

import enum
import json
import re
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

import attrs

from router.core.resolve import Decision
from router.errors import RouterError
from router.model.text import is_text
from router.service.config.process import LogLevel

BODY_OCTETS_MOST: Final = 64 << 10
"""The longest body that is read: room for the longest address, each character of it escaped."""

TEXT_MOST: Final = 4096
"""Most characters of a text in a request: the longest address."""

PAGE_MOST: Final = 500
PAGE_USUAL: Final = 100

Body = TypeVar("Body", bound=attrs.AttrsInstance)
Bounds = Mapping[str, Any]

_BOUNDS: Final = "bounds"
_PATTERN: Final = r"^([^*#./]*|[*#])([./]([^*#./]*|[*#]))*$"
"""Form of a pattern, in which a wildcard is a whole token (``parse_pattern`` reports the error)."""

_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")


@attrs.frozen
class BadRequestError(RouterError):
    """The request does not conform to the OpenAPI document."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@attrs.frozen(kw_only=True)
class Parameter:
    """One parameter of an operation.

    Attributes:
        kind: of its values: str, int or bool.
        bounds: in words of JSON Schema: minimum, maximum, maxLength, minLength, pattern.
        default: if it is left out; a parameter in the path is never left out.
    """

    name: str
    description: str
    kind: type = str
    in_path: bool = False
    bounds: Bounds = attrs.field(factory=lambda: {"maxLength": TEXT_MOST})
    default: Any = None


def bounded(*, description: str, default: Any = attrs.NOTHING, **bounds: Any) -> Any:
    """Declares a field of a body.

    Args:
        description: for the OpenAPI document.
        default: if it is left out; without one it must be given.
        bounds: in words of JSON Schema.
    """
    return attrs.field(default=default, metadata={_BOUNDS: bounds, "description": description})


@attrs.frozen(kw_only=True)
class ResolveBody:
    """A decision about a delivery in doubt."""

    decision: Decision = bounded(
        description="resend: send it again; discard: settle it as rejected with its sender;"
        " accept: settle it as accepted with its sender"
    )
    link: str | None = bounded(
        default=None,
        description="name of the link on which it was received; default: any",
        maxLength=TEXT_MOST,
    )


@attrs.frozen(kw_only=True)
class StoredBody:
    """Which stored messages somebody decides about, and who."""

    route: str | None = bounded(
        default=None,
        description="name of their route; default: any",
        minLength=1,
        maxLength=TEXT_MOST,
    )
    address: str | None = bounded(
        default=None, description="their address; default: any", minLength=1, maxLength=TEXT_MOST
    )
    by: str = bounded(default="", description="who decides it, for the log", maxLength=200)


@attrs.frozen(kw_only=True)
class DropBody(StoredBody):
    """Which stored messages to drop; route or address is needed."""

    needs_one_of: ClassVar[tuple[str, ...]] = ("route", "address")

    older_than_seconds: float = bounded(
        default=0.0, description="only messages that have been stored for longer", minimum=0
    )
    count: int | None = bounded(
        default=None, description="the oldest of these only; default: all", minimum=1
    )
    forget: bool = bounded(
        default=False, description="delete them; default: they become dead letters"
    )


@attrs.frozen(kw_only=True)
class TraceBody:
    """What to follow."""

    address: str = bounded(
        description="an address, or a pattern of addresses",
        minLength=1,
        maxLength=TEXT_MOST,
        pattern=_PATTERN,
    )
    count: int = bounded(default=10, description="deliveries to follow", minimum=1, maximum=100)
    seconds: float = bounded(
        default=30.0, description="duration after which the trace ends", minimum=0.1, maximum=600
    )


@attrs.frozen(kw_only=True)
class LogLevelBody:
    """The least severity to log."""

    level: LogLevel = bounded(description="debug, info, warning or error")


def read_query(parameters: Sequence[Parameter], given: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Reads the parameters in a query.

    Raises:
        BadRequestError: one is unknown, repeated or invalid.
    """
    known = {each.name: each for each in parameters if not each.in_path}
    read: dict[str, Any] = {name: each.default for name, each in known.items()}
    seen = set()
    for name, text in given:
        if name not in known:
            raise BadRequestError(f"unknown parameter {name!r}; known: {', '.join(known) or '-'}")
        if name in seen:
            raise BadRequestError(f"parameter {name!r} is given twice")
        seen.add(name)
        read[name] = _read_text(known[name], text)
    return read


def _read_text(parameter: Parameter, text: str) -> Any:
    value: Any = text
    if parameter.kind is bool:
        if text not in ("true", "false"):
            raise BadRequestError(f"parameter {parameter.name!r} is true or false")
        value = text == "true"
    elif parameter.kind is int:
        if not _WHOLE.fullmatch(text):
            raise BadRequestError(f"parameter {parameter.name!r} is a whole number")
        value = int(text)
    _check(f"parameter {parameter.name!r}", value, parameter.bounds)
    pattern = parameter.bounds.get("pattern")
    if pattern is not None and not re.fullmatch(pattern, text):
        raise BadRequestError(f"parameter {parameter.name!r} is not of the form {pattern}")
    return value


def read_body(cls: type[Body], octets: bytes) -> Body:
    """Reads a body.

    Raises:
        BadRequestError: it is not a JSON object, or a field is invalid.
    """
    try:
        given = json.loads(octets)
    except (ValueError, RecursionError):
        raise BadRequestError("the body is not JSON") from None
    if not isinstance(given, dict):
        raise BadRequestError("the body is not a JSON object")
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in attrs.fields(cls)}
    for name in given:
        if name not in fields:
            raise BadRequestError(f"unknown key {name!r}; known: {', '.join(fields)}")
    values = {}
    for name, field in fields.items():
        if name in given:
            values[name] = _read_value(name, given[name], hints[name], field.metadata[_BOUNDS])
        elif field.default is attrs.NOTHING:
            raise BadRequestError(f"key {name!r} is missing")
    return cls(**values)


def _read_value(name: str, value: Any, kind: Any, bounds: Bounds) -> Any:
    what = f"key {name!r}"
    if isinstance(kind, types.UnionType):
        if value is None:
            return None
        kind = next(each for each in typing.get_args(kind) if each is not type(None))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        values = [member.value for member in kind]
        if value not in values:
            raise BadRequestError(f"{what} is one of {', '.join(values)}")
        return kind(value)
    if kind is float and type(value) is int:
        value = float(value)
    if kind is int and type(value) is float and value.is_integer():
        value = int(value)  # 36.0 is a whole number to JSON Schema
    if type(value) is not kind:
        raise BadRequestError(f"{what} is of type {kind.__name__}")
    _check(what, value, bounds)
    return value


def _check(what: str, value: Any, bounds: Bounds) -> None:
    if isinstance(value, str) and not is_text(value):
        raise BadRequestError(f"{what} holds half of a surrogate pair, which is no text")
    size = len(value) if isinstance(value, str) else value
    low = bounds.get("minLength", bounds.get("minimum"))
    high = bounds.get("maxLength", bounds.get("maximum"))
    unit = " characters" if isinstance(value, str) else ""
    if low is not None and not size >= low:
        raise BadRequestError(f"{what} is less than {low}{unit}")
    if high is not None and not size <= high:
        raise BadRequestError(f"{what} is more than {high}{unit}")


def bounds_of(field: "attrs.Attribute[Any]") -> Bounds:
    """Returns the bounds of a body's field; a view's field has none."""
    bounds: Bounds = field.metadata.get(_BOUNDS, {})
    return bounds
