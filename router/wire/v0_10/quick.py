"""Translation octets to octets, for messages with known beginnings.

Theory of operation. A stream of messages has few different beginnings: the same properties before
another body. The translation of a beginning is computed once in the general way (``to_sections``,
``from_sections``) and cached, within bounds; for the next such message the body is appended to it.
Unique beginnings, which contain an id, are cut (``cutting``) if they map directly. All ways give
the same octets as the general way, or give up (None) if the body influences the beginning: maps,
lists, values, several sections, footers.
"""

from typing import Final

from router.errors import DecodeError, TranslationError
from router.wire.v0_10 import marks
from router.wire.v0_10 import message as messages
from router.wire.v0_10.cutting import cut
from router.wire.v0_10.from_sections import from_message
from router.wire.v0_10.to_sections import translated
from router.wire.v1_0 import sections

_LIMIT: Final = 1024
"""Most cached beginnings of each kind; beyond it the cache is cleared."""

_LONGEST: Final = 4096
"""Most octets of a beginning that is cached."""

_DATA: Final = b"\x00\x53\x75"

_to_sections: dict[bytes, bytes | None] = {}
_from_sections: dict[tuple[bytes, int], bytes | None] = {}


def quick_to_sections(content: bytes) -> bytes | None:
    """Translates a content into sections; None: it needs the general translation."""
    try:
        header_at = content[0] + 5
        body_at = header_at + int.from_bytes(content[header_at - 4 : header_at], "big")
    except IndexError:
        return None
    size = len(content) - body_at
    if size < 0 or body_at > _LONGEST:
        return None
    beginning = content[:body_at]
    if beginning in _to_sections:
        known = _to_sections[beginning]
    else:
        known = _begin_to_sections(beginning)
        if len(_to_sections) >= _LIMIT:
            _to_sections.clear()
        _to_sections[beginning] = known
    if known is None:
        return None
    if size < 256:
        return b"".join((known, _DATA, b"\xa0", bytes((size,)), content[body_at:]))
    return b"".join((known, _DATA, b"\xb0", size.to_bytes(4, "big"), content[body_at:]))


def _begin_to_sections(beginning: bytes) -> bytes | None:
    plain = cut(beginning)
    if plain is not None:
        return plain
    try:
        found = messages.read_content(beginning)
        properties = found.message
        if properties.content_type in (marks.MAP_TYPE, marks.LIST_TYPE):
            return None
        if marks.BODY in (properties.application_headers or ()):
            return None
    except DecodeError:
        return None
    made = translated(found)
    made.data = []
    return None if made.footer else sections.encode_message(made)


def quick_from_sections(payload: bytes) -> bytes | None:
    """Translates sections into a content; None: they need the general translation."""
    at = payload.find(_DATA, 0, _LONGEST)
    if at < 0:
        return None
    start = at + 5
    if payload[at + 3 : at + 4] == b"\xa0" and len(payload) > at + 4:
        size = payload[at + 4]
    elif payload[at + 3 : at + 4] == b"\xb0":
        start = at + 8
        size = int.from_bytes(payload[at + 4 : start], "big")
    else:
        return None
    if start + size != len(payload):
        return None
    place = (payload[:at], size)
    if place in _from_sections:
        known = _from_sections[place]
    else:
        known = _begin_from_sections(payload, at)
        if len(_from_sections) >= _LIMIT:
            _from_sections.clear()
        _from_sections[place] = known
    return None if known is None else known + payload[start:]


def _begin_from_sections(payload: bytes, at: int) -> bytes | None:
    try:
        found = [section.start for section in sections.walk(payload)]
        if found[-1] != at:
            return None  # it is inside another section
        content = from_message(sections.decode_message(payload))
        return content[: messages.content_layout(content).body_at]
    except (DecodeError, TranslationError):
        return None
