"""Class test: a client tries our codec."""

from typing import Any

import pytest

from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.types import Seconds
from router.wire.v0_9r1 import optional as o
from router.wire.v0_9r1.framing import FRAMING, FrameType
from router.wire.v0_9r1.server_channel import MAX_TEST_OCTETS
from router.wire.v1_0.types import Int
from tests.support.basic_peer import Content
from tests.support.draft_peer import DraftClientPeer, hexed

_TABLE = {
    "a": Int(3),
    "b": Int(-1),
    "c": "xy",
    "d": "z",
    "e": Seconds(9),
    "f": {"inner": Int(100)},
}


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (o.TestInteger(1, 2, 3, 4, operation=1), o.TestIntegerOk(10)),
        (o.TestInteger(255, 2, 3, 4, operation=2), o.TestIntegerOk(2)),
        (o.TestInteger(255, 2, 3, 1 << 63, operation=3), o.TestIntegerOk(1 << 63)),
        (o.TestInteger(1, 0, 0, (1 << 64) - 1, operation=1), o.TestIntegerOk(0)),
        (o.TestString("ab", b"\xffc", 1), o.TestStringOk(b"ab\xffc")),
        (o.TestString("ab", b"c", 2), o.TestStringOk(b"c")),
        (o.TestString("ab", b"c", 3), o.TestStringOk(b"ab")),
        (o.TestTable(_TABLE, 1, 1), o.TestTableOk(2, b"xyz")),
        (o.TestTable(_TABLE, 2, 2), o.TestTableOk((1 << 64) - 1, b"z")),
        (o.TestTable(_TABLE, 3, 3), o.TestTableOk(3, b"xy")),
        (o.TestTable({}, 1, 3), o.TestTableOk(0, b"")),
    ],
)
def test_operations_are_carried_out(asked: Any, answer: Any) -> None:
    peer = DraftClientPeer().open(1)
    peer.send(1, asked)
    assert peer.methods() == [answer]


@pytest.mark.parametrize(
    "asked", [o.TestInteger(operation=4), o.TestString(operation=0), o.TestTable({}, 1, 9)]
)
def test_an_operation_that_there_is_not_is_a_syntax_error(asked: Any) -> None:
    peer = DraftClientPeer().open(1)
    peer.send(1, asked)
    [close] = peer.methods()
    assert isinstance(close, m.ConnectionClose)
    assert close.reply_code == 502


def test_contents_are_added_up_and_come_back() -> None:
    peer = DraftClientPeer().open(1)
    peer.send(1, o.TestContent())
    peer.feed(
        FRAMING.frame(FrameType.HEADER, 1, hexed("000b 0000 0000000000000003 0000"))
        + FRAMING.frame(FrameType.BODY, 1, b"\xff\x01\x02")
    )
    [answer] = peer.methods()
    assert isinstance(answer, Content)
    assert answer.method == o.TestContentOk(0x102)
    assert answer.body == b"\xff\x01\x02"


def test_a_content_too_large_to_be_added_up_is_refused() -> None:
    peer = DraftClientPeer().open(1)
    peer.send(1, o.TestContent())
    size = (MAX_TEST_OCTETS + 1).to_bytes(8, "big").hex()
    peer.feed(FRAMING.frame(FrameType.HEADER, 1, hexed(f"000b 0000 {size} 0000")))
    [close] = peer.methods()
    assert isinstance(close, m.ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (311, 11, 7)
