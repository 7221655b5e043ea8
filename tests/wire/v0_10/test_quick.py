"""The quick ways give the same octets as the general ones, or give up."""

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import DecodeError, TranslationError
from router.wire.v0_10 import records as r
from router.wire.v0_10.cutting import cut
from router.wire.v0_10.from_sections import from_message
from router.wire.v0_10.message import content_layout, front_end, make_content, write_header
from router.wire.v0_10.quick import quick_from_sections, quick_to_sections
from router.wire.v0_10.to_sections import to_message
from router.wire.v0_10.types import Seconds
from router.wire.v1_0.sections import AnnotatedMessage, decode_message, encode_message
from router.wire.v1_0.types import Int, Uint
from tests.support.amqp_values import mutated
from tests.support.messages_0_10 import delivery_properties, message_properties
from tests.wire.v0_10.test_translate import whole_messages

bodies = st.binary(max_size=20) | st.just(bytes(300))


def slow_to_sections(content: bytes) -> bytes | None:
    try:
        return encode_message(to_message(content))
    except TranslationError:
        return None


def slow_from_sections(payload: bytes) -> bytes | None:
    try:
        return from_message(decode_message(payload))
    except (TranslationError, DecodeError):
        return None


@settings(max_examples=200)
@given(delivery_properties, message_properties, bodies, bodies)
def test_upward(delivery: object, message: object, body: bytes, other: bytes) -> None:
    header = write_header(delivery, message)  # type: ignore[arg-type]
    for each in (body, other):
        content = make_content(b"shop", header, each)
        assert quick_to_sections(content) in (None, slow_to_sections(content))


@settings(max_examples=200)
@given(whole_messages(), bodies)
def test_downward(message: AnnotatedMessage, body: bytes) -> None:
    for data in ([body], [body, body], message.data):
        if not (message.sequences or message.value.__class__.__name__ != "NoValue"):
            message.data = data
        payload = encode_message(message)
        assert quick_from_sections(payload) in (None, slow_from_sections(payload))


@given(st.binary(max_size=60))
def test_random_octets(octets: bytes) -> None:
    assert quick_to_sections(octets) in (None, slow_to_sections(octets))
    assert quick_from_sections(octets) in (None, slow_from_sections(octets))


@given(whole_messages().map(encode_message).flatmap(lambda octets: mutated(st.just(octets))))
def test_broken_sections(octets: bytes) -> None:
    assert quick_from_sections(octets) in (None, slow_from_sections(octets))


def test_a_usual_message_is_quick_both_ways() -> None:
    content = make_content(b"", write_header(None, None), b"x")
    sections = quick_to_sections(content)
    assert sections is not None
    assert quick_from_sections(sections) is not None


ID = uuid.UUID(int=7)
DELIVERED = r.DeliveryProperties(
    priority=4, delivery_mode=2, ttl=5000, timestamp=Seconds(1_500_000_000), routing_key="eu"
)


@pytest.mark.parametrize(
    "told",
    [
        r.MessageProperties(),
        r.MessageProperties(message_id=ID, content_length=1, correlation_id=b"c"),
        r.MessageProperties(content_type="text/plain", content_encoding="gzip", user_id=b"guest"),
        r.MessageProperties(reply_to=r.ReplyTo("shop", "eu"), app_id=b"till"),
        r.MessageProperties(application_headers={}),
        r.MessageProperties(
            application_headers={"x-amqp-message-id": "41", "qpid.subject": "eu", "n": Int(1)}
        ),
        r.MessageProperties(
            message_id=ID,
            application_headers={"a": "text", "b": 7, "c": True, "d": None, "e": 1.5, "f": Uint(9)},
        ),
    ],
)
def test_messages_with_ids_of_their_own_are_cut(told: r.MessageProperties) -> None:
    for delivery in (None, r.DeliveryProperties(routing_key="eu"), DELIVERED):
        for exchange in (b"", b"shop"):
            content = make_content(exchange, write_header(delivery, told), b"body")
            made = cut(content[: content_layout(content).body_at])
            assert made is not None
            assert made + b"\x00\x53\x75\xa0\x04body" == slow_to_sections(content)


@pytest.mark.parametrize(
    "told",
    [
        r.MessageProperties(content_type="amqp/map"),
        r.MessageProperties(correlation_id="é".encode()),
        r.MessageProperties(reply_to=r.ReplyTo("", "eu")),
        r.MessageProperties(message_id=ID, application_headers={"x-amqp-message-id": "41"}),
        r.MessageProperties(application_headers={"x-delivery-count": 3}),
        r.MessageProperties(application_headers={"x-other": 3}),
        r.MessageProperties(application_headers={"nested": {"a": 1}}),
        r.MessageProperties(application_headers={"n": "x" * 256}),
    ],
)
def test_what_is_not_plain_is_not_cut(told: r.MessageProperties) -> None:
    content = make_content(b"", write_header(DELIVERED, told), b"body")
    assert cut(content[: content_layout(content).body_at]) is None


@given(delivery_properties, message_properties)
def test_what_tells_where_a_message_goes_ends_with_its_delivery_properties(
    delivery: r.DeliveryProperties, told: r.MessageProperties
) -> None:
    alone = write_header(delivery, None)
    assert front_end(alone, b"app") == len(alone)
    whole = write_header(delivery, told)
    assert front_end(whole, None) == len(alone)
    is_sent = told.user_id in (None, b"app")
    assert front_end(whole, b"app") == (len(alone) if is_sent else 0)
    if told.user_id is not None:
        assert front_end(whole, told.user_id) == len(alone)
    assert front_end(write_header(None, told), None) == 0
    assert front_end(whole + write_header(None, told), None) == 0
    for end in range(len(whole)):
        assert front_end(whole[:end], b"app") in (0, end)
