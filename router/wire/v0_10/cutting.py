"""From 0-10 to AMQP 1.0 in octets, for common messages.

Theory of operation. A message with an id of its own has a unique beginning, so no cache of
beginnings helps (``quick``). But most properties map directly to the sections, where they are the
same octets with another constructor. So a header segment is cut and reassembled: its
delivery-properties, of which a stream of messages has few different ones, from a cache, its
message-properties field by field. ``cut`` gives up (None) at the first field that does not map
directly, and ``to_sections`` translates the message. Both give the same octets; a test compares
them.

Fields that map directly: one struct of each kind and no other; ids and types that are ASCII;
headers that are no maps, lists or arrays, with ASCII names unknown to ``marks``, except the two in
which senders number and name their messages.
"""

from collections.abc import Callable
from typing import Final

import attrs

from router.errors import DecodeError
from router.model.text import decode_text
from router.wire.v0_10 import marks
from router.wire.v0_10.codec import decode_struct
from router.wire.v0_10.message import DELIVERY_PROPERTIES, MESSAGE_PROPERTIES, Message
from router.wire.v0_10.to_sections import translated
from router.wire.v0_10.types import STR16, decode_typed
from router.wire.v0_10.values import to_v1_0
from router.wire.v1_0.encoding import compound, encode_items, encode_value
from router.wire.v1_0.sections import AnnotatedMessage, encode_message
from router.wire.v1_0.types import Timestamp

_LIMIT: Final = 1024
"""Most cached entries of each kind; beyond it the cache is cleared."""

_NULL: Final = b"\x40"
_PROPERTIES: Final = b"\x00\x53\x73"
_APPLICATION_PROPERTIES: Final = b"\x00\x53\x74"

_MESSAGE_ID, _USER_ID, _SUBJECT, _REPLY_TO, _CORRELATION_ID = 0, 1, 3, 4, 5
_CONTENT_TYPE, _CONTENT_ENCODING, _EXPIRY_TIME, _CREATION_TIME, _SLOTS = 6, 7, 8, 9, 10
"""Fields of AMQP 1.0's properties (§3.2.4)."""

_STRING8: Final = 0xA1
_SYMBOL8: Final = 0xA3
_BINARY8: Final = 0xA0

_KNOWN_FLAGS: Final = 0x01FF
_CONTENT_LENGTH, _HAS_ID, _HAS_CORRELATION, _HAS_REPLY_TO = 1, 2, 4, 8
_HAS_TYPE, _HAS_ENCODING, _HAS_USER, _HAS_APP, _HAS_HEADERS = 16, 32, 64, 128, 256
"""Packing flags of message-properties."""

_MARK_ID: Final = marks.MESSAGE_ID.encode()
_MARK_SUBJECT: Final = marks.SUBJECT.encode()
_APP_ID: Final = encode_value(marks.APP_ID)


class _GiveUp(Exception):  # noqa: N818  it is no error
    """The message needs the general translation."""


@attrs.frozen
class _Front:
    """The sections that an exchange and delivery-properties become.

    Attributes:
        octets: the sections before the properties.
        expiry_time, creation_time: fields of the properties.
    """

    octets: bytes
    expiry_time: bytes
    creation_time: bytes


_fronts: dict[tuple[bytes, bytes], _Front] = {}
_names: dict[bytes, bytes] = {}
_addresses: dict[bytes, bytes] = {}


def cut(beginning: bytes) -> bytes | None:
    """Translates everything before a content's body; None: it needs the general translation.

    Args:
        beginning: exchange and header segment, in the format of ``router.wire.v0_10.message``.
    """
    try:
        exchange_end = beginning[0] + 1
        delivery, message_at = _structs(beginning, exchange_end + 4)
        exchange = beginning[1:exchange_end]
        front = _fronts.get((exchange, delivery)) or _read_front(exchange, delivery)
        slots = [_NULL] * _SLOTS
        slots[_EXPIRY_TIME] = front.expiry_time
        slots[_CREATION_TIME] = front.creation_time
        entries: list[bytes] = []
        if message_at:
            size = int.from_bytes(beginning[message_at - 6 : message_at - 2], "big")
            _read_message(beginning, message_at, message_at - 2 + size, slots, entries)
    except (_GiveUp, DecodeError, IndexError):
        return None
    return b"".join((front.octets, _properties(slots), _map(entries)))


def _structs(beginning: bytes, at: int) -> tuple[bytes, int]:
    """Finds delivery-properties, and the offset of message-properties' fields; 0: none."""
    delivery, message_at, end = b"", 0, len(beginning)
    while at < end:
        after = at + 4 + int.from_bytes(beginning[at : at + 4], "big")
        kind = beginning[at + 4 : at + 6]
        if after > end:
            raise _GiveUp
        if kind == DELIVERY_PROPERTIES and not delivery:
            delivery = beginning[at + 4 : after]
        elif kind == MESSAGE_PROPERTIES and not message_at:
            message_at = at + 6
        else:
            raise _GiveUp
        at = after
    return delivery, message_at


def _read_front(exchange: bytes, delivery: bytes) -> _Front:
    found = Message(exchange=decode_text(exchange))
    if delivery:
        found.delivery = decode_struct(delivery, 0, len(delivery))
    made = translated(found)
    properties = made.properties
    front = _Front(
        encode_message(
            AnnotatedMessage(header=made.header, message_annotations=made.message_annotations)
        ),
        _time(None if properties is None else properties.absolute_expiry_time),
        _time(None if properties is None else properties.creation_time),
    )
    if len(_fronts) >= _LIMIT:
        _fronts.clear()
    _fronts[exchange, delivery] = front
    return front


def _time(milliseconds: int | None) -> bytes:
    return _NULL if milliseconds is None else encode_value(Timestamp(milliseconds))


def _properties(slots: list[bytes]) -> bytes:
    while slots and slots[-1] is _NULL:
        slots.pop()
    return _PROPERTIES + encode_items(slots) if slots else b""


def _map(entries: list[bytes]) -> bytes:
    if not entries:
        return b""
    return _APPLICATION_PROPERTIES + compound(0xC1, len(entries), b"".join(entries))


# --- message-properties ---------------------------------------------------------------------------


def _read_message(
    octets: bytes, at: int, end: int, slots: list[bytes], entries: list[bytes]
) -> None:
    """Reads the fields of message-properties into slots and application properties."""
    flags = octets[at] | octets[at + 1] << 8
    if flags & ~_KNOWN_FLAGS:
        raise _GiveUp
    at += 2
    if flags & _CONTENT_LENGTH:
        at += 8
    if flags & _HAS_ID:
        slots[_MESSAGE_ID] = b"\x98" + octets[at : at + 16]
        at += 16
    for bit, slot, read in _FIELDS:
        if flags & bit:
            slots[slot], at = read(octets, at)
    app_id = None
    if flags & _HAS_APP:
        app_id, at = _text(octets, at)
    if flags & _HAS_HEADERS:
        at = _read_headers(octets, at, slots, entries)
    if app_id is not None:
        entries += (_APP_ID, app_id)
    if at != end:
        raise _GiveUp


def _text(octets: bytes, at: int) -> tuple[bytes, int]:
    """Returns ASCII octets with a size of two octets as a string."""
    size = octets[at] << 8 | octets[at + 1]
    after = at + 2 + size
    text = octets[at + 2 : after]
    if size > 255 or not text.isascii():
        raise _GiveUp
    return bytes((_STRING8, size)) + text, after


def _symbol(octets: bytes, at: int) -> tuple[bytes, int]:
    after = at + 1 + octets[at]
    text = octets[at + 1 : after]
    if not text.isascii():
        raise _GiveUp
    return bytes((_SYMBOL8, len(text))) + text, after


def _content_type(octets: bytes, at: int) -> tuple[bytes, int]:
    if octets.startswith(b"amqp/", at + 1):
        raise _GiveUp  # the body may be a map or list
    return _symbol(octets, at)


def _binary(octets: bytes, at: int) -> tuple[bytes, int]:
    size = octets[at] << 8 | octets[at + 1]
    if size > 255:
        raise _GiveUp
    after = at + 2 + size
    return bytes((_BINARY8, size)) + octets[at + 2 : after], after


def _reply_to(octets: bytes, at: int) -> tuple[bytes, int]:
    after = at + 2 + (octets[at] << 8 | octets[at + 1])
    address_octets = octets[at:after]
    found = _addresses.get(address_octets)
    if found is None:
        struct = MESSAGE_PROPERTIES + bytes((_HAS_REPLY_TO, 0)) + address_octets
        made = translated(Message(message=decode_struct(struct, 0, len(struct))))
        if made.message_annotations or made.properties is None:
            raise _GiveUp
        found = encode_value(made.properties.reply_to)
        if len(_addresses) >= _LIMIT:
            _addresses.clear()
        _addresses[address_octets] = found
    return found, after


_FIELDS: Final[tuple[tuple[int, int, Callable[[bytes, int], tuple[bytes, int]]], ...]] = (
    (_HAS_CORRELATION, _CORRELATION_ID, _text),
    (_HAS_REPLY_TO, _REPLY_TO, _reply_to),
    (_HAS_TYPE, _CONTENT_TYPE, _content_type),
    (_HAS_ENCODING, _CONTENT_ENCODING, _symbol),
    (_HAS_USER, _USER_ID, _binary),
)
"""Packing flag, slot and reader of each field, in order."""


# --- headers --------------------------------------------------------------------------------------


def _read_headers(octets: bytes, at: int, slots: list[bytes], entries: list[bytes]) -> int:
    """Reads the map of headers; returns the offset where it ends."""
    end = at + 4 + int.from_bytes(octets[at : at + 4], "big")
    if end == at + 4:
        return end
    count = int.from_bytes(octets[at + 4 : at + 8], "big")
    at += 8
    seen: set[bytes] = set()
    while at < end:
        name_end = at + 1 + octets[at]
        name = octets[at + 1 : name_end]
        seen.add(name)
        slot = _SLOT_OF.get(name)
        if slot is None:
            key = _names.get(name) or _read_name(name)
            value, at = _value(octets, name_end, end)
            entries += (key, value)
        elif slots[slot] is _NULL and octets[name_end] == STR16:
            slots[slot], at = _value(octets, name_end, end)
        else:
            raise _GiveUp
    if at != end or len(seen) != count:
        raise _GiveUp
    return end


_SLOT_OF: Final = {_MARK_ID: _MESSAGE_ID, _MARK_SUBJECT: _SUBJECT}
"""Marks that messages often have, and their slots."""


def _value(octets: bytes, at: int, end: int) -> tuple[bytes, int]:
    """Reads a typed value; returns it encoded, and the offset after it."""
    code = octets[at]
    if code == STR16:
        return _text(octets, at + 1)
    value, after = decode_typed(code, octets, at + 1, end)
    if type(value) in (list, dict):
        raise _GiveUp
    return encode_value(to_v1_0(value)), after


def _read_name(name: bytes) -> bytes:
    text = decode_text(name)
    if not text.isascii() or text.startswith("x-") or marks.is_reserved(text):
        raise _GiveUp
    key = encode_value(text)
    if len(_names) >= _LIMIT:
        _names.clear()
    _names[name] = key
    return key
