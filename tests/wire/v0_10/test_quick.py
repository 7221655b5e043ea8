"""The quick ways give the same octets as the general ones, or give up."""

from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import DecodeError, TranslationError
from router.wire.v0_10.downward import from_message
from router.wire.v0_10.message import make_content, write_header
from router.wire.v0_10.quick import quick_downward, quick_upward
from router.wire.v0_10.upward import to_message
from router.wire.v1_0.sections import AnnotatedMessage, decode_message, encode_message
from tests.support.amqp_values import mutated
from tests.support.messages_0_10 import delivery_properties, message_properties
from tests.wire.v0_10.test_translate import whole_messages

bodies = st.binary(max_size=20) | st.just(bytes(300))


def slow_upward(content: bytes) -> bytes | None:
    try:
        return encode_message(to_message(content))
    except TranslationError:
        return None


def slow_downward(payload: bytes) -> bytes | None:
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
        assert quick_upward(content) in (None, slow_upward(content))


@settings(max_examples=200)
@given(whole_messages(), bodies)
def test_downward(message: AnnotatedMessage, body: bytes) -> None:
    for data in ([body], [body, body], message.data):
        if not (message.sequences or message.value.__class__.__name__ != "NoValue"):
            message.data = data
        payload = encode_message(message)
        assert quick_downward(payload) in (None, slow_downward(payload))


@given(st.binary(max_size=60))
def test_random_octets(octets: bytes) -> None:
    assert quick_upward(octets) in (None, slow_upward(octets))
    assert quick_downward(octets) in (None, slow_downward(octets))


@given(whole_messages().map(encode_message).flatmap(lambda octets: mutated(st.just(octets))))
def test_broken_sections(octets: bytes) -> None:
    assert quick_downward(octets) in (None, slow_downward(octets))


def test_a_usual_message_is_quick_both_ways() -> None:
    content = make_content(b"", write_header(None, None), b"x")
    sections = quick_upward(content)
    assert sections is not None
    assert quick_downward(sections) is not None
