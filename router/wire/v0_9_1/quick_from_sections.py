"""From AMQP 1.0 to 0-9-1 in octets, for common messages.

Theory of operation. The reverse of ``quick_to_sections``: sections whose fields map directly are
cut up and assembled as a content header, without values in between; the first field that does not
map directly makes it give up (None), and ``from_sections`` translates the message with the same
result.

Fields that map directly: sections with numeric descriptors, without delivery annotations, and a
single data section; properties that are ASCII, and ids that are strings, uuids or numbers;
annotations and application properties that are simple values with ASCII names unknown to ``marks``.

Header sections and complete maps are cached, since many senders repeat them.
"""

import struct
import uuid
from collections.abc import Callable
from typing import Final

from router.wire.v0_9_1 import marks
from router.wire.v0_9_1.content import FLAGS

_LIMIT: Final = 1024
"""Most cached entries of each kind; beyond it the cache is cleared."""

_U32 = struct.Struct(">I").unpack_from
_U64 = struct.Struct(">Q").unpack_from
_S64 = struct.Struct(">q").unpack_from
_PACK_U32 = struct.Struct(">I").pack
_PACK_U64 = struct.Struct(">Q").pack
_PACK_HEAD = struct.Struct(">HHQH").pack

_Slots = list[bytes]
"""Octets of the properties of a content header, in their order; empty where absent."""


class _GiveUp(Exception):  # noqa: N818  it is no error
    """The message needs the general translation."""


_headers: dict[bytes, tuple[bytes, bytes, bytes]] = {}
_annotations: dict[bytes, tuple[bytes, bytes, bool, frozenset[bytes]]] = {}
_applications: dict[bytes, tuple[bytes, bytes, frozenset[bytes]]] = {}
_names: dict[bytes, bytes] = {}


def quick_from_sections(payload: bytes) -> bytes | None:
    """Translates the octets of sections into a content; None: it needs the general translation."""
    try:
        return _translate(payload)
    except (_GiveUp, IndexError, ValueError, struct.error):
        return None


def _translate(payload: bytes) -> bytes:
    at = 0
    slots = [b""] * _SLOTS
    route, table, is_mode_absent, names = b"\x00\x00", b"", False, _NO_NAMES
    entries_of: _Entries = {}
    if payload.startswith(b"\x00\x53\x70"):
        at = _end(payload, 3)
        section = payload[3:at]
        found = _headers.get(section) or _read_header(section)
        slots[_MODE], slots[_PRIORITY], slots[_EXPIRATION] = found
    if payload.startswith(b"\x00\x53\x72", at):
        start, at = at + 3, _end(payload, at + 3)
        section = payload[start:at]
        annotations = _annotations.get(section) or _read_annotations(section)
        route, table, is_mode_absent, names = annotations
        if is_mode_absent:
            slots[_MODE] = b""
    if payload.startswith(b"\x00\x53\x73", at):
        at = _read_properties(payload, at + 3, slots, entries_of)
    if payload.startswith(b"\x00\x53\x74", at):
        start, at = at + 3, _end(payload, at + 3)
        section = payload[start:at]
        application = _applications.get(section) or _read_application(section)
        entries, slots[_APP_ID], more_names = application
        if names and not names.isdisjoint(more_names):
            raise _GiveUp
        table += entries
    body = _read_body(payload, at)
    for name in _ENTRY_NAMES:
        if name in entries_of:
            table += entries_of[name]
    if table:
        slots[_TABLE] = _PACK_U32(len(table)) + table
    flags = 0
    for flag, octets in zip(_FLAGS, slots, strict=True):
        if octets:
            flags |= flag
    return b"".join((b"\x00", route, _PACK_HEAD(60, 0, len(body), flags), *slots, body))


def _end(payload: bytes, at: int) -> int:
    """Returns the end of a list or map."""
    code = payload[at]
    if code == 0x45:
        return at + 1
    if code in (0xC0, 0xC1):
        end = at + 2 + payload[at + 1]
    elif code in (0xD0, 0xD1):
        end = at + 5 + _U32(payload, at + 1)[0]
    else:
        raise _GiveUp
    if end > len(payload):
        raise _GiveUp
    return end


def _open(octets: bytes, at: int, narrow: int) -> tuple[int, int]:
    """Reads the head of a list or map; returns its count, and the offset of its first item."""
    code = octets[at]
    if code == narrow:
        return octets[at + 2], at + 3
    if code == narrow + 0x10:
        return _U32(octets, at + 5)[0], at + 9
    raise _GiveUp


def _read_body(payload: bytes, at: int) -> bytes:
    if not payload.startswith(b"\x00\x53\x75", at):
        raise _GiveUp
    code = payload[at + 3]
    if code == 0xA0:
        start = at + 5
        size = payload[at + 4]
    elif code == 0xB0:
        start = at + 8
        size = _U32(payload, at + 4)[0]
    else:
        raise _GiveUp
    if start + size != len(payload):
        raise _GiveUp
    return payload[start:]


# --- header ---------------------------------------------------------------------------------------


def _read_header(section: bytes) -> tuple[bytes, bytes, bytes]:
    count, at = (0, 1) if section == b"\x45" else _open(section, 0, 0xC0)
    is_durable = False
    priority = expiration = b""
    if count > 3:
        raise _GiveUp
    if count > 0:
        code = section[at]
        if code not in (0x40, 0x41, 0x42):
            raise _GiveUp
        is_durable = code == 0x41
        at += 1
    if count > 1:
        if section[at] == 0x50:
            priority = section[at + 1 : at + 2]
            at += 1
        elif section[at] != 0x40:
            raise _GiveUp
        at += 1
    if count > 2:
        ttl, at = _read_uint(section, at)
        digits = b"%d" % ttl
        expiration = bytes((len(digits),)) + digits
    if at != len(section):
        raise _GiveUp
    found = b"\x02" if is_durable else b"\x01", priority, expiration
    if len(_headers) >= _LIMIT:
        _headers.clear()
    _headers[section] = found
    return found


def _read_uint(octets: bytes, at: int) -> tuple[int, int]:
    code = octets[at]
    if code == 0x43:
        return 0, at + 1
    if code == 0x52:
        return octets[at + 1], at + 2
    if code == 0x70:
        return _U32(octets, at + 1)[0], at + 5
    raise _GiveUp


# --- maps -----------------------------------------------------------------------------------------


def _read_annotations(section: bytes) -> tuple[bytes, bytes, bool, frozenset[bytes]]:
    exchange = key = b"\x00"
    is_mode_absent = False
    entries: list[bytes] = []
    seen: set[bytes] = set()
    count, at = _open(section, 0, 0xC1)
    if count & 1:
        raise _GiveUp
    for _ in range(count // 2):
        if section[at] != 0xA3:
            raise _GiveUp
        after = at + 2 + section[at + 1]
        name = section[at + 1 : after]
        if name in seen:
            raise _GiveUp
        seen.add(name)
        if name == _EXCHANGE_NAME:
            exchange, at = _read_text(section, after)
        elif name == _ROUTING_KEY_NAME:
            key, at = _read_text(section, after)
        elif name == _MODE_NAME and section[after] == 0x40:
            is_mode_absent = True
            at = after + 1
        else:
            if not name.startswith(b"x-", 1):
                raise _GiveUp
            entries.append(_names.get(name) or _read_name(name))
            value, at = _read_value(section, after)
            entries.append(value)
    if at != len(section):
        raise _GiveUp
    names = frozenset(seen - _RESERVED_NAMES)
    found = exchange + key, b"".join(entries), is_mode_absent, names
    if len(_annotations) >= _LIMIT:
        _annotations.clear()
    _annotations[section] = found
    return found


def _read_application(section: bytes) -> tuple[bytes, bytes, frozenset[bytes]]:
    app_id = b""
    entries: list[bytes] = []
    seen: set[bytes] = set()
    count, at = _open(section, 0, 0xC1)
    if count & 1:
        raise _GiveUp
    for _ in range(count // 2):
        if section[at] != 0xA1:
            raise _GiveUp
        after = at + 2 + section[at + 1]
        name = section[at + 1 : after]
        if name in seen:
            raise _GiveUp
        seen.add(name)
        if name == _APP_ID_NAME:
            if section[after] != 0xA1:
                raise _GiveUp
            app_id, at = _read_text(section, after)
            continue
        entries.append(_names.get(name) or _read_name(name))
        value, at = _read_value(section, after)
        entries.append(value)
    if at != len(section):
        raise _GiveUp
    found = b"".join(entries), app_id, frozenset(seen - _RESERVED_NAMES)
    if len(_applications) >= _LIMIT:
        _applications.clear()
    _applications[section] = found
    return found


def _read_name(name: bytes) -> bytes:
    text = name[1:]
    if len(text) != name[0] or not text.isascii() or marks.is_look_alike(text.decode()):
        raise _GiveUp
    if len(_names) >= _LIMIT:
        _names.clear()
    _names[name] = name
    return name


def _read_text(octets: bytes, at: int) -> tuple[bytes, int]:
    """Returns a string or symbol as a short string."""
    if octets[at] not in (0xA1, 0xA3):
        raise _GiveUp
    after = at + 2 + octets[at + 1]
    text = octets[at + 1 : after]
    if after > len(octets) or not text[1:].isascii():
        raise _GiveUp
    return text, after


def _read_value(octets: bytes, at: int) -> tuple[bytes, int]:
    """Returns the letter and value of a simple value."""
    code = octets[at]
    copied = _COPIED.get(code)
    if copied is not None:
        letter, width = copied
        after = at + 1 + width
        if after > len(octets):
            raise _GiveUp
        return letter + octets[at + 1 : after], after
    made = _MADE.get(code)
    if made is None:
        raise _GiveUp
    return made(octets, at)


_COPIED: Final[dict[int, tuple[bytes, int]]] = {
    0x40: (b"V", 0),
    0x41: (b"t\x01", 0),
    0x42: (b"t\x00", 0),
    0x50: (b"B", 1),
    0x51: (b"b", 1),
    0x60: (b"u", 2),
    0x61: (b"s", 2),
    0x70: (b"i", 4),
    0x71: (b"I", 4),
    0x72: (b"f", 4),
    0x81: (b"l", 8),
    0x82: (b"d", 8),
    0x43: (b"i\x00\x00\x00\x00", 0),
    0x44: (b"l\x00\x00\x00\x00\x00\x00\x00\x00", 0),
    0x52: (b"i\x00\x00\x00", 1),
    0x53: (b"l\x00\x00\x00\x00\x00\x00\x00", 1),
}
"""Constructor → octets to write before the value, and the size of the value."""


def _small(letter: bytes, width: int) -> Callable[[bytes, int], tuple[bytes, int]]:
    def make(octets: bytes, at: int) -> tuple[bytes, int]:
        octet = octets[at + 1]
        fill = b"\xff" if octet > 127 else b"\x00"
        return letter + fill * (width - 1) + octets[at + 1 : at + 2], at + 2

    return make


def _ulong(octets: bytes, at: int) -> tuple[bytes, int]:
    if octets[at + 1] > 127:
        raise _GiveUp
    after = at + 9
    if after > len(octets):
        raise _GiveUp
    return b"l" + octets[at + 1 : after], after


def _time(octets: bytes, at: int) -> tuple[bytes, int]:
    milliseconds = _S64(octets, at + 1)[0]
    if milliseconds < 0:
        raise _GiveUp
    return b"T" + _PACK_U64(milliseconds // 1000), at + 9


def _text(octets: bytes, at: int) -> tuple[bytes, int]:
    after = at + 2 + octets[at + 1]
    text = octets[at + 2 : after]
    if after > len(octets) or not text.isascii():
        raise _GiveUp
    return b"S\x00\x00\x00" + octets[at + 1 : after], after


def _binary(octets: bytes, at: int) -> tuple[bytes, int]:
    after = at + 2 + octets[at + 1]
    if after > len(octets):
        raise _GiveUp
    return b"x\x00\x00\x00" + octets[at + 1 : after], after


_MADE: Final[dict[int, Callable[[bytes, int], tuple[bytes, int]]]] = {
    0x54: _small(b"I", 4),
    0x55: _small(b"l", 8),
    0x80: _ulong,
    0x83: _time,
    0xA0: _binary,
    0xA1: _text,
    0xA3: _text,
}
"""Constructor → function that returns a letter and a value."""


# --- properties -----------------------------------------------------------------------------------


_Entries = dict[bytes, bytes]
"""Headers that represent fields of properties: name → entry."""

_Reader = Callable[[bytes, int, _Entries], tuple[bytes, int]]


def _read_properties(payload: bytes, at: int, slots: _Slots, entries_of: _Entries) -> int:
    end = _end(payload, at)
    if payload[at] == 0x45:
        return end
    count, at = _open(payload, at, 0xC0)
    if count > len(_READERS):
        raise _GiveUp
    for slot, read in _READERS[:count]:
        if payload[at] == 0x40:
            at += 1
        else:
            slots[slot], at = read(payload, at, entries_of)
    if at != end:
        raise _GiveUp
    return end


def _id(mark: bytes) -> _Reader:
    """Returns the reader of a message-id or correlation-id."""

    def read(payload: bytes, at: int, entries_of: _Entries) -> tuple[bytes, int]:
        code = payload[at]
        if code == 0xA1:
            return _read_text(payload, at)
        if code == 0x98:
            return b"\x2d" + uuid.UUID(bytes=payload[at + 1 : at + 17]).urn.encode(), at + 17
        if code == 0x44:
            number, at = 0, at + 1
        elif code == 0x53:
            number, at = payload[at + 1], at + 2
        elif code == 0x80:
            number, at = _U64(payload, at + 1)[0], at + 9
        else:
            raise _GiveUp
        entries_of[mark] = mark + b"S\x00\x00\x00\x05ulong"
        digits = b"%d" % number
        return bytes((len(digits),)) + digits, at

    return read


def _read_user_id(payload: bytes, at: int, entries_of: _Entries) -> tuple[bytes, int]:
    if payload[at] != 0xA0:
        raise _GiveUp
    after = at + 2 + payload[at + 1]
    return payload[at + 1 : after], after


def _read_to(payload: bytes, at: int, entries_of: _Entries) -> tuple[bytes, int]:
    if payload[at] != 0xA1:
        raise _GiveUp
    text, after = _text(payload, at)
    entries_of[_TO_NAME] = _TO_NAME + text
    return b"", after


def _read_subject(payload: bytes, at: int, entries_of: _Entries) -> tuple[bytes, int]:
    if payload[at] != 0xA1 or payload.startswith(b"\x08amqp-1.0", at + 1):
        raise _GiveUp
    return _read_text(payload, at)


def _short(code: int) -> _Reader:
    """Returns the reader of a string or symbol."""

    def read(payload: bytes, at: int, entries_of: _Entries) -> tuple[bytes, int]:
        if payload[at] != code:
            raise _GiveUp
        return _read_text(payload, at)

    return read


def _read_creation_time(payload: bytes, at: int, entries_of: _Entries) -> tuple[bytes, int]:
    milliseconds = _S64(payload, at + 1)[0]
    if payload[at] != 0x83 or milliseconds < 0:
        raise _GiveUp
    if milliseconds % 1000:
        entries_of[_CREATION_NAME] = _CREATION_NAME + b"l" + payload[at + 1 : at + 9]
    return _PACK_U64(milliseconds // 1000), at + 9


def _never(payload: bytes, at: int, entries_of: _Entries) -> tuple[bytes, int]:
    raise _GiveUp


def _name(text: str) -> bytes:
    return bytes((len(text),)) + text.encode()


_EXCHANGE_NAME, _ROUTING_KEY_NAME = _name(marks.EXCHANGE), _name(marks.ROUTING_KEY)
_MODE_NAME: Final = _name(marks.DELIVERY_MODE)
_APP_ID_NAME: Final = _name(marks.APP_ID)
_TO_NAME, _CREATION_NAME = _name(marks.TO), _name(marks.CREATION_TIME)
_MESSAGE_ID_TYPE_NAME: Final = _name(marks.MESSAGE_ID_TYPE)
_CORRELATION_ID_TYPE_NAME: Final = _name(marks.CORRELATION_ID_TYPE)
_RESERVED_NAMES: Final = {_EXCHANGE_NAME, _ROUTING_KEY_NAME, _MODE_NAME, _APP_ID_NAME}
_ENTRY_NAMES: Final = (
    _MESSAGE_ID_TYPE_NAME,
    _CORRELATION_ID_TYPE_NAME,
    _TO_NAME,
    _CREATION_NAME,
)
"""In the order in which ``from_sections`` adds them."""

_NO_NAMES: Final = frozenset[bytes]()

_FLAGS: Final = tuple(FLAGS.values())
_SLOTS: Final = len(FLAGS)
_PLACE: Final = {name: place for place, name in enumerate(FLAGS)}
_TABLE: Final = _PLACE["headers"]
_MODE, _PRIORITY = _PLACE["delivery_mode"], _PLACE["priority"]
_EXPIRATION, _APP_ID = _PLACE["expiration"], _PLACE["app_id"]

_READERS: Final[tuple[tuple[int, _Reader], ...]] = (
    (_PLACE["message_id"], _id(_MESSAGE_ID_TYPE_NAME)),
    (_PLACE["user_id"], _read_user_id),
    (_PLACE["cluster_id"], _read_to),
    (_PLACE["type"], _read_subject),
    (_PLACE["reply_to"], _short(0xA1)),
    (_PLACE["correlation_id"], _id(_CORRELATION_ID_TYPE_NAME)),
    (_PLACE["content_type"], _short(0xA3)),
    (_PLACE["content_encoding"], _short(0xA3)),
    (_PLACE["cluster_id"], _never),
    (_PLACE["timestamp"], _read_creation_time),
)
"""Fields of the properties section in order, with the property of each (none for ``to``); later
fields need the general translation."""
