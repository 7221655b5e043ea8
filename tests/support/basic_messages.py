"""Field tables and messages of AMQP 0-9-1 for hypothesis."""

import math
import struct
from typing import Any

from hypothesis import strategies as st

from router.model.text import decode_text
from router.wire.v0_9_1.content import (
    FLAGS,
    Properties,
    content_prefix,
    encode_content_header,
    encode_properties,
)
from router.wire.v0_9_1.types import Seconds, TableDecimal
from router.wire.v1_0.types import Byte, Float, Int, Short, Ubyte, Uint, Ushort


@st.composite
def _floats(draw: st.DrawFn) -> Float:
    octets = draw(st.binary(min_size=4, max_size=4))
    value = Float(struct.unpack(">f", octets)[0])
    if math.isnan(value):
        value.octets = octets
    return value


def _integers(form: type, bits: int, *, signed: bool) -> st.SearchStrategy[Any]:
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return (st.sampled_from([least, most, 0, 1]) | st.integers(least, most)).map(form)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
odd_texts = st.binary(max_size=8).map(decode_text)

LEAVES: dict[type, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    Byte: _integers(Byte, 8, signed=True),
    Ubyte: _integers(Ubyte, 8, signed=False),
    Short: _integers(Short, 16, signed=True),
    Ushort: _integers(Ushort, 16, signed=False),
    Int: _integers(Int, 32, signed=True),
    Uint: _integers(Uint, 32, signed=False),
    int: _integers(int, 64, signed=True),
    Float: _floats(),
    float: st.floats(),
    TableDecimal: st.builds(
        TableDecimal, st.integers(0, 255), st.integers(-(1 << 31), (1 << 31) - 1)
    ),
    str: texts | odd_texts | st.integers(250, 260).map(lambda size: "é" * size),
    bytes: st.binary(max_size=12),
    Seconds: _integers(Seconds, 64, signed=False),
    type(None): st.none(),
}

leaves = st.one_of(*LEAVES.values())
names = texts | odd_texts | st.sampled_from(["x-a", "x-é", "x" * 255])
table_values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=8,
)
tables = st.dictionaries(names, table_values, max_size=5)

_short_texts = texts | st.sampled_from(["", "é" * 127, "x" * 255])
_odd_short_texts = _short_texts | odd_texts
_octets = st.integers(0, 255)

PROPERTIES: dict[str, st.SearchStrategy[Any]] = dict.fromkeys(FLAGS, _odd_short_texts) | {
    "headers": tables,
    "delivery_mode": st.sampled_from([1, 2]) | _octets,
    "priority": _octets,
    "expiration": st.integers(0, 1 << 34).map(str) | _odd_short_texts,
    "message_id": st.uuids().map(lambda one: one.urn) | _odd_short_texts,
    "timestamp": LEAVES[Seconds],
}


def properties(
    of: dict[str, st.SearchStrategy[Any]] = PROPERTIES,
) -> st.SearchStrategy[Properties]:
    """Properties, each present or not."""
    return st.fixed_dictionaries({}, optional=of).map(lambda chosen: Properties(**chosen))


def content(
    properties: Properties,
    body: bytes = b"",
    *,
    exchange: bytes = b"",
    routing_key: bytes = b"",
    redelivered: bool = False,
) -> bytes:
    """A content with these properties and this body."""
    return (
        content_prefix(exchange, routing_key, redelivered=redelivered)
        + encode_content_header(len(body), encode_properties(properties))
        + body
    )
