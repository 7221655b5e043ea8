"""Messages as JSON, one a line: all sections of AMQP 1.0, each value with its type (§3.2).

    {"header": {"durable": true, "priority": 4, "ttl": 1000, "first-acquirer": true,
                "delivery-count": 1},
     "delivery-annotations": {..}, "message-annotations": {..},
     "properties": {"message-id": .., "user-id": .., "to": .., ..},
     "application-properties": {..},
     "data": "text" | {"binary": base64} | [one of these for each section],
     "amqp-sequence": [[..], ..], one list for each section,
     "amqp-value": ..,
     "footer": {..}}

Every member may be absent, and at most one of the three bodies is there. Values are written as
``json_values`` says. Keys of annotations and of the footer are symbols, those of application
properties strings; a section with other keys is an array of [key, value]. Fields of header and
properties have the types that §3.2 gives them and are written plainly; times are milliseconds.
A message-id is a string, or {"ulong": 1}, {"uuid": ".."}, {"binary": ".."}.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from router.errors import MisuseError
from router.net.client.json_values import (
    UnfitValueError,
    from_json,
    integer,
    pairs_from_json,
    pairs_to_json,
    symbol,
    text,
    to_json,
)
from router.wire.v1_0.sections import (
    NO_VALUE,
    AnnotatedMessage,
    Header,
    Properties,
    encode_message,
)
from router.wire.v1_0.types import Symbol, Ulong

_MAPS: Final[Mapping[str, tuple[type, Callable[[Any], Any]]]] = {
    "delivery-annotations": (Symbol, symbol),
    "message-annotations": (Symbol, symbol),
    "application-properties": (str, text),
    "footer": (Symbol, symbol),
}
"""Section → form of its usual keys, and what reads one."""

_BODIES: Final = ("data", "amqp-sequence", "amqp-value")
_SECTIONS: Final = frozenset((*_MAPS, "header", "properties", *_BODIES))


# --- to JSON --------------------------------------------------------------------------------------


def to_line(message: AnnotatedMessage) -> str:
    """Writes a message as one line of JSON in printable ASCII, without its end."""
    members: dict[str, Any] = {}
    if message.header is not None:
        members["header"] = _header_to_json(message.header)
    for name in _MAPS:
        section = getattr(message, name.replace("-", "_"))
        if section is not None:
            members[name] = pairs_to_json(section, _MAPS[name][0])
    if message.properties is not None:
        members["properties"] = _properties_to_json(message.properties)
    if message.data:
        data = [_octets_to_json(each) for each in message.data]
        members["data"] = data[0] if len(data) == 1 else data
    if message.sequences:
        members["amqp-sequence"] = to_json(message.sequences)
    if message.value is not NO_VALUE:
        members["amqp-value"] = to_json(message.value)
    return json.dumps(members).replace("\x7f", "\\u007f")


def _header_to_json(header: Header) -> dict[str, Any]:
    fields = {
        "durable": header.durable or None,
        "priority": header.priority,
        "ttl": header.ttl_ms,
        "first-acquirer": header.first_acquirer or None,
        "delivery-count": header.delivery_count or None,
    }
    return {
        name: int(value) if type(value) is not bool else value
        for name, value in fields.items()
        if value is not None
    }


def _properties_to_json(properties: Properties) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _PROPERTIES:
        value = getattr(properties, name.replace("-", "_"))
        if value is None:
            continue
        if name in ("message-id", "correlation-id"):
            found[name] = to_json(value)
        elif isinstance(value, bytes):
            found[name] = _octets_to_json(value)
        else:
            found[name] = int(value) if isinstance(value, int) else str(value)
    return found


def _octets_to_json(octets: bytes) -> Any:
    try:
        return bytes(octets).decode()
    except UnicodeDecodeError:
        return to_json(bytes(octets))


# --- from JSON ------------------------------------------------------------------------------------


def encode_line(line: bytes) -> bytes:
    """Encodes the message that a line of JSON says.

    Raises:
        UnfitValueError: it says none.
    """
    return encode_message(from_line(line))


def from_line(line: bytes) -> AnnotatedMessage:
    """Returns the message that a line of JSON says.

    Raises:
        UnfitValueError: it says none; the rule names the section.
    """
    try:
        found = json.loads(line, object_pairs_hook=_once, parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise UnfitValueError("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise UnfitValueError(f"it is no JSON: {error.msg}, column {error.colno}") from None
    except (ValueError, RecursionError):  # digits without end, brackets without end
        raise UnfitValueError("it is no JSON that can be read") from None
    if not isinstance(found, dict):
        raise UnfitValueError("a message is an object of sections")
    message = AnnotatedMessage()
    bodies = [name for name in _BODIES if name in found]
    if len(bodies) > 1:
        raise UnfitValueError(f"a message has one kind of body, and here are {bodies}")
    for name, content in found.items():
        if name not in _SECTIONS:
            raise UnfitValueError(f"{name!r} is no section of a message")
        try:
            _read_section(message, name, content)
        except UnfitValueError as error:
            raise UnfitValueError(f"{name}: {error.rule}") from None
        except MisuseError as error:
            raise UnfitValueError(f"{name}: {error.reason}") from None
    return message


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise UnfitValueError("an object has the same member twice")
    return members


def _no_constant(name: str) -> Any:
    raise UnfitValueError(f"{name} is no JSON")


def _read_section(message: AnnotatedMessage, name: str, content: Any) -> None:
    if name in _MAPS:
        section = pairs_from_json(content, _MAPS[name][1], 0)
        setattr(message, name.replace("-", "_"), section)
    elif name == "header":
        fields = _fields(content, _HEADER)
        if "ttl" in fields:
            fields["ttl_ms"] = fields.pop("ttl")
        message.header = Header(**fields)
    elif name == "properties":
        message.properties = Properties(**_fields(content, _PROPERTIES))
    elif name == "data":
        message.data = [_octets(each) for each in (content if type(content) is list else [content])]
    elif name == "amqp-sequence":
        if not isinstance(content, list) or not all(isinstance(each, list) for each in content):
            raise UnfitValueError("it is an array with an array for each section")
        message.sequences = from_json(content)
    else:
        message.value = from_json(content)


def _fields(content: Any, readers: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise UnfitValueError("it is an object of fields")
    fields: dict[str, Any] = {}
    for name, value in content.items():
        if name not in readers:
            raise UnfitValueError(f"{name!r} is no field of it")
        if value is None:
            continue
        try:
            fields[name.replace("-", "_")] = readers[name](value)
        except UnfitValueError as error:
            raise UnfitValueError(f"{name}: {error.rule}") from None
    return fields


def _octets(found: Any) -> bytes:
    if isinstance(found, str):
        return text(found).encode()
    value = from_json(found)
    if type(value) is not bytes:
        raise UnfitValueError('it is text, or {"binary": base64}')
    return value


def _flag(found: Any) -> bool:
    if not isinstance(found, bool):
        raise UnfitValueError("it is true or false")
    return found


def _number(kind: str) -> Callable[[Any], int]:
    def read(found: Any) -> int:
        return int(integer(kind, found))

    return read


def _message_id(found: Any) -> Any:
    value = integer("ulong", found) if type(found) is int else from_json(found)
    if not isinstance(value, (str, bytes, Ulong)) and type(value).__name__ != "UUID":
        raise UnfitValueError("it is a string, ulong, uuid or binary")
    return value


_HEADER: Final[Mapping[str, Callable[[Any], Any]]] = {
    "durable": _flag,
    "priority": _number("ubyte"),
    "ttl": _number("uint"),
    "first-acquirer": _flag,
    "delivery-count": _number("uint"),
}
_PROPERTIES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "message-id": _message_id,
    "user-id": _octets,
    "to": text,
    "subject": text,
    "reply-to": text,
    "correlation-id": _message_id,
    "content-type": symbol,
    "content-encoding": symbol,
    "absolute-expiry-time": _number("timestamp"),
    "creation-time": _number("timestamp"),
    "group-id": text,
    "group-sequence": _number("uint"),
    "reply-to-group-id": text,
}
