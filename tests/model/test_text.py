"""Names, carried strings and words, and how any of them is shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import DecodeError
from router.model.condition import Condition
from router.model.text import (
    SHOWN_MOST,
    decode_name,
    decode_text,
    encode_text,
    is_text,
    label,
    name_of,
    readable,
    shown,
    words,
)

any_texts = st.text(st.characters()) | st.binary().map(decode_text)
"""With lone surrogates, of octets or not."""

HOSTILE = (
    "\x1b[2J\x1b]0;title\x07",
    "one\r\ntwo",
    "\0",
    "\u202edesrever",
    "\u2028",
    "\ufeff",
    "\x7f\x9b",
    "\udcff\ud800",
    "\U000e0041",
    "x" * 10_000,
    "\x1b" * 10_000,
)


@given(st.binary())
def test_carried_octets_come_out_as_they_went_in(octets: bytes) -> None:
    assert encode_text(decode_text(octets)) == octets


@given(st.binary())
def test_a_name_is_utf_8_or_refused_with_its_place(octets: bytes) -> None:
    text = decode_text(octets)
    if is_text(text):
        assert decode_name(octets) == text
        return
    with pytest.raises(DecodeError) as refused:
        decode_name(octets, 7)
    assert is_text(decode_text(octets[: refused.value.offset - 7]))


@given(any_texts)
def test_words_are_text_and_leave_text_alone(text: str) -> None:
    assert is_text(words(text))
    if is_text(text):
        assert words(text) == text


def test_what_is_no_text_is_told_octet_for_octet() -> None:
    assert words(decode_text(b"caf\xe9!")) == "caf\\xe9!"
    assert words("\ud800") == "\\ud800"
    assert Condition("x", decode_text(b"\xff")).description == "\\xff"


@given(st.binary(), st.binary())
def test_names_of_different_octets_differ(one: bytes, other: bytes) -> None:
    assert is_text(name_of(one))
    assert (name_of(one) == name_of(other)) is (one == other)


def test_names_that_only_look_alike_differ() -> None:
    assert name_of(b"\xff") != name_of(b"\\xff")
    assert name_of(b"plain/name.1") == "plain/name.1"


def test_of_what_a_peer_says_of_itself_the_strings_are_kept() -> None:
    told = {"product": "x", "flags": {"a": True}, decode_text(b"\xff"): decode_text(b"\xfe")}
    assert readable(told) == {"product": "x", "\\xff": "\\xfe"}


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_what_is_shown_is_one_printable_line_of_bounded_length(text: str) -> None:
    for made in (shown(text), label(text)):
        assert made.isprintable()
        assert len(made) <= SHOWN_MOST + 40


@given(any_texts)
def test_anything_can_be_shown(text: str) -> None:
    assert shown(text).isprintable()
    assert label(text).isprintable()
    if text.isprintable() and len(text) <= SHOWN_MOST:
        assert shown(text) == text


def test_a_long_text_is_cut_and_its_length_told() -> None:
    assert shown("x" * 12_345, 10) == "xxxxxxxxxx… (12,345 characters)"


@given(st.text(), st.text())
def test_labels_of_different_texts_differ(one: str, other: str) -> None:
    assert (label(one, 10) == label(other, 10)) is (one == other)


def test_labels_tell_an_escape_from_what_looks_like_one() -> None:
    assert label("\x1b") != label("\\x1b")
    assert label("a" * 500) != label("a" * 501)
