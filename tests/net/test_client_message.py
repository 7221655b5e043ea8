from itertools import islice

import pytest

from router.net.client.message import body_text, number_of, numbered
from router.wire.v1_0.sections import AnnotatedMessage, Properties, decode_message, encode_message
from router.wire.v1_0.types import Ulong


def test_messages_are_numbered_from_nought_and_all_bear_the_body() -> None:
    payloads = list(numbered(b"body", 3))
    assert [number_of(payload) for payload in payloads] == [0, 1, 2]
    assert [decode_message(payload).data for payload in payloads] == [[b"body"]] * 3


def test_without_a_count_there_is_no_end() -> None:
    assert number_of(next(islice(numbered(b"", None), 5000, None))) == 5000


@pytest.mark.parametrize("message_id", [Ulong(3), b"3", "three", "³", None])
def test_other_message_ids_are_no_numbers(message_id: Ulong | bytes | str | None) -> None:
    payload = encode_message(
        AnnotatedMessage(properties=Properties(message_id=message_id), data=[b""])
    )
    assert number_of(payload) is None


def test_what_is_no_message_has_no_number() -> None:
    assert number_of(b"\x00\x53\x73\xff") is None


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (AnnotatedMessage(data=[b"gr\xc3\xbc", b"ezi"]), "grüezi"),
        (AnnotatedMessage(data=[b"\xff"]), "\\xff"),
        (AnnotatedMessage(value="text"), "text"),
        (AnnotatedMessage(value=True), "True"),
        (AnnotatedMessage(sequences=[["a"], ["b"]]), "['a']\n['b']"),
    ],
)
def test_bodies_are_shown_as_text(message: AnnotatedMessage, text: str) -> None:
    assert body_text(encode_message(message)) == text


def test_octets_that_are_no_message_are_shown_as_they_are() -> None:
    assert body_text(b"plain") == "plain"
