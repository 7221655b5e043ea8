import json
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.net.client.json_message import encode_line, from_line, to_line
from router.net.client.json_values import UnfitValueError, from_json, to_json
from router.wire.v1_0.sections import (
    AnnotatedMessage,
    Header,
    Properties,
    decode_message,
    encode_message,
)
from router.wire.v1_0.types import Symbol, Timestamp, Uint, Ulong, encode_value
from tests.support.amqp_values import same, values
from tests.support.json_messages import messages


@given(values)
def test_every_value_comes_back_with_its_type(value: Any) -> None:
    back = from_json(json.loads(json.dumps(to_json(value))))
    assert same(back, value)
    assert encode_value(back) == encode_value(value)


@given(messages())
def test_every_message_comes_back_octet_for_octet(message: AnnotatedMessage) -> None:
    payload = encode_message(message)
    line = to_line(decode_message(payload))
    assert line.isascii()
    assert line.isprintable()
    assert encode_line(line.encode()) == payload


def test_a_line_reads_as_the_sections_of_the_message() -> None:
    message = AnnotatedMessage(
        header=Header(durable=True, ttl_ms=1000),
        message_annotations={"x-opt-a": Uint(7)},
        properties=Properties(
            message_id=uuid.UUID(int=1), user_id=b"\xff", correlation_id=Ulong(2), to="a"
        ),
        application_properties={"count": 3, "half": 0.5, "at": Timestamp(9)},
        data=[b"gr\xc3\xbcezi"],
    )
    assert json.loads(to_line(message)) == {
        "header": {"durable": True, "ttl": 1000},
        "message-annotations": [["x-opt-a", {"uint": 7}]],
        "properties": {
            "message-id": {"uuid": "00000000-0000-0000-0000-000000000001"},
            "user-id": {"binary": "/w=="},
            "to": "a",
            "correlation-id": {"ulong": 2},
        },
        "application-properties": {"count": 3, "half": 0.5, "at": {"timestamp": 9}},
        "data": "grüezi",
    }


def test_annotations_are_an_object_of_symbols() -> None:
    message = from_line(b'{"message-annotations": {"x-opt-a": {"symbol": "b"}}}')
    assert message.message_annotations == {Symbol("x-opt-a"): Symbol("b")}
    assert json.loads(to_line(message)) == {"message-annotations": {"x-opt-a": {"symbol": "b"}}}


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (b"", "it is no JSON: Expecting value, column 1"),
        (b"\xff", "it is not UTF-8"),
        (b"[" * 100_000, "it is no JSON"),
        (b'{"data": ' + b"9" * 5000 + b"}", "it is no JSON that can be read"),
        (b"[]", "a message is an object of sections"),
        (b'{"body": 1}', "'body' is no section of a message"),
        (b'{"data": "a", "amqp-value": 1}', "a message has one kind of body"),
        (b'{"data": "a", "data": "b"}', "an object has the same member twice"),
        (b'{"data": 1}', 'data: it is text, or {"binary": base64}'),
        (b'{"data": {"binary": "?"}}', "data: binary is base64"),
        (b'{"amqp-value": NaN}', "NaN is no JSON"),
        (b'{"amqp-value": 9223372036854775808}', "amqp-value: long is from"),
        (b'{"amqp-value": {"uint": -1}}', "amqp-value: uint is from 0 to 4294967295"),
        (b'{"amqp-value": {"uint": true}}', "amqp-value: uint is an integer"),
        (b'{"amqp-value": {"number": 1}}', "amqp-value: 'number' is no type of AMQP"),
        (b'{"amqp-value": {}}', "amqp-value: a value that is an object has one member"),
        (b'{"amqp-value": "\\ud800"}', "amqp-value: a string has half of a character"),
        (b'{"amqp-value": {"char": "ab"}}', "amqp-value: char is one character"),
        (b'{"amqp-value": {"float": 1e300}}', "amqp-value: float is out of range"),
        (b'{"amqp-value": {"float": "3f800000"}}', "amqp-value: float is a number"),
        (b'{"amqp-value": {"map": [["a", 1], ["a", 2]]}}', "amqp-value: a map has the same key"),
        (b'{"amqp-value": {"array": {"of": "uint", "items": [1]}}}', "amqp-value: every item"),
        (b'{"amqp-value": ' + b"[" * 70 + b"]" * 70 + b"}", "amqp-value: values are nested"),
        (b'{"amqp-sequence": [1]}', "amqp-sequence: it is an array with an array"),
        (b'{"header": {"priority": 256}}', "header: priority: ubyte is from 0 to 255"),
        (b'{"header": {"color": 1}}', "header: 'color' is no field of it"),
        (b'{"properties": {"message-id": 1.5}}', "properties: message-id: it is a string"),
        ('{"properties": {"content-type": "grün"}}'.encode(), "content-type: symbol is text in A"),
    ],
)
def test_a_line_that_is_no_message_is_refused_with_the_rule(line: bytes, rule: str) -> None:
    with pytest.raises(UnfitValueError) as error:
        encode_line(line)
    assert rule in error.value.rule


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["uint", "map", "array", "described", "of", "items", "header"])
            | st.text(max_size=3),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(["header", "properties", "data", "footer", "amqp-sequence", "amqp-value"]),
        JSON,
        max_size=2,
    )
)
def test_any_json_is_a_message_or_is_refused(found: dict[str, Any]) -> None:
    try:
        payload = encode_line(json.dumps(found).encode())
    except UnfitValueError:
        return
    decode_message(payload)
