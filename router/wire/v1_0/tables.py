"""The tables of the performatives and of what is inside them (§2.7, §2.8.14, §3.4, §3.5, §5.3).

Rows are as in the specification: order, names, types, mandatory fields, defaults. The nouns of the
model (conditions, states, termini) are fields here like any other.
"""

from collections.abc import Mapping
from typing import Any, Final

from router.errors import DecodeError
from router.model.condition import INVALID_FIELD, Condition
from router.model.outcome import (
    Accepted,
    Declared,
    DeliveryState,
    Modified,
    Received,
    Rejected,
    Released,
    TransactionalState,
    UnknownState,
)
from router.model.terminus import (
    Coordinator,
    Durability,
    ExpiryPolicy,
    ReceiverSettleMode,
    Role,
    SenderSettleMode,
    Source,
    Target,
)
from router.wire.v1_0.composite import (
    ADDRESS,
    BINARY,
    BOOLEAN,
    FIELDS,
    STRING,
    SYMBOL,
    SYMBOLS,
    UBYTE,
    UINT,
    ULONG,
    USHORT,
    Composite,
    Field,
    Kind,
    composite,
    decode_descriptor,
    decode_fields,
    descriptor_index,
    encode_composite,
    one_of,
)
from router.wire.v1_0.records import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Transfer,
)
from router.wire.v1_0.types import (
    Octets,
    compound,
    compound_bounds,
    decode_value,
    encode_binary,
)

MAX_TAG_OCTETS: Final = 32
"""The longest delivery-tag (§2.8.7)."""


# --- kinds of fields that hold the model's nouns --------------------------------------------------


def _read_role(octets: Octets, at: int, end: int) -> tuple[Role, int]:
    is_receiver, after = BOOLEAN.read(octets, at, end)
    return Role.RECEIVER if is_receiver else Role.SENDER, after


def _write_role(role: Role) -> bytes:
    # 0x41 and 0x42: RabbitMQ refuses a role that is sent as 0x56 and an octet.
    return b"\x41" if role is Role.RECEIVER else b"\x42"


ROLE: Final = Kind("role", _read_role, _write_role)
SENDER_SETTLE_MODE: Final = one_of("sender-settle-mode", SenderSettleMode, UBYTE)
RECEIVER_SETTLE_MODE: Final = one_of("receiver-settle-mode", ReceiverSettleMode, UBYTE)
DURABILITY: Final = one_of("terminus-durability", Durability, UINT)
EXPIRY_POLICY: Final = one_of("terminus-expiry-policy", ExpiryPolicy, SYMBOL)
SASL_CODE: Final = one_of("sasl-code", SaslCode, UBYTE)

_CONDITION = Composite(
    "error",
    0x1D,
    Condition,
    (
        Field("condition", SYMBOL, mandatory=True, attribute="name"),
        Field("description", STRING),
        Field("info", FIELDS),
    ),
)
ERROR: Final = composite(_CONDITION)

_OUTCOMES = (
    Composite("accepted", 0x24, Accepted, ()),
    Composite("rejected", 0x25, Rejected, (Field("error", ERROR),)),
    Composite("released", 0x26, Released, ()),
    Composite(
        "modified",
        0x27,
        Modified,
        (
            Field("delivery-failed", BOOLEAN, default=False),
            Field("undeliverable-here", BOOLEAN, default=False),
            Field("message-annotations", FIELDS),
        ),
    ),
)
OUTCOME: Final = composite(*_OUTCOMES)

_STATES = (
    *_OUTCOMES,
    Composite(
        "received",
        0x23,
        Received,
        (
            Field("section-number", UINT, mandatory=True),
            Field("section-offset", ULONG, mandatory=True),
        ),
    ),
    Composite("declared", 0x33, Declared, (Field("txn-id", BINARY, mandatory=True),)),
    Composite(
        "transactional-state",
        0x34,
        TransactionalState,
        (Field("txn-id", BINARY, mandatory=True), Field("outcome", OUTCOME)),
    ),
)
_STATE_BY_DESCRIPTOR = descriptor_index(*_STATES)
_STATE_BY_RECORD: dict[type, Composite] = {
    Received: _STATES[4],
    Accepted: _STATES[0],
    Rejected: _STATES[1],
    Released: _STATES[2],
    Modified: _STATES[3],
    Declared: _STATES[5],
    TransactionalState: _STATES[6],
}


def decode_state(octets: Octets, at: int, end: int) -> tuple[DeliveryState, int]:
    """Decodes a delivery state; of an unknown type the octets are kept (§3.4).

    Raises:
        DecodeError: if it is not described, or invalid.
    """
    descriptor, start = decode_descriptor(octets, at, end)
    table = _STATE_BY_DESCRIPTOR.get(descriptor)
    if table is not None:
        return decode_fields(table, octets, start, end)
    after = decode_value(octets, at, end)[1]
    return UnknownState(bytes(octets[at:after])), after


def encode_state(state: DeliveryState) -> bytes:
    """Encodes a delivery state (§3.4)."""
    if type(state) is UnknownState:
        return state.octets
    return encode_composite(_STATE_BY_RECORD[type(state)], state)


STATE: Final = Kind("delivery-state", decode_state, encode_state)


def _read_delivery_tag(octets: Octets, at: int, end: int) -> tuple[bytes, int]:
    tag, after = BINARY.read(octets, at, end)
    if len(tag) > MAX_TAG_OCTETS:
        raise DecodeError(at, f"has more than {MAX_TAG_OCTETS} octets (§2.8.7)", INVALID_FIELD)
    return tag, after


DELIVERY_TAG: Final = Kind("delivery-tag", _read_delivery_tag, encode_binary)


def _read_unsettled(octets: Octets, at: int, end: int) -> tuple[Any, int]:
    """Reads a map of delivery-tags in place, so that unknown states keep their octets (§2.7.3)."""
    code = octets[at]
    if code not in (0xC1, 0xD1):
        raise DecodeError(at, "is no map", INVALID_FIELD)
    count, at, limit = compound_bounds(octets, code, at + 1, end)
    if count > limit - at or count & 1:
        raise DecodeError(at, "the count of the map is odd, or exceeds the octets that are there")
    unsettled: dict[bytes, DeliveryState | None] = {}
    for _ in range(count >> 1):
        tag, at = _read_delivery_tag(octets, at, limit)
        if tag in unsettled:
            raise DecodeError(at, "has the same delivery-tag twice (§1.6.23)")
        if at < limit and octets[at] == 0x40:
            unsettled[tag] = None
            at += 1
        else:
            unsettled[tag], at = decode_state(octets, at, limit)
    if at != limit:
        raise DecodeError(at, "the items end before the size says")
    return unsettled, limit


def _write_unsettled(unsettled: Mapping[bytes, DeliveryState | None]) -> bytes:
    parts: list[bytes] = []
    for tag, state in unsettled.items():
        parts.append(encode_binary(tag))
        parts.append(b"\x40" if state is None else encode_state(state))
    return compound(0xC1, len(parts), b"".join(parts))


UNSETTLED: Final = Kind("unsettled map", _read_unsettled, _write_unsettled)

_TERMINUS_FIELDS = (
    Field("address", ADDRESS),
    Field("durable", DURABILITY, default=Durability.NONE, attribute="durability"),
    Field("expiry-policy", EXPIRY_POLICY, default=ExpiryPolicy.SESSION_END),
    Field("timeout", UINT, default=0, attribute="expiry_seconds"),
    Field("dynamic", BOOLEAN, default=False),
    Field("dynamic-node-properties", FIELDS),
)
SOURCE: Final = composite(
    Composite(
        "source",
        0x28,
        Source,
        (
            *_TERMINUS_FIELDS,
            Field("distribution-mode", SYMBOL),
            Field("filter", FIELDS, attribute="filters"),
            Field("default-outcome", OUTCOME),
            Field("outcomes", SYMBOLS, default=()),
            Field("capabilities", SYMBOLS, default=()),
        ),
    )
)
TARGET: Final = composite(
    Composite(
        "target", 0x29, Target, (*_TERMINUS_FIELDS, Field("capabilities", SYMBOLS, default=()))
    ),
    Composite("coordinator", 0x30, Coordinator, (Field("capabilities", SYMBOLS, default=()),)),
)


# --- tables of the performatives ------------------------------------------------------------------

_CAPABILITIES = (
    Field("offered-capabilities", SYMBOLS, default=()),
    Field("desired-capabilities", SYMBOLS, default=()),
    Field("properties", FIELDS),
)

_OPEN = Composite(
    "open",
    0x10,
    Open,
    (
        Field("container-id", STRING, mandatory=True),
        Field("hostname", STRING),
        Field("max-frame-size", UINT, default=0xFFFF_FFFF),
        Field("channel-max", USHORT, default=0xFFFF),
        Field("idle-time-out", UINT),
        Field("outgoing-locales", SYMBOLS, default=()),
        Field("incoming-locales", SYMBOLS, default=()),
        *_CAPABILITIES,
    ),
)
_BEGIN = Composite(
    "begin",
    0x11,
    Begin,
    (
        Field("remote-channel", USHORT),
        Field("next-outgoing-id", UINT, mandatory=True),
        Field("incoming-window", UINT, mandatory=True),
        Field("outgoing-window", UINT, mandatory=True),
        Field("handle-max", UINT, default=0xFFFF_FFFF),
        *_CAPABILITIES,
    ),
)
_ATTACH = Composite(
    "attach",
    0x12,
    Attach,
    (
        Field("name", STRING, mandatory=True),
        Field("handle", UINT, mandatory=True),
        Field("role", ROLE, mandatory=True),
        Field("snd-settle-mode", SENDER_SETTLE_MODE, default=SenderSettleMode.MIXED),
        Field("rcv-settle-mode", RECEIVER_SETTLE_MODE, default=ReceiverSettleMode.FIRST),
        Field("source", SOURCE),
        Field("target", TARGET),
        Field("unsettled", UNSETTLED),
        Field("incomplete-unsettled", BOOLEAN, default=False),
        Field("initial-delivery-count", UINT),
        Field("max-message-size", ULONG),
        *_CAPABILITIES,
    ),
)
_FLOW = Composite(
    "flow",
    0x13,
    Flow,
    (
        Field("next-incoming-id", UINT),
        Field("incoming-window", UINT, mandatory=True),
        Field("next-outgoing-id", UINT, mandatory=True),
        Field("outgoing-window", UINT, mandatory=True),
        Field("handle", UINT),
        Field("delivery-count", UINT),
        Field("link-credit", UINT),
        Field("available", UINT),
        Field("drain", BOOLEAN, default=False),
        Field("echo", BOOLEAN, default=False),
        Field("properties", FIELDS),
    ),
)
_TRANSFER = Composite(
    "transfer",
    0x14,
    Transfer,
    (
        Field("handle", UINT, mandatory=True),
        Field("delivery-id", UINT),
        Field("delivery-tag", DELIVERY_TAG),
        Field("message-format", UINT),
        Field("settled", BOOLEAN),
        Field("more", BOOLEAN, default=False),
        Field("rcv-settle-mode", RECEIVER_SETTLE_MODE),
        Field("state", STATE),
        Field("resume", BOOLEAN, default=False),
        Field("aborted", BOOLEAN, default=False),
        Field("batchable", BOOLEAN, default=False),
    ),
)
_DISPOSITION = Composite(
    "disposition",
    0x15,
    Disposition,
    (
        Field("role", ROLE, mandatory=True),
        Field("first", UINT, mandatory=True),
        Field("last", UINT),
        Field("settled", BOOLEAN, default=False),
        Field("state", STATE),
        Field("batchable", BOOLEAN, default=False),
    ),
)
_DETACH = Composite(
    "detach",
    0x16,
    Detach,
    (
        Field("handle", UINT, mandatory=True),
        Field("closed", BOOLEAN, default=False),
        Field("error", ERROR),
    ),
)
_END = Composite("end", 0x17, End, (Field("error", ERROR),))
_CLOSE = Composite("close", 0x18, Close, (Field("error", ERROR),))
_SASL = (
    Composite(
        "sasl-mechanisms",
        0x40,
        SaslMechanisms,
        (Field("sasl-server-mechanisms", SYMBOLS, mandatory=True),),
    ),
    Composite(
        "sasl-init",
        0x41,
        SaslInit,
        (
            Field("mechanism", SYMBOL, mandatory=True),
            Field("initial-response", BINARY),
            Field("hostname", STRING),
        ),
    ),
    Composite("sasl-challenge", 0x42, SaslChallenge, (Field("challenge", BINARY, mandatory=True),)),
    Composite("sasl-response", 0x43, SaslResponse, (Field("response", BINARY, mandatory=True),)),
    Composite(
        "sasl-outcome",
        0x44,
        SaslOutcome,
        (Field("code", SASL_CODE, mandatory=True), Field("additional-data", BINARY)),
    ),
)
TABLES: Final = (
    _OPEN,
    _BEGIN,
    _ATTACH,
    _FLOW,
    _TRANSFER,
    _DISPOSITION,
    _DETACH,
    _END,
    _CLOSE,
    *_SASL,
)
"""Every composite that may begin a frame's body."""

TABLE_BY_DESCRIPTOR = descriptor_index(*TABLES)
TABLE_BY_RECORD = {table.record: table for table in TABLES}
