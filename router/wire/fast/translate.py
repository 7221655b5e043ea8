"""Translation between this protocol and AMQP 1.0: the functions used by ``router.wire.hub``.

What goes where: docs/translation-fast.md. The quick functions have no rules of their own: similar
messages differ only in bodies and identifiers, so everything before the body is translated once,
without the identifier, and cached. The identifier is the first of AMQP 1.0's properties (§3.2.4),
and is inserted there.
"""

from typing import Final

import attrs

from router.errors import DecodeError, TranslationError
from router.wire.fast import marks
from router.wire.fast.from_sections import from_message
from router.wire.fast.message import KNOWN_LIMIT, KNOWN_OCTETS, identifier_at, layout_of
from router.wire.fast.to_sections import to_message
from router.wire.v1_0 import sections
from router.wire.v1_0.encoding import compound
from router.wire.v1_0.types import encode_binary

to_sections = to_message
from_sections = from_message

_BODY_MARK: Final = marks.BODY.encode()
_SECTIONS_MARK: Final = marks.SECTIONS.encode()
_NO_BODY: Final = b"\0\0\0\0"
_DATA: Final = b"\x00\x53\x75"
_PROPERTIES: Final = b"\x00\x53\x73"

_STAND_IN: Final = b"\x01x"
"""A placeholder identifier, with its size."""


@attrs.frozen
class _Before:
    """Everything before a body's section, without the identifier.

    Attributes:
        front: sections before the properties.
        count: fields of the properties; 0: the message has no identifier, and all is ``front``.
        fields: the properties after the message-id.
        rest: sections after the properties.
    """

    front: bytes
    count: int = 0
    fields: bytes = b""
    rest: bytes = b""

    def octets(self, identifier: bytes) -> bytes:
        """Inserts an identifier, which has its size before it."""
        if not self.count:
            return self.front
        properties = compound(0xC0, self.count, b"\xa1" + identifier + self.fields)
        return b"".join((self.front, _PROPERTIES, properties, self.rest))


_to_sections_cache: dict[bytes, _Before] = {}
_from_sections_cache: dict[bytes, tuple[bytes, bytes]] = {}


def quick_to_sections(payload: bytes) -> bytes | None:
    """Translates a payload whose body is data; None: it needs the general translation.

    Raises:
        TranslationError: as ``to_sections``.
    """
    try:
        layout = layout_of(payload)
    except DecodeError as error:
        raise TranslationError("head", str(error)) from error
    start, body_start = layout.head_start, layout.body_start
    at = identifier_at(payload, start)
    after = at + 1 + payload[at]
    identifier = payload[at:after]
    stand_in = _STAND_IN if len(identifier) > 1 and identifier.isascii() else identifier
    key = payload[:start] + payload[start + 4 : at] + stand_in + payload[after:body_start]
    before = _to_sections_cache.get(key)
    if before is None:
        if _BODY_MARK in key or _SECTIONS_MARK in key:
            return None
        head = payload[start + 4 : at] + stand_in + payload[after:body_start]
        message = to_message(payload[:start] + _NO_BODY + head)
        message.data = []
        made = sections.encode_message(message)
        before = _without_identifier(made) if stand_in is _STAND_IN else _Before(made)
        if len(key) <= KNOWN_OCTETS:
            if len(_to_sections_cache) >= KNOWN_LIMIT:
                _to_sections_cache.clear()
            _to_sections_cache[key] = before
    return b"".join((before.octets(identifier), _DATA, encode_binary(payload[body_start:])))


def _without_identifier(made: bytes) -> _Before:
    """Removes the placeholder message-id from encoded sections."""
    [found] = [each for each in sections.walk(made) if each.code == sections.PROPERTIES]
    is_short = made[found.body_start] == 0xC0
    fields_at = found.body_start + (3 if is_short else 9)
    count = int.from_bytes(made[fields_at - (1 if is_short else 4) : fields_at], "big")
    return _Before(
        made[: found.start],
        count,
        made[fields_at + 1 + len(_STAND_IN) : found.end],
        made[found.end :],
    )


def quick_from_sections(payload: bytes) -> bytes | None:
    """Translates sections that end in one of data; None: they need the general translation.

    Raises:
        TranslationError: as ``from_sections``.
    """
    at = _data_at(payload)
    if at is None:
        return None
    before, body = payload[:at], payload[at + (5 if payload[at + 3] == 0xA0 else 8) :]
    known = _from_sections_cache.get(before)
    if known is None:
        try:
            message = sections.decode_message(before)
        except DecodeError as error:
            raise TranslationError("payload", str(error)) from error
        octets = from_message(message)
        start = layout_of(octets).head_start
        known = (octets[:start], octets[start + 4 :])
        if len(before) <= KNOWN_OCTETS:
            if len(_from_sections_cache) >= KNOWN_LIMIT:
                _from_sections_cache.clear()
            _from_sections_cache[before] = known
    prefix, head = known
    return b"".join((prefix, len(body).to_bytes(4, "big"), head, body))


def _data_at(payload: bytes) -> int | None:
    """Returns the offset of the data section, if it is the only one and at the end."""
    try:
        for section in sections.walk(payload):
            if section.code >= sections.DATA:
                is_plain = section.code == sections.DATA and section.end == len(payload)
                is_short = section.body_start == section.start + 3
                return section.start if is_plain and is_short else None
    except DecodeError:
        return None
    return None


__all__ = ["from_sections", "quick_from_sections", "quick_to_sections", "to_sections"]
