"""Properties of class basic, file and stream, and how they become each other's."""

import attrs
import pytest

from router.errors import DecodeError
from router.wire.v0_9_1.content import Properties, encode_content_header, encode_properties
from router.wire.v0_9_1.content import header_properties as basic_properties
from router.wire.v0_9_1.types import Seconds
from router.wire.v0_9r1.kinds import FILE, STREAM, Kind, from_basic, to_basic
from router.wire.v0_9r1.tables import encode_table
from tests.support.draft_peer import hexed

FULL = Properties(
    content_type="c",
    content_encoding="e",
    headers={"h": "v"},
    delivery_mode=2,
    priority=3,
    correlation_id="i",
    reply_to="r",
    expiration="9",
    message_id="m",
    timestamp=Seconds(7),
    type="t",
    user_id="u",
    app_id="a",
)

_HEADERS = "00000008 01'h' 'S' 00000001 'v'"

# The order of the properties of each class is that of the tables, the first in the highest bit.
FILE_WIRE = hexed(
    f"0007 0000 0000000000000002 ff00 01'c' 01'e' {_HEADERS}",
    "03 01'r' 01'm' 05'f.txt' 0000000000000007",
)
STREAM_WIRE = hexed(f"0008 0000 0000000000000002 f800 01'c' 01'e' {_HEADERS} 03 0000000000000007")


def test_a_file_has_the_properties_of_its_class_and_its_name_is_a_header() -> None:
    found = basic_properties(to_basic(FILE, FILE_WIRE))
    assert found == Properties(
        content_type="c",
        content_encoding="e",
        headers={"$filename": "f.txt", "h": "v"},
        priority=3,
        reply_to="r",
        message_id="m",
        timestamp=Seconds(7),
    )


def test_a_packet_has_five_properties() -> None:
    assert basic_properties(to_basic(STREAM, STREAM_WIRE)) == Properties(
        content_type="c",
        content_encoding="e",
        headers={"h": "v"},
        priority=3,
        timestamp=Seconds(7),
    )


@pytest.mark.parametrize(("kind", "wire"), [(FILE, FILE_WIRE), (STREAM, STREAM_WIRE)])
def test_what_a_class_has_comes_back_as_it_was(kind: Kind, wire: bytes) -> None:
    assert from_basic(kind, to_basic(kind, wire), 2) == wire
    bare = wire[:12] + b"\0\0"
    assert from_basic(kind, to_basic(kind, bare), 2) == bare


@pytest.mark.parametrize(("kind", "name"), [(FILE, "f.txt"), (STREAM, "")])
def test_consumers_are_told_what_their_class_has_a_property_for(kind: Kind, name: str) -> None:
    headers = {"$filename": name, "h": "v"} if name else {"h": "v"}
    made = encode_content_header(2, encode_properties(attrs.evolve(FULL, headers=headers)))
    assert from_basic(kind, made, 2) == (FILE_WIRE if kind is FILE else STREAM_WIRE)


def test_a_header_that_cannot_be_a_files_name_stays_a_header() -> None:
    long = Properties(headers={"$filename": "f" * 256})
    made = from_basic(FILE, encode_content_header(0, encode_properties(long)), 0)
    assert made[12:] == b"\x20\0" + encode_table(long.headers or {})
    only = Properties(headers={"$filename": "f"})
    made = from_basic(FILE, encode_content_header(0, encode_properties(only)), 0)
    assert made[12:] == b"\x02\0\x01f"


def test_of_two_names_of_a_file_its_property_counts() -> None:
    wire = hexed("0007 0000 0000000000000000 2200 00000010 09'$filename' 'S' 00000001 'x' 01'y'")
    assert from_basic(FILE, to_basic(FILE, wire), 0)[12:] == b"\x02\0\x01y"


@pytest.mark.parametrize(
    ("kind", "properties"),
    [
        (FILE, "0080"),  # a ninth property
        (STREAM, "0400"),  # a sixth one
        (FILE, "8000"),  # content-type, and nothing of it
        (FILE, "8000 05'ab'"),
        (FILE, "2000 0000"),  # a table that ends in its size
        (FILE, "2000 00000009 00"),
        (STREAM, "0800 00000000"),  # half a timestamp
        (STREAM, "0000 00"),  # octets behind the last property
    ],
)
def test_broken_properties_are_found(kind: Kind, properties: str) -> None:
    with pytest.raises(DecodeError):
        to_basic(kind, bytes(12) + hexed(properties))
