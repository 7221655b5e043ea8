"""Messages and values of AMQP 0-10 for hypothesis."""

import uuid
from typing import Any

from hypothesis import strategies as st

from router.wire.v0_10 import records as r
from router.wire.v0_10.types import Exact, Seconds
from router.wire.v1_0.types import Byte, Char, Float, Int, Short, Ubyte, Uint, Ulong, Ushort

_BITS: dict[type, tuple[int, bool]] = {
    Byte: (8, True),
    Ubyte: (8, False),
    Short: (16, True),
    Ushort: (16, False),
    Int: (32, True),
    Uint: (32, False),
    int: (64, True),
    Ulong: (64, False),
    Seconds: (64, False),
}


def _numbers(form: type) -> st.SearchStrategy[Any]:
    bits, signed = _BITS[form]
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return (st.sampled_from([least, 0, most]) | st.integers(least, most)).map(form)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
short_texts = texts | st.sampled_from(["", "é" * 127, "x" * 255])
_exacts = st.builds(
    Exact, st.sampled_from([0x80 + 0x01, 0x9F, 0xA5]), st.binary(max_size=20)
) | st.builds(Exact, st.sampled_from([0x20, 0x30, 0x40, 0xC0]), st.just(b"")).map(
    lambda each: Exact(each.code, bytes({2: 4, 3: 8, 4: 16, 0xC: 5}[each.code >> 4]))
)

LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    **{form: _numbers(form) for form in _BITS},
    Float: st.floats(width=32, allow_nan=False).map(Float),
    float: st.floats(allow_nan=False),
    Char: st.characters(exclude_categories=["Cs"]).map(Char),
    uuid.UUID: st.uuids(),
    str: texts,
    bytes: st.binary(max_size=12),
    None: st.none(),
    Exact: _exacts,
}

leaves = st.one_of(*LEAVES.values())
names = texts | st.sampled_from(["x-a", "x-é", "x" * 255])
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=8,
)
tables = st.dictionaries(names, values, max_size=5)

_u64 = st.integers(0, (1 << 64) - 1)
_octets = st.integers(0, 255)

delivery_properties = st.builds(
    r.DeliveryProperties,
    redelivered=st.booleans(),
    priority=st.none() | _octets,
    delivery_mode=st.none() | st.sampled_from([1, 2]) | _octets,
    ttl=st.none() | _u64 | st.integers(0, 1 << 32),
    timestamp=st.none() | _numbers(Seconds) | st.integers(0, 1 << 33).map(Seconds),
    expiration=st.none() | _numbers(Seconds) | st.integers(0, 1 << 45).map(Seconds),
    exchange=st.none() | short_texts.filter(bool),
    routing_key=st.none() | short_texts.filter(bool),
)
_reply_to = st.builds(
    r.ReplyTo,
    exchange=st.none() | short_texts | st.just("a/b"),
    routing_key=st.none() | short_texts | st.just("a/b"),
)
message_properties = st.builds(
    r.MessageProperties,
    message_id=st.none() | st.uuids(),
    correlation_id=st.none() | st.binary(max_size=20),
    reply_to=st.none() | _reply_to,
    content_type=st.none() | short_texts | st.just("text/plain"),
    content_encoding=st.none() | short_texts,
    user_id=st.none() | st.binary(max_size=20),
    app_id=st.none() | st.binary(max_size=20),
    application_headers=st.none() | tables.filter(bool),
)
