"""Field tables: the five types, lawful names, and richer tables carried in them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import DecodeError, MisuseError
from router.wire.v0_9_1 import types
from router.wire.v0_9_1.types import Seconds, TableDecimal
from router.wire.v0_9r1.tables import (
    CHILDREN,
    EXACT,
    decode_fields,
    decode_table,
    encode_table,
    narrow,
    widen,
)
from router.wire.v1_0.types import Int, Uint
from tests.support.amqp_values import same
from tests.support.basic_messages import tables
from tests.support.draft_peer import hexed

GOLDEN: list[tuple[dict[str, Any], bytes]] = [
    ({}, hexed("00000000")),
    ({"a": "hi"}, hexed("00000009 01'a' 'S' 00000002 'hi'")),
    ({"$n": Int(-2)}, hexed("00000008 02'$n' 'I' fffffffe")),
    ({"#d": TableDecimal(2, 1234)}, hexed("00000009 02'#d' 'D' 02 000004d2")),
    ({"t_1": Seconds(1132000000)}, hexed("0000000d 03't_1' 'T' 000000004378f300")),
    ({"f": {"x": Int(1)}}, hexed("0000000e 01'f' 'F' 00000007 01'x' 'I' 00000001")),
]


@pytest.mark.parametrize(("table", "octets"), GOLDEN)
def test_a_table_is_written_as_the_grammar_has_it(table: dict[str, Any], octets: bytes) -> None:
    assert encode_table(table) == octets
    found, after = decode_table(octets, 0, len(octets))
    assert same(found, table)
    assert after == len(octets)


@pytest.mark.parametrize("letter", sorted(set("tbBsUuilLfdxAV") | {"Z"}))
def test_letters_of_other_versions_are_unknown(letter: str) -> None:
    octets = hexed("0000000b 01'n'") + letter.encode() + bytes(8)
    with pytest.raises(DecodeError, match="letter"):
        decode_table(octets, 0, len(octets))


def test_of_two_fields_with_one_name_the_first_counts() -> None:
    octets = hexed("0000000e 01'n' 'I' 00000001 01'n' 'I' 00000002")
    assert decode_table(octets, 0, len(octets))[0] == {"n": 1}


@pytest.mark.parametrize("name", ["", "1a", "_a", "a-b", "x.y", "é", "a" * 129, " "])
def test_unlawful_names_are_neither_taken_nor_sent(name: str) -> None:
    octets = types.encode_table({name: Int(1)})
    with pytest.raises(DecodeError, match="not lawful"):
        decode_table(octets, 0, len(octets))
    inner = types.encode_table({"f": {name: Int(1)}})
    with pytest.raises(DecodeError, match="not lawful"):
        decode_table(inner, 0, len(inner))
    for table in ({name: Int(1)}, {"f": {name: Int(1)}}):
        with pytest.raises(MisuseError, match="not lawful"):
            encode_table(table)


@pytest.mark.parametrize("name", ["a", "$", "#x", "Z9_$#", "a" * 128])
def test_lawful_names_are(name: str) -> None:
    octets = encode_table({name: Int(1)})
    assert decode_table(octets, 0, len(octets))[0] == {name: 1}


@pytest.mark.parametrize("value", [True, 1, 1.5, b"x", [], None, Uint(1), {"f": True}])
def test_what_has_no_type_is_not_sent(value: Any) -> None:
    with pytest.raises(MisuseError):
        encode_table({"n": value})


@given(tables)
def test_any_table_of_0_9_1_is_carried_exactly(table: dict[str, Any]) -> None:
    octets = encode_table(narrow(table))
    found, _ = decode_table(octets, 0, len(octets))
    again = widen(found)
    expected = {name: value for name, value in table.items() if name != EXACT}
    assert again.keys() >= expected.keys()
    assert all(same(again[name], expected[name]) for name in expected)


def test_a_richer_value_has_a_readable_twin() -> None:
    made = narrow({"yes": True, "big": 1 << 40, "half": 0.5, "raw": b"ab", "x-y": "s", "no": None})
    readable = {name: value for name, value in made.items() if name != EXACT}
    assert readable == {"yes": 1, "big": "1099511627776", "half": "0.5", "raw": "ab"}
    assert all(type(value) in (str, Int) for value in readable.values())


def test_a_table_that_fits_is_sent_as_it_is() -> None:
    table = {"a": "b", "n": Int(3), "f": {"t": Seconds(4)}}
    assert narrow(table) == table
    assert widen(table) == table


def test_whoever_changes_the_readable_twin_changes_the_header() -> None:
    made = narrow({"n": True, "x-y": "kept"})
    made["n"] = Int(0)
    assert widen(made) == {"n": 0, "x-y": "kept"}


def test_what_only_looks_like_exact_values_is_a_header() -> None:
    for value in ("", "hello", "\0\0\0\0", "\0\0\0\1x", Int(4)):
        assert widen({EXACT: value, "a": "b"}) == {EXACT: value, "a": "b"}


def test_children_are_octets_and_not_sent_twice() -> None:
    assert narrow({CHILDREN: b"\xff\x00"}) == {CHILDREN: "\udcff\x00"}


@given(st.binary(max_size=60))
def test_random_octets_are_a_table_or_refused(octets: bytes) -> None:
    for decode in (decode_fields, decode_table):
        try:
            table, after = decode(octets, 0, len(octets))
        except DecodeError:
            continue
        assert after <= len(octets)
        widen(table)
