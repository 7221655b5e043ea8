"""Follows deliveries through the records, as long as their sequence of records is a usual one.

Nearly all deliveries are settled soon after their arrival, so a delivery is at first only followed,
as a list of the rows about it, along the few usual ways of a life:

    RECEIVED, SENT, OUTCOME settled, SETTLED                at least once
    RECEIVED, SENT, OUTCOME, SETTLED, SETTLED to target     exactly once
    RECEIVED settled, SENT settled                          at most once

At the end of such a way the delivery is forgotten, without ever having become an object. A delivery
that leaves these ways, or is still open when a caller asks, is *made*: its rows are applied one by
one.

Two implementations have the same behavior: ``_bulk.Lives``, compiled, and this one, the reference.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final
from typing import Protocol as Interface

import attrs

from router.journal.block import Block
from router.journal.bulk import shortcuts
from router.journal.record import RecordFlag, RecordKind

Place = tuple[int, bytes]
"""Incoming link key and delivery key of a row."""

ApplyRow = Callable[[Block, int], None]
"""Applies one row of a block."""

_RECEIVED: Final = int(RecordKind.RECEIVED)
_SETTLED_FLAG: Final = int(RecordFlag.SETTLED)
_BRIEF: Final = struct.Struct("<B3xH10x16sQQ32x")  # kind, flags, key, incoming and outgoing link
_DONE: Final = -1


def way_of(kind: int, step: int, *, is_settled: bool = False, has_outgoing: bool = False) -> int:
    """Returns the number of a row of ``kind`` at a step of a life."""
    return step << 10 | kind << 2 | is_settled << 1 | has_outgoing


WAYS: Final[Mapping[int, int]] = {
    way_of(RecordKind.SENT, 1, has_outgoing=True): 2,
    way_of(RecordKind.OUTCOME, 2, is_settled=True, has_outgoing=True): 3,
    way_of(RecordKind.SETTLED, 3): _DONE,
    way_of(RecordKind.OUTCOME, 2, has_outgoing=True): 4,
    way_of(RecordKind.SETTLED, 4): 5,
    way_of(RecordKind.SETTLED, 5, has_outgoing=True): _DONE,
    way_of(RecordKind.SENT, 6, is_settled=True, has_outgoing=True): _DONE,
}
"""The usual ways of a life: what row at which step leads to which; 1 and 6 are its beginnings."""


class Following(Interface):
    """The interface of both implementations."""

    def apply(self, block: Block, apply_row: ApplyRow) -> None:
        """Follows the records of a block; those not followed go to ``apply_row``."""

    def make_all(self, apply_row: ApplyRow) -> None:
        """Makes all that is only followed, and lets go of the blocks that it was followed in."""


@attrs.define
class _Life:
    """A delivery that is followed and not made yet.

    Attributes:
        step: along one of the usual ways.
        outgoing: the outgoing link, 0 if there is none yet.
        rows: block and index of each row about it.
    """

    step: int
    outgoing: int
    rows: list[tuple[Block, int]]


class Lives:
    """The reference."""

    def __init__(self, made: Mapping[Place, Any]) -> None:
        """Follows no delivery yet.

        Args:
            made: deliveries no longer followed; further rows about them are applied at once.
        """
        self._made = made
        self._lives: dict[Place, _Life] = {}

    def apply(self, block: Block, apply_row: ApplyRow) -> None:
        """Follows the records of a block; those not followed go to ``apply_row``."""
        lives, made = self._lives, self._made
        for index, (kind, flags, key, incoming, outgoing) in enumerate(
            _BRIEF.iter_unpack(block.rows)
        ):
            place = incoming, key
            life = lives.get(place)
            if life is not None:
                way = life.step << 10 | kind << 2 | (flags & _SETTLED_FLAG) << 1 | bool(outgoing)
                step = WAYS.get(way)
                if step is None or (life.outgoing and outgoing and outgoing != life.outgoing):
                    self._make(place, apply_row)
                    apply_row(block, index)
                elif step == _DONE:
                    del lives[place]
                else:
                    life.step = step
                    life.outgoing = life.outgoing or outgoing
                    life.rows.append((block, index))
            elif kind == _RECEIVED and place not in made:
                lives[place] = _Life(6 if flags & _SETTLED_FLAG else 1, 0, [(block, index)])
            else:
                apply_row(block, index)

    def make_all(self, apply_row: ApplyRow) -> None:
        """Makes all that is only followed, and lets go of the blocks that it was followed in."""
        for place in list(self._lives):
            self._make(place, apply_row)

    def _make(self, place: Place, apply_row: ApplyRow) -> None:
        for block, index in self._lives.pop(place).rows:
            apply_row(block, index)


def make_lives(made: dict[Place, Any]) -> Following:
    """Returns the compiled implementation if there is one, else the reference; see ``Lives``."""
    if shortcuts is None:
        return Lives(made)
    following: Following = shortcuts.Lives(WAYS, _RECEIVED, made)
    return following
