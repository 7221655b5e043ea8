"""Contents that leave as they came, by both twins."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import DecodeError
from router.wire.v0_9_1.content import FLAGS, MORE_FLAGS, Properties, header_properties
from router.wire.v0_9_1.framing import METHOD, content_frames, frame
from router.wire.v0_9_1.passing import is_sound, pass_on
from router.wire.v0_9_1.twins import chosen
from router.wire.v0_9_1.types import MAX_DEPTH
from tests.support.amqp_values import mutated
from tests.support.basic_messages import content, properties

METHOD_FRAME = frame(METHOD, 258, b"\x00\x3c\x00\x28\x00\x00\x00\x01k\x01")
MAX_PAYLOAD = 200

PASS_ON: list[Callable[..., bytes | None]] = [pass_on, chosen("pass_on", pass_on)]
IS_SOUND: list[Callable[[bytes], bool]] = [is_sound, chosen("is_sound", is_sound)]


def made_by(
    twin: Callable[..., bytes | None],
    octets: bytes,
    max_payload_octets: int = MAX_PAYLOAD,
    refused: int = 0,
) -> bytes | None:
    return twin(octets, method=METHOD_FRAME, max_payload_octets=max_payload_octets, refused=refused)


def header_of(octets: bytes, body: bytes) -> bytes:
    """The content header of a content without exchange and key."""
    return octets[3 : len(octets) - len(body)]


@pytest.mark.parametrize("twin", PASS_ON)
@pytest.mark.parametrize("body", [b"", b"body", b"x" * MAX_PAYLOAD])
def test_header_and_body_follow_the_method_as_they_are(
    twin: Callable[..., bytes | None], body: bytes
) -> None:
    told = Properties(message_id="1", headers={"a": [1, {"b": None}]}, cluster_id="c")
    octets = content(told, body)
    frames = content_frames(258, header_of(octets, body), body, MAX_PAYLOAD + 8)
    assert made_by(twin, octets) == METHOD_FRAME + frames


@pytest.mark.parametrize("twin", PASS_ON)
def test_what_does_not_fit_three_frames_or_has_a_refused_property_is_left(
    twin: Callable[..., bytes | None],
) -> None:
    assert made_by(twin, content(Properties(), b"x" * (MAX_PAYLOAD + 1))) is None
    assert made_by(twin, content(Properties(app_id="a" * MAX_PAYLOAD), b"")) is None
    named = content(Properties(user_id="u"), b"")
    assert made_by(twin, named) is not None
    assert made_by(twin, named, refused=FLAGS["user_id"]) is None


def nested(depth: int, kind: bytes) -> bytes:
    """A content header whose table is nested so deep: that is how many begin."""
    inner = b""
    for level in range(depth):
        is_table = level == depth - 1 or kind == b"F"
        if level:
            inner = kind + inner
        if level and is_table:
            inner = b"\x01n" + inner
        inner = len(inner).to_bytes(4, "big") + inner
    return b"\x00\x3c\x00\x00" + bytes(8) + b"\x20\x00" + inner


@pytest.mark.parametrize("twin", IS_SOUND)
@pytest.mark.parametrize("kind", [b"F", b"A"])
def test_tables_are_sound_as_deep_as_they_are_read(
    twin: Callable[[bytes], bool], kind: bytes
) -> None:
    for depth in (1, 2, MAX_DEPTH, MAX_DEPTH + 1, 300):
        header = nested(depth, kind)
        try:
            header_properties(header)
        except DecodeError:
            assert not twin(header)
        else:
            assert twin(header)
    assert twin(nested(MAX_DEPTH, kind))
    assert not twin(nested(MAX_DEPTH + 1, kind))


@settings(max_examples=500)
@given(properties(), st.binary(max_size=5), st.integers(0, 80), st.data())
def test_both_twins_pass_the_same_contents_on(
    told: Properties, body: bytes, max_payload_octets: int, data: st.DataObject
) -> None:
    octets = content(told, body)
    if data.draw(st.booleans()):
        octets = data.draw(mutated(st.just(octets)))
    octets = octets[: data.draw(st.integers(0, len(octets)))] + data.draw(st.binary(max_size=2))
    refused = data.draw(st.sampled_from([0, FLAGS["user_id"]]))
    made: list[Any] = [made_by(twin, octets, max_payload_octets * 8, refused) for twin in PASS_ON]
    assert made[0] == made[1]


@settings(max_examples=500)
@given(properties(), st.data())
def test_sound_is_what_can_be_decoded_and_has_one_word_of_flags(
    told: Properties, data: st.DataObject
) -> None:
    header = header_of(content(told, b""), b"")
    if data.draw(st.booleans()):
        header = header[:12] + data.draw(mutated(st.just(header[12:])))
    try:
        header_properties(header)
        expected = not header[13] & MORE_FLAGS
    except DecodeError:
        expected = False
    assert [twin(header) for twin in IS_SOUND] == [expected, expected]
