import contextlib

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import DecodeError, MisuseError
from router.wire.v0_9_1.content import (
    FLAGS,
    Properties,
    content_layout,
    content_prefix,
    content_route,
    decode_properties,
    encode_content_header,
    encode_properties,
    properties_of,
    ttl_of,
)
from router.wire.v0_9_1.types import Seconds
from tests.support.amqp_values import mutated, same
from tests.support.basic_messages import content, properties

contents = st.builds(
    content,
    properties(),
    st.binary(max_size=40),
    exchange=st.binary(max_size=255),
    routing_key=st.binary(max_size=255),
    redelivered=st.booleans(),
)


def equal(left: Properties, right: Properties) -> bool:
    return same(
        list(attrs.asdict(left, recurse=False).values()),
        list(attrs.asdict(right, recurse=False).values()),
    )


def test_flags_begin_at_the_highest_bit_in_the_order_of_the_specification() -> None:
    assert FLAGS["content_type"] == 0x8000
    assert FLAGS["headers"] == 0x2000
    assert FLAGS["expiration"] == 0x0100
    assert FLAGS["cluster_id"] == 0x0004


def test_a_content_header_is_drawn_as_the_specification_has_it() -> None:
    made = Properties(content_type="a/b", delivery_mode=2, timestamp=Seconds(1))
    assert encode_content_header(5, encode_properties(made)) == bytes.fromhex(
        "003c 0000 0000000000000005 9040 03612f62 02 0000000000000001"
    )


@given(properties())
def test_properties_come_back_as_they_were(made: Properties) -> None:
    octets = encode_properties(made)
    assert equal(decode_properties(b"##" + octets, 2, len(octets) + 2), made)


@given(properties())
def test_properties_that_are_cut_or_too_long_are_refused(made: Properties) -> None:
    octets = encode_properties(made)
    for end in range(len(octets)):
        with pytest.raises(DecodeError):
            decode_properties(octets, 0, end)
    with pytest.raises(DecodeError, match="follow"):
        decode_properties(octets + b"\x00", 0, len(octets) + 1)


@pytest.mark.parametrize("flags", [0x0001, 0x0002, 0x8001])
def test_flags_without_a_property_are_refused(flags: int) -> None:
    with pytest.raises(DecodeError, match="flag"):
        decode_properties(flags.to_bytes(2, "big") + b"\x01a", 0, 4)


def test_a_broken_property_is_named() -> None:
    with pytest.raises(DecodeError, match="headers: no field table type"):
        decode_properties(bytes.fromhex("2000 00000003 0161 5a"), 0, 9)
    with pytest.raises(DecodeError, match="timestamp"):
        decode_properties(bytes.fromhex("0040 0000"), 0, 4)
    with pytest.raises(DecodeError, match="priority"):
        decode_properties(bytes.fromhex("0800"), 0, 2)


def test_a_property_out_of_range_is_our_own_misuse() -> None:
    with pytest.raises(MisuseError):
        encode_properties(Properties(message_id="x" * 256))


@given(
    properties(),
    st.binary(max_size=40),
    st.binary(max_size=255),
    st.binary(max_size=255),
    st.booleans(),
)
def test_the_parts_of_a_content_are_found_again(
    made: Properties, body: bytes, exchange: bytes, routing_key: bytes, redelivered: bool
) -> None:
    octets = content(
        made, body, exchange=exchange, routing_key=routing_key, redelivered=redelivered
    )
    layout = content_layout(octets)
    assert layout.redelivered is redelivered
    assert content_route(octets) == (exchange, routing_key)
    assert layout.body_octets == len(body)
    assert octets[layout.body_start :] == body
    assert octets[: layout.route_end] == content_prefix(
        exchange, routing_key, redelivered=redelivered
    )
    assert equal(properties_of(octets, layout), made)


@given(contents.flatmap(lambda octets: mutated(st.just(octets))))
def test_broken_contents_raise_nothing_but_decode_errors(octets: bytes) -> None:
    with contextlib.suppress(DecodeError):
        layout = content_layout(octets)
        content_route(octets)
        properties_of(octets, layout)


def test_a_content_of_another_class_is_refused() -> None:
    octets = bytes.fromhex("00 00 00 0046 0000 0000000000000000 0000")
    with pytest.raises(DecodeError, match="class 70"):
        content_layout(octets)


@pytest.mark.parametrize(
    ("text", "ttl"),
    [
        (None, None),
        ("0", 0),
        ("60000", 60000),
        ("007", 7),
        ("9999999999", 0xFFFFFFFF),
        ("99999999999", None),
        ("soon", None),
        ("-1", None),
        ("", None),
        ("٣", None),
    ],
)
def test_expiration_is_read_as_milliseconds(text: str | None, ttl: int | None) -> None:
    assert ttl_of(Properties(expiration=text)) == ttl
