"""The performatives of AMQP 1.0 and the composites inside them (§2.7, §2.8.14, §3.4, §3.5, §5.3).

A frame's body is a performative and, behind a transfer, a part of a message::

    00 53 code | c0 size count | fields … || payload

Each performative is a record here and a table of its fields; ``encode`` and ``decode`` work from
the tables. Transfer, disposition and flow occur once or more per delivery, so each also has a
hand-written path for the forms that peers actually send. These paths have no rules of their own:
other forms fall through to the table, and the output is the same as the table's.
"""

import struct
from collections.abc import Mapping
from typing import Any, Final

from router.errors import DecodeError, MisuseError
from router.model.condition import DECODE_ERROR
from router.model.outcome import (
    ACCEPTED,
    REJECTED,
    RELEASED,
    Accepted,
    DeliveryState,
    Modified,
    Released,
)
from router.model.terminus import Role
from router.wire.v1_0.composite import decode_descriptor, decode_fields, encode_composite
from router.wire.v1_0.records import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Performative,
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslPerformative,
    SaslResponse,
    Transfer,
)
from router.wire.v1_0.tables import (
    MAX_TAG_OCTETS,
    TABLE_BY_DESCRIPTOR,
    TABLE_BY_RECORD,
    TABLES,
    decode_state,
    encode_state,
)
from router.wire.v1_0.types import Octets

__all__ = [
    "MAX_TAG_OCTETS",
    "TABLES",
    "Attach",
    "Begin",
    "Close",
    "Detach",
    "Disposition",
    "End",
    "Flow",
    "Open",
    "Performative",
    "SaslChallenge",
    "SaslCode",
    "SaslInit",
    "SaslMechanisms",
    "SaslOutcome",
    "SaslPerformative",
    "SaslResponse",
    "Transfer",
    "decode",
    "decode_by_table",
    "decode_disposition",
    "decode_flow",
    "decode_state",
    "decode_transfer",
    "encode",
    "encode_disposition",
    "encode_flow",
    "encode_state",
    "encode_transfer",
]

_TRANSFER_PREFIX = b"\x00\x53\x14"
_DISPOSITION_PREFIX = b"\x00\x53\x15"
_FLOW_PREFIX = b"\x00\x53\x13"


# --- the face -------------------------------------------------------------------------------------


def encode(performative: Performative | SaslPerformative) -> bytes:
    """Encodes a performative: the body of a frame, without payload (§2.7).

    Raises:
        MisuseError: if a value does not fit its field.
    """
    return encode_composite(TABLE_BY_RECORD[type(performative)], performative)


def decode(octets: Octets, offset: int, end: int) -> tuple[Performative | SaslPerformative, int]:
    """Decodes the performative at the start of a frame's body (§2.3.2).

    Args:
        octets: the buffer that holds the frame.
        offset: where the body begins.
        end: where the frame ends.

    Returns:
        the performative, and the offset of the payload after it.

    Raises:
        DecodeError: decode-error if the octets are not a performative, invalid-field if a field
        violates
            the rules of its type.
    """
    head = bytes(octets[offset : offset + 3])
    if head == _TRANSFER_PREFIX:
        return decode_transfer(octets, offset, end)
    if head == _DISPOSITION_PREFIX:
        return decode_disposition(octets, offset, end)
    if head == _FLOW_PREFIX:
        return decode_flow(octets, offset, end)
    return decode_by_table(octets, offset, end)


def decode_by_table(octets: Octets, offset: int, end: int) -> tuple[Any, int]:
    """Decodes as ``decode`` does, without the hand-written paths."""
    try:
        descriptor, at = decode_descriptor(octets, offset, end)
    except DecodeError as error:
        rule = f"a frame's body does not begin with a performative (§2.3.2): {error.rule}"
        raise DecodeError(error.offset, rule, DECODE_ERROR) from None
    table = TABLE_BY_DESCRIPTOR.get(descriptor)
    if table is None:
        raise DecodeError(offset, f"{descriptor!r} is no performative (§2.3.2)", DECODE_ERROR)
    return decode_fields(table, octets, at, end)


# --- paths written by hand ------------------------------------------------------------------------

_unpack_u32 = struct.Struct(">I").unpack_from
_pack_uint = struct.Struct(">BI").pack
_UINT8 = (b"\x43", *(bytes((0x52, number)) for number in range(1, 256)))
"""uint 0 to 255 → octets."""

_VBIN8 = tuple(bytes((0xA0, size)) for size in range(MAX_TAG_OCTETS + 1))
"""Size of a delivery-tag → octets before the tag."""

_BOOLEANS = {0x41: True, 0x42: False, 0x40: None}
"""Constructors of booleans without octets, and null."""

_BARE_STATES: Final[Mapping[int, DeliveryState]] = {
    0x24: ACCEPTED,
    0x25: REJECTED,
    0x26: RELEASED,
    0x27: Modified(),
}
"""Code → outcome without fields."""

_STATE_OCTETS: Final[Mapping[type, bytes]] = {
    Accepted: b"\x00\x53\x24\x45",
    Released: b"\x00\x53\x26\x45",
}
"""Outcomes that never have fields → octets."""


def decode_transfer(octets: Octets, offset: int, end: int) -> tuple[Transfer, int]:
    """Decodes a transfer that begins with 00 53 14 (§2.7.5).

    By hand: list8; handle; id, tag, format and settled, or nulls; then more or nothing.
    """
    try:
        if octets[offset + 3] != 0xC0:
            return decode_by_table(octets, offset, end)
        count = octets[offset + 5]
        limit = offset + 5 + octets[offset + 4]
        at = offset + 6
        code = octets[at]
        if code == 0x43:
            handle = 0
            at += 1
        elif code == 0x52:
            handle = octets[at + 1]
            at += 2
        elif code == 0x70:
            (handle,) = _unpack_u32(octets, at + 1)
            at += 5
        else:
            return decode_by_table(octets, offset, end)
        code = octets[at]
        if code == 0x70:
            (delivery_id,) = _unpack_u32(octets, at + 1)
            at += 5
        elif code == 0x52:
            delivery_id = octets[at + 1]
            at += 2
        elif code == 0x43:
            delivery_id = 0
            at += 1
        else:
            return decode_by_table(octets, offset, end)
        size = octets[at + 1]
        if octets[at] != 0xA0 or size > MAX_TAG_OCTETS:
            return decode_by_table(octets, offset, end)
        at += 2
        tag = bytes(octets[at : at + size])
        at += size
        if octets[at] == 0x43:
            at += 1
        elif octets[at] == 0x52 and octets[at + 1] == 0:
            at += 2
        else:
            return decode_by_table(octets, offset, end)
        settled: bool | None = None
        more = False
        if count > 4:
            settled = _BOOLEANS[octets[at]]
            at += 1
            if count > 5:
                more = _BOOLEANS[octets[at]] or False
                at += 1
        if at != limit or limit > end or not 4 <= count <= 6:
            return decode_by_table(octets, offset, end)
    except (IndexError, KeyError, struct.error):
        return decode_by_table(octets, offset, end)
    return Transfer(handle, delivery_id, tag, 0, settled, more), at


def encode_transfer(  # noqa: PLR0917 (keywords cost 100 ns)
    handle: int,
    delivery_id: int | None = None,
    delivery_tag: bytes | None = None,
    message_format: int | None = None,
    settled: bool | None = None,
    more: bool = False,
) -> bytes:
    """Encodes a transfer without state, resume or abort (§2.7.5), as ``encode`` would.

    Raises:
        MisuseError: if a number is out of range.
    """
    if delivery_id is None and delivery_tag is None and message_format is None and settled is None:
        if not 0 <= handle < 0x1_0000_0000:
            raise MisuseError(f"transfer on {handle}: the handle is out of range")
        fields = _UINT8[handle] if handle < 256 else _pack_uint(0x70, handle)
        if more:
            return b"\x00\x53\x14\xc0%c\x06%b\x40\x40\x40\x40\x41" % (len(fields) + 6, fields)
        return b"\x00\x53\x14\xc0%c\x01%b" % (len(fields) + 1, fields)
    if delivery_id is None or delivery_tag is None or message_format != 0 or settled is None:
        return encode(Transfer(handle, delivery_id, delivery_tag, message_format, settled, more))
    size = len(delivery_tag)
    if size > MAX_TAG_OCTETS or not 0 <= handle < 0x1_0000_0000 > delivery_id >= 0:
        raise MisuseError(f"transfer {delivery_id} on {handle}: a field is out of range")
    handle_octets = _UINT8[handle] if handle < 256 else _pack_uint(0x70, handle)
    id_octets = _UINT8[delivery_id] if delivery_id < 256 else _pack_uint(0x70, delivery_id)
    fields = handle_octets + id_octets + _VBIN8[size] + delivery_tag
    if more:
        tail = b"\x43\x41\x41" if settled else b"\x43\x42\x41"
        return b"\x00\x53\x14\xc0%c\x06%b%b" % (len(fields) + 4, fields, tail)
    tail = b"\x43\x41" if settled else b"\x43\x42"
    return b"\x00\x53\x14\xc0%c\x05%b%b" % (len(fields) + 3, fields, tail)


def decode_disposition(octets: Octets, offset: int, end: int) -> tuple[Disposition, int]:
    """Decodes a disposition that begins with 00 53 15 (§2.7.6).

    By hand: list8; role, first, last or null, settled; then an outcome without fields or nothing.
    """
    try:
        if octets[offset + 3] != 0xC0:
            return decode_by_table(octets, offset, end)
        count = octets[offset + 5]
        limit = offset + 5 + octets[offset + 4]
        role = Role.RECEIVER if octets[offset + 6] == 0x41 else Role.SENDER
        at = offset + 7
        code = octets[at]
        if code == 0x70:
            (first,) = _unpack_u32(octets, at + 1)
            at += 5
        elif code == 0x52:
            first = octets[at + 1]
            at += 2
        elif code == 0x43:
            first = 0
            at += 1
        else:
            return decode_by_table(octets, offset, end)
        code = octets[at]
        last: int | None
        if code == 0x70:
            (last,) = _unpack_u32(octets, at + 1)
            at += 5
        elif code == 0x52:
            last = octets[at + 1]
            at += 2
        elif code == 0x40:
            last = None
            at += 1
        elif code == 0x43:
            last = 0
            at += 1
        else:
            return decode_by_table(octets, offset, end)
        settled = _BOOLEANS[octets[at]] or False
        at += 1
        state: DeliveryState | None = None
        if count == 5:
            if octets[at] != 0 or octets[at + 1] != 0x53:
                return decode_by_table(octets, offset, end)
            state = _BARE_STATES[octets[at + 2]]
            if octets[at + 3] == 0x45:
                at += 4
            elif octets[at + 3 : at + 6] == b"\xc0\x01\x00":
                at += 6
            else:
                return decode_by_table(octets, offset, end)
        elif count != 4:
            return decode_by_table(octets, offset, end)
        if at != limit or limit > end or octets[offset + 6] not in _ROLES:
            return decode_by_table(octets, offset, end)
    except (IndexError, KeyError, struct.error):
        return decode_by_table(octets, offset, end)
    return Disposition(role, first, last, settled, state), at


_ROLES = b"\x41\x42"


def encode_disposition(
    role: Role,
    first: int,
    last: int | None = None,
    settled: bool = False,
    state: DeliveryState | None = None,
) -> bytes:
    """Encodes a disposition (§2.7.6), as ``encode`` would.

    Raises:
        MisuseError: if a number is out of range.
    """
    state_octets = _STATE_OCTETS.get(type(state))
    if state_octets is None or not 0 <= first < 0x1_0000_0000:
        return encode(Disposition(role, first, last, settled, state))
    first_octets = _UINT8[first] if first < 256 else _pack_uint(0x70, first)
    if last is None:
        last_octets = b"\x40"
    elif 0 <= last < 0x1_0000_0000:
        last_octets = _UINT8[last] if last < 256 else _pack_uint(0x70, last)
    else:
        raise MisuseError(f"disposition: last {last} is out of range")
    fields = (
        (b"\x41" if role is Role.RECEIVER else b"\x42")
        + first_octets
        + last_octets
        + (b"\x41" if settled else b"\x40")
        + state_octets
    )
    return b"\x00\x53\x15\xc0%c\x05%b" % (len(fields) + 1, fields)


def decode_flow(octets: Octets, offset: int, end: int) -> tuple[Flow, int]:
    """Decodes a flow that begins with 00 53 13 (§2.7.4).

    By hand: list8; up to eight uints or nulls; then drain and echo.
    """
    try:
        if octets[offset + 3] != 0xC0:
            return decode_by_table(octets, offset, end)
        count = octets[offset + 5]
        limit = offset + 5 + octets[offset + 4]
        at = offset + 6
        values: list[Any] = []
        for _ in range(count if count < 8 else 8):
            code = octets[at]
            if code == 0x70:
                values.append(_unpack_u32(octets, at + 1)[0])
                at += 5
            elif code == 0x52:
                values.append(octets[at + 1])
                at += 2
            elif code == 0x43:
                values.append(0)
                at += 1
            elif code == 0x40:
                values.append(None)
                at += 1
            else:
                return decode_by_table(octets, offset, end)
        for _ in range(count - 8):
            values.append(_BOOLEANS[octets[at]] or False)
            at += 1
        if at != limit or limit > end or not 4 <= count <= 10 or None in values[1:4]:
            return decode_by_table(octets, offset, end)
    except (IndexError, KeyError, struct.error):
        return decode_by_table(octets, offset, end)
    return Flow(*values), at


def encode_flow(  # noqa: PLR0917 (keywords cost 100 ns)
    next_incoming_id: int | None,
    incoming_window: int,
    next_outgoing_id: int,
    outgoing_window: int,
    handle: int | None = None,
    delivery_count: int | None = None,
    link_credit: int | None = None,
    available: int | None = None,
    drain: bool = False,
    echo: bool = False,
) -> bytes:
    """Encodes a flow without properties (§2.7.4), as ``encode`` would.

    Raises:
        MisuseError: if a number is out of range.
    """
    if None in (incoming_window, next_outgoing_id, outgoing_window):
        raise MisuseError("flow: a window or next-outgoing-id is missing")
    numbers = (
        next_incoming_id,
        incoming_window,
        next_outgoing_id,
        outgoing_window,
        handle,
        delivery_count,
        link_credit,
        available,
    )
    try:
        items = [
            b"\x40"
            if number is None
            else _UINT8[number]
            if 0 <= number < 256
            else _pack_uint(0x70, number)
            for number in numbers
        ]
    except struct.error as error:
        raise MisuseError(f"flow: {error}") from error
    if drain or echo:
        items.append(b"\x41" if drain else b"\x40")
        if echo:
            items.append(b"\x41")
    else:
        while items[-1] == b"\x40":
            items.pop()
    fields = b"".join(items)
    return b"\x00\x53\x13\xc0%c%c%b" % (len(fields) + 1, len(items), fields)
