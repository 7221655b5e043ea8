"""From 0-9-1 to AMQP 1.0 in octets, for common messages.

Theory of operation. The two encodings are similar: a short string and a short symbol or string
differ in one octet before them, numbers in their letter. So a message whose properties and headers
map
directly to the sections needs no values in between: its octets are cut and reassembled.
``quick_to_sections`` does that, or gives up (None) at the first field that does not map directly,
and ``to_sections`` translates the message. Both give the same octets; a test compares them on
arbitrary messages.

Fields that map directly: properties that are ASCII; headers that are booleans, numbers, short ASCII
strings, octets, times or void, with ASCII names unknown to ``marks``; no earlier attempt.

Repeated parts are cached, within bounds: routes, names of headers, complete words of properties,
and everything before a body, since many senders send the same with every message.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

from router.wire.v0_9_1 import marks
from router.wire.v0_9_1.content import FLAGS
from router.wire.v0_9_1.values import MAX_TIMESTAMP_SECONDS

_LIMIT: Final = 1024
"""Most cached entries of each kind; beyond it the cache is cleared."""

_U32 = struct.Struct(">I").unpack_from
_BODY_SIZE = struct.Struct(">Q").unpack_from
_PACK_MAP = struct.Struct(">BII").pack
_PACK_TIME = struct.Struct(">Bq").pack
_PACK_UINT = struct.Struct(">BI").pack
_PACK_SIZE = struct.Struct(">BI").pack

_BASIC: Final = b"\x00\x3c"
_NULL: Final = b"\x40"
_HEADER: Final = b"\x00\x53\x70"
_ANNOTATIONS: Final = b"\x00\x53\x72"
_PROPERTIES: Final = b"\x00\x53\x73"
_APPLICATION_PROPERTIES: Final = b"\x00\x53\x74"
_DATA: Final = b"\x00\x53\x75"

_EXCHANGE: Final = b"\xa3\x0ax-exchange"
_ROUTING_KEY: Final = b"\xa3\x0dx-routing-key"
_ABSENT_MODE: Final = b"\xa3\x15x-basic-delivery-mode\x40"
_APP_ID: Final = b"\xa1\x12x-amqp-0-10.app-id"

_NEED_HEADER: Final = FLAGS["delivery_mode"] | FLAGS["priority"] | FLAGS["expiration"]
_HEADERS, _APP = FLAGS["headers"], FLAGS["app_id"]
_NOT_PLAIN: Final = FLAGS["cluster_id"] | 3
_NEED_PROPERTIES: Final = 0xFFFF & ~(_NEED_HEADER | _HEADERS | _APP | _NOT_PLAIN)

_STRING_HEADS: Final = tuple(bytes((0xA1, size)) for size in range(256))

_Middle = tuple[bytes, bool, bytes]
"""The header section; whether the absent mode must be marked; the two sections of properties."""


_Reader = Callable[[bytes, int], tuple[bytes, int]]


class _GiveUp(Exception):  # noqa: N818  it is no error
    """The message needs the general translation."""


_heads: dict[bytes, bytes] = {}
_routes: dict[bytes, tuple[bytes, bytes]] = {}
_tables: dict[bytes, tuple[bytes, int]] = {}
_header_sections: dict[bytes, bytes] = {}
_middles: dict[bytes, _Middle] = {}
_names: dict[bytes, bytes] = {}


def quick_to_sections(content: bytes) -> bytes | None:
    """Translates a content into the octets of sections; None: it needs the general translation."""
    try:
        route_end = 2 + content[1]
        route_end += 1 + content[route_end]
        if not content.startswith(_BASIC, route_end):
            return None
        body_start = len(content) - _BODY_SIZE(content, route_end + 4)[0]
        lead = content[:body_start]
        head = _heads.get(lead) or _make_head(lead, route_end, len(content) - body_start)
    except (_GiveUp, IndexError, struct.error):
        return None
    return head + content[body_start:]


def _make_head(lead: bytes, route_end: int, size: int) -> bytes:
    """Returns everything before a body of ``size`` octets."""
    route = lead[:route_end]
    annotations = _routes.get(route) or _read_route(route)
    octets = lead[route_end + 12 :]
    known = _middles.get(octets)
    header, lacks_mode, rest = known or _read_properties(octets)
    head = b"".join(
        (
            header,
            annotations[lacks_mode],
            rest,
            _DATA,
            bytes((0xA0, size)) if size < 256 else _PACK_SIZE(0xB0, size),
        )
    )
    if known is not None:  # unique parts, such as an id, are not worth caching
        if len(_heads) >= _LIMIT:
            _heads.clear()
        _heads[lead] = head
    return head


def _map(entries: bytes, count: int) -> bytes:
    size = len(entries)
    if size < 255 and count < 256:
        return bytes((0xC1, size + 1, count)) + entries
    return _PACK_MAP(0xD1, size + 4, count) + entries


def _list(code: int, items: list[bytes]) -> bytes:
    """Encodes a list section without trailing nulls."""
    while items and items[-1] is _NULL:
        items.pop()
    octets = b"".join(items)
    head = bytes((0, 0x53, code))
    if not items:
        return head + b"\x45"
    if len(octets) < 255:
        return head + bytes((0xC0, len(octets) + 1, len(items))) + octets
    return head + _PACK_MAP(0xD0, len(octets) + 4, len(items)) + octets


def _read_route(route: bytes) -> tuple[bytes, bytes]:
    """Returns the annotations with exchange and key, with and without the mark of the mode."""
    key_at = 2 + route[1]
    if route[0] or not (route[2:key_at].isascii() and route[key_at + 1 :].isascii()):
        raise _GiveUp
    entries, count = b"", 0
    if route[1]:
        entries, count = _EXCHANGE + b"\xa1" + route[1:key_at], 2
    if route[key_at]:
        entries, count = entries + _ROUTING_KEY + b"\xa1" + route[key_at:], count + 2
    if len(_routes) >= _LIMIT:
        _routes.clear()
    lacking = _ANNOTATIONS + _map(entries + _ABSENT_MODE, count + 2)
    made = (_ANNOTATIONS + _map(entries, count) if count else b"", lacking)
    _routes[route] = made
    return made


def _read_properties(octets: bytes) -> _Middle:
    flags = octets[0] << 8 | octets[1]
    slots: list[Any] = [_NULL] * _SLOTS
    at = 2
    for slot, read in _PLANS.get(flags) or _plan(flags):
        slots[slot], at = read(octets, at)
    if at != len(octets):
        raise _GiveUp
    header, rest = b"", b""
    if flags & _NEED_HEADER:
        key = slots[_DURABLE] + slots[_PRIORITY] + slots[_TTL]
        header = _header_sections.get(key) or _make_header(key, slots[_DURABLE : _TTL + 1])
    headers, count = slots[_TABLE] if flags & _HEADERS else (b"", 0)
    if flags & _APP:
        headers, count = headers + _APP_ID + slots[_APP_ID_SLOT], count + 2
    if flags & _NEED_PROPERTIES:
        rest = _list(0x73, slots[:_DURABLE])
    if count:
        rest += _APPLICATION_PROPERTIES + _map(headers, count)
    middle = header, bool(header) and not flags & FLAGS["delivery_mode"], rest
    if len(_middles) >= _LIMIT:
        _middles.clear()
    _middles[octets] = middle
    return middle


def _make_header(key: bytes, fields: list[bytes]) -> bytes:
    """Encodes the header section; few are in use, unless senders change the ttl."""
    header = _list(0x70, fields)
    if len(_header_sections) >= _LIMIT:
        _header_sections.clear()
    _header_sections[key] = header
    return header


def _short(code: bytes) -> _Reader:
    """Returns the reader of a short string, which replaces its constructor."""

    def read(octets: bytes, at: int) -> tuple[bytes, int]:
        after = at + 1 + octets[at]
        if after > len(octets) or not octets[at + 1 : after].isascii():
            raise _GiveUp
        return code + octets[at:after], after

    return read


_symbol, _string, _binary = _short(b"\xa3"), _short(b"\xa1"), _short(b"\xa0")


def _read_id(octets: bytes, at: int) -> tuple[bytes, int]:
    if octets.startswith(b"urn:uuid:", at + 1):
        raise _GiveUp
    return _string(octets, at)


def _read_type(octets: bytes, at: int) -> tuple[bytes, int]:
    if octets.startswith(b"\x08amqp-1.0", at):
        raise _GiveUp
    return _string(octets, at)


def _read_mode(octets: bytes, at: int) -> tuple[bytes, int]:
    mode = octets[at]
    if mode not in (1, 2):
        raise _GiveUp
    return b"\x41" if mode == 2 else _NULL, at + 1


def _read_priority(octets: bytes, at: int) -> tuple[bytes, int]:
    return bytes((0x50, octets[at])), at + 1


def _read_ttl(octets: bytes, at: int) -> tuple[bytes, int]:
    after = at + 1 + octets[at]
    digits = octets[at + 1 : after]
    if not digits.isdigit() or len(digits) > 9 or (digits[0] == 0x30 and len(digits) > 1):
        raise _GiveUp
    return _uint(int(digits)), after


def _uint(value: int) -> bytes:
    if value < 256:
        return bytes((0x52, value)) if value else b"\x43"
    return _PACK_UINT(0x70, value)


def _read_time(octets: bytes, at: int) -> tuple[bytes, int]:
    seconds: int = _BODY_SIZE(octets, at)[0]
    if seconds > MAX_TIMESTAMP_SECONDS:
        raise _GiveUp
    return _PACK_TIME(0x83, seconds * 1000), at + 8


def _read_headers(octets: bytes, at: int) -> tuple[tuple[bytes, int], int]:
    end = at + 4 + _U32(octets, at)[0]
    if end > len(octets):
        raise _GiveUp
    table = octets[at:end]
    found = _tables.get(table)
    if found is None:
        found = _read_table(octets, at + 4, end)
        if len(_tables) >= _LIMIT:
            _tables.clear()
        _tables[table] = found
    return found, end


def _read_table(octets: bytes, at: int, end: int) -> tuple[bytes, int]:
    """Reassembles the entries of a table as those of a map."""
    entries: list[bytes] = []
    names: set[bytes] = set()
    while at < end:
        after = at + 1 + octets[at]
        name = octets[at:after]
        names.add(name)
        entries.append(_names.get(name) or _read_name(name))
        letter = octets[after]
        after += 1
        if letter == 0x53:  # S
            text_end = after + 4 + _U32(octets, after)[0]
            text = octets[after + 4 : text_end]
            size = len(text)
            if size > 255 or text_end > end or not text.isascii():
                raise _GiveUp
            entries.append(_STRING_HEADS[size] + text)
            at = text_end
        else:
            fixed = _FIXED.get(letter)
            if fixed is None:
                raise _GiveUp
            at = after + fixed
            entries.append(_number(letter, octets, after, at))
    if at != end or len(names) * 2 != len(entries):
        raise _GiveUp
    return b"".join(entries), len(entries)


_FIXED: Final = {
    ord(letter): width
    for letter, width in {
        "I": 4, "l": 8, "L": 8, "t": 1, "V": 0, "d": 8, "f": 4, "b": 1, "B": 1,
        "s": 2, "U": 2, "u": 2, "i": 4, "T": 8,
    }.items()
}  # fmt: skip
"""Letter → size of its value, for types of fixed size."""

_COPIED: Final = {
    ord(letter): constructor
    for letter, constructor in {
        "d": b"\x82", "f": b"\x72", "b": b"\x51", "B": b"\x50",
        "s": b"\x61", "U": b"\x61", "u": b"\x60",
    }.items()
}  # fmt: skip
"""Letter → constructor, where the octets of the value are the same."""


def _number(letter: int, octets: bytes, at: int, after: int) -> bytes:
    """Encodes a number, boolean, time or void in its shortest form."""
    constructor = _COPIED.get(letter)
    if constructor is not None:
        return constructor + octets[at:after]
    if letter == 0x74:  # t
        return b"\x41" if octets[at] else b"\x42"
    if letter == 0x56:  # V
        return _NULL
    if letter == 0x54:  # T
        return _read_time(octets, at)[0]
    value = int.from_bytes(octets[at:after], "big", signed=letter != 0x69)
    if letter == 0x69:  # i
        return _uint(value)
    small, wide = (b"\x54", b"\x71") if letter == 0x49 else (b"\x55", b"\x81")
    if -129 < value < 128:
        return small + octets[after - 1 : after]
    return wide + octets[at:after]


def _read_name(name: bytes) -> bytes:
    text = name[1:]
    if not text.isascii() or text.startswith(b"x-") or marks.is_look_alike(text.decode()):
        raise _GiveUp
    key = b"\xa1" + name
    if len(_names) >= _LIMIT:
        _names.clear()
    _names[name] = key
    return key


# --- which property goes where --------------------------------------------------------------------

_DURABLE, _PRIORITY, _TTL, _TABLE, _APP_ID_SLOT, _SLOTS = 10, 11, 12, 13, 14, 15
"""Slots: ten fields of properties, three of the header, the headers, app-id."""

_PLACES: Final[dict[str, tuple[int, Any]]] = {
    "content_type": (6, _symbol),
    "content_encoding": (7, _symbol),
    "headers": (_TABLE, _read_headers),
    "delivery_mode": (_DURABLE, _read_mode),
    "priority": (_PRIORITY, _read_priority),
    "correlation_id": (5, _read_id),
    "reply_to": (4, _string),
    "expiration": (_TTL, _read_ttl),
    "message_id": (0, _read_id),
    "timestamp": (9, _read_time),
    "type": (3, _read_type),
    "user_id": (1, _binary),
    "app_id": (_APP_ID_SLOT, _string),
}
"""Property → its slot, and its reader."""

_PLANS: dict[int, tuple[tuple[int, Any], ...]] = {}


def _plan(flags: int) -> tuple[tuple[int, Any], ...]:
    """Returns the readers for a word of flags; there are fewer than 2^14."""
    if flags & _NOT_PLAIN:
        raise _GiveUp
    plan = tuple(place for name, place in _PLACES.items() if flags & FLAGS[name])
    _PLANS[flags] = plan
    return plan
