"""Messages between 0-10 and AMQP 1.0, both ways (docs/translation-0-10.md)."""

import contextlib
import uuid
from typing import Any

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from router.errors import TranslationError
from router.model.capabilities import Protocol
from router.wire import hub
from router.wire.v0_10 import marks
from router.wire.v0_10 import records as r
from router.wire.v0_10.from_sections import from_message
from router.wire.v0_10.message import Message, make_content, read_content, write_header
from router.wire.v0_10.to_sections import to_message
from router.wire.v0_10.types import (
    DEC32,
    STR16_LATIN,
    STR16_UTF16,
    Exact,
    Seconds,
    encode_list,
    encode_map,
)
from router.wire.v0_10.values import to_v1_0
from router.wire.v1_0 import sections
from router.wire.v1_0.sections import (
    NO_VALUE,
    AnnotatedMessage,
    Header,
    Properties,
    encode_message,
)
from router.wire.v1_0.types import Int, Symbol, Timestamp, Ubyte, Uint, Ulong
from tests.support.amqp_values import LEAVES as VALUES
from tests.support.amqp_values import mutated, same, values
from tests.support.messages_0_10 import (
    delivery_properties,
    message_properties,
    tables,
    texts,
)
from tests.support.messages_0_10 import values as table_values


def content_of(
    delivery: r.DeliveryProperties | None = None,
    message: r.MessageProperties | None = None,
    body: bytes = b"",
    exchange: bytes = b"",
) -> bytes:
    return make_content(exchange, write_header(delivery, message), body)


def up(
    delivery: r.DeliveryProperties | None = None,
    message: r.MessageProperties | None = None,
    body: bytes = b"",
) -> AnnotatedMessage:
    """Translates, and reads what a peer of 1.0 would get."""
    return sections.decode_message(encode_message(to_message(content_of(delivery, message, body))))


def down(message: AnnotatedMessage) -> Message:
    return read_content(from_message(sections.decode_message(encode_message(message))))


# --- from 0-10 and back ---------------------------------------------------------------------------


def nearest(value: Any) -> Any:
    """What a header's value comes back as."""
    if isinstance(value, dict):
        return {name: nearest(each) for name, each in value.items()}
    if isinstance(value, list):
        return [nearest(each) for each in value]
    if isinstance(value, Exact):
        return nearest(to_v1_0(value))
    if type(value) is Seconds and value > ((1 << 63) - 1) // 1000:
        return Ulong(value)
    return value


def is_kept(name: str) -> bool:
    return not marks.is_reserved(name)


@settings(max_examples=400)
@given(delivery_properties, message_properties, st.binary(max_size=20))
@example(
    r.DeliveryProperties(redelivered=False, exchange="sales"),
    r.MessageProperties(application_headers={"x-exchange": [], "x-routing-key": "eu"}),
    b"",
)
def test_a_message_of_0_10_comes_back_from_1_0_as_it_was(
    delivery: r.DeliveryProperties, message: r.MessageProperties, body: bytes
) -> None:
    again = down(up(delivery, message, body))
    assert again.body == body
    assert again.delivery == delivery
    headers = message.application_headers
    expected = attrs.evolve(message, content_length=len(body) or None, application_headers=None)
    assert attrs.evolve(again.message, application_headers=None) == expected
    assert again.message.application_headers == (None if not headers else nearest(headers))


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "x-amqp-to",
                "x-amqp-body",
                "x-amqp-annotations",
                "x-amqp-application-properties",
                "x-amqp-footer",
                "x-amqp-message-id",
                "x-amqp-correlation-id",
                "x-amqp-creation-time",
                "x-amqp-priority",
                "x-amqp-content-type",
                "x-amqp-reply-to",
                "x-delivery-count",
                "qpid.subject",
                "JMSXGroupID",
                "JMSXGroupSeq",
                "x-amqp-0-10.app-id",
                "x-amqp-0-10.headers",
            ]
        ),
        table_values
        | st.sampled_from(["string", "binary", "sections", 7, -1, "string, text/plain"]),
        max_size=4,
    ),
    delivery_properties,
    message_properties,
    st.binary(max_size=20),
)
@settings(max_examples=400)
def test_headers_that_look_like_marks_come_back_as_they_were(
    headers: dict[str, Any],
    delivery: r.DeliveryProperties,
    message: r.MessageProperties,
    body: bytes,
) -> None:
    message = attrs.evolve(message, application_headers=headers or None)
    again = down(up(delivery, message, body))
    assert again.body == body
    found = again.message.application_headers or {}
    expected = nearest(headers)
    assert found == expected


def test_each_property_has_its_home() -> None:
    identity = uuid.UUID(int=7)
    found = up(
        r.DeliveryProperties(
            redelivered=True,
            priority=7,
            delivery_mode=2,
            ttl=1500,
            timestamp=Seconds(1_000_000_000),
            expiration=Seconds(1_000_000_060),
            exchange="shop",
            routing_key="eu",
        ),
        r.MessageProperties(
            content_length=4,
            message_id=identity,
            correlation_id=b"c-1",
            reply_to=r.ReplyTo("answers", "me"),
            content_type="text/plain",
            content_encoding="gzip",
            user_id=b"app",
            app_id=b"till",
            application_headers={
                "qpid.subject": "s",
                "a": Int(1),
                "x-a": "annotated",
                "m": {"k": [1]},
                "JMSXGroupID": "g",
                "JMSXGroupSeq": 3,
            },
        ),
        b"body",
    )
    assert found.header == Header(durable=True, priority=7, ttl_ms=1500, delivery_count=1)
    assert found.properties == Properties(
        message_id=identity,
        user_id=b"app",
        subject="s",
        reply_to="answers/me",
        correlation_id="c-1",
        content_type=Symbol("text/plain"),
        content_encoding=Symbol("gzip"),
        absolute_expiry_time=1_000_000_060_000,
        creation_time=1_000_000_000_000,
        group_id="g",
        group_sequence=3,
    )
    assert found.application_properties == {"a": 1, marks.APP_ID: "till"}
    assert found.message_annotations == {
        "x-exchange": "shop",
        "x-routing-key": "eu",
        "x-a": "annotated",
        "x-amqp-0-10.headers": {"m": {"k": [1]}},
    }
    assert found.data == [b"body"]


def test_milliseconds_that_qpid_for_java_writes_are_read_as_such() -> None:
    found = up(r.DeliveryProperties(timestamp=Seconds(1_600_000_000_123)))
    assert found.properties is not None
    assert found.properties.creation_time == 1_600_000_000_123


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Seconds(5), Timestamp(5000)),
        (Seconds(1 << 63), Ulong(1 << 63)),
        (Exact(STR16_LATIN, b"\xa4"), "€"),
        (Exact(STR16_UTF16, b"\x00a"), "a"),
        (Exact(STR16_UTF16, b"\x00"), b"\x00"),
        (Exact(0x04, b"\xe9"), "é"),
        (Exact(DEC32, b"\x02\xff\xff\xff\x85"), "-1.23"),
        (Exact(0x20, b"abcd"), b"abcd"),
    ],
)
def test_values_become_the_nearest_of_1_0(value: Any, expected: Any) -> None:
    found = to_v1_0(value)
    assert found == expected
    assert type(found) is type(expected) or isinstance(found, str)


def test_bodies_that_qpid_encodes_as_maps_and_lists_are_values() -> None:
    told = r.MessageProperties(content_type="amqp/map")
    assert up(None, told, encode_map({"a": [1, "b"]})).value == {"a": [1, "b"]}
    told = r.MessageProperties(content_type="amqp/list")
    assert up(None, told, encode_list([1, None])).value == [1, None]
    assert up(None, told, b"nonsense").data == [b"nonsense"]
    found = down(AnnotatedMessage(value={"a": [1, "b"]}))
    assert found.message.content_type == "amqp/map"
    assert found.body == encode_map({"a": [1, "b"]})


def test_a_string_value_is_a_body_people_can_read() -> None:
    found = down(AnnotatedMessage(value="grüß"))
    assert found.body == "grüß".encode()
    assert found.message.content_type == "text/plain"
    assert up(None, found.message, found.body).value == "grüß"


def test_equal_protocols_pass_the_octets_unchanged() -> None:
    content = content_of(r.DeliveryProperties(routing_key="k"), None, b"x")
    assert hub.translate(content, Protocol.AMQP_0_10, Protocol.AMQP_0_10) is content


@given(st.binary(max_size=60))
def test_random_octets_are_translated_or_refused(octets: bytes) -> None:
    with contextlib.suppress(TranslationError):
        encode_message(to_message(octets))


@given(
    st.builds(content_of, delivery_properties, message_properties, st.binary(max_size=9)).flatmap(
        lambda octets: mutated(st.just(octets))
    )
)
def test_broken_contents_are_translated_or_refused(octets: bytes) -> None:
    with contextlib.suppress(TranslationError):
        encode_message(to_message(octets))


# --- from 1.0 and back ----------------------------------------------------------------------------

_symbols = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=12)
_ids = texts | st.uuids() | VALUES[Ulong] | st.binary(max_size=300)
_ms = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 1 << 45)
_shared = st.one_of(
    *(VALUES[form] for form in VALUES if form in (bool, Int, Uint, int, Ubyte, Ulong, str, bytes))
)
_MARKED = ["JMSXGroupID", "qpid.subject", "x-amqp-to", "x-delivery-count", "x-amqp-0-10.x"]

messages = st.builds(
    AnnotatedMessage,
    header=st.none()
    | st.builds(
        Header,
        durable=st.booleans(),
        priority=st.none() | st.integers(0, 255),
        ttl_ms=st.none() | st.integers(0, 0xFFFFFFFF),
        delivery_count=st.integers(0, 0xFFFFFFFF),
    ),
    message_annotations=st.none()
    | st.dictionaries(
        (_symbols | _symbols.map("x-{}".format) | st.sampled_from(["x-amqp-to", "x-amqp-0-10.q"]))
        .filter(lambda name: name not in marks.ANNOTATIONS_KEPT)
        .map(Symbol),
        _shared,
        min_size=1,
        max_size=4,
    ),
    properties=st.none()
    | st.builds(
        Properties,
        message_id=st.none() | _ids,
        correlation_id=st.none() | _ids,
        user_id=st.none() | st.binary(max_size=255),
        to=st.none() | texts,
        subject=st.none() | texts | st.just("s" * 256),
        reply_to=st.none() | texts | st.sampled_from(["r" * 256, "a/b", "/", "a/", "/b/c"]),
        content_type=st.none() | _symbols | st.sampled_from(["t" * 256, "text/plain"]),
        content_encoding=st.none() | _symbols,
        absolute_expiry_time=st.none() | _ms,
        creation_time=st.none() | _ms,
        group_id=st.none() | texts,
        group_sequence=st.none() | st.integers(0, 0xFFFFFFFF),
        reply_to_group_id=st.none() | texts,
    ),
    application_properties=st.none()
    | st.dictionaries(
        texts.filter(lambda name: not name.startswith("x-")) | st.sampled_from(_MARKED),
        _shared,
        min_size=1,
        max_size=4,
    ),
)


@st.composite
def whole_messages(draw: st.DrawFn) -> AnnotatedMessage:
    message = draw(messages)
    match draw(st.sampled_from(["data", "value", "text", "sequence"])):
        case "data":
            message.data = [draw(st.binary(max_size=20))]
        case "value":
            message.value = draw(
                _shared | values.filter(lambda each: type(each) not in (dict, list))
            )
        case "text":
            message.value = draw(texts)
        case _:
            message.sequences = draw(st.lists(st.lists(values, max_size=3), min_size=1, max_size=2))
    message.footer = draw(st.none() | st.dictionaries(_symbols.map(Symbol), _shared, min_size=1))
    return message


def parts(record: Any) -> dict[str, Any]:
    return {} if record is None else attrs.asdict(record)


@settings(max_examples=400)
@given(whole_messages())
def test_a_message_of_1_0_comes_back_from_0_10_as_it_was(message: AnnotatedMessage) -> None:
    message = sections.decode_message(encode_message(message))
    try:
        content = from_message(message)
    except TranslationError as error:
        assert "too" in error.reason  # noqa: PT017  a name that is an annotation, too
        return
    again = sections.decode_message(encode_message(to_message(content)))
    assert same(again.data, message.data)
    assert same(again.value, message.value)
    assert same(again.sequences, message.sequences)
    for section in ("header", "properties"):
        told, found = parts(getattr(message, section)), parts(getattr(again, section))
        if not any(value is not None for value in told.values()):
            continue
        for name, value in told.items():
            assert found[name] == value, name
    for section in ("message_annotations", "application_properties", "footer"):
        left, right = getattr(again, section) or {}, getattr(message, section) or {}
        assert {str(key): value for key, value in left.items()} == {
            str(key): value for key, value in right.items()
        }


@given(whole_messages().map(encode_message).flatmap(lambda octets: mutated(st.just(octets))))
def test_broken_sections_are_translated_or_refused(octets: bytes) -> None:
    with contextlib.suppress(TranslationError):
        hub.translate(octets, Protocol.AMQP_1_0, Protocol.AMQP_0_10)


@given(values)
def test_any_annotation_and_any_value_is_translated_or_refused(value: Any) -> None:
    for message in (
        AnnotatedMessage(message_annotations={Symbol("x-a"): value}),
        AnnotatedMessage(value=value),
    ):
        with contextlib.suppress(TranslationError):
            down(message)


@given(
    st.dictionaries(
        st.sampled_from(sorted(marks.ANNOTATIONS_KEPT)).map(Symbol),
        st.one_of(*VALUES.values()) | tables.map(to_v1_0),
        max_size=4,
    )
)
def test_annotations_of_any_kind_under_reserved_names_do_no_harm(table: dict[Any, Any]) -> None:
    with contextlib.suppress(TranslationError):
        down(AnnotatedMessage(message_annotations=table, data=[b"x"]))


def test_what_has_no_form_in_0_10_is_refused_with_its_place_named() -> None:
    long = AnnotatedMessage(application_properties={"n" * 256: 1})
    with pytest.raises(TranslationError, match="application-properties"):
        from_message(long)
    twice = AnnotatedMessage(
        application_properties={"x-a": 1}, message_annotations={Symbol("x-a"): 2}
    )
    with pytest.raises(TranslationError, match="annotation, too"):
        from_message(twice)


def test_a_message_without_body_stays_without() -> None:
    assert down(AnnotatedMessage()).body == b""
    assert up().value is NO_VALUE
