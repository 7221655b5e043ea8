"""Runs of contents, read by both twins."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.wire.v0_9_1.content import FLAGS, encode_content_header
from router.wire.v0_9_1.framing import BODY, HEADER, METHOD, content_frames, frame
from router.wire.v0_9_1.scan import scan_deliveries, scan_publishes
from router.wire.v0_9_1.twins import chosen
from tests.support.amqp_values import mutated

METHOD_FRAME = frame(METHOD, 1, b"\x00\x3c\x00\x28\x00\x00\x00\x01k\x00")
PREFIX = b"\x00\x00\x01k"
LIMIT = 100

Scan = Callable[..., tuple[Any, int]]

TWINS: list[Scan] = [scan_publishes, chosen("scan_publishes", scan_publishes)]


def header(body: int, flags: int = 0x1000, properties: bytes = b"\x02") -> bytes:
    return encode_content_header(body, flags.to_bytes(2, "big") + properties)


def publish(body: bytes, *, channel: int = 1, flags: int = 0x1000) -> bytes:
    octets = content_frames(channel, header(len(body), flags), body, LIMIT + 8)
    return METHOD_FRAME + octets


def scan(twin: Scan, octets: bytes, body_limit: int = LIMIT) -> tuple[list[bytes], int]:
    limits = {"limit": LIMIT, "body_limit": body_limit}
    found: tuple[list[bytes], int] = twin(
        octets, 0, len(octets), method=METHOD_FRAME, prefix=PREFIX, **limits
    )
    return found


@pytest.mark.parametrize("twin", TWINS)
def test_a_run_of_publishes_is_read_to_its_end(twin: Scan) -> None:
    bodies = [b"one", b"two", b"", b"", b"x" * LIMIT, b"six"]
    octets = b"".join(map(publish, bodies))
    found, at = scan(twin, octets)
    assert found == [PREFIX + header(len(body)) + body for body in bodies]
    assert at == len(octets)


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize(
    "other",
    [
        frame(METHOD, 2, METHOD_FRAME[7:-1]),
        frame(METHOD, 1, METHOD_FRAME[7:-2] + b"\x01"),
        publish(b"its channel is not the method's", channel=2),
        publish(b"x" * (LIMIT + 1)),
        publish(b"x", flags=0x1000 | FLAGS["expiration"]),
        publish(b"x", flags=0x1000 | FLAGS["user_id"]),
        publish(b"x", flags=0x1001),
        METHOD_FRAME + frame(HEADER, 1, header(0, 0x0200, b"\x15amq.rabbitmq.reply-to")),
        publish(b"x", flags=0x1002),
        publish(b"x", flags=0x1800),
        publish(b"x", flags=0x2000),
        METHOD_FRAME + frame(BODY, 1, b"x"),
        METHOD_FRAME + frame(HEADER, 1, b"\x00\x3c\x00\x01" + bytes(10)),
        METHOD_FRAME + frame(HEADER, 1, b"\x00\x32\x00\x00" + bytes(10)),
        METHOD_FRAME + frame(HEADER, 1, b"\x00\x3c\x00\x00" + bytes(9)),
        METHOD_FRAME + frame(HEADER, 1, header(0) + bytes(LIMIT)),
        publish(b"x")[:-1] + b"\x00",
        METHOD_FRAME + frame(HEADER, 1, header(4)) + frame(BODY, 1, b"abc"),
        METHOD_FRAME + frame(HEADER, 1, header(4)) + frame(METHOD, 1, b"abcd"),
        METHOD_FRAME + frame(HEADER, 1, header(1 << 63)),
    ],
)
def test_a_run_ends_at_what_is_not_three_usual_frames(twin: Scan, other: bytes) -> None:
    before = publish(b"before")
    assert scan(twin, before + other + publish(b"after"))[1] == len(before)


@pytest.mark.parametrize("twin", TWINS)
def test_a_body_that_the_link_does_not_take_ends_a_run(twin: Scan) -> None:
    octets = publish(b"1234") + publish(b"12345")
    assert scan(twin, octets, body_limit=4)[1] == len(publish(b"1234"))


@pytest.mark.parametrize("twin", TWINS)
def test_what_has_not_come_whole_is_left(twin: Scan) -> None:
    first, second = publish(b"first"), publish(b"second")
    for size in range(len(second)):
        assert scan(twin, first + second[:size])[1] == len(first)


@settings(max_examples=300)
@given(
    st.lists(st.binary(max_size=12), max_size=5),
    st.integers(1, 40),
    st.integers(0, 12),
    st.data(),
)
def test_both_twins_read_the_same(
    bodies: list[bytes], limit: int, body_limit: int, data: st.DataObject
) -> None:
    octets = b"".join(map(publish, bodies))
    if octets and data.draw(st.booleans()):
        octets = data.draw(mutated(st.just(octets)))
    end = data.draw(st.integers(0, len(octets)))
    limits = {"limit": limit, "body_limit": body_limit}
    made = [twin(octets, 0, end, method=METHOD_FRAME, prefix=PREFIX, **limits) for twin in TWINS]
    assert made[0] == made[1]


# --- deliveries -----------------------------------------------------------------------------------

HEAD = b"\x00\x3c\x00\x3c\x06router"
DELIVERIES: list[Scan] = [scan_deliveries, chosen("scan_deliveries", scan_deliveries)]

Found = tuple[list[tuple[int, bytes, bool]], int]


def deliver(
    tag: int,
    body: bytes,
    *,
    channel: int = 3,
    redelivered: bool = False,
    route: bytes = b"\x01e\x03key",
    flags: int = 0x1000,
) -> bytes:
    method = HEAD + tag.to_bytes(8, "big") + bytes((redelivered,)) + route
    octets = content_frames(channel, header(len(body), flags), body, LIMIT + 8)
    return frame(METHOD, channel, method) + octets


def scan_all(twin: Scan, octets: bytes, **options: int) -> Found:
    arguments = {"head": HEAD, "number": 3, "limit": LIMIT} | options
    found: Found = twin(octets, 0, len(octets), **arguments)
    return found


@pytest.mark.parametrize("twin", DELIVERIES)
def test_a_run_of_deliveries_tells_which_must_be_looked_at(twin: Scan) -> None:
    octets = (
        deliver(1, b"one")
        + deliver(2, b"", redelivered=True)
        + deliver(1 << 63, b"x" * LIMIT, route=b"\x00\x00")
        + deliver(4, b"4", flags=0x1000 | FLAGS["expiration"])
    )
    found, at = scan_all(twin, octets)
    assert found == [
        (1, b"\x00\x01e\x03key" + header(3) + b"one", False),
        (2, b"\x01\x01e\x03key" + header(0), True),
        (1 << 63, b"\x00\x00\x00" + header(LIMIT) + b"x" * LIMIT, False),
        (4, b"\x00\x01e\x03key" + header(1, 0x1100) + b"4", True),
    ]
    assert at == len(octets)


@pytest.mark.parametrize("twin", DELIVERIES)
@pytest.mark.parametrize(
    "other",
    [
        deliver(2, b"x", channel=4),
        deliver(2, b"x", flags=0x1001),
        deliver(2, b"x", route=b"\x01e\x04key"),
        deliver(2, b"x", route=b"\x01e"),
        deliver(2, b"x", route=b"\x01e\x03key."),
        deliver(2, b"x", route=b"\x00\xff" + b"k" * 255),
        deliver(2, b"x" * (LIMIT + 1)),
        frame(METHOD, 3, b"\x00\x3c\x00\x50" + bytes(9)) + deliver(2, b"x"),
        frame(METHOD, 3, HEAD + bytes(8)) + content_frames(3, header(1), b"x", LIMIT),
    ],
)
def test_a_run_of_deliveries_ends_at_what_is_not_one(twin: Scan, other: bytes) -> None:
    before = deliver(1, b"before")
    assert scan_all(twin, before + other + deliver(3, b"after"))[1] == len(before)


@pytest.mark.parametrize("twin", DELIVERIES)
def test_a_delivery_that_has_not_come_whole_is_left(twin: Scan) -> None:
    first, second = deliver(1, b"first"), deliver(2, b"second")
    for size in range(len(second)):
        assert scan_all(twin, first + second[:size])[1] == len(first)


@settings(max_examples=300)
@given(
    st.lists(st.builds(deliver, st.integers(0, 9), st.binary(max_size=12)), max_size=5),
    st.integers(1, 60),
    st.data(),
)
def test_both_twins_read_the_same_deliveries(
    deliveries: list[bytes], limit: int, data: st.DataObject
) -> None:
    octets = b"".join(deliveries)
    if octets and data.draw(st.booleans()):
        octets = data.draw(mutated(st.just(octets)))
    end = data.draw(st.integers(0, len(octets)))
    made = [twin(octets, 0, end, head=HEAD, number=3, limit=limit) for twin in DELIVERIES]
    assert made[0] == made[1]
