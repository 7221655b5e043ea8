"""Shortcuts change nothing: the same octets go and the same is heard, whatever happens."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import attrs
import pytest

from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.events import Event
from router.model.identity import DeliveryNumber, DeliveryTag
from router.wire.v1_0 import bulk
from router.wire.v1_0.bulk import Shortcuts
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.head import KEY_LEAD, HeaderMemory, KeyMemory
from tests.wire.v1_0.test_conversations import drive

compiled = pytest.mark.skipif(bulk.shortcuts is None, reason="nothing was compiled")
Heard = tuple[bytes, str]


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Heard]:
    """What engines received and told of it."""
    everything: list[Heard] = []
    receive = Engine10.receive_data

    def listen(engine: Engine10, octets: bytes | memoryview, now: float) -> list[Event]:
        events = receive(engine, octets, now)
        everything.append((bytes(octets), repr(events)))
        return events

    monkeypatch.setattr(Engine10, "receive_data", listen)
    return everything


class Counting:
    """Counts how often each shortcut was of use."""

    def __init__(self, shortcuts: Shortcuts) -> None:
        self.shortcuts = shortcuts
        self.taken: set[str] = set()

    def __getattr__(self, name: str) -> Callable[..., object]:
        def counted(*arguments: Any) -> object:
            result: Any = getattr(self.shortcuts, name)(*arguments)
            if name == "enter_run" or (result and result[0]):
                self.taken.add(name)
            return result

        return counted


@compiled
@pytest.mark.parametrize("seed", range(20))
def test_engines_say_and_hear_the_same(
    seed: int, heard: list[Heard], monkeypatch: pytest.MonkeyPatch
) -> None:
    drive(seed, 150)
    short = heard.copy()
    heard.clear()
    monkeypatch.setattr(bulk, "shortcuts", None)
    drive(seed, 150)
    assert heard == short


@compiled
def test_dice_take_every_shortcut(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bulk.shortcuts is not None
    counting = Counting(bulk.shortcuts)
    monkeypatch.setattr(bulk, "shortcuts", counting)
    for seed in range(20):
        drive(seed, 150)
    assert counting.taken == {name for name in vars(Shortcuts) if not name.startswith("_")}


# Single shortcuts, at their edges

HEAD = bytes.fromhex("02000000005314c00a094370")
TAIL = b"\x43\x42"


def frames(payloads: Sequence[bytes], tag: bytes, first: int) -> bytes:
    return b"".join(
        (16 + len(HEAD) - 4 + len(tag) + len(payload)).to_bytes(4)
        + HEAD
        + (first + number).to_bytes(4)
        + b"\xa0%c" % len(tag)
        + tag
        + TAIL
        + payload
        for number, payload in enumerate(payloads)
    )


def read(octets: bytes, end: int, **changed: Any) -> tuple[int, list[ReceivedDelivery]]:
    asked: dict[str, Any] = {
        "at": 0,
        "largest": 1000,
        "most": 100,
        "delivery_id": 300,
        "tag": b"\xa0\x04",
        "known": HeaderMemory(),
        "lead": 0,
    } | changed
    assert bulk.shortcuts is not None
    return bulk.shortcuts.read_run(
        octets, asked["at"], end, asked["largest"], asked["most"], HEAD, asked["tag"], TAIL,
        asked["delivery_id"], False, True, asked["known"], asked["lead"],
    )  # fmt: skip


@compiled
def test_a_run_that_is_cut_anywhere_is_read_as_far_as_it_is_whole() -> None:
    payloads = [b"", b"one", bytes(200), b"\x00Sp\xc0\x06\x05\x42\x50\x04\x40\x43"]
    octets = frames(payloads, b"tag!", 300)
    whole, at = [0], 0
    for payload in payloads:
        at += len(frames([payload], b"tag!", 0))
        whole.append(at)
    for end in range(len(octets) + 1):
        after, run = read(octets, end)
        count = sum(1 for each in whole[1:] if each <= end)
        assert after == whole[count]
        assert [each.payload for each in run] == payloads[:count]
        assert [each.number for each in run] == list(range(300, 300 + count))
        assert all(each.tag == b"tag!" and each.settles_second for each in run)
    assert run[3].delivery_count == 0


@compiled
@pytest.mark.parametrize("header", [b"", b"\x00Sp\xc0\x07\x05\x42\x50\x04\x40\x42\x43"])
def test_a_payload_that_is_cut_anywhere_in_its_key_has_none(header: bytes) -> None:
    key, body = bytes(range(16)), b"\x00Su\xa0\x01x"
    known = KeyMemory()
    whole = header + KEY_LEAD + key
    octets = frames([whole + body, whole], b"tag!", 300)
    for _ in range(2):  # the second time the header is known
        _, run = read(octets, len(octets), known=known, lead=len(KEY_LEAD))
        assert [(each.key, each.payload) for each in run] == [(key, header + body), (key, header)]
    for end in range(len(whole)):
        octets = frames([whole[:end]], b"tag!", 300)
        _, (one,) = read(octets, len(octets), known=known, lead=len(KEY_LEAD))
        assert (one.key, one.payload) == (None, whole[:end])
    for lead in (-1, len(known.last) + 1):
        with pytest.raises(ValueError, match="no such memory"):
            read(octets, len(octets), known=known, lead=lead)


@compiled
@pytest.mark.parametrize(
    "changed",
    [
        {"largest": 10},
        {"most": 0},
        {"delivery_id": 299},
        {"tag": b"\xa0\x05"},
        {"tag": b"\xa0\xff"},
        {"tag": b"\xb0\x04"},
        {"at": 1},
        {"at": -5},
    ],
)
def test_what_does_not_look_alike_is_left(changed: dict[str, object]) -> None:
    octets = frames([b"one", b"two"], b"tag!", 300)
    assert read(octets, len(octets), **changed) == (changed.get("at", 0), [])


@compiled
def test_a_size_that_lies_is_left() -> None:
    octets = bytearray(frames([b"one"], b"tag!", 300))
    for size in (0, 7, len(octets) - 4, len(octets) + 1, 0x7FFFFFFF, 0xFFFFFFFF):
        octets[:4] = size.to_bytes(4)
        assert read(bytes(octets), len(octets), largest=1 << 33) == (0, [])
    assert read(bytes(octets), len(octets) + 100) == (0, [])


@compiled
def test_only_usual_deliveries_are_written() -> None:
    assert bulk.shortcuts is not None
    dice = Random(1)
    usual = OutgoingDelivery(DeliveryNumber(1), DeliveryTag(b"tag!"), b"payload")
    unusual: list[dict[str, Any]] = [
        {"ttl_milliseconds": 1}, {"delivery_count": 0}, {"more": True}, {"resume": True},
        {"message_format": 1}, {"tag": DeliveryTag(b"longer")}, {"payload": bytes(9000)},
        {"payload": memoryview(b"view")}, {"key": b"k" * 16}, {"hops": ()},
    ]  # fmt: skip
    for fields in unusual:
        before = dice.randrange(4)
        run = [usual] * before + [attrs.evolve(usual, **fields)] + [usual]
        frames, count = bulk.shortcuts.write_run(
            run, 0, len(run), HEAD, b"\xa0\x04", 4, 300, 5000, 5000, True
        )
        assert count == before
        assert len(frames) == count * (4 + len(HEAD) + 4 + 2 + 4 + 2 + 7)
