"""Messages of format 0: their sections, read and changed without touching the bare message (§3.2).

A payload is a sequence of sections, each a described value::

    head, may be changed by us     bare message, immutable                            tail
    header | delivery-annotations | message-annotations … | properties | … | body … | footer
    0x70     0x71                   0x72                     0x73  0x74     0x75-77   0x78

(Message annotations belong to the annotated message too, but are forwarded as received.) Each
occurs at most once and in this order; the body is any number of data (0x75) or of amqp-sequence
(0x76) sections, or one amqp-value (0x77). A body may be absent: some senders omit it.

``walk`` finds the sections; ``peek`` reads what routing needs; ``rewrite`` changes the head and
copies the rest; ``decode_message`` and ``encode_message`` convert between a payload and values,
for translation from and to the other protocols.
"""

import uuid
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import attrs

from router.errors import DecodeError, MisuseError
from router.model.condition import DECODE_ERROR, INVALID_FIELD
from router.model.trace import Splice
from router.wire.v1_0.composite import (
    ADDRESS,
    BINARY,
    BOOLEAN,
    STRING,
    SYMBOL,
    UBYTE,
    UINT,
    Composite,
    Field,
    Kind,
    decode_descriptor,
    decode_fields,
    encode_composite,
    encode_fields,
)
from router.wire.v1_0.types import (
    Octets,
    Pairs,
    Timestamp,
    Ulong,
    decode_value,
    encode_binary,
    encode_value,
    skip_value,
)

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
AMQP_SEQUENCE: Final = 0x76
AMQP_VALUE: Final = 0x77
FOOTER: Final = 0x78

Annotations: TypeAlias = Mapping[Any, Any] | Pairs


class Keep(Enum):
    """Marks a part that ``rewrite`` leaves as it is."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP


class NoValue(Enum):
    """Marks a message without an amqp-value section; null would be a value."""

    NO_VALUE = "no value"


NO_VALUE: Final = NoValue.NO_VALUE


class Section(NamedTuple):
    """The position of a section in its payload.

    Attributes:
        code: its descriptor, 0x70 to 0x78.
        start: offset of its first octet.
        body_start: offset of the constructor of the value after the descriptor.
        end: offset of the octet after it.
    """

    code: int
    start: int
    body_start: int
    end: int


@attrs.frozen(kw_only=True)
class Header:
    """The header: how the message is to be transferred (§3.2.1).

    Attributes:
        priority: None if absent, which means 4.
        ttl_ms: field ``ttl``, milliseconds; None: no limit.
        first_acquirer: no other link has acquired the message.
        delivery_count: earlier attempts that failed.
    """

    durable: bool = False
    priority: int | None = None
    ttl_ms: int | None = None
    first_acquirer: bool = False
    delivery_count: int = 0


MessageId: TypeAlias = Ulong | uuid.UUID | bytes | str


@attrs.frozen(kw_only=True)
class Properties:
    """Properties of the bare message (§3.2.4).

    Attributes:
        absolute_expiry_time: milliseconds since 1970.
        creation_time: milliseconds since 1970.
    """

    message_id: MessageId | None = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: MessageId | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: int | None = None
    creation_time: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None


@attrs.define(kw_only=True)
class AnnotatedMessage:
    """A message as values; an absent section is None, or empty for the kinds of body (§3.2).

    Attributes:
        data: one item per data section.
        sequences: one item per amqp-sequence section.
        value: of the amqp-value section, which may be null.
    """

    header: Header | None = None
    delivery_annotations: Annotations | None = None
    message_annotations: Annotations | None = None
    properties: Properties | None = None
    application_properties: Annotations | None = None
    data: list[bytes] = attrs.field(factory=list)
    sequences: list[list[Any]] = attrs.field(factory=list)
    value: Any = NO_VALUE
    footer: Annotations | None = None


# --- tables ---------------------------------------------------------------------------------------


def _read_message_id(octets: Octets, at: int, end: int) -> tuple[MessageId, int]:
    value, after = decode_value(octets, at, end)
    if type(value) not in (str, bytes, Ulong, uuid.UUID):
        raise DecodeError(at, "is no ulong, uuid, binary or string (§3.2.8-11)", INVALID_FIELD)
    return value, after


def _write_message_id(value: MessageId | int) -> bytes:
    return encode_value(Ulong(value) if type(value) is int else value)


def _read_timestamp(octets: Octets, at: int, end: int) -> tuple[int, int]:
    value, after = decode_value(octets, at, end)
    if type(value) is not Timestamp:
        raise DecodeError(at, "is no timestamp", INVALID_FIELD)
    return int(value), after


def _write_timestamp(value: int) -> bytes:
    return encode_value(Timestamp(value))


MESSAGE_ID: Final = Kind("message-id", _read_message_id, _write_message_id)
TIMESTAMP: Final = Kind("timestamp", _read_timestamp, _write_timestamp)

_HEADER = Composite(
    "header",
    HEADER,
    Header,
    (
        Field("durable", BOOLEAN, default=False),
        Field("priority", UBYTE),
        Field("ttl", UINT, attribute="ttl_ms"),
        Field("first-acquirer", BOOLEAN, default=False),
        Field("delivery-count", UINT, default=0),
    ),
)
_PROPERTIES = Composite(
    "properties",
    PROPERTIES,
    Properties,
    (
        Field("message-id", MESSAGE_ID),
        Field("user-id", BINARY),
        Field("to", ADDRESS),
        Field("subject", STRING),
        Field("reply-to", ADDRESS),
        Field("correlation-id", MESSAGE_ID),
        Field("content-type", SYMBOL),
        Field("content-encoding", SYMBOL),
        Field("absolute-expiry-time", TIMESTAMP),
        Field("creation-time", TIMESTAMP),
        Field("group-id", STRING),
        Field("group-sequence", UINT),
        Field("reply-to-group-id", STRING),
    ),
)

_NAMES: Final[Mapping[int, str]] = {
    HEADER: "header",
    DELIVERY_ANNOTATIONS: "delivery-annotations",
    MESSAGE_ANNOTATIONS: "message-annotations",
    PROPERTIES: "properties",
    APPLICATION_PROPERTIES: "application-properties",
    DATA: "data",
    AMQP_SEQUENCE: "amqp-sequence",
    AMQP_VALUE: "amqp-value",
    FOOTER: "footer",
}
_SYMBOLS: Final[Mapping[str, int]] = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": AMQP_SEQUENCE,
    "amqp:amqp-value:*": AMQP_VALUE,
    "amqp:footer:map": FOOTER,
}
"""Symbolic descriptor → code."""

_LISTS = b"\x45\xc0\xd0"
_MAPS = b"\xc1\xd1"
_CONSTRUCTORS: Final[Mapping[int, bytes | None]] = {
    HEADER: _LISTS,
    DELIVERY_ANNOTATIONS: _MAPS,
    MESSAGE_ANNOTATIONS: _MAPS,
    PROPERTIES: _LISTS,
    APPLICATION_PROPERTIES: _MAPS,
    DATA: b"\xa0\xb0",
    AMQP_SEQUENCE: _LISTS,
    AMQP_VALUE: None,
    FOOTER: _MAPS,
}
"""Code → constructors that its value may have; None: any."""


# --- finding sections -----------------------------------------------------------------------------


def _descriptor(payload: Octets, at: int, end: int) -> tuple[int, int]:
    """Reads a section's code, and the offset of its value."""
    if at + 3 < end and payload[at] == 0 and payload[at + 1] == 0x53:
        code: int = payload[at + 2]
        body_start = at + 3
    else:
        descriptor, body_start = decode_descriptor(payload, at, end)
        code = _SYMBOLS.get(descriptor, 0) if isinstance(descriptor, str) else descriptor or 0
    if code not in _CONSTRUCTORS:
        raise DecodeError(at, f"0x{code:x} is no section of a message (§3.2)", DECODE_ERROR)
    return code, body_start


def _section(payload: Octets, at: int, end: int) -> Section:
    """Finds one section's bounds and checks its descriptor and constructor, not its content."""
    code, body_start = _descriptor(payload, at, end)
    after = skip_value(payload, body_start, end)
    constructors = _CONSTRUCTORS[code]
    if constructors is not None and payload[body_start] not in constructors:
        raise DecodeError(body_start, f"{_NAMES[code]} has a value of another type (§3.2)")
    return Section(code, at, body_start, after)


def _check_order(previous: int, section: Section) -> None:
    """Refuses a section that may not follow one of code ``previous`` (0: none) (§3.2)."""
    code = section.code
    if code > previous and (previous < DATA or code == FOOTER):
        return
    if code == previous and code in (DATA, AMQP_SEQUENCE):
        return
    rule = f"{_NAMES[code]} may not follow {_NAMES[previous]} (§3.2)"
    raise DecodeError(section.start, rule)


def walk(payload: Octets) -> Iterator[Section]:
    """Yields a message's sections without decoding them (§3.2).

    Raises:
        DecodeError: when the iteration reaches an invalid section, or one out of order.
    """
    at = 0
    end = len(payload)
    previous = 0
    while at < end:
        section = _section(payload, at, end)
        _check_order(previous, section)
        yield section
        previous = section.code
        at = section.end


_NO_HEADER: Final = Header()
_NO_PROPERTIES: Final = Properties()


class Peek:
    """The sections before the body of a payload, decoded on access.

    Each attribute but ``is_whole`` raises ``DecodeError`` if its section is invalid.

    Attributes:
        is_whole: every section before the body is present; False only for the first part of
            a payload that was cut among them.
    """

    __slots__ = ("_bounds", "_header", "_payload", "_properties", "is_whole")

    def __init__(self, payload: Octets, bounds: dict[int, Section], is_whole: bool) -> None:
        self._payload = payload
        self._bounds = bounds
        self._header: Header | None = None
        self._properties: Properties | None = None
        self.is_whole = is_whole

    @property
    def header(self) -> Header:
        """The header section; one with defaults if absent (§3.2.1)."""
        if self._header is None:
            section = self._bounds.get(HEADER)
            self._header = _NO_HEADER if section is None else _header_in(self._payload, section)
        return self._header

    @property
    def properties(self) -> Properties:
        """The properties section; an empty one if absent (§3.2.4)."""
        if self._properties is None:
            section = self._bounds.get(PROPERTIES)
            self._properties = (
                _NO_PROPERTIES if section is None else _properties_in(self._payload, section)
            )
        return self._properties

    @property
    def delivery_annotations(self) -> Annotations:
        """The delivery annotations; empty if absent (§3.2.2)."""
        return self._annotations(DELIVERY_ANNOTATIONS)

    @property
    def message_annotations(self) -> Annotations:
        """The message annotations; empty if absent (§3.2.3)."""
        return self._annotations(MESSAGE_ANNOTATIONS)

    @property
    def application_properties(self) -> Annotations:
        """The application properties; empty if absent (§3.2.5)."""
        return self._annotations(APPLICATION_PROPERTIES)

    @property
    def annotations_at(self) -> tuple[int, int] | None:
        """Start and end offset of the delivery annotations; None if absent."""
        section = self._bounds.get(DELIVERY_ANNOTATIONS)
        return None if section is None else (section.start, section.end)

    @property
    def message_annotations_at(self) -> tuple[int, int]:
        """Start and end offset of the message annotations; both where they would be if absent."""
        section = self._bounds.get(MESSAGE_ANNOTATIONS)
        if section is not None:
            return section.start, section.end
        before = (each.end for code, each in self._bounds.items() if code < MESSAGE_ANNOTATIONS)
        at = max(before, default=0)
        return at, at

    def _annotations(self, code: int) -> Annotations:
        section = self._bounds.get(code)
        return {} if section is None else _value_in(self._payload, section)

    @property
    def durable(self) -> bool:
        """§3.2.1."""
        return self.header.durable

    @property
    def priority(self) -> int:
        """§3.2.1; 4 if absent."""
        priority = self.header.priority
        return 4 if priority is None else priority

    @property
    def ttl_ms(self) -> int | None:
        """§3.2.1, milliseconds."""
        return self.header.ttl_ms

    @property
    def first_acquirer(self) -> bool:
        """§3.2.1."""
        return self.header.first_acquirer

    @property
    def delivery_count(self) -> int:
        """§3.2.1."""
        return self.header.delivery_count

    @property
    def message_id(self) -> MessageId | None:
        """§3.2.4."""
        return self.properties.message_id

    @property
    def user_id(self) -> bytes | None:
        """§3.2.4."""
        return self.properties.user_id

    @property
    def to(self) -> str | None:
        """§3.2.4."""
        return self.properties.to

    @property
    def subject(self) -> str | None:
        """§3.2.4."""
        return self.properties.subject

    @property
    def reply_to(self) -> str | None:
        """§3.2.4."""
        return self.properties.reply_to

    @property
    def correlation_id(self) -> MessageId | None:
        """§3.2.4."""
        return self.properties.correlation_id


def peek(payload: Octets, *, partial: bool = False) -> Peek:
    """Finds the sections before the body without decoding them (§3.2).

    Args:
        payload: a message, or its first part.
        partial: it is only the first part; if it is cut among the sections before the body,
            the result is not ``is_whole``.

    Raises:
        DecodeError: if a section before the body is invalid or out of order.
    """
    bounds: dict[int, Section] = {}
    at = 0
    end = len(payload)
    previous = 0
    try:
        while at < end:
            if _descriptor(payload, at, end)[0] >= DATA:
                return Peek(payload, bounds, is_whole=True)
            section = _section(payload, at, end)
            _check_order(previous, section)
            previous = section.code
            bounds[previous] = section
            at = section.end
    except DecodeError:
        if not partial:
            raise
        return Peek(payload, bounds, is_whole=False)
    return Peek(payload, bounds, is_whole=not partial)


def _header_in(payload: Octets, section: Section) -> Header:
    header: Header = decode_fields(_HEADER, payload, section.body_start, section.end)[0]
    return header


def _properties_in(payload: Octets, section: Section) -> Properties:
    found: Properties = decode_fields(_PROPERTIES, payload, section.body_start, section.end)[0]
    return found


def _value_in(payload: Octets, section: Section) -> Any:
    return decode_value(payload, section.body_start, section.end)[0]


# --- changing the head ----------------------------------------------------------------------------


def rewrite(
    payload: Octets,
    *,
    ttl_ms: int | Literal[Keep.KEEP] | None = KEEP,
    delivery_count: int | Literal[Keep.KEEP] = KEEP,
    delivery_annotations: Annotations | Literal[Keep.KEEP] | None = KEEP,
) -> bytes:
    """Changes header and delivery annotations; every octet after them stays (§3.2).

    Args:
        payload: a message, or a first part of it that contains these two sections completely.
        ttl_ms: the header's new ttl in milliseconds; None removes it.
        delivery_count: the header's new delivery-count.
        delivery_annotations: the new section's content; None or empty removes the section.

    Raises:
        DecodeError: if one of the first sections is invalid.
        MisuseError: if a value cannot be encoded.
    """
    end = len(payload)
    header: Section | None = None
    annotations: Section | None = None
    at = 0
    if at < end:
        section = _section_of_head(payload, at, end)
        if section is not None and section.code == HEADER:
            header = section
            at = section.end
            section = _section_of_head(payload, at, end) if at < end else None
        if section is not None:
            _check_order(HEADER if header else 0, section)
            annotations = section
            at = section.end
    parts: list[Octets] = []
    if ttl_ms is KEEP and delivery_count is KEEP:
        if header is not None:
            parts.append(payload[header.start : header.end])
    else:
        parts.append(_changed_header(payload, header, ttl_ms, delivery_count))
    if delivery_annotations is KEEP:
        if annotations is not None:
            parts.append(payload[annotations.start : annotations.end])
    elif delivery_annotations:
        parts.append(b"\x00\x53\x71" + encode_fields(delivery_annotations))
    parts.append(payload[at:])
    return b"".join(parts)


def _section_of_head(payload: Octets, at: int, end: int) -> Section | None:
    """Returns the header or delivery annotations at ``at``; None if there is another section."""
    if _descriptor(payload, at, end)[0] > DELIVERY_ANNOTATIONS:
        return None  # and need not be complete
    return _section(payload, at, end)


def _changed_header(
    payload: Octets,
    section: Section | None,
    ttl_ms: int | Literal[Keep.KEEP] | None,
    delivery_count: int | Literal[Keep.KEEP],
) -> bytes:
    header = _NO_HEADER if section is None else _header_in(payload, section)
    changed = Header(
        durable=header.durable,
        priority=header.priority,
        ttl_ms=header.ttl_ms if ttl_ms is KEEP else ttl_ms,
        first_acquirer=header.first_acquirer,
        delivery_count=header.delivery_count if delivery_count is KEEP else delivery_count,
    )
    if section is None and changed == _NO_HEADER:
        return b""
    return encode_composite(_HEADER, changed)


def replace_annotations(payload: Octets, annotations: Annotations) -> bytes:
    """Replaces the message annotations; every other octet stays (§3.2.3).

    Args:
        payload: a message, or a first part of it that contains its head completely.
        annotations: the new section's content; empty removes the section.

    Raises:
        DecodeError: if a section up to the message annotations is invalid.
        MisuseError: if a value cannot be encoded.
    """
    at, end, previous = 0, len(payload), 0
    start = 0
    while at < end and _descriptor(payload, at, end)[0] <= MESSAGE_ANNOTATIONS:
        section = _section(payload, at, end)
        _check_order(previous, section)
        previous, at = section.code, section.end
        start = section.start if previous == MESSAGE_ANNOTATIONS else at
    return b"".join((payload[:start], _annotations_section(annotations), payload[at:]))


def splice_annotations(seen: Peek, annotations: Annotations) -> Splice:
    """Returns the change that replaces the message annotations of a first part.

    Args:
        seen: the first part, of which the message annotations are complete, or absent.
        annotations: the new section's content; empty removes the section.

    Raises:
        MisuseError: if a value cannot be encoded.
    """
    return Splice(*seen.message_annotations_at, _annotations_section(annotations))


def _annotations_section(annotations: Annotations) -> bytes:
    return b"\x00\x53\x72" + encode_fields(annotations) if annotations else b""


# --- whole messages -------------------------------------------------------------------------------

_ATTRIBUTES: Final[Mapping[int, str]] = {
    DELIVERY_ANNOTATIONS: "delivery_annotations",
    MESSAGE_ANNOTATIONS: "message_annotations",
    APPLICATION_PROPERTIES: "application_properties",
    AMQP_VALUE: "value",
    FOOTER: "footer",
}
"""Sections whose value is used as it is → attribute of ``AnnotatedMessage``."""


def decode_message(payload: Octets) -> AnnotatedMessage:
    """Decodes every section (§3.2).

    Raises:
        DecodeError: if a section is invalid or out of order.
    """
    message = AnnotatedMessage()
    for section in walk(payload):
        code = section.code
        if code == DATA:
            message.data.append(_value_in(payload, section))
        elif code == AMQP_SEQUENCE:
            message.sequences.append(_value_in(payload, section))
        elif code == HEADER:
            message.header = _header_in(payload, section)
        elif code == PROPERTIES:
            message.properties = _properties_in(payload, section)
        else:
            setattr(message, _ATTRIBUTES[code], _value_in(payload, section))
    return message


def encode_message(message: AnnotatedMessage) -> bytes:
    """Encodes a message in shortest form (§3.2).

    Keys of annotations may be given as str for symbols.

    Raises:
        MisuseError: if it has bodies of more than one kind, or a value cannot be encoded.
    """
    has_value = message.value is not NO_VALUE
    if bool(message.data) + bool(message.sequences) + has_value > 1:
        raise MisuseError("a message has bodies of more than one kind (§3.2)")
    parts: list[bytes] = []
    if message.header is not None:
        parts.append(encode_composite(_HEADER, message.header))
    if message.delivery_annotations is not None:
        parts += (b"\x00\x53\x71", encode_fields(message.delivery_annotations))
    if message.message_annotations is not None:
        parts += (b"\x00\x53\x72", encode_fields(message.message_annotations))
    if message.properties is not None:
        parts.append(encode_composite(_PROPERTIES, message.properties))
    if message.application_properties is not None:
        parts += (b"\x00\x53\x74", encode_value(message.application_properties))
    for data in message.data:
        parts += (b"\x00\x53\x75", encode_binary(data))
    for sequence in message.sequences:
        parts += (b"\x00\x53\x76", encode_value(sequence))
    if has_value:
        parts += (b"\x00\x53\x77", encode_value(message.value))
    if message.footer is not None:
        parts += (b"\x00\x53\x78", encode_fields(message.footer))
    return b"".join(parts)
