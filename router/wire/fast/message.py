"""Messages and their encoding (RFC 006 §3.4.4), on the wire and as a payload.

On the wire a message is its head and its body; only by decoding the head its end is found::

    head:   body-size(4) persistent(1, bit 0) priority(1) expiration(4)
            mime-type(short) encoding(short) identifier(short) headers(table)

A *payload* of ``Protocol.AMQP_FAST``, as handed on by the engine, begins with fields of HANDLE SEND
or HANDLE NOTIFY::

    flags(1) dest-name(short) head body          flags: bit 0, redelivered

``expiration`` is in seconds since 1970; 0 is never (not specified; 0.8's sources have it so).
"""

import struct
from typing import Final

import attrs

from router.errors import DecodeError
from router.wire.fast.types import (
    ReadShort,
    Table,
    TableValue,
    decode_carried,
    decode_short,
    decode_table,
    encode_carried,
    encode_short,
    encode_table,
)

FIXED_OCTETS: Final = 10
"""Octets of a head before its first string."""

SMALLEST_HEAD_OCTETS: Final = 15

MAX_HEAD_OCTETS: Final = FIXED_OCTETS + 3 * 256 + 2 + 0xFFFF
"""The largest head that its fields allow."""

KNOWN_OCTETS: Final = 1024
"""Heads up to this size are cached."""

KNOWN_LIMIT: Final = 1024
"""Most cached heads."""

REDELIVERED: Final = 0x01

TTL: Final = "x-amqp-ttl"
"""Header: ttl in milliseconds, for which the protocol has no field."""

DELIVERY_COUNT: Final = "x-amqp-delivery-count"
"""Header: earlier attempts, if more than one; the protocol's own bit has no number."""

_FIXED: Final = struct.Struct(">IBBI")
_TTL_OCTETS: Final = TTL.encode()
_COUNT_OCTETS: Final = DELIVERY_COUNT.encode()


@attrs.define(kw_only=True)
class Head:
    """A message's head, without the size of its body.

    Attributes:
        expiration: seconds since 1970; 0: never.
    """

    persistent: bool = False
    priority: int = 4
    expiration: int = 0
    mime_type: str = ""
    encoding: str = ""
    identifier: str = ""
    headers: Table = attrs.field(factory=dict)


def head_octets(octets: bytes, at: int, end: int) -> int | None:
    """Returns the size of the head at ``at``; None: it does not end before ``end``."""
    after = at + FIXED_OCTETS
    for _ in range(3):
        if after >= end:
            return None
        after += 1 + octets[after]
    if after + 2 > end:
        return None
    after += 2 + (octets[after] << 8 | octets[after + 1])
    return None if after > end else after - at


def identifier_at(octets: bytes, at: int) -> int:
    """Returns the offset of the identifier, with its size, in the valid head at ``at``."""
    at += FIXED_OCTETS
    at += 1 + octets[at]
    return at + 1 + octets[at]


def body_octets(octets: bytes, at: int) -> int:
    """Returns the body-size in the head at ``at``."""
    return int.from_bytes(octets[at : at + 4], "big")


def decode_head(
    octets: bytes, at: int, end: int, read_short: ReadShort = decode_short
) -> tuple[Head, int]:
    """Decodes a head; returns it with the offset after it.

    Args:
        octets: the buffer that holds it.
        at: the offset where it begins.
        end: end of the available octets.
        read_short: reads its short strings; ``decode_carried`` if they are carried.

    Raises:
        DecodeError: it is invalid.
    """
    if at + FIXED_OCTETS > end:
        raise DecodeError(at, "a message ends in its head (§3.4.4)")
    _, bits, priority, expiration = _FIXED.unpack_from(octets, at)
    mime_type, after = read_short(octets, at + FIXED_OCTETS, end)
    encoding, after = read_short(octets, after, end)
    identifier, after = read_short(octets, after, end)
    headers, after = decode_table(octets, after, end, read_short)
    head = Head(
        persistent=bool(bits & 1),
        priority=priority,
        expiration=expiration,
        mime_type=mime_type,
        encoding=encoding,
        identifier=identifier,
        headers=headers,
    )
    return head, after


def encode_head(head: Head, size: int) -> bytes:
    """Encodes a head for a body of ``size`` octets.

    Raises:
        MisuseError: a field does not fit.
    """
    return b"".join(
        (
            _FIXED.pack(size, head.persistent, head.priority, head.expiration),
            encode_short(head.mime_type),
            encode_short(head.encoding),
            encode_short(head.identifier),
            encode_table(head.headers),
        )
    )


# --- payloads -------------------------------------------------------------------------------------


def payload_prefix(dest_name: str, *, redelivered: bool = False) -> bytes:
    """Encodes the octets before the head in a payload."""
    return bytes((redelivered,)) + encode_carried(dest_name)


def head_start(payload: bytes) -> int:
    """Returns the offset of the head in a payload.

    Raises:
        DecodeError: the payload ends before it.
    """
    if len(payload) < 2 or len(payload) < 2 + payload[1] + SMALLEST_HEAD_OCTETS:
        raise DecodeError(0, "a payload ends before its message")
    return 2 + payload[1]


@attrs.frozen
class Layout:
    """The offsets in a payload.

    Attributes:
        head_start, body_start: offsets.
        redelivered: there was an earlier attempt.
    """

    head_start: int
    body_start: int
    redelivered: bool


def layout_of(payload: bytes) -> Layout:
    """Finds the pieces of a payload.

    Raises:
        DecodeError: their sizes do not match.
    """
    start = head_start(payload)
    size = head_octets(payload, start, len(payload))
    if size is None:
        raise DecodeError(start, "a payload ends in its head")
    if body_octets(payload, start) != len(payload) - start - size:
        raise DecodeError(start, "body-size is not the size of the body")
    return Layout(start, start + size, bool(payload[0] & REDELIVERED))


def number_in(headers: Table, name: str) -> int | None:
    """Returns a header that is a number, not below 0; None: it is absent, or another value."""
    value: TableValue | None = headers.get(name)
    return value if type(value) is int and value >= 0 else None


def ttl_and_count_in(head: bytes) -> tuple[int | None, int]:
    """Reads ttl (milliseconds) and delivery-count from a valid head."""
    if _TTL_OCTETS not in head and _COUNT_OCTETS not in head:
        return None, 0
    headers = decode_head(head, 0, len(head), decode_carried)[0].headers
    return number_in(headers, TTL), number_in(headers, DELIVERY_COUNT) or 0
