"""Strings, tables, all 28 commands and both forms of a frame's size (RFC 006 §3.1.1)."""

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import DecodeError, MisuseError
from router.model.text import decode_text
from router.wire.fast import commands as c
from router.wire.fast.commands import COMMANDS, SPECS, Sender, Spec, decode_command, encode_command
from router.wire.fast.framing import frame, frame_of
from router.wire.fast.types import (
    Seconds,
    Table,
    TableDecimal,
    cut_short,
    decode_short,
    decode_table,
    encode_long,
    encode_short,
    encode_table,
    fits_short,
)

shorts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)
values = st.one_of(
    st.binary(max_size=20),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(0, (1 << 32) - 1).map(Seconds),
    st.builds(TableDecimal, st.integers(0, 255), st.integers(-(1 << 31), (1 << 31) - 1)),
)
tables = st.dictionaries(shorts, values, max_size=4)

_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "o": st.integers(0, 255),
    "h": st.integers(0, 0xFFFF),
    "l": st.integers(0, 0xFFFF_FFFF),
    "b": st.booleans(),
    "s": shorts,
    "w": shorts,
    "c": st.binary(max_size=255).map(decode_text),
    "x": st.binary(max_size=40),
    "t": tables,
}


def commands(spec: Spec) -> st.SearchStrategy[c.Command]:
    return st.builds(spec.record, *(_FIELDS[letter] for letter in spec.letters))


# --- the table ------------------------------------------------------------------------------------


def test_there_are_28_commands_and_each_record_has_a_letter_for_each_field() -> None:
    assert len(SPECS) == len(COMMANDS) == 28
    for spec in SPECS:
        assert len(attrs.fields(spec.record)) == len(spec.letters), spec.name


@pytest.mark.parametrize(
    ("sender", "numbers"),
    [
        (Sender.CLIENT, {11, 13, 20, 21, 22, 23, 30, 31, 32, 33, 34, 35, 36, 37}),
        (Sender.SERVER, {10, 18, 28, 40, 41, 42, 48}),
        (Sender.EITHER, {12, 14, 19, 29, 43, 44, 49}),
    ],
)
def test_who_sends_what_is_as_in_the_summaries(sender: Sender, numbers: set[int]) -> None:
    """§3.2.1, §3.3.1, §3.5.1."""
    assert {spec.number for spec in SPECS if spec.sender is sender} == numbers


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
@given(data=st.data())
def test_every_command_comes_back_as_it_was(spec: Spec, data: st.DataObject) -> None:
    command = data.draw(commands(spec))
    octets = encode_command(command)
    assert octets[0] == spec.number
    assert decode_command(octets, 0, len(octets)) == command


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
@given(data=st.data())
def test_a_command_that_is_cut_or_goes_on_is_refused(spec: Spec, data: st.DataObject) -> None:
    octets = encode_command(data.draw(commands(spec)))
    for length in range(1, len(octets)):
        with pytest.raises(DecodeError):
            decode_command(octets, 0, length)
    with pytest.raises(DecodeError):
        decode_command(octets + b"\0", 0, len(octets) + 1)


@given(st.binary(min_size=1, max_size=80))
def test_any_octets_are_a_command_or_a_decode_error(octets: bytes) -> None:
    try:
        command = decode_command(octets, 0, len(octets))
    except DecodeError:
        return
    assert octets[0] in COMMANDS
    assert isinstance(command, COMMANDS[octets[0]].record)


def test_bits_are_packed_low_bit_first_and_across_one_octet() -> None:
    """§3.1.2: "Bits are packed into octets"."""
    command = c.HandleNotify(1, 2, 3, partial=True, recovery=True, redelivered=True)
    assert encode_command(command) == bytes.fromhex("29 0001 00000002 00000003 15 00")


# --- frames ---------------------------------------------------------------------------------------


def test_the_end_octet_counts_in_the_size() -> None:
    """§3.1.1: "The command-end byte is included in the command-size"."""
    assert frame(c.ConnectionPing()) == bytes.fromhex("0003 0e00 ce")


def test_a_size_from_0xffff_on_takes_the_long_form() -> None:
    """§2.2.4: two octets hold up to 0xFFFE, 0xFFFF is followed by four."""
    assert frame_of(bytes(0xFFFD))[:2] == b"\xff\xfe"
    assert frame_of(bytes(0xFFFE))[:6] == b"\xff\xff\x00\x00\xff\xff"


# --- strings and tables ---------------------------------------------------------------------------


@pytest.mark.parametrize("octets", [b"", b"\x02a", b"\x01\xff", b"\x01\x00"])
def test_short_strings_are_utf_8_without_zero_octets(octets: bytes) -> None:
    """§3.1.1, notes."""
    with pytest.raises(DecodeError):
        decode_short(octets, 0, len(octets))


def test_what_is_no_string_is_not_written() -> None:
    for text in ("\0", "é" * 128):
        assert not fits_short(text)
        with pytest.raises(MisuseError):
            encode_short(text)
    assert fits_short("é" * 127)
    assert not fits_short("x" * 256)
    with pytest.raises(MisuseError):
        encode_long(bytes(65536))
    with pytest.raises(MisuseError):
        encode_table({"number": 1 << 31})


def test_words_for_people_are_cut_to_fit() -> None:
    assert encode_short(cut_short("é" * 200))[0] == 254
    assert cut_short("a\0b") == "a b"


def test_a_table_is_names_letters_and_values() -> None:
    table: Table = {
        "a": b"x",
        "b": -1,
        "c": Seconds(1),
        "d": TableDecimal(2, 3),
    }
    octets = bytes.fromhex(
        "001c 0161 53 0001 78  0162 49 ffffffff  0163 54 00000001  0164 44 02 00000003"
    )
    encoded = encode_table(table)
    assert encoded == octets
    assert decode_table(encoded, 0, len(encoded)) == (table, len(encoded))


def test_of_two_entries_of_one_name_the_first_counts() -> None:
    one, other = encode_table({"a": 1})[2:], encode_table({"a": 2})[2:]
    octets = encode_long(one + other)
    assert decode_table(octets, 0, len(octets))[0] == {"a": 1}


def test_unknown_letters_and_cut_values_are_refused() -> None:
    for inside in (b"\x01at\x01", b"\x01aI\x00", b"\x01a", b"\x05a", b"\x01aS\x00\x09x"):
        octets = encode_long(inside)
        with pytest.raises(DecodeError):
            decode_table(octets, 0, len(octets))


@given(tables)
def test_tables_come_back_as_they_were(table: dict[str, Any]) -> None:
    octets = encode_table(table)
    found, end = decode_table(octets, 0, len(octets))
    assert end == len(octets)
    assert found == table
    assert list(map(type, found.values())) == list(map(type, table.values()))
