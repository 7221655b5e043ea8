"""Positions in messages: sections, and octets in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.links.position import octets_before, position_at_end
from router.links.recovery import START
from router.model.outcome import Received

HEADER = bytes.fromhex("00 53 70 c0 02 01 41")
LONG_DESCRIPTOR = bytes.fromhex("00 80 0000000000000073 c0 02 01 40")
SYMBOLIC = b"\x00\xa3\x10amqp:data:binary\xa0\x03abc"
DATA = bytes.fromhex("00 53 75 b0 00000005") + b"hello"
VALUE = bytes.fromhex("00 53 77 71 00000001")
EMPTY_VALUE = bytes.fromhex("00 53 77 40")
SECTIONS = (HEADER, LONG_DESCRIPTOR, SYMBOLIC, DATA, VALUE, EMPTY_VALUE)
MESSAGE = b"".join(SECTIONS)


def test_whole_message_ends_at_the_section_after_its_last() -> None:
    assert position_at_end(MESSAGE) == Received(len(SECTIONS), 0)


def test_nothing_ends_at_the_start() -> None:
    assert position_at_end(b"") == START


def test_every_cut_is_found_again() -> None:
    for cut in range(len(MESSAGE) + 1):
        position = position_at_end(MESSAGE[:cut])
        assert octets_before(MESSAGE, position) == cut


def test_cut_inside_a_section_counts_from_its_first_octet() -> None:
    assert position_at_end(HEADER + DATA[:4]) == Received(1, 4)
    assert position_at_end(HEADER) == Received(1, 0)


@pytest.mark.parametrize("octets", [b"\x00\x53\x75\x3f", b"\x33", b"\x00\x20"])
def test_what_is_no_message_has_no_position(octets: bytes) -> None:
    assert position_at_end(octets + b"xxxxxxxx") == START


def test_position_beyond_the_message_is_none_of_it() -> None:
    assert octets_before(MESSAGE, Received(len(SECTIONS) + 1, 0)) is None
    assert octets_before(DATA, Received(0, len(DATA) + 1)) is None
    assert octets_before(DATA, Received(0, len(DATA))) == len(DATA)
    assert octets_before(b"\x33xx", Received(1, 0)) is None


@given(st.binary(max_size=60))
def test_any_octets_have_a_position_or_none(octets: bytes) -> None:
    position = position_at_end(octets)
    before = octets_before(octets, position)
    assert before in (0, len(octets))
