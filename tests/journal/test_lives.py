"""The two twins that follow the lives of deliveries make the same of whatever comes."""

from random import Random
from typing import Any

import pytest

from router.journal import lives
from router.journal.block import Block, Origin
from router.journal.bulk import shortcuts
from router.journal.lives import Lives, Place, make_lives
from router.journal.record import NO_TTL, ROW, RecordKind

LIFE = [
    (RecordKind.RECEIVED, False, 0),
    (RecordKind.SENT, False, 1),
    (RecordKind.OUTCOME, False, 1),
    (RecordKind.SETTLED, False, 0),
    (RecordKind.SETTLED, False, 1),
]
KINDS = [*RecordKind, 77, 255]


def row(kind: int, flags: int, number: int, incoming: int, outgoing: int) -> bytes:
    key = (number * 0x9E3779B97F4A7C15 & (1 << 64) - 1).to_bytes(8, "big") + number.to_bytes(8)
    return ROW.pack(
        kind, 0, 0, 0, flags, 0, 0, key, incoming, outgoing, 0, 0, 0, NO_TTL, 0, 0, 0
    )  # fmt: skip


def block(rows: list[bytes]) -> Block:
    octets = memoryview(b"".join(rows))
    return Block(
        octets=len(octets),
        first_sequence=1,
        row_count=len(rows),
        origin=Origin(1, 1),
        flags=0,
        rows=octets,
        heap=memoryview(b""),
    )


def random_rows(dice: Random, begun: list[tuple[int, int]]) -> list[bytes]:
    """Rows of lives that go the usual way, and of some that do not."""
    rows = []
    for _ in range(dice.randrange(1, 60)):
        number, step = dice.choice(begun) if begun and dice.random() < 0.8 else (len(begun), 0)
        if step == 0:
            begun.append((number, 1))
        else:
            begun[number] = number, min(step + 1, len(LIFE) - 1)
        kind, is_settled, leg = LIFE[step]
        flags, outgoing = 2 * dice.randrange(3) | is_settled, 900 * leg
        if dice.random() < 0.1:
            kind, flags = dice.choice(KINDS), dice.randrange(4)
            outgoing = dice.choice([0, 900, 901])
        rows.append(row(int(kind), flags, number, 5 + number % 3, outgoing))
    return rows


class Made:
    """Takes what is not followed; a delivery that was begun stays, to be seen by the twin."""

    def __init__(self) -> None:
        self.made: dict[Place, Any] = {}
        self.applied: list[bytes] = []

    def apply_row(self, block: Block, index: int) -> None:
        octets = bytes(block.rows[index * ROW.size : (index + 1) * ROW.size])
        self.applied.append(octets)
        values = ROW.unpack(octets)
        if values[0] == RecordKind.RECEIVED:
            self.made[values[8], values[7]] = True
        elif values[4] & 2:
            self.made.pop((values[8], values[7]), None)


@pytest.mark.skipif(shortcuts is None, reason="nothing was compiled")
@pytest.mark.parametrize("seed", range(40))
def test_both_make_the_same_in_the_same_order(seed: int) -> None:
    dice, begun = Random(seed), [(0, 1)]
    here, there = Made(), Made()
    reference, compiled = Lives(here.made), make_lives(there.made)
    assert not isinstance(compiled, Lives)
    for _ in range(dice.choice([3, 40, 200])):
        rows = block(random_rows(dice, begun))
        reference.apply(rows, here.apply_row)
        compiled.apply(rows, there.apply_row)
        if dice.random() < 0.03:
            reference.make_all(here.apply_row)
            compiled.make_all(there.apply_row)
        assert there.applied == here.applied
    reference.make_all(here.apply_row)
    compiled.make_all(there.apply_row)
    assert there.applied == here.applied
    assert there.made == here.made


@pytest.mark.parametrize("twin", ["reference", "compiled"])
def test_a_life_that_went_its_way_leaves_nothing_however_many_there_are(twin: str) -> None:
    if twin == "compiled" and shortcuts is None:
        pytest.skip("nothing was compiled")
    made = Made()
    following = Lives(made.made) if twin == "reference" else make_lives(made.made)
    for first in range(0, 20_000, 2000):
        for kind, _, leg in LIFE:
            numbers = range(first, first + 2000)
            rows = [row(int(kind), 0, number, 5, 900 * leg) for number in numbers]
            following.apply(block(rows), made.apply_row)
    following.apply(block([row(int(RecordKind.RECEIVED), 0, 1, 5, 0)]), made.apply_row)
    following.make_all(made.apply_row)
    assert [ROW.unpack(octets)[0] for octets in made.applied] == [RecordKind.RECEIVED]


def test_ways_fit_the_table_of_the_compiled_twin() -> None:
    assert all(0 <= way < 1 << 13 and step <= 7 for way, step in lives.WAYS.items())
