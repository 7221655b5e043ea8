import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import DecodeError, MisuseError
from router.model.condition import FRAMING_ERROR
from router.wire.v1_0.frames import (
    AMQP,
    AMQP_HEADER,
    HEADER_OCTETS,
    HEARTBEAT,
    SASL,
    SASL_HEADER,
    TLS_HEADER,
    FrameHeader,
    frame,
    read_frame_header,
)


@given(
    st.integers(0, 0xFFFF),
    st.binary(max_size=20),
    st.binary(max_size=20),
    st.sampled_from([AMQP, SASL]),
    st.binary(max_size=5),
)
def test_a_frame_is_read_as_it_was_made(
    channel: int, body: bytes, payload: bytes, kind: int, before: bytes
) -> None:
    octets = before + frame(channel, body, payload, kind)
    start = len(before)
    header = read_frame_header(octets, start, len(octets))
    assert header == FrameHeader(
        size=len(octets) - start, body=start + 8, end=len(octets), kind=kind, channel=channel
    )
    assert octets[start + 8 :] == body + payload


def test_a_header_that_has_not_come_whole_is_waited_for() -> None:
    octets = frame(1, b"body")
    for end in range(HEADER_OCTETS):
        assert read_frame_header(octets, 0, end) is None
    assert read_frame_header(octets, 0, HEADER_OCTETS) is not None


def test_the_extended_header_is_stepped_over() -> None:
    octets = bytes.fromhex("0000001003000005") + b"\xff" * 4 + b"body"
    header = read_frame_header(octets, 0, len(octets))
    assert header is not None
    assert octets[header.body : header.end] == b"body"


@pytest.mark.parametrize(
    ("octets", "offset", "rule"),
    [
        ("0000000002000000", 0, "size 0 is less than 8"),
        ("0000000702000000", 0, "size 7 is less than 8"),
        ("0000020102000000", 0, "size 513 exceeds max-frame-size 512"),
        ("ffffffff02000000", 0, "exceeds max-frame-size 512"),
        ("0000000801000000", 4, "DOFF 1 is less than 2"),
        ("0000000800000000", 4, "DOFF 0 is less than 2"),
        ("0000000b03000000", 4, "DOFF 3 points beyond"),
        ("0000000802020000", 5, "type 2 is not known"),
    ],
)
def test_a_malformed_header_is_a_framing_error(octets: str, offset: int, rule: str) -> None:
    with pytest.raises(DecodeError, match=rule) as caught:
        read_frame_header(b"\x00" + bytes.fromhex(octets), 1, 9, max_octets=512)
    assert caught.value.condition == FRAMING_ERROR
    assert caught.value.offset == 1 + offset


def test_a_frame_of_exactly_the_agreed_size_is_taken() -> None:
    octets = frame(0, b"x" * 504)
    assert read_frame_header(octets, 0, len(octets), max_octets=512) is not None


@given(st.binary(min_size=8, max_size=12))
def test_any_header_is_read_or_refused(octets: bytes) -> None:
    try:
        header = read_frame_header(octets, 0, len(octets), max_octets=1 << 20)
    except DecodeError as error:
        refused = error.condition
        assert refused == FRAMING_ERROR
    else:
        assert header is not None
        assert 8 <= header.body <= header.end == header.size <= 1 << 20


def test_an_empty_frame_is_a_heartbeat() -> None:
    assert frame(0, b"") == HEARTBEAT


def test_protocol_headers_name_the_layer_and_version_1_0_0() -> None:
    assert bytes([65, 77, 81, 80, 0, 1, 0, 0]) == AMQP_HEADER
    assert bytes([65, 77, 81, 80, 2, 1, 0, 0]) == TLS_HEADER
    assert bytes([65, 77, 81, 80, 3, 1, 0, 0]) == SASL_HEADER


@pytest.mark.parametrize(("channel", "kind"), [(-1, 0), (0x10000, 0), (0, 256)])
def test_a_channel_or_type_out_of_range_is_our_own_misuse(channel: int, kind: int) -> None:
    with pytest.raises(MisuseError):
        frame(channel, b"", b"", kind)
