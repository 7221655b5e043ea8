"""The ledger's schema, column by column.

A ledger is a directory of Parquet files, written by ``compaction`` and read by all the others::

    LEDGER/date=2026-03-31/router=dc1/0000000000000042-9c0d1f2e.parquet
           |               |          '- number and salt of the journal segment it was made from
           |               '- id of the router that wrote the journal
           '- day (UTC) of the records

One row is one record of a journal (``router.journal.record``). Numbers without a sign of 64 bits
stand as the signed number with the same bits. What a record does not say is 0, or null where the
column says so. ``date`` and ``router`` stand in the path alone.

Codes are numbers, for jobs; columns whose names end in ``_name`` or ``_names`` say the same in
words, for people: dictionary-encoded strings, null where there is nothing to say. Files that were
written before these columns do not have them.

The first row group of a file holds what is not about a delivery (links, marks), so that a reader
who filters by ``kind`` skips all others.
"""

import enum
from collections.abc import Mapping
from typing import Any, Final

import attrs

from router.journal.record import (
    PROTOCOLS,
    GuaranteeCode,
    OutcomeCode,
    RecordFlag,
    RecordKind,
    Resolution,
)

FORMAT: Final = "1"
"""Version of this schema; stands in each file's metadata."""


@attrs.frozen
class Column:
    """One column.

    Attributes:
        name: in files and queries.
        type: of Spark's SQL.
        nullable: whether it may be null.
        unit: of its numbers.
        help: what it says.
    """

    name: str
    type: str
    nullable: bool
    unit: str
    help: str


LEDGER: Final = (
    Column("time", "timestamp", False, "microseconds, UTC", "when it was recorded"),
    Column("time_ns", "bigint", False, "nanoseconds since 1970", "the same, exactly"),
    Column("worker", "int", False, "number", "worker that wrote the record; 0: there is only one"),
    Column(
        "incarnation", "bigint", False, "nanoseconds since 1970", "start of that life of the worker"
    ),
    Column(
        "sequence",
        "bigint",
        False,
        "records",
        "gapless from 1 in (router, worker, incarnation); of MARK that life's next one, of SEGMENT"
        " and SEGMENT_END the segment's number",
    ),
    Column("kind", "smallint", False, "RecordKind", "what happened"),
    Column("outcome", "smallint", False, "OutcomeCode", "which outcome; in RESOLVED a Resolution"),
    Column("guarantee", "smallint", False, "GuaranteeCode", "promise of the route"),
    Column("protocol", "smallint", False, "PROTOCOL_CODES", "encoding of the payload"),
    Column("flags", "int", False, "RecordFlag bits", "facts, one bit each"),
    Column("key_high", "bigint", False, "64 bits", "first half of the delivery key, big-endian"),
    Column("key_low", "bigint", False, "64 bits", "second half"),
    Column(
        "incoming",
        "bigint",
        False,
        "64 bits",
        "key of the link it came from; 0: none; of SEGMENT, the number of the one before",
    ),
    Column("outgoing", "bigint", False, "64 bits", "key of the link it went to; 0: none"),
    Column("message_octets", "bigint", False, "octets", "size of the message, if known"),
    Column("message_format", "bigint", False, "number", "§2.8.11"),
    Column("delivery_count", "bigint", False, "attempts", "earlier failed ones, as the header has"),
    Column("ttl_milliseconds", "bigint", True, "milliseconds", "header.ttl; null: none"),
    Column("tag", "binary", True, "octets", "delivery-tag on the link that the record speaks of"),
    Column("address", "string", True, "", "of the delivery or link, where the record tells it"),
    Column("link_name", "string", True, "", "LINK_ATTACHED: name of the link"),
    Column("container", "string", True, "", "LINK_ATTACHED: the peer's container-id"),
    Column("local", "string", True, "", "LINK_ATTACHED: our own container-id"),
    Column("identity", "string", True, "", "LINK_ATTACHED: who the peer proved to be"),
)

NAMES: Final = (
    Column("kind_name", "string", True, "", "``kind`` in words"),
    Column("outcome_name", "string", True, "", "``outcome`` in words; null: none"),
    Column("guarantee_name", "string", True, "", "``guarantee`` in words; null: unknown"),
    Column("protocol_name", "string", True, "", "``protocol`` in words; null: not told"),
    Column("flag_names", "string", True, "", "the bits of ``flags``, with + between; null: none"),
)
"""The enumerations of ``LEDGER`` in words."""

DICTIONARIES: Final = (
    "worker", "incarnation", "kind", "outcome", "guarantee", "protocol", "flags", "incoming",
    "outgoing", "message_octets", "message_format", "delivery_count", "ttl_milliseconds",
    "address", "link_name", "container", "local", "identity", "kind_name", "outcome_name",
    "guarantee_name", "protocol_name", "flag_names",
)  # fmt: skip
"""Columns with repetitive values."""

PARTITIONS: Final = (
    Column("date", "date", False, "day, UTC", "of the records in the file"),
    Column("router", "string", False, "", "id of the router"),
)

MESSAGES: Final = (
    Column("message", "binary", False, "octets", "all of it, as AMQP 1.0 sections (§3.2): exact"),
    Column("body", "binary", True, "octets", "data sections, joined; of an amqp-value, its text"),
    Column("body_type", "string", False, "", "data, value, sequence, or none"),
    Column("message_id", "string", True, "", "properties.message-id, as text"),
    Column("message_id_type", "string", True, "", "ulong, uuid, binary or string"),
    Column("correlation_id", "string", True, "", "properties.correlation-id, as text"),
    Column("user_id", "binary", True, "octets", "properties.user-id"),
    Column("to", "string", True, "", "properties.to"),
    Column("subject", "string", True, "", "properties.subject"),
    Column("reply_to", "string", True, "", "properties.reply-to"),
    Column("content_type", "string", True, "", "properties.content-type"),
    Column("content_encoding", "string", True, "", "properties.content-encoding"),
    Column("creation_time", "timestamp", True, "milliseconds, UTC", "properties.creation-time"),
    Column("absolute_expiry_time", "timestamp", True, "milliseconds, UTC", "of properties"),
    Column("group_id", "string", True, "", "properties.group-id"),
    Column("group_sequence", "bigint", True, "number", "properties.group-sequence"),
    Column("reply_to_group_id", "string", True, "", "properties.reply-to-group-id"),
    Column("application_properties", "map<string,string>", True, "", "values as text"),
    Column("message_annotations", "map<string,string>", True, "", "values as text"),
    Column("durable", "boolean", False, "", "header.durable"),
    Column("priority", "smallint", True, "0 to 9", "header.priority; null: not told, which is 4"),
    Column("ttl_milliseconds", "bigint", True, "milliseconds", "header.ttl"),
    Column("delivery_count", "bigint", False, "attempts", "header.delivery-count"),
    Column("tag", "binary", False, "octets", "delivery-tag"),
    Column("address", "string", False, "", "where it was read from"),
    Column("received_at", "timestamp", False, "microseconds, UTC", "when it came"),
    Column("sequence", "bigint", False, "number", "position in the log of this reader, from 1"),
)
"""What ``format("amqp")`` reads: ``message`` is lossless, the others are taken out of it."""


def spark_ddl(columns: tuple[Column, ...]) -> str:
    """Returns the columns as Spark's ``StructType.fromDDL`` reads them."""
    return ", ".join(
        f"`{column.name}` {column.type}{'' if column.nullable else ' NOT NULL'}"
        for column in columns
    )


def arrow_schema(columns: tuple[Column, ...]) -> Any:
    """Returns the columns as a ``pyarrow.Schema``."""
    import pyarrow as pa  # noqa: PLC0415  an extra

    types = {
        "timestamp": pa.timestamp("us", tz="UTC"),
        "bigint": pa.int64(),
        "int": pa.int32(),
        "smallint": pa.int16(),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
        "string": pa.string(),
        "date": pa.date32(),
        "map<string,string>": pa.map_(pa.string(), pa.string()),
    }
    return pa.schema(
        [pa.field(column.name, types[column.type], column.nullable) for column in columns]
    )


def in_words(member: enum.Enum) -> str:
    """Returns the name of an enumeration's member as the ledger writes it."""
    return (member.name or "").lower().replace("_", "-")


def enumerations() -> dict[str, Mapping[int, str]]:
    """Returns what each code of each column in ``NAMES`` means; of flags, each bit."""
    outcomes = {int(each): in_words(each) for each in OutcomeCode if each}
    return {
        "kind_name": {int(each): in_words(each) for each in RecordKind},
        "outcome_name": outcomes,
        "guarantee_name": {int(each): in_words(each) for each in GuaranteeCode if each},
        "protocol_name": {code: protocol.value for code, protocol in PROTOCOLS.items()},
        "flag_names": {int(each): in_words(each) for each in RecordFlag},
    }


def with_names(table: Any) -> Any:
    """Adds the columns of ``NAMES`` to a table of records."""
    import numpy as np  # noqa: PLC0415  an extra

    known = enumerations()
    kind, outcome = np.asarray(table["kind"]), np.asarray(table["outcome"])
    resolutions = {int(each): in_words(each) for each in Resolution}
    resolved = kind == int(RecordKind.RESOLVED)
    codes = {
        "kind_name": (kind, known["kind_name"]),
        "outcome_name": (
            np.where(resolved, outcome.astype(np.int64) + _RESOLVED, outcome),
            {
                **known["outcome_name"],
                **{code + _RESOLVED: name for code, name in resolutions.items()},
            },
        ),
        "guarantee_name": (np.asarray(table["guarantee"]), known["guarantee_name"]),
        "protocol_name": (np.asarray(table["protocol"]), known["protocol_name"]),
    }
    for name, (column, names) in codes.items():
        table = table.append_column(name, _dictionary(column, lambda c, n=names: _name(c, n)))
    flags = np.asarray(table["flags"])
    bits = known["flag_names"]
    return table.append_column("flag_names", _dictionary(flags, lambda c: _flag_names(c, bits)))


_RESOLVED: Final = 1 << 16
"""Added to an outcome that is a ``Resolution``."""


def _name(code: int, names: Mapping[int, str]) -> str | None:
    if code in (0, _RESOLVED):
        return None
    return names.get(code, str(code % _RESOLVED))


def _flag_names(flags: int, bits: Mapping[int, str]) -> str | None:
    return "+".join(name for bit, name in bits.items() if flags & bit) or None


def _dictionary(codes: Any, name_of: Any) -> Any:
    """Makes a dictionary-encoded column of the names of codes; codes without a name are null."""
    import numpy as np  # noqa: PLC0415  an extra
    import pyarrow as pa  # noqa: PLC0415

    found, places = np.unique(codes, return_inverse=True)
    names = [name_of(int(code)) for code in found]
    texts = sorted({name for name in names if name is not None})
    index = [None if name is None else texts.index(name) for name in names]
    missing = np.array([each is None for each in index], dtype=bool)
    numbers = np.array([each or 0 for each in index], dtype=np.int32)
    if not len(found):
        return pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), pa.array([], pa.string()))
    return pa.DictionaryArray.from_arrays(
        pa.array(numbers[places], mask=missing[places]), pa.array(texts, pa.string())
    )
