import contextlib
import decimal
import math
import uuid
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import TranslationError
from router.model.capabilities import Protocol
from router.model.text import decode_text
from router.wire.hub import to_sections
from router.wire.v0_9_1.content import Properties, content_layout, content_route, properties_of
from router.wire.v0_9_1.from_sections import from_message
from router.wire.v0_9_1.marks import RESERVED_ANNOTATIONS
from router.wire.v0_9_1.to_sections import to_message
from router.wire.v0_9_1.types import Seconds, TableDecimal
from router.wire.v1_0 import sections
from router.wire.v1_0.sections import AnnotatedMessage, Header, encode_message
from router.wire.v1_0.sections import Properties as Sections
from router.wire.v1_0.types import (
    Array,
    Char,
    Decimal32,
    Decimal64,
    Described,
    Float,
    Int,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
)
from tests.support.amqp_values import LEAVES as VALUES
from tests.support.amqp_values import mutated, same, values
from tests.support.basic_messages import content, names, properties, table_values, texts

ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def up(made: Properties, body: bytes = b"", **route: Any) -> AnnotatedMessage:
    """Translates to_sections, by way of the octets of AMQP 1.0."""
    message = to_message(content(made, body, **route))
    return sections.decode_message(encode_message(message))


def down(message: AnnotatedMessage) -> tuple[Properties, bytes]:
    """Translates from_sections; gives properties and body."""
    octets = from_message(to_sections(Protocol.AMQP_1_0, encode_message(message)))
    layout = content_layout(octets)
    return properties_of(octets, layout), octets[layout.body_start :]


def parts(record: Any) -> dict[str, Any]:
    return attrs.asdict(record, recurse=False) if record is not None else {}


def agree(left: Properties, right: Properties) -> bool:
    """Equal in every field, and an empty header table as good as none."""
    ours, theirs = parts(left), parts(right)
    mine, other = ours.pop("headers") or {}, theirs.pop("headers") or {}
    return (
        same(list(ours.values()), list(theirs.values()))
        and mine.keys() == other.keys()
        and all(same(mine[name], other[name]) for name in mine)
    )


# --- from 0-9-1 and back --------------------------------------------------------------------------


def returns(value: Any) -> Any:
    """What a header's value comes back as: all but two forms as they were."""
    if isinstance(value, str) and not is_text(value):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, Seconds) and value > ((1 << 63) - 1) // 1000:
        return int(value) if value < 1 << 63 else str(int(value))
    if isinstance(value, list):
        return [returns(item) for item in value]
    if isinstance(value, dict):
        return {name: returns(item) for name, item in value.items()}
    return value


def is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@settings(max_examples=400)
@given(
    properties(),
    st.binary(max_size=20),
    st.binary(max_size=9),
    st.binary(max_size=9),
    st.booleans(),
)
def test_a_message_of_0_9_1_comes_back_from_1_0_as_it_was(
    made: Properties, body: bytes, exchange: bytes, routing_key: bytes, redelivered: bool
) -> None:
    octets = content(
        made, body, exchange=exchange, routing_key=routing_key, redelivered=redelivered
    )
    again = from_message(to_sections(Protocol.AMQP_1_0, encode_message(to_message(octets))))
    layout = content_layout(again)
    expected = attrs.evolve(made, headers=made.headers and returns(made.headers))
    assert agree(properties_of(again, layout), expected)
    assert again[layout.body_start :] == body
    assert content_route(again) == (exchange, routing_key)
    if redelivered:
        assert layout.redelivered


LOOK_ALIKES = [
    {"x-delivery-count": 3},
    {"x-delivery-count": Uint(3)},
    {"x-delivery-count": 0},
    {"x-delivery-count": -1},
    {"x-delivery-count": "three"},
    {"JMSXGroupSeq": Int(3)},
    {"JMSXGroupSeq": Uint(3)},
    {"JMSXGroupSeq": -3},
    {"JMSXGroupID": 3},
    {"x-amqp-to": "there"},
    {"x-amqp-to": b"there"},
    {"x-amqp-subject": "s"},
    {"x-amqp-subject": "amqp-1.0"},
    {"x-amqp-body": "string"},
    {"x-amqp-body": "binary"},
    {"x-amqp-body": "string, text/plain"},
    {"x-amqp-body": "poem"},
    {"x-amqp-body": ["string"]},
    {"x-amqp-footer": {"a": 1}},
    {"x-amqp-footer": {}},
    {"x-amqp-footer": {"é": 1}},
    {"x-amqp-annotations": {"a": 1}},
    {"x-amqp-annotations": {"x-a": 1}},
    {"x-amqp-annotations": {"x-exchange": 1}},
    {"x-amqp-application-properties": {"JMSXGroupID": "g"}},
    {"x-amqp-application-properties": {"other": "g"}},
    {"x-amqp-application-properties": {}},
    {"x-amqp-creation-time": 5},
    {"x-amqp-creation-time": -5},
    {"x-amqp-absolute-expiry-time": 5},
    {"x-amqp-absolute-expiry-time": Int(5)},
    {"x-amqp-user-id": "someone"},
    {"x-amqp-content-type": "a/b"},
    {"x-message-id": b"id"},
    {"x-message-id": "id"},
    {"x-message-id-type": "ulong"},
    {"x-correlation-id-type": "ulong"},
    {"x-basic-type": "t"},
    {"x-basic-headers": {"a": 1}},
    {"x-basic-unheard-of": 1},
    {"x-exchange": "e"},
    {"x-routing-key": 5},
    {"x-amqp-0-10.app-id": "a"},
]


@pytest.mark.parametrize("headers", LOOK_ALIKES)
@pytest.mark.parametrize(
    "others",
    [
        {},
        {"message_id": "7", "correlation_id": "7"},
        {"type": "t", "content_type": "text/plain", "timestamp": Seconds(0)},
        {"app_id": "b", "type": "amqp-1.0"},
    ],
)
def test_headers_that_look_like_marks_come_back_as_they_were(
    headers: dict[str, Any], others: dict[str, Any]
) -> None:
    made = Properties(headers=headers, **others)
    again, body = down(up(made, b"body"))
    assert agree(again, made)
    assert body == b"body"


def test_each_property_has_its_home() -> None:
    message = up(
        Properties(
            content_type="text/plain",
            content_encoding="gzip",
            headers={"a": Int(1), "x-b": "c"},
            delivery_mode=2,
            priority=5,
            correlation_id="corr",
            reply_to="answers",
            expiration="60000",
            message_id="id",
            timestamp=Seconds(1_700_000_000),
            type="order",
            user_id="guest",
            app_id="shop",
        ),
        b"body",
        exchange=b"ex",
        routing_key=b"key",
    )
    assert message.header == Header(durable=True, priority=5, ttl_ms=60000)
    assert message.properties == Sections(
        message_id="id",
        user_id=b"guest",
        subject="order",
        reply_to="answers",
        correlation_id="corr",
        content_type="text/plain",
        content_encoding="gzip",
        creation_time=1_700_000_000_000,
    )
    assert message.application_properties == {"a": Int(1), "x-amqp-0-10.app-id": "shop"}
    assert message.message_annotations == {
        Symbol("x-exchange"): "ex",
        Symbol("x-routing-key"): "key",
        Symbol("x-b"): "c",
    }
    assert message.data == [b"body"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Seconds(2), Timestamp(2000)),
        (Seconds(1 << 63), Ulong(1 << 63)),
        (TableDecimal(2, -123), Decimal64((1 << 63 | 396 << 53 | 123).to_bytes(8, "big"))),
        (decode_text(b"\xff"), b"\xff"),
        ("é", "é"),
        (Float("nan"), None),
        (None, None),
    ],
)
def test_header_values_become_the_nearest_of_1_0(value: Any, expected: Any) -> None:
    message = up(Properties(headers={"h": value}))
    assert isinstance(message.application_properties, dict)
    found = message.application_properties["h"]
    if isinstance(value, float):
        assert type(found) is Float
        assert math.isnan(found)
    else:
        assert same(found, expected)


def test_what_application_properties_cannot_hold_travels_in_one_annotation() -> None:
    headers = {"list": [1], "table": {"a": 1}, decode_text(b"\xff"): 1, "x-é": 2}
    message = up(Properties(headers=headers))
    assert message.application_properties is None
    assert message.message_annotations == {
        Symbol("x-basic-headers"): {"list": [1], "table": {"a": 1}, b"\xff": 1, "x-é": 2}
    }


def test_odd_properties_travel_as_annotations() -> None:
    odd = decode_text(b"\xff")
    made = Properties(
        content_type="é",
        delivery_mode=9,
        expiration="soon",
        timestamp=Seconds(1 << 63),
        type=odd,
        cluster_id="c",
        message_id=odd,
    )
    assert up(made).message_annotations == {
        Symbol("x-basic-content-type"): "é",
        Symbol("x-basic-delivery-mode"): Ubyte(9),
        Symbol("x-basic-expiration"): "soon",
        Symbol("x-basic-timestamp"): Ulong(1 << 63),
        Symbol("x-basic-type"): b"\xff",
        Symbol("x-basic-cluster-id"): "c",
        Symbol("x-basic-message-id"): b"\xff",
    }


@pytest.mark.parametrize("text", ["", "None", "-1", "007", "99999999999", "12.5"])
def test_an_expiration_that_is_not_in_our_form_comes_back_as_it_was(text: str) -> None:
    made = Properties(expiration=text)
    assert agree(down(up(made))[0], made)


def test_a_ttl_that_was_counted_down_wins_over_the_text_it_was_read_from() -> None:
    message = up(Properties(expiration="007"))
    assert message.header is not None
    assert message.header.ttl_ms == 7
    assert down(message)[0].expiration == "007"
    message.header = Header(ttl_ms=5)
    assert down(message)[0].expiration == "5"


def test_redelivered_counts_as_one_attempt_and_the_counted_header_as_what_it_says() -> None:
    redelivered = up(Properties(), redelivered=True)
    assert redelivered.header == Header(delivery_count=1)
    counted = up(Properties(headers={"x-delivery-count": 4}), redelivered=True)
    assert counted.header == Header(delivery_count=4)
    assert counted.application_properties is None


def test_a_body_of_encoded_sections_becomes_those_sections() -> None:
    body = encode_message(AnnotatedMessage(value={"a": [1, 2]}))
    message = up(Properties(type="amqp-1.0"), body)
    assert message.value == {"a": [1, 2]}
    assert message.data == []
    assert message.properties is None


@pytest.mark.parametrize("body", [b"", b"text", b"\x00\x53\x75\xa0\x01a", b"\x00\x53\x70\x45"])
def test_a_body_that_only_claims_to_be_sections_is_data(body: bytes) -> None:
    message = up(Properties(type="amqp-1.0"), body)
    assert message.data == [body]
    again, same_body = down(message)
    assert again.type == "amqp-1.0"
    assert same_body == body


def test_a_content_that_breaks_its_format_is_refused_with_the_property_named() -> None:
    header = bytes.fromhex("003c 0000 0000000000000000 2000 00000003 0161 5a")
    with pytest.raises(TranslationError, match="headers: no field table type"):
        to_message(b"\x00\x00\x00" + header)


@given(st.binary(max_size=60))
def test_random_octets_are_translated_or_refused(octets: bytes) -> None:
    with contextlib.suppress(TranslationError):
        to_message(octets)


@given(
    st.builds(content, properties(), st.binary(max_size=9)).flatmap(lambda o: mutated(st.just(o)))
)
def test_broken_contents_are_translated_or_refused(octets: bytes) -> None:
    with contextlib.suppress(TranslationError):
        encode_message(to_message(octets))


# --- from 1.0 and back ----------------------------------------------------------------------------

_symbols = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=12)
_ids = texts | st.uuids() | VALUES[Ulong] | st.binary(max_size=300)
_ms = st.integers(-(1 << 63), (1 << 63) - 1)
_shared = st.one_of(
    *(VALUES[form] for form in VALUES if form in (bool, Int, Uint, int, Ubyte, str, bytes))
)

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
        # the router's own names mean what the router writes there, and are no others' to use
        (_symbols | _symbols.map("x-{}".format) | st.sampled_from(["x-amqp-to", "x-basic-q"]))
        .filter(lambda name: name not in RESERVED_ANNOTATIONS)
        .map(Symbol),
        _shared,
        min_size=1,
        max_size=4,
    ),
    properties=st.none()
    | st.builds(
        Sections,
        message_id=st.none() | _ids,
        correlation_id=st.none() | _ids,
        user_id=st.none() | st.binary(max_size=255),
        to=st.none() | texts,
        subject=st.none() | texts | st.just("amqp-1.0") | st.just("s" * 256),
        reply_to=st.none() | texts | st.just("r" * 256),
        content_type=st.none() | _symbols | st.just("t" * 256) | st.just("text/plain"),
        content_encoding=st.none() | _symbols,
        absolute_expiry_time=st.none() | _ms,
        creation_time=st.none() | _ms,
        group_id=st.none() | texts,
        group_sequence=st.none() | st.integers(0, 0xFFFFFFFF),
        reply_to_group_id=st.none() | texts,
    ),
    application_properties=st.none()
    | st.dictionaries(
        texts.filter(lambda name: not name.startswith("x-"))
        | st.sampled_from(["JMSXGroupID", "JMSXGroupSeq", "x-amqp-to", "x-delivery-count"]),
        _shared,
        min_size=1,
        max_size=4,
    ),
)


@st.composite
def whole_messages(draw: st.DrawFn) -> AnnotatedMessage:
    message = draw(messages)
    match draw(st.sampled_from(["data", "value", "sequence"])):
        case "data":
            message.data = [draw(st.binary(max_size=20))]
        case "value":
            message.value = draw(values)
        case _:
            message.sequences = draw(st.lists(st.lists(values, max_size=3), min_size=1, max_size=2))
    message.footer = draw(st.none() | st.dictionaries(_symbols.map(Symbol), _shared, min_size=1))
    return message


def there_and_back(message: AnnotatedMessage) -> AnnotatedMessage:
    octets = from_message(message)
    return sections.decode_message(encode_message(to_message(octets)))


@settings(max_examples=400)
@given(whole_messages())
def test_a_message_of_1_0_comes_back_from_0_9_1_as_it_was(message: AnnotatedMessage) -> None:
    message = sections.decode_message(encode_message(message))
    again = there_and_back(message)
    assert same(again.data, message.data)
    assert same(again.value, message.value)
    assert same(again.sequences, message.sequences)
    for section in ("header", "properties"):
        told, found = parts(getattr(message, section)), parts(getattr(again, section))
        if not any(value is not None for value in told.values()):
            continue
        for name, value in told.items():
            if name in ("message_id", "correlation_id") and isinstance(value, str):
                assert str(getattr(found[name], "urn", found[name])) == value
            else:
                assert found[name] == value, name
    for section in ("message_annotations", "application_properties", "footer"):
        left, right = getattr(again, section) or {}, getattr(message, section) or {}
        assert {str(key): value for key, value in left.items()} == {
            str(key): value for key, value in right.items()
        }


def test_application_properties_that_look_like_marks_are_carried_where_they_are_none() -> None:
    told = {"JMSXGroupID": "g", "x-delivery-count": 7, "x-amqp-0-10.app-id": 5, "plain": 1}
    message = AnnotatedMessage(application_properties=told, data=[b""])
    made, _ = down(message)
    assert made.headers == {
        "plain": 1,
        "x-amqp-application-properties": {
            "JMSXGroupID": "g",
            "x-delivery-count": 7,
            "x-amqp-0-10.app-id": 5,
        },
    }
    assert there_and_back(message).application_properties == told


def test_each_field_of_1_0_has_its_home() -> None:
    made, body = down(
        AnnotatedMessage(
            header=Header(durable=True, priority=5, ttl_ms=60000, delivery_count=3),
            delivery_annotations={Symbol("hop"): 1},
            message_annotations={Symbol("x-b"): Symbol("c"), Symbol("jms"): 1},
            properties=Sections(
                message_id=Ulong(7),
                user_id=b"guest",
                to="there",
                subject="order",
                reply_to="answers",
                correlation_id=ID,
                content_type="text/plain",
                content_encoding="gzip",
                absolute_expiry_time=5,
                creation_time=1_700_000_000_001,
                group_id="g",
                group_sequence=2,
                reply_to_group_id="h",
            ),
            application_properties={"a": Ulong(1 << 63), "x-amqp-0-10.app-id": "shop"},
            data=[b"one", b"two"],
            footer={Symbol("sum"): b"1"},
        )
    )
    assert body == b"onetwo"
    assert made == Properties(
        content_type="text/plain",
        content_encoding="gzip",
        delivery_mode=2,
        priority=5,
        correlation_id=ID.urn,
        reply_to="answers",
        expiration="60000",
        message_id="7",
        timestamp=Seconds(1_700_000_000),
        type="order",
        user_id="guest",
        app_id="shop",
        headers={
            "a": str(1 << 63),
            "x-b": "c",
            "x-message-id-type": "ulong",
            "x-delivery-count": 3,
            "x-amqp-to": "there",
            "x-amqp-absolute-expiry-time": 5,
            "x-amqp-creation-time": 1_700_000_000_001,
            "JMSXGroupID": "g",
            "JMSXGroupSeq": Uint(2),
            "x-amqp-reply-to-group-id": "h",
            "x-amqp-footer": {"sum": b"1"},
            "x-amqp-annotations": {"jms": 1},
        },
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Ulong(5), 5),
        (Ulong((1 << 63) - 1), (1 << 63) - 1),
        (Ulong(1 << 63), str(1 << 63)),
        (Timestamp(1999), Seconds(1)),
        (Timestamp(-1), -1),
        (Char("é"), "é"),
        (Symbol("s"), "s"),
        (ID, ID.urn),
        (Array(Symbol, (Symbol("s"),)), ["s"]),
        (Array(int, (1,), (Symbol("d"),)), {"descriptors": ["d"], "items": [1]}),
        (Described(Symbol("d"), Char("v")), {"descriptor": "d", "value": "v"}),
        ({Ulong(1): 2, Symbol("s"): 3, b"\xff": 4}, {"1": 2, "s": 3, decode_text(b"\xff"): 4}),
        ([1, Ulong(2)], [1, 2]),
    ],
)
def test_values_that_only_1_0_has_become_the_nearest(value: Any, expected: Any) -> None:
    made, _ = down(AnnotatedMessage(message_annotations={Symbol("x-v"): value}))
    assert made.headers is not None
    assert same(made.headers["x-v"], expected)


def binary_decimal(sign: int, coefficient: int, exponent: int, width: int) -> bytes:
    bias, bits = {4: (101, 8), 8: (398, 10), 16: (6176, 14)}[width]
    total = width * 8
    return (sign << total - 1 | (exponent + bias) << total - 1 - bits | coefficient).to_bytes(
        width, "big"
    )


@pytest.mark.parametrize(
    ("octets", "expected"),
    [
        (Decimal32(binary_decimal(0, 123, -2, 4)), TableDecimal(2, 123)),
        (Decimal64(binary_decimal(1, 123, 0, 8)), TableDecimal(0, -123)),
        (Decimal64(binary_decimal(0, 5_000_000_000, 0, 8)), "5000000000"),
        (Decimal64(binary_decimal(0, 1, 3, 8)), "1E+3"),
        (Decimal64(binary_decimal(1, 0, 0, 8)), "-0"),
        (Decimal32(b"\x78\x00\x00\x00"), "Infinity"),
        (Decimal32(b"\xf8\x00\x00\x00"), "-Infinity"),
        (Decimal32(b"\x7c\x00\x00\x00"), "NaN"),
        (Decimal32(b"\x6c\xa0\x00\x00"), TableDecimal(0, 8388608)),
        (Decimal32(b"\x77\xff\xff\xff"), "0E+90"),
    ],
)
def test_decimals_become_decimals_where_they_fit_and_text_elsewhere(
    octets: bytes, expected: Any
) -> None:
    made, _ = down(AnnotatedMessage(application_properties={"d": octets}))
    assert made.headers is not None
    found = made.headers["d"]
    if isinstance(expected, str) and expected not in ("NaN",):
        assert decimal.Decimal(found) == decimal.Decimal(expected)
        assert type(found) is str
    else:
        assert found == expected


@given(table_values)
def test_a_tables_decimal_is_exact_in_1_0(value: Any) -> None:
    made = Properties(headers={"x-v": value})
    again, _ = down(up(made))
    assert again.headers is not None
    assert same(again.headers["x-v"], returns(value))


@pytest.mark.parametrize(
    ("value", "content_type", "mark"),
    [
        ("text", None, "string, text/plain"),
        ("text", "text/html", "string"),
        ("text", "text/plain", "string"),
        (b"\xff", None, "binary"),
    ],
)
def test_values_that_are_strings_and_binaries_are_bodies_people_can_read(
    value: Any, content_type: str | None, mark: str
) -> None:
    told = Sections(content_type=content_type)
    message = AnnotatedMessage(properties=told, value=value)
    made, body = down(message)
    assert body == (value.encode() if isinstance(value, str) else value)
    assert made.headers == {"x-amqp-body": mark}
    again = there_and_back(message)
    assert again.value == value
    assert (again.properties or Sections()).content_type == content_type


def test_a_body_that_is_structured_is_encoded_sections_of_type_amqp_1_0() -> None:
    made, body = down(AnnotatedMessage(value={"a": 1}, properties=Sections(subject="s")))
    assert made.type == "amqp-1.0"
    assert made.headers == {"x-amqp-subject": "s"}
    assert sections.decode_message(body).value == {"a": 1}


def test_a_user_id_too_long_for_a_property_is_a_header_that_nobody_believes() -> None:
    long = b"u" * 256
    made, _ = down(AnnotatedMessage(properties=Sections(user_id=long), data=[b""]))
    assert made.user_id is None
    assert made.headers == {"x-amqp-user-id": long}
    assert up(made).properties is None


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (AnnotatedMessage(application_properties={"k" * 256: 1}), "application-properties"),
        (AnnotatedMessage(message_annotations={Symbol("k" * 256): 1}), "message-annotations"),
        (
            AnnotatedMessage(message_annotations={Symbol("x-m"): {"k" * 256: 1}}),
            "message-annotations[x-m]",
        ),
        (
            AnnotatedMessage(message_annotations={Symbol("x-m"): {"1": 1, Ulong(1): 2}}),
            "message-annotations[x-m]",
        ),
    ],
)
def test_what_has_no_form_in_0_9_1_is_refused_with_its_place_named(
    message: AnnotatedMessage, field: str
) -> None:
    with pytest.raises(TranslationError) as caught:
        from_message(message)
    assert caught.value.field == field


def test_values_nested_too_deep_are_refused_with_their_place_named() -> None:
    value: Any = 1
    for _ in range(60):
        value = [value]
    with pytest.raises(TranslationError, match=r"x-v.*nested"):
        from_message(AnnotatedMessage(message_annotations={Symbol("x-v"): value}))


def test_the_deepest_tables_survive_the_way_there_and_back() -> None:
    value: Any = 1
    for _ in range(54):
        value = [value]
    for name in ("v", "x-v"):
        made = Properties(headers={name: value})
        assert agree(down(up(made))[0], made)


@given(values)
def test_any_annotation_is_translated_or_refused(value: Any) -> None:
    message = AnnotatedMessage(message_annotations={Symbol("x-v"): value})
    with contextlib.suppress(TranslationError):
        from_message(sections.decode_message(encode_message(message)))


@given(whole_messages().map(encode_message).flatmap(lambda octets: mutated(st.just(octets))))
def test_broken_sections_are_translated_or_refused(octets: bytes) -> None:
    with contextlib.suppress(TranslationError):
        from_message(to_sections(Protocol.AMQP_1_0, octets))


@given(st.dictionaries(names, table_values, max_size=3))
def test_annotations_of_any_kind_under_reserved_names_do_no_harm(table: dict[str, Any]) -> None:
    for name in ("x-basic-headers", "x-basic-type", "x-basic-delivery-mode", "x-exchange"):
        for value in (1, "é", b"\xff" * 300, None, [1], -1, Ulong(1 << 63)):
            message = AnnotatedMessage(message_annotations={Symbol(name): value})
            down(message)
