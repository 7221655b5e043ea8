"""Follows the gapless numbers of each origin: finds missing records and repeats."""

import attrs

from router.journal.block import Block, Origin
from router.journal.record import RecordKind
from router.journal.segment import mark_of_row


@attrs.frozen(kw_only=True)
class Hole:
    """Records that an origin wrote and that are not in the log.

    Attributes:
        origin: who wrote them.
        first: sequence number of the first one.
        last: of the last one.
    """

    origin: Origin
    first: int
    last: int


class SequenceFollower:
    """Reads the blocks of a journal in the order of its segments.

    Attributes:
        expected: next sequence number of each origin.
        holes: what was found missing, oldest first.
    """

    def __init__(self) -> None:
        self.expected: dict[Origin, int] = {}
        self.holes: list[Hole] = []

    def is_new(self, block: Block) -> bool:
        """Returns whether the records of ``block`` have not been seen before, and notes holes.

        A block is seen twice when its first segment was given up after a failed flush.
        """
        if block.is_own:
            for row in block.unpacked_rows():
                if row[0] == RecordKind.MARK:
                    self._expect(*mark_of_row(row))
            return True
        origin = block.origin
        expected = self.expected.get(origin)
        if expected is None:
            expected = self._begin(origin)
        if block.last_sequence < expected:
            return False
        if block.first_sequence > expected:
            self.holes.append(Hole(origin=origin, first=expected, last=block.first_sequence - 1))
        self.expected[origin] = block.last_sequence + 1
        return True

    def _begin(self, origin: Origin) -> int:
        """Meets ``origin`` for the first time: earlier lives of its worker write no more."""
        for other in [other for other in self.expected if other.worker == origin.worker]:
            if other.incarnation < origin.incarnation:
                del self.expected[other]
        self.expected[origin] = 1
        return 1

    def _expect(self, origin: Origin, sequence: int) -> None:
        """Records a MARK: the log held all records of ``origin`` before ``sequence``."""
        expected = self.expected.get(origin)
        if expected is not None and expected < sequence:
            self.holes.append(Hole(origin=origin, first=expected, last=sequence - 1))
        self.expected[origin] = max(expected or 0, sequence)
