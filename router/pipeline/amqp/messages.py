"""Messages as rows of Arrow batches, and rows as messages."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import pyarrow as pa

from router.errors import DecodeError
from router.pipeline.schema import MESSAGES, arrow_schema
from router.wire.v1_0.sections import (
    NO_VALUE,
    AnnotatedMessage,
    Header,
    Properties,
    decode_message,
    encode_message,
)
from router.wire.v1_0.types import Ulong


@attrs.frozen
class Arrived:
    """A complete received delivery.

    Attributes:
        payload: the message, as AMQP 1.0 sections.
        at_us: time of arrival, in microseconds since 1970.
    """

    tag: bytes
    payload: bytes
    at_us: int


def to_batch(arrived: Sequence[Arrived], address: str, first_sequence: int) -> Any:
    """Makes a record batch of deliveries, as ``MESSAGES`` has it."""
    schema = arrow_schema(MESSAGES)
    rows = [_row(each, address, sequence) for sequence, each in enumerate(arrived, first_sequence)]
    columns = [pa.array([row.get(field.name) for row in rows], type=field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def message_id_of(payload: bytes) -> str | None:
    """Returns the id of a message with its type, by which duplicates are recognized."""
    try:
        properties = decode_message(payload).properties
    except DecodeError:
        return None
    found = None if properties is None else properties.message_id
    return None if found is None else f"{_type_name(found)}:{_text(found)}"


def _row(arrived: Arrived, address: str, sequence: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "message": arrived.payload,
        "body_type": "none",
        "durable": False,
        "delivery_count": 0,
        "tag": arrived.tag,
        "address": address,
        "received_at": arrived.at_us,
        "sequence": sequence,
    }
    try:
        message = decode_message(arrived.payload)
    except DecodeError:
        return {**row, "body": arrived.payload, "body_type": "unreadable"}
    row["body"], row["body_type"] = _body(message)
    if message.header is not None:
        row["durable"] = message.header.durable
        row["priority"] = message.header.priority
        row["ttl_milliseconds"] = message.header.ttl_ms
        row["delivery_count"] = message.header.delivery_count
    if message.properties is not None:
        row |= _properties(message.properties)
    if message.application_properties is not None:
        row["application_properties"] = _texts(message.application_properties)
    if message.message_annotations is not None:
        row["message_annotations"] = _texts(message.message_annotations)
    return row


def _body(message: AnnotatedMessage) -> tuple[bytes | None, str]:
    if message.data:
        return b"".join(message.data), "data"
    if message.value is not NO_VALUE:
        value = message.value
        return (None if value is None else value if isinstance(value, bytes) else
                _text(value).encode()), "value"  # fmt: skip
    if message.sequences:
        return repr(message.sequences).encode(), "sequence"
    return None, "none"


def _properties(properties: Properties) -> dict[str, Any]:
    row: dict[str, Any] = {
        name: getattr(properties, name)
        for name in (
            "user_id", "to", "subject", "reply_to", "content_type", "content_encoding", "group_id",
            "group_sequence", "reply_to_group_id",
        )
    }  # fmt: skip
    for name in ("creation_time", "absolute_expiry_time"):
        at = getattr(properties, name)
        row[name] = None if at is None or not -_FAR <= at <= _FAR else at * 1000
    for name in ("message_id", "correlation_id"):
        found = getattr(properties, name)
        row[name] = None if found is None else _text(found)
    if properties.message_id is not None:
        row["message_id_type"] = _type_name(properties.message_id)
    return row


_FAR: Final = 253_402_300_799_999
"""Milliseconds to the end of the year 9999, beyond which Spark has no time."""


def _type_name(value: Any) -> str:
    match value:
        case uuid.UUID():
            return "uuid"
        case bytes():
            return "binary"
        case str():
            return "string"
        case _:
            return "ulong"


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return value if type(value) is str else str(value)


def _texts(pairs: Any) -> list[tuple[str, str | None]]:
    """Returns a map as text; of keys with the same text the last one counts."""
    items = pairs.items() if isinstance(pairs, Mapping) else pairs
    return list(
        {_text(key): None if value is None else _text(value) for key, value in items}.items()
    )


# --- rows to messages -----------------------------------------------------------------------------

_PROPERTIES: Final = (
    "user_id", "to", "subject", "reply_to", "content_type", "content_encoding", "group_id",
    "group_sequence", "reply_to_group_id", "correlation_id",
)  # fmt: skip
_IDS: Final[Mapping[str, Callable[[str], Any]]] = {
    "ulong": lambda text: Ulong(int(text)),
    "uuid": uuid.UUID,
    "binary": bytes.fromhex,
    "string": str,
}


def payloads_of(batch: Any, own_id: str) -> Iterator[bytes]:
    """Yields the messages of the rows of a batch.

    A column ``message`` is sent as it is; otherwise ``body`` (or ``value``) and whatever columns of
    ``MESSAGES`` there are become a message. Columns of other names are left out.

    Args:
        batch: of rows.
        own_id: prefix of the ids of messages that have none.

    Raises:
        ValueError: there is neither ``message`` nor ``body`` nor ``value``.
    """
    names = set(batch.schema.names)
    if "message" in names:
        yield from batch.column("message").to_pylist()
        return
    if not names & {"body", "value"}:
        raise ValueError("there is neither a column 'message' nor 'body' nor 'value' to send")
    for index, row in enumerate(batch.to_pylist()):
        yield _payload(row, f"{own_id}-{index}")


def _payload(row: Mapping[str, Any], own_id: str) -> bytes:
    body = row.get("body", row.get("value"))
    given = {name: row[name] for name in _PROPERTIES if row.get(name) is not None}
    for name in ("creation_time", "absolute_expiry_time"):
        if row.get(name) is not None:
            given[name] = int(row[name].timestamp() * 1000)
    message_id = row.get("message_id")
    if message_id is not None:
        given["message_id"] = _IDS[row.get("message_id_type") or "string"](message_id)
    else:
        given["message_id"] = own_id
    header = Header(
        durable=bool(row.get("durable", True)),
        priority=row.get("priority"),
        ttl_ms=row.get("ttl_milliseconds"),
    )
    properties = row.get("application_properties")
    return encode_message(
        AnnotatedMessage(
            header=header,
            properties=Properties(**given),
            application_properties=dict(properties) if properties else None,
            data=[body.encode() if isinstance(body, str) else body or b""],
        )
    )
