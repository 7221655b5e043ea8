"""The quick translations against the general ones."""

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import TranslationError
from router.model.capabilities import Protocol
from router.wire.hub import to_sections
from router.wire.v0_9_1 import marks
from router.wire.v0_9_1.content import Properties
from router.wire.v0_9_1.from_sections import from_message
from router.wire.v0_9_1.quick_from_sections import quick_from_sections
from router.wire.v0_9_1.quick_to_sections import quick_to_sections
from router.wire.v0_9_1.to_sections import to_message
from router.wire.v0_9_1.twins import chosen
from router.wire.v0_9_1.types import Seconds
from router.wire.v1_0 import sections
from router.wire.v1_0.sections import AnnotatedMessage, Header, encode_message
from router.wire.v1_0.types import (
    Array,
    Byte,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)
from tests.support.amqp_values import LEAVES as VALUES
from tests.support.amqp_values import mutated, values, values_and_forms
from tests.support.basic_messages import LEAVES, content, properties

compiled_to_sections = chosen("quick_to_sections", quick_to_sections)
compiled_from_sections = chosen("quick_from_sections", quick_from_sections)
"""Both are one where nothing was compiled."""

ascii_texts = st.text(st.characters(max_codepoint=127), max_size=20) | st.integers(250, 255).map(
    lambda size: "x" * size
)
plain_names = ascii_texts.filter(
    lambda name: not name.startswith(("x-", "JMSX")) and len(name) <= 255
)
numbers = st.one_of(
    *(
        LEAVES[form]
        for form in (bool, Byte, Ubyte, Short, Ushort, Int, Uint, int, Float, float, type(None))
    )
)
plain_values = st.one_of(
    numbers, ascii_texts, st.integers(0, 1 << 40).map(Seconds), st.sampled_from([-129, -128, 127])
)

PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "content_type": ascii_texts,
    "content_encoding": ascii_texts,
    "headers": st.dictionaries(plain_names, plain_values, max_size=6),
    "delivery_mode": st.sampled_from([1, 2]),
    "priority": st.integers(0, 255),
    "correlation_id": ascii_texts,
    "reply_to": ascii_texts,
    "expiration": st.integers(0, 999_999_999).map(str),
    "message_id": ascii_texts,
    "timestamp": st.integers(0, 1 << 40).map(Seconds),
    "type": ascii_texts,
    "user_id": ascii_texts,
    "app_id": ascii_texts,
}


@settings(max_examples=500)
@given(
    properties(PLAIN),
    st.binary(max_size=300),
    st.sampled_from([b"", b"e", b"e" * 255]),
    st.sampled_from([b"", b"k", b"k" * 255]),
)
def test_plain_contents_go_up_quickly_to_the_same_octets(
    made: Properties, body: bytes, exchange: bytes, routing_key: bytes
) -> None:
    octets = content(made, body, exchange=exchange, routing_key=routing_key)
    expected = encode_message(to_message(octets))
    for _ in range(2):  # the second time from memory
        assert quick_to_sections(octets) == expected
    assert compiled_to_sections(octets) == expected


@settings(max_examples=500)
@given(
    properties() | properties(PLAIN),
    st.binary(max_size=20),
    st.binary(max_size=5),
    st.booleans(),
    st.data(),
)
def test_any_contents_go_up_to_the_same_octets_or_the_general_way(
    made: Properties, body: bytes, route: bytes, redelivered: bool, data: st.DataObject
) -> None:
    octets = content(made, body, exchange=route, routing_key=route, redelivered=redelivered)
    if data.draw(st.booleans()):
        octets = data.draw(mutated(st.just(octets)))
    quick = quick_to_sections(octets)
    if quick is not None:
        assert quick == encode_message(to_message(octets))
    assert compiled_to_sections(octets) == quick


@given(properties(PLAIN), st.binary(max_size=9), st.data())
def test_broken_contents_go_up_alike_by_both_twins(
    made: Properties, body: bytes, data: st.DataObject
) -> None:
    octets = data.draw(mutated(st.just(content(made, body, routing_key=b"k"))))
    cut = octets[: data.draw(st.integers(0, len(octets)))]
    assert compiled_to_sections(octets) == quick_to_sections(octets)
    assert compiled_to_sections(cut) == quick_to_sections(cut)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000])
def test_bodies_of_any_size_go_up(size: int) -> None:
    octets = content(Properties(delivery_mode=2), b"x" * size)
    expected = encode_message(to_message(octets))
    assert quick_to_sections(octets) == compiled_to_sections(octets) == expected


@pytest.mark.parametrize("count", [1, 63, 64, 65, 127, 128, 300, 3000])
def test_headers_of_any_number_go_up(count: int) -> None:
    table = {f"h{number}": "v" for number in range(count)}
    octets = content(Properties(headers=table, app_id="a"), b"x")
    expected = encode_message(to_message(octets))
    assert quick_to_sections(octets) == compiled_to_sections(octets) == expected


def test_names_that_marks_know_begin_as_the_compiled_twin_expects() -> None:
    known = {*marks._TESTS, *marks._COUNTS, *marks.RESERVED_ANNOTATIONS, marks.BASIC}
    assert all(name.startswith(("x-", "JMSX")) for name in known)


def test_a_content_of_another_class_goes_up_the_general_way() -> None:
    octets = b"\x00\x00\x00\x01\x3c" + bytes(12)
    assert quick_to_sections(octets) is compiled_to_sections(octets) is None


def test_names_that_come_twice_go_up_the_general_way() -> None:
    table = b"\x01at\x01" * 2
    header = b"\x00\x3c\x00\x00" + bytes(8) + b"\x20\x00" + len(table).to_bytes(4, "big") + table
    octets = b"\x00\x00\x00" + header
    assert quick_to_sections(octets) is compiled_to_sections(octets) is None


# --- from_sections ------------------------------------------------------------------------------

_ascii = st.characters(max_codepoint=127)
_symbols = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=12)
_plain_1_0 = st.one_of(
    numbers,
    st.text(_ascii, max_size=255),
    st.text(_ascii, max_size=20).map(Symbol),
    st.integers(0, (1 << 63) - 1).map(Ulong),
    st.sampled_from([0, 255, 256]).map(Ulong),
    st.binary(max_size=20),
    st.integers(0, (1 << 63) - 1).map(Timestamp),
    st.sampled_from([0, 127, 128, 255]).map(Uint),
)
_texts = st.none() | st.text(_ascii, max_size=255).filter(lambda text: text != "amqp-1.0")
_ids = _texts | st.uuids() | st.integers(0, (1 << 64) - 1).map(Ulong)

plain_messages = st.builds(
    AnnotatedMessage,
    header=st.none()
    | st.builds(
        Header,
        durable=st.booleans(),
        priority=st.none() | st.integers(0, 255),
        ttl_ms=st.none() | st.integers(0, 0xFFFFFFFF),
    ),
    message_annotations=st.none()
    | st.dictionaries(
        st.sampled_from(["x-a", "x-b", "x-exchange", "x-routing-key"]).map(Symbol),
        st.text(_ascii, max_size=20),
        max_size=4,
    ),
    properties=st.none()
    | st.builds(
        sections.Properties,
        message_id=_ids,
        user_id=st.none() | st.binary(max_size=255),
        to=_texts,
        subject=_texts,
        reply_to=_texts,
        correlation_id=_ids,
        content_type=st.none() | _symbols,
        content_encoding=st.none() | _symbols,
        creation_time=st.none() | st.integers(0, (1 << 62)),
    ),
    application_properties=st.none()
    | st.dictionaries(
        plain_names | st.just("x-amqp-0-10.app-id"), _plain_1_0, min_size=1, max_size=5
    ),
    data=st.binary(max_size=300).map(lambda body: [body]),
)


def general(octets: bytes) -> bytes:
    return from_message(to_sections(Protocol.AMQP_1_0, octets))


@settings(max_examples=500)
@given(plain_messages)
def test_plain_messages_go_down_quickly_to_the_same_octets(message: AnnotatedMessage) -> None:
    app_id = dict((message.application_properties or {}).items()).get("x-amqp-0-10.app-id", "")
    octets = encode_message(message)
    expected = general(octets)
    for _ in range(2):  # the second time from memory
        quick = quick_from_sections(octets)
        if type(app_id) is str or quick is not None:
            assert quick == expected
        assert compiled_from_sections(octets) == quick


@settings(max_examples=500)
@given(plain_messages, st.data())
def test_any_messages_go_down_to_the_same_octets_or_the_general_way(
    message: AnnotatedMessage, data: st.DataObject
) -> None:
    match data.draw(st.integers(0, 4)):
        case 0:
            message.application_properties = {data.draw(st.text(max_size=5)): data.draw(values)}
        case 1:
            message.message_annotations = {Symbol("x-v"): data.draw(values)}
        case 2:
            message.header = Header(delivery_count=data.draw(st.integers(0, 3)))
        case 3:
            message.footer = {Symbol("f"): 1}
        case _:
            message.data = data.draw(st.lists(st.binary(max_size=3), max_size=3))
    octets = encode_message(message)
    if data.draw(st.booleans()):
        octets = data.draw(mutated(st.just(octets)))
    quick = quick_from_sections(octets)
    if quick is not None:
        assert quick == general(octets)
    assert compiled_from_sections(octets) == quick
    cut = octets[: data.draw(st.integers(0, len(octets)))]
    assert compiled_from_sections(cut) == quick_from_sections(cut)


@settings(max_examples=300)
@given(
    st.sampled_from(list(VALUES)).flatmap(lambda form: values_and_forms(VALUES[form])),
    st.sampled_from(["n", "x-n", "JMSXGroupID"]),
)
def test_values_in_any_legal_form_go_down_the_same(
    value_and_form: tuple[Any, bytes], name: str
) -> None:
    entry = b"\xa1" + bytes((len(name),)) + name.encode() + value_and_form[1]
    size = len(entry)
    octets = (
        b"\x00\x53\x74\xd1"
        + (size + 4).to_bytes(4, "big")
        + b"\x00\x00\x00\x02"
        + entry
        + b"\x00\x53\x75\xa0\x01b"
    )
    quick = quick_from_sections(octets)
    assert compiled_from_sections(octets) == quick
    with contextlib.suppress(TranslationError):
        expected = general(octets)
        assert quick in (None, expected)


@given(st.binary(max_size=80))
def test_random_octets_go_down_only_where_the_general_way_takes_them(octets: bytes) -> None:
    quick = quick_from_sections(b"\x00\x53" + octets)
    assert compiled_from_sections(b"\x00\x53" + octets) == quick
    if quick is not None:
        assert quick == general(b"\x00\x53" + octets)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000])
def test_bodies_of_any_size_go_down(size: int) -> None:
    octets = encode_message(AnnotatedMessage(data=[b"x" * size]))
    assert quick_from_sections(octets) == compiled_from_sections(octets) == general(octets)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 127, 128, 300])
def test_application_properties_of_any_number_go_down(count: int) -> None:
    told = {f"h{number}": "v" for number in range(count)}
    octets = encode_message(AnnotatedMessage(application_properties=told, data=[b"x"]))
    assert quick_from_sections(octets) == compiled_from_sections(octets) == general(octets)


@pytest.mark.parametrize(
    "message",
    [
        AnnotatedMessage(data=[]),
        AnnotatedMessage(data=[b"a", b"b"]),
        AnnotatedMessage(value="text"),
        AnnotatedMessage(sequences=[[1]]),
        AnnotatedMessage(header=Header(delivery_count=2), data=[b""]),
        AnnotatedMessage(delivery_annotations={Symbol("x"): 1}, data=[b""]),
        AnnotatedMessage(footer={Symbol("x"): 1}, data=[b""]),
        AnnotatedMessage(application_properties={"é": 1}, data=[b""]),
        AnnotatedMessage(application_properties={"a": "é"}, data=[b""]),
        AnnotatedMessage(application_properties={"a": Ulong(1 << 63)}, data=[b""]),
        AnnotatedMessage(application_properties={"a": Timestamp(-1)}, data=[b""]),
        AnnotatedMessage(message_annotations={Symbol("jms"): 1}, data=[b""]),
        AnnotatedMessage(message_annotations={Symbol("x-a"): Array(int, (1,))}, data=[b""]),
        AnnotatedMessage(message_annotations={Symbol("x-basic-type"): "t"}, data=[b""]),
        AnnotatedMessage(
            message_annotations={Symbol("x-a"): 1}, application_properties={"x-a": 2}, data=[b""]
        ),
        AnnotatedMessage(properties=sections.Properties(group_id="g"), data=[b""]),
        AnnotatedMessage(properties=sections.Properties(subject="amqp-1.0"), data=[b""]),
    ],
)
def test_what_is_not_plain_goes_down_the_general_way(message: AnnotatedMessage) -> None:
    octets = encode_message(message)
    assert quick_from_sections(octets) is compiled_from_sections(octets) is None
    assert general(octets)
