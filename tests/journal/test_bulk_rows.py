"""The compiled writers of rows write the octets that those of ``BlockWriter`` write."""

from collections.abc import Callable, Sequence
from typing import Final, cast

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from router.journal import block_writer, bulk
from router.journal.keys import LinkKey
from router.journal.record import ROW
from router.journal.writer import RecordWriter
from router.model.identity import DeliveryKey
from tests.support.counted import Counted

pytestmark = pytest.mark.skipif(bulk.shortcuts is None, reason="nothing was compiled")

SOURCE: Final = LinkKey(7)
TARGET: Final = LinkKey((1 << 64) - 2)


@attrs.frozen
class Run:
    """What is written at once.

    Attributes:
        keys, tags, payloads: of one delivery each.
        state: of their outcome.
        flags: of their records.
        is_held: payloads are kept.
    """

    keys: Sequence[DeliveryKey]
    tags: Sequence[bytes]
    payloads: Sequence[bytes]
    state: bytes = b""
    flags: int = 0
    is_held: bool = True


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Draws runs, long ones and some that are no lists of plain octets among them."""
    count = draw(st.sampled_from((1, 2, 3, 60, 700)))
    keys = [DeliveryKey(draw(st.binary(min_size=16, max_size=16)))] * count
    keys[0] = DeliveryKey(draw(st.binary(min_size=16, max_size=16)))
    few = st.lists(st.binary(max_size=40), min_size=1, max_size=4)
    tags = (draw(few) * count)[:count]
    payloads = (draw(few) * count)[:count]
    if draw(st.integers(0, 9)) == 0:
        payloads[-1] = bytes(block_writer.BLOCK_HEAP_OCTETS + draw(st.integers(-30, 30)))
    if draw(st.booleans()):
        tags[-1] = cast("bytes", bytearray(tags[-1]))  # not what a shortcut takes
    return Run(
        tuple(keys) if draw(st.booleans()) else keys,
        tags,
        payloads,
        state=draw(st.binary(max_size=30)),
        flags=draw(st.integers(0, 255)),
        is_held=draw(st.booleans()),
    )


def _receive(writer: RecordWriter, run: Run) -> None:
    writer.received_run(
        5, SOURCE, run.keys, run.tags, run.payloads, guarantee=1, protocol=2, flags=run.flags,
        is_held=run.is_held,
    )  # fmt: skip


def _send(writer: RecordWriter, run: Run) -> None:
    writer.sent_run(6, SOURCE, TARGET, run.keys, run.tags, guarantee=2, flags=run.flags)


def _outcome(writer: RecordWriter, run: Run) -> None:
    writer.outcome_run(7, SOURCE, TARGET, run.keys, 3, flags=run.flags, state=run.state)


def _settle(writer: RecordWriter, run: Run) -> None:
    writer.settled_run(8, SOURCE, TARGET, run.keys, flags=run.flags)


WRITERS: dict[str, Sequence[Callable[[RecordWriter, Run], None]]] = {
    "string_rows": (_receive, _send),
    "bare_rows": (_outcome, _settle),
}


def blocks(writes: Sequence[Callable[[RecordWriter, Run], None]], some: Sequence[Run]) -> object:
    """Writes runs in turn; returns everything that was written."""
    writer = RecordWriter(worker=1, incarnation=2)
    for at, run in enumerate(some):
        writes[at % len(writes)](writer, run)
    return writer.take_blocks(), writer.next_sequence


@pytest.mark.parametrize("name", WRITERS)
def test_a_shortcut_writes_the_octets_that_its_function_writes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(bulk.shortcuts)
    usual = Run([DeliveryKey(b"k" * 16)] * 3, [b"a", b"bc", b""], [b"x", b"", b"yz"])

    @given(st.lists(runs(), min_size=1, max_size=6))
    @example([usual, attrs.evolve(usual, is_held=False)])
    def is_the_same(some: Sequence[Run]) -> None:
        monkeypatch.setattr(block_writer, "shortcuts", counted)
        short = blocks(WRITERS[name], some)
        monkeypatch.setattr(block_writer, "shortcuts", None)
        assert blocks(WRITERS[name], some) == short

    is_the_same()
    assert name in counted.taken


def test_a_shortcut_changes_nothing_where_it_declines() -> None:
    assert bulk.shortcuts is not None
    rows, heap, row = bytearray(ROW.size * 2), bytearray(b"heap"), bytes(ROW.size)
    key = DeliveryKey(b"k" * 16)
    short = DeliveryKey(b"k" * 15)
    declined = [
        bulk.shortcuts.string_rows(rows, 0, heap, row, [key, short], [b"a", b"b"], None, False),
        bulk.shortcuts.string_rows(rows, 0, heap, row, [key] * 2, [b"a"], None, False),
        bulk.shortcuts.string_rows(rows, 0, heap, row, [key] * 3, [b"a"] * 3, None, False),
        bulk.shortcuts.string_rows(rows, 0, heap, row[1:], [key], [b"a"], None, False),
        bulk.shortcuts.string_rows(rows, 0, heap, row, [key], [b"a"], [b"a", b"b"], True),
        bulk.shortcuts.bare_rows(rows, ROW.size, row, [key] * 2),
        bulk.shortcuts.bare_rows(rows, -1, row, [key]),
        bulk.shortcuts.bare_rows(rows, 0, row, [short]),
    ]
    assert not any(declined)
    assert (rows, heap) == (bytearray(ROW.size * 2), bytearray(b"heap"))
