"""Messages between AMQP/Fast and AMQP 1.0 (docs/translation-fast.md), both ways and back."""

import contextlib
import uuid
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import MisuseError, TranslationError
from router.model.capabilities import Protocol
from router.wire import hub
from router.wire.fast import marks
from router.wire.fast.from_sections import from_message
from router.wire.fast.message import Head, decode_head, encode_head, layout_of, payload_prefix
from router.wire.fast.to_sections import to_message
from router.wire.fast.types import Seconds, TableDecimal
from router.wire.fast.values import decimal64_of
from router.wire.v1_0 import sections
from router.wire.v1_0.sections import AnnotatedMessage, Header, encode_message
from router.wire.v1_0.sections import Properties as Sections
from router.wire.v1_0.types import Char, Float, Int, Symbol, Timestamp, Ubyte, Ulong
from tests.support.amqp_values import leaves, same, small_values

ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")

shorts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
table_values = st.one_of(
    st.binary(max_size=12),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(0, (1 << 32) - 1).map(Seconds),
    st.builds(TableDecimal, st.integers(0, 255), st.integers(-(1 << 31) + 1, (1 << 31) - 1)),
)
names = st.one_of(shorts, st.sampled_from(sorted(marks.RESERVED - {marks.SECTIONS})))
heads = st.builds(
    Head,
    persistent=st.booleans(),
    priority=st.integers(0, 255),
    expiration=st.integers(0, (1 << 32) - 1),
    mime_type=shorts,
    encoding=shorts,
    identifier=shorts,
    headers=st.dictionaries(names, table_values, max_size=5),
)


def payload_of(
    head: Head, body: bytes = b"", *, name: str = "", redelivered: bool = False
) -> bytes:
    return payload_prefix(name, redelivered=redelivered) + encode_head(head, len(body)) + body


def up(head: Head, body: bytes = b"", **beside: Any) -> AnnotatedMessage:
    """Translates to_sections, by way of the octets of AMQP 1.0."""
    message = to_message(payload_of(head, body, **beside))
    return sections.decode_message(encode_message(message))


def down(message: AnnotatedMessage) -> tuple[Head, bytes]:
    """Translates from_sections; gives head and body."""
    octets = from_message(sections.decode_message(encode_message(message)))
    layout = layout_of(octets)
    return decode_head(octets, layout.head_start, layout.body_start)[0], octets[layout.body_start :]


def there_and_back(message: AnnotatedMessage) -> AnnotatedMessage:
    return sections.decode_message(
        encode_message(to_message(from_message(sections.decode_message(encode_message(message)))))
    )


# --- from AMQP/Fast and back ----------------------------------------------------------------------


@settings(max_examples=400)
@given(heads, st.binary(max_size=20), shorts, st.booleans())
def test_a_message_of_fast_comes_back_from_1_0_as_it_was(
    head: Head, body: bytes, name: str, redelivered: bool
) -> None:
    payload = payload_of(head, body, name=name, redelivered=redelivered)
    again = from_message(sections.decode_message(encode_message(to_message(payload))))
    layout = layout_of(again)
    found, _ = decode_head(again, layout.head_start, layout.body_start)
    assert attrs.asdict(found, recurse=False) == attrs.asdict(head, recurse=False)
    kinds = {name: type(value) for name, value in found.headers.items()}
    assert kinds == {name: type(value) for name, value in head.headers.items()}
    assert again[layout.body_start :] == body
    assert again[: layout.head_start] == payload[: layout.head_start]


def test_each_field_of_a_head_has_its_home() -> None:
    told = up(
        Head(
            persistent=True,
            priority=7,
            expiration=100,
            mime_type="text/plain",
            encoding="gzip",
            identifier="id",
            headers={"a": b"text", "b": b"\xff", "c": 5, "d": Seconds(9)},
        ),
        b"body",
        name="orders",
        redelivered=True,
    )
    assert told.header == Header(durable=True, priority=7, delivery_count=1)
    assert told.properties == Sections(
        message_id="id",
        content_type="text/plain",
        content_encoding="gzip",
        absolute_expiry_time=100_000,
    )
    assert told.application_properties == {
        "a": "text",
        "b": b"\xff",
        "c": Int(5),
        "d": Timestamp(9000),
    }
    assert told.message_annotations == {"x-fast-destination": "orders"}
    assert told.data == [b"body"]


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"\0",
        b"\0\5abc",
        b"\0\0" + bytes(9),
        b"\0\0" + encode_head(Head(), 5) + b"four",
        b"\0\0" + encode_head(Head(mime_type="xy"), 0).replace(b"xy", b"\xff\xfe"),
        b"\0\1\xff" + encode_head(Head(), 0),
    ],
)
def test_a_broken_payload_has_no_translation(octets: bytes) -> None:
    with pytest.raises(TranslationError):
        hub.translate(octets, Protocol.AMQP_FAST, Protocol.AMQP_1_0)


# --- from AMQP 1.0 and back -----------------------------------------------------------------------

ids = st.one_of(
    st.text(max_size=8),
    st.binary(max_size=8),
    st.uuids(),
    st.integers(0, (1 << 64) - 1).map(Ulong),
)
symbols = st.text(st.characters(max_codepoint=127), max_size=8)
millis = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 1 << 33).map(lambda each: each * 1000)
)
properties = st.builds(
    Sections,
    message_id=st.none() | ids,
    user_id=st.none() | st.binary(max_size=8),
    to=st.none() | st.text(max_size=8),
    subject=st.none() | st.text(max_size=8),
    reply_to=st.none() | st.text(max_size=8),
    correlation_id=st.none() | ids,
    content_type=st.none() | symbols,
    content_encoding=st.none() | symbols,
    absolute_expiry_time=st.none() | millis,
    creation_time=st.none() | millis,
    group_id=st.none() | st.text(max_size=8),
    group_sequence=st.none() | st.integers(0, (1 << 32) - 1),
    reply_to_group_id=st.none() | st.text(max_size=8),
)
headers = st.builds(
    Header,
    durable=st.booleans(),
    priority=st.integers(0, 255),
    ttl_ms=st.none() | st.integers(0, (1 << 31) - 1),
    delivery_count=st.integers(0, (1 << 31) - 1),
)
application_names = st.text(max_size=8) | st.sampled_from(sorted(marks.RESERVED))
annotations = st.dictionaries(symbols.map(Symbol), small_values, max_size=3)
bodies = st.one_of(
    st.binary(max_size=9).map(lambda body: {"data": [body]}),
    st.text(max_size=9).map(lambda text: {"value": text}),
    st.binary(max_size=9).map(lambda body: {"value": body}),
    small_values.map(lambda value: {"value": value}),
    st.lists(small_values, max_size=3).map(lambda items: {"sequences": [items]}),
)


@settings(max_examples=400)
@given(
    headers,
    properties,
    st.dictionaries(application_names, leaves, max_size=4),
    st.tuples(annotations, annotations),
    bodies,
)
def test_a_message_of_1_0_comes_back_from_fast_as_it_was(
    header: Header,
    told: Sections,
    application_properties: dict[str, Any],
    beside: tuple[dict[Symbol, Any], dict[Symbol, Any]],
    body: dict[str, Any],
) -> None:
    message_annotations, footer = beside
    message = AnnotatedMessage(
        header=header,
        properties=told,
        application_properties=application_properties,
        message_annotations=message_annotations,
        footer=footer,
        **body,
    )
    again = there_and_back(message)
    assert again.header == header
    assert same(_fields(again.properties or Sections()), _fields(told))
    assert same(_items(again.application_properties), _items(application_properties))
    assert same(_items(again.message_annotations), _items(message_annotations))
    assert same(_items(again.footer), _items(footer))
    assert same([again.data, again.sequences], [message.data, message.sequences])
    assert same([again.value], [message.value])


def _fields(record: Sections) -> list[Any]:
    return list(attrs.asdict(record, recurse=False).values())


def _items(section: Any) -> list[Any]:
    return sorted((section or {}).items(), key=lambda item: str(item[0]))


def test_what_has_no_exact_form_is_said_nearly_as_well() -> None:
    """For whoever reads the header: a table has four kinds of values."""
    head, _ = down(
        AnnotatedMessage(
            application_properties={
                "flag": True,
                "small": Ubyte(5),
                "large": Ulong(1 << 63),
                "real": 2.5,
                "name": Symbol("sym"),
                "id": ID,
                "when": Timestamp(1500),
                "price": decimal64_of(TableDecimal(2, 399)),
                "letter": Char("x"),
                "nothing": None,
                "single": Float(0.5),
            },
            data=[b""],
        )
    )
    found = {name: value for name, value in head.headers.items() if name != marks.SECTIONS}
    assert found == {
        "flag": b"true",
        "small": 5,
        "large": b"9223372036854775808",
        "real": b"2.5",
        "name": b"sym",
        "id": ID.urn.encode(),
        "when": Seconds(1),
        "price": TableDecimal(2, 399),
        "letter": b"x",
        "single": b"0.5",
    }


def test_properties_have_their_homes() -> None:
    head, body = down(
        AnnotatedMessage(
            header=Header(durable=True, priority=9, ttl_ms=5000, delivery_count=3),
            properties=Sections(
                message_id=ID,
                user_id=b"user",
                to="to",
                subject="subject",
                reply_to="reply-to",
                correlation_id="correlation",
                content_type="text/plain",
                content_encoding="gzip",
                absolute_expiry_time=5000,
                creation_time=7000,
                group_id="group",
                group_sequence=3,
                reply_to_group_id="other",
            ),
            data=[b"one", b"two"],
        )
    )
    assert (head.persistent, head.priority, head.expiration) == (True, 9, 5)
    assert (head.mime_type, head.encoding, head.identifier) == ("text/plain", "gzip", ID.urn)
    assert {name: value for name, value in head.headers.items() if name != marks.SECTIONS} == {
        "x-amqp-ttl": 5000,
        "x-amqp-delivery-count": 3,
        "x-amqp-user-id": b"user",
        "x-amqp-to": b"to",
        "x-amqp-subject": b"subject",
        "x-amqp-reply-to": b"reply-to",
        "x-amqp-correlation-id": b"correlation",
        "x-amqp-creation-time": Seconds(7),
        "x-amqp-group-id": b"group",
        "x-amqp-group-sequence": 3,
        "x-amqp-reply-to-group-id": b"other",
    }
    assert body == b"onetwo"


@pytest.mark.parametrize(
    ("expires", "expiration"),
    [(1, 1), (1000, 1), (1001, 2), (0, 1), (-5, 1), ((1 << 32) * 1000, 0)],
)
def test_a_time_to_expire_is_never_made_earlier_or_endless(expires: int, expiration: int) -> None:
    head, _ = down(AnnotatedMessage(properties=Sections(absolute_expiry_time=expires), data=[b""]))
    assert head.expiration == expiration


def test_a_string_that_says_no_type_is_plain_text() -> None:
    head, body = down(AnnotatedMessage(value="grüezi"))
    assert (head.mime_type, body) == ("text/plain", "grüezi".encode())


@pytest.mark.parametrize(
    "message",
    [
        AnnotatedMessage(properties=Sections(subject="x" * 70000), data=[b""]),
        AnnotatedMessage(application_properties={"a": "x" * 70000}, data=[b""]),
        AnnotatedMessage(message_annotations={Symbol("x-a"): "x" * 70000}, data=[b""]),
    ],
)
def test_what_does_not_fit_a_table_is_refused_and_named(message: AnnotatedMessage) -> None:
    with pytest.raises(TranslationError) as raised:
        from_message(message)
    assert raised.value.field == "headers"


# --- quick ----------------------------------------------------------------------------------------


@settings(max_examples=300)
@given(heads, st.binary(max_size=300), shorts, st.booleans())
def test_the_quick_way_up_gives_the_same_octets(
    head: Head, body: bytes, name: str, redelivered: bool
) -> None:
    payload = payload_of(head, body, name=name, redelivered=redelivered)
    expected = encode_message(to_message(payload))
    for _ in range(2):
        assert hub.translate(payload, Protocol.AMQP_FAST, Protocol.AMQP_1_0) == expected


@given(heads, st.lists(st.sampled_from(["", "x", "7" * 9, "é", "y" * 255]) | shorts, min_size=2))
def test_messages_that_differ_in_their_identifiers_alone_keep_them(
    head: Head, identifiers: list[str]
) -> None:
    for identifier in identifiers:
        payload = payload_of(attrs.evolve(head, identifier=identifier), b"body")
        expected = encode_message(to_message(payload))
        assert hub.translate(payload, Protocol.AMQP_FAST, Protocol.AMQP_1_0) == expected


@settings(max_examples=300)
@given(headers, properties, st.dictionaries(application_names, leaves, max_size=3), bodies)
def test_the_quick_way_down_gives_the_same_octets(
    header: Header, told: Sections, application_properties: dict[str, Any], body: dict[str, Any]
) -> None:
    octets = encode_message(
        AnnotatedMessage(
            header=header,
            properties=told,
            application_properties=application_properties or None,
            **body,
        )
    )
    expected = from_message(sections.decode_message(octets))
    for _ in range(2):
        assert hub.translate(octets, Protocol.AMQP_1_0, Protocol.AMQP_FAST) == expected


@given(st.binary(max_size=80))
def test_any_octets_translate_or_are_refused(octets: bytes) -> None:
    for source, target in (
        (Protocol.AMQP_FAST, Protocol.AMQP_1_0),
        (Protocol.AMQP_1_0, Protocol.AMQP_FAST),
        (Protocol.AMQP_FAST, Protocol.AMQP_0_9_1),
    ):
        with contextlib.suppress(TranslationError):
            hub.translate(octets, source, target)


@given(heads, st.binary(max_size=9))
def test_messages_pass_between_fast_and_0_9_1(head: Head, body: bytes) -> None:
    payload = payload_of(head, body)
    with contextlib.suppress(TranslationError, MisuseError):
        basic = hub.translate(payload, Protocol.AMQP_FAST, Protocol.AMQP_0_9_1)
        again = hub.translate(basic, Protocol.AMQP_0_9_1, Protocol.AMQP_FAST)
        layout = layout_of(again)
        assert again[layout.body_start :] == body
